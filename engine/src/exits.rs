//! A core's exits: where the answers of its shard leave.

use std::collections::VecDeque;
use std::sync::Arc;

use farcore_tuning::Sampler;

use crate::figures::CoreFigures;
use crate::kept::Kept;
use crate::lane::LaneServer;
use crate::operation::Answer;
use crate::shard::{Answers, LaneId, Mark};

/// The lane number of clients on the shard's own core.
pub(crate) const OWN: u8 = 255;
/// The number of no client.
pub(crate) const NOBODY: u8 = 255;

pub(crate) fn lane_id(lane: u8, client: u8, mark: Mark) -> LaneId {
    LaneId(u32::from(lane) | u32::from(client) << 8 | u32::from(mark.0) << 16)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "takes apart what `lane_id` packed"
)]
fn parts(id: LaneId) -> (u8, u8, Mark) {
    (id.0 as u8, (id.0 >> 8) as u8, Mark((id.0 >> 16) as u8))
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
    /// There are any.
    is_touched: bool,
    /// Times requests of this core's clients.
    pub(crate) sampler: Sampler,
    figures: Arc<CoreFigures>,
}

impl Exits {
    pub(crate) fn new(
        servers: Vec<Option<LaneServer>>,
        sampler: Sampler,
        figures: Arc<CoreFigures>,
    ) -> Self {
        Self {
            sampler,
            figures,
            servers,
            inboxes: Vec::new(),
            touched: [0; 4],
            is_touched: false,
        }
    }

    /// The request that is timed was answered. What waited for far memory is in that histogram.
    #[cold]
    pub(crate) fn note_latency(&mut self, mark: Mark, own: bool) {
        if let Some(took_ns) = self.sampler.answered()
            && !mark.has_waited()
        {
            let CoreFigures { local, cross, .. } = &*self.figures;
            if own { local } else { cross }.record(took_ns);
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
        let client = u8::try_from(place)
            .ok()
            .filter(|&client| client != NOBODY)?;
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
        self.is_touched = true;
    }

    /// Shows clients what was answered.
    #[inline]
    pub(crate) fn publish(&mut self) {
        if !std::mem::take(&mut self.is_touched) {
            return;
        }
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
        polling: u8,
        visit: &mut impl FnMut(u64, Answer<'_>),
        client: u8,
        token: u64,
        answer: Answer<'_>,
    ) {
        if client == polling {
            visit(token, answer);
        } else {
            self.keep(client, token, Kept::of(&answer));
        }
    }

    #[cold]
    fn keep(&mut self, client: u8, token: u64, kept: Kept) {
        if let Some(Some(inbox)) = self.inboxes.get_mut(usize::from(client)) {
            inbox.push_back((token, kept));
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

/// The exits during a turn, with the client that is polling. The token of a request that came over a lane is its slot
/// there.
pub(crate) struct Turn<'a, V> {
    pub(crate) exits: &'a mut Exits,
    pub(crate) polling: u8,
    pub(crate) visit: &'a mut V,
}

impl<V: FnMut(u64, Answer<'_>)> Answers for Turn<'_, V> {
    #[inline]
    fn has_room(&self, id: LaneId, value_bytes: usize) -> bool {
        match parts(id) {
            (OWN, _, _) => true,
            (lane, _, _) => self.exits.servers[usize::from(lane)]
                .as_ref()
                .is_none_or(|server| server.has_room(value_bytes)),
        }
    }

    #[inline]
    fn answer(&mut self, id: LaneId, token: u64, answer: Answer<'_>) {
        match parts(id) {
            (OWN, client, mark) => {
                if mark.is_timed() {
                    self.exits.note_latency(mark, true);
                }
                self.exits
                    .deliver(self.polling, self.visit, client, token, answer);
            }
            (lane, _, mark) => {
                if let Some(server) = &mut self.exits.servers[usize::from(lane)] {
                    server.answer(slot_of(token), mark.has_waited(), answer);
                    self.exits.touch(usize::from(lane));
                }
            }
        }
    }
}

/// The exit of the client that is polling, for its own requests that are answered at once.
pub(crate) struct OwnExit<'a, V>(pub(crate) &'a mut V);

impl<V: FnMut(u64, Answer<'_>)> Answers for OwnExit<'_, V> {
    #[inline]
    fn has_room(&self, _: LaneId, _: usize) -> bool {
        true
    }

    #[inline(always)]
    fn answer(&mut self, _: LaneId, token: u64, answer: Answer<'_>) {
        (self.0)(token, answer);
    }
}

/// The exit of one lane, for requests that came over it and are answered at once.
pub(crate) struct LaneExit<'a>(pub(crate) &'a mut LaneServer);

impl Answers for LaneExit<'_> {
    #[inline]
    fn has_room(&self, _: LaneId, value_bytes: usize) -> bool {
        self.0.has_room(value_bytes)
    }

    #[inline(always)]
    fn answer(&mut self, _: LaneId, token: u64, answer: Answer<'_>) {
        self.0.answer(slot_of(token), false, answer);
    }

    #[inline(always)]
    fn try_answer(&mut self, _: LaneId, token: u64, answer: Answer<'_>) -> bool {
        self.0.try_answer(slot_of(token), false, answer)
    }
}

/// The slot that is the token of a lane's request.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "it was made from a slot")]
fn slot_of(token: u64) -> u16 {
    token as u16
}
