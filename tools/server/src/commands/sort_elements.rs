//! The elements of a collection in the order that `SORT` gives them: read at one version, in memory
//! that the client is charged for, and sorted in slices by themselves or by what a pattern names.

use std::cmp::Ordering;

use farcore::{Core, Error, TreeLength, TreePage, Version};

use super::arguments::{integer, is_option};
use super::sort_values::{Found, LOOKED_UP_AT_ONCE, look_up, read_large};
use super::sorting::sort;
use super::trees::{Step, size_of_page};
use super::{Call, Refusal, SYNTAX};
use crate::databases::Database;
use crate::events::classes::EventClasses;
use crate::memory::Charge;
use crate::steps;
use crate::tasks::attempts::Attempts;
use crate::tasks::failure::TaskFailure;
use crate::texts::Texts;
use crate::types::element;
use crate::types::kind::Kind;
use crate::types::sort_pattern::SortPattern;
use crate::types::sorted::reply::whole;
use crate::types::sorted::score::parsed_weight;

type Done<T> = std::result::Result<T, TaskFailure>;

const NO_NUMBERS: &str = "ERR One or more scores can't be converted into double";
/// Bytes that an element takes beside its own: where it ends, twice while it is sorted, and its
/// place.
const BESIDE_ELEMENT: usize = size_of::<usize>() + 2 * size_of::<Item<'_>>() + 4;
/// Bytes that a value takes beside its own.
pub(super) const BESIDE_VALUE: usize = 2 * size_of::<usize>();

/// What decides the order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum By {
    Elements,
    Pattern(SortPattern),
    /// Nothing: they stay as they are.
    Nothing,
}

/// What the command names.
#[derive(Debug)]
pub(super) struct Sorting {
    pub(super) key: Vec<u8>,
    /// That of the keys that patterns name.
    pub(super) database: Database,
    by: By,
    pub(super) gets: Vec<SortPattern>,
    start: i64,
    count: i64,
    is_descending: bool,
    is_alphabetic: bool,
    pub(super) target: Option<Vec<u8>>,
    is_of_script: bool,
}

impl Sorting {
    pub(super) fn of(call: &Call<'_>, stores: bool) -> std::result::Result<Self, Refusal> {
        let mut sorting = Self {
            key: call.key().to_vec(),
            database: call.database(),
            by: By::Elements,
            gets: Vec::new(),
            start: 0,
            count: -1,
            is_descending: false,
            is_alphabetic: false,
            target: None,
            is_of_script: call.connection.script.is_some(),
        };
        let connection = &call.connection;
        let names_any = connection.user.may_all() || connection.reads_all_keys.get();
        let mut place = 2;
        while place < call.count() {
            let option = call.argument(place);
            let left = call.count() - place - 1;
            if is_option(option, "asc") {
                sorting.is_descending = false;
            } else if is_option(option, "desc") {
                sorting.is_descending = true;
            } else if is_option(option, "alpha") {
                sorting.is_alphabetic = true;
            } else if is_option(option, "limit") && left >= 2 {
                sorting.start = integer(call.argument(place + 1))?;
                sorting.count = integer(call.argument(place + 2))?;
                place += 2;
            } else if stores && is_option(option, "store") && left >= 1 {
                sorting.target = Some(call.key_at(place + 1).to_vec());
                place += 1;
            } else if is_option(option, "by") && left >= 1 {
                let text = call.argument(place + 1);
                if text.contains(&b'*') && call.is_in_cluster() {
                    return Err("ERR BY option of SORT denied in Cluster mode.".into());
                }
                if text.contains(&b'*') && !names_any {
                    return Err(
                        "ERR BY option of SORT denied due to insufficient ACL permissions.".into(),
                    );
                }
                sorting.by = match SortPattern::of(text) {
                    // As Redis, for which a later pattern does not undo an earlier constant.
                    _ if sorting.by == By::Nothing => By::Nothing,
                    pattern @ SortPattern::Key { .. } => By::Pattern(pattern),
                    _ => By::Nothing,
                };
                place += 1;
            } else if is_option(option, "get") && left >= 1 {
                if call.is_in_cluster() {
                    return Err("ERR GET option of SORT denied in Cluster mode.".into());
                }
                if !names_any {
                    return Err(
                        "ERR GET option of SORT denied due to insufficient ACL permissions.".into(),
                    );
                }
                sorting.gets.push(SortPattern::of(call.argument(place + 1)));
                place += 1;
            } else {
                return Err(SYNTAX.into());
            }
            place += 1;
        }
        Ok(sorting)
    }

    /// The ranks that are replied of this many elements in their order.
    fn limits(&self, elements: usize) -> std::ops::Range<usize> {
        let start = usize::try_from(self.start.max(0)).unwrap_or(usize::MAX);
        let count = usize::try_from(self.count).unwrap_or(usize::MAX);
        let start = start.min(elements);
        start..start.saturating_add(count).min(elements)
    }

    /// Keys of the sections that a result is stored under.
    pub(super) fn keys(&self) -> Vec<&[u8]> {
        let keys = [&self.key].into_iter().chain(&self.target);
        keys.map(|key| &key[..]).collect()
    }
}

/// An element, what decides its place, and where it was.
#[derive(Clone, Copy, Debug)]
struct Item<'a> {
    weight: Weight<'a>,
    element: &'a [u8],
    place: u32,
    is_descending: bool,
}

#[derive(Clone, Copy, Debug)]
enum Weight<'a> {
    Number(f64),
    /// None comes before all others.
    Bytes(Option<&'a [u8]>),
}

impl Ord for Item<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = match (self.weight, other.weight) {
            (Weight::Number(one), Weight::Number(other_one)) => {
                let order = one.partial_cmp(&other_one).unwrap_or(Ordering::Equal);
                order.then_with(|| self.element.cmp(other.element))
            }
            (Weight::Bytes(one), Weight::Bytes(other_one)) => one.cmp(&other_one),
            _ => Ordering::Equal,
        };
        let order = if self.is_descending {
            order.reverse()
        } else {
            order
        };
        order.then_with(|| self.place.cmp(&other.place))
    }
}

impl PartialOrd for Item<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Item<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Item<'_> {}

/// The elements of a collection, and the places of those that are replied.
pub(super) struct Sorted {
    elements: Texts,
    pub(super) places: Vec<u32>,
    pub(super) version: Version,
    pub(super) held: Charge,
}

impl Sorted {
    pub(super) fn element(&self, place: u32) -> &[u8] {
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        self.elements.get(place)
    }
}

/// How long the collection of a key is, which is of a kind that can be sorted.
pub(super) async fn length_of(core: &mut Core, key: &[u8]) -> Done<TreeLength> {
    let length = match core.tree(key).len().await {
        Err(Error::KeyTooLong { .. }) => TreeLength::default(),
        length => length?,
    };
    let can_be_sorted = [Kind::List, Kind::Set, Kind::SortedSet]
        .map(Kind::tag)
        .contains(&length.tag);
    if length.version > 0 && !can_be_sorted {
        return Err(Error::CollectionTag { tag: length.tag }.into());
    }
    Ok(length)
}

/// Adds the elements of a page.
fn add_page(page: &TreePage, tag: u8, elements: &mut Texts) {
    if tag == Kind::List.tag() {
        page.iter().for_each(|(_, value)| elements.push(value));
    } else if tag == Kind::Set.tag() {
        let entries = page.iter().filter_map(element::entry_of);
        entries.for_each(|(member, _)| elements.push(member));
    } else {
        whole(page.scored()).for_each(|(member, _)| elements.push(member));
    }
}

/// Reads elements of some ranks, if the collection has the same version still.
async fn read(
    (core, output): Step<'_>,
    key: &[u8],
    length: &TreeLength,
    (mut ranks, is_reversed): (std::ops::Range<u64>, bool),
) -> Done<Texts> {
    let mut elements = Texts::default();
    while !ranks.is_empty() {
        let mut tree = core.tree(key).tagged(length.tag).at_version(length.version);
        let page = tree.range_by_rank(ranks.start, ranks.end, is_reversed, u32::MAX);
        let page = page.await?;
        let (count, bytes) = size_of_page(&page);
        if count == 0 {
            return Err(Error::CollectionVersion { current: 0 }.into());
        }
        add_page(&page, length.tag, &mut elements);
        if is_reversed {
            ranks.end = ranks.end.saturating_sub(count as u64);
        } else {
            ranks.start += count as u64;
        }
        output.end_read(core, (count, bytes)).await?;
    }
    Ok(elements)
}

/// The elements of the key, and the places of those that are replied, in their order. It leaves the
/// sections that it enters to read the key, and those before it too unless it `keeps` them.
pub(super) async fn make((core, output): Step<'_>, sorting: &Sorting, keeps: bool) -> Done<Sorted> {
    let mut attempts = Attempts::default();
    loop {
        match try_make((&mut *core, output), sorting, keeps).await {
            Err(TaskFailure::Engine(Error::CollectionVersion { .. })) => {
                attempts.again(core, output, &[&sorting.key]).await;
            }
            made => return made,
        }
    }
}

async fn try_make((core, output): Step<'_>, sorting: &Sorting, keeps: bool) -> Done<Sorted> {
    let length = length_of(core, &sorting.key).await?;
    if length.version == 0 {
        output.notify(EventClasses::MISSED, "keymiss", &sorting.key);
    }
    let is_set = length.tag == Kind::Set.tag();
    // What has no order of its own gets one where others see it.
    let is_forced = is_set && (sorting.target.is_some() || sorting.is_of_script);
    let stays = sorting.by == By::Nothing && !is_forced;
    let count = usize::try_from(length.elements).unwrap_or(usize::MAX);
    let limits = sorting.limits(count);
    let all = 0..length.elements;
    let is_reversed = stays && sorting.is_descending && !is_set;
    let ranks = match stays {
        false => all,
        true if is_reversed => {
            let end = length.elements;
            end - limits.end as u64..end - limits.start as u64
        }
        true => limits.start as u64..limits.end as u64,
    };
    let wanted = usize::try_from(ranks.end - ranks.start).unwrap_or(usize::MAX);
    let mean = usize::try_from(length.bytes / length.elements.max(1)).unwrap_or(usize::MAX);
    let bytes = wanted.saturating_mul(mean.saturating_add(BESIDE_ELEMENT));
    let mut held = output.hold_when_free(core, bytes).await?;
    let step = (&mut *core, output);
    let elements = read(step, &sorting.key, &length, (ranks, is_reversed)).await?;
    // Buffers that grow are up to twice as large.
    let bytes = 2 * elements.bytes() + elements.len() * BESIDE_ELEMENT;
    if bytes > held.bytes() {
        held.grow_to(bytes)?;
    }
    if !keeps {
        // Keys that patterns name may lie in other shards.
        output.leave(core);
    }
    let places = if stays {
        (0..u32::try_from(elements.len()).unwrap_or(u32::MAX)).collect()
    } else {
        let is_alphabetic = sorting.is_alphabetic || (sorting.by == By::Nothing && is_forced);
        let step = (&mut *core, output);
        let ordered = order(step, sorting, &elements, is_alphabetic, &mut held).await?;
        let limits = limits.start.min(ordered.len())..limits.end.min(ordered.len());
        ordered[limits].to_vec()
    };
    Ok(Sorted {
        elements,
        places,
        version: length.version,
        held,
    })
}

/// The part of a text before its first zero, which is what Redis compares by the locale.
fn before_zero(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| *byte == 0);
    &text[..end.unwrap_or(text.len())]
}

/// The places of all elements in their order.
async fn order(
    (core, output): Step<'_>,
    sorting: &Sorting,
    elements: &Texts,
    is_alphabetic: bool,
    held: &mut Charge,
) -> Done<Vec<u32>> {
    let is_stored = sorting.target.is_some();
    let compared = |text| if is_stored { text } else { before_zero(text) };
    let (mut numbers, mut texts, mut found_any) = (Vec::new(), Texts::default(), Vec::new());
    if let By::Pattern(pattern) = &sorting.by {
        let (mut bytes, before) = (0, held.bytes());
        for start in (0..elements.len()).step_by(LOOKED_UP_AT_ONCE) {
            let end = elements.len().min(start + LOOKED_UP_AT_ONCE);
            let some: Vec<_> = elements.some(start..end).collect();
            let found = look_up((&mut *core, output), (sorting.database, pattern), &some).await?;
            for found in found {
                let found = whole_of((&mut *core, output), pattern, found).await?;
                if is_alphabetic {
                    bytes += BESIDE_VALUE + 2 * found.as_ref().map_or(0, Vec::len);
                    if before + bytes > held.bytes() {
                        held.grow_to(before + bytes + bytes / 4)?;
                    }
                    found_any.push(found.is_some());
                    texts.push(&found.unwrap_or_default());
                } else {
                    let number = found.map_or(Some(0.0), |text| parsed_weight(&text));
                    bytes += size_of::<f64>();
                    numbers.push(number.ok_or(NO_NUMBERS)?);
                }
            }
            if before + bytes > held.bytes() {
                held.grow_to(before + bytes + bytes / 4)?;
            }
        }
    }
    let mut items = Vec::with_capacity(elements.len());
    let mut is_number = true;
    for (place, element) in elements.some(0..elements.len()).enumerate() {
        let weight = match (&sorting.by, is_alphabetic) {
            (By::Pattern(_), true) => {
                let text = found_any[place].then(|| texts.get(place));
                Weight::Bytes(text.map(compared))
            }
            (By::Pattern(_), false) => Weight::Number(numbers[place]),
            (_, true) => Weight::Bytes(Some(compared(element))),
            (_, false) => match parsed_weight(element) {
                Some(number) => Weight::Number(number),
                None => {
                    is_number = false;
                    break;
                }
            },
        };
        items.push(Item {
            weight,
            element,
            place: u32::try_from(place).unwrap_or(u32::MAX),
            is_descending: sorting.is_descending,
        });
        steps::count_walked(element.len());
        if items.len().is_multiple_of(steps::PIECE) {
            steps::count(steps::PIECE);
            steps::end_slice(core).await;
        }
    }
    if !is_number {
        return Err(NO_NUMBERS.into());
    }
    let items = sort(items, core).await;
    Ok(items.iter().map(|item| item.place).collect())
}

/// What a pattern names for an element; none if it is nothing.
pub(super) async fn whole_of(
    step: Step<'_>,
    pattern: &SortPattern,
    found: Found,
) -> Done<Option<Vec<u8>>> {
    match found {
        Found::Nothing => Ok(None),
        Found::Bytes(bytes) => Ok(Some(bytes)),
        Found::Failed(error) => Err(error.into()),
        Found::Large(key) => {
            let read = read_large(step, &key, pattern.field()).await?;
            Ok(read.map(|(value, _)| value))
        }
    }
}
