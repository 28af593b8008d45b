//! What a run is made of: sizes, settings and the weights of faults, drawn from its seed.
//!
//! Each kind of fault is absent from about half of all runs, so that rare combinations are reached
//! (swarm testing).

use farcore::{EncryptionKey, EncryptionMode, WhenFull};

use crate::random::Random;

/// The settings of one run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Some nodes never come back.
    pub(crate) liveness: bool,
    pub(crate) cores: usize,
    pub(crate) nodes: usize,
    pub(crate) handles: usize,
    /// Clients that are jobs on cores.
    pub(crate) jobs: usize,
    pub(crate) keys: u64,
    pub(crate) value_bytes_max: u64,
    pub(crate) encryption: Option<EncryptionMode>,
    pub(crate) evicts: bool,
    pub(crate) isolate: bool,
    pub(crate) movable: bool,
    pub(crate) read_ahead: bool,
    pub(crate) cache_percent: u8,
    pub(crate) batch: usize,
    /// Bytes of far memory of a core.
    pub(crate) far_bytes: u64,
    /// Bytes that each node lends.
    pub(crate) node_bytes: u64,
    /// Local memory of a core beyond the least, in bytes.
    pub(crate) spare_bytes: u64,
    pub(crate) far_silence_ns: u64,
    pub(crate) keep_ms: u64,
    pub(crate) steps: u64,
    /// One client sends and does not read its answers for long times.
    pub(crate) sleeper: bool,
    /// The engine is closed in the middle of the run.
    pub(crate) closes: bool,
    pub(crate) faults: Faults,
    pub(crate) weights: Weights,
}

/// How often faults happen: once in this many opportunities, or never where it is 0.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// Of requests on the fabric.
    pub(crate) fail: u64,
    pub(crate) done_but_fails: u64,
    pub(crate) late: u64,
    pub(crate) damage_on_the_way: u64,
    /// Of steps.
    pub(crate) partition: u64,
    pub(crate) restart: u64,
    pub(crate) damage: u64,
    pub(crate) clock: u64,
    /// Clients that stop with calls under way.
    pub(crate) stop: u64,
    /// A node whose requests are performed rarely.
    pub(crate) slow: u64,
}

/// How often each kind of step is picked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weights {
    pub(crate) task: u64,
    pub(crate) network: u64,
    pub(crate) client: u64,
    pub(crate) time: u64,
}

impl Plan {
    pub(crate) fn draw(seed: u64, liveness: bool) -> Self {
        let mut random = Random::new(seed ^ 0x5117_ED0C);
        let cores = random.of(&[1, 1, 2, 2, 3, 4]);
        let nodes = random.of(&[1, 2, 2, 3, 4]);
        let encryption = random.of(&[
            None,
            Some(EncryptionMode::SecrecyOnly),
            Some(EncryptionMode::Authenticated),
            Some(EncryptionMode::Authenticated),
        ]);
        let mut rare = |most: u64| {
            let happens = random.one_in(2);
            let often = most / (1 + random.below(8));
            if happens { often.max(2) } else { 0 }
        };
        let faults = Faults {
            fail: rare(300),
            done_but_fails: rare(300),
            late: rare(300),
            damage_on_the_way: rare(1_000),
            partition: rare(40_000),
            restart: rare(60_000),
            damage: rare(20_000),
            clock: rare(20_000),
            stop: rare(20_000),
            slow: rare(2),
        };
        let far_mib = random.of(&[2, 4, 8, 8, 16]);
        let far_bytes = far_mib << 20;
        let share = far_bytes * cores as u64 / nodes as u64;
        Self {
            seed,
            liveness,
            cores,
            nodes,
            handles: random.of(&[1, 2, 3]),
            jobs: random.of(&[0, 1, 2, 4]),
            keys: random.of(&[20, 200, 600, 2_000, 2_000]),
            value_bytes_max: random.of(&[100, 2_000, 8_000, 20_000, 30_000]),
            encryption,
            evicts: random.one_in(4),
            isolate: random.one_in(3),
            movable: random.one_in(2),
            read_ahead: random.one_in(2),
            cache_percent: random.of(&[0, 25, 75]),
            batch: random.of(&[1, 8, 64]),
            far_bytes,
            node_bytes: (share + (3 << 20)).next_multiple_of(1 << 20),
            spare_bytes: random.of(&[0, 256 << 10, 2 << 20]),
            far_silence_ns: random.of(&[20_000_000, 200_000_000, 1_000_000_000]),
            keep_ms: random.of(&[0, 0, 2_000]),
            steps: random.of(&[20_000, 60_000, 150_000]),
            sleeper: random.one_in(3),
            closes: !liveness && random.one_in(5),
            faults,
            weights: Weights {
                task: random.of(&[4, 8, 16]),
                network: random.of(&[2, 8, 16]),
                client: random.of(&[2, 8, 16]),
                time: 1,
            },
        }
    }

    pub(crate) fn when_full(&self) -> WhenFull {
        if self.evicts {
            WhenFull::Evict
        } else {
            WhenFull::Refuse
        }
    }

    pub(crate) fn key(&self) -> Option<EncryptionKey> {
        self.encryption.map(|_| EncryptionKey::Aes128([7; 16]))
    }
}
