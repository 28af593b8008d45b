//! What becomes of keys whose records are lost for good.

/// What becomes of keys whose records are lost for good: a memory node was restarted, was away for
/// longer than it keeps a session, or returned a damaged record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LostKeys {
    /// They answer [`Error::Unavailable`](crate::Error::Unavailable) until they are written,
    /// deleted or forgotten ([`Engine::forget_lost`](crate::Engine::forget_lost)). So a lost key is
    /// never taken for one that was not stored.
    #[default]
    Keep,
    /// They are absent as soon as the loss is known, as the evicted keys of a cache are. The
    /// request that finds a damaged record fails all the same.
    Forget,
}
