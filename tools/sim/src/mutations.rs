//! Faults that are planted in the engine and in memory nodes, which the simulation must find.
//! Builds without the feature `mutations` have none.

/// Those that are found within two minutes, as `farcore_tuning::mutated!` names them.
pub const FOUND: [&str; 7] = [
    "delete-draws-no-version",
    "freed-though-pinned",
    "home-not-moved",
    "immutable-overwritten",
    "insertion-not-noted",
    "sequence-not-raised",
    "slot-not-redirected",
];

/// Those that dozens of runs did not find: what the simulation does not reach or check yet.
pub const GAPS: [&str; 13] = [
    "failed-piece-not-noted",
    "flush-to-a-lost-extent",
    "landing-freed-at-post",
    "lent-with-own-requests",
    "loss-mark-dropped",
    "lost-extent-reused",
    "moves-not-counted",
    "not-parked-behind-a-flight",
    "over-while-lines-live",
    "renewed-without-lost",
    "seal-kept-though-not-posted",
    "served-beside-its-predecessor",
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
