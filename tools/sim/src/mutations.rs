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
pub const FOUND: [&str; 33] = [
    "buffers-not-kept",
    "claims-what-is-owned",
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
    "served-beside-its-predecessor",
    "served-under-a-section",
    "slot-not-redirected",
    "swap-of-absent-ignored",
    "time-runs-back",
    "transaction-in-part",
];

/// Those of what keeps a data directory, which runs with several lives (`--durable`) find.
pub const DURABLE: [&str; 8] = [
    "answered-before-synced",
    "delete-not-logged",
    "failed-sync-counted",
    "finished-before-durable",
    "marks-ignored",
    "removed-before-manifest",
    "replay-ignores-versions",
    "rows-end-together",
];

/// Those of them that few runs reach: not found within seconds, and not given longer yet.
pub const RARE: [&str; 6] = [
    "created-not-synced",
    "drafts-kept",
    "loaded-not-synced",
    "marked-without-section",
    "step-loaded-in-part",
    "waits-for-held-answers",
];

/// Those that are not found, and why.
pub const GAPS: [&str; 6] = [
    // All completions of a flush must come after its node's loss is known, and before the queue
    // pairs of the old session fail, which the keeper has done by then.
    "flush-to-a-lost-extent",
    // A simulated endpoint is due as long as requests are under way, so a core with READs under way
    // does not sleep, and what does not sleep is not lent.
    "lent-with-own-requests",
    // It behaves as the right code does as long as far memory names each value once. Only forged
    // nodes tell the two apart.
    "lost-number-reused",
    // Pages of living records go, or become immutable, in background slices alone, never within a
    // batch. The count guards what may come.
    "moves-not-counted",
    // The session's extents must be claimed and written again before a late WRITE arrives over a
    // connection that its node has not ended.
    "over-while-lines-live",
    // The next lane to take what is free is drawn, so none is passed over for long:
    // `engine/src/shard/tests/lanes.rs` floods lanes on purpose.
    "starving-ignored",
];

/// Plants the fault of a name; none if it is empty. False if there is no such fault, or this build
/// has none.
#[must_use]
pub(crate) fn plant(name: &str) -> bool {
    #[cfg(feature = "mutations")]
    {
        let mut all = FOUND.iter().chain(&GAPS).chain(&DURABLE).chain(&RARE);
        let known = all.find(|&&known| known == name);
        if let Some(known) = known {
            farcore_tuning::simulated::plant(known);
            return true;
        }
        farcore_tuning::simulated::plant("");
    }
    name.is_empty()
}
