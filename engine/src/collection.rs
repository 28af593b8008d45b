//! The kinds of collections.

/// The kind of a collection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum TreeKind {
    /// Elements have a key and are in the order of their keys.
    #[default]
    Map,
    /// Elements are in the order in which they were put.
    List,
    /// Members have a score each and are in the order of their scores. Its nodes are a map's.
    Scored,
}

impl TreeKind {
    /// The kind as a number says it, or as metadata does.
    pub(crate) fn of(number: u8) -> Option<Self> {
        [Self::Map, Self::List, Self::Scored]
            .into_iter()
            .find(|&kind| kind as u8 == number)
    }

    /// What the elements are called: a map, a list or a scored map.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::List => "list",
            Self::Scored => "scored map",
        }
    }

    /// Elements of a leaf that count as one.
    pub(crate) fn elements(self, count: u64) -> u64 {
        match self {
            Self::Scored => count / 2,
            Self::Map | Self::List => count,
        }
    }
}
