//! Commands of one list that may take several steps.
//!
//! What reads more than a page is of one version of the list, and begins anew if another client has
//! changed it meanwhile (`tasks/attempts.rs`). So does what changes the list by what it has read.
//! What only takes elements off the ends goes on with the list as it is then: each step is as if
//! the client had sent it by itself.

use farcore::Core;

use crate::long::list_changes::{OUT_OF_RANGE, PopStep, insert, pop, remove, set, trim, unset};
use crate::long::list_reads::{FoundReply, reply_length, reply_places, reply_range};
use crate::long::list_steps::Stop;
use crate::resp::{Protocol, Writer};
use crate::tasks::output::TaskOutput;
use crate::types::list::reply::{ListRest, Occurrences, list_error_text};

/// A command of one list.
#[derive(Debug)]
pub(crate) struct ListTask {
    /// As it is stored.
    pub(crate) key: Vec<u8>,
    pub(crate) step: ListStep,
}

/// What it does.
#[derive(Debug)]
pub(crate) enum ListStep {
    Length,
    Element(i64),
    Range(i64, i64),
    /// Finds occurrences of an element: all that are wanted, or the first.
    Find(Vec<u8>, Occurrences, FoundReply),
    /// Takes elements off an end.
    Pop(PopStep),
    Set(i64, Vec<u8>),
    /// Tells why no element was set: for this reason, if there is a list.
    Unset(&'static str),
    /// Adds an element before or behind the first that equals another.
    Insert {
        pivot: Vec<u8>,
        behind: bool,
        element: Vec<u8>,
    },
    /// Removes elements that equal one: at most this many, from the tail on if it is negative; all
    /// if it is 0.
    Remove(Vec<u8>, i64),
    Trim(i64, i64),
}

impl ListTask {
    /// What is left of a command.
    pub(crate) fn of_rest(key: Vec<u8>, rest: ListRest) -> Self {
        let step = match rest {
            ListRest::Range(first, last) => ListStep::Range(first, last),
            ListRest::Pop(side, left, taken) => ListStep::Pop(PopStep {
                side,
                count: Some(left),
                taken,
            }),
            ListRest::Unset => ListStep::Unset(OUT_OF_RANGE),
            ListRest::Trim(first, last) => ListStep::Trim(first, last),
        };
        Self { key, step }
    }

    /// True if it changes the list.
    pub(crate) fn writes(&self) -> bool {
        match self.step {
            ListStep::Length
            | ListStep::Element(_)
            | ListStep::Range(..)
            | ListStep::Find(..)
            | ListStep::Unset(_) => false,
            ListStep::Pop(_)
            | ListStep::Set(..)
            | ListStep::Insert { .. }
            | ListStep::Remove(..)
            | ListStep::Trim(..) => true,
        }
    }

    /// Bytes of elements that it has before it begins.
    pub(crate) fn held_bytes(&self) -> usize {
        match &self.step {
            ListStep::Pop(pop) => pop.taken.replies.capacity(),
            _ => 0,
        }
    }

    /// Carries the command out and writes its reply.
    pub(crate) async fn run(self, core: &mut Core, output: &TaskOutput, protocol: Protocol) {
        let key = &self.key[..];
        let step = (&mut *core, output);
        let done = match &self.step {
            ListStep::Length => reply_length(step, key, protocol).await,
            ListStep::Element(index) => {
                let range = (*index, *index);
                reply_range(step, key, (range, FoundReply::One), protocol).await
            }
            ListStep::Range(first, last) => {
                let range = (*first, *last);
                reply_range(step, key, (range, FoundReply::Array), protocol).await
            }
            ListStep::Find(element, occurrences, reply) => {
                let wanted = (&element[..], *occurrences, *reply);
                reply_places(step, key, wanted, protocol).await
            }
            ListStep::Set(index, element) => set(step, key, (*index, element), protocol).await,
            ListStep::Unset(reason) => Err(unset(core, key, reason).await),
            ListStep::Insert {
                pivot,
                behind,
                element,
            } => insert(step, key, (pivot, *behind, element), protocol).await,
            ListStep::Remove(element, count) => {
                remove(step, key, (element, *count), protocol).await
            }
            ListStep::Trim(first, last) => trim(step, key, (*first, *last), protocol).await,
            ListStep::Pop(_) => Ok(()),
        };
        let done = match self.step {
            ListStep::Pop(wanted) => pop((core, output), key, wanted, protocol).await,
            _ => done,
        };
        match done {
            Ok(()) => {}
            Err(Stop::Failed(error)) => {
                let text = list_error_text(&error);
                output.write(|bytes| Writer::new(bytes, protocol).error(&text));
            }
            Err(Stop::Refused(text)) => {
                output.write(|bytes| Writer::new(bytes, protocol).error(text));
            }
            Err(Stop::Short(shortage)) => output.refuse(protocol, &shortage),
        }
    }
}
