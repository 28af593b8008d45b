//! What a command of several steps writes its reply to, and what it takes by it: memory, sections,
//! a part of the turn.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use farcore::constants::{KEY_BYTES_MAX, SECTION_KEYS_MAX};
use farcore::{Core, Error};

use crate::budgets::entries::{Entries, Entry};
use crate::budgets::turn_bytes::TurnBytes;
use crate::cores::shared::Shared;
use crate::events::classes::EventClasses;
use crate::events::key_events::KeyEvent;
use crate::figures::counters::NO_COMMAND;
use crate::memory::{Account, Charge, Reply, Shortage};
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::event_sink::EventSink;
use crate::types::replies::error_text;

/// Bytes of output that a command may have made and that are not sent yet, before it waits.
pub(crate) const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// The share of a command whose client is not waited for.
pub(crate) const ALL_SHARES: usize = usize::MAX;

/// Bytes of a value that are read for a reply at once, at least; the more memory is free, the more.
const CHUNK_BYTES_MIN: usize = 4 << 10;
/// What a buffer of a client of the engine may keep while nothing is charged for it.
pub(crate) const IDLE_BYTES: usize = 4 << 10;

/// Why a command ends early whose client is gone.
const GONE: &str = "ERR the client is gone";

/// The reply of a command of several steps, as far as it was made and is not sent, and where its
/// events go.
#[derive(Clone, Debug)]
pub(crate) struct TaskOutput {
    state: Rc<TaskState>,
    account: Account,
    events: EventSink,
    turn: Rc<TurnBytes>,
    entries: Rc<Entries>,
    /// The place of its command in the table.
    command: u8,
}

/// What a command and the loop tell each other.
#[derive(Debug, Default)]
struct TaskState {
    buffer: RefCell<TaskBuffer>,
    /// What the command holds from its beginning to its end.
    held: RefCell<Option<Charge>>,
    /// The command is done though its client is gone.
    writes: Cell<bool>,
    /// Its client has entered sections for the command.
    has_entered: Cell<bool>,
    /// It need not go on until it may enter some.
    rests: Cell<bool>,
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
        entries: &Rc<Entries>,
    ) -> Self {
        Self {
            state: Rc::default(),
            account: account.clone(),
            events: events.clone(),
            turn: Rc::clone(turn),
            entries: Rc::clone(entries),
            command: NO_COMMAND,
        }
    }

    /// This output for a command of a place in the table.
    pub(crate) fn of_command(mut self, command: u8) -> Self {
        self.command = command;
        self
    }

    /// The place of its command in the table.
    pub(crate) fn command(&self) -> u8 {
        self.command
    }

    /// This output for a command of a client.
    pub(crate) fn of_client(mut self, client: u64) -> Self {
        self.events.note_client(client);
        self
    }

    /// This output for a command that holds memory from its beginning to its end.
    pub(crate) fn with_held(self, charge: Charge) -> Self {
        *self.state.held.borrow_mut() = Some(charge);
        self
    }

    /// This output for a command that writes: it is done though its client is gone.
    pub(crate) fn for_write(self) -> Self {
        self.state.writes.set(true);
        self
    }

    /// Has the command's client enter the sections of keys, unless its transaction holds sections
    /// already: until [`TaskOutput::leave`], no other client is served by their shards.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) async fn enter(&self, core: &mut Core, keys: &[&[u8]]) -> farcore::Result<()> {
        if core.is_under_section() {
            return Ok(());
        }
        let shards: Vec<_> = keys.iter().map(|key| core.shard_of(key)).collect();
        let near: Vec<_> = keys
            .iter()
            .copied()
            .filter(|key| key.len() <= KEY_BYTES_MAX)
            .collect();
        let near = &near[..near.len().min(SECTION_KEYS_MAX)];
        let _entry = self.entry(core).await;
        core.enter_sections(shards, near).await?;
        self.state.has_entered.set(true);
        Ok(())
    }

    /// Has the command's client enter the sections of all shards, as [`TaskOutput::enter`].
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) async fn enter_all(&self, core: &mut Core) -> farcore::Result<()> {
        if core.is_under_section() {
            return Ok(());
        }
        let shards = self.events.shared().cores.len();
        let _entry = self.entry(core).await;
        core.enter_sections(0..shards, &[]).await?;
        self.state.has_entered.set(true);
        Ok(())
    }

    /// Waits until the command may enter sections.
    pub(crate) async fn entry(&self, core: &Core) -> Entry {
        self.entries.enter(core, &self.state.rests).await
    }

    /// True if the command need not go on until it may enter sections.
    pub(crate) fn rests(&self) -> bool {
        self.state.rests.get()
    }

    /// Has a command that rests go on.
    pub(crate) fn wake(&self) {
        self.state.rests.set(false);
    }

    /// Leaves the sections that the command's client has entered for it.
    pub(crate) fn leave(&self, core: &mut Core) {
        if self.state.has_entered.take() {
            core.abandon_sections();
        }
    }

    /// Ends the step of a command that has read elements of `bytes`, so that others go on.
    ///
    /// # Errors
    /// The command only reads, and its client is gone.
    pub(crate) async fn end_read(
        &self,
        core: &Core,
        (elements, bytes): (usize, usize),
    ) -> Result<(), &'static str> {
        steps::count(elements);
        steps::count_copied(bytes);
        self.turn(core, bytes).await;
        steps::end_slice(core).await;
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
            // Others would wait for it too, and those that have it may be among them.
            Err(shortage) if core.is_under_section() => return Err(shortage),
            Err(_) => {}
            charged => return charged,
        }
        let reply = {
            let buffer = self.state.buffer.borrow();
            let is_amid = buffer.has_begun || !buffer.bytes.is_empty();
            if is_amid { Reply::Amid } else { Reply::Ahead }
        };
        let is_gone = || self.is_gone();
        let charged = self.account.charge_when_free(core, bytes, reply, is_gone);
        charged.await
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
            ALL_SHARES => return false,
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
        debug_assert!(
            !self.state.has_entered.get(),
            "others would wait for the client"
        );
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
    fn a_command_under_a_section_waits_for_no_memory() {
        on_first_core(1, |bench| async move {
            let (output, others) = (bench.output(), bench.output());
            let mut core = bench.core;
            // Others have all memory for large charges.
            let mut taken = Vec::new();
            while let Ok(charge) = others.account.try_charge(1 << 20) {
                taken.push(charge);
            }
            {
                let mut held = pin!(output.hold_when_free(&core, 1 << 20));
                assert!(poll_once(held.as_mut()).await.is_none());
            }
            output.enter(&mut core, &[b"key"]).await.expect("entered");
            {
                let mut held = pin!(output.hold_when_free(&core, 1 << 20));
                let held = poll_once(held.as_mut()).await;
                assert!(matches!(held, Some(Err(_))), "{held:?}");
            }
            output.leave(&mut core);
            assert!(!core.is_under_section());
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
