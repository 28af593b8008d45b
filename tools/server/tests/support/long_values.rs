//! Long values for tests: bytes that differ everywhere, and calls that never print them whole.

use super::{Client, Reply};

/// Bytes of the longest value in a record, with the pages of these tests.
pub(crate) const RECORD_BYTES: usize = 64 << 10;
/// Bytes of a value of many pieces.
pub(crate) const LONG: usize = 3 << 20;

/// A value that no part of another place or seed is equal to.
pub(crate) fn value(bytes: usize, seed: u8) -> Vec<u8> {
    let word = |place: u32| place.wrapping_mul(0x9e37_79b9) ^ u32::from(seed) << 8;
    (0..u32::try_from(bytes.div_ceil(4)).expect("a small number"))
        .flat_map(|place| word(place).to_le_bytes())
        .take(bytes)
        .collect()
}

/// The reply to a command whose arguments differ in length.
pub(crate) fn ask(client: &mut Client, arguments: &[&[u8]]) -> Reply {
    client.ask(arguments)
}

/// The reply to a command whose arguments differ in length, shown in one line.
pub(crate) fn shown(client: &mut Client, arguments: &[&[u8]]) -> String {
    client.ask(arguments).to_string()
}

/// Stores a value.
pub(crate) fn set(client: &mut Client, key: &str, value: &[u8]) {
    assert_eq!(shown(client, &[b"SET", key.as_bytes(), value]), "+OK");
}

/// The value of a key is these bytes, without printing them if it is not.
pub(crate) fn expect_value(client: &mut Client, key: &str, value: &[u8]) {
    let read = ask(client, &[b"GET", key.as_bytes()]);
    assert!(
        read == Reply::Bulk(value.to_vec()),
        "{key}: {}",
        kind(&read)
    );
}

/// What a reply is, in a few bytes.
pub(crate) fn kind(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(bytes) => format!("{} bytes", bytes.len()),
        Reply::Array(all) => all.iter().map(kind).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}
