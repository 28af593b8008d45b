//! Sizes in flags and messages, numbers and tables for people, and errors as one line. Shared by
//! all commands.

use anyhow::{Result, anyhow};
use bytesize::ByteSize;
use comfy_table::{CellAlignment, Table, presets};

/// Parses the size in a flag; `like` is an example for the error.
pub(crate) fn size(flag: &str, text: &str, like: &str) -> Result<u64> {
    let size = text.parse::<ByteSize>();
    let size = size.map_err(|_| anyhow!("{flag} `{text}` is not a size; write it as {like}"))?;
    Ok(size.as_u64())
}

/// A number with a comma before each three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A table with aligned columns, the first `left` of them to the left.
pub(crate) fn table(columns: &[&str], left: usize, rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(columns.iter().copied());
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(left) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

/// The error with its causes, without those that its text already contains.
pub(crate) fn line(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn a_cause_is_named_once() {
        let cause = || std::io::Error::from_raw_os_error(2);
        let once = anyhow::Error::new(cause()).context("the file x");
        let twice = anyhow::Error::new(cause()).context(format!("the file x: {}", cause()));
        assert_eq!(line(&once), line(&twice));
        assert_eq!(line(&once).matches("os error").count(), 1);
    }
}
