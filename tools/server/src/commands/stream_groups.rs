//! Commands of a stream's groups: what they are, what is pending, and who has it.

use super::arguments::{integer, is_option};
use super::command::Subcommand;
use super::streams::{
    LookFirst, finish_reply, id, ids, notify, read_range, refuse_after, run, run_on_ids,
    stream_task, write_entries,
};
use super::trees::{Step, finish};
use super::{Call, Flow, Refusal, SYNTAX};
use crate::databases::shown_key;
use crate::events::classes::EventClasses;
use crate::resp::{Protocol, Writer};
use crate::tasks::failure::TaskFailure;
use crate::tasks::output::TaskOutput;
use crate::types::stream::deliveries::{PendingForm, no_such};
use crate::types::stream::groups::{NO_KEY, no_group};
use crate::types::stream::id::StreamId;
use crate::types::stream::input::{Answered, Input, deeds};
use crate::types::stream::programs::StreamProgram;
use crate::types::stream::reply::StreamReply;
use crate::types::stream::reports::ConsumerForm;
use crate::waits::key_queues::Awaited;

type Result = std::result::Result<Flow, Refusal>;

/// IDs that one step claims.
const CLAIMED_AT_ONCE: usize = 8;
/// Pending entries that are claimed at most, unless it is said how many; as Redis.
const CLAIMED: u64 = 100;
/// Entries and pending IDs of the long report, unless it is said how many; as Redis.
const REPORTED: u64 = 10;

pub(super) const XGROUP: &[Subcommand] = &[
    Subcommand::of_key("create", -5, create),
    Subcommand::of_key("createconsumer", 5, create_consumer),
    Subcommand::of_key("delconsumer", 5, delete_consumer),
    Subcommand::of_key("destroy", 4, destroy),
    Subcommand::of_key("setid", -5, set_id),
];

pub(super) const XINFO: &[Subcommand] = &[
    Subcommand::of_key("consumers", 4, consumers_info),
    Subcommand::of_key("groups", 3, groups_info),
    Subcommand::of_key("stream", -3, stream_info),
];

fn now_ms() -> u64 {
    farcore_tuning::system_ms()
}

/// The ID of a group that an argument gives, for an input: `$` is the last one.
fn group_id(text: &[u8], input: Input) -> std::result::Result<Input, Refusal> {
    Ok(match text {
        b"$" => input.flag(true).id(StreamId::FIRST),
        text => input.flag(false).id(id(text)?),
    })
}

/// How many entries a group has read, for an input.
fn put_read(read: Option<u64>, input: Input) -> Input {
    match read {
        Some(read) => input.flag(true).number(read),
        None => input.flag(false),
    }
}

/// The words behind the ID: whether the stream is made, and how many entries were read.
fn group_words(
    call: &Call<'_>,
    may_make: bool,
) -> std::result::Result<(bool, Option<u64>), Refusal> {
    let (mut makes, mut read) = (false, None);
    let mut place = 5;
    while place < call.count() {
        let word = call.argument(place);
        if may_make && is_option(word, "mkstream") {
            makes = true;
            place += 1;
        } else if is_option(word, "entriesread") && place + 1 < call.count() {
            let number = integer(call.argument(place + 1))?;
            if number < -1 {
                return Err("ERR value for ENTRIESREAD must be positive or -1".into());
            }
            read = u64::try_from(number).ok();
            place += 2;
        } else {
            return Err(super::subcommand::too_many(call));
        }
    }
    Ok((makes, read))
}

fn create(call: &mut Call<'_>) -> Result {
    let (makes, read) = group_words(call, true)?;
    let input = Input::new(call.connection.protocol);
    let input = input.bytes(call.argument(3)).flag(makes);
    let input = match group_id(call.argument(4), input) {
        Ok(input) => put_read(read, input),
        Err(refusal) => {
            let absent = if makes {
                refusal.0.clone()
            } else {
                NO_KEY.to_owned()
            };
            let look = LookFirst::at_stream(call.key_at(2)).or(absent);
            return Ok(refuse_after(call, look, refusal));
        }
    };
    let event = Some("xgroup-create");
    Ok(stream_task(call, StreamProgram::GroupCreate, input, event))
}

fn set_id(call: &mut Call<'_>) -> Result {
    let (_, read) = group_words(call, false)?;
    let input = Input::new(call.connection.protocol);
    let input = input.bytes(call.argument(3)).bytes(call.argument(2));
    // Here the first and the last ID have names; as Redis.
    let named = match call.argument(4) {
        b"-" => Ok(input.flag(false).id(StreamId::FIRST)),
        b"+" => Ok(input.flag(false).id(StreamId::LAST)),
        text => group_id(text, input),
    };
    let input = match named {
        Ok(input) => put_read(read, input),
        Err(refusal) => {
            let absent = no_group(call.argument(3), call.argument(2));
            let look = LookFirst::at_group(call.key_at(2), call.argument(3));
            let look = look.or(absent).or_without_stream(NO_KEY);
            return Ok(refuse_after(call, look, refusal));
        }
    };
    let event = Some("xgroup-setid");
    Ok(stream_task(call, StreamProgram::GroupSetId, input, event))
}

fn create_consumer(call: &mut Call<'_>) -> Result {
    let input = Input::new(call.connection.protocol);
    let input = input.bytes(call.argument(3)).bytes(call.argument(2));
    let input = input.bytes(call.argument(4)).number(now_ms());
    Ok(stream_task(
        call,
        StreamProgram::ConsumerCreate,
        input,
        None,
    ))
}

fn destroy(call: &mut Call<'_>) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let input = Input::new(call.connection.protocol).bytes(call.argument(3));
    let key = call.key_at(2).to_vec();
    let readiness = call.readiness();
    Ok(call.task(move |mut core, output, protocol| async move {
        let ran = run(&mut core, &key, StreamProgram::GroupDestroy, &input).await;
        if let Ok(Some(reply)) = &ran
            && Answered::of(reply).did(deeds::DONE)
        {
            let group = Answered::of(reply).number();
            // The group is gone; what is left of it is in no client's way.
            let _ = forget((&mut core, &output), &key, (group, protocol)).await;
            output.notify(EventClasses::STREAM, "xgroup-destroy", &key);
            readiness.note(&core, Awaited::Stream, &key).await;
        }
        let ran = ran.map_err(TaskFailure::from).and_then(|ran| match ran {
            None => Err(TaskFailure::from(NO_KEY)),
            ran => Ok(ran),
        });
        finish_reply(&output, protocol, ran, StreamReply::Number);
        core
    }))
}

/// Removes what a group had, in as many steps as it takes.
async fn forget(
    (core, output): Step<'_>,
    key: &[u8],
    (group, protocol): (u64, Protocol),
) -> std::result::Result<(), TaskFailure> {
    let input = Input::new(protocol).number(group);
    while let Some(reply) = run(core, key, StreamProgram::GroupForget, &input).await?
        && Answered::of(&reply).has_more()
    {
        output.end_read(core, (1, 0)).await?;
    }
    Ok(())
}

fn delete_consumer(call: &mut Call<'_>) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let input = Input::new(call.connection.protocol);
    let input = input.bytes(call.argument(3)).bytes(call.argument(2));
    let input = input.bytes(call.argument(4));
    let key = call.key_at(2).to_vec();
    Ok(call.task(move |mut core, output, protocol| async move {
        let deleted = delete_all((&mut core, &output), &key, &input).await;
        if let Ok(Deleted::Done(_)) = deleted {
            output.notify(EventClasses::STREAM, "xgroup-delconsumer", &key);
        }
        finish(
            &output,
            protocol,
            deleted,
            |writer, deleted| match deleted {
                Deleted::Failed(reply) => writer.raw(Answered::of(&reply).reply()),
                Deleted::Nothing => writer.integer(0),
                Deleted::Done(count) => writer.integer(i64::try_from(count).unwrap_or(i64::MAX)),
            },
        );
        core
    }))
}

/// What has become of a consumer.
enum Deleted {
    Failed(Vec<u8>),
    Nothing,
    /// It is gone, with this many pending IDs.
    Done(u64),
}

async fn delete_all(
    (core, output): Step<'_>,
    key: &[u8],
    input: &Input,
) -> std::result::Result<Deleted, TaskFailure> {
    let (mut pending, mut is_done) = (0, false);
    loop {
        let reply = run(core, key, StreamProgram::ConsumerDelete, input).await?;
        let Some(reply) = reply else {
            return Err(NO_KEY.into());
        };
        let answered = Answered::of(&reply);
        if answered.did(deeds::FAILED) {
            return Ok(Deleted::Failed(reply));
        }
        is_done |= answered.did(deeds::DONE);
        pending += answered.number();
        if !answered.has_more() {
            return Ok(match is_done {
                true => Deleted::Done(pending),
                false => Deleted::Nothing,
            });
        }
        output.end_read(core, (1, 0)).await?;
    }
}

pub(super) fn xack(call: &mut Call<'_>) -> Result {
    let protocol = call.connection.protocol;
    let ids = match ids(call, 3) {
        Ok(ids) => ids,
        Err(refusal) => {
            let look = LookFirst::at_group(call.key(), call.argument(2));
            return Ok(refuse_after(call, look, refusal));
        }
    };
    let group = call.argument(2);
    if ids.len() == 1 && !call.connection.is_executing() && call.plan.is_none() {
        let input = Input::new(protocol).bytes(group).id(ids[0]);
        let program = StreamProgram::Acknowledge;
        return Ok(call.stream_request(program, &input, StreamReply::Number));
    }
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let (key, group) = (call.key().to_vec(), group.to_vec());
    Ok(call.task(move |mut core, output, protocol| async move {
        let step = (&mut core, &output);
        let begin = || Input::new(protocol).bytes(&group);
        let program = (StreamProgram::Acknowledge, &ids[..]);
        let ended = run_on_ids(step, &key, program, begin).await;
        finish(&output, protocol, ended, |writer, (ended, _)| {
            writer.integer(ended);
        });
        core
    }))
}

/// Replies of several steps, one after the other, and how many things they are.
#[derive(Debug, Default)]
struct Gathered {
    replies: Vec<u8>,
    count: u64,
}

impl Gathered {
    fn write(&self, writer: &mut Writer<'_>) {
        writer.array(usize::try_from(self.count).unwrap_or(usize::MAX));
        writer.raw(&self.replies);
    }

    /// Adds those of a page; the name behind which the next one begins.
    fn add_page(&mut self, answered: Answered<'_>) -> Option<Vec<u8>> {
        let (replies, behind) = answered.page();
        self.replies.extend_from_slice(replies);
        self.count += answered.number();
        behind.map(<[u8]>::to_vec)
    }
}

/// What a program has answered, if that is no error; an error is the whole reply.
fn checked(ran: Option<Vec<u8>>, absent: &str) -> std::result::Result<Vec<u8>, Ended> {
    match ran {
        None => Err(Ended::Failed(absent.into())),
        Some(reply) if Answered::of(&reply).did(deeds::FAILED) => {
            Err(Ended::Replied(Answered::of(&reply).reply().to_vec()))
        }
        Some(reply) => Ok(reply),
    }
}

/// How a report ends early.
enum Ended {
    Failed(TaskFailure),
    /// With the reply of a program, which is an error.
    Replied(Vec<u8>),
}

impl<F: Into<TaskFailure>> From<F> for Ended {
    fn from(failure: F) -> Self {
        Self::Failed(failure.into())
    }
}

/// Writes a reply, or why there is none.
fn finish_report(
    output: &TaskOutput,
    protocol: Protocol,
    report: std::result::Result<Vec<u8>, Ended>,
) {
    match report {
        Ok(reply) | Err(Ended::Replied(reply)) => {
            output.write(|bytes| bytes.extend_from_slice(&reply));
        }
        Err(Ended::Failed(failure)) => failure.write(output, protocol),
    }
}

const NO_STREAM: &str = "ERR no such key";

/// Gathers all pages of groups.
async fn groups(
    (core, output): Step<'_>,
    key: &[u8],
    (program, protocol): (StreamProgram, Protocol),
) -> std::result::Result<Gathered, Ended> {
    let mut gathered = Gathered::default();
    let mut behind: Option<Vec<u8>> = None;
    loop {
        let input = Input::new(protocol).flag(behind.is_some());
        let input = match &behind {
            Some(behind) => input.bytes(behind),
            None => input,
        };
        let page = run(core, key, program, &input).await?;
        let page = checked(page, NO_STREAM)?;
        behind = gathered.add_page(Answered::of(&page));
        output.end_read(core, (1, page.len())).await?;
        if behind.is_none() {
            return Ok(gathered);
        }
    }
}

/// Gathers all pages of a group's consumers.
async fn consumers(
    (core, output): Step<'_>,
    (key, group): (&[u8], &[u8]),
    (form, protocol): (ConsumerForm, Protocol),
) -> std::result::Result<Gathered, Ended> {
    let mut gathered = Gathered::default();
    let mut behind: Option<Vec<u8>> = None;
    loop {
        let input = Input::new(protocol).bytes(shown_key(key)).bytes(group);
        let input = input.number(form as u64).number(now_ms());
        let input = input.flag(behind.is_some());
        let input = match &behind {
            Some(behind) => input.bytes(behind),
            None => input,
        };
        let page = run(core, key, StreamProgram::Consumers, &input).await?;
        let page = checked(page, NO_STREAM)?;
        behind = gathered.add_page(Answered::of(&page));
        output.end_read(core, (1, page.len())).await?;
        if behind.is_none() {
            return Ok(gathered);
        }
    }
}

fn groups_info(call: &mut Call<'_>) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let key = call.key_at(2).to_vec();
    Ok(call.task(move |mut core, output, protocol| async move {
        let step = (&mut core, &output);
        let gathered = groups(step, &key, (StreamProgram::Groups, protocol)).await;
        finish_report(&output, protocol, gathered.map(|one| array(&one, protocol)));
        core
    }))
}

fn array(gathered: &Gathered, protocol: Protocol) -> Vec<u8> {
    let mut reply = Vec::new();
    gathered.write(&mut Writer::new(&mut reply, protocol));
    reply
}

fn consumers_info(call: &mut Call<'_>) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let (key, group) = (call.key_at(2).to_vec(), call.argument(3).to_vec());
    Ok(call.task(move |mut core, output, protocol| async move {
        let step = (&mut core, &output);
        let form = (ConsumerForm::Info, protocol);
        let gathered = consumers(step, (&key, &group), form).await;
        finish_report(&output, protocol, gathered.map(|one| array(&one, protocol)));
        core
    }))
}

/// Entries of the long report, if that is wanted.
fn report_words(call: &Call<'_>) -> std::result::Result<Option<u64>, Refusal> {
    let words = call.count() - 3;
    let is_full = words > 0 && is_option(call.argument(3), "full");
    match words {
        0 => Ok(None),
        1 if is_full => Ok(Some(REPORTED)),
        3 if is_full && is_option(call.argument(4), "count") => {
            let count = integer(call.argument(5))?;
            Ok(Some(u64::try_from(count).unwrap_or(REPORTED)))
        }
        _ => Err(super::subcommand::too_many(call)),
    }
}

fn stream_info(call: &mut Call<'_>) -> Result {
    let most = match report_words(call) {
        Ok(most) => most,
        Err(refusal) => {
            let look = LookFirst::at_stream(call.key_at(2)).or(NO_STREAM.to_owned());
            return Ok(refuse_after(call, look, refusal));
        }
    };
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let key = call.key_at(2).to_vec();
    Ok(call.task(move |mut core, output, protocol| async move {
        let step = (&mut core, &output);
        let report = report(step, &key, most, protocol).await;
        finish_report(&output, protocol, report);
        core
    }))
}

/// The report of a stream: the long one with at most `most` entries and pending IDs each, where 0
/// is all.
async fn report(
    (core, output): Step<'_>,
    key: &[u8],
    most: Option<u64>,
    protocol: Protocol,
) -> std::result::Result<Vec<u8>, Ended> {
    let input = Input::new(protocol).flag(most.is_some());
    let head = run(core, key, StreamProgram::Stream, &input).await?;
    let head = checked(head, NO_STREAM)?;
    let mut reply = Answered::of(&head).reply().to_vec();
    let Some(most) = most else {
        return Ok(reply);
    };
    let most = if most == 0 { u64::MAX } else { most };
    let ends = (StreamId::FIRST, StreamId::LAST);
    let step = (&mut *core, output);
    let entries = read_range(step, key, ends, (false, most), protocol).await?;
    let mut writer = Writer::new(&mut reply, protocol);
    writer.bulk(b"entries");
    match &entries {
        Some(entries) => write_entries(entries, &mut writer),
        None => writer.array(0),
    }
    let step = (&mut *core, output);
    let names = groups(step, key, (StreamProgram::GroupNames, protocol)).await?;
    let mut reported = Gathered::default();
    for name in texts(&names.replies) {
        let step = (&mut *core, output);
        if let Some(group) = group_report(step, (key, name), most, protocol).await? {
            reported.replies.extend_from_slice(&group);
            reported.count += 1;
        }
    }
    let mut writer = Writer::new(&mut reply, protocol);
    writer.bulk(b"groups");
    reported.write(&mut writer);
    Ok(reply)
}

/// Texts that were written as bulk strings.
fn texts(mut replies: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let rest = replies.strip_prefix(b"$")?;
        let end = rest.iter().position(|&byte| byte == b'\r')?;
        let length: usize = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
        let text = rest.get(end + 2..end + 2 + length)?;
        replies = rest.get(end + 2 + length + 2..)?;
        Some(text)
    })
}

/// The long report of a group; `None` if it is gone.
async fn group_report(
    (core, output): Step<'_>,
    (key, group): (&[u8], &[u8]),
    most: u64,
    protocol: Protocol,
) -> std::result::Result<Option<Vec<u8>>, Ended> {
    let input = Input::new(protocol).bytes(group);
    let Some(head) = run(core, key, StreamProgram::Group, &input).await? else {
        return Ok(None);
    };
    let mut reply = Answered::of(&head).reply().to_vec();
    let range = PendingRange {
        form: PendingForm::OfGroup,
        ends: (StreamId::FIRST, StreamId::LAST),
        consumer: None,
        idle_ms: 0,
        most,
    };
    let step = (&mut *core, output);
    let pending = pending_range(step, (key, group), &range, protocol).await?;
    let step = (&mut *core, output);
    let form = (ConsumerForm::Name, protocol);
    let names = consumers(step, (key, group), form).await?;
    let mut all = Gathered::default();
    for name in texts(&names.replies) {
        let step = (&mut *core, output);
        let names = (key, group, name);
        if let Some(one) = consumer_report(step, names, most, protocol).await? {
            all.replies.extend_from_slice(&one);
            all.count += 1;
        }
    }
    let mut writer = Writer::new(&mut reply, protocol);
    writer.bulk(b"pending");
    pending.write(&mut writer);
    writer.bulk(b"consumers");
    all.write(&mut writer);
    Ok(Some(reply))
}

/// The long report of a consumer; `None` if it is gone.
async fn consumer_report(
    (core, output): Step<'_>,
    (key, group, name): (&[u8], &[u8], &[u8]),
    most: u64,
    protocol: Protocol,
) -> std::result::Result<Option<Vec<u8>>, Ended> {
    let input = Input::new(protocol).bytes(group).bytes(name);
    let Some(head) = run(core, key, StreamProgram::Consumer, &input).await? else {
        return Ok(None);
    };
    let mut reply = Answered::of(&head).reply().to_vec();
    let range = PendingRange {
        form: PendingForm::OfConsumer,
        ends: (StreamId::FIRST, StreamId::LAST),
        consumer: Some(name.to_vec()),
        idle_ms: 0,
        most,
    };
    let pending = pending_range((core, output), (key, group), &range, protocol).await?;
    let mut writer = Writer::new(&mut reply, protocol);
    writer.bulk(b"pending");
    pending.write(&mut writer);
    Ok(Some(reply))
}

/// Which pending IDs are wanted.
#[derive(Debug)]
struct PendingRange {
    form: PendingForm,
    ends: (StreamId, StreamId),
    consumer: Option<Vec<u8>>,
    idle_ms: u64,
    most: u64,
}

/// Gathers pending IDs in as many steps as it takes.
async fn pending_range(
    (core, output): Step<'_>,
    (key, group): (&[u8], &[u8]),
    range: &PendingRange,
    protocol: Protocol,
) -> std::result::Result<Gathered, Ended> {
    let mut gathered = Gathered::default();
    let (mut from, to) = range.ends;
    let mut held = output.hold(0);
    loop {
        let input = Input::new(protocol).bytes(shown_key(key)).bytes(group);
        let input = input.number(range.form as u64).number(now_ms());
        let input = input.number(range.idle_ms);
        let input = input.number(range.most - gathered.count);
        let input = input.id(from).id(to).flag(range.consumer.is_some());
        let input = match &range.consumer {
            Some(consumer) => input.bytes(consumer),
            None => input,
        };
        let page = run(core, key, StreamProgram::PendingRange, &input).await?;
        let page = checked(page, NO_STREAM)?;
        let answered = Answered::of(&page);
        gathered.replies.extend_from_slice(answered.reply());
        gathered.count += answered.number();
        held.grow_to(gathered.replies.capacity())?;
        output.end_read(core, (1, page.len())).await?;
        let next = answered.id().next();
        match next.filter(|_| answered.has_more() && gathered.count < range.most) {
            Some(next) => from = next,
            None => return Ok(gathered),
        }
    }
}

pub(super) fn xpending(call: &mut Call<'_>) -> Result {
    let count = call.count();
    if count != 3 && !(6..=9).contains(&count) {
        return Err(SYNTAX.into());
    }
    let (key, group) = (call.key().to_vec(), call.argument(2).to_vec());
    let range = match count {
        3 => None,
        _ => Some(pending_words(call)?),
    };
    if call.is_early() {
        return Ok(Flow::Later);
    }
    Ok(call.task(move |mut core, output, protocol| async move {
        let step = (&mut core, &output);
        let report = match &range {
            None => pending_summary(step, (&key, &group), protocol).await,
            Some(range) => {
                let gathered = pending_range(step, (&key, &group), range, protocol).await;
                gathered.map(|one| array(&one, protocol))
            }
        };
        finish_report(&output, protocol, report);
        core
    }))
}

fn pending_words(call: &Call<'_>) -> std::result::Result<PendingRange, Refusal> {
    let (mut first, mut idle_ms) = (3, 0);
    if is_option(call.argument(3), "idle") {
        idle_ms = u64::try_from(integer(call.argument(4))?).unwrap_or(0);
        if call.count() < 8 {
            return Err(SYNTAX.into());
        }
        first = 5;
    }
    let most = u64::try_from(integer(call.argument(first + 2))?).unwrap_or(0);
    let from = StreamId::parse_end(call.argument(first), false)?;
    let to = StreamId::parse_end(call.argument(first + 1), true)?;
    let consumer = (first + 3 < call.count()).then(|| call.argument(first + 3).to_vec());
    Ok(PendingRange {
        form: PendingForm::Idle,
        ends: (from, to),
        consumer,
        idle_ms,
        most,
    })
}

/// How much is pending, from which ID to which, and at which consumers.
async fn pending_summary(
    (core, output): Step<'_>,
    (key, group): (&[u8], &[u8]),
    protocol: Protocol,
) -> std::result::Result<Vec<u8>, Ended> {
    let input = Input::new(protocol).bytes(shown_key(key)).bytes(group);
    let head = run(core, key, StreamProgram::Pending, &input).await?;
    let Some(head) = head else {
        return Err(Ended::Failed(NO_STREAM.into()));
    };
    let head = checked(Some(head), NO_STREAM)?;
    let answered = Answered::of(&head);
    let mut reply = Vec::new();
    Writer::new(&mut reply, protocol).array(4);
    reply.extend_from_slice(answered.reply());
    if answered.number() > 0 {
        let form = (ConsumerForm::Pending, protocol);
        let gathered = consumers((core, output), (key, group), form).await?;
        gathered.write(&mut Writer::new(&mut reply, protocol));
    }
    Ok(reply)
}

/// A number of `XCLAIM`.
fn claim_number(text: &[u8], what: &str) -> std::result::Result<i64, Refusal> {
    integer(text).map_err(|_| Refusal(format!("ERR Invalid {what} argument for XCLAIM")))
}

/// What the words behind the IDs of `XCLAIM` say.
#[derive(Debug, Default)]
struct ClaimWords {
    delivered_ms: Option<i64>,
    deliveries: Option<u64>,
    forces: bool,
    only_ids: bool,
    last_id: StreamId,
}

impl ClaimWords {
    fn of(call: &Call<'_>, mut place: usize, now_ms: u64) -> std::result::Result<Self, Refusal> {
        let mut words = Self::default();
        while place < call.count() {
            let word = call.argument(place);
            let has_value = place + 1 < call.count();
            if is_option(word, "force") {
                words.forces = true;
            } else if is_option(word, "justid") {
                words.only_ids = true;
            } else if !has_value {
                return Err(unrecognized(word));
            } else {
                place += 1;
                let value = call.argument(place);
                match word {
                    _ if is_option(word, "idle") => {
                        let idle = claim_number(value, "IDLE option")?;
                        let now = i64::try_from(now_ms).unwrap_or(i64::MAX);
                        words.delivered_ms = Some(now.saturating_sub(idle));
                    }
                    _ if is_option(word, "time") => {
                        words.delivered_ms = Some(claim_number(value, "TIME option")?);
                    }
                    _ if is_option(word, "retrycount") => {
                        let count = claim_number(value, "RETRYCOUNT option")?;
                        words.deliveries = u64::try_from(count).ok();
                    }
                    _ if is_option(word, "lastid") => words.last_id = id(value)?,
                    _ => return Err(unrecognized(word)),
                }
            }
            place += 1;
        }
        Ok(words)
    }

    /// When what is claimed counts as delivered: a time that cannot be is now.
    fn delivered_ms(&self, now_ms: u64) -> u64 {
        let given = self
            .delivered_ms
            .and_then(|given| u64::try_from(given).ok());
        given.unwrap_or(now_ms).min(now_ms)
    }
}

fn unrecognized(word: &[u8]) -> Refusal {
    let word = String::from_utf8_lossy(word);
    Refusal(format!("ERR Unrecognized XCLAIM option '{word}'"))
}

/// A claim of IDs.
#[derive(Debug)]
struct ClaimOf {
    group: Vec<u8>,
    consumer: Vec<u8>,
    idle_ms: u64,
    now_ms: u64,
    words: ClaimWords,
    ids: Vec<StreamId>,
}

pub(super) fn xclaim(call: &mut Call<'_>) -> Result {
    let claim = match ClaimOf::of(call) {
        Ok(claim) => claim,
        Err(refusal) => {
            let (key, group) = (call.key(), call.argument(2));
            let look = LookFirst::at_group(key, group).or(no_such(shown_key(key), group));
            return Ok(refuse_after(call, look, refusal));
        }
    };
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let key = call.key().to_vec();
    Ok(call.task(move |mut core, output, protocol| async move {
        let claimed = claim.run((&mut core, &output), &key, protocol).await;
        finish_report(&output, protocol, claimed.map(|one| array(&one, protocol)));
        core
    }))
}

impl ClaimOf {
    fn of(call: &Call<'_>) -> std::result::Result<Self, Refusal> {
        let now_ms = now_ms();
        let idle = claim_number(call.argument(4), "min-idle-time")?;
        let mut ids = Vec::new();
        while 5 + ids.len() < call.count()
            && let Some(id) = StreamId::parse(call.argument(5 + ids.len()), 0)
        {
            ids.push(id);
        }
        Ok(Self {
            group: call.argument(2).to_vec(),
            consumer: call.argument(3).to_vec(),
            idle_ms: u64::try_from(idle).unwrap_or(0),
            now_ms,
            words: ClaimWords::of(call, 5 + ids.len(), now_ms)?,
            ids,
        })
    }

    async fn run(
        &self,
        (core, output): Step<'_>,
        key: &[u8],
        protocol: Protocol,
    ) -> std::result::Result<Gathered, Ended> {
        let mut gathered = Gathered::default();
        let mut left = &self.ids[..];
        let mut held = output.hold(0);
        loop {
            let some = &left[..left.len().min(CLAIMED_AT_ONCE)];
            let input = Input::new(protocol)
                .bytes(shown_key(key))
                .bytes(&self.group);
            let input = input.bytes(&self.consumer).number(self.now_ms);
            let input = input.number(self.idle_ms).flag(self.words.only_ids);
            let input = input.number(self.words.delivered_ms(self.now_ms));
            let input = match self.words.deliveries {
                Some(deliveries) => input.flag(true).number(deliveries),
                None => input.flag(false),
            };
            let input = input.flag(self.words.forces).id(self.words.last_id);
            let input = some.iter().fold(input, |input, id| input.id(*id));
            let page = run(core, key, StreamProgram::Claim, &input).await?;
            let page = page.ok_or_else(|| TaskFailure::from(NO_STREAM))?;
            let page = checked(Some(page), NO_STREAM)?;
            let answered = Answered::of(&page);
            notify(output, key, answered, None);
            gathered.replies.extend_from_slice(answered.reply());
            gathered.count += answered.number();
            let looked = usize::try_from(answered.id().ms).unwrap_or(usize::MAX);
            left = &left[looked.max(usize::from(!some.is_empty())).min(some.len())..];
            // What is claimed is replied.
            if left.is_empty() || held.grow_to(gathered.replies.capacity()).is_err() {
                return Ok(gathered);
            }
            output.end_read(core, (some.len(), page.len())).await?;
        }
    }
}

pub(super) fn xautoclaim(call: &mut Call<'_>) -> Result {
    let idle = integer(call.argument(4));
    let idle = idle.map_err(|_| "ERR Invalid min-idle-time argument for XAUTOCLAIM")?;
    let from = StreamId::parse_end(call.argument(5), false)?;
    let (mut most, mut only_ids) = (CLAIMED, false);
    let mut place = 6;
    while place < call.count() {
        let word = call.argument(place);
        if is_option(word, "count") && place + 1 < call.count() {
            let count = integer(call.argument(place + 1));
            let count = count.ok().and_then(|count| u64::try_from(count).ok());
            let count = count.filter(|&count| (1..=COUNT_MAX).contains(&count));
            most = count.ok_or("ERR COUNT must be > 0")?;
            place += 1;
        } else if is_option(word, "justid") {
            only_ids = true;
        } else {
            return Err(SYNTAX.into());
        }
        place += 1;
    }
    let key = call.key();
    let input = Input::new(call.connection.protocol);
    let input = input.bytes(shown_key(key)).bytes(call.argument(2));
    let input = input.bytes(call.argument(3)).number(now_ms());
    let input = input.number(u64::try_from(idle).unwrap_or(0));
    let input = input.flag(only_ids).id(from).number(most);
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let key = key.to_vec();
    Ok(call.task(move |mut core, output, protocol| async move {
        let ran = run(&mut core, &key, StreamProgram::ClaimDue, &input).await;
        if let Ok(Some(reply)) = &ran {
            notify(&output, &key, Answered::of(reply), None);
        }
        let ran = ran.map_err(TaskFailure::from);
        finish_reply(&output, protocol, ran, StreamReply::Number);
        core
    }))
}

/// The greatest number that `XAUTOCLAIM` takes; as Redis.
const COUNT_MAX: u64 = (i64::MAX / 16).unsigned_abs();
