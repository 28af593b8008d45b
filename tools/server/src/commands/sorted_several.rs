//! Commands that make a sorted set of several (`sorted_algebra`).

use super::arguments::{integer, is_option, number};
use super::sorted_algebra::{Aggregate, Algebra, Making, Ordered};
use super::sorted_trees::send_members;
use super::trees::finish;
use super::{Call, Flow, Refusal, SYNTAX};
use crate::resp::Writer;
use crate::types::sorted::reply::{write_head, write_member};
use crate::types::sorted::score::parsed_score;
use crate::waits::key_queues::Awaited;

type Result = std::result::Result<Flow, Refusal>;

/// Which options a command takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Reply,
    Store,
    Count,
}

/// What a command makes, and whether it replies scores.
fn making(
    call: &Call<'_>,
    (algebra, form): (Algebra, Form),
    place: usize,
) -> std::result::Result<(Making, bool), Refusal> {
    let keys = integer(call.argument(place))?;
    if keys < 1 {
        let name = String::from_utf8_lossy(call.argument(0)).to_lowercase();
        return Err(Refusal(format!(
            "ERR at least 1 input key is needed for '{name}' command"
        )));
    }
    let first = place + 1;
    let keys = usize::try_from(keys).unwrap_or(usize::MAX);
    if keys > call.count() - first {
        return Err(SYNTAX.into());
    }
    let mut making = Making {
        algebra,
        keys: (first..first + keys)
            .map(|place| call.argument(place).to_vec())
            .collect(),
        weights: vec![1.0; keys],
        aggregate: Aggregate::Sum,
        limit: usize::MAX,
        target: (form == Form::Store).then(|| call.key_at(1).to_vec()),
        refusal: None,
    };
    let options = read_options(call, &mut making, form, first + keys);
    let has_scores = match options {
        Ok(has_scores) => has_scores,
        Err(Refusal(text)) => {
            making.refusal = Some(text);
            false
        }
    };
    Ok((making, has_scores))
}

/// Reads the options from a place on; true if scores are replied.
fn read_options(
    call: &Call<'_>,
    making: &mut Making,
    form: Form,
    mut place: usize,
) -> std::result::Result<bool, Refusal> {
    let takes_weights = making.algebra != Algebra::Difference && form != Form::Count;
    let mut has_scores = false;
    while place < call.count() {
        let option = call.argument(place);
        let left = call.count() - place;
        if takes_weights && left > making.keys.len() && is_option(option, "weights") {
            for weight in &mut making.weights {
                place += 1;
                *weight =
                    parsed_score(call.argument(place)).ok_or("ERR weight value is not a float")?;
            }
        } else if takes_weights && left >= 2 && is_option(option, "aggregate") {
            place += 1;
            making.aggregate = match call.argument(place) {
                sum if is_option(sum, "sum") => Aggregate::Sum,
                min if is_option(min, "min") => Aggregate::Least,
                max if is_option(max, "max") => Aggregate::Greatest,
                _ => return Err(SYNTAX.into()),
            };
        } else if form == Form::Reply && is_option(option, "withscores") {
            has_scores = true;
        } else if form == Form::Count && left >= 2 && is_option(option, "limit") {
            place += 1;
            // As Redis, 0 is none.
            let refusal = "ERR LIMIT can't be negative";
            making.limit = match number(call.argument(place), 0, refusal)? {
                0 => usize::MAX,
                limit => limit,
            };
        } else {
            return Err(SYNTAX.into());
        }
        place += 1;
    }
    Ok(has_scores)
}

fn reply(call: &mut Call<'_>, algebra: Algebra) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let (making, has_scores) = making(call, (algebra, Form::Reply), 1)?;
    Ok(call.task(move |mut core, output, protocol| async move {
        let made = making.make((&mut core, &output)).await;
        output.leave(&mut core);
        match made {
            Ok(made) => {
                output.write(|bytes| {
                    write_head(made.len(), has_scores, &mut Writer::new(bytes, protocol));
                });
                let all = made.ordered(&core).await;
                let all = all.into_iter().map(Ordered::scored);
                send_members(all, &core, (&output, protocol), |writer, member| {
                    write_member(member, has_scores, writer);
                })
                .await;
            }
            Err(failure) => failure.write(&output, protocol),
        }
        core
    }))
}

pub(super) fn zunion(call: &mut Call<'_>) -> Result {
    reply(call, Algebra::Union)
}

pub(super) fn zinter(call: &mut Call<'_>) -> Result {
    reply(call, Algebra::Intersection)
}

pub(super) fn zdiff(call: &mut Call<'_>) -> Result {
    reply(call, Algebra::Difference)
}

pub(super) fn zintercard(call: &mut Call<'_>) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let (making, _) = making(call, (Algebra::Intersection, Form::Count), 1)?;
    Ok(call.task(move |mut core, output, protocol| async move {
        let made = making.make((&mut core, &output)).await;
        output.leave(&mut core);
        finish(&output, protocol, made, |writer, made| {
            writer.count(made.len());
        });
        core
    }))
}

/// Starts a `STORE` form, which is the event `name`.
fn store(call: &mut Call<'_>, algebra: Algebra, name: &'static str) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let (making, _) = making(call, (algebra, Form::Store), 2)?;
    let readiness = call.readiness();
    Ok(call.task(move |mut core, output, protocol| async move {
        let stored = making.store((&mut core, &output), name).await;
        output.leave(&mut core);
        if let (Ok(1..), Some(target)) = (&stored, &making.target) {
            readiness.note(&core, Awaited::SortedSet, target).await;
        }
        finish(
            &output,
            protocol,
            stored,
            |writer: &mut Writer<'_>, count| {
                writer.count(count);
            },
        );
        core
    }))
}

pub(super) fn zunionstore(call: &mut Call<'_>) -> Result {
    store(call, Algebra::Union, "zunionstore")
}

pub(super) fn zinterstore(call: &mut Call<'_>) -> Result {
    store(call, Algebra::Intersection, "zinterstore")
}

pub(super) fn zdiffstore(call: &mut Call<'_>) -> Result {
    store(call, Algebra::Difference, "zdiffstore")
}
