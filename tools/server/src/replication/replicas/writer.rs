//! Writes changes as the commands of a stream.
//!
//! - S1: what is seen at once is between `MULTI` and `EXEC`.
//! - S2: a change that no command expresses has its key *held*: what changes it is kept until the
//!   key was read as a whole, and follows that, as far as it is newer. A key that is changed so
//!   again and again is written each time that it was read.

use std::collections::HashMap;
use std::sync::Arc;

use farcore::{Fed, FedBody, TreeOp, Version};
use farcore_tuning::mutated;

use super::super::effects;
use super::super::source::write_command;
use super::window::{Change, Window};
use crate::databases::{DATABASES, Database, ORDER_KEY, number_in, shown_key};

/// Bytes that held keys may keep.
const HELD_BYTES_MAX: usize = 64 << 20;

/// A change of a held key that waits.
#[derive(Debug)]
struct Waiting {
    version: Version,
    /// It needs nothing of what the key held.
    resets: bool,
    /// The key is absent then.
    leaves_absent: bool,
    commands: Vec<u8>,
}

/// The changes of a held key that wait.
#[derive(Debug, Default)]
struct Held {
    waiting: Vec<Waiting>,
    /// The last change that no command expresses: a read that is older lacks it.
    needs: Version,
    /// The version that was written last.
    written: Version,
}

impl Held {
    /// The version of the last change.
    fn last(&self) -> Version {
        let waiting = self.waiting.last();
        self.needs.max(waiting.map_or(0, |one| one.version))
    }

    /// The version that a key had when it was read and was absent, as far as is known.
    fn gone(&self) -> Option<Version> {
        let last = self.waiting.iter().rev().find(|one| one.leaves_absent);
        last.map(|one| one.version)
    }
}

/// What the stream has that data which are being read must not have in part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Disturbance {
    /// All keys went.
    Emptied,
    /// Numbers of databases were swapped.
    Swapped,
}

/// Writes the stream.
#[derive(Debug)]
pub(super) struct StreamWriter {
    /// What numbers of databases mean.
    order: u64,
    /// The number that the stream has selected.
    selected: Option<u8>,
    held: HashMap<Arc<[u8]>, Held>,
    held_bytes: usize,
    /// Keys that are to be read.
    wanted: Vec<Arc<[u8]>>,
    /// Versions of keys that were read as a whole, while older changes may come: until those were
    /// passed on that the shards had noted then.
    read: HashMap<Arc<[u8]>, Version>,
    read_until: Vec<u64>,
    /// Of a group: commands, and the change of each key among them.
    commands: Vec<u8>,
    parts: Vec<Part>,
    pub(super) disturbance: Option<Disturbance>,
    /// A replica loads, or has not got all that was changed meanwhile: a key may have expired there
    /// before a command that has it expire later, so such a key is sent as a whole.
    pub(super) catches_up: bool,
}

/// Commands of one change, and what they are about.
#[derive(Debug)]
struct Part {
    start: usize,
    end: usize,
    count: usize,
    number: u8,
    /// The key, its version, and whether the commands need nothing of what it held; none if these
    /// are of no key.
    of: Option<(Arc<[u8]>, Version, bool)>,
}

impl StreamWriter {
    /// Begins with what numbers of databases mean.
    pub(super) fn new(order: u64) -> Self {
        Self {
            order,
            selected: None,
            held: HashMap::new(),
            held_bytes: 0,
            wanted: Vec::new(),
            read: HashMap::new(),
            read_until: Vec::new(),
            commands: Vec::new(),
            parts: Vec::new(),
            disturbance: None,
            catches_up: false,
        }
    }

    /// The number by which clients select the database of a stored key; `None` if there is none.
    pub(super) fn number_of(&self, stored: &[u8]) -> Option<u8> {
        let database = Database::of(stored);
        (database.place() < usize::from(DATABASES)).then(|| number_in(self.order, database))
    }

    /// Has the next command select its database again: a replica's stream may begin there.
    pub(super) fn forget_selected(&mut self) {
        self.selected = None;
    }

    /// The next key that is to be read as a whole.
    pub(super) fn take_wanted(&mut self) -> Option<Arc<[u8]>> {
        self.wanted.pop()
    }

    /// True if held keys keep more than they may.
    pub(super) fn is_overfull(&self) -> bool {
        self.held_bytes > HELD_BYTES_MAX
    }

    /// Forgets which keys were read, once `has_passed` says that no older changes come.
    pub(super) fn forget_read(&mut self, has_passed: impl FnOnce(&[u64]) -> bool) {
        if !self.read.is_empty() && has_passed(&self.read_until) {
            self.read.clear();
        }
    }

    /// The keys of which changes are not written, and up to which version.
    pub(super) fn unwritten(&self) -> Vec<(Arc<[u8]>, Version)> {
        let held = self.held.iter();
        held.map(|(key, held)| (Arc::clone(key), held.last()))
            .collect()
    }

    /// True if the changes of a key up to a version are written.
    pub(super) fn has_written(&self, key: &[u8], version: Version) -> bool {
        let held = self.held.get(key);
        held.is_none_or(|held| held.written >= version)
    }

    /// Writes changes that are seen at once, behind what `stream` has, whose first byte has this
    /// number. Notes them in windows.
    pub(super) fn group(
        &mut self,
        changes: &[Fed<'_>],
        (stream, start): (&mut Vec<u8>, u64),
        windows: &mut [&mut Window],
    ) {
        if let [fed] = changes
            && windows.is_empty()
            && self.held.is_empty()
            && self.read.is_empty()
            && self.write_alone(fed, stream)
        {
            return;
        }
        self.commands.clear();
        self.parts.clear();
        let mut is_cleared = false;
        for fed in changes {
            if fed.body == FedBody::Clear {
                // Each shard says so.
                if !std::mem::replace(&mut is_cleared, true) {
                    self.add(None, 0, |out| out(&[b"FLUSHALL"]));
                    self.disturbance = Some(Disturbance::Emptied);
                    self.drop_held();
                    // What was read may be of later, and is gone at replicas.
                    if !mutated!("read-kept-though-removed") {
                        self.read.clear();
                    }
                }
                continue;
            }
            if fed.key == ORDER_KEY {
                self.swap(fed);
                continue;
            }
            if let Some(number) = self.number_of(fed.key) {
                self.change(fed, number);
            }
        }
        self.write((stream, start), windows);
    }

    /// Writes a change that comes alone and is looked at no more; false if it is of no key, or no
    /// command expresses it.
    fn write_alone(&mut self, fed: &Fed<'_>, stream: &mut Vec<u8>) -> bool {
        let Some(number) = self.number_of(fed.key).filter(|_| !fed.key.is_empty()) else {
            return false;
        };
        let (commands, mut count) = (&mut self.commands, 0);
        commands.clear();
        if self.catches_up && matches!(fed.body, FedBody::Expire { .. }) {
            return false;
        }
        let is_expressed = write_change(shown_key(fed.key), &fed.body, &mut |words| {
            write_command(words, commands);
            count += 1;
        });
        if !is_expressed || count == 0 {
            return is_expressed;
        }
        select(&mut self.selected, number, stream);
        if count > 1 {
            write_command(&[b"MULTI"], stream);
        }
        stream.extend_from_slice(&self.commands);
        if count > 1 {
            write_command(&[b"EXEC"], stream);
        }
        true
    }

    fn drop_held(&mut self) {
        self.held.clear();
        self.wanted.clear();
        self.held_bytes = 0;
    }

    /// Writes a swap of two numbers, if one is new.
    fn swap(&mut self, fed: &Fed<'_>) {
        let FedBody::Put { value, .. } = fed.body else {
            return;
        };
        let Some(order) = value.as_array().map(|bytes| u64::from_le_bytes(*bytes)) else {
            return;
        };
        let differs = |number: &u8| (self.order ^ order) >> (4 * number) & 0xf != 0;
        let mut swapped = (0..DATABASES).filter(differs);
        if let (Some(one), Some(other)) = (swapped.next(), swapped.next()) {
            let (one, other) = (one.to_string(), other.to_string());
            self.add(None, 0, |out| {
                out(&[b"SWAPDB", one.as_bytes(), other.as_bytes()]);
            });
            self.disturbance = Some(Disturbance::Swapped);
        }
        self.order = order;
    }

    fn change(&mut self, fed: &Fed<'_>, number: u8) {
        let stored: Arc<[u8]> = fed.key.into();
        if self
            .read
            .get(&stored)
            .is_some_and(|read| fed.version <= *read)
        {
            return;
        }
        let key = shown_key(fed.key);
        let leaves_absent = leaves_absent(&fed.body);
        let resets = leaves_absent
            || match fed.body {
                FedBody::Put { .. } => true,
                FedBody::Tree(effect) => replaces(&effect.op),
                _ => false,
            };
        let of = Some((Arc::clone(&stored), fed.version, resets));
        let mut is_expressed = true;
        let may_be_gone = self.catches_up && matches!(fed.body, FedBody::Expire { .. });
        self.add(of, number, |out| {
            is_expressed = !may_be_gone && write_change(key, &fed.body, out);
        });
        if !is_expressed {
            // What was written of it is not sent.
            if let Some(part) = self.parts.pop() {
                self.commands.truncate(part.start);
            }
            let is_new = !self.held.contains_key(&stored);
            let held = self.held.entry(Arc::clone(&stored)).or_default();
            held.needs = fed.version;
            if is_new {
                self.wanted.push(stored);
            }
            return;
        }
        if let Some(held) = self.held.get_mut(&stored)
            && let Some(part) = self.parts.pop()
        {
            let bytes = self.commands.split_off(part.start);
            self.held_bytes += bytes.len();
            held.waiting.push(Waiting {
                version: fed.version,
                resets,
                leaves_absent,
                commands: bytes,
            });
        }
    }

    /// Adds the commands of a change to the group.
    fn add(
        &mut self,
        of: Option<(Arc<[u8]>, Version, bool)>,
        number: u8,
        write: impl FnOnce(&mut dyn FnMut(&[&[u8]])),
    ) {
        let start = self.commands.len();
        let (commands, mut count) = (&mut self.commands, 0);
        write(&mut |words| {
            write_command(words, commands);
            count += 1;
        });
        self.parts.push(Part {
            start,
            end: commands.len(),
            count,
            number,
            of,
        });
    }

    /// Writes what was gathered.
    fn write(&mut self, (stream, start): (&mut Vec<u8>, u64), windows: &mut [&mut Window]) {
        let count: usize = self.parts.iter().map(|part| part.count).sum();
        if count == 0 {
            return;
        }
        // As Redis, whose transactions begin in the database of their first command.
        if let Some(first) = self.parts.iter().find(|part| part.of.is_some()) {
            select(&mut self.selected, first.number, stream);
        }
        if count > 1 {
            write_command(&[b"MULTI"], stream);
        }
        for part in &self.parts {
            if part.count == 0 {
                continue;
            }
            if part.of.is_some() {
                select(&mut self.selected, part.number, stream);
            }
            if let Some((key, version, resets)) = &part.of {
                let change = Change {
                    at: start + stream.len() as u64,
                    bytes: (part.end - part.start) as u64,
                    version: *version,
                    resets: *resets,
                };
                for window in windows.iter_mut() {
                    window.note(key, change);
                }
            }
            stream.extend_from_slice(&self.commands[part.start..part.end]);
        }
        if count > 1 {
            write_command(&[b"EXEC"], stream);
        }
    }

    /// Writes a held key as it was read, `None` if it was absent, and what has changed it since, as
    /// far as that is expressed. `until`: older changes may come that were not passed on yet, up to
    /// these bytes of each shard.
    pub(super) fn write_read(
        &mut self,
        stored: &[u8],
        read: Option<(Version, Option<u64>, &[u8])>,
        until: Option<&[u64]>,
        (stream, start): (&mut Vec<u8>, u64),
        windows: &mut [&mut Window],
    ) {
        let Some((stored, mut held)) = self.held.remove_entry(stored) else {
            return;
        };
        let version = match read {
            Some((version, ..)) => Some(version),
            None => held.gone(),
        };
        let (Some(version), Some(number)) = (version, self.number_of(&stored)) else {
            // Its removal is on its way.
            return self.hold_on(stored, held);
        };
        if let Some(until) = until {
            self.read.insert(Arc::clone(&stored), version);
            self.read_until.clear();
            self.read_until.extend_from_slice(until);
        }
        let key = shown_key(&stored);
        self.commands.clear();
        self.parts.clear();
        let of = Some((Arc::clone(&stored), version, true));
        self.add(of, number, |out| match read {
            None => out(&[b"UNLINK", key]),
            Some((_, expiry_ms, payload)) => {
                let at = expiry_ms.unwrap_or(0).to_string();
                let at = at.as_bytes();
                out(&[b"RESTORE", key, at, payload, b"REPLACE", b"ABSTTL"]);
            }
        });
        held.written = version;
        let newer = held.waiting.iter().position(|one| one.version > version);
        let newer = newer.unwrap_or(held.waiting.len());
        let bytes = held.waiting.drain(..newer).map(|one| one.commands.len());
        self.held_bytes -= bytes.sum::<usize>();
        if version < held.needs {
            self.hold_on(Arc::clone(&stored), held);
        } else {
            self.add_waiting(&stored, number, held);
        }
        self.write((stream, start), windows);
    }

    /// Gives up a held key that is lost: what replicas have of it stays as it is.
    pub(super) fn give_up(&mut self, stored: &[u8]) {
        if let Some(held) = self.held.remove(stored) {
            let bytes = held.waiting.iter().map(|one| one.commands.len());
            self.held_bytes -= bytes.sum::<usize>();
        }
    }

    /// Has a held key be read again.
    fn hold_on(&mut self, stored: Arc<[u8]>, held: Held) {
        self.wanted.push(Arc::clone(&stored));
        self.held.insert(stored, held);
    }

    /// Adds the changes that a key has waited with to the group.
    fn add_waiting(&mut self, stored: &Arc<[u8]>, number: u8, held: Held) {
        for waiting in held.waiting {
            let start = self.commands.len();
            self.held_bytes -= waiting.commands.len();
            self.commands.extend_from_slice(&waiting.commands);
            self.parts.push(Part {
                start,
                end: self.commands.len(),
                // It is one of several parts, whatever its commands are.
                count: 1,
                number,
                of: Some((Arc::clone(stored), waiting.version, waiting.resets)),
            });
        }
    }
}

/// True if a key is absent after a change.
fn leaves_absent(body: &FedBody<'_>) -> bool {
    match body {
        FedBody::Delete => true,
        FedBody::Tree(effect) => effect.after == 0,
        _ => false,
    }
}

/// Writes a change of a key; false if no command expresses it: then what was written is of no use.
fn write_change(key: &[u8], body: &FedBody<'_>, out: &mut dyn FnMut(&[&[u8]])) -> bool {
    let mut digits = itoa::Buffer::new();
    match *body {
        // Whatever has emptied it: that needs nothing of what it held.
        _ if leaves_absent(body) => out(&[b"UNLINK", key]),
        FedBody::Tree(effect) => return effects::commands(key, &effect, out).is_ok(),
        FedBody::Put {
            value,
            expiry_ms: None,
        } => out(&[b"SET", key, value]),
        FedBody::Put {
            value,
            expiry_ms: Some(at),
        } => out(&[b"SET", key, value, b"PXAT", digits.format(at).as_bytes()]),
        FedBody::Expire { expiry_ms: None } => out(&[b"PERSIST", key]),
        FedBody::Expire {
            expiry_ms: Some(at),
        } => out(&[b"PEXPIREAT", key, digits.format(at).as_bytes()]),
        _ => return false,
    }
    true
}

/// True if an operation needs nothing of what the key held.
fn replaces(op: &TreeOp<'_>) -> bool {
    matches!(
        op,
        TreeOp::Push { replaces: true, .. }
            | TreeOp::Update { replaces: true, .. }
            | TreeOp::Score { replaces: true, .. }
    )
}

/// Selects a database, if another one is selected.
fn select(selected: &mut Option<u8>, number: u8, stream: &mut Vec<u8>) {
    if selected.replace(number) != Some(number) {
        write_command(&[b"SELECT", number.to_string().as_bytes()], stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_whose_time_changes_while_a_replica_catches_up_is_sent_as_a_whole() {
        let change = |version, body| Fed {
            version,
            key: b"k",
            has_more: false,
            body,
        };
        for expiry_ms in [Some(9), None] {
            let changes = [change(1, FedBody::Expire { expiry_ms })];
            for catches_up in [false, true] {
                let (mut writer, mut stream) = (StreamWriter::new(0), Vec::new());
                writer.catches_up = catches_up;
                writer.group(&changes, (&mut stream, 0), &mut []);
                assert_eq!(stream.is_empty(), catches_up);
                let wanted = writer.take_wanted();
                assert_eq!(wanted.as_deref(), catches_up.then_some(&b"k"[..]));
            }
        }
    }
}
