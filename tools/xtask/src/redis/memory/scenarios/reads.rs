//! Values that are requested, and not read or read slowly.

use super::Protocol::{Resp2, Resp3, Tls};
use super::{List, Scenario};
use crate::redis::memory::crowd::{Crowd, Turn, always};
use crate::redis::memory::data::{Data, value_key};
use crate::redis::memory::words::command;

/// Bytes of a value: a record, a long value, and a short one.
const VALUE_BYTES: usize = 1_000_000;
const LONG_BYTES: usize = 3_000_000;
const SHORT_BYTES: usize = 100;
/// How many of each there are.
const VALUES: u64 = 40;
const LONGS: u64 = 10;
/// Short values that are read before 3000 long ones, by each connection.
const SHORT_FIRST: u64 = 20_000;
const LONG_THEN: u64 = 3000;
/// Commands of a turn.
const AT_ONCE: u64 = 16;

/// Reads values without end, one after the other.
fn gets(bytes: usize, count: u64) -> impl Fn(Turn, &mut Vec<u8>) + Send + Sync {
    move |turn, out| {
        for number in 0..AT_ONCE {
            let number = turn.who + turn.number * AT_ONCE + number;
            command(out, &[b"GET", &value_key(bytes, number % count)]);
        }
    }
}

/// Reads ten values at once, without end.
fn mget(_: Turn, out: &mut Vec<u8>) {
    let keys: Vec<Vec<u8>> = (0..10).map(|key| value_key(VALUE_BYTES, key)).collect();
    let mut words: Vec<&[u8]> = vec![b"MGET"];
    words.extend(keys.iter().map(Vec::as_slice));
    command(out, &words);
}

/// Reads 20,000 short values first, so that replies are in order, and then 3000 long ones.
fn short_then_long(turn: Turn, out: &mut Vec<u8>) {
    let first = turn.number * AT_ONCE;
    for number in first..first + AT_ONCE {
        if number < SHORT_FIRST {
            command(out, &[b"GET", &value_key(SHORT_BYTES, number % 1000)]);
        } else if number < SHORT_FIRST + LONG_THEN {
            command(out, &[b"GET", &value_key(VALUE_BYTES, number % VALUES)]);
        }
    }
}

/// Replaces or removes what it has stored, and gets what was there.
fn change(words: &'static [&'static [u8]]) -> impl Fn(Turn, &mut Vec<u8>) + Send + Sync {
    let value = vec![b'g'; 300_000];
    move |turn, out| {
        let key = format!("g:{}", turn.who);
        let mut all: Vec<&[u8]> = vec![words[0], key.as_bytes()];
        if words[0] == b"GETDEL" {
            command(out, &[b"SET", key.as_bytes(), &value]);
        } else {
            all.push(&value);
        }
        command(out, &all);
    }
}

fn values(one: Scenario) -> Scenario {
    one.data(Data::Values {
        count: VALUES,
        bytes: VALUE_BYTES,
    })
}

fn longs(one: Scenario) -> Scenario {
    one.data(Data::Values {
        count: LONGS,
        bytes: LONG_BYTES,
    })
}

fn add_gets(list: &mut List) {
    let get = || gets(VALUE_BYTES, VALUES);
    list.add("get-1-unread", &[Resp2], |one| {
        values(one).crowd(Crowd::deaf(1, get()))
    });
    list.add("get-100-unread", &[Resp2, Resp3, Tls], |one| {
        let is_tls = one.protocol == Tls;
        let one = values(one).crowd(Crowd::deaf(100, get()));
        if is_tls { one.of_tenth() } else { one }
    });
    list.add("get-600-unread", &[Resp2], |one| {
        values(one).crowd(Crowd::deaf(600, get()))
    });
    list.add("get-600-unread-2-cores", &[Resp2], |one| {
        values(one).on_two_cores().crowd(Crowd::deaf(600, get()))
    });
    list.add("get-100-byte-a-second", &[Resp2], |one| {
        values(one).crowd(Crowd::deaf(100, get()).slowly(1))
    });
    list.add("get-100-read", &[Resp2], |one| {
        values(one).crowd(Crowd::heedful(100, get()))
    });
    list.add("get-100-killed", &[Resp2, Tls], |one| {
        values(one).crowd(Crowd::deaf(100, get()).killed())
    });
    list.add("get-long-100-unread", &[Resp2, Tls], |one| {
        longs(one).crowd(Crowd::deaf(100, gets(LONG_BYTES, LONGS)))
    });
    list.add("get-short-records-100-unread", &[Resp2], |one| {
        values(one)
            .with_short_records()
            .crowd(Crowd::deaf(100, get()))
    });
}

pub(super) fn add(list: &mut List) {
    add_gets(list);
    list.add("mget-100-unread", &[Resp2, Resp3], |one| {
        values(one).crowd(Crowd::deaf(100, mget))
    });
    list.add("get-short-then-long", &[Resp2], |one| {
        let short = Data::Values {
            count: 1000,
            bytes: SHORT_BYTES,
        };
        values(one)
            .data(short)
            .crowd(Crowd::deaf(20, short_then_long))
            .of_tenth()
    });
    list.add("getset-unread", &[Resp2], |one| {
        one.crowd(Crowd::deaf(50, change(&[b"GETSET"])))
    });
    list.add("getdel-unread", &[Resp2], |one| {
        one.crowd(Crowd::deaf(50, change(&[b"GETDEL"])))
    });
    list.add("echo-unread", &[Tls], |one| {
        one.crowd(Crowd::deaf(100, always(&[b"ECHO", &[b'e'; 8000]])))
    });
}
