//! Messages on their way, and those that wait for a token.
//!
//! - I1: the messages that wait for a key are woken in the order in which they came.

use super::time::Ps;
use crate::workload::{MESSAGE_KEYS_MAX, Message, Operation};

const NONE: u32 = u32::MAX;

/// A message and how far it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    keys: [u32; MESSAGE_KEYS_MAX],
    count: u8,
    at: u8,
    pub(super) operation: Operation,
    pub(super) is_foreign: bool,
    /// When it arrived.
    pub(super) since: Ps,
    /// When it began to wait.
    pub(super) waits_since: Ps,
}

impl Job {
    pub(super) fn new(message: &Message, since: Ps) -> Self {
        let mut keys = [0; MESSAGE_KEYS_MAX];
        let used = message.keys();
        keys[..used.len()].copy_from_slice(used);
        Self {
            keys,
            // At most four.
            count: u8::try_from(used.len()).unwrap_or(0),
            at: 0,
            operation: message.operation,
            is_foreign: message.is_foreign,
            since,
            waits_since: since,
        }
    }

    /// The token that it needs next.
    #[inline]
    pub(super) fn key(&self) -> Option<u32> {
        (self.at < self.count).then(|| self.keys[usize::from(self.at)])
    }

    /// What it does with it.
    #[inline]
    pub(super) fn step(&self) -> Operation {
        match self.at {
            0 => self.operation,
            _ => Operation::Read,
        }
    }

    #[inline]
    pub(super) fn advance(&mut self) {
        self.at += 1;
    }
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    job: Job,
    next: u32,
}

/// The messages that wait, by key.
#[derive(Debug)]
pub(super) struct Waiters {
    waiting: Vec<Waiting>,
    free: Vec<u32>,
    /// First and last of each key.
    ends: Vec<[u32; 2]>,
    count: u64,
}

impl Waiters {
    pub(super) fn new(keys: u32) -> Self {
        Self {
            waiting: Vec::new(),
            free: Vec::new(),
            ends: vec![[NONE; 2]; keys as usize],
            count: 0,
        }
    }

    /// The number of messages that wait.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn add(&mut self, key: u32, job: Job) {
        let waiting = Waiting { job, next: NONE };
        let number = if let Some(number) = self.free.pop() {
            self.waiting[number as usize] = waiting;
            number
        } else {
            self.waiting.push(waiting);
            // A window is far less than 2^32 messages.
            u32::try_from(self.waiting.len() - 1).unwrap_or(NONE)
        };
        let [first, last] = &mut self.ends[key as usize];
        match *last {
            NONE => *first = number,
            last => self.waiting[last as usize].next = number,
        }
        *last = number;
        self.count += 1;
    }

    /// Takes the first message that waits for a key.
    pub(super) fn take(&mut self, key: u32) -> Option<Job> {
        let [first, last] = &mut self.ends[key as usize];
        let number = *first;
        if number == NONE {
            return None;
        }
        let Waiting { job, next } = self.waiting[number as usize];
        *first = next;
        if next == NONE {
            *last = NONE;
        }
        self.free.push(number);
        self.count -= 1;
        Some(job)
    }

    pub(super) fn has(&self, key: u32) -> bool {
        self.ends[key as usize][0] != NONE
    }
}
