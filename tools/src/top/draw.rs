//! Draws the view into an area of any size. 80x24 shows all parts in short. Smaller areas leave out
//! sparklines, then nodes and keys; larger ones show more columns, rows and history.

use std::collections::VecDeque;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, RenderDirection, Row, Sparkline, Table, Wrap};

use super::app::App;
use super::column::{COLUMNS, fitting, number};
use super::{cluster_line, copies_line, data_line, replication_line};
use crate::watch::rates::{CoreRates, Rates};
use crate::watch::replication::ReplicationRates;

/// Least lines for sparklines.
const LINES_FOR_SPARKLINES: u16 = 18;
/// Least lines for nodes and keys.
const LINES_FOR_PARTS: u16 = 14;

const HELP: &[&str] = &[
    "Rates are per second over the interval; K, M, G of bytes are binary.",
    "",
    "hit%  gets that needed no far memory, of those that found their key:",
    "      loc% from the log's frames, cac% from the read cache",
    "own, cross  requests of the core to its own shard and to others that",
    "      waited for nothing far: median/99th percentile",
    "far   waits for far memory          B/s  both ways",
    "busy spin park  what the core did with its time, in percent",
    "pend  requests waiting for the fabric   full/s  requests submitted again",
    "ins/op  instructions per operation, where the machine counts them",
    "conns, conn B, cmd/s, err/s  a server's clients of the Redis protocol",
    "native, slot B, req/s, rerr/s  its native clients: connections, memory,",
    "      requests, and requests that ended with an error",
    "data  bytes logged, those not on the disk yet, how long the last sync",
    "      took; age and size of the last snapshot",
    "repl  what a replica has to apply or load; replicas, and their lag",
    "clus  map of the cluster, slots   copy  far pages that lack copies",
    "sect/s, held, want, lost/s  sections that clients got, how long they had",
    "      them, clients that wait, and sections that were held too long",
    "",
    "q quit   s/S sort by the next/previous column   Tab other columns",
    "p pause  +/- longer/shorter interval   j/k scroll   n next engine",
];

/// A size in at most five characters.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "K", "M", "G", "T", "P", "E"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    if unit > 0 && value < 9.95 {
        format!("{value:.1}{}", UNITS[unit])
    } else {
        format!("{value:.0}{}", UNITS[unit])
    }
}

/// Cuts text to a width, marking the cut with `~`.
fn cut(text: &str, width: usize) -> String {
    // Keys and host names are ASCII. Other characters become `?`, so that one character is one
    // cell.
    let plain: String = text
        .chars()
        .map(|one| {
            if one.is_ascii_graphic() || one == ' ' {
                one
            } else {
                '?'
            }
        })
        .collect();
    if plain.len() <= width {
        return plain;
    }
    match width {
        0 => String::new(),
        _ => format!("{}~", &plain[..width - 1]),
    }
}

fn uptime(seconds: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "seconds of a 64-bit count of nanoseconds"
    )]
    let seconds = seconds as u64;
    let (days, hours) = (seconds / 86_400, seconds / 3_600 % 24);
    let (minutes, seconds) = (seconds / 60 % 60, seconds % 60);
    match days {
        0 => format!("{hours:02}:{minutes:02}:{seconds:02}"),
        _ => format!("{days}d {hours:02}:{minutes:02}"),
    }
}

/// Draws the whole view.
pub(super) fn draw(frame: &mut Frame<'_>, app: &App) {
    let area = frame.area();
    let rates = app.rates.as_ref();
    let has_data = rates.is_some_and(|rates| rates.data.is_some());
    let has_replication = rates.and_then(replication_of).is_some();
    let has_cluster = rates.is_some_and(|rates| rates.cluster.is_some());
    let has_copies = rates.is_some_and(|rates| rates.copies.is_active());
    let beside = [has_data, has_replication, has_cluster, has_copies].map(u16::from);
    let [header, body, footer] = Layout::vertical([
        Constraint::Length(3 + beside.iter().sum::<u16>()),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_header(frame, app, header);
    let keys = " q quit  s sort  p pause  Tab columns  +/- interval  j/k scroll  n next  h help";
    frame.render_widget(Line::from(keys).dim(), footer);
    match &app.rates {
        Some(rates) => draw_rates(frame, app, rates, body),
        None => {
            let text = match &app.lost {
                Some(why) => format!("{why}\nwaiting for an engine"),
                None => "measuring the first interval".to_owned(),
            };
            let text = Paragraph::new(text).alignment(Alignment::Center);
            frame.render_widget(text.wrap(Wrap { trim: true }), body);
        }
    }
    if app.help {
        draw_help(frame, area);
    }
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let lines = u16::try_from(HELP.len())
        .unwrap_or(u16::MAX)
        .saturating_add(2);
    let window = area.centered(
        Constraint::Length(area.width.min(74)),
        Constraint::Length(lines.min(area.height)),
    );
    let text: Vec<Line<'_>> = HELP.iter().map(|line| Line::from(*line)).collect();
    frame.render_widget(Clear, window);
    let block = Block::bordered().title(" farcore top ");
    let text = Paragraph::new(text).wrap(Wrap { trim: false });
    frame.render_widget(text.block(block), window);
}

/// What there is to show of replication.
fn replication_of(rates: &Rates) -> Option<&ReplicationRates> {
    rates.replication.as_ref().filter(|one| one.is_in_use())
}

fn draw_header(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let mut first = vec![Span::from(" farcore").bold().fg(Color::Cyan)];
    let mut lines = Vec::new();
    if let Some(rates) = &app.rates {
        first.push(Span::from(format!(
            " {}  process {}  up {}",
            cut(&rates.version, 16),
            rates.process,
            uptime(rates.uptime_seconds)
        )));
    }
    // A lost engine has no interval, and all words must fit 80 columns.
    if app.lost.is_none() {
        first.push(Span::from(format!(
            "  every {}",
            humantime::format_duration(app.interval)
        )));
    }
    if app.paused {
        first.push(Span::from("  paused").bold().fg(Color::Yellow));
    }
    if app.lost.is_some() {
        first.push(
            Span::from("  LOST: waiting for the engine")
                .bold()
                .fg(Color::Red),
        );
    }
    lines.push(Line::from(first));
    if let Some(rates) = &app.rates {
        let total = &rates.total;
        let failing = if total.failures_per_second > 0.0 {
            format!("  {} fail/s", number(total.failures_per_second))
        } else {
            String::new()
        };
        lines.push(Line::from(format!(
            " {} op/s: {} get {} put {} del {} cas{failing}  {} keys",
            number(total.operations_per_second),
            number(total.gets_per_second),
            number(total.puts_per_second),
            number(total.deletes_per_second),
            number(total.swaps_per_second),
            number(total.keys as f64),
        )));
        lines.push(memory_line(rates));
        let copies = Some(&rates.copies).filter(|copies| copies.is_active());
        lines.extend(copies.map(copies_line::line));
        lines.extend(rates.data.as_ref().map(data_line::line));
        lines.extend(replication_of(rates).map(replication_line::line));
        lines.extend(rates.cluster.as_ref().map(cluster_line::line));
    } else {
        lines.push(Line::from(format!(" {}", app.path)));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn memory_line(rates: &Rates) -> Line<'static> {
    // The resident size is of the whole process, which holds more than the engine.
    let touched = if rates.touched_bytes < rates.to_touch_bytes {
        let percent = rates.touched_bytes as f64 * 100.0 / rates.to_touch_bytes as f64;
        format!(", {percent:.0}% touched")
    } else {
        String::new()
    };
    let local = format!(
        " local cap {}{}{}, process {}{touched}",
        size(rates.local_cap_bytes),
        if rates.locked { " locked" } else { "" },
        if rates.huge_bytes > 0 { " huge" } else { "" },
        size(rates.local_resident_bytes)
    );
    let records = rates.far_live_bytes.saturating_add(rates.far_dead_bytes);
    let live = if records > 0 {
        let percent = rates.far_live_bytes as f64 * 100.0 / records as f64;
        format!(", {percent:.0}% of it live")
    } else {
        String::new()
    };
    let far = format!(
        "  far {} of {}{live}",
        size(rates.far_used_bytes),
        size(rates.far_total_bytes)
    );
    Line::from(local + &far)
}

fn draw_rates(frame: &mut Frame<'_>, app: &App, rates: &Rates, area: Rect) {
    // The other parts take what they need, the cores the rest.
    let whole = area.height + 4;
    let sparklines = match whole {
        0..LINES_FOR_SPARKLINES => 0,
        LINES_FOR_SPARKLINES..40 => 3,
        _ => 6,
    };
    let parts = if whole < LINES_FOR_PARTS {
        0
    } else {
        let rows = rates.nodes.len().max(rates.hot_keys.len()).max(1);
        let most = area.height / 3;
        u16::try_from(rows + 1).unwrap_or(u16::MAX).min(most)
    };
    let [sparks, cores, parts] = Layout::vertical([
        Constraint::Length(sparklines),
        Constraint::Min(3),
        Constraint::Length(parts),
    ])
    .areas(area);
    if sparklines > 0 {
        let [left, right] =
            Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(sparks);
        draw_sparkline(frame, "op/s", &app.operations, Color::Cyan, left);
        draw_sparkline(frame, "READ/s", &app.reads, Color::Magenta, right);
    }
    draw_cores(frame, app, rates, cores);
    if parts.height > 0 {
        let [left, right] =
            Layout::horizontal([Constraint::Fill(3), Constraint::Fill(2)]).areas(parts);
        draw_nodes(frame, rates, left);
        draw_keys(frame, rates, right);
    }
}

fn draw_sparkline(
    frame: &mut Frame<'_>,
    name: &str,
    history: &VecDeque<u64>,
    color: Color,
    area: Rect,
) {
    // A free cell to the right keeps two sparklines apart.
    let area = Rect {
        width: area.width.saturating_sub(1),
        ..area
    };
    let shown = usize::from(area.width).min(history.len());
    // The newest sample is at the right.
    let data: Vec<u64> = history.iter().rev().take(shown).copied().collect();
    let most = data.iter().copied().max().unwrap_or(0);
    let title = format!(" {name}, at most {}", number(most as f64));
    let [above, below] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    frame.render_widget(Line::from(title).dim(), above);
    let sparkline = Sparkline::default()
        .data(&data)
        .direction(RenderDirection::RightToLeft)
        .max(most.max(1))
        .style(Style::new().fg(color));
    frame.render_widget(sparkline, below);
}

fn draw_cores(frame: &mut Frame<'_>, app: &App, rates: &Rates, area: Rect) {
    let columns = fitting(area.width, app.first_group);
    let header = columns.iter().map(|&index| {
        let title = Line::from(COLUMNS[index].title).right_aligned();
        if index == app.sort && app.sort > 0 {
            title.reversed()
        } else {
            title
        }
    });
    let dim = app.lost.is_some();
    let row = |core: &CoreRates, style: Style| {
        let cells = columns.iter().map(|&index| {
            let column = &COLUMNS[index];
            let text = cut(&(column.text)(core), usize::from(column.width));
            Line::styled(text, (column.style)(core)).right_aligned()
        });
        let style = if dim {
            style.add_modifier(Modifier::DIM)
        } else {
            style
        };
        Row::new(cells.collect::<Vec<_>>()).style(style)
    };
    let mut rows = Vec::new();
    if rates.cores.len() > 1 {
        rows.push(row(&rates.total, Style::new().bold()));
    }
    let sorted = app.rows();
    let room = usize::from(area.height).saturating_sub(1 + rows.len());
    let skipped = app.scrolled.min(sorted.len().saturating_sub(room.max(1)));
    let hidden = sorted.len() - skipped;
    // The last line states how many rows are hidden.
    let shown = if hidden > room {
        room.saturating_sub(1)
    } else {
        hidden
    };
    rows.extend(
        sorted[skipped..skipped + shown]
            .iter()
            .map(|core| row(core, Style::new())),
    );
    let widths = columns
        .iter()
        .map(|&index| Constraint::Length(COLUMNS[index].width));
    let header =
        Row::new(header.collect::<Vec<_>>()).style(Style::new().fg(Color::Black).bg(Color::Gray));
    let table = Table::new(rows, widths).column_spacing(1).header(header);
    frame.render_widget(table, area);
    if hidden > room && area.height > 1 {
        let line = Rect {
            y: area.bottom() - 1,
            height: 1,
            ..area
        };
        let text = format!(" {} more cores below: j and k scroll", hidden - shown);
        frame.render_widget(Line::from(text).dim(), line);
    }
}

/// The header of a table with a name in the first column and figures in the others.
fn title<'a, const N: usize>(name: &'a str, metrics: [&'a str; N]) -> Row<'a> {
    let metrics = metrics.map(|one| Line::from(one).right_aligned());
    Row::new([Line::from(name)].into_iter().chain(metrics))
        .style(Style::new().fg(Color::Black).bg(Color::Gray))
}

fn draw_nodes(frame: &mut Frame<'_>, rates: &Rates, area: Rect) {
    let name_width = area.width.saturating_sub(28);
    let right = |text: String| Line::from(text).right_aligned();
    let rows = rates.nodes.iter().map(|node| {
        let (state, style) = match (node.silent_queues, node.errors) {
            (0, 0) => ("ok".to_owned(), Style::new().fg(Color::Green)),
            (0, errors) => (
                format!("{}!", number(errors as f64)),
                Style::new().fg(Color::Yellow),
            ),
            (_, _) => ("silent".to_owned(), Style::new().fg(Color::Red)),
        };
        let (state, style) = match node.leaving_pages {
            0 => (state, style),
            left => (format!("-{}", number(left as f64)), style),
        };
        Row::new([
            Line::from(cut(&node.name, usize::from(name_width))),
            right(format!(
                "{}/{}",
                size(node.used_bytes),
                size(node.total_bytes)
            )),
            right(number(node.reads_per_second)),
            Line::styled(state, style).right_aligned(),
        ])
    });
    let widths = [
        Constraint::Length(name_width),
        Constraint::Length(12),
        Constraint::Length(6),
        Constraint::Length(6),
    ];
    let header = title("memory node", ["used/claimed", "READ/s", "state"]);
    frame.render_widget(
        Table::new(rows, widths).column_spacing(1).header(header),
        area,
    );
}

fn draw_keys(frame: &mut Frame<'_>, rates: &Rates, area: Rect) {
    let key_width = area.width.saturating_sub(8);
    let rows = rates.hot_keys.iter().map(|hot| {
        Row::new([
            Line::from(cut(&hot.key, usize::from(key_width))),
            Line::from(format!("{:.1}", hot.share * 100.0)).right_aligned(),
        ])
    });
    let widths = [Constraint::Length(key_width), Constraint::Length(6)];
    let header = title("hot key", ["%"]);
    frame.render_widget(
        Table::new(rows, widths).column_spacing(1).header(header),
        area,
    );
}
