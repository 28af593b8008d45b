//! The ends of a list.

/// The end of a list at which elements are added or removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// The head, where the first element is.
    Left,
    /// The tail.
    Right,
}

impl Side {
    /// True for the tail.
    pub(crate) fn is_last(self) -> bool {
        self == Self::Right
    }

    /// The event of elements that are added there.
    pub(crate) fn push_event(self) -> &'static str {
        match self {
            Self::Left => "lpush",
            Self::Right => "rpush",
        }
    }

    /// The event of elements that are taken off there.
    pub(crate) fn pop_event(self) -> &'static str {
        match self {
            Self::Left => "lpop",
            Self::Right => "rpop",
        }
    }
}
