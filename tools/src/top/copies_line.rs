//! The line of the header about copies of far pages, while there is something to say.

use ratatui::text::{Line, Span};

use super::column::number;
use super::data_line::red;
use crate::watch::copies::CopiesState;

/// The line; at most 80 columns.
pub(super) fn line(copies: &CopiesState) -> Line<'static> {
    let missing = match copies.cores_copying {
        0 => Span::from(" copy complete"),
        1 => red(" copy missing on 1 core"),
        cores => red(format!(" copy missing on {cores} cores")),
    };
    let work = format!(
        ": {} pages/s copied, {} READ/s elsewhere",
        number(copies.pages_copied_per_second),
        number(copies.reads_elsewhere_per_second)
    );
    Line::from(vec![missing, Span::from(work)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_whether_copies_are_missing_and_fits_eighty_columns() {
        let mut copies = CopiesState {
            cores_copying: 1024,
            pages_copied_per_second: 999_499.0,
            reads_elsewhere_per_second: 999_499.0,
            ..CopiesState::default()
        };
        let long = line(&copies);
        assert!(long.width() <= 80, "{long}");
        assert!(long.to_string().contains("missing on 1024 cores"), "{long}");
        copies.cores_copying = 0;
        assert!(line(&copies).to_string().contains("complete"));
        assert!(copies.is_active());
        assert!(!CopiesState::default().is_active());
    }
}
