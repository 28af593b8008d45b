//! The thread that brings the keys of some slots from the server of the cluster that owns them, and
//! has it give them away.
//!
//! ```text
//! remove keys of these slots -> load (an RDB file of them) -> follow their changes
//!   -> hold the slots here -> CLUSTERX HANDOVER at the other server, which holds them, too, waits
//!      until all changes are here, and writes a map that gives them away -> that map -> serve
//! ```
//!
//! - I1: the slots have one owner: the other server gives them away at one moment, by the map that
//!   it stores, when all that it has acknowledged to clients is here.
//! - I2: nothing of the other server is applied once this one serves the slots.
//! - I3: what has come is removed only if it is known that the other server still owns the slots.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::error::LinkError;
use super::handshake::{Begin, authenticate, greet};
use super::history::{History, Position};
use super::imports::{ImportPhase, ImportState};
use super::inlet::Inlet;
use super::load::Load;
use super::session::{ACKNOWLEDGE, Session};
use super::settings::Settings;
use super::slot_filter::SlotFilter;
use super::slot_purge::{is_own, remove};
use super::source::{Source, take_line};
use super::stop::Stop;
use super::stream::Stream;
use crate::cluster::{ClusterMap, CurrentMap, MAP_BYTES_MAX, Member, SlotSet};
use crate::cores::shared::Shared;

/// How often a link that breaks is begun again, and the pause before.
const LINKS_MAX: u32 = 8;
const PAUSE: Duration = Duration::from_millis(300);
/// How often the other server is asked to give the slots away, and the pause between.
const ASKED_MAX: u32 = 8;
const ASK_PAUSE: Duration = Duration::from_millis(300);
/// How long it may take to be reached then, and to answer: somewhat more than it holds them.
const ASKED_IN: Duration = Duration::from_secs(2);
const ANSWERED_IN: Duration = Duration::from_secs(7);
/// How often the position is said while the slots are held: it decides how long clients wait.
const LOOK: Duration = Duration::from_millis(5);
/// How long clients wait here while it is not known who owns the slots.
const HELD_FOR: Duration = Duration::from_secs(5);

/// What the other server has done.
enum Answer {
    /// It has given the slots away, by this map.
    Given(ClusterMap),
    /// It has not, and does not.
    Refused(String),
    /// The connection has ended before it has said.
    Unknown,
}

/// Why slots are not brought.
#[derive(Debug, thiserror::Error)]
enum ImportError {
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("keys of these slots that are here from before are not removed: {0}")]
    Purge(io::Error),
    #[error("the other server does not give them away: {0}")]
    Refused(String),
    #[error("the servers go by different maps: {0}")]
    Map(String),
    /// What has come must stay.
    #[error(
        "it is not known who owns the slots: the other server may have given them away; once it is there, push its map (CLUSTERX MAP) to this server"
    )]
    Unsure,
}

impl ImportError {
    /// True if another attempt may help.
    fn is_passing(&self) -> bool {
        let lasting = |error: &LinkError| {
            matches!(
                error,
                LinkError::Stopped | LinkError::Refused { .. } | LinkError::NotStored(_)
            )
        };
        matches!(self, Self::Link(error) if !lasting(error))
    }
}

/// Begins to bring slots from the server of an ID.
///
/// # Errors
/// Why that is not possible.
pub(crate) fn begin(shared: &Arc<Shared>, slots: SlotSet, from: &str) -> Result<(), String> {
    let cluster = shared.cluster.as_ref().ok_or("there is no cluster")?;
    let (_, view) = cluster.now();
    let own = view.own_id().filter(|_| view.own.is_some());
    let own = own.ok_or("this server is not in the map of its cluster")?;
    if view.member().is_some_and(|member| member.source.is_some()) {
        return Err("this server follows another one, and owns no slots".to_owned());
    }
    let place = view.map.place_of(from);
    let place = place.ok_or("the ID is not in the map of the cluster")?;
    let source = view.map.members[place].clone();
    if let Some(slot) = slots
        .iter()
        .find(|slot| view.map.owner(*slot) != Some(place))
    {
        return Err(format!(
            "slot {slot} is not of {from} by the map of version {}",
            view.map.version
        ));
    }
    if Some(place) == view.own {
        return Err("the slots are this server's already".to_owned());
    }
    let mut state = shared.replication.imports.state();
    if (state.as_ref()).is_some_and(|state| !state.phase.is_over()) {
        return Err("other slots are brought at present; wait, or send CLUSTERX CANCEL".to_owned());
    }
    let failed = |error: io::Error| format!("no thread for it: {error}");
    let stop = Arc::new(Stop::new().map_err(failed)?);
    let slots = Arc::new(slots);
    let import = Import {
        session: Session {
            shared: Arc::clone(shared),
            stop: Arc::clone(&stop),
        },
        slots: Arc::clone(&slots),
        source,
        own: own.to_owned(),
        version: view.map.version,
        history: History::own(),
        has_loaded: false,
        asked: 0,
        ticket: 0,
        is_asking: false,
    };
    let thread = thread::Builder::new().name("farcore-import".to_owned());
    let thread = thread.spawn(move || import.run()).map_err(failed)?;
    *state = Some(ImportState {
        slots,
        from: from.to_ascii_lowercase(),
        phase: ImportPhase::Clearing,
        loaded_bytes: 0,
        followed_bytes: 0,
        hindrance: None,
        stop,
        thread: Some(thread),
    });
    Ok(())
}

/// Brings slots.
struct Import {
    session: Session,
    slots: Arc<SlotSet>,
    source: Member,
    /// The ID of this server.
    own: String,
    /// The version of the map by which the other server owns the slots.
    version: u64,
    history: History,
    /// Keys have come.
    has_loaded: bool,
    /// How often the other server was asked to give them away, the ticket of the last question, and
    /// whether it may be carried out still.
    asked: u32,
    ticket: u64,
    is_asking: bool,
}

impl Import {
    fn run(mut self) {
        let brought = match self.bring() {
            // Whatever was said: the map of now has them here.
            _ if self.is_own() => Ok(()),
            Ok(()) => Err(ImportError::Unsure),
            Err(error) => Err(error),
        };
        let end = match brought {
            Ok(()) => ImportPhase::Done,
            Err(error) => {
                let mut text = error.to_string();
                if !matches!(error, ImportError::Unsure)
                    && let Err(error) = self.remove()
                {
                    text = format!("{text}; keys that have come are not removed: {error}");
                }
                ImportPhase::Failed(text)
            }
        };
        match &end {
            ImportPhase::Failed(error) => {
                tracing::error!(from = self.source.id, slots = %self.slots, error, "slots are not brought here");
            }
            _ => {
                tracing::info!(from = self.source.id, slots = %self.slots, "slots are brought here");
            }
        }
        self.note(end);
    }

    fn note(&self, phase: ImportPhase) {
        self.note_state(|state| state.phase = phase);
    }

    fn note_state(&self, note: impl FnOnce(&mut ImportState)) {
        let mut state = self.session.shared.replication.imports.state();
        let state = state.as_mut();
        if let Some(state) = state.filter(|state| Arc::ptr_eq(&state.stop, &self.session.stop)) {
            note(state);
        }
    }

    fn settings(&self) -> Settings {
        self.session.shared.replication.state().settings.clone()
    }

    fn cluster(&self) -> Option<&CurrentMap> {
        self.session.shared.cluster.as_ref()
    }

    fn bring(&mut self) -> Result<(), ImportError> {
        let map = self.ask_map()?;
        let owner = map.place_of(&self.source.id);
        let has_all = self.slots.iter().all(|slot| map.owner(slot) == owner);
        if map.version != self.version || owner.is_none() || !has_all {
            return Err(ImportError::Map(format!(
                "the other server goes by another map, of version {}; that of this one has version {}",
                map.version, self.version
            )));
        }
        self.clear()?;
        let mut links = 0;
        loop {
            links += 1;
            let error = match self.follow() {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if !error.is_passing() || links == LINKS_MAX {
                return Err(error);
            }
            tracing::warn!(from = self.source.id, %error, "the link by which slots are brought has ended: another one is begun");
            self.session.wait(&[], PAUSE);
        }
    }

    /// Removes keys of these slots that are here.
    fn clear(&self) -> Result<(), ImportError> {
        self.note(ImportPhase::Clearing);
        let stop = &self.session.stop;
        let shared = &self.session.shared;
        let removed = remove(
            shared,
            &self.slots,
            || stop.is_set(),
            |slot| is_own(shared, slot),
        );
        removed.map_err(ImportError::Purge)?;
        Ok(self.session.check_stop()?)
    }

    /// Removes what has come, but for slots that are this server's by now.
    fn remove(&self) -> io::Result<()> {
        let shared = &self.session.shared;
        // The other server may have sent etcd a map that gives them away, and know no answer.
        let settled = self.cluster().map_or(Ok(()), CurrentMap::settle);
        settled.map_err(io::Error::other)?;
        let is_kept = |slot| is_own(shared, slot);
        let removed = remove(shared, &self.slots, || shared.is_stopping(), is_kept)?;
        tracing::info!(removed, slots = %self.slots, "keys that have come are removed");
        Ok(())
    }

    /// # Errors
    /// This server goes by another map than when it began.
    fn check_map(&self) -> Result<(), ImportError> {
        let version = self.cluster().map(|cluster| cluster.now().1.map.version);
        match version == Some(self.version) {
            true => Ok(()),
            false => {
                let text = "this server goes by another one";
                Err(ImportError::Map(text.to_owned()))
            }
        }
    }

    /// True if the slots are this server's, by the map of now.
    fn is_own(&self) -> bool {
        let view = self.cluster().map(|cluster| cluster.now().1);
        view.is_some_and(|view| self.owns_by(&view.map))
    }

    fn connect(&self) -> Result<Source, LinkError> {
        self.connect_for(self.settings().timeout())
    }

    fn connect_for(&self, limit: Duration) -> Result<Source, LinkError> {
        let host = (&self.source.host[..], self.source.port);
        self.session.connect(host, limit)
    }

    /// Loads or goes on, follows the changes, and has the slots be given away.
    fn follow(&mut self) -> Result<(), ImportError> {
        self.check_map()?;
        self.note(ImportPhase::Connecting);
        let mut source = self.connect()?;
        let wanted = format!("{} {}", self.own, self.slots);
        let about: [&[u8]; 3] = [b"REPLCONF", b"farcore-import", wanted.as_bytes()];
        let who = (&self.settings(), self.session.own_port());
        let mut inlet = Inlet::open(
            &self.session.shared,
            source.address().map_err(LinkError::from)?,
        )
        .map_err(LinkError::from)?;
        match greet(&mut source, who, &self.history, &about)? {
            Begin::Full { id, offset } => {
                self.history.is_resumable = false;
                let database = self.load(&mut source, &mut inlet)?;
                self.history = History {
                    id,
                    position: Position { offset, database },
                    before: None,
                    is_resumable: true,
                };
            }
            Begin::Partial { id } => id.into_iter().for_each(|id| self.history.rename(id)),
        }
        self.note(ImportPhase::Following);
        let filter = SlotFilter {
            slots: Arc::clone(&self.slots),
            begin: None,
        };
        let names = self.session.shared.streamed.clone();
        let stream = Stream::new(self.history.position, names, &mut inlet.out);
        let mut stream = stream.of_slots(filter);
        let ended = self.pass_on(&mut source, &mut inlet, &mut stream);
        // Nothing comes any more; what was passed on is waited for.
        drop(source);
        let drained = self.session.drain(&mut inlet);
        let settled = stream.settle(inlet.answered(), inlet.take_failed());
        self.history.position = stream.applied();
        self.history.is_resumable &= drained.is_ok() && settled.is_ok();
        let ended = match ended {
            Ok(answer) => answer,
            // It may have given them away, or still do so.
            Err(_) if self.is_asking => Answer::Unknown,
            Err(error) => {
                self.release();
                let is_cut = matches!(
                    error,
                    ImportError::Link(
                        LinkError::Io(_) | LinkError::Closed | LinkError::Silent { .. }
                    )
                );
                self.history.is_resumable &= is_cut;
                return Err(error);
            }
        };
        match ended {
            Answer::Given(map) => self.receive(map),
            Answer::Unknown => self.find_out(),
            Answer::Refused(text) => {
                self.release();
                Err(ImportError::Refused(text))
            }
        }
    }

    /// Loads the keys; returns the database that their changes begin in.
    fn load(&mut self, source: &mut Source, inlet: &mut Inlet) -> Result<u64, ImportError> {
        if std::mem::replace(&mut self.has_loaded, true) {
            // What has come is of another moment.
            self.clear()?;
        }
        self.note(ImportPhase::Loading);
        let end = self.session.data_end(source)?;
        let note = |load: &Load| {
            self.note_state(|state| state.loaded_bytes = load.read_bytes());
        };
        let load = Load::new(end);
        let loaded = self.session.load_file((source, inlet), load, note);
        if loaded.is_err() {
            let _ = self.session.drain(inlet);
        }
        Ok(loaded?)
    }

    /// Has commands of the slots wait here no more.
    fn release(&self) {
        if let Some(cluster) = self.cluster() {
            cluster.release(&self.own, self.ticket);
        }
        self.session.shared.wake_all();
    }

    /// Serves the slots.
    fn receive(&self, map: ClusterMap) -> Result<(), ImportError> {
        if let Some(cluster) = self.cluster() {
            cluster.receive(map);
        }
        self.release();
        Ok(())
    }

    /// Applies changes, and requests the slots once few are missing. It ends with the answer.
    fn pass_on(
        &mut self,
        source: &mut Source,
        inlet: &mut Inlet,
        stream: &mut Stream,
    ) -> Result<Answer, ImportError> {
        let mut said = None::<Instant>;
        let mut asking = None::<(Source, Instant)>;
        let mut ask_at = Instant::now();
        loop {
            inlet.exchange()?;
            self.check_map()?;
            if let Some(fault) = stream.settle(inlet.answered(), inlet.take_failed())?.pop() {
                let text = format!("{} fails here: {}", fault.command, fault.reply);
                return Err(LinkError::NotStored(text).into());
            }
            let mut has_room = false;
            while !inlet.is_full() {
                if !stream.step(&mut source.input, &mut inlet.out)? && source.receive()? == 0 {
                    has_room = true;
                    break;
                }
            }
            if inlet.is_full() {
                source.rest();
            }
            self.note_state(|state| state.followed_bytes = stream.read());
            // How often: while slots are held, clients wait for it.
            let often = match asking {
                Some(_) => LOOK,
                None => ACKNOWLEDGE,
            };
            if said.is_none_or(|said| said.elapsed() >= often) || stream.take_question() {
                said = Some(Instant::now());
                let offset = stream.applied().offset.to_string();
                source.send(&[b"REPLCONF", b"ACK", offset.as_bytes()]);
            }
            source.flush()?;
            self.session.check_stop()?;
            match &mut asking {
                None if has_room && Instant::now() >= ask_at => match self.ask()? {
                    Some(asked) => asking = Some((asked, Instant::now())),
                    None => ask_at = Instant::now() + ASK_PAUSE,
                },
                None => {}
                Some((asked, since)) => match answer_of(asked, *since) {
                    None => {}
                    Some(Answer::Refused(text)) => {
                        asking = None;
                        self.is_asking = false;
                        self.release();
                        self.note(ImportPhase::Following);
                        if self.asked >= ASKED_MAX {
                            return Ok(Answer::Refused(text));
                        }
                        tracing::warn!(error = text, "slots are not given away yet");
                        ask_at = Instant::now() + ASK_PAUSE;
                    }
                    Some(Answer::Given(map)) if !self.is_given_by(&map) => {
                        return Ok(Answer::Unknown);
                    }
                    Some(answer) => return Ok(answer),
                },
            }
            let mut sockets = vec![source.interest(has_room), inlet.interest()];
            sockets.extend(asking.iter().map(|(asked, _)| asked.interest(true)));
            self.session.wait(&sockets, often.min(ASK_PAUSE));
        }
    }

    /// Asks the other server to give the slots away. Until it answers, clients wait here, too: it
    /// sends them before this server knows the map. `None`: other slots change their owner.
    fn ask(&mut self) -> Result<Option<Source>, ImportError> {
        let mut asked = self.connect_for(ASKED_IN)?;
        authenticate(&mut asked, &self.settings())?;
        self.note(ImportPhase::Taking);
        self.ticket = farcore_tuning::system_ms().max(self.ticket + 1);
        let of = (&self.own[..], self.ticket);
        let is_held = self
            .cluster()
            .is_some_and(|cluster| cluster.hold(&self.slots, of));
        if !is_held {
            self.note(ImportPhase::Following);
            return Ok(None);
        }
        let version = self.cluster().map(|cluster| cluster.now().1.map.version);
        if version != Some(self.version) {
            self.release();
            let text = "this server goes by another one";
            return Err(ImportError::Map(text.to_owned()));
        }
        self.asked += 1;
        let (slots, version) = (self.slots.to_string(), self.version.to_string());
        let ticket = self.ticket.to_string();
        let words: [&[u8]; 6] = [
            b"CLUSTERX",
            b"HANDOVER",
            slots.as_bytes(),
            self.own.as_bytes(),
            version.as_bytes(),
            ticket.as_bytes(),
        ];
        self.is_asking = true;
        asked.send(&words);
        Ok(Some(asked))
    }

    /// True if a map is the next one, and gives the slots to this server.
    fn is_given_by(&self, map: &ClusterMap) -> bool {
        Some(map.version) == self.version.checked_add(1) && self.owns_by(map)
    }

    /// Finds out who owns the slots, from the other server, or by a map that comes from elsewhere.
    fn find_out(&self) -> Result<(), ImportError> {
        self.note(ImportPhase::Unsure);
        let mut since = Some(Instant::now());
        loop {
            if since.is_some_and(|since| since.elapsed() > HELD_FOR) {
                since = None;
                self.release();
            }
            if since.is_none() && self.is_refused_by_etcd() {
                let text = "the map in etcd gives them to another one";
                return Err(ImportError::Refused(text.to_owned()));
            }
            if self.is_own() {
                self.release();
                return Ok(());
            }
            match self.ask_map() {
                Ok(map) if map.version > self.version && self.owns_by(&map) => {
                    return self.receive(map);
                }
                Ok(map) if map.version == self.version => {
                    self.release();
                    return Err(ImportError::Refused("its answer was lost".to_owned()));
                }
                Ok(map) => self.note_hindrance(format!(
                    "it goes by version {}, by which the slots are not this server's",
                    map.version
                )),
                Err(error) => self.note_hindrance(error.to_string()),
            }
            if self.session.stop.is_set() {
                self.release();
                return Err(ImportError::Unsure);
            }
            self.session.wait(&[], PAUSE);
        }
    }

    /// True if etcd has the map, and by this the slots are not this server's for good.
    fn is_refused_by_etcd(&self) -> bool {
        let cluster = self.cluster().filter(|cluster| cluster.is_in_etcd());
        cluster.is_some_and(|cluster| cluster.settle().is_ok()) && !self.is_own()
    }

    /// True if this server owns the slots by a map.
    fn owns_by(&self, map: &ClusterMap) -> bool {
        let own = map.place_of(&self.own);
        own.is_some() && self.slots.iter().all(|slot| map.owner(slot) == own)
    }

    /// Notes why it is not known who owns the slots.
    fn note_hindrance(&self, text: String) {
        self.note_state(|state| {
            if state.hindrance.as_ref() != Some(&text) {
                tracing::warn!(
                    from = state.from,
                    error = text,
                    "it is not known who owns slots that are brought here"
                );
                state.hindrance = Some(text);
            }
        });
    }

    /// Has the other server not give the slots away any more, and reads its map.
    fn ask_map(&self) -> Result<ClusterMap, ImportError> {
        let mut asked = self.connect_for(ASKED_IN)?;
        authenticate(&mut asked, &self.settings())?;
        let ticket = self.ticket.to_string();
        asked.send(&[b"CLUSTERX", b"KEEP", self.own.as_bytes(), ticket.as_bytes()]);
        let since = Instant::now();
        loop {
            match answer_of(&mut asked, since) {
                Some(Answer::Given(map)) => return Ok(map),
                Some(Answer::Refused(text)) => return Err(ImportError::Refused(text)),
                Some(Answer::Unknown) => return Err(LinkError::Closed.into()),
                None => self.session.wait(&[asked.interest(true)], LOOK),
            }
            self.session.check_stop()?;
        }
    }
}

/// How a server begins that does not know whether it has given slots away.
const UNSURE: &str = "-UNSURE";

/// The answer of a server to a command that replies its map: a bulk string, or an error. `None` if
/// it may come.
fn answer_of(asked: &mut Source, since: Instant) -> Option<Answer> {
    let read = |asked: &mut Source| -> Result<Option<Answer>, LinkError> {
        asked.flush()?;
        asked.receive()?;
        let rest = asked.input.rest();
        if rest.first() == Some(&b'$') {
            let end = rest.iter().position(|byte| *byte == b'\n');
            let Some(end) = end else {
                return Ok(None);
            };
            let malformed = || LinkError::Malformed("its map is malformed".to_owned());
            let text = std::str::from_utf8(&rest[1..end]).ok();
            let bytes = text.and_then(|text| text.trim().parse::<usize>().ok());
            let bytes = bytes.filter(|bytes| *bytes <= MAP_BYTES_MAX);
            let bytes = bytes.ok_or_else(malformed)?;
            let Some(text) = rest.get(end + 1..end + 1 + bytes) else {
                return Ok(None);
            };
            let text = std::str::from_utf8(text).ok();
            let map = text.and_then(|text| ClusterMap::parse(text).ok());
            return Ok(Some(Answer::Given(map.ok_or_else(malformed)?)));
        }
        let line = take_line(&mut asked.input)?;
        Ok(line.map(|line| match line.starts_with(UNSURE) {
            true => Answer::Unknown,
            false => Answer::Refused(line.trim_start_matches('-').to_owned()),
        }))
    };
    match read(asked) {
        Ok(None) if since.elapsed() > ANSWERED_IN => Some(Answer::Unknown),
        Ok(answer) => answer,
        Err(_) => Some(Answer::Unknown),
    }
}
