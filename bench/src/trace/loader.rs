//! Compiles the scripts from a trace.
//!
//! While the trace is read, a table holds the state that every key would have. So each request
//! carries its outcome, and requests that follow from others (a miss is filled) are inserted behind
//! them.
//!
//! I1: all requests on a key are in one script, in the order of the trace.
//! I2: a key's versions count its puts, whatever the number of threads, so results are comparable
//!     across thread counts.

use std::sync::Arc;

use farcore::Expiry;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Place;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::TraceOptions;
use super::entry::{Entry, Flaw, Verb};
use super::script::{Kind, Script, reserve};
use super::source::Format;
use super::summary::{Skipped, Stop, Summary};

use crate::record::{KEYS_MAX, below, mix};

const _: () = assert!(KEYS_MAX <= 1 << 32);
/// Requests between two checks of the memory in use.
const MEMORY_CHECK_PERIOD: u64 = 256;

/// What follows a get that misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum OnMiss {
    /// A put of the stated size, as behind a read-through cache.
    Fill,
    /// Nothing.
    Ignore,
}

/// The state of a key at the current place of the trace.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    version: u32,
    bytes: Option<u32>,
}

/// A script under construction.
#[derive(Debug, Default)]
struct Part {
    script: Script,
    table: HashTable<u32>,
    states: Vec<State>,
}

impl Part {
    /// The number of a key, added if this thread has not seen it; `None` if there are too many
    /// keys.
    fn number(&mut self, key: &[u8], word: u64) -> Option<u32> {
        let Self {
            script,
            table,
            states,
        } = self;
        let is_same =
            |&number: &u32| script.word(number) == word && script.key(number as usize) == key;
        match table.entry(word, is_same, |&number| script.word(number)) {
            Place::Occupied(held) => Some(*held.get()),
            Place::Vacant(vacant) => {
                let number = u32::try_from(states.len()).ok()?;
                vacant.insert(number);
                reserve(states, 1);
                states.push(State::default());
                script.push_key(key, word);
                Some(number)
            }
        }
    }

    fn memory_bytes(&self) -> usize {
        self.script.memory_bytes()
            + self.states.capacity() * size_of::<State>()
            + self.table.allocation_size()
    }
}

/// Compiles the scripts, request by request.
#[derive(Debug)]
pub struct Loader<'a> {
    options: &'a TraceOptions,
    seed: u64,
    parts: Vec<Part>,
    summary: Summary,
    live_bytes: u64,
}

impl<'a> Loader<'a> {
    /// Empty scripts, one a thread.
    #[must_use]
    pub fn new(options: &'a TraceOptions, threads: u64, seed: u64, format: Format) -> Self {
        let part = |_| Part {
            script: match options.lifetimes_per_mille {
                Some(_) => Script::with_lifetimes(),
                None => Script::default(),
            },
            ..Part::default()
        };
        let parts: Vec<Part> = (0..threads.max(1)).map(part).collect();
        Self {
            options,
            seed,
            summary: Summary::new(format, parts.len()),
            parts,
            live_bytes: 0,
        }
    }

    /// Counts a line that is skipped.
    pub fn skip(&mut self, flaw: Flaw, number: u64) {
        let skipped = self.summary.skipped.entry(flaw);
        skipped
            .or_insert(Skipped {
                count: 0,
                first: number,
            })
            .count += 1;
    }

    /// Adds a request; false if the limit or the memory is used up.
    pub fn push(&mut self, entry: &Entry<'_>) -> bool {
        if self
            .options
            .limit
            .is_some_and(|limit| self.summary.entries >= limit)
        {
            self.summary.stop = Some(Stop::Limit);
            return false;
        }
        if self.summary.entries.is_multiple_of(MEMORY_CHECK_PERIOD)
            && self.memory_bytes() > self.options.memory_bytes_max
        {
            self.summary.stop = Some(Stop::Memory);
            return false;
        }
        let word = xxh3_64_with_seed(entry.key, self.seed);
        #[expect(clippy::cast_possible_truncation, reason = "below the number of parts")]
        let thread = below(mix(word), self.parts.len() as u64) as usize;
        let Some(key) = self.parts[thread].number(entry.key, word) else {
            self.summary.stop = Some(Stop::Memory);
            return false;
        };
        self.summary.entries += 1;
        Subject {
            loader: self,
            thread,
            key,
            key_bytes: entry.key.len() as u64,
        }
        .add(entry);
        true
    }

    fn memory_bytes(&self) -> u64 {
        let bytes: usize = self.parts.iter().map(Part::memory_bytes).sum();
        bytes as u64
    }

    /// The scripts and their summary.
    #[must_use]
    pub fn finish(mut self) -> (Summary, Vec<Arc<Script>>) {
        self.summary.memory_bytes = self.memory_bytes();
        self.summary.keys = self.parts.iter().map(|part| part.states.len() as u64).sum();
        let scripts: Vec<_> = self
            .parts
            .into_iter()
            .map(|part| Arc::new(part.script))
            .collect();
        self.summary.requests_by_thread = scripts.iter().map(|script| script.len()).collect();
        (self.summary, scripts)
    }
}

/// The key of the current request.
struct Subject<'l, 'a> {
    loader: &'l mut Loader<'a>,
    thread: usize,
    key: u32,
    key_bytes: u64,
}

impl Subject<'_, '_> {
    /// Adds the requests of an entry.
    fn add(&mut self, entry: &Entry<'_>) {
        let held = self.state().bytes;
        match (entry.verb, held) {
            (Verb::Set, _) => self.put(entry.value_bytes, entry.expiry),
            (Verb::Delete, _) => self.delete(),
            (Verb::Get, Some(_)) => self.get(Kind::Hit),
            (Verb::Touch, Some(_)) => self.touch(Kind::Touch, entry.expiry),
            (Verb::GetAndTouch, Some(_)) => self.touch(Kind::GetAndTouch, entry.expiry),
            (Verb::Get | Verb::GetAndTouch, None) => {
                self.get(Kind::Hit);
                let was_stored = self.state().version > 0;
                let fill = self.loader.options.on_miss == OnMiss::Fill;
                if fill && entry.value_bytes > 0 {
                    self.put(entry.value_bytes, entry.expiry);
                    self.loader.summary.fills += 1;
                } else if fill && !was_stored {
                    self.loader.summary.unfillable += 1;
                }
            }
            (Verb::Extend, Some(bytes)) => {
                self.get(Kind::Hit);
                let bytes = entry.value_bytes.saturating_add(u64::from(bytes));
                self.put(bytes, Expiry::Keep);
            }
            (Verb::Modify, Some(bytes)) => {
                self.get(Kind::Hit);
                self.put(u64::from(bytes), Expiry::Keep);
            }
            (Verb::Extend | Verb::Modify | Verb::Touch, None) => self.get(Kind::Hit),
        }
    }

    fn state(&mut self) -> &mut State {
        &mut self.loader.parts[self.thread].states[self.key as usize]
    }

    fn request(&mut self, kind: Kind, version: u32, bytes: u32) {
        self.loader.parts[self.thread]
            .script
            .push(self.key, kind, version, bytes);
    }

    /// Sets when a key that exists expires; a get if times to live are not applied.
    fn touch(&mut self, kind: Kind, expiry: Expiry) {
        if self.loader.options.lifetimes_per_mille.is_none() {
            self.get(Kind::Hit);
        } else if kind == Kind::Touch {
            let State { version, .. } = *self.state();
            self.request(kind, version, 0);
        } else {
            self.get(kind);
        }
        self.expire(expiry);
    }

    /// Gives the last request a time to live.
    fn expire(&mut self, expiry: Expiry) {
        let scaled = match (expiry, self.loader.options.lifetimes_per_mille) {
            (Expiry::In(milliseconds), Some(per_mille)) => {
                Expiry::In(milliseconds.saturating_mul(per_mille) / 1000)
            }
            _ => expiry,
        };
        self.loader.summary.expiring += u64::from(matches!(expiry, Expiry::In(_)));
        self.loader.parts[self.thread].script.expire_last(scaled);
    }

    /// A get, of the kind `found` if the key exists.
    fn get(&mut self, found: Kind) {
        let State { version, bytes } = *self.state();
        match bytes {
            Some(bytes) => {
                self.request(found, version, bytes);
                self.loader.summary.hits += 1;
                self.loader.summary.read_bytes += u64::from(bytes);
            }
            None => {
                self.request(Kind::Miss, 0, 0);
                self.loader.summary.misses += 1;
            }
        }
    }

    fn put(&mut self, stated: u64, expiry: Expiry) {
        let limit = self.loader.options.value_bytes_max;
        let bytes = u32::try_from(stated).unwrap_or(u32::MAX).min(limit);
        let key_bytes = self.key_bytes;
        let state = self.state();
        state.version = state.version.wrapping_add(1);
        let (version, before) = (state.version, state.bytes.replace(bytes));
        self.request(Kind::Put, version, bytes);
        self.expire(expiry);
        let freed = before.map_or(0, |before| u64::from(before) + key_bytes);
        let loader = &mut *self.loader;
        loader.live_bytes = loader.live_bytes - freed + u64::from(bytes) + key_bytes;
        let summary = &mut loader.summary;
        summary.live_bytes_peak = summary.live_bytes_peak.max(loader.live_bytes);
        summary.puts += 1;
        summary.written_bytes += u64::from(bytes);
        summary.value_bytes_longest = summary.value_bytes_longest.max(bytes);
        summary.values_cut += u64::from(stated > u64::from(limit));
    }

    fn delete(&mut self) {
        let key_bytes = self.key_bytes;
        let before = self.state().bytes.take();
        self.loader.summary.deletes += 1;
        match before {
            Some(bytes) => {
                self.request(Kind::Delete, 0, 0);
                self.loader.summary.deletes_found += 1;
                self.loader.live_bytes -= u64::from(bytes) + key_bytes;
            }
            None => self.request(Kind::DeleteAbsent, 0, 0),
        }
    }
}

#[cfg(test)]
mod tests;
