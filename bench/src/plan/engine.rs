//! The engines that can be compared, and the modes of encryption.
//!
//! The names are those of flags, reports and JSON. An engine behind a feature exists only in builds
//! with that feature.

use serde::{Deserialize, Serialize};

/// What far memory holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Encryption {
    /// Plaintext.
    #[default]
    Off,
    /// Authenticated ciphertext. An engine without that mode writes unauthenticated ciphertext.
    Authenticated,
    /// Ciphertext without authentication.
    SecrecyOnly,
}

impl Encryption {
    /// True if far memory holds ciphertext.
    #[must_use]
    pub fn is_on(self) -> bool {
        self != Self::Off
    }

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Authenticated => "authenticated",
            Self::SecrecyOnly => "secrecy only",
        }
    }
}

/// The engines that can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum EngineName {
    /// Farcore.
    Farcore,
    /// Farcore with far memory in this process, whatever `--fabric` says.
    FarcoreEmbedded,
    /// Farcore with far memory in this process and local memory for all data, whatever `--local`
    /// says: like with like beside the maps, which have no cap.
    FarcoreAllLocal,
    /// 64 locked entities, pages, LRU, whole-page far memory.
    LockedLru,
    /// One `DashMap`; everything in local memory.
    Dashmap,
    /// `RwLock<HashMap>` shards; everything in local memory.
    Sharded,
    /// The map of the crate `scc`; everything in local memory.
    #[cfg(feature = "peers")]
    Scc,
    /// The map of the crate `papaya`; everything in local memory.
    #[cfg(feature = "peers")]
    Papaya,
    /// The cache of the crate `quick_cache`; everything in local memory.
    #[cfg(feature = "peers")]
    QuickCache,
    /// The cache of the crate `moka`; everything in local memory.
    #[cfg(feature = "peers")]
    Moka,
    /// The memory cache of the crate `foyer`; everything in local memory.
    #[cfg(feature = "peers")]
    Foyer,
    /// The store of the crate `fjall`: files, and a cache as large as the local memory.
    #[cfg(feature = "peers")]
    Fjall,
    /// RocksDB: files, and a cache as large as the local memory.
    #[cfg(feature = "rocksdb")]
    Rocksdb,
}

impl EngineName {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Farcore => "farcore",
            Self::FarcoreEmbedded => "farcore-embedded",
            Self::FarcoreAllLocal => "farcore-all-local",
            Self::LockedLru => "locked-lru",
            Self::Dashmap => "dashmap",
            Self::Sharded => "sharded",
            #[cfg(feature = "peers")]
            Self::Scc => "scc",
            #[cfg(feature = "peers")]
            Self::Papaya => "papaya",
            #[cfg(feature = "peers")]
            Self::QuickCache => "quick-cache",
            #[cfg(feature = "peers")]
            Self::Moka => "moka",
            #[cfg(feature = "peers")]
            Self::Foyer => "foyer",
            #[cfg(feature = "peers")]
            Self::Fjall => "fjall",
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => "rocksdb",
        }
    }

    /// Whether this is farcore, whatever holds its far memory.
    #[must_use]
    pub const fn is_ours(self) -> bool {
        matches!(
            self,
            Self::Farcore | Self::FarcoreEmbedded | Self::FarcoreAllLocal
        )
    }

    /// Whether `--local` limits the engine's memory.
    #[must_use]
    pub const fn has_local_cap(self) -> bool {
        match self {
            Self::Farcore | Self::FarcoreEmbedded | Self::LockedLru => true,
            #[cfg(feature = "peers")]
            Self::Fjall => true,
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => true,
            _ => false,
        }
    }

    /// Whether the engine has a far tier.
    #[must_use]
    pub const fn has_far_tier(self) -> bool {
        matches!(
            self,
            Self::Farcore | Self::FarcoreEmbedded | Self::LockedLru
        )
    }
}
