//! Pools of remote memory for C: a program allocates, shares and reads memory of memory nodes.
//!
//! ```text
//! options.rs   what a pool is made with
//! handle.rs    a pool's handle: connect, embedded, close, free
//! failure.rs   the code of each error of a pool
//! place.rs     where memory is allocated
//! ptr.rs       pointers: copies, arithmetic
//! owners.rs    the allocations of a pool, by slot and generation
//! memory.rs    allocate, deallocate, length, loss
//! access.rs    reads, writes and atomics, for callers that wait
//! parts.rs     the places of an access to many
//! task.rs      an operation under way
//! submit.rs    the operations, for callers that poll
//! share.rs     types, export, import, transfer
//! call.rs      procedures of programs that host nodes
//! figures.rs   the figures of the nodes
//! ```
//!
//! - I1: an allocation has one owner, in its pool's table. A pointer names it by slot and
//!   generation, so one that is stale finds nothing, even if its slot is used again.
//! - I2: an operation holds the owner that it uses. So memory is given back after the last of them,
//!   whatever order the caller frees things in.

mod access;
mod call;
mod failure;
mod figures;
mod handle;
mod memory;
mod options;
mod owners;
mod parts;
mod place;
mod ptr;
mod share;
mod submit;
mod task;

pub use self::access::*;
pub use self::call::*;
pub use self::figures::*;
pub use self::handle::*;
pub use self::memory::*;
pub use self::options::*;
pub use self::parts::*;
pub use self::place::*;
pub use self::ptr::*;
pub use self::share::*;
pub use self::submit::*;
