//! Credits: how many messages each side may send, so that each finds a posted receive.
//!
//! ```text
//! this side's receives = with the peer (its credits) + held (consumed) + owed (posted, not granted)
//! ```
//!
//! A message with immediate consumes a receive and counts as a message. Every message grants what
//! is owed. A side keeps its last credit for a message that does nothing but grant (NOOP), so the
//! two sides cannot wait for each other.
//!
//! - I1: a side sends only with a credit of the peer, which posted the receive before it granted
//!   it.
//! - I2: the last credit is spent only on a message that grants at least one.

/// Why a peer's message contradicts its credits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CreditError {
    /// It sent more messages than it may.
    #[error("the peer sent a message without a credit")]
    Spent,
    /// It granted more than it can have receives.
    #[error(
        "the peer granted {granted} credits and has {receives} receives, {before} of them granted"
    )]
    Granted {
        /// What it granted.
        granted: u16,
        /// Its receives.
        receives: u16,
        /// What was granted before and is not spent.
        before: u16,
    },
}

/// The credits of a connection, as one side counts them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Credits {
    /// Messages that this side may send.
    balance: u16,
    /// Of these, kept for messages that are certain to be sent.
    reserved: u16,
    /// The peer's receives.
    peer_receives: u16,
    /// Messages that the peer may send.
    with_peer: u16,
    /// Receives that are consumed and not posted again.
    held: u16,
    /// Receives that are posted and not granted.
    owed: u16,
}

impl Credits {
    /// The credits when a connection begins: this side has posted `receives`, of which the peer
    /// knows nothing yet, and may send nothing.
    #[must_use]
    pub fn new(receives: u16) -> Self {
        Self {
            balance: 0,
            reserved: 0,
            peer_receives: 0,
            with_peer: 0,
            held: 0,
            owed: receives,
        }
    }

    /// The peer says how many receives it has posted. Each is a credit for one message.
    pub fn begin(&mut self, peer_receives: u16) {
        self.peer_receives = peer_receives;
        self.balance = peer_receives;
    }

    /// Messages that this side may send, without the last and those that are reserved.
    #[must_use]
    pub fn available(&self) -> u16 {
        self.balance.saturating_sub(self.reserved).saturating_sub(1)
    }

    /// All receives of the peer that this side may use.
    #[must_use]
    pub fn balance(&self) -> u16 {
        self.balance
    }

    /// Reserves a credit for a message to come; false if there is none.
    pub fn reserve(&mut self) -> bool {
        let may = self.available() > 0;
        self.reserved += u16::from(may);
        may
    }

    /// Gives a reserved credit back.
    pub fn release(&mut self) {
        self.reserved = self.reserved.saturating_sub(1);
    }

    /// Spends a credit on a message. Returns what the message grants; `None` if there is no credit.
    pub fn spend(&mut self) -> Option<u16> {
        if self.available() == 0 {
            return None;
        }
        self.balance -= 1;
        Some(self.grant())
    }

    /// Spends a reserved credit on a message. Returns what the message grants; `None` if no credit
    /// is reserved.
    pub fn spend_reserved(&mut self) -> Option<u16> {
        if self.reserved == 0 || self.balance == 0 {
            return None;
        }
        self.reserved -= 1;
        self.balance -= 1;
        Some(self.grant())
    }

    /// Spends a credit, if need be the last, on a message that only grants, if one is due: when
    /// half of the receives are owed. Returns what it grants.
    pub fn spend_on_noop(&mut self) -> Option<u16> {
        let receives = self.with_peer + self.held + self.owed;
        if self.owed == 0 || self.owed * 2 < receives || self.balance <= self.reserved {
            return None;
        }
        self.balance -= 1;
        Some(self.grant())
    }

    /// Grants all receives: the handshake tells the peer.
    #[must_use]
    pub fn grant_first(&mut self) -> u16 {
        self.grant()
    }

    /// Spends a credit on a message of the handshake, which grants nothing. False if there is none.
    pub fn spend_in_handshake(&mut self) -> bool {
        let may = self.balance > 0;
        self.balance -= u16::from(may);
        may
    }

    fn grant(&mut self) -> u16 {
        let granted = self.owed;
        self.with_peer += granted;
        self.owed = 0;
        granted
    }

    /// The peer's message was received.
    ///
    /// # Errors
    /// [`CreditError`]: the peer violates the protocol.
    pub fn received(&mut self, granted: u16) -> Result<(), CreditError> {
        if self.with_peer == 0 {
            return Err(CreditError::Spent);
        }
        self.with_peer -= 1;
        self.held += 1;
        if u32::from(self.balance) + u32::from(granted) > u32::from(self.peer_receives) {
            return Err(CreditError::Granted {
                granted,
                receives: self.peer_receives,
                before: self.balance,
            });
        }
        self.balance += granted;
        Ok(())
    }

    /// A consumed receive is posted again.
    pub fn posted(&mut self) {
        debug_assert!(self.held > 0);
        self.held = self.held.saturating_sub(1);
        self.owed += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashSet, VecDeque};

    use proptest::prelude::*;

    use super::*;

    /// A message on its way.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    enum Message {
        Request(u16),
        Answer(u16),
        /// A message of the client that has no answer.
        Done(u16),
        Noop(u16),
    }

    /// Two sides and what is under way. The receives that a side has really posted are counted
    /// apart from the credits.
    #[derive(Clone, Debug)]
    struct Pair {
        credits: [Credits; 2],
        posted: [u16; 2],
        wires: [VecDeque<Message>; 2],
        /// Requests that the server has received and not begun.
        waiting: u16,
        /// Begun, with a reserved credit.
        begun: u16,
        /// Requests that the client still sends, and messages without an answer.
        to_send: u16,
        to_say: u16,
        answered: u16,
    }

    const CLIENT: usize = 0;
    const SERVER: usize = 1;

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Step {
        Send,
        Say,
        Deliver(usize),
        Begin,
        Answer,
        Noop(usize),
    }

    const STEPS: [Step; 8] = [
        Step::Send,
        Step::Say,
        Step::Deliver(CLIENT),
        Step::Deliver(SERVER),
        Step::Begin,
        Step::Answer,
        Step::Noop(CLIENT),
        Step::Noop(SERVER),
    ];

    impl Pair {
        fn new(client: u16, server: u16, (requests, says): (u16, u16)) -> Self {
            let mut credits = [Credits::new(client), Credits::new(server)];
            // As the handshake does it.
            let granted = [credits[0].grant(), credits[1].grant()];
            credits[0].begin(granted[1]);
            credits[1].begin(granted[0]);
            Self {
                credits,
                posted: [client, server],
                wires: [VecDeque::new(), VecDeque::new()],
                waiting: 0,
                begun: 0,
                to_send: requests,
                to_say: says,
                answered: 0,
            }
        }

        /// Does a step; false if it is not possible now.
        fn step(&mut self, step: Step) -> bool {
            match step {
                Step::Send => {
                    let granted = (self.to_send > 0).then(|| self.credits[CLIENT].spend());
                    let Some(granted) = granted.flatten() else {
                        return false;
                    };
                    self.to_send -= 1;
                    self.wires[SERVER].push_back(Message::Request(granted));
                }
                Step::Say => {
                    let granted = (self.to_say > 0).then(|| self.credits[CLIENT].spend());
                    let Some(granted) = granted.flatten() else {
                        return false;
                    };
                    self.to_say -= 1;
                    self.wires[SERVER].push_back(Message::Done(granted));
                }
                Step::Deliver(to) => {
                    let Some(message) = self.wires[to].pop_front() else {
                        return false;
                    };
                    assert!(self.posted[to] > 0, "receiver not ready");
                    self.posted[to] -= 1;
                    let (Message::Request(granted)
                    | Message::Answer(granted)
                    | Message::Done(granted)
                    | Message::Noop(granted)) = message;
                    self.credits[to]
                        .received(granted)
                        .expect("a peer that keeps the rules");
                    match message {
                        Message::Request(_) => self.waiting += 1,
                        Message::Answer(_) => {
                            self.answered += 1;
                            self.post(to);
                        }
                        Message::Done(_) | Message::Noop(_) => self.post(to),
                    }
                }
                Step::Begin => {
                    if self.waiting == 0 || !self.credits[SERVER].reserve() {
                        return false;
                    }
                    self.waiting -= 1;
                    self.begun += 1;
                }
                Step::Answer => {
                    if self.begun == 0 {
                        return false;
                    }
                    self.begun -= 1;
                    self.post(SERVER);
                    let granted = self.credits[SERVER]
                        .spend_reserved()
                        .expect("it is reserved");
                    self.wires[CLIENT].push_back(Message::Answer(granted));
                }
                Step::Noop(side) => {
                    let Some(granted) = self.credits[side].spend_on_noop() else {
                        return false;
                    };
                    assert!(granted > 0);
                    self.wires[1 - side].push_back(Message::Noop(granted));
                }
            }
            true
        }

        fn post(&mut self, side: usize) {
            self.posted[side] += 1;
            self.credits[side].posted();
        }

        fn is_done(&self) -> bool {
            self.to_send + self.to_say + self.waiting + self.begun == 0
                && self.wires.iter().all(VecDeque::is_empty)
        }

        fn key(&self) -> String {
            format!("{self:?}")
        }
    }

    #[test]
    fn small_pairs_never_overrun_nor_get_stuck_in_any_order() {
        for (client, server) in [(4, 4), (4, 5), (5, 4)] {
            let mut seen = HashSet::new();
            let mut open = vec![Pair::new(client, server, (8, 8))];
            while let Some(pair) = open.pop() {
                let mut moved = false;
                for step in STEPS {
                    let mut next = pair.clone();
                    if next.step(step) {
                        moved = true;
                        // A pair that only says NOOP to itself would not end: it is bounded.
                        if seen.insert(next.key()) {
                            open.push(next);
                        }
                    }
                }
                assert!(moved || pair.is_done(), "stuck: {pair:?}");
                if !moved {
                    assert_eq!(pair.answered, 8);
                }
            }
            assert!(seen.len() > 1000, "{}", seen.len());
        }
    }

    #[test]
    fn the_last_credit_is_kept_for_a_message_that_grants() {
        let mut credits = Credits::new(4);
        let _ = credits.grant_first();
        credits.begin(4);
        assert!(credits.reserve());
        assert_eq!((credits.spend(), credits.spend()), (Some(0), Some(0)));
        assert_eq!((credits.spend(), credits.reserve()), (None, false));
        assert_eq!(credits.spend_reserved(), Some(0));
        assert_eq!(credits.spend_on_noop(), None, "nothing is owed");
        for _ in 0..2 {
            credits.received(0).expect("a peer that keeps the rules");
            credits.posted();
        }
        assert_eq!(credits.spend_on_noop(), Some(2));
        assert_eq!(credits.balance(), 0);
    }

    proptest! {
        #[test]
        fn random_orders_end_with_every_answer(
            client in 4..40u16, server in 4..40u16, requests in 0..300u16, says in 0..300u16,
            choices in prop::collection::vec(0..STEPS.len(), 64),
        ) {
            let mut pair = Pair::new(client, server, (requests, says));
            let (mut at, mut idle) = (0, 0);
            while !pair.is_done() && idle < 2 * choices.len() {
                let step = STEPS[choices[at % choices.len()]];
                at += 1;
                idle = if pair.step(step) { 0 } else { idle + 1 };
                // Choices that leave a step out still let everything happen at last.
                if idle > choices.len() {
                    let moved = STEPS.into_iter().any(|step| pair.step(step));
                    prop_assert!(moved, "stuck: {:?}", pair);
                    idle = 0;
                }
            }
            prop_assert_eq!(pair.answered, requests);
            // NOOPs end by themselves.
            let mut noops = 0;
            while STEPS.into_iter().any(|step| pair.step(step)) {
                noops += 1;
                prop_assert!(noops < 200, "endless NOOPs");
            }
        }

        #[test]
        fn a_peer_that_breaks_the_rules_is_noticed(receives in 4..20u16, messages in 0..40u16, granted: u16) {
            let mut credits = Credits::new(receives);
            credits.begin(8);
            let _ = credits.grant();
            for number in 0..messages {
                let known = credits.received(0);
                prop_assert_eq!(known.is_err(), number >= receives);
                if known.is_err() {
                    return Ok(());
                }
            }
            if messages < receives {
                prop_assert_eq!(credits.received(granted).is_err(), granted > 0);
            }
        }
    }
}
