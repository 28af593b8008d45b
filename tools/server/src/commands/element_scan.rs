//! `HSCAN` and `SSCAN`: a hash or a set page by page.
//!
//! Redis lists a small one at once, and so does this. The elements of a longer one (fields or
//! members) are listed in the order of their hash values, and a cursor is the hash value that comes
//! next. So what other clients add or remove meanwhile moves no element to an earlier or later
//! page.
//!
//! - I1: an element that is there from the first page to the last is listed once.

use farcore::{Core, TreeBound, TreePage};

use super::arguments::{cursor, integer, is_option, pattern};
use super::trees::{entries, gather, length_of, send, size_of_page, small};
use super::{Call, Flow, Refusal, SYNTAX};
use crate::events::classes::EventClasses;
use crate::glob;
use crate::memory::Charge;
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::failure::TaskFailure;
use crate::tasks::output::TaskOutput;
use crate::types::element::{Entry, place_in, start_of};
use crate::types::kind::Kind;

type Result = std::result::Result<Flow, Refusal>;

/// Elements of a page, by default; as Redis.
const ELEMENTS: usize = 10;
/// Elements of a page, at most, whatever the client wants.
const ELEMENTS_MAX: usize = 8 << 10;
/// Bytes that an element takes beside its own while a page is gathered.
const BESIDE_ELEMENT: usize = size_of::<Entry<'_>>() + 8;

/// The options of a scan.
#[derive(Debug)]
pub(super) struct Scan {
    kind: Kind,
    pub(super) cursor: u64,
    pub(super) count: usize,
    pub(super) pattern: Option<Vec<u8>>,
    /// Fields come without their values.
    names_only: bool,
    /// Why the options are refused. As in Redis, an absent key has an empty page all the same.
    pub(super) refusal: Option<Refusal>,
}

/// Elements of a page, and the next cursor.
type Page<'a> = (Vec<Entry<'a>>, u64);

impl Scan {
    pub(super) fn of(call: &Call<'_>, kind: Kind) -> std::result::Result<Self, Refusal> {
        let mut scan = Self {
            kind,
            cursor: cursor(call.argument(2))?,
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
        let elements = elements.into_iter();
        send(
            elements,
            core,
            (output, protocol),
            |writer, (name, value)| {
                writer.bulk(name);
                if !self.names_only {
                    writer.bulk(value);
                }
            },
        )
        .await;
    }
}

/// Where a page of a scan ends.
pub(super) struct PageEnd {
    /// Elements that it has at least, if there are as many.
    wanted: usize,
    count: usize,
    /// The place of the last of them.
    last: u64,
}

impl PageEnd {
    pub(super) fn after(wanted: usize) -> Self {
        Self {
            wanted,
            count: 0,
            last: 0,
        }
    }

    /// Notes the place of the next element. False if the page ends before it: elements of one place
    /// share a page.
    pub(super) fn takes(&mut self, place: u64) -> bool {
        if self.count >= self.wanted && place != self.last {
            return false;
        }
        self.count += 1;
        self.last = place;
        true
    }

    /// True if it has as many elements as it should.
    pub(super) fn is_full(&self) -> bool {
        self.count >= self.wanted
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
            Some((pages, held)) => (pages, usize::MAX, 0, held),
            None => {
                let mut held = output.hold(0);
                let (pages, end, next) = self.read_page(key, core, output, &mut held).await?;
                (pages, end, next, held)
            }
        };
        let mut elements = gather(entries(&pages).take(end), core).await;
        self.keep_matching(&mut elements, core).await;
        self.write((elements, next), core, (output, protocol)).await;
        Ok(())
    }

    /// Reads a page: what it is part of, how many elements it has, and the next cursor.
    async fn read_page(
        &self,
        key: &[u8],
        core: &mut Core,
        output: &TaskOutput,
        held: &mut Charge,
    ) -> std::result::Result<(Vec<TreePage>, usize, u64), TaskFailure> {
        let (mut pages, mut end) = (Vec::new(), PageEnd::after(self.count));
        let first = start_of(self.cursor);
        let mut last: Option<Vec<u8>> = None;
        loop {
            let from = match &last {
                None => TreeBound::Included(&first[..]),
                Some(last) => TreeBound::Excluded(last),
            };
            // One more says where the next page begins.
            let wanted = (self.count + 1).saturating_sub(end.count).max(1);
            let limit = u32::try_from(wanted).unwrap_or(u32::MAX);
            let mut tree = core.tree(key).tagged(self.kind.tag());
            let page = tree.range(from, TreeBound::Unbounded, false, limit).await?;
            let (count, bytes) = size_of_page(&page);
            held.grow_to(held.bytes() + bytes + count * BESIDE_ELEMENT)?;
            output.end_read(core, (count, bytes)).await?;
            let next = page.iter().map(|(key, _)| place_in(key));
            let next = { next }.find(|&place| !end.takes(place));
            last = page.last().map(|(key, _)| key.to_vec());
            let has_more = page.has_more() && last.is_some();
            pages.push(page);
            if next.is_some() || !has_more {
                return Ok((pages, end.count, next.unwrap_or(0)));
            }
        }
    }
}

/// Starts a scan of a tree.
fn scan(call: &mut Call<'_>, kind: Kind) -> Result {
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

pub(super) fn hscan(call: &mut Call<'_>) -> Result {
    scan(call, Kind::Hash)
}

pub(super) fn sscan(call: &mut Call<'_>) -> Result {
    scan(call, Kind::Set)
}

#[cfg(test)]
mod tests {
    use super::super::trees::update_all;
    use super::*;
    use crate::by_hand::on_first_core;

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

    #[test]
    fn elements_that_stay_are_listed_once_while_others_come_and_go() {
        on_first_core(1, |bench| async move {
            let output = bench.output();
            let mut core = bench.core;
            for kind in [Kind::Hash, Kind::Set] {
                let key = kind.name().as_bytes();
                let mut listed = Vec::new();
                let (mut cursor, mut pages) = (0, 0);
                loop {
                    // Of 2,000 elements, other ones are there in each page, and every third always.
                    let names: Vec<_> = (0..2000).map(|element| format!("x{element}")).collect();
                    let is_there =
                        |element: usize| element.is_multiple_of(3) || element % 7 == pages % 7;
                    let changes = names.iter().enumerate().map(|(element, name)| {
                        (name.as_bytes(), is_there(element).then_some(&[][..]))
                    });
                    let step = (&mut core, &output);
                    let (_, failure) = update_all(step, (kind, key), changes, false).await;
                    assert!(failure.is_none(), "{failure:?}");
                    let scan = scan(kind, cursor, 40);
                    let mut held = output.hold(0);
                    let page = scan.read_page(key, &mut core, &output, &mut held).await;
                    let (page, end, next) = page.expect("a page");
                    assert!(end == 40 || next == 0);
                    let names = entries(&page).take(end);
                    listed.extend(names.map(|(name, _)| name.to_vec()));
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
        });
    }

    #[test]
    fn elements_of_one_place_share_a_page() {
        // Where a page of this many ends, and the next begins.
        let cut = |places: &[u64], wanted: usize| {
            let mut end = PageEnd::after(wanted);
            let next = places.iter().copied().find(|&place| !end.takes(place));
            (end.count, next)
        };
        assert_eq!(cut(&[1, 2, 3], 2), (2, Some(3)));
        assert_eq!(cut(&[1, 2, 2, 3], 2), (3, Some(3)));
        assert_eq!(cut(&[1, 2, 2], 2), (3, None));
        assert_eq!(cut(&[1], 2), (1, None));
        assert_eq!(cut(&[], 2), (0, None));
    }
}
