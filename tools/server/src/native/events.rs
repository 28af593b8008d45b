//! Events of keys that native clients change (`tasks/event_sink.rs`).
//!
//! - I1: where no class is selected, a request costs a load and a branch, and its answer a branch.
//! - I2: what the answer does not tell makes no event: a put does not say that its key is new.

use std::collections::HashMap;

use farcore::{Answer, Condition, Core, Operation, PutOptions, PutOutcome, Refused};

use crate::events::operation_events;
use crate::events::operation_events::version_of;
use crate::events::operation_events::{Noted, looking};
use crate::tasks::event_sink::EventSink;

/// The requests under way that may make events, and where the events go.
#[derive(Debug)]
pub(super) struct NativeEvents {
    sink: EventSink,
    /// By token.
    noted: HashMap<u64, Noted>,
}

impl NativeEvents {
    pub(super) fn new(sink: EventSink) -> Self {
        Self {
            sink,
            noted: HashMap::new(),
        }
    }

    /// Gives a request to the engine, and notes what events it may make.
    #[inline]
    pub(super) fn submit(
        &mut self,
        core: &mut Core,
        operation: Operation<'_>,
        token: u64,
    ) -> Result<(), Refused> {
        if self.sink.is_any() {
            return self.submit_noted(core, operation, token);
        }
        core.submit(operation, token)
    }

    #[cold]
    fn submit_noted(
        &mut self,
        core: &mut Core,
        operation: Operation<'_>,
        token: u64,
    ) -> Result<(), Refused> {
        let classes = self.sink.classes();
        let operation = looking(operation, classes);
        let noted = Noted::of(None, &operation, classes, farcore_tuning::system_ms());
        core.submit(operation, token)?;
        if let Some(noted) = noted {
            self.noted.insert(token, noted);
        }
        Ok(())
    }

    /// Leaves the events that an answer means.
    #[inline]
    pub(super) fn answered(&mut self, token: u64, answer: &Answer<'_>) {
        if !self.noted.is_empty()
            && let Some(noted) = self.noted.remove(&token)
        {
            self.leave(&noted, answer);
        }
    }

    #[cold]
    fn leave(&self, noted: &Noted, answer: &Answer<'_>) {
        let sink = &self.sink;
        let stored = version_of(answer);
        noted.answered(answer, None, |class, name, key| {
            sink.notify_stored(stored, class, name, key);
        });
    }

    /// Where a task leaves its events.
    pub(super) fn sink(&self) -> EventSink {
        self.sink.clone()
    }
}

/// Leaves the events of a put that was carried out in steps.
pub(super) fn leave_put(
    sink: &EventSink,
    key: &[u8],
    options: PutOptions<'_>,
    outcome: &farcore::Result<PutOutcome>,
) {
    let is_new = matches!(options.condition, Condition::Absent | Condition::Version(0));
    if let Ok(outcome) = *outcome {
        operation_events::put_in_steps(outcome, options.expiry, is_new, |version, class, name| {
            sink.notify_stored(version, class, name, key);
        });
    }
}
