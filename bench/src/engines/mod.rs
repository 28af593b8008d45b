//! The engines under test, each behind [`Store`](crate::store::Store).
//!
//! `farcore` is this project's engine; the others are the alternatives. They answer inside
//! `submit`, on the caller's thread. A map that does so implements [`Direct`].

mod dashmap;
mod direct;
mod farcore;
mod locked_lru;
#[cfg(feature = "peers")]
pub mod peers;
mod pinned;
mod sharded;

pub use self::dashmap::Dashmap;
pub(crate) use self::direct::failed;
pub use self::direct::{Direct, DirectStore};
pub use self::farcore::Farcore;
pub use locked_lru::LockedLru;
pub use pinned::start_pinned;
pub use sharded::Sharded;
