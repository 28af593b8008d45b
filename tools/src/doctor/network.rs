//! Checks the sizes of TCP buffers, which limit the throughput to memory nodes at `tcp://`.

use farcore::Size;

use super::finding::Finding;
use farcore_tuning::Root;

/// Bytes in flight on 100 Gb/s in 300 us.
const BUFFER_BYTES_MIN: u64 = 4 << 20;

pub(super) fn check(root: &Root) -> Vec<Finding> {
    vec![
        buffers(root, "TCP receive buffers", "tcp_rmem", "rmem_max"),
        buffers(root, "TCP send buffers", "tcp_wmem", "wmem_max"),
    ]
}

/// The kernel grows a connection's buffers up to the third number of `name`; `by_hand` limits sizes
/// that a program sets.
fn buffers(root: &Root, what: &'static str, name: &str, by_hand: &str) -> Finding {
    let path = format!("/proc/sys/net/ipv4/{name}");
    let text = root.read(&path).unwrap_or_default();
    let sizes: Vec<u64> = text
        .split_whitespace()
        .map_while(|word| word.parse().ok())
        .collect();
    let [least, first, most] = sizes[..] else {
        return Finding::unknown(what, &path);
    };
    let hand = root.number::<u64>(&format!("/proc/sys/net/core/{by_hand}"));
    let mut seen = format!("up to {}", Size(most));
    if let Some(hand) = hand {
        seen = format!("{seen} ({by_hand} {})", Size(hand));
    }
    if most >= BUFFER_BYTES_MIN {
        return Finding::fine(what, seen);
    }
    Finding::weak(what, seen)
        .because("a connection to a memory node cannot fill a fast link")
        .mend(format!(
            "sysctl -w net.ipv4.{name}=\"{least} {first} {BUFFER_BYTES_MIN}\" net.core.{by_hand}={BUFFER_BYTES_MIN}"
        ))
}
