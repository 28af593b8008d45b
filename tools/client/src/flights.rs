//! Requests that are under way, by the id of their messages.

use std::collections::VecDeque;

use farcore_protocol::{Header, Kind};

use crate::command::Command;

/// How far a request has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Its answer is to come.
    Sent,
    /// The READ of its value is under way or waits: the server's slot, and the value's bytes.
    Reading,
}

/// A request that is under way.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) command: Option<Command>,
    pub(crate) kind: Kind,
    pub(crate) stage: Stage,
    /// Upload buffers that are with the server, in order.
    pub(crate) uploads: VecDeque<u16>,
    /// The landing buffer that the request names.
    pub(crate) landing: Option<u16>,
    /// Bytes of a value that is sent in parts: how many are sent.
    pub(crate) sent: Option<usize>,
    /// The answer that named what is read.
    pub(crate) answer: Option<Header>,
    /// The value that is sent in parts, if its caller waits no more.
    pub(crate) orphan: Vec<u8>,
}

impl Flight {
    /// One whose request is about to be sent.
    pub(crate) fn new(kind: Kind, command: Option<Command>) -> Self {
        Self {
            command,
            kind,
            stage: Stage::Sent,
            uploads: VecDeque::new(),
            landing: None,
            sent: None,
            answer: None,
            orphan: Vec::new(),
        }
    }
}

/// Requests that are under way.
///
/// ```text
/// id: | generation:16 | place:16 |
/// ```
#[derive(Debug, Default)]
pub(crate) struct Flights {
    flights: Vec<(u16, Option<Flight>)>,
    free: Vec<u16>,
    count: usize,
}

impl Flights {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    fn place(id: u32) -> (usize, u16) {
        let low = usize::try_from(id & 0xFFFF).unwrap_or(0);
        (low, u16::try_from(id >> 16).unwrap_or(0))
    }

    /// The id of the next request; `None` if there are too many.
    pub(crate) fn insert(&mut self, flight: Flight) -> Option<u32> {
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                let place = u16::try_from(self.flights.len()).ok()?;
                self.flights.push((0, None));
                place
            }
        };
        let (generation, entry) = &mut self.flights[usize::from(place)];
        *entry = Some(flight);
        self.count += 1;
        Some(u32::from(*generation) << 16 | u32::from(place))
    }

    pub(crate) fn get(&mut self, id: u32) -> Option<&mut Flight> {
        let (place, generation) = Self::place(id);
        let (current, flight) = self.flights.get_mut(place)?;
        (*current == generation).then_some(flight.as_mut()?)
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<Flight> {
        self.get(id)?;
        let (place, generation) = Self::place(id);
        let (current, flight) = &mut self.flights[place];
        *current = generation.wrapping_add(1);
        self.free.push(u16::try_from(place).ok()?);
        self.count -= 1;
        flight.take()
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Flight> {
        self.flights
            .iter()
            .filter_map(|(_, flight)| flight.as_ref())
    }

    /// All of them, mutably.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Flight> {
        self.flights
            .iter_mut()
            .filter_map(|(_, flight)| flight.as_mut())
    }

    /// Removes all of them.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Flight> + use<> {
        self.count = 0;
        self.free.clear();
        let flights = std::mem::take(&mut self.flights);
        flights.into_iter().filter_map(|(_, flight)| flight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flight() -> Flight {
        Flight::new(Kind::Ping, None)
    }

    #[test]
    fn an_id_names_one_request() {
        let mut flights = Flights::default();
        let first = flights.insert(flight()).expect("room");
        let second = flights.insert(flight()).expect("room");
        assert_ne!(first, second);
        assert!(flights.remove(first).is_some());
        assert!(flights.get(first).is_none() && flights.remove(first).is_none());
        let third = flights.insert(flight()).expect("room");
        assert_ne!(
            first, third,
            "an answer to the first would be taken for one to the third"
        );
        assert_eq!(flights.len(), 2);
        assert!(flights.get(u32::MAX).is_none());
        assert_eq!(flights.drain().count(), 2);
        assert_eq!(flights.len(), 0);
    }
}
