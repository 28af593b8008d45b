//! `farcore fabric`: measures latency and bandwidth of far memory, and lists RDMA devices.
//!
//! `ping` has one request in flight at a time, `bandwidth` many, as `ib_read_lat` and `ib_read_bw`
//! of perftest do; `devices` lists. Measurements go through [`probe::Probe`], which opens the
//! endpoint and owns far memory. Nothing here knows keys, values or shards.
//!
//! - I1: an error is one line on stderr with the remedy, and exit code 1. Flags are checked before
//!   anything is opened.
//! - I2: far memory is freed and sessions are closed, also after a failure or a signal. A signal
//!   while they are being opened leaves them to the node, which ends them with their lease.
//! - I3: SIGINT, SIGTERM and SIGHUP end a measurement early, and so does a request that fails. What
//!   was measured is printed and written, marked partial. After a signal the exit code is 128 + its
//!   number, also if a request failed as well.

mod bandwidth;
mod devices;
mod ping;
mod probe;
mod request;
mod target;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use farcore_command::outputs::complain;
use farcore_command::stop;

use crate::text::line;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure the latency of one request at a time.
    Ping(ping::Arguments),
    /// Measure requests and bytes a second.
    Bandwidth(bandwidth::Arguments),
    /// List the RDMA devices of this machine.
    Devices(devices::Arguments),
}

impl Command {
    /// The words that name the command, for errors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Ping(_) => "fabric ping",
            Self::Bandwidth(_) => "fabric bandwidth",
            Self::Devices(_) => "fabric devices",
        }
    }
}

/// Runs the command.
///
/// # Errors
/// A flag is wrong, a node does not answer, or an output cannot be written.
pub(crate) fn run(command: &Command) -> Result<ExitCode> {
    let ended = match command {
        Command::Ping(arguments) => ping::run(arguments),
        Command::Bandwidth(arguments) => bandwidth::run(arguments),
        Command::Devices(arguments) => devices::run(arguments),
    };
    let Some(status) = stop::status() else {
        return ended.map(|()| ExitCode::SUCCESS);
    };
    if let Err(error) = ended {
        complain(format_args!("farcore {}: {}", command.name(), line(&error)));
    }
    Ok(ExitCode::from(status))
}
