//! The map of a cluster: which server owns which slot, as of a version.
//!
//! ```text
//! version 3
//! ID HOST PORT master - SLOT FIRST-LAST ..
//! ID HOST PORT slave MASTER-ID
//! ```
//!
//! The lines behind the first are those of `CLUSTERX SETNODES` of Apache kvrocks. Lines that begin
//! with `#` and empty ones say nothing.
//!
//! - I1: a slot has one owner at most, and an owner is a master of the map.
//! - I2: no ID and no address is there twice, and a slave follows a master of the map.
//! - I3: texts of a map have no character that ends a line of a reply.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::slot::{SLOTS, parse_range, repeated};
use super::slot_set::SlotSet;

/// Servers of a cluster, at most.
pub const MEMBERS_MAX: usize = 1000;
/// Bytes of the text of a map, at most.
pub const MAP_BYTES_MAX: usize = 1 << 20;
/// Hexadecimal digits of a server's ID.
pub(crate) const ID_DIGITS: usize = 40;
/// Bytes of a host's name, at most; as DNS.
const HOST_BYTES_MAX: usize = 253;
/// The place of no member.
const NONE: u16 = u16::MAX;

const _: () = assert!(MEMBERS_MAX < NONE as usize);

// A map of as many servers, whose slots are all named one by one, is within the limit.
const _: () = assert!(
    MEMBERS_MAX * (2 * ID_DIGITS + HOST_BYTES_MAX + 32) + SLOTS * " 16383".len() <= MAP_BYTES_MAX
);

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
    /// Rises with each change; 0 of a map that is not known yet.
    pub version: u64,
    /// The servers, in the order of the text.
    pub members: Vec<Member>,
    /// The place of each slot's owner among the members, or [`NONE`].
    owners: Vec<u16>,
}

/// True if a text may be the ID of a server.
#[must_use]
pub fn is_member_id(text: &str) -> bool {
    text.len() == ID_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl ClusterMap {
    /// A map without servers.
    #[must_use]
    pub fn unknown() -> Self {
        Self {
            version: 0,
            members: Vec::new(),
            owners: vec![NONE; SLOTS],
        }
    }

    /// A map of masters that share the slots evenly.
    ///
    /// # Errors
    /// There are too many servers, or none, or two are alike.
    pub fn even(version: u64, masters: Vec<Member>) -> Result<Self, String> {
        let count = masters.len();
        if count == 0 || count > MEMBERS_MAX {
            return Err(format!("a cluster has 1 to {MEMBERS_MAX} servers"));
        }
        let mut map = Self {
            version,
            members: masters,
            ..Self::unknown()
        };
        for (slot, owner) in map.owners.iter_mut().enumerate() {
            *owner = u16::try_from(slot * count / SLOTS).unwrap_or(NONE);
        }
        map.check()?;
        Ok(map)
    }

    /// Reads a map that begins with its version.
    ///
    /// # Errors
    /// A line and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAP_BYTES_MAX {
            return Err(format!("a map has at most {MAP_BYTES_MAX} bytes"));
        }
        let mut lines = lines_of(text);
        let version = lines.next().and_then(|(_, line)| {
            let number = line.strip_prefix("version ")?;
            number.trim().parse().ok().filter(|version| *version > 0)
        });
        let version = version.ok_or("the first line must be `version NUMBER`, of 1 or more")?;
        Self::of_lines(version, lines)
    }

    /// Reads the lines of servers of a version.
    ///
    /// # Errors
    /// A line and what is wrong with it.
    pub fn parse_nodes(version: u64, text: &str) -> Result<Self, String> {
        if text.len() > MAP_BYTES_MAX {
            return Err(format!("a map has at most {MAP_BYTES_MAX} bytes"));
        }
        Self::of_lines(version, lines_of(text))
    }

    fn of_lines<'a>(
        version: u64,
        lines: impl Iterator<Item = (usize, &'a str)>,
    ) -> Result<Self, String> {
        let mut map = Self {
            version,
            ..Self::unknown()
        };
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
        if !is_member_id(id) {
            let id = repeated(id);
            return Err(format!(
                "the ID '{id}' must be {ID_DIGITS} hexadecimal digits"
            ));
        }
        let host = word("the host")?;
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte);
        if host.len() > HOST_BYTES_MAX || !host.bytes().all(is_part) {
            let host = repeated(host);
            return Err(format!(
                "the host '{host}' must be at most {HOST_BYTES_MAX} letters, digits and .-_:"
            ));
        }
        let port = word("the port")?;
        let port = port.parse().ok().filter(|port| *port > 0);
        let port = port.ok_or("the port must be 1 to 65535")?;
        let role = word("`master` or `slave`")?;
        let of = word("the ID of the master, or `-`,")?;
        let is = |wanted: &str| role.eq_ignore_ascii_case(wanted);
        let source = match of {
            "-" if is("master") => None,
            of if is("slave") => Some(of.to_ascii_lowercase()),
            of => {
                let (role, of) = (repeated(role), repeated(of));
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
            let (first, last) = parse_range(range)?;
            let (first, last) = (usize::from(first), usize::from(last));
            for (slot, owner) in (first..).zip(&mut self.owners[first..=last]) {
                if std::mem::replace(owner, place) != NONE {
                    return Err(format!("slot {slot} has an owner already"));
                }
            }
        }
        Ok(())
    }

    /// Checks what the lines say together.
    fn check(&self) -> Result<(), String> {
        let masters = (self.members.iter()).filter(|member| member.source.is_none());
        let masters: HashSet<_> = masters.map(|member| &member.id).collect();
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
                && !masters.contains(source)
            {
                let source = repeated(source);
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
        let owner = self.owners.get(usize::from(slot)).copied();
        owner.filter(|owner| *owner != NONE).map(usize::from)
    }

    /// The place of the member of an ID.
    #[must_use]
    pub fn place_of(&self, id: &str) -> Option<usize> {
        (self.members.iter()).position(|member| member.id.eq_ignore_ascii_case(id))
    }

    /// The place of the member that clients reach at an address.
    #[must_use]
    pub fn place_at(&self, host: &str, port: u16) -> Option<usize> {
        (self.members.iter()).position(|member| member.host == host && member.port == port)
    }

    /// The members that follow one.
    pub fn followers(&self, place: usize) -> impl Iterator<Item = usize> {
        let id = self.members.get(place).map(|member| &member.id);
        let members = self.members.iter().enumerate();
        members
            .filter(move |(_, member)| member.source.is_some() && member.source.as_ref() == id)
            .map(|(place, _)| place)
    }

    /// The slots of the owner at a place.
    #[must_use]
    pub fn slots_of(&self, place: usize) -> SlotSet {
        let mut slots = SlotSet::new();
        for (slot, owner) in (0..).zip(&self.owners) {
            if usize::from(*owner) == place && *owner != NONE {
                slots.insert(slot);
            }
        }
        slots
    }

    /// The map of the next version, in which the master at a place owns some slots.
    ///
    /// # Errors
    /// There is no such master.
    pub fn moved(&self, slots: &SlotSet, to: usize) -> Result<Self, String> {
        let master = self.members.get(to).filter(|one| one.source.is_none());
        let owner = master.and_then(|_| u16::try_from(to).ok());
        let owner = owner.ok_or("slots are moved to a master of the map")?;
        let mut map = self.clone();
        let next = map.version.checked_add(1);
        map.version = next.ok_or("the version is the greatest one")?;
        for slot in slots.iter() {
            map.owners[usize::from(slot)] = owner;
        }
        Ok(map)
    }

    /// The IDs of servers that own fewer slots by another map.
    pub(crate) fn losers(&self, next: &Self) -> Vec<String> {
        let mut losers = std::collections::BTreeSet::new();
        for (now, then) in self.owners.iter().zip(&next.owners) {
            let now = self.members.get(usize::from(*now)).map(|member| &member.id);
            let then = next.members.get(usize::from(*then));
            if now.is_some() && now != then.map(|member| &member.id) {
                losers.extend(now.cloned());
            }
        }
        losers.into_iter().collect()
    }

    /// The next map, by which the slots of a server, and those that follow it, are those of one
    /// that follows it now; it follows that one.
    ///
    /// # Errors
    /// The new one does not follow the old one.
    pub fn failed_over(&self, old: usize, new: usize) -> Result<Self, String> {
        let (old_id, new_id) = (&self.members[old].id, &self.members[new].id);
        if self.members[new].source.as_ref() != Some(old_id) {
            return Err(format!("{new_id} does not follow {old_id}"));
        }
        let new_place = u16::try_from(new).map_err(|error| error.to_string())?;
        let next = self.version.checked_add(1);
        let mut map = self.clone();
        map.version = next.ok_or("the version is the greatest one")?;
        for (place, member) in map.members.iter_mut().enumerate() {
            if place == new {
                member.source = None;
            } else if place == old || member.source.as_ref() == Some(old_id) {
                member.source = Some(new_id.clone());
            }
        }
        for owner in &mut map.owners {
            if usize::from(*owner) == old && *owner != NONE {
                *owner = new_place;
            }
        }
        map.check()?;
        Ok(map)
    }

    /// True if both say the same, whatever the order of their lines is.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let owners = |map: &Self| {
            let ids = map.members.iter().map(|member| member.id.clone());
            let ids: Vec<_> = ids.collect();
            let ranges = map.ranges();
            let ranges = ranges.map(|(first, last, owner)| (first, last, ids[owner].clone()));
            ranges.collect::<Vec<_>>()
        };
        let members = |map: &Self| {
            let mut members = map.members.clone();
            members.sort_by(|one, other| one.id.cmp(&other.id));
            members
        };
        self.version == other.version
            && members(self) == members(other)
            && owners(self) == owners(other)
    }

    /// Slots that have an owner.
    #[must_use]
    pub fn assigned(&self) -> usize {
        self.owners.iter().filter(|owner| **owner != NONE).count()
    }

    /// The runs of slots that have one owner: the first, the last, and the owner's place.
    pub fn ranges(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        self.runs()
            .filter_map(|(first, last, owner)| Some((first, last, owner?)))
    }

    /// The runs of slots that have no owner: the first, and the last.
    pub fn gaps(&self) -> impl Iterator<Item = (usize, usize)> {
        self.runs()
            .filter_map(|(first, last, owner)| owner.is_none().then_some((first, last)))
    }

    fn runs(&self) -> impl Iterator<Item = (usize, usize, Option<usize>)> {
        let mut first = 0;
        self.owners
            .chunk_by(|one, other| one == other)
            .map(move |run| {
                let begin = first;
                first += run.len();
                let owner = (run[0] != NONE).then(|| usize::from(run[0]));
                (begin, first - 1, owner)
            })
    }

    /// The slots of each member, as its line has them.
    #[must_use]
    pub fn slots_texts(&self) -> Vec<String> {
        let mut texts = vec![String::new(); self.members.len()];
        for (first, last, owner) in self.ranges() {
            let _ = match first == last {
                true => write!(texts[owner], " {first}"),
                false => write!(texts[owner], " {first}-{last}"),
            };
        }
        texts
    }

    /// What an operator should know of a map that is well formed, a line each.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (first, last) in self.gaps() {
            problems.push(match first == last {
                true => format!("slot {first} has no owner"),
                false => format!("slots {first}-{last} have no owner"),
            });
        }
        let mut owners = vec![false; self.members.len()];
        self.ranges().for_each(|(.., owner)| owners[owner] = true);
        for (member, owns) in self.members.iter().zip(owners) {
            if member.source.is_none() && !owns {
                let Member { id, host, port, .. } = member;
                problems.push(format!("the master {id} at {host}:{port} owns no slots"));
            }
        }
        problems
    }
}

/// The lines of a text that say something, with their numbers.
fn lines_of(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = (1..).zip(text.lines().map(str::trim));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

impl std::fmt::Display for ClusterMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "version {}", self.version)?;
        for (member, slots) in self.members.iter().zip(self.slots_texts()) {
            let Member {
                id,
                host,
                port,
                source,
            } = member;
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
    fn any_text_is_a_map_that_is_written_again_alike_or_is_refused() {
        let source = "a".repeat(ID_DIGITS);
        let seed = format!(
            "version 3\n{}\n# none\n{}\n{}\n",
            line('a', "7001 master - 0-99 200"),
            line('b', "7002 master - 100-199"),
            line('c', &format!("7003 slave {source}")),
        );
        farcore_fuzz::Target::new("cluster map")
            .seed(seed.as_bytes())
            .seed(b"version 1\n")
            .longest(1000)
            // The owners of all slots, of the map and of another one that it is compared with.
            .memory(3 * SLOTS * size_of::<u16>(), 64)
            .run(|bytes| {
                let Ok(text) = std::str::from_utf8(bytes) else {
                    return;
                };
                let map = ClusterMap::parse(text);
                match &map {
                    Ok(map) => {
                        let shown = map.to_string();
                        assert_eq!(ClusterMap::parse(&shown).as_ref(), Ok(map));
                        let (_, nodes) = shown.split_once('\n').expect("a version");
                        let nodes = ClusterMap::parse_nodes(map.version, nodes);
                        assert_eq!(nodes.as_ref(), Ok(map));
                        let owners = map.ranges().map(|(first, last, _)| last + 1 - first);
                        let gaps = map.gaps().map(|(first, last)| last + 1 - first);
                        assert_eq!(owners.sum::<usize>(), map.assigned());
                        assert_eq!(gaps.sum::<usize>() + map.assigned(), SLOTS);
                        for (.., owner) in map.ranges() {
                            assert_eq!(map.members[owner].source, None);
                        }
                    }
                    Err(error) => assert!(error.len() < 1000),
                }
                drop(ClusterMap::parse_nodes(1, text));
            });
    }

    #[test]
    fn a_map_is_read_and_written() {
        let source = "a".repeat(ID_DIGITS);
        let text = format!(
            "version 3\n{}\n{}\n{}\n",
            line('a', "7001 master - 0-99 200"),
            line('b', "7002 master - 100-199"),
            line('c', &format!("7003 slave {source}")),
        );
        let map = ClusterMap::parse(&text).expect("a map");
        assert_eq!(map.to_string(), text);
        assert_eq!(map.version, 3);
        let owners = [0, 99, 100, 200, 201].map(|slot| map.owner(slot));
        assert_eq!(owners, [Some(0), Some(0), Some(1), Some(0), None]);
        assert_eq!(map.assigned(), 201);
        let ranges: Vec<_> = map.ranges().collect();
        assert_eq!(ranges, [(0, 99, 0), (100, 199, 1), (200, 200, 0)]);
        assert_eq!(map.gaps().collect::<Vec<_>>(), [(201, SLOTS - 1)]);
        assert_eq!(map.followers(0).collect::<Vec<_>>(), [2]);
        assert_eq!(map.followers(2).count(), 0);
        assert_eq!(map.problems(), ["slots 201-16383 have no owner"]);
        assert_eq!(map.place_at("127.0.0.1", 7002), Some(1));
        assert_eq!(map.place_of(&"C".repeat(ID_DIGITS)), Some(2));
    }

    #[test]
    fn slots_are_shared_evenly() {
        for count in [1, 3, 7, MEMBERS_MAX] {
            let masters = (1..=count).map(|number| Member {
                id: format!("{number:040x}"),
                host: "h".to_owned(),
                port: u16::try_from(number).expect("few"),
                source: None,
            });
            let map = ClusterMap::even(1, masters.collect()).expect("a map");
            assert_eq!(map.problems(), Vec::<String>::new());
            let lengths = map.ranges().map(|(first, last, _)| last + 1 - first);
            let lengths: Vec<_> = lengths.collect();
            let (least, most) = (lengths.iter().min(), lengths.iter().max());
            assert!(most <= least.map(|least| least + 1).as_ref());
            assert_eq!(ClusterMap::parse(&map.to_string()), Ok(map));
        }
        assert!(ClusterMap::even(1, Vec::new()).is_err());
    }

    #[test]
    fn wrong_maps_are_refused() {
        let one = line('a', "7001 master - 0-99");
        for (text, error) in [
            (String::new(), "version NUMBER"),
            ("version 0".to_owned(), "version NUMBER"),
            (
                "version 1\nabc h 1 master -".to_owned(),
                "line 2: the ID 'abc'",
            ),
            (
                format!("version 1\n{one}\n{one}"),
                "line 3: slot 0 has an owner",
            ),
            (format!("version 1\n{one} 16384"), "'16384' must be a slot"),
            (format!("version 1\n{one} 9-8"), "'9-8' must be a slot"),
            (
                format!("version 1\n{one}\n{}", line('a', "7002 master -")),
                "there twice",
            ),
            (
                format!("version 1\n{one}\n{}", line('b', "7001 master -")),
                "there twice",
            ),
            (
                format!("version 1\n{}", line('b', "7001 slave x")),
                "no master of the map",
            ),
            (
                format!("version 1\n{}", line('b', "0 master -")),
                "the port must",
            ),
            (
                format!("version 1\n{}", line('b', "1 chief -")),
                "'chief -' must be",
            ),
            (
                format!("version 1\n{} h@x 1 master -", "a".repeat(ID_DIGITS)),
                "the host 'h@x' must be",
            ),
            ("#".repeat(MAP_BYTES_MAX + 1), "at most"),
        ] {
            let found = ClusterMap::parse(&text).expect_err(error);
            assert!(found.contains(error), "{error}: {found}");
        }
    }
}
