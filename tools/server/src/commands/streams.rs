//! Commands of a stream's entries.
//!
//! Each is one request, whose program writes the reply, unless its events, a client that waits or a
//! long answer make it a task of several.

use farcore::{Answer, Core};

use super::arguments::{integer, is_option};
use super::trees::{Step, ask, finish};
use super::{Call, Flow, Refusal, SYNTAX};
use crate::events::classes::EventClasses;
use crate::memory::Charge;
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::failure::TaskFailure;
use crate::tasks::output::TaskOutput;
use crate::types::replies::ReplyKind;
use crate::types::stream::entries::{Trim, TrimTo};
use crate::types::stream::id::{NO_ID, NewId, StreamId};
use crate::types::stream::input::{Answered, Input, deeds};
use crate::types::stream::layout::put_texts;
use crate::types::stream::programs::StreamProgram;
use crate::types::stream::reply::StreamReply;
use crate::waits::key_queues::Awaited;

type Result = std::result::Result<Flow, Refusal>;

/// IDs of one request.
const IDS_AT_ONCE: usize = 8;
/// Nodes of entries, and entries, that a rough trim removes at most, unless it says how many; as
/// Redis.
const ROUGH_NODES: u64 = 100;
const ROUGH_ENTRIES: u64 = 1_000_000;

impl Call<'_> {
    /// True if a change of the stream is one request: no event is sent, and no client waits.
    fn is_quiet_stream(&self) -> bool {
        let shared = &self.serving.shared;
        let wakes = shared.waiting.clients() > 0
            && shared.waiting.first(Awaited::Stream, self.key()).is_some();
        !wakes
            && !self.connection.is_executing()
            && self.plan.is_none()
            && !shared.event_classes.is_any()
    }

    /// Has a program of the first key's stream reply.
    pub(super) fn stream_request(
        &mut self,
        program: StreamProgram,
        input: &Input,
        reply: StreamReply,
    ) -> Flow {
        let operation = program.operation(self.key(), input);
        self.request(ReplyKind::Stream(reply), operation)
    }
}

/// Runs a program on a stream; `None` if there is none.
pub(super) async fn run(
    core: &mut Core,
    key: &[u8],
    program: StreamProgram,
    input: &Input,
) -> farcore::Result<Option<Vec<u8>>> {
    let operation = program.operation(key, input);
    ask(core, operation, |answer| match answer {
        Answer::Value { value, .. } => Some(value.to_vec()),
        _ => None,
    })
    .await
}

/// An ID, or what Redis says of a text that is none.
pub(super) fn id(text: &[u8]) -> std::result::Result<StreamId, Refusal> {
    StreamId::parse(text, 0).ok_or_else(|| NO_ID.into())
}

/// How a stream is trimmed, as the arguments from a place on say, and the place behind them.
#[derive(Debug, Default)]
struct TrimWords {
    trim: Option<TrimTo>,
    is_rough: bool,
    limit: Option<i64>,
    end: usize,
    makes: bool,
}

impl TrimWords {
    /// Reads the words of `XADD`, up to the ID, or of `XTRIM`.
    fn of(call: &Call<'_>, is_add: bool) -> std::result::Result<Self, Refusal> {
        let mut words = Self {
            makes: true,
            end: 2,
            ..Self::default()
        };
        while words.end < call.count() {
            let place = words.end;
            let word = call.argument(place);
            let left = call.count() - 1 - place;
            if is_add && word == b"*" {
                break;
            }
            if left > 0 && (is_option(word, "maxlen") || is_option(word, "minid")) {
                words.end = words.threshold(call, place)?;
            } else if left > 0 && is_option(word, "limit") {
                let limit = integer(call.argument(place + 1))?;
                if limit < 0 {
                    return Err("ERR The LIMIT argument must be >= 0.".into());
                }
                words.limit = Some(limit);
                words.end += 2;
            } else if is_add && is_option(word, "nomkstream") {
                words.makes = false;
                words.end += 1;
            } else if is_add {
                break;
            } else {
                return Err(SYNTAX.into());
            }
        }
        if !is_add {
            words.check(false)?;
        }
        Ok(words)
    }

    /// Reads to what is trimmed; the place behind it.
    fn threshold(&mut self, call: &Call<'_>, place: usize) -> std::result::Result<usize, Refusal> {
        if self.trim.is_some() {
            return Err(
                "ERR syntax error, MAXLEN and MINID options at the same time are not compatible"
                    .into(),
            );
        }
        let is_length = is_option(call.argument(place), "maxlen");
        let left = call.count() - 1 - place;
        let sign = call.argument(place + 1);
        let has_sign = left >= 2 && (sign == b"~" || sign == b"=");
        self.is_rough = has_sign && sign == b"~";
        let place = place + 1 + usize::from(has_sign);
        let text = call.argument(place);
        self.trim = Some(if is_length {
            let length = integer(text)?;
            let length = u64::try_from(length);
            TrimTo::Length(length.map_err(|_| "ERR The MAXLEN argument must be >= 0.")?)
        } else {
            TrimTo::From(id(text)?)
        });
        Ok(place + 1)
    }

    fn check(&self, is_add: bool) -> std::result::Result<(), Refusal> {
        if self.limit.is_some_and(|limit| limit > 0) && self.trim.is_none() {
            return Err(
                "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy"
                    .into(),
            );
        }
        if !is_add && self.trim.is_none() {
            return Err("ERR syntax error, XTRIM must be called with a trimming strategy".into());
        }
        if self.limit.is_some() && !self.is_rough {
            return Err(
                "ERR syntax error, LIMIT cannot be used without the special ~ option".into(),
            );
        }
        Ok(())
    }

    fn trim(&self, call: &Call<'_>) -> Option<Trim> {
        let node_entries = call.serving.shared.encoding_limits.stream_entries();
        let limit = match self.limit {
            Some(limit) => u64::try_from(limit).unwrap_or(0),
            None if self.is_rough => match node_entries.saturating_mul(ROUGH_NODES) {
                0 => 10_000,
                entries => entries.min(ROUGH_ENTRIES),
            },
            None => 0,
        };
        self.trim.map(|to| Trim {
            to,
            node_entries: self.is_rough.then_some(node_entries),
            limit,
        })
    }
}

pub(super) fn xadd(call: &mut Call<'_>) -> Result {
    let words = TrimWords::of(call, true)?;
    let place = words.end;
    let new_id = match call.arguments.len() > place {
        true if call.argument(place) == b"*" => Some(NewId::From(farcore_tuning::system_ms())),
        true => Some(NewId::parse(call.argument(place)).ok_or(NO_ID)?),
        false => None,
    };
    words.check(true)?;
    let first = place + 1;
    let count = call.count().saturating_sub(first);
    let Some(new_id) = new_id.filter(|_| count >= 2 && count.is_multiple_of(2)) else {
        return Err("ERR wrong number of arguments for 'xadd' command".into());
    };
    let input = Input::new(call.connection.protocol);
    let input = match new_id {
        NewId::Whole(StreamId::FIRST) => {
            return Err("ERR The ID specified in XADD must be greater than 0-0".into());
        }
        NewId::Whole(id) => input.number(0).id(id),
        NewId::Of(ms) => input.number(1).number(ms),
        NewId::From(now_ms) => input.number(2).number(now_ms),
    };
    let trim = words.trim(call);
    let input = Trim::put(trim, input.flag(words.makes));
    let (arguments, bytes) = (call.arguments, call.input);
    let texts = (first..call.count()).map(|place| arguments.get(place, bytes));
    steps::count(count);
    let input = input.rest(|rest| put_texts(texts, rest));
    let max = call.serving.value_bytes_max();
    let stored = input.encoded().len();
    if stored + BESIDE_ENTRY > max {
        return Err(Refusal(format!(
            "ERR the entry is too large: it takes {stored} bytes, the limit is {} bytes: divide it",
            max - BESIDE_ENTRY
        )));
    }
    // What is trimmed exactly may take several steps.
    let is_exact = words.trim.is_some() && !words.is_rough;
    if !is_exact && call.is_quiet_stream() {
        call.serving.shared.note_value(stored);
        return Ok(call.stream_request(StreamProgram::Add, &input, StreamReply::Added));
    }
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let key = call.key().to_vec();
    let readiness = call.readiness();
    Ok(call.task(move |mut core, output, protocol| async move {
        output.note_value(stored);
        let step = (&mut core, &output);
        let added = add(step, &key, &input, (trim, protocol)).await;
        if matches!(&added, Ok(Some(reply)) if Answered::of(reply).did(deeds::ADDED)) {
            readiness.note(&core, Awaited::Stream, &key).await;
        }
        finish_reply(&output, protocol, added, StreamReply::Added);
        core
    }))
}

/// Bytes that an entry takes of a record beside its input.
const BESIDE_ENTRY: usize = 2 << 10;

/// Adds an entry, trims the stream to its end, and leaves the events.
async fn add(
    (core, output): Step<'_>,
    key: &[u8],
    input: &Input,
    (trim, protocol): (Option<Trim>, Protocol),
) -> std::result::Result<Option<Vec<u8>>, TaskFailure> {
    let Some(added) = run(core, key, StreamProgram::Add, input).await? else {
        return Ok(None);
    };
    let answered = Answered::of(&added);
    if answered.did(deeds::MADE) {
        output.notify(EventClasses::NEW, "new", key);
    }
    if answered.did(deeds::ADDED) {
        output.notify(EventClasses::STREAM, "xadd", key);
    }
    if answered.did(deeds::TRIMMED) {
        output.notify(EventClasses::STREAM, "xtrim", key);
    }
    if let Some(trim) = trim.filter(|trim| trim.node_entries.is_none() && answered.has_more()) {
        trim_all((core, output), key, (trim, protocol)).await?;
    }
    Ok(Some(added))
}

/// Trims a stream in as many steps as it takes; how many entries have gone.
async fn trim_all(
    (core, output): Step<'_>,
    key: &[u8],
    (trim, protocol): (Trim, Protocol),
) -> std::result::Result<u64, TaskFailure> {
    let input = Trim::put(Some(trim), Input::new(protocol));
    let mut all = 0;
    loop {
        let trimmed = run(core, key, StreamProgram::Trim, &input).await?;
        let Some(trimmed) = trimmed else {
            return Ok(all);
        };
        let answered = Answered::of(&trimmed);
        all += answered.number();
        // One that says how many go at most says it of all steps.
        if !answered.has_more() || answered.number() == 0 || trim.node_entries.is_some() {
            return Ok(all);
        }
        output.end_read(core, (1, 0)).await?;
    }
}

pub(super) fn xtrim(call: &mut Call<'_>) -> Result {
    let words = TrimWords::of(call, false)?;
    let Some(trim) = words.trim(call) else {
        return Err(SYNTAX.into());
    };
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let key = call.key().to_vec();
    Ok(call.task(move |mut core, output, protocol| async move {
        let trimmed = trim_all((&mut core, &output), &key, (trim, protocol)).await;
        if matches!(trimmed, Ok(1..)) {
            output.notify(EventClasses::STREAM, "xtrim", &key);
        }
        finish(&output, protocol, trimmed, |writer, trimmed| {
            writer.integer(i64::try_from(trimmed).unwrap_or(i64::MAX));
        });
        core
    }))
}

pub(super) fn xlen(call: &mut Call<'_>) -> Result {
    let input = Input::new(call.connection.protocol);
    Ok(call.stream_request(StreamProgram::Length, &input, StreamReply::Number))
}

/// IDs of the arguments from a place on.
pub(super) fn ids(call: &Call<'_>, first: usize) -> std::result::Result<Vec<StreamId>, Refusal> {
    steps::count(call.count() - first);
    let texts = (first..call.count()).map(|place| call.argument(place));
    texts.map(id).collect()
}

/// Runs a program on IDs, some in each step: its answer tells how many it has looked at, and its
/// reply is a number, of which all replies together are the sum. Also whether something was done.
pub(super) async fn run_on_ids(
    (core, output): Step<'_>,
    key: &[u8],
    (program, ids): (StreamProgram, &[StreamId]),
    begin: impl Fn() -> Input,
) -> std::result::Result<(i64, bool), TaskFailure> {
    let (mut left, mut sum, mut is_done) = (ids, 0, false);
    while !left.is_empty() {
        let some = &left[..left.len().min(IDS_AT_ONCE)];
        let input = some.iter().fold(begin(), |input, id| input.id(*id));
        let Some(reply) = run(core, key, program, &input).await? else {
            break;
        };
        let answered = Answered::of(&reply);
        let text = answered.reply();
        let number = std::str::from_utf8(text).ok().and_then(|text| {
            let number = text.strip_prefix(':')?;
            number.trim_end().parse::<i64>().ok()
        });
        sum += number.unwrap_or(0);
        is_done |= answered.did(deeds::DONE);
        let looked = usize::try_from(answered.number()).unwrap_or(usize::MAX);
        left = &left[looked.clamp(1, some.len())..];
        output.end_read(core, (some.len(), 0)).await?;
    }
    Ok((sum, is_done))
}

/// What a command looks at before it refuses its arguments, as Redis does.
#[derive(Debug)]
pub(super) struct LookFirst {
    key: Vec<u8>,
    /// Whether there is this group, and not only a stream.
    group: Option<Vec<u8>>,
    /// What is said where there is no such thing: the reply is 0 if nothing is.
    absent: Option<String>,
    /// What is said where there is not even a stream, if that is something else.
    no_stream: Option<String>,
}

impl LookFirst {
    /// Whether there is a stream. The reply is 0 if there is none.
    pub(super) fn at_stream(key: &[u8]) -> Self {
        Self {
            key: key.to_vec(),
            group: None,
            absent: None,
            no_stream: None,
        }
    }

    /// Whether there is a group. The reply is 0 if there is none.
    pub(super) fn at_group(key: &[u8], group: &[u8]) -> Self {
        Self {
            group: Some(group.to_vec()),
            ..Self::at_stream(key)
        }
    }

    /// What is said where there is not even a stream.
    pub(super) fn or_without_stream(self, no_stream: &str) -> Self {
        Self {
            no_stream: Some(no_stream.to_owned()),
            ..self
        }
    }

    /// What is said where there is no such thing.
    pub(super) fn or(self, absent: String) -> Self {
        Self {
            absent: Some(absent),
            ..self
        }
    }
}

/// Refuses the arguments of a command once it has looked.
pub(super) fn refuse_after(call: &mut Call<'_>, look: LookFirst, refusal: Refusal) -> Flow {
    if call.is_early() {
        return Flow::Later;
    }
    call.task(move |mut core, output, protocol| async move {
        let input = Input::new(protocol);
        let (program, input) = match &look.group {
            None => (StreamProgram::Length, input),
            Some(group) => (StreamProgram::Group, input.bytes(group)),
        };
        let mut looked = run(&mut core, &look.key, program, &input).await;
        let mut absent = look.absent;
        if let (Ok(None), Some(no_stream)) = (&looked, look.no_stream) {
            let input = Input::new(protocol);
            match run(&mut core, &look.key, StreamProgram::Length, &input).await {
                Ok(Some(_)) => {}
                Ok(None) => absent = Some(no_stream),
                failed => looked = failed,
            }
        }
        let refused = match (looked, absent) {
            (Err(error), _) => Err(error.into()),
            (Ok(Some(_)), _) => Err(TaskFailure::Refused(refusal.0)),
            (Ok(None), Some(absent)) => Err(TaskFailure::Refused(absent)),
            (Ok(None), None) => Ok(0),
        };
        finish(&output, protocol, refused, |writer, number| {
            writer.integer(number);
        });
        core
    })
}

pub(super) fn xdel(call: &mut Call<'_>) -> Result {
    let ids = match ids(call, 2) {
        Ok(ids) => ids,
        Err(refusal) => {
            let look = LookFirst::at_stream(call.key());
            return Ok(refuse_after(call, look, refusal));
        }
    };
    let protocol = call.connection.protocol;
    if ids.len() == 1 && call.is_quiet_stream() {
        let input = Input::new(protocol).id(ids[0]);
        return Ok(call.stream_request(StreamProgram::Delete, &input, StreamReply::Number));
    }
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let key = call.key().to_vec();
    Ok(call.task(move |mut core, output, protocol| async move {
        let step = (&mut core, &output);
        let begin = || Input::new(protocol);
        let deleted = run_on_ids(step, &key, (StreamProgram::Delete, &ids), begin).await;
        if matches!(deleted, Ok((_, true))) {
            output.notify(EventClasses::STREAM, "xdel", &key);
        }
        finish(&output, protocol, deleted, |writer, (deleted, _)| {
            writer.integer(deleted);
        });
        core
    }))
}

pub(super) fn xsetid(call: &mut Call<'_>) -> Result {
    let last_id = id(call.argument(2))?;
    let (mut added, mut max_deleted) = (None, StreamId::FIRST);
    for place in (3..call.count()).step_by(2) {
        let word = call.argument(place);
        if place + 1 == call.count() {
            return Err(SYNTAX.into());
        }
        let value = call.argument(place + 1);
        if is_option(word, "entriesadded") {
            let number = u64::try_from(integer(value)?);
            added = Some(number.map_err(|_| "ERR entries_added must be positive")?);
        } else if is_option(word, "maxdeletedid") {
            max_deleted = id(value)?;
            if last_id < max_deleted {
                return Err("ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id".into());
            }
        } else {
            return Err(SYNTAX.into());
        }
    }
    let input = Input::new(call.connection.protocol);
    let input = input.id(last_id).id(max_deleted).flag(added.is_some());
    let input = input.number(added.unwrap_or(0));
    Ok(stream_task(
        call,
        StreamProgram::SetId,
        input,
        Some("xsetid"),
    ))
}

/// Runs a program in a task, and leaves an event if it has done what it is for.
pub(super) fn stream_task(
    call: &mut Call<'_>,
    program: StreamProgram,
    input: Input,
    event: Option<&'static str>,
) -> Flow {
    if call.is_early() {
        return Flow::Later;
    }
    let key = call.key_of_stream().to_vec();
    call.task(move |mut core, output, protocol| async move {
        let ran = run(&mut core, &key, program, &input).await;
        if let Ok(Some(reply)) = &ran {
            notify(&output, &key, Answered::of(reply), event);
        }
        let ran = ran.map_err(TaskFailure::from);
        finish_reply(&output, protocol, ran, StreamReply::Number);
        core
    })
}

impl<'a> Call<'a> {
    /// The key of a command, or of its second word.
    pub(super) fn key_of_stream(&self) -> &'a [u8] {
        let is_of_word = ["xgroup", "xinfo"]
            .iter()
            .any(|name| is_option(self.argument(0), name));
        self.key_at(if is_of_word { 2 } else { 1 })
    }
}

/// Leaves the events of what a program has done.
pub(super) fn notify(
    output: &TaskOutput,
    key: &[u8],
    answered: Answered<'_>,
    event: Option<&'static str>,
) {
    if answered.did(deeds::MADE) {
        output.notify(EventClasses::NEW, "new", key);
    }
    if answered.did(deeds::CONSUMER) {
        output.notify(EventClasses::STREAM, "xgroup-createconsumer", key);
    }
    if let Some(event) = event.filter(|_| answered.did(deeds::DONE)) {
        output.notify(EventClasses::STREAM, event, key);
    }
}

/// Writes what a program has replied.
pub(super) fn finish_reply(
    output: &TaskOutput,
    protocol: Protocol,
    ran: std::result::Result<Option<Vec<u8>>, TaskFailure>,
    reply: StreamReply,
) {
    finish(output, protocol, ran, |writer, ran| match ran {
        Some(answered) => writer.raw(Answered::of(&answered).reply()),
        None => reply.write_absent(writer),
    });
}

/// Entries that were read, one after the other, and how many.
#[derive(Debug)]
pub(super) struct ReadEntries {
    pub(super) replies: Vec<u8>,
    pub(super) count: u64,
    pub(super) _held: Charge,
}

/// Reads entries of a range, at most a number of them.
pub(super) async fn read_range(
    (core, output): Step<'_>,
    key: &[u8],
    (mut from, mut to): (StreamId, StreamId),
    (reverse, most): (bool, u64),
    protocol: Protocol,
) -> std::result::Result<Option<ReadEntries>, TaskFailure> {
    let mut read = ReadEntries {
        replies: Vec::new(),
        count: 0,
        _held: output.hold(0),
    };
    // What lies behind its end has no entries, but it is looked at which kind the key is.
    let mut is_first = true;
    while read.count < most && (from <= to || is_first) {
        is_first = false;
        let input = Input::new(protocol).id(from).id(to);
        let input = input.flag(reverse).number(most - read.count);
        let Some(page) = run(core, key, StreamProgram::Range, &input).await? else {
            return Ok((read.count > 0).then_some(read));
        };
        let answered = Answered::of(&page);
        read.replies.extend_from_slice(answered.reply());
        read.count += answered.number();
        read._held.grow_to(read.replies.capacity())?;
        let (number, bytes) = (answered.number(), page.len());
        let elements = usize::try_from(number).unwrap_or(usize::MAX);
        output.end_read(core, (elements, bytes)).await?;
        if !answered.has_more() {
            break;
        }
        let last = answered.id();
        let next = if reverse {
            last.previous()
        } else {
            last.next()
        };
        let Some(next) = next.filter(|_| number > 0) else {
            break;
        };
        if reverse {
            to = next;
        } else {
            from = next;
        }
    }
    Ok(Some(read))
}

fn range(call: &mut Call<'_>, reverse: bool) -> Result {
    let (start, end) = if reverse { (3, 2) } else { (2, 3) };
    let from = StreamId::parse_end(call.argument(start), false)?;
    let to = StreamId::parse_end(call.argument(end), true)?;
    let mut most = None;
    for place in (4..call.count()).step_by(2) {
        if !is_option(call.argument(place), "count") || place + 1 == call.count() {
            return Err(SYNTAX.into());
        }
        let count = integer(call.argument(place + 1))?;
        most = Some(u64::try_from(count).unwrap_or(0));
    }
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let key = call.key().to_vec();
    Ok(call.task(move |mut core, output, protocol| async move {
        let step = (&mut core, &output);
        let bounds = (reverse, most.unwrap_or(u64::MAX));
        // Of no entries nothing is read, but the kind is looked at.
        let is_none = most == Some(0);
        let ends = if is_none { (from, from) } else { (from, to) };
        let bounds = if is_none { (reverse, 1) } else { bounds };
        let read = read_range(step, &key, ends, bounds, protocol).await;
        finish(&output, protocol, read, |writer, read| match read {
            Some(_) if is_none => writer.null_array(),
            Some(read) => write_entries(&read, writer),
            None => writer.array(0),
        });
        core
    }))
}

/// Writes entries as an array.
pub(super) fn write_entries(read: &ReadEntries, writer: &mut Writer<'_>) {
    writer.array(usize::try_from(read.count).unwrap_or(usize::MAX));
    writer.raw(&read.replies);
}

pub(super) fn xrange(call: &mut Call<'_>) -> Result {
    range(call, false)
}

pub(super) fn xrevrange(call: &mut Call<'_>) -> Result {
    range(call, true)
}
