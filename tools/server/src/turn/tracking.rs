//! What a core does for clients that cache keys: it sends what has changed to the cores of such
//! clients, and pushes it to its own. The data stand in `events/tracking.rs`.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::conn::connection::Connection;
use crate::cores::message::{Message, Redirected};
use crate::databases::shown_key;
use crate::events::classes::EventClasses;
use crate::events::key_events::KeyEvent;
use crate::events::tracking::{ChangedKey, Changes, Due, Reader, Redirecting, Tracker};
use crate::resp::{Protocol, Writer};
use crate::serving::Serving;
use crate::steps;

/// Bytes of changed keys that are on their way to a core; above it the core's clients learn that
/// all keys are invalid.
const CHANGED_BYTES_MAX: usize = 1 << 20;
/// Bytes that a changed key takes beside its own.
const CHANGED_BESIDE: usize = 48;
/// Keys that a core looks at in a turn, and the fewest that it makes invalid because there are too
/// many.
const KEYS_A_TURN: usize = 1024;
const SURPLUS_A_TURN: usize = 256;
/// The tables of all cores take this part of the memory for clients, at most.
const TABLE_SHARE: usize = 4;

impl Serving {
    /// Sends the keys that a turn's events have changed to the cores whose clients cache keys.
    pub(super) fn send_changed(&mut self, events: &[KeyEvent]) {
        let mut seen = HashSet::new();
        let changed: Vec<_> = (events.iter())
            .filter(|event| {
                !event
                    .class
                    .any_of(EventClasses::MISSED.and(EventClasses::NEW))
            })
            .filter(|event| seen.insert((&event.key, event.client)))
            .map(|event| ChangedKey {
                key: shown_key(&event.key).to_vec(),
                client: event.client,
            })
            .collect();
        if changed.is_empty() {
            return;
        }
        let bytes = changed
            .iter()
            .map(|one| one.key.len() + CHANGED_BESIDE)
            .sum();
        let shared = Arc::clone(&self.shared);
        let changes = Changes {
            keys: changed.into(),
            at_ns: self.uptime_ns(),
            bytes,
        };
        for (place, core) in shared.cores.iter().enumerate() {
            if core.trackers.load(Ordering::Acquire) == 0 {
                continue;
            }
            // ORDERING: it is a count, which orders nothing.
            if core.changed_bytes.fetch_add(bytes, Ordering::Relaxed) > CHANGED_BYTES_MAX {
                core.changed_bytes.fetch_sub(bytes, Ordering::Relaxed);
                core.send(Message::ForgetTracked);
            } else if place == self.place {
                self.tracking.due.push_back(Due::Keys(changes.clone(), 0));
            } else {
                core.send(Message::Changed(changes.clone()));
            }
        }
    }

    /// Nanoseconds since the server started.
    fn uptime_ns(&self) -> u64 {
        u64::try_from(self.shared.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Has the clients of all cores learn that all keys are invalid.
    pub(crate) fn forget_tracked(&self) {
        for core in &self.shared.cores {
            if core.trackers.load(Ordering::Acquire) > 0 {
                core.send(Message::ForgetTracked);
            }
        }
    }

    /// Pushes what is due to the core's clients, some of it. Cost while no client caches keys: a
    /// branch. True if there was something.
    #[inline]
    pub(super) fn tracking_turn(&mut self) -> bool {
        let is_any = self.shared.cores[self.place]
            .trackers
            .load(Ordering::Relaxed)
            > 0;
        (is_any || !self.tracking.due.is_empty()) && self.push_due()
    }

    #[cold]
    fn push_due(&mut self) -> bool {
        let (shared, mut left) = (Arc::clone(&self.shared), KEYS_A_TURN);
        let begun = steps::now();
        let is_busy = !self.tracking.due.is_empty();
        while left > 0
            && let Some(due) = self.tracking.due.pop_front()
        {
            match due {
                Due::Keys(changes, start) => {
                    let end = changes.keys.len().min(start + left);
                    let end = start + self.push_changed(&changes.keys[start..end], changes.at_ns);
                    left = match steps::since(begun) < steps::SLICE {
                        true => left - (end - start),
                        false => 0,
                    };
                    if end < changes.keys.len() {
                        self.tracking.due.push_front(Due::Keys(changes, end));
                    } else {
                        let under_way = &shared.cores[self.place].changed_bytes;
                        under_way.fetch_sub(changes.bytes, Ordering::Relaxed);
                    }
                }
                Due::All => {
                    self.tracking.clear(&shared.tracking);
                    let numbers: Vec<_> = self.tracking.trackers.iter().copied().collect();
                    left = left.saturating_sub(numbers.len());
                    for number in numbers {
                        self.push_keys(number, None);
                    }
                }
            }
        }
        let bytes_max = shared.client_memory.limit() / TABLE_SHARE / shared.cores.len().max(1);
        let mut surplus = 0;
        while surplus < SURPLUS_A_TURN || !steps::is_slice_over() {
            surplus += 1;
            steps::count(1);
            let Some(key) = self.tracking.surplus(&shared.tracking, bytes_max) else {
                break;
            };
            self.push_key(&key, 0, u64::MAX);
        }
        is_busy
    }

    /// Pushes keys to those that have read them, and to those that learn of all with a prefix.
    /// Returns how many it has pushed: one, or more if that is little work.
    fn push_changed(&mut self, keys: &[ChangedKey], at_ns: u64) -> usize {
        let mut by_prefix: BTreeMap<Arc<[u8]>, Vec<&ChangedKey>> = BTreeMap::new();
        let (begun, mut done) = (steps::now(), 0);
        for changed in keys {
            if done > 0 && steps::since(begun) >= steps::SLICE {
                break;
            }
            done += 1;
            steps::count(1);
            self.push_key(&changed.key, changed.client, at_ns);
            if !self.tracking.prefixes.is_empty() {
                for prefix in self.tracking.prefixes_of(&changed.key) {
                    by_prefix.entry(prefix).or_default().push(changed);
                }
            }
        }
        for (prefix, mut keys) in by_prefix {
            keys.sort_by(|one, other| one.key.cmp(&other.key));
            let numbers = self.tracking.prefixes.get(&prefix);
            let numbers: Vec<_> = numbers.into_iter().flatten().copied().collect();
            for number in numbers {
                let Some(Some(connection)) = self.connections.get(number) else {
                    continue;
                };
                let own = connection.id;
                let skips_own = connection.tracker.as_ref().is_some_and(|one| one.skips_own);
                let others = keys.iter().filter(|one| !skips_own || one.client != own);
                let mut keys: Vec<_> = others.map(|one| &one.key[..]).collect();
                keys.dedup();
                if !keys.is_empty() {
                    self.push_keys(number, Some(&keys));
                }
            }
        }
        done
    }

    /// Pushes a key to those that have read it, but not to a client that has changed it itself and
    /// wants that.
    fn push_key(&mut self, key: &[u8], client: u64, at_ns: u64) {
        let shared = Arc::clone(&self.shared);
        for reader in self.tracking.take(key, at_ns, &shared.tracking) {
            let Some(Some(connection)) = self.connections.get(reader.number) else {
                continue;
            };
            let tracker = connection.tracker.as_ref();
            let is_meant = tracker.is_some_and(|tracker| {
                let is_own = tracker.skips_own && client == reader.client;
                !(tracker.is_broadcast || is_own)
            });
            if connection.id == reader.client && is_meant {
                self.push_keys(reader.number, Some(&[key]));
            }
        }
    }

    /// Pushes keys, or that all are invalid, for a client.
    fn push_keys(&mut self, number: usize, keys: Option<&[&[u8]]>) {
        let Some(Some(connection)) = self.connections.get(number) else {
            return;
        };
        // It may wait for the client that it wants to redirect to.
        let Some(tracker) = &connection.tracker else {
            return;
        };
        let mut body = Vec::new();
        let mut writer = Writer::new(&mut body, connection.protocol);
        match keys {
            None => writer.null(),
            Some(keys) => {
                writer.array(keys.len());
                keys.iter().for_each(|key| writer.bulk(key));
            }
        }
        steps::count_copied(body.len());
        let redirection = tracker.redirection;
        let from = (number, connection.id);
        match redirection {
            None => self.push_body(number, &body, false),
            Some(to) if to.core == self.place => self.redirect(to.client, &body, (to.core, from)),
            Some(to) => {
                let core = self.place;
                self.shared.cores[to.core].send(Message::Redirected(Box::new(Redirected {
                    client: to.client,
                    body,
                    core,
                    from,
                })));
            }
        }
    }

    /// Pushes what another client has redirected to one of this core.
    pub(super) fn redirect(
        &mut self,
        client: u64,
        body: &[u8],
        (core, from): (usize, (usize, u64)),
    ) {
        let number = self.tracking.targets.get(&client).copied();
        let is_it = |number: &usize| {
            let connection = self.connections.get(*number).and_then(Option::as_ref);
            connection.is_some_and(|one| one.id == client && !one.is_gone)
        };
        match number.filter(is_it) {
            Some(number) => self.push_body(number, body, true),
            None if core == self.place => self.break_redirection(from, client),
            None => self.shared.cores[core].send(Message::RedirectionBroken { from, client }),
        }
    }

    /// Notes that the client is gone that another one redirects to.
    pub(super) fn break_redirection(&mut self, (number, id): (usize, u64), client: u64) {
        let Some(Some(connection)) = self.connections.get_mut(number) else {
            return;
        };
        if connection.id != id {
            return;
        }
        if let Some(tracker) = &mut connection.tracker {
            tracker.is_broken = true;
        }
        if connection.protocol == Protocol::Resp3 {
            connection.push(|writer| {
                writer.push(2);
                writer.bulk(b"tracking-redir-broken");
                writer.integer(i64::try_from(client).unwrap_or(i64::MAX));
            });
            self.end_if_unread(number);
        }
    }

    /// Writes a push for a connection, if its protocol allows one.
    fn push_body(&mut self, number: usize, body: &[u8], is_redirected: bool) {
        let Some(Some(connection)) = self.connections.get_mut(number) else {
            return;
        };
        if connection.is_gone {
            return;
        }
        match connection.protocol {
            Protocol::Resp3 => connection.push(|writer| {
                writer.push(2);
                writer.bulk(b"invalidate");
                writer.raw(body);
            }),
            Protocol::Resp2 if is_redirected && connection.subscribed.is_some() => {
                connection.push(|writer| {
                    writer.array(3);
                    writer.bulk(b"message");
                    writer.bulk(b"__redis__:invalidate");
                    writer.raw(body);
                });
            }
            Protocol::Resp2 => return,
        }
        self.end_if_unread(number);
    }

    /// Has what was pushed to a connection be sent, or ends it if it does not read.
    fn end_if_unread(&mut self, number: usize) {
        let unread_max = self.unread_bytes_max();
        if let Some(Some(connection)) = self.connections.get_mut(number) {
            let unread = connection.waiting_bytes() + connection.early_bytes;
            if unread + connection.pushes.len() > unread_max {
                connection.is_closing = true;
                self.close(number);
                return;
            }
        }
        self.note_output(number);
    }

    /// Notes that a client reads keys.
    pub(crate) fn note_read(&mut self, (number, connection): (usize, &Connection), key: &[u8]) {
        let reader = Reader {
            number,
            client: connection.id,
            since_ns: self.uptime_ns(),
        };
        self.tracking.note(key, reader, &self.shared.tracking);
    }

    /// Counts a connection among those that cache keys.
    pub(crate) fn begin_tracking(&mut self, number: usize) {
        if self.tracking.trackers.insert(number) {
            let port = &self.shared.cores[self.place];
            port.trackers.fetch_add(1, Ordering::AcqRel);
            self.shared.tracking.clients.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Has a connection learn of all keys with a prefix.
    pub(crate) fn add_prefix(&mut self, number: usize, prefix: &Arc<[u8]>) {
        let known = self.tracking.prefixes.len();
        let numbers = self.tracking.prefixes.entry(Arc::clone(prefix));
        numbers.or_default().insert(number);
        let added = self.tracking.prefixes.len() - known;
        let prefixes = &self.shared.tracking.prefixes;
        prefixes.fetch_add(added, Ordering::Relaxed);
    }

    /// Has a connection, which is counted, cache keys so, and learn of all with these prefixes.
    pub(crate) fn track(
        &mut self,
        number: usize,
        connection: &mut Connection,
        (mut tracker, prefixes): (Tracker, Vec<Arc<[u8]>>),
    ) {
        if let Some(present) = &mut connection.tracker {
            tracker.prefixes = std::mem::take(&mut present.prefixes);
            tracker.is_caching_said = present.is_caching_said;
        }
        for prefix in prefixes {
            self.add_prefix(number, &prefix);
            tracker.prefixes.insert(prefix);
        }
        connection.tracker = Some(Box::new(tracker));
    }

    /// Has a connection cache keys if the client was found that it redirects to; else it does as
    /// before.
    #[cold]
    pub(super) fn end_redirecting(
        &mut self,
        number: usize,
        connection: &mut Connection,
        redirecting: Redirecting,
    ) {
        let Redirecting {
            mut tracker,
            prefixes,
            found,
        } = redirecting;
        tracker.redirection = found.take();
        let is_found = tracker.redirection.is_some();
        if is_found && !connection.is_gone {
            self.track(number, connection, (tracker, prefixes));
        } else if connection.tracker.is_none() {
            self.uncount_tracker(number);
        }
    }

    /// Has a connection cache no keys any more.
    pub(crate) fn end_tracking(&mut self, number: usize, connection: &mut Connection) {
        let Some(tracker) = connection.tracker.take() else {
            return self.uncount_tracker(number);
        };
        for prefix in &tracker.prefixes {
            if let Some(numbers) = self.tracking.prefixes.get_mut(prefix) {
                numbers.remove(&number);
                if numbers.is_empty() {
                    self.tracking.prefixes.remove(prefix);
                    self.shared
                        .tracking
                        .prefixes
                        .fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        self.uncount_tracker(number);
    }

    /// Counts a connection no more among those that cache keys.
    fn uncount_tracker(&mut self, number: usize) {
        if !self.tracking.trackers.remove(&number) {
            return;
        }
        let port = &self.shared.cores[self.place];
        port.trackers.fetch_sub(1, Ordering::AcqRel);
        if self.shared.tracking.clients.fetch_sub(1, Ordering::Relaxed) == 1 {
            crate::cores::removal_watch::track(&self.shared);
        }
        if self.tracking.trackers.is_empty() {
            self.tracking.clear(&self.shared.tracking);
        }
    }

    /// The place of a client that another one wants to redirect to, if it is here.
    pub(crate) fn find_target(&mut self, client: u64) -> Option<usize> {
        let is_it = |one: &Option<Box<Connection>>| {
            one.as_ref()
                .is_some_and(|one| one.id == client && !one.is_gone)
        };
        let number = self.connections.iter().position(is_it)?;
        steps::count(self.connections.len() / 16);
        self.tracking.targets.insert(client, number);
        Some(self.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand::on_first_core;

    #[test]
    fn a_core_that_takes_no_changes_learns_that_all_keys_are_invalid() {
        on_first_core(2, |bench| async move {
            let (shared, mut serving) = (&bench.shared, bench.serving(0));
            let slow = &shared.cores[1];
            slow.trackers.store(1, Ordering::Release);
            let event = KeyEvent::new(EventClasses::STRING, "set", &[b'k'; 1000]);
            let bytes = 1000 + CHANGED_BESIDE;
            for _ in 0..2 * CHANGED_BYTES_MAX / bytes {
                serving.send_changed(std::slice::from_ref(&event));
            }
            let under_way = slow.changed_bytes.load(Ordering::Relaxed);
            assert!(under_way > CHANGED_BYTES_MAX && under_way <= CHANGED_BYTES_MAX + bytes);
            let (mut changes, mut others) = (0, 0);
            while let Some(message) = slow.receive() {
                match message {
                    Message::Changed(..) => changes += 1,
                    Message::ForgetTracked => others += 1,
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(changes * bytes, under_way);
            assert!(others > 0);
        });
    }
}
