//! Faults that are planted in the engine and in memory nodes, which the simulation must find.
//! Builds without the feature `mutations` have none.

/// Those that are found within seconds, for every run of the tests.
pub const QUICK: [&str; 20] = [
    "buffers-not-kept",
    "delete-draws-no-version",
    "dying-tree-kept",
    "expired-answered",
    "freed-though-pinned",
    "immutable-overwritten",
    "insertion-not-noted",
    "listed-twice",
    "moved-place-not-listed",
    "node-not-moved",
    "piece-not-moved",
    "removed-node-kept",
    "seal-kept-though-not-posted",
    "seat-taken-early",
    "sequence-not-raised",
    "served-under-a-section",
    "slot-not-redirected",
    "swap-of-absent-ignored",
    "time-runs-back",
    "transaction-in-part",
];

/// Those that are found within two minutes, as `farcore_tuning::mutated!` names them.
pub const FOUND: [&str; 31] = [
    "buffers-not-kept",
    "client-number-taken-early",
    "delete-draws-no-version",
    "dying-tree-kept",
    "expected-of-far-ignored",
    "expired-answered",
    "failed-piece-not-noted",
    "freed-though-pinned",
    "home-not-moved",
    "immutable-overwritten",
    "insertion-not-noted",
    "landing-freed-at-post",
    "listed-twice",
    "loss-mark-dropped",
    "lost-answers-absent",
    "lost-extent-reused",
    "lost-node-kept",
    "moved-place-not-listed",
    "node-not-moved",
    "not-parked-behind-a-flight",
    "piece-not-moved",
    "removed-node-kept",
    "renewed-without-lost",
    "seal-kept-though-not-posted",
    "seat-taken-early",
    "sequence-not-raised",
    "served-under-a-section",
    "slot-not-redirected",
    "swap-of-absent-ignored",
    "time-runs-back",
    "transaction-in-part",
];

/// Those that are not found yet, and what would have to meet.
pub const GAPS: [&str; 8] = [
    // Two cores seldom claim one extent at one time.
    "claims-what-is-owned",
    // A flush must be complete but for its last completion when its node's loss is known.
    "flush-to-a-lost-extent",
    // A core must sleep while its own clients wait for far memory.
    "lent-with-own-requests",
    // A long value of a collection must be read from a page that has outlived its node.
    "lost-number-reused",
    // A page must go within a batch that has looked at it before.
    "moves-not-counted",
    // A late WRITE must come between the end of a session and that of its connection.
    "over-while-lines-live",
    "served-beside-its-predecessor",
    // No plan makes shards so short of flights and buffers that one lane must wait for another.
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
