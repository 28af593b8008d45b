//! Which runs a list shows, and in which order.
//!
//! - I1: text of a client is a value of the statement, never a part of it: the order is one of
//!   [`RunOrder`].
//! - I2: the newest first by state needs the rows of a page alone. A text, and any other order,
//!   look at every run.

use rusqlite::types::ToSql;
use rusqlite::{Connection, params_from_iter};
use serde::Deserialize;

use super::run::{Run, RunState};
use crate::error::{ApiError, ApiResult};

/// Longest text to look for, in characters, and its most words.
const TEXT_MAX: usize = 200;
const WORDS_MAX: usize = 8;

/// What orders runs. Runs that do not have it come last, and equal ones are the newest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RunOrder {
    /// When they were made.
    #[default]
    Created,
    /// Their names.
    Name,
    /// Queue pairs of the workload.
    QueuePairs,
    /// Messages a second.
    #[serde(rename = "messages_s")]
    Rate,
    /// The share of accesses that did not leave the card.
    HitRatio,
    /// The 99th percentile of latency.
    #[serde(rename = "p99_ns")]
    P99,
}

impl RunOrder {
    const fn sql(self) -> &'static str {
        match self {
            Self::Created => "id",
            Self::Name => "lower(name)",
            Self::QueuePairs => {
                "CASE WHEN json_valid(settings) THEN settings ->> '$.workload.population.queue_pairs' END"
            }
            Self::Rate => "summary ->> '$.messages_s'",
            Self::HitRatio => "summary ->> '$.hit_ratio'",
            Self::P99 => "summary ->> '$.p99_ns'",
        }
    }
}

/// Which runs to list.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    /// Only runs of a lower number.
    pub(super) before: Option<i64>,
    pub(super) limit: Option<i64>,
    state: Option<RunState>,
    /// Words that are all in the name, the user's name or the number as `#12`, in any case.
    text: Option<String>,
    #[serde(default)]
    order: RunOrder,
    /// The least first: for the creation the oldest.
    #[serde(default)]
    rising: bool,
    /// Runs that are left out at the beginning.
    #[serde(default)]
    pub(super) offset: i64,
}

impl Which {
    /// Whether pages follow each other by number; otherwise by offset.
    pub(super) fn is_by_number(&self) -> bool {
        self.order == RunOrder::Created && !self.rising
    }

    /// The words of the text, in lower case.
    fn words(&self) -> ApiResult<Vec<String>> {
        let text = self.text.as_deref().unwrap_or_default();
        let count = text.chars().count();
        if count > TEXT_MAX {
            let message = format!("the text has {count} characters: write at most {TEXT_MAX}");
            return Err(ApiError::invalid("text", message));
        }
        let words: Vec<_> = text
            .split_whitespace()
            .map(str::to_ascii_lowercase)
            .collect();
        if words.len() > WORDS_MAX {
            let count = words.len();
            let message = format!("the text has {count} words: write at most {WORDS_MAX}");
            return Err(ApiError::invalid("text", message));
        }
        Ok(words)
    }

    /// At most `limit` runs.
    ///
    /// # Errors
    /// The text is too long, or the database fails.
    pub(super) fn runs(&self, console: &Connection, limit: i64) -> ApiResult<Vec<Run>> {
        let words = self.words()?;
        let mut values: Vec<&dyn ToSql> = vec![&limit, &self.offset];
        let mut filters = Vec::new();
        if let Some(before) = &self.before {
            values.push(before);
            filters.push(format!("id < ?{}", values.len()));
        }
        if let Some(state) = &self.state {
            values.push(state);
            filters.push(format!("state = ?{}", values.len()));
        }
        for word in &words {
            values.push(word);
            filters.push(format!(
                "instr(lower(name || ' ' || by_name || ' #' || id), ?{}) > 0",
                values.len()
            ));
        }
        let filter = match filters.is_empty() {
            true => String::new(),
            false => format!("WHERE {}", filters.join(" AND ")),
        };
        let order = match (self.order, self.rising) {
            (RunOrder::Created, false) => "id DESC".to_owned(),
            (RunOrder::Created, true) => "id".to_owned(),
            (order, false) => format!("{} DESC NULLS LAST, id DESC", order.sql()),
            (order, true) => format!("{} ASC NULLS LAST, id DESC", order.sql()),
        };
        let text = format!(
            "SELECT {} FROM runs {filter} ORDER BY {order} LIMIT ?1 OFFSET ?2",
            Run::COLUMNS
        );
        let mut statement = console.prepare_cached(&text)?;
        let runs = statement.query_map(params_from_iter(values), Run::of)?;
        Ok(runs.collect::<Result<_, _>>()?)
    }
}
