//! Maps, caches and stores of other projects, behind the features `peers` and `rocksdb`. Each file
//! adapts one crate to [`Direct`](super::Direct).

mod fjall;
mod folder;
mod foyer;
mod moka;
mod papaya;
mod quick_cache;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod scc;

pub use self::fjall::Fjall;
pub use self::foyer::Foyer;
pub use self::moka::Moka;
pub use self::papaya::Papaya;
pub use self::quick_cache::QuickCache;
#[cfg(feature = "rocksdb")]
pub use self::rocksdb::Rocksdb;
pub use self::scc::Scc;
