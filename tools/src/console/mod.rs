//! `farcore console`: simulations of a card, their results and running engines in a browser.
//!
//! Checks the flags, finds the first administrator's password, starts the console of
//! `farcore-console`, prints `ready: http://ADDRESS`, and waits for a signal. [`password`] reads
//! passwords, [`live`] the figures of running engines.
//!
//! - I1: an error at start is one line on stderr with the remedy, and exit code 1.
//! - I2: beyond loopback the console needs a proxy that encrypts, or `--open-to-all`: passwords
//!   cross the network otherwise.
//! - I3: SIGTERM and SIGINT end it with exit code 0 after open requests are answered.

mod live;
mod password;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use clap::Args;
use farcore_bench::cli::parse_size;
use farcore_bench::stop;
use farcore_console::{Console, FirstAdministrator, Options, is_first_start};
use farcore_tuning::is_loopback;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing::{info, warn};

use self::live::Sockets;

/// Most simulations at a time.
const PARALLEL_MAX: usize = 256;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Address for browsers; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:8420", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Folder of the console's databases; it is made if it is absent
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Name of the administrator that the first start makes
    #[arg(long, value_name = "NAME", default_value = "admin")]
    admin_name: String,
    /// File with that administrator's password [default: it is read from the terminal]
    #[arg(long, value_name = "FILE")]
    admin_password_file: Option<PathBuf>,
    /// Name by which browsers reach the console, beside its address and localhost; may be given
    /// several times
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// A proxy in front of the console encrypts: cookies are for HTTPS only, and clients' addresses
    /// are read from X-Forwarded-For
    #[arg(long)]
    behind_tls: bool,
    /// Serve other hosts without encryption
    #[arg(long, conflicts_with = "behind_tls")]
    open_to_all: bool,
    /// Simulations at a time [default: half the cores]
    #[arg(long, value_name = "N")]
    parallel: Option<usize>,
    /// Largest file that can be imported
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "256MiB")]
    import_limit: u64,
    /// Statistics socket of a running engine, beside those in the default folder; may be given
    /// several times
    #[arg(long, value_name = "PATH")]
    stats_socket: Vec<PathBuf>,
}

impl Arguments {
    fn options(&self) -> Result<Options> {
        ensure!(
            is_loopback(self.listen) || self.behind_tls || self.open_to_all,
            "--listen {}: passwords would cross the network unencrypted; put a proxy that encrypts in front and give --behind-tls, or --open-to-all on a trusted network",
            self.listen
        );
        let mut options = Options::new(self.listen, self.data.clone());
        if let Some(parallel) = self.parallel {
            ensure!(
                (1..=PARALLEL_MAX).contains(&parallel),
                "--parallel {parallel}: write 1 to {PARALLEL_MAX}"
            );
            options.parallel = parallel;
        }
        options.hosts.clone_from(&self.host);
        options.is_behind_tls = self.behind_tls;
        options.import_bytes_max = self.import_limit;
        options.live = Arc::new(Sockets::new(self.stats_socket.clone()));
        options.first_administrator = self.first_administrator()?;
        Ok(options)
    }

    /// The administrator to make, if there is no user yet.
    fn first_administrator(&self) -> Result<Option<FirstAdministrator>> {
        if !is_first_start(&self.data) {
            return Ok(None);
        }
        let password = match &self.admin_password_file {
            Some(file) => password::from_file(file)?,
            None => password::from_terminal(&self.admin_name)?,
        };
        Ok(Some(FirstAdministrator {
            name: self.admin_name.clone(),
            password,
        }))
    }
}

fn serve(arguments: &Arguments) -> Result<()> {
    let options = arguments.options()?;
    // From here on a signal ends the console in order.
    let mut signals =
        Signals::new(stop::heeded(&[SIGTERM, SIGINT])).context("cannot wait for signals")?;
    let console = Console::start(options)?;
    let address = console.address();
    if !is_loopback(address) && arguments.open_to_all {
        warn!("no encryption: any host between {address} and a browser can read passwords");
    }
    let mut out = io::stdout();
    // A closed stdout is no reason to stop.
    let _ = writeln!(out, "ready: http://{address}").and_then(|()| out.flush());
    if let Some(signal) = signals.forever().next() {
        info!(signal, "stopping");
    }
    console.stop();
    info!("stopped");
    Ok(())
}

/// Runs the command until it is ended.
///
/// # Errors
/// A flag is wrong, or the console cannot start.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    serve(arguments).map(|()| ExitCode::SUCCESS)
}
