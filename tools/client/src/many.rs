//! Many operations at once: batches, and those that do not fit one.

use std::sync::{Arc, Mutex, PoisonError};

use farcore_protocol::batch::{
    ANSWER_BYTES, Answers, OPERATION_BYTES, OPERATIONS_MAX, push_operation,
};
use farcore_protocol::{Header, Kind, SMALL_BYTES, SMALL_BYTES_MIN, Status};

use crate::client::{Client, check, found};
use crate::command::{Command, Reply};
use crate::error::{Error, Result};
use crate::pending::{Completer, Pending, pending};
use crate::values::{Value, Version};

/// Bytes of a batch, at most: it fits a message of any server but those with a low threshold, which
/// take it in an upload slot.
const BATCH_BYTES: usize = SMALL_BYTES;
/// Operations of a batch: their answers fit the shortest message.
const BATCH_OPERATIONS: usize = SMALL_BYTES_MIN / ANSWER_BYTES;

const _: () = assert!(BATCH_OPERATIONS <= OPERATIONS_MAX);

/// What collects the outcomes of many operations.
struct Gather<T> {
    outcomes: Vec<Option<Result<T>>>,
    left: usize,
    completer: Option<Completer<Vec<Result<T>>>>,
}

type Gathered<T> = Arc<Mutex<Gather<T>>>;

fn gather<T>(count: usize) -> (Pending<Vec<Result<T>>>, Gathered<T>) {
    let (pending, completer) = pending();
    let gather = Gather {
        outcomes: (0..count).map(|_| None).collect(),
        left: count,
        completer: Some(completer),
    };
    let gathered = Arc::new(Mutex::new(gather));
    if count == 0 {
        finish(&gathered);
    }
    (pending, gathered)
}

fn set<T>(gathered: &Gathered<T>, place: usize, outcome: Result<T>) {
    let mut gather = gathered.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(entry) = gather.outcomes.get_mut(place) else {
        return;
    };
    if entry.is_none() {
        *entry = Some(outcome);
        gather.left -= 1;
    }
    let is_done = gather.left == 0;
    drop(gather);
    if is_done {
        finish(gathered);
    }
}

fn finish<T>(gathered: &Gathered<T>) {
    let mut gather = gathered.lock().unwrap_or_else(PoisonError::into_inner);
    let outcomes = std::mem::take(&mut gather.outcomes);
    let completer = gather.completer.take();
    drop(gather);
    if let Some(completer) = completer {
        let closed = |outcome: Option<Result<T>>| outcome.unwrap_or(Err(Error::Closed));
        completer.complete(Ok(outcomes.into_iter().map(closed).collect()));
    }
}

/// The places of operations, in groups that fit a batch.
fn groups(bytes: impl Iterator<Item = (usize, usize)>) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut filled = usize::MAX;
    for (place, bytes) in bytes {
        let bytes = OPERATION_BYTES + bytes;
        match groups.last_mut() {
            Some(group) if group.len() < BATCH_OPERATIONS && filled + bytes <= BATCH_BYTES => {
                group.push(place);
                filled += bytes;
            }
            _ => {
                groups.push(vec![place]);
                filled = bytes;
            }
        }
    }
    groups
}

/// How a batch's answer becomes an outcome: its place, status, version and value. Values that did
/// not fit give commands that read them.
type Take = dyn FnMut(usize, (Status, u64, Option<&[u8]>), &mut Vec<Command>) + Send;

/// Sends a batch of the operations at some places.
fn send<T: Send + 'static>(
    client: &Client,
    gathered: &Gathered<T>,
    (places, body, is_repeatable): (Vec<usize>, Vec<u8>, bool),
    mut take: Box<Take>,
) {
    let gathered = Arc::clone(gathered);
    let done = move |reply: Result<Reply>, more: &mut Vec<Command>| match reply {
        Ok(reply) => {
            let mut missing = places.clone();
            for answer in Answers::of(&reply.value).flatten() {
                if let Some(&place) = places.get(usize::from(answer.place)) {
                    missing.retain(|other| *other != place);
                    take(place, (answer.status, answer.version, answer.value), more);
                }
            }
            for place in missing {
                let error = Error::Server {
                    operation: "batch",
                    status: Status::Protocol,
                    reason: "the server did not answer all of it".to_owned(),
                };
                set(&gathered, place, Err(error));
            }
        }
        Err(error) => {
            for &place in &places {
                set(&gathered, place, Err(error.clone()));
            }
        }
    };
    client.send(Command {
        header: Header::new(Kind::Batch, 0),
        key: Vec::new(),
        value: body,
        found: Vec::new(),
        total: 0,
        deadline: client.deadline(),
        not_before: None,
        is_repeatable,
        done: Box::new(done),
    });
}

fn server(operation: &'static str, status: Status) -> Error {
    Error::Server {
        operation,
        status,
        reason: status.to_string(),
    }
}

/// Reads many values.
pub(crate) fn get(client: &Client, keys: &[&[u8]]) -> Pending<Vec<Result<Option<Value>>>> {
    let (pending, gathered) = gather(keys.len());
    let mut valid = Vec::new();
    for (place, key) in keys.iter().enumerate() {
        match check(key, &[]) {
            Ok(()) => valid.push((place, key.len())),
            Err(error) => set(&gathered, place, Err(error)),
        }
    }
    for places in groups(valid.into_iter()) {
        let mut body = Vec::new();
        for &place in &places {
            push_operation(&mut body, &Header::new(Kind::Get, 0), keys[place], &[]);
        }
        let copies: Vec<Vec<u8>> = places.iter().map(|&place| keys[place].to_vec()).collect();
        let (of, known, deadline) = (places.clone(), Arc::clone(&gathered), client.deadline());
        let take = move |place: usize,
                         (status, version, value): (Status, u64, Option<&[u8]>),
                         more: &mut Vec<Command>| {
            let outcome = match (status, value) {
                (Status::Ok, Some(value)) => Ok(Some(Value {
                    bytes: value.to_vec(),
                    version,
                })),
                (Status::Ok, None) => {
                    let at = of.iter().position(|other| *other == place).unwrap_or(0);
                    more.push(alone(&known, place, copies[at].clone(), deadline));
                    return;
                }
                (Status::NotFound, _) => Ok(None),
                (status, _) => Err(server("get", status)),
            };
            set(&known, place, outcome);
        };
        send(client, &gathered, (places, body, true), Box::new(take));
    }
    pending
}

/// The get of a value that did not fit its batch.
fn alone(
    gathered: &Gathered<Option<Value>>,
    place: usize,
    key: Vec<u8>,
    deadline: std::time::Instant,
) -> Command {
    let gathered = Arc::clone(gathered);
    Command {
        header: Header::new(Kind::Get, 0),
        key,
        value: Vec::new(),
        found: Vec::new(),
        total: 0,
        deadline,
        not_before: None,
        is_repeatable: true,
        done: Box::new(move |reply, _| set(&gathered, place, reply.map(found))),
    }
}

/// Stores many values.
pub(crate) fn put(client: &Client, pairs: &[(&[u8], &[u8])]) -> Pending<Vec<Result<Version>>> {
    let (pending, gathered) = gather(pairs.len());
    let mut short = Vec::new();
    for (place, (key, value)) in pairs.iter().enumerate() {
        let bytes = key.len() + value.len();
        match check(key, value) {
            Err(error) => set(&gathered, place, Err(error)),
            Ok(()) if OPERATION_BYTES + bytes <= BATCH_BYTES => short.push((place, bytes)),
            Ok(()) => {
                let known = Arc::clone(&gathered);
                let done = move |reply: Result<Reply>, _: &mut Vec<Command>| {
                    set(&known, place, reply.map(|reply| reply.header.version));
                };
                client.send(Command {
                    header: Header::new(Kind::Put, 0),
                    key: key.to_vec(),
                    value: value.to_vec(),
                    found: Vec::new(),
                    total: 0,
                    deadline: client.deadline(),
                    not_before: None,
                    is_repeatable: false,
                    done: Box::new(done),
                });
            }
        }
    }
    for places in groups(short.into_iter()) {
        let mut body = Vec::new();
        for &place in &places {
            let (key, value) = pairs[place];
            push_operation(&mut body, &Header::new(Kind::Put, 0), key, value);
        }
        let known = Arc::clone(&gathered);
        let take = move |place: usize,
                         (status, version, _): (Status, u64, Option<&[u8]>),
                         _: &mut Vec<Command>| {
            let outcome = match status {
                Status::Ok => Ok(version),
                status => Err(server("put", status)),
            };
            set(&known, place, outcome);
        };
        send(client, &gathered, (places, body, false), Box::new(take));
    }
    pending
}

/// Removes many keys.
pub(crate) fn delete(client: &Client, keys: &[&[u8]]) -> Pending<Vec<Result<bool>>> {
    let (pending, gathered) = gather(keys.len());
    let mut valid = Vec::new();
    for (place, key) in keys.iter().enumerate() {
        match check(key, &[]) {
            Ok(()) => valid.push((place, key.len())),
            Err(error) => set(&gathered, place, Err(error)),
        }
    }
    for places in groups(valid.into_iter()) {
        let mut body = Vec::new();
        for &place in &places {
            push_operation(&mut body, &Header::new(Kind::Delete, 0), keys[place], &[]);
        }
        let known = Arc::clone(&gathered);
        let take = move |place: usize,
                         (status, _, _): (Status, u64, Option<&[u8]>),
                         _: &mut Vec<Command>| {
            let outcome = match status {
                Status::Ok => Ok(true),
                Status::NotFound => Ok(false),
                status => Err(server("delete", status)),
            };
            set(&known, place, outcome);
        };
        send(client, &gathered, (places, body, false), Box::new(take));
    }
    pending
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_keep_the_order_and_fit() {
        let sizes: Vec<usize> = (0..500).map(|place| place * 37 % 3000).collect();
        let groups = groups(sizes.iter().copied().enumerate());
        let flat: Vec<usize> = groups.iter().flatten().copied().collect();
        assert_eq!(flat, (0..500).collect::<Vec<_>>());
        for group in &groups {
            let bytes: usize = group
                .iter()
                .map(|&place| OPERATION_BYTES + sizes[place])
                .sum();
            assert!(bytes <= BATCH_BYTES && group.len() <= BATCH_OPERATIONS);
        }
        assert!(groups.len() < 300);
    }

    #[test]
    fn outcomes_come_once_all_are_there() {
        let (pending, gathered) = gather(2);
        set(&gathered, 1, Ok(1));
        set(&gathered, 1, Ok(9));
        let pending = pending
            .wait_for(std::time::Duration::ZERO)
            .expect_err("one is missing");
        set(&gathered, 0, Err(Error::Closed));
        assert_eq!(pending.wait(), Ok(vec![Err(Error::Closed), Ok(1)]));
        assert_eq!(gather::<u8>(0).0.wait(), Ok(Vec::new()));
    }
}
