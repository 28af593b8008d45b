//! Brings the changes of all shards into one order.
//!
//! ```text
//! feed: chunks of each shard -> rows -> groups: what is seen at once
//! ```
//!
//! - M1: the changes of one shard keep their order.
//! - M2: what was done under a section of several shards is one group. Its rows wait for each
//!   other. Since a client gets all sections before it gives one back, no two groups wait for
//!   each other.
//! - M3: all shards are emptied in one group, whether under sections or not. It begins with that:
//!   what a shard has changed before is of no use.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use farcore::{Fed, FedBody};
use farcore_tuning::mutated;

/// How long rows may wait for each other: longer than a client may hold a section.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sections of which parts are remembered that have changed nothing, before old ones are forgotten.
const EMPTY_PARTS_MAX: usize = 4096;

/// Why the changes cannot be brought into one order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum MergeError {
    #[error("a change of a shard cannot be read")]
    Malformed,
    #[error("a part of what was done over several shards is missing")]
    Incomplete,
}

/// Changes of a shard that are in no group yet.
#[derive(Debug, Default)]
struct Row {
    chunks: VecDeque<Vec<u8>>,
    /// Of the first chunk, the bytes that were passed on.
    at: usize,
    /// Bytes of the chunks before it.
    before: u64,
}

/// Where an entry is in a row: the chunk, and the bytes before it there.
type Place = (usize, usize);

/// What comes next in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// Nothing that is whole.
    Nothing,
    /// A step, up to this place.
    Step(Place),
    /// What was done under a section of one shard, up to this place.
    Alone(Place),
    /// A part of a section of several shards, up to this place.
    Part {
        number: u64,
        shards: u16,
        end: Place,
    },
    /// One that has changed nothing.
    Empty {
        number: u64,
        shards: u16,
        end: Place,
    },
    /// The shard is emptied.
    Clear(Place),
}

impl Row {
    fn entry(&self, (chunk, at): Place) -> Result<Option<(Fed<'_>, Place)>, MergeError> {
        let Some(bytes) = self.chunks.get(chunk) else {
            return Ok(None);
        };
        let (fed, length) = Fed::parse(&bytes[at..]).ok_or(MergeError::Malformed)?;
        let next = match at + length == bytes.len() {
            true => (chunk + 1, 0),
            false => (chunk, at + length),
        };
        Ok(Some((fed, next)))
    }

    fn next(&self) -> Result<Next, MergeError> {
        let Some((fed, mut end)) = self.entry((0, self.at))? else {
            return Ok(Next::Nothing);
        };
        match fed.body {
            FedBody::SectionBegins { number, shards } => {
                let mut is_empty = true;
                while let Some((fed, next)) = self.entry(end)? {
                    end = next;
                    if fed.body == FedBody::SectionEnds {
                        return Ok(match (shards, is_empty) {
                            (..=1, _) => Next::Alone(end),
                            (_, true) => Next::Empty {
                                number,
                                shards,
                                end,
                            },
                            (_, false) => Next::Part {
                                number,
                                shards,
                                end,
                            },
                        });
                    }
                    is_empty = false;
                }
                Ok(Next::Nothing)
            }
            FedBody::Clear => Ok(Next::Clear(end)),
            _ => {
                let mut has_more = fed.has_more;
                while has_more {
                    let Some((fed, next)) = self.entry(end)? else {
                        return Ok(Next::Nothing);
                    };
                    (has_more, end) = (fed.has_more, next);
                }
                Ok(Next::Step(end))
            }
        }
    }

    fn pass(&mut self, (chunk, at): Place, mut give_back: impl FnMut(Vec<u8>)) {
        for chunk in self.chunks.drain(..chunk) {
            self.before += chunk.len() as u64;
            give_back(chunk);
        }
        self.at = at;
    }
}

/// True if an entry may belong together with others.
fn is_of_several(body: &FedBody<'_>) -> bool {
    matches!(
        body,
        FedBody::SectionBegins { .. } | FedBody::SectionEnds | FedBody::Clear
    )
}

/// The changes of all shards.
#[derive(Debug)]
pub(super) struct Merge {
    rows: Vec<Row>,
    /// Of sections of several shards, how many parts have changed nothing, and since when.
    empty_parts: HashMap<u64, (u16, Instant)>,
    /// As many of them have those looked through that will never be whole.
    empty_parts_max: usize,
    /// Sections with lesser numbers may lack parts, and are passed on part by part.
    whole_sections: u64,
    /// Since when rows wait for each other.
    waits_since: Option<Instant>,
}

impl Merge {
    /// `whole_sections`: as [`farcore::Feed::whole_sections`].
    pub(super) fn new(shards: usize, whole_sections: u64) -> Self {
        Self {
            rows: (0..shards).map(|_| Row::default()).collect(),
            empty_parts: HashMap::new(),
            empty_parts_max: EMPTY_PARTS_MAX,
            whole_sections,
            waits_since: None,
        }
    }

    /// Adds changes of a shard.
    pub(super) fn add(&mut self, shard: usize, chunk: Vec<u8>) {
        if !chunk.is_empty() {
            self.rows[shard].chunks.push_back(chunk);
        }
    }

    /// True if each shard's changes up to this byte were passed on.
    pub(super) fn has_passed(&self, bytes: &[u64]) -> bool {
        let mut rows = self.rows.iter().zip(bytes);
        rows.all(|(row, bytes)| row.before + row.at as u64 >= *bytes)
    }

    /// Passes groups on, as far as they are whole; `group` gets the changes of each. Buffers that
    /// are empty then are given back.
    pub(super) fn run(
        &mut self,
        now: Instant,
        mut group: impl FnMut(&[Fed<'_>]),
        mut give_back: impl FnMut(usize, Vec<u8>),
    ) -> Result<(), MergeError> {
        loop {
            let mut is_busy = false;
            let mut parts = Vec::new();
            for shard in 0..self.rows.len() {
                loop {
                    let row = &self.rows[shard];
                    // Most changes are steps of their own.
                    if let Some((fed, end)) = row.entry((0, row.at))?
                        && !fed.has_more
                        && !is_of_several(&fed.body)
                    {
                        group(std::slice::from_ref(&fed));
                        self.rows[shard].pass(end, |chunk| give_back(shard, chunk));
                        is_busy = true;
                        continue;
                    }
                    let end = match row.next()? {
                        Next::Step(end) | Next::Alone(end) => end,
                        Next::Part { number, end, .. }
                            if number < self.whole_sections || mutated!("parts-not-joined") =>
                        {
                            end
                        }
                        Next::Empty {
                            number,
                            shards,
                            end,
                        } => {
                            self.note_empty((number, shards), now);
                            end
                        }
                        waits => {
                            parts.push(waits);
                            break;
                        }
                    };
                    self.pass_on(&[(shard, end)], &mut group, &mut give_back)?;
                    is_busy = true;
                }
            }
            if let Some(together) = self.together(&parts) {
                self.pass_on(&together, &mut group, &mut give_back)?;
                self.waits_since = None;
                continue;
            }
            let waits = parts.iter().any(|part| *part != Next::Nothing);
            if !waits || is_busy {
                self.waits_since = waits.then_some(now);
            }
            let since = self.waits_since;
            if since.is_some_and(|since| now.saturating_duration_since(since) > PATIENCE) {
                return Err(MergeError::Incomplete);
            }
            return Ok(());
        }
    }

    fn pass_on(
        &mut self,
        parts: &[(usize, Place)],
        group: &mut impl FnMut(&[Fed<'_>]),
        give_back: &mut impl FnMut(usize, Vec<u8>),
    ) -> Result<(), MergeError> {
        let (mut changes, mut clears) = (Vec::new(), None);
        for &(shard, end) in parts {
            let row = &self.rows[shard];
            let first = changes.len();
            let mut at = (0, row.at);
            while at != end {
                let Some((fed, next)) = row.entry(at)? else {
                    break;
                };
                let is_mark = matches!(
                    fed.body,
                    FedBody::SectionBegins { .. } | FedBody::SectionEnds
                );
                if fed.body == FedBody::Clear {
                    changes.truncate(first);
                    clears = Some(fed);
                } else if !is_mark {
                    changes.push(fed);
                }
                at = next;
            }
        }
        if let Some(clear) = clears {
            changes.insert(0, clear);
        }
        if !changes.is_empty() {
            group(&changes);
        }
        drop(changes);
        for &(shard, end) in parts {
            self.rows[shard].pass(end, |chunk| give_back(shard, chunk));
        }
        Ok(())
    }

    /// Notes a part of a section that has changed nothing. A section that not all of its shards
    /// have given has such parts alone, and is forgotten later.
    fn note_empty(&mut self, (number, shards): (u64, u16), now: Instant) {
        if self.empty_parts.len() >= self.empty_parts_max {
            self.empty_parts
                .retain(|_, (_, since)| now.saturating_duration_since(*since) <= PATIENCE);
            // So that each is looked at a few times at most.
            self.empty_parts_max = EMPTY_PARTS_MAX.max(2 * self.empty_parts.len());
        }
        let known = self.empty_parts.entry(number);
        let (parts, _) = known.or_insert_with(|| (0, now));
        *parts += 1;
        if *parts >= shards {
            self.empty_parts.remove(&number);
        }
    }

    /// The rows that go on together, if some do: those of a section of which all parts are there,
    /// or all that are emptied.
    fn together(&mut self, parts: &[Next]) -> Option<Vec<(usize, Place)>> {
        let rows = || parts.iter().enumerate();
        let cleared = rows().filter_map(|(shard, part)| match *part {
            Next::Clear(end) => Some((shard, end)),
            _ => None,
        });
        let cleared: Vec<_> = cleared.collect();
        if cleared.len() == parts.len() {
            return Some(cleared);
        }
        let sections = parts.iter().filter_map(|part| match *part {
            Next::Part { number, shards, .. } => Some((number, shards)),
            _ => None,
        });
        for (number, shards) in sections {
            let all = rows().filter_map(|(shard, part)| match *part {
                Next::Part {
                    number: other, end, ..
                } if other == number => Some((shard, end)),
                _ => None,
            });
            let all: Vec<_> = all.collect();
            let empty = self.empty_parts.get(&number).map_or(0, |(parts, _)| *parts);
            if all.len() + usize::from(empty) >= usize::from(shards) {
                self.empty_parts.remove(&number);
                return Some(all);
            }
        }
        None
    }
}
