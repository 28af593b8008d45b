//! Ranges of sorted sets as clients write them.

use std::borrow::Cow;

use farcore::{TreeBound, TreeScoreBound, TreeScoreRange};

use crate::types::sorted::member::stored_member;
use crate::types::sorted::score::parsed_limit;

/// What ranges of scores and of members must be, as Redis says it.
pub(crate) const NO_SCORES: &str = "ERR min or max is not a float";
pub(crate) const NO_MEMBERS: &str = "ERR min or max not valid string range item";

/// An end of a range of members, as it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum MemberBound<'a> {
    /// Before all members.
    Lowest,
    /// Behind all members.
    Highest,
    Included(Cow<'a, [u8]>),
    Excluded(Cow<'a, [u8]>),
}

/// A range of a sorted set.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Range<'a> {
    /// From one rank to another, both included; negative ones count from the end.
    Ranks(i64, i64),
    Scores(TreeScoreBound, TreeScoreBound),
    Members(MemberBound<'a>, MemberBound<'a>),
}

/// Ranks of which no set has members.
const NOTHING: TreeScoreRange<'static> = TreeScoreRange::Ranks { first: 1, last: 0 };

impl<'a> Range<'a> {
    /// The range between two scores.
    pub(crate) fn of_scores(from: &[u8], to: &[u8]) -> Option<Self> {
        Some(Self::Scores(score_bound(from)?, score_bound(to)?))
    }

    /// The range between two members.
    pub(crate) fn of_members(from: &'a [u8], to: &'a [u8]) -> Option<Self> {
        Some(Self::Members(member_bound(from)?, member_bound(to)?))
    }

    /// A range without members.
    pub(crate) fn nothing() -> Self {
        Self::Ranks(1, 0)
    }

    /// The ranks of this range as they count from the other end.
    pub(crate) fn from_end(first: i64, last: i64) -> Self {
        // The rank `r` from one end is `-1 - r` from the other.
        Self::Ranks(!last, !first)
    }

    /// As the engine has it.
    pub(crate) fn of_tree(&self) -> TreeScoreRange<'_> {
        match self {
            &Self::Ranks(first, last) => TreeScoreRange::Ranks { first, last },
            &Self::Scores(from, to) => TreeScoreRange::Scores { from, to },
            Self::Members(MemberBound::Highest, _) | Self::Members(_, MemberBound::Lowest) => {
                NOTHING
            }
            Self::Members(from, to) => TreeScoreRange::Members {
                from: from.of_tree(),
                to: to.of_tree(),
            },
        }
    }

    /// The range, which outlives the arguments.
    pub(crate) fn owned(self) -> Range<'static> {
        match self {
            Self::Ranks(first, last) => Range::Ranks(first, last),
            Self::Scores(from, to) => Range::Scores(from, to),
            Self::Members(from, to) => Range::Members(from.owned(), to.owned()),
        }
    }
}

impl MemberBound<'_> {
    fn of_tree(&self) -> TreeBound<'_> {
        match self {
            Self::Lowest | Self::Highest => TreeBound::Unbounded,
            Self::Included(member) => TreeBound::Included(member),
            Self::Excluded(member) => TreeBound::Excluded(member),
        }
    }

    fn owned(self) -> MemberBound<'static> {
        match self {
            Self::Lowest => MemberBound::Lowest,
            Self::Highest => MemberBound::Highest,
            Self::Included(member) => MemberBound::Included(Cow::Owned(member.into_owned())),
            Self::Excluded(member) => MemberBound::Excluded(Cow::Owned(member.into_owned())),
        }
    }
}

fn score_bound(text: &[u8]) -> Option<TreeScoreBound> {
    Some(match text {
        [b'(', rest @ ..] => TreeScoreBound::Excluded(parsed_limit(rest)?),
        text => TreeScoreBound::Included(parsed_limit(text)?),
    })
}

fn member_bound(text: &[u8]) -> Option<MemberBound<'_>> {
    Some(match text {
        b"-" => MemberBound::Lowest,
        b"+" => MemberBound::Highest,
        [b'[', member @ ..] => MemberBound::Included(stored_member(member)),
        [b'(', member @ ..] => MemberBound::Excluded(stored_member(member)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_redis_does() {
        let included = TreeScoreBound::Included;
        let excluded = TreeScoreBound::Excluded;
        assert_eq!(
            Range::of_scores(b"(1", b"+inf"),
            Some(Range::Scores(excluded(1.0), included(f64::INFINITY)))
        );
        for (from, to) in [
            ("x", "1"),
            ("1", "x"),
            ("((1", "2"),
            ("[1", "2"),
            ("nan", "1"),
        ] {
            assert_eq!(Range::of_scores(from.as_bytes(), to.as_bytes()), None);
        }
        for (from, to) in [
            ("a", "[b"),
            ("[a", "b"),
            ("", "[b"),
            ("--", "+"),
            ("-", "+x"),
        ] {
            assert_eq!(Range::of_members(from.as_bytes(), to.as_bytes()), None);
        }
        let range = Range::of_members(b"[a", b"(b").expect("a range");
        let expected = TreeScoreRange::Members {
            from: TreeBound::Included(b"a"),
            to: TreeBound::Excluded(b"b"),
        };
        assert_eq!(range.of_tree(), expected);
        for (from, to) in [("+", "+"), ("-", "-"), ("+", "-"), ("+", "[a"), ("[a", "-")] {
            let range = Range::of_members(from.as_bytes(), to.as_bytes()).expect("a range");
            assert_eq!(range.of_tree(), NOTHING, "{from} {to}");
        }
    }
}
