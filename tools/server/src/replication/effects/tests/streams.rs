//! Random programs of streams, and a stream's map as Redis reports streams.

use std::collections::BTreeMap;

use farcore::TreeOp;

use super::beside_redis;
use super::redis::{Redis, Reply};
use super::source::{Element, Source};
use crate::random::Numbers;
use crate::resp::Protocol;
use crate::types::stream::entries::{Trim, TrimTo};
use crate::types::stream::id::StreamId;
use crate::types::stream::input::{Answered, Input, deeds};
use crate::types::stream::layout::put_texts;
use crate::types::stream::programs::StreamProgram;
use crate::types::stream::stored;

/// A time that has passed, in milliseconds since 1970.
const NOW_MS: u64 = 1_700_000_000_000;

/// What a group is.
#[derive(PartialEq, Eq, Debug)]
struct Group {
    last_id: String,
    entries_read: Option<u64>,
    /// IDs, with their consumer, when they were delivered, and how often.
    pending: Vec<(String, Vec<u8>, u64, u64)>,
    consumers: BTreeMap<Vec<u8>, Vec<String>>,
}

/// What a stream is.
#[derive(PartialEq, Eq, Debug)]
struct Report {
    last_id: String,
    max_deleted: String,
    added: u64,
    entries: Vec<(String, Vec<Vec<u8>>)>,
    groups: BTreeMap<Vec<u8>, Group>,
}

/// Elements of a kind.
fn of_kind(source: &Source, kind: u8) -> impl Iterator<Item = &Element> {
    let elements = source.elements.iter();
    elements.filter(move |(key, _)| key[0] == kind)
}

impl Group {
    fn of_source(source: &Source, (key, value): (&[u8], &[u8])) -> (Vec<u8>, Self) {
        let of_group = |kind: u8, group: u32| {
            of_kind(source, kind).filter(move |(key, _)| key[1..5] == group.to_be_bytes())
        };
        let group = stored::group((key, value));
        let names = of_group(5, group.number);
        let names: BTreeMap<_, _> = names
            .map(|(key, value)| stored::name((key, value)))
            .map(|(name, number)| (number, name))
            .collect();
        let owned: Vec<_> = of_group(3, group.number)
            .map(|(key, _)| {
                let consumer = key[5..9].try_into().expect("a number");
                (
                    stored::owned(key),
                    names[&u32::from_be_bytes(consumer)].clone(),
                )
            })
            .collect();
        let mut consumers: BTreeMap<_, _> = names
            .values()
            .map(|name| (name.clone(), Vec::new()))
            .collect();
        for (id, name) in &owned {
            consumers
                .entry(name.clone())
                .or_default()
                .push(id.to_string());
        }
        let owners: BTreeMap<_, _> = owned.into_iter().collect();
        let pending = of_group(2, group.number).map(|(key, value)| {
            let (id, delivered_ms, deliveries) = stored::pending((key, value));
            (
                id.to_string(),
                owners[&id].clone(),
                delivered_ms,
                deliveries,
            )
        });
        let is = Self {
            last_id: group.last_id.to_string(),
            entries_read: group.entries_read,
            pending: pending.collect(),
            consumers,
        };
        (group.name, is)
    }
}

impl Report {
    fn of_source(source: &Source) -> Self {
        let (_, header) = of_kind(source, 0).next().expect("a header");
        let (last_id, max_deleted, removed) = stored::header(header);
        let entries: Vec<_> = of_kind(source, 9)
            .map(|(key, value)| {
                let (id, texts) = stored::entry((key, value));
                (id, texts.map(<[u8]>::to_vec).collect())
            })
            .collect();
        let top = entries.last().map_or(StreamId::FIRST, |(id, _)| *id);
        let groups = of_kind(source, 1).map(|(key, value)| Group::of_source(source, (key, value)));
        Self {
            last_id: last_id.max(top).to_string(),
            max_deleted: max_deleted.to_string(),
            added: removed + entries.len() as u64,
            groups: groups.collect(),
            entries: (entries.into_iter())
                .map(|(id, texts)| (id.to_string(), texts))
                .collect(),
        }
    }

    fn of_redis(reply: &Reply) -> Self {
        let bytes = |one: &Reply| one.bytes().to_vec();
        let text = |one: &Reply| one.text().to_owned();
        let entries = reply.field("entries").list().iter().map(|entry| {
            let texts = entry.list()[1].list();
            (text(&entry.list()[0]), texts.iter().map(bytes).collect())
        });
        let groups = reply.field("groups").list().iter().map(|group| {
            let pending = group.field("pending").list().iter().map(|one| {
                let [id, consumer, delivered_ms, deliveries] = one.list() else {
                    panic!("{one:?}");
                };
                let numbers = (delivered_ms.number(), deliveries.number());
                (text(id), bytes(consumer), numbers.0, numbers.1)
            });
            let consumers = group.field("consumers").list().iter().map(|one| {
                let ids = one.field("pending").list().iter();
                let ids = ids.map(|id| text(&id.list()[0])).collect();
                (bytes(one.field("name")), ids)
            });
            let is = Group {
                last_id: text(group.field("last-delivered-id")),
                entries_read: match group.field("entries-read") {
                    Reply::Nothing => None,
                    read => Some(read.number()),
                },
                pending: pending.collect(),
                consumers: consumers.collect(),
            };
            (bytes(group.field("name")), is)
        });
        Self {
            last_id: text(reply.field("last-generated-id")),
            max_deleted: text(reply.field("max-deleted-entry-id")),
            added: reply.field("entries-added").number(),
            entries: entries.collect(),
            groups: groups.collect(),
        }
    }
}

/// Compares a stream with that of Redis.
pub(super) fn compare(source: &Source, redis: &mut Redis, of: &str) {
    let found = redis.send(&[b"XINFO", b"STREAM", &source.key, b"FULL", b"COUNT", b"0"]);
    if source.elements.is_empty() {
        assert!(matches!(found, Reply::Error(_)), "{of}");
        return;
    }
    assert_eq!(Report::of_redis(&found), Report::of_source(source), "{of}");
}

/// An ID that an entry has or had, if there is any.
fn known_id(source: &Source, numbers: &mut Numbers) -> StreamId {
    let elements = source.elements.iter();
    let elements: Vec<_> = elements
        .filter(|(key, _)| matches!(key[0], 2 | 9))
        .collect();
    match elements.get(numbers.below(elements.len())) {
        Some((key, _)) => stored::owned(key),
        None => StreamId::FIRST,
    }
}

/// Any ID, most often a known one.
fn id(source: &Source, numbers: &mut Numbers) -> StreamId {
    match numbers.below(4) {
        0 => StreamId {
            ms: 1 + numbers.below(60) as u64,
            number: numbers.below(3) as u64,
        },
        _ => known_id(source, numbers),
    }
}

fn trim(source: &Source, numbers: &mut Numbers) -> Trim {
    Trim {
        to: match numbers.below(2) {
            0 => TrimTo::Length(1 + numbers.below(60) as u64),
            _ => TrimTo::From(known_id(source, numbers)),
        },
        node_entries: Some(5).filter(|_| numbers.below(2) == 0),
        limit: 0,
    }
}

/// A number that an input may have.
fn optional(number: Option<u64>, input: Input) -> Input {
    match number {
        Some(number) => input.flag(true).number(number),
        None => input.flag(false),
    }
}

/// Runs a random program on a stream of few groups and consumers.
#[expect(clippy::too_many_lines, reason = "one arm per program")]
pub(super) async fn step(source: &mut Source, redis: &mut Redis, numbers: &mut Numbers) {
    let names: [&[u8]; 3] = [b"one", b"", b"three"];
    let (group, consumer) = (names[numbers.below(3)], names[numbers.below(3)]);
    let now_ms = NOW_MS + numbers.below(1000) as u64;
    let key = source.key.clone();
    let input = || Input::new(Protocol::Resp2);
    let of_consumer = || {
        input()
            .bytes(&key)
            .bytes(group)
            .bytes(consumer)
            .number(now_ms)
    };
    let (program, input) = match numbers.below(40) {
        0..14 => {
            let input = match numbers.below(3) {
                0 => input().number(0).id(id(source, numbers)),
                _ => input().number(2).number(id(source, numbers).ms),
            };
            let trim = Some(trim(source, numbers)).filter(|_| numbers.below(8) == 0);
            let input = Trim::put(trim, input.flag(numbers.below(4) > 0));
            let texts = (0..2 + 2 * numbers.below(3)).map(|_| names[numbers.below(3)]);
            let texts: Vec<_> = texts.collect();
            let input = input.rest(|rest| put_texts(texts.into_iter(), rest));
            (StreamProgram::Add, input)
        }
        14..18 => {
            let input =
                (0..=numbers.below(3)).fold(input(), |input, _| input.id(id(source, numbers)));
            (StreamProgram::Delete, input)
        }
        18 => (
            StreamProgram::Trim,
            Trim::put(Some(trim(source, numbers)), input()),
        ),
        19 => {
            let header = source.elements.first();
            let (last, max, _) =
                header.map_or_else(Default::default, |(_, header)| stored::header(header));
            let entries = source
                .elements
                .last()
                .map_or(StreamId::FIRST, |(key, _)| stored::owned(key));
            let last = last.max(max).max(entries).next().expect("an ID");
            let max = [StreamId::FIRST, known_id(source, numbers)][numbers.below(2)];
            let input = input().id(last).id(max).flag(numbers.below(2) == 0);
            (
                StreamProgram::SetId,
                input.number(60 + numbers.below(90) as u64),
            )
        }
        20..23 => {
            let input = input().bytes(group).flag(true);
            let input = input.flag(numbers.below(2) == 0).id(id(source, numbers));
            let input = optional(Some(3).filter(|_| numbers.below(2) == 0), input);
            (StreamProgram::GroupCreate, input)
        }
        23 => {
            let input = input().bytes(group).bytes(&key);
            let input = input.flag(numbers.below(2) == 0).id(id(source, numbers));
            let input = optional(Some(5).filter(|_| numbers.below(2) == 0), input);
            (StreamProgram::GroupSetId, input)
        }
        24 if numbers.below(3) == 0 => {
            let input = input().bytes(group);
            let destroyed = run(source, redis, StreamProgram::GroupDestroy, input).await;
            let destroyed = Answered::of(&destroyed);
            if !destroyed.did(deeds::DONE) {
                return;
            }
            let number = destroyed.number();
            let input = Input::new(Protocol::Resp2).number(number);
            (StreamProgram::GroupForget, input)
        }
        24 | 25 => {
            let input = input().bytes(group).bytes(&key).bytes(consumer);
            (StreamProgram::ConsumerCreate, input.number(now_ms))
        }
        26 if numbers.below(2) == 0 => {
            let input = input().bytes(group).bytes(&key).bytes(consumer);
            (StreamProgram::ConsumerDelete, input)
        }
        26..32 => {
            let most = 1 + numbers.below(80) as u64;
            let input = of_consumer().number(most).flag(numbers.below(4) > 0);
            (StreamProgram::Read, input)
        }
        32 | 33 => {
            let input = of_consumer().number(1 + numbers.below(4) as u64);
            (StreamProgram::ReadAgain, input.id(id(source, numbers)))
        }
        34 | 35 => {
            let begin = input().bytes(group);
            let input =
                (0..=numbers.below(3)).fold(begin, |input, _| input.id(id(source, numbers)));
            (StreamProgram::Acknowledge, input)
        }
        36 | 37 => {
            let idle_ms = numbers.below(600) as u64;
            let input = of_consumer().number(idle_ms).flag(numbers.below(2) == 0);
            let input = input.number(now_ms - 7);
            let input = optional(Some(4).filter(|_| numbers.below(2) == 0), input);
            let input = input.flag(numbers.below(2) == 0);
            let last = [StreamId::FIRST, id(source, numbers)][numbers.below(2)];
            let begin = input.id(last);
            let input =
                (0..=numbers.below(4)).fold(begin, |input, _| input.id(id(source, numbers)));
            (StreamProgram::Claim, input)
        }
        _ => {
            let input = of_consumer().number(numbers.below(600) as u64);
            let input = input.flag(numbers.below(2) == 0).id(id(source, numbers));
            (
                StreamProgram::ClaimDue,
                input.number(1 + numbers.below(5) as u64),
            )
        }
    };
    run(source, redis, program, input).await;
}

/// Runs a program; returns its answer.
async fn run(
    source: &mut Source,
    redis: &mut Redis,
    program: StreamProgram,
    input: Input,
) -> Vec<u8> {
    let op = TreeOp::Run {
        program: program as u8,
        mode: program.mode(),
        input: input.encoded(),
    };
    beside_redis::step(source, redis, op).await
}
