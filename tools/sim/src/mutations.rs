//! Faults that are planted in the engine and in memory nodes, each of which the simulation must
//! find. Builds without the feature `mutations` have none.

/// The names of all of them, as `farcore_tuning::mutated!` has them.
pub const MUTATIONS: [&str; 19] = [
    "delete-draws-no-version",
    "failed-piece-not-noted",
    "flush-to-a-lost-extent",
    "freed-though-pinned",
    "home-not-moved",
    "immutable-overwritten",
    "insertion-not-noted",
    "landing-freed-at-post",
    "lent-with-own-requests",
    "loss-mark-dropped",
    "lost-extent-reused",
    "moves-not-counted",
    "not-parked-behind-a-flight",
    "over-while-lines-live",
    "renewed-without-lost",
    "seal-kept-though-not-posted",
    "sequence-not-raised",
    "served-beside-its-predecessor",
    "slot-not-redirected",
];

/// Plants the fault of a name; none if it is empty. False if there is no such fault, or this build
/// has none.
#[must_use]
pub(crate) fn plant(name: &str) -> bool {
    #[cfg(feature = "mutations")]
    {
        let known = MUTATIONS.iter().find(|&&known| known == name);
        if let Some(known) = known {
            farcore_tuning::simulated::plant(known);
            return true;
        }
        farcore_tuning::simulated::plant("");
    }
    name.is_empty()
}
