//! Rules that have snapshots made, by a number of changes and of seconds, as Redis's `save`.

/// A rule: a snapshot is made once the last one is older than `seconds` and there have been
/// `changes` since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SavePoint {
    /// Age of the last snapshot.
    pub seconds: u64,
    /// Changes since then.
    pub changes: u64,
}

/// Rules as Redis writes them, e.g. `3600 1 300 100`; `None` if the text is no such list.
#[must_use]
pub fn parse_save_points(text: &str) -> Option<Vec<SavePoint>> {
    let words: Vec<&str> = text.split_whitespace().collect();
    if !words.len().is_multiple_of(2) {
        return None;
    }
    let number = |word: &str| {
        let is_plain = word.bytes().all(|byte| byte.is_ascii_digit());
        word.parse::<u64>().ok().filter(|_| is_plain)
    };
    let point = |pair: &[&str]| {
        Some(SavePoint {
            seconds: number(pair[0]).filter(|seconds| *seconds > 0)?,
            changes: number(pair[1])?,
        })
    };
    words.chunks_exact(2).map(point).collect()
}

/// The text of [`parse_save_points`].
#[must_use]
pub fn save_points_text(points: &[SavePoint]) -> String {
    let texts: Vec<_> = points
        .iter()
        .map(|point| format!("{} {}", point.seconds, point.changes))
        .collect();
    texts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_pairs_of_numbers() {
        let points = parse_save_points(" 3600 1  300 100").expect("two rules");
        assert_eq!(points.len(), 2);
        assert_eq!((points[1].seconds, points[1].changes), (300, 100));
        assert_eq!(save_points_text(&points), "3600 1 300 100");
        assert_eq!(parse_save_points(""), Some(Vec::new()));
        for text in ["1", "a 1", "0 1", "1 -1", "+1 1", "1 1 1"] {
            assert_eq!(parse_save_points(text), None, "{text}");
        }
    }
}
