//! What a run is made of: sizes, settings and the weights of faults, drawn from its seed.
//!
//! Each kind of fault is absent from about half of all runs, so that rare combinations are reached
//! (swarm testing).

use farcore::{EncryptionKey, EncryptionMode, LogPolicy, WhenFull};
use farcore_rdma::simulation::Subject;

use crate::call::Lengths;
use crate::disk::DiskFaults;
use crate::random::Random;

/// The settings of one run.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Some nodes never come back.
    pub(crate) liveness: bool,
    pub(crate) cores: usize,
    /// Nodes that the engine opens with.
    pub(crate) nodes: usize,
    /// More of them, and nodes that come and go.
    pub(crate) moving: Option<Moving>,
    pub(crate) handles: usize,
    /// Copies of each page of far memory, and with how many it counts as written.
    pub(crate) copies: (usize, usize),
    /// A node ends only while all copies are there, and nothing may be lost.
    pub(crate) spares: bool,
    /// Clients that are jobs on cores.
    pub(crate) jobs: usize,
    /// Clients that threads and tasks share.
    pub(crate) shared: usize,
    pub(crate) keys: u64,
    /// Keys come in pairs that the index tells apart only by reading them.
    pub(crate) collides: bool,
    /// Tables of shards have less room than memory allows.
    pub(crate) tight: Option<Tight>,
    pub(crate) trees: u64,
    /// Entries beyond which a node of a collection is divided.
    pub(crate) tree_entries: usize,
    /// Bytes of the elements of a collection that lies in its head.
    pub(crate) inline_collection_bytes: usize,
    pub(crate) value_bytes_max: u64,
    pub(crate) encryption: Option<EncryptionMode>,
    pub(crate) evicts: bool,
    pub(crate) isolate: bool,
    pub(crate) movable: bool,
    /// Clients send several calls at once.
    pub(crate) bursts: bool,
    pub(crate) read_ahead: bool,
    pub(crate) cache_percent: u8,
    pub(crate) batch: usize,
    /// Requests that a queue pair takes at once.
    pub(crate) depth: usize,
    /// Bytes of far memory of a core.
    pub(crate) far_bytes: u64,
    /// Bytes that each node lends.
    pub(crate) node_bytes: u64,
    /// Local memory of a core beyond the least, in bytes.
    pub(crate) spare_bytes: u64,
    pub(crate) far_silence_ns: u64,
    pub(crate) keep_ms: u64,
    pub(crate) steps: u64,
    /// How much time a step takes while faults happen: much, so that leases end and values expire.
    pub(crate) pace: u64,
    /// Lines that are kept for the report of a failure: none at first, for it can be repeated.
    pub(crate) trace_lines: usize,
    /// One client sends and does not read its answers for long times.
    pub(crate) sleeper: bool,
    /// The engine is closed in the middle of the run.
    pub(crate) closes: bool,
    pub(crate) faults: Faults,
    pub(crate) weights: Weights,
    pub(crate) mix: Mix,
    /// The engine has a data directory.
    pub(crate) durable: Option<DurablePlan>,
}

/// What tables of a shard have room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tight {
    /// Keys.
    pub(crate) keys: usize,
    /// Bytes of the table of collections.
    pub(crate) tree_bytes: u64,
    /// Pieces of long values.
    pub(crate) pieces: usize,
}

impl Tight {
    /// Draws from numbers of its own: what else a seed means does not depend on it.
    fn draw(seed: u64) -> Option<Self> {
        let mut random = Random::new(seed ^ 0x7161_87AB);
        random.one_in(4).then(|| Self {
            keys: random.of(&[60, 150, 400, usize::MAX]),
            tree_bytes: random.of(&[500, 2_000, 8_000]),
            pieces: random.of(&[12, 25, 60]),
        })
    }
}

/// Nodes that come and go while the engine serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Moving {
    /// Nodes that the engine does not open with.
    pub(crate) others: usize,
    /// Positions beyond those of the nodes that it opens with.
    pub(crate) positions: usize,
    /// A node is added, drained or removed once in this many steps.
    pub(crate) often: u64,
    /// Some are removed with what lies there alone.
    pub(crate) forces: bool,
}

impl Moving {
    /// Draws from numbers of its own: what else a seed means does not depend on it.
    fn draw(seed: u64) -> Option<Self> {
        let mut random = Random::new(seed ^ 0x00DD_5EA7);
        random.one_in(3).then(|| Self {
            others: random.of(&[1, 2]),
            positions: random.of(&[0, 1, 1, 2]),
            often: random.of(&[300, 1_000, 4_000]),
            forces: random.one_in(4),
        })
    }
}

/// The lives of an engine with a data directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DurablePlan {
    pub(crate) log: LogPolicy,
    pub(crate) lives: u64,
    /// A snapshot is requested once in this many steps.
    pub(crate) snapshot: u64,
    /// The most cores of a life.
    pub(crate) cores: usize,
    /// Some lives end by the process alone, or by closing.
    pub(crate) ends_softly: bool,
    /// What the disk does, once in this many opportunities; how often calls fail that are no
    /// requests to a file.
    pub(crate) faults: DiskFaults,
    pub(crate) call_fails: u64,
    /// The disk is full, or performs nothing, for a while.
    pub(crate) full: u64,
    pub(crate) hang: u64,
    /// Bits flip between lives.
    pub(crate) rots: bool,
}

impl DurablePlan {
    fn draw(random: &mut Random) -> Self {
        let fails = random.one_in(3);
        let mut at_times = |often: u64| if random.one_in(3) { often } else { 0 };
        let (full, hang) = (at_times(2_000), at_times(2_000));
        let damages = random.one_in(8);
        let misdirect = if damages { random.of(&[0, 30, 300]) } else { 0 };
        let rots = damages && (misdirect == 0 || random.one_in(2));
        let mut at_times = |often: u64| if random.one_in(3) { often } else { 0 };
        let call_fails = if fails { at_times(20) } else { 0 };
        Self {
            log: random.of(&[
                LogPolicy::Always,
                LogPolicy::Always,
                LogPolicy::EverySecond,
                LogPolicy::EverySecond,
                LogPolicy::Off,
            ]),
            lives: random.of(&[2, 3, 5]),
            snapshot: random.of(&[0, 500, 2_000, 5_000]),
            cores: random.of(&[1, 2, 3, 4]),
            ends_softly: random.one_in(2),
            faults: DiskFaults {
                delay: random.of(&[0, 2, 3, 10]),
                fail: if fails { random.of(&[20, 200]) } else { 0 },
                misdirect,
                flip: 0,
                forget: random.of(&[0, 1, 2]),
            },
            call_fails,
            full,
            hang,
            rots,
        }
    }
}

/// How often faults happen: once in this many opportunities, or never where it is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    /// Of requests and messages, by subject.
    pub(crate) fail: [u64; Subject::ALL.len()],
    pub(crate) done_but_fails: [u64; Subject::ALL.len()],
    /// Of WRITEs.
    pub(crate) late: u64,
    /// Of READs.
    pub(crate) damage_on_the_way: u64,
    /// Of WRITEs that are performed: the node is cut off, or ends, just then.
    pub(crate) cut_in_flush: u64,
    pub(crate) restart_in_flush: u64,
    /// Of steps.
    pub(crate) partition: u64,
    pub(crate) restart: u64,
    pub(crate) damage: u64,
    /// A node's bitmap says that an extent is free which is not.
    pub(crate) wrong_bit: u64,
    pub(crate) clock: u64,
    /// A task, or what comes from a node, rests for a while.
    pub(crate) nap: u64,
    /// Clients that stop with calls under way, or give calls up.
    pub(crate) stop: u64,
    /// A node whose requests are performed rarely.
    pub(crate) slow: u64,
}

/// How often each kind of step is picked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Weights {
    pub(crate) task: u64,
    pub(crate) network: u64,
    pub(crate) client: u64,
    pub(crate) time: u64,
}

/// How often each kind of call is made, of the sum of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mix {
    pub(crate) get: u64,
    pub(crate) put: u64,
    pub(crate) delete: u64,
    pub(crate) swap: u64,
    pub(crate) expiring: u64,
    pub(crate) transaction: u64,
    pub(crate) tree: u64,
    pub(crate) long: u64,
    pub(crate) scan: u64,
}

impl Mix {
    fn draw(random: &mut Random) -> Self {
        let (get, put) = (random.of(&[2, 8, 16]), random.of(&[3, 7, 20]));
        let mut some = |most: u64| if random.one_in(2) { most } else { 0 };
        Self {
            get,
            put,
            delete: some(2),
            swap: some(3),
            expiring: some(4),
            transaction: some(4),
            tree: some(12),
            long: some(2),
            scan: some(1),
        }
    }
}

/// How many times as often bits are flipped in some runs.
const MANY_DAMAGES: u64 = 20;

/// How often a fault happens, if at all: the least once in `most` opportunities.
fn rare(random: &mut Random, most: u64) -> u64 {
    let happens = random.one_in(2);
    let often = most / (1 + random.below(8));
    if happens { often.max(2) } else { 0 }
}

/// As [`rare`], in a quarter of all runs: what hides other faults.
fn seldom(random: &mut Random, most: u64) -> u64 {
    let often = rare(random, most);
    if random.one_in(2) { often } else { 0 }
}

/// As [`rare`], for each subject, and for some of them much more often.
fn rare_by_subject(random: &mut Random) -> [u64; Subject::ALL.len()] {
    let is_there = random.one_in(2);
    Subject::ALL.map(|_| {
        let most = random.of(&[30, 300, 3_000]);
        let often = rare(random, most);
        if is_there { often } else { 0 }
    })
}

impl Faults {
    fn draw(random: &mut Random) -> Self {
        Self {
            fail: rare_by_subject(random),
            done_but_fails: rare_by_subject(random),
            late: rare(random, 200),
            damage_on_the_way: seldom(random, 1_000),
            cut_in_flush: rare(random, 2_000),
            restart_in_flush: rare(random, 2_000),
            partition: rare(random, 40_000),
            restart: rare(random, 60_000),
            damage: seldom(random, 20_000),
            wrong_bit: rare(random, 4_000),
            clock: rare(random, 20_000),
            nap: rare(random, 2_000),
            stop: rare(random, 20_000),
            slow: rare(random, 2),
        }
    }

    /// Most bits are in no record that is read again, so some runs have many flipped.
    fn of_seed(self, seed: u64) -> Self {
        let damage = match seed % 4 {
            1 | 2 => self.damage.div_ceil(MANY_DAMAGES),
            _ => self.damage,
        };
        Self { damage, ..self }
    }
}

/// Copies for nodes, by numbers of their own: what else a seed means does not depend on them.
fn copies(seed: u64, nodes: usize, liveness: bool) -> (usize, usize) {
    let mut random = Random::new(seed ^ 0xC0_91E5);
    if nodes == 1 || !random.one_in(3) {
        return (1, 1);
    }
    let most = random.of(&[2, 2, 3]).min(nodes);
    // With fewer nodes than the least, puts are refused for ever.
    let least = if liveness {
        1
    } else {
        random.of(&[1, 1, most])
    };
    (most, least)
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
        let faults = Faults::draw(&mut random).of_seed(seed);
        let mix = Mix::draw(&mut random);
        let far_mib = random.of(&[1, 2, 4, 8, 8, 16]);
        let far_bytes = far_mib << 20;
        let share = far_bytes * cores as u64 / nodes as u64;
        Self {
            seed,
            liveness,
            cores,
            nodes,
            moving: Moving::draw(seed),
            copies: copies(seed, nodes, liveness),
            spares: false,
            handles: random.of(&[1, 2, 3]),
            jobs: random.of(&[0, 1, 2, 4]),
            shared: random.of(&[0, 1, 1, 2]),
            keys: random.of(&[20, 200, 600, 2_000, 2_000]),
            // Slots alone say what is lost and what is absent, so keys that share one matter.
            collides: random.one_in(4) || matches!(seed % 8, 5 | 6),
            tight: Tight::draw(seed),
            trees: random.of(&[1, 3, 4, 9]),
            tree_entries: random.of(&[4, 8, usize::MAX / 4]),
            inline_collection_bytes: [0, 100, 2048][usize::try_from(seed % 3).unwrap_or(0)],
            value_bytes_max: random.of(&[100, 2_000, 8_000, 20_000, 30_000]),
            encryption,
            evicts: random.one_in(4),
            isolate: random.one_in(3),
            movable: random.one_in(2),
            bursts: random.one_in(2),
            read_ahead: random.one_in(2),
            cache_percent: random.of(&[0, 25, 75]),
            batch: random.of(&[1, 8, 64]),
            depth: random.of(&[2, 4, usize::MAX, usize::MAX]),
            far_bytes,
            // Where there is little more than what is claimed, cores want the same extents.
            node_bytes: (share + random.of(&[1 << 20, 3 << 20])).next_multiple_of(1 << 20),
            spare_bytes: random.of(&[0, 256 << 10, 2 << 20]),
            far_silence_ns: match random.of(&[
                20_000_000,
                200_000_000,
                1_000_000_000,
                3_000_000_000,
            ]) {
                // Longer than a lease; but what stays away must be seen to.
                silence_ns if liveness => silence_ns.min(1_000_000_000),
                silence_ns => silence_ns,
            },
            keep_ms: random.of(&[0, 0, 2_000]),
            steps: random.of(&[20_000, 40_000, 80_000]),
            pace: random.of(&[1, 1, 30, 300, 1_000]),
            trace_lines: 0,
            sleeper: random.one_in(3),
            closes: !liveness && random.one_in(6),
            faults,
            weights: Weights {
                task: random.of(&[4, 8, 16]),
                network: random.of(&[2, 8, 16]),
                client: random.of(&[2, 8, 16]),
                time: 1,
            },
            mix,
            durable: None,
        }
    }

    /// A plan with a data directory, of few keys that lie in local memory alone most of the time.
    pub(crate) fn draw_durable(seed: u64) -> Self {
        let mut plan = Self::draw(seed, false);
        let mut random = Random::new(seed ^ 0xD0_AB1E);
        plan.faults = Faults {
            nap: plan.faults.nap,
            ..Faults::default()
        };
        (plan.sleeper, plan.closes, plan.tight) = (false, false, None);
        (plan.collides, plan.evicts, plan.isolate) = (false, random.one_in(8), false);
        (plan.nodes, plan.copies, plan.moving) = (1, (1, 1), None);
        plan.node_bytes = plan.far_bytes * 4 + (1 << 20);
        plan.handles = plan.handles.min(2);
        plan.shared = plan.shared.max(1);
        plan.keys = random.of(&[10, 40, 200]);
        plan.trees = random.of(&[1, 3, 4, 9]);
        plan.value_bytes_max = plan.value_bytes_max.min(8_000);
        plan.pace = random.of(&[30, 300, 1_000, 3_000]);
        plan.steps = random.of(&[1_000, 3_000, 8_000, 16_000]);
        plan.durable = Some(DurablePlan::draw(&mut random));
        plan
    }

    /// A plan of nodes that end one after the other, with two copies of each page.
    pub(crate) fn draw_copies(seed: u64) -> Self {
        let mut plan = Self::draw(seed, false);
        let mut random = Random::new(seed ^ 0x5EC0_9D00);
        plan.faults = Faults {
            restart: random.of(&[200, 1_000]),
            ..Faults::default()
        };
        (plan.closes, plan.evicts, plan.tight) = (false, false, None);
        (plan.nodes, plan.copies, plan.spares) = (random.of(&[2, 3, 4]), (2, 1), true);
        plan.moving = plan.moving.map(|moving| Moving {
            positions: moving.positions.max(1),
            forces: false,
            ..moving
        });
        plan.far_bytes = 32 << 20;
        plan.node_bytes =
            (plan.far_bytes * plan.cores as u64 + (3 << 20)).next_multiple_of(1 << 20);
        plan.keys = 2_000;
        plan.value_bytes_max = 8_000;
        plan.spare_bytes = 0;
        plan.pace = random.of(&[30, 300, 1_000]);
        plan
    }

    /// Has the run go on for long: nothing in it ends for good, and all kinds of calls are made.
    pub(crate) fn endure(&mut self) {
        (self.closes, self.liveness, self.moving) = (false, false, None);
        // What is damaged cannot be deleted.
        (self.faults.damage, self.faults.damage_on_the_way) = (0, 0);
        let mix = self.mix;
        self.mix = Mix {
            delete: mix.delete.max(1),
            swap: mix.swap.max(1),
            expiring: mix.expiring.max(1),
            transaction: mix.transaction.max(1),
            tree: mix.tree.max(4),
            long: mix.long.max(1),
            scan: mix.scan.max(1),
            ..mix
        };
    }

    /// Nodes of the world: those that the engine opens with, and others.
    pub(crate) fn all_nodes(&self) -> usize {
        self.nodes + self.moving.map_or(0, |moving| moving.others)
    }

    pub(crate) fn when_full(&self) -> WhenFull {
        if self.evicts {
            WhenFull::Evict
        } else {
            WhenFull::Refuse
        }
    }

    /// How long values are.
    pub(crate) fn lengths(&self) -> Lengths {
        Lengths {
            value_max: self.value_bytes_max,
            // Some pieces.
            long_max: 150_000,
            element_max: self.value_bytes_max.min(4_000),
        }
    }

    pub(crate) fn key(&self) -> Option<EncryptionKey> {
        self.encryption.map(|_| EncryptionKey::Aes128([7; 16]))
    }
}
