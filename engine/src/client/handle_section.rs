//! Sections of a handle, and of the clients that share one.

use super::handle::Handle;
use super::refused::Refused;
use super::section::{enter_all, leave_all, looks, section_shards};
use super::section_state::{NUMBER_MAX, abandoned_leave};
use super::shard_requests::of_handle;
use crate::error::{Error, Result};
use crate::message::hash::IndexHash;
use crate::message::operation::{OperationKind, RequestParts};
use crate::message::request::{Origin, RequestFlags};
use crate::message::section::{SectionName, section_parts};

impl Handle {
    /// Runs `work` while no other client is served by the shards of `keys`: what it does happens at
    /// once, for all who see these shards, over any number of keys and operations. The requests of
    /// the handle that `work` gets go before those that wait; all operations work, on these keys
    /// and on others of the same shards.
    ///
    /// ```
    /// # use farcore::{Config, Engine};
    /// # let config = Config { local_bytes: 64 << 20, far_bytes: 64 << 20, keys_expected: 10_000, ..Config::default() };
    /// let engine = Engine::open(config)?;
    /// let mut handle = engine.handle()?;
    /// handle.put(b"from", b"10").wait()?;
    /// let to = handle.section(&[b"from", b"to"], |handle| {
    ///     handle.increment(b"from", -3).wait()?;
    ///     handle.increment(b"to", 3).wait()
    /// })??;
    /// assert_eq!(to, 3);
    /// # Ok::<(), farcore::Error>(())
    /// ```
    ///
    /// The keys are read first, so that far ones are near. Then the sections of their shards are
    /// taken, one after the other in ascending order, each in the order in which clients came. A
    /// section is lent for [`Config::section_ns`](crate::Config::section_ns); meanwhile others
    /// wait, so `work` should wait for nothing else. Background work goes on: keys expire, and a
    /// cache evicts. If `work` panics, what was sent is carried out, and the sections are given
    /// back.
    ///
    /// If it returns `Ok`, all shards were held from before the first request of `work` until after
    /// its last. Nothing is undone if `work` stops early, or returns an error of its own.
    ///
    /// Cost: a crossing for the reads, one for each shard, and one to give all back.
    ///
    /// # Errors
    /// [`Error::SectionKeys`], [`Error::SectionShards`], and those of keys.
    /// [`Error::SectionInside`] in `work`. [`Error::SectionRefused`] if a shard does not give its
    /// section; then `work` was not begun. [`Error::SectionLost`] if a section was held too long:
    /// requests before that were carried out, those after it failed with the same error, and other
    /// clients may have changed the keys meanwhile. [`Error::Closed`].
    pub fn section<R>(&mut self, keys: &[&[u8]], work: impl FnOnce(&mut Handle) -> R) -> Result<R> {
        if self.sections.current != 0 {
            return Err(Error::SectionInside);
        }
        let shards = section_shards(keys, self.hasher_and_shards())?;
        self.many(looks(keys), |_, _| {})?;
        let number = self.begin_section()?;
        let under = HandleSectionGuard {
            handle: self,
            number,
        };
        under.handle.sections.current = number;
        of_handle(enter_all(under.handle, shards))?;
        let result = work(under.handle);
        let lost = of_handle(leave_all(under.handle, shards))?;
        lost.map_or(Ok(result), |shard| Err(under.handle.section_lost(shard)))
    }

    /// A number for a new section.
    ///
    /// # Errors
    /// [`Error::SectionRefused`] if there is none.
    pub(super) fn begin_section(&mut self) -> Result<u16> {
        self.sections.take().ok_or(Error::SectionRefused {
            shard: 0,
            waiting: NUMBER_MAX.into(),
        })
    }

    pub(super) fn section_lost(&self, shard: u16) -> Error {
        Error::SectionLost {
            shard,
            limit: self.shared.section_limit(),
        }
    }

    /// Gives back what a section still holds; its number is free then.
    pub(super) fn end_section(&mut self, number: u16) {
        self.sections.end(number);
        self.pay_leaves();
    }

    /// Gives back what all sections hold: no client can use them any more.
    pub(super) fn end_all_sections(&mut self) {
        for number in 1..=self.sections.shards.len() {
            let number = u16::try_from(number).unwrap_or(u16::MAX);
            if self.sections.shards[usize::from(number) - 1].count() > 0 {
                self.sections.end(number);
            }
        }
        self.pay_leaves();
    }

    /// Sends requests under this section from now on; 0 for plain ones.
    #[inline]
    pub(super) fn use_section(&mut self, number: u16) {
        self.sections.current = number;
    }

    /// True if some sections were not left for lack of room.
    pub(super) fn owes_leaves(&self) -> bool {
        self.sections.owes()
    }

    /// Sends what clients that are gone have not sent for lack of room.
    pub(super) fn pay_leaves(&mut self) {
        let (Some(lanes), sections) = (&mut self.lanes, &mut self.sections) else {
            return;
        };
        self.outstanding += sections.pay(|shard, client| {
            let (parts, origin, token) = abandoned_leave(client);
            let producer = &mut lanes.lanes[usize::from(shard)].sections;
            producer.push(IndexHash(0), token, origin, &parts)
        });
    }

    /// Sends a request under the section of its shard, or one that enters or leaves it. `client` is
    /// that of a plain request.
    #[cold]
    #[inline(never)]
    pub(super) fn send_under_section(
        &mut self,
        shard: u16,
        hash: IndexHash,
        (client, token): (u16, u64),
        parts: &RequestParts<'_>,
    ) -> std::result::Result<(), Refused> {
        let Some(lanes) = &mut self.lanes else {
            return Err(Error::Closed.into());
        };
        let sections = &mut self.sections;
        let number = sections.current;
        let shards = &mut sections.shards[usize::from(number) - 1];
        let origin = Origin::new(2 * number + client, RequestFlags::NONE);
        let second = SectionName::encode_enter(parts.expected, 2 * number + (1 - client));
        let entering = section_parts(OperationKind::SectionEnter, &second);
        let parts = if parts.kind == OperationKind::SectionEnter {
            // Before it is sent: whenever its client is dropped, it leaves.
            shards.add(shard);
            &entering
        } else if shards.has(shard) {
            parts
        } else {
            return Err(Error::SectionOutside { shard }.into());
        };
        let producer = &mut lanes.lanes[usize::from(shard)].sections;
        sections.has_sends = true;
        if !producer.push(hash, token, origin, parts) {
            return Err(Refused::Full);
        }
        if parts.kind == OperationKind::SectionLeave {
            shards.remove(shard);
            producer.free_served();
        }
        self.outstanding += 1;
        Ok(())
    }
}

/// A handle whose requests are under a section, until this is dropped.
struct HandleSectionGuard<'h> {
    handle: &'h mut Handle,
    number: u16,
}

impl Drop for HandleSectionGuard<'_> {
    fn drop(&mut self) {
        self.handle.sections.current = 0;
        self.handle.end_section(self.number);
        // Others wait for it. There is room once the shard has served what was sent before.
        self.handle.pump_leaves();
    }
}
