//! Commands that read many elements of a list: of one version, as often as it takes.

use farcore::{Core, Error, Version};

use crate::events::classes::EventClasses;
use crate::long::copy::send_chunks;
use crate::long::list_steps::{ListWalk, Step, Stop, length, signed, write_integer};
use crate::memory::{Charge, Shortage};
use crate::resp::{Protocol, Writer};
use crate::tasks::attempts::Attempts;
use crate::tasks::output::TaskOutput;
use crate::types::list::reply::Occurrences;

/// Bytes of a reply that an element takes beside its own.
const BESIDE_ELEMENT: u64 = 12;
/// Bytes of a part beside those of an element, at most.
const HEAD_BYTES: usize = 32;

/// What is replied of occurrences.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FoundReply {
    One,
    Array,
}

/// A reply of many parts, and the memory that it takes.
#[derive(Debug, Default)]
struct Body {
    bytes: Vec<u8>,
    count: usize,
    held: Option<Charge>,
}

impl Body {
    /// Begins anew with room for `bytes`; waits for them the first time.
    async fn begin(
        &mut self,
        core: &Core,
        output: &TaskOutput,
        bytes: usize,
    ) -> Result<(), Shortage> {
        self.bytes.clear();
        self.count = 0;
        match &mut self.held {
            Some(held) => held.grow_to(held.bytes().max(bytes))?,
            None => self.held = Some(output.hold_when_free(core, bytes).await?),
        }
        self.bytes.reserve_exact(bytes);
        Ok(())
    }

    /// Has room for another part of `bytes` beside its head.
    ///
    /// # Errors
    /// The client may not have the memory.
    fn reserve(&mut self, bytes: usize) -> Result<(), Shortage> {
        let needed = self.bytes.len() + bytes + HEAD_BYTES;
        if needed > self.bytes.capacity() {
            let wanted = needed + needed / 4;
            if let Some(held) = &mut self.held {
                held.grow_to(held.bytes().max(wanted))?;
            }
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
        Ok(())
    }

    /// Adds a part.
    fn add(&mut self, protocol: Protocol, write: impl FnOnce(&mut Writer<'_>)) {
        write(&mut Writer::new(&mut self.bytes, protocol));
        self.count += 1;
    }

    /// Writes it as an array.
    async fn send(&self, core: &Core, output: &TaskOutput, protocol: Protocol) {
        output.write(|bytes| Writer::new(bytes, protocol).array(self.count));
        send_chunks(core, output, &self.bytes).await;
    }
}

/// Leaves the event of a read that has found no key.
fn notify_missed(output: &TaskOutput, key: &[u8], version: Version) {
    if version == 0 {
        output.notify(EventClasses::MISSED, "keymiss", key);
    }
}

/// Replies how long the list is.
pub(super) async fn reply_length(
    (core, output): Step<'_>,
    key: &[u8],
    protocol: Protocol,
) -> Result<(), Stop> {
    let list = length(core, key).await?;
    notify_missed(output, key, list.version);
    write_integer(output, protocol, signed(list.elements));
    Ok(())
}

/// The ranks from one index to another, both included.
fn ranks((first, last): (i64, i64), elements: u64) -> (u64, u64) {
    let count = i128::from(elements);
    let from_head = |index: i64| match index {
        0.. => i128::from(index),
        _ => i128::from(index) + count,
    };
    let rank = |place: i128| u64::try_from(place.clamp(0, count)).unwrap_or(0);
    let start = rank(from_head(first));
    (start, rank(from_head(last) + 1).max(start))
}

/// Bytes of a reply with `elements` of a list, about.
fn reply_bytes(list: &farcore::TreeLength, elements: u64) -> usize {
    let share = u128::from(list.bytes) * u128::from(elements) / u128::from(list.elements.max(1));
    let beside = u128::from(elements.saturating_mul(BESIDE_ELEMENT));
    usize::try_from(share + beside).unwrap_or(usize::MAX)
}

/// Replies the elements from one index to another.
pub(super) async fn reply_range(
    (core, output): Step<'_>,
    key: &[u8],
    (indices, reply): ((i64, i64), FoundReply),
    protocol: Protocol,
) -> Result<(), Stop> {
    let (mut attempts, mut body) = (Attempts::default(), Body::default());
    loop {
        match try_range((&mut *core, output), key, (indices, protocol), &mut body).await {
            Err(Stop::Failed(Error::CollectionVersion { .. })) => {
                attempts.again(core, output, &[key]).await;
            }
            done => break done?,
        }
    }
    output.leave(core);
    match reply {
        FoundReply::Array => body.send(core, output, protocol).await,
        FoundReply::One if body.count == 0 => {
            output.write(|bytes| Writer::new(bytes, protocol).null());
        }
        FoundReply::One => send_chunks(core, output, &body.bytes).await,
    }
    Ok(())
}

async fn try_range(
    (core, output): Step<'_>,
    key: &[u8],
    (indices, protocol): ((i64, i64), Protocol),
    body: &mut Body,
) -> Result<(), Stop> {
    let list = length(core, key).await?;
    notify_missed(output, key, list.version);
    let (start, end) = ranks(indices, list.elements);
    let bytes = reply_bytes(&list, end - start);
    body.begin(core, output, bytes).await?;
    let walk = ListWalk {
        list,
        start,
        end,
        reverse: false,
    };
    let mut reserved = Ok(());
    walk.run((core, output), key, |_, element| {
        reserved = body.reserve(element.len());
        if reserved.is_ok() {
            body.add(protocol, |writer| writer.bulk(element));
        }
        reserved.is_ok()
    })
    .await?;
    reserved.map_err(Stop::from)
}

/// Replies the ranks of elements that equal one.
pub(super) async fn reply_places(
    (core, output): Step<'_>,
    key: &[u8],
    (element, occurrences, reply): (&[u8], Occurrences, FoundReply),
    protocol: Protocol,
) -> Result<(), Stop> {
    let (mut attempts, mut body) = (Attempts::default(), Body::default());
    loop {
        let step = (&mut *core, output);
        let wanted = (element, occurrences, protocol);
        match try_places(step, key, wanted, &mut body).await {
            Err(Stop::Failed(Error::CollectionVersion { .. })) => {
                attempts.again(core, output, &[key]).await;
            }
            done => break done?,
        }
    }
    output.leave(core);
    match reply {
        FoundReply::Array => body.send(core, output, protocol).await,
        FoundReply::One => output.write(|bytes| match body.count {
            0 => Writer::new(bytes, protocol).null(),
            _ => bytes.extend_from_slice(&body.bytes),
        }),
    }
    Ok(())
}

async fn try_places(
    (core, output): Step<'_>,
    key: &[u8],
    (element, wanted, protocol): (&[u8], Occurrences, Protocol),
    body: &mut Body,
) -> Result<(), Stop> {
    let list = length(core, key).await?;
    notify_missed(output, key, list.version);
    body.begin(core, output, 0).await?;
    let compared = wanted.compared.min(list.elements);
    let mut walk = ListWalk::all(list, wanted.rank < 0);
    if walk.reverse {
        walk.start = list.elements - compared;
    } else {
        walk.end = compared;
    }
    let mut before = wanted.rank.unsigned_abs().saturating_sub(1);
    let (mut left, mut reserved) = (wanted.count, Ok(()));
    walk.run((core, output), key, |rank, one| {
        if one == element {
            if before > 0 {
                before -= 1;
            } else {
                left -= 1;
                reserved = body.reserve(0);
                if reserved.is_ok() {
                    body.add(protocol, |writer| writer.integer(signed(rank)));
                }
            }
        }
        left > 0 && reserved.is_ok()
    })
    .await?;
    reserved.map_err(Stop::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_count_from_both_ends() {
        for (indices, elements, expected) in [
            ((0, -1), 5, (0, 5)),
            ((-3, -2), 5, (2, 4)),
            ((3, 100), 5, (3, 5)),
            ((4, 3), 5, (4, 4)),
            ((-100, 0), 5, (0, 1)),
            ((0, -100), 5, (0, 0)),
            ((i64::MIN, i64::MAX), 5, (0, 5)),
            ((i64::MAX, i64::MIN), 5, (5, 5)),
            ((0, -1), 0, (0, 0)),
        ] {
            assert_eq!(ranks(indices, elements), expected, "{indices:?}");
        }
    }
}
