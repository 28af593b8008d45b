//! Makes the scripts from a trace.
//!
//! While a trace is read, a table holds what every key would have. So each request carries what it
//! must find, and requests that follow from others (a miss is filled) stand in their places.
//!
//! I1: a key's requests are in one script, in the order of the trace. I2: a key's versions count
//! its puts, whatever the number of threads, so results compare across them.

use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Place;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Wish;
use super::entry::{Entry, Flaw, Verb};
use super::script::{Kind, Script, reserve};
use super::source::Format;
use super::summary::{Skipped, Stop, Summary};
use crate::plan::KEYS_MAX;
use crate::record::{below, mix};

const _: () = assert!(KEYS_MAX <= 1 << 32);
/// Requests between two looks at the memory.
const LOOK: u64 = 256;

/// What follows a get of a key that is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum OnMiss {
    /// A put of the stated size, as a read-through cache does.
    Fill,
    /// Nothing.
    Ignore,
}

/// What a key has, where the trace has been read to.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    version: u32,
    bytes: Option<u32>,
}

/// A script in the making.
#[derive(Debug, Default)]
struct Part {
    script: Script,
    table: HashTable<u32>,
    states: Vec<State>,
}

impl Part {
    /// The number of a key, which is new if this thread has not seen it; `None` if there are too
    /// many.
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

/// Makes the scripts, request by request.
#[derive(Debug)]
pub struct Loader<'a> {
    wish: &'a Wish,
    seed: u64,
    parts: Vec<Part>,
    summary: Summary,
    live_bytes: u64,
}

impl<'a> Loader<'a> {
    /// Empty scripts for some threads.
    #[must_use]
    pub fn new(wish: &'a Wish, threads: u64, seed: u64, format: Format) -> Self {
        let parts: Vec<Part> = (0..threads.max(1)).map(|_| Part::default()).collect();
        Self {
            wish,
            seed,
            summary: Summary::new(format, parts.len()),
            parts,
            live_bytes: 0,
        }
    }

    /// Notes a line that is of no use.
    pub fn skip(&mut self, flaw: Flaw, number: u64) {
        let skipped = self.summary.skipped.entry(flaw);
        skipped
            .or_insert(Skipped {
                count: 0,
                first: number,
            })
            .count += 1;
    }

    /// Takes a request; false if it was not taken because the limit or the memory is used up.
    pub fn take(&mut self, entry: &Entry<'_>) -> bool {
        if self
            .wish
            .limit
            .is_some_and(|limit| self.summary.entries >= limit)
        {
            self.summary.stop = Some(Stop::Limit);
            return false;
        }
        if self.summary.entries.is_multiple_of(LOOK)
            && self.memory_bytes() > self.wish.memory_bytes_max
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
        let held = self.parts[thread].states[key as usize].bytes;
        let mut subject = Subject {
            loader: self,
            thread,
            key,
            key_bytes: entry.key.len() as u64,
        };
        match (entry.verb, held) {
            (Verb::Set, _) => subject.put(entry.value_bytes),
            (Verb::Delete, _) => subject.delete(),
            (Verb::Get, Some(_)) => subject.get(),
            (Verb::Get, None) => {
                subject.get();
                let was_stored = subject.state().version > 0;
                let fill = subject.loader.wish.on_miss == OnMiss::Fill;
                if fill && entry.value_bytes > 0 {
                    subject.put(entry.value_bytes);
                    self.summary.fills += 1;
                } else if fill && !was_stored {
                    self.summary.unfillable += 1;
                }
            }
            (Verb::Extend, Some(bytes)) => {
                subject.get();
                subject.put(entry.value_bytes.saturating_add(u64::from(bytes)));
            }
            (Verb::Modify, Some(bytes)) => {
                subject.get();
                subject.put(u64::from(bytes));
            }
            (Verb::Extend | Verb::Modify, None) => subject.get(),
        }
        true
    }

    fn memory_bytes(&self) -> u64 {
        let bytes: usize = self.parts.iter().map(Part::memory_bytes).sum();
        bytes as u64
    }

    /// The scripts, and what they hold.
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

/// A key of which something is asked.
struct Subject<'l, 'a> {
    loader: &'l mut Loader<'a>,
    thread: usize,
    key: u32,
    key_bytes: u64,
}

impl Subject<'_, '_> {
    fn state(&mut self) -> &mut State {
        &mut self.loader.parts[self.thread].states[self.key as usize]
    }

    fn ask(&mut self, kind: Kind, version: u32, bytes: u32) {
        self.loader.parts[self.thread]
            .script
            .push(self.key, kind, version, bytes);
    }

    fn get(&mut self) {
        let State { version, bytes } = *self.state();
        match bytes {
            Some(bytes) => {
                self.ask(Kind::Hit, version, bytes);
                self.loader.summary.hits += 1;
                self.loader.summary.read_bytes += u64::from(bytes);
            }
            None => {
                self.ask(Kind::Miss, 0, 0);
                self.loader.summary.misses += 1;
            }
        }
    }

    fn put(&mut self, stated: u64) {
        let limit = self.loader.wish.value_bytes_max;
        let bytes = u32::try_from(stated).unwrap_or(u32::MAX).min(limit);
        let key_bytes = self.key_bytes;
        let state = self.state();
        state.version = state.version.wrapping_add(1);
        let (version, before) = (state.version, state.bytes.replace(bytes));
        self.ask(Kind::Put, version, bytes);
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
                self.ask(Kind::Delete, 0, 0);
                self.loader.summary.deletes_found += 1;
                self.loader.live_bytes -= u64::from(bytes) + key_bytes;
            }
            None => self.ask(Kind::DeleteAbsent, 0, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn wish() -> Wish {
        Wish {
            value_bytes_max: 1000,
            ..Wish::new("trace".as_ref(), 64 << 20)
        }
    }

    fn load(
        wish: &Wish,
        threads: u64,
        entries: &[(&str, Verb, u64)],
    ) -> (Summary, Vec<Arc<Script>>) {
        let mut loader = Loader::new(wish, threads, 5, Format::Csv);
        for &(key, verb, value_bytes) in entries {
            let entry = Entry {
                key: key.as_bytes(),
                verb,
                value_bytes,
            };
            if !loader.take(&entry) {
                break;
            }
        }
        loader.finish()
    }

    fn kinds(script: &Script) -> Vec<(Kind, u32, u32)> {
        let steps = (0..script.len()).map(|place| script.step(place));
        steps
            .map(|step| (step.kind, step.version, step.bytes))
            .collect()
    }

    #[test]
    fn each_request_carries_what_it_must_find() {
        let entries = [
            ("a", Verb::Get, 10),
            ("a", Verb::Get, 99),
            ("a", Verb::Extend, 5),
            ("a", Verb::Modify, 8),
            ("a", Verb::Delete, 0),
            ("a", Verb::Delete, 0),
            ("a", Verb::Extend, 5),
            ("a", Verb::Modify, 5),
            ("a", Verb::Get, 0),
            ("a", Verb::Set, 0),
            ("a", Verb::Get, 7),
            ("a", Verb::Set, 1_000_000_000_000),
            ("a", Verb::Extend, u64::MAX),
        ];
        let (summary, scripts) = load(&wish(), 1, &entries);
        let expected = [
            (Kind::Miss, 0, 0),
            (Kind::Put, 1, 10),
            (Kind::Hit, 1, 10),
            (Kind::Hit, 1, 10),
            (Kind::Put, 2, 15),
            (Kind::Hit, 2, 15),
            (Kind::Put, 3, 15),
            (Kind::Delete, 0, 0),
            (Kind::DeleteAbsent, 0, 0),
            (Kind::Miss, 0, 0),
            (Kind::Miss, 0, 0),
            (Kind::Miss, 0, 0),
            (Kind::Put, 4, 0),
            (Kind::Hit, 4, 0),
            (Kind::Put, 5, 1000),
            (Kind::Hit, 5, 1000),
            (Kind::Put, 6, 1000),
        ];
        assert_eq!(kinds(&scripts[0]), expected);
        assert_eq!(
            (summary.entries, summary.requests(), summary.keys),
            (13, 17, 1)
        );
        assert_eq!((summary.hits, summary.misses, summary.fills), (5, 4, 1));
        assert_eq!(
            (summary.puts, summary.deletes, summary.deletes_found),
            (6, 2, 1)
        );
        assert_eq!((summary.values_cut, summary.value_bytes_longest), (2, 1000));
        assert_eq!(summary.read_bytes, 10 + 10 + 15 + 1000);
        assert_eq!(summary.written_bytes, 10 + 15 + 15 + 2000);
        assert_eq!(summary.live_bytes_peak, 1001);
    }

    #[test]
    fn what_cannot_be_filled_is_told() {
        let entries = [
            ("a", Verb::Get, 0),
            ("b", Verb::Set, 5),
            ("b", Verb::Delete, 0),
            ("b", Verb::Get, 0),
        ];
        let (summary, _) = load(&wish(), 1, &entries);
        assert_eq!(
            (summary.misses, summary.fills, summary.unfillable),
            (2, 0, 1)
        );
        let notes = summary.notes().join("\n");
        assert!(notes.starts_with("1 get of keys"), "{notes}");
    }

    #[test]
    fn misses_are_left_alone_on_demand() {
        let wish = Wish {
            on_miss: OnMiss::Ignore,
            ..wish()
        };
        let (summary, scripts) = load(&wish, 1, &[("a", Verb::Get, 10), ("a", Verb::Get, 10)]);
        assert_eq!(kinds(&scripts[0]), [(Kind::Miss, 0, 0); 2]);
        assert_eq!((summary.misses, summary.fills), (2, 0));
    }

    #[test]
    fn limits_end_the_reading_and_say_so() {
        let keys: Vec<String> = (0..20_000).map(|number| format!("key:{number}")).collect();
        let entries: Vec<_> = keys.iter().map(|key| (&**key, Verb::Set, 10)).collect();
        let limited = Wish {
            limit: Some(7),
            ..wish()
        };
        let (summary, _) = load(&limited, 2, &entries);
        assert_eq!((summary.entries, summary.stop), (7, Some(Stop::Limit)));
        assert_eq!(summary.notes(), ["read up to --limit"]);
        let exactly = Wish {
            limit: Some(20_000),
            ..wish()
        };
        assert_eq!(load(&exactly, 2, &entries).0.stop, None);
        let small = Wish {
            memory_bytes_max: 256 << 10,
            ..wish()
        };
        let (summary, _) = load(&small, 2, &entries);
        assert_eq!(summary.stop, Some(Stop::Memory));
        assert!(
            (256 << 10..512 << 10).contains(&summary.memory_bytes),
            "{summary:?}"
        );
        assert!(summary.entries > 1000 && summary.notes()[0].contains("--trace-memory"));
    }

    proptest! {
        #[test]
        fn scripts_keep_the_order_on_each_key_for_any_number_of_threads(
            asked in proptest::collection::vec((0_u8..20, 0_u8..5, 0_u64..50), 0..300),
            threads in 1_u64..5,
        ) {
            let verbs = [Verb::Get, Verb::Set, Verb::Extend, Verb::Modify, Verb::Delete];
            let keys: Vec<String> = (0..20).map(|number| format!("k{number}")).collect();
            let entries: Vec<_> = asked
                .iter()
                .map(|&(key, verb, bytes)| (&*keys[usize::from(key)], verbs[usize::from(verb)], bytes))
                .collect();
            let by_key = |scripts: &[Arc<Script>]| {
                let mut found: HashMap<Vec<u8>, Vec<(Kind, u32, u32)>> = HashMap::new();
                for (thread, script) in scripts.iter().enumerate() {
                    let mut own = HashMap::new();
                    for place in 0..script.len() {
                        let step = script.step(place);
                        own.entry(step.key.to_vec())
                            .or_insert_with(Vec::new)
                            .push((step.kind, step.version, step.bytes));
                    }
                    for (key, steps) in own {
                        assert!(found.insert(key, steps).is_none(), "thread {thread} shares a key");
                    }
                }
                found
            };
            let (one, alone) = load(&wish(), 1, &entries);
            let (many, shared) = load(&wish(), threads, &entries);
            prop_assert_eq!(by_key(&alone), by_key(&shared));
            prop_assert_eq!((one.hits, one.live_bytes_peak, one.keys), (many.hits, many.live_bytes_peak, many.keys));
            // An oracle of its own: replaying the requests on a map finds what they say.
            let mut map = HashMap::new();
            for place in 0..alone[0].len() {
                let step = alone[0].step(place);
                let found = map.get(step.key).copied();
                match step.kind {
                    Kind::Hit => prop_assert_eq!(found, Some((step.version, step.bytes))),
                    Kind::Miss | Kind::DeleteAbsent => prop_assert_eq!(found, None),
                    Kind::Delete => prop_assert!(map.remove(step.key).is_some()),
                    Kind::Put => {
                        map.insert(step.key, (step.version, step.bytes));
                    }
                }
            }
        }
    }
}
