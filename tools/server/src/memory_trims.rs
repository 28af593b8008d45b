//! Trims of local memory: what a core's shard gives back because `maxmemory` is exceeded, or
//! because of `MEMORY PURGE`.
//!
//! - I1: a core has one trim at a time; `Serving::trim` is empty again when it has ended.

use crate::cores::answers::CoreAnswers;
use crate::cores::message::{Message, Question};
use crate::cores::shared::Shared;
use crate::figures::information::MemoryFigures;

/// A trim of a core's shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trim {
    /// It begins with the next turn, and keeps this many bytes; `None` compacts mostly dead pages.
    Wanted(Option<u64>),
    Begun,
}

impl Shared {
    /// Judges `maxmemory` anew, if it is set.
    pub(crate) fn look_at_limit(&self) {
        if self.memory_limit.bytes().is_some() {
            let figures = MemoryFigures::of(self);
            self.memory_limit.look(figures.limited_bytes());
        }
    }

    /// Judges `maxmemory` anew. If it is exceeded, all cores give back what they hold above their
    /// share, as far as that is mostly dead or in far memory too.
    pub(crate) fn keep_limit(&self) {
        self.look_at_limit();
        let limit = self.memory_limit.bytes();
        let Some(limit) = limit.filter(|_| self.memory_limit.is_exceeded()) else {
            return;
        };
        let share = limit / (self.cores.len() as u64).max(1);
        for core in &self.cores {
            core.send(Message::Trim { keep_bytes: share });
        }
    }

    /// Has all cores compact what is mostly dead in local memory.
    pub(crate) fn start_purge(&self) -> CoreAnswers<()> {
        self.question_all(Question::StartPurge)
    }

    /// Whether cores are at it.
    pub(crate) fn trims(&self) -> CoreAnswers<bool> {
        self.question_all(Question::IsTrimming)
    }
}
