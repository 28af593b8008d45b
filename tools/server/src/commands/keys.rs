//! Commands of keys whatever their values are, and of all keys.

use farcore::{Core, Cursor, Error, Operation};

use super::arguments::{cursor, is_option, pattern};
use super::key_walk::{Names, Walk};
use super::{Call, Flow, Refusal, SYNTAX};
use crate::conn::joined_reply::JoinedReplyKind;
use crate::databases::Database;
use crate::events::classes::EventClasses;
use crate::resp::Writer;
use crate::tasks::output::TaskOutput;
use crate::types::kind::{Kind, PLAIN};
use crate::types::replies::ReplyKind;
use crate::words::NO_INTEGER;

type Result = std::result::Result<Flow, Refusal>;

/// Why a page of `SCAN` is not listed.
const NO_MEMORY: &str =
    "ERR other clients have the memory for clients: try again, or raise --client-memory";
/// Keys of a page of `SCAN`, by default; as Redis.
const SCAN_KEYS: u64 = 10;
/// Keys of a page of `SCAN`, at most.
const SCAN_KEYS_MAX: u64 = 100_000;

pub(super) fn del(call: &mut Call<'_>) -> Result {
    if call.count() == 2 {
        let key = call.key();
        return Ok(call.request(ReplyKind::IsDeleted, Operation::Delete { key }));
    }
    let count = call.count() - 1;
    Ok(call.requests(JoinedReplyKind::Count, count, |call, part| {
        Operation::Delete {
            key: call.key_at(1 + part),
        }
    }))
}

pub(super) fn exists(call: &mut Call<'_>) -> Result {
    if call.count() == 2 {
        let key = call.key();
        return Ok(call.request(ReplyKind::Exists, Operation::Inspect { key }));
    }
    let count = call.count() - 1;
    Ok(call.requests(JoinedReplyKind::Count, count, |call, part| {
        Operation::Inspect {
            key: call.key_at(1 + part),
        }
    }))
}

pub(super) fn type_of(call: &mut Call<'_>) -> Result {
    let key = call.key();
    // A plan has plain values alone.
    if call.plan.is_some() {
        return Ok(call.request(ReplyKind::PlainType, Operation::Inspect { key }));
    }
    let key = key.to_vec();
    Ok(call.task(move |mut core, output, protocol| async move {
        let name = type_of_key(&mut core, &key).await;
        if name == Ok(ABSENT) {
            output.notify(EventClasses::MISSED, "keymiss", &key);
        }
        output.finish(protocol, name, |writer, name| {
            writer.simple(name);
        });
        core
    }))
}

/// The type of an absent key.
const ABSENT: &str = "none";

/// The type of a key.
async fn type_of_key(core: &mut Core, key: &[u8]) -> farcore::Result<&'static str> {
    match core.tree(key).len().await {
        Ok(length) if length.version > 0 => Ok(Kind::name_of_tag(length.tag)),
        Ok(_) | Err(Error::KeyTooLong { .. }) => Ok(ABSENT),
        Err(Error::NoCollection) => Ok(PLAIN),
        Err(error) => Err(error),
    }
}

/// The options of `SCAN`.
struct Scan {
    /// Of which keys are listed, if not of all.
    database: Option<Database>,
    word: u64,
    pattern: Option<Vec<u8>>,
    entries: usize,
    /// The type that is wanted, if one is.
    type_name: Option<Vec<u8>>,
}

impl Scan {
    fn of(call: &Call<'_>) -> std::result::Result<Self, Refusal> {
        let mut scan = Self {
            database: call.database_among_several(),
            word: cursor(call.argument(1))?,
            pattern: None,
            entries: usize::try_from(SCAN_KEYS).unwrap_or(1),
            type_name: None,
        };
        let mut place = 2;
        while place < call.count() {
            if place + 1 == call.count() {
                return Err(SYNTAX.into());
            }
            let (option, value) = (call.argument(place), call.argument(place + 1));
            if is_option(option, "match") {
                scan.pattern = Some(pattern(value)?.to_vec());
            } else if is_option(option, "count") {
                let count = super::arguments::integer(value)?;
                if count < 1 {
                    return Err(SYNTAX.into());
                }
                let count = u64::try_from(count).map_err(|_| NO_INTEGER)?;
                scan.entries = usize::try_from(count.min(SCAN_KEYS_MAX)).unwrap_or(1);
            } else if is_option(option, "type") {
                scan.type_name = Some(value.to_vec());
            } else {
                return Err(SYNTAX.into());
            }
            place += 2;
        }
        Ok(scan)
    }
}

impl Scan {
    /// A page: where the next one begins, and the names. It is shorter than is wanted if the client
    /// may not have the memory for more; `None` if it may not for any.
    async fn page(
        &self,
        core: &mut Core,
        output: &TaskOutput,
    ) -> farcore::Result<Option<(u64, Names)>> {
        let (pattern, type_name) = (self.pattern.as_deref(), self.type_name.as_deref());
        let mut walk = Walk::new(core.cursor(self.word), self.database, pattern, type_name);
        let (mut names, mut looked) = (Names::new(output), 0);
        loop {
            let before = walk.cursor();
            let Some(page) = walk.step(core, self.entries - looked).await? else {
                return Ok(Some((0, names)));
            };
            let count = names.count();
            if !walk.matching(&page).all(|name| names.add(name)) {
                // The step's keys come with the next page.
                names.truncate(count);
                let before = before.map_or(0, Cursor::to_word);
                return Ok((before != 0).then_some((before, names)));
            }
            looked += page.entries().count();
            let next = walk.cursor().map_or(0, Cursor::to_word);
            if next == 0 || looked >= self.entries {
                return Ok(Some((next, names)));
            }
        }
    }
}

pub(super) fn scan(call: &mut Call<'_>) -> Result {
    let scan = Scan::of(call)?;
    Ok(call.task(move |mut core, output, protocol| async move {
        match scan.page(&mut core, &output).await {
            Ok(None) => output.write(|bytes| Writer::new(bytes, protocol).error(NO_MEMORY)),
            Ok(Some((next, names))) => {
                output.write(|bytes| {
                    let mut writer = Writer::new(bytes, protocol);
                    writer.array(2);
                    writer.bulk(next.to_string().as_bytes());
                    writer.array(names.count());
                });
                for name in names.iter() {
                    output.room(&core).await;
                    output.write(|bytes| Writer::new(bytes, protocol).bulk(name));
                }
            }
            Err(error) => output.fail(protocol, &error),
        }
        core
    }))
}
