//! `SET` of a value that is too long for a record, or over one.
//!
//! - I1: a condition on the value before, and its reply, are of the value that the put replaces or
//!   leaves.

use farcore::{Condition, Core, Expiry, PutOptions, PutOutcome, Result};

use crate::events::classes::EventClasses;
use crate::events::operation_events;
use crate::long::change::{LongChange, Reply};
use crate::long::copy::Old;
use crate::tasks::output::TaskOutput;

/// What a key must hold for a `SET`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SetCondition {
    Always,
    Absent,
    Present,
    Equals(Vec<u8>),
}

impl SetCondition {
    /// A condition of the engine, with an own copy of what is compared.
    pub(crate) fn of(condition: Condition<'_>) -> Self {
        match condition {
            Condition::Absent => Self::Absent,
            Condition::Present => Self::Present,
            Condition::Equals(compared) => Self::Equals(compared.to_vec()),
            Condition::Always | Condition::Version(_) => Self::Always,
        }
    }

    /// True if it holds for what was opened.
    async fn holds(&self, core: &mut Core, old: &Old) -> Result<bool> {
        let is_absent = matches!(old, Old::Absent);
        match self {
            Self::Always => Ok(true),
            Self::Absent => Ok(is_absent),
            Self::Present => Ok(!is_absent),
            Self::Equals(compared) => old.equals(core, compared).await,
        }
    }
}

/// The rule of a `SET`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SetRule {
    pub(crate) expiry: Expiry,
    pub(crate) condition: SetCondition,
    /// The value before is replied.
    pub(crate) previous: bool,
}

impl SetRule {
    fn options<'a>(&self, condition: Condition<'a>) -> PutOptions<'a> {
        PutOptions {
            expiry: self.expiry,
            condition,
        }
    }
}

impl LongChange {
    pub(super) async fn set(
        &self,
        core: &mut Core,
        rule: &SetRule,
        output: &TaskOutput,
    ) -> Result<Reply> {
        let needs_old = rule.previous || matches!(rule.condition, SetCondition::Equals(_));
        if !needs_old {
            return self.set_without_look(core, rule, output).await;
        }
        loop {
            let old = Old::open(core, &self.key).await?;
            let is_new = matches!(old, Old::Absent);
            let is_stored = match rule.condition.holds(core, &old).await {
                Ok(false) => {
                    if is_new && rule.previous {
                        output.notify(EventClasses::MISSED, "keymiss", &self.key);
                    }
                    Ok(Some(false))
                }
                Ok(true) => {
                    let options = rule.options(Condition::Version(old.version()));
                    let put = self
                        .bytes
                        .put((&mut *core, output), &self.key, options)
                        .await;
                    put.map(|put| {
                        let is_stored = !matches!(put, PutOutcome::Unmet(_));
                        if is_stored && is_new && rule.previous {
                            output.notify(EventClasses::MISSED, "keymiss", &self.key);
                        }
                        notify_set(output, &self.key, is_new, (rule.expiry, put));
                        is_stored.then_some(true)
                    })
                }
                Err(error) => Err(error),
            };
            match is_stored {
                Ok(Some(_)) if rule.previous => return Ok(Reply::Value(old)),
                Ok(Some(is_stored)) => {
                    old.release(core).await;
                    return Ok(if is_stored {
                        Reply::Stored
                    } else {
                        Reply::Null
                    });
                }
                // Another client was faster.
                Ok(None) => old.release(core).await,
                Err(error) => {
                    old.release(core).await;
                    return Err(error);
                }
            }
        }
    }

    /// Sets by a rule for which the value before does not matter.
    async fn set_without_look(
        &self,
        core: &mut Core,
        rule: &SetRule,
        output: &TaskOutput,
    ) -> Result<Reply> {
        let condition = match rule.condition {
            SetCondition::Absent => Condition::Absent,
            SetCondition::Present => Condition::Present,
            _ => Condition::Always,
        };
        let is_new = match rule.condition {
            SetCondition::Always => is_absent(core, &self.key, output).await,
            _ => rule.condition == SetCondition::Absent,
        };
        let options = rule.options(condition);
        let put = self.bytes.put((core, output), &self.key, options).await?;
        notify_set(output, &self.key, is_new, (rule.expiry, put));
        Ok(match put {
            PutOutcome::Unmet(_) => Reply::Null,
            PutOutcome::Stored(_) | PutOutcome::Expired => Reply::Stored,
        })
    }
}

/// True if a key is absent, if that makes an event. What comes in pieces cannot be stored again, so
/// this is what the key was shortly before.
pub(crate) async fn is_absent(core: &mut Core, key: &[u8], output: &TaskOutput) -> bool {
    output.sends(EventClasses::NEW) && matches!(core.exists(key).await, Ok(false))
}

/// Leaves the events of a put, if it has happened.
pub(crate) fn notify_set(
    output: &TaskOutput,
    key: &[u8],
    is_new: bool,
    (expiry, put): (Expiry, PutOutcome),
) {
    operation_events::put_in_steps(put, expiry, is_new, |version, class, name| {
        output.notify_stored(version, class, name, key);
    });
}
