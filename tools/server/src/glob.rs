//! Patterns of keys and channels, as Redis matches them: `*`, `?`, `[a-z]`, `[^a]`, and `\` before
//! a byte that stands for itself.
//!
//! Only the last `*` is ever taken back, so a match takes at most the product of both lengths.

/// True if a pattern matches all of a text.
#[must_use]
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    // Where to go on if what follows the last star does not match.
    let mut star = None;
    while read < text.len() {
        if pattern.get(at) == Some(&b'*') {
            at += 1;
            star = Some((at, read));
            continue;
        }
        match one(&pattern[at..], text[read]) {
            Some(length) => {
                at += length;
                read += 1;
            }
            None => {
                let Some((after, taken)) = star else {
                    return false;
                };
                at = after;
                read = taken + 1;
                star = Some((after, read));
            }
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

/// Length of the pattern's first element if it matches a byte.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (escaped == byte).then_some(2),
        [b'[', ..] => class(pattern, byte),
        [first, ..] => (first == byte).then_some(1),
    }
}

/// The same for a class. One without an end ends with the pattern.
fn class(pattern: &[u8], byte: u8) -> Option<usize> {
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
    (is_in != is_negated).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn hostile_patterns_take_no_longer() {
        let pattern = b"*a".repeat(5_000);
        let text = vec![b'a'; 4_000];
        assert!(!matches(&pattern, &text));
    }
}
