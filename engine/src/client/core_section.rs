//! Sections of a core client: a second client of the same core, whose requests are under them.

use std::time::Duration;

use super::core::Core;
use super::section::{check_count, enter_all, leave_all, looks, section_shards};
use super::section_state::CoreSection;
use crate::error::{Error, Result};
use crate::message::hash::IndexHash;
use crate::message::operation::{OperationKind, RequestParts};
use crate::message::section::{SectionClients, SectionName, SectionShards, section_parts};
use crate::reactor::NO_CLIENT;

impl Core {
    /// Runs `work` while no other client is served by the shards of `keys`: what it does happens at
    /// once, for all who see these shards, over any number of keys and operations. `work` gets a
    /// client of its own, whose requests to these shards go before those that wait; all operations
    /// work, on these keys and on others of the same shards.
    ///
    /// ```
    /// # use farcore::{Config, Core, Engine};
    /// # let config = Config { local_bytes: 64 << 20, far_bytes: 64 << 20, keys_expected: 10_000, ..Config::default() };
    /// let engine = Engine::open(config)?;
    /// let job = engine.run_on_core(0, async |mut core: Core| {
    ///     core.put(b"from", b"10").await?;
    ///     core.put(b"to", b"0").await?;
    ///     let moved = core.section(&[b"from", b"to"], async |core| {
    ///         core.increment(b"from", -3).await?;
    ///         core.increment(b"to", 3).await
    ///     });
    ///     moved.await?
    /// })?;
    /// assert_eq!(job.join()??, 3);
    /// # Ok::<(), farcore::Error>(())
    /// ```
    ///
    /// The keys are read first, so that far ones are near. Then the sections of their shards are
    /// taken, one after the other in ascending order, each in the order in which clients came. A
    /// section is lent for [`Config::section_ns`](crate::Config::section_ns); meanwhile others
    /// wait, so `work` should await nothing but its client. Background work goes on: keys expire,
    /// and a cache evicts. If the call is dropped, what was sent is carried out, and the sections
    /// are given back.
    ///
    /// If it returns `Ok`, all shards were held from before the first request of `work` until after
    /// its last. Nothing is undone if `work` stops early, or returns an error of its own.
    ///
    /// Cost: a crossing for the reads, one for each shard, and one to give all back.
    ///
    /// # Errors
    /// [`Error::SectionKeys`], [`Error::SectionShards`], and those of keys.
    /// [`Error::SectionInside`] on a client that `work` was given. [`Error::SectionRefused`] if a
    /// shard does not give its section; then `work` was not begun. [`Error::SectionLost`] if a
    /// section was held too long: requests before that were carried out, those after it failed with
    /// the same error, and other clients may have changed the keys meanwhile. [`Error::Closed`].
    pub async fn section<R>(
        &mut self,
        keys: &[&[u8]],
        work: impl AsyncFnOnce(&mut Core) -> R,
    ) -> Result<R> {
        if self.section.is_some() {
            return Err(Error::SectionInside);
        }
        let shards = section_shards(keys, self.hasher_and_shards())?;
        self.many_kept(looks(keys), 0, |_, _| {}).await?;
        let mut under = self.another();
        under.tap.clone_from(&self.tap);
        under.enter(shards).await?;
        let result = work(&mut under).await;
        under.leave_sections().await?;
        Ok(result)
    }

    /// Has the requests of this client be under the sections of `shards`, until it leaves them:
    /// [`Core::section`] for a caller whose work is no one future. `near` are keys that it is about
    /// to use: those that are far are read first. Requests to other shards fail with
    /// [`Error::SectionOutside`] meanwhile. What it has submitted before, and not seen answered,
    /// may be carried out after the sections.
    ///
    /// If the call is dropped, drop the client too: it waits for some of the sections.
    ///
    /// # Errors
    /// Those of [`Core::section`]; [`Error::SectionOutside`] for a shard that there is not. Then
    /// its requests are plain ones as before.
    pub async fn enter_sections(
        &mut self,
        shards: impl IntoIterator<Item = usize>,
        near: &[&[u8]],
    ) -> Result<()> {
        if self.section.is_some() {
            return Err(Error::SectionInside);
        }
        let (_, count) = self.hasher_and_shards();
        let mut set = SectionShards::default();
        for shard in shards {
            let shard = u16::try_from(shard).unwrap_or(u16::MAX);
            if shard >= count {
                return Err(Error::SectionOutside { shard });
            }
            set.add(shard);
        }
        let shards = check_count(set)?;
        self.many_kept(looks(near), 0, |_, _| {}).await?;
        self.enter(shards).await
    }

    async fn enter(&mut self, shards: SectionShards) -> Result<()> {
        self.begin_calls().await;
        while self.client == NO_CLIENT && !self.begin() {
            self.yield_now().await;
        }
        // A leave that is not sent yet would end the new section.
        while self.has_calls_in_flight() {
            self.yield_now().await;
        }
        self.begin_section();
        let entered = enter_all(self, shards).await;
        if entered.is_err() {
            self.abandon_sections();
        }
        entered
    }

    /// Another client for calls beside this one's, under the sections that this one has entered, if
    /// it has: for two calls at once. There is one at a time, and it ends with the sections. Under
    /// sections it takes no submitted requests ([`Error::SectionInside`]).
    ///
    /// # Errors
    /// [`Error::SectionLost`]; also if there is one already.
    pub async fn beside(&mut self) -> Result<Core> {
        let mut beside = self.another();
        if let Some(section) = &self.section {
            beside.begin_calls().await;
            // One that has ended must have left.
            while self.reactor.borrow().owes_leaves() {
                self.yield_now().await;
            }
            beside.section = Some(CoreSection {
                joins: Some(self.caller),
                ..CoreSection::default()
            });
            enter_all(&mut beside, section.shards).await?;
        }
        Ok(beside)
    }

    /// Leaves the sections that this client has entered: its requests are plain ones from now on.
    /// What it has submitted is carried out before.
    ///
    /// # Errors
    /// [`Error::SectionLost`] if one was held too long: others may have been served since.
    pub async fn leave_sections(&mut self) -> Result<()> {
        let shards = self.section.as_ref().map(|section| section.shards);
        let left = leave_all(self, shards.unwrap_or_default()).await;
        self.abandon_sections();
        match left? {
            None => Ok(()),
            Some(shard) => {
                let limit = Duration::from_nanos(self.reactor.borrow().section_ns());
                Err(Error::SectionLost { shard, limit })
            }
        }
    }

    /// [`Core::leave_sections`] without waiting: it is not known whether one was lost after the
    /// latest request.
    pub fn abandon_sections(&mut self) {
        let Some(section) = self.section.take() else {
            return;
        };
        self.send_leaves(section.shards);
        self.allow_plain(section.in_flight);
    }

    /// True while requests of this client are under sections.
    #[must_use]
    pub fn is_under_section(&self) -> bool {
        self.section.is_some()
    }

    /// Submits a request of a call under the section of its shard.
    #[cold]
    #[inline(never)]
    pub(super) fn call_under_section(
        &mut self,
        token: u64,
        parts: &RequestParts<'_>,
    ) -> Result<bool> {
        let (shard, hash) = self.place_of(parts.key);
        self.send_under_section(shard, hash, (self.caller, token), parts)
    }

    /// Submits a request under the section of its shard; false if it was not taken.
    pub(super) fn submit_under_section(
        &mut self,
        token: u64,
        parts: &RequestParts<'_>,
        in_flight_max: usize,
    ) -> bool {
        let in_flight = self.section.as_ref().map_or(0, |section| section.in_flight);
        if in_flight >= in_flight_max {
            return false;
        }
        let (shard, hash) = self.place_of(parts.key);
        let sent = self.send_under_section(shard, hash, (self.client, token), parts);
        let Some(section) = &mut self.section else {
            return false;
        };
        match sent {
            Ok(is_sent) => {
                section.in_flight += usize::from(is_sent);
                is_sent
            }
            Err(error) => {
                section.refused = Some(error);
                false
            }
        }
    }

    fn place_of(&self, key: &[u8]) -> (u16, IndexHash) {
        let (hasher, shards) = self.hasher_and_shards();
        let hash = hasher.hash(key);
        (hasher.shard(key, hash, shards), hash.index)
    }

    /// Submits a request under the section of a shard, or one that enters or leaves it; false if
    /// the client must poll first.
    pub(super) fn send_under_section(
        &mut self,
        shard: u16,
        hash: IndexHash,
        client: (u16, u64),
        parts: &RequestParts<'_>,
    ) -> Result<bool> {
        let Some(section) = &mut self.section else {
            return Ok(false);
        };
        let mut reactor = self.reactor.borrow_mut();
        if parts.kind == OperationKind::SectionEnter {
            // Before it is sent: whenever this client is dropped, it leaves.
            section.shards.add(shard);
            let (second, join);
            let value = match section.joins {
                None => {
                    second = SectionName::encode_enter(parts.expected, self.client);
                    &second[..]
                }
                Some(of) => {
                    join = SectionClients::encode_join(of);
                    &join[..]
                }
            };
            let parts = section_parts(parts.kind, value);
            return Ok(reactor.submit_under_section(shard, hash, client, &parts));
        }
        if !section.shards.has(shard) {
            return Err(Error::SectionOutside { shard });
        }
        let is_sent = reactor.submit_under_section(shard, hash, client, parts);
        if is_sent && parts.kind == OperationKind::SectionLeave {
            section.shards.remove(shard);
        }
        Ok(is_sent)
    }
}
