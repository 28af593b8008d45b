//! Writes changes as the commands of a stream.
//!
//! - S1: what is seen at once is between `MULTI` and `EXEC`.
//! - S2: a change that no command expresses has its key *held*: what changes it is kept until the
//!   key was read as a whole, and follows that, as far as it is newer.

use std::collections::HashMap;
use std::sync::Arc;

use farcore::{Fed, FedBody, TreeOp, Version};

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
    /// The last change that no command expresses: a read that is older is of no use.
    needs: Version,
}

impl Held {
    /// True if a key that was read at a version, or was absent, has all that is not expressed.
    fn is_answered(&self, version: Option<Version>) -> bool {
        let gone = || {
            let last = self.waiting.iter().rev().find(|one| one.leaves_absent);
            last.map(|one| one.version)
        };
        version
            .or_else(gone)
            .is_some_and(|version| version >= self.needs)
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
    /// Versions of keys that were read as a whole, while older changes may come.
    read: HashMap<Arc<[u8]>, Version>,
    /// Of a group: commands, and the change of each key among them.
    commands: Vec<u8>,
    parts: Vec<Part>,
    pub(super) disturbance: Option<Disturbance>,
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
            commands: Vec::new(),
            parts: Vec::new(),
            disturbance: None,
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

    /// Notes that all changes until now were written.
    pub(super) fn note_all_written(&mut self) {
        if !self.read.is_empty() {
            self.read.clear();
        }
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
            && self.write_plain(fed, stream)
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

    /// Writes a change of a plain value that comes alone; false if it is of another kind.
    fn write_plain(&mut self, fed: &Fed<'_>, stream: &mut Vec<u8>) -> bool {
        if !matches!(
            fed.body,
            FedBody::Put { .. } | FedBody::Delete | FedBody::Expire { .. }
        ) {
            return false;
        }
        let Some(number) = self.number_of(fed.key) else {
            return false;
        };
        select(&mut self.selected, number, stream);
        write_plain(shown_key(fed.key), &fed.body, &mut |words| {
            write_command(words, stream);
        })
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
        let mut is_expressed = true;
        let resets = match fed.body {
            FedBody::Put { .. } => true,
            FedBody::Tree(effect) => replaces(&effect.op),
            _ => false,
        };
        // Whatever has emptied it: that needs nothing of what it held.
        let leaves_absent = match fed.body {
            FedBody::Delete => true,
            FedBody::Tree(effect) => effect.after == 0,
            _ => false,
        };
        let resets = resets || leaves_absent;
        let of = Some((Arc::clone(&stored), fed.version, resets));
        self.add(of, number, |out| match fed.body {
            _ if leaves_absent => out(&[b"UNLINK", key]),
            FedBody::Tree(effect) => {
                is_expressed = effects::commands(key, &effect, out).is_ok();
            }
            body => is_expressed = write_plain(key, &body, out),
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

    /// Writes a held key as it was read, `None` if it was absent, and what has changed it since.
    /// `may_miss`: older changes may come that were not written yet.
    pub(super) fn write_read(
        &mut self,
        stored: &[u8],
        read: Option<(Version, Option<u64>, &[u8])>,
        may_miss: bool,
        (stream, start): (&mut Vec<u8>, u64),
        windows: &mut [&mut Window],
    ) {
        let version = read.map(|(version, ..)| version);
        let Some((stored, held)) = self.held.remove_entry(stored) else {
            return;
        };
        if !held.is_answered(version) {
            self.wanted.push(Arc::clone(&stored));
            self.held.insert(stored, held);
            return;
        }
        let bytes = held.waiting.iter().map(|one| one.commands.len());
        self.held_bytes -= bytes.sum::<usize>();
        let Some(number) = self.number_of(&stored) else {
            return;
        };
        let key = shown_key(&stored);
        self.commands.clear();
        self.parts.clear();
        let waiting = match read {
            Some((version, expiry_ms, payload)) => {
                let of = Some((Arc::clone(&stored), version, true));
                let at = expiry_ms.unwrap_or(0).to_string();
                self.add(of, number, |out| {
                    let at = at.as_bytes();
                    out(&[b"RESTORE", key, at, payload, b"REPLACE", b"ABSTTL"]);
                });
                if may_miss {
                    self.read.insert(Arc::clone(&stored), version);
                }
                let newer = held.waiting.into_iter();
                newer.filter(|one| one.version > version).collect()
            }
            None => {
                let version = held.waiting.first().map_or(held.needs, |one| one.version);
                let of = Some((Arc::clone(&stored), version, true));
                self.add(of, number, |out| out(&[b"UNLINK", key]));
                // It was gone, so what came before its last removal is of no use.
                let mut waiting = held.waiting;
                let last = waiting.iter().rposition(|one| one.leaves_absent);
                waiting.drain(..last.map_or(0, |last| last + 1));
                waiting
            }
        };
        for waiting in waiting {
            let start = self.commands.len();
            self.commands.extend_from_slice(&waiting.commands);
            self.parts.push(Part {
                start,
                end: self.commands.len(),
                // It is one of several parts, whatever its commands are.
                count: 1,
                number,
                of: Some((Arc::clone(&stored), waiting.version, waiting.resets)),
            });
        }
        self.write((stream, start), windows);
    }
}

/// Writes a change of a plain value; false if it is of another kind.
fn write_plain(key: &[u8], body: &FedBody<'_>, out: &mut dyn FnMut(&[&[u8]])) -> bool {
    let mut digits = itoa::Buffer::new();
    match *body {
        FedBody::Put {
            value,
            expiry_ms: None,
        } => out(&[b"SET", key, value]),
        FedBody::Put {
            value,
            expiry_ms: Some(at),
        } => out(&[b"SET", key, value, b"PXAT", digits.format(at).as_bytes()]),
        FedBody::Delete => out(&[b"UNLINK", key]),
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
