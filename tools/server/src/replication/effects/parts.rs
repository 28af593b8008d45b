//! What the files of all kinds share: why there is no command, and how far an operation came.

use farcore::TreeEffect;

use crate::types::kind::Kind;

/// Why an effect is no command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NoCommand {
    /// No kind of collections has this tag.
    #[error("no kind of collections has the tag {0}")]
    Tag(u8),
    /// The server sends no such operation for the kind.
    #[error("there is no command for this operation on a {}", .0.name())]
    Operation(Kind),
    /// The operation, its answer or an element is not as the server writes it.
    #[error("the effect on a {} is not whole", .0.name())]
    Malformed(Kind),
    /// No commands make the change exactly: the replica needs the whole key.
    #[error("no commands make this change of a {}: {reason}", kind.name())]
    NeedsWhole { kind: Kind, reason: &'static str },
}

pub(super) type Done = Result<(), NoCommand>;

/// How many changes of an operation were made: the first ones.
pub(super) fn done(effect: &TreeEffect<'_>, place: usize) -> usize {
    usize::try_from(effect.number(place)).unwrap_or(usize::MAX)
}

/// The ends that a trim has removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Trimmed {
    /// Elements that there were.
    pub(super) before: u64,
    pub(super) front: u64,
    pub(super) back: u64,
}

impl Trimmed {
    /// What a trim to these ranks has removed; `None` if the answer is none of a trim.
    pub(super) fn of(effect: &TreeEffect<'_>, (first, last): (i64, i64)) -> Option<Self> {
        let (removed, after) = (effect.number(0), effect.number(4));
        let before = after.checked_add(removed)?;
        let place = |rank: i64| match u64::try_from(rank) {
            Ok(rank) => Some(rank),
            Err(_) => before.checked_sub(rank.unsigned_abs()),
        };
        let start = place(first).unwrap_or(0).min(before);
        let end = place(last).map_or(0, |last| last.saturating_add(1).min(before));
        // The elements behind the slice go first; all are behind a slice of none.
        let behind = if end <= start { before } else { before - end };
        let back = removed.min(behind);
        let front = removed - back;
        (front <= start).then_some(Self {
            before,
            front,
            back,
        })
    }
}
