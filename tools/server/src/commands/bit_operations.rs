//! `BITOP`: a string that is made of the bits of several. They are read at the versions that they
//! have at first, and the result is stored under the sections of all keys, if none was changed
//! meanwhile; else it is made anew there.
//!
//! - I1: the result is made of the values as they are when it is stored.

use farcore::constants::KEY_BYTES_MAX;
use farcore::{Condition, Core, DeleteOutcome, Expiry, PutOptions, Version};

use super::trees::{Step, finish};
use super::{Call, Flow, Refusal, SYNTAX, read_of};
use crate::events::classes::EventClasses;
use crate::long::copy::{Combined, Old, Segment, ValueUse, hold_value, put_segments};
use crate::memory::Charge;
use crate::steps;
use crate::tasks::failure::TaskFailure;
use crate::types::bit_operation::BitOperation;

type Result = std::result::Result<Flow, Refusal>;

/// What the command names.
struct Wanted {
    operation: BitOperation,
    target: Vec<u8>,
    sources: Vec<Vec<u8>>,
}

impl Wanted {
    fn all(&self) -> Vec<&[u8]> {
        let keys = self.sources.iter().chain([&self.target]);
        keys.map(|key| &key[..]).collect()
    }

    /// The version of each source; 0 if it is absent.
    async fn versions(&self, core: &mut Core) -> farcore::Result<Vec<Version>> {
        let mut versions = Vec::with_capacity(self.sources.len());
        for key in &self.sources {
            steps::count(1);
            steps::end_slice(core).await;
            let found = read_of(core.inspect(key).await)?;
            versions.push(found.map_or(0, |metadata| metadata.version));
        }
        Ok(versions)
    }

    /// Stores the result; returns its length.
    async fn store(
        &self,
        (core, output): Step<'_>,
        sources: &mut Sources,
    ) -> std::result::Result<u64, TaskFailure> {
        sources.open((&mut *core, output), self).await?;
        if !core.is_under_section() {
            output.enter(core, &self.all()).await?;
            if self.versions(core).await? != sources.versions() {
                sources.release(core).await;
                sources.open((&mut *core, output), self).await?;
            }
        }
        let length = sources.values.iter().map(Old::length).max().unwrap_or(0);
        let target = &self.target[..];
        let was_absent = read_of(core.inspect(target).await)?.is_none();
        if length == 0 {
            if !was_absent {
                let deleted = core.delete_if(target, Condition::Always).await?;
                if matches!(deleted, DeleteOutcome::Deleted) {
                    output.notify(EventClasses::GENERIC, "del", target);
                }
            }
            return Ok(0);
        }
        let combined = Combined {
            values: &sources.values,
            operation: self.operation,
            length,
        };
        let options = PutOptions {
            expiry: Expiry::Never,
            condition: Condition::Always,
        };
        let segments = [Segment::Combined(&combined)];
        let _ = put_segments(core, target, &segments, options, output).await?;
        if was_absent {
            output.notify(EventClasses::NEW, "new", target);
        }
        output.notify(EventClasses::STRING, "set", target);
        Ok(length)
    }
}

/// What the sources hold, and what it is charged for.
#[derive(Default)]
struct Sources {
    values: Vec<Old>,
    held: Vec<Charge>,
}

impl Sources {
    async fn open(
        &mut self,
        (core, output): Step<'_>,
        wanted: &Wanted,
    ) -> std::result::Result<(), TaskFailure> {
        let mut longest = 0;
        for key in &wanted.sources {
            steps::count(1);
            steps::end_slice(core).await;
            if key.len() > KEY_BYTES_MAX {
                // It cannot exist.
                self.values.push(Old::Absent);
                continue;
            }
            self.held
                .push(hold_value(core, output, key, ValueUse::Read).await?);
            let value = Old::open(core, key).await?;
            if matches!(value, Old::Absent) {
                output.notify(EventClasses::MISSED, "keymiss", key);
            }
            longest = longest.max(usize::try_from(value.length()).unwrap_or(usize::MAX));
            self.values.push(value);
        }
        // The result; one in pieces is made in chunks.
        let made = 2 * longest.min(output.value_bytes_max());
        self.held.push(output.hold_when_free(core, made).await?);
        Ok(())
    }

    fn versions(&self) -> Vec<Version> {
        self.values.iter().map(Old::version).collect()
    }

    async fn release(&mut self, core: &mut Core) {
        for value in self.values.drain(..) {
            value.release(core).await;
        }
        self.held.clear();
    }
}

pub(super) fn bitop(call: &mut Call<'_>) -> Result {
    let operation = BitOperation::of(call.argument(1)).ok_or(SYNTAX)?;
    if operation == BitOperation::Not && call.count() != 4 {
        return Err("ERR BITOP NOT must be called with a single source key.".into());
    }
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let wanted = Wanted {
        operation,
        target: call.key_at(2).to_vec(),
        sources: (3..call.count())
            .map(|place| call.key_at(place).to_vec())
            .collect(),
    };
    Ok(call.task(move |mut core, output, protocol| async move {
        let mut sources = Sources::default();
        let stored = wanted.store((&mut core, &output), &mut sources).await;
        sources.release(&mut core).await;
        output.leave(&mut core);
        finish(&output, protocol, stored, |writer, length| {
            writer.integer(i64::try_from(length).unwrap_or(i64::MAX));
        });
        core
    }))
}
