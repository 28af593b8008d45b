//! A full synchronisation: all keys, read one after the other while the stream goes on.
//!
//! ```text
//! pages of keys -> plain values ------------------\
//!               -> collections, values in pieces -> payloads -> file -> replicas, or a file of the system
//! ```

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use farcore::{Cursor, Version};
use farcore_rdb::write::{self, types};
use farcore_rdb::{FileWriter, Packer, payload};
use rustix::event::PollFlags;

use super::reader::{Answer, PageKey, ReadError, Reader};
use super::window::Window;
use crate::cluster::{SlotSet, slot_of};
use crate::databases::shown_key;
use crate::figures::information::REDIS_VERSION;
use crate::replication::history::{ID_BYTES, StreamId};

/// Bytes of a file that wait to be sent, from which on no more keys are read.
const WAITING_MAX: usize = 1 << 20;

/// Why a full synchronisation fails.
#[derive(Debug, thiserror::Error)]
pub(super) enum SyncError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("the data cannot be gathered in a file of {}: {error}; set TMPDIR to where there is room", std::env::temp_dir().display())]
    Gather { error: io::Error },
    #[error("a payload is malformed")]
    Payload,
    #[error("{0}")]
    Disturbed(&'static str),
    #[error(
        "the changes since it began take {bytes} bytes, the most is {most}; raise the limit for replicas of client-output-buffer-limit"
    )]
    TooLong { bytes: u64, most: u64 },
}

/// What has become of a full synchronisation.
#[derive(Debug)]
pub(super) struct Finished {
    /// The file and its length, if it was gathered.
    pub(super) gathered: Option<(File, u64)>,
    /// Else its last bytes.
    pub(super) rest: Vec<u8>,
    /// What its replicas must not be told again.
    pub(super) window: Window,
}

/// A full synchronisation that is under way.
#[derive(Debug)]
pub(super) struct Sync {
    pub(super) window: Window,
    /// Keys that were read, and their versions, which the window does not know yet.
    read: Vec<(Vec<u8>, Version)>,
    /// Once all keys are read: those of which changes were not written then, and the versions that
    /// the stream must have before the data are whole.
    pub(super) unwritten: Option<Vec<(Arc<[u8]>, Version)>>,
    reader: Reader,
    /// The identity that the stream has for those who load these data, see `Publisher`.
    pub(super) id: StreamId,
    /// The first byte of the stream behind the data.
    pub(super) start: u64,
    /// Where the next page begins; `None` if it is on its way, or there is none.
    next: Option<Cursor>,
    is_last: bool,
    /// Whose keys are wanted, if not all are.
    slots: Option<Arc<SlotSet>>,
    keys: VecDeque<PageKey>,
    file: FileWriter,
    packer: Packer,
    database: Option<u8>,
    /// Bytes of the file that were not passed on yet.
    pub(super) out: Vec<u8>,
    /// Where the file is gathered, for replicas that want its length before it.
    gathered: Option<File>,
    bytes: u64,
    /// What ends the data, for others.
    pub(super) mark: StreamId,
}

impl Sync {
    /// Begins one, with the data of the stream up to `start`, behind which it is about a database:
    /// of some slots, or of all.
    pub(super) fn begin(
        reader: Reader,
        (start, stream_database): (u64, u64),
        (is_gathered, slots): (bool, Option<Arc<SlotSet>>),
    ) -> Result<Self, SyncError> {
        let gathered = match is_gathered {
            true => Some(unnamed_file().map_err(|error| SyncError::Gather { error })?),
            false => None,
        };
        let id = StreamId::random();
        let mut sync = Self {
            id,
            window: Window::default(),
            read: Vec::new(),
            unwritten: None,
            reader,
            start,
            next: Some(Cursor::START),
            is_last: false,
            slots,
            keys: VecDeque::new(),
            file: FileWriter::default(),
            packer: Packer::default(),
            database: None,
            out: Vec::new(),
            gathered,
            bytes: 0,
            mark: StreamId::random(),
        };
        let seconds = farcore_tuning::system_ms() / 1000;
        let (file, out) = (&mut sync.file, &mut sync.out);
        file.begin(out);
        for (name, value) in [
            ("redis-ver", REDIS_VERSION.to_owned()),
            ("redis-bits", "64".to_owned()),
            ("ctime", seconds.to_string()),
            ("repl-stream-db", stream_database.to_string()),
            ("repl-id", id.to_string()),
            ("repl-offset", start.to_string()),
            ("aof-base", "0".to_owned()),
        ] {
            file.aux(out, name.as_bytes(), value.as_bytes());
        }
        sync.note(0)?;
        Ok(sync)
    }

    /// True if the file is gathered first.
    pub(super) fn is_gathered(&self) -> bool {
        self.gathered.is_some()
    }

    /// What is waited for at the socket of its reader.
    pub(super) fn interest(&self) -> (BorrowedFd<'_>, PollFlags) {
        self.reader.interest(self.out.len() < WAITING_MAX)
    }

    /// True once all keys are in the file.
    pub(super) fn has_all(&self) -> bool {
        self.is_last && self.keys.is_empty() && self.reader.is_idle()
    }

    /// Notes in the window what was read, once all changes were taken that it may have. `may_miss`:
    /// as [`Window::note_data`] says.
    pub(super) fn note_read(&mut self, may_miss: bool) {
        for (key, version) in self.read.drain(..) {
            self.window.note_data(&key, version, may_miss);
        }
    }

    /// Reads on, unless enough waits. `number_of` says which database a stored key is of. True if
    /// something was read.
    pub(super) fn step(
        &mut self,
        number_of: impl Fn(&[u8]) -> Option<u8>,
    ) -> Result<bool, SyncError> {
        let mut is_busy = false;
        while self.out.len() < WAITING_MAX {
            while self.reader.has_room()
                && let Some(key) = self.keys.pop_front()
            {
                self.reader.want_key(key.key.into());
            }
            if self.keys.is_empty()
                && let Some(cursor) = self.next.take()
            {
                self.reader.want_page(cursor);
            }
            self.reader.send()?;
            match self.reader.next()? {
                None => break,
                Some(Answer::Page(keys, next)) => {
                    self.is_last = next.is_none();
                    self.next = next;
                    for key in keys {
                        let slots = self.slots.as_ref();
                        let slot = || slot_of(shown_key(&key.key));
                        if slots.is_some_and(|slots| !slots.contains(slot())) {
                            continue;
                        }
                        self.page_key(key, &number_of)?;
                    }
                }
                Some(Answer::Key(_, None) | Answer::Lost(_)) => {}
                Some(Answer::Key(key, Some((version, expiry_ms, payload)))) => {
                    let (body, _) = payload::split(&payload).ok_or(SyncError::Payload)?;
                    let (kind, body) = payload::value(body).ok_or(SyncError::Payload)?;
                    if let Some(number) = number_of(&key) {
                        self.add((&key, number), (kind, expiry_ms, body))?;
                    }
                    self.read.push((key.to_vec(), version));
                }
            }
            is_busy = true;
        }
        Ok(is_busy)
    }

    fn page_key(
        &mut self,
        key: PageKey,
        number_of: impl Fn(&[u8]) -> Option<u8>,
    ) -> Result<(), SyncError> {
        let Some(value) = &key.value else {
            self.keys.push_back(key);
            return Ok(());
        };
        let mut body = Vec::with_capacity(value.len() + 5);
        write::string(&mut body, value, &mut self.packer);
        if let Some(number) = number_of(&key.key) {
            self.add((&key.key, number), (types::STRING, key.expiry_ms, &body))?;
        }
        self.read.push((key.key, key.version));
        Ok(())
    }

    fn add(
        &mut self,
        (key, number): (&[u8], u8),
        (kind, expiry_ms, body): (u8, Option<u64>, &[u8]),
    ) -> Result<(), SyncError> {
        let start = self.out.len();
        if self.database.replace(number) != Some(number) {
            // How many keys there are is only a hint, which a reader makes room for.
            self.file.database(&mut self.out, number.into(), (0, 0));
        }
        let head = (kind, expiry_ms);
        self.file.key(&mut self.out, shown_key(key), head);
        self.out.extend_from_slice(body);
        self.note(start)
    }

    /// Notes bytes of the file from a place on, and gathers them if they are.
    fn note(&mut self, start: usize) -> Result<(), SyncError> {
        self.file.note(&self.out[start..]);
        self.bytes += (self.out.len() - start) as u64;
        self.gather()
    }

    fn gather(&mut self) -> Result<(), SyncError> {
        if let Some(file) = &mut self.gathered {
            let written = file.write_all(&self.out);
            written.map_err(|error| SyncError::Gather { error })?;
            self.out.clear();
        }
        Ok(())
    }

    /// Ends the file.
    pub(super) fn finish(mut self) -> Result<Finished, SyncError> {
        let file = std::mem::take(&mut self.file);
        self.out.extend(file.end());
        self.bytes += 9;
        self.gather()?;
        let gathered = match self.gathered.take() {
            Some(mut file) => {
                let rewound = file.rewind();
                rewound.map_err(|error| SyncError::Gather { error })?;
                Some((file, self.bytes))
            }
            None => {
                self.out.extend_from_slice(self.mark.to_string().as_bytes());
                None
            }
        };
        Ok(Finished {
            gathered,
            rest: std::mem::take(&mut self.out),
            window: self.window,
        })
    }

    /// The line before data that end with the mark.
    pub(super) fn mark_line(&self) -> String {
        debug_assert_eq!(self.mark.to_string().len(), ID_BYTES);
        format!("$EOF:{}\r\n", self.mark)
    }
}

/// A file without a name, which is gone when it is closed.
fn unnamed_file() -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = open(std::env::temp_dir(), flags, Mode::RUSR | Mode::WUSR)?;
    Ok(File::from(file))
}
