//! `farcore cluster`: maps of clusters, which `farcore serve --cluster-map` goes by, and the
//! servers that do: slots are moved between them, and servers are added and removed.

mod failover;
mod members;
mod moves;
pub(crate) mod place;
pub(crate) mod server;

use std::process::ExitCode;

use anyhow::{Result, anyhow, bail};
use clap::{Args, Subcommand};
use farcore_command::outputs::print;
use farcore_server::{ClusterMap, Member};

use self::place::PlaceArguments;
use crate::text::table;

/// Hexadecimal digits of half an ID.
const HALF_DIGITS: usize = 20;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write the map of a new cluster: each server owns as many slots, and has a random ID.
    Create(CreateArguments),
    /// Print the servers of a map, their slots, and what is wrong.
    Show(ShowArguments),
    /// Check a map. Exit code 1 if it is malformed, or slots have no owner.
    Check(CheckArguments),
    /// Move slots with their keys from one server to another, while clients use them.
    MoveSlots(moves::Arguments),
    /// Give all servers the newest map that one of them has.
    Share(moves::ShareArguments),
    /// Add a server without slots to the map of all.
    Add(members::AddArguments),
    /// Remove a server without slots from the map of all.
    Remove(members::RemoveArguments),
    /// Give the slots of a server that is gone to one that follows it; the map is in etcd.
    Failover(failover::Arguments),
}

#[derive(Debug, Args)]
pub(crate) struct CreateArguments {
    #[command(flatten)]
    place: PlaceArguments,
    /// Where clients reach each server, e.g. 10.0.0.1:6379,10.0.0.2:6379
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', required = true)]
    servers: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArguments {
    #[command(flatten)]
    place: PlaceArguments,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    place: PlaceArguments,
}

impl Command {
    /// The words that name the command, for errors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Create(_) => "cluster create",
            Self::Show(_) => "cluster show",
            Self::Check(_) => "cluster check",
            Self::MoveSlots(_) => "cluster move-slots",
            Self::Share(_) => "cluster share",
            Self::Add(_) => "cluster add",
            Self::Remove(_) => "cluster remove",
            Self::Failover(_) => "cluster failover",
        }
    }
}

/// Runs the command.
///
/// # Errors
/// The map cannot be read or written, or is wrong.
pub(crate) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Create(arguments) => create(arguments),
        Command::Show(arguments) => show(&arguments.place),
        Command::Check(arguments) => check(&arguments.place.read()?),
        Command::MoveSlots(arguments) => moves::run(arguments),
        Command::Share(arguments) => moves::share(arguments),
        Command::Add(arguments) => members::add(arguments),
        Command::Remove(arguments) => members::remove(arguments),
        Command::Failover(arguments) => failover::run(arguments),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// A random ID.
fn random_id() -> String {
    let half = || rand::random::<u128>() >> (u128::BITS as usize - 4 * HALF_DIGITS);
    format!("{:0HALF_DIGITS$x}{:0HALF_DIGITS$x}", half(), half())
}

fn member(flag: &str, address: &str) -> Result<Member> {
    let parts = address.rsplit_once(':').and_then(|(host, port)| {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = port.parse().ok().filter(|port| *port > 0)?;
        (!host.is_empty()).then(|| (host.to_owned(), port))
    });
    let (host, port) =
        parts.ok_or_else(|| anyhow!("{flag} {address}: give HOST:PORT, e.g. 10.0.0.1:6379"))?;
    Ok(Member {
        id: random_id(),
        host,
        port,
        source: None,
    })
}

fn create(arguments: &CreateArguments) -> Result<()> {
    let members = arguments.servers.iter();
    let members: Result<Vec<_>> = members.map(|one| member("--servers", one)).collect();
    let map = ClusterMap::even(1, members?).map_err(|error| anyhow!("--servers: {error}"))?;
    // What it says is what a server reads.
    ClusterMap::parse(&map.to_string()).map_err(|error| anyhow!("--servers: {error}"))?;
    arguments.place.create(&map)?;
    print_map(&map)
}

fn show(place: &PlaceArguments) -> Result<()> {
    let map = place.read()?;
    print_map(&map)?;
    for id in place.without_lease(&map)?.unwrap_or_default() {
        print(format_args!("{id} has no lease: it serves no slots"))?;
    }
    Ok(())
}

fn print_map(map: &ClusterMap) -> Result<()> {
    print(format_args!("version {}", map.version))?;
    let slots = map.slots_texts();
    let rows = map.members.iter().zip(slots).map(|(member, slots)| {
        let role = match &member.source {
            None => "master".to_owned(),
            Some(source) => format!("slave of {source}"),
        };
        let address = format!("{}:{}", member.host, member.port);
        vec![member.id.clone(), address, role, slots.trim().to_owned()]
    });
    print(table(
        &["id", "address", "role", "slots"],
        4,
        rows.collect(),
    ))?;
    for problem in map.problems() {
        print(problem)?;
    }
    Ok(())
}

fn check(map: &ClusterMap) -> Result<()> {
    let problems = map.problems();
    for problem in &problems {
        print(problem)?;
    }
    if map.gaps().next().is_some() {
        bail!("keys of slots without an owner are served nowhere");
    }
    let (version, servers) = (map.version, map.members.len());
    print(format_args!(
        "version {version}: {servers} servers own all slots"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_40_digits_and_differ() {
        let (one, other) = (random_id(), random_id());
        assert!(farcore_server::is_member_id(&one) && farcore_server::is_member_id(&other));
        assert_ne!(one, other);
    }

    #[test]
    fn a_map_is_made_once_and_checked() {
        let folder = tempfile::tempdir().expect("a folder");
        let map = folder.path().join("map");
        let arguments = CreateArguments {
            place: PlaceArguments::of_file(map.clone()),
            servers: ["a:1", "[::1]:2", "c:3"].map(str::to_owned).to_vec(),
        };
        create(&arguments).expect("it is made");
        let made = arguments.place.read().expect("it is there");
        assert_eq!((made.members.len(), made.assigned()), (3, 16_384));
        assert_eq!(made.members[1].host, "::1");
        check(&made).expect("it is whole");
        assert!(create(&arguments).is_err(), "it is not replaced");
        for wrong in ["a", "a:0", ":1", "a:1,a:1", "a b:1"] {
            let arguments = CreateArguments {
                place: PlaceArguments::of_file(folder.path().join("other")),
                servers: wrong.split(',').map(str::to_owned).collect(),
            };
            assert!(create(&arguments).is_err(), "{wrong}");
        }
        let text = made.to_string().replace("0-5461", "1-5461");
        assert!(check(&ClusterMap::parse(&text).expect("a map")).is_err());
    }
}
