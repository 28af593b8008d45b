//! Requests that follow from each other's answers, as handles and core clients run them: each says
//! what to send next and takes answers, without any input or output of its own.

use crate::message::hash::IndexHash;
use crate::message::operation::RequestParts;
use crate::message::outcome::Answer;

/// Requests about shards, and what their answers are for.
pub(crate) trait ShardRequests {
    /// Passes the next request to `send`, with its shard, its hash and a number that comes with its
    /// answer. `send` returns whether it was sent; if not, the same is passed again. `None` if
    /// nothing is to be sent now.
    fn next<T>(
        &mut self,
        send: impl FnOnce(u16, IndexHash, u32, &RequestParts<'_>) -> (bool, T),
    ) -> Option<T>;
    /// Takes the answer to the request of a number.
    fn take(&mut self, place: u32, answer: Answer<'_>);
    /// True once nothing is under way and nothing is to be sent.
    fn is_done(&self) -> bool;
}
