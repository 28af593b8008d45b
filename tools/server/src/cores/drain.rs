//! What a core waits for before slots become another server's.

use crate::cores::answers::Answers;

/// What had begun when slots were held.
#[derive(Debug)]
pub(crate) struct Drain {
    /// The first number of a connection that was not looked at.
    pub(crate) next: usize,
    /// Numbers and identities of connections of which something has begun.
    pub(crate) open: Vec<(usize, u64)>,
    pub(crate) answer: Answers<()>,
}
