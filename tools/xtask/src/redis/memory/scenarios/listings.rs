//! Replies that grow with keys, clients or commands: `KEYS`, `SCAN`, `CLIENT LIST` and others.

use super::Protocol::{Resp2, Resp3, Tls};
use super::{List, Scale, Scenario};
use crate::redis::memory::crowd::{Crowd, always, once};
use crate::redis::memory::data::Data;

/// Clients that connect to be listed.
const LISTED: usize = 5000;
/// Bytes of a large name.
const NAME_BYTES: usize = 500_000;

fn keys(one: Scenario, scale: Scale) -> Scenario {
    one.data(Data::Keys(scale.keys))
}

fn add_keys(list: &mut List, scale: Scale) {
    let all = || always(&[b"KEYS", b"*"]);
    list.add("keys-1-unread", &[Resp2], |one| {
        keys(one, scale).crowd(Crowd::deaf(1, all()))
    });
    list.add("keys-8-unread", &[Resp2, Resp3, Tls], |one| {
        let is_first = one.protocol == Resp2;
        let one = keys(one, scale).crowd(Crowd::deaf(8, all()));
        if is_first { one.of_tenth() } else { one }
    });
    list.add("keys-8-read", &[Resp2], |one| {
        keys(one, scale).crowd(Crowd::heedful(8, all()))
    });
    list.add("keys-8-killed", &[Resp2], |one| {
        keys(one, scale).crowd(Crowd::deaf(8, all()).killed())
    });
    list.add("keys-8-unread-2-cores", &[Resp2], |one| {
        keys(one, scale).on_two_cores().crowd(Crowd::deaf(8, all()))
    });
    list.add("scan-long-pages-unread", &[Resp2, Tls], |one| {
        let talk = always(&[b"SCAN", b"0", b"COUNT", b"100000"]);
        keys(one, scale).crowd(Crowd::deaf(8, talk))
    });
}

pub(super) fn add(list: &mut List, scale: Scale) {
    add_keys(list, scale);
    list.add("client-list-5000-unread", &[Resp2], |one| {
        one.crowd(Crowd::silent(LISTED))
            .crowd(Crowd::deaf(8, always(&[b"CLIENT", b"LIST"])))
    });
    list.add("client-setname", &[Resp2], |one| {
        let name = vec![b'n'; NAME_BYTES];
        one.crowd(Crowd::heedful(1000, once(&[b"CLIENT", b"SETNAME", &name])))
            .of_tenth()
    });
    list.add("slowlog-unread", &[Resp2], |one| {
        one.setting("CONFIG SET slowlog-log-slower-than 0")
            .setting("CONFIG SET slowlog-max-len 100000")
            .crowd(Crowd::heedful(4, |_, out| {
                let words = [&[b'w'; 120][..]; 64];
                let mut all: Vec<&[u8]> = vec![b"EXISTS"];
                all.extend(words);
                crate::redis::memory::words::command(out, &all);
            }))
            .crowd(Crowd::deaf(8, always(&[b"SLOWLOG", b"GET", b"-1"])))
    });
    list.add("command-docs-unread", &[Resp2, Resp3], |one| {
        one.crowd(Crowd::deaf(100, always(&[b"COMMAND", b"DOCS"])))
    });
    list.add("info-unread", &[Resp2], |one| {
        one.crowd(Crowd::deaf(100, always(&[b"INFO", b"everything"])))
    });
}
