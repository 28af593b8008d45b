//! Drives the clients: on handles and on a core, in every form of call.

use std::sync::mpsc::Sender;
use std::thread;

use farcore::{Answer, Core, Error, Handle, Refused, Transaction};

use crate::call::{Call, Content, Given, SHARED, key_of};
use crate::client::{COUNTERS, Client, KEYS};

/// Requests that a client has in flight.
const WINDOW: usize = 32;
/// Attempts of a call when requests fail at random.
const TRIES: usize = 50;
/// Rounds in which the main thread flushes and compacts.
pub(crate) const ROUNDS: u64 = 6;

pub(crate) fn poll(client: &mut Client, handle: &mut Handle) {
    let mut answers = Vec::new();
    let visited = handle.poll(|token, answer| answers.push((token, Given::of(&answer))));
    assert_eq!(
        visited,
        answers.len(),
        "{} step {}",
        client.name,
        client.step
    );
    if answers.is_empty() {
        thread::yield_now();
    }
    for (token, given) in answers {
        client.end(token, given);
    }
}

pub(crate) fn submit(client: &mut Client, handle: &mut Handle, key: u16, call: Call) {
    while handle.in_flight() >= WINDOW {
        poll(client, handle);
    }
    let (name, value) = (client.key(key), call.value());
    let transaction = call.transaction(&name, &value);
    let token = client.begin(key, call);
    loop {
        match handle.submit(call.operation(&name, &value, &transaction), token) {
            Ok(()) => return,
            Err(Refused::Full) => poll(client, handle),
            Err(Refused::Error(error)) => {
                panic!("{} step {}: {error}", client.name, client.step)
            }
        }
    }
}

pub(crate) fn wait(client: &mut Client, handle: &mut Handle, key: u16, call: Call) {
    let (name, value) = (client.key(key), call.value());
    let token = client.begin(key, call);
    let given = match call {
        Call::Get => handle.get(&name).wait().map(|read| {
            read.map_or(Given::Absent, |read| {
                Given::Value(read.version(), read.to_vec())
            })
        }),
        Call::Put(_) => handle.put(&name, &value).wait().map(Given::Stored),
        Call::Delete => handle.delete(&name).wait().map(Given::deleted),
        Call::Swap(expected, _) => handle
            .compare_and_swap(&name, expected, &value)
            .wait()
            .map(Given::swapped),
        Call::Transact(..) => {
            let transaction = call.transaction(&name, &value);
            let outcome = handle.transaction(&transaction).wait();
            outcome.map(Given::transacted)
        }
    };
    client.end(token, given.unwrap_or_else(Given::Failed));
}

pub(crate) fn batch(client: &mut Client, handle: &mut Handle) {
    let keys = client.any_keys();
    let form = client.random.below(10);
    let calls: Vec<_> = keys
        .iter()
        .map(|&key| match form {
            0..4 => Call::Get,
            4..7 => Call::Put(Content::random(&mut client.random)),
            7 => Call::Delete,
            _ => client.any_call(key),
        })
        .collect();
    let names: Vec<_> = keys.iter().map(|&key| client.key(key)).collect();
    let values: Vec<_> = calls.iter().map(|call| call.value()).collect();
    let names: Vec<_> = names.iter().map(|name| &name[..]).collect();
    let tokens: Vec<_> = keys
        .iter()
        .zip(&calls)
        .map(|(&key, &call)| client.begin(key, call))
        .collect();
    let mut answers = Vec::new();
    let visit =
        |place: usize, answer: Answer<'_>| answers.push((tokens[place], Given::of(&answer)));
    let done = match form {
        0..4 => handle.get_many(&names, visit),
        4..7 => {
            let pairs: Vec<_> = names
                .iter()
                .zip(&values)
                .map(|(&name, value)| (name, &value[..]))
                .collect();
            handle.put_many(&pairs, visit)
        }
        7 => handle.delete_many(&names, visit),
        _ => {
            let transaction = |place: usize| calls[place].transaction(names[place], &values[place]);
            let transactions: Vec<_> = (0..keys.len()).map(transaction).collect();
            let operations = (0..keys.len()).map(|place| {
                calls[place].operation(names[place], &values[place], &transactions[place])
            });
            handle.many(operations, visit)
        }
    };
    assert!(
        done.is_ok() && answers.len() == keys.len(),
        "{} step {}: {done:?}, {} of {}",
        client.name,
        client.step,
        answers.len(),
        keys.len()
    );
    for (token, given) in answers {
        client.end(token, given);
    }
}

pub(crate) fn count(client: &mut Client, handle: &mut Handle) {
    let counter = client.random.below(COUNTERS as u64) as usize;
    let name = key_of(SHARED, counter as u16);
    let read = handle.get(&name).wait();
    let Some(read) = client.readable(counter, read) else {
        return;
    };
    let read = read.map(|read| (read.version(), read.to_vec()));
    let read = read.as_ref().map(|(version, bytes)| (*version, &bytes[..]));
    let (expected, value, _) = client.count_after(read, counter);
    let swap = handle.compare_and_swap(&name, expected, &value).wait();
    client.counted(counter, expected, swap);
}

/// Counts on two counters in one transaction.
pub(crate) fn count_both(client: &mut Client, handle: &mut Handle) {
    let first = client.random.below(COUNTERS as u64) as usize;
    let counters = [first, (first + 1) % COUNTERS];
    let names = counters.map(|counter| key_of(SHARED, counter as u16));
    let mut next = Vec::new();
    for (&counter, name) in counters.iter().zip(&names) {
        let Some(read) = client.readable(counter, handle.get(name).wait()) else {
            return;
        };
        let read = read.as_ref().map(|read| (read.version(), &read[..]));
        next.push(client.count_after(read, counter));
    }
    let transaction = Transaction::new()
        .expect(&names[0], next[0].0)
        .put(&names[0], &next[0].1)
        .expect(&names[1], next[1].0)
        .put(&names[1], &next[1].1);
    let outcome = handle.transaction(&transaction).wait();
    client.counted_both(counters, [next[0].0, next[1].0], outcome);
}

pub(crate) fn drive_handle(
    mut client: Client,
    mut handle: Handle,
    steps: u64,
    progress: &Sender<()>,
) -> Client {
    for step in 0..steps {
        client.step = step;
        if step % (steps / ROUNDS) == 0 {
            // The main thread does not receive any more after its rounds.
            let _ = progress.send(());
        }
        let key = client.any_key();
        match client.random.below(100) {
            0..3 => batch(&mut client, &mut handle),
            3..8 => {
                let call = client.any_call(key);
                wait(&mut client, &mut handle, key, call);
            }
            8 if step % 2 == 0 => count_both(&mut client, &mut handle),
            8 => count(&mut client, &mut handle),
            9..11 => {
                for (key, call) in client.burst() {
                    submit(&mut client, &mut handle, key, call);
                }
            }
            _ => {
                let call = client.any_call(key);
                submit(&mut client, &mut handle, key, call);
            }
        }
    }
    while handle.in_flight() > 0 {
        poll(&mut client, &mut handle);
    }
    client.finish();
    client
}

/// Polls a core client. A panic in a visitor aborts the process, so answers are collected first and
/// checked afterwards.
pub(crate) async fn poll_core(client: &mut Client, core: &mut Core) {
    let mut answers = Vec::new();
    core.poll(|token, answer| answers.push((token, Given::of(&answer))));
    if answers.is_empty() {
        core.yield_now().await;
    }
    for (token, given) in answers {
        client.end(token, given);
    }
}

pub(crate) async fn submit_core(client: &mut Client, core: &mut Core, key: u16, call: Call) {
    while core.in_flight() >= WINDOW {
        poll_core(client, core).await;
    }
    let (name, value) = (client.key(key), call.value());
    let transaction = call.transaction(&name, &value);
    let token = client.begin(key, call);
    loop {
        match core.submit(call.operation(&name, &value, &transaction), token) {
            Ok(()) => return,
            Err(Refused::Full) => poll_core(client, core).await,
            Err(Refused::Error(error)) => {
                panic!("{} step {}: {error}", client.name, client.step)
            }
        }
    }
}

pub(crate) async fn await_core(client: &mut Client, core: &mut Core, key: u16, call: Call) {
    let (name, value) = (client.key(key), call.value());
    let token = client.begin(key, call);
    let given = match call {
        Call::Get => core.get(&name).await.map(|read| {
            read.map_or(Given::Absent, |value| {
                Given::Value(value.version(), value.to_vec())
            })
        }),
        Call::Put(_) => core.put(&name, &value).await.map(Given::Stored),
        Call::Delete => core.delete(&name).await.map(Given::deleted),
        Call::Swap(expected, _) => core
            .compare_and_swap(&name, expected, &value)
            .await
            .map(Given::swapped),
        Call::Transact(..) => {
            let transaction = call.transaction(&name, &value);
            let outcome = core.transaction(&transaction).await;
            outcome.map(Given::transacted)
        }
    };
    client.end(token, given.unwrap_or_else(Given::Failed));
}

pub(crate) async fn count_core(client: &mut Client, core: &mut Core) {
    let counter = client.random.below(COUNTERS as u64) as usize;
    let name = key_of(SHARED, counter as u16);
    let read = core.get(&name).await;
    let Some(read) = client.readable(counter, read) else {
        return;
    };
    let read = read.as_ref().map(|value| (value.version(), &value[..]));
    let (expected, value, _) = client.count_after(read, counter);
    let swap = core.compare_and_swap(&name, expected, &value).await;
    client.counted(counter, expected, swap);
}

pub(crate) async fn drive_core(
    mut client: Client,
    mut core: Core,
    steps: u64,
    progress: Sender<()>,
) -> Client {
    for step in 0..steps {
        client.step = step;
        if step % (steps / ROUNDS) == 0 {
            let _ = progress.send(());
        }
        let key = client.any_key();
        match client.random.below(100) {
            0..5 => {
                let call = client.any_call(key);
                await_core(&mut client, &mut core, key, call).await;
            }
            5 => count_core(&mut client, &mut core).await,
            6 => core.yield_now().await,
            7..9 => {
                for (key, call) in client.burst() {
                    submit_core(&mut client, &mut core, key, call).await;
                }
            }
            _ => {
                let call = client.any_call(key);
                submit_core(&mut client, &mut core, key, call).await;
            }
        }
    }
    while core.in_flight() > 0 {
        poll_core(&mut client, &mut core).await;
    }
    client.finish();
    client
}

/// Every key of a client is as its model says.
pub(crate) fn read_back(client: &Client, handle: &mut Handle, when: &str) {
    let mut left: Vec<u16> = (0..KEYS).collect();
    for _ in 0..TRIES {
        let names: Vec<_> = left.iter().map(|&key| client.key(key)).collect();
        let names: Vec<_> = names.iter().map(|name| &name[..]).collect();
        let mut failed = Vec::new();
        let done = handle.get_many(&names, |place, answer| {
            let key = left[place];
            let state = client.truth.get(&key).copied();
            let right = match &answer {
                Answer::Value { version, value } => state.is_some_and(|(known, content)| {
                    known == *version && content.bytes == value.len() && content.make() == *value
                }),
                Answer::Absent => state.is_none(),
                Answer::Failed(Error::Unavailable { .. }) => {
                    failed.push(key);
                    client.faulty
                }
                _ => false,
            };
            assert!(
                right,
                "{} step {} ({when}): key {key} reads {}, but its state is {state:?}",
                client.name,
                client.step,
                Given::of(&answer).short()
            );
        });
        assert!(
            done.is_ok(),
            "{} step {} ({when}): {done:?}",
            client.name,
            client.step
        );
        left = failed;
        if left.is_empty() {
            return;
        }
    }
    panic!(
        "{} step {} ({when}): {} keys are not readable",
        client.name,
        client.step,
        left.len()
    );
}

pub(crate) fn read_counters(clients: &[Client], handle: &mut Handle) {
    let first = &clients[0];
    for counter in 0..COUNTERS {
        let sum: u64 = clients.iter().map(|client| client.counted[counter]).sum();
        let name = key_of(SHARED, counter as u16);
        let read = (0..TRIES).find_map(|_| {
            first.readable(
                counter,
                handle
                    .get(&name)
                    .wait()
                    .map(|read| read.map(|read| read.to_vec())),
            )
        });
        let count = read
            .flatten()
            .map_or(0, |bytes| first.count_after(Some((0, &bytes)), counter).2);
        assert_eq!(
            count, sum,
            "{} step {}: counter {counter}",
            first.name, first.step
        );
    }
}
