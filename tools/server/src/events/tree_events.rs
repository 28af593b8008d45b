//! What an operation on a collection means for the events of its key, once it is answered.
//!
//! An answer tells how many elements there are then, or whether any is left; so it tells whether
//! the key was made, and whether it is gone. What an answer does not tell is given beside it.

use farcore::{Answer, TreeChanges, TreeGuard, TreeOp, TreeScores, TreeView};

use crate::events::classes::EventClasses;
use crate::types::kind::Kind;

/// The class of the events of a kind.
pub(crate) fn class_of(kind: Kind) -> EventClasses {
    match kind {
        Kind::Hash => EventClasses::HASH,
        Kind::Set => EventClasses::SET,
        Kind::List => EventClasses::LIST,
        Kind::SortedSet => EventClasses::SORTED_SET,
        Kind::Stream => EventClasses::STREAM,
    }
}

/// How an answer tells what an operation has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tells {
    /// The operation only reads.
    Read,
    /// Elements were stored: the numbers of the answer tell how many are new, and how many there
    /// are then.
    Stored { always: bool },
    /// Elements were removed: the numbers of the answer tell how many, and how many are left.
    Removed,
    /// Values were pushed: the answer tells how many elements there are then.
    Pushed { values: u64 },
    /// Elements were taken: the answer has them, and tells whether any is left.
    Taken,
    /// The rest was removed: the numbers of the answer tell how many, and how many are left.
    Trimmed,
    /// Members have got scores: the numbers of the answer tell how many are new and how many have
    /// another one, and how many members there are then.
    Scored,
    /// Members were removed: the numbers of the answer tell how many, and how many are left.
    Unscored,
    /// An element was stored if there is an answer. Whether its key was made is given beside it.
    Single,
}

/// What is done to a collection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TreeDeed {
    kind: Kind,
    /// The event of the change.
    name: &'static str,
    tells: Tells,
}

impl TreeDeed {
    /// What an operation does; `None` if it is of no kind.
    pub(crate) fn of(op: &TreeOp<'_>, guard: TreeGuard) -> Option<Self> {
        let kind = Kind::of_tag(guard.tag)?;
        if kind == Kind::Stream {
            // Its commands leave their events themselves.
            return None;
        }
        let names = |hash, set, list, sorted| match kind {
            Kind::Hash => hash,
            Kind::Set => set,
            Kind::List => list,
            Kind::SortedSet | Kind::Stream => sorted,
        };
        let added = names("hset", "sadd", "rpush", "zadd");
        let removed = names("hdel", "srem", "lrem", "zrem");
        let (name, tells) = match *op {
            TreeOp::Score { changes, rule, .. } => {
                let removes =
                    matches!(changes, TreeScores::Slices([first, ..]) if first.score.is_none());
                match (removes, rule.adds) {
                    (true, _) => (removed, Tells::Unscored),
                    (false, true) => ("zincr", Tells::Scored),
                    (false, false) => (added, Tells::Scored),
                }
            }
            TreeOp::Pop { last: false, .. } if kind == Kind::SortedSet => ("zpopmin", Tells::Taken),
            TreeOp::Pop { last: true, .. } if kind == Kind::SortedSet => ("zpopmax", Tells::Taken),
            TreeOp::ScoreRemove { .. } => return None,
            TreeOp::Update { changes, .. } => {
                let removes =
                    matches!(changes, TreeChanges::Slices([first, ..]) if first.value.is_none());
                if removes {
                    (removed, Tells::Removed)
                } else {
                    let always = kind != Kind::Set;
                    (added, Tells::Stored { always })
                }
            }
            TreeOp::Insert { .. } | TreeOp::CompareAndSet { .. } => (added, Tells::Single),
            TreeOp::Remove { .. } | TreeOp::RemoveByRank { .. } => return None,
            TreeOp::Push { front, values, .. } => {
                let name = if front { "lpush" } else { "rpush" };
                let values = values.iter().count() as u64;
                (name, Tells::Pushed { values })
            }
            TreeOp::InsertAt { .. } => ("linsert", Tells::Single),
            TreeOp::SetAt { .. } => ("lset", Tells::Single),
            TreeOp::Trim { .. } => ("ltrim", Tells::Trimmed),
            TreeOp::Pop { last: false, .. } => ("lpop", Tells::Taken),
            TreeOp::Pop { last: true, .. } => ("rpop", Tells::Taken),
            TreeOp::TakeAt { .. } => ("lrem", Tells::Taken),
            TreeOp::Draw { removes: true, .. } => {
                (names("hdel", "spop", "lrem", "zrem"), Tells::Taken)
            }
            _ => ("", Tells::Read),
        };
        Some(Self { kind, name, tells })
    }

    /// The classes of the events that it may make.
    pub(crate) fn classes(self) -> EventClasses {
        let class = class_of(self.kind);
        match self.tells {
            Tells::Read => EventClasses::MISSED,
            Tells::Stored { .. } | Tells::Pushed { .. } | Tells::Single | Tells::Scored => {
                class.and(EventClasses::NEW)
            }
            Tells::Removed | Tells::Taken | Tells::Trimmed | Tells::Unscored => {
                class.and(EventClasses::GENERIC)
            }
        }
    }

    /// Hands the events that an answer means to `notify`, in the order of Redis. `was_absent` says
    /// whether the key was absent, where the answer does not tell it.
    pub(crate) fn answered(
        self,
        answer: &Answer<'_>,
        was_absent: bool,
        mut notify: impl FnMut(EventClasses, &'static str),
    ) {
        let has_value = matches!(answer, Answer::Value { .. });
        let view = TreeView::of(answer);
        // Whether it has changed, and whether the key was made or is gone.
        let (changed, made, gone) = match self.tells {
            Tells::Read => {
                let is_read = has_value || *answer == Answer::Absent;
                if is_read && view.version() == 0 {
                    notify(EventClasses::MISSED, "keymiss");
                }
                return;
            }
            Tells::Stored { always } => {
                let added = view.number(0);
                let changed = added > 0 || (always && view.number(2) > 0);
                (changed, added > 0 && added == view.number(3), false)
            }
            Tells::Removed => (view.number(1) > 0, false, view.number(3) == 0),
            Tells::Pushed { values } => (has_value, view.number(0) == values, false),
            Tells::Taken => (view.elements().next().is_some(), false, !view.has_more()),
            Tells::Trimmed => (view.number(0) > 0, false, view.number(4) == 0),
            Tells::Scored => {
                let added = view.number(0);
                let changed = added > 0 || view.number(1) > 0;
                (changed, added > 0 && added == view.number(4), false)
            }
            Tells::Unscored => (view.number(2) > 0, false, view.number(4) == 0),
            Tells::Single => (has_value, was_absent, false),
        };
        if !changed {
            return;
        }
        if made {
            notify(EventClasses::NEW, "new");
        }
        notify(class_of(self.kind), self.name);
        if gone {
            notify(EventClasses::GENERIC, "del");
        }
    }
}

#[cfg(test)]
mod tests {
    use farcore::TreeChange;

    use super::*;

    fn events(kind: Kind, op: &TreeOp<'_>, answer: &Answer<'_>) -> Vec<&'static str> {
        let guard = TreeGuard {
            tag: kind.tag(),
            version: None,
        };
        let deed = TreeDeed::of(op, guard).expect("it is of a kind");
        let mut events = Vec::new();
        deed.answered(answer, false, |class, name| {
            assert!(deed.classes().any_of(class), "{name}");
            events.push(name);
        });
        events
    }

    #[test]
    fn answers_tell_what_has_changed() {
        let numbers = |all: &[u64]| -> Vec<u8> {
            all.iter().flat_map(|number| number.to_le_bytes()).collect()
        };
        let stores = [TreeChange {
            key: b"k",
            value: Some(b"v"),
        }];
        let removes = [TreeChange {
            key: b"k",
            value: None,
        }];
        let update = |changes| TreeOp::Update {
            changes: TreeChanges::Slices(changes),
            replaces: false,
        };
        let of = |kind, op: &TreeOp<'_>, value: &[u8]| {
            let version = 7;
            events(kind, op, &Answer::Value { version, value })
        };
        for (kind, event) in [(Kind::Hash, "hset"), (Kind::Set, "sadd")] {
            let seen = of(kind, &update(&stores), &numbers(&[1, 0, 1, 1]));
            assert_eq!(seen, ["new", event]);
            let seen = of(kind, &update(&stores), &numbers(&[1, 0, 1, 2]));
            assert_eq!(seen, [event]);
        }
        let seen = of(Kind::Hash, &update(&stores), &numbers(&[0, 0, 1, 1]));
        assert_eq!(seen, ["hset"]);
        let seen = of(Kind::Set, &update(&stores), &numbers(&[0, 0, 1, 1]));
        assert!(seen.is_empty());
        let seen = of(Kind::Hash, &update(&removes), &numbers(&[0, 1, 1, 0]));
        assert_eq!(seen, ["hdel", "del"]);
        let seen = of(Kind::Set, &update(&removes), &numbers(&[0, 1, 1, 3]));
        assert_eq!(seen, ["srem"]);
        assert!(of(Kind::Set, &update(&removes), &numbers(&[0, 0, 1, 3])).is_empty());
        let push = TreeOp::Push {
            front: true,
            exists: false,
            replaces: false,
            values: farcore::TreeValues::Slices(&[b"a", b"b"]),
        };
        assert_eq!(of(Kind::List, &push, &numbers(&[2])), ["new", "lpush"]);
        assert_eq!(of(Kind::List, &push, &numbers(&[3])), ["lpush"]);
        assert!(events(Kind::List, &push, &Answer::Absent).is_empty());
        let draw = TreeOp::Draw {
            random: 0,
            removes: true,
        };
        let element = [&[1, 0, 0, 0, 0, 0, 0, 0][..], b"m"].concat();
        let page = |more: u8| [&[more][..], &element].concat();
        assert_eq!(of(Kind::Set, &draw, &page(1)), ["spop"]);
        assert_eq!(of(Kind::Set, &draw, &page(0)), ["spop", "del"]);
        assert!(events(Kind::Set, &draw, &Answer::Absent).is_empty());
        assert_eq!(
            events(Kind::Set, &TreeOp::Len, &Answer::Absent),
            ["keymiss"]
        );
        assert!(of(Kind::Set, &TreeOp::Len, &[]).is_empty());
    }
}
