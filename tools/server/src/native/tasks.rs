//! Requests of several steps: each is a future with its client of the core.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use farcore::{Core, Cursor, Error, PutOptions, PutOutcome};
use farcore_protocol::scan;
use farcore_protocol::{HEADER_BYTES, Header, Status, TRANSFER_SLOT_BYTES_MAX};

use crate::long::input::{LongInput, STALLED};
use crate::long::places::PlaceWait;
use crate::memory::{Account, Charge};
use crate::tasks::event_sink::EventSink;

use super::connection::OwnedAnswer;
use super::events::leave_put;
use super::long_put::long_bytes;
use super::operations::{status_of, text_of, unmet};
use super::pages::Page;

/// What a task is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// A request, by its receive.
    Request(u16),
    /// A long put, by its id.
    LongPut(u32),
}

/// A put of a value that comes in parts.
pub(super) struct LongPutTask {
    pub(super) header: Header,
    pub(super) key: Vec<u8>,
    pub(super) input: LongInput,
    pub(super) options: PutOptions<'static>,
    /// A record holds it.
    pub(super) is_record: bool,
    /// Where its events go.
    pub(super) events: EventSink,
}

/// Copies of a part that is read: its client's, and the answer's.
const COPIES: usize = 2;
/// Bytes of a part that is read while little memory is left.
const SHORT_BYTES: usize = 64 << 10;
/// Clients without a task that are kept.
const IDLE_MAX: usize = 16;
/// Bytes of buffers that such a client keeps.
const IDLE_BYTES: usize = 4 << 10;

/// How a task ended.
pub(super) type Ended = OwnedAnswer;

type TaskFuture = Pin<Box<dyn Future<Output = (Core, Ended)>>>;

struct Task {
    connection: usize,
    place: Place,
    future: TaskFuture,
}

/// The requests of several steps of a core.
#[derive(Default)]
pub(super) struct Tasks {
    running: Vec<Task>,
    /// Clients without a task.
    idle: Vec<Core>,
}

/// An answer with a value that takes no memory which counts.
fn ended(header: Header, value: Vec<u8>) -> Ended {
    OwnedAnswer {
        header,
        value,
        held: None,
    }
}

/// An answer with an error and its text.
fn failed(header: &Header, error: &Error) -> Ended {
    let status = status_of(error);
    ended(header.answer(status), text_of(error).into_bytes())
}

/// Bytes of a part that a request reads of a value of several pieces, at most.
fn wanted_bytes(header: &Header) -> usize {
    let most = TRANSFER_SLOT_BYTES_MAX - HEADER_BYTES;
    match header.value_bytes {
        0 => most,
        bytes => most.min(bytes as usize),
    }
}

/// Charges the part that a request reads, and what its client reads at once. While little memory is
/// left, the part is short: the request is for a part at least. `None` if there is none even for
/// that.
pub(super) fn charge_read(account: &Account, header: &Header) -> Option<(usize, Charge)> {
    let wanted = wanted_bytes(header);
    if let Ok(held) = account.try_charge(COPIES * wanted) {
        return Some((wanted, held));
    }
    let short = wanted.min(SHORT_BYTES);
    let held = account.try_charge_first(COPIES * short)?;
    Some((short, held))
}

impl Tasks {
    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    fn client(&mut self, core: &Core) -> Core {
        self.idle.pop().unwrap_or_else(|| core.another())
    }

    fn start(
        &mut self,
        (connection, place): (usize, Place),
        future: impl Future<Output = (Core, Ended)> + 'static,
    ) {
        self.running.push(Task {
            connection,
            place,
            future: Box::pin(future),
        });
    }

    /// Reads a part of a value of several pieces, which has `total` bytes.
    pub(super) fn read(
        &mut self,
        core: &Core,
        of: (usize, Place),
        (header, key): (Header, Vec<u8>),
        (total, wanted, held): (u64, usize, Charge),
    ) {
        let mut core = self.client(core);
        self.start(of, async move {
            let mut value = Vec::new();
            let read = read_part(&mut core, (&header, &key), (total, wanted), &mut value).await;
            let answer = match read {
                Ok(Some((version, total))) => {
                    let changed = header.version != 0 && header.version != version;
                    let status = if changed {
                        value.clear();
                        Status::VersionMismatch
                    } else {
                        Status::Ok
                    };
                    let found = Header {
                        version,
                        argument: total,
                        ..header.answer(status)
                    };
                    ended(found, value)
                }
                Ok(None) => ended(header.answer(Status::NotFound), Vec::new()),
                Err(error) => failed(&header, &error),
            };
            let held = Some(held);
            (core, Ended { held, ..answer })
        });
    }

    /// Stores a value that comes in parts.
    pub(super) fn put(&mut self, core: &Core, connection: usize, put: LongPutTask) {
        let mut core = self.client(core);
        let place = Place::LongPut(put.header.id);
        self.start((connection, place), async move {
            let header = put.header;
            let length = long_bytes(&header) as u64;
            let outcome = if put.is_record {
                let value = gather(&core, &put.input).await;
                let given = value.len() as u64;
                if given == length {
                    core.put_with(&put.key, &value, put.options).await
                } else {
                    Err(Error::LongValueLength {
                        said: length,
                        given,
                    })
                }
            } else {
                let shared = put.events.shared();
                shared.note_large_value();
                let mut place = PlaceWait::default();
                put.input.note_shard(core.shard_of(&put.key));
                loop {
                    let parts = put.input.parts();
                    let stored = core
                        .put_long_with(&put.key, length, parts, put.options)
                        .await;
                    if !place
                        .again(&core, (&shared.long_places, &put.input), &stored)
                        .await
                    {
                        break stored;
                    }
                }
            };
            leave_put(&put.events, &put.key, put.options, &outcome);
            let answer = match outcome {
                Ok(PutOutcome::Stored(version)) => {
                    let stored = Header {
                        version,
                        ..header.answer(Status::Ok)
                    };
                    ended(stored, Vec::new())
                }
                Ok(PutOutcome::Unmet(current)) => {
                    let unmet = Header {
                        version: current,
                        ..header.answer(unmet(&header, current))
                    };
                    ended(unmet, Vec::new())
                }
                Ok(PutOutcome::Expired) => ended(header.answer(Status::Ok), Vec::new()),
                Err(_) if put.input.is_reclaimed() => {
                    let text = STALLED.trim_start_matches("ERR ");
                    ended(header.answer(Status::Busy), text.into())
                }
                Err(error) => failed(&header, &error),
            };
            (core, answer)
        });
    }

    /// Lists a page of keys, for which there is memory.
    pub(super) fn scan(
        &mut self,
        core: &Core,
        of: (usize, Place),
        (header, cursor): (Header, Option<scan::Cursor>),
        (entries, values): (u32, bool),
        (room, held): (usize, Charge),
    ) {
        let mut core = self.client(core);
        self.start(of, async move {
            let cursor = cursor.map_or(Cursor::START, Cursor::from_bytes);
            let mut page = Page::new(cursor, values, room);
            let answer = match page.fill(&mut core, entries as usize).await {
                Ok(()) => ended(header.answer(Status::Ok), page.encode()),
                Err(error) => failed(&header, &error),
            };
            let held = Some(held);
            (core, Ended { held, ..answer })
        });
    }

    /// Makes lost keys absent; the answer's argument is how many there may have been.
    pub(super) fn forget_lost(&mut self, core: &Core, of: (usize, Place), header: Header) {
        let mut core = self.client(core);
        self.start(of, async move {
            let answer = match core.forget_lost().await {
                Ok(keys) => {
                    let header = Header {
                        argument: keys,
                        ..header.answer(Status::Ok)
                    };
                    ended(header, Vec::new())
                }
                Err(error) => failed(&header, &error),
            };
            (core, answer)
        });
    }

    /// Has each task go on as far as it can, and visits those that ended. True if any did.
    pub(super) fn turn(&mut self, mut visit: impl FnMut(usize, Place, Ended)) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let mut is_busy = false;
        let mut at = 0;
        while let Some(task) = self.running.get_mut(at) {
            match task.future.as_mut().poll(&mut context) {
                Poll::Ready((mut core, ended)) => {
                    let task = self.running.swap_remove(at);
                    if self.idle.len() < IDLE_MAX {
                        core.shrink_buffers(IDLE_BYTES);
                        self.idle.push(core);
                    }
                    visit(task.connection, task.place, ended);
                    is_busy = true;
                }
                Poll::Pending => at += 1,
            }
        }
        is_busy
    }
}

/// Times that a first part is read again because the value was replaced meanwhile.
const READS_MAX: usize = 16;

/// Reads a part of a value; returns the value's version and its bytes in all. The first part says
/// how many there are of the version that it is of: `total` may be of one before.
async fn read_part(
    core: &mut Core,
    (header, key): (&Header, &[u8]),
    (total, wanted): (u64, usize),
    value: &mut Vec<u8>,
) -> farcore::Result<Option<(u64, u64)>> {
    for _ in 0..READS_MAX {
        let read = core.get_long_range(key, header.offset, wanted as u64, value);
        let Some(version) = read.await? else {
            return Ok(None);
        };
        if header.offset > 0 {
            return Ok(Some((version, total)));
        }
        if value.len() < wanted {
            return Ok(Some((version, value.len() as u64)));
        }
        if let Some(metadata) = core.inspect(key).await?
            && metadata.version == version
        {
            return Ok(Some((version, metadata.length)));
        }
    }
    Err(Error::LongValueGone)
}

/// All bytes of a value, or those that come.
async fn gather(core: &Core, input: &LongInput) -> Vec<u8> {
    let mut value = Vec::new();
    for part in input.parts() {
        if part.is_empty() {
            core.yield_now().await;
        } else {
            value.extend_from_slice(&part);
        }
    }
    value
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks")
            .field("running", &self.running.len())
            .field("idle", &self.idle.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use farcore_protocol::Kind;

    use crate::memory::{ClientMemory, CoreMemory};

    use super::*;

    fn account(limit: usize) -> Account {
        Account::new(&CoreMemory::new(Arc::new(ClientMemory::new(limit, 1))))
    }

    #[test]
    fn what_is_read_is_charged_first_and_short_while_memory_is() {
        let header = Header {
            value_bytes: 1 << 20,
            ..Header::new(Kind::Get, 1)
        };
        let account = account(8 << 20);
        let (whole, mut held) = (wanted_bytes(&header), Vec::new());
        while let Some((wanted, charge)) = charge_read(&account, &header) {
            let is_whole = account.held() <= 6 << 20;
            assert_eq!(wanted, if is_whole { whole } else { SHORT_BYTES });
            assert_eq!(charge.bytes(), COPIES * wanted);
            held.push(charge);
        }
        assert!(held.len() > 10, "{} parts", held.len());
        assert!(account.held() > (8 << 20) - COPIES * SHORT_BYTES);
        // A core reserves in steps.
        held.truncate(held.len() - 4);
        assert!(charge_read(&account, &header).is_some());
    }
}
