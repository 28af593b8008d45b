//! The map that a server goes by now: where it comes from, and when another takes its place.
//!
//! - I1: a map takes the place of another only if its version is greater, unless it is forced, or
//!   etcd has it: there revisions are the order.
//! - I2: a map that clients have pushed is in the file or in etcd, if it is kept there, before it
//!   counts; also one that gives slots away.
//! - I3: slots are held for one server at most, and are given away only while they are held.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::fence::Fence;
use super::lease::Lease;
use super::map::ClusterMap;
use super::map_error::MapError;
use super::slot_set::SlotSet;
use super::store::{Change, Store};
use super::view::{Held, View};

/// The map of a server, which its cores share.
#[derive(Debug)]
pub(crate) struct CurrentMap {
    /// Rises with each map, and each ID of this server.
    generation: AtomicU64,
    view: Mutex<Arc<View>>,
    /// Where the map is kept. It is locked while a map is stored or read.
    store: Mutex<Store>,
    /// Locked after `store` alone.
    lease: Mutex<Lease>,
    pub(super) fence: Fence,
    is_in_etcd: bool,
    /// The tickets up to which servers have taken their questions for slots back, by their IDs.
    kept: Mutex<BTreeMap<String, u64>>,
    /// Where clients reach this server, as a map has it.
    host: String,
    port: u16,
}

impl CurrentMap {
    /// That of a file, or an unknown one if there is no such file yet; that of etcd is unknown
    /// until [`CurrentMap::tend`] has read it. `lease` is the time of the lease there.
    ///
    /// # Errors
    /// The file cannot be read, or is malformed.
    pub(crate) fn open(
        mut store: Store,
        lease: Duration,
        id: Option<String>,
        (host, port): (String, u16),
    ) -> Result<Self, MapError> {
        let map = store.first()?.unwrap_or_else(ClusterMap::unknown);
        let view = View::new(map, id, (&host, port));
        let is_in_etcd = matches!(store, Store::Etcd(_));
        let fence = match is_in_etcd {
            true => Fence::closed(),
            false => Fence::open_for_ever(),
        };
        Ok(Self {
            generation: AtomicU64::new(1),
            view: Mutex::new(Arc::new(view)),
            store: Mutex::new(store),
            lease: Mutex::new(Lease::new(lease)),
            fence,
            is_in_etcd,
            kept: Mutex::default(),
            host,
            port,
        })
    }

    pub(super) fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn lease(&self) -> MutexGuard<'_, Lease> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where clients reach this server.
    pub(super) fn address(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// True if the map lies in etcd.
    pub(crate) fn is_in_etcd(&self) -> bool {
        self.is_in_etcd
    }

    /// True while this server may serve its slots.
    #[inline]
    pub(crate) fn is_fence_open(&self) -> bool {
        self.fence.is_open()
    }

    fn lock(&self) -> MutexGuard<'_, Arc<View>> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present view, and its generation.
    pub(crate) fn now(&self) -> (u64, Arc<View>) {
        let view = self.lock();
        // ORDERING: relaxed; it changes under the lock alone.
        (self.generation.load(Ordering::Relaxed), Arc::clone(&view))
    }

    /// Has a view be made of the present one.
    fn replace(&self, change: impl FnOnce(&View) -> (ClusterMap, Option<String>, Option<Held>)) {
        let mut view = self.lock();
        let (map, id, held) = change(&view);
        let mut changed = View::new(map, id, (&self.host, self.port));
        changed.held = held;
        if changed.own_id() != view.own_id() {
            // Another ID needs a key of its own in etcd first.
            self.fence.close_if_leased();
        }
        *view = Arc::new(changed);
        // ORDERING: release; pairs with the acquire in `CoreView::renewed`.
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Has this server be the member of an ID.
    pub(crate) fn set_id(&self, id: &str) {
        self.replace(|view| {
            let id = Some(id.to_ascii_lowercase());
            (view.map.clone(), id, view.held.clone())
        });
    }

    /// Has commands of slots wait, since these are to be the server's of an ID by a ticket. False
    /// if others do.
    pub(crate) fn hold(&self, slots: &Arc<SlotSet>, (to, ticket): (&str, u64)) -> bool {
        let mut is_held = false;
        self.replace(|view| {
            let held = view.held.clone().unwrap_or_else(|| {
                is_held = true;
                Held {
                    slots: Arc::clone(slots),
                    to: to.to_owned(),
                    ticket,
                }
            });
            (view.map.clone(), view.id.clone(), Some(held))
        });
        is_held
    }

    /// Has them go on, if they wait for this server by a ticket up to this one.
    pub(crate) fn release(&self, to: &str, ticket: u64) {
        self.replace(|view| {
            let is_other = |held: &Held| held.to != to || held.ticket > ticket;
            let held = view.held.clone().filter(is_other);
            (view.map.clone(), view.id.clone(), held)
        });
    }

    /// Has commands of slots wait, since these are to be the server's of an ID, which asks by a
    /// ticket.
    ///
    /// # Errors
    /// Others wait, or the server has taken the question back.
    pub(crate) fn hold_for(
        &self,
        slots: &Arc<SlotSet>,
        (to, ticket): (&str, u64),
    ) -> Result<(), MapError> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.get(to).is_some_and(|kept| ticket <= *kept) {
            let text = "the question was taken back";
            return Err(MapError::NotHeld(text.to_owned()));
        }
        self.hold(slots, (to, ticket)).then_some(()).ok_or_else(|| {
            let text = "other slots change their owner at present: try again";
            MapError::NotHeld(text.to_owned())
        })
    }

    /// Gives no slots to the server of an ID for its questions up to a ticket; returns the map.
    ///
    /// # Errors
    /// It is not known whether they were given away, as etcd is not reached.
    pub(crate) fn keep(&self, to: &str, ticket: u64) -> Result<ClusterMap, MapError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, view) = self.now();
        // As many as there are members at most.
        kept.retain(|id, _| view.map.place_of(id).is_some());
        let last = kept.entry(to.to_owned()).or_default();
        *last = ticket.max(*last);
        drop(kept);
        // One that is being carried out has the map stored, or finds them held no more.
        let mut store = self.store();
        if store.is_unsure()
            && let Store::Etcd(etcd) = &mut *store
            && !self.take_stored(&etcd.settle()?)
        {
            let text = "other slots change their owner right now: try again";
            return Err(MapError::NotHeld(text.to_owned()));
        }
        self.release(to, ticket);
        drop(store);
        Ok(self.now().1.map.clone())
    }

    /// Gives the slots that are held for a server by a ticket to it, if the map is still of a
    /// version. It may take as long as the disk does.
    ///
    /// # Errors
    /// They are not held for it, the map is another one, or the new one cannot be stored.
    pub(crate) fn give_away(
        &self,
        (to, ticket): (&str, u64),
        version: u64,
    ) -> Result<ClusterMap, MapError> {
        let mut store = self.store();
        let (_, present) = self.now();
        let not_held = |text: &str| MapError::NotHeld(text.to_owned());
        let is_meant = |held: &&Held| held.to == to && held.ticket == ticket;
        let held = present.held.as_ref().filter(is_meant);
        let held = held.ok_or_else(|| not_held("the slots are not held for it any more"))?;
        if present.map.version != version {
            return Err(not_held("the map has changed meanwhile"));
        }
        let place = present.map.place_of(to);
        let map = place.ok_or_else(|| "it is not in the map".to_owned());
        let map = map.and_then(|place| present.map.moved(&held.slots, place));
        let map = map.map_err(MapError::NotHeld)?;
        let change = Change {
            map: &map,
            present: &present,
            is_forced: false,
            gone: Vec::new(),
        };
        self.put(&mut store, &change)?;
        self.replace(|view| (map.clone(), view.id.clone(), None));
        drop(store);
        tracing::info!(version = map.version, to, slots = %held.slots, "slots are another server's now");
        Ok(map)
    }

    /// Takes the map by which another server has given slots to this one; they are held until
    /// [`CurrentMap::release`]. If it cannot be stored it counts all the same: the other one serves
    /// them no more.
    pub(crate) fn receive(&self, map: ClusterMap) {
        let mut store = self.store();
        let (_, present) = self.now();
        let version = map.version;
        if version > present.map.version {
            if let Err(error) = store.store_given(&map) {
                tracing::error!(%error, "the map that gives slots to this server is not stored: push it again before a restart");
            }
            self.replace(|view| (map, view.id.clone(), view.held.clone()));
            tracing::info!(version, "slots are this server's now");
        }
    }

    /// Stores a map in the place of the present one. If it is not known whether it was stored,
    /// nothing is served until this is found out.
    fn put(&self, store: &mut Store, change: &Change<'_>) -> Result<(), MapError> {
        let stored = store.store(change);
        if store.is_unsure() {
            self.fence.close();
            return stored.map_err(|error| MapError::Unsure(error.to_string()));
        }
        stored
    }

    /// Takes the map that etcd has, whatever its version: etcd's revisions are its order. False if
    /// this server goes by another one still, as slots are given to it right now, or etcd has none.
    pub(super) fn take_stored(&self, map: &ClusterMap) -> bool {
        let (_, present) = self.now();
        if map.is_like(&present.map) {
            return true;
        }
        if present.takes() || map.version == 0 {
            return false;
        }
        self.replace(|view| (map.clone(), view.id.clone(), view.held.clone()));
        true
    }

    /// Takes a map that a client has pushed, and stores it. It may take as long as the disk does.
    ///
    /// # Errors
    /// The map is no newer than the present one, and is not forced, or cannot be stored.
    pub(crate) fn push(&self, map: ClusterMap, is_forced: bool) -> Result<(), MapError> {
        let mut store = self.store();
        if let Store::Etcd(etcd) = &mut *store {
            match etcd.read() {
                Ok(present) => drop(self.take_stored(&present)),
                // What is there is replaced.
                Err(MapError::Malformed(_)) if is_forced => {}
                Err(error) => return Err(error),
            }
        }
        let (_, present) = self.now();
        if present.takes() {
            let text = "slots are given to this server right now: try again";
            return Err(MapError::NotHeld(text.to_owned()));
        }
        if !is_forced && map.version <= present.map.version {
            // The client repeats what it has sent before, as its answer may be lost.
            if map.is_like(&present.map) {
                return Ok(());
            }
            return Err(MapError::Older {
                version: map.version,
                present: present.map.version,
            });
        }
        let mut gone = present.map.losers(&map);
        if self.is_in_etcd && gone.iter().any(|id| Some(&id[..]) == present.own_id()) {
            // Others may have its slots before this server hears that the map is stored.
            self.fence.close();
            gone.retain(|id| Some(&id[..]) != present.own_id());
        }
        let change = Change {
            map: &map,
            present: &present,
            is_forced,
            gone,
        };
        self.put(&mut store, &change)?;
        let version = map.version;
        self.replace(|view| (map, view.id.clone(), view.held.clone()));
        drop(store);
        tracing::info!(version, "the map of the cluster was pushed");
        Ok(())
    }

    /// Takes the map of the file if it has changed and is newer. What is wrong with a file is
    /// returned once. `Some` of a version that was taken.
    ///
    /// # Errors
    /// The file cannot be read, or its map is malformed or no newer than the present one.
    pub(crate) fn look(&self) -> Result<Option<u64>, MapError> {
        // Where etcd keeps it, the lock may be held while etcd is waited for.
        if self.is_in_etcd {
            return Ok(None);
        }
        let mut store = self.store();
        let Store::File(file) = &mut *store else {
            return Ok(None);
        };
        let (_, present) = self.now();
        if present.takes() {
            return Ok(None);
        }
        let Some(map) = file.changed()? else {
            return Ok(None);
        };
        let (version, present) = (map.version, &present.map);
        if map.is_like(present) {
            return Ok(None);
        }
        if version <= present.version {
            let present = present.version;
            return Err(MapError::Older { version, present });
        }
        self.replace(|view| (map, view.id.clone(), view.held.clone()));
        Ok(Some(version))
    }
}

/// The view that a core has looked up last.
#[derive(Debug)]
pub(crate) struct CoreView {
    generation: u64,
    view: Arc<View>,
}

impl CoreView {
    /// That of now.
    pub(crate) fn new(current: &CurrentMap) -> Self {
        let (generation, view) = current.now();
        Self { generation, view }
    }

    /// Rises with each view.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The view of now. Cost while it stays: a read of a word that all cores share.
    #[inline]
    pub(crate) fn renewed(&mut self, current: &CurrentMap) -> &Arc<View> {
        // ORDERING: acquire; pairs with the release in `CurrentMap::replace`, so a command that is
        // parsed after the reply to a new map sees that map.
        if current.generation.load(Ordering::Acquire) != self.generation {
            *self = Self::new(current);
        }
        &self.view
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The map of a server whose slots are half of all, and the ID of the other one.
    fn current() -> (CurrentMap, String) {
        let member = |number: u16| super::super::map::Member {
            id: format!("{number:040x}"),
            host: "h".to_owned(),
            port: number,
            source: None,
        };
        let current = CurrentMap::open(Store::Nowhere, Duration::ZERO, None, ("h".to_owned(), 1))
            .expect("no file");
        let map = ClusterMap::even(3, vec![member(1), member(2)]).expect("a map");
        current.push(map, false).expect("a newer map");
        (current, member(2).id)
    }

    fn slots() -> Arc<SlotSet> {
        Arc::new(SlotSet::parse("0-99").expect("slots"))
    }

    #[test]
    fn slots_are_given_away_only_for_the_question_that_holds_them() {
        let (current, to) = current();
        let (to, slots) = (&to[..], slots());
        let is_not_held = |given: Result<ClusterMap, MapError>| {
            assert!(matches!(given, Err(MapError::NotHeld(_))));
        };
        is_not_held(current.give_away((to, 1), 3));
        current.hold_for(&slots, (to, 1)).expect("none are held");
        assert!(current.hold_for(&slots, (to, 2)).is_err(), "they are held");
        assert_eq!(current.keep(to, 1).expect("it is known").version, 3);
        is_not_held(current.give_away((to, 1), 3));
        assert!(current.hold_for(&slots, (to, 1)).is_err(), "it comes late");
        current
            .hold_for(&slots, (to, 5))
            .expect("it is another one");
        // What is left of the one before holds and gives nothing.
        current.release(to, 1);
        is_not_held(current.give_away((to, 1), 3));
        is_not_held(current.give_away((to, 5), 2));
        let map = current.give_away((to, 5), 3).expect("it holds them");
        assert_eq!(
            (map.version, map.owner(0), map.owner(100)),
            (4, Some(1), Some(0))
        );
        let (_, view) = current.now();
        assert!(view.map == map && view.held.is_none());
        // A question that was taken back long ago does not let a later one in again.
        current.keep(to, 9).expect("it is known");
        current.keep(to, 1).expect("it is known");
        assert!(current.hold_for(&slots, (to, 8)).is_err());
    }

    #[test]
    fn no_map_takes_the_place_of_another_while_slots_come() {
        let (current, to) = current();
        let own = format!("{:040x}", 1);
        let mut map = current.now().1.map.clone();
        map.version = 9;
        assert!(current.hold(&slots(), (&own, 1)));
        assert!(current.push(map.clone(), true).is_err());
        current.release(&own, 1);
        current.push(map.clone(), false).expect("it is newer");
        // One that loses slots takes it, and gives nothing away then.
        assert!(current.hold(&slots(), (&to, 1)));
        map.version = 10;
        current.push(map, false).expect("it is newer");
        assert!(current.give_away((&to, 1), 9).is_err());
    }
}
