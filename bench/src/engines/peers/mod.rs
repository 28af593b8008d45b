//! What one would have used instead, or is compared with: maps, caches and stores of others.

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
