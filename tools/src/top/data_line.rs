//! The line of the header about the data directory.

use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

use super::column::{number, time};
use super::draw::size;
use crate::watch::data::DataRates;

/// Changes that wait longer for the disk than this are shown with their age, in nanoseconds: the
/// log is synced about once a second.
const WAITS_NS: u64 = 2_000_000_000;

/// An age in at most four characters, up to 99 days.
pub(super) fn age(seconds: f64) -> String {
    const UNITS: [(f64, &str); 3] = [(86_400.0, "d"), (3_600.0, "h"), (60.0, "m")];
    let unit = UNITS.iter().find(|(length, _)| seconds >= 2.0 * length);
    let (length, unit) = unit.unwrap_or(&(1.0, "s"));
    format!("{:.0}{unit}", (seconds / length).floor())
}

pub(super) fn red(text: impl Into<String>) -> Span<'static> {
    Span::styled(text.into(), Style::new().fg(Color::Red))
}

fn loading(data: &DataRates) -> Line<'static> {
    let (loaded, total) = (
        data.loaded_bytes.min(data.to_load_bytes),
        data.to_load_bytes,
    );
    let percent = loaded as f64 * 100.0 / total.max(1) as f64;
    Line::from(format!(
        " data loading {percent:.0}%: {} of {}, {} entries",
        size(loaded),
        size(total),
        number(data.loaded_entries as f64)
    ))
}

/// What the log does.
fn log(data: &DataRates) -> Vec<Span<'static>> {
    if data.is_failing {
        return vec![red("log FAILING, changes are refused")];
    }
    if !data.is_logging {
        return vec![Span::from("no log")];
    }
    let mut text = format!(
        "log {}/s, {} unsynced",
        size_of(data.log_bytes_per_second),
        size(data.unsynced_bytes)
    );
    if data.unsynced_ns > WAITS_NS {
        text.push_str(&format!(" {}", time(data.unsynced_ns)));
    }
    if data.last_sync_ns > 0 {
        text.push_str(&format!(", sync {}", time(data.last_sync_ns)));
    }
    vec![Span::from(text)]
}

fn size_of(bytes: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates are not negative, and a cast saturates"
    )]
    size(bytes as u64)
}

/// What is known of snapshots.
fn snapshots(data: &DataRates) -> Vec<Span<'static>> {
    let last = data.last_snapshot_age_seconds;
    let last = last.map_or_else(
        || "  no snapshot".to_owned(),
        |seconds| format!("  snapshot {} ago", age(seconds)),
    );
    // No snapshot is written while a repair runs.
    let state = match data.last_snapshot_bytes {
        _ if data.is_repairing => Span::from(", repairing"),
        _ if data.is_saving => Span::from(", writing"),
        _ if data.snapshot_error.is_some() => red(", last FAILED"),
        Some(bytes) => Span::from(format!(", {}", size(bytes))),
        None => Span::default(),
    };
    vec![Span::from(last), state]
}

/// The line; at most 80 columns.
pub(super) fn line(data: &DataRates) -> Line<'static> {
    if data.is_loading {
        return loading(data);
    }
    let mut spans = vec![Span::from(" data ")];
    spans.extend(log(data));
    spans.extend(snapshots(data));
    Line::from(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_line_fits_eighty_columns() {
        let mut data = DataRates {
            is_logging: true,
            log_bytes_per_second: 1023.0 * 1024.0,
            unsynced_bytes: 1023 << 20,
            unsynced_ns: 99_000_000_000,
            last_sync_ns: 999_000_000,
            last_snapshot_age_seconds: Some(99.0 * 86_400.0),
            last_snapshot_bytes: Some(1023 << 30),
            snapshot_error: Some("the disk is full".to_owned()),
            ..DataRates::default()
        };
        let long = line(&data);
        assert!(long.width() <= 80, "{long}");
        data.is_repairing = true;
        assert!(line(&data).width() <= 80, "{}", line(&data));
        data.is_failing = true;
        assert!(line(&data).width() <= 80, "{}", line(&data));
        data.is_loading = true;
        assert!(line(&data).width() <= 80, "{}", line(&data));
    }

    #[test]
    fn ages_are_short() {
        let ages = [0.4, 119.9, 120.0, 7_199.0, 7_200.0, 172_800.0].map(age);
        assert_eq!(ages, ["0s", "119s", "2m", "119m", "2h", "2d"]);
    }
}
