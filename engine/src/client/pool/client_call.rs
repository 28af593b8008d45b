//! One call of a client: a future that any runtime polls, or that a thread waits for.

use std::future::Future;
use std::marker::PhantomData;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;

use super::LanePool;
use super::seats::Seats;
use super::shared_section::ClientSection;
use super::station::{Look, Station};
use crate::client::call::FromAnswer;
use crate::client::handle::{Handle, SPINS};
use crate::client::refused::Refused;
use crate::error::{Error, Result};
use crate::message::operation::{Operation, Version};
use crate::message::outcome::{Answer, OwnedAnswer};
use crate::reactor::{block_on, block_on_for};

/// A value that was read, with its version.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnedValue {
    bytes: Bytes,
    version: Version,
}

impl OwnedValue {
    /// The version to expect in a compare-and-swap.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The bytes alone.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }
}

impl Deref for OwnedValue {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<'a> FromAnswer<'a> for Option<OwnedValue> {
    fn from_answer(answer: OwnedAnswer, _: &'a mut Vec<u8>) -> Result<Self> {
        match answer.answer() {
            Answer::Value { version, .. } => Ok(Some(OwnedValue {
                bytes: answer.into_value().into(),
                version,
            })),
            Answer::Failed(error) => Err(error.clone()),
            _ => Ok(None),
        }
    }
}

/// The place of one call at a station, from its first poll to its end.
#[derive(Debug)]
pub(super) struct Place<'c> {
    pub(super) pool: &'c LanePool,
    /// The section under which its requests are sent.
    section: Option<&'c ClientSection>,
    /// Its station and its seat there.
    at: Option<(&'c Arc<Station>, u32)>,
}

impl<'c> Place<'c> {
    pub(super) fn new(pool: &'c LanePool, section: Option<&'c ClientSection>) -> Self {
        Self {
            pool,
            section,
            at: None,
        }
    }

    /// The station where the call is, or where it would begin.
    pub(super) fn station(&self) -> &'c Arc<Station> {
        match (self.at, self.section) {
            (Some((station, _)), _) => station,
            (None, Some(section)) => &section.station,
            (None, None) => self.pool.station(),
        }
    }

    /// Polls a call: `step` sends what is left to send and takes what has come. A result that is
    /// ready ends the call.
    pub(super) fn poll<R>(
        &mut self,
        waker: Option<&Waker>,
        mut step: impl FnMut(&mut Handle, &mut Seats, u32) -> Poll<Result<R>>,
    ) -> Poll<Result<R>> {
        let station = self.station();
        let (at, section) = (&mut self.at, self.section);
        station.poll(waker, |handle, seats, look| {
            let (_, seat) = *at.get_or_insert_with(|| (station, seats.take()));
            // Each call says what it is under: the one before may have panicked.
            handle.use_section(section.map_or(0, |section| section.number));
            let result = match section.map_or(Ok(()), ClientSection::check) {
                Ok(()) => step(handle, seats, seat),
                Err(error) => Poll::Ready(Err(error)),
            };
            match look {
                _ if result.is_ready() => {
                    seats.leave(seat);
                    *at = None;
                }
                Look::Last { is_stopped, .. } if is_stopped => {
                    seats.leave(seat);
                    *at = None;
                    return Poll::Ready(Err(Error::Closed));
                }
                Look::Last {
                    waker: Some(waker), ..
                } => seats.wait(seat, waker),
                Look::First | Look::Last { .. } => {}
            }
            result
        })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some((station, seat)) = self.at {
            station.abandon(seat);
        }
    }
}

/// One call of a [`Client`](super::Client): await it on any runtime, or block with
/// [`ClientCall::wait`]. Nothing is sent before the first poll. Dropping it before then sends
/// nothing; dropping it later leaves the operation to be carried out, and its answer is discarded.
///
/// Operations on one key keep the order in which their calls complete and begin. A call that was
/// given up may be carried out after calls that began later, on another thread.
#[must_use = "a call does nothing until it is waited for or awaited"]
#[derive(Debug)]
pub struct ClientCall<'c, 'k, T> {
    place: Place<'c>,
    operation: Operation<'k>,
    is_sent: bool,
    result: PhantomData<fn() -> T>,
}

#[allow(
    private_bounds,
    reason = "which answers there are is the engine's affair"
)]
impl<'c, 'k, T: for<'a> FromAnswer<'a>> ClientCall<'c, 'k, T> {
    pub(super) fn new(place: Place<'c>, operation: Operation<'k>) -> Self {
        Self {
            place,
            operation,
            is_sent: false,
            result: PhantomData,
        }
    }

    /// Blocks until the answer has arrived.
    ///
    /// # Errors
    /// The errors of the operation.
    pub fn wait(mut self) -> Result<T> {
        match self.spin() {
            Poll::Ready(result) => result,
            Poll::Pending => block_on(self),
        }
    }

    /// Blocks until the answer has arrived, at most for `limit`.
    ///
    /// # Errors
    /// The errors of the operation; [`Error::TimedOut`], and then the operation may still be
    /// carried out.
    pub fn wait_for(self, limit: Duration) -> Result<T> {
        block_on_for(self, limit).unwrap_or(Err(Error::TimedOut { limit }))
    }

    /// Looks for the answer a few times before the thread parks.
    fn spin(&mut self) -> Poll<Result<T>> {
        for look in 0..SPINS {
            let result = self.look(None);
            if result.is_ready() {
                return result;
            }
            self.place.pool.shared().make_way(look);
        }
        Poll::Pending
    }
}

#[allow(private_bounds, reason = "as above")]
impl<T: for<'a> FromAnswer<'a>> Future for ClientCall<'_, '_, T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.look(Some(context.waker()))
    }
}

#[allow(private_bounds, reason = "as above")]
impl<T: for<'a> FromAnswer<'a>> ClientCall<'_, '_, T> {
    /// Sends the request, if it was not sent, and takes the answer, if it is there. Else `waker` is
    /// woken when it may be.
    fn look(&mut self, waker: Option<&Waker>) -> Poll<Result<T>> {
        let Self {
            place,
            operation,
            is_sent,
            ..
        } = self;
        place.poll(waker, |handle, seats, seat| {
            if !*is_sent {
                match handle.submit(*operation, Seats::token(seat, 0)) {
                    Ok(()) => {
                        seats.sent(seat);
                        *is_sent = true;
                    }
                    Err(Refused::Error(error)) => return Poll::Ready(Err(error)),
                    Err(Refused::Full) => {
                        seats.want_room(seat);
                        return Poll::Pending;
                    }
                }
            }
            match seats.answers(seat).pop() {
                Some((_, answer)) => Poll::Ready(T::from_answer(answer, &mut Vec::new())),
                None => Poll::Pending,
            }
        })
    }
}
