//! Requests of several steps: each is a future with its client of the core.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use farcore::{Core, Cursor, Error, PutOptions, PutOutcome, ScanOptions, ScanPage};
use farcore_protocol::scan::{self, ENTRY_BYTES, PAGE_BYTES, ScanEntry, begin_page, push_entry};
use farcore_protocol::{HEADER_BYTES, Header, Status, TRANSFER_SLOT_BYTES_MAX};

use crate::gate::{Passes, last_at_gate};
use crate::key_events::EventSink;
use crate::long_input::LongInput;

use super::events::leave_put;
use super::long_put::long_bytes;
use super::operations::{status_of, unmet};

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
    /// Whether it may be stored.
    pub(super) passes: Rc<Passes>,
}

/// How a task ended: the answer's header, and its value.
pub(super) type Ended = (Header, Vec<u8>);

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

/// An answer with an error and its text.
fn failed(header: &Header, error: &Error) -> Ended {
    let status = status_of(error);
    (header.answer(status), error.to_string().into_bytes())
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
        total: u64,
    ) {
        let mut core = self.client(core);
        let most = TRANSFER_SLOT_BYTES_MAX - HEADER_BYTES;
        let wanted = match header.value_bytes {
            0 => most,
            bytes => most.min(bytes as usize),
        };
        self.start(of, async move {
            let mut value = Vec::new();
            let read = core
                .get_long_range(&key, header.offset, wanted as u64, &mut value)
                .await;
            let ended = match read {
                Ok(Some(version)) => {
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
                    (found, value)
                }
                Ok(None) => (header.answer(Status::NotFound), Vec::new()),
                Err(error) => failed(&header, &error),
            };
            (core, ended)
        });
    }

    /// Stores a value that comes in parts.
    pub(super) fn put(&mut self, core: &Core, connection: usize, put: LongPutTask) {
        let mut core = self.client(core);
        let place = Place::LongPut(put.header.id);
        self.start((connection, place), async move {
            let header = put.header;
            let length = long_bytes(&header) as u64;
            // From the last part on, until it is stored.
            let mut pass = None;
            let mut may_pass = || {
                pass = pass.take().or_else(|| put.passes.take(false));
                pass.is_some()
            };
            let outcome = if put.is_record {
                let value = gather(&core, &put.input).await;
                let given = value.len() as u64;
                while !may_pass() {
                    core.yield_now().await;
                }
                if given == length {
                    core.put_with(&put.key, &value, put.options).await
                } else {
                    Err(Error::LongValueLength {
                        said: length,
                        given,
                    })
                }
            } else {
                let parts = last_at_gate(put.input.parts(), long_bytes(&header), may_pass);
                put.events.shared().note_long_value();
                core.put_long_with(&put.key, length, parts, put.options)
                    .await
            };
            drop(pass);
            leave_put(&put.events, &put.key, put.options, &outcome);
            let ended = match outcome {
                Ok(PutOutcome::Stored(version)) => {
                    let stored = Header {
                        version,
                        ..header.answer(Status::Ok)
                    };
                    (stored, Vec::new())
                }
                Ok(PutOutcome::Unmet(current)) => {
                    let unmet = Header {
                        version: current,
                        ..header.answer(unmet(&header, current))
                    };
                    (unmet, Vec::new())
                }
                Ok(PutOutcome::Expired) => (header.answer(Status::Ok), Vec::new()),
                Err(error) => failed(&header, &error),
            };
            (core, ended)
        });
    }

    /// Lists a page of keys.
    pub(super) fn scan(
        &mut self,
        core: &Core,
        of: (usize, Place),
        (header, cursor): (Header, Option<scan::Cursor>),
        (entries, values): (u32, bool),
    ) {
        let mut core = self.client(core);
        self.start(of, async move {
            let cursor = cursor.map_or(Cursor::START, Cursor::from_bytes);
            let options = ScanOptions {
                values,
                entries: entries as usize,
            };
            let ended = match core.scan(cursor, options).await {
                Ok(page) => (header.answer(Status::Ok), encode_page(&page)),
                Err(error) => failed(&header, &error),
            };
            (core, ended)
        });
    }

    /// Has each task go on as far as it can, and visits those that ended. True if any did.
    pub(super) fn turn(&mut self, mut visit: impl FnMut(usize, Place, Ended)) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        let mut is_busy = false;
        let mut at = 0;
        while let Some(task) = self.running.get_mut(at) {
            match task.future.as_mut().poll(&mut context) {
                Poll::Ready((core, ended)) => {
                    let task = self.running.swap_remove(at);
                    self.idle.push(core);
                    visit(task.connection, task.place, ended);
                    is_busy = true;
                }
                Poll::Pending => at += 1,
            }
        }
        is_busy
    }
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

/// A page with all keys, and with those values that fit a transfer slot.
fn encode_page(page: &ScanPage) -> Vec<u8> {
    let mut body = Vec::new();
    begin_page(
        &mut body,
        page.next().map(Cursor::to_bytes),
        page.unreadable(),
    );
    let keys = |entry: farcore::Entry<'_>| ENTRY_BYTES + entry.key.len();
    let heads = page.entries().map(keys).sum::<usize>() + PAGE_BYTES;
    let mut room = (TRANSFER_SLOT_BYTES_MAX - HEADER_BYTES).saturating_sub(heads);
    for entry in page.entries() {
        let value = entry.value.filter(|value| value.len() <= room);
        room -= value.map_or(0, <[u8]>::len);
        push_entry(
            &mut body,
            &ScanEntry {
                key: entry.key,
                value,
                version: entry.version,
                length: entry.length as u64,
                expiry_ms: entry.expiry_ms,
                structured: entry.structured,
            },
        );
    }
    body
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks")
            .field("running", &self.running.len())
            .field("idle", &self.idle.len())
            .finish()
    }
}
