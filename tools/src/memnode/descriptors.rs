//! The connections of a node that the limit on open descriptors allows.
//!
//! - I1: the connections that the fitted options allow, and all else that the node opens, fit into
//!   the limit.
//! - I2: the options are only lowered, never raised.

use anyhow::{Result, ensure};
use farcore_rdma::node::NodeOptions;

use crate::descriptors::Descriptors;

/// Descriptors of a connection of any kind: its socket.
const OF_A_CONNECTION: u64 = 1;
/// Descriptors of a control connection and a memory connection.
const OF_A_PAIR: u64 = 2 * OF_A_CONNECTION;
/// Rings, eventfds, timers and the listener of a serving thread.
const OF_A_THREAD: u64 = 24;
/// Standard streams, the log, the signals, the HTTP server with its connections, a device.
const OF_THE_PROCESS: u64 = 128;
/// Connections in the handshake take at most this part of the descriptors, for each of its steps.
const HANDSHAKE_PART: u64 = 8;
/// Fewer cores are not worth a node.
const CORES_MIN: u64 = 8;

impl Descriptors {
    /// Lowers the numbers of connections in `node` to what the limit allows.
    ///
    /// # Errors
    /// The limit allows fewer than [`CORES_MIN`] cores.
    pub(super) fn fit(self, node: &mut NodeOptions) -> Result<()> {
        let fixed = OF_THE_PROCESS + OF_A_THREAD * node.threads as u64;
        let free = self.limit.saturating_sub(fixed);
        let handshakes = usize::try_from(free / HANDSHAKE_PART).unwrap_or(usize::MAX);
        let silent = node.silent_max.min(handshakes);
        let unauthenticated = node.unauthenticated_max.min(handshakes);
        let taken = (silent + unauthenticated) as u64 * OF_A_CONNECTION;
        // Each core has one control connection and one memory connection.
        let cores = free.saturating_sub(taken) / OF_A_PAIR;
        let needed = fixed + CORES_MIN * OF_A_PAIR * 2;
        ensure!(
            cores >= CORES_MIN,
            "the limit on open files is {}: a node with --threads {} needs at least {needed}; raise it with `ulimit -n`",
            self.limit,
            node.threads
        );
        node.silent_max = silent;
        node.unauthenticated_max = unauthenticated;
        node.connections_max = node.connections_max.min(cores);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use farcore_rdma::node::MemoryOptions;

    use super::*;

    fn options() -> NodeOptions {
        let memory = MemoryOptions {
            memory_bytes: 1 << 20,
            region_bytes: 1 << 20,
            extent_bytes: 1 << 20,
            huge_pages: false,
            lock: farcore_rdma::Lock::Off,
        };
        NodeOptions::new("127.0.0.1:0".parse().expect("an address"), memory)
    }

    #[test]
    fn connections_fit_into_every_limit() {
        for threads in [1, 2, 8] {
            for limit in 300..5_000 {
                let mut node = options();
                node.threads = threads;
                if (Descriptors { limit }).fit(&mut node).is_err() {
                    continue;
                }
                let handshakes = (node.silent_max + node.unauthenticated_max) as u64;
                let used = OF_THE_PROCESS
                    + OF_A_THREAD * threads as u64
                    + handshakes
                    + node.connections_max * OF_A_PAIR;
                assert!(used <= limit, "{used} of {limit}");
                assert!(node.connections_max >= CORES_MIN && node.silent_max > 0);
            }
        }
    }

    #[test]
    fn a_large_limit_changes_nothing() {
        let (mut node, before) = (options(), options());
        Descriptors { limit: u64::MAX }
            .fit(&mut node)
            .expect("room");
        assert_eq!(node.connections_max, before.connections_max);
        assert_eq!(node.silent_max, before.silent_max);
        assert_eq!(node.unauthenticated_max, before.unauthenticated_max);
    }

    #[test]
    fn a_limit_that_is_too_low_is_an_error_with_the_remedy() {
        let error = Descriptors { limit: 100 }.fit(&mut options());
        let error = error.expect_err("too low").to_string();
        assert!(
            error.contains("is 100") && error.contains("ulimit -n"),
            "{error}"
        );
        // What the error names is enough.
        let mut words = error.split("at least ").skip(1);
        let named = words.next().and_then(|rest| rest.split(';').next());
        let limit = named.and_then(|text| text.parse().ok()).expect("a number");
        Descriptors { limit }.fit(&mut options()).expect("enough");
    }
}
