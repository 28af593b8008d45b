//! `SORT` and `SORT_RO`: the elements of a list, a set or a sorted set in another order, or what
//! patterns name for them.
//!
//! What patterns name lies on any core, and is read at its own moment. A result is stored under the
//! sections of its key and of the collection, if that has the same version still. Where others
//! change it again and again meanwhile, all is done under the sections of all shards.
//!
//! - I1: a result that is stored is made of the collection as it is when it is, and stored whole.

use farcore::constants::TREE_PUSH_MAX;
use farcore::{Condition, DeleteOutcome, Operation, TreeGuard, TreeOp, TreeValues, TreeView};

use super::sort_elements::{BESIDE_VALUE, Sorted, Sorting, length_of, make, whole_of};
use super::sort_values::{Found, LOOKED_UP_AT_ONCE, look_up, read_large};
use super::trees::{Step, ask, finish, undo};
use super::{Call, Flow, Refusal, read_of};
use crate::events::classes::EventClasses;
use crate::long::copy::{hold_next, send_bytes};
use crate::long::read::LongRead;
use crate::memory::Charge;
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::failure::TaskFailure;
use crate::texts::Texts;
use crate::types::kind::Kind;
use crate::types::replies::{ReplyKind, error_text};
use crate::types::sort_pattern::SortPattern;
use crate::waits::key_queues::Awaited;

type Result = std::result::Result<Flow, Refusal>;
type Done<T> = std::result::Result<T, TaskFailure>;

/// Bytes of the elements of one push.
const PUSH_BYTES: usize = 16 << 10;
/// Bytes that an element takes of a record beside its own.
const BESIDE_STORED: usize = 2 << 10;
/// Changes by others after which all is done under the sections of all shards.
const FREE_ATTEMPTS: usize = 2;

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
    for places in sorted.places.chunks(elements_at_once(sorting)) {
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
        // Of one element, what any number of patterns name is written as it is found.
        let patterns_at_once = if elements.len() > 1 { parts } else { 1 };
        for patterns in sorting.gets.chunks(patterns_at_once) {
            output.room(core).await;
            let mut found = Vec::with_capacity(patterns.len());
            for pattern in patterns {
                let pattern = (sorting.database, pattern);
                found.push(look_up((&mut *core, output), pattern, &elements).await?);
            }
            for place in 0..elements.len() {
                for (pattern, found) in patterns.iter().zip(&mut found) {
                    let found = std::mem::replace(&mut found[place], Found::Nothing);
                    let step = (&mut *core, output);
                    write_found(step, pattern, found, &mut held, protocol).await;
                }
            }
            steps::count(patterns.len());
            steps::end_slice(core).await;
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
    match hold_next(core, output, &key, held).await {
        Ok(()) => {
            let kind = ReplyKind::Value;
            let read = LongRead { key, kind };
            read.run_among(core, output, protocol).await;
        }
        Err(shortage) => output.refuse(protocol, &shortage),
    }
}

/// Elements for which what all patterns name is gathered at once: the fewer, the more patterns.
fn elements_at_once(sorting: &Sorting) -> usize {
    (LOOKED_UP_AT_ONCE / sorting.gets.len().max(1)).max(1)
}

/// What patterns name for the elements, nothing as no bytes.
async fn values((core, output): Step<'_>, sorting: &Sorting, sorted: &mut Sorted) -> Done<Texts> {
    let before = sorted.held.bytes();
    let (mut values, mut bytes) = (Texts::default(), 0);
    let places = std::mem::take(&mut sorted.places);
    for some in places.chunks(elements_at_once(sorting)) {
        steps::end_slice(core).await;
        let elements: Vec<_> = some.iter().map(|place| sorted.element(*place)).collect();
        let mut found = Vec::with_capacity(sorting.gets.len());
        for pattern in &sorting.gets {
            found
                .push(look_up((&mut *core, output), (sorting.database, pattern), &elements).await?);
        }
        for place in 0..elements.len() {
            for (pattern, found) in sorting.gets.iter().zip(&mut found) {
                let found = std::mem::replace(&mut found[place], Found::Nothing);
                let step = (&mut *core, output);
                let value = whole_of(step, pattern, found).await?.unwrap_or_default();
                steps::count_copied(value.len());
                steps::count(1);
                bytes += 2 * value.len() + BESIDE_VALUE;
                if before + bytes > sorted.held.bytes() {
                    sorted.held.grow_to(before + bytes + bytes / 4)?;
                }
                values.push(&value);
            }
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
                writer.count(count);
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
