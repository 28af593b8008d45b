//! What answers about a sorted set look like to a Redis client.

use farcore::{Answer, TreePage, TreeScoreMade, TreeView};

use crate::resp::{Protocol, Writer};
use crate::types::sorted::member::whole_member;
use crate::types::sorted::score::NO_SUM;

/// What is replied of a sorted set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SortedReply {
    /// How many members were added.
    Added,
    /// How many were added or have another score.
    Changed,
    /// The score that the only member has got, or null.
    Made,
    /// How many members were removed.
    Removed,
    /// The score of the only member that was looked up, or null.
    Score,
    /// The scores of several members.
    Scores { count: u32 },
    /// The rank of a member, with its score or without, or null.
    Rank { has_score: bool },
    /// Members of a range, with their scores or without, of which the engine was to answer this
    /// many at most.
    Range { limit: u32, has_scores: bool },
    /// The member that was removed at an end, and its score; nothing if there was none.
    Popped,
    /// The member that was drawn, or null.
    Drawn,
}

/// A member and its score.
pub(crate) type Scored<'a> = (&'a [u8], f64);

/// Whole members with their scores, of elements of a page: member, score and value.
pub(crate) fn whole<'a>(
    elements: impl Iterator<Item = (&'a [u8], f64, &'a [u8])>,
) -> impl Iterator<Item = Scored<'a>> {
    elements.map(|(stored, score, value)| (whole_member(stored, value), score))
}

/// Writes the head of an array of members.
pub(crate) fn write_head(count: usize, has_scores: bool, writer: &mut Writer<'_>) {
    let is_flat = has_scores && writer.protocol() == Protocol::Resp2;
    writer.array(count.saturating_mul(if is_flat { 2 } else { 1 }));
}

/// Writes a member of an array, which in RESP3 is a pair with its score.
pub(crate) fn write_member((member, score): Scored<'_>, has_scores: bool, writer: &mut Writer<'_>) {
    if has_scores && writer.protocol() == Protocol::Resp3 {
        writer.array(2);
    }
    writer.bulk(member);
    if has_scores {
        writer.score(score);
    }
}

/// Writes a score, or null.
pub(crate) fn write_score(score: Option<f64>, writer: &mut Writer<'_>) {
    match score {
        Some(score) => writer.score(score),
        None => writer.null(),
    }
}

/// Writes what has become of the only member that was to get a score.
pub(crate) fn write_made(made: TreeScoreMade, writer: &mut Writer<'_>) {
    match made {
        TreeScoreMade::Score(score) => writer.score(score),
        TreeScoreMade::Unmet => writer.null(),
        TreeScoreMade::NoNumber => writer.error(NO_SUM),
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl SortedReply {
    /// True if members may have been added, for which clients wait.
    pub(crate) fn adds(self) -> bool {
        matches!(self, Self::Added | Self::Changed | Self::Made)
    }

    /// True if the answer may have only a part of what is replied.
    pub(crate) fn may_be_part(self) -> bool {
        matches!(self, Self::Range { .. } | Self::Scores { .. })
    }

    /// True if the answer has only a part of what is replied.
    pub(crate) fn is_part(self, answer: &Answer<'_>) -> bool {
        let view = TreeView::of(answer);
        match self {
            Self::Range { limit, .. } => view.has_more() && view.scored().count() < limit as usize,
            Self::Scores { count } => {
                view.version() > 0 && view.score_values().count() < count as usize
            }
            _ => false,
        }
    }

    /// Writes what comes before the elements of which a reply has this many.
    pub(crate) fn write_head(self, count: usize, writer: &mut Writer<'_>) {
        let has_scores = matches!(
            self,
            Self::Range {
                has_scores: true,
                ..
            }
        );
        write_head(count, has_scores, writer);
    }

    /// Writes the members of a page.
    pub(crate) fn write_page(self, page: &TreePage, writer: &mut Writer<'_>) {
        let has_scores = matches!(
            self,
            Self::Range {
                has_scores: true,
                ..
            }
        );
        whole(page.scored()).for_each(|member| write_member(member, has_scores, writer));
    }

    /// Writes what an answer says.
    pub(crate) fn write(self, answer: &Answer<'_>, writer: &mut Writer<'_>) {
        let view = TreeView::of(answer);
        match self {
            Self::Added => writer.integer(signed(view.number(0))),
            Self::Changed => writer.integer(signed(view.number(0) + view.number(1))),
            Self::Made => write_made(view.scores().last, writer),
            Self::Removed => writer.integer(signed(view.number(2))),
            Self::Score => write_score(view.score_values().next().flatten(), writer),
            Self::Scores { count } => {
                writer.array(count as usize);
                let absent = std::iter::repeat(None);
                for score in view.score_values().chain(absent).take(count as usize) {
                    write_score(score, writer);
                }
            }
            Self::Rank { has_score } => match view.score_rank() {
                Some(found) if has_score => {
                    writer.array(2);
                    writer.integer(signed(found.rank));
                    writer.score(found.score);
                }
                Some(found) => writer.integer(signed(found.rank)),
                None if has_score => writer.null_array(),
                None => writer.null(),
            },
            Self::Range { has_scores, .. } => {
                self.write_head(view.scored().count(), writer);
                whole(view.scored()).for_each(|one| write_member(one, has_scores, writer));
            }
            Self::Popped => match whole(view.scored()).next() {
                Some((member, score)) => {
                    writer.array(2);
                    writer.bulk(member);
                    writer.score(score);
                }
                None => writer.array(0),
            },
            Self::Drawn => match whole(view.scored()).next() {
                Some((member, _)) => writer.bulk(member),
                None => writer.null(),
            },
        }
    }
}
