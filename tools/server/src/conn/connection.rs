//! One client's connection: its bytes in and out, and the replies that it waits for.
//!
//! - I1: replies leave in the order of the requests. A reply that is ready early waits in
//!   `pending`.
//! - I2: a connection without requests under way holds no buffer.

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use farcore::{Answer, Error, Operation};
use farcore_script::Script;

use crate::conn::discarding::Discarding;
use crate::conn::guesses::Guesses;
use crate::conn::joined_reply::JoinedReply;
use crate::conn::kept_keys::KeptKeys;
use crate::conn::keys_under_way::KeysUnderWay;
use crate::conn::output::Output;
pub(crate) use crate::conn::reply_mode::ReplyMode;
use crate::conn::sockets::Interest;
use crate::conn::stored_keys::StoredKeys;
use crate::conn::subscribed::Subscribed;
use crate::conn::tls::TlsSession;
use crate::conn::unauthenticated::Stay;
use crate::cores::answers::CoreAnswers;
use crate::cores::message::ArrivalKind;
use crate::events::tracking::{Redirecting, Tracker};
use crate::exec::script_run::ScriptRun;
use crate::exec::transaction::{ClientTransaction, Reach};
use crate::figures::counters::NO_COMMAND;
use crate::limits::LARGE_BYTES;
use crate::limits::SPARE_BYTES_MAX;
use crate::long::input::LongInput;
use crate::long::list_task::ListTask;
use crate::long::task::{LongTask, Retry};
use crate::long::tree_read;
use crate::memory::Account;
use crate::replication::replicas::port::Said;
use crate::resp::{Arguments, Protocol, Writer};
use crate::steps;
use crate::types::replies::ReplyKind;
use crate::users::of_core::CoreUser;
use crate::waits::parked::Parked;

/// Pending replies for which an idle connection keeps room.
const PENDING_KEPT: usize = 64;

/// Answers of the engine that may be under way for a connection whose replies are not known yet,
/// and for any.
const OUTSTANDING_FIRST: u32 = 16;
const OUTSTANDING_MOST: u32 = 1 << 20;
/// Bytes that wait for a client to read them, from which they are much.
const UNREAD_BYTES_MUCH: usize = 64 << 10;
/// Bytes of the buffer that a task keeps for the next piece of its reply.
const PIECE_BYTES_KEPT: usize = 4 << 10;
/// The least and the most bytes that one connection's output may take before it is paused.
const SHARE_BYTES_MIN: usize = 2 << 10;
const SHARE_BYTES_MAX: usize = 256 << 10;
/// A connection's share is this part of what is free: this many that take all they may leave
/// memory for others.
const SHARE_OF_FREE: usize = 32;

/// Steps of a turn from which no more replies are made of long records with their answers: they are
/// made one after the other, in turns of their own.
const RECORDS_STEPS: u64 = 32 << 10;

/// What a connection's output may take while `free_bytes` are free.
pub(crate) fn share_of(free_bytes: usize) -> usize {
    (free_bytes / SHARE_OF_FREE).clamp(SHARE_BYTES_MIN, SHARE_BYTES_MAX)
}

/// A reply that is not in the output yet, with the place of its command in the table.
#[derive(Debug)]
pub(crate) enum Pending {
    /// The engine has not answered.
    Waiting(ReplyKind, u8),
    /// Not all of its parts are answered.
    Joined(Box<JoinedReply>, u8),
    /// The engine has not answered; and what is needed to carry its command out otherwise if the
    /// engine refuses it because a value is long.
    Kept(Box<Retry>, u8),
    /// A command of values of several pieces that is carried out when its turn has come; `None`
    /// once it is.
    Long(Option<Box<LongTask>>, u8),
    /// It is ready, but one before it is not.
    Ready(Vec<u8>),
    /// It is no reply but a push, which stands behind the replies that were pending when it came.
    Push(Vec<u8>),
}

/// An error that is replied to a command.
#[derive(Debug)]
pub(crate) struct FailedCall {
    pub(crate) text: String,
    /// The place of the command in the table.
    pub(crate) command: u8,
}

impl FailedCall {
    /// The error that a reply is, if it is one.
    #[inline]
    fn of(reply: &[u8], command: u8) -> Option<Self> {
        match reply {
            [b'-', error @ ..] => Some(Self::of_error(error, command)),
            _ => None,
        }
    }

    #[cold]
    fn of_error(error: &[u8], command: u8) -> Self {
        let text = String::from_utf8_lossy(error).into_owned();
        Self { text, command }
    }
}

/// What a client has told about itself.
#[derive(Debug, Default)]
pub(crate) struct ClientNames {
    pub(crate) name: Vec<u8>,
    pub(crate) library: Vec<u8>,
    pub(crate) library_version: Vec<u8>,
}

impl ClientNames {
    /// Bytes that they take.
    fn held_bytes(&self) -> usize {
        self.name.capacity() + self.library.capacity() + self.library_version.capacity()
    }
}

/// A question for a script, and which of the core's scripts it belongs to.
pub(crate) type ScriptLookup = (u64, CoreAnswers<Option<Arc<Script>>>);

/// A connection as that of a server that is a part of a cluster.
#[derive(Debug, Default)]
pub(crate) struct InCluster {
    /// It has sent `READONLY`: it also reads what the server has of others' slots.
    pub(crate) is_read_only: bool,
    /// Something of it had begun when slots were held, or clients paused: its next command waits
    /// until nothing has.
    pub(crate) is_draining: bool,
    /// The slot of the keys of the last command that was admitted.
    pub(crate) last_slot: Option<u16>,
    /// How many arguments of the command that goes on later had their slots looked at, and the slot
    /// of the keys among them.
    pub(crate) slots_looked: Option<(usize, Option<u16>)>,
}

/// One client's connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: TcpStream,
    /// Seals and opens its bytes, if it is encrypted.
    pub(crate) tls: Option<Box<TlsSession>>,
    pub(crate) peer: SocketAddr,
    pub(crate) id: u64,
    pub(crate) protocol: Protocol,
    /// Whose rights it has.
    pub(crate) user: Rc<CoreUser>,
    /// The number of the database that it has selected.
    pub(crate) database: u8,
    /// Patterns of the command that runs may name any key, as far as its user has not all rights.
    pub(crate) reads_all_keys: Cell<bool>,
    pub(crate) is_authenticated: bool,
    pub(crate) kind: ArrivalKind,
    /// What it has said of itself as a replica.
    pub(crate) replica: Option<Box<Said>>,
    /// It is served as a replica, by another thread.
    pub(crate) is_handed_over: bool,
    /// It is counted among the unauthenticated ones; `None` of a client.
    pub(crate) stay: Option<Box<Stay>>,
    pub(crate) guesses: Guesses,
    pub(crate) names: ClientNames,
    pub(crate) reply_mode: ReplyMode,
    pub(crate) connected: Instant,
    /// When it was heard last, in milliseconds since 1970.
    pub(crate) heard_ms: u64,
    /// The last command's name, and its place in the table.
    pub(crate) last_command: &'static str,
    pub(crate) command_place: u8,
    /// Bytes that are not parsed yet.
    pub(crate) input: Vec<u8>,
    /// Bytes of `input` that are parsed.
    pub(crate) parsed: usize,
    /// Bytes of `input` that are needed before parsing makes sense.
    pub(crate) needed: usize,
    /// A command of which only a part was received, or whose requests were sent in part.
    pub(crate) partial: Option<Box<Arguments>>,
    /// Its bytes in `input`, if it is whole; else 0.
    pub(crate) whole_bytes: usize,
    /// The long value that comes.
    pub(crate) stream: Option<LongInput>,
    /// What is left of a command that was refused before all of it had come.
    pub(crate) discarding: Option<Box<Discarding>>,
    /// Since when it waits for memory for a command or the rest of one, in ms since 1970; 0
    /// while it does not.
    pub(crate) waits_since_ms: u64,
    /// The next command is kept whole, however long its last argument is.
    pub(crate) takes_whole: bool,
    /// Bytes that are to be skipped before the next command.
    pub(crate) skipped_bytes: usize,
    /// Bulk strings that are left of the command of a long value, after it.
    pub(crate) left: usize,
    /// Keys of reads under way whose replies may be too long to be made at once.
    pub(crate) kept_keys: Option<Box<KeptKeys>>,
    /// Keys of requests under way, if one may turn out to be about a long value.
    pub(crate) keys_under_way: Option<Box<KeysUnderWay>>,
    pub(crate) in_cluster: InCluster,
    /// The keys of the command that goes on later.
    pub(crate) stored_keys: StoredKeys,
    /// Parts that were sent of a command that must go on later; its reply is promised.
    pub(crate) sent_parts: Option<usize>,
    pub(crate) output: Output,
    pub(crate) pending: VecDeque<Pending>,
    /// Bytes of replies that are ready and wait for others.
    pub(crate) early_bytes: usize,
    /// The number of the first pending reply.
    pub(crate) first: u32,
    /// Bytes of a reply, at most, as far as the last ones tell.
    pub(crate) reply_bytes: usize,
    /// Bytes of the reply under way that the client has taken.
    pub(crate) taken_bytes: usize,
    /// Answers that may be under way. They begin with few and become one more with each reply, as
    /// the first ones tell how long they are.
    outstanding_max: u32,
    /// Bytes of output from which no more commands are run, and of a long value's input from which
    /// no more is received; the less memory is free, the fewer.
    pub(crate) share_bytes: usize,
    /// Answers of the engine that are under way.
    pub(crate) outstanding: u32,
    /// What it keeps from `WATCH` or `MULTI` on.
    pub(crate) transaction: Option<Box<ClientTransaction>>,
    /// The shards of the commands that are replayed.
    pub(crate) replayed: Reach,
    /// The script that runs for it.
    pub(crate) script: Option<Box<ScriptRun>>,
    /// A question for a script that is under way.
    pub(crate) script_lookup: Option<Box<ScriptLookup>>,
    /// Channels that it has subscribed to.
    pub(crate) subscribed: Option<Box<Subscribed>>,
    /// A command with several steps runs, or waits: nothing else is parsed.
    pub(crate) is_blocked: bool,
    /// The wait of the command that runs, if it may wait.
    pub(crate) parked: Option<Box<Parked>>,
    /// Its next command waits for the end of a pause.
    pub(crate) paused: Option<u64>,
    /// What it caches, if it says so.
    pub(crate) tracker: Option<Box<Tracker>>,
    /// Where the command that runs leaves which client it redirects pushes to.
    pub(crate) redirecting: Option<Box<Redirecting>>,
    /// Pushes that wait for the end of a reply.
    pub(crate) pushes: Vec<u8>,
    /// It sees the commands of all clients.
    pub(crate) is_monitor: bool,
    /// It is closed once its output is sent.
    pub(crate) is_closing: bool,
    /// It is gone; its number is free once nothing is under way.
    pub(crate) is_gone: bool,
    /// It is in no list and its socket is closed.
    pub(crate) is_removed: bool,
    /// Its client is gone, and its transaction runs to its end.
    pub(crate) is_orphan: bool,
    /// What it has the server hold.
    pub(crate) account: Account,
    /// Bytes of its own buffers when they were settled last.
    pub(crate) settled_bytes: usize,
    /// Since when its client has read nothing of the output that waits, in milliseconds since
    /// 1970; 0 while none waits.
    pub(crate) unread_since_ms: u64,
    /// What is waited for at the socket.
    pub(crate) interest: Interest,
    /// It is in the list of those to be served next turn.
    pub(crate) is_listed: bool,
    /// It is in the list of those with output.
    pub(crate) is_dirty: bool,
    /// Turns for which output was held back, for more to come.
    pub(crate) held_turns: u8,
}

impl Connection {
    /// True if it is a part of the server, which is refused nothing.
    pub(crate) fn is_inner(&self) -> bool {
        self.kind != ArrivalKind::Client
    }

    pub(crate) fn new(
        socket: TcpStream,
        peer: SocketAddr,
        (id, account): (u64, Account),
        (user, is_authenticated): (Rc<CoreUser>, bool),
    ) -> Self {
        Self {
            socket,
            tls: None,
            peer,
            id,
            protocol: Protocol::Resp2,
            user,
            reads_all_keys: Cell::new(false),
            database: 0,
            is_authenticated,
            kind: ArrivalKind::Client,
            replica: None,
            is_handed_over: false,
            stay: None,
            guesses: Guesses::default(),
            names: ClientNames::default(),
            reply_mode: ReplyMode::On,
            connected: Instant::now(),
            heard_ms: 0,
            last_command: "",
            command_place: NO_COMMAND,
            input: Vec::new(),
            parsed: 0,
            needed: 0,
            partial: None,
            whole_bytes: 0,
            stream: None,
            discarding: None,
            waits_since_ms: 0,
            takes_whole: false,
            skipped_bytes: 0,
            left: 0,
            kept_keys: None,
            keys_under_way: None,
            in_cluster: InCluster::default(),
            stored_keys: StoredKeys::default(),
            sent_parts: None,
            output: Output::default(),
            pending: VecDeque::new(),
            early_bytes: 0,
            first: 0,
            reply_bytes: 0,
            taken_bytes: 0,
            outstanding_max: OUTSTANDING_FIRST,
            share_bytes: SHARE_BYTES_MAX,
            outstanding: 0,
            transaction: None,
            replayed: Reach::default(),
            script: None,
            script_lookup: None,
            subscribed: None,
            is_blocked: false,
            parked: None,
            paused: None,
            tracker: None,
            redirecting: None,
            pushes: Vec::new(),
            is_monitor: false,
            is_closing: false,
            is_gone: false,
            is_removed: false,
            is_orphan: false,
            account,
            settled_bytes: 0,
            unread_since_ms: 0,
            interest: Interest::INPUT,
            is_listed: false,
            is_dirty: false,
            held_turns: 0,
        }
    }

    /// Output that is not sent yet, in bytes.
    pub(crate) fn waiting_bytes(&self) -> usize {
        let sealed = self.tls.as_ref().map_or(0, |tls| tls.waiting_bytes());
        self.output.waiting_bytes() + sealed
    }

    /// Output that is made and not sent, and that is to be expected, in bytes.
    pub(crate) fn coming_bytes(&self) -> usize {
        self.waiting_bytes() + self.early_bytes + self.outstanding as usize * self.reply_bytes
    }

    /// True if its output, made or expected, is as much as it may have. A reply of many parts that
    /// has begun goes on at any length: it can be sent only once it is whole.
    pub(crate) fn is_ahead(&self) -> bool {
        let has_begun = self.sent_parts.is_some() && self.outstanding == 0;
        let is_much = self.coming_bytes() >= self.share_bytes;
        !has_begun && (is_much || self.outstanding >= self.outstanding_max)
    }

    /// Notes how long a reply is.
    fn note_reply(&mut self, bytes: usize) {
        self.reply_bytes = bytes.max(self.reply_bytes - self.reply_bytes / 8);
        self.outstanding_max = (self.outstanding_max + 1).min(OUTSTANDING_MOST);
    }

    /// Makes a reply with `write`, in its place.
    #[inline]
    pub(crate) fn reply(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        if self.pending.is_empty() {
            self.emit(write);
        } else {
            let mut reply = Vec::new();
            write(&mut Writer::new(&mut reply, self.protocol));
            let early = self.early(reply);
            self.pending.push_back(early);
        }
    }

    /// Adds a reply to the output, unless the client wants none.
    #[inline]
    fn emit(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        let (start, capacity) = (self.output.own_len(), self.output.own_capacity());
        write(&mut Writer::new(self.output.own(), self.protocol));
        self.output.limit_growth(capacity);
        if self.reply_mode != ReplyMode::On {
            self.output.own().truncate(start);
            // The reply of a task may come in parts.
            if self.reply_mode == ReplyMode::Skip && !self.is_blocked {
                self.reply_mode = ReplyMode::On;
            }
        }
    }

    /// Writes a push behind the replies that are under way.
    pub(crate) fn push(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        if self.is_within_reply() {
            write(&mut Writer::new(&mut self.pushes, self.protocol));
        } else if self.pending.is_empty() {
            write(&mut Writer::new(self.output.own(), self.protocol));
        } else {
            let mut push = Vec::new();
            write(&mut Writer::new(&mut push, self.protocol));
            self.early_bytes += push.len();
            self.pending.push_back(Pending::Push(push));
        }
    }

    /// The number of the reply that is promised next.
    #[inline]
    pub(crate) fn next_number(&self) -> u32 {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "requests under way are bounded"
        )]
        let count = self.pending.len() as u32;
        self.first.wrapping_add(count)
    }

    /// Promises a reply.
    #[inline]
    pub(crate) fn promise(&mut self, kind: ReplyKind) {
        self.pending
            .push_back(Pending::Waiting(kind, self.command_place));
    }

    /// Has a promised read be carried out when its turn has come if its value has `bytes`,
    /// and there is no room for the reply or the turn has made much of other long records. Returns
    /// whether it is. So the reply need not be made to know that it is too long.
    #[cold]
    pub(crate) fn puts_off_read(&mut self, number: u32, bytes: usize) -> bool {
        let place = number.wrapping_sub(self.first) as usize;
        let Some(&Pending::Waiting(kind, _)) = self.pending.get(place) else {
            return false;
        };
        let is_slice_over = steps::now() >= RECORDS_STEPS;
        is_slice_over && kind.has_elements() && self.read_later(number)
            || kind.has_whole_value() && self.defer_read(number, bytes)
    }

    /// Keeps the operation on a collection whose reply is promised next, and may have to be read
    /// otherwise.
    #[cold]
    pub(crate) fn keep_read(&mut self, operation: &Operation<'_>) {
        let (number, first) = (self.next_number(), self.first);
        let keys = self.kept_keys.get_or_insert_default();
        keys.keep_with(number, first, |into| tree_read::keep(operation, into));
        let under_way = self.keys_under_way.get_or_insert_default();
        under_way.note(operation.key(), false);
    }

    /// Keeps the key of the reply that is promised next, which may be long.
    #[cold]
    pub(crate) fn keep_key(&mut self, key: &[u8]) {
        let (number, first) = (self.next_number(), self.first);
        let keys = self.kept_keys.get_or_insert_default();
        keys.keep(number, first, key);
    }

    /// True if a reply of `bytes` may be made now: it fits the connection's share, or client
    /// memory has room for it while others of the connection do.
    fn has_room(&mut self, made: usize, bytes: usize) -> bool {
        if made + bytes <= self.share_bytes {
            return true;
        }
        let is_granted = made <= self.share_bytes && self.account.may_have(bytes).is_ok();
        if is_granted {
            // Others that ask before its buffers are settled find it taken.
            let granted = self.settled_bytes + bytes;
            self.account.settle(&mut self.settled_bytes, granted);
        }
        is_granted
    }

    /// Has a promised read be carried out when its turn has come and as the client takes the reply,
    /// if this has `bytes` and no room. Returns whether it is.
    #[cold]
    pub(crate) fn defer_read(&mut self, number: u32, bytes: usize) -> bool {
        let made = self.waiting_bytes() + self.early_bytes;
        self.defer_beside(made, number, bytes)
    }

    /// Defers a read as [`Self::defer_read`] does, while replies of `made` bytes are made.
    fn defer_beside(&mut self, made: usize, number: u32, bytes: usize) -> bool {
        if self.has_room(made, bytes) {
            return false;
        }
        let is_deferred = self.read_later(number);
        if is_deferred {
            self.note_reply(bytes);
        }
        is_deferred
    }

    /// Has a promised read be carried out when its turn has come. Returns whether it is.
    #[cold]
    pub(crate) fn read_later(&mut self, number: u32) -> bool {
        let place = number.wrapping_sub(self.first) as usize;
        let key = self.kept_keys.as_ref().and_then(|keys| keys.find(number));
        let task = match (self.pending.get(place), key) {
            (Some(Pending::Waiting(kind, command)), Some(key)) => {
                LongTask::of_read(*kind, key).map(|task| (task, *command))
            }
            _ => None,
        };
        let is_deferred = task.is_some();
        if let Some((task, command)) = task {
            self.early_bytes += task.held_bytes();
            self.pending[place] = Pending::Long(Some(Box::new(task)), command);
        }
        is_deferred
    }

    /// True if a reply is that of a command of a list, which its answer may not end.
    #[inline]
    pub(crate) fn awaits_list(&self, number: u32) -> bool {
        let place = number.wrapping_sub(self.first) as usize;
        let pending = self.pending.get(place);
        matches!(pending, Some(Pending::Waiting(ReplyKind::List(_), _)))
    }

    /// Has a command of a list go on as a task when its turn has come, if its answer leaves
    /// something to do. Returns whether it does.
    #[cold]
    pub(crate) fn goes_on(&mut self, number: u32, answer: &Answer<'_>) -> bool {
        let place = number.wrapping_sub(self.first) as usize;
        let pending = self.pending.get(place);
        let Some(&Pending::Waiting(ReplyKind::List(reply), command)) = pending else {
            return false;
        };
        // Few answers leave a rest, and a look for the key is a walk over those that are kept.
        let Some(rest) = reply.rest(answer) else {
            return false;
        };
        let key = self.kept_keys.as_ref().and_then(|keys| keys.find(number));
        let Some(key) = key else {
            return false;
        };
        let task = LongTask::List(ListTask::of_rest(key.to_vec(), rest));
        self.early_bytes += task.held_bytes();
        self.pending[place] = Pending::Long(Some(Box::new(task)), command);
        true
    }

    /// The key of a reply, if it was kept.
    pub(crate) fn kept_key(&self, number: u32) -> Option<&[u8]> {
        self.kept_keys.as_ref()?.find(number)
    }

    /// Promises a reply of a command that may have to be carried out otherwise.
    pub(crate) fn promise_kept(&mut self, retry: Box<Retry>) {
        let keys = self.keys_under_way.get_or_insert_default();
        keys.note(retry.key(), true);
        self.early_bytes += retry.held_bytes();
        self.pending
            .push_back(Pending::Kept(retry, self.command_place));
    }

    /// Fulfils the promise of a number with what `write` makes of its kind. A reply that turns out
    /// to be too long is made later. Returns the error that it is, if it is one.
    #[inline]
    pub(crate) fn fulfil(
        &mut self,
        number: u32,
        write: impl FnOnce(ReplyKind, &mut Writer<'_>),
    ) -> Option<FailedCall> {
        let place = number.wrapping_sub(self.first) as usize;
        let (kind, command) = match self.pending.get(place) {
            Some(Pending::Waiting(kind, command)) => (*kind, *command),
            Some(Pending::Kept(retry, command)) => {
                self.early_bytes -= retry.held_bytes();
                (retry.kind, *command)
            }
            _ => {
                debug_assert!(false, "an answer comes once, for a promise");
                return None;
            }
        };
        if place > 0 {
            let mut reply = Vec::new();
            write(kind, &mut Writer::new(&mut reply, self.protocol));
            if reply.len() > LARGE_BYTES && self.defer_read(number, reply.len()) {
                return None;
            }
            self.note_reply(reply.len());
            let failed = FailedCall::of(&reply, command);
            self.pending[place] = self.early(reply);
            return failed;
        }
        let before = self.output.own_len();
        self.emit(|writer| write(kind, writer));
        let bytes = self.output.own_len() - before;
        if bytes > LARGE_BYTES {
            let made = self.waiting_bytes() + self.early_bytes - bytes;
            if self.defer_beside(made, number, bytes) {
                let own = self.output.own();
                own.truncate(before);
                own.shrink_to(SPARE_BYTES_MAX);
                return None;
            }
        }
        self.note_reply(bytes);
        let failed = FailedCall::of(&self.output.own()[before..], command);
        self.pending.pop_front();
        self.first = self.first.wrapping_add(1);
        self.emit_ready();
        failed
    }

    /// The number of a part of the last promise in its batch, if it may be sent now.
    pub(crate) fn send_part(&mut self, part: usize) -> Option<usize> {
        match self.pending.back_mut() {
            Some(Pending::Joined(parts, _)) => parts.send(part),
            _ => None,
        }
    }

    /// Notes that it was not sent.
    pub(crate) fn unsend_part(&mut self) {
        if let Some(Pending::Joined(parts, _)) = self.pending.back_mut() {
            parts.unsend();
        }
    }

    /// Takes the answer to a part of a reply. Returns the error that this is, once it is whole.
    pub(crate) fn fulfil_part(
        &mut self,
        number: u32,
        part: usize,
        answer: &Answer<'_>,
    ) -> Option<FailedCall> {
        let place = number.wrapping_sub(self.first) as usize;
        let Some(Pending::Joined(parts, command)) = self.pending.get_mut(place) else {
            return None;
        };
        let command = *command;
        let before = parts.bytes();
        let is_complete = parts.take(part, self.protocol, answer);
        self.early_bytes += parts.bytes() - before;
        if is_complete && let Some(read) = parts.long_values() {
            self.pending[place] = Pending::Long(Some(Box::new(LongTask::Many(read))), command);
            None
        } else if is_complete {
            self.early_bytes -= parts.bytes();
            let mut reply = Vec::new();
            parts.write(&mut Writer::new(&mut reply, self.protocol));
            let failed = FailedCall::of(&reply, command);
            self.pending[place] = self.early(reply);
            self.emit_ready();
            failed
        } else {
            None
        }
    }

    /// Adds the replies to the output that none before them is missing for.
    fn emit_ready(&mut self) {
        while let Some(Pending::Ready(_) | Pending::Push(_)) = self.pending.front() {
            match self.pending.pop_front() {
                Some(Pending::Ready(reply)) => {
                    self.early_bytes -= reply.len();
                    self.emit(|writer| writer.raw(&reply));
                }
                // It is sent whatever the mode of replies is.
                Some(Pending::Push(push)) => {
                    self.early_bytes -= push.len();
                    self.output.own().extend_from_slice(&push);
                }
                _ => {}
            }
            self.first = self.first.wrapping_add(1);
        }
    }

    /// A reply that is ready before its turn.
    fn early(&mut self, reply: Vec<u8>) -> Pending {
        self.early_bytes += reply.len();
        Pending::Ready(reply)
    }

    /// Has a promised command be carried out as a task once its turn has come, if the engine's
    /// error says that it must be. Returns whether it is.
    pub(crate) fn begin_long(&mut self, number: u32, error: &Error) -> bool {
        let place = number.wrapping_sub(self.first) as usize;
        let Some(pending) = self.pending.get_mut(place) else {
            return false;
        };
        let (task, command) = match pending {
            Pending::Waiting(kind, command) => (LongTask::of(*kind, error), *command),
            Pending::Kept(retry, command) => (retry.task(error), *command),
            _ => return false,
        };
        let is_long = task.is_some();
        if let Some(task) = task {
            *pending = Pending::Long(Some(Box::new(task)), command);
        }
        is_long
    }

    /// True if the task whose turn has come writes.
    pub(crate) fn has_due_change(&self) -> bool {
        match self.pending.front() {
            Some(Pending::Long(Some(task), _)) => task.writes(),
            _ => false,
        }
    }

    /// Takes the task whose turn has come, with the place of its command.
    pub(crate) fn take_due_long(&mut self) -> Option<(Box<LongTask>, u8)> {
        match self.pending.front_mut() {
            Some(Pending::Long(task, command)) if !self.is_blocked && !self.is_gone => {
                let task = task.take()?;
                self.early_bytes -= task.held_bytes();
                Some((task, *command))
            }
            _ => None,
        }
    }

    /// Takes a piece of a task's reply, and leaves a buffer for the next one.
    pub(crate) fn emit_piece(&mut self, piece: &mut Vec<u8>) {
        if self.reply_mode == ReplyMode::On {
            self.output.put(piece);
        }
        piece.clear();
        if piece.capacity() > PIECE_BYTES_KEPT {
            *piece = Vec::new();
        }
    }

    /// Ends a task's reply.
    pub(crate) fn end_task(&mut self) {
        self.is_blocked = false;
        if self.reply_mode == ReplyMode::Skip {
            self.reply_mode = ReplyMode::On;
        }
        if let Some(Pending::Long(..)) = self.pending.front() {
            self.pending.pop_front();
            self.first = self.first.wrapping_add(1);
            self.emit_ready();
        }
    }

    /// True if it is in no transaction and has subscribed to no channel.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.transaction.is_none() && self.subscribed.is_none()
    }

    /// True if nothing is under way for it and it does not wait for messages.
    pub(crate) fn is_idle(&self) -> bool {
        let awaits_messages = self.subscribed.is_some() || self.is_monitor;
        self.pending.is_empty() && !self.is_blocked && !awaits_messages && !self.is_gone
    }

    /// Where the client connected.
    pub(crate) fn local_address(&self) -> String {
        let address = self.socket.local_addr();
        address.map_or_else(|_| String::new(), |address| address.to_string())
    }

    /// Bytes of its own buffers. What its commands hold is on its account beside them.
    pub(crate) fn buffer_bytes(&self) -> usize {
        size_of::<Self>()
            + self.input.capacity()
            + self
                .partial
                .as_ref()
                .map_or(0, |partial| partial.held_bytes())
            + self.output.held_bytes()
            + self.queued_bytes()
            + self.script.as_ref().map_or(0, |run| run.held_bytes())
            + self.subscription_bytes()
            + self.parked.as_ref().map_or(0, |parked| parked.held_bytes())
            + self.pending.capacity() * size_of::<Pending>()
            + self.kept_keys.as_ref().map_or(0, |keys| keys.held_bytes())
            + self
                .keys_under_way
                .as_ref()
                .map_or(0, |_| size_of::<KeysUnderWay>())
            + self.names.held_bytes()
            + self.tracker.as_ref().map_or(0, |one| one.held_bytes())
            + self.pushes.capacity()
            + self.early_bytes
            + self.stream.as_ref().map_or(0, LongInput::held_bytes)
            + self.tls.as_ref().map_or(0, |tls| tls.held_bytes())
    }

    /// Bytes of the buffers of its output, sealed and not.
    pub(crate) fn output_bytes(&self) -> usize {
        let sealed = self.tls.as_ref().map_or(0, |tls| tls.outgoing_bytes());
        self.output.held_bytes() + sealed
    }

    /// True if its client has not read what was sent, or much waits for it.
    pub(crate) fn has_unread(&self) -> bool {
        self.unread_since_ms > 0 || self.waiting_bytes() > UNREAD_BYTES_MUCH
    }

    /// Settles what its own buffers take now.
    pub(crate) fn settle(&mut self) {
        let bytes = self.buffer_bytes();
        self.account.settle(&mut self.settled_bytes, bytes);
    }

    /// Gives buffers back that nothing is in.
    pub(crate) fn release_buffers(&mut self) {
        if self.parsed == self.input.len() {
            self.input = Vec::new();
            self.parsed = 0;
        }
        if let Some(tls) = &mut self.tls {
            tls.release_buffers();
        }
        if self.pending.is_empty() {
            self.kept_keys = None;
            self.keys_under_way = None;
        }
        if self.pending.is_empty() && self.pending.capacity() > PENDING_KEPT {
            self.pending = VecDeque::new();
        }
    }

    /// Drops all buffers of a connection that is gone.
    pub(crate) fn drop_buffers(&mut self) {
        self.input = Vec::new();
        self.parsed = 0;
        self.output = Output::default();
        self.partial = None;
        // Answers may be under way that say that elements were added to some.
        if self.outstanding == 0 {
            self.kept_keys = None;
        }
        self.keys_under_way = None;
        self.names = ClientNames::default();
        self.tls = None;
        self.pending = VecDeque::new();
        self.early_bytes = 0;
        self.left = 0;
        self.script = None;
        self.script_lookup = None;
        self.transaction = None;
        self.pushes = Vec::new();
        self.redirecting = None;
    }
}
