//! Bytes of large values and records that the commands of several steps of a core copy in a turn.
//!
//! A step over a large value says beforehand how many bytes of it it copies. Steps of a turn begin
//! while the turn has bytes left; the others wait for a later turn, in the order in which they
//! came. A step that is longer than what is left begins too, and the turns after it have that much
//! less: a turn does one long step, or several short ones, and small commands run between them.
//!
//! - I1: what the steps of a turn copy together is below [`BYTES_A_TURN`] without the last of them.
//! - I2: steps begin in the order in which they came, those of at most [`FREE_BYTES_MAX`] at once.

use std::cell::Cell;

use farcore::Core;

use crate::budgets::ticket_queue::TicketQueue;

/// Bytes that are copied in a turn, after which no other step begins.
pub(crate) const BYTES_A_TURN: usize = 512 << 10;
/// A step counts as at most this many: what is said beforehand may be far more than it copies.
const STEP_BYTES_MAX: usize = 8 * BYTES_A_TURN;
/// A step of at most this many bytes is as one of any small command: it does not wait.
pub(crate) const FREE_BYTES_MAX: usize = 16 << 10;

/// What is left of a turn, and which steps wait.
#[derive(Debug, Default)]
pub(crate) struct TurnBytes {
    /// Bytes that steps have copied beyond what their turns had, of this turn those that it has.
    copied: Cell<usize>,
    /// True once turns are counted.
    is_counted: Cell<bool>,
    /// Steps that wait.
    waiting: TicketQueue,
}

impl TurnBytes {
    /// Begins a turn.
    pub(crate) fn begin(&self) {
        self.is_counted.set(true);
        let copied = self.copied.get();
        self.copied.set(copied.saturating_sub(BYTES_A_TURN));
    }

    /// Takes bytes for a step; waits for a turn that has some left, unless its client is gone.
    /// Without turns nothing waits.
    pub(crate) async fn take(&self, core: &Core, bytes: usize, is_gone: impl Fn() -> bool) {
        if !self.is_counted.get() {
            return;
        }
        let bytes = bytes.min(STEP_BYTES_MAX);
        if bytes <= FREE_BYTES_MAX {
            self.copied.set(self.copied.get().saturating_add(bytes));
            return;
        }
        if !self.waiting.is_empty() || !self.has_some() {
            let place = self.waiting.last();
            while !(place.is_first() && self.has_some()) {
                if is_gone() {
                    return;
                }
                core.yield_now().await;
            }
        }
        self.copied.set(self.copied.get().saturating_add(bytes));
    }

    fn has_some(&self) -> bool {
        self.copied.get() < BYTES_A_TURN
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};

    use futures_lite::future::poll_once;

    use super::*;
    use crate::by_hand::on_first_core;

    /// Which of the steps that wait begin in this turn.
    async fn begun(steps: &mut Vec<(usize, Pin<Box<impl Future<Output = ()>>>)>) -> Vec<usize> {
        let mut begun = Vec::new();
        for place in (0..steps.len()).rev() {
            // Those that came last are polled first: their order does not come from the polls.
            if poll_once(steps[place].1.as_mut()).await.is_some() {
                begun.push(steps.remove(place).0);
            }
        }
        begun
    }

    #[test]
    fn long_steps_begin_in_their_order_one_a_turn_and_small_ones_at_once() {
        on_first_core(1, |bench| async move {
            let (core, turn) = (&bench.core, &TurnBytes::default());
            turn.begin();
            // The first takes this turn and the next.
            turn.take(core, 2 * BYTES_A_TURN, || false).await;
            let mut steps: Vec<_> = (0..4)
                .map(|number| (number, Box::pin(turn.take(core, BYTES_A_TURN, || false))))
                .collect();
            // They come in their order.
            for (_, step) in &mut steps {
                assert!(poll_once(step.as_mut()).await.is_none());
            }
            turn.take(core, FREE_BYTES_MAX, || false).await;
            turn.begin();
            assert!(begun(&mut steps).await.is_empty());
            for number in 0..2 {
                turn.begin();
                let mut now = begun(&mut steps).await;
                now.extend(begun(&mut steps).await);
                assert_eq!(now, [number]);
            }
            // One that is given up is not waited for.
            steps.retain(|&(number, _)| number != 2);
            turn.begin();
            assert_eq!(begun(&mut steps).await, [3]);
            turn.begin();
            turn.begin();
            assert_eq!(turn.copied.get(), 0);
        });
    }

    #[test]
    fn a_turn_has_some_steps_of_many() {
        on_first_core(1, |bench| async move {
            const STEP: usize = 64 << 10;
            let (core, turn) = (&bench.core, &TurnBytes::default());
            let mut steps: Vec<_> = (0..40)
                .map(|number| (number, Box::pin(turn.take(core, STEP, || false))))
                .collect();
            turn.begin();
            let mut turns = 0;
            while !steps.is_empty() {
                let mut first = 0;
                for (_, step) in &mut steps {
                    if poll_once(step.as_mut()).await.is_some() {
                        first += 1;
                    } else {
                        break;
                    }
                }
                steps.drain(..first);
                assert!(first * STEP <= BYTES_A_TURN, "{first}");
                turn.begin();
                turns += 1;
            }
            assert_eq!(turns, 40 * STEP / BYTES_A_TURN);
        });
    }

    #[test]
    fn a_step_whose_client_is_gone_waits_no_more_and_copies_nothing() {
        on_first_core(1, |bench| async move {
            let (core, turn) = (&bench.core, &TurnBytes::default());
            turn.begin();
            turn.take(core, 2 * BYTES_A_TURN, || false).await;
            let mut kept = Box::pin(turn.take(core, BYTES_A_TURN, || false));
            assert!(poll_once(kept.as_mut()).await.is_none());
            // It would be behind the other one.
            let gone = poll_once(pin!(turn.take(core, BYTES_A_TURN, || true))).await;
            assert!(gone.is_some());
            turn.begin();
            turn.begin();
            assert!(poll_once(kept.as_mut()).await.is_some());
            assert_eq!(turn.copied.get(), BYTES_A_TURN);
        });
    }
}
