//! What becomes of keys whose records are lost for good.

/// What becomes of keys whose records are lost for good: a memory node was restarted, was away for
/// longer than it keeps a session, or returned a damaged record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LostKeys {
    /// They answer [`Error::Unavailable`](crate::Error::Unavailable) until they are written,
    /// deleted or forgotten ([`Engine::forget_lost`](crate::Engine::forget_lost)). So a lost key is
    /// never taken for one that was not stored. A collection of which a part is lost answers so
    /// where it needs that part, until it is deleted or overwritten, or forgotten as a whole.
    #[default]
    Keep,
    /// They are absent as soon as the loss is known, as the evicted keys of a cache are. The
    /// request that finds a damaged record fails all the same. A collection of which a part is lost
    /// is absent as a whole.
    Forget,
}
