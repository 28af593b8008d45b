//! The programs of streams, by their numbers.

use farcore::{Operation, TreeOp, TreeProgram, TreeProgramMode};

use super::input::Input;
use super::{claims, deliveries, entries, groups, reports};
use crate::types::kind::Kind;

/// A program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum StreamProgram {
    Add,
    Delete,
    Trim,
    Length,
    Range,
    SetId,
    GroupCreate,
    GroupSetId,
    GroupDestroy,
    GroupForget,
    ConsumerCreate,
    ConsumerDelete,
    Read,
    ReadAgain,
    Acknowledge,
    Claim,
    ClaimDue,
    Pending,
    PendingRange,
    Stream,
    Groups,
    GroupNames,
    Group,
    Consumers,
    Consumer,
}

/// All of them, in the order of their numbers: what an engine is opened with.
pub static TREE_PROGRAMS: &[TreeProgram] = &[
    program("stream-add", entries::add),
    program("stream-delete", entries::delete),
    program("stream-trim", entries::trim),
    program("stream-length", entries::length),
    program("stream-range", entries::range),
    program("stream-set-id", entries::set_id),
    program("group-create", groups::create),
    program("group-set-id", groups::set_id),
    program("group-destroy", groups::destroy),
    program("group-forget", groups::forget),
    program("consumer-create", groups::create_consumer),
    program("consumer-delete", groups::delete_consumer),
    program("stream-read", deliveries::read),
    program("stream-read-again", deliveries::read_again),
    program("stream-acknowledge", deliveries::acknowledge),
    program("stream-claim", claims::claim),
    program("stream-claim-due", claims::claim_due),
    program("group-pending", deliveries::pending),
    program("group-pending-range", deliveries::pending_range),
    program("stream-report", reports::stream),
    program("groups-report", reports::groups),
    program("group-names", reports::group_names),
    program("group-report", reports::group),
    program("consumers-report", reports::consumers),
    program("consumer-report", reports::consumer),
];

const fn program(name: &'static str, run: farcore::TreeProgramRun) -> TreeProgram {
    TreeProgram { name, run }
}

impl StreamProgram {
    /// All programs, in the order of their numbers.
    const ALL: [Self; TREE_PROGRAMS.len()] = [
        Self::Add,
        Self::Delete,
        Self::Trim,
        Self::Length,
        Self::Range,
        Self::SetId,
        Self::GroupCreate,
        Self::GroupSetId,
        Self::GroupDestroy,
        Self::GroupForget,
        Self::ConsumerCreate,
        Self::ConsumerDelete,
        Self::Read,
        Self::ReadAgain,
        Self::Acknowledge,
        Self::Claim,
        Self::ClaimDue,
        Self::Pending,
        Self::PendingRange,
        Self::Stream,
        Self::Groups,
        Self::GroupNames,
        Self::Group,
        Self::Consumers,
        Self::Consumer,
    ];

    /// The program of a number.
    pub(crate) fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// What it may do.
    pub(crate) fn mode(self) -> TreeProgramMode {
        match self {
            Self::Length
            | Self::Range
            | Self::Pending
            | Self::PendingRange
            | Self::Stream
            | Self::Groups
            | Self::GroupNames
            | Self::Group
            | Self::Consumers
            | Self::Consumer => TreeProgramMode::Reads,
            Self::Delete
            | Self::Trim
            | Self::GroupDestroy
            | Self::GroupForget
            | Self::ConsumerDelete
            | Self::Acknowledge => TreeProgramMode::Removes,
            Self::Add
            | Self::SetId
            | Self::GroupCreate
            | Self::GroupSetId
            | Self::ConsumerCreate
            | Self::Read
            | Self::ReadAgain
            | Self::Claim
            | Self::ClaimDue => TreeProgramMode::Writes,
        }
    }

    /// The operation that runs it on the stream of a key.
    pub(crate) fn operation<'a>(self, key: &'a [u8], input: &'a Input) -> Operation<'a> {
        let op = TreeOp::Run {
            program: self as u8,
            mode: self.mode(),
            input: input.encoded(),
        };
        Kind::Stream.operation(key, op)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_has_its_number() {
        assert_eq!(TREE_PROGRAMS.len(), StreamProgram::Consumer as usize + 1);
        let name = |program: StreamProgram| TREE_PROGRAMS[program as usize].name;
        assert_eq!(name(StreamProgram::Add), "stream-add");
        assert_eq!(name(StreamProgram::GroupForget), "group-forget");
        assert_eq!(name(StreamProgram::ClaimDue), "stream-claim-due");
        assert_eq!(name(StreamProgram::Consumer), "consumer-report");
        for (number, program) in (0..).zip(StreamProgram::ALL) {
            assert_eq!(program as u8, number);
            assert_eq!(StreamProgram::of(number), Some(program));
        }
        assert_eq!(StreamProgram::of(u8::MAX), None);
    }
}
