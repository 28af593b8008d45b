//! What a seed makes of a world: its sizes, and what happens there.

use crate::random::Numbers;

/// The sizes of a world, and weights of what happens.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) servers: usize,
    pub(super) shards: usize,
    pub(super) keys: usize,
    pub(super) steps: u64,
    pub(super) backlog_bytes: u64,
    /// Bytes that a replica may be behind.
    pub(super) behind_bytes: u64,
    /// Writers wait for slow replicas.
    pub(super) waits: bool,
    /// Bytes of a value, about.
    pub(super) value_bytes: usize,
    /// Steps to a fault, on average; 0 for none.
    pub(super) fault_every: usize,
    /// Writes until one removes all keys, on average; 0 for none.
    pub(super) clear_every: usize,
    /// Of 8 writes, those of strings that the feed does not have.
    pub(super) long: usize,
    /// Replicas may follow replicas.
    pub(super) chains: bool,
    /// Replicas learn of another identity of the stream.
    pub(super) takes_names: bool,
    /// Data go by a file of known length, not by a mark.
    pub(super) gathers: bool,
}

impl Plan {
    pub(super) fn of(numbers: &mut Numbers) -> Self {
        Self {
            servers: 2 + numbers.below(3),
            shards: 1 + numbers.below(4),
            keys: 4 + numbers.below(20),
            steps: 1000 + numbers.below(3000) as u64,
            backlog_bytes: [1, 10_000, 1 << 20, 16 << 20][numbers.below(4)],
            behind_bytes: [200_000, 256 << 20][numbers.below(2)],
            waits: numbers.below(4) == 0,
            value_bytes: [8, 8, 300, 3000][numbers.below(4)],
            fault_every: [0, 25, 50, 100, 300][numbers.below(5)],
            clear_every: [0, 0, 50, 200][numbers.below(4)],
            long: numbers.below(4),
            chains: numbers.below(2) == 0,
            takes_names: numbers.below(4) > 0,
            gathers: numbers.below(3) == 0,
        }
    }
}
