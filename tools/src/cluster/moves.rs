//! `farcore cluster move-slots` and `share`: the new owner brings the slots, then all servers get
//! its map.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};
use bytesize::ByteSize;
use clap::Args;
use farcore_command::outputs::print;
use farcore_server::SlotSet;

use super::server::{Access, Servers, address_of};

/// How often the new owner is asked how far it is.
const ASK: Duration = Duration::from_millis(200);
/// How often it is shown while nothing but bytes change.
const SHOW: Duration = Duration::from_secs(5);

fn parse_file(text: &str) -> Result<PathBuf, String> {
    match farcore_etcd::EtcdAddress::is_meant(text) {
        true => Err("give a file: the servers store the map in etcd themselves".to_owned()),
        false => Ok(PathBuf::from(text)),
    }
}

fn parse_slots(text: &str) -> Result<SlotSet, String> {
    SlotSet::parse(text)
}

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("which").required(true).args(["slots", "count"])))]
pub(crate) struct Arguments {
    #[command(flatten)]
    access: Access,
    /// Who owns the slots: an ID or an address of the map.
    #[arg(long, value_name = "ID|HOST:PORT")]
    from: String,
    /// Who is to own them.
    #[arg(long, value_name = "ID|HOST:PORT")]
    to: String,
    /// The slots, e.g. 0-99,200
    #[arg(long, value_name = "SLOTS", value_parser = parse_slots)]
    slots: Option<SlotSet>,
    /// Or how many of the owner's, its first ones.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    count: Option<u16>,
    /// File that gets the new map, too; etcd has it anyway
    #[arg(long, value_name = "FILE", value_parser = parse_file)]
    map: Option<PathBuf>,
}

/// Moves slots.
///
/// # Errors
/// They are not moved, or not all servers know of it.
pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let servers = Servers::find(&arguments.access)?;
    let from = servers.place("--from", &arguments.from)?;
    let to = servers.place("--to", &arguments.to)?;
    ensure!(from != to, "--to {}: it has them already", arguments.to);
    let owned = servers.map.slots_of(from);
    let slots = match (&arguments.slots, arguments.count) {
        (Some(slots), _) => slots.clone(),
        (None, count) => {
            let count = usize::from(count.unwrap_or(0));
            ensure!(
                owned.len() >= count,
                "--count {count}: {} owns {} slots",
                arguments.from,
                owned.len()
            );
            let mut slots = SlotSet::new();
            owned.iter().take(count).for_each(|slot| slots.insert(slot));
            slots
        }
    };
    if let Some(slot) = slots.iter().find(|slot| !owned.contains(*slot)) {
        bail!(
            "--slots: slot {slot} is not of {} by the map of version {}",
            arguments.from,
            servers.map.version
        );
    }
    let (source, target) = (&servers.map.members[from], &servers.map.members[to]);
    // Both must go by this map; others may be away.
    servers.connect(source)?.push(&servers.map)?;
    let mut server = servers.connect(target)?;
    server.push(&servers.map)?;
    server.ask(&["CLUSTERX", "IMPORT", &slots.to_string(), &source.id])?;
    print(format_args!(
        "{} slots move from {} to {}; this command may be ended, and they go on",
        slots.len(),
        address_of(source),
        address_of(target)
    ))?;
    let (mut shown, mut since) = (String::new(), Instant::now());
    loop {
        let text = server.ask(&["CLUSTERX", "IMPORTS"])?;
        let figure = |name: &str| {
            let mut lines = text.lines();
            let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.unwrap_or_default().to_owned()
        };
        let phase = figure("phase");
        if phase != shown || since.elapsed() >= SHOW {
            let loaded = ByteSize(figure("loaded_bytes").parse().unwrap_or(0));
            print(format_args!("{phase}: {loaded} loaded"))?;
            (shown, since) = (phase.clone(), Instant::now());
        }
        match &phase[..] {
            "done" => break,
            "failed" => bail!("{}: {}", address_of(target), figure("error")),
            "" => {
                return Err(anyhow!(
                    "{}: it knows of no move; was it started anew?",
                    address_of(target)
                ));
            }
            _ => thread::sleep(ASK),
        }
    }
    let map = server.map()?;
    if let Some(file) = &arguments.map {
        map.write(file)
            .map_err(|error| anyhow!("--map {}: {error}", file.display()))?;
    }
    servers.push(&map, &[])
}

#[derive(Debug, Args)]
pub(crate) struct ShareArguments {
    #[command(flatten)]
    access: Access,
}

/// Gives all servers the newest map that one of them has.
///
/// # Errors
/// Not all of them get it.
pub(super) fn share(arguments: &ShareArguments) -> Result<()> {
    let servers = Servers::find(&arguments.access)?;
    servers.push(&servers.map, &[])
}
