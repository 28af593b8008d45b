//! Sections of clients that threads and tasks share: a client whose requests are under them.

use std::sync::Arc;

use super::Client;
use super::client::ShardClient;
use super::shared_section::{ClientSection, SectionGuard};
use super::station::Station;
use crate::client::section::{enter_all, leave_all, looks, section_shards};
use crate::client::shard_requests::RunShardRequests;
use crate::error::{Error, Result};

impl Client {
    /// Runs `work` while no other client is served by the shards of `keys`: what it does happens at
    /// once, for all who see these shards, over any number of keys and operations. `work` gets a
    /// client of its own, whose requests to these shards go before those that wait; all operations
    /// work, on these keys and on others of the same shards.
    ///
    /// ```
    /// # use farcore::{Config, Engine};
    /// # let config = Config { local_bytes: 64 << 20, far_bytes: 64 << 20, keys_expected: 10_000, ..Config::default() };
    /// let engine = Engine::open(config)?;
    /// let client = engine.client()?;
    /// client.put(b"from", b"10").wait()?;
    /// let moved = client.section(&[b"from", b"to"], async |client| {
    ///     client.increment(b"from", -3).await?;
    ///     client.increment(b"to", 3).await
    /// });
    /// assert_eq!(futures_lite::future::block_on(moved)??, 3);
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
        &self,
        keys: &[&[u8]],
        work: impl AsyncFnOnce(&Client) -> R,
    ) -> Result<R> {
        if self.section.is_some() {
            return Err(Error::SectionInside);
        }
        let shards = section_shards(keys, ShardClient(self).hasher_and_shards())?;
        self.many(looks(keys)).await?;
        let (station, number) = self.begin_section().await?;
        let ends = SectionGuard(Arc::new(ClientSection::new(station, number)));
        let under = Self {
            pool: Arc::clone(&self.pool),
            section: Some(Arc::clone(&ends.0)),
        };
        enter_all(&mut ShardClient(&under), shards).await?;
        let result = work(&under).await;
        match leave_all(&mut ShardClient(&under), shards).await? {
            None => Ok(result),
            Some(shard) => Err(Error::SectionLost {
                shard,
                limit: self.pool.shared().section_limit(),
            }),
        }
    }

    /// A number for a new section at a station.
    async fn begin_section(&self) -> Result<(Arc<Station>, u16)> {
        let mut place = self.place();
        std::future::poll_fn(|context| {
            let station = Arc::clone(place.station());
            let begun = place.poll(Some(context.waker()), |handle, _, _| {
                std::task::Poll::Ready(handle.begin_section())
            });
            begun.map(|number| number.map(|number| (station, number)))
        })
        .await
    }
}
