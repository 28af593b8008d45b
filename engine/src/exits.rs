//! A core's exits: where the answers of its shard leave.

use std::collections::VecDeque;

use crate::kept::Kept;
use crate::lane::LaneServer;
use crate::operation::Answer;
use crate::shard::{Answers, LaneId};

/// The lane number of clients on the shard's own core.
pub(crate) const OWN: u8 = 255;

pub(crate) fn lane_id(lane: u8, client: u8) -> LaneId {
    LaneId(u16::from(lane) | u16::from(client) << 8)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "takes apart what `lane_id` packed"
)]
fn parts(id: LaneId) -> (u8, u8) {
    (id.0 as u8, (id.0 >> 8) as u8)
}

/// Answers that came while their client was not polling.
type Inbox = VecDeque<(u64, Kept)>;

/// The shard's ends of its lanes, and the inboxes of the clients on its core.
#[derive(Debug)]
pub(crate) struct Exits {
    /// By lane.
    pub(crate) servers: Vec<Option<LaneServer>>,
    inboxes: Vec<Option<Inbox>>,
    /// Lanes with something to be published.
    touched: [u64; 4],
}

impl Exits {
    pub(crate) fn new(servers: Vec<Option<LaneServer>>) -> Self {
        Self {
            servers,
            inboxes: Vec::new(),
            touched: [0; 4],
        }
    }

    /// A number for a new client on this core; `None` when there are too many.
    pub(crate) fn add_client(&mut self) -> Option<u8> {
        let place = match self.inboxes.iter().position(Option::is_none) {
            Some(place) => place,
            None => {
                self.inboxes.push(None);
                self.inboxes.len() - 1
            }
        };
        let client = u8::try_from(place).ok().filter(|&client| client < OWN)?;
        self.inboxes[place] = Some(Inbox::new());
        Some(client)
    }

    /// A client has gone, with nothing outstanding.
    pub(crate) fn remove_client(&mut self, client: u8) {
        self.inboxes[usize::from(client)] = None;
    }

    /// From now on no answer waits for its client to make room.
    pub(crate) fn close(&mut self) {
        for server in self.servers.iter_mut().flatten() {
            server.close();
        }
    }

    /// A lane has something to be published.
    #[inline]
    pub(crate) fn touch(&mut self, lane: usize) {
        self.touched[lane / 64] |= 1 << (lane % 64);
    }

    /// Shows clients what was answered.
    #[inline]
    pub(crate) fn publish(&mut self) {
        for word in 0..4 {
            let mut touched = std::mem::take(&mut self.touched[word]);
            while touched != 0 {
                let lane = word * 64 + touched.trailing_zeros() as usize;
                touched &= touched - 1;
                if let Some(server) = &mut self.servers[lane] {
                    server.publish();
                }
            }
        }
    }

    /// Hands an answer to a client on this core: visited at once if it is polling, kept if not.
    #[inline]
    pub(crate) fn deliver(
        &mut self,
        polling: Option<u8>,
        visit: &mut impl FnMut(u64, Answer<'_>),
        client: u8,
        token: u64,
        answer: Answer<'_>,
    ) {
        if polling == Some(client) {
            visit(token, answer);
        } else if let Some(Some(inbox)) = self.inboxes.get_mut(usize::from(client)) {
            inbox.push_back((token, Kept::of(&answer)));
        }
    }

    /// Hands a client what came for it while it was not polling.
    pub(crate) fn take_kept(&mut self, client: u8) -> Option<(u64, Kept)> {
        self.inboxes
            .get_mut(usize::from(client))?
            .as_mut()?
            .pop_front()
    }
}

/// The exits during a turn, with the client that is polling.
pub(crate) struct Turn<'a, V> {
    pub(crate) exits: &'a mut Exits,
    pub(crate) polling: Option<u8>,
    pub(crate) visit: &'a mut V,
}

impl<V: FnMut(u64, Answer<'_>)> Answers for Turn<'_, V> {
    #[inline]
    fn has_room(&self, id: LaneId, value_bytes: usize) -> bool {
        match parts(id) {
            (OWN, _) => true,
            (lane, _) => self.exits.servers[usize::from(lane)]
                .as_ref()
                .is_none_or(|server| server.has_room(value_bytes)),
        }
    }

    #[inline]
    fn answer(&mut self, id: LaneId, token: u64, answer: Answer<'_>) {
        match parts(id) {
            (OWN, client) => {
                self.exits
                    .deliver(self.polling, self.visit, client, token, answer);
            }
            (lane, client) => {
                if let Some(server) = &mut self.exits.servers[usize::from(lane)] {
                    server.answer(client, token, &answer);
                    self.exits.touch(usize::from(lane));
                }
            }
        }
    }
}
