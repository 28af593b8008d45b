//! Clients without the password, handshakes that do not end, resets, silence, and a mix of all that
//! clients do.

use super::List;
use super::Protocol::{Resp2, Resp3, Tls};
use crate::redis::memory::crowd::{Crowd, Entrance, Turn, always, long_word, once};
use crate::redis::memory::data::{Data, value_key};
use crate::redis::memory::words::command;

/// Connections without the password.
const STRANGERS: usize = 600;
/// What an idle connection may take, plain and encrypted.
const IDLE_BYTES_MAX: u64 = 8 << 10;
const IDLE_TLS_BYTES_MAX: u64 = 16 << 10;
/// The first bytes of a record of a handshake, which says that it has 512 bytes.
const HALF_HELLO: &[u8] = &[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];

/// Lengths of values of the mix, and how many of a hundred writes have them.
const LENGTHS: [(usize, u64); 6] = [
    (16, 40),
    (128, 30),
    (1 << 10, 18),
    (16 << 10, 9),
    (256 << 10, 2),
    (3 << 20, 1),
];
/// Keys of each length; fewer of values from `LONG_BYTES` on, or they do not fit the memory.
const KEYS: u64 = 2000;
const LONG_KEYS: u64 = 32;
const LONG_BYTES: usize = 256 << 10;

/// A number that looks random.
fn draw(turn: Turn, salt: u64) -> u64 {
    let mut number = turn.who << 40 ^ turn.number << 8 ^ salt;
    for _ in 0..2 {
        number = (number ^ number >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    number >> 32
}

/// A length, and a key of a value of that length.
fn drawn_key(turn: Turn) -> (usize, Vec<u8>) {
    let mut place = draw(turn, 1) % 100;
    let mut length = LENGTHS[0].0;
    for (bytes, share) in LENGTHS {
        length = bytes;
        match place.checked_sub(share) {
            Some(rest) => place = rest,
            None => break,
        }
    }
    let keys = if length >= LONG_BYTES {
        LONG_KEYS
    } else {
        KEYS
    };
    (length, value_key(length, draw(turn, 2) % keys))
}

/// Half of it writes, some of hashes.
fn mixed(turn: Turn, out: &mut Vec<u8>) {
    let (length, key) = drawn_key(turn);
    match draw(turn, 3) % 20 {
        0..=8 => command(out, &[b"SET", &key, &vec![b'v'; length]]),
        9 => command(out, &[b"DEL", &key]),
        10 => {
            let key = format!("h:{}", draw(turn, 4) % KEYS);
            let field = (draw(turn, 5) % 50).to_string();
            let words: [&[u8]; 4] = [b"HSET", key.as_bytes(), field.as_bytes(), &[b'v'; 64]];
            command(out, &words);
        }
        _ => command(out, &[b"GET", &key]),
    }
}

/// Reads values that the mix may have stored.
fn mixed_gets(turn: Turn, out: &mut Vec<u8>) {
    for salt in 0..16 {
        let key = value_key(16 << 10, draw(turn, salt) % KEYS);
        command(out, &[b"GET", &key]);
    }
}

fn add_strangers(list: &mut List) {
    let get = || always(&[b"GET", b"v:1000000:0"]);
    list.add("strangers-get", &[Resp2, Tls], |one| {
        let is_first = one.protocol == Resp2;
        let one = one
            .with_strangers()
            .crowd(Crowd::deaf(STRANGERS, get()).strangers());
        if is_first { one.of_tenth() } else { one }
    });
    list.add("strangers-half", &[Resp2], |one| {
        let talk = long_word(&[b"AUTH"], 1_000_000, 900_000);
        let crowd = Crowd::deaf(STRANGERS, talk).strangers();
        one.with_strangers().crowd(crowd)
    });
    list.add("strangers-killed", &[Resp3], |one| {
        let crowd = Crowd::deaf(STRANGERS, get()).strangers().killed();
        one.with_strangers().crowd(crowd)
    });
    list.add("strangers-and-member", &[Resp2], |one| {
        let values = Data::Values {
            count: 20,
            bytes: 100_000,
        };
        one.with_strangers()
            .data(values)
            .crowd(Crowd::deaf(STRANGERS, get()).strangers())
            .crowd(Crowd::heedful(4, |turn, out| {
                command(out, &[b"GET", &value_key(100_000, turn.number % 20)]);
            }))
    });
    list.add("half-handshakes", &[Tls], |one| {
        let talk = |turn: Turn, out: &mut Vec<u8>| {
            if turn.number == 0 {
                out.extend_from_slice(HALF_HELLO);
            }
        };
        let crowd = Crowd::deaf(STRANGERS, talk).by(Entrance::Unencrypted);
        one.with_strangers().crowd(crowd)
    });
    list.add("handshakes-killed", &[Tls], |one| {
        one.crowd(Crowd::deaf(200, once(&[b"PING"])).killed())
    });
}

pub(super) fn add(list: &mut List) {
    add_strangers(list);
    // What the client beside the load takes when there is none.
    list.add("alone", &[Resp2, Resp3, Tls], |one| {
        one.crowd(Crowd::silent(1))
    });
    list.add("idle-10000", &[Resp2], |mut one| {
        one.each_bytes_max = Some(IDLE_BYTES_MAX);
        // The client beside them has places, too.
        one.crowd(Crowd::silent(9_990))
    });
    list.add("idle-1000", &[Tls], |mut one| {
        one.each_bytes_max = Some(IDLE_TLS_BYTES_MAX);
        one.crowd(Crowd::silent(1000))
    });
    list.add("mix", &[Resp2, Tls], |one| {
        one.crowd(Crowd::silent(1000))
            .crowd(Crowd::heedful(200, mixed))
            .crowd(Crowd::deaf(100, mixed_gets))
    });
    list.add("mix-killed", &[Resp2], |one| {
        one.crowd(Crowd::heedful(200, mixed).killed())
            .crowd(Crowd::deaf(100, mixed_gets).killed())
    });
    list.add("mix-2-cores", &[Resp2], |one| {
        one.on_two_cores()
            .crowd(Crowd::silent(1000))
            .crowd(Crowd::heedful(200, mixed))
            .crowd(Crowd::deaf(100, mixed_gets))
    });
}
