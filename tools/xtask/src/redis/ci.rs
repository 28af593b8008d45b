//! `cargo xtask redis ci`: all units of Redis's own suite against a `farcore serve` that is started
//! for it on loopback and ends with this program's step. A run takes well below three minutes: a
//! unit that hangs is ended.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;

use super::place::Place;
use super::process::Process;
use super::setup;
use super::tcl::{self, Tcl};

/// Time limit of a unit; the longest takes some five seconds.
const UNIT_SECONDS: u64 = 40;
/// The server's flags. Its memory is what the suite's values need, and the suite's own clients may
/// fill their buffers; a script takes a quarter of the memory for clients.
pub(super) const FLAGS: &str =
    "--resp 127.0.0.1:{port} --local 128MiB --far 256MiB --client-memory 256MiB --no-huge-pages";

#[derive(Debug, Args)]
pub(crate) struct Ci {
    /// The program `farcore` [default: it is built]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

pub(super) fn perform(place: &Place, ci: &Ci) -> Result<()> {
    setup::perform_suite(place)?;
    let binary = binary(ci.binary.as_deref())?;
    let command = format!("{} serve {FLAGS}", binary.display());
    let process = Process::start(&command, None, &place.log("ci-server")?)?;
    tcl::perform(place, &Tcl::all(process.server().clone(), UNIT_SECONDS))
}

/// The program `farcore`: this one, or it is built.
pub(super) fn binary(given: Option<&Path>) -> Result<PathBuf> {
    given.map_or_else(build, |binary| Ok(binary.to_owned()))
}

/// Builds `farcore`.
fn build() -> Result<PathBuf> {
    let package = ["--package", "farcore-tools", "--bin", "farcore"];
    crate::run(crate::cargo(&["build", "--quiet", "--locked"]).args(package))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    Ok(PathBuf::from(target).join("debug/farcore"))
}
