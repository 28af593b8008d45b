//! Whether a client is sent replies.

/// What becomes of replies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum ReplyMode {
    /// They are sent.
    #[default]
    On,
    /// None is.
    Off,
    /// The next one is not.
    Skip,
}
