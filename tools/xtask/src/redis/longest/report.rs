//! The table: how long the client beside each load has waited.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::loads::{Load, Sent};
use super::sender::Outcome;

/// The slowest of a hundred calls, at most.
pub(super) const LATENCY_MAX: Duration = Duration::from_millis(20);
/// Characters of an error that are shown.
const ERROR_CHARACTERS: usize = 70;

/// How long the client has waited beside a load.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    command: String,
    load: String,
    is_crowd: bool,
    /// What a client sends each time.
    input_bytes: usize,
    input_words: usize,
    /// How often the load was sent, and the first error that was replied.
    times: u64,
    error: Option<String>,
    /// Calls of the client, and how long they took.
    calls: usize,
    p50_us: u32,
    p99_us: u32,
    longest_us: u32,
}

/// A percentile of sorted latencies.
fn latency(sorted_us: &[u32], percent: usize) -> u32 {
    let place = (sorted_us.len() * percent).div_ceil(100).saturating_sub(1);
    sorted_us.get(place).copied().unwrap_or(0)
}

fn ms(latency_us: u32) -> String {
    format!("{:.2}", f64::from(latency_us) / 1000.0)
}

/// Bytes in a unit that suits them.
fn size(bytes: usize) -> String {
    match bytes {
        0..10_240 => format!("{bytes} B"),
        10_240..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{}.{} MiB", bytes >> 20, ((bytes % (1 << 20)) * 10) >> 20),
    }
}

impl Row {
    pub(super) fn of(load: &Load, outcome: Outcome) -> Self {
        let mut sorted = outcome.latencies_us;
        sorted.sort_unstable();
        let (input_bytes, input_words) = load.input();
        let short = |error: String| error.chars().take(ERROR_CHARACTERS).collect();
        Self {
            command: load.command.clone(),
            load: load.shown(),
            is_crowd: matches!(load.sent, Sent::Crowd(_)),
            input_bytes,
            input_words,
            times: outcome.times,
            error: outcome.error.map(short),
            calls: sorted.len(),
            p50_us: latency(&sorted, 50),
            p99_us: latency(&sorted, 99),
            longest_us: sorted.last().copied().unwrap_or(0),
        }
    }

    /// True if the slowest of a hundred calls takes too long.
    pub(super) fn is_slow(&self) -> bool {
        Duration::from_micros(self.p99_us.into()) > LATENCY_MAX
    }

    /// A line of the table.
    fn line(&self) -> String {
        let mark = if self.is_slow() { " **over**" } else { "" };
        let input = match self.input_words {
            0 => String::new(),
            words => format!("{}, {words} words", size(self.input_bytes)),
        };
        format!(
            "| {} | {input} | {} | {}{mark} | {} |",
            self.load.replace('|', "\\|"),
            ms(self.p50_us),
            ms(self.p99_us),
            ms(self.longest_us)
        )
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (p50, p99, longest) = (ms(self.p50_us), ms(self.p99_us), ms(self.longest_us));
        write!(
            f,
            "{}: p50 {p50} ms, p99 {p99}, longest {longest}, of {} calls; sent {} times",
            self.load, self.calls, self.times
        )?;
        if let Some(error) = &self.error {
            write!(f, "; replies {error}")?;
        }
        if self.is_slow() {
            f.write_str("; over 20 ms")?;
        }
        Ok(())
    }
}

/// The table in Markdown: of each command the form beside which the client waits longest, then
/// crowds.
pub(super) fn table(rows: &[Row]) -> String {
    let mut chosen: Vec<&Row> = Vec::new();
    for row in rows {
        let same = chosen
            .last_mut()
            .filter(|last| !row.is_crowd && !last.is_crowd && last.command == row.command);
        match same {
            None => chosen.push(row),
            Some(last) if row.p99_us > last.p99_us => *last = row,
            Some(_) => {}
        }
    }
    let mut lines = vec![
        "| beside | input | p50, ms | p99 | longest |".to_owned(),
        "| --- | --- | --: | --: | --: |".to_owned(),
    ];
    lines.extend(chosen.into_iter().map(Row::line));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::super::requests::words;
    use super::*;

    fn row(command: &str, form: &str, latencies_us: Vec<u32>) -> Row {
        let load = Load {
            command: command.to_owned(),
            form: form.to_owned(),
            sent: Sent::Requests(vec![words(&format!("{command} {form}"))]),
        };
        let outcome = Outcome {
            latencies_us,
            ..Outcome::default()
        };
        Row::of(&load, outcome)
    }

    #[test]
    fn a_row_is_slow_by_the_slowest_of_a_hundred() {
        let mut latencies: Vec<u32> = vec![20_000; 99];
        latencies.push(90_000);
        let fast = row("get", "k", latencies.clone());
        assert_eq!((fast.p99_us, fast.longest_us), (20_000, 90_000));
        assert!(!fast.is_slow());
        latencies[5] = 20_001;
        assert!(row("get", "k", latencies).is_slow());
    }

    #[test]
    fn the_table_has_the_slowest_form_of_each_command() {
        let rows = [
            row("get", "a", vec![5_000]),
            row("get", "b", vec![25_000]),
            row("set", "c", vec![1_250]),
        ];
        let table = table(&rows);
        let lines: Vec<_> = table.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "| GET b | 20 B, 2 words | 25.00 | 25.00 **over** | 25.00 |",
                "| SET c | 20 B, 2 words | 1.25 | 1.25 | 1.25 |",
            ]
        );
    }

    #[test]
    fn sizes_have_units() {
        let shown = [100, 20 << 10, 3 << 20, (5 << 20) + (512 << 10)].map(size);
        assert_eq!(shown, ["100 B", "20 KiB", "3.0 MiB", "5.5 MiB"]);
    }
}
