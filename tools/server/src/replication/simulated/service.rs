//! What a core of a simulated server does for a connection of replication: it carries out the
//! commands of a source, or reads keys for replicas.

use std::io::{ErrorKind, Read as _};
use std::os::unix::net::UnixStream;

use super::store::{Change, State, Store, Value, short};
use crate::databases::{Databases, shown_key};
use crate::replication::unsent::Unsent;
use crate::resp::{Arguments, Limits, Progress, parse};

/// Keys of a page.
const PAGE_KEYS: usize = 4;

/// A connection.
#[derive(Debug)]
pub(super) struct Service {
    socket: UnixStream,
    input: Vec<u8>,
    unsent: Unsent,
    database: u8,
    /// The commands of a transaction.
    queued: Option<Vec<Vec<Vec<u8>>>>,
    is_closed: bool,
}

impl Service {
    pub(super) fn new(socket: UnixStream) -> Self {
        Self {
            socket,
            input: Vec::new(),
            unsent: Unsent::default(),
            database: 0,
            queued: None,
            is_closed: false,
        }
    }

    /// Carries out some commands, if they have come.
    pub(super) fn step(
        &mut self,
        (store, databases): (&mut Store, &Databases),
        commands: usize,
    ) -> Result<(), String> {
        self.receive();
        let mut taken = 0;
        for _ in 0..commands {
            let mut arguments = Arguments::default();
            let limits = Limits {
                large_bytes: usize::MAX,
                ..Limits::default()
            };
            let input = &self.input[taken..];
            match parse(input, &limits, &mut arguments) {
                Ok(Progress::Complete { consumed }) => {
                    let words = (0..arguments.len()).map(|place| arguments.get(place, input));
                    let words: Vec<_> = words.map(<[u8]>::to_vec).collect();
                    taken += consumed;
                    self.command(words, (store, databases))?;
                }
                Ok(_) => break,
                Err(error) => return Err(format!("no command: {error}")),
            }
        }
        self.input.drain(..taken);
        if self.unsent.send(&mut self.socket).is_err() {
            self.is_closed = true;
            // What is a part of a command is none.
            if taken == 0 {
                self.input.clear();
            }
        }
        Ok(())
    }

    /// True once the other end has gone and all that it has sent is carried out.
    pub(super) fn is_done(&self) -> bool {
        self.is_closed && self.input.is_empty()
    }

    fn receive(&mut self) {
        let mut buffer = [0; 16 << 10];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => {
                    self.is_closed = true;
                    return;
                }
                Ok(bytes) => self.input.extend_from_slice(&buffer[..bytes]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    self.is_closed |= error.kind() != ErrorKind::WouldBlock;
                    return;
                }
            }
        }
    }

    fn command(
        &mut self,
        words: Vec<Vec<u8>>,
        (store, databases): (&mut Store, &Databases),
    ) -> Result<(), String> {
        let reply = |out: &mut Unsent, text: &str| out.end().extend_from_slice(text.as_bytes());
        match (&words[0][..], &mut self.queued) {
            (b"MULTI", None) => {
                self.queued = Some(Vec::new());
                reply(&mut self.unsent, "+OK\r\n");
            }
            (b"EXEC", queued) => {
                let queued = queued.take().ok_or("EXEC without MULTI")?;
                reply(&mut self.unsent, &format!("*{}\r\n", queued.len()));
                for words in queued {
                    self.one(&words, (store, databases))?;
                }
            }
            (_, Some(queued)) => {
                queued.push(words);
                reply(&mut self.unsent, "+QUEUED\r\n");
            }
            (_, None) => self.one(&words, (store, databases))?,
        }
        Ok(())
    }

    fn one(
        &mut self,
        words: &[Vec<u8>],
        (store, databases): (&mut Store, &Databases),
    ) -> Result<(), String> {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        if words[0] == b"REPLCONF" {
            return self.read(&words, store);
        }
        if let [b"SELECT", number] = words[..] {
            let text = std::str::from_utf8(number).ok();
            self.database = text.and_then(|text| text.parse().ok()).ok_or("SELECT")?;
            self.unsent.end().extend_from_slice(b"+OK\r\n");
            return Ok(());
        }
        let done = carry_out(&words, (store, databases), self.database);
        let reply = match done {
            Ok(()) => "+OK\r\n".to_owned(),
            Err(error) => format!("-{error}\r\n"),
        };
        self.unsent.end().extend_from_slice(reply.as_bytes());
        Ok(())
    }

    /// Reads keys.
    fn read(&mut self, words: &[&[u8]], store: &Store) -> Result<(), String> {
        let out = self.unsent.end();
        match *words {
            [_, b"farcore-key", key] => match store.payload(key) {
                None => array(out, &[Reply::Null]),
                Some((version, expiry_ms, payload)) => array(
                    out,
                    &[
                        Reply::Integer(version.cast_signed()),
                        Reply::Integer(expiry_ms.map_or(-1, u64::cast_signed)),
                        Reply::Bulk(&payload),
                    ],
                ),
            },
            [_, b"farcore-page", cursor] => page(out, cursor, store),
            _ => return Err(format!("no question: {words:?}")),
        }
        Ok(())
    }
}

/// A value of a reply.
enum Reply<'a> {
    Bulk(&'a [u8]),
    Integer(i64),
    Null,
}

fn array(out: &mut Vec<u8>, values: &[Reply<'_>]) {
    out.extend(format!("*{}\r\n", values.len()).into_bytes());
    for value in values {
        match value {
            Reply::Null => out.extend_from_slice(b"$-1\r\n"),
            Reply::Integer(number) => out.extend(format!(":{number}\r\n").into_bytes()),
            Reply::Bulk(bytes) => {
                out.extend(format!("${}\r\n", bytes.len()).into_bytes());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
        }
    }
}

/// A page of keys. A cursor has the next key, of eight bytes at most, and how many these are.
fn page(out: &mut Vec<u8>, cursor: &[u8], store: &Store) {
    let bytes: [u8; 16] = cursor.as_array().copied().unwrap_or_default();
    let length = usize::from(bytes[0]).min(8);
    let mut keys = store.page(&bytes[8..8 + length], PAGE_KEYS + 1);
    let next = (keys.len() > PAGE_KEYS).then(|| keys.pop()).flatten();
    let next = next.map(|(key, ..)| {
        let mut bytes = [0; 16];
        bytes[0] = u8::try_from(key.len()).unwrap_or(0);
        bytes[8..8 + key.len()].copy_from_slice(&key);
        bytes
    });
    let mut values = vec![Reply::Bulk(next.as_ref().map_or(&[], |bytes| &bytes[..]))];
    for (key, version, state) in &keys {
        values.push(Reply::Bulk(key));
        values.push(Reply::Integer(version.cast_signed()));
        let expiry_ms = state.as_ref().and_then(|(_, expiry_ms)| *expiry_ms);
        values.push(Reply::Integer(expiry_ms.map_or(-1, u64::cast_signed)));
        values.push(match state {
            Some((Value::Text(text), _)) => Reply::Bulk(text),
            _ => Reply::Null,
        });
    }
    array(out, &values);
}

/// Carries out a command that changes keys.
fn carry_out(
    words: &[&[u8]],
    (store, databases): (&mut Store, &Databases),
    database: u8,
) -> Result<(), String> {
    let stored = |key: &[u8]| databases.of(database).stored(key).into_owned();
    let number = |word: &[u8]| {
        let text = std::str::from_utf8(word).ok();
        let number = text.and_then(|text| text.parse::<i64>().ok());
        number.ok_or_else(|| format!("ERR no number: {word:?}"))
    };
    let at = |word: &[u8]| number(word).map(i64::cast_unsigned);
    let all = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect();
    let (key, change) = match *words {
        [b"PING" | b"PUBLISH", ..] => return Ok(()),
        [b"FLUSHALL"] => {
            store.clear();
            return Ok(());
        }
        [b"SET", key, value] => (key, Change::Put(value.to_vec(), None)),
        [b"SET", key, value, b"PXAT", time] => (key, Change::Put(value.to_vec(), Some(at(time)?))),
        [b"UNLINK" | b"DEL", key] => (key, Change::Delete),
        [b"PERSIST", key] => (key, Change::Expire(None)),
        [b"PEXPIREAT", key, time] => (key, Change::Expire(Some(at(time)?))),
        [b"RPUSH", key, ref values @ ..] => (key, Change::Push(false, all(values))),
        [b"LPUSH", key, ref values @ ..] => (key, Change::Push(true, all(values))),
        [b"LTRIM", key, first, _] => (
            key,
            Change::Drop(usize::try_from(number(first)?).unwrap_or(0)),
        ),
        [b"LMOVE", key, _, b"RIGHT", b"LEFT"] => (key, Change::Rotate),
        [b"LSET", key, rank, value] => {
            let rank = usize::try_from(number(rank)?).unwrap_or(usize::MAX);
            (key, Change::Set(rank, value.to_vec()))
        }
        [b"RESTORE", key, time, payload, b"REPLACE", b"ABSTTL"] => {
            let expiry_ms = Some(at(time)?).filter(|at| *at > 0);
            return store
                .restore(&stored(key), payload, expiry_ms)
                .map_err(str::to_owned);
        }
        _ => {
            let text = words.join(&b' ');
            return Err(format!("ERR unknown: {}", String::from_utf8_lossy(&text)));
        }
    };
    let done = store.change(&stored(key), &change, false);
    done.map_err(|error| {
        let key = String::from_utf8_lossy(shown_key(key)).into_owned();
        format!("{error} ({key})")
    })
}

/// What a key holds, in short.
pub(super) fn shown(state: &State) -> String {
    match state {
        None => "absent".to_owned(),
        Some((value, expiry_ms)) => {
            let text = match value {
                Value::Text(text) => short(text),
                Value::List(list) => {
                    let all: Vec<_> = list.iter().map(|one| short(one)).collect();
                    format!("[{}]", all.join(" "))
                }
            };
            format!("{text} until {expiry_ms:?}")
        }
    }
}
