//! The loop of a core: it takes connections and their bytes, gives requests to the engine, and
//! sends replies. What a turn does in each of its steps stands in files of their own.
//!
//! ```text
//! sockets -> recv -> parse -> commands -> engine -> answers --> replies in order -> send
//!                              |  \-> tasks: commands of several steps --/
//!                              \----> waits: parked until a key or a time --> a task that looks
//! answers, tasks, keys that the shard has removed -> events -> subscribers of all cores
//! ```
//!
//! One turn receives once and sends once a connection. Requests of one read go to the engine as
//! they are parsed, which batches them by shard; one `poll` then serves those of its shard and
//! takes the answers of the others. Nothing here waits. The loop sleeps when no request is under
//! way, no socket is ready, no message has come and no look is due: until one of these is, or the
//! next deadline of a wait. It also sleeps while all tasks wait for their clients, 20 ms at a time
//! at most. `docs/internals/server.md` has the map.
//!
//! - I1: bytes are received only for connections whose output is below its limit.

use std::sync::Arc;

use farcore::Core;
use rustix::event::epoll::EventFlags;

use crate::conn::connection::Connection;
use crate::conn::sockets::Sockets;
use crate::limits::LARGE_BYTES;
use crate::native::Native;
use crate::serving::Serving;
use crate::steps;

/// How long what was accepted may take to be answered when the server stops, in milliseconds.
const STOP_MS: u64 = 5000;
/// Idle turns before the core sleeps.
const IDLE_TURNS: u32 = 2;
/// Idle turns before it sleeps while commands of several steps wait for their clients.
const IDLE_TURNS_OF_TASKS: u32 = 200;
/// How long it sleeps then, at most, in milliseconds.
const TASKS_LOOK_MS: u64 = 20;
/// Turns after which the other tasks of the core run.
const TURNS_A_YIELD: u32 = 16;

impl Serving {
    /// Begins to serve native clients, if the server does.
    fn start_native(&mut self, core: &Core) {
        if !self.shared.options.native.listen.is_empty() {
            let (shared, place) = (Arc::clone(&self.shared), self.place);
            self.native = Some(Native::new(
                shared,
                place,
                (core.another(), self.events.clone()),
                self.value_bytes_max(),
            ));
        }
    }

    /// Serves until the server stops and every accepted request is answered.
    pub(crate) async fn run(mut self, mut core: Core) {
        self.start_native(&core);
        let (mut idle, mut turns, mut stop_ms) = (0, 0_u32, None);
        loop {
            self.now_ms = farcore_tuning::system_ms();
            let is_stopping = self.shared.is_stopping();
            if is_stopping {
                let stop_ms = *stop_ms.get_or_insert(self.now_ms + STOP_MS);
                if self.now_ms >= stop_ms {
                    break;
                }
            }
            self.pause_turn();
            let messages = self.shared.cores[self.place].message_count();
            let mut is_busy = self.serve_listed(&mut core);
            is_busy |= self.serve_sockets(&mut core, !is_stopping);
            is_busy |= self.receive_messages(messages);
            is_busy |= self.accept_held(is_stopping);
            self.trim_turn(&core);
            is_busy |= self.native_turn(is_stopping);
            is_busy |= self.take_answers(&mut core) > 0;
            is_busy |= self.scripts_turn(&mut core);
            self.limit_kept_values(&mut core);
            self.start_long_tasks(&core);
            self.serve_waits(&core);
            self.end_delays();
            is_busy |= self.tasks_turn(&mut core);
            is_busy |= self.script_queues_turn(&mut core);
            self.send_lines();
            is_busy |= self.send_key_events();
            is_busy |= self.tracking_turn();
            is_busy |= self.deliveries_turn();
            is_busy |= self.send_all();
            self.sections_turn();
            self.drain_turn();
            self.note_steps(steps::take());
            turns = turns.wrapping_add(1);
            if is_busy {
                idle = 0;
                if turns.is_multiple_of(TURNS_A_YIELD) {
                    core.yield_now().await;
                }
                continue;
            }
            idle += 1;
            let is_quiet = self.is_quiet(&core, idle);
            if is_quiet && is_stopping && !self.owes_replies() {
                break;
            }
            if is_quiet && idle > IDLE_TURNS && self.shared.cores[self.place].fall_asleep() {
                if self.native.as_mut().is_none_or(Native::arm) {
                    self.sleep(stop_ms).await;
                }
                self.shared.cores[self.place].wake_up();
                idle = 0;
            } else {
                core.yield_now().await;
            }
        }
        for number in 0..self.connections.len() {
            self.close(number);
        }
        if let Some(native) = &mut self.native {
            native.end();
        }
        self.forget_removed_keys();
        self.sockets.close().await;
    }

    /// Notes how many steps a turn had.
    #[inline]
    fn note_steps(&self, steps: u64) {
        let longest = &self.counters().longest_turn_steps;
        if steps > longest.get() {
            longest.set(steps);
        }
    }

    /// Once large values may exist, has those not be kept that arrive while a task polls: they are
    /// read again. Of requests that are under way before, the keys are not known.
    fn limit_kept_values(&mut self, core: &mut Core) {
        let is_due = !self.limits_kept_values && self.shared.has_large_values();
        if is_due && core.in_flight() == 0 {
            self.limits_kept_values = true;
            core.limit_kept_values(LARGE_BYTES);
        }
    }

    /// True if there is nothing to do until a message comes or a socket is ready.
    fn is_quiet(&self, core: &Core, idle: u32) -> bool {
        core.in_flight() == 0
            && self.listed.is_empty()
            && self.dirty.is_empty()
            && self.deliveries.is_empty()
            && self.parking.is_quiet()
            && self.tracking.is_quiet(&self.shared.tracking)
            && self.sections.is_empty()
            && self.drains.is_empty()
            && self.script_queues.is_empty()
            && self.native.as_ref().is_none_or(Native::is_quiet)
            // A transfer under way is not slept through.
            && (self.tasks.is_empty() || idle > IDLE_TURNS_OF_TASKS && self.tasks_wait())
            // While a client waits for sections of the shard, their holder may ask this core.
            && core.is_quiet()
    }

    /// True if a command that was accepted is not answered, or its reply is not sent.
    fn owes_replies(&self) -> bool {
        let has_unsent = |one: &Connection| !one.is_gone && one.waiting_bytes() > 0;
        let mut connections = self.connections.iter().flatten();
        let has_tasks = !self.tasks.is_empty() || !self.script_queues.is_empty();
        has_tasks || connections.any(|one| has_unsent(one))
    }

    /// Sleeps until there is something to do, a client has waited long enough, or the server stops.
    async fn sleep(&mut self, stop_ms: Option<u64>) {
        self.counters().sleeps.add(1);
        let deadlines = [
            self.parking.next_deadline_ms(),
            self.delays.next_ms(),
            self.pause_end_ms(),
            self.arrivals.next_ms(self.now_ms),
            stop_ms,
        ];
        let mut deadline_ms = deadlines.into_iter().flatten().min();
        if !self.tasks.is_empty() {
            // What a command waits for besides, the engine has finished by then.
            let look_ms = self.now_ms + TASKS_LOOK_MS;
            deadline_ms = Some(deadline_ms.map_or(look_ms, |deadline_ms| deadline_ms.min(look_ms)));
        }
        self.sockets.set_timer(deadline_ms, self.now_ms);
        self.sockets.sleep().await;
    }

    fn native_turn(&mut self, is_stopping: bool) -> bool {
        match &mut self.native {
            Some(native) => native.turn(&self.sockets, self.now_ms, is_stopping),
            None => false,
        }
    }

    /// Goes on with the input of listed connections, as long as the engine has room. Those that
    /// have not had their turn come first in the next one, so a turn costs no more the more of
    /// them wait.
    fn serve_listed(&mut self, core: &mut Core) -> bool {
        let mut listed = std::mem::take(&mut self.listed).into_iter();
        let mut is_busy = false;
        self.is_engine_full = false;
        for number in listed.by_ref() {
            if let Some(Some(connection)) = self.connections.get_mut(number) {
                connection.is_listed &= connection.is_gone;
            }
            is_busy |= self.serve_input(core, number);
            if self.is_engine_full {
                break;
            }
        }
        let behind = std::mem::replace(&mut self.listed, listed.collect());
        self.listed.extend(behind);
        is_busy
    }

    /// Goes on with the input of a connection. True if it did.
    pub(crate) fn serve_input(&mut self, core: &mut Core, number: usize) -> bool {
        let Some(mut connection) = self.take(number) else {
            return false;
        };
        let waiting = |connection: &Connection| {
            let bytes = connection.input.len() - connection.parsed;
            (bytes, connection.sent_parts)
        };
        let before = waiting(&connection);
        self.lend_buffer(&mut connection);
        self.parse_rest(core, number, &mut connection);
        let is_busy = before != waiting(&connection);
        self.account(&mut connection);
        self.watch(number, &mut connection);
        self.put_back(number, connection);
        is_busy
    }

    /// Receives from the sockets that are ready, if the server goes on, and sends to those that
    /// have room again.
    fn serve_sockets(&mut self, core: &mut Core, receives: bool) -> bool {
        let mut is_busy = false;
        for place in 0..self.sockets.look() {
            let (number, flags) = self.sockets.ready(place);
            if Sockets::is_timer(number) {
                continue;
            }
            if let Some(native) = self.native.as_mut().filter(|_| Native::owns(number)) {
                native.note_ready(number);
                continue;
            }
            let Some(mut connection) = self.take(number) else {
                continue;
            };
            if flags.intersects(EventFlags::OUT) {
                is_busy = true;
                self.note_dirty(number, &mut connection);
            }
            // As Redis, which closes a connection whose client sends no more.
            let is_ended = flags.intersects(EventFlags::RDHUP)
                && (connection.parked.is_some() || connection.is_handed_over);
            let is_broken = is_ended || flags.intersects(EventFlags::HUP | EventFlags::ERR);
            if is_broken && (connection.is_handed_over || !connection.waits_for_input()) {
                // Nothing would be received that shows it.
                connection.is_gone = true;
            } else if !receives && !is_broken {
                // What it has sent is not received, and would wake the core again and again.
                self.ignore_input(number, &mut connection);
            } else if is_broken || receives && flags.intersects(EventFlags::IN) {
                is_busy = true;
                self.lend_buffer(&mut connection);
                self.receive(core, number, &mut connection);
            }
            self.put_back(number, connection);
        }
        is_busy
    }
}

#[cfg(test)]
mod tests {
    use crate::by_hand::on_first_core;

    #[test]
    fn no_more_requests_are_under_way_than_have_room() {
        on_first_core(1, |mut bench| async move {
            let mut count = 0;
            let get = farcore::Operation::Get { key: b"k" };
            while bench.core.submit(get, count).is_ok() {
                count += 1;
                assert!(count <= 1024);
            }
            assert!(count > 0 && bench.core.in_flight() as u64 == count);
            while bench.core.in_flight() > 0 {
                bench.core.poll(|_, _| {});
                bench.core.yield_now().await;
            }
        });
    }
}
