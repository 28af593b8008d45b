//! Removes the keys of some slots: of those that are brought here, before they come and if they do
//! not come whole, and of those that another server owns.
//!
//! It walks over all keys once, by a connection as a client's, and removes some at a time, so that
//! clients are served in between.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::inner;
use super::source::write_command;
use crate::cluster::{SlotSet, slot_of};
use crate::cores::message::ArrivalKind;
use crate::cores::shared::Shared;

/// Keys that are looked at at once.
const COUNT: &[u8] = b"1000";
/// How long a core may take to answer: it may be busy with a long command.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of a line of a reply, at most.
const LINE_BYTES_MAX: u64 = 4 << 10;

/// Removes the keys of slots that are another server's, in a thread of its own; not of those that
/// come back meanwhile.
pub(crate) fn forget(shared: &Arc<Shared>, slots: Arc<SlotSet>) {
    let shared = Arc::clone(shared);
    let thread = thread::Builder::new().name("farcore-slots".to_owned());
    let started = thread.spawn(move || {
        let is_over = || shared.is_stopping();
        match remove(&shared, &slots, is_over, |slot| is_wanted(&shared, slot)) {
            Ok(keys) => tracing::info!(keys, slots = %slots, "keys of another server's slots are removed"),
            Err(error) => tracing::warn!(%error, slots = %slots, "keys of another server's slots are not removed: send CLUSTERX FORGET"),
        }
    });
    if let Err(error) = started {
        tracing::warn!(%error, "keys of another server's slots are not removed: no thread for it");
    }
}

/// True if a slot is this server's, or is brought here.
pub(crate) fn is_wanted(shared: &Shared, slot: u16) -> bool {
    let imports = shared.replication.imports.state();
    let import = imports.as_ref().filter(|import| !import.phase.is_over());
    import.is_some_and(|import| import.slots.contains(slot)) || {
        drop(imports);
        is_own(shared, slot)
    }
}

/// True if a slot is this server's.
pub(super) fn is_own(shared: &Shared, slot: u16) -> bool {
    shared.cluster.as_ref().is_some_and(|cluster| {
        let (_, view) = cluster.now();
        view.own.is_some() && view.map.owner(slot) == view.own
    })
}

/// Removes the keys of some slots but for those that are kept, unless `is_over` says that it is to
/// stop; returns how many there were. One at a time does: the others wait.
///
/// # Errors
/// The connection has ended, or a command was refused.
pub(super) fn remove(
    shared: &Shared,
    slots: &SlotSet,
    is_over: impl Fn() -> bool,
    is_kept: impl Fn(u16) -> bool,
) -> io::Result<usize> {
    let _alone = shared.replication.imports.removing();
    let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    let socket = inner::connect(shared, ArrivalKind::Source, nowhere)?;
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let mut talk = Talk {
        reader: BufReader::new(socket),
        sent: Vec::new(),
    };
    let (mut cursor, mut removed) = (b"0".to_vec(), 0);
    while !is_over() {
        let mut strings = talk.ask(&[b"SCAN", &cursor, b"COUNT", COUNT])?.into_iter();
        cursor = strings.next().ok_or(io::ErrorKind::InvalidData)?;
        let is_left = |key: &Vec<u8>| {
            let slot = slot_of(key);
            slots.contains(slot) && !is_kept(slot)
        };
        let keys: Vec<_> = strings.filter(is_left).collect();
        if !keys.is_empty() {
            let mut words: Vec<&[u8]> = vec![b"UNLINK"];
            words.extend(keys.iter().map(Vec::as_slice));
            talk.ask(&words)?;
            removed += keys.len();
        }
        if cursor == b"0" {
            break;
        }
    }
    Ok(removed)
}

/// A connection with one command under way at most.
struct Talk {
    reader: BufReader<UnixStream>,
    sent: Vec<u8>,
}

impl Talk {
    /// Sends a command; returns the strings of its reply, whatever arrays they are in.
    fn ask(&mut self, words: &[&[u8]]) -> io::Result<Vec<Vec<u8>>> {
        self.sent.clear();
        write_command(words, &mut self.sent);
        self.reader.get_mut().write_all(&self.sent)?;
        let (mut strings, mut missing) = (Vec::new(), 1_u64);
        while missing > 0 {
            missing -= 1;
            let mut line = String::new();
            let mut limited = self.reader.by_ref().take(LINE_BYTES_MAX);
            limited.read_line(&mut line)?;
            let text = line.trim_ascii_end();
            let count = || text.get(1..).and_then(|text| text.parse::<u64>().ok());
            match (text.as_bytes().first(), count()) {
                (Some(b'*'), Some(count)) => missing += count,
                (Some(b'$'), Some(bytes)) => {
                    let mut string = Vec::new();
                    self.reader
                        .by_ref()
                        .take(bytes + 2)
                        .read_to_end(&mut string)?;
                    let end = string.len().checked_sub(2);
                    string.truncate(end.ok_or(io::ErrorKind::UnexpectedEof)?);
                    strings.push(string);
                }
                (Some(b':' | b'+'), _) => {}
                (Some(b'-'), _) => return Err(io::Error::other(text.to_owned())),
                _ => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        Ok(strings)
    }
}
