//! Errors in the words of a command line: flags as the user typed them, sizes with units, and no
//! cause twice.
//!
//! The engine's errors name fields of its configuration, such as `local_bytes`. Here they become
//! the flags that set these fields.

use farcore::Error;

const UNITS: [&str; 7] = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const UNIT: u64 = 1024;
const MIB: u64 = 1 << 20;

/// Fields of the engine's configuration, and what sets them here.
const FLAGS: [(&str, &str); 16] = [
    ("local_bytes", "--local"),
    ("far_bytes", "--far"),
    ("cores", "--cores"),
    ("nodes", "--fabric"),
    ("nodes_min", "--nodes-min"),
    ("nodes_wait_ns", "--wait-for-nodes"),
    ("embedded_nodes", "--far-nodes"),
    ("verbs", "--device, --port or --gid-index"),
    ("keys_expected", "the number of keys"),
    ("handles_max", "the number of clients"),
    ("page_bytes", "page_bytes of --profile"),
    ("lane_bytes", "lane_bytes of --profile"),
    ("batch", "batch of --profile"),
    ("cache_percent", "cache_percent of --profile"),
    ("read_ahead_chunks", "read_ahead_chunks of --profile"),
    ("spin_ns", "spin_ns of --profile"),
];

/// What a client says of a memory node that it cannot use, and how that reads beside the node's
/// address.
const REFUSALS: [(&str, &str); 4] = [
    (
        "wrong token",
        "rejected the token: --token-file differs from the node's",
    ),
    (
        "requires a token",
        "requires a token: give --token-file the node's file",
    ),
    (
        "has no token",
        "has no token: leave --token-file out, or start the node with it",
    ),
    (
        "does not speak Farcore's wire format",
        "sent an invalid answer, and the connection is closed: --fabric names no memory node, or one \
         of another version",
    ),
];

/// An error and its causes in one line. A cause that has been named is left out.
#[must_use]
pub fn describe(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = match cause.downcast_ref::<Error>() {
            Some(Error::Unavailable { node, reason }) => unavailable(node, reason),
            _ => cause.to_string(),
        };
        if text.contains(&cause) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause);
    }
    in_flags(&text)
}

/// What is wrong with one or several memory nodes, and the remedy; `nodes` are their addresses.
fn unavailable(nodes: &str, reason: &str) -> String {
    let is_one = !nodes.contains(", ");
    let known = REFUSALS.iter().find(|(said, _)| reason.contains(said));
    if let Some((_, words)) = known.filter(|_| is_one) {
        return format!("{nodes} {words}");
    }
    // The reason may name the node again.
    let (_, place) = nodes.split_once("://").unwrap_or(("", nodes));
    let mut reason = reason.to_owned();
    for name in [nodes, place]
        .iter()
        .filter(|name| is_one && !name.is_empty())
    {
        reason = reason.replace(&format!("{name}: "), "");
    }
    format!("memory node {nodes} is unavailable: {reason}")
}

/// Replaces the names of fields by those of flags.
#[must_use]
pub fn in_flags(text: &str) -> String {
    // The name of a Cargo feature, not of a field.
    let text = text.replace("the feature `verbs`", "the feature verbs");
    FLAGS.iter().fold(text, |text, (field, flag)| {
        text.replace(&format!("`{field}`"), flag)
    })
}

/// An error about the engine's configuration in the words of the command line, for a number of keys
/// and a size of far memory.
#[must_use]
pub fn refusal(error: &Error, keys: u64, far_bytes: u64) -> String {
    let Error::Config {
        field,
        value,
        limit,
    } = error
    else {
        return in_flags(&error.to_string());
    };
    if let Some((given, least)) = too_little_local(error) {
        return format!(
            "--local {given} is too small: {least} is needed for {keys} keys and --far {}; raise it, \
             or lower the number of keys or --far",
            size(far_bytes)
        );
    }
    let value = bytes_in(value, "").map_or_else(|| value.clone(), size);
    in_flags(&format!("`{field}` is {value}: {limit}"))
}

/// The number of bytes in a text, after some words.
fn bytes_in(text: &str, before: &str) -> Option<u64> {
    let (number, _) = text.strip_prefix(before)?.split_once(" bytes")?;
    number.parse().ok()
}

/// The local memory that was given and the least that is needed, in words; `None` if the error is
/// about something else.
#[must_use]
pub fn too_little_local(error: &Error) -> Option<(String, String)> {
    let Error::Config {
        field: "local_bytes",
        value,
        limit,
    } = error
    else {
        return None;
    };
    let least = bytes_in(limit, "at least ")?.div_ceil(MIB) * MIB;
    Some((size(bytes_in(value, "")?), size(least)))
}

/// A size with the largest unit of which it has at least one, such as `8 MiB` or `21.7 GiB`.
#[must_use]
pub fn size(bytes: u64) -> String {
    let mut unit = 0;
    let mut whole = bytes;
    while whole >= UNIT && unit + 1 < UNITS.len() {
        whole /= UNIT;
        unit += 1;
    }
    let of_unit = UNIT.pow(u32::try_from(unit).unwrap_or(0));
    if bytes == 1 {
        return "1 byte".to_owned();
    }
    if bytes.is_multiple_of(of_unit) {
        return format!("{whole} {}", UNITS[unit]);
    }
    format!("{:.1} {}", bytes as f64 / of_unit as f64, UNITS[unit])
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn no_cause_is_named_twice() {
        let error = anyhow!("no such file (os error 2)");
        let error = error
            .context("cannot read x: no such file (os error 2)")
            .context("--token-file");
        assert_eq!(
            describe(&error),
            "--token-file: cannot read x: no such file (os error 2)"
        );
        let io = std::fs::read("/nowhere/at/all").context("a").unwrap_err();
        assert!(
            describe(&io).starts_with("a: No such file"),
            "{}",
            describe(&io)
        );
    }

    #[test]
    fn a_memory_node_is_named_once_and_with_the_remedy() {
        let of = |node: &str, reason: &'static str| {
            let error = Error::Unavailable {
                node: node.into(),
                reason: reason.into(),
            };
            describe(&anyhow!(error).context("the engine could not be opened"))
        };
        assert_eq!(
            of(
                "tcp://a:1",
                "tcp://a:1: wrong token: the node was started with a different token"
            ),
            "the engine could not be opened: tcp://a:1 rejected the token: --token-file differs from \
             the node's"
        );
        assert_eq!(
            of(
                "tcp://a:1",
                "0 of 1 answered (`nodes_min`): a:1: Connection refused"
            ),
            "the engine could not be opened: memory node tcp://a:1 is unavailable: 0 of 1 answered \
             (--nodes-min): Connection refused"
        );
        // Of several nodes, the reasons name theirs.
        assert_eq!(
            of(
                "tcp://a:1, tcp://b:2",
                "a:1: wrong token; b:2: Connection refused"
            ),
            "the engine could not be opened: memory node tcp://a:1, tcp://b:2 is unavailable: a:1: \
             wrong token; b:2: Connection refused"
        );
    }

    #[test]
    fn fields_become_flags() {
        let full = Error::FarFull { used: 1, limit: 2 };
        assert_eq!(
            in_flags(&full.to_string()),
            "far memory is full: 1 of 2 bytes are in use; delete keys or raise --far"
        );
        let small = Error::Config {
            field: "local_bytes",
            value: "8388608 bytes".into(),
            limit: "at least 1011875840 bytes for 1 core, 6000 keys".into(),
        };
        assert_eq!(
            refusal(&small, 6000, 1 << 40),
            "--local 8 MiB is too small: 965 MiB is needed for 6000 keys and --far 1 TiB; raise it, \
             or lower the number of keys or --far"
        );
        let nodes = Error::Config {
            field: "nodes",
            value: "rdma://a:1".into(),
            limit: "build it with the feature `verbs`".into(),
        };
        assert_eq!(
            refusal(&nodes, 0, 0),
            "--fabric is rdma://a:1: build it with the feature verbs"
        );
    }

    #[test]
    fn sizes_are_exact_or_have_one_decimal() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (1023, "1023 bytes"),
            (4096, "4 KiB"),
            (1 << 40, "1 TiB"),
            (1_610_612_736, "1.5 GiB"),
            (23_300_000_000, "21.7 GiB"),
        ] {
            assert_eq!(size(bytes), text);
        }
    }
}
