//! Figures of a core's native connections, written by the core and read by any.

use crate::counters::Figure;

macro_rules! figures {
    ($($(#[$doc:meta])* $name:ident: $kind:ident,)+) => {
        /// Figures of one core's native connections.
        #[derive(Debug, Default)]
        pub(crate) struct NativeCounters {
            $(pub(crate) $name: Figure,)+
        }

        /// Figures of native connections at one moment.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct NativeFigures {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl NativeFigures {
            pub(crate) fn of(counters: &NativeCounters) -> Self {
                Self {
                    $($name: counters.$name.get(),)+
                }
            }

            pub(crate) fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)+
            }

            /// Every figure: its name, whether it only grows, and its value.
            #[must_use]
            pub fn all(&self) -> Vec<(&'static str, bool, u64)> {
                vec![$((stringify!($name), stringify!($kind) == "counter", self.$name),)+]
            }
        }
    };
}

figures! {
    /// Open connections.
    connections: gauge,
    /// Connections that were accepted.
    accepted: counter,
    /// Connections that were refused: too many, wrong token, wrong version.
    refused: counter,
    /// Connections that were closed because the peer violated the protocol.
    violations: counter,
    /// Requests.
    requests: counter,
    /// Requests that ended with an error.
    failed: counter,
    /// Messages sent.
    sent_messages: counter,
    /// Messages received.
    received_messages: counter,
    /// Of these, writes with immediate into upload slots.
    uploads: counter,
    /// Values lent to be read by the client.
    lends: counter,
    /// Values written into clients' landing buffers.
    landings: counter,
    /// Messages sent only to return credits.
    noops: counter,
    /// Upload slots with a request, and lend slots with a value, now.
    slots_in_use: gauge,
    /// Memory of message buffers and transfer slots, in bytes.
    slot_bytes: gauge,
    /// Times that a slot was refused because the memory is used up.
    slots_refused: counter,
    /// Messages that clients may send now.
    credits: gauge,
}

impl Figure {
    /// Adds to a gauge, or takes from it. Only its core calls this.
    pub(super) fn change(&self, change: i64) {
        self.set(self.get().wrapping_add_signed(change));
    }
}
