//! Names of columns and datasets, made safe to show and to refer to.
//!
//! - I1: a name is not empty, has no control character and at most [`NAME_CHARACTERS_MAX`]
//!   characters, before a number that tells it from another. Nothing else is changed: names never
//!   become part of SQL, and pages show them as text.
//! - I2: the names of a dataset's columns differ.

use std::collections::HashSet;

use super::limits::{NAME_CHARACTERS_MAX, unprocessable};
use crate::error::{ApiError, ApiResult};

/// A name without control characters and space around it. Characters that would turn the
/// direction of the text around it are removed too.
fn clean(raw: &str) -> String {
    let shown = raw.chars().filter(|c| {
        let turns = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        !turns && *c != '\u{feff}'
    });
    let spaced = shown.map(|c| if c.is_control() { ' ' } else { c });
    spaced.collect::<String>().trim().to_owned()
}

/// Checks the name of a dataset.
///
/// # Errors
/// It is empty or too long.
pub(super) fn dataset_name(raw: &str) -> ApiResult<String> {
    let name = clean(raw);
    let length = name.chars().count();
    if (1..=NAME_CHARACTERS_MAX).contains(&length) {
        return Ok(name);
    }
    Err(ApiError::invalid(
        "name",
        format!("the name has {length} characters: give one of 1 to {NAME_CHARACTERS_MAX}"),
    ))
}

/// The names of the columns of a dataset.
#[derive(Debug, Default)]
pub(super) struct ColumnNames {
    taken: HashSet<String>,
}

impl ColumnNames {
    /// Makes a name for the column at a place, counted from 0: `column_N` if it has none, with
    /// `_2`, `_3` and so on if it is taken.
    ///
    /// # Errors
    /// It is too long.
    pub(super) fn add(&mut self, raw: &str, place: usize) -> ApiResult<String> {
        let mut name = clean(raw);
        if name.is_empty() {
            name = format!("column_{}", place + 1);
        }
        let length = name.chars().count();
        if length > NAME_CHARACTERS_MAX {
            let number = place + 1;
            return Err(unprocessable(
                "name_too_long",
                format!(
                    "the name of column {number} has {length} characters, and at most {NAME_CHARACTERS_MAX} are kept: shorten it"
                ),
            ));
        }
        Ok(self.unique(name))
    }

    /// Takes a name, with a number if it is taken.
    pub(super) fn unique(&mut self, mut name: String) -> String {
        if self.taken.contains(&name) {
            let mut others = (2..).map(|count: u64| format!("{name}_{count}"));
            let free = others.find(|name| !self.taken.contains(name));
            name = free.unwrap_or(name);
        }
        self.taken.insert(name.clone());
        name
    }

    /// Takes a name that someone chose.
    ///
    /// # Errors
    /// It is empty, too long or taken; what of it is.
    pub(super) fn choose(&mut self, raw: &str) -> Result<String, String> {
        let name = clean(raw);
        let length = name.chars().count();
        if !(1..=NAME_CHARACTERS_MAX).contains(&length) {
            return Err(format!(
                "the name has {length} characters: give one of 1 to {NAME_CHARACTERS_MAX}"
            ));
        }
        if !self.taken.insert(name.clone()) {
            return Err(format!(
                "there is a column `{name}` already: give another name"
            ));
        }
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_columns_differ_and_are_never_empty() {
        let mut names = ColumnNames::default();
        let raw = ["a", " a ", "", "a_2", "\n\t", "b\nc", "\u{202e}x"];
        let made = raw.iter().enumerate();
        let made: Vec<_> = made.map(|(at, raw)| names.add(raw, at).unwrap()).collect();
        assert_eq!(
            made,
            ["a", "a_2", "column_3", "a_2_2", "column_5", "b c", "x"]
        );
        let error = names.add(&"x".repeat(121), 7).unwrap_err();
        assert!(error.message().contains("column 8 has 121"), "{error:?}");
    }

    #[test]
    fn datasets_have_a_name() {
        assert_eq!(dataset_name(" <b>x</b>\u{7}").unwrap(), "<b>x</b>");
        for raw in ["", " \n", &"x".repeat(121)] {
            let error = dataset_name(raw).unwrap_err();
            assert!(error.message().contains("1 to 120"), "{error:?}");
        }
    }
}
