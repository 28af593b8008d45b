//! Patterns of `SORT`: which key, or field of a hash, an element stands for.
//!
//! ```text
//! #                       the element itself
//! before*behind           the value of a key
//! before*behind->field    the field of a hash
//! ```

/// What an element is replaced by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SortPattern {
    /// The element.
    Element,
    /// Nothing: a key that is the same for all elements makes no sense.
    Nothing,
    Key {
        before: Vec<u8>,
        behind: Vec<u8>,
        field: Option<Vec<u8>>,
    },
}

/// Where a part of a text is, which ends at the first zero, as texts of C do.
fn place_of(text: &[u8], part: &[u8]) -> Option<usize> {
    let end = text.iter().position(|byte| *byte == 0);
    let text = &text[..end.unwrap_or(text.len())];
    text.windows(part.len()).position(|window| window == part)
}

impl SortPattern {
    /// The pattern that a text is.
    pub(crate) fn of(text: &[u8]) -> Self {
        if text == b"#" {
            return Self::Element;
        }
        let Some(star) = place_of(text, b"*") else {
            return Self::Nothing;
        };
        let (before, rest) = (&text[..star], &text[star + 1..]);
        // An arrow at the end is a part of the key.
        let arrow = place_of(rest, b"->");
        let arrow = arrow.filter(|at| !matches!(rest.get(at + 2), None | Some(0)));
        let (behind, field) = match arrow {
            Some(at) => (&rest[..at], Some(rest[at + 2..].to_vec())),
            None => (rest, None),
        };
        Self::Key {
            before: before.to_vec(),
            behind: behind.to_vec(),
            field,
        }
    }

    /// The key that it names for an element; none if it names none.
    pub(crate) fn key(&self, element: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Key { before, behind, .. } => Some([before, element, behind].concat()),
            Self::Element | Self::Nothing => None,
        }
    }

    /// The field that it names, if it names one.
    pub(crate) fn field(&self) -> Option<&[u8]> {
        match self {
            Self::Key { field, .. } => field.as_deref(),
            Self::Element | Self::Nothing => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_redis() {
        for (text, key, field) in [
            ("#", None, None),
            ("constant", None, None),
            ("constant->field", None, None),
            ("w_*", Some("w_1"), None),
            ("*", Some("1"), None),
            ("a*b*c", Some("a1b*c"), None),
            ("h*->f", Some("h1"), Some("f")),
            ("h*x->f->g", Some("h1x"), Some("f->g")),
            ("h*->", Some("h1->"), None),
            ("a->b*", Some("a->b1"), None),
            ("a\0*", None, None),
        ] {
            let pattern = SortPattern::of(text.as_bytes());
            let shown = pattern.key(b"1");
            assert_eq!(shown.as_deref(), key.map(str::as_bytes), "{text}");
            assert_eq!(pattern.field(), field.map(str::as_bytes), "{text}");
        }
    }
}
