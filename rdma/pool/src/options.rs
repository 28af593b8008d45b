//! Settings of a pool, and where in it memory is allocated.

use std::fmt;
use std::time::Duration;

use farcore_rdma::{NodeAddress, Token, VerbsOptions};

use crate::error::{PoolError, Result};

/// The most one-sided connections to each node.
const CONNECTIONS_MAX: usize = 16;
/// The deepest send queue.
const DEPTH_MAX: usize = 4096;

/// Settings of a pool.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// The nodes' token, if they require one.
    pub token: Option<Token>,
    /// A name for the nodes' logs.
    pub client: String,
    /// One-sided connections to each node, 1 to 16. Threads are spread over them. Default: 1; more
    /// help several threads that work at once (`docs/pool.md` has the curve).
    pub connections: usize,
    /// Requests in flight on each connection, 1 to 4096. Default: 64.
    pub depth: usize,
    /// The longest single transfer, in bytes, 4 KiB to 16 MiB; longer ones are split. Default:
    /// 512 KiB.
    pub transfer_bytes: u32,
    /// How long an operation waits for a node that does not answer, 1 ms to 1 hour. Default: 5 s.
    pub timeout: Duration,
    /// How long a node may leave all requests unanswered before its connection counts as lost.
    /// Default: 1 s.
    pub silence: Duration,
    /// How many nodes must answer at the start. Default: all.
    pub nodes_min: Option<usize>,
    /// How long a start waits for them. Default: 5 s.
    pub nodes_wait: Duration,
    /// This program's zone, a name without `=`: memory is allocated on nodes of this zone first.
    /// Default: none.
    pub zone: Option<String>,
    /// How long a waiting thread polls before it sleeps. Default: 50 us.
    pub spin: Duration,
    /// Device and queue pair settings, over RDMA.
    pub verbs: VerbsOptions,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self {
            token: None,
            client: "farcore-pool".to_owned(),
            connections: 1,
            depth: 64,
            transfer_bytes: 512 << 10,
            timeout: Duration::from_secs(5),
            silence: Duration::from_secs(1),
            nodes_min: None,
            nodes_wait: Duration::from_secs(5),
            zone: None,
            spin: Duration::from_micros(50),
            verbs: VerbsOptions::default(),
        }
    }
}

impl PoolOptions {
    /// Checks the ranges.
    ///
    /// # Errors
    /// [`PoolError::Option`] names the first setting that is out of range.
    pub(crate) fn check(&self, nodes: usize) -> Result<()> {
        let wrong = |option, value: String, range| {
            Err(PoolError::Option {
                option,
                value,
                range,
            })
        };
        if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            return wrong("connections", self.connections.to_string(), "1 to 16");
        }
        if !(1..=DEPTH_MAX).contains(&self.depth) {
            return wrong("depth", self.depth.to_string(), "1 to 4096");
        }
        if !(4 << 10..=16 << 20).contains(&self.transfer_bytes) {
            let value = self.transfer_bytes.to_string();
            return wrong("transfer_bytes", value, "4096 to 16777216");
        }
        let hour = Duration::from_hours(1);
        let limits = Duration::from_millis(1)..=hour;
        for (option, value) in [("timeout", self.timeout), ("silence", self.silence)] {
            if !limits.contains(&value) {
                return wrong(option, format!("{value:?}"), "1 ms to 1 hour");
            }
        }
        if self.nodes_wait > hour {
            let value = format!("{:?}", self.nodes_wait);
            return wrong("nodes_wait", value, "at most 1 hour");
        }
        if let Some(zone) = &self.zone
            && (zone.is_empty() || zone.contains('='))
        {
            return wrong("zone", format!("`{zone}`"), "a name without `=`");
        }
        match self.nodes_min {
            Some(least) if !(1..=nodes).contains(&least) => wrong(
                "nodes_min",
                least.to_string(),
                "1 to the number of memory nodes",
            ),
            _ => Ok(()),
        }
    }
}

/// Checks that no node is named twice: memory beside a node would lie on the node itself.
///
/// # Errors
/// [`PoolError::Option`] names the first that is.
pub(crate) fn check_distinct(nodes: &[NodeAddress]) -> Result<()> {
    for (place, node) in nodes.iter().enumerate() {
        if nodes[..place].iter().any(|one| one.address == node.address) {
            return Err(PoolError::Option {
                option: "node",
                value: node.to_string(),
                range: "named once",
            });
        }
    }
    Ok(())
}

/// Where memory is allocated.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Placement {
    /// On one node, drawn by free memory and load; a node of [`PoolOptions::zone`] if one has room.
    #[default]
    Balanced,
    /// On the node with this index, in the order of the addresses.
    Node(usize),
    /// On a node of this zone.
    Zone(String),
    /// On any node but those of this index: for a second copy. A node of another zone is preferred.
    Beside(usize),
    /// In equal parts on all nodes, in whole extents.
    Spread,
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Balanced => write!(f, "a balanced allocation"),
            Self::Node(index) => write!(f, "node {index}"),
            Self::Zone(zone) => write!(f, "zone {zone}"),
            Self::Beside(index) => write!(f, "a copy beside node {index}"),
            Self::Spread => write!(f, "an allocation over all nodes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_out_of_range_are_named() {
        let refused = |change: fn(&mut PoolOptions)| {
            let mut options = PoolOptions::default();
            change(&mut options);
            match options.check(2) {
                Err(PoolError::Option { option, .. }) => option,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(PoolOptions::default().check(2), Ok(()));
        assert_eq!(refused(|o| o.connections = 0), "connections");
        assert_eq!(refused(|o| o.connections = 17), "connections");
        assert_eq!(refused(|o| o.depth = 0), "depth");
        assert_eq!(refused(|o| o.depth = 4097), "depth");
        assert_eq!(refused(|o| o.transfer_bytes = 1), "transfer_bytes");
        assert_eq!(refused(|o| o.timeout = Duration::ZERO), "timeout");
        assert_eq!(refused(|o| o.silence = Duration::MAX), "silence");
        assert_eq!(refused(|o| o.nodes_wait = Duration::MAX), "nodes_wait");
        assert_eq!(refused(|o| o.nodes_min = Some(0)), "nodes_min");
        assert_eq!(refused(|o| o.nodes_min = Some(3)), "nodes_min");
        assert_eq!(refused(|o| o.zone = Some(String::new())), "zone");
        assert_eq!(refused(|o| o.zone = Some("a=b".to_owned())), "zone");
    }

    #[test]
    fn a_node_that_is_named_twice_is_refused() {
        let nodes = |names: [&str; 2]| names.map(|name| name.parse().expect("an address"));
        assert_eq!(check_distinct(&nodes(["tcp://a", "tcp://b"])), Ok(()));
        for twice in [["tcp://a", "z=tcp://a:7400"], ["z=tcp://a", "y=tcp://a"]] {
            let error = check_distinct(&nodes(twice)).expect_err("it is named twice");
            let text = error.to_string();
            assert!(text.ends_with("tcp://a:7400: must be named once"), "{text}");
        }
    }
}
