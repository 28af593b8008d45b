//! Calls of a handle that send many requests at once and block until all are answered.

use super::handle::{CALLED, Handle};
use super::refused::Refused;
use super::shard_requests::ShardRequests;
use crate::error::{Error, Result};
use crate::message::operation::Operation;
use crate::message::outcome::Answer;

impl Handle {
    /// Runs many operations at once, visits each answer with its place, and blocks until all are
    /// answered. They may be served in any order, but operations on one key keep theirs.
    ///
    /// # Errors
    /// A caller's mistake stops it at that operation; the operations before it are carried out.
    pub fn many<'b>(
        &mut self,
        operations: impl IntoIterator<Item = Operation<'b>>,
        mut visit: impl FnMut(usize, Answer<'_>),
    ) -> Result<()> {
        self.begin_call();
        let mut operations = operations.into_iter().zip(0u32..);
        let mut next = operations.next();
        let (mut sent, mut seen, mut failed) = (0usize, 0usize, None);
        let mut idle_looks = 0;
        while next.is_some() || seen < sent {
            let before = (sent, seen);
            while let Some((operation, place)) = &next {
                let token = self.token(*place);
                match self.send(CALLED, token, operation) {
                    Ok(()) => {
                        sent += 1;
                        next = operations.next();
                    }
                    Err(Refused::Full) => break,
                    Err(Refused::Error(error)) => {
                        failed = Some(error);
                        next = None;
                    }
                }
            }
            let stopped = self.shared.is_stopped();
            self.pump_keeping();
            for (place, answer) in std::mem::take(&mut self.answers) {
                seen += 1;
                visit(place as usize, answer.answer());
            }
            if stopped && seen < sent {
                return Err(Error::Closed);
            }
            let is_idle = before == (sent, seen);
            idle_looks = if is_idle { idle_looks + 1 } else { 0 };
            if is_idle {
                self.shared.make_way(idle_looks);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Runs requests about shards to their end, and blocks until then.
    pub(super) fn run_shard_requests(&mut self, requests: &mut impl ShardRequests) -> Result<()> {
        self.begin_call();
        let mut idle_looks = 0;
        while !requests.is_done() {
            let mut is_idle = true;
            while let Some(sent) = requests.next(|shard, hash, place, parts| {
                let token = self.token(place);
                let sent = if self.shared.lifecycle.is_closing() {
                    Err(Refused::Error(Error::Closed))
                } else {
                    self.send_to(shard, hash, (CALLED, token), parts)
                };
                (sent.is_ok(), sent)
            }) {
                match sent {
                    Ok(()) => is_idle = false,
                    Err(Refused::Full) => break,
                    Err(Refused::Error(error)) => return Err(error),
                }
            }
            let stopped = self.shared.is_stopped();
            self.pump_keeping();
            for (place, answer) in std::mem::take(&mut self.answers) {
                is_idle = false;
                requests.take(place, answer.answer());
            }
            if stopped && !requests.is_done() {
                return Err(Error::Closed);
            }
            idle_looks = if is_idle { idle_looks + 1 } else { 0 };
            if is_idle {
                self.shared.make_way(idle_looks);
            }
        }
        Ok(())
    }

    /// Reads many keys; see [`Handle::many`].
    ///
    /// # Errors
    /// As [`Handle::many`].
    pub fn get_many(&mut self, keys: &[&[u8]], visit: impl FnMut(usize, Answer<'_>)) -> Result<()> {
        self.many(keys.iter().map(|key| Operation::Get { key }), visit)
    }

    /// Stores many values; see [`Handle::many`].
    ///
    /// # Errors
    /// As [`Handle::many`].
    pub fn put_many(
        &mut self,
        pairs: &[(&[u8], &[u8])],
        visit: impl FnMut(usize, Answer<'_>),
    ) -> Result<()> {
        self.many(
            pairs
                .iter()
                .map(|(key, value)| Operation::Put { key, value }),
            visit,
        )
    }

    /// Removes many keys; see [`Handle::many`].
    ///
    /// # Errors
    /// As [`Handle::many`].
    pub fn delete_many(
        &mut self,
        keys: &[&[u8]],
        visit: impl FnMut(usize, Answer<'_>),
    ) -> Result<()> {
        self.many(keys.iter().map(|key| Operation::Delete { key }), visit)
    }
}
