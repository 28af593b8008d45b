//! `ZRANDMEMBER`: members of a sorted set, drawn at random.

use farcore::{Answer, Core, Error, TreeOp, TreeView};

use super::arguments::is_option;
use super::element_draw::{BESIDE_DRAWN, Count, RANKS_AT_ONCE, SHARE_OF_ALL, draw_one, ranks};
use super::sorted_trees::{at_version, members, read_members, send_members};
use super::trees::{ReadPages, Step, gather, length_of};
use super::{Call, Flow, Refusal, SYNTAX};
use crate::events::classes::EventClasses;
use crate::memory::Charge;
use crate::random::Numbers;
use crate::resp::{Protocol, Writer};
use crate::tasks::attempts::Attempts;
use crate::tasks::failure::TaskFailure;
use crate::tasks::output::TaskOutput;
use crate::types::kind::Kind;
use crate::types::replies::ReplyKind;
use crate::types::sorted::reply::{Scored, SortedReply, whole, write_head, write_member};

/// What was read of a sorted set.
enum Read {
    /// All of it.
    All(ReadPages),
    /// What was drawn, and the memory that it is charged for.
    Drawn(Vec<(Vec<u8>, f64)>, Charge),
}

/// Reads what is drawn; or all members, if many are drawn.
async fn read((core, output): Step<'_>, key: &[u8], count: Count) -> Result<Read, TaskFailure> {
    let length = length_of(core, Kind::SortedSet, key).await?;
    if length.version == 0 {
        output.notify(EventClasses::MISSED, "keymiss", key);
    }
    let wanted = count.number();
    if wanted.saturating_mul(SHARE_OF_ALL) >= length.elements {
        return Ok(Read::All(read_members((core, output), key, &length).await?));
    }
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
    let mean = usize::try_from(length.bytes / length.elements).unwrap_or(usize::MAX);
    let needed = wanted.saturating_mul(mean + BESIDE_DRAWN);
    let mut held = output.hold_when_free(core, needed).await?;
    let ranks = ranks(core, count, (wanted, length.elements)).await;
    let (mut drawn, mut bytes) = (Vec::new(), 0);
    for some in ranks.chunks(RANKS_AT_ONCE) {
        let operations = some.iter().map(|&rank| {
            let op = TreeOp::RangeByRank {
                start: rank,
                end: rank + 1,
                reverse: false,
                limit: 1,
            };
            at_version(key, length.version, op)
        });
        let (mut failed, before) = (None, bytes);
        core.many(operations, |_, answer| match answer {
            Answer::Failed(error) => failed = Some(error.clone()),
            answer => {
                let found = whole(TreeView::of(&answer).scored());
                drawn.extend(found.map(|(member, score)| {
                    bytes += member.len() + BESIDE_DRAWN;
                    (member.to_vec(), score)
                }));
            }
        })
        .await?;
        if let Some(error) = failed {
            return Err(error.into());
        }
        if bytes > held.bytes() {
            held.grow_to(bytes)?;
        }
        output.end_read(core, (some.len(), bytes - before)).await?;
    }
    Ok(Read::Drawn(drawn, held))
}

/// Draws members of some and writes them.
async fn write(
    mut all: Vec<Scored<'_>>,
    (count, has_scores): (Count, bool),
    core: &Core,
    (output, protocol): (&TaskOutput, Protocol),
) {
    let (count, is_distinct) = match count {
        Count::Distinct(count) => (count.min(all.len()) as u64, true),
        Count::Any(_) if all.is_empty() => (0, false),
        Count::Any(count) => (count, false),
    };
    output.write(|bytes| {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        write_head(count, has_scores, &mut Writer::new(bytes, protocol));
    });
    let mut numbers = Numbers::new();
    let drawn = (0..count).map(|_| {
        let place = numbers.below(all.len());
        if is_distinct {
            all.swap_remove(place)
        } else {
            all[place]
        }
    });
    let to = (output, protocol);
    send_members(drawn, core, to, |writer, member| {
        write_member(member, has_scores, writer);
    })
    .await;
}

pub(super) fn zrandmember(call: &mut Call<'_>) -> Result<Flow, Refusal> {
    if call.count() == 2 {
        let reply = ReplyKind::Sorted(SortedReply::Drawn);
        return Ok(draw_one(call, Kind::SortedSet, reply));
    }
    let has_scores = call.count() == 4 && is_option(call.argument(3), "withscores");
    let most = if has_scores { i64::MAX / 2 } else { i64::MAX };
    let count = Count::of(call, most)?;
    if call.count() > 3 && !has_scores {
        return Err(SYNTAX.into());
    }
    let key = call.key().to_vec();
    Ok(call.task(move |mut core, output, protocol| async move {
        let mut attempts = Attempts::default();
        let read = loop {
            match read((&mut core, &output), &key, count).await {
                Err(TaskFailure::Engine(Error::CollectionVersion { .. })) => {
                    attempts.again(&mut core, &output, &[&key]).await;
                }
                read => break read,
            }
        };
        output.leave(&mut core);
        let to = (&output, protocol);
        match read {
            Ok(Read::All((pages, _held))) => {
                let all = gather(members(&pages), &core).await;
                write(all, (count, has_scores), &core, to).await;
            }
            Ok(Read::Drawn(drawn, _held)) => {
                let all = drawn.iter().map(|(member, score)| (&member[..], *score));
                let all = gather(all, &core).await;
                let count = Count::Distinct(all.len());
                write(all, (count, has_scores), &core, to).await;
            }
            Err(failure) => failure.write(&output, protocol),
        }
        core
    }))
}
