//! What one client holds.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use farcore::Core;

use super::SMALL_BYTES;
use super::core::CoreMemory;
use super::server::{Precedence, Reservation};

/// How long a charge waits for memory: many clients wait 5 s for a reply, and then disconnect.
const WAIT_MAX: Duration = Duration::from_secs(4);
/// How long a charge waits whose client has taken the first parts of the reply: it reads, and an
/// error in the middle costs it all of them.
const WAIT_AMID_MAX: Duration = Duration::from_secs(60);

/// Bytes that a client may hold while it waits for more, though another one waits in vain.
const WAITING_BYTES_MAX: usize = 64 << 10;

/// How far the reply has come of a command that waits for memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    /// Nothing of it is written.
    Ahead,
    /// Its client takes it.
    Amid,
}

/// A client's account: the bytes that it has the server hold. Clones are the same account.
#[derive(Clone, Debug)]
pub(crate) struct Account(Rc<State>);

#[derive(Debug)]
struct State {
    core: Rc<CoreMemory>,
    held: Cell<usize>,
    /// Bytes that are kept for it while it waits.
    reserved: Cell<Reservation>,
    /// It sends one request after the other: none waits behind another.
    is_patient: Cell<bool>,
    /// It has taken a long reply.
    has_read: Cell<bool>,
}

/// Why a charge is not granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Shortage {
    /// One client may not have so much.
    #[error(
        "ERR the command needs {bytes} bytes of client memory, and one client may have {limit}: \
         ask for less at once, or raise --client-memory"
    )]
    TooLong { bytes: usize, limit: usize },
    /// Others have it.
    #[error(
        "ERR the command needs {bytes} bytes of client memory, and {free} of {limit} are free: \
         try again, or raise --client-memory"
    )]
    Taken {
        bytes: usize,
        free: usize,
        limit: usize,
    },
}

impl Account {
    /// A client's account at its core.
    pub(crate) fn new(core: &Rc<CoreMemory>) -> Self {
        Self(Rc::new(State {
            core: Rc::clone(core),
            held: Cell::new(0),
            reserved: Cell::default(),
            is_patient: Cell::default(),
            has_read: Cell::default(),
        }))
    }

    /// Notes whether the client waits for each reply before it sends the next request.
    #[inline]
    pub(crate) fn note_patience(&self, is_patient: bool) {
        self.0.is_patient.set(is_patient);
    }

    /// Notes that the client has taken a long reply.
    pub(crate) fn note_read(&self) {
        self.0.has_read.set(true);
    }

    /// How early its turn comes when memory is short.
    pub(crate) fn precedence(&self) -> Precedence {
        match (self.0.is_patient.get(), self.0.has_read.get()) {
            (false, false) => Precedence::Pipelines,
            (false, true) => Precedence::PipelinesAndReads,
            (true, false) => Precedence::Patient,
            (true, true) => Precedence::PatientAndReads,
        }
    }

    /// Bytes that the client holds.
    pub(crate) fn held(&self) -> usize {
        self.0.held.get()
    }

    /// Sets what the client's own buffers take, which was `before`. They have grown by little, or
    /// the growth was granted by [`Account::may_have`].
    #[inline]
    pub(crate) fn settle(&self, before: &mut usize, now: usize) {
        let Self(state) = self;
        if now > *before {
            state.add(now - *before);
        } else if now < *before {
            state.subtract(*before - now);
        }
        *before = now;
    }

    /// Charges bytes that are taken already, or few.
    pub(crate) fn charge(&self, bytes: usize) -> Charge {
        self.0.add(bytes);
        Charge {
            account: self.clone(),
            bytes,
        }
    }

    /// Charges bytes that are about to be taken.
    ///
    /// # Errors
    /// [`Shortage`]: the client may not have `bytes`, or others have them now.
    pub(crate) fn try_charge(&self, bytes: usize) -> Result<Charge, Shortage> {
        self.check(bytes)?;
        if bytes <= SMALL_BYTES {
            return Ok(self.charge(bytes));
        }
        let server = self.0.core.server();
        let limit = server.large_limit_for(self.0.reserved.get());
        let charge = self.charge_within(bytes, limit);
        if charge.is_some() {
            self.0.end_reservation();
        }
        charge.ok_or_else(|| self.taken(bytes))
    }

    /// Charges bytes that the client keeps when its command has ended. They may be the half of the
    /// memory together with all that is taken, so that commands can use the rest.
    ///
    /// # Errors
    /// As [`Account::try_charge`].
    pub(crate) fn try_keep(&self, bytes: usize) -> Result<Charge, Shortage> {
        self.check(bytes)?;
        if self.held() + bytes <= SMALL_BYTES {
            return Ok(self.charge(bytes));
        }
        let server = self.0.core.server();
        let limit = server.limit() / 2;
        let charge = self.charge_within(bytes, limit);
        charge.ok_or_else(|| Shortage::Taken {
            bytes,
            free: limit.saturating_sub(server.taken()),
            limit,
        })
    }

    /// Has the client wait for bytes that others have: clients that do not use theirs give way, and
    /// what becomes free is kept for it if it is for no other. False if it must not wait: it holds
    /// what another one has waited for in vain.
    #[must_use]
    pub(crate) fn wait(&self, shortage: &Shortage, now_ms: u64) -> bool {
        let Shortage::Taken { bytes, .. } = *shortage else {
            return false;
        };
        let server = self.0.core.server();
        server.want(now_ms);
        let own = self.0.reserved.get();
        if server.has_ended(own) {
            let reserved = server.reserve(bytes, self.precedence(), now_ms);
            self.0.reserved.set(reserved.unwrap_or_default());
        }
        self.held() <= WAITING_BYTES_MAX || !server.must_give_up(self.0.reserved.get(), now_ms)
    }

    /// Notes that the client waits no more.
    pub(crate) fn end_wait(&self) {
        self.0.end_reservation();
    }

    /// Charges what a client cannot be served without: it may have the last of all memory. `None`
    /// if there is less.
    pub(crate) fn try_charge_first(&self, bytes: usize) -> Option<Charge> {
        self.charge_within(bytes, self.0.core.server().limit())
    }

    fn charge_within(&self, bytes: usize, limit: usize) -> Option<Charge> {
        let Self(state) = self;
        if !state.core.try_add(bytes, limit) {
            return None;
        }
        state.held.set(state.held.get() + bytes);
        Some(Charge {
            account: self.clone(),
            bytes,
        })
    }

    /// Charges bytes that are about to be taken; waits while others have them, [`WAIT_MAX`] at
    /// most, or [`WAIT_AMID_MAX`], and not for a client that is gone.
    ///
    /// # Errors
    /// As [`Account::try_charge`].
    pub(crate) async fn charge_when_free(
        &self,
        core: &Core,
        bytes: usize,
        reply: Reply,
        is_gone: impl Fn() -> bool,
    ) -> Result<Charge, Shortage> {
        let began = Instant::now();
        let wait_max = match reply {
            Reply::Ahead => WAIT_MAX,
            Reply::Amid => WAIT_AMID_MAX,
        };
        loop {
            match self.try_charge(bytes) {
                Err(shortage) => {
                    let is_over = began.elapsed() >= wait_max || is_gone();
                    let may_wait = self.wait(&shortage, farcore_tuning::system_ms());
                    // Output that its client takes goes by itself, or the client is disconnected.
                    if is_over || !may_wait && reply == Reply::Ahead {
                        self.end_wait();
                        return Err(shortage);
                    }
                    core.yield_now().await;
                }
                Ok(charge) => return Ok(charge),
            }
        }
    }

    /// Whether the client's buffers may grow by `bytes`.
    ///
    /// # Errors
    /// As [`Account::try_charge`].
    pub(crate) fn may_have(&self, bytes: usize) -> Result<(), Shortage> {
        self.try_charge(bytes).map(drop)
    }

    /// Refuses what one client may not have.
    fn check(&self, bytes: usize) -> Result<(), Shortage> {
        let limit = self.0.core.server().large_limit();
        if self.held().saturating_add(bytes) <= limit.max(SMALL_BYTES) {
            Ok(())
        } else {
            Err(Shortage::TooLong { bytes, limit })
        }
    }

    fn taken(&self, bytes: usize) -> Shortage {
        let server = self.0.core.server();
        Shortage::Taken {
            bytes,
            free: server.large_limit().saturating_sub(server.taken()),
            limit: server.limit(),
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.end_reservation();
    }
}

impl State {
    fn end_reservation(&self) {
        let reserved = self.reserved.take();
        if reserved != Reservation::default() {
            self.core.server().end_reservation(reserved);
        }
    }

    #[inline]
    fn add(&self, bytes: usize) {
        self.held.set(self.held.get() + bytes);
        self.core.add(bytes);
    }

    #[inline]
    fn subtract(&self, bytes: usize) {
        self.held.set(self.held.get().saturating_sub(bytes));
        self.core.subtract(bytes);
    }
}

/// Bytes on a client's account, until this is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Charge {
    account: Account,
    bytes: usize,
}

impl Charge {
    /// Bytes that are charged.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Charges `bytes` instead, if the client may have them.
    ///
    /// # Errors
    /// As [`Account::try_charge`]; what was charged stays so.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<(), Shortage> {
        if let Some(more) = bytes.checked_sub(self.bytes) {
            let mut rest = self.account.try_charge(more)?;
            self.bytes += std::mem::take(&mut rest.bytes);
        }
        Ok(())
    }

    /// Gives all but `bytes` back.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        let kept = bytes.min(self.bytes);
        self.account.0.subtract(self.bytes - kept);
        self.bytes = kept;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::ClientMemory;
    use super::*;

    fn account(limit: usize) -> Account {
        Account::new(&CoreMemory::new(Arc::new(ClientMemory::new(limit, 1))))
    }

    #[test]
    fn charges_are_counted_until_they_are_dropped() {
        let account = account(16 << 20);
        let mut own = 0;
        account.settle(&mut own, 700);
        let mut first = account.charge(500);
        let second = account.try_charge(1 << 20).expect("room");
        assert_eq!(account.held(), 1200 + (1 << 20));
        first.shrink_to(20);
        // It cannot grow so.
        first.shrink_to(200);
        first.grow_to(50).expect("room");
        drop(second);
        account.settle(&mut own, 10);
        assert_eq!((account.held(), first.bytes(), own), (60, 50, 10));
        drop(first);
        assert_eq!((account.held(), account.0.core.held()), (10, 10));
    }

    #[test]
    fn large_charges_have_three_quarters_together_and_one_client_no_more() {
        let limit = 16 << 20;
        let most = limit / 4 * 3;
        let first = account(limit);
        let second = Account::new(&first.0.core);
        assert_eq!(
            first.try_charge(most + 1).map(drop),
            Err(Shortage::TooLong {
                bytes: most + 1,
                limit: most
            })
        );
        let half = first.try_charge(limit / 2).expect("half of it");
        let quarter = second.try_charge(limit / 4).expect("a quarter");
        assert_eq!(
            second.may_have(SMALL_BYTES + 1),
            Err(Shortage::Taken {
                bytes: SMALL_BYTES + 1,
                free: 0,
                limit
            })
        );
        assert_eq!(second.may_have(SMALL_BYTES), Ok(()));
        drop((half, quarter));
        assert_eq!(second.may_have(limit / 2), Ok(()));
    }

    #[test]
    fn clients_that_hold_what_each_other_waits_for_give_way() {
        let limit = 16 << 20;
        let first = account(limit);
        let second = Account::new(&first.0.core);
        let third = Account::new(&first.0.core);
        let held = [&first, &second].map(|one| one.try_charge(limit / 4).expect("room"));
        let shortages = [&first, &second, &third]
            .map(|one| one.try_charge(limit / 3).map(drop).expect_err("no room"));
        assert!(first.wait(&shortages[0], 1000));
        // For a while they wait side by side. One that holds little always does.
        assert!(second.wait(&shortages[1], 1010) && third.wait(&shortages[2], 1010));
        assert!(third.wait(&shortages[2], 4000) && first.wait(&shortages[0], 4000));
        assert!(!second.wait(&shortages[1], 4000));
        drop(held);
        assert!(first.try_charge(limit / 3).is_ok());
    }

    #[test]
    fn what_clients_keep_leaves_half_for_commands() {
        let limit = 16 << 20;
        let many = account(limit);
        let few = Account::new(&many.0.core);
        let mut kept = Vec::new();
        while let Ok(charge) = many.try_keep(1000) {
            kept.push(charge);
        }
        assert!(many.held() <= limit / 2 && many.held() > limit / 2 - (128 << 10));
        assert!(few.try_charge(limit / 4).is_ok());
        // One that keeps little always may.
        let little: Vec<_> = (0..16)
            .map(|_| few.try_keep(1000).expect("it is little"))
            .collect();
        assert!(few.try_keep(1000).is_err());
        kept.truncate(kept.len() / 2);
        assert!(few.try_keep(1000).is_ok());
        drop(little);
    }

    #[test]
    fn one_that_reads_each_reply_waits_for_no_crowd_that_does_not() {
        let limit = 16 << 20;
        let reader = account(limit);
        reader.note_patience(true);
        reader.note_read();
        let crowd: Vec<_> = (0..100).map(|_| Account::new(&reader.0.core)).collect();
        let mut held: Vec<_> = (0..12)
            .map(|place| crowd[place].try_charge(1 << 20).expect("room"))
            .collect();
        // Each of the crowd waits, again and again.
        for now_ms in 1000..1010 {
            for one in &crowd[12..] {
                let shortage = one.try_charge(1 << 20).map(drop).expect_err("no room");
                assert!(one.wait(&shortage, now_ms));
            }
        }
        let shortage = reader.try_charge(1 << 20).map(drop).expect_err("no room");
        assert!(reader.wait(&shortage, 1010));
        held.truncate(held.len() - 2);
        for one in &crowd[12..] {
            let shortage = one.try_charge(1 << 20).map(drop).expect_err("it is kept");
            assert!(one.wait(&shortage, 1011));
        }
        assert!(reader.try_charge(1 << 20).is_ok());
    }

    #[test]
    fn what_one_client_waits_for_is_kept_from_others() {
        let limit = 16 << 20;
        let [large, other] = {
            let first = account(limit);
            [Account::new(&first.0.core), first]
        };
        let mut held: Vec<_> = (0..12)
            .map(|_| other.try_charge(1 << 20).expect("room"))
            .collect();
        let shortage = large.try_charge(2 << 20).map(drop).expect_err("no room");
        assert!(large.wait(&shortage, 1000));
        // What is given back is not for others, but for the one that waits.
        held.pop();
        assert!(other.try_charge(1 << 20).is_err());
        assert_eq!(other.may_have(SMALL_BYTES), Ok(()));
        // A core takes from the server in steps.
        held.truncate(held.len() - 2);
        drop(large.try_charge(2 << 20).expect("it was kept"));
        assert!(other.try_charge(1 << 20).is_ok());
        // A client that leaves has nothing kept.
        while let Ok(charge) = other.try_charge(1 << 20) {
            held.push(charge);
        }
        assert!(large.wait(&shortage, 20_000));
        held.truncate(held.len() - 2);
        assert!(other.try_charge(1 << 20).is_err());
        drop(large);
        assert!(other.try_charge(1 << 20).is_ok());
    }
}
