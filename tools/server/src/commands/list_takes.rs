//! Commands that take elements from the first list that has some, or move one to another list, and
//! those of them that wait until there is one. What they take is in `wanted`.

use std::collections::HashSet;
use std::ops::Range;
use std::rc::Rc;

use super::arguments::{float, is_option, number};
use super::list_move::Move;
use super::wanted::Wanted;
use super::{Call, Flow, Refusal, SYNTAX};
use crate::resp::Writer;
use crate::steps;
use crate::types::list::side::Side;
use crate::waits::parked::{Parked, SourceErrors, Takes};

type Result = std::result::Result<Flow, Refusal>;

/// Keys that a client waits for, at most: it enters and leaves the queues of all in one turn.
const WAITED_KEYS_MAX: usize = 16 << 10;

/// Starts a command that takes what is there.
pub(super) fn start(call: &mut Call<'_>, wanted: impl Takes + 'static) -> Flow {
    let readiness = call.readiness();
    call.task(move |mut core, output, protocol| async move {
        let reply = (&output, protocol);
        let from = (0, SourceErrors::Replied);
        if !wanted.take_from(&mut core, reply, &readiness, from).await {
            output.write(|bytes| wanted.write_nothing(&mut Writer::new(bytes, protocol)));
        }
        core
    })
}

/// Starts a command that waits until there is something, but not as a part of a transaction.
pub(super) fn start_or_wait(
    call: &mut Call<'_>,
    wanted: impl Takes + 'static,
    timeout_ms: u64,
) -> Result {
    if call.plan.is_some() || call.connection.is_executing() {
        return Ok(start(call, wanted));
    }
    let keys = wanted.keys().len();
    if keys > WAITED_KEYS_MAX {
        return Err(Refusal(format!(
            "ERR a client waits for at most {WAITED_KEYS_MAX} keys, these are {keys}: divide them \
             among connections"
        )));
    }
    let deadline_ms = (timeout_ms > 0).then(|| call.serving.now_ms.saturating_add(timeout_ms));
    let measured = call.measured();
    let mut parked = Parked::new(&call.serving.shared, Rc::new(wanted), deadline_ms);
    let look = parked.look();
    let flow = call.unmeasured_task(move |mut core, output, protocol| async move {
        let reply = (&output, protocol);
        look.run(&mut core, reply, SourceErrors::Replied).await;
        core
    });
    if flow == Flow::Done {
        parked.measure(measured);
        call.connection.parked = Some(Box::new(parked));
    }
    Ok(flow)
}

/// A time in seconds, in milliseconds; 0 is without end.
pub(super) fn timeout_ms(text: &[u8]) -> std::result::Result<u64, Refusal> {
    let seconds =
        float(text).map_err(|_| Refusal::from("ERR timeout is not a float or out of range"))?;
    let milliseconds = (seconds * 1000.0).ceil();
    if milliseconds < 0.0 {
        return Err("ERR timeout is negative".into());
    }
    // As far as Redis counts.
    let most = i64::MAX as f64 - farcore_tuning::system_ms() as f64;
    if milliseconds > most {
        return Err("ERR timeout is out of range".into());
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is a whole number within the range"
    )]
    Ok(milliseconds as u64)
}

/// The end of a list that an argument names.
fn side(argument: &[u8]) -> std::result::Result<Side, Refusal> {
    match argument {
        left if is_option(left, "left") => Ok(Side::Left),
        right if is_option(right, "right") => Ok(Side::Right),
        _ => Err(SYNTAX.into()),
    }
}

/// The keys at these places, each once, in their order.
pub(super) fn distinct_keys(call: &Call<'_>, places: Range<usize>) -> Vec<Vec<u8>> {
    steps::count(places.len());
    let mut known = HashSet::new();
    let keys = places.map(|place| call.key_at(place));
    let keys = keys.filter(|key| known.insert(*key));
    keys.map(<[u8]>::to_vec).collect()
}

/// The move between the first two keys.
fn moved(call: &Call<'_>, from: Side, to: Side) -> Wanted {
    Wanted::Move(Move {
        source: call.key_at(1).to_vec(),
        target: call.key_at(2).to_vec(),
        from,
        to,
    })
}

pub(super) fn lmove(call: &mut Call<'_>) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let (from, to) = (side(call.argument(3))?, side(call.argument(4))?);
    let wanted = moved(call, from, to);
    Ok(start(call, wanted))
}

pub(super) fn rpoplpush(call: &mut Call<'_>) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let wanted = moved(call, Side::Right, Side::Left);
    Ok(start(call, wanted))
}

pub(super) fn blmove(call: &mut Call<'_>) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let (from, to) = (side(call.argument(3))?, side(call.argument(4))?);
    let timeout_ms = timeout_ms(call.argument(5))?;
    let wanted = moved(call, from, to);
    start_or_wait(call, wanted, timeout_ms)
}

pub(super) fn brpoplpush(call: &mut Call<'_>) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let timeout_ms = timeout_ms(call.argument(3))?;
    let wanted = moved(call, Side::Right, Side::Left);
    start_or_wait(call, wanted, timeout_ms)
}

fn blocking_pop(call: &mut Call<'_>, side: Side) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let last = call.count() - 1;
    let timeout_ms = timeout_ms(call.argument(last))?;
    let wanted = Wanted::Elements {
        keys: distinct_keys(call, 1..last),
        side,
        count: None,
    };
    start_or_wait(call, wanted, timeout_ms)
}

pub(super) fn blpop(call: &mut Call<'_>) -> Result {
    blocking_pop(call, Side::Left)
}

pub(super) fn brpop(call: &mut Call<'_>) -> Result {
    blocking_pop(call, Side::Right)
}

/// How many elements are taken at most, as the arguments from a place on say.
pub(super) fn taken_count(
    call: &Call<'_>,
    mut place: usize,
) -> std::result::Result<usize, Refusal> {
    let mut count = None;
    while place < call.count() {
        let is_last = place + 1 == call.count();
        if count.is_some() || is_last || !is_option(call.argument(place), "count") {
            return Err(SYNTAX.into());
        }
        let refusal = "ERR count should be greater than 0";
        count = Some(number(call.argument(place + 1), 1, refusal)?);
        place += 2;
    }
    Ok(count.unwrap_or(1))
}

/// What the arguments from the number of keys on want.
fn several(call: &Call<'_>, place: usize) -> std::result::Result<Wanted, Refusal> {
    let keys = number(
        call.argument(place),
        1,
        "ERR numkeys should be greater than 0",
    )?;
    let first = place + 1;
    let end = first.saturating_add(keys);
    if end >= call.count() {
        return Err(SYNTAX.into());
    }
    let side = side(call.argument(end))?;
    let count = taken_count(call, end + 1)?;
    Ok(Wanted::Elements {
        keys: distinct_keys(call, first..end),
        side,
        count: Some(count),
    })
}

pub(super) fn lmpop(call: &mut Call<'_>) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let wanted = several(call, 1)?;
    Ok(start(call, wanted))
}

pub(super) fn blmpop(call: &mut Call<'_>) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let wanted = several(call, 2)?;
    let timeout_ms = timeout_ms(call.argument(1))?;
    start_or_wait(call, wanted, timeout_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_with_fractions() {
        for (text, expected) in [
            ("0", Ok(0)),
            ("1", Ok(1000)),
            ("0.001", Ok(1)),
            ("0.0001", Ok(1)),
            ("1.5", Ok(1500)),
            ("-1", Err("ERR timeout is negative")),
            ("-0.5", Err("ERR timeout is negative")),
            ("x", Err("ERR timeout is not a float or out of range")),
            ("inf", Err("ERR timeout is out of range")),
            ("9223372036854776", Err("ERR timeout is out of range")),
        ] {
            let expected = expected.map_err(Refusal::from);
            assert_eq!(timeout_ms(text.as_bytes()), expected, "{text}");
        }
    }
}
