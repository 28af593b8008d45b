//! Sections of a core client: how it takes the sections of shards, sends requests under them, and
//! gives them back.

use std::time::Duration;

use super::core::Core;
use super::section::section_shards;
use crate::error::{Error, Result};
use crate::message::hash::IndexHash;
use crate::message::operation::{Operation, RequestParts};
use crate::message::outcome::Answer;
use crate::message::section::{SectionShards, enter_parts, leave_parts};
use crate::reactor::{NO_CLIENT, yield_now};

/// What a core client holds whose requests are under a section.
#[derive(Debug, Default)]
pub(super) struct CoreSection {
    /// The shards whose section it holds or waits for.
    pub(super) shards: SectionShards,
    /// Submitted requests whose answers have not been visited. The client counts none itself, so
    /// that a plain submission needs no look here.
    pub(super) in_flight: usize,
    /// Why the latest request was not taken.
    pub(super) refused: Option<Error>,
}

impl CoreSection {
    /// Checks that a shard is of the section.
    pub(super) fn check(&self, shard: u16) -> Result<()> {
        if self.shards.has(shard) {
            return Ok(());
        }
        Err(Error::SectionOutside { shard })
    }
}

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
    ///     core.section(&[b"from", b"to"], async |core| {
    ///         core.increment(b"from", -3).await?;
    ///         core.increment(b"to", 3).await
    ///     })
    ///     .await?
    /// })?;
    /// assert_eq!(job.wait()??, 3);
    /// # Ok::<(), farcore::Error>(())
    /// ```
    ///
    /// The keys are read first, so that far ones are near. Then the sections of their shards are
    /// taken, one after the other in ascending order, each in the order in which clients came. A
    /// section is lent for [`Config::section_ns`](crate::Config::section_ns); meanwhile others
    /// wait, so `work` should await nothing but this client. Background work goes on: keys expire,
    /// and a cache evicts. If the call is dropped, what was sent is carried out, and the sections
    /// are given back.
    ///
    /// If it returns `Ok`, all shards were held from before the first request of `work` until after
    /// its last. Nothing is undone if `work` stops early, or returns an error of its own.
    ///
    /// Cost: a crossing for the reads, one for each shard, and one to give all back.
    ///
    /// # Errors
    /// [`Error::SectionKeys`], [`Error::SectionShards`], and those of keys. [`Error::SectionInside`]
    /// on a client that `work` was given. [`Error::SectionRefused`] if a shard does not give its
    /// section; then `work` was not begun. [`Error::SectionLost`] if a section was held too long:
    /// requests before that were carried out, those after it failed with the same error, and others
    /// may have come between. [`Error::Closed`].
    pub async fn section<R>(
        &mut self,
        keys: &[&[u8]],
        work: impl AsyncFnOnce(&mut Core) -> R,
    ) -> Result<R> {
        if self.section.is_some() {
            return Err(Error::SectionInside);
        }
        let (hasher, shards) = self.hasher_and_shards();
        let shards = section_shards(keys, hasher, shards)?;
        self.look_at(keys).await?;
        let mut under = self.another();
        under.begin_section().await;
        for shard in shards.iter() {
            under.enter(shard).await?;
        }
        let result = work(&mut under).await;
        under.leave_all().await?;
        Ok(result)
    }

    /// Reads keys, so that they are near. A far record is copied to local memory when it is read
    /// twice. What cannot be read fails later as well, where it matters.
    async fn look_at(&mut self, keys: &[&[u8]]) -> Result<()> {
        let looks = keys.iter().flat_map(|key| [Operation::Get { key }; 2]);
        self.many_kept(looks, 0, |_, _| {}).await
    }

    /// Has the requests of this new client be under a section.
    async fn begin_section(&mut self) {
        self.begin_calls().await;
        while self.client == NO_CLIENT && !self.begin() {
            self.yield_now().await;
        }
        // None is taken as a plain one from now on.
        self.in_flight_max = 0;
        self.section = Some(CoreSection::default());
    }

    /// Waits for the section of a shard.
    async fn enter(&mut self, shard: u16) -> Result<()> {
        // Before it is sent: whenever this client is dropped, it leaves.
        if let Some(section) = &mut self.section {
            section.shards.add(shard);
        }
        self.call = self.call.wrapping_add(1);
        let second = self.client.to_le_bytes();
        self.send_to_section(shard, &enter_parts(&second)).await;
        let mut answer = None;
        loop {
            self.poll_calls(&mut |_, found| {
                answer = Some(match found {
                    Answer::Failed(error) => Err(error.clone()),
                    _ => Ok(()),
                });
            });
            match answer {
                Some(Ok(())) => return Ok(()),
                Some(Err(error)) => {
                    if let Some(section) = &mut self.section {
                        section.shards.remove(shard);
                    }
                    return Err(error);
                }
                None => yield_now().await,
            }
        }
    }

    /// Gives all sections back.
    async fn leave_all(&mut self) -> Result<()> {
        self.call = self.call.wrapping_add(1);
        let Some(section) = &self.section else {
            return Ok(());
        };
        let (mut outcome, mut left) = (Ok(()), 0);
        let limit = Duration::from_nanos(self.reactor.borrow().section_ns());
        for shard in section.shards.iter() {
            self.send_to_section(shard, &leave_parts()).await;
            if let Some(section) = &mut self.section {
                section.shards.remove(shard);
            }
            left += 1;
        }
        while left > 0 {
            self.poll_calls(&mut |shard, answer| {
                left -= 1;
                if answer != Answer::Deleted {
                    let shard = u16::try_from(shard).unwrap_or(u16::MAX);
                    outcome = Err(Error::SectionLost { shard, limit });
                }
            });
            if left > 0 {
                yield_now().await;
            }
        }
        outcome
    }

    /// Sends a request to enter or leave the section of a shard.
    async fn send_to_section(&mut self, shard: u16, parts: &RequestParts<'_>) {
        let token = self.token(shard.into());
        let client = (self.caller, token);
        let hash = IndexHash(0);
        while !(self.reactor.borrow_mut()).submit_under_section(shard, hash, client, parts) {
            // Answers of calls that were dropped.
            self.poll_calls(&mut |_, _| {});
            yield_now().await;
        }
        self.calls_in_flight += 1;
    }

    /// Submits a request of a call under the section of its shard.
    #[cold]
    #[inline(never)]
    pub(super) fn call_under_section(&self, token: u64, parts: &RequestParts<'_>) -> Result<bool> {
        self.send_under_section((self.caller, token), parts)
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
        let sent = self.send_under_section((self.client, token), parts);
        let Some(section) = &mut self.section else {
            return false;
        };
        match sent {
            Ok(sent) => {
                section.in_flight += usize::from(sent);
                sent
            }
            Err(error) => {
                section.refused = Some(error);
                false
            }
        }
    }

    fn send_under_section(&self, client: (u16, u64), parts: &RequestParts<'_>) -> Result<bool> {
        let (hasher, shards) = self.hasher_and_shards();
        let hash = hasher.hash(parts.key);
        let shard = hasher.shard(parts.key, hash, shards);
        if let Some(section) = &self.section {
            section.check(shard)?;
        }
        let mut reactor = self.reactor.borrow_mut();
        Ok(reactor.submit_under_section(shard, hash.index, client, parts))
    }
}
