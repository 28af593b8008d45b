//! `HRANDFIELD` and `SRANDMEMBER`: fields of a hash or members of a set, drawn at random.

use std::collections::HashSet;

use farcore::{Answer, Core, Error, Operation, TreeGuard, TreeOp, TreeView};

use super::arguments::{integer, is_option};
use super::trees::{ReadPages, Step, entries, gather, length_of, read_all, send};
use super::{Call, Flow, Refusal, SYNTAX};
use crate::events::classes::EventClasses;
use crate::memory::Charge;
use crate::random::Numbers;
use crate::resp::{Protocol, Writer};
use crate::tasks::attempts::Attempts;
use crate::tasks::failure::TaskFailure;
use crate::tasks::output::TaskOutput;
use crate::types::element::{Entry, entry_of};
use crate::types::hash::reply::HashReply;
use crate::types::kind::Kind;
use crate::types::replies::ReplyKind;
use crate::types::set::reply::SetReply;

type Result = std::result::Result<Flow, Refusal>;

/// A command that draws less than this share of all elements reads those alone.
pub(super) const SHARE_OF_ALL: u64 = 4;
/// Elements that are read by their ranks at once.
pub(super) const RANKS_AT_ONCE: usize = 64;
/// Bytes that an element that was drawn takes beside its own: where it is kept, its rank, and that
/// among those that are drawn already.
pub(super) const BESIDE_DRAWN: usize =
    2 * (size_of::<Vec<u8>>() + 16) + size_of::<Entry<'_>>() + 32;

/// Elements that one command draws, each of all, at most: a reply of more has no end in practice.
const DRAWN_MAX: u64 = 1 << 24;

/// The refusal of the one count that has no opposite.
const OUT_OF_RANGE: &str = "ERR value is out of range, value must between -9223372036854775807 and \
                            9223372036854775807";

/// How many elements are drawn.
#[derive(Clone, Copy)]
pub(super) enum Count {
    /// This many, each once; or all.
    Distinct(usize),
    /// This many, each of all.
    Any(u64),
}

impl Count {
    /// The third argument, from `-most` to `most`. Below 0 [`DRAWN_MAX`] limits it too.
    pub(super) fn of(call: &Call<'_>, most: i64) -> std::result::Result<Self, Refusal> {
        let count = integer(call.argument(2))?;
        if count == i64::MIN {
            return Err(OUT_OF_RANGE.into());
        }
        if !(-most..=most).contains(&count) {
            return Err("ERR value is out of range".into());
        }
        Ok(match usize::try_from(count) {
            Ok(count) => Self::Distinct(count),
            Err(_) if count.unsigned_abs() > DRAWN_MAX => {
                let text = format!(
                    "ERR value is out of range: at most {DRAWN_MAX} elements are drawn at once, write -{DRAWN_MAX} or more"
                );
                return Err(Refusal(text));
            }
            Err(_) => Self::Any(count.unsigned_abs()),
        })
    }

    /// The number of elements that are wanted.
    pub(super) fn number(self) -> u64 {
        match self {
            Self::Distinct(count) => count as u64,
            Self::Any(count) => count,
        }
    }
}

/// What is drawn.
#[derive(Clone, Copy)]
struct Draw {
    count: Count,
    /// Fields come with their values.
    has_values: bool,
}

impl Draw {
    /// Draws elements of some and writes them.
    async fn write(
        self,
        mut all: Vec<Entry<'_>>,
        core: &Core,
        (output, protocol): (&TaskOutput, Protocol),
    ) {
        let (count, is_distinct) = match self.count {
            Count::Distinct(count) => (count.min(all.len()) as u64, true),
            Count::Any(_) if all.is_empty() => (0, false),
            Count::Any(count) => (count, false),
        };
        let is_flat = self.has_values && protocol == Protocol::Resp2;
        let replies = count.saturating_mul(if is_flat { 2 } else { 1 });
        output.write(|bytes| {
            Writer::new(bytes, protocol).array(usize::try_from(replies).unwrap_or(usize::MAX));
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
        send(drawn, core, (output, protocol), |writer, entry| {
            self.write_one(entry, writer);
        })
        .await;
    }

    fn write_one(self, (name, value): Entry<'_>, writer: &mut Writer<'_>) {
        if self.has_values && writer.protocol() == Protocol::Resp3 {
            writer.array(2);
        }
        writer.bulk(name);
        if self.has_values {
            writer.bulk(value);
        }
    }
}

/// Elements that were drawn, as the tree has them.
type Drawn = Vec<(Vec<u8>, Vec<u8>)>;

/// What was read of a tree.
enum Read {
    /// All of it.
    All(ReadPages),
    /// What was drawn, and the memory that it is charged for.
    Drawn(Drawn, Charge),
}

impl Draw {
    /// Starts a draw of the elements of the first key's tree.
    fn start(self, call: &mut Call<'_>, kind: Kind) -> Flow {
        let key = call.key().to_vec();
        call.task(move |mut core, output, protocol| async move {
            let mut attempts = Attempts::default();
            let read = loop {
                match self.read((&mut core, &output), (kind, &key)).await {
                    Err(TaskFailure::Engine(Error::CollectionVersion { .. })) => {
                        attempts.again(&mut core, &output, &[&key]).await;
                    }
                    read => break read,
                }
            };
            output.leave(&mut core);
            match read {
                Ok(Read::All((pages, _held))) => {
                    let all = gather(entries(&pages), &core).await;
                    self.write(all, &core, (&output, protocol)).await;
                }
                Ok(Read::Drawn(drawn, _held)) => {
                    let all = drawn.iter().map(|(key, value)| (&key[..], &value[..]));
                    let all = gather(all.filter_map(entry_of), &core).await;
                    let count = Count::Distinct(all.len());
                    let draw = Self { count, ..self };
                    draw.write(all, &core, (&output, protocol)).await;
                }
                Err(failure) => failure.write(&output, protocol),
            }
            core
        })
    }

    /// Reads what is drawn; or all elements, if many are drawn.
    async fn read(
        self,
        (core, output): Step<'_>,
        (kind, key): (Kind, &[u8]),
    ) -> std::result::Result<Read, TaskFailure> {
        let length = length_of(core, kind, key).await?;
        if length.version == 0 {
            output.notify(EventClasses::MISSED, "keymiss", key);
        }
        let count = self.count.number();
        let is_few = count.saturating_mul(SHARE_OF_ALL) < length.elements;
        if !is_few {
            let read = read_all((core, output), (kind, key), &length).await?;
            return Ok(Read::All(read));
        }
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let mean = usize::try_from(length.bytes / length.elements).unwrap_or(usize::MAX);
        let mut held = output
            .hold_when_free(core, count.saturating_mul(mean + BESIDE_DRAWN))
            .await?;
        let ranks = ranks(core, self.count, (count, length.elements)).await;
        let (mut drawn, mut bytes) = (Drawn::new(), 0);
        let guard = TreeGuard {
            tag: kind.tag(),
            version: Some(length.version),
        };
        for some in ranks.chunks(RANKS_AT_ONCE) {
            let operations = some.iter().map(|&rank| {
                let op = TreeOp::RangeByRank {
                    start: rank,
                    end: rank + 1,
                    reverse: false,
                    limit: 1,
                };
                Operation::Tree { key, op, guard }
            });
            let (mut failed, before) = (None, bytes);
            core.many(operations, |_, answer| match answer {
                Answer::Failed(error) => failed = Some(error.clone()),
                answer => {
                    let elements = TreeView::of(&answer).elements();
                    drawn.extend(elements.map(|(key, value)| {
                        bytes += key.len() + value.len() + BESIDE_DRAWN;
                        (key.to_vec(), value.to_vec())
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
}

/// Ranks below the count of all elements, which are drawn.
pub(super) async fn ranks(core: &Core, wanted: Count, (count, elements): (usize, u64)) -> Vec<u64> {
    let mut numbers = Numbers::new();
    let all = usize::try_from(elements).unwrap_or(usize::MAX);
    let mut known = HashSet::new();
    let is_distinct = matches!(wanted, Count::Distinct(_));
    if is_distinct {
        known.reserve(count);
    }
    let drawn = std::iter::repeat_with(|| numbers.below(all) as u64);
    // Few of all: most are new.
    let drawn = drawn.filter(|&rank| !is_distinct || known.insert(rank));
    gather(drawn.take(count), core).await
}

/// Requests one element, which is not in an array.
pub(super) fn draw_one(call: &mut Call<'_>, kind: Kind, reply: ReplyKind) -> Flow {
    let op = TreeOp::Draw {
        random: Numbers::new().word(),
        removes: false,
    };
    call.request(reply, kind.operation(call.key(), op))
}

pub(super) fn hrandfield(call: &mut Call<'_>) -> Result {
    if call.count() == 2 {
        let reply = ReplyKind::Hash(HashReply::Drawn);
        return Ok(draw_one(call, Kind::Hash, reply));
    }
    let has_values = call.count() == 4 && is_option(call.argument(3), "withvalues");
    let most = if has_values { i64::MAX / 2 } else { i64::MAX };
    let count = Count::of(call, most)?;
    if call.count() > 3 && !has_values {
        return Err(SYNTAX.into());
    }
    let draw = Draw { count, has_values };
    Ok(draw.start(call, Kind::Hash))
}

pub(super) fn srandmember(call: &mut Call<'_>) -> Result {
    if call.count() > 3 {
        return Err(SYNTAX.into());
    }
    if call.count() == 2 {
        let reply = ReplyKind::Set(SetReply::Drawn);
        return Ok(draw_one(call, Kind::Set, reply));
    }
    let count = Count::of(call, i64::MAX)?;
    let has_values = false;
    let draw = Draw { count, has_values };
    Ok(draw.start(call, Kind::Set))
}
