//! How commands use keys, and rules allow it.

/// How a key is used, or which use of keys a pattern allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Access {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

impl Access {
    pub(crate) const ANY: Self = Self {
        reads: true,
        writes: true,
    };

    /// True if it allows what is wanted.
    pub(super) fn allows(self, wanted: Self) -> bool {
        (self.reads || !wanted.reads) && (self.writes || !wanted.writes)
    }
}
