//! What a server holds before the load begins.

use anyhow::Result;

use super::caller::Caller;

/// Keys that one command stores.
const AT_ONCE: u64 = 500;
/// Bytes of an element of a long record, and how many it has: a record holds at most 1 MiB.
const ELEMENT_BYTES: usize = 1000;
const ELEMENTS: u64 = 900;
/// Members of a set of tiny ones.
const TINY: u64 = 40_000;
/// Elements that one command adds.
const ADDED: u64 = 100;

/// A part of the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Data {
    /// Keys `k:N` with short values.
    Keys(u64),
    /// `count` values of `bytes` each, under `v:BYTES:N`.
    Values {
        count: u64,
        bytes: usize,
    },
    /// Hashes `h:N`, sets `s:N` and lists `l:N` of 900 elements of 1000 bytes.
    Hashes(u64),
    Sets(u64),
    Lists(u64),
    /// Sets `t:N` of 40,000 members of at most 6 bytes, a half of which the next one has too.
    TinySets(u64),
}

/// The key of a value.
pub(super) fn value_key(bytes: usize, number: u64) -> Vec<u8> {
    format!("v:{bytes}:{number}").into_bytes()
}

impl Data {
    /// Stores it.
    pub(super) fn store(self, caller: &mut Caller) -> Result<()> {
        match self {
            Self::Keys(count) => store_keys(caller, count),
            Self::Values { count, bytes } => {
                let value = vec![b'v'; bytes];
                for number in 0..count {
                    caller.expect(&[b"SET", &value_key(bytes, number), &value])?;
                }
                Ok(())
            }
            Self::Hashes(count) => of_each(count, |number| {
                let key = format!("h:{number}");
                add(caller, &[b"HSET", key.as_bytes()], ELEMENTS, |element| {
                    vec![format!("f{element}").into_bytes(), element_of(element)]
                })
            }),
            Self::Sets(count) => of_each(count, |number| {
                let key = format!("s:{number}");
                let element = |element| vec![element_of(element)];
                add(caller, &[b"SADD", key.as_bytes()], ELEMENTS, element)
            }),
            Self::Lists(count) => of_each(count, |number| {
                let key = format!("l:{number}");
                let element = |element| vec![element_of(element)];
                add(caller, &[b"RPUSH", key.as_bytes()], ELEMENTS, element)
            }),
            Self::TinySets(count) => of_each(count, |number| {
                let key = format!("t:{number}");
                let first = number * TINY / 2;
                let member = |member: u64| vec![(first + member).to_string().into_bytes()];
                add(caller, &[b"SADD", key.as_bytes()], TINY, member)
            }),
        }
    }
}

fn of_each(count: u64, store: impl FnMut(u64) -> Result<()>) -> Result<()> {
    (0..count).try_for_each(store)
}

fn element_of(number: u64) -> Vec<u8> {
    let mut element = format!("{number}:").into_bytes();
    element.resize(ELEMENT_BYTES, b'e');
    element
}

fn store_keys(caller: &mut Caller, count: u64) -> Result<()> {
    for first in (0..count).step_by(usize::try_from(AT_ONCE)?) {
        let keys = first..count.min(first + AT_ONCE);
        let keys: Vec<Vec<u8>> = keys.map(|key| format!("k:{key:07}").into_bytes()).collect();
        let mut words: Vec<&[u8]> = vec![b"MSET"];
        for key in &keys {
            words.extend([&key[..], b"v"]);
        }
        caller.expect(&words)?;
    }
    Ok(())
}

/// Adds elements to a record, some at once.
fn add(
    caller: &mut Caller,
    command: &[&[u8]],
    count: u64,
    element: impl Fn(u64) -> Vec<Vec<u8>>,
) -> Result<()> {
    let most = if count > ELEMENTS { 10 * ADDED } else { ADDED };
    for first in (0..count).step_by(usize::try_from(most)?) {
        let elements = (first..count.min(first + most)).flat_map(&element);
        let elements: Vec<Vec<u8>> = elements.collect();
        let mut words = command.to_vec();
        words.extend(elements.iter().map(Vec::as_slice));
        caller.expect(&words)?;
    }
    Ok(())
}
