//! `farcore rdb import`: each value of a file is sent as `RESTORE`, many at a time. The value's
//! bytes go as they are in the file, so the server checks and decodes them.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use farcore_command::outputs::print;
use farcore_rdb::{Crc64, FileEvent, FileReader, FileStep, Window, payload};
use indicatif::ProgressBar;

use super::check::{READ_BYTES, STRING_BYTES_MAX};
use super::connection::{Connection, Login, Reply, check_address, shown};
use crate::progress::progress;

/// Commands that are sent before their replies are read, and their bytes.
const COMMANDS: usize = 256;
const COMMAND_BYTES: usize = 1 << 20;
/// Errors that are shown.
const ERRORS_SHOWN: usize = 20;
/// Bytes of the longest value: what a server takes at most.
const VALUE_BYTES_MAX: usize = 512 << 20;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The file, e.g. dump.rdb.
    file: PathBuf,
    /// The server
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:6379")]
    to: String,
    /// Replace keys that the server has already; else they are errors
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    login: Login,
}

/// A value that is on its way.
#[derive(Debug)]
struct Sent {
    database: u64,
    key: Vec<u8>,
}

/// What a key is, whose value is read.
#[derive(Debug)]
struct Head {
    key: Vec<u8>,
    value_type: u8,
    expiry_ms: Option<u64>,
    /// Where its value begins in the file.
    start: u64,
}

struct Import<'a> {
    connection: Connection,
    arguments: &'a Arguments,
    database: u64,
    sent: VecDeque<Sent>,
    stored: u64,
    expired: u64,
    functions: u64,
    failed: u64,
    errors: Vec<String>,
}

impl Import<'_> {
    fn send(&mut self, head: &Head, value: &[u8]) -> Result<()> {
        let now_ms = farcore_tuning::system_ms();
        if head.expiry_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            self.expired += 1;
            return Ok(());
        }
        let mut bytes = Vec::with_capacity(1 + value.len() + payload::FOOTER_BYTES);
        bytes.push(head.value_type);
        bytes.extend_from_slice(value);
        let mut crc = Crc64::default();
        crc.add(&bytes);
        bytes.extend(payload::footer(crc));
        let expiry = head.expiry_ms.unwrap_or(0).to_string();
        let mut words: Vec<&[u8]> = vec![b"RESTORE", &head.key, expiry.as_bytes(), &bytes];
        if head.expiry_ms.is_some() {
            words.push(b"ABSTTL");
        }
        if self.arguments.replace {
            words.push(b"REPLACE");
        }
        self.connection.add(&words);
        self.sent.push_back(Sent {
            database: self.database,
            key: head.key.clone(),
        });
        if self.sent.len() >= COMMANDS || self.connection.unsent_bytes() >= COMMAND_BYTES {
            self.settle()?;
        }
        Ok(())
    }

    /// Sends what waits, and reads all replies.
    fn settle(&mut self) -> Result<()> {
        self.connection.flush()?;
        while let Some(Sent { database, key }) = self.sent.pop_front() {
            match self.connection.read()? {
                Reply::Error(text) => {
                    self.failed += 1;
                    if self.errors.len() < ERRORS_SHOWN {
                        let key = shown(&key);
                        self.errors
                            .push(format!("database {database}, key {key}: {text}"));
                    }
                }
                _ => self.stored += 1,
            }
        }
        Ok(())
    }

    fn select(&mut self, database: u64) -> Result<()> {
        self.settle()?;
        ensure!(
            self.connection.select(database)?,
            "{} has no database {database}",
            self.arguments.to
        );
        self.database = database;
        Ok(())
    }

    fn run(&mut self, file: &mut impl Read, path: &Path, bar: Option<&ProgressBar>) -> Result<()> {
        let path = path.display();
        let mut reader = FileReader::default();
        let (mut held, mut start, mut is_last) = (Vec::new(), 0u64, false);
        let mut head: Option<Head> = None;
        loop {
            let at = reader.at();
            let window = Window {
                bytes: &held,
                start,
                is_last,
            };
            let step = reader.next(window);
            let mut database = None;
            match step.with_context(|| format!("{path} is damaged"))? {
                FileStep::Event(FileEvent::Database(number)) => database = Some(number),
                FileStep::Event(FileEvent::Function) => self.functions += 1,
                FileStep::Event(FileEvent::Key(of)) => {
                    head = Some(Head {
                        key: of.key.to_vec(),
                        value_type: of.value_type,
                        expiry_ms: of.expiry_ms,
                        // It is known once the reader is not borrowed.
                        start: 0,
                    });
                }
                FileStep::Event(FileEvent::KeyEnd) => {
                    if let Some(head) = head.take() {
                        let place = |at: u64| usize::try_from(at - start).unwrap_or(usize::MAX);
                        let value = held.get(place(head.start)..place(at));
                        let value = value.context("the value is gone")?;
                        self.send(&head, value)?;
                    }
                }
                FileStep::Event(_) | FileStep::Busy => {}
                FileStep::End => break,
                FileStep::Room(bytes) if bytes > STRING_BYTES_MAX => {
                    bail!("{path}: a string of {bytes} bytes, at most {STRING_BYTES_MAX} are read");
                }
                FileStep::Room(bytes) => reader.allow(bytes),
                FileStep::More => {
                    // A value is kept from its beginning on.
                    let needed = head.as_ref().map_or(reader.at(), |head| head.start);
                    let passed = usize::try_from(needed - start).unwrap_or(0);
                    held.drain(..passed.min(held.len()));
                    start = needed;
                    let before = held.len();
                    if before > VALUE_BYTES_MAX {
                        let key = head
                            .as_ref()
                            .map_or_else(String::new, |head| shown(&head.key));
                        bail!("{path}: {key} has more than {VALUE_BYTES_MAX} bytes");
                    }
                    let more = file.by_ref().take(READ_BYTES as u64).read_to_end(&mut held);
                    more.with_context(|| format!("{path} cannot be read"))?;
                    is_last = held.len() == before;
                    if let Some(bar) = bar {
                        bar.set_position(start);
                    }
                }
            }
            if let Some(head) = head.as_mut().filter(|head| head.start == 0) {
                head.start = reader.at();
            }
            if let Some(database) = database {
                self.select(database)?;
            }
        }
        self.settle()
    }
}

/// Runs the command.
///
/// # Errors
/// The file cannot be read or is damaged, the server cannot be reached, or a key was refused.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    check_address("--to", &arguments.to)?;
    let path = arguments.file.display();
    let mut file = File::open(&arguments.file).with_context(|| format!("{path} cannot be read"))?;
    let bar = progress(file.metadata().map_or(0, |metadata| metadata.len()));
    let mut import = Import {
        connection: Connection::open(&arguments.to, &arguments.login)?,
        arguments,
        database: 0,
        sent: VecDeque::new(),
        stored: 0,
        expired: 0,
        functions: 0,
        failed: 0,
        errors: Vec::new(),
    };
    let outcome = import.run(&mut file, &arguments.file, bar.as_ref());
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    for error in &import.errors {
        eprintln!("{error}");
    }
    print(format_args!(
        "stored {}, refused {}, expired already {}",
        import.stored, import.failed, import.expired
    ))?;
    if import.functions > 0 {
        let functions = import.functions;
        print(format_args!(
            "libraries of functions, passed over: {functions}"
        ))?;
    }
    outcome?;
    ensure!(
        import.failed == 0,
        "{} keys were refused by {}: see above",
        import.failed,
        arguments.to
    );
    Ok(())
}
