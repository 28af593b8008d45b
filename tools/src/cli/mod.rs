//! `farcore cli`: a client of the native protocol.
//!
//! One command from the arguments, one a line from standard input, or a prompt. `words` has the
//! commands and their flags, `operations` carries them out, `bench` measures, `answer` shows
//! outcomes as text or JSON, `output` writes them. `lines` reads scripts, `prompt` a terminal,
//! `history` what the prompt remembers. `interrupt` handles signals, `escaped` makes bytes
//! printable.
//!
//! - I1: exit code 0: done; 1: an error, which is one line on stderr; 2: a key is absent; 3: a
//!   condition does not hold.
//! - I2: bytes from the server reach a terminal escaped.
//! - I3: the token comes from a file, and no file keeps a value that was typed.
//! - I4: a signal ends the command as if it were not caught, but for a measurement, which ends
//!   early with exit code 128 + the signal's number, and the terminal's mode, which is restored.

mod answer;
mod bench;
mod escaped;
mod history;
mod interrupt;
mod lines;
mod operations;
mod output;
mod prompt;
mod words;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use clap::Args;
use farcore_client::{Client, ClientOptions, Error, FabricAddress, VerbsOptions};
use farcore_command::outputs::complain;
use farcore_rdma::Scheme;

use self::operations::Session;
use self::output::Output;
use self::words::Command;
use crate::device::{DeviceArguments, check_build};
use crate::text::line;
use crate::token;

/// The command's name.
pub(crate) const NAME: &str = "cli";

/// The longest time limit on an operation.
const TIMEOUT_MAX: Duration = Duration::from_hours(24);

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 done, 1 error, 2 a key is absent, 3 a condition does not hold, \
                  128 + n signal n ended `bench`, whose figures until then are printed."
)]
pub(crate) struct Arguments {
    /// Server of native clients, as `farcore serve --native` prints it
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "FARCORE_SERVER",
        default_value = "tcp://127.0.0.1:7401"
    )]
    server: FabricAddress,
    /// File with the token that client and server prove to each other, as --native-token-file of
    /// the server
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Time limit on each operation, and on connecting
    #[arg(long, value_name = "TIME", default_value = "5s")]
    timeout: humantime::Duration,
    #[command(flatten)]
    device: DeviceArguments,
    /// Print each result as a JSON object on a line of its own
    #[arg(long, global = true)]
    json: bool,
    /// Go on after a command that fails, when standard input has the commands
    #[arg(long)]
    keep_going: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

impl Arguments {
    /// The words that name the command, for errors.
    pub(crate) fn name(&self) -> &'static str {
        self.command.as_ref().map_or(NAME, Command::full_name)
    }

    fn options(&self) -> Result<ClientOptions> {
        let default = ClientOptions::default();
        if self.server.scheme() == Scheme::Tcp {
            self.device.refuse("with a --server of tcp://")?;
        }
        check_build("--server", &self.server)?;
        ensure!(
            (Duration::from_millis(1)..=TIMEOUT_MAX).contains(&*self.timeout),
            "--timeout {}: no operation could end, or hardly ever; use 1ms to 24h",
            self.timeout
        );
        let token = self.token_file.as_deref();
        let token = token.map(|file| token::read("--token-file", file));
        let token = token.transpose()?;
        Ok(ClientOptions {
            token,
            timeout: self.timeout.into(),
            name: "farcore cli".to_owned(),
            verbs: VerbsOptions {
                inline_bytes: default.verbs.inline_bytes,
                ..self.device.options()?
            },
            ..default
        })
    }

    fn connect(&self) -> Result<Client> {
        let options = self.options()?;
        Client::connect(&self.server, options).map_err(|error| self.refusal(error))
    }

    /// Why there is no connection, and the remedy.
    fn refusal(&self, error: Error) -> anyhow::Error {
        let server = &self.server;
        if matches!(error, Error::Token { .. }) {
            return match &self.token_file {
                Some(file) => anyhow!(
                    "{server} rejected the token: --token-file {} differs from the server's --native-token-file, or the server has none",
                    file.display()
                ),
                None => anyhow!(
                    "{server} requires a token: give --token-file the server's --native-token-file"
                ),
            };
        }
        let remedy = match &error {
            Error::Unreachable { .. } => {
                "; start it with `farcore serve --native ADDRESS`, or name another with --server"
            }
            Error::Refused { .. } => "; --token-file names the token of this client",
            _ => "",
        };
        // The reason may name the address again.
        let place = format!(" {}:{}:", server.host(), server.port());
        let said = operations::explained(error).to_string();
        anyhow!("{}{remedy}", said.replacen(&place, "", 1))
    }
}

/// Runs the command, the commands of standard input, or a prompt.
///
/// # Errors
/// A flag is wrong, the server cannot be reached, or the operation failed.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let is_terminal = io::stdin().is_terminal();
    let reads_script = arguments.command.is_none() && !is_terminal;
    ensure!(
        !arguments.keep_going || reads_script,
        "--keep-going has no effect unless standard input has the commands: omit it"
    );
    interrupt::start()?;
    let client = arguments.connect()?;
    let Some(command) = &arguments.command else {
        let mut session = Session::new(client, Output::of_lines(arguments.json));
        return if reads_script {
            lines::run(&mut session, io::stdin().lock(), arguments.keep_going)
        } else {
            prompt::run(&mut session, &arguments.server)
        };
    };
    let name = arguments.name();
    let mut session = Session::new(client, Output::single(name, arguments.json));
    let ended = session.carry_out(command);
    session.output.flush()?;
    match (interrupt::status(), ended) {
        (None, Ok(ending)) => Ok(ending.code()),
        (None, Err(error)) => {
            // The command is named before its error.
            let operation = format!("{}: ", name.trim_start_matches("cli "));
            let said = line(&error);
            Err(anyhow!(
                "{}",
                said.strip_prefix(&operation).unwrap_or(&said)
            ))
        }
        (Some(status), ended) => {
            if let Err(error) = ended {
                complain(format_args!("farcore {name}: {}", line(&error)));
            }
            Ok(ExitCode::from(status))
        }
    }
}
