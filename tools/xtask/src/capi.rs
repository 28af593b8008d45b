//! `cargo xtask capi`: the C interface, installed for programs in C and C++.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::{PUBLISHED, cargo, run};

const INSTALL: &str = "tools/capi/install.sh";
/// What pkg-config calls the libraries that the feature `verbs` needs.
const VERBS: &str = "libibverbs librdmacm";

#[derive(Debug, Subcommand)]
pub(crate) enum Capi {
    /// Build the libraries, and install them with the headers and farcore.pc.
    Install(Install),
}

#[derive(Debug, Args)]
pub(crate) struct Install {
    /// The folder that gets `lib` and `include`, such as /usr/local.
    #[arg(long, value_name = "DIR")]
    prefix: PathBuf,
    /// How it is built: `published` runs fastest, `release` builds quicker.
    #[arg(long, default_value = PUBLISHED)]
    profile: String,
    /// With RDMA devices.
    #[arg(long)]
    verbs: bool,
}

pub(crate) fn perform(task: &Capi) -> Result<()> {
    let Capi::Install(options) = task;
    let mut build = cargo(&["build", "--quiet", "--locked", "--package", "farcore-capi"]);
    build.args(["--profile", &options.profile]);
    let mut install = Command::new(INSTALL);
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    install.arg(PathBuf::from(target).join(folder_of(&options.profile)));
    install.arg(&options.prefix).arg(env!("CARGO_PKG_VERSION"));
    if options.verbs {
        build.args(["--features", "verbs"]);
        install.arg(VERBS);
    }
    run(&mut build)?;
    run(&mut install)?;
    println!(
        "installed in {0}; compile with PKG_CONFIG_PATH={0}/lib/pkgconfig",
        options.prefix.display()
    );
    Ok(())
}

/// The folder of a profile below cargo's.
fn folder_of(profile: &str) -> &str {
    match profile {
        "dev" => "debug",
        profile => profile,
    }
}
