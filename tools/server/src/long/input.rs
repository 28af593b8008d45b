//! The bytes of a long value on their way to the task that stores it: from a connection, or from
//! values that are stored already. With them come the arguments that follow the value in its
//! command, and further long values.
//!
//! An upload whose client sends too little of it stalls. It gives way when another one waits for
//! memory or for a place.
//!
//! - I1: what follows a value is added once all bytes of it are taken, so a source of parts ends
//!   with its own value.

use std::cell::RefCell;
use std::rc::Rc;

use farcore::Core;

/// Bytes that may wait for the task, at most.
const WAITING_BYTES_MAX: usize = 128 << 10;

/// An upload has made progress each time this many bytes have come.
const PROGRESS_BYTES: usize = 4 << 10;

/// Why an upload that has stalled is not stored.
pub(crate) const STALLED: &str = "ERR the long value is not stored: too little of it came while others waited to store theirs, less than 4096 bytes in a second: send it again, faster";

/// Bytes that the allocator takes for an argument beside its own, about.
const ALLOCATION_BYTES: usize = 32;

/// What follows a long value in its command.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Following {
    /// Arguments.
    pub(crate) arguments: Vec<Vec<u8>>,
    /// Another long value after them, if one comes.
    pub(crate) next: Option<NextValue>,
}

impl Following {
    /// Bytes of memory that its arguments take.
    pub(crate) fn held_bytes(&self) -> usize {
        let all = self.arguments.iter();
        let bytes: usize = all.map(|one| one.capacity() + ALLOCATION_BYTES).sum();
        bytes + self.arguments.capacity() * size_of::<Vec<u8>>()
    }
}

/// A long value that is to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NextValue {
    pub(crate) bytes: usize,
    /// Arguments of its command after it.
    pub(crate) left: usize,
}

/// The bytes that have come and are not taken yet.
#[derive(Clone, Debug)]
pub(crate) struct LongInput(Rc<RefCell<Bytes>>);

#[derive(Debug, Default)]
struct Bytes {
    waiting: Vec<u8>,
    /// Bytes that are to come.
    missing: usize,
    /// The shard in which the upload has a place, or waits for one.
    shard: Option<usize>,
    /// When the upload had begun or made progress, in milliseconds since 1970, and bytes that have
    /// come since.
    progress_ms: u64,
    since_progress: usize,
    /// No more was received because so much waited.
    was_full: bool,
    following: Option<Following>,
    /// Bytes of its arguments, until they are taken.
    following_bytes: usize,
    /// Long values may follow.
    takes_values: bool,
    /// Nothing more comes: the connection is gone.
    is_cut: bool,
    /// Nothing more comes: the upload has stalled.
    is_reclaimed: bool,
    /// The task has ended: what comes is dropped.
    is_ended: bool,
}

impl LongInput {
    /// A value of which nothing has come yet.
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Rc::new(RefCell::new(Bytes {
            missing: bytes,
            ..Bytes::default()
        })))
    }

    /// The input of a value that a client uploads from now on.
    pub(crate) fn upload(bytes: usize, now_ms: u64) -> Self {
        let input = Self::new(bytes);
        input.0.borrow_mut().progress_ms = now_ms;
        input
    }

    /// Notes that a client has sent `bytes` of the upload or of what follows it.
    pub(crate) fn note_sent(&self, bytes: usize, now_ms: u64) {
        let mut input = self.0.borrow_mut();
        input.since_progress += bytes;
        if input.since_progress >= PROGRESS_BYTES || input.missing == 0 {
            (input.progress_ms, input.since_progress) = (now_ms, 0);
        }
    }

    /// For how long the upload has made no progress, in milliseconds; 0 if that is not the client's
    /// fault. `left` of the arguments after it are to come.
    pub(crate) fn stalled_ms(&self, left: usize, now_ms: u64) -> u64 {
        let input = self.0.borrow();
        let is_empty = input.waiting.is_empty() && input.following.is_none();
        let awaits_client = is_empty && (input.missing > 0 || left > 0);
        if awaits_client && !input.is_cut && !input.is_ended {
            now_ms.saturating_sub(input.progress_ms)
        } else {
            0
        }
    }

    /// Notes in which shard the upload takes a place.
    pub(crate) fn note_shard(&self, shard: usize) {
        self.0.borrow_mut().shard = Some(shard);
    }

    /// That shard, if it has begun to be stored.
    pub(crate) fn shard(&self) -> Option<usize> {
        self.0.borrow().shard
    }

    /// Has the upload end, because it has stalled: what comes of it is dropped.
    pub(crate) fn reclaim(&self) {
        let mut input = self.0.borrow_mut();
        input.is_cut = true;
        input.is_reclaimed = true;
    }

    /// True if nothing more comes of it.
    pub(crate) fn is_cut(&self) -> bool {
        self.0.borrow().is_cut
    }

    /// True if the upload had to end because it had stalled.
    pub(crate) fn is_reclaimed(&self) -> bool {
        self.0.borrow().is_reclaimed
    }

    /// Has further values that are long be passed on as this one.
    pub(crate) fn take_values(&self) {
        self.0.borrow_mut().takes_values = true;
    }

    /// True if further values that are long are passed on.
    pub(crate) fn takes_values(&self) -> bool {
        self.0.borrow().takes_values
    }

    /// Takes what belongs to the value; returns how many bytes.
    pub(crate) fn push(&self, bytes: &[u8]) -> usize {
        let mut input = self.0.borrow_mut();
        let taken = bytes.len().min(input.missing);
        if !input.is_ended {
            input.waiting.extend_from_slice(&bytes[..taken]);
        }
        input.missing -= taken;
        taken
    }

    /// True while the task is to take what has come before more is received: a share of memory.
    pub(crate) fn is_full(&self, share_bytes: usize) -> bool {
        let mut input = self.0.borrow_mut();
        let is_full = input.waiting.len() >= share_bytes.min(WAITING_BYTES_MAX);
        input.was_full |= is_full;
        is_full
    }

    /// Waits until the task has taken enough of what has come. False if it needs no more.
    pub(crate) async fn room(&self, core: &Core) -> bool {
        while self.is_full(WAITING_BYTES_MAX) {
            core.yield_now().await;
        }
        !self.0.borrow().is_ended
    }

    /// True if all of the value has come.
    pub(crate) fn is_done(&self) -> bool {
        self.0.borrow().missing == 0
    }

    /// True if the task has taken all that has come, and more is to come.
    pub(crate) fn is_starved(&self) -> bool {
        let input = self.0.borrow();
        let is_empty = input.waiting.is_empty() && input.following.is_none();
        is_empty && input.missing > 0 && !input.is_cut && !input.is_ended
    }

    /// True if what follows the value can be added: all before it is taken.
    pub(crate) fn is_taken(&self) -> bool {
        let input = self.0.borrow();
        let is_empty = input.waiting.is_empty() && input.following.is_none();
        input.missing == 0 && is_empty || input.is_ended
    }

    /// Adds what follows the value.
    pub(crate) fn follow(&self, following: Following) {
        let mut input = self.0.borrow_mut();
        debug_assert!(input.missing == 0 && input.waiting.is_empty(), "I1");
        input.missing = following.next.map_or(0, |next| next.bytes);
        if !input.is_ended {
            input.following_bytes = following.held_bytes();
            input.following = Some(following);
        }
    }

    /// Waits for what follows the value; `None` if it does not come. The task that takes it counts
    /// its bytes from now on.
    pub(crate) async fn following(&self, core: &Core) -> Option<Following> {
        while !self.has_following() {
            core.yield_now().await;
        }
        let mut input = self.0.borrow_mut();
        input.following_bytes = 0;
        input.following.take()
    }

    /// Drops what is left of the value, until all of it has come.
    pub(crate) async fn drain(&self, core: &Core) {
        while !self.is_drained() {
            core.yield_now().await;
        }
    }

    /// Drops what waits; true if nothing more of the value comes.
    fn is_drained(&self) -> bool {
        let mut input = self.0.borrow_mut();
        // What waits belongs to the next value once that follows.
        if input.following.is_some() {
            return true;
        }
        input.waiting.clear();
        input.missing == 0 || input.is_cut
    }

    /// True if what follows the value is there, or does not come.
    fn has_following(&self) -> bool {
        let input = self.0.borrow();
        input.following.is_some() || input.is_cut
    }

    /// Bytes that wait for the task, and of the arguments that do.
    pub(crate) fn held_bytes(&self) -> usize {
        let input = self.0.borrow();
        input.waiting.capacity() + input.following_bytes
    }

    /// Notes that nothing more comes.
    pub(crate) fn cut(&self) {
        self.0.borrow_mut().is_cut = true;
    }

    /// Notes that the task needs no more.
    pub(crate) fn end(&self) {
        let mut input = self.0.borrow_mut();
        input.is_ended = true;
        input.waiting = Vec::new();
        input.following = None;
        input.following_bytes = 0;
    }

    /// The bytes of the value under way as a source of a long put: an empty part says that more is
    /// to come.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Vec<u8>> + use<> {
        let input = Rc::clone(&self.0);
        let mut left = {
            let input = input.borrow();
            input.missing + input.waiting.len()
        };
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let mut input = input.borrow_mut();
            let waiting = std::mem::take(&mut input.waiting);
            left -= waiting.len();
            if std::mem::take(&mut input.was_full) || waiting.len() >= PROGRESS_BYTES {
                // The client, which may have had to wait for this, can go on only now.
                input.progress_ms = farcore_tuning::system_ms();
            }
            (!waiting.is_empty() || !input.is_cut).then_some(waiting)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_passed_on_and_no_more() {
        let input = LongInput::new(5);
        let mut parts = input.parts();
        assert_eq!(parts.next(), Some(Vec::new()), "more is to come");
        assert_eq!(input.push(b"abc"), 3);
        assert_eq!(parts.next(), Some(b"abc".to_vec()));
        assert_eq!(input.push(b"defgh"), 2);
        assert!(input.is_done() && !input.is_taken());
        assert_eq!(parts.next(), Some(b"de".to_vec()));
        assert!(input.is_taken());
        assert_eq!(parts.next(), None);
    }

    #[test]
    fn a_source_ends_with_its_value_though_another_follows() {
        let input = LongInput::new(2);
        let mut first = input.parts();
        input.push(b"ab");
        assert_eq!(first.next(), Some(b"ab".to_vec()));
        let following = Following {
            arguments: vec![b"key".to_vec()],
            next: Some(NextValue { bytes: 3, left: 0 }),
        };
        input.follow(following.clone());
        assert_eq!(input.push(b"cdef"), 3);
        assert_eq!(first.next(), None);
        assert!(!input.is_taken());
        assert_eq!(input.0.borrow_mut().following.take(), Some(following));
        let rest: Vec<_> = input.parts().collect();
        assert_eq!(rest, [b"cde".to_vec()]);
        assert!(input.is_taken());
    }

    #[test]
    fn a_connection_that_ends_cuts_its_value() {
        let input = LongInput::new(5);
        input.push(b"ab");
        input.cut();
        let parts: Vec<_> = input.parts().collect();
        assert_eq!(parts, [b"ab".to_vec()]);
    }

    #[test]
    fn what_comes_after_the_task_has_ended_is_dropped() {
        let input = LongInput::new(1 << 20);
        input.end();
        assert_eq!(input.push(&[0; 1000]), 1000);
        assert_eq!(input.held_bytes(), 0);
        assert!(!input.is_full(1));
    }

    #[test]
    fn an_upload_stalls_while_it_waits_for_its_client_alone() {
        let input = LongInput::upload(1 << 20, 1000);
        assert_eq!(input.stalled_ms(0, 3000), 2000);
        // A few bytes are no progress.
        input.push(&[0; 100]);
        input.note_sent(100, 2000);
        assert_eq!(input.stalled_ms(0, 3000), 0, "its task has not taken them");
        let mut parts = input.parts();
        parts.next();
        assert_eq!(input.stalled_ms(0, 3000), 2000);
        input.push(&[0; PROGRESS_BYTES]);
        input.note_sent(PROGRESS_BYTES, 2500);
        parts.next();
        let hours = farcore_tuning::system_ms() + 3_600_000;
        assert_eq!(
            input.stalled_ms(0, 3000),
            0,
            "its client can go on only now"
        );
        assert!((1_800_000..=3_600_000).contains(&input.stalled_ms(0, hours)));
        input.reclaim();
        assert!(input.is_reclaimed());
        assert_eq!(input.stalled_ms(0, hours), 0);
        assert_eq!(parts.next(), None);
    }

    #[test]
    fn an_upload_stalls_also_before_the_arguments_that_follow_it() {
        let input = LongInput::upload(3, 1000);
        input.push(b"abc");
        input.note_sent(3, 1500);
        assert_eq!(input.stalled_ms(2, 3000), 0);
        input.parts().next();
        assert_eq!(input.stalled_ms(2, 3000), 1500);
        assert_eq!(input.stalled_ms(0, 3000), 0, "all of it has come");
    }
}
