//! Commands that turn out to be about values of several pieces: what is kept to carry them out
//! again, and their tasks.
//!
//! A command of strings gives one request to the engine, which refuses those that would need a long
//! value in one buffer. The reply's place is then taken by a task.

use farcore::{Core, Error, Expiry};

use crate::long::change::{ChangeKind, LongChange, SetRule};
use crate::long::copy::{ValueUse, hold_value};
use crate::long::list_task::{ListStep, ListTask};
use crate::long::read::{LongRead, LongReplies};
use crate::long::tree_read::TreeRead;
use crate::resp::Protocol;
use crate::tasks::output::TaskOutput;
use crate::types::list::reply::ListReply;
use crate::types::replies::ReplyKind;

/// A command that is carried out as its client takes the reply.
#[derive(Debug)]
pub(crate) enum LongTask {
    Read(LongRead),
    Many(LongReplies),
    Tree(TreeRead),
    Change(LongChange),
    List(ListTask),
}

impl LongTask {
    /// The task of a command whose key alone says what to do, if an error is that its value is
    /// long.
    pub(crate) fn of(kind: ReplyKind, error: &Error) -> Option<Self> {
        let Error::LongValue { key, .. } = error else {
            return None;
        };
        // The engine names it, except where a value was not kept.
        if key.is_empty() {
            return None;
        }
        let key = key.to_vec();
        match kind {
            ReplyKind::Value
            | ReplyKind::Range { .. }
            | ReplyKind::Part { .. }
            | ReplyKind::Bit { .. }
            | ReplyKind::BitCount { .. }
            | ReplyKind::BitPlace { .. } => Some(Self::Read(LongRead { key, kind })),
            kind => Self::of_change(kind, &key),
        }
    }

    /// The task of a read whose reply is too long to be made with its answer.
    pub(crate) fn of_read(kind: ReplyKind, kept: &[u8]) -> Option<Self> {
        if kind.is_of_tree() {
            return TreeRead::of(kind, kept).map(Self::Tree);
        }
        let key = kept.to_vec();
        match kind {
            ReplyKind::Value
            | ReplyKind::Range { .. }
            | ReplyKind::Part { .. }
            | ReplyKind::BitCount { .. }
            | ReplyKind::BitPlace { .. } => Some(Self::Read(LongRead { key, kind })),
            ReplyKind::List(ListReply::Element(index)) => {
                let step = ListStep::Element(index.into());
                Some(Self::List(ListTask { key, step }))
            }
            ReplyKind::List(ListReply::Range(first, last)) => {
                let step = ListStep::Range(first.into(), last.into());
                Some(Self::List(ListTask { key, step }))
            }
            _ => None,
        }
    }

    /// The task of a change that replies the value before, if the key alone says what it does.
    pub(crate) fn of_change(kind: ReplyKind, key: &[u8]) -> Option<Self> {
        let kind = match kind {
            ReplyKind::Taken => ChangeKind::Take,
            ReplyKind::Expiring(expiry) => ChangeKind::Expire(expiry),
            _ => return None,
        };
        Some(Self::Change(LongChange::new(key, &[], kind)))
    }

    /// Bytes of values that it holds before it begins.
    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            Self::Read(_) => 0,
            Self::Many(replies) => replies.held_bytes,
            Self::Tree(read) => read.held_bytes(),
            Self::Change(change) => change.held_bytes(),
            Self::List(task) => task.held_bytes(),
        }
    }

    /// True if it writes.
    pub(crate) fn writes(&self) -> bool {
        match self {
            Self::Read(_) | Self::Many(_) | Self::Tree(_) => false,
            Self::Change(_) => true,
            Self::List(task) => task.writes(),
        }
    }

    /// Carries the command out and writes its reply.
    pub(crate) async fn run(self, core: &mut Core, output: &TaskOutput, protocol: Protocol) {
        let held = match &self {
            Self::Read(read) => hold_value(core, output, &read.key, ValueUse::Read).await,
            Self::Change(change) => hold_value(core, output, &change.key, change.value_use()).await,
            // They take memory when they know how much.
            Self::Many(_) | Self::Tree(_) | Self::List(_) => Ok(output.hold(0)),
        };
        let _held = match held {
            Ok(held) => held,
            Err(shortage) => {
                if let Self::Change(change) = self {
                    change.discard(core).await;
                }
                return output.refuse(protocol, &shortage);
            }
        };
        match self {
            Self::Read(read) => read.run(core, output, protocol).await,
            Self::Many(replies) => replies.run(core, output, protocol).await,
            Self::Tree(read) => read.run(core, output, protocol).await,
            Self::Change(change) => change.run(core, output, protocol).await,
            Self::List(task) => task.run(core, output, protocol).await,
        }
    }
}

/// A command whose arguments are needed to carry it out otherwise.
#[derive(Debug)]
pub(crate) struct Retry {
    pub(crate) kind: ReplyKind,
    pub(crate) change: LongChange,
}

impl Retry {
    pub(crate) fn key(&self) -> &[u8] {
        &self.change.key
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.change.held_bytes()
    }

    /// The task of the command, if an error says that one is needed: the value is long, or becomes
    /// too long for a record.
    pub(crate) fn task(&mut self, error: &Error) -> Option<LongTask> {
        let is_long = matches!(error, Error::LongValue { .. } | Error::ValueTooLong { .. });
        is_long.then(|| LongTask::Change(self.change.take()))
    }
}

/// The rule of a `SET` without a condition that replies the value before.
pub(crate) fn swap(expiry: Expiry) -> SetRule {
    SetRule {
        expiry,
        condition: crate::long::change::SetCondition::Always,
        previous: true,
    }
}
