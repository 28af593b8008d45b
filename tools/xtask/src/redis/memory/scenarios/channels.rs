//! Subscribing, publishing, events of keys, `MONITOR`.

use super::Protocol::{Resp2, Resp3, Tls};
use super::{List, Scenario};
use crate::redis::memory::crowd::{Crowd, PIECE_BYTES, Turn, always, long_word, name, once};
use crate::redis::memory::words::command;

/// Bytes of a long message, and of a name.
const MESSAGE_BYTES: usize = 8 << 20;
const NAME_BYTES: usize = 1024;
/// Clients that subscribe to one channel.
const SUBSCRIBERS: usize = 200;
/// Bytes a second of those that read slowly.
const SLOW_BYTES: usize = 20_000;

/// Subscribes to another name each time.
fn names(word: &'static [u8]) -> impl Fn(Turn, &mut Vec<u8>) + Send + Sync {
    move |turn, out| command(out, &[word, &name(turn, NAME_BYTES)])
}

/// Subscribes to many names by one command.
fn many_names(turn: Turn, out: &mut Vec<u8>) {
    let base = turn.number * 12;
    let names: Vec<Vec<u8>> = (base..base + 12)
        .map(|number| name(Turn { number, ..turn }, NAME_BYTES))
        .collect();
    let mut words: Vec<&[u8]> = vec![b"SUBSCRIBE"];
    words.extend(names.iter().map(Vec::as_slice));
    command(out, &words);
}

fn subscribers() -> Crowd {
    Crowd::deaf(SUBSCRIBERS, once(&[b"SUBSCRIBE", b"news"]))
}

/// Publishes long messages and reads how many received them.
fn publisher() -> Crowd {
    let talk = long_word(&[b"PUBLISH", b"news"], MESSAGE_BYTES, MESSAGE_BYTES);
    Crowd::heedful(1, talk)
}

fn short_publisher() -> Crowd {
    Crowd::heedful(1, always(&[b"PUBLISH", b"news", &[b'm'; 100]]))
}

fn add_subscriptions(list: &mut List) {
    list.add("subscribe-names", &[Resp2, Resp3, Tls], |one| {
        let is_first = one.protocol == Resp2;
        let one = one.crowd(Crowd::heedful(1, names(b"SUBSCRIBE")));
        if is_first { one.of_tenth() } else { one }
    });
    list.add("psubscribe-names", &[Resp2], |one| {
        one.crowd(Crowd::heedful(1, names(b"PSUBSCRIBE")))
    });
    list.add("ssubscribe-names", &[Resp3], |one| {
        one.crowd(Crowd::heedful(1, names(b"SSUBSCRIBE")))
    });
    list.add("subscribe-names-50", &[Resp2], |one| {
        one.crowd(Crowd::heedful(50, many_names))
    });
    list.add("subscribe-names-unread", &[Resp2], |one| {
        one.crowd(Crowd::deaf(50, names(b"SUBSCRIBE")))
    });
    list.add("subscribe-names-killed", &[Resp2], |one| {
        one.crowd(Crowd::heedful(100, names(b"SUBSCRIBE")).killed())
    });
}

fn add_publishing(list: &mut List) {
    let unread = |one: Scenario| one.crowd(subscribers()).crowd(publisher());
    list.add("publish-long-unread", &[Resp2, Resp3, Tls], |one| {
        let is_third = one.protocol == Resp3;
        let one = unread(one);
        if is_third { one.of_tenth() } else { one }
    });
    list.add("publish-long-unread-2-cores", &[Resp2], |one| {
        unread(one).on_two_cores()
    });
    list.add("publish-long-slow", &[Resp2], |one| {
        one.crowd(subscribers().slowly(SLOW_BYTES))
            .crowd(publisher())
    });
    list.add("publish-long-patterns-unread", &[Resp2], |one| {
        let readers = Crowd::deaf(SUBSCRIBERS, once(&[b"PSUBSCRIBE", b"n*"]));
        one.crowd(readers).crowd(publisher())
    });
    list.add("publish-short-unread", &[Resp2, Resp3], |one| {
        one.crowd(subscribers()).crowd(short_publisher())
    });
    list.add("publish-short-slow", &[Tls], |one| {
        one.crowd(subscribers().slowly(SLOW_BYTES))
            .crowd(short_publisher())
    });
    list.add("spublish-long-unread", &[Resp3], |one| {
        let talk = long_word(&[b"SPUBLISH", b"news"], MESSAGE_BYTES, MESSAGE_BYTES);
        one.crowd(Crowd::deaf(SUBSCRIBERS, once(&[b"SSUBSCRIBE", b"news"])))
            .crowd(Crowd::heedful(1, talk))
    });
}

pub(super) fn add(list: &mut List) {
    add_subscriptions(list);
    add_publishing(list);
    list.add("events-unread", &[Resp2, Resp3], |one| {
        one.setting("CONFIG SET notify-keyspace-events KEA")
            .crowd(Crowd::deaf(50, once(&[b"PSUBSCRIBE", b"__key*"])))
            .crowd(Crowd::heedful(8, |turn, out| {
                let key = name(
                    Turn {
                        number: turn.number % 100,
                        ..turn
                    },
                    NAME_BYTES,
                );
                for _ in 0..4 {
                    command(out, &[b"SET", &key, b"v"]);
                }
            }))
    });
    list.add("monitor-unread", &[Resp2, Resp3], |one| {
        one.flag("--monitor")
            .crowd(Crowd::deaf(20, once(&[b"MONITOR"])))
            .crowd(Crowd::heedful(4, always(&[b"ECHO", &[b'e'; PIECE_BYTES]])))
    });
}
