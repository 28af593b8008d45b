//! The map of a cluster: which server owns which slot, as of an epoch.
//!
//! ```text
//! epoch 3
//! ID HOST PORT master - SLOT FIRST-LAST ..
//! ID HOST PORT slave MASTER-ID
//! ```
//!
//! The lines behind the first are those of `CLUSTERX SETNODES` of Apache kvrocks. Lines that begin
//! with `#` and empty ones say nothing.
//!
//! - I1: a slot has one owner at most, and an owner is a master of the map.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::slot::SLOTS;

/// Servers of a cluster, at most.
pub const MEMBERS_MAX: usize = 1000;
/// Hexadecimal digits of a server's ID.
const ID_DIGITS: usize = 40;

/// A server of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// 40 hexadecimal digits.
    pub id: String,
    /// Where clients reach it.
    pub host: String,
    /// The port for clients.
    pub port: u16,
    /// The ID of the server that it follows; `None` of one that may own slots.
    pub source: Option<String>,
}

/// Which server owns which slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterMap {
    /// Rises with each change.
    pub epoch: u64,
    /// The servers, in the order of the text.
    pub members: Vec<Member>,
    /// The place of each slot's owner among the members.
    owners: Vec<Option<u16>>,
}

impl ClusterMap {
    /// Reads a map.
    ///
    /// # Errors
    /// A line and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut map = Self {
            epoch: 0,
            members: Vec::new(),
            owners: vec![None; SLOTS],
        };
        let lines = (1..).zip(text.lines().map(str::trim));
        let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let epoch = lines.next().and_then(|(_, line)| {
            let number = line.strip_prefix("epoch ")?;
            number.trim().parse().ok().filter(|epoch| *epoch > 0)
        });
        map.epoch = epoch.ok_or("the first line must be `epoch NUMBER`, of 1 or more")?;
        for (number, line) in lines {
            (map.add(line)).map_err(|error| format!("line {number}: {error}"))?;
        }
        map.check()?;
        Ok(map)
    }

    /// Adds the server of a line.
    fn add(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split_whitespace();
        let mut word = |what: &str| words.next().ok_or_else(|| format!("{what} is missing"));
        let id = word("the ID")?;
        if id.len() != ID_DIGITS || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(format!(
                "the ID '{id}' must be {ID_DIGITS} hexadecimal digits"
            ));
        }
        let host = word("the host")?;
        let port = word("the port")?;
        let port = port.parse().ok().filter(|port| *port > 0);
        let port = port.ok_or("the port must be 1 to 65535")?;
        let role = word("`master` or `slave`")?;
        let of = word("the ID of the master, or `-`,")?;
        let source = match (role, of) {
            ("master", "-") => None,
            ("slave", of) => Some(of.to_ascii_lowercase()),
            _ => {
                return Err(format!(
                    "'{role} {of}' must be `master -` or `slave MASTER-ID`"
                ));
            }
        };
        if self.members.len() == MEMBERS_MAX {
            return Err(format!("a cluster has at most {MEMBERS_MAX} servers"));
        }
        let place = u16::try_from(self.members.len()).map_err(|error| error.to_string())?;
        let is_master = source.is_none();
        self.members.push(Member {
            id: id.to_ascii_lowercase(),
            host: host.to_owned(),
            port,
            source,
        });
        for range in words {
            if !is_master {
                return Err("a slave owns no slots".to_owned());
            }
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let bound = |text: &str| text.parse::<usize>().ok().filter(|slot| *slot < SLOTS);
            let bounds = bound(first)
                .zip(bound(last))
                .filter(|(first, last)| first <= last);
            let (first, last) = bounds.ok_or_else(|| {
                format!(
                    "'{range}' must be a slot or FIRST-LAST of 0 to {}",
                    SLOTS - 1
                )
            })?;
            for (slot, owner) in (first..).zip(&mut self.owners[first..=last]) {
                if owner.replace(place).is_some() {
                    return Err(format!("slot {slot} has an owner already"));
                }
            }
        }
        Ok(())
    }

    /// Checks what the lines say together.
    fn check(&self) -> Result<(), String> {
        let (mut ids, mut addresses) = (HashSet::new(), HashSet::new());
        for member in &self.members {
            if !ids.insert(&member.id) {
                return Err(format!("the ID {} is there twice", member.id));
            }
            let Member { host, port, .. } = member;
            if !addresses.insert((host, port)) {
                return Err(format!("the address {host}:{port} is there twice"));
            }
            if let Some(source) = &member.source
                && !self
                    .members
                    .iter()
                    .any(|one| one.id == *source && one.source.is_none())
            {
                return Err(format!(
                    "{} follows {source}, which is no master of the map",
                    member.id
                ));
            }
        }
        Ok(())
    }

    /// The place of a slot's owner among the members.
    #[must_use]
    #[inline]
    pub fn owner(&self, slot: u16) -> Option<usize> {
        self.owners
            .get(usize::from(slot))
            .copied()
            .flatten()
            .map(usize::from)
    }

    /// Slots that have an owner.
    #[must_use]
    pub fn assigned(&self) -> usize {
        self.owners.iter().flatten().count()
    }

    /// The runs of slots that have one owner: the first, the last, and the owner's place.
    pub fn ranges(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let mut first = 0;
        self.owners
            .chunk_by(|one, other| one == other)
            .filter_map(move |run| {
                let begin = first;
                first += run.len();
                Some((begin, first - 1, usize::from(run[0]?)))
            })
    }

    /// The slots of a member, as its line has them.
    #[must_use]
    pub fn slots_text(&self, place: usize) -> String {
        let mut text = String::new();
        for (first, last, _) in self.ranges().filter(|(.., owner)| *owner == place) {
            let _ = match first == last {
                true => write!(text, " {first}"),
                false => write!(text, " {first}-{last}"),
            };
        }
        text
    }
}

impl std::fmt::Display for ClusterMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "epoch {}", self.epoch)?;
        for (place, member) in self.members.iter().enumerate() {
            let Member {
                id,
                host,
                port,
                source,
            } = member;
            let slots = self.slots_text(place);
            match source {
                None => writeln!(f, "{id} {host} {port} master -{slots}")?,
                Some(source) => writeln!(f, "{id} {host} {port} slave {source}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(digit: char, rest: &str) -> String {
        format!("{} 127.0.0.1 {rest}", String::from(digit).repeat(ID_DIGITS))
    }

    #[test]
    fn a_map_is_read_and_written() {
        let source = "a".repeat(ID_DIGITS);
        let text = format!(
            "epoch 3\n{}\n{}\n{}\n",
            line('a', "7001 master - 0-99 200"),
            line('b', "7002 master - 100-199"),
            line('c', &format!("7003 slave {source}")),
        );
        let map = ClusterMap::parse(&text).expect("a map");
        assert_eq!(map.to_string(), text);
        assert_eq!(map.epoch, 3);
        let owners = [0, 99, 100, 200, 201].map(|slot| map.owner(slot));
        assert_eq!(owners, [Some(0), Some(0), Some(1), Some(0), None]);
        assert_eq!(map.assigned(), 201);
        let ranges: Vec<_> = map.ranges().collect();
        assert_eq!(ranges, [(0, 99, 0), (100, 199, 1), (200, 200, 0)]);
    }

    #[test]
    fn wrong_maps_are_refused() {
        let one = line('a', "7001 master - 0-99");
        for (text, error) in [
            (String::new(), "epoch NUMBER"),
            ("epoch 0".to_owned(), "epoch NUMBER"),
            (
                "epoch 1\nabc h 1 master -".to_owned(),
                "line 2: the ID 'abc'",
            ),
            (
                format!("epoch 1\n{one}\n{one}"),
                "line 3: slot 0 has an owner",
            ),
            (format!("epoch 1\n{one} 16384"), "'16384' must be a slot"),
            (format!("epoch 1\n{one} 9-8"), "'9-8' must be a slot"),
            (
                format!("epoch 1\n{one}\n{}", line('a', "7002 master -")),
                "there twice",
            ),
            (
                format!("epoch 1\n{one}\n{}", line('b', "7001 master -")),
                "there twice",
            ),
            (
                format!("epoch 1\n{}", line('b', "7001 slave x")),
                "no master of the map",
            ),
            (
                format!("epoch 1\n{}", line('b', "0 master -")),
                "the port must",
            ),
            (
                format!("epoch 1\n{}", line('b', "1 chief -")),
                "'chief -' must be",
            ),
        ] {
            let found = ClusterMap::parse(&text).expect_err(&text);
            assert!(found.contains(error), "{text}: {found}");
        }
    }
}
