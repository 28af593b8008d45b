//! Patterns of keys and channels, as Redis matches them: `*`, `?`, `[a-z]`, `[^a]`, and `\` before
//! a byte that stands for itself.
//!
//! Stars cut a pattern into parts whose elements match one byte each. So the first part stands at
//! the start of the text and the last one at its end; each of the others is searched behind the
//! one before it, and what was passed is never looked at again.
//!
//! - I1: a match takes at most the product of both lengths divided by 64, 256 times the pattern's
//!   length, and [`SHORT`] times the logarithm of the text's length, in comparisons of a byte.

use crate::steps;

/// A part is searched byte by byte while the product of its length and the text's is at most this.
/// A longer one is searched at 64 places at once.
const SHORT: usize = 16 << 10;
/// Values of a byte.
const BYTES: usize = 256;

/// Bytes of a pattern of keys, of elements or of channels, at most.
pub const PATTERN_BYTES_MAX: usize = 1 << 10;

/// True if a pattern matches all of a text.
#[must_use]
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    steps::count(1);
    steps::count_copied(pattern.len() + text.len());
    let (first, mut behind) = split(pattern);
    let Some(mut read) = starts_with(first, text) else {
        return false;
    };
    // True once the part that was looked at last ends the text.
    let mut is_whole = read == text.len();
    while let Some(rest) = behind {
        let (part, after) = split(rest);
        let left = &text[read..];
        if after.is_none() {
            let start = left.len().checked_sub(elements(part).count());
            is_whole = start.is_some_and(|start| starts_with(part, &left[start..]).is_some());
        } else if let Some(end) = find(part, left) {
            read += end;
        } else {
            return false;
        }
        behind = after;
    }
    is_whole
}

/// Comparisons of a byte that a match takes at most, by the lengths of pattern and text.
pub(crate) fn comparisons_max(pattern: usize, text: usize) -> usize {
    let one_by_one = pattern * (text + 1);
    let doublings = text.checked_ilog2().unwrap_or(0) as usize + 1;
    one_by_one.min(one_by_one / 64 + BYTES * pattern + SHORT * doublings)
}

/// A pattern's part before its first star, and what comes behind that, if there is one.
fn split(pattern: &[u8]) -> (&[u8], Option<&[u8]>) {
    let mut at = 0;
    while at < pattern.len() {
        if pattern[at] == b'*' {
            return (&pattern[..at], Some(&pattern[at + 1..]));
        }
        at += element_bytes(&pattern[at..]);
    }
    (pattern, None)
}

/// The elements of a part, of which each matches one byte.
fn elements(part: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = part;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (element, after) = rest.split_at(element_bytes(rest));
        rest = after;
        Some(element)
    })
}

/// Where a part ends that stands at the start of a text.
fn starts_with(part: &[u8], text: &[u8]) -> Option<usize> {
    let mut at = 0;
    for element in elements(part) {
        if !accepts(element, *text.get(at)?) {
            return None;
        }
        at += 1;
    }
    Some(at)
}

/// Where the first occurrence of a part in a text ends.
fn find(part: &[u8], text: &[u8]) -> Option<usize> {
    if part.len().saturating_mul(text.len()) > SHORT {
        return find_long(part, text);
    }
    let found = (0..=text.len()).find_map(|start| {
        let end = starts_with(part, &text[start..])?;
        Some(start + end)
    });
    steps::count_copied(part.len() * found.unwrap_or(text.len()));
    found
}

/// Finds a part in a text of which either is long: a bit for each element says whether the
/// elements up to it match the bytes before a place. Each byte moves all bits on, 64 at a time.
#[cold]
fn find_long(part: &[u8], text: &[u8]) -> Option<usize> {
    let count = elements(part).count();
    let words = count.div_ceil(64);
    if count == 0 {
        return Some(0);
    }
    // For each byte, the elements that accept it.
    let mut accepting = vec![0_u64; BYTES * words];
    for (place, element) in elements(part).enumerate() {
        let (word, bit) = (place / 64, 1 << (place % 64));
        for byte in 0..=u8::MAX {
            if accepts(element, byte) {
                accepting[usize::from(byte) * words + word] |= bit;
            }
        }
    }
    steps::count_copied(part.len() * BYTES);
    let (last, end) = ((count - 1) / 64, 1_u64 << ((count - 1) % 64));
    let mut matching = vec![0_u64; words];
    for (at, &byte) in text.iter().enumerate() {
        let row = &accepting[usize::from(byte) * words..][..words];
        let mut carried = 1;
        for (word, accepting) in matching.iter_mut().zip(row) {
            let next = *word >> 63;
            *word = (*word << 1 | carried) & accepting;
            carried = next;
        }
        if matching[last] & end != 0 {
            steps::count_copied(at * words);
            return Some(at + 1);
        }
    }
    steps::count_copied(text.len() * words);
    None
}

/// Bytes of a pattern's first element.
fn element_bytes(pattern: &[u8]) -> usize {
    match *pattern {
        [] => 0,
        [b'\\', _, ..] => 2,
        [b'[', ..] => class(pattern, 0).1,
        _ => 1,
    }
}

/// True if an element matches a byte.
fn accepts(element: &[u8], byte: u8) -> bool {
    match *element {
        [b'?'] => true,
        [b'\\', escaped] => escaped == byte,
        [b'[', ..] => class(element, byte).0,
        [single] => single == byte,
        _ => false,
    }
}

/// True if the class at the start of a pattern accepts a byte, and the class's bytes. One without
/// an end ends with the pattern.
fn class(pattern: &[u8], byte: u8) -> (bool, usize) {
    let is_negated = pattern.get(1) == Some(&b'^');
    let mut at = 1 + usize::from(is_negated);
    let mut is_in = false;
    while let Some(&first) = pattern.get(at) {
        match (first, &pattern[at + 1..]) {
            (b']', _) => {
                at += 1;
                break;
            }
            (b'\\', &[escaped, ..]) => {
                is_in |= escaped == byte;
                at += 2;
            }
            (start, &[b'-', end, ..]) => {
                is_in |= (start.min(end)..=start.max(end)).contains(&byte);
                at += 3;
            }
            (single, _) => {
                is_in |= single == byte;
                at += 1;
            }
        }
    }
    (is_in != is_negated, at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The rule itself, without regard to cost.
    fn is_match(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern, text) {
            ([], text) => text.is_empty(),
            ([b'*', rest @ ..], text) => {
                (0..=text.len()).any(|start| is_match(rest, &text[start..]))
            }
            (_, []) => false,
            (pattern, [byte, text @ ..]) => {
                let (element, rest) = pattern.split_at(element_bytes(pattern));
                accepts(element, *byte) && is_match(rest, text)
            }
        }
    }

    #[test]
    fn any_pattern_matches_any_text_as_its_rule_says() {
        farcore_fuzz::Target::new("glob")
            .seed(b"\x04a*[b-d]\\?abc?")
            .seed(b"\x02h[^a]*llo")
            .words(&["*", "?", "[", "]", "^", "-", "\\", "[a-", "**"])
            .longest(40)
            .run(|bytes| {
                let mut input = farcore_fuzz::Input::new(bytes);
                let text = input.bytes(12);
                let pattern = input.bytes(18);
                assert_eq!(matches(pattern, text), is_match(pattern, text));
            });
    }

    fn bytes(set: &'static [u8], most: usize) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(set), 0..most)
    }

    proptest! {
        #[test]
        fn a_pattern_matches_as_its_rule_says(
            pattern in bytes(b"ab*?[]^-\\", 12),
            text in bytes(b"ab]", 10),
        ) {
            prop_assert_eq!(matches(&pattern, &text), is_match(&pattern, &text));
        }

        #[test]
        fn a_long_part_is_found_as_a_short_one_is(
            part in bytes(b"ab?", 140),
            before in bytes(b"ab", 40),
            behind in bytes(b"ab", 200),
        ) {
            let text = [&before[..], &part, &behind].concat();
            let places = (0..=text.len()).find_map(|start| {
                starts_with(&part, &text[start..]).map(|end| start + end)
            });
            prop_assert_eq!(find_long(&part, &text), places);
        }
    }

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*", "anything", true),
            ("", "", true),
            ("", "a", false),
            ("foo*", "foobar", true),
            ("*bar", "foobar", true),
            ("f?o", "foo", true),
            ("f?o", "fo", false),
            ("h[ae]llo", "hello", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("h[\\]]llo", "h]llo", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("*a*b*c", "xxaxxbxxc", true),
            ("*a*b*c", "xxaxxbxx", false),
            ("[", "[", false),
            ("[abc", "a", true),
            ("a**", "a", true),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn hostile_patterns_take_few_steps() {
        let name = vec![b'a'; 8 << 10];
        let long = |unit: &[u8]| {
            let times = PATTERN_BYTES_MAX / unit.len();
            unit.repeat(times)
        };
        let ended = |mut pattern: Vec<u8>| {
            pattern.truncate(PATTERN_BYTES_MAX - 2);
            pattern.extend_from_slice(b"b*");
            pattern
        };
        for pattern in [
            long(b"*a"),
            ended(long(b"*a")),
            ended(long(b"*aa")),
            ended([b"*", &long(b"a")[..]].concat()),
            ended([b"*", &long(b"?")[..]].concat()),
            ended([b"*", &long(b"[^b]")[..]].concat()),
            ended([b"*[", &long(b"a")[..]].concat()),
            ended(long(b"*aaaaaaaaaaaaaaa")),
        ] {
            steps::take();
            let _ = matches(&pattern, &name);
            let steps = steps::take();
            assert!(steps <= 8 << 10, "{steps} for {}", pattern.escape_ascii());
        }
    }
}
