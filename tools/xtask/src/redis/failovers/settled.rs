//! Waits until one server is the source, the others follow it, and all Sentinels see that.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::connection::Connection;
use super::fleet::{self, Fleet, NAME};
use crate::redis::memory::words::Reply;

/// Time limit.
pub(super) const LIMIT: Duration = Duration::from_secs(90);
const PAUSE: Duration = Duration::from_millis(30);

/// Whether offsets must be equal, which needs clients that do not write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Offsets {
    Any,
    Equal,
}

/// Waits until a condition holds; its error is why it does not yet.
pub(super) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Result<T>) -> Result<T> {
    let began = Instant::now();
    loop {
        match look() {
            Ok(seen) => return Ok(seen),
            Err(error) if began.elapsed() > LIMIT => {
                return Err(error.context(format!("{what} not within {LIMIT:?}")));
            }
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

/// Waits until all is settled; returns the place of the source among the servers.
pub(super) fn settle(fleet: &mut Fleet, offsets: Offsets) -> Result<usize> {
    for server in &mut fleet.servers {
        server.expect_running()?;
    }
    wait_for("one source and two replicas", || {
        let port = seen_by_sentinels(fleet)?;
        let source = fleet.servers.iter().position(|server| server.port == port);
        let Some(source) = source else {
            bail!("Sentinels name port {port}");
        };
        check_servers(fleet, source, offsets)?;
        Ok(source)
    })
}

/// The port of the source, of which all Sentinels say that it and its replicas are well.
fn seen_by_sentinels(fleet: &Fleet) -> Result<u16> {
    let mut ports = Vec::new();
    for sentinel in &fleet.sentinels {
        let mut connection = sentinel.connect()?;
        let port = fleet::source_port(&mut connection)?;
        let source = fields(&connection.ask(&["SENTINEL", "MASTER", NAME])?);
        let is = |name: &str, value: &str| source.get(name).is_some_and(|is| is == value);
        let is_well = is("flags", "master")
            && is("num-slaves", "2")
            && is("num-other-sentinels", "2")
            && is("port", &port.to_string());
        ensure!(is_well, "a Sentinel says of its source: {source:?}");
        check_replicas(&mut connection, port)?;
        ports.push(port);
    }
    ensure!(
        ports.iter().all(|port| *port == ports[0]),
        "Sentinels name {ports:?}"
    );
    Ok(ports[0])
}

/// Whether a Sentinel says of both replicas that they follow the source.
fn check_replicas(sentinel: &mut Connection, port: u16) -> Result<()> {
    let Reply::Many(replicas) = sentinel.ask(&["SENTINEL", "REPLICAS", NAME])? else {
        bail!("a Sentinel lists no replicas");
    };
    for replica in replicas {
        let replica = fields(&replica);
        let is = |name: &str, value: &str| replica.get(name).is_some_and(|is| is == value);
        let is_well = is("flags", "slave")
            && is("role-reported", "slave")
            && is("master-link-status", "ok")
            && is("master-port", &port.to_string());
        ensure!(is_well, "a Sentinel says of a replica: {replica:?}");
    }
    Ok(())
}

/// Names and values that follow each other.
fn fields(reply: &Reply) -> BTreeMap<String, String> {
    let Reply::Many(all) = reply else {
        return BTreeMap::new();
    };
    let text = |reply: &Reply| match reply {
        Reply::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        _ => String::new(),
    };
    let pairs = all.chunks_exact(2);
    pairs.map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

/// Whether all servers say the same.
fn check_servers(fleet: &Fleet, source: usize, offsets: Offsets) -> Result<()> {
    let port = fleet.servers[source].port;
    let info = fleet.servers[source].connect()?.info()?;
    ensure!(
        info.of("role") == "master" && info.online() == 2,
        "the source, port {port}, is {:?} with {} replicas online",
        info.of("role"),
        info.online()
    );
    let offset = info.number("master_repl_offset");
    for (place, server) in fleet.servers.iter().enumerate() {
        if place == source {
            continue;
        }
        let info = server.connect()?.info()?;
        ensure!(
            info.number("master_port") == u64::from(port) && info.of("master_link_status") == "up",
            "port {} follows port {:?}, and its link is {:?}: {}",
            server.port,
            info.of("master_port"),
            info.of("master_link_status"),
            info.of("master_link_error")
        );
        let applied = info.number("slave_repl_offset");
        ensure!(
            offsets == Offsets::Any || applied == offset,
            "port {} is at {applied}, the source at {offset}",
            server.port
        );
        let failed = info.number("replica_failed_commands");
        ensure!(
            failed == 0,
            "{failed} commands have failed at port {}",
            server.port
        );
    }
    Ok(())
}
