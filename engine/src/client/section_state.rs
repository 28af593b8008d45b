//! What clients keep of their sections: which shards they hold or wait for, under which numbers,
//! and what is left to be given back.

use crate::error::Error;
use crate::message::operation::{OperationKind, RequestParts};
use crate::message::request::{Origin, RequestFlags};
use crate::message::section::{SectionShards, section_parts};

/// What a core client holds whose requests are under a section.
#[derive(Debug, Default)]
pub(super) struct CoreSection {
    /// The shards whose section it holds or waits for.
    pub(super) shards: SectionShards,
    /// The client that it joins, if it does not enter by itself.
    pub(super) joins: Option<u16>,
    /// Submitted requests whose answers have not been visited. The client counts none itself, so
    /// that a plain submission needs no look here.
    pub(super) in_flight: usize,
    /// Why the latest request was not taken.
    pub(super) refused: Option<Error>,
}

/// The token of a request to leave whose answer no one takes.
const NO_TOKEN: u64 = u64::MAX;
/// The highest number of a section: its clients have twice that, and one more.
pub(super) const NUMBER_MAX: u16 = (Origin::CLIENT_MAX - 1) / 2;

/// The sections of the clients of one handle.
///
/// A section has a number from 1 on. Its requests come from the clients of twice that number and of
/// one more, as plain ones come from 0 and 1.
#[derive(Debug, Default)]
pub(super) struct HandleSections {
    /// The section under which requests are sent now; 0 for plain ones.
    pub(super) current: u16,
    /// By number less one, the shards whose section is held or waited for.
    pub(super) shards: Vec<SectionShards>,
    free: Vec<u16>,
    /// Shards that clients that are gone have not left yet, for lack of room, with the numbers of
    /// their sections.
    owed: Vec<(u16, u16)>,
    /// Second queues may have requests that are not published.
    pub(super) has_sends: bool,
}

impl HandleSections {
    /// A number for a new section; `None` if all are taken.
    pub(super) fn take(&mut self) -> Option<u16> {
        let number = self.free.pop().or_else(|| {
            let next = u16::try_from(self.shards.len() + 1).ok()?;
            (next <= NUMBER_MAX).then(|| {
                self.shards.push(SectionShards::default());
                next
            })
        })?;
        self.shards[usize::from(number) - 1] = SectionShards::default();
        Some(number)
    }

    /// True if some were not left for lack of room.
    pub(super) fn owes(&self) -> bool {
        !self.owed.is_empty()
    }

    /// Has the clients of a section leave all its shards.
    pub(super) fn end(&mut self, number: u16) {
        // The handle may be another one than the one that began it: `work` can swap them.
        let Some(shards) = self.shards.get_mut(usize::from(number) - 1) else {
            return;
        };
        let shards = std::mem::take(shards);
        self.owed.extend(shards.iter().map(|shard| (shard, number)));
        if shards.count() == 0 {
            self.free.push(number);
        }
        self.has_sends = true;
    }

    /// Sends requests to leave as far as there is room: `push` returns whether there is. Returns
    /// how many.
    pub(super) fn pay(&mut self, mut push: impl FnMut(u16, u16) -> bool) -> usize {
        let mut paid = 0;
        while let Some(&(shard, number)) = self.owed.last()
            && push(shard, 2 * number + 1)
        {
            paid += 1;
            self.owed.pop();
            // Only then another section may have the number: it is seen to enter after that.
            if self.owed.iter().all(|owed| owed.1 != number) {
                self.free.push(number);
            }
        }
        paid
    }
}

/// The parts, origin and token of a request to leave that no one waits for.
pub(super) fn abandoned_leave(client: u16) -> (RequestParts<'static>, Origin, u64) {
    let parts = section_parts(OperationKind::SectionLeave, &[]);
    (parts, Origin::new(client, RequestFlags::NONE), NO_TOKEN)
}
