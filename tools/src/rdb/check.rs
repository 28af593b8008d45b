//! `farcore rdb check`: reads a file once, from its beginning to its end, in memory that does not
//! grow with it: it holds a part of the file, up to the longest string.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use farcore_command::outputs::print;
use farcore_rdb::{FileEvent, FileReader, FileStep, Item, ValueKind, Window};
use indicatif::ProgressBar;

use crate::progress::progress;
use crate::text::table;

/// Bytes that are read at once.
pub(super) const READ_BYTES: usize = 1 << 20;
/// Bytes of the longest string, packed or not. Redis has none above 512 MiB unless it is set so.
pub(super) const STRING_BYTES_MAX: usize = 1 << 30;

const KINDS: [(ValueKind, &str); 6] = [
    (ValueKind::String, "strings"),
    (ValueKind::List, "lists"),
    (ValueKind::Set, "sets"),
    (ValueKind::Hash, "hashes"),
    (ValueKind::SortedSet, "sorted sets"),
    (ValueKind::Stream, "streams"),
];

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The file, e.g. dump.rdb.
    file: PathBuf,
}

/// What a database holds of a kind.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    keys: u64,
    elements: u64,
    expiring: u64,
}

/// What a file holds.
#[derive(Debug, Default)]
struct Found {
    version: u32,
    server: Option<String>,
    /// By database, and place in [`KINDS`].
    counts: BTreeMap<(u64, usize), Counts>,
    database: u64,
    kind: usize,
    functions: u64,
    is_summed: bool,
}

impl Found {
    fn add(&mut self, event: FileEvent<'_>) {
        match event {
            FileEvent::Version(version) => self.version = version,
            FileEvent::Note(name, value) if *name == *b"redis-ver" => {
                self.server = Some(String::from_utf8_lossy(&value).into_owned());
            }
            FileEvent::Database(number) => self.database = number,
            FileEvent::Function => self.functions += 1,
            FileEvent::Key(head) => {
                let place = KINDS.iter().position(|(kind, _)| *kind == head.kind);
                self.kind = place.unwrap_or(0);
                let counts = self.here();
                counts.keys += 1;
                counts.expiring += u64::from(head.expiry_ms.is_some());
            }
            FileEvent::Item(
                Item::String(_)
                | Item::Element(_)
                | Item::Pair(..)
                | Item::Scored(..)
                | Item::Entry(..),
            ) => self.here().elements += 1,
            FileEvent::End(is_summed) => self.is_summed = is_summed,
            FileEvent::Note(..) | FileEvent::Sizes(..) | FileEvent::Item(_) | FileEvent::KeyEnd => {
            }
        }
    }

    fn here(&mut self) -> &mut Counts {
        self.counts.entry((self.database, self.kind)).or_default()
    }

    fn print(&self) -> Result<()> {
        let server = match &self.server {
            Some(server) => format!(" of Redis {server}"),
            None => String::new(),
        };
        print(format_args!("RDB version {}{server}", self.version))?;
        let rows = self.counts.iter().map(|((database, kind), counts)| {
            vec![
                database.to_string(),
                KINDS[*kind].1.to_owned(),
                counts.keys.to_string(),
                counts.elements.to_string(),
                counts.expiring.to_string(),
            ]
        });
        let columns = ["database", "kind", "keys", "elements", "with expiry"];
        print(table(&columns, 2, rows.collect()))?;
        if self.functions > 0 {
            let functions = self.functions;
            print(format_args!(
                "libraries of functions, passed over: {functions}"
            ))?;
        }
        print(match self.is_summed {
            true => "the checksum is right",
            false => "there is no checksum",
        })
    }
}

/// Runs the command.
///
/// # Errors
/// The file cannot be read, or is damaged.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let path = arguments.file.display();
    let mut file = File::open(&arguments.file).with_context(|| format!("{path} cannot be read"))?;
    let bytes = file.metadata().map_or(0, |metadata| metadata.len());
    let bar = progress(bytes);
    let checked = check(&mut file, &arguments.file, bar.as_ref());
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    checked?.print()
}

fn check(file: &mut impl Read, path: &Path, bar: Option<&ProgressBar>) -> Result<Found> {
    let path = path.display();
    let (mut reader, mut found) = (FileReader::default(), Found::default());
    // Bytes of the file from `start` on, of which those that are read no more go now and then.
    let (mut held, mut start, mut is_last) = (Vec::new(), 0u64, false);
    loop {
        let window = Window {
            bytes: &held,
            start,
            is_last,
        };
        let step = reader
            .next(window)
            .with_context(|| format!("{path} is damaged"))?;
        match step {
            FileStep::Event(event) => found.add(event),
            FileStep::Busy => {}
            FileStep::End => return Ok(found),
            FileStep::Room(bytes) if bytes > STRING_BYTES_MAX => {
                bail!("{path}: a string of {bytes} bytes, at most {STRING_BYTES_MAX} are read");
            }
            FileStep::Room(bytes) => reader.allow(bytes),
            FileStep::More => {
                let passed = usize::try_from(reader.at() - start).unwrap_or(0);
                held.drain(..passed.min(held.len()));
                start = reader.at();
                let before = held.len();
                if before > STRING_BYTES_MAX {
                    let at = reader.at();
                    bail!("{path}: a string at byte {at} has more than {STRING_BYTES_MAX} bytes");
                }
                let more = file.by_ref().take(READ_BYTES as u64).read_to_end(&mut held);
                more.with_context(|| format!("{path} cannot be read"))?;
                is_last = held.len() == before;
                if let Some(bar) = bar {
                    bar.set_position(start);
                }
            }
        }
    }
}
