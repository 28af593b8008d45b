//! Limits of values that the server itself takes as they are, and of its clients.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use farcore_command::words::size;
use farcore_server::HANDSHAKES_MAX;
use tracing::warn;

use crate::descriptors::Descriptors;

/// The shortest and the longest time limit.
const TIME: (Duration, Duration) = (Duration::from_millis(1), Duration::from_hours(24 * 365));
/// The longest distance of far memory in this process, as in the benchmark.
const LATENCY_MAX: Duration = Duration::from_secs(1);
/// The longest wait for memory nodes, as in the engine.
const WAIT_MAX: Duration = Duration::from_hours(24);
/// The least memory of clients: the buffers of a few of them.
const MEMORY_MIN: u64 = 1 << 20;

/// The most connections that the system counts.
const BACKLOG_MAX: u32 = i32::MAX.cast_unsigned();
/// Where the system's own limit stands.
const SOMAXCONN: &str = "/proc/sys/net/core/somaxconn";

/// Descriptors of a core: rings, eventfds, timers and listeners of its two executors.
const OF_A_CORE: u64 = 48;
/// Of a core at one memory node: its session and its connections, the old ones beside the new.
const OF_A_NODE: u64 = 8;
/// Of a native client, or a handshake of one: the sockets of its messages and of its line.
const OF_A_NATIVE: u64 = 2;
/// Standard streams, the log, the signals, the HTTP server with its connections, a device.
const OF_THE_PROCESS: u64 = 128;

/// What opens descriptors beside Redis clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct Others {
    pub(super) cores: usize,
    pub(super) nodes: usize,
    pub(super) native_clients: usize,
}

impl Others {
    /// Native clients, and the handshakes of others.
    fn native_connections(self) -> u64 {
        let handshakes = if self.native_clients > 0 {
            HANDSHAKES_MAX
        } else {
            0
        };
        self.native_clients.saturating_add(handshakes) as u64
    }

    fn descriptors(self) -> u64 {
        let (cores, nodes) = (self.cores as u64, self.nodes as u64);
        (OF_THE_PROCESS + cores * (OF_A_CORE + nodes * OF_A_NODE))
            .saturating_add(self.native_connections().saturating_mul(OF_A_NATIVE))
    }
}

/// How many of the wanted clients the limit on open descriptors allows, as Redis lowers its own
/// limit. A client above it is refused with a reason, unless its connection is encrypted.
///
/// # Errors
/// It allows none.
pub(super) fn clients(descriptors: Descriptors, wanted: usize, others: Others) -> Result<usize> {
    let needed = others.descriptors();
    let left = descriptors.limit.saturating_sub(needed);
    ensure!(
        left > 0,
        "the limit on open files is {}: a server with {} core{}{} needs at least {}; raise it with `ulimit -n`{}",
        descriptors.limit,
        others.cores,
        if others.cores == 1 { "" } else { "s" },
        match others.native_clients {
            0 => String::new(),
            clients => format!(" and --native-clients {clients}"),
        },
        needed.saturating_add(1),
        match others.native_clients {
            0 => "",
            _ => ", or lower --native-clients",
        }
    );
    Ok(usize::try_from(left).unwrap_or(usize::MAX).min(wanted))
}

/// Checks a time limit.
///
/// # Errors
/// It is out of range.
pub(super) fn time(flag: &str, value: Duration) -> Result<()> {
    ensure!(
        (TIME.0..=TIME.1).contains(&value),
        "{flag} is {}: it must be 1ms to 365days",
        humantime::format_duration(value)
    );
    Ok(())
}

/// Checks how long the start may wait for memory nodes.
///
/// # Errors
/// It is longer than the engine allows.
pub(super) fn wait(flag: &str, value: Duration) -> Result<()> {
    ensure!(
        value <= WAIT_MAX,
        "{flag} is {}: it must be 0s to 1day",
        humantime::format_duration(value)
    );
    Ok(())
}

/// Checks how many connections the system is to keep until they are accepted.
///
/// # Errors
/// It is none, or more than the system counts.
pub(super) fn backlog(connections: u32) -> Result<()> {
    ensure!(
        (1..=BACKLOG_MAX).contains(&connections),
        "--backlog is {connections}: it must be 1 to {BACKLOG_MAX}"
    );
    Ok(())
}

/// Warns if the system keeps fewer.
pub(super) fn warn_of_short_backlog(connections: u32) {
    let limit = fs::read_to_string(SOMAXCONN).unwrap_or_default();
    // A system that does not tell is taken at its word.
    let limit = limit.trim().parse().unwrap_or(u32::MAX);
    if limit < connections {
        warn!(
            backlog = connections,
            limit,
            "the system lowers --backlog to net.core.somaxconn: raise that, or clients that connect at once wait for seconds"
        );
    }
}

/// Checks the distance of far memory in this process.
///
/// # Errors
/// It is too long.
pub(super) fn latency(flag: &str, value: Duration) -> Result<()> {
    ensure!(
        value <= LATENCY_MAX,
        "{flag} is {}: it must be at most 1s",
        humantime::format_duration(value)
    );
    Ok(())
}

/// Checks the memory of clients.
///
/// # Errors
/// It is too little for one.
pub(super) fn memory(flag: &str, bytes: u64) -> Result<()> {
    ensure!(
        bytes >= MEMORY_MIN,
        "{flag} is {}: no client could be served; write {} or more",
        size(bytes),
        size(MEMORY_MIN)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_fit_into_the_limit_on_descriptors() {
        let others = Others {
            cores: 2,
            nodes: 1,
            native_clients: 4,
        };
        let fits = |limit| clients(Descriptors { limit }, 10_000, others);
        assert_eq!(fits(u64::MAX).unwrap(), 10_000);
        for limit in 0..20_000 {
            match fits(limit) {
                Ok(clients) => assert!(others.descriptors() + clients as u64 <= limit),
                Err(error) => assert!(limit <= others.descriptors(), "{error}"),
            }
        }
        let error = fits(100).unwrap_err().to_string();
        assert!(
            error.starts_with(
                "the limit on open files is 100: a server with 2 cores and --native-clients 4 needs"
            ),
            "{error}"
        );
        // What it names is enough, and one less is not.
        let (_, rest) = error.split_once("at least ").unwrap();
        let named: u64 = rest.split(';').next().unwrap().parse().unwrap();
        assert_eq!(fits(named).unwrap(), 1);
        assert!(fits(named - 1).is_err());
    }
}
