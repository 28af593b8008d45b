//! `farcore rdb export`: all databases of a running server by `SCAN`, `DUMP` and `PEXPIRETIME`,
//! into one file, which is there whole or not at all.
//!
//! Each key is as it was at some moment of the export. A key that is listed twice is written once.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::BuildHasher;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use farcore_command::outputs::print;
use farcore_rdb::{FileWriter, VERSION_WRITTEN, payload};

use super::connection::{Connection, Login, Reply, check_address, shown};
use crate::progress::progress;

/// Keys of a page of a scan, about.
const PAGE: &[u8] = b"256";
/// Databases that are looked for.
const DATABASES_MAX: u64 = 1 << 16;
/// Bytes that are written at once.
const WRITE_BYTES: usize = 1 << 20;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The file, e.g. dump.rdb; one that is there is replaced when the new one is whole.
    file: PathBuf,
    /// The server
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:6379")]
    from: String,
    #[command(flatten)]
    login: Login,
}

/// The file that is written beside the one that it replaces.
struct Beside {
    path: PathBuf,
    file: File,
    writer: FileWriter,
    unwritten: Vec<u8>,
    begun: bool,
    is_whole: bool,
}

impl Beside {
    fn create(target: &Path) -> Result<Self> {
        let mut name = target
            .file_name()
            .ok_or_else(|| anyhow!("{} names no file", target.display()))?
            .to_owned();
        name.push(format!(".{}.tmp", std::process::id()));
        let path = target.with_file_name(name);
        let file = File::create(&path);
        let file = file.with_context(|| format!("{} cannot be written", path.display()))?;
        Ok(Self {
            path,
            file,
            writer: FileWriter::default(),
            unwritten: Vec::new(),
            begun: false,
            is_whole: false,
        })
    }

    /// Begins the file, of the version of its first value.
    fn begin(&mut self, version: u16) {
        if !self.begun {
            self.begun = true;
            self.writer.begin_as(&mut self.unwritten, version);
            let version = env!("CARGO_PKG_VERSION").as_bytes();
            self.writer
                .aux(&mut self.unwritten, b"farcore-ver", version);
        }
    }

    fn write(&mut self, least: usize) -> Result<()> {
        if self.unwritten.len() < least {
            return Ok(());
        }
        self.writer.note(&self.unwritten);
        let written = self.file.write_all(&self.unwritten);
        self.unwritten.clear();
        written.with_context(|| format!("{} cannot be written", self.path.display()))
    }

    /// Ends the file, and puts it in its place once it is on the disk.
    fn finish(mut self, target: &Path) -> Result<()> {
        self.begin(VERSION_WRITTEN);
        self.write(0)?;
        let end = std::mem::take(&mut self.writer).end();
        let folder = target
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let put = self.file.write_all(&end);
        let put = put.and_then(|()| self.file.sync_all());
        let put = put.and_then(|()| fs::rename(&self.path, target));
        self.is_whole = put.is_ok();
        let put = put.and_then(|()| File::open(folder)?.sync_all());
        put.with_context(|| format!("{} cannot be written", target.display()))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if !self.is_whole {
            // One that remains is in no one's way.
            let _ = fs::remove_file(&self.path);
        }
    }
}

struct Export<'a> {
    connection: Connection,
    from: &'a str,
    to: Beside,
    /// The server tells when keys expire by the clock.
    tells_expiry: bool,
    keys: u64,
}

impl Export<'_> {
    fn refused<T>(&self, what: &str, reply: &Reply) -> Result<T> {
        match reply {
            Reply::Error(text) => bail!("{} refuses {what}: {text}", self.from),
            other => bail!("{} replies to {what}: {other:?}", self.from),
        }
    }

    /// Exports the database that is selected.
    fn database(&mut self, number: u64, each: impl Fn(u64)) -> Result<()> {
        let size = match self.connection.ask(&[b"DBSIZE"])? {
            Reply::Integer(size) => u64::try_from(size).unwrap_or(0),
            other => return self.refused("DBSIZE", &other),
        };
        if size == 0 {
            return Ok(());
        }
        let hashers = [RandomState::new(), RandomState::new()];
        let (mut seen, mut cursor, mut is_named) = (HashSet::new(), b"0".to_vec(), false);
        loop {
            let page = self.connection.ask(&[b"SCAN", &cursor, b"COUNT", PAGE])?;
            let (next, keys) = match page {
                Reply::Array(parts) => match <[Reply; 2]>::try_from(parts) {
                    Ok([Reply::Bulk(next), Reply::Array(keys)]) => (next, keys),
                    other => bail!("{} replies to SCAN: {other:?}", self.from),
                },
                other => return self.refused("SCAN", &other),
            };
            let mut names = Vec::new();
            for key in keys {
                if let Reply::Bulk(key) = key
                    && seen.insert([hashers[0].hash_one(&key), hashers[1].hash_one(&key)])
                {
                    names.push(key);
                }
            }
            let expiry: &[u8] = if self.tells_expiry {
                b"PEXPIRETIME"
            } else {
                b"PTTL"
            };
            for key in &names {
                self.connection.add(&[expiry, key]);
                self.connection.add(&[b"DUMP", key]);
            }
            self.connection.flush()?;
            for key in &names {
                let (expiry, dumped) = (self.connection.read()?, self.connection.read()?);
                let Some((expiry_ms, dumped)) = self.value(key, &expiry, dumped)? else {
                    continue;
                };
                self.add((number, size), &mut is_named, key, (expiry_ms, &dumped))?;
            }
            each(names.len() as u64);
            self.to.write(WRITE_BYTES)?;
            cursor = next;
            if cursor == b"0" {
                return Ok(());
            }
        }
    }

    /// When a key expires, and its payload; `None` if it has gone meanwhile.
    fn value(
        &self,
        key: &[u8],
        expiry: &Reply,
        dumped: Reply,
    ) -> Result<Option<(Option<u64>, Vec<u8>)>> {
        let key = || format!("key {}", shown(key));
        let expiry_ms = match expiry {
            Reply::Integer(-2) => return Ok(None),
            Reply::Integer(-1) => None,
            Reply::Integer(at) => {
                let at = u64::try_from(*at).unwrap_or(0);
                let now_ms = if self.tells_expiry {
                    0
                } else {
                    farcore_tuning::system_ms()
                };
                Some(now_ms + at)
            }
            other => return self.refused(&key(), other),
        };
        match dumped {
            Reply::Bulk(dumped) => Ok(Some((expiry_ms, dumped))),
            Reply::Null => Ok(None),
            other => self.refused(&key(), &other),
        }
    }

    fn add(
        &mut self,
        (number, size): (u64, u64),
        is_named: &mut bool,
        key: &[u8],
        (expiry_ms, dumped): (Option<u64>, &[u8]),
    ) -> Result<()> {
        let unknown = || format!("{}: key {} is in an unknown form", self.from, shown(key));
        let (summed, _) = payload::split(dumped).with_context(unknown)?;
        let version = payload::version(summed).with_context(unknown)?;
        let (value_type, value) = payload::value(summed).with_context(unknown)?;
        self.to.begin(version);
        let Beside {
            writer, unwritten, ..
        } = &mut self.to;
        if !std::mem::replace(is_named, true) {
            writer.database(unwritten, number, (size, 0));
        }
        writer.key(unwritten, key, (value_type, expiry_ms));
        unwritten.extend_from_slice(value);
        self.keys += 1;
        self.to.write(WRITE_BYTES)
    }
}

/// Runs the command.
///
/// # Errors
/// The server cannot be reached or refuses, or the file cannot be written.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    check_address("--from", &arguments.from)?;
    let mut connection = Connection::open(&arguments.from, &arguments.login)?;
    let probe = connection.ask(&[b"PEXPIRETIME", b"farcore"])?;
    let mut export = Export {
        connection,
        from: &arguments.from,
        // Once the server answers.
        to: Beside::create(&arguments.file)?,
        tells_expiry: matches!(probe, Reply::Integer(_)),
        keys: 0,
    };
    let bar = progress(0);
    let mut databases = 0;
    while databases < DATABASES_MAX && export.connection.select(databases)? {
        export.database(databases, |keys| {
            if let Some(bar) = &bar {
                bar.inc(keys);
            }
        })?;
        databases += 1;
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let keys = export.keys;
    export.to.finish(&arguments.file)?;
    print(format_args!(
        "wrote {keys} keys of {} to {}",
        arguments.from,
        arguments.file.display()
    ))
}
