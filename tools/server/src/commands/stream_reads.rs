//! Commands that read several streams from an ID on, and wait until there is something: as
//! themselves, or as a consumer of a group.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use farcore::Core;

use super::arguments::{integer, is_option};
use super::list_takes::{distinct_keys, start, start_or_wait};
use super::streams::{id, notify, read_range, run};
use super::trees::Step;
use super::{Call, Flow, Refusal, SYNTAX};
use crate::databases::{Database, shown_key};
use crate::resp::{Protocol, Writer};
use crate::tasks::failure::TaskFailure;
use crate::tasks::output::TaskOutput;
use crate::types::replies::is_wrong_type;
use crate::types::stream::id::StreamId;
use crate::types::stream::input::{Answered, Input, deeds};
use crate::types::stream::programs::StreamProgram;
use crate::waits::key_queues::Awaited;
use crate::waits::parked::{SourceErrors, Takes, Taking, keys_in};
use crate::waits::readiness::Readiness;

type Result = std::result::Result<Flow, Refusal>;

/// Entries that a client that waits reads, unless it says how many; as Redis.
const WAITED_ENTRIES: u64 = 1000;

/// From where a stream is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum From {
    Behind(StreamId),
    /// What comes from now on.
    Last,
    /// What the group has not had.
    New,
}

/// Who reads for a group.
#[derive(Clone, Debug)]
struct Reader {
    group: Vec<u8>,
    consumer: Vec<u8>,
    /// What is delivered is pending.
    is_kept: bool,
}

/// Entries of several streams.
#[derive(Clone, Debug)]
struct Wanted {
    /// As they are stored, in the order of the reply.
    streams: Vec<Vec<u8>>,
    /// Each of them once.
    keys: Vec<Vec<u8>>,
    from: RefCell<Vec<From>>,
    most: Option<u64>,
    /// Nothing was there at first.
    has_waited: Cell<bool>,
    /// The first stream whose ID is none, and what is said of it once the streams before it, and it
    /// itself, were looked at.
    refused: Option<(usize, Refusal)>,
    reader: Option<Reader>,
}

impl Wanted {
    /// Entries that are read of each stream, at most.
    fn most(&self) -> u64 {
        let all = match self.has_waited.get() {
            true => WAITED_ENTRIES,
            false => u64::MAX,
        };
        self.most.unwrap_or(all)
    }

    /// Says where each read begins that begins now, and that each group is there.
    async fn begin(&self, core: &mut Core, protocol: Protocol) -> std::result::Result<(), Failed> {
        for (place, key) in self.streams.iter().enumerate() {
            let from = self.from.borrow()[place];
            let is_alone = self.streams.len() == 1 && self.refused.is_none();
            if let Some(reader) = &self.reader {
                if is_alone {
                    break;
                }
                // No entry is read: this tells whether the group is there.
                let input = self.input(reader, (key, protocol), 0);
                let input = input.flag(reader.is_kept);
                let looked = run(core, key, StreamProgram::Read, &input).await?;
                Failed::check(looked)?;
            } else if from == From::Last || self.refused.is_some() {
                let input = Input::new(protocol);
                let length = run(core, key, StreamProgram::Length, &input).await?;
                let last = length.map_or(StreamId::FIRST, |length| Answered::of(&length).id());
                if from == From::Last {
                    self.from.borrow_mut()[place] = From::Behind(last);
                }
            }
            if let Some((refused, refusal)) = &self.refused
                && *refused == place
            {
                return Err(Failed::Task(TaskFailure::Refused(refusal.0.clone())));
            }
        }
        Ok(())
    }

    /// The beginning of what a program of the group is handed.
    fn input(&self, reader: &Reader, (key, protocol): (&[u8], Protocol), most: u64) -> Input {
        Input::new(protocol)
            .bytes(shown_key(key))
            .bytes(&reader.group)
            .bytes(&reader.consumer)
            .number(farcore_tuning::system_ms())
            .number(most)
    }

    /// Reads what a group's consumer gets of a stream; nothing if it need not be replied.
    async fn read_as(
        &self,
        (core, output): Step<'_>,
        (key, protocol): (&[u8], Protocol),
        (reader, from): (&Reader, From),
    ) -> std::result::Result<Option<(Vec<u8>, u64)>, Failed> {
        let most = self.most();
        let (mut replies, mut count) = (Vec::new(), 0);
        let mut held = output.hold(0);
        let mut behind = match from {
            From::Behind(id) => Some(id),
            From::New | From::Last => None,
        };
        loop {
            let input = self.input(reader, (key, protocol), most - count);
            let (program, input) = match behind {
                Some(behind) => (StreamProgram::ReadAgain, input.id(behind)),
                None => (StreamProgram::Read, input.flag(reader.is_kept)),
            };
            let page = run(core, key, program, &input).await?;
            let page = Failed::check(page)?.ok_or_else(|| Failed::no_group(key, reader))?;
            let answered = Answered::of(&page);
            notify(output, key, answered, None);
            replies.extend_from_slice(answered.reply());
            count += answered.number();
            behind = behind.map(|_| answered.id());
            if !answered.has_more() || count >= most || answered.number() == 0 {
                break;
            }
            // What is delivered is replied; less of it, if the client may have no more.
            if held.grow_to(2 * replies.capacity()).is_err() || output.is_gone() {
                break;
            }
            output
                .end_read(core, (1, page.len()))
                .await
                .map_err(Failed::text)?;
        }
        let is_told = behind.is_some() || count > 0;
        Ok(is_told.then_some((replies, count)))
    }

    /// Reads what there is of a stream.
    async fn read(
        &self,
        (core, output): Step<'_>,
        place: usize,
        protocol: Protocol,
    ) -> std::result::Result<Option<(Vec<u8>, u64)>, Failed> {
        let key = &self.streams[place];
        let from = self.from.borrow()[place];
        if let Some(reader) = &self.reader {
            let step = (&mut *core, output);
            return self.read_as(step, (key, protocol), (reader, from)).await;
        }
        let From::Behind(behind) = from else {
            return Ok(None);
        };
        let next = behind.next().unwrap_or(StreamId::LAST);
        let to = behind.next().map_or(StreamId::FIRST, |_| StreamId::LAST);
        let most = self.most();
        let ends = (next, to);
        let read = read_range((core, output), key, ends, (false, most), protocol).await?;
        let read = read.filter(|read| read.count > 0);
        Ok(read.map(|read| (read.replies, read.count)))
    }

    /// Reads all streams; the reply, and how many of them have something.
    async fn read_all(
        &self,
        (core, output): Step<'_>,
        protocol: Protocol,
    ) -> std::result::Result<(Vec<u8>, usize), Failed> {
        self.begin(core, protocol).await?;
        let (mut replies, mut streams) = (Vec::new(), 0);
        for place in 0..self.streams.len() {
            let step = (&mut *core, output);
            let Some((entries, count)) = self.read(step, place, protocol).await? else {
                continue;
            };
            streams += 1;
            let mut writer = Writer::new(&mut replies, protocol);
            if protocol == Protocol::Resp2 {
                writer.array(2);
            }
            writer.bulk(shown_key(&self.streams[place]));
            writer.array(usize::try_from(count).unwrap_or(usize::MAX));
            writer.raw(&entries);
        }
        Ok((replies, streams))
    }

    async fn take(
        &self,
        core: &mut Core,
        (output, protocol): (&TaskOutput, Protocol),
        errors: SourceErrors,
    ) -> bool {
        let read = self.read_all((&mut *core, output), protocol).await;
        match read {
            Ok((_, 0)) => {
                self.has_waited.set(true);
                false
            }
            Ok((replies, streams)) => {
                output.write(|bytes| {
                    let mut writer = Writer::new(bytes, protocol);
                    match protocol {
                        Protocol::Resp2 => writer.array(streams),
                        Protocol::Resp3 => writer.map(streams),
                    }
                    writer.raw(&replies);
                });
                true
            }
            // A client that waits for a stream waits on if there is something else instead.
            Err(Failed::Task(TaskFailure::Engine(error)))
                if errors == SourceErrors::Ignored
                    && self.reader.is_none()
                    && is_wrong_type(&error) =>
            {
                false
            }
            Err(Failed::Task(failure)) => {
                failure.write(output, protocol);
                true
            }
            Err(Failed::Replied(reply)) => {
                output.write(|bytes| bytes.extend_from_slice(Answered::of(&reply).reply()));
                true
            }
        }
    }
}

/// Why nothing is read.
enum Failed {
    Task(TaskFailure),
    /// A program has replied why.
    Replied(Vec<u8>),
}

impl Failed {
    /// What a program has answered, unless that is an error.
    fn check(ran: Option<Vec<u8>>) -> std::result::Result<Option<Vec<u8>>, Self> {
        match ran {
            Some(reply) if Answered::of(&reply).did(deeds::FAILED) => Err(Self::Replied(reply)),
            ran => Ok(ran),
        }
    }

    fn text(text: &'static str) -> Self {
        Self::Task(text.into())
    }

    fn no_group(key: &[u8], reader: &Reader) -> Self {
        let [key, group] = [shown_key(key), &reader.group].map(String::from_utf8_lossy);
        Self::Task(TaskFailure::Refused(format!(
            "NOGROUP No such key '{key}' or consumer group '{group}' in XREADGROUP with GROUP option"
        )))
    }
}

impl std::convert::From<TaskFailure> for Failed {
    fn from(failure: TaskFailure) -> Self {
        Self::Task(failure)
    }
}

impl std::convert::From<farcore::Error> for Failed {
    fn from(error: farcore::Error) -> Self {
        Self::Task(error.into())
    }
}

impl Takes for Wanted {
    fn awaited(&self) -> Awaited {
        Awaited::Stream
    }

    fn write_nothing(&self, writer: &mut Writer<'_>) {
        writer.null_array();
    }

    fn keys(&self) -> &[Vec<u8>] {
        &self.keys
    }

    fn in_database(&self, database: Database) -> Rc<dyn Takes> {
        Rc::new(Self {
            streams: keys_in(database, &self.streams),
            keys: keys_in(database, &self.keys),
            ..self.clone()
        })
    }

    fn take_from<'a>(
        &'a self,
        core: &'a mut Core,
        reply: (&'a TaskOutput, Protocol),
        _: &'a Readiness,
        (_, errors): (usize, SourceErrors),
    ) -> Taking<'a> {
        Box::pin(self.take(core, reply, errors))
    }
}

/// What the words before the streams say.
#[derive(Debug, Default)]
struct Words {
    wait_ms: Option<u64>,
    most: Option<u64>,
    reader: Option<(usize, usize)>,
    is_unkept: bool,
    /// The place of the first key.
    streams: usize,
}

impl Words {
    fn of(call: &Call<'_>, is_group: bool) -> std::result::Result<Self, Refusal> {
        let mut words = Self::default();
        let mut place = 1;
        while place < call.count() {
            let word = call.argument(place);
            let left = call.count() - 1 - place;
            if left > 0 && is_option(word, "block") {
                words.wait_ms = Some(wait_ms(call.argument(place + 1))?);
                place += 1;
            } else if left > 0 && is_option(word, "count") {
                let count = integer(call.argument(place + 1))?;
                words.most = u64::try_from(count).ok().filter(|&count| count > 0);
                place += 1;
            } else if left > 0 && is_option(word, "streams") {
                words.streams = place + 1;
                break;
            } else if left > 1 && is_option(word, "group") {
                if !is_group {
                    return Err("ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.".into());
                }
                words.reader = Some((place + 1, place + 2));
                place += 2;
            } else if is_option(word, "noack") {
                if !is_group {
                    return Err("ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.".into());
                }
                words.is_unkept = true;
            } else {
                return Err(SYNTAX.into());
            }
            place += 1;
        }
        if words.streams > 0 && !(call.count() - words.streams).is_multiple_of(2) {
            return Err("ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be specified.".into());
        }
        if words.streams == 0 {
            return Err(SYNTAX.into());
        }
        if is_group && words.reader.is_none() {
            return Err("ERR Missing GROUP option for XREADGROUP".into());
        }
        Ok(words)
    }
}

/// A time in milliseconds; 0 is without end.
fn wait_ms(text: &[u8]) -> std::result::Result<u64, Refusal> {
    let time = integer(text).map_err(|_| "ERR timeout is not an integer or out of range")?;
    let time = u64::try_from(time).map_err(|_| "ERR timeout is negative")?;
    let most = i64::MAX.unsigned_abs() - farcore_tuning::system_ms();
    if time > most {
        return Err("ERR timeout is out of range".into());
    }
    Ok(time)
}

fn from(text: &[u8], is_group: bool) -> std::result::Result<From, Refusal> {
    match text {
        b"$" if is_group => Err("ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just return an empty result set.".into()),
        b"$" => Ok(From::Last),
        b">" if is_group => Ok(From::New),
        b">" => Err("ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.".into()),
        text => Ok(match id(text)? {
            // The last ID stands for new entries; as Redis.
            StreamId::LAST if is_group => From::New,
            id => From::Behind(id),
        }),
    }
}

fn read(call: &mut Call<'_>, is_group: bool) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let words = Words::of(call, is_group)?;
    if words.wait_ms.is_some() && call.connection.script.is_some() {
        let name = if is_group { "xreadgroup" } else { "xread" };
        return Err(Refusal(format!(
            "ERR {name} command is not allowed with BLOCK option from scripts"
        )));
    }
    let count = (call.count() - words.streams) / 2;
    let ids = words.streams + count;
    let mut refused = None;
    let froms = (ids..call.count()).map(|place| {
        from(call.argument(place), is_group).unwrap_or_else(|refusal| {
            refused.get_or_insert((place - ids, refusal));
            From::Last
        })
    });
    let froms = froms.collect();
    let streams = (words.streams..ids).map(|place| call.key_at(place).to_vec());
    let reader = words.reader.map(|(group, consumer)| Reader {
        group: call.argument(group).to_vec(),
        consumer: call.argument(consumer).to_vec(),
        is_kept: !words.is_unkept,
    });
    let wanted = Wanted {
        streams: streams.collect(),
        keys: distinct_keys(call, words.streams..ids),
        from: RefCell::new(froms),
        most: words.most,
        has_waited: Cell::new(false),
        refused,
        reader,
    };
    match words.wait_ms {
        Some(wait_ms) => start_or_wait(call, wanted, wait_ms),
        None => Ok(start(call, wanted)),
    }
}

pub(super) fn xread(call: &mut Call<'_>) -> Result {
    read(call, false)
}

pub(super) fn xreadgroup(call: &mut Call<'_>) -> Result {
    read(call, true)
}
