//! What a core does for commands about clients: it looks at some of its connections a turn.

use std::ops::Range;

use crate::conn::client_filter::{ClientFilter, ClientPage};
use crate::conn::description::describe;
use crate::cores::message::ArrivalKind;
use crate::serving::Serving;
use crate::steps;
use crate::waits::key_queues::WaitEnd;

/// Connections that a core looks at in a turn to list or kill them, and what each costs.
const CLIENTS_A_TURN: usize = 128;
const STEPS_A_CLIENT: usize = 16;

impl Serving {
    /// The numbers of the connections that come next in a walk.
    pub(super) fn next_clients(&self, start: usize) -> Range<usize> {
        let end = self.connections.len().min(start + CLIENTS_A_TURN);
        let numbers = start.min(end)..end;
        steps::count(STEPS_A_CLIENT * numbers.len());
        numbers
    }

    /// What was found among the connections of some numbers.
    fn client_page<T>(&self, numbers: &Range<usize>, found: T) -> ClientPage<T> {
        ClientPage {
            core: self.place,
            next: (!numbers.is_empty()).then_some(numbers.end),
            found,
        }
    }

    /// The lines of `CLIENT LIST` of clients that are meant, with their identities.
    pub(super) fn describe_clients(
        &self,
        start: usize,
        filter: &ClientFilter,
    ) -> ClientPage<Vec<(u64, String)>> {
        let now_ms = farcore_tuning::system_ms();
        let numbers = self.next_clients(start);
        let served = self.connections[numbers.clone()].iter().flatten();
        let meant = served.filter(|one| !one.is_gone && one.is_meant(filter));
        let lines = meant.map(|one| (one.id, describe(one, now_ms))).collect();
        self.client_page(&numbers, lines)
    }

    /// Closes the connections of clients that are meant; how many?
    pub(super) fn kill_clients(
        &mut self,
        start: usize,
        filter: &ClientFilter,
    ) -> ClientPage<usize> {
        let numbers = self.next_clients(start);
        let mut killed = 0;
        for number in numbers.clone() {
            let connection = self.connections[number].as_ref();
            if connection.is_some_and(|one| !one.is_gone && one.is_meant(filter)) {
                killed += 1;
                // The link that it is of is cut where nothing is under way.
                match connection.is_some_and(|one| one.kind == ArrivalKind::Source) {
                    true => self.shared.replication.interrupt(),
                    false => self.close(number),
                }
            }
        }
        self.client_page(&numbers, killed)
    }

    /// Has clients that wait do so in the databases that their numbers mean now.
    pub(super) fn move_waits(&mut self, start: usize) -> ClientPage<()> {
        let numbers = self.next_clients(start);
        for number in numbers.clone() {
            self.move_wait(number);
        }
        self.client_page(&numbers, ())
    }

    /// Ends the wait of a client, if it waits here.
    pub(super) fn unblock_client(
        &mut self,
        start: usize,
        client: u64,
        end: WaitEnd,
    ) -> ClientPage<bool> {
        let numbers = self.next_clients(start);
        let is_ended = self.end_wait_of_client(numbers.clone(), client, end);
        self.client_page(&numbers, is_ended)
    }
}
