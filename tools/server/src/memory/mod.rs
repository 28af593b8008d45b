//! Memory that clients have the server hold: how much there is, who has it, and who gives way.
//!
//! ```text
//! ClientMemory (the server) <- CoreMemory (a core) <- Account (a client) <- Charge (what it holds)
//! ```
//!
//! Every byte that a client makes the server hold is on its account: its buffers, whose lengths the
//! core settles as they change, and what its commands hold, as a [`Charge`] that they take first.
//! Cores reserve from the server's memory in steps, so that most changes touch no shared line.
//!
//! - I1: `taken` of the server is what its cores have reserved, and each core has reserved at least
//!   what its accounts hold.
//! - I2: a charge of more than [`SMALL_BYTES`] is granted before the memory is allocated, and
//!   leaves a quarter of the limit to small ones. Those are refused only to a client that has three
//!   quarters by itself. What they take beyond the limit, clients that do not read give back
//!   ([`crate::turn::evicting`]).
//! - I3: a charge that is not granted at once is noted as wanted, and clients that hold memory
//!   without using it give way.
//! - I4: what becomes free is kept for one client that waits, for a few seconds, and then for
//!   another: small needs of many others cannot leave it none.

mod account;
mod core;
mod server;
mod want;

pub(crate) use self::account::{Account, Charge, Reply, Shortage};
pub(crate) use self::core::CoreMemory;
pub(crate) use self::server::{ClientMemory, Precedence};
pub(crate) use self::want::Want;

/// A charge up to this length is never refused.
pub(crate) const SMALL_BYTES: usize = 16 << 10;
