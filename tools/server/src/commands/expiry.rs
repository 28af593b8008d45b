//! Commands of expiry.

use farcore::{Change, Expiry, ExpiryCondition, Operation};

use super::arguments::{TimeUnit, expiry_condition, integer, invalid_expiry};
use super::{Call, Flow, Refusal};
use crate::types::replies::ReplyKind;

type Result = std::result::Result<Flow, Refusal>;

fn set_expiry(call: &mut Call<'_>, unit: TimeUnit, name: &str) -> Result {
    let options = (3..call.count()).map(|place| call.argument(place));
    let condition = expiry_condition(options)?;
    let time = integer(call.argument(2))?;
    let expiry = unit.expiry(time).ok_or_else(|| invalid_expiry(name))?;
    let change = Change::SetExpiry {
        expiry,
        condition,
        value: false,
    };
    Ok(call.change(ReplyKind::IsExpirySet, change))
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
