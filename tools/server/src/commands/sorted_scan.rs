//! `ZSCAN`: a sorted set page by page.
//!
//! Redis lists a small one at once, and so does this. The members of a longer one are listed in the
//! order of their places, which do not change with their scores (`farcore::TreeOp::ScoreScan`), and
//! a cursor is the place that comes next.
//!
//! - I1: a member that is there from the first page to the last is listed once.

use farcore::{Core, TreeOp, TreeView};

use super::element_scan::{PageEnd, Scan};
use super::sorted_trees::{members, read_members, send_members};
use super::trees::{Step, ask, gather, length_of, size_of_page};
use super::{Call, Flow, Refusal};
use crate::events::classes::EventClasses;
use crate::glob;
use crate::memory::Charge;
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::failure::TaskFailure;
use crate::tasks::output::TaskOutput;
use crate::types::encoding_limits::SKIPLIST;
use crate::types::kind::Kind;
use crate::types::sorted::member::is_digest;
use crate::types::sorted::reply::Scored;

/// Bytes that a member takes beside its own while a page is gathered.
const BESIDE_MEMBER: usize = size_of::<(Vec<u8>, f64)>() + size_of::<Scored<'_>>() + 16;

/// Members of a page, and their scores.
type Members = Vec<(Vec<u8>, f64)>;

/// Lists a page of the sorted set of a key; an error comes before anything is written.
async fn list(
    scan: &Scan,
    key: &[u8],
    core: &mut Core,
    (output, protocol): (&TaskOutput, Protocol),
) -> Result<(), TaskFailure> {
    let length = length_of(core, Kind::SortedSet, key).await?;
    if length.version == 0 {
        output.notify(EventClasses::MISSED, "keymiss", key);
    } else if let Some(Refusal(text)) = &scan.refusal {
        return Err(text.as_str().into());
    }
    let limits = &output.shared().encoding_limits;
    if limits.may_be_compact(Kind::SortedSet, &length) {
        match read_members((&mut *core, output), key, &length).await {
            Ok((pages, _held)) => {
                let names = members(&pages).map(|(member, _)| member);
                if limits.sorted_encoding(names) != SKIPLIST {
                    let all = gather(members(&pages), core).await;
                    write(scan, (all, None), core, (output, protocol)).await;
                    return Ok(());
                }
            }
            // It is listed page by page.
            Err(TaskFailure::Engine(farcore::Error::CollectionVersion { .. })) => {}
            Err(failure) => return Err(failure),
        }
    }
    let mut held = output.hold(0);
    let (page, next) = read_page(scan, key, (core, output), &mut held).await?;
    let all = page.iter().map(|(member, score)| (&member[..], *score));
    let all = gather(all, core).await;
    write(scan, (all, Some(next)), core, (output, protocol)).await;
    Ok(())
}

/// Reads a page, and the next cursor.
async fn read_page(
    scan: &Scan,
    key: &[u8],
    (core, output): Step<'_>,
    held: &mut Charge,
) -> Result<(Members, u64), TaskFailure> {
    let (mut found, mut end) = (Members::new(), PageEnd::after(scan.count));
    let mut from = scan.cursor;
    loop {
        // One more says where the next page begins.
        let wanted = (scan.count + 1).saturating_sub(found.len()).max(2);
        let limit = u32::try_from(wanted).unwrap_or(u32::MAX);
        let mut tree = core.tree(key).tagged(Kind::SortedSet.tag());
        let page = tree.score_scan(from, limit).await?;
        let (count, bytes) = size_of_page(&page);
        held.grow_to(held.bytes() + bytes + count * BESIDE_MEMBER)?;
        output.end_read(core, (count, bytes)).await?;
        let last = page.placed().last().map(|(_, place, _)| place);
        // Members of one place may be on two pages of the engine: all are read again.
        let is_cut = |place| {
            page.has_more()
                && Some(place) == last
                && page.placed().any(|(_, other, _)| other != place)
        };
        let (mut next, mut listed) = (None, Vec::new());
        for (member, place, score) in page.placed() {
            if is_cut(place) || !end.takes(place) {
                next = Some(place);
                break;
            }
            listed.push((member, score));
        }
        for (member, score) in listed {
            if !is_digest(member) {
                found.push((member.to_vec(), score));
                continue;
            }
            let op = TreeOp::ScoredValue { member };
            let read = ask(core, Kind::SortedSet.operation(key, op), |answer| {
                let found = TreeView::of(answer).scored_value();
                found.map(|(score, value)| (value.to_vec(), score))
            });
            // Else it was removed meanwhile.
            if let Some((member, score)) = read.await? {
                held.grow_to(held.bytes() + member.len())?;
                output.end_read(core, (1, member.len())).await?;
                found.push((member, score));
            }
        }
        match next {
            Some(place) if end.is_full() => return Ok((found, place)),
            Some(place) => from = place,
            None if page.has_more() && last.is_some() => from = last.unwrap_or(0) + 1,
            None => return Ok((found, 0)),
        }
    }
}

/// The integer that a score is, if it is one of not too many digits.
fn integer_of(score: f64) -> Option<i64> {
    const MOST: f64 = (i64::MAX / 2) as f64;
    #[expect(clippy::cast_possible_truncation, reason = "it is compared")]
    let integer = score as i64;
    #[expect(clippy::cast_precision_loss, reason = "it is compared")]
    let is_one = score.abs() <= MOST && integer as f64 == score;
    is_one.then_some(integer)
}

/// Writes the members of a page that match the pattern, as the client takes them; of a small set,
/// which has no next cursor, scores as Redis keeps them there.
async fn write(
    scan: &Scan,
    (mut members, next): (Vec<Scored<'_>>, Option<u64>),
    core: &Core,
    (output, protocol): (&TaskOutput, Protocol),
) {
    if let Some(pattern) = &scan.pattern {
        let mut kept = 0;
        for place in 0..members.len() {
            steps::end_slice(core).await;
            if glob::matches(pattern, members[place].0) {
                members.swap(kept, place);
                kept += 1;
            }
        }
        members.truncate(kept);
    }
    output.write(|bytes| {
        let mut writer = Writer::new(bytes, protocol);
        writer.array(2);
        writer.bulk(next.unwrap_or(0).to_string().as_bytes());
        writer.array(2 * members.len());
    });
    let to = (output, protocol);
    send_members(members.into_iter(), core, to, |writer, (member, score)| {
        writer.bulk(member);
        // As Redis, also in RESP3.
        match integer_of(score).filter(|_| next.is_none()) {
            Some(integer) => writer.bulk_integer(integer),
            None => writer.bulk_score(score),
        }
    })
    .await;
}

pub(super) fn zscan(call: &mut Call<'_>) -> Result<Flow, Refusal> {
    let scan = Scan::of(call, Kind::SortedSet)?;
    let key = call.key().to_vec();
    Ok(call.task(move |mut core, output, protocol| async move {
        let listed = list(&scan, &key, &mut core, (&output, protocol));
        if let Err(failure) = listed.await {
            failure.write(&output, protocol);
        }
        core
    }))
}
