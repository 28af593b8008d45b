//! A crowd: connections that do the same.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::words::{announce, begin, command};

/// Bytes that a connection is given to send at once, of words that are longer.
pub(super) const PIECE_BYTES: usize = 16 << 10;
/// What long words consist of.
pub(super) const FILLER: [u8; PIECE_BYTES] = [b'v'; PIECE_BYTES];
/// How long a connection lives that is killed, at most; at least a half of it.
const LIFE: Duration = Duration::from_millis(200);

/// Which connection of a crowd is to say something, and how often it was before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Turn {
    /// The connection's place in the crowd; another one takes it when it has ended.
    pub(super) who: u64,
    /// Counts from 0 in each connection.
    pub(super) number: u64,
}

/// Appends what a connection sends next; nothing if it has said all.
pub(super) type Talk = Arc<dyn Fn(Turn, &mut Vec<u8>) + Send + Sync>;

/// How a connection reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reading {
    Never,
    All,
    /// At most this many bytes, each time that this time has passed.
    Slowly(usize, Duration),
}

/// Who the connections say that they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Entrance {
    /// They greet as the scenario's protocol wants it, with the password if there is one.
    Member,
    /// They do not give the password.
    Stranger,
    /// They do not even begin the encryption that the port expects.
    Unencrypted,
    /// They connect where native clients do, and speak something else.
    AtNative,
}

/// Connections that do the same. One that the server ends is replaced.
#[derive(Clone)]
pub(super) struct Crowd {
    pub(super) count: usize,
    pub(super) talk: Talk,
    pub(super) reading: Reading,
    pub(super) entrance: Entrance,
    /// After about this time each connection is ended by a reset.
    pub(super) life: Option<Duration>,
}

impl fmt::Debug for Crowd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crowd")
            .field("count", &self.count)
            .field("reading", &self.reading)
            .finish_non_exhaustive()
    }
}

impl Crowd {
    /// Connections that never read.
    pub(super) fn deaf(
        count: usize,
        talk: impl Fn(Turn, &mut Vec<u8>) + Send + Sync + 'static,
    ) -> Self {
        Self {
            count,
            talk: Arc::new(talk),
            reading: Reading::Never,
            entrance: Entrance::Member,
            life: None,
        }
    }

    /// Connections that read all replies.
    pub(super) fn heedful(
        count: usize,
        talk: impl Fn(Turn, &mut Vec<u8>) + Send + Sync + 'static,
    ) -> Self {
        Self {
            reading: Reading::All,
            ..Self::deaf(count, talk)
        }
    }

    /// Connections that say nothing.
    pub(super) fn silent(count: usize) -> Self {
        Self::deaf(count, |_, _| {})
    }

    /// Connections that read `bytes` a second.
    pub(super) fn slowly(self, bytes: usize) -> Self {
        let tenth = Duration::from_millis(100);
        let (bytes, pause) = match bytes / 10 {
            0 => (bytes, Duration::from_secs(1)),
            bytes => (bytes, tenth),
        };
        Self {
            reading: Reading::Slowly(bytes, pause),
            ..self
        }
    }

    /// Without the password.
    pub(super) fn strangers(self) -> Self {
        self.by(Entrance::Stranger)
    }

    /// With another entrance.
    pub(super) fn by(self, entrance: Entrance) -> Self {
        Self { entrance, ..self }
    }

    /// Ended by resets in the middle of everything.
    pub(super) fn killed(self) -> Self {
        Self {
            life: Some(LIFE),
            ..self
        }
    }
}

/// One command, again and again without end.
pub(super) fn always(words: &[&[u8]]) -> impl Fn(Turn, &mut Vec<u8>) + Send + Sync + use<> {
    let mut said = Vec::new();
    // Several at once, or short ones would take a system call each.
    while said.len() < PIECE_BYTES / 4 {
        command(&mut said, words);
    }
    move |_, out| out.extend_from_slice(&said)
}

/// Some words once, then nothing.
pub(super) fn once(words: &[&[u8]]) -> impl Fn(Turn, &mut Vec<u8>) + Send + Sync + use<> {
    let mut said = Vec::new();
    command(&mut said, words);
    move |turn, out| {
        if turn.number == 0 {
            out.extend_from_slice(&said);
        }
    }
}

/// A command, again and again, whose last word has `bytes`. If `sent` is less, only that part of
/// the word is sent, and nothing follows.
pub(super) fn long_word(
    words: &[&[u8]],
    bytes: usize,
    sent: usize,
) -> impl Fn(Turn, &mut Vec<u8>) + Send + Sync + use<> {
    let mut head = Vec::new();
    begin(&mut head, words.len() + 1);
    for word in words {
        super::words::argument(&mut head, word);
    }
    announce(&mut head, bytes);
    let pieces = sent.min(bytes).div_ceil(PIECE_BYTES) as u64;
    move |turn, out| {
        let place = match sent < bytes {
            true => turn.number,
            false => turn.number % pieces,
        };
        if place >= pieces {
            return;
        }
        if place == 0 {
            out.extend_from_slice(&head);
        }
        let before = usize::try_from(place).unwrap_or(0) * PIECE_BYTES;
        let piece = (sent.min(bytes) - before).min(PIECE_BYTES);
        out.extend_from_slice(&FILLER[..piece]);
        if before + piece == bytes {
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// A name of at least `bytes` that no other turn has.
pub(super) fn name(turn: Turn, bytes: usize) -> Vec<u8> {
    let mut name = format!("{}:{}:", turn.who, turn.number).into_bytes();
    name.resize(bytes.max(name.len()), b'n');
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(talk: &impl Fn(Turn, &mut Vec<u8>), turns: u64) -> Vec<u8> {
        let mut out = Vec::new();
        for number in 0..turns {
            talk(Turn { who: 0, number }, &mut out);
        }
        out
    }

    #[test]
    fn a_long_word_comes_in_pieces_again_and_again() {
        let bytes = PIECE_BYTES + 10;
        let talk = long_word(&[b"ECHO"], bytes, bytes);
        let mut whole = Vec::new();
        command(&mut whole, &[b"ECHO", &vec![b'v'; bytes]]);
        assert_eq!(said(&talk, 2), whole);
        assert_eq!(said(&talk, 4), whole.repeat(2));
    }

    #[test]
    fn a_half_word_is_never_ended() {
        let talk = long_word(&[b"ECHO"], 100, 30);
        let begun = said(&talk, 1);
        assert!(begun.ends_with(b"$100\r\nvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv"));
        assert_eq!(said(&talk, 5), begun);
    }

    #[test]
    fn names_differ_by_turn() {
        let turn = |who, number| name(Turn { who, number }, 1024);
        assert_eq!(turn(1, 2).len(), 1024);
        assert!(turn(1, 23) != turn(12, 3) && turn(1, 2) != turn(1, 3));
    }
}
