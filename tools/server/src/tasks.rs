//! Commands of several steps: each is a future with its client of the core, and has its connection
//! wait until it ends.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use farcore::{Core, Error};

use crate::commands::BESIDE_BYTES;
use crate::event_classes::EventClasses;
use crate::gate::{Pass, Passes};
use crate::key_events::{EventSink, KeyEvent};
use crate::record_memory::{RecordMemory, TakenMemory};
use crate::replies::error_text;
use crate::resp::{Protocol, Writer};
use crate::sending::DEFERRED_MS;
use crate::serving::Serving;

/// Bytes of output that a command may have made and that are not sent yet, before it waits.
pub(crate) const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// Clients without a command that are kept: each keeps the buffer of its longest value.
const IDLE_MAX: usize = 16;

/// The future of a command; it ends with its client, for the next one.
pub(crate) type TaskFuture = Pin<Box<dyn Future<Output = Core>>>;

/// The reply of a command of several steps, as far as it was made and is not sent, and where its
/// events go.
#[derive(Clone, Debug)]
pub(crate) struct TaskOutput {
    state: Rc<TaskState>,
    events: EventSink,
    records: Rc<RecordMemory>,
    passes: Rc<Passes>,
}

/// What a command and the loop tell each other.
#[derive(Debug, Default)]
struct TaskState {
    buffer: RefCell<TaskBuffer>,
    /// Bytes that the command has in hand beside its output.
    held_bytes: Cell<usize>,
    /// Little memory for clients is left.
    is_crowded: Cell<bool>,
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
    /// Bytes that wait at the connection.
    waiting: usize,
    /// The reply cannot be finished.
    is_broken: bool,
}

/// Client memory that a command has in hand beside its output, and that its connection counts until
/// this is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct HeldMemory {
    state: Rc<TaskState>,
    bytes: usize,
}

impl HeldMemory {
    /// Lets all but so many bytes go.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let rest = bytes.min(self.bytes);
        let held = &self.state.held_bytes;
        held.set(held.get().saturating_sub(self.bytes - rest));
        self.bytes = rest;
    }
}

impl Drop for HeldMemory {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

impl TaskOutput {
    /// Nothing yet.
    pub(crate) fn new(events: &EventSink, records: &Rc<RecordMemory>, passes: &Rc<Passes>) -> Self {
        Self {
            state: Rc::default(),
            events: events.clone(),
            records: Rc::clone(records),
            passes: Rc::clone(passes),
        }
    }

    /// The same for a command that has so many bytes in hand from its beginning to its end.
    pub(crate) fn with_held(self, bytes: usize) -> Self {
        self.state.held_bytes.set(bytes);
        self
    }

    /// The same for a command of a transaction that holds the gate, if it is one.
    pub(crate) fn with_gate(self, holds_gate: bool) -> Self {
        self.state.holds_gate.set(holds_gate);
        self
    }

    /// The same for a command that writes, from its begin until it waits for its client or for
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

    /// Takes record memory for so many structured records, until it is dropped. It waits while
    /// others have it.
    pub(crate) async fn take_record_memory(&self, core: &Core, records: usize) -> TakenMemory {
        let bytes = self.events.shared().longest_record.needed(records);
        self.records.take(core, bytes).await
    }

    /// Notes that a value of so many bytes is about to be stored: it may have several pieces.
    pub(crate) fn note_value(&self, bytes: usize) {
        if bytes + BESIDE_BYTES > self.value_bytes_max() {
            self.events.shared().note_long_value();
        }
    }

    /// Bytes of a record's value, at most.
    pub(crate) fn value_bytes_max(&self) -> usize {
        self.events.shared().value_bytes_max
    }

    /// Notes that a structured record was read or is about to be stored.
    pub(crate) fn note_record(&self, bytes: usize) {
        self.events.shared().longest_record.note(bytes);
    }

    /// Has bytes counted that the command has in hand.
    pub(crate) fn hold(&self, bytes: usize) -> HeldMemory {
        let held = &self.state.held_bytes;
        held.set(held.get().saturating_add(bytes));
        HeldMemory {
            state: Rc::clone(&self.state),
            bytes,
        }
    }

    /// The same of bytes that the command takes from now on. While little memory is left for
    /// clients it waits, so that those that have begun end, but not for ever.
    pub(crate) async fn hold_when_free(&self, core: &Core, bytes: usize) -> HeldMemory {
        let until_ms = farcore_tuning::system_ms() + DEFERRED_MS;
        while self.state.is_crowded.get() && farcore_tuning::system_ms() < until_ms {
            core.yield_now().await;
        }
        self.hold(bytes)
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

    /// Leaves an event of a key, which is as it is stored; see `key_events`.
    #[inline]
    pub(crate) fn notify(&self, class: EventClasses, name: &'static str, key: &[u8]) {
        self.events.notify(class, name, key);
    }

    /// True if events of a class are sent.
    pub(crate) fn sends(&self, class: EventClasses) -> bool {
        self.events.sends(class)
    }

    /// Leaves events that were noted while a change was tried.
    pub(crate) fn notify_all(&self, events: Vec<KeyEvent>) {
        for event in events {
            self.notify(event.class, event.name, &event.key);
        }
    }

    /// Has the connection closed: the reply cannot be finished.
    pub(crate) fn break_off(&self) {
        self.state.buffer.borrow_mut().is_broken = true;
    }

    /// True while the client takes what was made before.
    pub(crate) fn is_full(&self) -> bool {
        let buffer = self.state.buffer.borrow();
        buffer.bytes.len() + buffer.waiting >= OUTPUT_BYTES_MAX
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

struct Task {
    connection: usize,
    output: TaskOutput,
    future: TaskFuture,
}

/// The commands of several steps of a core.
#[derive(Default)]
pub(crate) struct Tasks {
    running: Vec<Task>,
    /// Clients without a command.
    idle: Vec<Core>,
}

impl Tasks {
    /// True if none runs.
    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// True if each waits for its client: to read what was made, or, as `is_starved` says of its
    /// connection, to send more.
    pub(crate) fn all_wait(&self, is_starved: impl Fn(usize) -> bool) -> bool {
        let mut running = self.running.iter();
        running.all(|task| task.output.is_full() || is_starved(task.connection))
    }

    /// True if a connection's command writes.
    pub(crate) fn has_pass(&self, connection: usize) -> bool {
        let mut running = self.running.iter();
        running
            .any(|task| task.connection == connection && task.output.state.pass.borrow().is_some())
    }

    /// A client for a command.
    pub(crate) fn client(&mut self, core: &Core) -> Core {
        self.idle.pop().unwrap_or_else(|| core.another())
    }

    /// Starts a command.
    pub(crate) fn start(&mut self, connection: usize, output: TaskOutput, future: TaskFuture) {
        self.running.push(Task {
            connection,
            output,
            future,
        });
    }

    /// Has each command go on as far as it can. True if one made output or ended.
    pub(crate) fn turn(&mut self, serving: &mut Serving) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let mut is_busy = false;
        let mut place = 0;
        while let Some(task) = self.running.get_mut(place) {
            let state = &task.output.state;
            state.is_crowded.set(serving.is_crowded());
            let polled = task.future.as_mut().poll(&mut context);
            let mut buffer = state.buffer.borrow_mut();
            is_busy |= !buffer.bytes.is_empty() || polled.is_ready();
            serving.note_task_bytes(task.connection, state.held_bytes.get());
            let begins = !buffer.has_begun;
            buffer.has_begun |= !buffer.bytes.is_empty();
            buffer.waiting = serving.take_output(task.connection, &mut buffer.bytes, begins);
            if buffer.is_broken {
                serving.close(task.connection);
            }
            drop(buffer);
            match polled {
                Poll::Ready(core) => {
                    let task = self.running.swap_remove(place);
                    if self.idle.len() < IDLE_MAX {
                        self.idle.push(core);
                    }
                    serving.unblock(task.connection);
                }
                Poll::Pending => place += 1,
            }
        }
        is_busy
    }

    /// Adds commands that started meanwhile.
    pub(crate) fn append(&mut self, other: &mut Self) {
        self.running.append(&mut other.running);
        self.idle.append(&mut other.idle);
    }
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks")
            .field("running", &self.running.len())
            .field("idle", &self.idle.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_lite::future::poll_once;

    use crate::by_hand::on_first_core;

    #[test]
    fn what_a_command_has_in_hand_is_counted_until_it_is_dropped() {
        on_first_core(1, |bench| async move {
            let output = bench.output().with_held(10);
            let counted = || output.state.held_bytes.get();
            let mut first = output.hold(500);
            let second = output.hold_when_free(&bench.core, 3000).await;
            assert_eq!(counted(), 3510);
            first.shrink_to(20);
            // It cannot grow so.
            first.shrink_to(200);
            assert_eq!(counted(), 3030);
            drop(second);
            assert_eq!(counted(), 30);
            drop(first);
            assert_eq!(counted(), 10);
            output.state.is_crowded.set(true);
            let mut late = pin!(output.hold_when_free(&bench.core, 3000));
            assert!(poll_once(late.as_mut()).await.is_none());
            assert_eq!(counted(), 10);
            output.state.is_crowded.set(false);
            let late = late.await;
            assert_eq!(counted(), 3010);
            drop(late);
        });
    }

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
