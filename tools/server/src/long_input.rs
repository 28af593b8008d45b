//! The bytes of a long value on their way from a connection to the task that stores it.

use std::cell::RefCell;
use std::rc::Rc;

/// Bytes that may wait for the task, at most.
const WAITING_BYTES_MAX: usize = 128 << 10;

/// The bytes that have come and are not taken yet.
#[derive(Clone, Debug)]
pub(crate) struct LongInput(Rc<RefCell<Bytes>>);

#[derive(Debug)]
struct Bytes {
    waiting: Vec<u8>,
    /// Bytes that are to come.
    missing: usize,
    /// Bytes of the piece that the task gathers, at most.
    piece: usize,
    /// Nothing more comes: the connection is gone.
    is_cut: bool,
    /// The task has ended: what comes is dropped.
    is_ended: bool,
}

impl LongInput {
    /// A value of which nothing has come yet.
    pub(crate) fn new(bytes: usize) -> Self {
        Self(Rc::new(RefCell::new(Bytes {
            waiting: Vec::new(),
            missing: bytes,
            piece: 0,
            is_cut: false,
            is_ended: false,
        })))
    }

    /// The same, whose task gathers pieces of so many bytes at most, which are counted as held from
    /// the begin.
    pub(crate) fn gathered(bytes: usize, piece: usize) -> Self {
        let input = Self::new(bytes);
        input.0.borrow_mut().piece = piece.min(bytes);
        input
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
        self.0.borrow().waiting.len() >= share_bytes.min(WAITING_BYTES_MAX)
    }

    /// True if all has come.
    pub(crate) fn is_done(&self) -> bool {
        self.0.borrow().missing == 0
    }

    /// Bytes that wait for the task, and of the piece that it gathers.
    pub(crate) fn held_bytes(&self) -> usize {
        let input = self.0.borrow();
        input.waiting.capacity() + if input.is_ended { 0 } else { input.piece }
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
    }

    /// The bytes as a source of a long put: an empty part says that more is to come.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Vec<u8>> + use<> {
        let input = Rc::clone(&self.0);
        std::iter::from_fn(move || {
            let mut input = input.borrow_mut();
            let waiting = std::mem::take(&mut input.waiting);
            let is_over = waiting.is_empty() && (input.missing == 0 || input.is_cut);
            (!is_over).then_some(waiting)
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
        assert!(input.is_done());
        assert_eq!(parts.next(), Some(b"de".to_vec()));
        assert_eq!(parts.next(), None);
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
}
