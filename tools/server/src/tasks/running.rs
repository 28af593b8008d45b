//! The commands of several steps that run on a core: each is a future with its client of the core.
//! `turn/task_turns.rs` has them go on.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use farcore::Core;

use crate::budgets::entries::Entries;
use crate::tasks::output::{IDLE_BYTES, TaskOutput};

/// Clients without a command that are kept.
const IDLE_MAX: usize = 16;

/// The future of a command; it ends with its client, for the next one.
pub(crate) type TaskFuture = Pin<Box<dyn Future<Output = Core>>>;

/// A command of several steps.
pub(crate) struct Task {
    /// The number of its connection.
    pub(crate) connection: usize,
    pub(crate) output: TaskOutput,
    future: TaskFuture,
}

impl Task {
    /// Goes on as far as it can; ready with its client once it has ended.
    pub(crate) fn poll(&mut self) -> Poll<Core> {
        let mut context = Context::from_waker(Waker::noop());
        self.future.as_mut().poll(&mut context)
    }
}

/// The commands of several steps of a core.
#[derive(Default)]
pub(crate) struct Tasks {
    running: Vec<Task>,
    /// Those that wait until they may enter sections, in their order (`budgets/entries.rs`).
    resting: VecDeque<Task>,
    /// Clients without a command.
    idle: Vec<Core>,
}

impl Tasks {
    /// True if none runs.
    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty() && self.resting.is_empty()
    }

    /// Has the command at a place rest; another takes the place.
    pub(crate) fn rest(&mut self, place: usize) {
        let task = self.running.swap_remove(place);
        self.resting.push_back(task);
    }

    /// Has those go on that may enter sections; returns how many.
    pub(crate) fn wake(&mut self, entries: &Entries) -> usize {
        let mut count = 0;
        while !self.resting.is_empty() && entries.wakes() {
            if let Some(task) = self.resting.pop_front() {
                task.output.wake();
                self.running.push(task);
                count += 1;
            }
        }
        count
    }

    /// True if each waits for its client: to read what was made, or, as `is_starved` says of its
    /// connection, to send more.
    pub(crate) fn all_wait(&self, is_starved: impl Fn(usize) -> bool) -> bool {
        let mut running = self.running.iter();
        self.resting.is_empty()
            && running.all(|task| task.output.is_full() || is_starved(task.connection))
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

    /// The command at a place.
    pub(crate) fn get_mut(&mut self, place: usize) -> Option<&mut Task> {
        self.running.get_mut(place)
    }

    /// Removes the command at a place, which has ended; another takes the place. `core` is its
    /// client, if that is of no transaction.
    pub(crate) fn end(&mut self, place: usize, core: Option<Core>) {
        self.running.swap_remove(place);
        if let Some(core) = core {
            self.keep_client(core);
        }
    }

    /// Keeps a client without a command for the next one.
    pub(crate) fn keep_client(&mut self, mut core: Core) {
        if self.idle.len() < IDLE_MAX {
            core.shrink_buffers(IDLE_BYTES);
            self.idle.push(core);
        }
    }

    /// Takes the command that was started last, if it is of a connection.
    pub(crate) fn take_last(&mut self, connection: usize) -> Option<Task> {
        self.running.pop_if(|task| task.connection == connection)
    }

    /// Puts back a command that is to go on.
    pub(crate) fn put_back(&mut self, task: Task) {
        self.running.push(task);
    }

    /// Adds commands that started meanwhile.
    pub(crate) fn append(&mut self, other: &mut Self) {
        self.running.append(&mut other.running);
        self.resting.append(&mut other.resting);
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
    use super::*;
    use crate::by_hand::on_first_core;

    #[test]
    fn few_clients_without_a_task_are_kept() {
        on_first_core(1, |bench| async move {
            let mut tasks = Tasks::default();
            for connection in 0..3 * IDLE_MAX {
                let core = tasks.client(&bench.core);
                let future = Box::pin(async move { core });
                tasks.start(connection, bench.output(), future);
            }
            while let Some(task) = tasks.get_mut(0) {
                let Poll::Ready(core) = task.poll() else {
                    panic!("it waits for nothing");
                };
                tasks.end(0, Some(core));
            }
            assert_eq!(tasks.idle.len(), IDLE_MAX);
        });
    }
}
