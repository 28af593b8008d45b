//! The seats of a station: for each call under way its answers, and the waker of its task.
//!
//! - I1: a seat is taken again only once all answers to its last call have arrived.
//! - I2: a seat whose call was dropped wakes no task.

use std::collections::VecDeque;
use std::task::Waker;

use crate::message::outcome::{Answer, OwnedAnswer};

/// Bits of a token that name the seat; the others are the request's place in its call.
const SEAT_BITS: u32 = 32;

/// One call.
#[derive(Debug, Default)]
struct Seat {
    /// Answers that its task has not taken, by their place in the call.
    answers: Vec<(u32, OwnedAnswer)>,
    /// Requests sent and not answered.
    outstanding: usize,
    waker: Option<Waker>,
    /// The call was dropped.
    is_abandoned: bool,
    /// Its task is also woken when room may have come free.
    wants_room: bool,
}

/// The seats of a station.
#[derive(Debug, Default)]
pub(super) struct Seats {
    seats: Vec<Seat>,
    free: Vec<u32>,
    /// Seats whose tasks wait for an answer.
    waiting: usize,
    /// Seats that want room in a lane, each once; some of them may have left.
    for_room: VecDeque<u32>,
}

impl Seats {
    /// Takes a seat.
    pub(super) fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.seats.push(Seat::default());
            u32::try_from(self.seats.len() - 1).unwrap_or(u32::MAX)
        })
    }

    /// The token of a request.
    pub(super) fn token(seat: u32, place: u32) -> u64 {
        u64::from(seat) << SEAT_BITS | u64::from(place)
    }

    /// Notes that a request was sent.
    pub(super) fn sent(&mut self, seat: u32) {
        self.seats[seat as usize].outstanding += 1;
    }

    /// Takes an answer to its seat, and wakes its task.
    #[inline]
    pub(super) fn receive(&mut self, token: u64, answer: &Answer<'_>) {
        let seat = u32::try_from(token >> SEAT_BITS).unwrap_or(u32::MAX);
        let place = u32::try_from(token & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        let Some(entry) = self.seats.get_mut(seat as usize) else {
            debug_assert!(false, "an answer to no seat");
            return;
        };
        entry.outstanding -= 1;
        if entry.is_abandoned {
            if entry.outstanding == 0 {
                self.free(seat);
            }
            return;
        }
        entry.answers.push((place, OwnedAnswer::of(answer)));
        if let Some(waker) = entry.waker.take() {
            self.waiting -= 1;
            waker.wake();
        }
    }

    /// The answers of a seat that were not taken.
    pub(super) fn answers(&mut self, seat: u32) -> &mut Vec<(u32, OwnedAnswer)> {
        &mut self.seats[seat as usize].answers
    }

    /// Has the task of a seat be woken at its next answer.
    pub(super) fn wait(&mut self, seat: u32, waker: &Waker) {
        let entry = &mut self.seats[seat as usize];
        match &mut entry.waker {
            Some(known) => known.clone_from(waker),
            none => {
                *none = Some(waker.clone());
                self.waiting += 1;
            }
        }
    }

    /// Notes that a call found no room in a lane: its task is woken when some may have come free.
    pub(super) fn want_room(&mut self, seat: u32) {
        let entry = &mut self.seats[seat as usize];
        if !entry.wants_room {
            entry.wants_room = true;
            self.for_room.push_back(seat);
        }
    }

    /// Wakes at most `count` tasks that want room, those first that have waited longest.
    pub(super) fn wake_for_room(&mut self, mut count: usize) {
        while count > 0
            && let Some(seat) = self.for_room.pop_front()
        {
            let entry = &mut self.seats[seat as usize];
            if std::mem::take(&mut entry.wants_room)
                && let Some(waker) = entry.waker.take()
            {
                self.waiting -= 1;
                count -= 1;
                waker.wake();
            }
        }
    }

    /// True if a call wants room.
    pub(super) fn is_room_wanted(&self) -> bool {
        !self.for_room.is_empty()
    }

    /// Wakes all tasks: no more answers come.
    pub(super) fn wake_all(&mut self) {
        for entry in &mut self.seats {
            if let Some(waker) = entry.waker.take() {
                self.waiting -= 1;
                waker.wake();
            }
        }
    }

    /// True if a task waits.
    #[inline]
    pub(super) fn is_anyone_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Ends a call. Late answers are discarded.
    pub(super) fn leave(&mut self, seat: u32) {
        let entry = &mut self.seats[seat as usize];
        entry.answers.clear();
        entry.wants_room = false;
        if entry.waker.take().is_some() {
            self.waiting -= 1;
        }
        if entry.outstanding == 0 || farcore_tuning::mutated!("seat-taken-early") {
            self.free(seat);
        } else {
            entry.is_abandoned = true;
        }
    }

    fn free(&mut self, seat: u32) {
        self.seats[seat as usize].is_abandoned = false;
        self.free.push(seat);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_seat_is_free_again_once_all_its_answers_have_come() {
        let mut seats = Seats::default();
        let (one, other) = (seats.take(), seats.take());
        seats.sent(one);
        seats.sent(one);
        seats.leave(one);
        assert_eq!(seats.take(), 2, "answers to the first seat are to come");
        seats.receive(Seats::token(one, 0), &Answer::Absent);
        assert_eq!(seats.take(), 3);
        seats.receive(Seats::token(one, 1), &Answer::Absent);
        assert_eq!(seats.take(), one);
        assert!(seats.answers(one).is_empty());
        seats.leave(other);
        assert_eq!(seats.take(), other);
    }

    #[test]
    fn an_answer_wakes_the_task_of_its_seat_once() {
        let (mut seats, count) = (Seats::default(), Arc::new(Count::default()));
        let waker = Waker::from(Arc::clone(&count));
        let (seat, dropped) = (seats.take(), seats.take());
        for seat in [seat, dropped] {
            seats.sent(seat);
            seats.wait(seat, &waker);
            seats.wait(seat, &waker);
        }
        seats.leave(dropped);
        assert!(seats.is_anyone_waiting());
        seats.receive(Seats::token(dropped, 0), &Answer::Absent);
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        seats.receive(Seats::token(seat, 7), &Answer::Deleted);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(!seats.is_anyone_waiting());
        let answers = std::mem::take(seats.answers(seat));
        assert_eq!(answers.len(), 1);
        assert_eq!((answers[0].0, answers[0].1.answer()), (7, Answer::Deleted));
    }
}
