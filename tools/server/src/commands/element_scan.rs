//! `HSCAN` and `SSCAN`: a hash or a set page by page.
//!
//! Redis lists a small one at once, and so does this. The elements of a longer one (fields or
//! members) are listed in the order of their hash values, and a cursor is the hash value that comes
//! next. So what other clients add or remove meanwhile moves no element to an earlier or later
//! page.
//!
//! - I1: an element that is there from the first page to the last is listed once.

use std::sync::Arc;

use farcore::{Core, TreeBound, TreePage};

use super::arguments::{integer, is_option, pattern};
use super::structured::{Failure, Record, fail, hold_records};
use super::trees::{length_of, small};
use super::{Call, Flow, Refusal, SYNTAX};
use crate::events::classes::EventClasses;
use crate::glob;
use crate::memory::{Charge, Shortage};
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::failure::TaskFailure;
use crate::tasks::output::TaskOutput;
use crate::types::element::{Entry, entry_of, place_in, place_of, start_of};
use crate::types::encoding_limits::EncodingLimits;
use crate::types::kind::Kind;

type Result = std::result::Result<Flow, Refusal>;

/// Elements of a page, by default; as Redis.
const ELEMENTS: usize = 10;
/// Elements of a page, at most, whatever the client wants.
const ELEMENTS_MAX: usize = 8 << 10;
/// Bytes that an element takes beside its own while a page is gathered.
const BESIDE_ELEMENT: usize = size_of::<Entry<'_>>() + 8;
/// Elements that are written before the client must have taken some.
const ELEMENTS_AT_ONCE: usize = 64;

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
                self.pattern = Some(pattern(value)?.to_vec());
            } else if is_option(option, "count") {
                let count = usize::try_from(integer(value)?).unwrap_or(0);
                if count < 1 {
                    return Err(SYNTAX.into());
                }
                self.count = count.min(ELEMENTS_MAX);
            } else {
                return Err(SYNTAX.into());
            }
            place += 2;
        }
        Ok(())
    }

    /// True if a record is listed at once.
    fn is_whole(&self, record: &Record, limits: &EncodingLimits) -> bool {
        record.version == 0 || record.is_compact(limits)
    }

    /// Keeps the elements that match the pattern.
    async fn keep_matching(&self, elements: &mut Vec<Entry<'_>>, core: &Core) {
        let Some(pattern) = &self.pattern else {
            return;
        };
        let mut kept = 0;
        for place in 0..elements.len() {
            steps::end_slice(core).await;
            if glob::matches(pattern, elements[place].0) {
                elements.swap(kept, place);
                kept += 1;
            }
        }
        elements.truncate(kept);
    }

    /// Writes a page as the client takes it.
    async fn write(
        &self,
        (elements, next): Page<'_>,
        core: &Core,
        (output, protocol): (&TaskOutput, Protocol),
    ) {
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            writer.array(2);
            writer.bulk(next.to_string().as_bytes());
            writer.array(elements.len() * if self.names_only { 1 } else { 2 });
        });
        for some in elements.chunks(ELEMENTS_AT_ONCE) {
            output.room(core).await;
            steps::count(some.len());
            steps::end_slice(core).await;
            output.write(|bytes| {
                let mut writer = Writer::new(bytes, protocol);
                for (name, value) in some {
                    writer.bulk(name);
                    if !self.names_only {
                        writer.bulk(value);
                    }
                }
            });
        }
    }

    /// Lists a page of a record; an error comes before anything is written.
    async fn list(
        &self,
        record: &Record,
        limits: &EncodingLimits,
        held: &mut Charge,
        core: &Core,
        (output, protocol): (&TaskOutput, Protocol),
    ) -> std::result::Result<(), Failure> {
        let lacks = |shortage: Shortage| Refusal(shortage.to_string());
        let elements = record.each()?;
        if record.version != 0
            && let Some(refusal) = &self.refusal
        {
            return Err(refusal.clone().into());
        }
        let is_whole = self.is_whole(record, limits);
        let mut paging = Paging::new(self, is_whole);
        let records = held.bytes();
        for (place, entry) in elements.enumerate() {
            if place.is_multiple_of(steps::PIECE) {
                held.grow_to(records + paging.held_bytes()).map_err(lacks)?;
                steps::end_slice(core).await;
            }
            paging.add(entry);
        }
        let (mut elements, next) = paging.finish();
        self.keep_matching(&mut elements, core).await;
        self.write((elements, next), core, (output, protocol)).await;
        Ok(())
    }
}

/// The elements of a page while all of a record are looked at: those that come first from the
/// cursor on.
struct Paging<'a> {
    cursor: u64,
    /// How many are wanted; none if all are, in their order.
    count: Option<usize>,
    left: Vec<(u64, Entry<'a>)>,
    /// The first place of those that were left out; 0 if none was.
    next: u64,
}

impl<'a> Paging<'a> {
    fn new(scan: &Scan, is_whole: bool) -> Self {
        Self {
            cursor: scan.cursor,
            count: (!is_whole).then_some(scan.count),
            left: Vec::new(),
            next: 0,
        }
    }

    /// Bytes that the elements take when a piece more are added.
    fn held_bytes(&self) -> usize {
        2 * (self.left.len() + steps::PIECE) * size_of::<(u64, Entry<'_>)>()
    }

    /// Takes an element. Cost: its hash.
    fn add(&mut self, entry: Entry<'a>) {
        steps::count(1);
        let Some(count) = self.count else {
            return self.left.push((0, entry));
        };
        steps::count_copied(entry.0.len());
        let place = place_of(entry.0);
        if place >= self.cursor {
            self.left.push((place, entry));
        }
        if self.left.len() >= 2 * count + steps::PIECE {
            self.keep_first(count);
        }
    }

    /// Drops all but `count` that come first; those of one place stay together.
    fn keep_first(&mut self, count: usize) {
        if self.left.len() <= count {
            return;
        }
        steps::count(self.left.len());
        let (_, &mut (last, _), _) =
            (self.left).select_nth_unstable_by_key(count - 1, |(place, _)| *place);
        let next = self
            .left
            .iter()
            .map(|(place, _)| *place)
            .filter(|place| *place > last)
            .min();
        if let Some(next) = next {
            self.next = if self.next == 0 {
                next
            } else {
                self.next.min(next)
            };
            self.left.retain(|(place, _)| *place <= last);
        }
    }

    /// The elements of the page, and the next cursor.
    fn finish(mut self) -> Page<'a> {
        if let Some(count) = self.count {
            self.keep_first(count);
            self.left.sort_unstable_by_key(|(place, _)| *place);
        }
        (
            self.left.into_iter().map(|(_, entry)| entry).collect(),
            self.next,
        )
    }
}

/// Elements of a tree, as they were read.
#[derive(Default)]
struct Pages {
    pages: Vec<TreePage>,
    /// Elements of all pages.
    count: usize,
}

impl Pages {
    fn add(&mut self, page: TreePage) {
        self.count += page.iter().count();
        self.pages.push(page);
    }

    /// Keys and stored values.
    fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.pages.iter().flat_map(TreePage::iter)
    }
}

/// How many of the elements at these places make a page of a scan, and the next cursor, once all of
/// one place are there: `wanted`, if there are as many, and those that share a place with them.
fn cut(
    places: impl Iterator<Item = u64> + Clone,
    wanted: usize,
    has_more: bool,
) -> Option<(usize, u64)> {
    let whole = || (!has_more).then(|| (places.clone().count(), 0));
    let last = wanted
        .checked_sub(1)
        .and_then(|last| places.clone().nth(last));
    let Some(last) = last else {
        return whole();
    };
    let mut following = places.clone().enumerate().skip(wanted);
    match following.find(|&(_, place)| place != last) {
        Some(page) => Some(page),
        None => whole(),
    }
}

impl Scan {
    /// Lists a page of the tree of a key; an error comes before anything is written.
    async fn list_tree(
        &self,
        key: &[u8],
        core: &mut Core,
        (output, protocol): (&TaskOutput, Protocol),
    ) -> std::result::Result<(), TaskFailure> {
        let length = length_of(core, self.kind, key).await?;
        if length.version == 0 {
            output.notify(EventClasses::MISSED, "keymiss", key);
        } else if let Some(Refusal(text)) = &self.refusal {
            return Err(text.as_str().into());
        }
        let step = (&mut *core, output);
        let (pages, end, next, _held) = match small(step, (self.kind, key), &length).await? {
            Some((all, held)) => {
                let mut pages = Pages::default();
                all.into_iter().for_each(|page| pages.add(page));
                let end = pages.count;
                (pages, end, 0, held)
            }
            None => {
                let mut held = output.hold(0);
                let (pages, end, next) = self.read_page(key, core, output, &mut held).await?;
                (pages, end, next, held)
            }
        };
        let entries = pages.iter().take(end).filter_map(entry_of);
        let mut elements: Vec<_> = entries.collect();
        self.keep_matching(&mut elements, core).await;
        self.write((elements, next), core, (output, protocol)).await;
        Ok(())
    }

    /// Reads a page: its elements, how many of them belong to it, and the next cursor.
    async fn read_page(
        &self,
        key: &[u8],
        core: &mut Core,
        output: &TaskOutput,
        held: &mut Charge,
    ) -> std::result::Result<(Pages, usize, u64), TaskFailure> {
        let mut pages = Pages::default();
        let first = start_of(self.cursor);
        let mut last: Option<Vec<u8>> = None;
        loop {
            let from = match &last {
                None => TreeBound::Included(&first[..]),
                Some(last) => TreeBound::Excluded(last),
            };
            // One more says where the next page begins.
            let wanted = (self.count + 1).saturating_sub(pages.count).max(1);
            let limit = u32::try_from(wanted).unwrap_or(u32::MAX);
            let mut tree = core.tree(key).tagged(self.kind.tag());
            let page = tree.range(from, TreeBound::Unbounded, false, limit).await?;
            let has_more = page.has_more();
            let bytes = page.iter().map(|(key, value)| key.len() + value.len());
            let bytes: usize = bytes.sum();
            let count = page.iter().count();
            last = page.last().map(|(key, _)| key.to_vec());
            pages.add(page);
            held.grow_to(held.bytes() + bytes + count * BESIDE_ELEMENT)?;
            steps::count(count);
            output.turn(core, bytes).await;
            steps::end_slice(core).await;
            let places: Vec<_> = pages.iter().map(|(key, _)| place_in(key)).collect();
            let places = places.iter().copied();
            if let Some((end, next)) = cut(places, self.count, has_more && count > 0) {
                return Ok((pages, end, next));
            }
        }
    }
}

/// Starts a scan of a tree.
fn scan_tree(call: &mut Call<'_>, kind: Kind) -> Result {
    let scan = Scan::of(call, kind)?;
    let key = call.key().to_vec();
    Ok(call.task(move |mut core, output, protocol| async move {
        let listed = scan.list_tree(&key, &mut core, (&output, protocol));
        if let Err(failure) = listed.await {
            failure.write(&output, protocol);
        }
        core
    }))
}

fn scan(call: &mut Call<'_>, kind: Kind) -> Result {
    let scan = Scan::of(call, kind)?;
    let key = call.key().to_vec();
    let shared = Arc::clone(&call.serving.shared);
    Ok(call.task(move |mut core, output, protocol| async move {
        let keys = std::slice::from_ref(&key);
        let mut held = match hold_records((&mut core, &output), keys).await {
            Ok(held) => held,
            Err(shortage) => {
                output.refuse(protocol, &shortage);
                return core;
            }
        };
        let listed = match Record::read(&mut core, &key).await {
            Ok(record) => {
                record.note(&output);
                record.notify_missed(&output, &key);
                let limits = &shared.encoding_limits;
                scan.list(&record, limits, &mut held, &core, (&output, protocol))
                    .await
            }
            Err(failure) => Err(failure),
        };
        if let Err(failure) = listed {
            fail(&output, protocol, kind, &failure);
        }
        core
    }))
}

pub(super) fn hscan(call: &mut Call<'_>) -> Result {
    scan_tree(call, Kind::Hash)
}

pub(super) fn sscan(call: &mut Call<'_>) -> Result {
    scan(call, Kind::Set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::set::value::with_members;

    fn scan(cursor: u64, count: usize) -> Scan {
        Scan {
            kind: Kind::Set,
            cursor,
            count,
            pattern: None,
            names_only: false,
            refusal: None,
        }
    }

    fn record_of(elements: impl Iterator<Item = usize>) -> Record {
        // None is an integer.
        let names: Vec<_> = elements.map(|element| format!("x{element}")).collect();
        let names = names.iter().map(String::as_bytes);
        Record::of(with_members(None, names).0.expect("there are members"))
    }

    /// The names that a page lists, and the next cursor.
    fn page(scan: &Scan, record: &Record) -> (Vec<Vec<u8>>, u64) {
        let is_whole = scan.is_whole(record, &EncodingLimits::default());
        let mut paging = Paging::new(scan, is_whole);
        record
            .each()
            .expect("whole")
            .for_each(|entry| paging.add(entry));
        let (elements, next) = paging.finish();
        let names = elements.iter().map(|(name, _)| name.to_vec());
        (names.collect(), next)
    }

    #[test]
    fn elements_that_stay_are_listed_once_while_others_come_and_go() {
        {
            let mut listed = Vec::new();
            let (mut cursor, mut pages) = (0, 0);
            loop {
                // Of 2,000 elements, other ones are there in each page, and every third always.
                let is_there =
                    |element: &usize| element.is_multiple_of(3) || element % 7 == pages % 7;
                let record = record_of((0..2000).filter(is_there));
                let (names, next) = page(&scan(cursor, 40), &record);
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
        {
            let small = 128;
            let (names, next) = page(&scan(0, 1), &record_of(0..small));
            assert_eq!((names.len(), next), (small, 0));
            let (names, next) = page(&scan(0, 1), &record_of(0..=small));
            assert_eq!((names.len(), next == 0), (1, false));
        }
    }
}
