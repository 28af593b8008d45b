//! A client: any number of threads and tasks share it and its clones.

use std::fmt;
use std::sync::Arc;

use super::LanePool;
use super::batch_call::{BatchCall, ShardCall};
use super::client_call::{ClientCall, OwnedValue, Place};
use super::shared_section::ClientSection;
use crate::client::call::{CasOutcome, DeleteOutcome, ExpiryOutcome, PutOutcome, TimeToLive};
use crate::client::shard_requests::{RunShardRequests, ShardRequests};
use crate::client::transaction::TransactionOutcome;
use crate::error::Result;
use crate::message::change::{Condition, Metadata, PutOptions};
use crate::message::expiry::{Expiry, ExpiryCondition};
use crate::message::hash::Hasher128;
use crate::message::operation::{Operation, Version};
use crate::message::transaction::Transaction;

/// Access to the engine for threads and for tasks of any runtime. Clones share lanes, and all calls
/// take `&self`.
///
/// A request to a shard that has nothing to do is served on the calling thread: then the call is
/// ready at its first poll. Values are owned. A call that is dropped is forgotten; a runtime's own
/// time limits work. Where lanes are full, calls wait for room.
///
/// A call that has completed comes before those that begin later. One that was given up after its
/// first poll may be carried out later than a call that began after it on another thread. Answers
/// to tasks that wait are handed out by the thread that has them, which may be a core: wakers must
/// not poll their task themselves, as those of no usual runtime do.
///
/// ```
/// # use farcore::{Config, Engine};
/// # let config = Config { local_bytes: 64 << 20, far_bytes: 64 << 20, keys_expected: 10_000, ..Config::default() };
/// let engine = Engine::open(config)?;
/// let client = engine.client()?;
/// let threads: Vec<_> = (0..20_u64)
///     .map(|number| {
///         let client = client.clone();
///         std::thread::spawn(move || client.put(&number.to_le_bytes(), b"value").wait())
///     })
///     .collect();
/// for thread in threads {
///     thread.join().expect("no panic")?;
/// }
/// assert_eq!(client.get(&7_u64.to_le_bytes()).wait()?.as_deref(), Some(&b"value"[..]));
/// # Ok::<(), farcore::Error>(())
/// ```
#[derive(Clone)]
pub struct Client {
    pub(super) pool: Arc<LanePool>,
    /// The section under which its requests are sent.
    pub(super) section: Option<Arc<ClientSection>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// Runs requests about shards for a client.
pub(crate) struct ShardClient<'c>(pub(super) &'c Client);

impl RunShardRequests for ShardClient<'_> {
    fn hasher_and_shards(&self) -> (Hasher128, u16) {
        let shared = self.0.pool.shared();
        let shards = u16::try_from(shared.cores_shared.len()).unwrap_or(u16::MAX);
        (shared.hasher, shards)
    }

    async fn run(&mut self, requests: &mut impl ShardRequests) -> Result<()> {
        ShardCall::new(self.0.place(), requests).await
    }
}

impl Client {
    pub(crate) fn new(pool: Arc<LanePool>) -> Self {
        Self {
            pool,
            section: None,
        }
    }

    pub(crate) fn shard_client(&self) -> ShardClient<'_> {
        ShardClient(self)
    }

    pub(crate) fn value_bytes_max(&self) -> usize {
        self.pool.shared().sizes.value_bytes_max
    }

    pub(in crate::client) fn call<'c, 'k, T: for<'a> crate::client::call::FromAnswer<'a>>(
        &'c self,
        operation: Operation<'k>,
    ) -> ClientCall<'c, 'k, T> {
        ClientCall::new(self.place(), operation)
    }

    /// The place of a new call.
    pub(super) fn place(&self) -> Place<'_> {
        Place::new(&self.pool, self.section.as_deref())
    }

    /// Reads a value. Cost: its copy; if the shard is busy, a round trip over a lane; a far key
    /// adds one over the fabric.
    ///
    /// # Errors
    /// Those of [`Handle::get`](crate::Handle::get).
    pub fn get<'k>(&self, key: &'k [u8]) -> ClientCall<'_, 'k, Option<OwnedValue>> {
        self.call(Operation::Get { key })
    }

    /// Stores a value and returns its version.
    ///
    /// # Errors
    /// Those of [`Handle::put`](crate::Handle::put).
    pub fn put<'k>(&self, key: &'k [u8], value: &'k [u8]) -> ClientCall<'_, 'k, Version> {
        self.call(Operation::Put { key, value })
    }

    /// Removes a key; false if it was absent.
    ///
    /// # Errors
    /// Those of [`Handle::delete`](crate::Handle::delete).
    pub fn delete<'k>(&self, key: &'k [u8]) -> ClientCall<'_, 'k, bool> {
        self.call(Operation::Delete { key })
    }

    /// Stores a value if the key's version is `expected`; `0` expects the key to be absent.
    ///
    /// # Errors
    /// Those of [`Handle::put`](crate::Handle::put).
    pub fn compare_and_swap<'k>(
        &self,
        key: &'k [u8],
        expected: Version,
        value: &'k [u8],
    ) -> ClientCall<'_, 'k, CasOutcome> {
        self.call(Operation::CompareAndSwap {
            key,
            expected,
            value,
        })
    }

    /// Stores a value if the condition holds; else answers the key's version.
    ///
    /// # Errors
    /// Those of [`Handle::put`](crate::Handle::put).
    pub fn put_if<'k>(
        &self,
        key: &'k [u8],
        value: &'k [u8],
        condition: Condition<'k>,
    ) -> ClientCall<'_, 'k, CasOutcome> {
        self.call(Operation::put_if(key, value, condition))
    }

    /// Stores a value that may expire, if a condition holds.
    ///
    /// # Errors
    /// Those of [`Handle::put`](crate::Handle::put).
    pub fn put_with<'k>(
        &self,
        key: &'k [u8],
        value: &'k [u8],
        options: PutOptions<'k>,
    ) -> ClientCall<'_, 'k, PutOutcome> {
        self.call(Operation::put_with(key, value, options))
    }

    /// Stores a value and returns the one before.
    ///
    /// # Errors
    /// Those of [`Handle::put`](crate::Handle::put).
    pub fn get_and_put<'k>(
        &self,
        key: &'k [u8],
        value: &'k [u8],
    ) -> ClientCall<'_, 'k, Option<OwnedValue>> {
        self.call(Operation::get_and_put(key, value))
    }

    /// Removes a key and returns its value.
    ///
    /// # Errors
    /// Those of [`Handle::delete`](crate::Handle::delete).
    pub fn get_and_delete<'k>(&self, key: &'k [u8]) -> ClientCall<'_, 'k, Option<OwnedValue>> {
        self.call(Operation::get_and_delete(key))
    }

    /// Removes a key if the condition holds.
    ///
    /// # Errors
    /// Those of [`Handle::delete`](crate::Handle::delete).
    pub fn delete_if<'k>(
        &self,
        key: &'k [u8],
        condition: Condition<'k>,
    ) -> ClientCall<'_, 'k, DeleteOutcome> {
        self.call(Operation::delete_if(key, condition))
    }

    /// Sets when a key expires. A time in the past deletes it.
    ///
    /// # Errors
    /// Those of [`Handle::put`](crate::Handle::put).
    pub fn expire<'k>(
        &self,
        key: &'k [u8],
        expiry: Expiry,
        condition: ExpiryCondition,
    ) -> ClientCall<'_, 'k, ExpiryOutcome> {
        self.call(Operation::expire(key, expiry, condition))
    }

    /// Removes a key's expiry; true if it had one.
    ///
    /// # Errors
    /// Those of [`Handle::put`](crate::Handle::put).
    pub fn persist<'k>(&self, key: &'k [u8]) -> ClientCall<'_, 'k, bool> {
        self.call(Operation::persist(key))
    }

    /// Reads a value and sets when it expires.
    ///
    /// # Errors
    /// Those of [`Handle::put`](crate::Handle::put).
    pub fn get_and_expire<'k>(
        &self,
        key: &'k [u8],
        expiry: Expiry,
    ) -> ClientCall<'_, 'k, Option<OwnedValue>> {
        self.call(Operation::get_and_expire(key, expiry))
    }

    /// Reads how long a key has to live; `None` if it is absent.
    ///
    /// # Errors
    /// Those of [`Handle::get`](crate::Handle::get).
    pub fn time_to_live<'k>(&self, key: &'k [u8]) -> ClientCall<'_, 'k, Option<TimeToLive>> {
        self.call(Operation::Inspect { key })
    }

    /// Adds to a decimal integer and returns the sum. An absent key counts as 0.
    ///
    /// # Errors
    /// Those of [`Handle::increment`](crate::Handle::increment).
    pub fn increment<'k>(&self, key: &'k [u8], by: i64) -> ClientCall<'_, 'k, i64> {
        self.call(Operation::increment(key, by))
    }

    /// Adds to a decimal number and returns the sum. An absent key counts as 0.
    ///
    /// # Errors
    /// Those of [`Handle::increment_float`](crate::Handle::increment_float).
    pub fn increment_float<'k>(&self, key: &'k [u8], by: f64) -> ClientCall<'_, 'k, f64> {
        self.call(Operation::increment_float(key, by))
    }

    /// Adds bytes behind a value and returns the new version and length.
    ///
    /// # Errors
    /// Those of [`Handle::append`](crate::Handle::append).
    pub fn append<'k>(&self, key: &'k [u8], tail: &'k [u8]) -> ClientCall<'_, 'k, Metadata> {
        self.call(Operation::append(key, tail))
    }

    /// Overwrites a part of a value; a gap before it is filled with zeros.
    ///
    /// # Errors
    /// Those of [`Handle::set_range`](crate::Handle::set_range).
    pub fn set_range<'k>(
        &self,
        key: &'k [u8],
        offset: u64,
        bytes: &'k [u8],
    ) -> ClientCall<'_, 'k, Metadata> {
        self.call(Operation::set_range(key, offset, bytes))
    }

    /// Reads a part of a value.
    ///
    /// # Errors
    /// Those of [`Handle::get`](crate::Handle::get).
    pub fn get_range<'k>(
        &self,
        key: &'k [u8],
        offset: u32,
        bytes: u32,
    ) -> ClientCall<'_, 'k, Option<OwnedValue>> {
        self.call(Operation::GetRange { key, offset, bytes })
    }

    /// True if a key exists; its value is not read.
    ///
    /// # Errors
    /// Those of [`Handle::get`](crate::Handle::get).
    pub fn exists<'k>(&self, key: &'k [u8]) -> ClientCall<'_, 'k, bool> {
        self.call(Operation::Inspect { key })
    }

    /// Reads a key's version, length and expiry, and not its value.
    ///
    /// # Errors
    /// Those of [`Handle::inspect`](crate::Handle::inspect).
    pub fn inspect<'k>(&self, key: &'k [u8]) -> ClientCall<'_, 'k, Option<Metadata>> {
        self.call(Operation::Inspect { key })
    }

    /// Checks and writes several keys of one shard: all of it happens, or nothing.
    ///
    /// # Errors
    /// Those of [`Handle::transaction`](crate::Handle::transaction).
    pub fn transaction<'k>(
        &self,
        transaction: &'k Transaction<'k>,
    ) -> ClientCall<'_, 'k, TransactionOutcome> {
        self.call(Operation::Transaction { transaction })
    }

    /// Runs many operations at once and returns their answers, by place. Operations on one key keep
    /// their order. Dropping the call leaves those that were sent to be carried out. Cost: one
    /// batch a shard; all answers are in memory together.
    ///
    /// # Errors
    /// A caller's mistake stops it at that operation; the operations before it are carried out.
    pub fn many<'c, 'k, I>(&'c self, operations: I) -> BatchCall<'c, 'k, I::IntoIter>
    where
        I: IntoIterator<Item = Operation<'k>>,
        I::IntoIter: Unpin,
    {
        BatchCall::new(self.place(), operations.into_iter())
    }

    /// Reads many keys; see [`Client::many`].
    pub fn get_many<'c, 'k>(
        &'c self,
        keys: &'k [&'k [u8]],
    ) -> BatchCall<'c, 'k, impl Iterator<Item = Operation<'k>> + Unpin> {
        self.many(keys.iter().map(|key| Operation::Get { key }))
    }

    /// Stores many values; see [`Client::many`].
    pub fn put_many<'c, 'k>(
        &'c self,
        pairs: &'k [(&'k [u8], &'k [u8])],
    ) -> BatchCall<'c, 'k, impl Iterator<Item = Operation<'k>> + Unpin> {
        self.many(
            pairs
                .iter()
                .map(|(key, value)| Operation::Put { key, value }),
        )
    }

    /// Removes many keys; see [`Client::many`].
    pub fn delete_many<'c, 'k>(
        &'c self,
        keys: &'k [&'k [u8]],
    ) -> BatchCall<'c, 'k, impl Iterator<Item = Operation<'k>> + Unpin> {
        self.many(keys.iter().map(|key| Operation::Delete { key }))
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};
    use std::thread;
    use std::time::Duration;

    use farcore_rdma::LinkModel;

    use super::*;
    use crate::{Config, Engine};

    /// More than local memory has room for.
    const VALUES: u64 = 20_000;

    fn poll<F: Future>(call: Pin<&mut F>) -> Poll<F::Output> {
        call.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn an_engine_whose_client_gave_calls_up_leaves_nothing_behind() {
        let config = Config {
            cores: vec![0],
            local_bytes: 10 << 20,
            far_bytes: 64 << 20,
            page_bytes: Some(64 << 10),
            keys_expected: VALUES,
            huge_pages: false,
            prefault: false,
            link: LinkModel {
                latency_ns: 20_000,
                ..LinkModel::default()
            },
            ..Config::default()
        };
        let engine = Engine::open(config).unwrap();
        let client = engine.client().unwrap();
        let shared = Arc::downgrade(client.pool.shared());
        for number in 0..VALUES {
            let value = [0; 1000];
            client.put(&number.to_le_bytes(), &value).wait().unwrap();
        }
        let mut waited = 0;
        for number in 0..200_u64 {
            let (far, near) = (number.to_le_bytes(), (VALUES - 1).to_le_bytes());
            let mut given_up = Box::pin(client.get(&far));
            waited += u32::from(poll(given_up.as_mut()).is_pending());
            drop(given_up);
            let mut near = pin!(client.get(&near));
            while poll(near.as_mut()).is_pending() {}
            // Its answer, for which no call waits.
            thread::sleep(Duration::from_micros(100));
        }
        assert!(waited > 0, "no value was far");
        drop((client, engine));
        assert!(shared.upgrade().is_none());
    }
}
