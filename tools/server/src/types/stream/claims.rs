//! What hands pending entries to other consumers.

use farcore::{TreeMap, TreeOutcome, TreeStop};

use super::deliveries::no_such;
use super::id::StreamId;
use super::input::{Answering, Given, deeds};
use super::layout::Pending;
use super::state::{OpenGroup, PAGE_BYTES, Stream, write_id};

type Ran = Result<TreeOutcome, TreeStop>;

/// Who claims what.
struct Claim<'a> {
    consumer: &'a [u8],
    now_ms: u64,
    /// How long ago it was delivered, at least.
    idle_ms: u64,
    /// The reply has IDs alone, and deliveries are not counted.
    only_ids: bool,
    /// When it counts as delivered.
    delivered_ms: u64,
    /// Deliveries that it has then, if they are given.
    deliveries: Option<u64>,
    /// What is not pending is, then.
    forces: bool,
    /// The consumer's number, once it is known.
    number: Option<u32>,
}

/// What has become of an ID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Claimed {
    Done,
    /// It stays where it is.
    Not,
    /// It has no entry any more, and is pending no more.
    Gone,
}

impl Claim<'_> {
    fn run(
        &mut self,
        stream: &mut Stream<'_, '_>,
        open: &mut OpenGroup,
        id: StreamId,
        answer: &mut Answering<'_>,
    ) -> Result<Claimed, TreeStop> {
        let group = open.group.number;
        let before = stream.pending(group, id)?;
        if !stream.has_entry(id)? {
            let Some(was) = before else {
                return Ok(Claimed::Not);
            };
            stream.end_pending(group, id, was)?;
            return Ok(Claimed::Gone);
        }
        let is_due = match before {
            Some(before) => self.now_ms.saturating_sub(before.delivered_ms) >= self.idle_ms,
            None => self.forces,
        };
        if !is_due {
            return Ok(Claimed::Not);
        }
        let consumer = match self.number {
            Some(consumer) => consumer,
            None => {
                let seen = stream.see_consumer(open, self.consumer, self.now_ms)?;
                let (consumer, is_new) = seen;
                if is_new {
                    answer.did(deeds::CONSUMER);
                }
                *self.number.insert(consumer)
            }
        };
        // What was not pending counts as delivered once.
        let counted = before.map_or(1, |before| before.deliveries);
        let deliveries = match self.deliveries {
            Some(deliveries) => deliveries,
            None => counted + u64::from(!self.only_ids),
        };
        let pending = Pending {
            consumer,
            delivered_ms: self.delivered_ms,
            deliveries,
        };
        stream.set_pending((group, id), before, pending)?;
        if self.only_ids {
            write_id(id, answer);
        } else {
            stream.write_entry(id, answer)?;
        }
        Ok(Claimed::Done)
    }
}

/// Hands pending entries of IDs to a consumer, those from the first one on that one step can. The
/// ID of the answer says, as a number, how many IDs were looked at; the number how many the reply
/// has.
pub(super) fn claim(input: &[u8], map: &mut TreeMap<'_>, answer: &mut Vec<u8>) -> Ran {
    let mut given = Given::new(input);
    let mut answer = Answering::new(answer, &given);
    map.will_change_several();
    let (key, name) = (given.bytes(), given.bytes());
    let mut claim = Claim {
        consumer: given.bytes(),
        now_ms: given.number(),
        idle_ms: given.number(),
        only_ids: given.flag(),
        delivered_ms: given.number(),
        deliveries: given.flag().then(|| given.number()),
        forces: given.flag(),
        number: None,
    };
    let last_id = given.id();
    let Some((mut stream, mut open)) = Stream::open_with_group(map, name)? else {
        answer.fail(&no_such(key, name));
        return Ok(TreeOutcome::Answer);
    };
    open.group.last_id = open.group.last_id.max(last_id);
    let (mut looked, mut count) = (0, 0);
    while !given.is_empty() {
        if looked > 0 && (stream.map.is_spent() || answer.len() > PAGE_BYTES) {
            break;
        }
        let id = given.id();
        looked += 1;
        let claimed = claim.run(&mut stream, &mut open, id, &mut answer)?;
        count += u64::from(claimed == Claimed::Done);
    }
    stream.save_group(&mut open)?;
    answer.number(count);
    answer.id(StreamId {
        ms: looked,
        number: 0,
    });
    Ok(TreeOutcome::Answer)
}

/// Hands pending entries to a consumer, from an ID on, as many as one step can. The number of the
/// answer is how many they are. The ID is the next one that is pending, 0-0 if there is none. The
/// reply has all three parts of Redis's.
pub(super) fn claim_due(input: &[u8], map: &mut TreeMap<'_>, answer: &mut Vec<u8>) -> Ran {
    let mut given = Given::new(input);
    let mut answer = Answering::new(answer, &given);
    map.will_change_several();
    let (key, name) = (given.bytes(), given.bytes());
    let consumer = given.bytes();
    let (now_ms, idle_ms) = (given.number(), given.number());
    let mut claim = Claim {
        consumer,
        now_ms,
        idle_ms,
        only_ids: given.flag(),
        delivered_ms: now_ms,
        deliveries: None,
        forces: false,
        number: None,
    };
    let (from, most) = (given.id(), given.number());
    let Some((mut stream, mut open)) = Stream::open_with_group(map, name)? else {
        answer.fail(&no_such(key, name));
        return Ok(TreeOutcome::Answer);
    };
    let group = open.group.number;
    // Redis looks at ten times as many as it claims.
    let looks = usize::try_from(most.saturating_mul(10)).unwrap_or(usize::MAX);
    let looks = looks.min(LOOKED_AT_ONCE);
    let owner = (group, None);
    let (ids, _) = stream.pending_ids(owner, (from, StreamId::LAST), looks)?;
    let (mut claimed, mut gone, mut last) = (0, Vec::new(), None);
    for id in ids {
        let is_full = stream.map.is_spent() || answer.len() > PAGE_BYTES;
        if claimed + gone.len() as u64 == most || (last.is_some() && is_full) {
            break;
        }
        match claim.run(&mut stream, &mut open, id, &mut answer)? {
            Claimed::Done => claimed += 1,
            Claimed::Gone => gone.push(id),
            Claimed::Not => {}
        }
        last = Some(id);
    }
    let next = match last {
        // No look at anything: there is nothing, or a limit of zero.
        None => Some(from),
        Some(last) => last.next(),
    };
    let next = match next {
        Some(next) => stream.pending_ids(owner, (next, StreamId::LAST), 1)?.0,
        None => Vec::new(),
    };
    let next = next.first().copied().unwrap_or(StreamId::FIRST);
    stream.save_group(&mut open)?;
    answer.number(claimed);
    answer.id(next);
    answer.wrap(next, claimed, &gone);
    Ok(TreeOutcome::Answer)
}

/// Pending IDs that one step looks at.
const LOOKED_AT_ONCE: usize = 128;
