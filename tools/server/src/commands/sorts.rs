//! `SORT` and `SORT_RO`: the elements of a list, a set or a sorted set in another order, or what
//! patterns name for them.
//!
//! The elements are read at one version, in memory that the client is charged for, and sorted in
//! slices. What patterns name lies on any core, and is read at its own moment. A result is stored
//! under the sections of its key and of the collection, if that has the same version still. Where
//! others change it again and again meanwhile, all is done under the sections of all shards.
//!
//! - I1: a result that is stored is made of the collection as it is when it is, and stored whole.

use std::cmp::Ordering;

use farcore::constants::TREE_PUSH_MAX;
use farcore::{
    Condition, Core, DeleteOutcome, Error, Operation, TreeGuard, TreeLength, TreeOp, TreePage,
    TreeValues, TreeView, Version,
};

use super::arguments::{integer, is_option};
use super::sort_values::{Found, LOOKED_UP_AT_ONCE, look_up, read_large};
use super::sorting::sort;
use super::trees::{Step, ask, finish, size_of_page, undo};
use super::{Call, Flow, Refusal, SYNTAX, read_of};
use crate::events::classes::EventClasses;
use crate::long::copy::{hold_next, send_bytes};
use crate::long::read::LongRead;
use crate::memory::Charge;
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::attempts::Attempts;
use crate::tasks::failure::TaskFailure;
use crate::texts::Texts;
use crate::types::element;
use crate::types::kind::Kind;
use crate::types::replies::{ReplyKind, error_text};
use crate::types::sort_pattern::SortPattern;
use crate::types::sorted::reply::whole;
use crate::types::sorted::score::parsed_weight;
use crate::waits::key_queues::Awaited;
use crate::words::stored_key;

type Result = std::result::Result<Flow, Refusal>;
type Done<T> = std::result::Result<T, TaskFailure>;

const NO_NUMBERS: &str = "ERR One or more scores can't be converted into double";
/// Bytes of the elements of one push.
const PUSH_BYTES: usize = 16 << 10;
/// Bytes that an element takes beside its own: where it ends, twice while it is sorted, and its
/// place.
const BESIDE_ELEMENT: usize = size_of::<usize>() + 2 * size_of::<Item<'_>>() + 4;
/// Bytes that a value takes beside its own.
const BESIDE_VALUE: usize = 2 * size_of::<usize>();
/// Bytes that an element takes of a record beside its own.
const BESIDE_STORED: usize = 2 << 10;
/// Changes by others after which all is done under the sections of all shards.
const FREE_ATTEMPTS: usize = 2;

/// What decides the order.
#[derive(Clone, PartialEq, Eq, Debug)]
enum By {
    Elements,
    Pattern(SortPattern),
    /// Nothing: they stay as they are.
    Nothing,
}

/// What the command names.
#[derive(Debug)]
struct Sorting {
    key: Vec<u8>,
    by: By,
    gets: Vec<SortPattern>,
    start: i64,
    count: i64,
    is_descending: bool,
    is_alphabetic: bool,
    target: Option<Vec<u8>>,
    is_of_script: bool,
}

impl Sorting {
    fn of(call: &Call<'_>, stores: bool) -> std::result::Result<Self, Refusal> {
        let mut sorting = Self {
            key: call.key().to_vec(),
            by: By::Elements,
            gets: Vec::new(),
            start: 0,
            count: -1,
            is_descending: false,
            is_alphabetic: false,
            target: None,
            is_of_script: call.connection.script.is_some(),
        };
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
                sorting.by = match SortPattern::of(text) {
                    // As Redis, for which a later pattern does not undo an earlier constant.
                    _ if sorting.by == By::Nothing => By::Nothing,
                    pattern @ SortPattern::Key { .. } => By::Pattern(pattern),
                    _ => By::Nothing,
                };
                place += 1;
            } else if is_option(option, "get") && left >= 1 {
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
    fn keys(&self) -> Vec<&[u8]> {
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
struct Sorted {
    elements: Texts,
    places: Vec<u32>,
    version: Version,
    held: Charge,
}

impl Sorted {
    fn element(&self, place: u32) -> &[u8] {
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        self.elements.get(place)
    }
}

/// How long the collection of a key is, which is of a kind that can be sorted.
async fn length_of(core: &mut Core, key: &[u8]) -> Done<TreeLength> {
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
async fn make((core, output): Step<'_>, sorting: &Sorting, keeps: bool) -> Done<Sorted> {
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
            let found = look_up((&mut *core, output), pattern, &some).await?;
            for found in found {
                let found = whole_of((&mut *core, output), pattern, found).await?;
                if is_alphabetic {
                    bytes += BESIDE_VALUE + 2 * found.as_ref().map_or(0, Vec::len);
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
async fn whole_of(step: Step<'_>, pattern: &SortPattern, found: Found) -> Done<Option<Vec<u8>>> {
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

/// Writes elements, or what patterns name for them, as the client takes them.
async fn write(
    (core, output): Step<'_>,
    sorting: &Sorting,
    sorted: &Sorted,
    protocol: Protocol,
) -> Done<()> {
    let parts = sorting.gets.len().max(1);
    let count = sorted.places.len() * parts;
    output.write(|bytes| Writer::new(bytes, protocol).array(count));
    let mut held = None;
    for places in sorted.places.chunks(LOOKED_UP_AT_ONCE) {
        output.room(core).await;
        steps::count(places.len());
        steps::end_slice(core).await;
        if output.is_gone() {
            return Ok(());
        }
        let elements: Vec<_> = places.iter().map(|place| sorted.element(*place)).collect();
        if sorting.gets.is_empty() {
            output.write(|bytes| {
                let mut writer = Writer::new(bytes, protocol);
                elements.iter().for_each(|element| writer.bulk(element));
            });
            continue;
        }
        let mut found = Vec::with_capacity(parts);
        for pattern in &sorting.gets {
            found.push(look_up((&mut *core, output), pattern, &elements).await?);
        }
        for place in 0..elements.len() {
            for (pattern, found) in sorting.gets.iter().zip(&mut found) {
                let found = std::mem::replace(&mut found[place], Found::Nothing);
                let step = (&mut *core, output);
                write_found(step, pattern, found, &mut held, protocol).await;
            }
        }
    }
    Ok(())
}

async fn write_found(
    (core, output): Step<'_>,
    pattern: &SortPattern,
    found: Found,
    held: &mut Option<Charge>,
    protocol: Protocol,
) {
    let key = match found {
        Found::Large(key) => key,
        found => {
            return output.write(|bytes| {
                let mut writer = Writer::new(bytes, protocol);
                match found {
                    Found::Bytes(bytes) => writer.bulk(&bytes),
                    Found::Failed(error) => writer.error(&error_text(&error)),
                    _ => writer.null(),
                }
            });
        }
    };
    output.room(core).await;
    if pattern.field().is_some() {
        match read_large((&mut *core, output), &key, pattern.field()).await {
            Ok(Some((value, _held))) => {
                output.write(|bytes| Writer::new(bytes, protocol).bulk_head(value.len()));
                send_bytes(core, output, &value).await;
            }
            Ok(None) => output.write(|bytes| Writer::new(bytes, protocol).null()),
            Err(failure) => failure.write(output, protocol),
        }
        return;
    }
    let key = stored_key(&key).to_vec();
    match hold_next(core, output, &key, held).await {
        Ok(()) => {
            let kind = ReplyKind::Value;
            let read = LongRead { key, kind };
            read.run_among(core, output, protocol).await;
        }
        Err(shortage) => output.refuse(protocol, &shortage),
    }
}

/// What patterns name for the elements, nothing as no bytes.
async fn values((core, output): Step<'_>, sorting: &Sorting, sorted: &mut Sorted) -> Done<Texts> {
    let before = sorted.held.bytes();
    let (mut values, mut bytes) = (Texts::default(), 0);
    let places = std::mem::take(&mut sorted.places);
    for some in places.chunks(LOOKED_UP_AT_ONCE) {
        let elements: Vec<_> = some.iter().map(|place| sorted.element(*place)).collect();
        let mut found = Vec::with_capacity(sorting.gets.len());
        for pattern in &sorting.gets {
            found.push(look_up((&mut *core, output), pattern, &elements).await?);
        }
        for place in 0..elements.len() {
            for (pattern, found) in sorting.gets.iter().zip(&mut found) {
                let found = std::mem::replace(&mut found[place], Found::Nothing);
                let step = (&mut *core, output);
                let value = whole_of(step, pattern, found).await?.unwrap_or_default();
                bytes += 2 * value.len() + BESIDE_VALUE;
                values.push(&value);
            }
        }
        if before + bytes > sorted.held.bytes() {
            sorted.held.grow_to(before + bytes + bytes / 4)?;
        }
    }
    sorted.places = places;
    Ok(values)
}

/// Stores the result as a list; returns how many elements it has.
async fn store((core, output): Step<'_>, sorting: &Sorting) -> Done<usize> {
    let target = sorting.target.as_deref().unwrap_or_default();
    let mut disturbed = 0;
    loop {
        let keeps = disturbed >= FREE_ATTEMPTS;
        if keeps {
            output.enter_all(core).await?;
        }
        let mut sorted = make((&mut *core, output), sorting, keeps).await?;
        let made = match sorting.gets.is_empty() {
            true => None,
            false => Some(values((&mut *core, output), sorting, &mut sorted).await?),
        };
        let all: Vec<&[u8]> = match &made {
            Some(made) => made.some(0..made.len()).collect(),
            None => {
                let places = sorted.places.iter();
                places.map(|place| sorted.element(*place)).collect()
            }
        };
        output.enter(core, &sorting.keys()).await?;
        if length_of(core, &sorting.key).await?.version != sorted.version {
            output.leave(core);
            disturbed += 1;
            continue;
        }
        replace((&mut *core, output), target, &all).await?;
        return Ok(all.len());
    }
}

/// Stores a list of elements instead of what a key holds, or removes the key if there are none.
async fn replace((core, output): Step<'_>, target: &[u8], elements: &[&[u8]]) -> Done<()> {
    let longest = elements.iter().map(|element| element.len()).max();
    let longest = longest.unwrap_or(0);
    let max = output.value_bytes_max() - BESIDE_STORED;
    if longest > max {
        let text = format!(
            "ERR the element is too large: it takes {longest} bytes, the limit is {max} bytes"
        );
        return Err(text.as_str().into());
    }
    output.note_value(longest);
    let was_absent = read_of(core.inspect(target).await)?.is_none();
    if elements.is_empty() {
        if !was_absent {
            let deleted = core.delete_if(target, Condition::Always).await?;
            if matches!(deleted, DeleteOutcome::Deleted) {
                output.notify(EventClasses::GENERIC, "del", target);
            }
        }
        return Ok(());
    }
    let (mut left, mut version) = (elements, None);
    while !left.is_empty() {
        let mut bytes = 0;
        let fits = left.iter().take(TREE_PUSH_MAX).take_while(|element| {
            let is_first = bytes == 0;
            bytes += element.len() + 1;
            is_first || bytes <= PUSH_BYTES
        });
        let (some, rest) = left.split_at(fits.count().max(1).min(left.len()));
        let op = TreeOp::Push {
            front: false,
            exists: false,
            replaces: version.is_none(),
            values: TreeValues::Slices(some),
        };
        let guard = TreeGuard {
            tag: Kind::List.tag(),
            version,
        };
        let key = target;
        let pushed = ask(core, Operation::Tree { key, op, guard }, |answer| {
            TreeView::of(answer).version()
        });
        match (pushed.await, version) {
            (Ok(now), _) => version = Some(now),
            (Err(error), None) => return Err(error.into()),
            (Err(error), Some(version)) => {
                undo(core, target, version).await?;
                return Err(error.into());
            }
        }
        steps::count(some.len());
        output.turn(core, bytes).await;
        steps::end_slice(core).await;
        left = rest;
    }
    if was_absent {
        output.notify(EventClasses::NEW, "new", target);
    }
    output.notify(EventClasses::LIST, "sortstore", target);
    Ok(())
}

fn start(call: &mut Call<'_>, sorting: Sorting) -> Flow {
    let readiness = call.readiness();
    call.task(move |mut core, output, protocol| async move {
        if let Some(target) = &sorting.target {
            let stored = store((&mut core, &output), &sorting).await;
            output.leave(&mut core);
            if let Ok(1..) = stored {
                readiness.note(&core, Awaited::List, target).await;
            }
            finish(&output, protocol, stored, |writer, count| {
                writer.count(count)
            });
            return core;
        }
        let made = make((&mut core, &output), &sorting, false).await;
        output.leave(&mut core);
        match made {
            Ok(sorted) => {
                let step = (&mut core, &output);
                if write(step, &sorting, &sorted, protocol).await.is_err() {
                    // A part of the reply is taken.
                    output.break_off();
                }
            }
            Err(failure) => failure.write(&output, protocol),
        }
        core
    })
}

fn run(call: &mut Call<'_>, stores: bool) -> Result {
    let sorting = Sorting::of(call, stores)?;
    if call.is_early() {
        return Ok(Flow::Later);
    }
    Ok(start(call, sorting))
}

pub(super) fn sort_and_store(call: &mut Call<'_>) -> Result {
    run(call, true)
}

pub(super) fn sort_ro(call: &mut Call<'_>) -> Result {
    run(call, false)
}
