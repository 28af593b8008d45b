//! Keys that follow words of a command: where `SORT` and `GEORADIUS` store their results, and
//! whether patterns name others.

use super::Command;
use super::arguments::is_option;

/// What words of a command name beside its first key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct NamedKeys {
    /// The place of the key of the result, if it is stored.
    pub(super) target: Option<usize>,
    /// Patterns name keys, which may lie on any core.
    pub(super) has_patterns: bool,
}

/// What the words of a command of `count` arguments name; `None` if it is none of those.
pub(super) fn named_keys<'a>(
    command: &Command,
    count: usize,
    word: impl Fn(usize) -> &'a [u8],
) -> Option<NamedKeys> {
    let is_sort = matches!(command.name, "sort" | "sort_ro");
    let mut place = match command.name {
        "sort" | "sort_ro" => 2,
        "georadius" => 6,
        "georadiusbymember" => 5,
        _ => return None,
    };
    let mut named = NamedKeys::default();
    while place + 1 < count {
        let is = |option| is_option(word(place), option);
        if is("store") || (!is_sort && is("storedist")) {
            if command.writes {
                named.target = Some(place + 1);
            }
            place += 1;
        } else if is_sort && (is("by") || is("get")) {
            named.has_patterns |= word(place + 1).contains(&b'*');
            place += 1;
        } else if is_sort && is("limit") {
            place += 2;
        } else if !is_sort && is("count") {
            place += 1;
        }
        place += 1;
    }
    Some(named)
}

#[cfg(test)]
mod tests {
    use super::super::find;
    use super::*;

    #[test]
    fn the_last_key_of_a_result_counts() {
        let of = |line: &str| {
            let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
            let command = find(words[0]).unwrap();
            let named = named_keys(command, words.len(), |place| words[place]);
            named.map(|named| (named.target, named.has_patterns))
        };
        for (line, expected) in [
            ("sort k", Some((None, false))),
            ("sort k store a store b", Some((Some(5), false))),
            ("sort k by store get w* limit 1 store", Some((None, true))),
            ("sort k limit 0 store store t", Some((Some(6), false))),
            ("sort_ro k store a", Some((None, false))),
            (
                "georadius k 1 1 1 m count store storedist t",
                Some((Some(9), false)),
            ),
            ("georadiusbymember k m 1 m store t", Some((Some(6), false))),
            ("georadius_ro k 1 1 1 m", None),
            ("get k", None),
        ] {
            assert_eq!(of(line), expected, "{line}");
        }
    }
}
