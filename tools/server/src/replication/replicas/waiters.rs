//! Clients that wait until replicas have the stream.
//!
//! ```text
//! what shards had noted is taken -> keys that are read are written -> replicas acknowledge
//! ```

use std::sync::Arc;
use std::time::Instant;

use farcore::Version;

use super::merge::Merge;
use super::port::Whom;
use super::writer::StreamWriter;
use crate::cores::answers::Answers;

/// What a client waits for.
#[derive(Debug)]
pub(super) enum Stage {
    /// That what the shards had noted when it began is taken, up to these bytes of each.
    Taken(Vec<u64>),
    /// That the changes of keys up to these versions are written.
    Written(Vec<(Arc<[u8]>, Version)>),
    /// That replicas have the stream up to this byte.
    Acknowledged(u64),
}

/// A client that waits until replicas have the stream.
#[derive(Debug)]
struct Waiter {
    whom: Whom,
    until: Option<Instant>,
    stage: Stage,
    answer: Answers<usize>,
}

/// All clients that wait.
#[derive(Debug, Default)]
pub(super) struct Waiters(Vec<Waiter>);

impl Waiters {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn add(
        &mut self,
        (whom, until): (Whom, Option<Instant>),
        stage: Stage,
        answer: Answers<usize>,
    ) {
        self.0.push(Waiter {
            whom,
            until,
            stage,
            answer,
        });
    }

    /// Has all of them wait for one byte of the stream.
    pub(super) fn wait_for(&mut self, end: u64) {
        for waiter in &mut self.0 {
            waiter.stage = Stage::Acknowledged(end);
        }
    }

    /// Answers all of them that no replica has what they wait for.
    pub(super) fn give_up(&mut self) {
        for waiter in self.0.drain(..) {
            waiter.answer.put(0);
        }
    }

    /// Looks what they wait for now. True if some wait for replicas from now on.
    pub(super) fn step(&mut self, merge: &Merge, writer: &StreamWriter, end: u64) -> bool {
        let mut asks = false;
        for waiter in &mut self.0 {
            if let Stage::Taken(noted) = &waiter.stage
                && merge.has_passed(noted)
            {
                waiter.stage = Stage::Written(writer.unwritten());
            }
            if let Stage::Written(keys) = &mut waiter.stage {
                keys.retain(|(key, version)| !writer.has_written(key, *version));
                if keys.is_empty() {
                    waiter.stage = Stage::Acknowledged(end);
                    asks = true;
                }
            }
        }
        asks
    }

    /// Answers those that are late, or whose replicas have the stream. `count`: how many of those
    /// that are meant have it up to a byte.
    pub(super) fn answer(&mut self, now: Instant, count: impl Fn(&Whom, u64) -> usize) {
        self.0.retain(|waiter| {
            let count = match waiter.stage {
                Stage::Acknowledged(end) => count(&waiter.whom, end),
                // None that is known to have all of it.
                Stage::Taken(_) | Stage::Written(_) => 0,
            };
            let is_late = waiter.until.is_some_and(|until| until <= now);
            let is_awaited = !matches!(waiter.stage, Stage::Acknowledged(_));
            let enough = match waiter.whom {
                Whom::Replicas(count) => count,
                Whom::Importer(_) => 1,
            };
            let is_done = is_late || !is_awaited && count >= enough;
            if is_done {
                waiter.answer.put(count);
            }
            !is_done
        });
    }

    /// When the first of them is late.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.0.iter().filter_map(|waiter| waiter.until).min()
    }
}
