//! `HSCAN` and `SSCAN`: a hash or a set page by page.
//!
//! Redis lists a small one at once, and so does this. The elements of a longer one (fields or
//! members) are listed in the order of their hash values, and a cursor is the hash value that comes
//! next. So what other clients add or remove meanwhile moves no element to an earlier or later
//! page.
//!
//! - I1: an element that is there from the first page to the last is listed once.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use super::arguments::{integer, is_option};
use super::structured::{Failure, Record, finish};
use super::{Call, Flow, Refusal, SYNTAX};
use crate::encoding_limits::EncodingLimits;
use crate::glob;
use crate::hash_value::Entry;
use crate::kind::Kind;
use crate::resp::Writer;

type Result = std::result::Result<Flow, Refusal>;

/// Elements of a page, by default; as Redis.
const ELEMENTS: usize = 10;

/// Where an element stands in the order of pages; never 0, which begins and ends a scan. The same
/// in each page: the hasher has no random key. Elements that are made to have one value share a
/// page.
fn place_of(element: &[u8]) -> u64 {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    hasher.hash_one(element).max(1)
}

/// The options of a scan.
#[derive(Debug)]
struct Scan {
    kind: Kind,
    cursor: u64,
    count: usize,
    pattern: Option<Vec<u8>>,
    /// Fields come without their values.
    names_only: bool,
    /// Why the options are refused. As in Redis, an absent key has an empty page all the same.
    refusal: Option<Refusal>,
}

/// Elements of a page, and the next cursor.
type Page<'a> = (Vec<Entry<'a>>, u64);

impl Scan {
    fn of(call: &Call<'_>, kind: Kind) -> std::result::Result<Self, Refusal> {
        let cursor = std::str::from_utf8(call.argument(2)).ok();
        let cursor = cursor.and_then(|cursor| cursor.parse::<u64>().ok());
        let mut scan = Self {
            kind,
            cursor: cursor.ok_or("ERR invalid cursor")?,
            count: ELEMENTS,
            pattern: None,
            names_only: kind == Kind::Set,
            refusal: None,
        };
        scan.refusal = scan.read_options(call).err();
        Ok(scan)
    }

    fn read_options(&mut self, call: &Call<'_>) -> std::result::Result<(), Refusal> {
        let mut place = 3;
        while place < call.count() {
            let option = call.argument(place);
            if self.kind == Kind::Hash && is_option(option, "novalues") {
                self.names_only = true;
                place += 1;
                continue;
            }
            if place + 1 == call.count() {
                return Err(SYNTAX.into());
            }
            let value = call.argument(place + 1);
            if is_option(option, "match") {
                self.pattern = Some(value.to_vec());
            } else if is_option(option, "count") {
                let count = usize::try_from(integer(value)?).unwrap_or(0);
                if count < 1 {
                    return Err(SYNTAX.into());
                }
                self.count = count;
            } else {
                return Err(SYNTAX.into());
            }
            place += 2;
        }
        Ok(())
    }

    /// The elements of the page, and the next cursor. Cost: a hash of every element.
    fn page<'a>(
        &self,
        record: &'a Record,
        limits: &EncodingLimits,
    ) -> std::result::Result<Page<'a>, Failure> {
        let elements = record.entries(self.kind)?;
        if record.version == 0 {
            return Ok((elements, 0));
        }
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone().into());
        }
        if record.is_compact(limits) {
            return Ok((elements, 0));
        }
        let placed = elements.into_iter().map(|entry| (place_of(entry.0), entry));
        let mut left: Vec<_> = placed.filter(|(place, _)| *place >= self.cursor).collect();
        left.sort_unstable_by_key(|(place, _)| *place);
        let mut end = self.count.min(left.len());
        // Those of one place stay together.
        while end > 0 && end < left.len() && left[end].0 == left[end - 1].0 {
            end += 1;
        }
        let next = left.get(end).map_or(0, |(place, _)| *place);
        left.truncate(end);
        Ok((left.into_iter().map(|(_, entry)| entry).collect(), next))
    }

    fn write(&self, (mut elements, next): Page<'_>, writer: &mut Writer<'_>) {
        if let Some(pattern) = &self.pattern {
            elements.retain(|(name, _)| glob::matches(pattern, name));
        }
        writer.array(2);
        writer.bulk(next.to_string().as_bytes());
        writer.array(elements.len() * if self.names_only { 1 } else { 2 });
        for (name, value) in elements {
            writer.bulk(name);
            if !self.names_only {
                writer.bulk(value);
            }
        }
    }
}

fn scan(call: &mut Call<'_>, kind: Kind) -> Result {
    let scan = Scan::of(call, kind)?;
    let key = call.key().to_vec();
    let shared = Arc::clone(&call.serving.shared);
    Ok(call.task(move |mut core, output, protocol| async move {
        let _memory = output.take_record_memory(&core, 1).await;
        let record = Record::read(&mut core, &key).await;
        let page = match &record {
            Ok(record) => {
                record.note(&output);
                record.notify_missed(&output, &key);
                scan.page(record, &shared.encoding_limits)
            }
            Err(failure) => Err(failure.clone()),
        };
        finish(&output, protocol, (kind, page), |writer, page| {
            scan.write(page, writer);
        });
        core
    }))
}

pub(super) fn hscan(call: &mut Call<'_>) -> Result {
    scan(call, Kind::Hash)
}

pub(super) fn sscan(call: &mut Call<'_>) -> Result {
    scan(call, Kind::Set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash_value::with_fields;
    use crate::set_value::with_members;

    const KINDS: [Kind; 2] = [Kind::Hash, Kind::Set];

    fn scan(kind: Kind, cursor: u64, count: usize) -> Scan {
        Scan {
            kind,
            cursor,
            count,
            pattern: None,
            names_only: false,
            refusal: None,
        }
    }

    fn record_of(kind: Kind, elements: impl Iterator<Item = usize>) -> Record {
        // None is an integer.
        let names: Vec<_> = elements.map(|element| format!("x{element}")).collect();
        let names = names.iter().map(String::as_bytes);
        Record::of(match kind {
            Kind::Hash => with_fields(None, &names.map(|name| (name, name)).collect::<Vec<_>>()).0,
            _ => with_members(None, names).0.expect("there are members"),
        })
    }

    /// The names that a page lists, and the next cursor.
    fn page(scan: &Scan, record: &Record) -> (Vec<Vec<u8>>, u64) {
        let (elements, next) = scan
            .page(record, &EncodingLimits::default())
            .expect("whole");
        let names = elements.iter().map(|(name, _)| name.to_vec());
        (names.collect(), next)
    }

    #[test]
    fn elements_that_stay_are_listed_once_while_others_come_and_go() {
        for kind in KINDS {
            let mut listed = Vec::new();
            let (mut cursor, mut pages) = (0, 0);
            loop {
                // Of 2,000 elements, other ones are there in each page, and every third always.
                let is_there =
                    |element: &usize| element.is_multiple_of(3) || element % 7 == pages % 7;
                let record = record_of(kind, (0..2000).filter(is_there));
                let (names, next) = page(&scan(kind, cursor, 40), &record);
                assert!(names.len() == 40 || next == 0);
                listed.extend(names);
                pages += 1;
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
            assert!(pages > 15, "{pages}");
            for element in (0..2000).step_by(3) {
                let name = format!("x{element}");
                let times = listed.iter().filter(|one| **one == name.as_bytes()).count();
                assert_eq!(times, 1, "{element}");
            }
        }
    }

    #[test]
    fn a_small_record_is_listed_at_once() {
        for (kind, small) in [(Kind::Hash, 512), (Kind::Set, 128)] {
            let (names, next) = page(&scan(kind, 0, 1), &record_of(kind, 0..small));
            assert_eq!((names.len(), next), (small, 0));
            let (names, next) = page(&scan(kind, 0, 1), &record_of(kind, 0..=small));
            assert_eq!((names.len(), next == 0), (1, false));
        }
    }
}
