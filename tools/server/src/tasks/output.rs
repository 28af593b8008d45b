//! What a command of several steps writes its reply to, and what it takes by it: memory, a pass of
//! the gate, a part of the turn.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use farcore::{Core, Error};

use crate::budgets::record_memory::{RecordMemory, SHORT_BYTES_MAX, TakenMemory, needed_of};
use crate::budgets::turn_bytes::TurnBytes;
use crate::cores::shared::Shared;
use crate::events::classes::EventClasses;
use crate::events::key_events::KeyEvent;
use crate::exec::gate::{Pass, Passes};
use crate::memory::{Account, Charge, Reply, Shortage};
use crate::resp::{Protocol, Writer};
use crate::tasks::event_sink::EventSink;
use crate::types::replies::error_text;

/// Bytes of output that a command may have made and that are not sent yet, before it waits.
pub(crate) const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// Bytes of a value that are read for a reply at once, at least; the more memory is free, the more.
const CHUNK_BYTES_MIN: usize = 4 << 10;
/// What a buffer of a client of the engine may keep while nothing is charged for it.
pub(crate) const IDLE_BYTES: usize = 4 << 10;

/// A command takes memory for a record as long as it is, and for one of this many parts more.
const SLACK_SHARE: usize = 4;

/// The reply of a command of several steps, as far as it was made and is not sent, and where its
/// events go.
#[derive(Clone, Debug)]
pub(crate) struct TaskOutput {
    state: Rc<TaskState>,
    account: Account,
    events: EventSink,
    records: Rc<RecordMemory>,
    turn: Rc<TurnBytes>,
    passes: Rc<Passes>,
}

/// What a command and the loop tell each other.
#[derive(Debug, Default)]
struct TaskState {
    buffer: RefCell<TaskBuffer>,
    /// What the command holds from its beginning to its end.
    held: RefCell<Option<Charge>>,
    /// The command is of a transaction that holds the gate.
    holds_gate: Cell<bool>,
    /// What the command has while it writes.
    pass: RefCell<Option<Pass>>,
}

#[derive(Debug, Default)]
struct TaskBuffer {
    bytes: Vec<u8>,
    /// Some of the reply is taken: what comes is inside of it.
    has_begun: bool,
    /// Bytes that wait at the connection, and that may.
    waiting: usize,
    share: usize,
    /// The connection is gone.
    is_gone: bool,
    /// The reply cannot be finished.
    is_broken: bool,
}

impl TaskOutput {
    /// Nothing yet, of a client with this account.
    pub(crate) fn new(
        account: &Account,
        events: &EventSink,
        (records, turn): (&Rc<RecordMemory>, &Rc<TurnBytes>),
        passes: &Rc<Passes>,
    ) -> Self {
        Self {
            state: Rc::default(),
            account: account.clone(),
            events: events.clone(),
            records: Rc::clone(records),
            turn: Rc::clone(turn),
            passes: Rc::clone(passes),
        }
    }

    /// This output for a command that holds memory from its beginning to its end.
    pub(crate) fn with_held(self, charge: Charge) -> Self {
        *self.state.held.borrow_mut() = Some(charge);
        self
    }

    /// This output for a command of a transaction that holds the gate, if it is one.
    pub(crate) fn with_gate(self, holds_gate: bool) -> Self {
        self.state.holds_gate.set(holds_gate);
        self
    }

    /// This output for a command that writes, from its begin until it waits for its client or for
    /// others. The gate is open, or the command's transaction holds it.
    pub(crate) fn with_pass(self) -> Self {
        let passes = self.take_pass();
        debug_assert!(passes, "it would have been held");
        self
    }

    /// Takes a pass, unless the gate is closed. True if the command has one.
    pub(crate) fn take_pass(&self) -> bool {
        let mut pass = self.state.pass.borrow_mut();
        if pass.is_none() {
            *pass = self.passes.take(self.state.holds_gate.get());
        }
        pass.is_some()
    }

    /// Waits for a pass, while it has no record memory: the one that holds the gate may need some.
    pub(crate) async fn pass(&self, core: &Core) {
        while !self.take_pass() {
            core.yield_now().await;
        }
    }

    /// Gives the pass back: what is to be written is.
    pub(crate) fn end_pass(&self) {
        *self.state.pass.borrow_mut() = None;
    }

    /// Takes record memory for a number of structured records, until it is dropped. It
    /// waits while others have it.
    pub(crate) async fn take_record_memory(&self, core: &Core, records: usize) -> TakenMemory {
        let bytes = self.events.shared().longest_record.needed(records);
        let taken = self.records.take(core, bytes).await;
        self.turn(core, bytes).await;
        taken
    }

    /// Takes record memory for the change of one record, which adds `added` bytes at most. While
    /// long records are in use it looks at how long this one is: commands of short ones do not wait
    /// for those of long ones.
    pub(crate) async fn take_memory_of(
        &self,
        core: &mut Core,
        key: &[u8],
        added: usize,
    ) -> TakenMemory {
        let longest = self.events.shared().longest_record.needed(1);
        let longest = longest.saturating_add(needed_of(added));
        if longest <= SHORT_BYTES_MAX {
            return self.records.take(core, longest).await;
        }
        // The command finds an error too.
        let inspected = core.inspect(key).await;
        let length = inspected.ok().flatten().map_or(0, |found| found.length);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        // Others may lengthen it before this command's turn.
        let slack = length / SLACK_SHARE;
        let bytes = needed_of(length.saturating_add(slack).saturating_add(added));
        let taken = self.records.take(core, bytes).await;
        self.turn(core, bytes).await;
        taken
    }

    /// Has a step that copies `bytes` of large values wait for a turn that has them left. It
    /// does not wait if its client is gone: what only reads then ends.
    pub(crate) async fn turn(&self, core: &Core, bytes: usize) {
        self.turn.take(core, bytes, || self.is_gone()).await;
    }

    /// What the cores share.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        self.events.shared()
    }

    /// The place of its core.
    pub(crate) fn place(&self) -> usize {
        self.events.place()
    }

    /// True if its command is of a transaction that holds the gate.
    pub(crate) fn holds_gate(&self) -> bool {
        self.state.holds_gate.get()
    }

    /// Notes that a value of `bytes` is about to be stored: it may have several pieces.
    pub(crate) fn note_value(&self, bytes: usize) {
        self.events.shared().note_value(bytes);
    }

    /// Bytes of a record's value, at most.
    pub(crate) fn value_bytes_max(&self) -> usize {
        self.events.shared().value_bytes_max
    }

    /// Notes that a structured record was read or is about to be stored.
    pub(crate) fn note_record(&self, bytes: usize) {
        let shared = self.events.shared();
        shared.note_value(bytes);
        shared.longest_record.note(bytes);
    }

    /// Charges bytes that the command has taken already, or few.
    pub(crate) fn hold(&self, bytes: usize) -> Charge {
        self.account.charge(bytes)
    }

    /// Charges bytes that the command is about to take; waits while others have them.
    ///
    /// # Errors
    /// The client may not have `bytes`, or others have kept them for too long.
    pub(crate) async fn hold_when_free(
        &self,
        core: &Core,
        bytes: usize,
    ) -> Result<Charge, Shortage> {
        if let Ok(charge) = self.account.try_charge(bytes) {
            return Ok(charge);
        }
        // Those that close the gate need not wait for this command's memory too.
        let had_pass = self.state.pass.borrow_mut().take().is_some();
        let reply = {
            let buffer = self.state.buffer.borrow();
            let is_amid = buffer.has_begun || !buffer.bytes.is_empty();
            if is_amid { Reply::Amid } else { Reply::Ahead }
        };
        let is_gone = || self.is_gone();
        let charged = self.account.charge_when_free(core, bytes, reply, is_gone);
        let charged = charged.await;
        if had_pass {
            self.pass(core).await;
        }
        charged
    }

    /// Writes that the client may not have the memory that its command needs.
    pub(crate) fn refuse(&self, protocol: Protocol, shortage: &Shortage) {
        self.write(|bytes| Writer::new(bytes, protocol).error(&shortage.to_string()));
    }

    /// Adds to the reply.
    pub(crate) fn write(&self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.state.buffer.borrow_mut().bytes);
    }

    /// Writes what a step came to, or the engine's error.
    pub(crate) fn finish<T>(
        &self,
        protocol: Protocol,
        result: farcore::Result<T>,
        write: impl FnOnce(&mut Writer<'_>, T),
    ) {
        match result {
            Ok(result) => self.write(|bytes| write(&mut Writer::new(bytes, protocol), result)),
            Err(error) => self.fail(protocol, &error),
        }
    }

    /// Writes an error of the engine.
    pub(crate) fn fail(&self, protocol: Protocol, error: &Error) {
        self.write(|bytes| Writer::new(bytes, protocol).error(&error_text(error)));
    }

    /// Leaves an event of a key, which is as it is stored; see `EventSink`.
    #[inline]
    pub(crate) fn notify(&self, class: EventClasses, name: &'static str, key: &[u8]) {
        self.events.notify(class, name, key);
    }

    /// Leaves an event of a key whose record is stored under a version.
    #[inline]
    pub(crate) fn notify_stored(
        &self,
        version: u64,
        class: EventClasses,
        name: &'static str,
        key: &[u8],
    ) {
        self.events.notify_stored(version, class, name, key);
    }

    /// True if events of a class are sent.
    pub(crate) fn sends(&self, class: EventClasses) -> bool {
        self.events.sends(class)
    }

    /// Leaves events that were noted while a change was tried.
    pub(crate) fn notify_all(&self, events: Vec<KeyEvent>) {
        for event in events {
            self.notify_stored(event.version, event.class, event.name, &event.key);
        }
    }

    /// Has the connection closed: the reply cannot be finished.
    pub(crate) fn break_off(&self) {
        self.state.buffer.borrow_mut().is_broken = true;
    }

    /// True while the client takes what was made before.
    pub(crate) fn is_full(&self) -> bool {
        let buffer = self.state.buffer.borrow();
        // Before its first turn it knows no share.
        let most = match buffer.share {
            0 => OUTPUT_BYTES_MAX,
            share => share.min(OUTPUT_BYTES_MAX),
        };
        buffer.bytes.len() + buffer.waiting >= most
    }

    /// Passes on what was made: `take` takes the bytes, with whether the reply begins with them,
    /// and returns how many wait at the connection and how many may; none once that is gone. True
    /// if there were some.
    pub(crate) fn pass_on(
        &self,
        take: impl FnOnce(&mut Vec<u8>, bool) -> Option<(usize, usize)>,
    ) -> bool {
        let mut buffer = self.state.buffer.borrow_mut();
        let (is_some, begins) = (!buffer.bytes.is_empty(), !buffer.has_begun);
        buffer.has_begun |= is_some;
        match take(&mut buffer.bytes, begins) {
            Some((waiting, share)) => (buffer.waiting, buffer.share) = (waiting, share),
            None => (buffer.waiting, buffer.is_gone) = (0, true),
        }
        is_some
    }

    /// True if the reply cannot be finished.
    pub(crate) fn is_broken(&self) -> bool {
        self.state.buffer.borrow().is_broken
    }

    /// True if the command writes.
    pub(crate) fn has_pass(&self) -> bool {
        self.state.pass.borrow().is_some()
    }

    /// True once no client takes the reply: what only makes it need not go on.
    pub(crate) fn is_gone(&self) -> bool {
        self.state.buffer.borrow().is_gone
    }

    /// Bytes of a value that are read for the reply at once.
    pub(crate) fn chunk_bytes(&self) -> usize {
        let share = self.state.buffer.borrow().share;
        if share == 0 {
            CHUNK_BYTES_MIN
        } else {
            share.clamp(CHUNK_BYTES_MIN, OUTPUT_BYTES_MAX)
        }
    }

    /// Waits until the client has taken enough of what was made.
    pub(crate) async fn room(&self, core: &Core) {
        // A reply begins when all is written.
        self.end_pass();
        while self.is_full() {
            core.yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_lite::future::poll_once;

    use crate::by_hand::on_first_core;

    #[test]
    fn commands_of_long_records_take_memory_in_turn() {
        on_first_core(1, |bench| async move {
            let (core, output) = (&bench.core, bench.output());
            // Of two such records at most there is memory.
            output.note_record(500_000);
            let first = output.take_record_memory(core, 1).await;
            let second = output.take_record_memory(core, 1).await;
            let mut third = pin!(output.take_record_memory(core, 1));
            assert!(poll_once(third.as_mut()).await.is_none());
            let mut fourth = pin!(output.take_record_memory(core, 1));
            assert!(poll_once(fourth.as_mut()).await.is_none());
            drop(first);
            // It came later.
            assert!(poll_once(fourth.as_mut()).await.is_none());
            let third = third.await;
            assert!(poll_once(fourth.as_mut()).await.is_none());
            drop((second, third));
            drop(fourth.await);
        });
    }
}
