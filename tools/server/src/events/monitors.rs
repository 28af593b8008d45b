//! What a core knows of the clients that see the commands of all others: `MONITOR`. What it does
//! for them stands in `turn/monitoring.rs`.

use std::fmt::Write as _;
use std::net::SocketAddr;

/// What a core knows of clients that watch.
#[derive(Debug, Default)]
pub(crate) struct Monitors {
    /// Connections of this core.
    pub(crate) connections: Vec<usize>,
    /// Lines of this turn.
    pub(crate) lines: Vec<u8>,
}

/// Writes a command's line; as Redis.
pub(crate) fn write_line<'a>(
    lines: &mut Vec<u8>,
    at_us: u64,
    (database, peer): (u8, SocketAddr),
    arguments: impl Iterator<Item = &'a [u8]>,
) {
    let mut text = format!(
        "+{}.{:06} [{database} {peer}]",
        at_us / 1_000_000,
        at_us % 1_000_000
    );
    for argument in arguments {
        text.push_str(" \"");
        for &byte in argument {
            match byte {
                b'\\' | b'"' => text.extend(['\\', char::from(byte)]),
                b'\n' => text.push_str("\\n"),
                b'\r' => text.push_str("\\r"),
                b'\t' => text.push_str("\\t"),
                0x07 => text.push_str("\\a"),
                0x08 => text.push_str("\\b"),
                b' '..=b'~' => text.push(char::from(byte)),
                _ => {
                    let _ = write!(text, "\\x{byte:02x}");
                }
            }
        }
        text.push('"');
    }
    text.push_str("\r\n");
    lines.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_that_of_redis() {
        let mut lines = Vec::new();
        let arguments: [&[u8]; 3] = [b"set", b"a \"b\"\\", b"\x00\xff\r\n\t\x07\x08"];
        let peer = SocketAddr::from(([127, 0, 0, 1], 60_866));
        write_line(
            &mut lines,
            1_339_518_083_107_412,
            (0, peer),
            arguments.into_iter(),
        );
        let expected = concat!(
            "+1339518083.107412 [0 127.0.0.1:60866] \"set\" \"a \\\"b\\\"\\\\\" ",
            "\"\\x00\\xff\\r\\n\\t\\a\\b\"\r\n"
        );
        assert_eq!(String::from_utf8_lossy(&lines), expected);
    }
}
