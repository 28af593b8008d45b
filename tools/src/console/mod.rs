//! `farcore console`: simulations of a card, their results and running engines in a browser.
//!
//! Checks the flags, finds the first administrator's password, starts the console of
//! `farcore-console`, prints `ready: http://ADDRESS`, and waits for a signal. [`password`] reads
//! passwords, [`live`] the figures of running engines.
//!
//! - I1: an error at start is one line on stderr with the remedy, and exit code 1.
//! - I2: beyond loopback the console needs a proxy that encrypts, or `--open-to-all`: passwords
//!   cross the network otherwise.
//! - I3: SIGTERM, SIGINT and SIGHUP end it with exit code 0 after open requests are answered. While
//!   a password is typed they end the process at once, and the terminal shows again what is typed.

mod live;
mod password;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use farcore::Size;
use farcore_command::parse_size;
use farcore_command::stop;
use farcore_console::{
    Console, FirstAdministrator, Options, StartError, StoreError, is_first_start,
};
use farcore_tuning::is_loopback;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use tracing::{info, warn};

use self::live::Sockets;
use crate::listen::{cannot_listen, check_address};

/// The least of `--import-limit`.
const IMPORT_BYTES_MIN: u64 = 1 << 20;
/// Most simulations at a time.
const PARALLEL_MAX: usize = 256;
/// The longest name of an administrator, in characters: the console's own limit.
const NAME_MAX: usize = 64;

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
    /// Largest file that can be imported, 1MiB or more
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
        if let Some(host) = self.host.iter().find(|host| !is_host(host)) {
            bail!("--host `{host}` is no name of a host: write it as console.example.org");
        }
        ensure!(
            self.import_limit >= IMPORT_BYTES_MIN,
            "--import-limit {}: too small for most files; write 1MiB or more",
            Size(self.import_limit)
        );
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
        let characters = self.admin_name.chars().count();
        ensure!(
            (1..=NAME_MAX).contains(&characters),
            "--admin-name has {characters} characters: write 1 to {NAME_MAX}"
        );
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

/// Whether a text can be the name of a host or an address.
fn is_host(text: &str) -> bool {
    let is_of_one = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    !text.is_empty() && text.chars().all(is_of_one)
}

/// Passes signals on, but those that come while a password is typed.
fn signals() -> Result<Receiver<i32>> {
    let heeded = stop::heeded(&[SIGTERM, SIGINT, SIGHUP, SIGTSTP]);
    let mut signals = Signals::new(heeded).context("cannot wait for signals")?;
    let (sender, received) = mpsc::channel();
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for signal in signals.forever() {
                if signal == SIGTSTP || password::is_typed() {
                    password::act(signal);
                } else if sender.send(signal).is_err() {
                    return;
                }
            }
        })
        .context("cannot start a thread")?;
    Ok(received)
}

/// The error of a start in terms of the flags.
fn named(arguments: &Arguments, error: StartError) -> anyhow::Error {
    match error {
        StartError::Listen { address, source } => cannot_listen("--listen", address, &source),
        // This text names the flag.
        StartError::Store(error @ StoreError::Locked { .. }) => error.into(),
        StartError::Store(error) => anyhow!("--data {error}"),
        StartError::First(text) => anyhow!("--data {}: {text}", arguments.data.display()),
        other => other.into(),
    }
}

fn serve(arguments: &Arguments) -> Result<()> {
    let signals = signals()?;
    let options = arguments.options()?;
    drop(check_address("--listen", arguments.listen)?);
    let console = Console::start(options).map_err(|error| named(arguments, error))?;
    let address = console.address();
    if !is_loopback(address) && arguments.open_to_all {
        warn!("no encryption: any host between {address} and a browser can read passwords");
    }
    let mut out = io::stdout();
    // A closed stdout is no reason to stop.
    let _ = writeln!(out, "ready: http://{address}").and_then(|()| out.flush());
    let signal = signals.recv().context("signals were lost")?;
    info!(signal, "stopping");
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
