//! Trims of local memory: what a core's shard gives back because `maxmemory` is exceeded, or
//! because of `MEMORY PURGE`.
//!
//! - I1: a core has one trim at a time; `Serving::trim` is empty again when it has ended.

use farcore::Core;

use crate::figures::information::MemoryFigures;
use crate::shared::Shared;
use crate::turn::core_answers::CoreAnswers;
use crate::turn::core_port::Message;
use crate::turn::serving::Serving;

/// A trim of a core's shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trim {
    /// It begins with the next turn, and keeps so many bytes; `None` compacts what is mostly dead.
    Wanted(Option<u64>),
    Begun,
}

impl Serving {
    /// Begins the trim that is wanted, and notes the end of the one that has begun.
    #[inline]
    pub(crate) fn trim_turn(&mut self, core: &Core) {
        match self.trim {
            None => {}
            Some(Trim::Wanted(keep_bytes)) => {
                core.start_trim(keep_bytes);
                self.trim = Some(Trim::Begun);
            }
            Some(Trim::Begun) if core.is_trimming() => {}
            Some(Trim::Begun) => self.trim = None,
        }
    }
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
            core.send(Message::Run(Box::new(move |serving| {
                serving.trim.get_or_insert(Trim::Wanted(Some(share)));
            })));
        }
    }

    /// Has all cores compact what is mostly dead in local memory.
    pub(crate) fn start_purge(&self) -> CoreAnswers<()> {
        self.ask_all(|serving| serving.trim = Some(Trim::Wanted(None)))
    }

    /// Asks all cores whether they are at it.
    pub(crate) fn ask_trims(&self) -> CoreAnswers<bool> {
        self.ask_all(|serving| serving.trim.is_some())
    }
}
