//! What the commands of collections have in common: requests about few elements, and changes of
//! many in several steps.

use std::ops::Range;
use std::sync::Arc;

use farcore::constants::TREE_CHANGES_WHOLE;
use farcore::{
    Answer, Condition, Core, Error, Operation, TreeBound, TreeChange, TreeChanges, TreeLength,
    TreeOp, TreePage, TreeView,
};

use super::call::stores_scores;
use super::{Call, Flow, Refusal};
use crate::events::classes::EventClasses;
use crate::events::tree_events::class_of;
use crate::memory::Charge;
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::failure::TaskFailure;
use crate::tasks::output::TaskOutput;
use crate::types::element::{self, ElementKeys, Entry};
use crate::types::encoding_limits::HASHTABLE;
use crate::types::kind::Kind;
use crate::types::replies::ReplyKind;

/// A client of the core, and the output of the command that uses it.
pub(super) type Step<'a> = (&'a mut Core, &'a TaskOutput);

/// Bytes of the elements of one request, and of those that one step of a task changes.
const REQUEST_BYTES_MAX: usize = 16 << 10;
/// Elements that one step of a task changes.
const CHANGES_AT_ONCE: usize = 128;
/// Bytes that an element takes of a record beside its value: its key, and what is beside both.
const BESIDE_ELEMENT: usize = 2 << 10;
/// Bytes that an element takes beside its own while it is read with all others.
const BESIDE_READ: usize = 8 + 2 * size_of::<Entry<'_>>();
/// Elements that are written, and bytes of them from which no more are, before the client must have
/// taken some.
const WRITTEN_AT_ONCE: usize = 64;
const WRITTEN_BYTES: usize = 16 << 10;
/// Bytes of the buffer for keys of elements that a core keeps.
const KEPT_BYTES_MAX: usize = 64 << 10;

impl<'a> Call<'a> {
    /// True if events of some of these classes are sent.
    pub(super) fn sends(&self, classes: EventClasses) -> bool {
        self.serving.events.sends(classes)
    }

    /// Has a request made with the core's buffer for keys of elements, which is empty.
    pub(super) fn with_elements<T>(
        &mut self,
        request: impl FnOnce(&mut Self, &mut ElementKeys) -> T,
    ) -> T {
        let mut elements = std::mem::take(&mut self.serving.elements);
        elements.clear();
        let requested = request(self, &mut elements);
        elements.shrink_to(KEPT_BYTES_MAX);
        self.serving.elements = elements;
        requested
    }

    /// Refuses an element that no collection can hold.
    pub(super) fn check_element(&self, element: &[u8], value: &[u8]) -> Result<(), Refusal> {
        let max = self.serving.value_bytes_max() - BESIDE_ELEMENT;
        let bytes = element::stored_bytes(element, value);
        if bytes <= max {
            return Ok(());
        }
        Err(Refusal(format!(
            "ERR the element is too large: it takes {bytes} bytes, the limit is {max} bytes"
        )))
    }

    /// Changes elements of the first key's hash or set, which `of` takes from the arguments at
    /// places: it stores them, or removes them if they have no value. The reply is a number of the
    /// update, or `OK`. Few are one request, many are a task.
    pub(super) fn update_elements(
        &mut self,
        kind: Kind,
        reply: ReplyKind,
        (places, step): (Range<usize>, usize),
        of: ElementOf,
    ) -> Result<Flow, Refusal> {
        let (arguments, input) = (self.arguments, self.input);
        let entry = |place: usize| of(&|beside| arguments.get(place + beside, input));
        let count = (places.end - places.start) / step;
        let (mut bytes, mut longest) = (0, 0);
        for place in places.clone().step_by(step) {
            let (element, value) = entry(place);
            let stored = value.map_or(0, |value| element::stored_bytes(element, value));
            if value.is_some() {
                self.check_element(element, value.unwrap_or_default())?;
            }
            bytes += element.len() + stored;
            longest = stored.max(longest);
        }
        self.serving.shared.note_value(longest);
        if count > TREE_CHANGES_WHOLE || (count > 1 && bytes > REQUEST_BYTES_MAX) {
            return Ok(self.update_in_steps(kind, reply, (places, step), of));
        }
        let key = self.key();
        Ok(self.with_elements(|call, elements| {
            for place in places.clone().step_by(step) {
                let (element, value) = entry(place);
                elements.add(element, value);
            }
            let mut changes = [NO_CHANGE; TREE_CHANGES_WHOLE];
            let all = places.step_by(step).zip(&mut changes).enumerate();
            for (number, (place, change)) in all {
                *change = elements.change(number, entry(place).1);
            }
            let op = TreeOp::Update {
                changes: TreeChanges::Slices(&changes[..count]),
                replaces: false,
            };
            call.request(reply, kind.operation(key, op))
        }))
    }

    /// Does this in a task.
    fn update_in_steps(
        &mut self,
        kind: Kind,
        reply: ReplyKind,
        (places, step): (Range<usize>, usize),
        of: ElementOf,
    ) -> Flow {
        if self.is_early() {
            return Flow::Later;
        }
        let arguments = self.owned_arguments();
        self.task(move |mut core, output, protocol| async move {
            let key = &arguments[1][..];
            let entries = places
                .step_by(step)
                .map(|place| of(&|beside| &arguments[place + beside][..]));
            let updated = update_all((&mut core, &output), (kind, key), entries, false).await;
            let (updated, failure) = updated;
            updated.notify(&output, (kind, key));
            match failure {
                Some(failure) => failure.write(&output, protocol),
                None => output.write(|bytes| {
                    let mut writer = Writer::new(bytes, protocol);
                    updated.write(reply, &mut writer);
                }),
            }
            core
        })
    }
}

/// Takes an element, and its value if it is to be stored, from arguments beside a place.
pub(super) type ElementOf = for<'x> fn(&dyn Fn(usize) -> &'x [u8]) -> (&'x [u8], Option<&'x [u8]>);

const NO_CHANGE: TreeChange<'static> = TreeChange {
    key: &[],
    value: None,
};

/// What changes of a collection in several steps have come to.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Updated {
    pub(super) added: u64,
    pub(super) removed: u64,
    pub(super) done: u64,
    /// Elements that there are then.
    pub(super) elements: u64,
    /// The version that the collection has then.
    pub(super) version: u64,
    /// The key was made.
    pub(super) is_new: bool,
    /// Elements are stored, not removed.
    stores: bool,
}

impl Updated {
    /// Leaves its events.
    pub(super) fn notify(&self, output: &TaskOutput, (kind, key): (Kind, &[u8])) {
        let (stored, removed) = match kind {
            Kind::Hash => ("hset", "hdel"),
            Kind::Set => ("sadd", "srem"),
            Kind::List => ("rpush", "lrem"),
            Kind::SortedSet => ("zadd", "zrem"),
            Kind::Stream => ("xadd", "xdel"),
        };
        if self.is_new {
            output.notify(EventClasses::NEW, "new", key);
        }
        let has_stored = self.added > 0 || (kind == Kind::Hash && self.done > 0);
        if self.stores && has_stored {
            output.notify(class_of(kind), stored, key);
        }
        if self.removed > 0 {
            output.notify(class_of(kind), removed, key);
            if self.elements == 0 {
                output.notify(EventClasses::GENERIC, "del", key);
            }
        }
    }

    /// Writes what is replied.
    fn write(&self, reply: ReplyKind, writer: &mut Writer<'_>) {
        let number = match reply {
            ReplyKind::Number { place: 0 } => self.added,
            ReplyKind::Number { .. } => self.removed,
            _ => return writer.simple("OK"),
        };
        writer.integer(i64::try_from(number).unwrap_or(i64::MAX));
    }
}

/// Stores elements in a collection, and removes those without a value, in several steps. Returns
/// what was done, and why the rest was not. With `replaces`, the first step replaces what the key
/// holds, whatever that is. What takes several requests is under the section of the key.
pub(super) async fn update_all<'e>(
    (core, output): Step<'_>,
    (kind, key): (Kind, &[u8]),
    entries: impl Iterator<Item = (&'e [u8], Option<&'e [u8]>)>,
    replaces: bool,
) -> (Updated, Option<TaskFailure>) {
    let mut updated = Updated::default();
    let was_under = core.is_under_section();
    let step = (&mut *core, output);
    let done = update_steps(step, (kind, key), entries, (&mut updated, replaces)).await;
    if !was_under {
        output.leave(core);
    }
    (updated, done.err())
}

async fn update_steps<'e>(
    (core, output): Step<'_>,
    (kind, key): (Kind, &[u8]),
    entries: impl Iterator<Item = (&'e [u8], Option<&'e [u8]>)>,
    (updated, replaces): (&mut Updated, bool),
) -> Result<(), TaskFailure> {
    let mut entries = entries.peekable();
    let mut elements = ElementKeys::default();
    let mut replaces = replaces;
    while entries.peek().is_some() || replaces {
        elements.clear();
        let (mut values, mut bytes) = (Vec::new(), 0);
        while values.len() < CHANGES_AT_ONCE
            && bytes < REQUEST_BYTES_MAX
            && let Some(&(element, value)) = entries.peek()
        {
            let more =
                element.len() + value.map_or(0, |value| element::stored_bytes(element, value));
            if bytes > 0 && bytes + more > REQUEST_BYTES_MAX {
                break;
            }
            elements.add(element, value);
            values.push(value);
            bytes += more;
            entries.next();
        }
        if entries.peek().is_some() {
            output.enter(core, &[key]).await?;
        }
        let changes = values.iter().enumerate();
        let changes = changes.map(|(place, value)| elements.change(place, *value));
        let changes: Vec<_> = changes.collect();
        let mut left = &changes[..];
        loop {
            let op = TreeOp::Update {
                changes: TreeChanges::Slices(left),
                replaces,
            };
            let step = ask(core, kind.operation(key, op), |answer| {
                let view = TreeView::of(answer);
                let numbers = [0, 1, 2, 3].map(|place| view.number(place));
                (view.version(), numbers)
            });
            let (version, [added, removed, done, count]) = step.await?;
            updated.version = version;
            updated.stores |= left.iter().any(|change| change.value.is_some());
            updated.is_new |= added > 0 && added == count && updated.done == 0;
            updated.added += added;
            updated.removed += removed;
            updated.done += done;
            updated.elements = count;
            replaces = false;
            let done = usize::try_from(done).unwrap_or(usize::MAX).min(left.len());
            steps::count(done);
            left = &left[done..];
            if left.is_empty() {
                break;
            }
        }
        output.turn(core, bytes).await;
        steps::end_slice(core).await;
    }
    Ok(())
}

/// Removes what was stored under a version, because the rest cannot be, unless it was changed
/// since: others can have changed it once the sections of a client are lost.
pub(super) async fn undo(core: &mut Core, key: &[u8], version: u64) -> farcore::Result<()> {
    let condition = Condition::Version(version);
    let mut undone = core.delete_if(key, condition).await;
    if let Err(Error::SectionLost { .. }) = undone {
        undone = core.another().delete_if(key, condition).await;
    }
    undone.map(|_| ())
}

/// True if an operation stores elements, also where its key is absent.
fn stores(operation: &Operation<'_>) -> bool {
    let Operation::Tree { op, .. } = operation else {
        return true;
    };
    match op {
        TreeOp::Insert { .. }
        | TreeOp::Push { exists: false, .. }
        | TreeOp::CompareAndSet { value: Some(_), .. } => true,
        TreeOp::Update {
            changes: TreeChanges::Slices(changes),
            ..
        } => changes.iter().any(|change| change.value.is_some()),
        TreeOp::Update { .. } => true,
        TreeOp::Score { changes, .. } => stores_scores(*changes),
        _ => false,
    }
}

/// Gives an operation to the engine and returns what `take` makes of its answer.
pub(super) async fn ask<T>(
    core: &mut Core,
    operation: Operation<'_>,
    take: impl FnOnce(&Answer<'_>) -> T,
) -> farcore::Result<T> {
    let (mut take, mut taken) = (Some(take), None);
    let sent = core.many([operation], |_, answer| {
        taken = match answer {
            Answer::Failed(error) => Some(Err(error.clone())),
            answer => take.take().map(|take| Ok(take(&answer))),
        };
    });
    match (sent.await, take) {
        // Such a key cannot exist.
        (Err(farcore::Error::KeyTooLong { .. }), Some(take)) if !stores(&operation) => {
            return Ok(take(&Answer::Absent));
        }
        (sent, _) => sent?,
    }
    taken.unwrap_or(Err(farcore::Error::Closed))
}

/// Writes what a command has come to, or why it did not happen.
pub(super) fn finish<T>(
    output: &TaskOutput,
    protocol: Protocol,
    result: Result<T, TaskFailure>,
    write: impl FnOnce(&mut Writer<'_>, T),
) {
    match result {
        Ok(reply) => output.write(|bytes| write(&mut Writer::new(bytes, protocol), reply)),
        Err(failure) => failure.write(output, protocol),
    }
}

/// How long the collection of a key is, which must be of a kind; of version 0 if there is none.
pub(super) async fn length_of(
    core: &mut Core,
    kind: Kind,
    key: &[u8],
) -> farcore::Result<TreeLength> {
    // A key that is too long cannot exist.
    let length = match core.tree(key).len().await {
        Err(Error::KeyTooLong { .. }) => TreeLength::default(),
        length => length?,
    };
    if length.version > 0 && length.tag != kind.tag() {
        return Err(Error::CollectionTag { tag: length.tag });
    }
    Ok(length)
}

/// Pages of a collection, and the memory that they are charged for.
pub(super) type ReadPages = (Vec<TreePage>, Charge);

/// Reads all elements of a collection that was this long, if it has the same version still. The
/// client is charged for them first.
pub(super) async fn read_all(
    (core, output): Step<'_>,
    (kind, key): (Kind, &[u8]),
    length: &TreeLength,
) -> Result<ReadPages, TaskFailure> {
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let beside = number(length.elements).saturating_mul(BESIDE_READ);
    let bytes = number(length.bytes).saturating_add(beside);
    let held = output.hold_when_free(core, bytes).await?;
    let (mut pages, mut last) = (Vec::new(), None::<Vec<u8>>);
    if length.version == 0 {
        return Ok((pages, held));
    }
    loop {
        let from = match &last {
            None => TreeBound::Unbounded,
            Some(last) => TreeBound::Excluded(last),
        };
        let mut tree = core.tree(key).tagged(kind.tag()).at_version(length.version);
        let page = tree
            .range(from, TreeBound::Unbounded, false, u32::MAX)
            .await?;
        output.end_read(core, size_of_page(&page)).await?;
        last = page.last().map(|(key, _)| key.to_vec());
        let is_last = !page.has_more() || last.is_none();
        pages.push(page);
        if is_last {
            return Ok((pages, held));
        }
    }
}

/// Reads all elements of a hash or a set if Redis would store it compactly; `None` if it would not,
/// or if the collection has changed meanwhile.
pub(super) async fn small(
    step: Step<'_>,
    (kind, key): (Kind, &[u8]),
    length: &TreeLength,
) -> Result<Option<ReadPages>, TaskFailure> {
    let shared = Arc::clone(step.1.shared());
    let limits = &shared.encoding_limits;
    if !limits.may_be_compact(kind, length) {
        return Ok(None);
    }
    match read_all(step, (kind, key), length).await {
        Ok(read) => {
            let encoding = limits.encoding(kind, entries(&read.0));
            Ok((encoding != HASHTABLE).then_some(read))
        }
        Err(TaskFailure::Engine(Error::CollectionVersion { .. })) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Elements of a page, and their bytes.
pub(super) fn size_of_page(page: &TreePage) -> (usize, usize) {
    let sizes = page.iter().map(|(key, value)| key.len() + value.len());
    sizes.fold((0, 0), |(count, bytes), one| (count + 1, bytes + one))
}

/// The elements of pages, with their values.
pub(super) fn entries(pages: &[TreePage]) -> impl Iterator<Item = Entry<'_>> + Clone {
    let count = pages.len();
    (0..count)
        .flat_map(|page| pages[page].iter().collect::<Vec<_>>())
        .filter_map(element::entry_of)
}

/// Gathers things in slices.
pub(super) async fn gather<T>(things: impl Iterator<Item = T>, core: &Core) -> Vec<T> {
    let mut gathered = Vec::with_capacity(things.size_hint().0);
    for thing in things {
        gathered.push(thing);
        if gathered.len().is_multiple_of(steps::PIECE) {
            steps::count(steps::PIECE);
            steps::end_slice(core).await;
        }
    }
    gathered
}

/// Writes elements as the client takes them, until it is gone.
pub(super) async fn send<'e>(
    entries: impl Iterator<Item = Entry<'e>>,
    core: &Core,
    (output, protocol): (&TaskOutput, Protocol),
    write: impl Fn(&mut Writer<'_>, Entry<'e>),
) {
    let mut entries = entries.peekable();
    while entries.peek().is_some() && !output.is_gone() {
        output.room(core).await;
        steps::end_slice(core).await;
        let (mut count, mut bytes) = (0, 0);
        output.write(|into| {
            let mut writer = Writer::new(into, protocol);
            while count < WRITTEN_AT_ONCE && bytes < WRITTEN_BYTES {
                let Some(entry) = entries.next() else {
                    return;
                };
                write(&mut writer, entry);
                count += 1;
                bytes += entry.0.len() + entry.1.len();
            }
        });
        steps::count(count);
        steps::count_copied(bytes);
    }
}
