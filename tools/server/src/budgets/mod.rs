//! What the tasks of a core may take together, in the order in which they want it: bytes that they
//! copy in a turn.

pub(crate) mod entries;
pub(crate) mod ticket_queue;
pub(crate) mod turn_bytes;
