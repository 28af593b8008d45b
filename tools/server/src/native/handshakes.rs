//! Handshakes under way: connections that have not proved the token.
//!
//! ```text
//! accepted -> silent -> begun -> challenged -> open
//!                '--------'----------'-- evicted for the next one, late, or refused
//! ```
//!
//! They have places beside those of clients, some for each stage, so a crowd that goes no further
//! than one stage keeps no one out of the others. When the places of a stage are taken, one makes
//! room for the next: the oldest of the network with the most ([`Places`]). A silent connection has
//! a socket and a task; one that has begun has an endpoint too, some 100 KiB, of which there are
//! few. Message buffers and slots come with the proof.
//!
//! - I1: each connection that is not open has one place, here and in `stages`.

use farcore_rdma::{Network, Places};

use super::connection::{NativeConnection, State};
use super::lifecycle::list;
use super::turn::Native;

/// Places for silent connections, of all cores: those without a request to connect.
const SILENT_MAX: usize = 256;
/// Places for connections that have begun, of all cores: HELLO is to come.
const BEGUN_MAX: usize = 64;
/// Places for connections that were challenged, of all cores: PROVE is to come.
const CHALLENGED_MAX: usize = 64;

/// Memory of a connection that has begun, in bytes: its endpoint over sockets, with the buffers of
/// the handshake.
const BEGUN_BYTES: usize = 104 << 10;

/// Memory of all handshakes of all cores, in bytes, at most. It is on no client's account: what
/// has proved nothing takes nothing from clients.
pub const HANDSHAKES_BYTES_MAX: usize = (BEGUN_MAX + CHALLENGED_MAX) * BEGUN_BYTES;

/// All places of all cores: this many descriptors are needed beside those of clients.
pub const HANDSHAKES_MAX: usize = SILENT_MAX + BEGUN_MAX + CHALLENGED_MAX;

/// How far a handshake has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Silent,
    Begun,
    Challenged,
}

/// Who has a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holder {
    /// The task that accepts it.
    Task(u64),
    /// The connection with this number.
    Connection(usize),
}

/// The place of a handshake.
#[derive(Debug)]
pub(super) struct Seat {
    network: Network,
    stage: Stage,
    number: u64,
}

/// The places of a core's handshakes.
#[derive(Debug)]
pub(super) struct Handshakes {
    stages: [Places<Holder>; 3],
    next: u64,
}

impl Handshakes {
    /// A core's part of the places of all.
    pub(super) fn new(cores: usize) -> Self {
        let limits = [SILENT_MAX, BEGUN_MAX, CHALLENGED_MAX];
        Self {
            stages: limits.map(|limit| Places::new(limit / cores.max(1))),
            next: 0,
        }
    }

    fn is_full(&self, stage: Stage) -> bool {
        self.stages[stage as usize].is_full()
    }

    /// Takes a place. The caller has made room.
    fn take(&mut self, network: Network, stage: Stage, holder: Holder) -> Seat {
        self.next += 1;
        let number = self.next;
        self.stages[stage as usize].take(network, number, holder);
        Seat {
            network,
            stage,
            number,
        }
    }

    fn free(&mut self, seat: &Seat) {
        self.stages[seat.stage as usize].free(seat.network, seat.number);
    }

    /// Frees the place that the next one gets, and says whose it was.
    fn evict(&mut self, stage: Stage) -> Option<Holder> {
        let places = &mut self.stages[stage as usize];
        let (network, number) = places.next_evicted()?;
        places.free(network, number)
    }
}

impl Native {
    /// A place for a connection that a task accepts.
    pub(super) fn seat_of_task(&mut self, network: Network, task: u64) -> Seat {
        self.counters().handshakes.change(1);
        self.seat(network, Stage::Silent, Holder::Task(task))
    }

    fn seat(&mut self, network: Network, stage: Stage, holder: Holder) -> Seat {
        while self.handshakes.is_full(stage) {
            self.evict(stage);
        }
        self.handshakes.take(network, stage, holder)
    }

    /// The place of a connection that has gone further.
    pub(super) fn go_further(&mut self, seat: &Seat, number: usize, stage: Stage) -> Seat {
        self.handshakes.free(seat);
        self.seat(seat.network, stage, Holder::Connection(number))
    }

    /// Frees the place of a handshake that has ended.
    pub(super) fn end_handshake(&mut self, seat: &Seat) {
        self.handshakes.free(seat);
        self.counters().handshakes.change(-1);
    }

    /// Notes how far a connection has come.
    pub(super) fn note_stage(&mut self, number: usize, connection: &mut NativeConnection) {
        let Some(seat) = connection.seat.take() else {
            return;
        };
        connection.seat = match connection.state {
            State::Open => {
                self.end_handshake(&seat);
                None
            }
            State::Prove(_) if seat.stage != Stage::Challenged => {
                Some(self.go_further(&seat, number, Stage::Challenged))
            }
            _ => Some(seat),
        };
    }

    /// Ends the handshake that makes room for another.
    fn evict(&mut self, stage: Stage) {
        let Some(holder) = self.handshakes.evict(stage) else {
            return;
        };
        self.counters().handshakes.change(-1);
        self.counters().evicted_handshakes.add(1);
        match holder {
            Holder::Task(task) => {
                self.accepting.cancel(task);
                self.shared.native_gone(self.place);
            }
            Holder::Connection(number) => {
                let connection = self.connections.get_mut(number);
                if let Some(connection) = connection.and_then(super::lifecycle::Entry::open) {
                    connection.seat = None;
                    connection.is_gone = true;
                    list(&mut self.listed, number, connection);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_take_no_more_than_is_said() {
        for cores in [1, 2, 3, 64] {
            let network = Network::of([10, 0, 0, 1].into());
            let mut bytes = 0;
            for mut core in (0..cores).map(|_| Handshakes::new(cores)) {
                for stage in [Stage::Begun, Stage::Challenged] {
                    for number in 0.. {
                        if core.is_full(stage) {
                            break;
                        }
                        core.take(network, stage, Holder::Connection(number));
                        bytes += BEGUN_BYTES;
                    }
                }
            }
            assert!(
                bytes > 0 && bytes <= HANDSHAKES_BYTES_MAX,
                "{cores} cores: {bytes}"
            );
        }
        // The documentation names it.
        let said = format!("{} MiB", HANDSHAKES_BYTES_MAX >> 20);
        let document = include_str!("../../../../docs/serve.md");
        assert!(
            document.contains(&format!("{said} for handshakes")),
            "{said}"
        );
    }

    #[test]
    fn a_stage_evicts_its_own_and_the_network_with_the_most() {
        let mut all = Handshakes::new(64);
        let (one, other) = (
            Network::of([10, 0, 0, 1].into()),
            Network::of([10, 0, 0, 2].into()),
        );
        all.take(one, Stage::Begun, Holder::Connection(7));
        for task in 0..3 {
            all.take(one, Stage::Silent, Holder::Task(task));
        }
        let last = all.take(other, Stage::Silent, Holder::Task(3));
        assert!(all.is_full(Stage::Silent) && all.is_full(Stage::Begun));
        assert!(!all.is_full(Stage::Challenged));
        assert_eq!(all.evict(Stage::Silent), Some(Holder::Task(0)));
        all.free(&last);
        assert_eq!(all.evict(Stage::Silent), Some(Holder::Task(1)));
        assert_eq!(all.evict(Stage::Begun), Some(Holder::Connection(7)));
        assert_eq!(all.evict(Stage::Begun), None);
    }
}
