//! What clients were refused: what `ACL LOG` shows. Each core notes its own; equal ones within a
//! minute count as one.

use std::collections::VecDeque;

/// Time within which equal refusals count as one, in milliseconds; as Redis.
const GROUPED_MS: u64 = 60_000;
/// The newest refusals that one is compared with; as Redis.
const COMPARED: usize = 10;
/// Bytes of a name that are kept.
const OBJECT_BYTES_MAX: usize = 1 << 10;

/// Why a client was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    Command,
    Key,
    Channel,
    Password,
}

impl Reason {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Key => "key",
            Self::Channel => "channel",
            Self::Password => "auth",
        }
    }
}

/// Where a client was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Context {
    Plain,
    Transaction,
    Script,
}

impl Context {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "toplevel",
            Self::Transaction => "multi",
            Self::Script => "lua",
        }
    }
}

/// Refusals of one kind.
#[derive(Clone, Debug)]
pub(crate) struct Denial {
    pub(crate) count: u64,
    pub(crate) reason: Reason,
    pub(crate) context: Context,
    /// The command, the key or the channel.
    pub(crate) object: Vec<u8>,
    pub(crate) user: Vec<u8>,
    /// When the last one was, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    /// The last client, as `CLIENT LIST` describes it.
    pub(crate) client: String,
}

impl Denial {
    /// True if another one counts as this one.
    fn is_like(&self, other: &Self) -> bool {
        self.reason == other.reason
            && self.context == other.context
            && self.at_ms.abs_diff(other.at_ms) <= GROUPED_MS
            && self.object == other.object
            && self.user == other.user
    }

    /// Bytes that it takes.
    pub(crate) fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.object.len() + self.user.len() + self.client.len()
    }
}

/// Refusals, the newest first.
#[derive(Debug, Default)]
pub(crate) struct Denials(VecDeque<Denial>);

impl Denials {
    /// Notes one; keeps `count_max`.
    pub(crate) fn note(&mut self, mut denial: Denial, count_max: usize) {
        denial.object.truncate(OBJECT_BYTES_MAX);
        let mut newest = self.0.iter().take(COMPARED);
        if let Some(place) = newest.position(|known| known.is_like(&denial))
            && let Some(known) = self.0.remove(place)
        {
            denial.count += known.count;
        }
        self.0.push_front(denial);
        self.0.truncate(count_max);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// The newest ones, `count` at most.
    pub(crate) fn newest(&self, count: usize) -> Vec<Denial> {
        self.0.iter().take(count).cloned().collect()
    }
}

/// Those of all cores, the newest first, `count` at most.
pub(crate) fn joined(of_cores: Vec<Vec<Denial>>, count: usize) -> Vec<Denial> {
    // Of one moment, a core's own order counts.
    let oldest_first = of_cores
        .into_iter()
        .flat_map(|newest| newest.into_iter().rev());
    let mut all: Vec<_> = oldest_first.collect();
    all.sort_by_key(|denial| denial.at_ms);
    let mut joined = Denials::default();
    for denial in all {
        joined.note(denial, usize::MAX);
    }
    joined.newest(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denial(object: &str, at_ms: u64) -> Denial {
        Denial {
            count: 1,
            reason: Reason::Key,
            context: Context::Plain,
            object: object.into(),
            user: b"u".to_vec(),
            at_ms,
            client: String::new(),
        }
    }

    #[test]
    fn equal_refusals_of_all_cores_count_as_one() {
        let (mut one, mut other) = (Denials::default(), Denials::default());
        for at_ms in 0..3 {
            one.note(denial("a", at_ms), 128);
            other.note(denial("a", at_ms), 128);
        }
        other.note(denial("b", 5), 128);
        other.note(denial("a", 2 * GROUPED_MS), 128);
        let all = joined(vec![one.newest(10), other.newest(10)], 10);
        let seen: Vec<_> = all.iter().map(|one| (&one.object[..], one.count)).collect();
        assert_eq!(seen, [(&b"a"[..], 1), (b"b", 1), (b"a", 6)]);
        other.note(denial("c", 5), 2);
        assert_eq!(other.newest(9).len(), 2);
    }
}
