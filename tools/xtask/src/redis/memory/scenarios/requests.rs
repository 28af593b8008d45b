//! Requests that are long, that do not end, or that are kept: arguments, transactions, growth.

use super::List;
use super::Protocol::{Resp2, Resp3, Tls};
use crate::redis::memory::crowd::{Crowd, FILLER, Turn, long_word, name};
use crate::redis::memory::data::{Data, value_key};
use crate::redis::memory::words::{argument, begin, command};

/// The longest argument.
const LONGEST_BYTES: usize = 64 << 20;
/// Of a command of which 900 KB are sent.
const HALF_BYTES: usize = 1_000_000;
const SENT_BYTES: usize = 900_000;
/// A value that is stored in pieces.
const LONG_BYTES: usize = 2 << 20;
/// Arguments of one command, and how many are sent at once.
const ARGUMENTS: usize = 1_000_000;
const AT_ONCE: u64 = 1000;

/// Queues values without end.
fn queue(turn: Turn, out: &mut Vec<u8>) {
    if turn.number == 0 {
        command(out, &[b"MULTI"]);
    }
    command(out, &[b"SET", &name(turn, 100), &FILLER]);
}

/// Queues reads of long values, carries them out and reads nothing.
fn exec_gets(turn: Turn, out: &mut Vec<u8>) {
    command(out, &[b"MULTI"]);
    for number in 0..20 {
        command(
            out,
            &[b"GET", &value_key(1_000_000, (turn.number + number) % 10)],
        );
    }
    command(out, &[b"EXEC"]);
}

/// One command of a million short arguments, again and again.
fn million(turn: Turn, out: &mut Vec<u8>) {
    if turn.number.is_multiple_of(ARGUMENTS as u64 / AT_ONCE) {
        begin(out, ARGUMENTS + 1);
        argument(out, b"EXISTS");
    }
    for _ in 0..AT_ONCE {
        argument(out, b"k:0000001");
    }
}

/// Appends to a value until it is long, then begins anew.
fn append(turn: Turn, out: &mut Vec<u8>) {
    let key = format!("a:{}", turn.who);
    if turn.number.is_multiple_of(200) {
        command(out, &[b"DEL", key.as_bytes()]);
    }
    command(out, &[b"APPEND", key.as_bytes(), &FILLER]);
}

/// Writes far behind the end of a value, then begins anew.
fn set_range(turn: Turn, out: &mut Vec<u8>) {
    let key = format!("r:{}", turn.who);
    let offset = (1 + turn.number % 8) * 500_000;
    if turn.number.is_multiple_of(8) {
        command(out, &[b"DEL", key.as_bytes()]);
    }
    let offset = offset.to_string();
    let words: [&[u8]; 4] = [b"SETRANGE", key.as_bytes(), offset.as_bytes(), b"end"];
    command(out, &words);
}

fn add_half(list: &mut List) {
    list.add("half-set-1000", &[Resp2, Tls], |one| {
        let is_first = one.protocol == Resp2;
        let talk = long_word(&[b"SET", b"half"], HALF_BYTES, SENT_BYTES);
        let one = one.crowd(Crowd::deaf(1000, talk));
        if is_first { one.of_tenth() } else { one }
    });
    list.add("half-echo-1000", &[Resp3], |one| {
        let talk = long_word(&[b"ECHO"], HALF_BYTES, SENT_BYTES);
        one.crowd(Crowd::deaf(1000, talk))
    });
    list.add("set-long-stalled-200", &[Resp2, Tls], |one| {
        let talk = long_word(&[b"SET", b"stalled"], LONG_BYTES, 100);
        one.crowd(Crowd::deaf(200, talk))
    });
    list.add("set-long-stalled-half", &[Resp2], |one| {
        let talk = long_word(&[b"SET", b"stalled"], LONG_BYTES, LONG_BYTES / 2);
        one.crowd(Crowd::deaf(32, talk))
    });
    list.add("set-long-killed", &[Resp2], |one| {
        let talk = long_word(&[b"SET", b"killed"], LONG_BYTES, LONG_BYTES);
        one.crowd(Crowd::heedful(50, talk).killed())
    });
}

fn add_longest(list: &mut List) {
    list.add("million-arguments", &[Resp2], |one| {
        one.crowd(Crowd::heedful(8, million))
    });
    list.add("echo-64-mib", &[Resp2], |one| {
        let talk = long_word(&[b"ECHO"], LONGEST_BYTES, LONGEST_BYTES);
        one.crowd(Crowd::deaf(8, talk))
    });
    list.add("publish-64-mib", &[Resp2], |one| {
        let talk = long_word(&[b"PUBLISH", b"c"], LONGEST_BYTES, LONGEST_BYTES);
        one.crowd(Crowd::heedful(8, talk)).of_tenth()
    });
    list.add("set-64-mib", &[Tls], |one| {
        let talk = long_word(&[b"SET", b"longest"], LONGEST_BYTES, LONGEST_BYTES);
        one.crowd(Crowd::heedful(2, talk))
    });
}

pub(super) fn add(list: &mut List) {
    add_half(list);
    add_longest(list);
    list.add("multi-queue", &[Resp2, Tls], |one| {
        one.crowd(Crowd::heedful(20, queue))
    });
    list.add("exec-gets-unread", &[Resp2], |one| {
        one.crowd(Crowd::deaf(50, exec_gets))
    });
    list.add("watch-names", &[Resp2], |one| {
        one.crowd(Crowd::heedful(8, |turn, out| {
            command(out, &[b"WATCH", &name(turn, 1000)]);
        }))
        .of_tenth()
    });
    list.add("append-growth", &[Resp2], |one| {
        one.crowd(Crowd::heedful(20, append))
    });
    list.add("setrange-growth", &[Resp2], |one| {
        one.crowd(Crowd::heedful(20, set_range))
    });
    list.add("lcs", &[Resp2], |one| {
        let value = Data::Values {
            count: 2,
            bytes: 2000,
        };
        one.data(value).crowd(Crowd::deaf(50, |_, out| {
            let keys = [value_key(2000, 0), value_key(2000, 1)];
            command(out, &[b"LCS", &keys[0], &keys[1], b"IDX"]);
            command(out, &[b"LCS", &keys[0], &keys[1]]);
        }))
    });
}
