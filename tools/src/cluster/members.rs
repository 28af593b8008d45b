//! `farcore cluster add` and `remove`: the next map has a server more or less.

use anyhow::{Result, anyhow, ensure};
use clap::Args;
use farcore_server::{ClusterMap, Member};

use super::member;
use super::server::{Access, Servers};

#[derive(Debug, Args)]
pub(crate) struct AddArguments {
    #[command(flatten)]
    access: Access,
    /// Where clients reach the new server, which runs with --cluster-map.
    #[arg(long, value_name = "HOST:PORT")]
    new: String,
    /// The master that it follows, an ID or an address of the map: it owns no slots, and is
    /// started with --replica-of, unless the map lies in etcd.
    #[arg(long, value_name = "ID|HOST:PORT")]
    follows: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArguments {
    #[command(flatten)]
    access: Access,
    /// The server, an ID or an address of the map.
    #[arg(long, value_name = "ID|HOST:PORT")]
    old: String,
}

/// The next map, of other lines.
fn next(map: &ClusterMap, change: impl FnOnce(&mut Vec<String>)) -> Result<ClusterMap> {
    let text = map.to_string();
    let mut lines: Vec<_> = text.lines().skip(1).map(str::to_owned).collect();
    change(&mut lines);
    let map = ClusterMap::parse_nodes(map.version + 1, &lines.join("\n"));
    map.map_err(|error| anyhow!("the next map would be malformed: {error}"))
}

/// Adds a server.
///
/// # Errors
/// It is there, is not reached, or not all get the map.
pub(super) fn add(arguments: &AddArguments) -> Result<()> {
    let servers = Servers::find(&arguments.access)?;
    servers.check_still()?;
    let follows = arguments
        .follows
        .as_ref()
        .map(|text| servers.place("--follows", text));
    let source = follows
        .transpose()?
        .map(|place| servers.map.members[place].id.clone());
    let new = Member {
        source,
        ..member("--new", &arguments.new)?
    };
    let role = match &new.source {
        None => "master -".to_owned(),
        Some(source) => format!("slave {source}"),
    };
    let line = format!("{} {} {} {role}", new.id, new.host, new.port);
    let map = next(&servers.map, |lines| lines.push(line))?;
    // One that is not there must not be in the map of the others.
    servers.connect(&new)?.push(&map)?;
    servers.push(&map, &[new])
}

/// Removes a server.
///
/// # Errors
/// It owns slots, others follow it, or not all get the map.
pub(super) fn remove(arguments: &RemoveArguments) -> Result<()> {
    let mut servers = Servers::find(&arguments.access)?;
    servers.check_still()?;
    let place = servers.place("--old", &arguments.old)?;
    let owned = servers.map.slots_of(place).len();
    ensure!(
        owned == 0,
        "--old {}: it owns {owned} slots; move them first (farcore cluster move-slots)",
        arguments.old
    );
    let followers = servers.map.followers(place).count();
    ensure!(
        followers == 0,
        "--old {}: {followers} servers follow it; remove them first",
        arguments.old
    );
    let old = servers.map.members[place].clone();
    let map = next(&servers.map, |lines| {
        lines.retain(|line| !line.starts_with(&old.id));
    })?;
    // The one that is removed tells its clients where others are, if it is there.
    if let Ok(mut server) = servers.connect(&old) {
        server.push(&map)?;
    }
    servers.map = map.clone();
    servers.push(&map, &[])
}
