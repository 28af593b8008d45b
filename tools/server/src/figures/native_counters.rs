//! Figures of a core's native connections, written by the core and read by any.

use crate::figures::counters::Figure;

/// A figure by its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NativeFigure {
    /// Its name, as in metrics after `farcore_server_native_`.
    pub name: &'static str,
    /// What it counts.
    pub about: &'static str,
    /// True of a counter, false of a gauge.
    pub only_grows: bool,
    /// Its value now.
    pub value: u64,
}

macro_rules! figures {
    ($(#[doc = $doc:literal] $name:ident: $kind:ident,)+) => {
        /// Figures of one core's native connections.
        #[derive(Debug, Default)]
        pub(crate) struct NativeCounters {
            $(pub(crate) $name: Figure,)+
        }

        /// Figures of native connections at one moment.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct NativeFigures {
            $(#[doc = $doc] pub $name: u64,)+
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

            /// Every figure, in the same order each time.
            #[must_use]
            pub fn all(&self) -> Vec<NativeFigure> {
                vec![$(NativeFigure {
                    name: stringify!($name),
                    about: $doc.trim_ascii().trim_end_matches('.'),
                    only_grows: stringify!($kind) == "counter",
                    value: self.$name,
                },)+]
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
    /// Connections that were closed because they took no answers while others waited for memory.
    evicted: counter,
    /// Uploads of long values that ended because they had stalled while others waited.
    stalled_uploads: counter,
    /// Handshakes under way.
    handshakes: gauge,
    /// Handshakes that made room for others.
    evicted_handshakes: counter,
    /// Handshakes that took too long.
    late_handshakes: counter,
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
    /// Memory of message buffers, transfer slots, and answers on their way, in bytes.
    slot_bytes: gauge,
    /// Times that a slot was refused because the memory is used up.
    slots_refused: counter,
    /// Messages that clients may send now.
    credits: gauge,
}

impl Figure {
    /// Adds to a gauge, or takes from it. Only its core calls this.
    pub(crate) fn change(&self, change: i64) {
        self.set(self.get().wrapping_add_signed(change));
    }
}
