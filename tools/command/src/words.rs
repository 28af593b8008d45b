//! Errors in the words of a command line: flags as the user typed them, sizes with units, and no
//! cause twice.
//!
//! The engine's errors name fields of its configuration, such as `local_bytes`. Here they become
//! the flags that set these fields.

use farcore::{Error, Size};

/// Fields of the engine's configuration, and what sets them here.
const FLAGS: [(&str, &str); 21] = [
    ("local_bytes", "--local"),
    ("far_bytes", "--far"),
    ("cores", "--cores"),
    ("nodes", "--fabric"),
    ("nodes_min", "--nodes-min"),
    ("nodes_max", "--nodes-max"),
    ("replicas", "--replicas"),
    ("replicas_min", "--replicas-min"),
    ("zones", "the zones of --fabric"),
    ("copy_percent", "--copy-percent"),
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

/// An error about the engine's configuration in the words of the command line.
#[must_use]
pub fn refusal(error: &Error) -> String {
    match error {
        Error::LocalMemory {
            local_bytes,
            least,
            keys_expected,
            far_bytes,
            ..
        } => format!(
            "--local {} is too small: {:#} is needed for {keys_expected} keys and --far {}; raise it, or \
             lower the number of keys or --far",
            Size(*local_bytes),
            Size(*least),
            Size(*far_bytes)
        ),
        other => in_flags(&other.to_string()),
    }
}

/// A size as [`Size`] shows it.
#[must_use]
pub fn size(bytes: u64) -> String {
    Size(bytes).to_string()
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
        let full = Error::FarFull {
            shard: Some(1),
            used: 1000 << 10,
            limit: 1 << 20,
        };
        assert_eq!(
            in_flags(&full.to_string()),
            "the far memory of shard 1 is full: 1000 KiB of 1 MiB in use; delete keys or raise --far"
        );
        let small = Error::LocalMemory {
            local_bytes: 8 << 20,
            least: 1434 << 20,
            cores: 1,
            keys_expected: 6000,
            far_bytes: 1 << 40,
        };
        assert_eq!(
            refusal(&small),
            "--local 8 MiB is too small: 1434 MiB is needed for 6000 keys and --far 1 TiB; raise it, \
             or lower the number of keys or --far"
        );
        let nodes = Error::Config {
            field: "nodes",
            value: "rdma://a:1".into(),
            limit: "build it with the feature `verbs`".into(),
        };
        assert_eq!(
            refusal(&nodes),
            "--fabric is rdma://a:1: build it with the feature verbs"
        );
    }
}
