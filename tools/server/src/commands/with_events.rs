//! Requests of the engine while events of keys are sent (`tasks/event_sink.rs`).
//!
//! The answer to most requests tells which events they make. Where it does not, because an event
//! depends on whether the key was absent or had an expiry, the request is carried out as a
//! transaction of one command (`exec::plan`): the key is read, and written if it has not changed
//! since.

use farcore::{Operation, Refused};

use crate::commands::transactions::{Outcome, commit};
use crate::commands::{Call, Flow};
use crate::conn::reply_token::Token;
use crate::events::classes::EventClasses;
use crate::events::operation_events::{Noted, looking};
use crate::exec::plan::Plan;
use crate::exec::transaction::Watched;
use crate::limits::ARGUMENT_BYTES_MAX;
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::output::TaskOutput;
use crate::texts::Texts;
use crate::types::replies::{ReplyKind, error_text};

impl<'a> Call<'a> {
    fn classes(&self) -> EventClasses {
        self.serving.shared.event_classes.load()
    }

    /// Gives one request to the engine, and notes what events it may make.
    #[cold]
    pub(super) fn noted_request(&mut self, kind: ReplyKind, operation: Operation<'_>) -> Flow {
        let classes = self.classes();
        let operation = looking(operation, classes);
        let Some(noted) = Noted::of(Some(kind), &operation, classes, self.serving.now_ms) else {
            return self.submit(kind, operation);
        };
        let protocol = self.connection.protocol;
        if noted.needs_before(classes)
            && let Some(plan) = Plan::bare(protocol, classes, kind, &operation)
        {
            return self.careful(plan);
        }
        let token = Token::new(self.number, self.connection.next_number(), 0);
        let before = self.connection.outstanding;
        let flow = self.submit(kind, operation);
        // Else it was refused.
        if self.connection.outstanding > before {
            self.serving.noted.insert(token.0, noted);
        }
        flow
    }

    /// Gives a part of a command to the engine, and notes what events it may make.
    #[cold]
    pub(super) fn submit_noted(
        &mut self,
        operation: Operation<'_>,
        token: Token,
    ) -> Result<(), Refused> {
        let classes = self.classes();
        let operation = looking(operation, classes);
        let noted = Noted::of(None, &operation, classes, self.serving.now_ms);
        self.core.submit(operation, token.0)?;
        if let Some(noted) = noted {
            self.serving.noted.insert(token.0, noted);
        }
        Ok(())
    }

    /// True if the events of a command of several requests depend on what its keys were before. No
    /// part of it was sent yet.
    #[cold]
    pub(super) fn needs_before(
        &self,
        count: usize,
        operation: &impl Fn(&Self, usize) -> Operation<'a>,
    ) -> bool {
        let classes = self.classes();
        let needs = |part| {
            let noted = Noted::of(None, &operation(self, part), classes, self.serving.now_ms);
            noted.is_some_and(|noted| noted.needs_before(classes))
        };
        self.connection.sent_parts.is_none() && count > 0 && needs(0)
    }

    /// Carries several puts out, one after the other, so that it is known what their keys were
    /// before. The reply is that of the last one, or of the first that fails.
    #[cold]
    pub(super) fn careful_requests(
        &mut self,
        count: usize,
        operation: &impl Fn(&Self, usize) -> Operation<'a>,
    ) -> Flow {
        if !self.connection.pending.is_empty() {
            return Flow::Later;
        }
        let bytes = self.arguments.span_bytes();
        if bytes > ARGUMENT_BYTES_MAX {
            let text = format!(
                "ERR while events are sent, the arguments of several puts take at most \
                 {ARGUMENT_BYTES_MAX} bytes, these take {bytes}"
            );
            (self.serving).note_failed_call(self.connection.command_place, &text);
            return self.reply(|writer| writer.error(&text));
        }
        let classes = self.classes();
        let puts = (0..count).flat_map(|part| {
            let put = operation(self, part);
            [put.key(), put.value()]
        });
        let puts = Texts::of(puts);
        self.task(move |mut core, output, protocol| async move {
            let mut reply = Vec::new();
            for place in (0..puts.len()).step_by(2) {
                steps::count(1);
                steps::end_slice(&core).await;
                let mut put = puts.some(place..place + 2);
                let put = Operation::Put {
                    key: put.next().unwrap_or_default(),
                    value: put.next().unwrap_or_default(),
                };
                if let Some(plan) = Plan::bare(protocol, classes, ReplyKind::Stored, &put) {
                    let next = carry_out(&mut core, &plan, &output, protocol).await;
                    if !reply.starts_with(b"-") {
                        reply = next;
                    }
                }
            }
            output.write(|bytes| bytes.extend_from_slice(&reply));
            core
        })
    }

    /// Carries a request out so that it is known what its key was before.
    fn careful(&mut self, plan: Plan) -> Flow {
        self.task(move |mut core, output, protocol| async move {
            let reply = carry_out(&mut core, &plan, &output, protocol).await;
            output.write(|bytes| bytes.extend_from_slice(&reply));
            core
        })
    }
}

/// Carries a request out and leaves its events; returns its reply.
async fn carry_out(
    core: &mut farcore::Core,
    plan: &Plan,
    output: &TaskOutput,
    protocol: Protocol,
) -> Vec<u8> {
    let result = match commit(core, plan, &Watched::new()).await {
        Outcome::Committed(reply, events) => Ok((reply, events)),
        // Its key holds what no transaction changes: it is not new.
        Outcome::Replay(_) | Outcome::Conflict => plan.run_plainly(core).await,
        Outcome::Failed(error) => Err(error),
    };
    match result {
        Ok((reply, events)) => {
            output.notify_all(events);
            reply
        }
        Err(error) => {
            let mut reply = Vec::new();
            Writer::new(&mut reply, protocol).error(&error_text(&error));
            reply
        }
    }
}
