//! Requests that follow from each other's answers, as clients of all kinds run them: each says what
//! to send next and takes answers, without any input or output of its own.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use crate::client::core::Core;
use crate::client::handle::Handle;
use crate::error::Result;
use crate::message::hash::{Hasher128, IndexHash};
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

/// A client that runs requests about shards. A handle blocks in [`RunShardRequests::run`], whose
/// future is then ready at its first poll; others wait.
pub(crate) trait RunShardRequests {
    /// What decides which shard a key is of: the hasher, and how many shards there are.
    fn hasher_and_shards(&self) -> (Hasher128, u16);
    /// Runs requests to their end.
    async fn run(&mut self, requests: &mut impl ShardRequests) -> Result<()>;
}

impl RunShardRequests for Handle {
    fn hasher_and_shards(&self) -> (Hasher128, u16) {
        Handle::hasher_and_shards(self)
    }

    async fn run(&mut self, requests: &mut impl ShardRequests) -> Result<()> {
        self.run_shard_requests(requests)
    }
}

impl RunShardRequests for Core {
    fn hasher_and_shards(&self) -> (Hasher128, u16) {
        Core::hasher_and_shards(self)
    }

    async fn run(&mut self, requests: &mut impl ShardRequests) -> Result<()> {
        self.run_shard_requests(requests).await
    }
}

/// The result of a handle's run.
pub(crate) fn of_handle<T>(run: impl Future<Output = Result<T>>) -> Result<T> {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(run).poll(&mut context) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("a handle has blocked until the end"),
    }
}
