//! Hashes, sets and lists whose replies are not read, and clients that wait for lists.

use super::List;
use super::Protocol::{Resp2, Resp3, Tls};
use crate::redis::memory::crowd::{Crowd, Turn, always};
use crate::redis::memory::data::Data;
use crate::redis::memory::words::command;

/// Records of each kind.
const RECORDS: u64 = 20;
/// Keys of 1 KB that one client waits for.
const WAITED: u64 = 900;

/// Reads whole records without end.
fn reads(words: &'static [&'static [u8]], kind: char) -> impl Fn(Turn, &mut Vec<u8>) + Send + Sync {
    move |turn, out| {
        let key = format!("{kind}:{}", (turn.who + turn.number) % RECORDS);
        let mut all: Vec<&[u8]> = vec![words[0], key.as_bytes()];
        all.extend(&words[1..]);
        command(out, &all);
    }
}

/// Waits for many lists that never get an element.
fn waits(turn: Turn, out: &mut Vec<u8>) {
    if turn.number > 0 {
        return;
    }
    let key = |number| {
        let mut key = format!("w:{}:{number}:", turn.who).into_bytes();
        key.resize(1000, b'w');
        key
    };
    let keys: Vec<Vec<u8>> = (0..WAITED).map(key).collect();
    let mut words: Vec<&[u8]> = vec![b"BLPOP"];
    words.extend(keys.iter().map(Vec::as_slice));
    words.push(b"0");
    command(out, &words);
}

pub(super) fn add(list: &mut List) {
    list.add("hgetall-100-unread", &[Resp2, Resp3, Tls], |one| {
        let is_third = one.protocol == Resp3;
        let one = one
            .data(Data::Hashes(RECORDS))
            .crowd(Crowd::deaf(100, reads(&[b"HGETALL"], 'h')));
        if is_third { one.of_tenth() } else { one }
    });
    list.add("smembers-100-unread", &[Resp2, Resp3], |one| {
        one.data(Data::Sets(RECORDS))
            .crowd(Crowd::deaf(100, reads(&[b"SMEMBERS"], 's')))
    });
    list.add("lrange-100-unread", &[Resp2], |one| {
        one.data(Data::Lists(RECORDS))
            .crowd(Crowd::deaf(100, reads(&[b"LRANGE", b"0", b"-1"], 'l')))
    });
    let several: [(&str, &'static [u8]); 3] = [
        ("sunion-unread", b"SUNION"),
        ("sdiff-unread", b"SDIFF"),
        ("sinter-unread", b"SINTER"),
    ];
    for (name, word) in several {
        list.add(name, &[Resp2], |one| {
            let talk = always(&[word, b"t:0", b"t:1", b"t:2", b"t:3"]);
            one.data(Data::TinySets(4)).crowd(Crowd::deaf(50, talk))
        });
    }
    list.add("hgetall-100-killed", &[Resp2], |one| {
        one.data(Data::Hashes(RECORDS))
            .crowd(Crowd::deaf(100, reads(&[b"HGETALL"], 'h')).killed())
    });
    list.add("blpop-200-clients", &[Resp2, Tls], |one| {
        one.crowd(Crowd::deaf(200, waits))
    });
    list.add("hset-long-records", &[Resp2], |one| {
        let value = [b'h'; 1000];
        one.data(Data::Hashes(RECORDS))
            .crowd(Crowd::heedful(20, move |turn, out| {
                let key = format!("h:{}", turn.who);
                let field = format!("f{}", turn.number % 900);
                let words = [b"HSET", key.as_bytes(), field.as_bytes(), &value];
                command(out, &words);
            }))
    });
}
