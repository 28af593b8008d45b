//! Parts of the engine on their own, for benchmarks: a shard without a core, a lane without
//! threads, the cipher. Behind the feature `internals`; nothing here is stable.

use std::sync::Arc;

use cipher::InOutBuf;
use farcore_rdma::{EmbeddedNode, FabricEndpoint, Lock, Region, RegionOptions};

use crate::cipher::{CounterCipher, EncryptionKey, EncryptionMode, PageCipher, RecordCipher, Salt};
use crate::config::{Config, LostKeys, WhenFull};
use crate::constants::UNIT_BYTES;
use crate::error::{Error, Result};
use crate::far_memory::FarPlan;
use crate::limits::available_cores;
use crate::message::hash::Hasher128;
use crate::message::operation::{Operation, RequestParts, Version};
use crate::message::outcome::Answer;
use crate::message::request::{AnswerSink, Origin, ReplyTo};
use crate::observe::metrics::CoreMetrics;
use crate::shard::{Shard, ShardOptions};
use crate::transport::lane::{LaneClient, LaneServer, lane};
use crate::transport::queue::{RequestConsumer, RequestProducer, own_queue};

/// Requests that are served at once.
pub const BATCH: usize = 64;
/// Time that passes between two rounds, in nanoseconds.
const ROUND_NS: u64 = 1_000;
/// A fixed salt: no far memory here outlives the process or is shared.
const SALT: Salt = [0; 16];

fn region(bytes: u64) -> Result<Arc<Region>> {
    let options = RegionOptions {
        bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        huge_pages: false,
        lock: Lock::Off,
        prefault: true,
    };
    let region = Region::map(&options).map_err(|error| Error::Memory {
        reason: error.to_string(),
    })?;
    Ok(Arc::new(region))
}

/// An answer sink that passes answers to a visitor and always has room.
struct Visit<'a, V> {
    visit: &'a mut V,
    answered: usize,
}

impl<V: FnMut(u64, Answer<'_>)> AnswerSink for Visit<'_, V> {
    #[inline]
    fn has_room(&self, _: ReplyTo, _: usize) -> bool {
        true
    }

    fn reserve(&mut self, _: ReplyTo, _: usize) -> bool {
        true
    }

    fn unreserve(&mut self, _: ReplyTo, _: usize) {}

    #[inline]
    fn answer(&mut self, _: ReplyTo, token: u64, answer: Answer<'_>) {
        self.answered += 1;
        (self.visit)(token, answer);
    }
}

/// A shard over embedded far memory, whose time advances only with its calls.
#[derive(Debug)]
pub struct BareShard {
    shard: Shard<FabricEndpoint>,
    producer: RequestProducer,
    consumer: RequestConsumer,
    hasher: Hasher128,
    now_ns: u64,
}

impl BareShard {
    /// An empty shard.
    ///
    /// # Errors
    /// The errors of [`Config::validate`]; [`Error::Memory`].
    pub fn open(config: Config) -> Result<Self> {
        let config = Config {
            cores: available_cores().into_iter().take(1).collect(),
            handles_max: 0,
            ..config
        };
        let sizes = config.sizes()?;
        let node = Arc::new(EmbeddedNode::new(
            region(sizes.node_bytes)?,
            config.link.clone(),
        ));
        let far =
            futures_lite::future::block_on(FarPlan::new(&config, &[node])?.open(&sizes, 0, 1))?;
        let cipher = config.encryption.as_ref();
        let shard = Shard::new(ShardOptions {
            shard: 0,
            local_bytes: sizes.arena_bytes,
            page_bytes: sizes.page_bytes,
            keys_expected: config.keys_expected,
            cipher: cipher.map(|key| PageCipher::new(key, config.encryption_mode, &SALT, 0, 0)),
            epoch: 0,
            endpoint: far.endpoint,
            arena: region(sizes.arena_bytes)?,
            extents: far.extents,
            metrics: Arc::new(CoreMetrics::new(1)),
            tuning: config.tuning(),
            evicts: config.when_full == WhenFull::Evict,
            forgets_lost: config.lost_keys == LostKeys::Forget,
            key_hasher: Hasher128::new(1).into(),
            loads: false,
        })?;
        let (producer, consumer) = own_queue();
        Ok(Self {
            shard,
            producer,
            consumer,
            hasher: Hasher128::new(1),
            now_ns: 0,
        })
    }

    /// Serves requests in batches until all are answered; each answer is visited with its place.
    ///
    /// # Panics
    /// If the keys and values of a batch take more than 128 KiB.
    pub fn serve(&mut self, operations: &[Operation<'_>], visit: &mut impl FnMut(u64, Answer<'_>)) {
        let lane = ReplyTo::new(0);
        let mut answers = Visit { visit, answered: 0 };
        let (mut taken, mut first) = (0, 0);
        for batch in operations.chunks(BATCH) {
            for (operation, token) in batch.iter().zip(first..) {
                let hash = self.hasher.hash(operation.key()).index;
                self.shard.prefetch(hash);
                let parts = RequestParts::plain(operation).expect("measured operations are plain");
                let has_room = self.producer.push(hash, token, Origin::default(), &parts);
                assert!(has_room, "the values of a batch are too long");
            }
            self.producer.publish();
            self.consumer.refresh();
            first += batch.len() as u64;
            while self.consumer.has_waiting() {
                let requests = self.consumer.waiting(BATCH);
                let served = self.shard.serve(lane, requests, &mut answers);
                self.consumer.release(served);
                self.producer.rewind(&mut self.consumer);
                taken += served;
                self.now_ns += ROUND_NS;
                self.shard.advance(self.now_ns, &mut answers);
            }
        }
        while answers.answered < taken {
            self.now_ns += ROUND_NS;
            self.shard.advance(self.now_ns, &mut answers);
        }
    }
}

/// Both ends of a lane, on one thread.
#[derive(Debug)]
pub struct BareLane {
    client: LaneClient,
    server: LaneServer,
    hasher: Hasher128,
}

impl BareLane {
    /// A lane of this many bytes each way, a power of two.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let (client, server) = lane(bytes, bytes, None);
        Self {
            client,
            server,
            hasher: Hasher128::new(1),
        }
    }

    /// Sends requests, answers each with a value and receives the answers; false if they found no
    /// room.
    pub fn round_trip(
        &mut self,
        operations: &[Operation<'_>],
        (version, value): (Version, &[u8]),
        visit: &mut impl FnMut(u64, Answer<'_>),
    ) -> bool {
        for (operation, token) in operations.iter().zip(0..) {
            let hash = self.hasher.hash(operation.key()).index;
            let parts = RequestParts::plain(operation).expect("measured operations are plain");
            if !self
                .client
                .requests
                .push(hash, token, Origin::default(), &parts)
            {
                return false;
            }
        }
        self.client.requests.publish();
        let LaneServer {
            requests, answers, ..
        } = &mut self.server;
        requests.refresh();
        loop {
            let waiting = requests.waiting(BATCH);
            let count = waiting.len();
            for request in waiting {
                // Of a kind that is known at compile time, as where a shard serves gets.
                let answer = Answer::Value { version, value };
                if !answers.try_answer(request.origin, request.token, answer) {
                    return false;
                }
            }
            requests.release(count);
            if count == 0 {
                break;
            }
        }
        answers.publish();
        self.client.answers.refresh();
        let count = self
            .client
            .answers
            .receive(|_, token, answer| visit(token, answer));
        count == operations.len()
    }
}

/// The cipher of one shard's pages, in either mode.
#[derive(Debug)]
pub struct BareCipher {
    counter: CounterCipher,
    records: RecordCipher,
}

impl BareCipher {
    /// A cipher with a key.
    #[must_use]
    pub fn new(key: &EncryptionKey) -> Self {
        let make = |mode| PageCipher::new(key, mode, &SALT, 0, 0);
        match (
            make(EncryptionMode::SecrecyOnly),
            make(EncryptionMode::Authenticated),
        ) {
            (PageCipher::SecrecyOnly(counter), PageCipher::Authenticated(records)) => {
                Self { counter, records }
            }
            _ => unreachable!("a cipher has the requested mode"),
        }
    }

    /// Encrypts or decrypts bytes of a page from a unit on, in place, in counter mode.
    pub fn apply(&self, sequence: u64, unit: u32, data: &mut [u8]) {
        self.counter.apply(sequence, unit, data);
    }

    /// Seals a message of whole units that begins at a unit of a page; its last unit becomes the
    /// tag.
    ///
    /// # Panics
    /// If the lengths differ, or are less than a unit.
    pub fn seal(&self, sequence: u64, unit: u32, source: &[u8], target: &mut [u8]) {
        let message = source.len() - UNIT_BYTES;
        let (body, tag) = target.split_at_mut(message);
        let nonce = RecordCipher::nonce(sequence, unit);
        tag.copy_from_slice(&self.records.gcm().seal(&nonce, &source[..message], body));
    }

    /// Opens what [`BareCipher::seal`] made, from `source` to `target`; false if it is anything
    /// else.
    pub fn open(&self, sequence: u64, unit: u32, source: &[u8], target: &mut [u8]) -> bool {
        let nonce = RecordCipher::nonce(sequence, unit);
        let Ok(both) = InOutBuf::new(source, target) else {
            return false;
        };
        let opened = self
            .records
            .gcm()
            .open(&nonce, both, |_| Some(source.len()));
        opened.is_some()
    }
}
