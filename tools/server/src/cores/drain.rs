//! What a core waits for before slots become another server's, or clients are paused.

use crate::cores::answers::Answers;

/// What is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DrainOf {
    /// Commands of the slots that are held.
    Slots,
    /// Commands that write, while clients are paused.
    Writes,
}

/// What had begun when slots were held or clients paused.
#[derive(Debug)]
pub(crate) struct Drain {
    pub(crate) of: DrainOf,
    /// The first number of a connection that was not looked at.
    pub(crate) next: usize,
    /// Numbers and identities of connections of which something has begun.
    pub(crate) open: Vec<(usize, u64)>,
    pub(crate) answer: Answers<()>,
}
