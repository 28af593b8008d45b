//! Faults that are planted in the engine and in memory nodes, which the simulation must find.
//! Builds without the feature `mutations` have none.

/// Those that are found within seconds, for every run of the tests.
pub const QUICK: [&str; 7] = [
    "delete-draws-no-version",
    "freed-though-pinned",
    "home-not-moved",
    "immutable-overwritten",
    "insertion-not-noted",
    "sequence-not-raised",
    "slot-not-redirected",
];

/// Those that are found within two minutes, as `farcore_tuning::mutated!` names them.
pub const FOUND: [&str; 34] = [
    "claims-what-is-owned",
    "client-number-taken-early",
    "delete-draws-no-version",
    "expected-of-far-ignored",
    "expired-answered",
    "failed-piece-not-noted",
    "flush-to-a-lost-extent",
    "freed-though-pinned",
    "home-not-moved",
    "immutable-overwritten",
    "insertion-not-noted",
    "landing-freed-at-post",
    "lent-with-own-requests",
    "listed-twice",
    "loss-mark-dropped",
    "lost-answers-absent",
    "lost-extent-reused",
    "lost-node-kept",
    "lost-number-reused",
    "moved-place-not-listed",
    "moves-not-counted",
    "node-not-moved",
    "not-parked-behind-a-flight",
    "over-while-lines-live",
    "piece-not-moved",
    "renewed-without-lost",
    "seal-kept-though-not-posted",
    "seat-taken-early",
    "sequence-not-raised",
    "served-beside-its-predecessor",
    "slot-not-redirected",
    "swap-of-absent-ignored",
    "time-runs-back",
    "transaction-in-part",
];

/// Those that are not found yet: what the simulation does not reach or check.
pub const GAPS: [&str; 1] = [
    // No plan makes shards so short of flights and buffers that only one lane goes on.
    "starving-ignored",
];

/// Plants the fault of a name; none if it is empty. False if there is no such fault, or this build
/// has none.
#[must_use]
pub(crate) fn plant(name: &str) -> bool {
    #[cfg(feature = "mutations")]
    {
        let known = FOUND.iter().chain(&GAPS).find(|&&known| known == name);
        if let Some(known) = known {
            farcore_tuning::simulated::plant(known);
            return true;
        }
        farcore_tuning::simulated::plant("");
    }
    name.is_empty()
}
