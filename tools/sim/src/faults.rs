//! What goes wrong: fates of requests, nodes that are cut off or end, clocks that are set, and
//! tasks or completions that rest.

use farcore_rdma::simulation::{self, Fate, NodeState, Step, StepKind, Subject};
use farcore_tuning::simulated;

use crate::world::World;

/// The longest time for which a node is away, in steps.
const AWAY_STEPS: u64 = 12_000;
/// The longest time for which something rests, in steps.
const NAP_STEPS: u64 = 4_000;

/// What faults are called in reports.
pub(crate) const ASLEEP: &str = "clients that do not read";
pub(crate) const GIVEN_UP: &str = "calls that are given up";
pub(crate) const STOPPED: &str = "clients that stop with calls under way";
pub(crate) const CLOSING: &str = "an engine that closes under load";
const RESTING: &str = "tasks or completions that rest";
const BROKEN: &str = "control connections that break";
const FAILED: &str = "requests that fail";
const FAILED_THOUGH_DONE: &str = "requests that fail though performed";
const LATE: &str = "requests performed after they failed";
const DAMAGED_ON_THE_WAY: &str = "bytes damaged on the way";
const DAMAGED: &str = "bytes damaged in far memory";
const PARTITION: &str = "partitions";
const RESTART: &str = "nodes that end, and come back empty";
const CLOCK: &str = "steps of the system's clock";
const WRONG_BIT: &str = "extents that look free";
const LINGERING: &str = "connections that end late";
pub(crate) const ADDED: &str = "nodes that are added";
pub(crate) const DRAINED: &str = "nodes that are drained";
pub(crate) const KEPT: &str = "drained nodes that stay after all";
pub(crate) const REMOVED: &str = "nodes that are removed";
pub(crate) const FORCED: &str = "nodes that are removed by force";

/// All kinds of faults.
pub(crate) const KINDS: [&str; 21] = [
    ASLEEP,
    GIVEN_UP,
    STOPPED,
    CLOSING,
    RESTING,
    BROKEN,
    FAILED,
    FAILED_THOUGH_DONE,
    LATE,
    DAMAGED_ON_THE_WAY,
    DAMAGED,
    PARTITION,
    RESTART,
    CLOCK,
    LINGERING,
    WRONG_BIT,
    ADDED,
    DRAINED,
    KEPT,
    REMOVED,
    FORCED,
];

/// Something that does not happen for a while.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nap {
    of: Resting,
    until: u64,
}

/// A node that takes long to end connections, over which WRITEs that are late are performed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linger {
    node: usize,
    /// From which step on they are.
    performs_from: u64,
    until: u64,
}

/// What rests.
#[derive(Clone, Copy, Debug)]
enum Resting {
    Task(u64),
    /// Steps of a kind about a node.
    Network(StepKind, u32),
}

impl World {
    /// Leaves out what rests.
    pub(crate) fn rest(&mut self) {
        if let Some(linger) = self.linger {
            if self.step >= linger.until || !self.is_faulty {
                simulation::set_lingering(linger.node, false);
                self.linger = None;
            } else if self.step < linger.performs_from {
                let is_late = |step: &Step| step.kind == StepKind::Late;
                let waits = |step: &Step| is_late(step) && step.node as usize == linger.node;
                self.network.retain(|step| !waits(step));
            }
        }
        let Some(nap) = self.nap else { return };
        if self.step >= nap.until || !self.is_faulty {
            self.nap = None;
            return;
        }
        match nap.of {
            Resting::Task(task) => self.ready.retain(|one| one.0 != task),
            Resting::Network(kind, node) => {
                let rests = |step: &Step| step.kind == kind && step.node == node;
                self.network.retain(|step| !rests(step));
            }
        }
    }

    fn begin_nap(&mut self) {
        let of = if !self.network.is_empty() && self.random.one_in(2) {
            let step = self.network[self.random.place(self.network.len())];
            Resting::Network(step.kind, step.node)
        } else if self.ready.is_empty() {
            return;
        } else {
            Resting::Task(self.ready[self.random.place(self.ready.len())].0)
        };
        let until = self.step + 1 + self.random.below(NAP_STEPS);
        self.nap = Some(Nap { of, until });
        self.coverage.fault(RESTING);
        self.note(23, until, || format!("{of:?} rests until step {until}"));
    }

    /// A node takes long to end the connections that have failed.
    fn begin_linger(&mut self, node: usize) {
        let steps = 1 + self.random.below(3 * AWAY_STEPS);
        simulation::set_lingering(node, true);
        self.linger = Some(Linger {
            node,
            performs_from: self.step + steps - steps / 4,
            until: self.step + steps,
        });
        self.coverage.fault(LINGERING);
        self.note(24, steps, || format!("node {node} ends connections late"));
        // Its client does not come back before its lease has ended.
        if self.heals_at[node] == 0 && self.random.one_in(2) {
            self.cut(node);
        }
    }

    /// How a request or message fares.
    fn fate(&mut self, step: &Step) -> Fate {
        if !self.is_faulty || matches!(step.kind, StepKind::Complete | StepKind::Late) {
            return Fate::Well;
        }
        let faults = self.plan.faults;
        let subject = Subject::ALL.iter().position(|&one| one == step.subject);
        let subject = subject.unwrap_or(0);
        let mut happens = |often: u64| often > 0 && self.random.one_in(often);
        if step.kind == StepKind::Deliver {
            let breaks = happens(faults.fail[subject].saturating_mul(4));
            if breaks && step.subject != Subject::Other {
                self.coverage.fault(BROKEN);
                return Fate::Fails;
            }
            return Fate::Well;
        }
        let is_write = step.subject == Subject::Write;
        let is_read = step.subject == Subject::Read;
        let (fate, name) = if happens(faults.fail[subject]) {
            (Fate::Fails, FAILED)
        } else if happens(faults.done_but_fails[subject]) {
            (Fate::DoneButFails, FAILED_THOUGH_DONE)
        } else if is_write && happens(faults.late) {
            (Fate::LateAndFails, LATE)
        } else if is_read && happens(faults.damage_on_the_way) {
            (Fate::Damaged, DAMAGED_ON_THE_WAY)
        } else {
            return Fate::Well;
        };
        self.coverage.fault(name);
        fate
    }

    /// Has something on the network happen.
    pub(crate) fn move_network(&mut self) -> Result<(), String> {
        let mut step = self.network[self.random.place(self.network.len())];
        if self.slow_node == Some(step.node) && self.random.below(8) > 0 {
            step = self.network[self.random.place(self.network.len())];
        }
        let fate = self.fate(&step);
        let pick = self.random.next();
        let detail = u64::from(step.place) << 8 | u64::from(step.part);
        self.note(1 + step.kind as u64, detail, || {
            format!(
                "{:?} {:?} at node {}: place {}, part {}, {fate:?}",
                step.kind, step.subject, step.node, step.place, step.part
            )
        });
        simulation::take(&step, fate, pick);
        if fate == Fate::LateAndFails && self.linger.is_none() && self.random.one_in(2) {
            self.begin_linger(step.node as usize);
        }
        let is_performed = step.kind == StepKind::Perform && fate == Fate::Well;
        if self.is_faulty && is_performed && step.subject == Subject::Write {
            self.strike_in_flush(step.node as usize);
        }
        Ok(())
    }

    /// A node goes away just when a part of a page was written.
    fn strike_in_flush(&mut self, node: usize) {
        let faults = self.plan.faults;
        if self.heals_at[node] != 0 {
            return;
        }
        if faults.cut_in_flush > 0 && self.random.one_in(faults.cut_in_flush) {
            self.cut(node);
            if self.random.one_in(2) {
                // What was performed completes after a new session has begun, if at all.
                let number = u32::try_from(node).unwrap_or(0);
                self.nap = Some(Nap {
                    of: Resting::Network(StepKind::Complete, number),
                    until: self.heals_at[node] + self.random.below(2 * NAP_STEPS),
                });
                self.coverage.fault(RESTING);
            }
        } else if faults.restart_in_flush > 0 && self.random.one_in(faults.restart_in_flush) {
            self.end(node);
        }
    }

    fn cut(&mut self, node: usize) {
        let groups = if self.random.one_in(2) {
            u64::MAX
        } else {
            self.random.next()
        };
        self.note(20, groups, || {
            format!("node {node} is cut off from {groups:x}")
        });
        self.coverage.fault(PARTITION);
        simulation::set_node(node, NodeState::Cut(groups));
        self.heals_at[node] = self.step + 1 + self.random.below(AWAY_STEPS);
    }

    fn end(&mut self, node: usize) {
        self.note(21, node as u64, || format!("node {node} ends"));
        self.coverage.fault(RESTART);
        simulation::set_node(node, NodeState::Down);
        self.nodes[node] = None;
        self.heals_at[node] = self.step + 1 + self.random.below(AWAY_STEPS);
    }

    /// Something goes wrong, or ends to be wrong.
    pub(crate) fn fault(&mut self) -> Result<(), String> {
        let faults = self.plan.faults;
        for node in 0..self.nodes.len() {
            if self.heals_at[node] != 0 && self.step >= self.heals_at[node] {
                self.heal(node)?;
            }
        }
        let node = self.random.place(self.nodes.len());
        let is_well = self.heals_at[node] == 0;
        if faults.partition > 0 && self.random.one_in(faults.partition) && is_well {
            self.cut(node);
        } else if faults.restart > 0 && self.random.one_in(faults.restart) && is_well {
            if !self.plan.spares {
                self.end(node);
            } else if self.members[node] && std::mem::take(&mut self.may_end) {
                self.ended += 1;
                self.end(node);
            }
        }
        if faults.nap > 0 && self.nap.is_none() && self.random.one_in(faults.nap) {
            self.begin_nap();
        }
        if faults.damage > 0 && self.random.one_in(faults.damage) {
            let bit = self.random.next();
            if let Some(node) = &self.nodes[node] {
                node.damage(bit);
                self.coverage.fault(DAMAGED);
            }
        }
        if faults.wrong_bit > 0 && self.random.one_in(faults.wrong_bit) {
            let extent = u32::try_from(self.random.below(512)).unwrap_or(0);
            if let Some(node) = &self.nodes[node] {
                node.clear_bit(extent);
                self.coverage.fault(WRONG_BIT);
            }
        }
        if faults.clock > 0 && self.random.one_in(faults.clock) {
            let most = self.random.of(&[4_000_000_000, 20_000_000_000]);
            let by_ns = i64::try_from(self.random.below(most)).unwrap_or(0);
            let by_ns = by_ns - i64::try_from(most / 2).unwrap_or(0);
            simulated::step_system_clock(by_ns);
            self.times.step(by_ns);
            self.coverage.fault(CLOCK);
        }
        Ok(())
    }

    pub(crate) fn heal(&mut self, node: usize) -> Result<(), String> {
        self.note(22, node as u64, || format!("node {node} is well again"));
        if self.nodes[node].is_none() {
            self.start_node(node)?;
        }
        simulation::set_node(node, NodeState::Up);
        self.heals_at[node] = 0;
        Ok(())
    }
}
