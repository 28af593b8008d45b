//! Commands that took long: what `SLOWLOG` shows.
//!
//! Commands of several steps are all measured. Of the others one a core at a time is, drawn by
//! time, so that a fast command pays one comparison: when requests stall, the one that is measured
//! shows it. A time reaches from the parse of a command to its reply.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::conn::reply_token::Token;
use crate::steps;

/// Microseconds from which a command is noted, by default; as Redis.
const LIMIT_US: i64 = 10_000;
/// Commands that are noted, by default; as Redis.
const COMMANDS_MAX: usize = 128;
/// Arguments of a command that are noted; as Redis.
const ARGUMENTS_MAX: usize = 32;
/// Bytes of an argument that are noted; as Redis.
const ARGUMENT_BYTES_MAX: usize = 128;
/// Bytes of the commands that a core notes, at most: the oldest are dropped.
const NOTED_BYTES_MAX: usize = 1 << 20;
/// Commands that a core copies in a turn to show them.
const COPIED_A_TURN: usize = 64;
/// No token: no connection has as many parts.
const NO_TOKEN: u64 = u64::MAX;

/// From when on commands are noted, and how many.
#[derive(Debug)]
pub(crate) struct SlowSettings {
    /// Microseconds; 0 notes every command that is measured, a negative number none.
    pub(crate) limit_us: AtomicI64,
    pub(crate) commands_max: AtomicUsize,
    next_id: AtomicU64,
}

impl Default for SlowSettings {
    fn default() -> Self {
        Self {
            limit_us: AtomicI64::new(LIMIT_US),
            commands_max: AtomicUsize::new(COMMANDS_MAX),
            next_id: AtomicU64::new(0),
        }
    }
}

/// A command that took long.
#[derive(Clone, Debug)]
pub(crate) struct SlowCommand {
    pub(crate) id: u64,
    /// When it began, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    pub(crate) took: Duration,
    pub(crate) arguments: Vec<Vec<u8>>,
    pub(crate) peer: String,
    pub(crate) name: Vec<u8>,
}

/// A command that is being measured.
#[derive(Debug)]
pub(crate) struct Measured {
    began: Instant,
    at_ms: u64,
    arguments: Vec<Vec<u8>>,
    peer: std::net::SocketAddr,
    name: Vec<u8>,
}

/// Bytes that arguments take.
fn bytes_of(arguments: &[Vec<u8>]) -> usize {
    let texts: usize = arguments.iter().map(Vec::capacity).sum();
    texts + size_of_val(arguments)
}

impl SlowCommand {
    pub(crate) fn held_bytes(&self) -> usize {
        let texts = self.peer.capacity() + self.name.capacity();
        size_of::<Self>() + bytes_of(&self.arguments) + texts
    }
}

impl Measured {
    /// Bytes that it takes.
    pub(crate) fn held_bytes(&self) -> usize {
        size_of::<Self>() + bytes_of(&self.arguments) + self.name.capacity()
    }

    /// Begins to measure a command of a client, with the name that it has given itself.
    pub(crate) fn begin<'a>(
        (peer, name): (std::net::SocketAddr, &[u8]),
        at_ms: u64,
        arguments: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> Self {
        Self {
            began: Instant::now(),
            at_ms,
            arguments: noted(arguments),
            peer,
            name: name.to_vec(),
        }
    }
}

/// Arguments as they are noted: not too many, and none too long.
fn noted<'a>(arguments: impl ExactSizeIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
    let count = arguments.len();
    let kept = if count > ARGUMENTS_MAX {
        ARGUMENTS_MAX - 1
    } else {
        count
    };
    let mut noted: Vec<_> = arguments.take(kept).map(cut).collect();
    hide_secrets(&mut noted);
    if kept < count {
        noted.push(format!("... ({} more arguments)", count - kept).into_bytes());
    }
    noted
}

/// Hides passwords, and names of users with them; as Redis.
fn hide_secrets(noted: &mut [Vec<u8>]) {
    let is = |place: usize, word: &str| {
        let argument: Option<&Vec<u8>> = noted.get(place);
        argument.is_some_and(|argument| argument.eq_ignore_ascii_case(word.as_bytes()))
    };
    if is(0, "config") && is(1, "set") {
        let is_secret = |place: usize| is(place, "masterauth") || is(place, "masteruser");
        let secrets: Vec<usize> = (2..noted.len())
            .step_by(2)
            .filter(|place| is_secret(*place))
            .collect();
        for place in secrets {
            if let Some(value) = noted.get_mut(place + 1) {
                *value = b"(redacted)".to_vec();
            }
        }
        return;
    }
    let from = if is(0, "auth") {
        1
    } else if is(0, "acl") && is(1, "setuser") {
        2
    } else if is(0, "hello") {
        let option = (2..noted.len()).find(|place| is(*place, "auth"));
        option.map_or(noted.len(), |place| place + 1)
    } else {
        return;
    };
    for argument in noted.iter_mut().skip(from) {
        *argument = b"(redacted)".to_vec();
    }
}

fn cut(argument: &[u8]) -> Vec<u8> {
    match argument.split_at_checked(ARGUMENT_BYTES_MAX) {
        Some((head, tail)) if !tail.is_empty() => {
            let mut text = head.to_vec();
            text.extend_from_slice(format!("... ({} more bytes)", tail.len()).as_bytes());
            text
        }
        _ => argument.to_vec(),
    }
}

/// Commands of tasks that have ended, until their core looks at them.
pub(crate) type Ended = Rc<RefCell<Vec<(Measured, Duration)>>>;

/// The slow commands of a core.
#[derive(Debug)]
pub(crate) struct SlowLog {
    commands: VecDeque<SlowCommand>,
    /// Bytes that they take.
    bytes: usize,
    /// The request that is measured, and where its answer will be recognised.
    measured: Option<Measured>,
    token: u64,
    /// Turn in which the latest measurement began.
    begun_ms: u64,
    ended: Ended,
}

impl Default for SlowLog {
    fn default() -> Self {
        Self {
            commands: VecDeque::new(),
            bytes: 0,
            measured: None,
            token: NO_TOKEN,
            begun_ms: 0,
            ended: Ended::default(),
        }
    }
}

impl SlowLog {
    /// True if the next request is to be measured.
    #[inline]
    pub(crate) fn is_due(&self, now_ms: u64) -> bool {
        self.begun_ms != now_ms && self.token == NO_TOKEN
    }

    /// Measures a request.
    #[cold]
    pub(crate) fn measure(&mut self, token: Token, measured: Measured) {
        self.begun_ms = measured.at_ms;
        self.token = token.0;
        self.measured = Some(measured);
    }

    /// True if an answer is that of the request which is measured.
    #[inline]
    pub(crate) fn is_measured(&self, token: Token) -> bool {
        self.token == token.0
    }

    /// Ends the measurement of a request.
    #[cold]
    pub(crate) fn end(&mut self, settings: &SlowSettings) {
        self.token = NO_TOKEN;
        if let Some(measured) = self.measured.take() {
            let took = measured.began.elapsed();
            self.note(settings, measured, took);
        }
    }

    /// Where tasks leave their measurements.
    pub(crate) fn ended(&self) -> Ended {
        Rc::clone(&self.ended)
    }

    /// Takes the measurements of tasks.
    pub(crate) fn take_ended(&mut self, settings: &SlowSettings) {
        let ended = std::mem::take(&mut *self.ended.borrow_mut());
        for (measured, took) in ended {
            self.note(settings, measured, took);
        }
    }

    /// Notes a command that took so long, if it is slow.
    pub(crate) fn note(&mut self, settings: &SlowSettings, measured: Measured, took: Duration) {
        let limit_us = u128::try_from(settings.limit_us.load(Ordering::Relaxed));
        if !limit_us.is_ok_and(|limit_us| took.as_micros() >= limit_us) {
            return;
        }
        let commands_max = settings.commands_max.load(Ordering::Relaxed);
        let command = SlowCommand {
            id: settings.next_id.fetch_add(1, Ordering::Relaxed),
            at_ms: measured.at_ms,
            took,
            arguments: measured.arguments,
            peer: measured.peer.to_string(),
            name: measured.name,
        };
        self.bytes += command.held_bytes();
        self.commands.push_back(command);
        while self.commands.len() > commands_max || self.bytes > NOTED_BYTES_MAX {
            let Some(oldest) = self.commands.pop_front() else {
                break;
            };
            self.bytes -= oldest.held_bytes();
        }
    }

    /// How many commands were noted.
    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Copies of `count` commands at most that were noted before the one of a number, the newest
    /// first; a few are copied in a turn.
    pub(crate) fn page(&self, before: u64, count: usize) -> Vec<SlowCommand> {
        // Numbers grow from one to the next.
        let end = self.commands.partition_point(|command| command.id < before);
        let page: Vec<_> = (self.commands.range(..end).rev())
            .take(count.min(COPIED_A_TURN))
            .cloned()
            .collect();
        steps::count_copied(page.iter().map(SlowCommand::held_bytes).sum());
        page
    }

    /// Forgets the commands that were noted.
    pub(crate) fn clear(&mut self) {
        self.commands = VecDeque::new();
        self.bytes = 0;
    }
}

/// Puts the measurement of a task where its core finds it.
pub(crate) fn leave(ended: &Ended, measured: Measured) {
    let took = measured.began.elapsed();
    ended.borrow_mut().push((measured, took));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(text: &str) -> Measured {
        Measured {
            began: Instant::now(),
            at_ms: 1,
            arguments: vec![text.as_bytes().to_vec()],
            peer: ([127, 0, 0, 1], 1).into(),
            name: Vec::new(),
        }
    }

    #[test]
    fn only_slow_commands_are_noted_and_the_oldest_is_dropped() {
        let (settings, mut log) = (SlowSettings::default(), SlowLog::default());
        settings.commands_max.store(2, Ordering::Relaxed);
        let (slow, fast) = (Duration::from_millis(10), Duration::from_micros(9_999));
        for (text, took) in [("a", slow), ("b", fast), ("c", slow), ("d", slow)] {
            log.note(&settings, measured(text), took);
        }
        let seen = |before, count| {
            let page = log.page(before, count).into_iter();
            page.map(|one| (one.id, one.arguments[0][0]))
                .collect::<Vec<_>>()
        };
        assert_eq!(seen(u64::MAX, 9), [(2, b'd'), (1, b'c')]);
        assert_eq!((seen(2, 9), seen(9, 1)), (vec![(1, b'c')], vec![(2, b'd')]));
        settings.limit_us.store(-1, Ordering::Relaxed);
        log.note(&settings, measured("e"), Duration::from_secs(1));
        assert_eq!(log.len(), 2);
        log.clear();
        assert_eq!(log.len(), 0);
    }

    #[test]
    fn what_is_noted_is_bounded_in_bytes_too() {
        let (settings, mut log) = (SlowSettings::default(), SlowLog::default());
        settings.commands_max.store(usize::MAX, Ordering::Relaxed);
        let text = "x".repeat(1000);
        for _ in 0..3 * NOTED_BYTES_MAX / text.len() {
            log.note(&settings, measured(&text), Duration::from_secs(1));
        }
        let bytes: usize = log.commands.iter().map(SlowCommand::held_bytes).sum();
        assert_eq!(bytes, log.bytes);
        assert!(
            (NOTED_BYTES_MAX / 2..=NOTED_BYTES_MAX).contains(&bytes),
            "{bytes}"
        );
        settings.commands_max.store(0, Ordering::Relaxed);
        log.note(&settings, measured(&text), Duration::from_secs(1));
        assert_eq!((log.commands.len(), log.bytes), (0, 0));
    }

    #[test]
    fn arguments_are_cut() {
        let arguments = [&[b'x'; 130][..]; 40];
        let noted = noted(arguments.iter().copied());
        assert_eq!(noted.len(), 32);
        assert!(noted[0].ends_with(b"x... (2 more bytes)"));
        assert_eq!(noted[31], b"... (9 more arguments)");
    }
}
