//! Many operations of one caller at once, and requests about shards that follow from each other.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::client_call::Place;
use super::seats::Seats;
use crate::client::refused::Refused;
use crate::client::shard_requests::ShardRequests;
use crate::error::{Error, Result};
use crate::message::operation::Operation;
use crate::message::outcome::{Answer, OwnedAnswer};
use crate::reactor::block_on;

/// Operations of a batch that are drawn at once.
const DRAWN: usize = 256;

/// The answers to many operations, by their place.
#[derive(Debug)]
pub struct Answers(Vec<OwnedAnswer>);

impl Answers {
    /// The answer to the operation at this place.
    ///
    /// # Panics
    /// If there was no such operation.
    #[must_use]
    pub fn at(&self, place: usize) -> Answer<'_> {
        self.0[place].answer()
    }

    /// All answers, in the order of their operations.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Answer<'_>> {
        self.0.iter().map(OwnedAnswer::answer)
    }

    /// The number of operations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there was no operation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Many operations at once: await it on any runtime, or block with [`BatchCall::wait`]. Operations
/// on one key are carried out in their order, others in any. Dropping it leaves those that were
/// sent to be carried out.
#[must_use = "it does nothing until it is waited for or awaited"]
pub struct BatchCall<'c, 'k, I> {
    place: Place<'c>,
    operations: I,
    /// Operations to be sent, drawn before the call enters its station: the iterator is the
    /// caller's code.
    drawn: VecDeque<Operation<'k>>,
    /// The iterator may have more.
    has_more: bool,
    sent: u32,
    received: u32,
    answers: Vec<Option<OwnedAnswer>>,
    failed: Option<Error>,
}

impl<I> fmt::Debug for BatchCall<'_, '_, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchCall")
            .field("sent", &self.sent)
            .field("received", &self.received)
            .finish_non_exhaustive()
    }
}

impl<'c, 'k, I: Iterator<Item = Operation<'k>> + Unpin> BatchCall<'c, 'k, I> {
    pub(super) fn new(place: Place<'c>, operations: I) -> Self {
        Self {
            place,
            operations,
            drawn: VecDeque::new(),
            has_more: true,
            sent: 0,
            received: 0,
            answers: Vec::new(),
            failed: None,
        }
    }

    /// Blocks until all are answered.
    ///
    /// # Errors
    /// A caller's mistake stops it at that operation; the operations before it are carried out.
    pub fn wait(self) -> Result<Answers> {
        block_on(self)
    }
}

impl<'k, I: Iterator<Item = Operation<'k>> + Unpin> BatchCall<'_, 'k, I> {
    /// Draws the next operations, if those before are sent.
    fn draw(&mut self) {
        while self.has_more && self.drawn.len() < DRAWN {
            match self.operations.next() {
                Some(operation) => self.drawn.push_back(operation),
                None => self.has_more = false,
            }
        }
    }

    /// Sends what is drawn and takes what has come.
    fn look(&mut self, waker: &Waker) -> Poll<Result<()>> {
        let Self {
            place,
            drawn,
            has_more,
            sent,
            received,
            answers,
            failed,
            ..
        } = self;
        place.poll(Some(waker), |handle, seats, seat| {
            for (place, answer) in seats.answers(seat).drain(..) {
                *received += 1;
                answers[place as usize] = Some(answer);
            }
            while let Some(operation) = drawn.front() {
                match handle.submit(*operation, Seats::token(seat, *sent)) {
                    Ok(()) => {
                        seats.sent(seat);
                        *sent += 1;
                        answers.push(None);
                        drawn.pop_front();
                    }
                    Err(Refused::Error(error)) => {
                        *failed = Some(error);
                        *has_more = false;
                        drawn.clear();
                    }
                    Err(Refused::Full) => {
                        seats.want_room(seat);
                        break;
                    }
                }
            }
            if *has_more || !drawn.is_empty() || received < sent {
                return Poll::Pending;
            }
            Poll::Ready(Ok(()))
        })
    }
}

impl<'k, I: Iterator<Item = Operation<'k>> + Unpin> Future for BatchCall<'_, 'k, I> {
    type Output = Result<Answers>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let call = &mut *self;
        loop {
            call.draw();
            match call.look(context.waker()) {
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) => break,
                // There was room for all that was drawn.
                Poll::Pending if call.has_more && call.drawn.is_empty() => {}
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(match call.failed.take() {
            Some(error) => Err(error),
            None => Ok(Answers(call.answers.drain(..).flatten().collect())),
        })
    }
}

/// Runs requests about shards to their end.
pub(super) struct ShardCall<'c, 'r, R> {
    place: Place<'c>,
    requests: &'r mut R,
}

impl<'c, 'r, R: ShardRequests> ShardCall<'c, 'r, R> {
    pub(super) fn new(place: Place<'c>, requests: &'r mut R) -> Self {
        Self { place, requests }
    }
}

impl<R: ShardRequests> Future for ShardCall<'_, '_, R> {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { place, requests } = &mut *self;
        place.poll(Some(context.waker()), |handle, seats, seat| {
            while let Some((place, answer)) = seats.answers(seat).pop() {
                requests.take(place, answer.answer());
            }
            while let Some(sent) = requests.next(|shard, hash, place, parts| {
                let sent = handle.submit_to(shard, hash, Seats::token(seat, place), parts);
                // At once: what follows may be the caller's code.
                if sent.is_ok() {
                    seats.sent(seat);
                }
                (sent.is_ok(), sent)
            }) {
                match sent {
                    Ok(()) => {}
                    Err(Refused::Error(error)) => return Poll::Ready(Err(error)),
                    Err(Refused::Full) => {
                        seats.want_room(seat);
                        break;
                    }
                }
            }
            if requests.is_done() {
                return Poll::Ready(Ok(()));
            }
            Poll::Pending
        })
    }
}
