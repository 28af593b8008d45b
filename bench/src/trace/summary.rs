//! What a trace holds: counts, sizes, skipped lines.
//!
//! The summary is known before the replay and is part of the plan. The child process reads the file
//! again and compares its own summary with it.

use std::collections::BTreeMap;

use farcore::Size;
use serde::{Deserialize, Serialize};

use super::entry::Flaw;
use super::source::Format;

/// Lines or records skipped for one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// How many.
    pub count: u64,
    /// The number of the first, from 1.
    pub first: u64,
}

/// Why reading ended before the file did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stop {
    /// The limit on requests was reached.
    Limit,
    /// The memory for scripts is used up.
    Memory,
}

/// Figures of a trace, all threads together unless stated otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The format that the file was read in.
    pub format: Format,
    /// Requests read from it.
    pub entries: u64,
    /// Requests to the engine by thread, follow-ups included.
    pub requests_by_thread: Vec<u64>,
    /// Distinct keys.
    pub keys: u64,
    /// Gets that find their key.
    pub hits: u64,
    /// Gets that miss.
    pub misses: u64,
    /// Puts that follow a miss.
    pub fills: u64,
    /// Misses of keys that the trace never stored before and states no size for, so that they
    /// cannot be filled.
    pub unfillable: u64,
    /// Puts, fills included.
    pub puts: u64,
    /// Deletes.
    pub deletes: u64,
    /// Deletes that find their key.
    pub deletes_found: u64,
    /// Puts and touches with a time to live, whether or not it is applied.
    #[serde(default)]
    pub expiring: u64,
    /// Bytes of the values that gets find.
    pub read_bytes: u64,
    /// Bytes of the values that are put.
    pub written_bytes: u64,
    /// Bytes of the longest value that is put.
    pub value_bytes_longest: u32,
    /// Values that were cut to the longest allowed.
    pub values_cut: u64,
    /// Most bytes of keys and values stored at once.
    pub live_bytes_peak: u64,
    /// Memory of the scripts during compilation, in bytes.
    pub memory_bytes: u64,
    /// Lines or records that are not replayed, by reason.
    pub skipped: BTreeMap<Flaw, Skipped>,
    /// Why reading ended early, if it did.
    pub stop: Option<Stop>,
}

impl Summary {
    pub(super) fn new(format: Format, threads: usize) -> Self {
        Self {
            format,
            entries: 0,
            requests_by_thread: vec![0; threads],
            keys: 0,
            hits: 0,
            misses: 0,
            fills: 0,
            unfillable: 0,
            puts: 0,
            deletes: 0,
            deletes_found: 0,
            expiring: 0,
            read_bytes: 0,
            written_bytes: 0,
            value_bytes_longest: 0,
            values_cut: 0,
            live_bytes_peak: 0,
            memory_bytes: 0,
            skipped: BTreeMap::new(),
            stop: None,
        }
    }

    /// Requests to the engine.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests_by_thread.iter().sum()
    }

    /// Notes for a reader of the figures: skipped lines, cut values, times to live that are not
    /// applied, an early end.
    #[must_use]
    pub fn notes(&self, lifetimes_are_applied: bool) -> Vec<String> {
        let unit = match self.format {
            Format::Csv => "line",
            Format::OracleGeneral => "record",
        };
        let skipped = self.skipped.iter().map(|(flaw, Skipped { count, first })| {
            let plural = if *count == 1 { "" } else { "s" };
            let name = flaw.name();
            format!("skipped {count} {unit}{plural}: {name} (first: {unit} {first})")
        });
        let mut notes: Vec<String> = skipped.collect();
        if self.values_cut > 0 {
            let (cut, limit) = (self.values_cut, self.value_bytes_longest);
            let plural = if cut == 1 { "" } else { "s" };
            notes.push(format!(
                "cut {cut} value{plural} to {limit} bytes (--value-bytes-max)"
            ));
        }
        if self.unfillable > 0 {
            let gets = self.unfillable;
            let plural = if gets == 1 { "" } else { "s" };
            notes.push(format!(
                "{gets} get{plural} of keys that the trace never stores and states no size for stay misses: start recording while the engine is empty"
            ));
        }
        if self.expiring > 0 && !lifetimes_are_applied {
            let writes = self.expiring;
            let plural = if writes == 1 { "" } else { "s" };
            notes.push(format!(
                "{writes} write{plural} with a time to live, which is not applied: --apply-ttl does"
            ));
        }
        match self.stop {
            None => {}
            Some(Stop::Limit) => notes.push("read up to --limit".into()),
            Some(Stop::Memory) => notes.push(format!(
                "read until the memory for scripts was used up ({}): raise --trace-memory for more",
                Size(self.memory_bytes)
            )),
        }
        notes
    }
}
