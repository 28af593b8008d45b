//! The columns of a core's row, and which of them fit a width. A column is a title, a width, and
//! functions of [`CoreRates`]; figures never exceed their column.

use ratatui::style::{Color, Style};

use crate::watch::rates::{CoreRates, Latency};

/// Columns that belong together. Those of the first group are always visible; Tab brings the next
/// group to the front.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Group {
    Always,
    Hits,
    Latency,
    Far,
    Time,
    Queue,
    Clients,
    Native,
    Sections,
}

/// Groups that Tab cycles through.
pub(super) const GROUPS: usize = 8;
const ORDER: [Group; GROUPS] = [
    Group::Hits,
    Group::Latency,
    Group::Far,
    Group::Time,
    Group::Queue,
    Group::Clients,
    Group::Native,
    Group::Sections,
];

/// A column.
#[derive(Clone, Copy)]
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) width: u16,
    group: Group,
    pub(super) text: fn(&CoreRates) -> String,
    pub(super) style: fn(&CoreRates) -> Style,
    /// The sort key of rows; the largest first.
    pub(super) rank: fn(&CoreRates) -> f64,
}

/// A count or a rate in at most five characters.
pub(super) fn number(value: f64) -> String {
    const UNITS: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
    let (mut value, mut unit) = (value.max(0.0), 0);
    // A value that rounds to four digits takes the next unit.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1000.0, unit + 1);
    }
    match unit {
        0 if value >= 10.0 || value.fract() < 0.05 => format!("{value:.0}"),
        0 => format!("{value:.1}"),
        _ if value < 9.995 => format!("{value:.2}{}", UNITS[unit]),
        _ if value < 99.95 => format!("{value:.1}{}", UNITS[unit]),
        _ => format!("{value:.0}{}", UNITS[unit]),
    }
}

fn time_of(mean_ns: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times are not negative, and a cast saturates"
    )]
    let mean_ns = mean_ns as u64;
    time(mean_ns)
}

/// A time in at most four characters.
pub(super) fn time(ns: u64) -> String {
    let value = ns as f64;
    let (value, unit) = match ns {
        0..1_000 => (value, "n"),
        1_000..1_000_000 => (value / 1e3, "u"),
        1_000_000..1_000_000_000 => (value / 1e6, "m"),
        _ => (value / 1e9, "s"),
    };
    if unit == "n" || value >= 9.95 {
        format!("{value:.0}{unit}")
    } else {
        format!("{value:.1}{unit}")
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.0}", share * 100.0))
}

fn latency(of: &Latency) -> String {
    match of.count {
        0 => "-".to_owned(),
        _ => format!("{}/{}", time(of.p50_ns), time(of.p99_ns)),
    }
}

fn rank(share: Option<f64>) -> f64 {
    share.unwrap_or(-1.0)
}

fn plain(_: &CoreRates) -> Style {
    Style::new()
}

fn hit_style(core: &CoreRates) -> Style {
    match core.hit_ratio {
        Some(ratio) if ratio >= 0.9 => Style::new().fg(Color::Green),
        Some(ratio) if ratio < 0.5 => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    }
}

fn busy_style(core: &CoreRates) -> Style {
    match core.busy_share {
        Some(share) if share >= 0.95 => Style::new().fg(Color::Red),
        Some(share) if share >= 0.8 => Style::new().fg(Color::Yellow),
        _ => Style::new(),
    }
}

fn pressure_style(core: &CoreRates) -> Style {
    if core.back_pressure_per_second > 0.0 {
        Style::new().fg(Color::Yellow)
    } else {
        Style::new()
    }
}

fn lost_style(core: &CoreRates) -> Style {
    if core.sections_lost_per_second > 0.0 {
        Style::new().fg(Color::Red)
    } else {
        Style::new()
    }
}

fn core_name(core: &CoreRates) -> String {
    core.core
        .map_or_else(|| "all".to_owned(), |core| core.to_string())
}

macro_rules! column {
    ($title:literal, $width:literal, $group:ident, $text:expr, $rank:expr) => {
        column!($title, $width, $group, $text, $rank, plain)
    };
    ($title:literal, $width:literal, $group:ident, $text:expr, $rank:expr, $style:expr) => {
        Column {
            title: $title,
            width: $width,
            group: Group::$group,
            text: $text,
            rank: $rank,
            style: $style,
        }
    };
}

/// All columns. The first is the core's number, the default order of rows.
pub(super) const COLUMNS: &[Column] = &[
    column!("core", 4, Always, core_name, |_| 0.0),
    column!(
        "op/s",
        6,
        Always,
        |core| number(core.operations_per_second),
        |core| core.operations_per_second
    ),
    column!(
        "hit%",
        4,
        Hits,
        |core| percent(core.hit_ratio),
        |core| rank(core.hit_ratio),
        hit_style
    ),
    column!("loc%", 4, Hits, |core| percent(core.local_share), |core| {
        rank(core.local_share)
    }),
    column!("cac%", 4, Hits, |core| percent(core.cache_share), |core| {
        rank(core.cache_share)
    }),
    column!(
        "far%",
        4,
        Hits,
        |core| percent(core.far_share),
        |core| rank(core.far_share)
    ),
    column!(
        "own50/99",
        9,
        Latency,
        |core| latency(&core.local),
        |core| core.local.p99_ns as f64
    ),
    column!(
        "cross",
        9,
        Latency,
        |core| latency(&core.cross),
        |core| core.cross.p99_ns as f64
    ),
    column!(
        "far",
        9,
        Latency,
        |core| latency(&core.far),
        |core| core.far.p99_ns as f64
    ),
    column!(
        "READ/s",
        6,
        Far,
        |core| number(core.reads_per_second),
        |core| core.reads_per_second
    ),
    column!(
        "B/s",
        5,
        Far,
        |core| number(core.far_bytes_per_second),
        |core| core.far_bytes_per_second
    ),
    column!(
        "busy",
        4,
        Time,
        |core| percent(core.busy_share),
        |core| rank(core.busy_share),
        busy_style
    ),
    column!(
        "spin",
        4,
        Time,
        |core| percent(core.spinning_share),
        |core| rank(core.spinning_share)
    ),
    column!("park", 4, Time, |core| percent(core.parked_share), |core| {
        rank(core.parked_share)
    }),
    column!(
        "pend",
        5,
        Queue,
        |core| number(core.pending as f64),
        |core| core.pending as f64
    ),
    column!(
        "full/s",
        6,
        Queue,
        |core| number(core.back_pressure_per_second),
        |core| core.back_pressure_per_second,
        pressure_style
    ),
    column!(
        "fail/s",
        6,
        Queue,
        |core| number(core.failures_per_second),
        |core| core.failures_per_second
    ),
    column!(
        "ins/op",
        6,
        Queue,
        |core| core
            .instructions_per_operation
            .map_or_else(|| "-".to_owned(), number),
        |core| rank(core.instructions_per_operation)
    ),
    column!(
        "conns",
        5,
        Clients,
        |core| number(core.connections as f64),
        |core| core.connections as f64
    ),
    column!(
        "conn B",
        6,
        Clients,
        |core| number(core.connection_bytes as f64),
        |core| core.connection_bytes as f64
    ),
    column!(
        "cmd/s",
        6,
        Clients,
        |core| number(core.commands_per_second),
        |core| core.commands_per_second
    ),
    column!(
        "err/s",
        6,
        Clients,
        |core| number(core.failed_commands_per_second),
        |core| core.failed_commands_per_second
    ),
    column!(
        "native",
        6,
        Native,
        |core| number(core.native_connections as f64),
        |core| core.native_connections as f64
    ),
    column!(
        "slot B",
        6,
        Native,
        |core| number(core.native_bytes as f64),
        |core| core.native_bytes as f64
    ),
    column!(
        "req/s",
        6,
        Native,
        |core| number(core.native_requests_per_second),
        |core| core.native_requests_per_second
    ),
    column!(
        "rerr/s",
        6,
        Native,
        |core| number(core.failed_native_requests_per_second),
        |core| core.failed_native_requests_per_second
    ),
    column!(
        "sect/s",
        6,
        Sections,
        |core| number(core.sections_per_second),
        |core| core.sections_per_second
    ),
    column!(
        "held",
        5,
        Sections,
        |core| core.section_mean_ns.map_or_else(|| "-".to_owned(), time_of),
        |core| rank(core.section_mean_ns)
    ),
    column!(
        "want",
        5,
        Sections,
        |core| number(core.sections_waiting as f64),
        |core| core.sections_waiting as f64
    ),
    column!(
        "lost/s",
        6,
        Sections,
        |core| number(core.sections_lost_per_second),
        |core| core.sections_lost_per_second,
        lost_style
    ),
];

/// Indexes of the columns that fit a width, in the order of [`COLUMNS`]. Groups are taken from
/// `first_group` on until the width is used up.
pub(super) fn fitting(width: u16, first_group: usize) -> Vec<usize> {
    let mut chosen = Vec::new();
    let mut left = width;
    let place = |group: Group| {
        let place = ORDER.iter().position(|&one| one == group);
        place.map_or(0, |place| {
            1 + (place + GROUPS - first_group % GROUPS) % GROUPS
        })
    };
    let mut candidates: Vec<usize> = (0..COLUMNS.len()).collect();
    candidates.sort_by_key(|&index| place(COLUMNS[index].group));
    for index in candidates {
        let needed = COLUMNS[index].width + 1;
        if needed > left {
            break;
        }
        left -= needed;
        chosen.push(index);
    }
    chosen.sort_unstable();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_fit_their_columns() {
        for (value, text) in [
            (0.0, "0"),
            (0.34, "0.3"),
            (7.0, "7"),
            (999.4, "999"),
            (999.6, "1.00k"),
            (9_996.0, "10.0k"),
            (123_456.0, "123k"),
            (8.123e6, "8.12M"),
        ] {
            let shown = number(value);
            assert!(shown == text, "{value}: {shown}");
            assert!(shown.len() <= 5, "{value}: {shown}");
        }
        assert_eq!(number(u64::MAX as f64), "18.4E");
        for (ns, text) in [
            (0, "0n"),
            (999, "999n"),
            (1_234, "1.2u"),
            (9_960, "10u"),
            (2_500_000, "2.5m"),
            (31_000_000_000, "31s"),
        ] {
            assert_eq!(time(ns), text);
        }
    }

    #[test]
    fn a_wide_terminal_shows_all_columns_and_tab_reaches_each_in_a_narrow_one() {
        assert_eq!(fitting(240, 0).len(), COLUMNS.len());
        let mut seen = std::collections::BTreeSet::new();
        for first in 0..GROUPS {
            let columns = fitting(80, first);
            let width: u16 = columns.iter().map(|&index| COLUMNS[index].width + 1).sum();
            assert!(width <= 80 && columns[..2] == [0, 1]);
            seen.extend(columns);
        }
        assert_eq!(seen.len(), COLUMNS.len());
        assert!(fitting(3, 0).is_empty());
    }
}
