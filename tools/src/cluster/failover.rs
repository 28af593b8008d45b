//! `farcore cluster failover`: the slots of a server that is gone become those of one that follows
//! it, in one transaction of etcd that holds only if the lease of the first one has ended.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};
use clap::Args;
use farcore_command::outputs::print;
use farcore_server::{ClusterMap, Member};

use super::place::PlaceArguments;
use super::server::{Credentials, Server, address_of, place_in};

/// How often etcd is asked whether the lease has ended.
const ASK: Duration = Duration::from_millis(300);

/// The longest wait.
const WAIT_MOST: Duration = Duration::from_secs(3600);

fn parse_wait(text: &str) -> Result<Duration, String> {
    let wait = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    (wait <= WAIT_MOST)
        .then_some(wait)
        .ok_or_else(|| "must be 0s to 1h".to_owned())
}

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: PlaceArguments,
    #[command(flatten)]
    credentials: Credentials,
    /// The server that is gone: an ID or an address of the map.
    #[arg(long, value_name = "ID|HOST:PORT")]
    old: String,
    /// Who is to own its slots, one that follows it [default: the one that has most of its changes]
    #[arg(long, value_name = "ID|HOST:PORT")]
    new: Option<String>,
    /// How long to wait for the end of the old one's lease, 0s to 1h
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_wait)]
    wait: Duration,
}

/// What a follower has of its source's changes.
fn offset_of(member: &Member, old: &Member, credentials: &Credentials) -> Result<u64> {
    let address = address_of(member);
    let text = Server::connect(&address, credentials)?.ask(&["INFO", "replication"])?;
    let value = |name: &str| {
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(str::trim)
    };
    let offset = value("slave_repl_offset").and_then(|offset| offset.parse().ok());
    let offset: u64 = offset.ok_or_else(|| anyhow!("{address}: it follows none"))?;
    let port = old.port.to_string();
    let follows = (value("master_host"), value("master_port"));
    ensure!(
        follows == (Some(&old.host[..]), Some(&port[..])),
        "{address}: it follows another server"
    );
    ensure!(
        offset > 0 && value("master_sync_in_progress") == Some("0"),
        "{address}: it has not loaded all data"
    );
    Ok(offset)
}

/// The place of the follower that has most of the changes.
fn best(map: &ClusterMap, old: usize, credentials: &Credentials) -> Result<usize> {
    let mut best = None;
    for place in map.followers(old) {
        match offset_of(&map.members[place], &map.members[old], credentials) {
            Ok(offset) if best.is_none_or(|(_, most)| offset > most) => {
                best = Some((place, offset));
            }
            Ok(_) => {}
            Err(error) => print(format_args!("it is passed over: {error:#}"))?,
        }
    }
    let best = best.map(|(place, _)| place);
    best.ok_or_else(|| anyhow!("no server follows it that answers; name one with --new"))
}

/// Has the slots of a server that is gone be another one's.
///
/// # Errors
/// Its lease holds, no server follows it, or etcd is not reached.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let etcd = arguments.place.client()?;
    let until = Instant::now() + arguments.wait;
    let mut waits = false;
    loop {
        let (map, present) = arguments.place.read_etcd(&etcd)?;
        let old = place_in(&map, "--old", &arguments.old)?;
        let (id, address) = (&map.members[old].id, address_of(&map.members[old]));
        ensure!(
            !map.slots_of(old).is_empty(),
            "--old {}: it owns no slots",
            arguments.old
        );
        let gone = farcore_etcd::Condition {
            key: ClusterMap::etcd_key_of(&etcd, id),
            revision: 0,
        };
        let lease = etcd.get(&gone.key);
        let lease = lease.map_err(|error| arguments.place.failed(&error))?;
        if !lease.entries.is_empty() {
            ensure!(
                Instant::now() < until,
                "{address} has its lease, so it serves its slots: stop it, or wait until the lease has ended"
            );
            if !waits {
                print(format_args!("waits for the end of the lease of {address}"))?;
            }
            waits = true;
            thread::sleep(ASK);
            continue;
        }
        let new = match &arguments.new {
            Some(text) => place_in(&map, "--new", text)?,
            None => best(&map, old, &arguments.credentials)?,
        };
        let next = map.failed_over(old, new).map_err(|error| anyhow!(error))?;
        let written = next.write_etcd(&etcd, &[present, gone]);
        let written = written.map_err(|error| {
            let error = format!("{error}; the slots may be given away or not: look by `show`");
            arguments.place.failed(&error)
        })?;
        if written {
            let new = address_of(&map.members[new]);
            return print(format_args!(
                "version {}: {new} has the slots of {address}",
                next.version
            ));
        }
        if Instant::now() >= until {
            bail!("others change the map, or {address} has come back: look at it, and try again");
        }
    }
}
