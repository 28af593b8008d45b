//! What a command of several steps writes its reply to, and what it takes by it: memory, a pass of
//! the gate, a part of the turn.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use farcore::{Core, Error};

use crate::budgets::turn_bytes::TurnBytes;
use crate::cores::shared::Shared;
use crate::events::classes::EventClasses;
use crate::events::key_events::KeyEvent;
use crate::exec::gate::{Pass, Passes};
use crate::memory::{Account, Charge, Reply, Shortage};
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::event_sink::EventSink;
use crate::tasks::gate_hold::GateHold;
use crate::types::replies::error_text;

/// Bytes of output that a command may have made and that are not sent yet, before it waits.
pub(crate) const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// Bytes of a value that are read for a reply at once, at least; the more memory is free, the more.
const CHUNK_BYTES_MIN: usize = 4 << 10;
/// What a buffer of a client of the engine may keep while nothing is charged for it.
pub(crate) const IDLE_BYTES: usize = 4 << 10;

/// Why a command ends early that others wait for, and one whose client is gone.
const TOO_LONG: &str = "ERR the command has kept others from writing for too long: try again";
const GONE: &str = "ERR the client is gone";

/// The reply of a command of several steps, as far as it was made and is not sent, and where its
/// events go.
#[derive(Clone, Debug)]
pub(crate) struct TaskOutput {
    state: Rc<TaskState>,
    account: Account,
    events: EventSink,
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
    /// The command is done though its client is gone.
    writes: Cell<bool>,
    /// What the command has while it writes.
    pass: RefCell<Option<Pass>>,
    /// What it has while it keeps others from writing.
    hold: RefCell<Option<GateHold>>,
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
        turn: &Rc<TurnBytes>,
        passes: &Rc<Passes>,
    ) -> Self {
        Self {
            state: Rc::default(),
            account: account.clone(),
            events: events.clone(),
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
        self.state.writes.set(true);
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

    /// Waits for a pass.
    pub(crate) async fn pass(&self, core: &Core) {
        while !self.take_pass() {
            core.yield_now().await;
        }
    }

    /// Waits for a pass before the command writes, unless no other client does: it may have closed
    /// the gate since it began, and opened it again.
    pub(crate) async fn pass_to_write(&self, core: &Core) {
        if !self.is_alone() {
            self.pass(core).await;
        }
    }

    /// Gives the pass back: what is to be written is.
    pub(crate) fn end_pass(&self) {
        *self.state.pass.borrow_mut() = None;
    }

    /// Closes the gate for the command, which has no pass then. False if other writes do not end in
    /// time.
    pub(crate) async fn close_gate(&self, core: &Core) -> bool {
        self.end_pass();
        let hold = GateHold::take(core, self.shared(), self.place()).await;
        let is_closed = hold.is_some();
        *self.state.hold.borrow_mut() = hold;
        is_closed
    }

    /// Opens the gate if the command has closed it.
    pub(crate) fn open_gate(&self) {
        *self.state.hold.borrow_mut() = None;
    }

    /// True if no other client writes: the command has closed the gate, or its transaction has.
    pub(crate) fn is_alone(&self) -> bool {
        self.holds_gate() || self.state.hold.borrow().is_some()
    }

    /// Opens the gate if the command has kept others from writing for too long. True if it has.
    pub(crate) fn open_overdue_gate(&self) -> bool {
        let mut hold = self.state.hold.borrow_mut();
        let overdue = hold.take_if(|hold| hold.is_overdue());
        if let Some(hold) = &overdue {
            hold.note_overrun("it has taken too long");
        }
        overdue.is_some()
    }

    /// Ends the step of a command that has read elements of `bytes`, so that others go on.
    ///
    /// # Errors
    /// The command has kept others from writing for too long, or only reads and its client is gone.
    pub(crate) async fn end_read(
        &self,
        core: &Core,
        (elements, bytes): (usize, usize),
    ) -> Result<(), &'static str> {
        steps::count(elements);
        steps::count_copied(bytes);
        self.turn(core, bytes).await;
        steps::end_slice(core).await;
        if self.open_overdue_gate() {
            return Err(TOO_LONG);
        }
        if self.is_gone() && !self.state.writes.get() {
            return Err(GONE);
        }
        Ok(())
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
        match self.account.try_charge(bytes) {
            // Others would wait for it too.
            Err(shortage) if self.state.hold.borrow().is_some() => return Err(shortage),
            Err(_) => {}
            charged => return charged,
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
    fn a_command_that_holds_the_gate_waits_for_no_memory_and_ends_in_time() {
        on_first_core(1, |bench| async move {
            let (core, output) = (&bench.core, bench.output());
            let mut serving = bench.serving(0);
            // Others have all memory for large charges.
            let others = bench.output();
            let mut taken = Vec::new();
            while let Ok(charge) = others.account.try_charge(1 << 20) {
                taken.push(charge);
            }
            {
                let mut held = pin!(output.hold_when_free(core, 1 << 20));
                assert!(poll_once(held.as_mut()).await.is_none());
            }
            {
                let mut closing = pin!(output.close_gate(core));
                assert!(poll_once(closing.as_mut()).await.is_none());
                bench.receive(&mut serving);
                for _ in 0..2 {
                    serving.gate_turn(core);
                }
                assert_eq!(poll_once(closing.as_mut()).await, Some(true));
            }
            {
                let mut held = pin!(output.hold_when_free(core, 1 << 20));
                let held = poll_once(held.as_mut()).await;
                assert!(matches!(held, Some(Err(_))), "{held:?}");
            }
            drop(taken);
            assert!(output.end_read(core, (1, 1)).await.is_ok());
            assert!(output.is_alone() && !output.open_overdue_gate());
            let hold = output.state.hold.take().expect("it is closed");
            *output.state.hold.borrow_mut() = Some(hold.overdue());
            assert!(output.end_read(core, (1, 1)).await.is_err());
            assert!(!output.is_alone());
            assert_eq!(bench.shared.counters[0].gate_overruns.get(), 1);
            assert!(output.end_read(core, (1, 1)).await.is_ok());
        });
    }

    #[test]
    fn what_only_reads_ends_if_its_client_is_gone() {
        on_first_core(1, |bench| async move {
            for writes in [false, true] {
                let output = bench.output();
                output.state.writes.set(writes);
                assert!(output.end_read(&bench.core, (1, 1)).await.is_ok());
                output.pass_on(|_, _| None);
                let ended = output.end_read(&bench.core, (1, 1)).await;
                assert_eq!(ended.is_ok(), writes);
            }
        });
    }
}
