//! The settings of a simulated card. The defaults name their sources.

use serde::{Deserialize, Serialize};

use crate::card_table::SLOTS_MAX;
use crate::policy::{HybridWeights, PolicyName};
use crate::settings::{Setting, SettingError};

/// Most that others may use of the host: with all of it, no fetch would end.
const HOST_BUSY_MAX: f64 = 0.95;

/// A link to a tier.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSettings {
    /// From a request to the first byte of its answer, without queueing, in nanoseconds.
    pub latency_ns: f64,
    /// Bytes a second.
    pub bytes_s: f64,
    /// Most transfers in flight.
    pub transfers_max: u32,
}

impl LinkSettings {
    /// Memory behind CXL. Latency: 170 to 250 ns is reported of the first devices (The Next
    /// Platform, "Just How Bad Is CXL Memory Latency?", 2022; Sun and others, "Demystifying CXL
    /// Memory with Genuine CXL-Ready Systems and Devices", MICRO 2023). Bandwidth: PCIe 5.0 x8.
    pub const CXL: Self = Self {
        latency_ns: 250.0,
        bytes_s: 30e9,
        transfers_max: 64,
    };

    /// The host's memory over PCIe. Latency: a READ of 64 B by a card takes 550 to 950 ns
    /// (Neugebauer and others, "Understanding PCIe performance for end host networking", SIGCOMM
    /// 2018). Bandwidth: PCIe 3.0 x16. Eight fetches in flight give the measured cliffs of
    /// `docs/card.md`.
    pub const HOST: Self = Self {
        latency_ns: 850.0,
        bytes_s: 15e9,
        transfers_max: 8,
    };

    fn validate(&self, names: [&'static str; 3]) -> Result<(), SettingError> {
        Setting::new(names[0], self.latency_ns).within(0.0, 1e6)?;
        Setting::new(names[1], self.bytes_s).within(1e6, 1e13)?;
        Setting::new(names[2], f64::from(self.transfers_max)).within(1.0, 65_536.0)
    }
}

/// When tokens change their tier.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ThresholdSettings {
    /// Uses in a window that bring a token to the CXL tier.
    pub to_cxl: u32,
    /// Uses in a window that bring a token to the card.
    pub to_card: u32,
    /// The sliding window, in nanoseconds.
    pub window_ns: u64,
    /// Time without use after which a token leaves the card, in nanoseconds.
    pub card_idle_ns: u64,
    /// Time without use after which a page leaves the CXL tier, in nanoseconds.
    pub cxl_idle_ns: u64,
    /// The first two follow the load of the links and the hit ratio.
    pub adaptive: bool,
}

impl Default for ThresholdSettings {
    fn default() -> Self {
        Self {
            to_cxl: 16,
            to_card: 128,
            window_ns: 1_000_000,
            card_idle_ns: 1_000_000,
            cxl_idle_ns: 10_000_000,
            adaptive: true,
        }
    }
}

/// What happens to a message that meets a token on its way to another tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Treatment {
    /// It waits for the end of the migration.
    Wait,
    /// It goes on with the old copy; changes are reconciled at the end.
    #[default]
    Optimistic,
}

/// How misses of the CXL tier are fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BatchSettings {
    /// Misses that are fetched without further waiting, 1 to `max`.
    pub min: u32,
    /// Most tokens of a batch, prefetched ones included, up to 256.
    pub max: u32,
    /// How long the first miss of a batch waits for others, in nanoseconds.
    pub wait_ns: u64,
    /// Misses that may wait; further ones are fetched alone.
    pub queue: u32,
    /// Uses in a window that make a neighbour worth a prefetch.
    pub prefetch_at: u32,
    /// Backlog of the link to the CXL tier, in nanoseconds, above which it gets no prefetches and
    /// no new batch.
    pub backlog_ns: u64,
}

impl Default for BatchSettings {
    fn default() -> Self {
        Self {
            min: 32,
            max: 256,
            wait_ns: 200,
            queue: 4_096,
            prefetch_at: 4,
            backlog_ns: 2_000,
        }
    }
}

/// The worker that keeps the tiers in order.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MaintenanceSettings {
    /// How often it works, in nanoseconds.
    pub every_ns: u64,
    /// Slots and pages that it looks at each time.
    pub samples: u32,
    /// The share of the card's slots that it keeps free.
    pub free_share: f64,
}

impl Default for MaintenanceSettings {
    fn default() -> Self {
        Self {
            every_ns: 20_000,
            samples: 64,
            free_share: 0.01,
        }
    }
}

/// A card.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CardSettings {
    /// Messages a second that the card can start. 100 M is of the class of ConnectX-5.
    pub messages_s: f64,
    /// Tokens that the card holds. ConnectX-5 has about 2 MB for the state of connections and all
    /// else, and a connection takes about 375 B (Kalia and others, "Datacenter RPCs can be General
    /// and Fast", NSDI 2019, 4.1.1): about 5000.
    pub card_entries: u32,
    /// An access to the card's own memory, in nanoseconds: some cycles of SRAM.
    pub card_ns: f64,
    /// Which token leaves the full card.
    pub policy: PolicyName,
    /// The weights of the policy `hybrid`.
    pub weights: HybridWeights,
    /// Queue pairs, from the first, whose tokens stay on the card from the beginning; at most half
    /// of its tokens.
    pub pinned: u32,
    /// Tokens that were fetched and are not worth a slot.
    pub staging_entries: u32,
    /// Pages of 4 KiB behind CXL; 0 for a card without that tier.
    pub cxl_pages: u32,
    /// The link to them.
    pub cxl: LinkSettings,
    /// The link to the host.
    pub host: LinkSettings,
    /// How busy the host is with other work: the share of its memory and of the link to it that
    /// others use. What the card fetches takes longer, and adaptive thresholds count it as load.
    pub host_busy: f64,
    /// Bytes that the host sends for a token: its context (see `card_entries`).
    pub context_bytes: u32,
    /// The check of a permission before the host sends, in nanoseconds: a hit of the IOMMU's TLB.
    pub check_ns: f64,
    /// A read-modify-write of a hot word, in nanoseconds; a second one meanwhile conflicts.
    pub update_ns: f64,
    /// Further tries of a conflicting update.
    pub update_retries: u32,
    /// When tokens change their tier.
    pub thresholds: ThresholdSettings,
    /// What happens to a message that meets a migration.
    pub treatment: Treatment,
    /// How misses of the CXL tier are fetched.
    pub batch: BatchSettings,
    /// The worker that keeps the tiers in order.
    pub maintenance: MaintenanceSettings,
}

impl Default for CardSettings {
    fn default() -> Self {
        Self {
            messages_s: 100e6,
            card_entries: 4_096,
            card_ns: 5.0,
            policy: PolicyName::Hybrid,
            weights: HybridWeights::default(),
            pinned: 0,
            staging_entries: 512,
            cxl_pages: 1_024,
            cxl: LinkSettings::CXL,
            host: LinkSettings::HOST,
            host_busy: 0.0,
            context_bytes: 375,
            check_ns: 20.0,
            update_ns: 5.0,
            update_retries: 3,
            thresholds: ThresholdSettings::default(),
            treatment: Treatment::default(),
            batch: BatchSettings::default(),
            maintenance: MaintenanceSettings::default(),
        }
    }
}

impl CardSettings {
    /// A card as they are sold: one memory of its own that every miss fills, the host behind it.
    #[must_use]
    pub fn plain() -> Self {
        Self {
            policy: PolicyName::Lru,
            cxl_pages: 0,
            thresholds: ThresholdSettings {
                to_card: 1,
                adaptive: false,
                // Nothing leaves the card but for another token.
                card_idle_ns: 1_000_000_000_000,
                ..ThresholdSettings::default()
            },
            maintenance: MaintenanceSettings {
                free_share: 0.0,
                ..MaintenanceSettings::default()
            },
            ..Self::default()
        }
    }

    /// The link to the host as others leave it: a fetch takes as long as in a queue with one server
    /// (M/M/1) that is busy with others for their share of the time, and has the rest of the bytes.
    #[must_use]
    pub fn host_link(&self) -> LinkSettings {
        let left = 1.0 - self.host_busy;
        LinkSettings {
            latency_ns: self.host.latency_ns / left,
            bytes_s: self.host.bytes_s * left,
            ..self.host
        }
    }

    /// The load of the host, of which others take their share and the card uses a share of the
    /// rest.
    pub(super) fn host_load(&self, used: f64) -> f64 {
        self.host_busy + (1.0 - self.host_busy) * used
    }

    /// Checks every setting.
    ///
    /// # Errors
    /// The first that is wrong, with its value and limits.
    pub fn validate(&self) -> Result<(), SettingError> {
        let count =
            |name, number: u32, min, max| Setting::new(name, f64::from(number)).within(min, max);
        Setting::new("messages-s", self.messages_s).within(1e3, 1e10)?;
        count(
            "card-entries",
            self.card_entries,
            16.0,
            f64::from(SLOTS_MAX),
        )?;
        Setting::new("card-ns", self.card_ns).within(0.0, 1e4)?;
        count("pinned", self.pinned, 0.0, f64::from(self.card_entries / 2))?;
        count("staging-entries", self.staging_entries, 16.0, 65_536.0)?;
        count("cxl-pages", self.cxl_pages, 0.0, 1_048_576.0)?;
        let names = ["cxl-latency-ns", "cxl-bytes-s", "cxl-transfers"];
        self.cxl.validate(names)?;
        let names = ["host-latency-ns", "host-bytes-s", "host-transfers"];
        self.host.validate(names)?;
        Setting::new("host-busy", self.host_busy).within(0.0, HOST_BUSY_MAX)?;
        count("context-bytes", self.context_bytes, 16.0, 65_536.0)?;
        Setting::new("check-ns", self.check_ns).within(0.0, 1e6)?;
        Setting::new("update-ns", self.update_ns).within(0.0, 1e6)?;
        count("update-retries", self.update_retries, 0.0, 1_000.0)?;
        if self.policy == PolicyName::Belady {
            return Err(SettingError::Conflict {
                name: "policy",
                why:
                    "belady knows the future, which a card in use does not: use it with --one-tier"
                        .to_owned(),
            });
        }
        self.validate_movement()
    }

    fn validate_movement(&self) -> Result<(), SettingError> {
        let ThresholdSettings {
            to_cxl,
            to_card,
            window_ns,
            card_idle_ns,
            cxl_idle_ns,
            ..
        } = self.thresholds;
        let uses = |name, number: u32| Setting::new(name, f64::from(number)).within(1.0, 65_535.0);
        uses("to-cxl", to_cxl)?;
        uses("to-card", to_card)?;
        let time = |name, number: u64| Setting::new(name, number as f64).within(1_000.0, 1e12);
        time("window-ns", window_ns)?;
        time("card-idle-ns", card_idle_ns)?;
        time("cxl-idle-ns", cxl_idle_ns)?;
        let BatchSettings {
            min,
            max,
            wait_ns,
            queue,
            backlog_ns,
            ..
        } = self.batch;
        Setting::new("batch-max", f64::from(max)).within(1.0, 256.0)?;
        Setting::new("batch-min", f64::from(min)).within(1.0, f64::from(max))?;
        Setting::new("batch-wait-ns", wait_ns as f64).within(0.0, 1e9)?;
        Setting::new("batch-queue", f64::from(queue)).within(1.0, 1_048_576.0)?;
        Setting::new("backlog-ns", backlog_ns as f64).within(0.0, 1e9)?;
        let MaintenanceSettings {
            every_ns,
            samples,
            free_share,
        } = self.maintenance;
        Setting::new("maintenance-ns", every_ns as f64).within(1_000.0, 1e12)?;
        Setting::new("maintenance-samples", f64::from(samples)).within(1.0, 65_536.0)?;
        Setting::new("free-share", free_share).within(0.0, 0.5)
    }
}
