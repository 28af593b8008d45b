//! What a core can be asked to do by other cores, and by the thread that accepts.
//!
//! - I1: a message holds data alone. A dropped message answers by the drop of what it holds.

use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::Arc;

use farcore_rdma::PeerArrival;
use farcore_script::Script;

use crate::conn::client_filter::{ClientFilter, ClientPage};
use crate::cores::answers::Answers;
use crate::cores::drain::DrainOf;
use crate::events::publication::{NamesPage, Publication, Topic};
use crate::events::tracking::Changes;
use crate::figures::failures::Failures;
use crate::figures::slow_log::SlowCommand;
use crate::texts::Texts;
use crate::users::denials::Denial;
use crate::waits::key_queues::{Awaited, Served, WaitEnd, Waiter};

/// A connection that was accepted.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) is_encrypted: bool,
    /// It is counted among those that have something to prove.
    pub(crate) is_unauthenticated: bool,
    /// There was no place for it: one that has not authenticated makes room.
    pub(crate) is_above_limit: bool,
    pub(crate) kind: ArrivalKind,
}

/// Whose connection it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ArrivalKind {
    Client,
    /// Its commands come from the server that this one follows.
    Source,
    /// It reads keys for replicas.
    Reader,
}

/// What became of scripts that were to end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KilledScripts {
    pub(crate) killed: usize,
    /// They have written.
    pub(crate) unkillable: usize,
}

/// A push for a client that another one has redirected to it.
#[derive(Debug)]
pub(crate) struct Redirected {
    pub(crate) client: u64,
    /// The keys, as they are written.
    pub(crate) body: Vec<u8>,
    /// The core of the other client, the number of its connection, and that client.
    pub(crate) core: usize,
    pub(crate) from: (usize, u64),
}

/// What another thread sends to a core.
#[derive(Debug)]
pub(crate) enum Message {
    /// A connection to serve.
    Connection(Arrival),
    /// A connection of a native client, not yet accepted.
    Peer(PeerArrival),
    /// Give back local memory above `keep_bytes`, unless a trim is under way.
    Trim { keep_bytes: u64 },
    /// End overdue native connections.
    EndOverdueNative,
    /// Close connections that are late to authenticate; some a turn.
    EndLate,
    /// Close silent connections, from a number on; some a turn.
    EndSilent { start: usize },
    /// End the waits of clients for keys, from a number of a connection on; some a turn.
    EndWaits { start: usize },
    /// Answer once all of this has ended that has begun by now.
    Drain(DrainOf, Answers<()>),
    /// End the waits for keys whose slots have another owner, or soon have, from a number of a
    /// connection on; some a turn.
    EndMovedWaits { start: usize },
    /// Hand a message of a channel to the subscribers, and answer how many have it.
    Publish(Arc<Publication>, Answers<usize>),
    /// Deliver the events of keys that the port has.
    DeliverKeyEvents,
    /// Disconnect the subscriber that has most shared bytes unread.
    EndSlowestSubscriber,
    /// Show a turn's commands to the clients that watch.
    ShowCommands(Arc<[u8]>),
    /// Have a client look at its keys again, of which this one, at this place among them, may have
    /// elements.
    Wake {
        waiter: Waiter,
        awaited: Awaited,
        key: Vec<u8>,
        place: usize,
        served: Vec<Served>,
    },
    /// Keep a script, whose owner the core is.
    KeepScript(Arc<Script>),
    /// Keys were changed: push them to clients that cache them.
    Changed(Changes),
    /// Push to clients that cache keys that all are invalid.
    ForgetTracked,
    /// Push to a client what another one has redirected to it.
    Redirected(Box<Redirected>),
    /// The client that another one redirects to is gone.
    RedirectionBroken {
        /// The number of the connection, and its client.
        from: (usize, u64),
        client: u64,
    },
    /// What a command wants to know or to change of every core.
    Question(Question),
}

/// What a command wants to know or to change of every core, and where the core answers. Of what may
/// be long a core answers a page a turn.
#[derive(Debug)]
pub(crate) enum Question {
    /// How often each error was replied?
    Failures(Answers<Failures>),
    /// Count errors anew, and the steps of the longest turn.
    ResetFigures(Answers<()>),
    /// Compact what is mostly dead in local memory.
    StartPurge(Answers<()>),
    /// Is a trim under way?
    IsTrimming(Answers<bool>),
    /// Slow commands that were noted before a number, the newest first.
    SlowCommands {
        before: u64,
        count: usize,
        answers: Answers<(usize, Vec<SlowCommand>)>,
    },
    /// How many slow commands are noted?
    SlowCount(Answers<usize>),
    /// Forget them.
    ClearSlow(Answers<()>),
    /// Names with subscribers behind one, of which those are wanted that match a pattern.
    TopicNames {
        topic: Topic,
        before: Option<Arc<[u8]>>,
        pattern: Option<Arc<[u8]>>,
        answers: Answers<(usize, NamesPage)>,
    },
    /// How many subscribers has each of some names?
    SubscriberCounts {
        topic: Topic,
        names: Arc<Texts>,
        places: Range<usize>,
        answers: Answers<Vec<usize>>,
    },
    /// Look at the newest users.
    RenewUsers(Answers<()>),
    /// The newest refusals, this many at most?
    Denials(usize, Answers<Vec<Denial>>),
    /// Where is a client that another one redirects to?
    FindTarget(u64, Answers<Option<usize>>),
    /// Forget refusals.
    ClearDenials(Answers<()>),
    /// The lines of `CLIENT LIST` of clients from a number on, with their identities.
    DescribeClients {
        start: usize,
        filter: Arc<ClientFilter>,
        answers: Answers<ClientPage<Vec<(u64, String)>>>,
    },
    /// Close clients from a number on. How many were there?
    KillClients {
        start: usize,
        filter: Arc<ClientFilter>,
        answers: Answers<ClientPage<usize>>,
    },
    /// The script of a digest, if the core owns it?
    FindScript(String, Answers<Option<Arc<Script>>>),
    /// Which of some scripts does the core own?
    HaveScripts {
        wanted: Arc<Vec<String>>,
        answers: Answers<Vec<bool>>,
    },
    /// Forget all scripts.
    ForgetScripts(Answers<()>),
    /// End the scripts that run.
    KillScripts(Answers<KilledScripts>),
    /// End the wait of a client if it is among those from a number on. Was it there?
    UnblockClient {
        start: usize,
        client: u64,
        end: WaitEnd,
        answers: Answers<ClientPage<bool>>,
    },
    /// Databases were swapped: have clients wait in those that their numbers mean now, from a
    /// number of a connection on.
    MoveWaits {
        start: usize,
        answers: Answers<ClientPage<()>>,
    },
}
