//! The lines of `INFO`.

use std::fmt::Write as _;

pub(crate) fn line(text: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = write!(text, "{name}:{value}\r\n");
}

pub(super) fn lines(text: &mut String, lines: &[(&str, u64)]) {
    for (name, value) in lines {
        line(text, name, value);
    }
}
