//! Commands of expiry.

use farcore::{Change, Expiry, ExpiryCondition, ExpiryOutcome, Operation};

use super::arguments::{TimeUnit, expiry_condition, integer, invalid_expiry};
use super::{Call, Flow, Refusal};
use crate::replies::{ReplyKind, error_text};
use crate::resp::Writer;

type Result = std::result::Result<Flow, Refusal>;

fn set_expiry(call: &mut Call<'_>, unit: TimeUnit, name: &str) -> Result {
    let time = integer(call.argument(2))?;
    let options = (3..call.count()).map(|place| call.argument(place));
    let (condition, needs_expiry) = expiry_condition(options)?;
    let expiry = unit.expiry(time).ok_or_else(|| invalid_expiry(name))?;
    if needs_expiry {
        return Ok(shorten(call, expiry, condition));
    }
    let change = Change::SetExpiry {
        expiry,
        condition,
        value: false,
    };
    Ok(call.change(ReplyKind::IsExpirySet, change))
}

/// Sets the expiry of a key that has one. A key that loses it meanwhile is given the new one.
fn shorten(call: &mut Call<'_>, expiry: Expiry, condition: ExpiryCondition) -> Flow {
    let key = call.key().to_vec();
    call.task(move |mut core, output, protocol| async move {
        let metadata = core.inspect(&key).await;
        let is_set = match metadata {
            Ok(Some(metadata)) if metadata.expiry_ms.is_some() => {
                let outcome = core.expire(&key, expiry, condition).await;
                outcome.map(|outcome| {
                    matches!(outcome, ExpiryOutcome::Set(_) | ExpiryOutcome::Deleted)
                })
            }
            Ok(_) => Ok(false),
            Err(error) => Err(error),
        };
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            match is_set {
                Ok(is_set) => writer.integer(i64::from(is_set)),
                Err(error) => writer.error(&error_text(&error)),
            }
        });
        core
    })
}

pub(super) fn expire(call: &mut Call<'_>) -> Result {
    set_expiry(call, TimeUnit::Seconds, "expire")
}

pub(super) fn pexpire(call: &mut Call<'_>) -> Result {
    set_expiry(call, TimeUnit::Milliseconds, "pexpire")
}

pub(super) fn expireat(call: &mut Call<'_>) -> Result {
    set_expiry(call, TimeUnit::AtSeconds, "expireat")
}

pub(super) fn pexpireat(call: &mut Call<'_>) -> Result {
    set_expiry(call, TimeUnit::AtMilliseconds, "pexpireat")
}

pub(super) fn persist(call: &mut Call<'_>) -> Result {
    let change = Change::SetExpiry {
        expiry: Expiry::Never,
        condition: ExpiryCondition::Set,
        value: false,
    };
    Ok(call.change(ReplyKind::IsExpirySet, change))
}

fn inspect(call: &mut Call<'_>, kind: ReplyKind) -> Result {
    let key = call.key();
    Ok(call.request(kind, Operation::Inspect { key }))
}

pub(super) fn ttl(call: &mut Call<'_>) -> Result {
    inspect(call, ReplyKind::Seconds)
}

pub(super) fn pttl(call: &mut Call<'_>) -> Result {
    inspect(call, ReplyKind::Milliseconds)
}

pub(super) fn expiretime(call: &mut Call<'_>) -> Result {
    inspect(call, ReplyKind::ExpirySeconds)
}

pub(super) fn pexpiretime(call: &mut Call<'_>) -> Result {
    inspect(call, ReplyKind::ExpiryMilliseconds)
}
