//! What the handles of a pool share: nodes, lanes, and the memory that is claimed.
//!
//! - I1: the heap is locked for a few steps: never across a wait.
//! - I2: what a request that was given up may still write is not given out again before that
//!   request has ended: its memory waits in `doubtful` until each lane has completed what it had
//!   posted.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_channel::Sender;
use farcore_rdma::{ExtentRun, QueuePairState, RemoteSlice};

use crate::allocation::{Doubt, Given, SharedRun, Span};
use crate::command::Command;
use crate::heap::{Part, Run};
use crate::lane::Lane;
use crate::node::Node;
use crate::options::PoolOptions;
use crate::table::Table;
use crate::ticks::Ticks;

static NEXT_POOL: AtomicU64 = AtomicU64::new(1);

/// What the handles of a pool share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) id: u64,
    pub(crate) options: PoolOptions,
    pub(crate) nodes: Box<[Node]>,
    pub(crate) lanes: Box<[Lane]>,
    pub(crate) table: Table,
    pub(crate) ticks: Ticks,
    heap: Mutex<Heap>,
    /// To each node's task.
    commands: Box<[Sender<Command>]>,
    random: AtomicU64,
}

#[derive(Debug)]
struct Heap {
    parts: Vec<Part>,
    doubtful: Vec<Doubtful>,
    /// The extents of each node that others may share.
    exported: Vec<HashSet<u32>>,
    /// How often this pool has imported memory of its own, by node and reference word: no node
    /// counts that.
    own_imports: HashMap<(usize, RemoteSlice), u32>,
}

/// Memory that a request which was given up may still write.
#[derive(Debug)]
struct Doubtful {
    doubt: Doubt,
    /// Requests that each lane had posted to each node, once no operation was under way.
    posted: Option<Vec<Box<[u64]>>>,
    given: Given,
}

impl Shared {
    pub(crate) fn new(
        options: PoolOptions,
        nodes: Box<[Node]>,
        lanes: Box<[Lane]>,
        commands: Box<[Sender<Command>]>,
    ) -> Self {
        let exported = nodes.iter().map(|_| HashSet::new()).collect();
        let parts = nodes
            .iter()
            .map(|node| Part::new(node.session(), node.extent_bytes()))
            .collect();
        Self {
            // ORDERING: relaxed; only the number's uniqueness matters.
            id: NEXT_POOL.fetch_add(1, Ordering::Relaxed),
            options,
            nodes,
            lanes,
            table: Table::default(),
            ticks: Ticks::default(),
            heap: Mutex::new(Heap {
                parts,
                doubtful: Vec::new(),
                exported,
                own_imports: HashMap::new(),
            }),
            commands,
            random: AtomicU64::new(0x9e37_79b9_7f4a_7c15),
        }
    }

    fn heap(&self) -> MutexGuard<'_, Heap> {
        self.heap.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lane of the calling thread.
    pub(crate) fn lane(&self) -> &Lane {
        if let [lane] = &*self.lanes {
            return lane;
        }
        if let Some(lane) = self.lanes.iter().find(|lane| lane.is_current()) {
            return lane;
        }
        let mut hasher = DefaultHasher::new();
        std::thread::current().id().hash(&mut hasher);
        let count = self.lanes.len() as u64;
        let place = usize::try_from(hasher.finish() % count).unwrap_or(0);
        &self.lanes[place]
    }

    /// A number that spreads allocations; not for secrets.
    pub(crate) fn random(&self) -> u64 {
        // A Weyl sequence through a mixer (splitmix64).
        let step = 0x9e37_79b9_7f4a_7c15;
        // ORDERING: relaxed; only the spread matters.
        let mut mixed = self.random.fetch_add(step, Ordering::Relaxed);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Sends a command to a node's task; false if the pool is closed.
    pub(crate) fn send(&self, node: usize, command: Command) -> bool {
        self.commands[node].try_send(command).is_ok()
    }

    /// Takes memory of what is claimed of a node.
    pub(crate) fn take(&self, node: usize, bytes: u64, align: u64) -> Option<Span> {
        let part = &mut self.heap().parts[node];
        let (slice, home) = part.take(bytes, align)?;
        Some(Span {
            node,
            session: part.session(),
            slice,
            start: 0,
            bytes,
            home,
        })
    }

    /// Forgets a run that was given out whole, and is another's now.
    pub(crate) fn forget_run(&self, span: &Span) {
        let part = &mut self.heap().parts[span.node];
        if part.session() == span.session {
            let _ = part.give(span.home);
        }
    }

    /// Adds extents claimed in a session; false if that session has ended.
    pub(crate) fn add(&self, node: usize, session: u64, runs: &[Run]) -> bool {
        let part = &mut self.heap().parts[node];
        let is_current = part.session() == session;
        if is_current {
            runs.iter().for_each(|&run| part.add(run));
        }
        is_current
    }

    /// Gives out a claimed run whole; `None` if its session has ended.
    pub(crate) fn add_whole(&self, node: usize, session: u64, run: Run) -> Option<Span> {
        let part = &mut self.heap().parts[node];
        (part.session() == session).then(|| Span {
            node,
            session,
            slice: run.slice,
            start: 0,
            bytes: run.bytes,
            home: part.add_whole(run),
        })
    }

    /// Gives memory back, with doubt only once nothing may still write it.
    pub(crate) fn give(&self, given: Given, doubt: Option<Doubt>) {
        match doubt {
            None => self.give_now(given),
            Some(doubt) => self.heap().doubtful.push(Doubtful {
                doubt,
                posted: None,
                given,
            }),
        }
    }

    fn give_now(&self, given: Given) {
        match given {
            Given::Spans(spans) => self.give_spans(&spans),
            Given::Exported(lingering) => {
                self.send(lingering.word.node, Command::Linger(lingering));
            }
            Given::Swap(word, expected, desired) => {
                let swap = Command::Swap {
                    session: word.session,
                    word: word.slice,
                    expected,
                    desired,
                };
                self.send(word.node, swap);
            }
            Given::Imported { word, runs } => {
                for (node, own) in self.nodes.iter().enumerate() {
                    let session = own.session();
                    let of_node = |one: &&SharedRun| one.node == node && one.session == session;
                    let runs: Vec<_> = runs.iter().filter(of_node).map(|one| one.run).collect();
                    let word = word.filter(|word| word.node == node && word.session == session);
                    if word.is_some() || !runs.is_empty() {
                        let word = word.map(|word| word.slice);
                        self.send(
                            node,
                            Command::Unshare {
                                session,
                                word,
                                runs,
                            },
                        );
                    }
                }
            }
        }
    }

    /// Gives back memory of this process.
    pub(crate) fn give_spans(&self, spans: &[Span]) {
        let returned: Vec<_> = {
            let heap = &mut *self.heap();
            spans.iter().filter_map(|&span| heap.give(span)).collect()
        };
        for (node, session, first) in returned {
            self.send(node, Command::Free { session, first });
        }
    }

    /// A node leaves: what is claimed there and not given out is returned to it.
    pub(crate) fn leave(&self, node: usize) {
        let (session, returned) = {
            let part = &mut self.heap().parts[node];
            (part.session(), part.leave())
        };
        for first in returned {
            self.send(node, Command::Free { session, first });
        }
    }

    /// Gives back what is in doubt no more. Called on each tick.
    pub(crate) fn settle(&self) {
        let settled = {
            let heap = &mut *self.heap();
            if heap.doubtful.is_empty() {
                return;
            }
            let (settled, left): (Vec<_>, Vec<_>) = std::mem::take(&mut heap.doubtful)
                .into_iter()
                .map(|mut doubtful| (self.is_settled(&mut doubtful), doubtful))
                .partition(|(is_settled, _)| *is_settled);
            heap.doubtful = left.into_iter().map(|(_, doubtful)| doubtful).collect();
            settled
        };
        for (_, doubtful) in settled {
            self.give_now(doubtful.given);
        }
    }

    /// Notes that this pool imports memory of its own.
    pub(crate) fn begin_own_import(&self, node: usize, word: RemoteSlice) {
        *self.heap().own_imports.entry((node, word)).or_default() += 1;
    }

    /// Notes that an import has ended; without effect for memory of another session.
    pub(crate) fn end_own_import(&self, node: usize, word: RemoteSlice) {
        let imports = &mut self.heap().own_imports;
        if let Some(count) = imports.get_mut(&(node, word)) {
            *count -= 1;
            if *count == 0 {
                imports.remove(&(node, word));
            }
        }
    }

    pub(crate) fn has_own_imports(&self, node: usize, word: RemoteSlice) -> bool {
        self.heap().own_imports.contains_key(&(node, word))
    }

    /// Notes that extents of a node are exported.
    pub(crate) fn note_exported(&self, node: usize, run: ExtentRun) {
        self.heap().exported[node].extend(run.extents());
    }

    /// Whether some of a run's extents are exported; if so, they are forgotten.
    pub(crate) fn take_exported(&self, node: usize, run: ExtentRun) -> bool {
        let exported = &mut self.heap().exported[node];
        let mut found = false;
        for extent in run.extents() {
            found |= exported.remove(&extent);
        }
        found
    }

    /// Whether nothing may still write it: no operation is under way, and what was posted then has
    /// completed. A queue pair that failed must be connected again: the node has then closed the
    /// old connection, over which a late WRITE could come.
    fn is_settled(&self, doubtful: &mut Doubtful) -> bool {
        let Doubt { running, nodes } = &doubtful.doubt;
        let is_lost = |&(node, session): &(usize, u64)| self.nodes[node].session() != session;
        if nodes.iter().all(is_lost) {
            return true;
        }
        if running.load(Ordering::SeqCst) > 0 {
            return false;
        }
        let posted = doubtful.posted.get_or_insert_with(|| {
            let posted = |&(node, _): &(usize, u64)| {
                let posted = |lane: &Lane| lane.initiator().counts(node).posted;
                self.lanes.iter().map(posted).collect()
            };
            nodes.iter().map(posted).collect()
        });
        nodes.iter().zip(posted).all(|(&(node, session), posted)| {
            let has_completed = |(lane, &posted): (&Lane, &u64)| {
                let initiator = lane.initiator();
                initiator.counts(node).completed >= posted
                    && initiator.state(node) == Some(QueuePairState::ReadyToSend)
            };
            // With its session, the memory is lost.
            self.nodes[node].session() != session
                || self.lanes.iter().zip(posted.iter()).all(has_completed)
        })
    }

    /// Ends the pool's tasks and threads.
    pub(crate) fn close(&self) {
        for commands in &self.commands {
            commands.close();
        }
        self.lanes.iter().for_each(Lane::close);
    }

    /// Begins a node's session: what was claimed before is lost.
    pub(crate) fn begin(&self, node: usize, session: u64) {
        let extent_bytes = self.nodes[node].extent_bytes();
        let heap = &mut *self.heap();
        heap.parts[node] = Part::new(session, extent_bytes);
        heap.exported[node].clear();
        heap.own_imports.retain(|(other, _), _| *other != node);
    }

    /// What is free at each node: claimed by none when last seen, or claimed here and not given
    /// out.
    pub(crate) fn free_bytes(&self) -> Vec<u64> {
        let heap = self.heap();
        let free = |(node, part): (&Node, &Part)| {
            node.free_bytes() + part.claimed_bytes().saturating_sub(part.used_bytes())
        };
        self.nodes.iter().zip(&heap.parts).map(free).collect()
    }

    /// Bytes claimed of a node, and those of them that are given out.
    pub(crate) fn held_bytes(&self, node: usize) -> (u64, u64) {
        let part = &self.heap().parts[node];
        (part.claimed_bytes(), part.used_bytes())
    }
}

impl Heap {
    /// Gives a span back. Returns a run of extents to be returned: node, session, first.
    fn give(&mut self, span: Span) -> Option<(usize, u64, u32)> {
        let part = &mut self.parts[span.node];
        if part.session() != span.session {
            return None;
        }
        let given = part.give(span.home);
        debug_assert!(given.is_ok(), "an allocation gives back what it holds");
        let first = given.ok().flatten()?;
        Some((span.node, span.session, first))
    }
}
