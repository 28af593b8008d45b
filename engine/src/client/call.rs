//! A call: one operation of a handle, and what it returns.
//!
//! A [`Call`] borrows its handle. It sends its request at the first poll and can block or be
//! awaited. [`FromAnswer`] turns answers into results, for handles and core clients alike.

use std::future::Future;
use std::marker::PhantomData;
use std::ops::Deref;
use std::pin::Pin;
use std::str::FromStr;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use farcore_tuning::system_ms;

use super::handle::{CALLED, Handle, IDLE_LOOKS, SPINS};
use super::refused::Refused;
use crate::error::{Error, Result};
use crate::message::change::Metadata;
use crate::message::operation::{Operation, Version};
use crate::message::outcome::{Answer, OwnedAnswer};
use crate::reactor::{block_on, block_on_for, serve_current_core};

/// A value that was read, with its version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Value<'a> {
    bytes: &'a [u8],
    version: Version,
}

impl Value<'_> {
    /// The version to expect in a compare-and-swap.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }
}

impl Deref for Value<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

/// The outcome of a compare-and-swap.
#[must_use = "a mismatch has stored nothing"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CasOutcome {
    /// Stored under this version.
    Stored(Version),
    /// The key has this version (`0` if it is absent), and nothing changed.
    Mismatch(Version),
}

/// The outcome of a put that may expire.
#[must_use = "it may have stored nothing"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PutOutcome {
    /// Stored under this version.
    Stored(Version),
    /// The condition does not hold: the key has this version (`0` if it is absent), and nothing
    /// changed.
    Unmet(Version),
    /// The expiry lies in the past: the key is absent now.
    Expired,
}

/// The outcome of setting an expiry.
#[must_use = "it may have set nothing"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExpiryOutcome {
    /// It is set, and the key has this version.
    Set(Version),
    /// It lies in the past: the key was removed.
    Deleted,
    /// The condition does not hold: the key has this version, and nothing changed.
    Unmet(Version),
    /// There is no such key.
    Absent,
}

/// How long a key has to live.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeToLive {
    /// It does not expire.
    Unlimited,
    /// This many milliseconds, by the system's clock.
    Milliseconds(u64),
}

/// The outcome of a conditional delete.
#[must_use = "a mismatch has deleted nothing"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeleteOutcome {
    /// The key was removed.
    Deleted,
    /// The key is absent, as the condition allows.
    Absent,
    /// The condition does not hold: the key has this version (`0` if it is absent).
    Mismatch(Version),
}

/// What a call returns, built from its answer; for handles and core clients.
pub(crate) trait FromAnswer<'a>: Sized {
    fn from_answer(answer: OwnedAnswer, scratch: &'a mut Vec<u8>) -> Result<Self>;
}

impl<'a> FromAnswer<'a> for Option<Value<'a>> {
    fn from_answer(answer: OwnedAnswer, scratch: &'a mut Vec<u8>) -> Result<Self> {
        match answer.answer() {
            Answer::Value { version, .. } => {
                *scratch = answer.into_value();
                Ok(Some(Value {
                    bytes: scratch,
                    version,
                }))
            }
            Answer::Failed(error) => Err(error.clone()),
            _ => Ok(None),
        }
    }
}

impl<'a> FromAnswer<'a> for Version {
    fn from_answer(answer: OwnedAnswer, _: &'a mut Vec<u8>) -> Result<Self> {
        match answer.answer() {
            Answer::Stored { version } => Ok(version),
            Answer::Failed(error) => Err(error.clone()),
            _ => Ok(0),
        }
    }
}

impl<'a> FromAnswer<'a> for bool {
    fn from_answer(answer: OwnedAnswer, _: &'a mut Vec<u8>) -> Result<Self> {
        match answer.answer() {
            Answer::Failed(error) => Err(error.clone()),
            Answer::Deleted | Answer::Stored { .. } | Answer::Value { .. } => Ok(true),
            _ => Ok(false),
        }
    }
}

impl<'a> FromAnswer<'a> for DeleteOutcome {
    fn from_answer(answer: OwnedAnswer, _: &'a mut Vec<u8>) -> Result<Self> {
        match answer.answer() {
            Answer::Failed(error) => Err(error.clone()),
            Answer::Deleted => Ok(Self::Deleted),
            Answer::Mismatch { current } => Ok(Self::Mismatch(current)),
            _ => Ok(Self::Absent),
        }
    }
}

impl<'a> FromAnswer<'a> for Option<Metadata> {
    fn from_answer(answer: OwnedAnswer, _: &'a mut Vec<u8>) -> Result<Self> {
        match answer.answer() {
            Answer::Failed(error) => Err(error.clone()),
            Answer::Value { version, value } => Ok(Metadata::decode(version, value)),
            _ => Ok(None),
        }
    }
}

impl<'a> FromAnswer<'a> for Metadata {
    fn from_answer(answer: OwnedAnswer, scratch: &'a mut Vec<u8>) -> Result<Self> {
        let metadata = Option::<Self>::from_answer(answer, scratch)?;
        metadata.ok_or(Error::Closed)
    }
}

/// The sum of a counter, from the decimal text that answers an increment.
fn sum<T: FromStr>(answer: &OwnedAnswer) -> Result<T> {
    match answer.answer() {
        Answer::Failed(error) => Err(error.clone()),
        answer => {
            let text = std::str::from_utf8(answer.value()).ok();
            text.and_then(|text| text.parse().ok()).ok_or(Error::Closed)
        }
    }
}

impl<'a> FromAnswer<'a> for i64 {
    fn from_answer(answer: OwnedAnswer, _: &'a mut Vec<u8>) -> Result<Self> {
        sum(&answer)
    }
}

impl<'a> FromAnswer<'a> for f64 {
    fn from_answer(answer: OwnedAnswer, _: &'a mut Vec<u8>) -> Result<Self> {
        sum(&answer)
    }
}

impl<'a> FromAnswer<'a> for PutOutcome {
    fn from_answer(answer: OwnedAnswer, _: &'a mut Vec<u8>) -> Result<Self> {
        match answer.answer() {
            Answer::Stored { version } => Ok(Self::Stored(version)),
            Answer::Mismatch { current } => Ok(Self::Unmet(current)),
            Answer::Failed(error) => Err(error.clone()),
            _ => Ok(Self::Expired),
        }
    }
}

impl<'a> FromAnswer<'a> for ExpiryOutcome {
    fn from_answer(answer: OwnedAnswer, _: &'a mut Vec<u8>) -> Result<Self> {
        match answer.answer() {
            Answer::Stored { version } => Ok(Self::Set(version)),
            Answer::Mismatch { current } => Ok(Self::Unmet(current)),
            Answer::Deleted => Ok(Self::Deleted),
            Answer::Failed(error) => Err(error.clone()),
            _ => Ok(Self::Absent),
        }
    }
}

impl<'a> FromAnswer<'a> for Option<TimeToLive> {
    fn from_answer(answer: OwnedAnswer, scratch: &'a mut Vec<u8>) -> Result<Self> {
        let metadata = Option::<Metadata>::from_answer(answer, scratch)?;
        Ok(metadata.map(|metadata| match metadata.expiry_ms {
            None => TimeToLive::Unlimited,
            Some(at_ms) => TimeToLive::Milliseconds(at_ms.saturating_sub(system_ms())),
        }))
    }
}

impl<'a> FromAnswer<'a> for CasOutcome {
    fn from_answer(answer: OwnedAnswer, _: &'a mut Vec<u8>) -> Result<Self> {
        match answer.answer() {
            Answer::Stored { version } => Ok(Self::Stored(version)),
            Answer::Mismatch { current } => Ok(Self::Mismatch(current)),
            Answer::Failed(error) => Err(error.clone()),
            _ => Ok(Self::Mismatch(0)),
        }
    }
}

/// One call: block with [`Call::wait`], or await it on any runtime. Nothing is sent before the
/// first poll.
#[must_use = "a call does nothing until it is waited for or awaited"]
#[derive(Debug)]
pub struct Call<'a, 'k, T> {
    handle: Option<&'a mut Handle>,
    operation: Operation<'k>,
    sent: bool,
    result: PhantomData<fn() -> T>,
}

#[allow(
    private_bounds,
    reason = "which answers there are is the engine's affair"
)]
impl<'a, 'k, T: FromAnswer<'a>> Call<'a, 'k, T> {
    pub(super) fn new(handle: &'a mut Handle, operation: Operation<'k>) -> Self {
        handle.begin_call();
        Self {
            handle: Some(handle),
            operation,
            sent: false,
            result: PhantomData,
        }
    }

    /// Blocks until the answer has arrived. A request to a shard with nothing else to do is served
    /// on the calling thread. Else the call spins briefly, offers its processor to other threads,
    /// and parks the thread.
    ///
    /// # Errors
    /// The errors of the operation.
    pub fn wait(mut self) -> Result<T> {
        for look in 0..SPINS {
            if let Poll::Ready(result) = self.step() {
                return result;
            }
            if look < IDLE_LOOKS && !self.is_in_the_way() {
                std::hint::spin_loop();
            } else if !serve_current_core() {
                // The shard may need this core.
                thread::yield_now();
            }
        }
        block_on(self)
    }

    /// Blocks until the answer has arrived, at most for `limit`.
    ///
    /// # Errors
    /// The errors of the operation; [`Error::TimedOut`], and then the operation may still be
    /// carried out.
    pub fn wait_for(self, limit: Duration) -> Result<T> {
        block_on_for(self, limit).unwrap_or(Err(Error::TimedOut { limit }))
    }

    /// True if the core of the request's shard is the processor that this thread runs on, and does
    /// not lend its reactor: it can answer only once this thread has left.
    #[cold]
    fn is_in_the_way(&self) -> bool {
        self.handle.as_ref().is_some_and(|handle| {
            let shard = handle.shared.shard_of(self.operation.key());
            let core_shared = &handle.shared.cores_shared[shard];
            core_shared.processor == rustix::thread::sched_getcpu() && core_shared.is_kept()
        })
    }

    fn step(&mut self) -> Poll<Result<T>> {
        let Some(handle) = &mut self.handle else {
            return Poll::Ready(Err(Error::Closed));
        };
        if !self.sent {
            match handle.send(CALLED, handle.token(0), &self.operation) {
                Ok(()) => self.sent = true,
                Err(Refused::Full) => {}
                Err(Refused::Error(error)) => return Poll::Ready(Err(error)),
            }
        }
        let stopped = handle.shared.is_stopped();
        handle.pump_keeping();
        if let Some((_, answer)) = handle.answers.pop() {
            // The answer may borrow the handle as long as the call did.
            if let Some(handle) = self.handle.take() {
                if handle.spare.capacity() == 0 {
                    handle.spare = std::mem::take(&mut handle.scratch);
                }
                return Poll::Ready(T::from_answer(answer, &mut handle.scratch));
            }
        } else if stopped {
            return Poll::Ready(Err(Error::Closed));
        }
        Poll::Pending
    }
}

#[allow(private_bounds, reason = "as above")]
impl<'a, T: FromAnswer<'a>> Future for Call<'a, '_, T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let call = &mut *self;
        if let Poll::Ready(result) = call.step() {
            return Poll::Ready(result);
        }
        if let Some(lanes) = call
            .handle
            .as_ref()
            .and_then(|handle| handle.lanes.as_ref())
        {
            lanes.client_waker.waker.register(context.waker());
            lanes.client_waker.wait();
        }
        // Poll again: an answer may have arrived before the shard could see the flag.
        call.step()
    }
}
