//! Each operation once: what is sent, and how its reply becomes an outcome.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use farcore_client::{
    CasOutcome, Client, Condition, Expiry, ExpiryCondition, Pending, PutOptions, PutOutcome,
    Result, Value, Version,
};

use crate::batch::Batch;
use crate::error::{Code, Failure};
use crate::outcome::{Outcome, Returned};

/// An operation under way, whatever it returns.
pub(crate) trait Running: Send {
    /// Its outcome if it has ended. Does not wait.
    fn poll(&mut self) -> Option<Outcome>;

    /// Its outcome; `None` if it has not ended within a limit.
    fn wait(&mut self, limit: Option<Duration>) -> Option<Outcome>;
}

/// A request of the native client, and how its reply becomes an outcome.
#[derive(Debug)]
pub(crate) struct Request<T, F> {
    /// `None` once it has ended.
    pending: Option<Pending<T>>,
    finish: F,
}

impl<T, F: Fn(T) -> Outcome> Request<T, F> {
    fn new(pending: Pending<T>, finish: F) -> Self {
        Self {
            pending: Some(pending),
            finish,
        }
    }

    fn ended(&self, reply: Result<T>) -> Outcome {
        match reply {
            Ok(reply) => (self.finish)(reply),
            Err(error) => Outcome::failed(error.into()),
        }
    }

    /// Waits for the outcome. The client's time limit bounds that.
    pub(crate) fn outcome(mut self) -> Outcome {
        match self.pending.take() {
            Some(pending) => self.ended(pending.wait()),
            None => lost(),
        }
    }
}

/// The outcome of a request whose own one was lost, which only a panic causes.
fn lost() -> Outcome {
    Outcome::failed(Failure::new(
        Code::Panicked,
        c"a fault of this library, which is to be reported: an outcome was lost",
    ))
}

impl<T: Send, F: Fn(T) -> Outcome + Send> Running for Request<T, F> {
    fn poll(&mut self) -> Option<Outcome> {
        let Some(pending) = &mut self.pending else {
            return Some(lost());
        };
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(reply) = Pin::new(pending).poll(&mut context) else {
            return None;
        };
        self.pending = None;
        Some(self.ended(reply))
    }

    fn wait(&mut self, limit: Option<Duration>) -> Option<Outcome> {
        let Some(pending) = self.pending.take() else {
            return Some(lost());
        };
        let Some(limit) = limit else {
            return Some(self.ended(pending.wait()));
        };
        match pending.wait_for(limit) {
            Ok(reply) => Some(self.ended(reply)),
            Err(pending) => {
                self.pending = Some(pending);
                None
            }
        }
    }
}

fn mismatch(current: Version, expected: Version) -> Outcome {
    let failure = Failure::with(
        Code::VersionMismatch,
        format!("the key has version {current}, not {expected}: read it again"),
    );
    Outcome::failed(failure).with_version(current)
}

fn done_if(holds: bool) -> Outcome {
    if holds {
        return Outcome::done();
    }
    Outcome::failed(Failure::not_found())
}

type Request1<T> = Request<T, fn(T) -> Outcome>;

pub(crate) fn get(client: &Client, key: &[u8]) -> Request1<Option<Value>> {
    Request::new(client.get(key), |found| match found {
        Some(Value { bytes, version }) => {
            Outcome::returned(Returned::Value(bytes)).with_version(version)
        }
        None => Outcome::failed(Failure::not_found()),
    })
}

pub(crate) fn put(client: &Client, key: &[u8], value: &[u8]) -> Request1<Version> {
    Request::new(client.put(key, value), |version| {
        Outcome::done().with_version(version)
    })
}

pub(crate) fn put_with(
    client: &Client,
    key: &[u8],
    value: &[u8],
    options: PutOptions,
) -> Request<PutOutcome, impl Fn(PutOutcome) -> Outcome + use<>> {
    let pending = client.put_with(key, value, options);
    Request::new(pending, move |outcome| match outcome {
        PutOutcome::Stored(version) => Outcome::done().with_version(version),
        PutOutcome::Unmet(current) => match options.condition {
            Condition::Absent => {
                let failure = Failure::new(Code::Exists, c"the key exists, and had to be absent");
                Outcome::failed(failure).with_version(current)
            }
            Condition::Version(expected) => mismatch(current, expected),
            Condition::Present | Condition::Always => {
                Outcome::failed(Failure::not_found()).with_version(current)
            }
        },
    })
}

pub(crate) fn delete(client: &Client, key: &[u8]) -> Request1<bool> {
    Request::new(client.delete(key), done_if)
}

pub(crate) fn delete_if(
    client: &Client,
    key: &[u8],
    expected: Version,
) -> Request<PutOutcome, impl Fn(PutOutcome) -> Outcome + use<>> {
    let pending = client.delete_if(key, expected);
    Request::new(pending, move |outcome| match outcome {
        PutOutcome::Stored(_) => Outcome::done().with_version(0),
        PutOutcome::Unmet(0) => Outcome::failed(Failure::not_found()).with_version(0),
        PutOutcome::Unmet(current) => mismatch(current, expected),
    })
}

pub(crate) fn compare_and_swap(
    client: &Client,
    key: &[u8],
    value: &[u8],
    expected: Version,
) -> Request<CasOutcome, impl Fn(CasOutcome) -> Outcome + use<>> {
    let pending = client.compare_and_swap(key, value, expected);
    Request::new(pending, move |outcome| match outcome {
        CasOutcome::Stored(version) => Outcome::done().with_version(version),
        CasOutcome::Mismatch(current) => mismatch(current, expected),
    })
}

pub(crate) fn increment(client: &Client, key: &[u8], by: i64) -> Request1<i64> {
    Request::new(client.increment(key, by), |sum| {
        Outcome::returned(Returned::Sum(sum))
    })
}

pub(crate) fn expire(
    client: &Client,
    key: &[u8],
    expiry: Expiry,
    condition: ExpiryCondition,
) -> Request<bool, impl Fn(bool) -> Outcome + use<>> {
    let pending = client.expire_if(key, expiry, condition);
    Request::new(pending, move |is_set| {
        if is_set || condition == ExpiryCondition::Always {
            return done_if(is_set);
        }
        Outcome::failed(Failure::new(
            Code::NotFound,
            c"there is no such key, or its expiry does not meet the condition",
        ))
    })
}

pub(crate) fn inspect(client: &Client, key: &[u8]) -> Request1<Option<farcore_client::Metadata>> {
    Request::new(client.inspect(key), |found| match found {
        Some(found) => {
            Outcome::returned(Returned::Metadata(found.into())).with_version(found.version)
        }
        None => Outcome::failed(Failure::not_found()),
    })
}

pub(crate) fn exists(client: &Client, key: &[u8]) -> Request1<bool> {
    Request::new(client.exists(key), done_if)
}

pub(crate) fn ping(client: &Client) -> Request1<()> {
    Request::new(client.ping(), |()| Outcome::done())
}

fn batch<T>(outcomes: Vec<Result<T>>, finish: fn(T) -> Outcome) -> Outcome {
    let outcomes = outcomes.into_iter().map(|outcome| match outcome {
        Ok(reply) => finish(reply),
        Err(error) => Outcome::failed(error.into()),
    });
    Outcome::returned(Returned::Batch(Batch::new(outcomes)))
}

pub(crate) fn get_many(client: &Client, keys: &[&[u8]]) -> Request1<Vec<Result<Option<Value>>>> {
    Request::new(client.get_many(keys), |outcomes| {
        batch(outcomes, |found| match found {
            Some(Value { bytes, version }) => {
                Outcome::returned(Returned::Value(bytes)).with_version(version)
            }
            None => Outcome::failed(Failure::not_found()),
        })
    })
}

pub(crate) fn put_many(
    client: &Client,
    pairs: &[(&[u8], &[u8])],
) -> Request1<Vec<Result<Version>>> {
    Request::new(client.put_many(pairs), |outcomes| {
        batch(outcomes, |version| Outcome::done().with_version(version))
    })
}

pub(crate) fn delete_many(client: &Client, keys: &[&[u8]]) -> Request1<Vec<Result<bool>>> {
    Request::new(client.delete_many(keys), |outcomes| {
        batch(outcomes, done_if)
    })
}
