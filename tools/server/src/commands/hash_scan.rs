//! `HSCAN`: a hash page by page.
//!
//! Redis lists a small hash at once, and so does this. The fields of a longer one are listed in the
//! order of their hash values, and a cursor is the hash value that comes next. So what other
//! clients add or remove meanwhile moves no field to an earlier or later page.
//!
//! - I1: a field that is there from the first page to the last is listed once.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use super::arguments::{integer, is_option};
use super::structured::Record;
use super::{Call, Flow, Refusal, SYNTAX};
use crate::glob;
use crate::hash_value::{Entry, HashValue};
use crate::kind::Kind;
use crate::resp::Writer;

type Result = std::result::Result<Flow, Refusal>;

/// Fields of a page, by default; as Redis.
const FIELDS: usize = 10;
/// The encoding of a hash that is listed at once.
const SMALL: &str = "listpack";

/// Where a field stands in the order of pages; never 0, which begins and ends a scan. The same in
/// each page: the hasher has no random key. Fields that are made to have one value share a page.
fn place_of(field: &[u8]) -> u64 {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    hasher.hash_one(field).max(1)
}

/// The options of `HSCAN`.
#[derive(Debug)]
struct Scan {
    cursor: u64,
    count: usize,
    pattern: Option<Vec<u8>>,
    names_only: bool,
    /// Up to where a hash is small.
    limits: (usize, usize),
}

impl Scan {
    fn of(call: &Call<'_>) -> std::result::Result<Self, Refusal> {
        let cursor = std::str::from_utf8(call.argument(2)).ok();
        let cursor = cursor.and_then(|cursor| cursor.parse::<u64>().ok());
        let mut scan = Self {
            cursor: cursor.ok_or("ERR invalid cursor")?,
            count: FIELDS,
            pattern: None,
            names_only: false,
            limits: call.serving.shared.encoding_limits.hash(),
        };
        let mut place = 3;
        while place < call.count() {
            let option = call.argument(place);
            if is_option(option, "novalues") {
                scan.names_only = true;
                place += 1;
                continue;
            }
            if place + 1 == call.count() {
                return Err(SYNTAX.into());
            }
            let value = call.argument(place + 1);
            if is_option(option, "match") {
                scan.pattern = Some(value.to_vec());
            } else if is_option(option, "count") {
                let count = usize::try_from(integer(value)?).unwrap_or(0);
                if count < 1 {
                    return Err(SYNTAX.into());
                }
                scan.count = count;
            } else {
                return Err(SYNTAX.into());
            }
            place += 2;
        }
        Ok(scan)
    }

    /// The fields of the page, and the next cursor. Cost: a hash of every field.
    fn page<'a>(&self, hash: HashValue<'a>) -> (Vec<Entry<'a>>, u64) {
        if hash.encoding(self.limits) == SMALL {
            return (hash.iter().collect(), 0);
        }
        let placed = hash.iter().map(|entry| (place_of(entry.0), entry));
        let mut left: Vec<_> = placed.filter(|(place, _)| *place >= self.cursor).collect();
        left.sort_unstable_by_key(|(place, _)| *place);
        let mut end = self.count.min(left.len());
        // Those of one place stay together.
        while end > 0 && end < left.len() && left[end].0 == left[end - 1].0 {
            end += 1;
        }
        let next = left.get(end).map_or(0, |(place, _)| *place);
        left.truncate(end);
        (left.into_iter().map(|(_, entry)| entry).collect(), next)
    }

    fn write(&self, hash: Option<HashValue<'_>>, writer: &mut Writer<'_>) {
        let (mut fields, next) = hash.map_or_else(Default::default, |hash| self.page(hash));
        if let Some(pattern) = &self.pattern {
            fields.retain(|(field, _)| glob::matches(pattern, field));
        }
        writer.array(2);
        writer.bulk(next.to_string().as_bytes());
        writer.array(fields.len() * if self.names_only { 1 } else { 2 });
        for (field, value) in fields {
            writer.bulk(field);
            if !self.names_only {
                writer.bulk(value);
            }
        }
    }
}

pub(super) fn hscan(call: &mut Call<'_>) -> Result {
    let scan = Scan::of(call)?;
    let key = call.key().to_vec();
    Ok(call.task(move |mut core, output, protocol| async move {
        let record = Record::read(&mut core, &key).await;
        let hash = record.as_ref().map_err(|failure| failure.text(Kind::Hash));
        let hash =
            hash.and_then(|record| record.value().map_err(|failure| failure.text(Kind::Hash)));
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            match hash {
                Ok(hash) => scan.write(hash, &mut writer),
                Err(text) => writer.error(&text),
            }
        });
        core
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash_value::with_fields;
    use crate::kind::Structured;

    fn scan(cursor: u64, count: usize) -> Scan {
        Scan {
            cursor,
            count,
            pattern: None,
            names_only: false,
            limits: (4, 64),
        }
    }

    fn hash_of(fields: impl Iterator<Item = usize>) -> Vec<u8> {
        let names: Vec<_> = fields.map(|field| field.to_string()).collect();
        let entries: Vec<Entry<'_>> = (names.iter())
            .map(|name| (name.as_bytes(), name.as_bytes()))
            .collect();
        with_fields(None, &entries).0
    }

    #[test]
    fn fields_that_stay_are_listed_once_while_others_come_and_go() {
        let mut listed = Vec::new();
        let (mut cursor, mut pages) = (0, 0);
        loop {
            // Of 1,000 fields, other ones are there in each page, and every third always.
            let hash = hash_of((0..1000).filter(|field| field % 3 == 0 || field % 7 == pages % 7));
            let hash = HashValue::of(&hash).expect("a hash");
            let (fields, next) = scan(cursor, 20).page(hash);
            assert!(fields.len() == 20 || next == 0);
            listed.extend(fields.iter().map(|(field, _)| field.to_vec()));
            pages += 1;
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        assert!(pages > 15, "{pages}");
        for field in (0..1000).step_by(3) {
            let name = field.to_string();
            let times = listed.iter().filter(|one| **one == name.as_bytes()).count();
            assert_eq!(times, 1, "{field}");
        }
    }

    #[test]
    fn a_small_hash_is_listed_at_once() {
        let hash = hash_of(0..4);
        let (fields, next) = scan(0, 1).page(HashValue::of(&hash).expect("a hash"));
        assert_eq!((fields.len(), next), (4, 0));
    }
}
