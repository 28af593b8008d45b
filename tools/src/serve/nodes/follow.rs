//! Has the memory nodes of an engine follow the answers of a source.
//!
//! - I1: an answer that is an error, or that names no node, adds and drains nothing.
//! - I2: a node is drained only if it says so itself, or if every answer of a time, the grace, has
//!   left it out. An error, an answer without nodes, or a long silence begins that time anew.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use farcore::{MemoryNodes, NodeState};
use farcore_rdma::{FabricAddress, NodeAddress};
use tracing::{info, warn};

use super::Wanted;
use super::said::Said;

/// After a longer silence between two answers a source may have been away.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// The memory nodes of an engine.
pub(super) trait Nodes {
    /// The nodes that there are, also those that leave.
    fn list(&self) -> Vec<(FabricAddress, NodeState)>;
    /// Has a node join, or one that leaves stay.
    fn add(&self, node: &NodeAddress) -> farcore::Result<()>;
    /// Has the pages of a node leave it.
    fn drain(&self, address: &FabricAddress) -> farcore::Result<()>;
}

impl Nodes for MemoryNodes {
    fn list(&self) -> Vec<(FabricAddress, NodeState)> {
        let nodes = self.list().into_iter();
        nodes.map(|node| (node.address, node.state)).collect()
    }

    fn add(&self, node: &NodeAddress) -> farcore::Result<()> {
        self.add(&node.address, node.zone.as_deref())
    }

    fn drain(&self, address: &FabricAddress) -> farcore::Result<()> {
        self.drain(address)
    }
}

/// The nodes of an engine, and what is known of those that are missing.
#[derive(Debug)]
pub(super) struct Follower<N> {
    nodes: N,
    grace: Duration,
    /// When an answer left a node out first, since one has named it.
    missing: HashMap<FabricAddress, Instant>,
    /// When the last answer with nodes came.
    answered: Option<Instant>,
    said: Said,
}

fn leaves(state: NodeState) -> bool {
    matches!(state, NodeState::Draining | NodeState::Removing)
}

impl<N: Nodes> Follower<N> {
    pub(super) fn new(nodes: N, grace: Duration) -> Self {
        Self {
            nodes,
            grace,
            missing: HashMap::new(),
            answered: None,
            said: Said::default(),
        }
    }

    /// Acts on what a source has said at a moment.
    pub(super) fn follow(&mut self, at: Instant, outcome: Result<Wanted, String>) {
        let wanted = match outcome {
            Ok(wanted) => wanted,
            Err(error) => {
                self.missing.clear();
                if self.said.is_new("", &error) {
                    warn!("{error}: the memory nodes stay as they are");
                }
                return;
            }
        };
        self.said.forget("");
        let there = self.nodes.list();
        // Others may name ever more nodes.
        self.said.keep(|subject| {
            let is_there = there.iter().any(|(known, _)| known.to_string() == subject);
            let mut nodes = wanted.nodes.iter();
            is_there || nodes.any(|node| node.address.to_string() == subject)
        });
        self.add(&there, &wanted);
        for (address, state) in &there {
            if wanted.draining.contains(address) && !leaves(*state) {
                self.drain(address, "says that it drains");
            }
        }
        self.drain_missing(at, &there, &wanted);
    }

    fn add(&mut self, there: &[(FabricAddress, NodeState)], wanted: &Wanted) {
        for node in &wanted.nodes {
            let mut known = there.iter();
            if !known.any(|(address, state)| *address == node.address && !leaves(*state)) {
                let added = self.nodes.add(node);
                self.note(&node.address, "a memory node was added", added);
            }
        }
    }

    fn drain_missing(
        &mut self,
        at: Instant,
        there: &[(FabricAddress, NodeState)],
        wanted: &Wanted,
    ) {
        let answered = self.answered.replace(at);
        let was_silent =
            answered.is_some_and(|before| at.saturating_duration_since(before) > SILENCE_MAX);
        if was_silent || wanted.nodes.is_empty() {
            self.missing.clear();
        }
        if wanted.nodes.is_empty() {
            return;
        }
        let is_missing = |address: &FabricAddress| {
            let mut there = there.iter();
            let stays = there.any(|(known, state)| known == address && !leaves(*state));
            stays && !wanted.has(address)
        };
        self.missing.retain(|address, _| is_missing(address));
        for (address, _) in there.iter().filter(|(address, _)| is_missing(address)) {
            let since = *self.missing.entry(address.clone()).or_insert(at);
            if at.saturating_duration_since(since) >= self.grace {
                self.drain(address, "is not named any more");
            }
        }
    }

    fn drain(&mut self, address: &FabricAddress, why: &str) {
        let drained = self.nodes.drain(address);
        let what = format!("a memory node {why}: its pages are copied to others");
        self.note(address, &what, drained);
    }

    fn note(&mut self, address: &FabricAddress, what: &str, outcome: farcore::Result<()>) {
        let node = address.to_string();
        match outcome {
            Ok(()) => {
                self.said.forget(&node);
                info!(node, "{what}, as --nodes-from says");
            }
            Err(error) => {
                let error = error.to_string();
                if self.said.is_new(&node, &error) {
                    warn!(node, "{error}");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    const GRACE: Duration = Duration::from_secs(30);

    /// Nodes of no engine: a drain is over only when the test says so.
    #[derive(Debug, Default)]
    struct Fake {
        nodes: RefCell<Vec<(FabricAddress, NodeState)>>,
        drains: Cell<usize>,
    }

    impl Nodes for Fake {
        fn list(&self) -> Vec<(FabricAddress, NodeState)> {
            self.nodes.borrow().clone()
        }

        fn add(&self, node: &NodeAddress) -> farcore::Result<()> {
            let mut nodes = self.nodes.borrow_mut();
            nodes.retain(|(known, _)| *known != node.address);
            nodes.push((node.address.clone(), NodeState::Serving));
            Ok(())
        }

        fn drain(&self, address: &FabricAddress) -> farcore::Result<()> {
            self.drains.set(self.drains.get() + 1);
            let mut nodes = self.nodes.borrow_mut();
            let mut known = nodes.iter_mut();
            known.find(|(known, _)| known == address).unwrap().1 = NodeState::Draining;
            Ok(())
        }
    }

    /// A follower with a clock that the test moves.
    struct Trial {
        follower: Follower<Fake>,
        begun: Instant,
    }

    impl Trial {
        fn new(grace: Duration, nodes: &str) -> Self {
            let fake = Fake::default();
            let mut trial = Self {
                follower: Follower::new(fake, grace),
                begun: Instant::now(),
            };
            trial.answer(0, nodes);
            trial
        }

        fn at(&self, second: u64) -> Instant {
            self.begun + Duration::from_secs(second)
        }

        /// An answer at a second: nodes by their names, `-a` for one that drains, `?a` for one
        /// whose entry is wrong.
        fn answer(&mut self, second: u64, nodes: &str) {
            let mut wanted = Wanted::default();
            for word in nodes.split_whitespace() {
                let text = format!("tcp://{}:1", word.trim_start_matches(['-', '?']));
                let node: NodeAddress = text.parse().unwrap();
                match word.as_bytes()[0] {
                    b'-' => wanted.draining.push(node.address),
                    b'?' => wanted.unclear.push(node.address),
                    _ => wanted.nodes.push(node),
                }
            }
            self.follower.follow(self.at(second), Ok(wanted));
        }

        fn fails(&mut self, second: u64) {
            let at = self.at(second);
            self.follower.follow(at, Err("away".to_owned()));
        }

        /// The nodes that there are, `-a` for one that leaves.
        fn there(&self) -> String {
            let nodes = self.follower.nodes.list().into_iter();
            let shown = nodes.map(|(address, state)| {
                let mark = if leaves(state) { "-" } else { "" };
                format!("{mark}{}", address.host())
            });
            let mut shown: Vec<_> = shown.collect();
            shown.sort_by_key(|name| name.trim_start_matches('-').to_owned());
            shown.join(" ")
        }
    }

    #[test]
    fn a_new_node_is_added_and_a_missing_one_drained_after_the_grace() {
        let mut trial = Trial::new(GRACE, "a b");
        trial.answer(1, "a b c");
        assert_eq!(trial.there(), "a b c");
        for second in (10..40).step_by(10) {
            trial.answer(second, "a c");
            assert_eq!(trial.there(), "a b c", "{second}");
        }
        trial.answer(40, "a c");
        assert_eq!(trial.there(), "a -b c");
        // It is not drained again while it leaves.
        trial.answer(41, "a c");
        assert_eq!(trial.follower.nodes.drains.get(), 1);
        // It comes back.
        trial.answer(42, "a b c");
        assert_eq!(trial.there(), "a b c");
    }

    #[test]
    fn a_node_that_comes_back_has_the_whole_grace_again() {
        let mut trial = Trial::new(GRACE, "a b");
        trial.answer(10, "a");
        trial.answer(20, "a");
        trial.answer(30, "a b");
        for second in [40, 50, 60, 69] {
            trial.answer(second, "a");
            assert_eq!(trial.there(), "a b", "{second}");
        }
        trial.answer(70, "a");
        assert_eq!(trial.there(), "a -b");
    }

    #[test]
    fn errors_empty_answers_and_silence_change_nothing_and_begin_the_grace_anew() {
        let breaks: [fn(&mut Trial); 4] = [
            |trial| trial.fails(25),
            |trial| trial.answer(25, ""),
            |trial| trial.answer(25, "?a"),
            |trial| trial.answer(36, "a"),
        ];
        for breaks in breaks {
            let mut trial = Trial::new(GRACE, "a b");
            trial.answer(10, "a");
            trial.answer(20, "a");
            breaks(&mut trial);
            assert_eq!(trial.there(), "a b");
            for second in [40, 50, 60] {
                trial.answer(second, "a");
                assert_eq!(trial.there(), "a b", "{second}");
            }
            trial.answer(70, "a");
            assert_eq!(trial.there(), "a -b");
        }
    }

    #[test]
    fn a_node_that_says_that_it_drains_is_drained_at_once_and_not_added() {
        let mut trial = Trial::new(GRACE, "a b");
        trial.answer(1, "a -b -c");
        assert_eq!(trial.there(), "a -b");
        trial.answer(2, "a b");
        assert_eq!(trial.there(), "a b");
        // The last one too: the engine refuses that where it must.
        trial.answer(3, "-a b");
        assert_eq!(trial.there(), "-a b");
    }

    #[test]
    fn a_wrong_entry_neither_adds_nor_drains_its_node() {
        let mut trial = Trial::new(GRACE, "a b");
        for second in (0..100).step_by(10) {
            trial.answer(second, "a ?b ?c");
        }
        assert_eq!(trial.there(), "a b");
    }

    #[test]
    fn a_file_is_followed_at_once() {
        let mut trial = Trial::new(Duration::ZERO, "a b");
        trial.fails(1);
        trial.answer(1, "");
        assert_eq!(trial.there(), "a b");
        trial.answer(2, "a c");
        assert_eq!(trial.there(), "a -b c");
    }
}
