//! The map that a server goes by now: where it comes from, and when another takes its place.
//!
//! - I1: a map takes the place of another only if its version is greater, unless it is forced.
//! - I2: a map that clients have pushed is in the file, if there is one, before it counts; also one
//!   that gives slots away.
//! - I3: slots are held for one server at most, and are given away only while they are held.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::map::{ClusterMap, MAP_BYTES_MAX};
use super::slot_set::SlotSet;
use super::view::{Held, View};
use crate::replaced_file;

/// Rights of a file that is new, less those that the process leaves out.
const NEW_FILE_MODE: u32 = 0o666;

/// How a file is recognised that has not changed: its number, its length, and when it was written.
type Seen = (u64, u64, i64, i64);

/// The map of a server, which its cores share.
#[derive(Debug)]
pub(crate) struct CurrentMap {
    /// Rises with each map, and each ID of this server.
    generation: AtomicU64,
    view: Mutex<Arc<View>>,
    /// What the file was when it was read last. It is locked while a map is stored or read.
    seen: Mutex<Option<Seen>>,
    /// The tickets up to which servers have taken their questions for slots back, by their IDs.
    kept: Mutex<BTreeMap<String, u64>>,
    file: Option<PathBuf>,
    /// Where clients reach this server, as a map has it.
    host: String,
    port: u16,
}

/// Why a map was not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MapError {
    /// It is malformed.
    #[error("{0}")]
    Malformed(String),
    /// Its version is not greater than that of the present one.
    #[error("version {version} is not greater than {present}")]
    Older { version: u64, present: u64 },
    /// Slots are not given away, or are no more.
    #[error("{0}")]
    NotHeld(String),
    /// The file cannot be read or written.
    #[error("{path}: {error}")]
    File { path: String, error: io::Error },
}

impl CurrentMap {
    /// That of a file, or an unknown one if there is no such file yet.
    ///
    /// # Errors
    /// The file cannot be read, or is malformed.
    pub(crate) fn open(
        file: Option<PathBuf>,
        id: Option<String>,
        (host, port): (String, u16),
    ) -> Result<Self, MapError> {
        let (map, seen) = match file.as_deref().map(read_file).transpose()?.flatten() {
            Some((text, seen)) => {
                let map = ClusterMap::parse(&text).map_err(MapError::Malformed)?;
                (map, Some(seen))
            }
            None => (ClusterMap::unknown(), None),
        };
        let view = View::new(map, id, (&host, port));
        Ok(Self {
            generation: AtomicU64::new(1),
            view: Mutex::new(Arc::new(view)),
            seen: Mutex::new(seen),
            kept: Mutex::default(),
            file,
            host,
            port,
        })
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
    pub(crate) fn keep(&self, to: &str, ticket: u64) -> ClusterMap {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, view) = self.now();
        // As many as there are members at most.
        kept.retain(|id, _| view.map.place_of(id).is_some());
        let last = kept.entry(to.to_owned()).or_default();
        *last = ticket.max(*last);
        drop(kept);
        // One that is being carried out has the map stored, or finds them held no more.
        let _storing = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        self.release(to, ticket);
        self.now().1.map.clone()
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
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
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
        self.store(&map, &mut seen)?;
        self.replace(|view| (map.clone(), view.id.clone(), None));
        drop(seen);
        tracing::info!(version = map.version, to, slots = %held.slots, "slots are another server's now");
        Ok(map)
    }

    /// Takes the map by which another server has given slots to this one; they are held until
    /// [`CurrentMap::release`]. If it cannot be stored it counts all the same: the other one serves
    /// them no more.
    pub(crate) fn receive(&self, map: ClusterMap) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, present) = self.now();
        let version = map.version;
        if version > present.map.version {
            if let Err(error) = self.store(&map, &mut seen) {
                tracing::error!(%error, "the map that gives slots to this server is not stored: push it again before a restart");
            }
            self.replace(|view| (map, view.id.clone(), view.held.clone()));
            tracing::info!(version, "slots are this server's now");
        }
    }

    /// Writes a map into the file, if there is one.
    fn store(&self, map: &ClusterMap, seen: &mut Option<Seen>) -> Result<(), MapError> {
        if let Some(path) = &self.file {
            let failed = |error| file_error(path, error);
            write_file(path, &map.to_string()).map_err(failed)?;
            *seen = fs::metadata(path).ok().as_ref().map(seen_of);
        }
        Ok(())
    }

    /// Takes a map that a client has pushed, and stores it. It may take as long as the disk does.
    ///
    /// # Errors
    /// The map is no newer than the present one, and is not forced, or cannot be stored.
    pub(crate) fn push(&self, map: ClusterMap, is_forced: bool) -> Result<(), MapError> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
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
        self.store(&map, &mut seen)?;
        let version = map.version;
        self.replace(|view| (map, view.id.clone(), view.held.clone()));
        drop(seen);
        tracing::info!(version, "the map of the cluster was pushed");
        Ok(())
    }

    /// Takes the map of the file if it has changed and is newer. What is wrong with a file is
    /// returned once. `Some` of a version that was taken.
    ///
    /// # Errors
    /// The file cannot be read, or its map is malformed or no newer than the present one.
    pub(crate) fn look(&self) -> Result<Option<u64>, MapError> {
        let Some(path) = &self.file else {
            return Ok(None);
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // One that is away for a moment is being replaced.
        let now = fs::metadata(path).ok().as_ref().map(seen_of);
        if now.is_none() || now == *seen || self.now().1.takes() {
            return Ok(None);
        }
        *seen = now;
        let Some((text, read)) = read_file(path)? else {
            return Ok(None);
        };
        *seen = Some(read);
        let map = ClusterMap::parse(&text).map_err(MapError::Malformed)?;
        let (_, present) = self.now();
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

impl ClusterMap {
    /// The map in a file; `None` if there is no file.
    ///
    /// # Errors
    /// It cannot be read, or is malformed.
    pub fn read(path: &Path) -> Result<Option<Self>, String> {
        let text = read_file(path).map_err(|error| error.to_string())?;
        let map = text.map(|(text, _)| Self::parse(&text)).transpose();
        map.map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Writes the map into a file, which is replaced as a whole.
    ///
    /// # Errors
    /// Of the system.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        write_file(path, &self.to_string())
    }
}

fn seen_of(metadata: &fs::Metadata) -> Seen {
    (
        metadata.ino(),
        metadata.len(),
        metadata.mtime(),
        metadata.mtime_nsec(),
    )
}

fn file_error(path: &Path, error: io::Error) -> MapError {
    let path = path.display().to_string();
    MapError::File { path, error }
}

/// The text of a file; `None` if there is none.
fn read_file(path: &Path) -> Result<Option<(String, Seen)>, MapError> {
    let failed = |error| file_error(path, error);
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let seen = seen_of(&file.metadata().map_err(failed)?);
    let mut text = String::new();
    // A byte more, so that one that is too long is noticed.
    let mut limited = file.take(MAP_BYTES_MAX as u64 + 1);
    limited.read_to_string(&mut text).map_err(failed)?;
    Ok(Some((text, seen)))
}

/// Replaces the file of a map, so that another server that shares it reads one map or the other.
fn write_file(path: &Path, text: &str) -> io::Result<()> {
    replaced_file::replace(path, text.as_bytes(), NEW_FILE_MODE)
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
        let current = CurrentMap::open(None, None, ("h".to_owned(), 1)).expect("no file");
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
        assert_eq!(current.keep(to, 1).version, 3);
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
        current.keep(to, 9);
        current.keep(to, 1);
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
