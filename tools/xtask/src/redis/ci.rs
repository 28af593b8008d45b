//! `cargo xtask redis ci`: all units of Redis's own suite against a `farcore serve` that is started
//! for it on loopback and ends with this program's step. A run takes well below three minutes: a
//! unit that hangs is ended.

use anyhow::Result;

use super::place::Place;
use super::process::Process;
use super::setup;
use super::tcl::{self, Tcl};

/// Time limit of a unit; the longest takes some five seconds.
const UNIT_SECONDS: u64 = 40;
/// The server's flags. Its memory is what the suite's values need, and the suite's own clients may
/// fill their buffers.
const FLAGS: &str =
    "--resp 127.0.0.1:{port} --local 128MiB --far 256MiB --client-memory 64MiB --no-huge-pages";

pub(super) fn perform(place: &Place) -> Result<()> {
    setup::perform_suite(place)?;
    crate::run(&mut crate::cargo(&[
        "build",
        "--quiet",
        "--locked",
        "--package",
        "farcore-tools",
        "--bin",
        "farcore",
    ]))?;
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_owned());
    let command = format!("{target}/debug/farcore serve {FLAGS}");
    let process = Process::start(&command, None, &place.log("ci-server")?)?;
    tcl::perform(place, &Tcl::all(process.server().clone(), UNIT_SECONDS))
}
