//! Where the keys of a command lie among its arguments.
//!
//! Most commands have them at places that their name tells. Others count them, name them behind a
//! word, or have one behind a second word.

use super::arguments::{integer, is_option};
use super::command::{Command, MoreKeys, NO_KEYS};
use super::subcommand::find_subcommand;

/// The places of the keys of one call: two runs of places at most.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct KeyPlaces {
    /// The first place of each, the one behind the last, and the step between.
    runs: [(usize, usize, usize); 2],
    /// Patterns name others, which may be any.
    pub(crate) has_patterns: bool,
}

impl KeyPlaces {
    /// All places.
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> + Clone {
        let runs = self.runs.into_iter();
        runs.flat_map(|(first, end, step)| (first..end).step_by(step.max(1)))
    }

    /// Those within a range.
    pub(crate) fn within(self, range: std::ops::Range<usize>) -> impl Iterator<Item = usize> {
        let runs = self.runs.into_iter();
        runs.flat_map(move |(first, end, step)| {
            let step = step.max(1);
            let before = range.start.saturating_sub(first).div_ceil(step);
            (first + before * step..end.min(range.end)).step_by(step)
        })
    }

    /// True if a key is at a place.
    pub(crate) fn has(self, place: usize) -> bool {
        let mut runs = self.runs.into_iter();
        runs.any(|(first, end, step)| {
            (first..end).contains(&place) && (place - first).is_multiple_of(step.max(1))
        })
    }

    /// True if there is none.
    pub(crate) fn is_empty(self) -> bool {
        self.runs.iter().all(|(first, end, _)| first >= end)
    }

    fn with(mut self, places: std::ops::Range<usize>) -> Self {
        self.runs[1] = (places.start, places.end, 1);
        self
    }
}

impl Command {
    /// The keys of a call with `count` arguments, its name included. Arguments that do not tell
    /// where keys are have none: the command refuses them.
    pub(crate) fn keys_in<'w>(
        &self,
        count: usize,
        argument: impl Fn(usize) -> &'w [u8],
    ) -> KeyPlaces {
        let mut places = KeyPlaces::default();
        if self.keys != NO_KEYS {
            let (first, last, step) = self.keys;
            let place = |place: i64| usize::try_from(place).unwrap_or(0);
            let end = if last < 0 {
                (count + 1).saturating_sub(place(-last))
            } else {
                place(last) + 1
            };
            places.runs[0] = (place(first), end.min(count), place(step));
        }
        match self.more_keys {
            MoreKeys::None => places,
            MoreKeys::Counted(at) | MoreKeys::OfScript(at) => {
                let first = at + 1;
                let keys = (at < count).then(|| integer(argument(at)).ok()).flatten();
                let keys = keys.and_then(|keys| usize::try_from(keys).ok());
                match keys.filter(|keys| *keys <= count.saturating_sub(first)) {
                    Some(keys) => places.with(first..first + keys),
                    None => KeyPlaces::default(),
                }
            }
            MoreKeys::OfResult(_) | MoreKeys::OfSort => {
                let is_sort = self.more_keys == MoreKeys::OfSort;
                let first = match self.more_keys {
                    MoreKeys::OfResult(first) => first,
                    _ => 2,
                };
                let (target, has_patterns) = result_of(count, first, is_sort, argument);
                places.has_patterns = has_patterns;
                match target.filter(|_| self.writes) {
                    Some(target) => places.with(target..target + 1),
                    None => places,
                }
            }
            MoreKeys::Streams => {
                let first = behind_streams(count, &argument);
                first.map_or(places, |first| {
                    places.with(first..first + (count - first) / 2)
                })
            }
            MoreKeys::OfSecondWord => {
                let word = if count > 1 { argument(1) } else { &[] };
                let key = find_subcommand(self.subcommands, word).map_or(0, |one| one.key);
                match key {
                    1.. if key < count => places.with(key..key + 1),
                    _ => places,
                }
            }
        }
    }
}

/// The place of the key where the result of a search or of `SORT` is stored, which is the last that
/// is named, and whether patterns name keys.
fn result_of<'w>(
    count: usize,
    first: usize,
    is_sort: bool,
    argument: impl Fn(usize) -> &'w [u8],
) -> (Option<usize>, bool) {
    let (mut place, mut target, mut has_patterns) = (first, None, false);
    while place + 1 < count {
        let word = argument(place);
        let is = |option| is_option(word, option);
        place += match () {
            () if is("store") || (!is_sort && is("storedist")) => {
                target = Some(place + 1);
                2
            }
            () if is_sort && (is("by") || is("get")) => {
                has_patterns |= argument(place + 1).contains(&b'*');
                2
            }
            () if is_sort && is("limit") => 3,
            () if !is_sort && is("count") => 2,
            () => 1,
        };
    }
    (target, has_patterns)
}

/// The place behind the word that keys of streams follow, as `XREAD` and `XREADGROUP` have them.
fn behind_streams<'w>(count: usize, argument: impl Fn(usize) -> &'w [u8]) -> Option<usize> {
    let mut place = 1;
    while place < count {
        let word = argument(place);
        place += match () {
            () if is_option(word, "streams") => return Some(place + 1),
            () if is_option(word, "count") || is_option(word, "block") => 2,
            () if is_option(word, "group") => 3,
            () if is_option(word, "noack") => 1,
            () => return None,
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::{COMMANDS, find};

    fn places(line: &str) -> Vec<usize> {
        let words: Vec<_> = line.split(' ').collect();
        let command = find(words[0].as_bytes()).expect(line);
        let argument = |place: usize| words[place].as_bytes();
        command.keys_in(words.len(), argument).iter().collect()
    }

    #[test]
    fn keys_are_found_where_commands_have_them() {
        for (line, expected) in [
            ("get k", &[1][..]),
            ("set k v EX 10", &[1]),
            ("mget a b c", &[1, 2, 3]),
            ("mset a 1 b 2 c 3", &[1, 3, 5]),
            ("mset a 1 b", &[1, 3]),
            ("rename a b", &[1, 2]),
            ("copy a b replace", &[1, 2]),
            ("blpop a b 0", &[1, 2]),
            ("lmpop 2 a b left", &[2, 3]),
            ("lmpop 9 a b left", &[]),
            ("lmpop x a b left", &[]),
            ("blmpop 0 1 a left", &[3]),
            ("bzmpop 0 2 a b min count 1", &[3, 4]),
            ("zunion 2 a b withscores", &[2, 3]),
            ("zunionstore t 2 a b weights 1 2", &[1, 3, 4]),
            ("zunionstore t -2 a b weights 1 2", &[]),
            ("sintercard 1 a limit 1", &[2]),
            ("xread count 1 streams a b 0 0", &[4, 5]),
            ("xread block 1 count 1 STREAMS a 0", &[6]),
            ("xread nonsense streams a 0", &[]),
            ("xreadgroup group streams c noack streams a >", &[6]),
            ("xgroup create a g $", &[2]),
            ("xgroup help", &[]),
            ("object encoding a", &[2]),
            ("memory usage a", &[2]),
            ("memory doctor", &[]),
            ("ping x", &[]),
            ("sort k", &[1]),
            ("sort k store a store b", &[1, 5]),
            ("sort k by store get w* limit 1 store", &[1]),
            ("sort k limit 0 store store t", &[1, 6]),
            ("sort_ro k store a", &[1]),
            ("georadius k 1 1 1 m count store storedist t", &[1, 9]),
            ("georadiusbymember k m 1 m store t", &[1, 6]),
            ("georadius_ro k 1 1 1 m", &[1]),
        ] {
            assert_eq!(places(line), expected, "{line}");
        }
        if cfg!(feature = "scripts") {
            assert_eq!(places("eval text 2 a b c"), [3, 4]);
            assert!(places("evalsha text 9 a b c").is_empty());
        }
    }

    #[test]
    fn patterns_of_sort_name_any_keys() {
        for (line, expected) in [
            ("sort k by w* get #", true),
            ("sort_ro k get w*->f", true),
            ("sort k by nosort get #", false),
        ] {
            let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
            let command = find(words[0]).expect(line);
            let places = command.keys_in(words.len(), |place| words[place]);
            assert_eq!(places.has_patterns, expected, "{line}");
        }
    }

    #[test]
    fn keys_of_any_call_lie_within_it() {
        for command in COMMANDS {
            for count in 1..9 {
                for word in [
                    &b"0"[..],
                    b"1",
                    b"3",
                    b"-1",
                    b"streams",
                    b"block",
                    b"encoding",
                ] {
                    let keys = command.keys_in(count, |place| {
                        assert!(place < count, "{}", command.name);
                        word
                    });
                    let within = |place| (1..count).contains(&place);
                    assert!(keys.iter().all(within), "{} of {count}", command.name);
                    assert_eq!(keys.is_empty(), keys.iter().next().is_none());
                    let held: Vec<_> = (0..count).filter(|place| keys.has(*place)).collect();
                    assert_eq!(held, keys.iter().collect::<Vec<_>>());
                    let split = count / 2;
                    let parts = keys.within(0..split).chain(keys.within(split..count));
                    let mut parts: Vec<_> = parts.collect();
                    parts.sort_unstable();
                    assert_eq!(parts, held);
                }
            }
        }
    }
}
