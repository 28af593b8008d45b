//! Parses a line of Twitter's cache traces:
//! `timestamp,anonymized key,key size,value size,client id,operation,TTL`.
//!
//! I1: fields are counted from both ends, so that a key may hold commas.
//! I2: a key is used as written, unless its stated size shows that it is percent-encoded: the size
//!     differs from the written key's and equals the decoded key's. So recorded keys are read back
//!     exactly. In other traces the stated size may differ from the anonymized key's; it is
//!     ignored.
//! I3: the time to live is in seconds, with decimals or without; 0 is none, and `keep` is that of
//!     the value before. Whatever else stands there is none, too.

use std::borrow::Cow;

use farcore::Expiry;
use farcore::constants::KEY_BYTES_MAX;
use percent_encoding::percent_decode;

use super::entry::{Entry, Flaw, Verb};

/// The longest line, in bytes: a key with every byte encoded, and room for the other fields.
pub const LINE_BYTES_MAX: usize = 8192;
const _: () = assert!(LINE_BYTES_MAX > 3 * KEY_BYTES_MAX + 512);

/// Fields after the key.
const FIELDS_AFTER_KEY: usize = 5;

/// Parses a line without its line end. `decoded` is a buffer for a percent-encoded key.
///
/// # Errors
/// Why the line is skipped.
pub fn parse<'a>(line: &'a [u8], decoded: &'a mut Vec<u8>) -> Result<Entry<'a>, Flaw> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut fields = line.rsplitn(FIELDS_AFTER_KEY + 1, |&byte| byte == b',');
    let mut field = || fields.next().ok_or(Flaw::Fields);
    let (time_to_live, operation, _client, value_size, key_size) =
        (field()?, field()?, field()?, field()?, field()?);
    let front = field()?;
    let comma = front.iter().position(|&byte| byte == b',');
    let (timestamp, key) = front.split_at(comma.ok_or(Flaw::Fields)?);
    let written = &key[1..];
    number(timestamp)?;
    let (key_bytes, value_bytes) = (number(key_size)?, number(value_size)?);
    let verb = match operation {
        b"get" | b"gets" => Verb::Get,
        b"set" | b"add" | b"replace" | b"cas" => Verb::Set,
        b"append" | b"prepend" => Verb::Extend,
        b"incr" | b"decr" => Verb::Modify,
        b"delete" => Verb::Delete,
        b"touch" => Verb::Touch,
        b"gat" | b"gats" => Verb::GetAndTouch,
        _ => return Err(Flaw::Operation),
    };
    let key = if written.len() as u64 == key_bytes {
        written
    } else {
        match Cow::from(percent_decode(written)) {
            Cow::Owned(key) if key.len() as u64 == key_bytes => {
                *decoded = key;
                decoded
            }
            _ => written,
        }
    };
    match key.len() {
        0 => Err(Flaw::KeyEmpty),
        1..=KEY_BYTES_MAX => Ok(Entry {
            key,
            verb,
            value_bytes,
            expiry: expiry(time_to_live),
        }),
        _ => Err(Flaw::KeyTooLong),
    }
}

/// Whether a line is a request, of those that the first bytes of a file hold.
#[must_use]
pub fn holds_a_request(sample: &[u8]) -> bool {
    let mut decoded = Vec::new();
    let mut lines = sample.split(|&byte| byte == b'\n');
    lines.any(|line| line.len() <= LINE_BYTES_MAX && parse(line, &mut decoded).is_ok())
}

/// The expiry of a time to live in seconds.
fn expiry(field: &[u8]) -> Expiry {
    if field == b"keep" {
        return Expiry::Keep;
    }
    let text = std::str::from_utf8(field).unwrap_or_default();
    let milliseconds = match text.parse::<u64>() {
        Ok(seconds) => seconds.saturating_mul(1000),
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a cast from a float saturates"
        )]
        Err(_) => (text.parse::<f64>().unwrap_or(0.0) * 1000.0).round() as u64,
    };
    match milliseconds {
        0 => Expiry::Never,
        milliseconds => Expiry::In(milliseconds),
    }
}

fn number(field: &[u8]) -> Result<u64, Flaw> {
    if field.is_empty() || !field.iter().all(u8::is_ascii_digit) {
        return Err(Flaw::Number);
    }
    field.iter().try_fold(0_u64, |sum, &digit| {
        let sum = sum.checked_mul(10).ok_or(Flaw::Number)?;
        sum.checked_add(u64::from(digit - b'0')).ok_or(Flaw::Number)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(line: &str) -> Result<(Vec<u8>, Verb, u64), Flaw> {
        let mut room = Vec::new();
        parse(line.as_bytes(), &mut room)
            .map(|entry| (entry.key.to_vec(), entry.verb, entry.value_bytes))
    }

    #[test]
    fn every_operation_is_known() {
        let table = [
            ("get", Verb::Get),
            ("gets", Verb::Get),
            ("set", Verb::Set),
            ("add", Verb::Set),
            ("replace", Verb::Set),
            ("cas", Verb::Set),
            ("append", Verb::Extend),
            ("prepend", Verb::Extend),
            ("incr", Verb::Modify),
            ("decr", Verb::Modify),
            ("delete", Verb::Delete),
            ("touch", Verb::Touch),
            ("gat", Verb::GetAndTouch),
        ];
        for (operation, verb) in table {
            let line = format!("7,nz:u:eeW511W3dcH3de3d15ec,22,304,264,{operation},0");
            let key = b"nz:u:eeW511W3dcH3de3d15ec".to_vec();
            assert_eq!(read(&line), Ok((key, verb, 304)));
        }
    }

    #[test]
    fn times_to_live_are_read_whole_and_with_decimals() {
        for (field, expected) in [
            ("0", Expiry::Never),
            ("", Expiry::Never),
            ("soon", Expiry::Never),
            ("-3", Expiry::Never),
            ("NaN", Expiry::Never),
            ("keep", Expiry::Keep),
            ("90", Expiry::In(90_000)),
            ("1.050", Expiry::In(1_050)),
            ("0.001", Expiry::In(1)),
            ("18446744073709551615", Expiry::In(u64::MAX)),
        ] {
            let line = format!("7,key,3,304,264,set,{field}");
            let mut room = Vec::new();
            let entry = parse(line.as_bytes(), &mut room).unwrap();
            assert_eq!(entry.expiry, expected, "{field}");
        }
    }

    #[test]
    fn keys_may_hold_commas_and_quotes() {
        let key = |line| read(line).unwrap().0;
        assert_eq!(key("0,a,b,\"c,7,1,2,get,0"), b"a,b,\"c");
        assert_eq!(key("0,\"quoted\",8,1,2,get,0\r"), b"\"quoted\"");
        assert_eq!(key("0,1,2,3,4,5,2,3,4,get,0"), b"1,2,3,4,5");
    }

    #[test]
    fn the_stated_size_shows_whether_a_key_is_encoded() {
        let key = |line| read(line).unwrap().0;
        assert_eq!(key("0,a%2Cb,3,1,2,get,0"), b"a,b");
        assert_eq!(key("0,a%2Cb,5,1,2,get,0"), b"a%2Cb");
        assert_eq!(key("0,a%2Cb,4,1,2,get,0"), b"a%2Cb", "no reading of size 4");
        assert_eq!(key("0,%zz,9,1,2,get,0"), b"%zz");
    }

    #[test]
    fn each_flaw_has_its_own_name() {
        let long = format!("0,{},1025,1,2,get,0", "k".repeat(1025));
        for (line, flaw) in [
            ("", Flaw::Fields),
            ("0,key,3,1,2,get", Flaw::Fields),
            (
                "timestamp,key,key size,value size,client id,operation,TTL",
                Flaw::Number,
            ),
            ("-1,key,3,1,2,get,0", Flaw::Number),
            ("0,key,3,+1,2,get,0", Flaw::Number),
            ("0,key,3,18446744073709551616,2,get,0", Flaw::Number),
            ("0,key,3,1 ,2,get,0", Flaw::Number),
            ("0,,0,1,2,get,0", Flaw::KeyEmpty),
            ("0,key,3,1,2,GET,0", Flaw::Operation),
            ("0,key,3,1,2,,0", Flaw::Operation),
            (&long, Flaw::KeyTooLong),
        ] {
            assert_eq!(read(line), Err(flaw), "{line}");
        }
        let largest = read("18446744073709551615,key,3,18446744073709551615,2,get,9");
        assert_eq!(largest.unwrap().2, u64::MAX);
    }

    #[test]
    fn any_line_is_an_entry_or_rejected() {
        farcore_fuzz::Target::new("trace line")
            .seed("12,key,3,100,3,set,60")
            .seed("0,\"a,b\",3,0,0,gets,0\r")
            .seed("0,%41%2C,3,0,0,incr,0")
            .words(&[
                ",",
                "%",
                "\"",
                "get",
                "set",
                "cas",
                "18446744073709551615",
                "\r",
            ])
            .run(|line| {
                let mut room = Vec::new();
                if let Ok(entry) = parse(line, &mut room) {
                    assert!((1..=KEY_BYTES_MAX).contains(&entry.key.len()));
                    assert!(entry.key.len() <= line.len());
                }
            });
    }

    proptest! {
        #[test]
        fn plain_keys_are_read_unchanged(key in "[!-~&&[^%]]{1,60}", size in 0_u64..100, value in any::<u64>()) {
            let line = format!("12,{key},{size},{value},3,set,60");
            prop_assert_eq!(read(&line), Ok((key.into_bytes(), Verb::Set, value)));
        }
    }
}
