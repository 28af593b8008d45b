//! A core's part of the server: its connections, and what is under way for them.
//!
//! What it does stands in `turn/`: each step of a turn is a method of [`Serving`] in a file of its
//! own.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use farcore::RemovedKeys;

use crate::budgets::entries::Entries;
use crate::budgets::turn_bytes::TurnBytes;
use crate::cluster::{CoreView, CurrentMap, View};
use crate::conn::connection::Connection;
use crate::conn::guesses::Delays;
use crate::conn::sockets::Sockets;
use crate::conn::unauthenticated::{Shares, Unauthenticated};
use crate::cores::drain::Drain;
use crate::cores::held_arrivals::HeldArrivals;
use crate::cores::shared::Shared;
use crate::events::deliveries::Deliveries;
use crate::events::monitors::Monitors;
use crate::events::operation_events::Noted;
use crate::events::subscriptions::Subscriptions;
use crate::events::tracking::CoreTracking;
use crate::exec::script_queues::ScriptQueues;
use crate::exec::sections::ExecSections;
use crate::exec::spares::Spares;
use crate::figures::counters::CoreCounters;
use crate::figures::failures::Failures;
use crate::figures::slow_log::SlowLog;
use crate::limits::{BESIDE_BYTES, RECEIVE_BYTES};
use crate::memory::CoreMemory;
use crate::memory_trims::Trim;
use crate::native::Native;
use crate::resp::{Arguments, Limits};
use crate::scripts::Scripts;
use crate::tasks::event_sink::EventSink;
use crate::tasks::running::Tasks;
use crate::types::element::ElementKeys;
use crate::users::denials::Denials;
use crate::users::of_core::CoreUsers;
use crate::waits::parked::Parking;

/// Bytes of the longest value.
const VALUE_BYTES_MAX: usize = 64 << 20;

/// A core's connections and what is under way for them.
pub(crate) struct Serving {
    pub(crate) shared: Arc<Shared>,
    /// The core's place among the server's.
    pub(crate) place: usize,
    pub(crate) connections: Vec<Option<Box<Connection>>>,
    /// Numbers of no connection.
    pub(crate) free: Vec<usize>,
    pub(crate) sockets: Sockets,
    /// New connections that wait for memory.
    pub(crate) arrivals: HeldArrivals,
    /// Connections that go on next turn though their socket is not ready.
    pub(crate) listed: Vec<usize>,
    /// The engine has refused a request in this turn, as it has no room for more: those of other
    /// connections would be refused too.
    pub(crate) is_engine_full: bool,
    /// Connections whose next command waits for the end of a pause, or for the owner of a slot.
    pub(crate) paused: BTreeMap<u64, usize>,
    /// Whether clients were paused when these were looked at last, and the generation of the view
    /// of the cluster then.
    pub(crate) paused_in: (bool, u64),
    /// What had begun when slots were held.
    pub(crate) drains: Vec<Drain>,
    /// Connections with output.
    pub(crate) dirty: Vec<usize>,
    pub(crate) subscriptions: Subscriptions,
    /// What waits for their subscribers.
    pub(crate) deliveries: Deliveries,
    /// Where commands leave events of keys.
    pub(crate) events: EventSink,
    /// What commands copy of large values in a turn.
    pub(crate) turn_bytes: Rc<TurnBytes>,
    /// The commands that enter sections.
    pub(crate) entries: Rc<Entries>,
    /// What `EXEC`s of its connections hold.
    pub(crate) sections: ExecSections,
    pub(crate) scripts: Scripts,
    pub(crate) script_queues: ScriptQueues,
    pub(crate) spares: Spares,
    /// Requests under way whose answers may make events, by token.
    pub(crate) noted: HashMap<u64, Noted>,
    /// Keys that were taken from the engine, empty between turns.
    pub(crate) removed_keys: RemovedKeys,
    /// Events of removed keys wait, as far as this core knows.
    pub(crate) holds_removed: bool,
    /// Where bytes are received.
    pub(crate) received: Vec<u8>,
    /// Where encrypted bytes are opened.
    pub(crate) opened: Vec<u8>,
    pub(crate) arguments: Arguments,
    /// Where a command's arguments with its keys as they are stored are made, empty between
    /// commands.
    pub(crate) replaced_keys: Arguments,
    /// Where keys of elements are made, empty between commands.
    pub(crate) elements: ElementKeys,
    pub(crate) limits: Limits,
    /// Those of commands that store nothing.
    pub(crate) limits_of_whole: Limits,
    pub(crate) unauthenticated_limits: Limits,
    pub(crate) tasks: Tasks,
    /// Empty buffers for replies.
    pub(crate) spare_buffers: Vec<Vec<u8>>,
    /// What the core's clients hold, and what its unauthenticated connections do.
    pub(crate) memory: Rc<CoreMemory>,
    pub(crate) unauthenticated_memory: Rc<CoreMemory>,
    /// When clients that hold memory are looked for next, in milliseconds since 1970.
    pub(crate) next_pass_ms: u64,
    /// Large values are not kept for the core's client while another polls.
    pub(crate) limits_kept_values: bool,
    /// Those that have not authenticated.
    pub(crate) unauthenticated: Unauthenticated,
    /// Those that wait after wrong passwords.
    pub(crate) delays: Delays,
    /// The users, as the core knows them.
    pub(crate) users: CoreUsers,
    /// The map of the cluster as the core knows it, if the server is a part of one.
    pub(crate) cluster: Option<CoreView>,
    /// What its clients were refused.
    pub(crate) denials: Denials,
    /// What its clients cache.
    pub(crate) tracking: CoreTracking,
    pub(crate) slow: SlowLog,
    pub(crate) failures: Failures,
    pub(crate) monitors: Monitors,
    /// Connections that wait for keys.
    pub(crate) parking: Parking,
    /// Native connections, if they are served.
    pub(crate) native: Option<Native>,
    /// What the core's shard gives back of local memory.
    pub(crate) trim: Option<Trim>,
    value_bytes_max: usize,
    /// Milliseconds since 1970, when the turn began.
    pub(crate) now_ms: u64,
}

impl Serving {
    /// A core without connections.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub(crate) fn new(
        shared: Arc<Shared>,
        place: usize,
        value_bytes_max: usize,
    ) -> io::Result<Self> {
        let limits = Limits {
            bulk_bytes_max: VALUE_BYTES_MAX,
            // What does not fit a record, whatever is stored with it, is not kept with the
            // connection.
            large_bytes: value_bytes_max.saturating_sub(BESIDE_BYTES),
            announces_all: true,
            ..Limits::default()
        };
        let shares = Shares::of(&shared.options, shared.cores.len());
        let users = CoreUsers::new(&shared.users);
        let cluster = shared.cluster.as_ref().map(CoreView::new);
        Ok(Self {
            sockets: Sockets::new(shared.cores[place].wake_event())?,
            limits_of_whole: Limits {
                large_bytes: usize::MAX,
                ..limits
            },
            limits,
            unauthenticated_limits: Limits::UNAUTHENTICATED,
            memory: CoreMemory::new(Arc::clone(&shared.client_memory)),
            unauthenticated_memory: CoreMemory::new(Arc::clone(&shared.unauthenticated_memory)),
            next_pass_ms: 0,
            limits_kept_values: false,
            unauthenticated: Unauthenticated::new(shares),
            delays: Delays::default(),
            spare_buffers: Vec::new(),
            events: EventSink::new(Arc::clone(&shared)),
            turn_bytes: Rc::default(),
            entries: Rc::default(),
            sections: ExecSections::default(),
            scripts: Scripts::default(),
            script_queues: ScriptQueues::default(),
            spares: Spares::default(),
            noted: HashMap::new(),
            removed_keys: RemovedKeys::default(),
            holds_removed: false,
            shared,
            place,
            connections: Vec::new(),
            free: Vec::new(),
            arrivals: HeldArrivals::default(),
            listed: Vec::new(),
            is_engine_full: false,
            paused: BTreeMap::new(),
            paused_in: (false, 0),
            drains: Vec::new(),
            dirty: Vec::new(),
            subscriptions: Subscriptions::default(),
            deliveries: Deliveries::default(),
            received: vec![0; RECEIVE_BYTES],
            opened: Vec::new(),
            arguments: Arguments::default(),
            replaced_keys: Arguments::default(),
            elements: ElementKeys::default(),
            tasks: Tasks::default(),
            users,
            cluster,
            denials: Denials::default(),
            tracking: CoreTracking::default(),
            slow: SlowLog::default(),
            failures: Failures::default(),
            monitors: Monitors::default(),
            parking: Parking::default(),
            native: None,
            trim: None,
            value_bytes_max,
            now_ms: 0,
        })
    }

    /// Bytes of a record's value, at most.
    pub(crate) fn value_bytes_max(&self) -> usize {
        self.value_bytes_max
    }

    /// Bytes of a long value that are gathered before they are stored, at most: a piece is half as
    /// long as a record.
    pub(crate) fn piece_bytes_max(&self) -> usize {
        self.value_bytes_max / 2
    }

    /// The map of the cluster as it is now, if the server is a part of one.
    #[inline]
    pub(crate) fn cluster_view(&mut self) -> Option<&View> {
        let view = self.cluster.as_mut()?;
        Some(view.renewed(self.shared.cluster.as_ref()?))
    }

    /// True while slots of this server may be served, if it is a part of a cluster.
    #[inline]
    pub(crate) fn is_in_lease(&self) -> bool {
        let cluster = self.shared.cluster.as_ref();
        cluster.is_none_or(CurrentMap::is_fence_open)
    }

    /// The core's figures.
    #[inline]
    pub(crate) fn counters(&self) -> &CoreCounters {
        &self.shared.counters[self.place]
    }

    /// Counts an error that was replied to the command of a place in the table.
    pub(crate) fn note_failed_call(&mut self, command: u8, text: &str) {
        self.counters().note_failed(command);
        self.failures.note(text);
    }

    /// Counts an error that was replied.
    pub(crate) fn note_failure(&mut self, text: &str) {
        self.counters().failed_commands.add(1);
        self.failures.note(text);
    }

    /// Takes a connection to serve it, if it is not gone; `put_back` gives it back.
    pub(crate) fn take(&mut self, number: usize) -> Option<Box<Connection>> {
        let connection = self.connections.get_mut(number)?.take()?;
        if connection.is_gone {
            self.connections[number] = Some(connection);
            return None;
        }
        Some(connection)
    }

    pub(crate) fn put_back(&mut self, number: usize, connection: Box<Connection>) {
        let is_gone = connection.is_gone;
        self.connections[number] = Some(connection);
        if is_gone {
            self.close(number);
        }
    }

    pub(crate) fn note_dirty(&mut self, number: usize, connection: &mut Connection) {
        if !connection.is_dirty {
            connection.is_dirty = true;
            self.dirty.push(number);
        }
    }

    pub(crate) fn list(&mut self, number: usize, connection: &mut Connection) {
        if !connection.is_listed {
            connection.is_listed = true;
            self.listed.push(number);
        }
    }
}

impl std::fmt::Debug for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serving")
            .field("place", &self.place)
            .field("connections", &self.connections.len())
            .finish_non_exhaustive()
    }
}
