//! `cargo xtask crash`: kills servers and memory nodes under load more often than the test does.

use anyhow::Result;
use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Crash {
    /// Kills of processes: a third of them of a server that is the host of all its memory
    #[arg(long, default_value_t = 200)]
    kills: u64,
    /// Kills of clients amid a request
    #[arg(long, default_value_t = 0)]
    client_kills: u64,
    /// Chooses victims and moments
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn perform(options: &Crash) -> Result<()> {
    let suite = |package: &str, test: &str, kills: u64| {
        let mut command = super::cargo(&["test", "--locked", "--package", package, "--test", test]);
        command.args(["--", "--nocapture", "--test-threads=1"]);
        command.env("FARCORE_KILLS", kills.to_string());
        command.env("FARCORE_SEED", options.seed.to_string());
        super::run(&mut command)
    };
    suite("farcore-tools", "crash", options.kills)?;
    match options.client_kills {
        0 => Ok(()),
        kills => suite("farcore-client", "killed", kills),
    }
}
