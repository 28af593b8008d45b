//! The model of a link: latency, bandwidth and faults.
//!
//! Plain settings plus a small random generator. The `embedded` backend applies them.

/// The link to embedded far memory.
#[derive(Clone, Debug, Default)]
pub struct LinkModel {
    /// Time from doorbell to completion, in nanoseconds.
    pub latency_ns: u64,
    /// Upper bound of a random addition to each request's latency. It makes queue pairs overtake
    /// each other.
    pub jitter_ns: u64,
    /// Bytes a second; `None` is unlimited.
    pub bandwidth_bytes_per_second: Option<u64>,
    /// The injected faults.
    pub faults: FaultPlan,
}

impl LinkModel {
    /// True if requests complete as soon as the doorbell rings.
    #[must_use]
    pub fn is_immediate(&self) -> bool {
        self.latency_ns == 0 && self.jitter_ns == 0 && self.bandwidth_bytes_per_second.is_none()
    }
}

/// Injected faults, random from a seed.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    /// The random seed.
    pub seed: u64,
    /// Requests that fail, per million.
    pub failed_completions_per_million: u32,
    /// Whether a failure puts the queue pair into error, as real reliable connections do.
    pub sticky: bool,
    /// When the node stops answering.
    pub lost_at_ns: Option<u64>,
}

/// SplitMix64: a few instructions, good bits, one word of state.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let word = mixed ^ (mixed >> 31);
        // Multiply-shift: the high half of the product is below the bound.
        u64::try_from((u128::from(word) * u128::from(bound)) >> 64).unwrap_or(0)
    }
}
