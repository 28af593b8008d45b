//! What goes wrong: fates of requests, nodes that are cut off or end, clocks that are set, and
//! tasks or completions that rest.

use farcore_rdma::simulation::{self, Fate, NodeState, Step, StepKind, Subject};
use farcore_tuning::simulated;

use crate::world::World;

/// The longest time for which a node is away, in steps.
const AWAY_STEPS: u64 = 12_000;
/// The longest time for which something rests, in steps.
const NAP_STEPS: u64 = 4_000;

/// Something that does not happen for a while.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nap {
    of: Resting,
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
        self.coverage.fault("tasks or completions that rest");
        self.note(23, until, || format!("{of:?} rests until step {until}"));
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
                self.coverage.fault("control connections that break");
                return Fate::Fails;
            }
            return Fate::Well;
        }
        let is_write = step.subject == Subject::Write;
        let is_read = step.subject == Subject::Read;
        let (fate, name) = if happens(faults.fail[subject]) {
            (Fate::Fails, "requests that fail")
        } else if happens(faults.done_but_fails[subject]) {
            let name = "requests that fail though performed";
            (Fate::DoneButFails, name)
        } else if is_write && happens(faults.late) {
            (Fate::LateAndFails, "requests performed after they failed")
        } else if is_read && happens(faults.damage_on_the_way) {
            (Fate::Damaged, "bytes damaged on the way")
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
        self.coverage.fault("partitions");
        simulation::set_node(node, NodeState::Cut(groups));
        self.heals_at[node] = self.step + 1 + self.random.below(AWAY_STEPS);
    }

    fn end(&mut self, node: usize) {
        self.note(21, node as u64, || format!("node {node} ends"));
        self.coverage.fault("nodes that end, and come back empty");
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
            self.end(node);
        }
        if faults.nap > 0 && self.nap.is_none() && self.random.one_in(faults.nap) {
            self.begin_nap();
        }
        if faults.damage > 0 && self.random.one_in(faults.damage) {
            let bit = self.random.next();
            if let Some(node) = &self.nodes[node] {
                node.damage(bit);
                self.coverage.fault("bytes damaged in far memory");
            }
        }
        if faults.clock > 0 && self.random.one_in(faults.clock) {
            let by_ns = i64::try_from(self.random.below(20_000_000_000)).unwrap_or(0);
            let by_ns = by_ns - 10_000_000_000;
            simulated::step_system_clock(by_ns);
            self.times.step(by_ns);
            self.coverage.fault("steps of the system's clock");
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
