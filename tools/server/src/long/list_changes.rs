//! Commands that change many elements of a list, or must tell of what they change.

use farcore::{Core, Error, TreeLength, TreeOp};

use crate::events::classes::EventClasses;
use crate::long::copy::send_chunks;
use crate::long::list_steps::{ListWalk, Step, Stop, length, operate, signed, write_integer};
use crate::memory::Charge;
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::attempts::Attempts;
use crate::tasks::output::TaskOutput;
use crate::types::list::reply::{NO_SUCH_KEY, TakenElements, after_trim};
use crate::types::list::side::Side;

/// Bytes that are taken at once.
const PAGE_BYTES: usize = 16 << 10;
/// There is no such element to set.
pub(super) const OUT_OF_RANGE: &str = "ERR index out of range";
/// Elements that are compared between removals, at most.
const WALKED_MAX: u64 = 4 << 10;

/// Elements that are taken off an end.
#[derive(Debug)]
pub(crate) struct PopStep {
    pub(crate) side: Side,
    /// At most this many as an array, or one by itself.
    pub(crate) count: Option<u64>,
    /// Those that were taken already.
    pub(crate) taken: TakenElements,
}

/// Leaves the events of a change.
fn notify_changed(output: &TaskOutput, name: &'static str, key: &[u8], is_gone: bool) {
    output.notify(EventClasses::LIST, name, key);
    if is_gone {
        output.notify(EventClasses::GENERIC, "del", key);
    }
}

/// Gives an element another value.
pub(super) async fn set(
    (core, output): Step<'_>,
    key: &[u8],
    (index, element): (i64, &[u8]),
    protocol: Protocol,
) -> Result<(), Stop> {
    let op = TreeOp::SetAt {
        rank: index,
        value: element,
    };
    output.note_value(element.len());
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method itself is of one lifetime"
    )]
    let version = operate(core, key, (op, None), |answer| answer.version()).await?;
    if version == 0 {
        return Err(unset(core, key, OUT_OF_RANGE).await);
    }
    notify_changed(output, "lset", key, false);
    output.write(|bytes| Writer::new(bytes, protocol).simple("OK"));
    Ok(())
}

/// Why no element was set.
pub(super) async fn unset(core: &mut Core, key: &[u8], reason: &'static str) -> Stop {
    match length(core, key).await {
        Ok(list) if list.elements == 0 => Stop::Refused(NO_SUCH_KEY),
        Ok(_) => Stop::Refused(reason),
        Err(error) => Stop::Failed(error),
    }
}

/// Adds an element beside the first that equals another.
pub(super) async fn insert(
    (core, output): Step<'_>,
    key: &[u8],
    wanted: (&[u8], bool, &[u8]),
    protocol: Protocol,
) -> Result<(), Stop> {
    let (_, _, element) = wanted;
    output.note_value(element.len());
    let mut attempts = Attempts::default();
    let count = loop {
        match try_insert((&mut *core, output), key, wanted).await {
            Err(Stop::Failed(Error::CollectionVersion { .. })) => {
                attempts.again(core, output, &[key]).await;
            }
            done => break done?,
        }
    };
    if count > 0 {
        notify_changed(output, "linsert", key, false);
    }
    write_integer(output, protocol, count);
    Ok(())
}

/// Returns how long the list is then; 0 if there is none, and -1 if there is no such element.
async fn try_insert(
    (core, output): Step<'_>,
    key: &[u8],
    (pivot, behind, element): (&[u8], bool, &[u8]),
) -> Result<i64, Stop> {
    let list = length(core, key).await?;
    if list.elements == 0 {
        return Ok(0);
    }
    let mut found = None;
    let walk = ListWalk::all(list, false);
    walk.run((&mut *core, output), key, |rank, one| {
        found = (one == pivot).then_some(rank);
        found.is_none()
    })
    .await?;
    let Some(rank) = found else {
        return Ok(-1);
    };
    let op = TreeOp::InsertAt {
        rank: rank + u64::from(behind),
        value: element,
    };
    let op = (op, Some(list.version));
    let length = operate(core, key, op, |answer| signed(answer.number(0)));
    Ok(length.await?)
}

/// How far a removal has come.
#[derive(Debug)]
struct Removal<'a> {
    element: &'a [u8],
    from_tail: bool,
    /// How many are to be removed yet.
    left: u64,
    removed: u64,
    is_gone: bool,
}

/// Removes elements that equal one.
pub(super) async fn remove(
    (core, output): Step<'_>,
    key: &[u8],
    (element, count): (&[u8], i64),
    protocol: Protocol,
) -> Result<(), Stop> {
    let mut removal = Removal {
        element,
        from_tail: count < 0,
        left: match count {
            0 => u64::MAX,
            count => count.unsigned_abs(),
        },
        removed: 0,
        is_gone: false,
    };
    let mut attempts = Attempts::default();
    let done = loop {
        match removal.go_on((&mut *core, output), key).await {
            Err(Stop::Failed(Error::CollectionVersion { .. })) => {
                attempts.again(core, output, &[key]).await;
            }
            done => break done,
        }
    };
    if removal.removed > 0 {
        notify_changed(output, "lrem", key, removal.is_gone);
    }
    done?;
    write_integer(output, protocol, signed(removal.removed));
    Ok(())
}

impl Removal<'_> {
    /// Removes what is left to be removed: from each page that is read what equals the element,
    /// before the next page is.
    async fn go_on(&mut self, (core, output): Step<'_>, key: &[u8]) -> Result<(), Stop> {
        let mut list = length(core, key).await?;
        // Elements at the end where it began that stay.
        let mut passed = 0;
        while passed < list.elements && self.left > 0 {
            let mut walk = ListWalk::all(list, self.from_tail);
            if self.from_tail {
                walk.end -= passed;
            } else {
                walk.start += passed;
            }
            let (mut seen, mut found) = (0, Vec::new());
            walk.run((&mut *core, output), key, |rank, one| {
                seen += 1;
                if one == self.element {
                    found.push(rank);
                }
                // A page, or as much of several as is worth a step.
                let enough = found.len() >= steps::PIECE || found.len() as u64 >= self.left;
                !enough && (found.is_empty() || seen % WALKED_MAX != 0)
            })
            .await?;
            passed += seen - found.len() as u64;
            // From the greatest rank on: the others stay what they are.
            found.sort_unstable();
            while let Some(end) = found.pop() {
                let (mut start, end) = (end, end + 1);
                while found.last().is_some_and(|&rank| rank + 1 == start) {
                    start -= 1;
                    found.pop();
                }
                self.remove_ranks(core, key, (start, end), &mut list)
                    .await?;
            }
        }
        Ok(())
    }

    /// Removes the elements of a range of ranks.
    async fn remove_ranks(
        &mut self,
        core: &mut Core,
        key: &[u8],
        (start, mut end): (u64, u64),
        list: &mut TreeLength,
    ) -> Result<(), Error> {
        while start < end {
            let op = TreeOp::RemoveByRank { start, end };
            let op = (op, Some(list.version));
            let (removed, version) =
                operate(core, key, op, |answer| (answer.number(0), answer.version())).await?;
            end -= removed.min(end - start);
            list.elements = list.elements.saturating_sub(removed);
            list.version = version;
            self.removed += removed;
            self.left = self.left.saturating_sub(removed);
            self.is_gone = list.elements == 0;
            steps::count(1);
            steps::end_slice(core).await;
            if removed == 0 {
                debug_assert!(false, "they were there");
                return Err(Error::CollectionVersion { current: version });
            }
        }
        Ok(())
    }
}

/// Removes what is not within two indices.
pub(super) async fn trim(
    (core, output): Step<'_>,
    key: &[u8],
    mut indices: (i64, i64),
    protocol: Protocol,
) -> Result<(), Stop> {
    loop {
        let (first, last) = indices;
        let op = (TreeOp::Trim { first, last }, None);
        let (version, numbers) = operate(core, key, op, |answer| {
            let numbers = [0, 1, 3, 4].map(|place| answer.number(place));
            (answer.version(), numbers)
        })
        .await?;
        let [removed, start, more, elements] = numbers;
        if more == 0 {
            // As Redis, which tells of a list that is all within the range too.
            if version != 0 {
                notify_changed(output, "ltrim", key, elements == 0);
            }
            break;
        }
        indices = after_trim(indices, (removed, start, elements));
        steps::count(1);
        steps::end_slice(core).await;
    }
    output.write(|bytes| Writer::new(bytes, protocol).simple("OK"));
    Ok(())
}

/// What was taken off an end of a list.
#[derive(Debug, Default)]
pub(crate) struct Popped {
    pub(crate) taken: TakenElements,
    /// There was a list.
    pub(crate) is_list: bool,
    /// What the elements take.
    held: Option<Charge>,
}

/// Takes at most `count` elements off an end, in as many steps as it takes, and leaves the events
/// of that. There are fewer if the client may not have the memory for more.
///
/// # Errors
/// The first step failed: nothing was taken.
pub(crate) async fn take_off(
    (core, output): Step<'_>,
    key: &[u8],
    (side, count): (Side, u64),
    mut taken: TakenElements,
) -> Result<Popped, Error> {
    let before = taken.count;
    let (mut held, mut is_list, mut is_gone) = (None::<Charge>, before > 0, false);
    let failed = loop {
        let left = count.saturating_sub(taken.count - before);
        let limit = u32::try_from(left).unwrap_or(u32::MAX);
        let last = side.is_last();
        let op = (TreeOp::Pop { last, limit }, None);
        let popped = operate(core, key, op, |page| {
            taken.add(page.elements().map(|(_, element)| element));
            (page.version() != 0, page.has_more())
        });
        match popped.await {
            Ok((there, has_more)) => {
                is_list |= there;
                is_gone = there && !has_more;
                if !has_more || taken.count - before >= count {
                    break None;
                }
            }
            Err(error) => break Some(error),
        }
        // The next step takes a page, or one long element.
        let length = taken.replies.len();
        let needed = length + 2 * PAGE_BYTES;
        let wanted = taken.replies.capacity().max(needed + needed / 4);
        let held = held.get_or_insert_with(|| output.hold(0));
        if held.grow_to(wanted).is_err() || output.is_gone() {
            break None;
        }
        taken.replies.reserve_exact(wanted - length);
        steps::count(1);
        steps::end_slice(core).await;
    };
    if taken.count > before || is_gone && before > 0 {
        notify_changed(output, side.pop_event(), key, is_gone);
    }
    match failed {
        Some(error) if taken.count == 0 => Err(error),
        _ => Ok(Popped {
            taken,
            is_list,
            held,
        }),
    }
}

/// Takes elements off an end.
pub(super) async fn pop(
    (core, output): Step<'_>,
    key: &[u8],
    wanted: PopStep,
    protocol: Protocol,
) -> Result<(), Stop> {
    let PopStep { side, count, taken } = wanted;
    let wanted = (side, count.unwrap_or(1));
    let popped = take_off((core, output), key, wanted, taken).await?;
    let _held = popped.held;
    let TakenElements {
        replies,
        count: taken,
    } = popped.taken;
    output.write(|bytes| {
        let mut writer = Writer::new(bytes, protocol);
        match count {
            Some(_) if popped.is_list => {
                writer.array(usize::try_from(taken).unwrap_or(usize::MAX));
            }
            Some(_) => writer.null_array(),
            None if taken == 0 => writer.null(),
            None => {}
        }
    });
    send_chunks(core, output, &replies).await;
    Ok(())
}
