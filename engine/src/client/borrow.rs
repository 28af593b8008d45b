//! How a caller serves its own requests at a shard whose core has no use for its reactor.

use crate::reactor::{CoreShared, LoanOutcome};

/// Attempts to borrow a shard that other callers borrow, each for less than a microsecond.
const BORROWS: u32 = 200;

/// Tries to serve a lane's published requests here, because the core has nothing to do. False if
/// the core must be woken for them.
#[inline]
pub(super) fn serves_itself(core_shared: &CoreShared, lane: u8) -> bool {
    let mut left = BORROWS;
    while left > 0 {
        match core_shared.serve_lent(lane) {
            LoanOutcome::All => return true,
            LoanOutcome::Waiting => {
                core_shared.command_port.wakeup.rouse();
                return true;
            }
            LoanOutcome::More => {}
            LoanOutcome::Part | LoanOutcome::Kept => return false,
            LoanOutcome::Borrowed => {
                left -= 1;
                std::hint::spin_loop();
            }
        }
    }
    false
}

/// Goes on with what waits for the fabric, where the core may have to wait for this thread's
/// processor.
#[inline]
pub(super) fn advance(core_shared: &CoreShared, lane: u8) {
    match core_shared.serve_lent(lane) {
        LoanOutcome::Waiting => core_shared.command_port.wakeup.rouse(),
        LoanOutcome::Part | LoanOutcome::More => core_shared.command_port.wakeup.ring(lane),
        LoanOutcome::All | LoanOutcome::Kept | LoanOutcome::Borrowed => {}
    }
}
