//! How a script goes on over turns: its interpreter runs until it calls a command, which is run as
//! a queued one is, under the sections of its transaction; its reply goes back to the interpreter.
//!
//! - I1: a script runs in slices, and waits for its commands while the core serves others.
//! - I2: one that takes too long ends: others wait for its sections.

use std::time::Duration;

use farcore::Core;
use farcore_script::{Event, Step};

use crate::commands::{self, Call, CalledKeys, Flow};
use crate::conn::connection::{Connection, ReplyMode};
use crate::cores::message::{KilledScripts, Message};
use crate::durability::{READ_ONLY, UNFOLLOWED};
use crate::exec::script_run::{Called, Next, ScriptRun};
use crate::exec::transaction::QUEUE_BYTES_MAX;
use crate::limits::{SECTION_NS, SPARE_BYTES_MAX};
use crate::memory_limit::OUT_OF_MEMORY;
use crate::resp::{Arguments, Progress, Protocol};
use crate::scripts::owner_of;
use crate::serving::Serving;
use crate::steps;

/// Why a script ends that was killed; as Redis.
const KILLED: &str = "ERR Script killed by user with SCRIPT KILL...";
/// A script that has run for less is not what `SCRIPT KILL` means.
const KILLED_FROM: Duration = Duration::from_millis(50);

impl Serving {
    /// Has scripts go on whose commands are answered. True if one did. Cost while none runs: a
    /// branch.
    #[inline]
    pub(crate) fn scripts_turn(&mut self, core: &mut Core) -> bool {
        let before = self.scripts.resumes;
        for place in 0..self.scripts.running.len() {
            if let Some(&number) = self.scripts.running.get(place) {
                self.run_transaction(core, number);
            }
        }
        self.scripts.resumes != before
    }

    /// Goes on with the script of a connection. True once it has ended, and is replied to.
    pub(crate) fn script_goes_on(
        &mut self,
        core: &mut Core,
        (number, holds): (usize, bool),
        connection: &mut Connection,
    ) -> bool {
        if let Some(run) = &mut connection.script {
            run.turns += 1;
        }
        loop {
            let Some(run) = &mut connection.script else {
                return true;
            };
            let step = match run.next.take() {
                Some(Next::Command(called)) => {
                    match self.run_called(core, (number, holds), connection, called) {
                        Ok(reply) => Step::Reply(reply),
                        Err(called) => {
                            if let Some(run) = &mut connection.script {
                                run.next = Some(Next::Command(called));
                            }
                            return false;
                        }
                    }
                }
                Some(Next::Step(step)) => step,
                None => Step::GoOn,
            };
            let Some(run) = &mut connection.script else {
                return true;
            };
            let step = match self.end_of(run) {
                Some(reason) if !matches!(step, Step::Run(_)) => Step::End(reason),
                _ => step,
            };
            let Some(interpreter) = &mut run.interpreter else {
                return true;
            };
            self.scripts.resumes += 1;
            // Also of a command that is refused: the slice must end some time.
            steps::count(1);
            let next = match interpreter.resume(step) {
                Event::Call { command, is_resp3 } => {
                    self.call_of_script(core, connection, command, is_resp3)
                }
                Event::Log(level, text) => {
                    log(level, &text);
                    Next::Step(Step::GoOn)
                }
                Event::Slice => {
                    run.next = Some(Next::Step(Step::GoOn));
                    self.list(number, connection);
                    return false;
                }
                Event::Ended {
                    reply,
                    is_compiled,
                    is_counted,
                } => {
                    self.end_script(number, connection, reply, (is_compiled, is_counted));
                    return true;
                }
                Event::Idle => {
                    let reply = b"-ERR the script is gone\r\n".to_vec();
                    self.end_script(number, connection, reply, (false, false));
                    return true;
                }
            };
            if let Some(run) = &mut connection.script {
                run.next = Some(next);
            }
            if steps::is_slice_over() {
                self.list(number, connection);
                return false;
            }
        }
    }

    /// What follows from a command that the script of a connection calls.
    fn call_of_script(
        &mut self,
        core: &Core,
        connection: &mut Connection,
        command: Vec<u8>,
        is_resp3: bool,
    ) -> Next {
        connection.protocol = match is_resp3 {
            true => Protocol::Resp3,
            false => Protocol::Resp2,
        };
        let refused = |text: String| Next::Step(Step::Reply(format!("-{text}\r\n").into_bytes()));
        if command.len() > QUEUE_BYTES_MAX {
            return refused("ERR the command is too long".to_owned());
        }
        let mut called = self.spares.take_called();
        called.queue.commands = 1;
        called.queue.bytes = command;
        let Called { queue, parsing, .. } = &mut *called;
        let progress = queue.parse(0, &self.limits, parsing);
        let admitted = if let Some(Progress::Complete { consumed }) = progress {
            parsing.next = Some(consumed);
            self.admit_called(core, connection, &parsing.arguments, &queue.bytes)
        } else {
            // It is passed on in pieces, or parsed so.
            let mut words = Arguments::new();
            parsing.end();
            match queue.command(0, &mut words) {
                Some(_) => self.admit_called(core, connection, &words, &queue.bytes),
                None => Err("ERR the command is too long".to_owned()),
            }
        };
        match admitted {
            Ok(()) => Next::Command(called),
            Err(text) => {
                let text = text.replace(['\r', '\n'], " ");
                self.note_failure(&text);
                refused(text)
            }
        }
    }

    /// Why a script is to end now.
    fn end_of(&self, run: &mut ScriptRun) -> Option<String> {
        let is_age_due = run.is_age_due();
        if let Some(reason) = &run.end {
            return Some(reason.clone());
        }
        if !is_age_due {
            return None;
        }
        let (age, limit) = (run.age(), self.shared.options.script_time_limit);
        if age > limit && !run.has_written {
            let limit = limit.as_millis();
            return Some(format!(
                "ERR The script was ended: it ran longer than {limit} ms, see --script-time-limit."
            ));
        }
        let sections = Duration::from_nanos(SECTION_NS);
        (age > sections).then(|| {
            let limit = sections.as_millis();
            format!("ERR The script was ended: it has held its keys for {limit} ms. What it wrote stays.")
        })
    }

    /// Runs a command that a script has called as far as it can go on now: its reply, if it has.
    fn run_called(
        &mut self,
        core: &mut Core,
        (number, holds): (usize, bool),
        connection: &mut Connection,
        mut called: Box<Called>,
    ) -> Result<Vec<u8>, Box<Called>> {
        let must_wait = if called.is_ready() && connection.may_call() {
            if !self.run_ready(core, (number, holds), connection, &mut called) {
                return Err(called);
            }
            false
        } else {
            let Called { queue, at, parsing } = &mut *called;
            let from = (number, holds, true);
            let stop = self.replay_queue(core, from, connection, (queue, at, parsing));
            stop.must_wait
        };
        // Those of its own shard come at once.
        while holds && connection.outstanding > 0 && core.is_under_section() {
            if self.take_answers_for(core, connection) == 0 {
                break;
            }
        }
        let is_done = called.at == called.queue.bytes.len()
            && !connection.is_blocked
            && connection.pending.is_empty()
            && connection.stream.is_none()
            && !must_wait;
        if !is_done {
            if !connection.is_blocked {
                self.list(number, connection);
            }
            return Err(called);
        }
        let bytes = called.end();
        self.spares.give_called(called);
        let mut output = std::mem::take(&mut connection.output);
        if bytes.capacity() <= SPARE_BYTES_MAX {
            // For the reply of the next one.
            let mut bytes = bytes;
            bytes.clear();
            connection.output.lend(bytes);
        }
        let is_lost = match &mut connection.script {
            Some(run) => {
                std::mem::take(&mut run.is_reply_lost)
                    || output.waiting_bytes() > run.reply_bytes_max
            }
            None => false,
        };
        if is_lost {
            return Ok(
                b"-ERR the reply of the command takes more memory than a script has\r\n".to_vec(),
            );
        }
        Ok(std::mem::take(output.own()))
    }

    /// Runs a command that a script has called and that is parsed, as `replay_queue` does. False if
    /// it goes on later.
    fn run_ready(
        &mut self,
        core: &mut Core,
        (number, holds): (usize, bool),
        connection: &mut Connection,
        called: &mut Called,
    ) -> bool {
        let mut call = Call {
            core: &mut *core,
            serving: &mut *self,
            connection: &mut *connection,
            number,
            arguments: &called.parsing.arguments,
            input: &called.queue.bytes,
            typed: None,
            writes: false,
            plan: None,
        };
        if commands::run(&mut call) == Flow::Later {
            self.list(number, connection);
            return false;
        }
        steps::count(1);
        called.parsing.end();
        called.at = called.queue.bytes.len();
        if holds && connection.is_blocked {
            self.go_on_at_once(core, number, connection);
        }
        true
    }

    /// Why the script of a connection may not call a command, if it may not; else whether that
    /// writes is noted.
    fn admit_called(
        &mut self,
        core: &Core,
        connection: &mut Connection,
        words: &Arguments,
        input: &[u8],
    ) -> Result<(), String> {
        let admitted = self.check_called(core, connection, words, input);
        match (&admitted, &mut connection.script) {
            (Ok(writes), Some(run)) => run.has_written |= writes,
            (Err(_), _) => {
                let command = words.iter(input).next().and_then(commands::find);
                let calls = command.and_then(|one| self.counters().calls.get(one.place()));
                if let Some(calls) = calls {
                    calls.rejected.add(1);
                }
            }
            _ => {}
        }
        admitted.map(|_| ())
    }

    /// Why the script of a connection may not call a command; else whether that writes.
    fn check_called(
        &mut self,
        core: &Core,
        connection: &Connection,
        words: &Arguments,
        input: &[u8],
    ) -> Result<bool, String> {
        // Also of one that is refused otherwise, it is noted that its user may not run it.
        let denied = match connection.user.may_all() {
            true => None,
            false => commands::refused_in_script(self, connection, (words, input)),
        };
        let called = commands::called_by_script(words, input)?;
        if let Some(denied) = denied {
            return Err(denied);
        }
        let Some(run) = &connection.script else {
            return Ok(false);
        };
        if (called.writes || called.is_replicated) && run.is_read_only {
            return Err("ERR Write commands are not allowed from read-only scripts.".to_owned());
        }
        if self.cluster.is_some() {
            let words = (called.command, words, input);
            if let Some(text) = commands::refused_to_script(self, connection, words) {
                return Err(text.to_owned());
            }
        }
        let refusals = &self.shared.saving.refusals;
        if called.writes && !run.has_written && refusals.is_unfollowed() {
            return Err(UNFOLLOWED.to_owned());
        }
        if called.writes && !connection.is_inner() && refusals.is_read_only() {
            return Err(READ_ONLY.to_owned());
        }
        let is_full = self.shared.memory_limit.is_exceeded();
        if is_full && called.needs_memory && !run.has_written && !run.script.allows_full_memory {
            return Err(OUT_OF_MEMORY.to_owned());
        }
        let Some(reach) = run.reach else {
            return Ok(called.writes);
        };
        match called.keys(words, input) {
            CalledKeys::All => {
                return Err(format!(
                    "ERR '{}' is about all keys, and a script of a server of several cores about its KEYS. Call it outside of scripts.",
                    called.name
                ));
            }
            CalledKeys::At(places) => {
                let database = self.shared.databases.of(connection.database);
                for place in places.iter() {
                    let word = words.get(place, input);
                    if !reach.has(core.shard_of(&database.stored(word))) {
                        let key = String::from_utf8_lossy(word);
                        let key: String = key.chars().take(128).collect();
                        return Err(format!(
                            "ERR '{}' of key '{key}', which is on another core than the KEYS of the script. Name it in KEYS.",
                            called.name
                        ));
                    }
                }
            }
        }
        Ok(called.writes)
    }

    /// Ends the script of a connection with its reply.
    fn end_script(
        &mut self,
        number: usize,
        connection: &mut Connection,
        reply: Vec<u8>,
        (is_compiled, is_counted): (bool, bool),
    ) {
        self.scripts.running.retain(|running| *running != number);
        let Some(mut run) = connection.script.take() else {
            return;
        };
        connection.output = std::mem::take(&mut run.output);
        (connection.reply_mode, connection.protocol) = (run.mode, run.protocol);
        connection.database = run.database;
        connection.last_command = run.name;
        if is_compiled {
            self.keep_script(&run.script);
        }
        if let Some(error) = reply.strip_prefix(b"-") {
            let command = commands::find(connection.last_command.as_bytes());
            let calls = command.and_then(|one| self.counters().calls.get(one.place()));
            if let Some(calls) = calls {
                calls.failed.add(1);
            }
            if !is_counted {
                self.note_failure(&String::from_utf8_lossy(error));
            }
        }
        connection.reply(|writer| writer.raw(&reply));
        if let Some(interpreter) = run.interpreter.take() {
            self.scripts.give_back(interpreter, reply);
        }
        self.note_scripts();
    }

    /// Keeps a script that was compiled, here and at its owner.
    pub(crate) fn keep_script(&mut self, script: &std::sync::Arc<farcore_script::Script>) {
        if self.scripts.find(&script.sha).is_some() {
            return;
        }
        let owner = owner_of(&script.sha, self.shared.cores.len());
        if owner == self.place {
            self.scripts.own(script);
        } else {
            self.scripts.copy(script);
            self.shared.cores[owner].send(Message::KeepScript(std::sync::Arc::clone(script)));
        }
        self.note_scripts();
    }

    /// Notes the figures of scripts.
    pub(crate) fn note_scripts(&self) {
        let (count, bytes) = self.scripts.figures();
        self.counters().cached_scripts.set(count as u64);
        self.counters().script_bytes.set(bytes as u64);
        self.counters()
            .interpreter_bytes
            .set(self.scripts.idle_bytes() as u64);
    }

    /// Has the scripts that run for long end, if they have written nothing.
    pub(crate) fn kill_scripts(&mut self) -> KilledScripts {
        let mut killed = KilledScripts::default();
        for &number in &self.scripts.running {
            let Some(Some(connection)) = self.connections.get_mut(number) else {
                continue;
            };
            if let Some(run) = connection
                .script
                .as_mut()
                .filter(|run| run.age() > KILLED_FROM)
            {
                if run.has_written {
                    killed.unkillable += 1;
                } else {
                    run.end.get_or_insert_with(|| KILLED.to_owned());
                    killed.killed += 1;
                }
            }
        }
        killed
    }
}

impl Connection {
    /// True if a command that its script has called may run, and nothing of it is under way.
    fn may_call(&self) -> bool {
        let is_free = self.stream.is_none() && self.left == 0 && self.outstanding == 0;
        is_free && !self.is_gone && self.may_execute(true)
    }

    /// Begins a script: from now on the output takes replies of its commands.
    pub(crate) fn begin_script(&mut self, mut run: Box<ScriptRun>) {
        run.output = std::mem::take(&mut self.output);
        run.database = self.database;
        run.mode = std::mem::replace(&mut self.reply_mode, ReplyMode::On);
        run.protocol = std::mem::replace(&mut self.protocol, Protocol::Resp2);
        self.script = Some(run);
    }
}

/// Logs what a script says.
fn log(level: i64, text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    match level {
        0 => tracing::trace!(%text, "script"),
        1 => tracing::debug!(%text, "script"),
        2 => tracing::info!(%text, "script"),
        _ => tracing::warn!(%text, "script"),
    }
}
