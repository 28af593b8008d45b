//! A client's own figures, written by its thread and read by any.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! figures {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// A client's figures.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct ClientFigures {
            $($(#[$doc])* pub $name: u64,)+
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Count,)+
        }

        impl Counters {
            pub(crate) fn figures(&self) -> ClientFigures {
                ClientFigures {
                    $($name: self.$name.0.load(Ordering::Relaxed),)+
                }
            }
        }
    };
}

figures! {
    /// Requests sent in messages.
    messages,
    /// Requests written into upload slots.
    uploads,
    /// Values read from the server's slots.
    reads,
    /// Values that landed in this side's memory.
    landings,
    /// Messages that only returned slots.
    dones,
    /// Messages that only returned credits.
    noops,
    /// Work requests posted, without receives.
    work_requests,
    /// Connections that were established.
    connections,
}

/// A count that one thread writes.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }
}
