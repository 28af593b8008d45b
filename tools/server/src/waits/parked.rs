//! The wait of a connection for keys: what it looks for, and where it stands. How waits begin, go
//! on and end stands in `turn/waiting.rs`.
//!
//! A command that may wait first looks at its keys as any command of several steps does. If it
//! finds nothing there, its connection enters the queues of the keys (`key_queues`), looks once
//! more, and is parked. A parked connection runs nothing and lets the core sleep. What wakes it
//! starts another look.
//!
//! - I1: a connection that is parked or looks is blocked, so nothing of its input is run.
//! - I2: it is in the queues from its second look on until its command has ended.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farcore::Core;

use crate::cores::shared::Shared;
use crate::databases::{Database, shown_key};
use crate::figures::slow_log::Measured;
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::output::TaskOutput;
use crate::waits::key_queues::{Awaited, ReadyKeys, Served, WaitEnd, Waiter};
use crate::waits::readiness::Readiness;

/// Bytes that a key takes for which a client waits, beside two copies of its text: the headers and
/// allocations of both copies, and in the queues the place in the map, about a third of which is
/// empty, a queue, which has room for four clients from the first one on, and the ticket.
const BYTES_A_KEY: usize = 416;

/// What becomes of the error of a key that holds another kind of value and is taken from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SourceErrors {
    Replied,
    /// Nothing is there: a client that waits goes on; as Redis.
    Ignored,
}

/// A try to take something; true if it has replied.
pub(crate) type Taking<'a> = Pin<Box<dyn Future<Output = bool> + 'a>>;

/// What a client waits for: its command knows how to take it.
pub(crate) trait Takes: Debug {
    /// The kind of value that is waited for.
    fn awaited(&self) -> Awaited;

    /// Writes that nothing was there.
    fn write_nothing(&self, writer: &mut Writer<'_>);

    /// The keys that are taken from.
    fn keys(&self) -> &[Vec<u8>];

    /// It, of the keys of the same names in another database.
    fn in_database(&self, database: Database) -> Rc<dyn Takes>;

    /// Takes it and replies, unless nothing is there. The key at the place `first` comes first.
    fn take_from<'a>(
        &'a self,
        core: &'a mut Core,
        reply: (&'a TaskOutput, Protocol),
        readiness: &'a Readiness,
        from: (usize, SourceErrors),
    ) -> Taking<'a>;
}

/// A key of the same name in a database.
pub(crate) fn key_in(database: Database, key: &[u8]) -> Vec<u8> {
    database.stored(shown_key(key)).into_owned()
}

/// Keys of the same names in a database.
pub(crate) fn keys_in(database: Database, keys: &[Vec<u8>]) -> Vec<Vec<u8>> {
    steps::count(keys.len());
    keys.iter().map(|key| key_in(database, key)).collect()
}

/// What a look at the keys needs.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) wanted: Rc<dyn Takes>,
    /// The place of the key that it looks at first.
    pub(crate) first: usize,
    /// Set if nothing was there.
    pub(crate) is_vain: Rc<Cell<bool>>,
    pub(crate) readiness: Readiness,
    /// How long all looks have taken.
    pub(crate) took: Rc<Cell<Duration>>,
}

impl Look {
    /// Takes what is there, if something is.
    pub(crate) async fn run(
        &self,
        core: &mut Core,
        (output, protocol): (&TaskOutput, Protocol),
        errors: SourceErrors,
    ) {
        let began = Instant::now();
        let reply = (output, protocol);
        let from = (self.first, errors);
        let is_done = self.wanted.take_from(core, reply, &self.readiness, from);
        self.is_vain.set(!is_done.await);
        self.took.set(self.took.get() + began.elapsed());
    }
}

/// The wait of a connection.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) look: Look,
    /// Its command, if that is measured: by its looks, without the wait.
    pub(crate) measured: Option<Measured>,
    /// Keys to which its looks have added elements.
    pub(crate) ready: ReadyKeys,
    /// When its time is over, in milliseconds since 1970.
    pub(crate) deadline_ms: Option<u64>,
    /// How it stands in the queues, once it is there, and its tickets of the keys.
    pub(crate) entered: Option<(Waiter, Vec<u64>)>,
    /// A look is under way.
    pub(crate) is_looking: bool,
    /// It was woken for the look that is under way.
    pub(crate) is_woken: bool,
    /// It was woken since that look began.
    pub(crate) is_woken_again: bool,
    /// The place of the key for which it was woken first since then.
    pub(crate) woken_for: Option<usize>,
    /// Those that wait until it has looked.
    pub(crate) served: Vec<Served>,
    pub(crate) served_again: Vec<Served>,
    pub(crate) end: Option<WaitEnd>,
    /// Bytes that it takes, with the queues of its keys.
    pub(crate) held_bytes: usize,
}

impl Parked {
    /// The wait of a command whose first look begins.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        wanted: Rc<dyn Takes>,
        deadline_ms: Option<u64>,
    ) -> Self {
        let ready = ReadyKeys::default();
        let keys = wanted.keys().iter();
        let keys = keys.map(|key| 2 * key.capacity() + BYTES_A_KEY);
        let held_bytes = size_of::<Self>() + keys.sum::<usize>();
        Self {
            look: Look {
                wanted,
                first: 0,
                is_vain: Rc::default(),
                readiness: Readiness::later(Arc::clone(shared), Rc::clone(&ready)),
                took: Rc::default(),
            },
            measured: None,
            ready,
            deadline_ms,
            entered: None,
            is_looking: true,
            is_woken: false,
            is_woken_again: false,
            woken_for: None,
            served: Vec::new(),
            served_again: Vec::new(),
            end: None,
            held_bytes,
        }
    }

    /// Has the command be noted at its end if it is slow.
    pub(crate) fn measure(&mut self, measured: Measured) {
        self.held_bytes += measured.held_bytes();
        self.measured = Some(measured);
    }

    pub(crate) fn look(&self) -> Look {
        self.look.clone()
    }

    /// True if it waits for keys of another database.
    pub(crate) fn is_outside(&self, database: Database) -> bool {
        let first = self.look.wanted.keys().first();
        first.is_some_and(|key| Database::of(key) != database)
    }

    /// Has it wait for the keys of the same names in a database, while it does not look.
    pub(crate) fn move_to(&mut self, database: Database, shared: &Shared) {
        let moved = self.look.wanted.in_database(database);
        let wanted = std::mem::replace(&mut self.look.wanted, moved);
        let awaited = wanted.awaited();
        if let Some((waiter, tickets)) = &mut self.entered {
            shared.waiting.leave(awaited, wanted.keys(), tickets);
            *tickets = (shared.waiting).enter(awaited, self.look.wanted.keys(), *waiter);
        }
        // It does not look for what it was woken for: the next client does.
        let served = std::mem::take(&mut self.served_again);
        let is_woken = std::mem::take(&mut self.is_woken_again) && !awaited.is_for_all();
        for key in wanted.keys().iter().filter(|_| is_woken) {
            steps::count(1);
            shared.wake_waiter(awaited, key, &served);
        }
        self.woken_for = None;
    }

    /// True once it has looked and found nothing.
    pub(crate) fn is_waiting(&self) -> bool {
        self.entered.is_some()
    }

    /// Bytes that it takes. Its place in the queues counts from its first look on.
    pub(crate) fn held_bytes(&self) -> usize {
        self.held_bytes
    }
}

/// The waits of a core's connections.
#[derive(Debug, Default)]
pub(crate) struct Parking {
    /// Connections whose next look begins.
    pub(crate) due: Vec<usize>,
    /// When times are over, with the connections.
    pub(crate) deadlines: BTreeSet<(u64, usize)>,
}

impl Parking {
    /// True if no look is to begin.
    pub(crate) fn is_quiet(&self) -> bool {
        self.due.is_empty()
    }

    /// When the next time is over, in milliseconds since 1970.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        self.deadlines.first().map(|&(deadline_ms, _)| deadline_ms)
    }
}
