//! `farcore fabric`: how fast far memory is reached, and which devices lead there.
//!
//! `ping` has one request under way at a time, `bandwidth` many, as `ib_read_lat` and `ib_read_bw`
//! of perftest do; `devices` lists. All go through [`probe::Probe`], the one room that opens an
//! endpoint and holds far memory. Nothing here knows keys, values or shards.
//!
//! - I1: whatever is wrong is one line on stderr with the remedy, and exit code 1; what is asked
//!   for is checked before anything is opened.
//! - I2: far memory is given back and sessions are ended, also after a failure.

mod bandwidth;
mod devices;
mod output;
mod ping;
mod probe;
mod request;
mod target;

use std::process::ExitCode;

use clap::Subcommand;

use crate::text;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// How long one request at a time takes.
    Ping(ping::Arguments),
    /// How many requests and bytes pass in a second.
    Bandwidth(bandwidth::Arguments),
    /// The RDMA devices of this machine.
    Devices(devices::Arguments),
}

/// Does what was asked for.
pub(crate) fn run(command: &Command) -> ExitCode {
    let (name, done) = match command {
        Command::Ping(arguments) => ("ping", ping::run(arguments)),
        Command::Bandwidth(arguments) => ("bandwidth", bandwidth::run(arguments)),
        Command::Devices(arguments) => ("devices", devices::run(arguments)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("farcore fabric {name}: {}", text::line(&error));
            ExitCode::FAILURE
        }
    }
}
