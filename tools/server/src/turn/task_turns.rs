//! What a core's turn does for commands of several steps: it starts those of long values that are
//! due, has all go on, and takes their output to their connections.
//!
//! - I1: a connection whose command runs is blocked until that ends; then its input goes on.

use std::task::Poll;

use farcore::Core;

use crate::conn::connection::{Connection, share_of};
use crate::conn::output::Output;
use crate::long::input::LongInput;
use crate::serving::Serving;
use crate::steps;
use crate::tasks::output::{ALL_SHARES, TaskOutput};
use crate::tasks::running::Tasks;

/// Commands that enter sections in a turn because another one has ended, about.
const WOKEN_A_TURN: usize = 64;

impl Serving {
    /// Starts the commands of long values whose turn has come.
    pub(crate) fn start_long_tasks(&mut self, core: &Core) {
        for place in 0..self.dirty.len() {
            let number = self.dirty[place];
            let Some(Some(connection)) = self.connections.get_mut(number) else {
                continue;
            };
            let writes = connection.has_due_change();
            let Some((task, command)) = connection.take_due_long() else {
                continue;
            };
            connection.is_blocked = true;
            let protocol = connection.protocol;
            let held = connection.account.charge(task.held_bytes());
            let output = TaskOutput::new(
                &connection.account,
                &self.events,
                &self.turn_bytes,
                &self.entries,
            );
            let output = output.with_held(held).of_command(command);
            let output = if writes { output.for_write() } else { output };
            let under = self.sections.take(number);
            let mut core = under.unwrap_or_else(|| self.tasks.client(core));
            let written = output.clone();
            let future = async move {
                task.run(&mut core, &written, protocol).await;
                core
            };
            self.tasks.start(number, output, Box::pin(future));
        }
    }

    /// The output of a command of a connection.
    pub(crate) fn task_output(&self, connection: &Connection) -> TaskOutput {
        TaskOutput::new(
            &connection.account,
            &self.events,
            &self.turn_bytes,
            &self.entries,
        )
        .of_client(connection.id)
        .of_command(connection.command_place)
    }

    /// One turn of the commands of several steps.
    pub(crate) fn tasks_turn(&mut self, core: &mut Core) -> bool {
        self.turn_bytes.begin();
        if self.tasks.is_empty() {
            return false;
        }
        let mut tasks = std::mem::take(&mut self.tasks);
        let is_busy = self.tasks_go_on(core, &mut tasks);
        tasks.append(&mut self.tasks);
        self.tasks = tasks;
        self.slow.take_ended(&self.shared.slow);
        is_busy
    }

    /// Has each command go on as far as it can. True if one made output or ended.
    fn tasks_go_on(&mut self, core: &mut Core, tasks: &mut Tasks) -> bool {
        let (mut is_busy, mut place, mut woken) = (false, 0, 0);
        tasks.wake(&self.entries);
        while let Some(task) = tasks.get_mut(place) {
            steps::go_on();
            let (polled, number) = (task.poll(), task.connection);
            let command = task.output.command();
            let is_some = (task.output)
                .pass_on(|bytes, begins| self.take_output((number, command), bytes, begins));
            is_busy |= is_some || polled.is_ready();
            let rests = task.output.rests();
            if task.output.is_broken() {
                self.close(number);
            }
            match polled {
                Poll::Ready(mut client) => {
                    task.output.leave(&mut client);
                    let mut idle = Some(client);
                    if let Some(core) = idle.take_if(|core| core.is_under_section()) {
                        // It is of the transaction, which goes on.
                        self.sections.give_back(number, core);
                    }
                    tasks.end(place, idle);
                    self.unblock(number);
                    self.run_transaction(core, number);
                    if woken < WOKEN_A_TURN && !steps::is_slice_over() {
                        woken += tasks.wake(&self.entries);
                    }
                }
                Poll::Pending if rests => tasks.rest(place),
                Poll::Pending => place += 1,
            }
        }
        is_busy
    }

    /// True if all commands of several steps wait for their clients to send or to read.
    pub(crate) fn tasks_wait(&self) -> bool {
        self.tasks.all_wait(|number| {
            let connection = self.connections.get(number).and_then(Option::as_ref);
            connection.is_some_and(|connection| {
                let stream = connection.stream.as_ref();
                stream.is_some_and(LongInput::is_starved)
            })
        })
    }

    /// Adds the output of a task of a command to its connection; returns how many bytes wait to be
    /// sent there, and how many may. `None` if the connection is gone. Only where a reply begins
    /// its first byte says what it is: further on it may be one of a value.
    pub(crate) fn take_output(
        &mut self,
        (number, command): (usize, u8),
        bytes: &mut Vec<u8>,
        begins: bool,
    ) -> Option<(usize, usize)> {
        let mut connection = self.connections.get_mut(number)?.take()?;
        let taken = self.take_output_of((number, command), &mut connection, bytes, begins);
        self.connections[number] = Some(connection);
        taken
    }

    /// Adds a task's output to its connection, as [`Serving::take_output`].
    fn take_output_of(
        &mut self,
        (number, command): (usize, u8),
        connection: &mut Connection,
        bytes: &mut Vec<u8>,
        begins: bool,
    ) -> Option<(usize, usize)> {
        let mut share_bytes = share_of(self.memory.server().free());
        if let Some(run) = &mut connection.script {
            share_bytes = ALL_SHARES;
            let made = connection.output.waiting_bytes() + bytes.len();
            if made > run.reply_bytes_max {
                run.is_reply_lost = true;
                connection.output = Output::default();
                *bytes = Vec::new();
            }
            if run.is_reply_lost {
                bytes.clear();
            }
        }
        if share_bytes < ALL_SHARES && self.sections.holds(number) && !self.is_short() {
            // Others would wait for its client.
            share_bytes = ALL_SHARES;
        }
        if connection.is_gone {
            *bytes = Vec::new();
            return None;
        }
        if bytes.is_empty() {
            return Some((connection.waiting_bytes(), share_bytes));
        }
        let error = bytes.strip_prefix(b"-").filter(|_| begins);
        let error = error.map(|error| String::from_utf8_lossy(error).into_owned());
        connection.emit_piece(bytes);
        let waiting = connection.waiting_bytes();
        connection.settle();
        if let Some(error) = error {
            self.note_failed_call(command, &error);
        }
        self.note_dirty(number, connection);
        Some((waiting, share_bytes))
    }

    /// Notes that a connection has output.
    pub(crate) fn note_output(&mut self, number: usize) {
        if let Some(Some(connection)) = self.connections.get_mut(number)
            && !connection.is_dirty
        {
            connection.is_dirty = true;
            self.dirty.push(number);
        }
    }

    /// Ends the command of several steps of a connection, which goes on with its input.
    pub(crate) fn unblock(&mut self, number: usize) {
        let Some(Some(mut connection)) = self.connections.get_mut(number).map(Option::take) else {
            return;
        };
        if self.goes_on_waiting(number, &mut connection) {
            return self.put_back(number, connection);
        }
        self.end_command(number, &mut connection);
        self.list(number, &mut connection);
        self.note_dirty(number, &mut connection);
        self.put_back(number, connection);
    }

    /// Ends the command of several steps of a connection.
    fn end_command(&mut self, number: usize, connection: &mut Connection) {
        connection.end_task();
        if let Some(redirecting) = connection.redirecting.take() {
            self.end_redirecting(number, connection, *redirecting);
        }
        // Its last command has removed its user.
        connection.is_closing |= connection.user.is_removed() && !connection.is_executing();
        connection.send_deferred();
        if let Some(stream) = connection.stream.take() {
            stream.end();
            connection.stream = (!stream.is_done()).then_some(stream);
        }
    }

    /// Has the command of several steps that a connection has just begun under its sections go on
    /// at once: others wait for these, and what it needs of them mostly comes at once. `core` is
    /// the client of the sections again if it ends.
    pub(crate) fn go_on_at_once(
        &mut self,
        core: &mut Core,
        number: usize,
        connection: &mut Connection,
    ) {
        if connection.parked.is_some() {
            return;
        }
        let Some(mut task) = self.tasks.take_last(number) else {
            return;
        };
        steps::go_on();
        let polled = task.poll();
        let of = (number, task.output.command());
        (task.output).pass_on(|bytes, begins| self.take_output_of(of, connection, bytes, begins));
        connection.is_gone |= task.output.is_broken();
        let Poll::Ready(mut client) = polled else {
            return self.tasks.put_back(task);
        };
        task.output.leave(&mut client);
        if client.is_under_section() {
            std::mem::swap(core, &mut client);
        }
        self.tasks.keep_client(client);
        self.slow.take_ended(&self.shared.slow);
        self.end_command(number, connection);
    }
}
