//! What a client has sent and was told, and the judgement of what is stored. Nothing here asks a
//! server.

use std::collections::BTreeSet;

/// Keys, fields and members each that a client overwrites.
pub(super) const PLACES: usize = 64;
/// All that holds one number: strings, fields of a hash, members of a sorted set, and a pair of
/// keys that a transaction writes.
pub(super) const SLOTS: usize = 3 * PLACES + 1;

/// Where a write goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// It replaces the number in one of [`SLOTS`].
    Slot(usize),
    /// It is put at the end of the list.
    List,
}

/// A write. A client uses each number once, the larger one later.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub(super) target: Target,
    pub(super) number: u64,
}

/// A number that was acknowledged, and by how many replicas.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Acknowledged {
    number: u64,
    replicas: u64,
}

/// What one client has sent and was told.
#[derive(Clone, Debug)]
pub(super) struct Told {
    /// The last number that was sent.
    pub(super) sent: u64,
    /// Writes that were acknowledged.
    pub(super) acknowledged: u64,
    /// The last that was acknowledged of each.
    slots: Vec<Acknowledged>,
    /// All that were acknowledged in the list.
    list: Vec<Acknowledged>,
    /// Numbers sent over connections that were given up. A server that was stopped may read them
    /// after those that came later over other connections.
    orphans: BTreeSet<u64>,
}

/// What is stored of one client.
#[derive(Clone, Default, Debug)]
pub(super) struct Seen {
    /// The number in each; 0 if there is none.
    pub(super) slots: Vec<u64>,
    /// The number in the other key of the pair.
    pub(super) other: u64,
    pub(super) list: Vec<u64>,
}

/// What does not hold, a line each.
#[derive(Clone, Default, Debug)]
pub(super) struct Faults {
    /// Writes that were acknowledged and are not there.
    pub(super) lost: Vec<String>,
    /// Halves of transactions, writes that were carried out twice, or never sent.
    pub(super) wrong: Vec<String>,
}

impl Told {
    pub(super) fn new() -> Self {
        Self {
            sent: 0,
            acknowledged: 0,
            slots: vec![Acknowledged::default(); SLOTS],
            list: Vec::new(),
            orphans: BTreeSet::new(),
        }
    }

    /// Notes how many replicas have acknowledged writes.
    pub(super) fn acknowledge(&mut self, writes: &[Write], replicas: u64) {
        for &Write { target, number } in writes {
            let acknowledged = Acknowledged { number, replicas };
            match target {
                Target::Slot(slot) => self.slots[slot] = acknowledged,
                Target::List => self.list.push(acknowledged),
            }
        }
        self.acknowledged += writes.len() as u64;
    }

    /// Notes that it is not known what became of writes.
    pub(super) fn give_up(&mut self, writes: &[Write]) {
        self.orphans.extend(writes.iter().map(|write| write.number));
    }

    /// Compares what is stored with what was told.
    pub(super) fn judge(&self, seen: &Seen) -> Faults {
        let mut faults = Faults::default();
        for (slot, (told, &number)) in self.slots.iter().zip(&seen.slots).enumerate() {
            if number < told.number && !self.orphans.contains(&number) {
                let Acknowledged {
                    number: of,
                    replicas,
                } = told;
                let line = format!("slot {slot} has {number}; {replicas} acknowledged {of}");
                faults.lost.push(line);
            }
            if number > self.sent {
                faults
                    .wrong
                    .push(format!("slot {slot} has {number}, which was not sent"));
            }
        }
        if seen.slots.last() != Some(&seen.other) {
            let (one, other) = (seen.slots.last(), seen.other);
            faults.wrong.push(format!("a pair has {one:?} and {other}"));
        }
        self.judge_list(&seen.list, &mut faults);
        faults
    }

    fn judge_list(&self, list: &[u64], faults: &mut Faults) {
        let all: BTreeSet<_> = list.iter().copied().collect();
        if all.len() < list.len() {
            let twice = list.len() - all.len();
            faults
                .wrong
                .push(format!("{twice} elements are there twice"));
        }
        if all.last().is_some_and(|&last| last > self.sent) {
            faults.wrong.push("an element was not sent".to_owned());
        }
        for Acknowledged { number, replicas } in &self.list {
            if !all.contains(number) {
                let line = format!("{replicas} acknowledged element {number}, which is gone");
                faults.lost.push(line);
            }
        }
        let mut in_order = list.iter().filter(|number| !self.orphans.contains(number));
        let mut last = 0;
        if !in_order.all(|&number| std::mem::replace(&mut last, number) < number) {
            faults.wrong.push("elements are not in order".to_owned());
        }
    }

    /// What is stored is on all servers, so it must be found from now on.
    pub(super) fn adopt(&mut self, seen: &Seen) {
        let on_both = |&number: &u64| Acknowledged {
            number,
            replicas: 2,
        };
        self.slots = seen.slots.iter().map(on_both).collect();
        self.list = seen.list.iter().map(on_both).collect();
    }

    /// The list is removed.
    pub(super) fn forget_list(&mut self) {
        self.list.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(writes: &[(Target, u64)]) -> Told {
        let mut told = Told::new();
        for &(target, number) in writes {
            told.acknowledge(&[Write { target, number }], 1);
            told.sent = number;
        }
        told
    }

    fn seen(slot: u64, list: &[u64]) -> Seen {
        let mut slots = vec![0; SLOTS];
        slots[0] = slot;
        Seen {
            slots,
            other: 0,
            list: list.to_vec(),
        }
    }

    fn faults(told: &Told, seen: &Seen) -> (usize, usize) {
        let faults = told.judge(seen);
        (faults.lost.len(), faults.wrong.len())
    }

    #[test]
    fn what_was_acknowledged_must_be_there() {
        let mut told = told(&[
            (Target::Slot(0), 1),
            (Target::List, 2),
            (Target::Slot(0), 3),
        ]);
        told.sent = 5;
        assert_eq!(faults(&told, &seen(3, &[2])), (0, 0));
        assert_eq!(faults(&told, &seen(5, &[2])), (0, 0), "one under way");
        assert_eq!(faults(&told, &seen(1, &[2])), (1, 0));
        assert_eq!(faults(&told, &seen(0, &[])), (2, 0));
        assert_eq!(faults(&told, &seen(6, &[2])), (0, 1), "never sent");
    }

    #[test]
    fn what_was_given_up_may_come_late() {
        let mut told = told(&[(Target::Slot(0), 3), (Target::List, 4)]);
        assert_eq!(faults(&told, &seen(2, &[4, 1])), (1, 1));
        told.give_up(&[1, 2].map(|number| Write {
            target: Target::List,
            number,
        }));
        assert_eq!(faults(&told, &seen(2, &[4, 1])), (0, 0));
    }

    #[test]
    fn halves_and_repetitions_are_wrong() {
        let told = told(&[(Target::List, 1), (Target::List, 2)]);
        assert_eq!(faults(&told, &seen(0, &[1, 2, 2])), (0, 2));
        let mut half = seen(0, &[1, 2]);
        half.other = 2;
        assert_eq!(faults(&told, &half), (0, 1));
    }
}
