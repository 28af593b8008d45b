//! How requests and answers go from one thread to another: queues, rings, lanes and wakeups.

pub(crate) mod atomics;
pub(crate) mod fence;
pub(crate) mod lane;
pub(crate) mod queue;
pub(crate) mod ring;
pub(crate) mod wakeup;
