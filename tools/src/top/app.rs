//! The state of the view, and how samples and keys change it.
//!
//! It does no I/O and reads no clock, so tests drive it directly. Histories are bounded.

use std::collections::VecDeque;
use std::time::Duration;

use farcore::Report;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::column::{COLUMNS, GROUPS};
use crate::watch::rates::{CoreRates, Rates};

/// Most samples of a sparkline: one for each column of a wide terminal.
const HISTORY: usize = 512;
/// Intervals that `+` and `-` select, in milliseconds.
const INTERVALS_MS: [u64; 6] = [250, 500, 1_000, 2_000, 5_000, 10_000];

/// What the caller must do after a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    None,
    Quit,
    /// Sample at the new interval.
    Interval,
    /// Switch to the next engine.
    NextEngine,
    /// Give the terminal back and stop until the shell continues the command.
    Suspend,
}

/// The view's state.
#[derive(Debug)]
pub(super) struct App {
    /// The last report, for the next difference.
    last: Option<Report>,
    /// The figures shown; the last known ones while the engine is lost.
    pub(super) rates: Option<Rates>,
    /// Why there is no new report.
    pub(super) lost: Option<String>,
    /// Operations a second, the newest last.
    pub(super) operations: VecDeque<u64>,
    /// READs a second.
    pub(super) reads: VecDeque<u64>,
    pub(super) paused: bool,
    pub(super) help: bool,
    pub(super) interval: Duration,
    /// The column that rows are sorted by; 0 for the order of the cores.
    pub(super) sort: usize,
    /// The group of columns that comes first.
    pub(super) first_group: usize,
    /// Rows of cores above the first visible one.
    pub(super) scrolled: usize,
    /// The path of the engine, for the header.
    pub(super) path: String,
}

fn whole(rate: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates are not negative, and a cast saturates"
    )]
    let whole = rate as u64;
    whole
}

fn push(history: &mut VecDeque<u64>, value: u64) {
    if history.len() == HISTORY {
        history.pop_front();
    }
    history.push_back(value);
}

impl App {
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            last: None,
            rates: None,
            lost: None,
            operations: VecDeque::new(),
            reads: VecDeque::new(),
            paused: false,
            help: false,
            interval,
            sort: 0,
            first_group: 0,
            scrolled: 0,
            path: String::new(),
        }
    }

    /// Shows a report of the engine at a path, or the reason that there is none.
    pub(super) fn on_sample(&mut self, path: String, sample: Result<Report, String>) {
        if self.paused {
            return;
        }
        self.path = path;
        let report = match sample {
            Ok(report) => report,
            Err(why) => {
                self.lost = Some(why);
                return;
            }
        };
        self.lost = None;
        if let Some(last) = &self.last {
            match Rates::between(last, &report) {
                Some(rates) => {
                    push(
                        &mut self.operations,
                        whole(rates.total.operations_per_second),
                    );
                    push(&mut self.reads, whole(rates.total.reads_per_second));
                    self.rates = Some(rates);
                }
                // The first report of another engine: the history is not its.
                None => {
                    self.rates = None;
                    self.operations.clear();
                    self.reads.clear();
                    self.scrolled = 0;
                }
            }
        }
        self.last = Some(report);
    }

    /// The cores' rows in display order.
    pub(super) fn rows(&self) -> Vec<&CoreRates> {
        let Some(rates) = &self.rates else {
            return Vec::new();
        };
        let mut rows: Vec<&CoreRates> = rates.cores.iter().collect();
        if self.sort > 0 {
            let rank = COLUMNS[self.sort].rank;
            rows.sort_by(|one, other| rank(other).total_cmp(&rank(one)));
        }
        rows
    }

    fn change_interval(&mut self, longer: bool) -> Action {
        let now = self.interval.as_millis();
        let mut choices = INTERVALS_MS.into_iter();
        let next = if longer {
            choices.find(|&one| u128::from(one) > now)
        } else {
            choices.rev().find(|&one| u128::from(one) < now)
        };
        let Some(next) = next else {
            return Action::None;
        };
        self.interval = Duration::from_millis(next);
        Action::Interval
    }

    /// Handles a key.
    pub(super) fn on_key(&mut self, key: KeyEvent) -> Action {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if control => return Action::Quit,
            KeyCode::Char('z') if control => return Action::Suspend,
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Esc if !self.help => return Action::Quit,
            // Any key closes the help.
            _ if self.help => self.help = false,
            KeyCode::Char('h' | '?') => self.help = true,
            KeyCode::Char('p' | ' ') => {
                self.paused = !self.paused;
                // A difference over the pause would be an average of that time.
                self.last = None;
            }
            KeyCode::Char('s') => self.sort = (self.sort + 1) % COLUMNS.len(),
            KeyCode::Char('S') => self.sort = (self.sort + COLUMNS.len() - 1) % COLUMNS.len(),
            KeyCode::Char('+' | '=') => return self.change_interval(true),
            KeyCode::Char('-') => return self.change_interval(false),
            KeyCode::Char('n') => return Action::NextEngine,
            KeyCode::Tab => self.first_group = (self.first_group + 1) % GROUPS,
            KeyCode::BackTab => self.first_group = (self.first_group + GROUPS - 1) % GROUPS,
            KeyCode::Down | KeyCode::Char('j') => {
                let cores = self.rates.as_ref().map_or(0, |rates| rates.cores.len());
                self.scrolled = (self.scrolled + 1).min(cores.saturating_sub(1));
            }
            KeyCode::Up | KeyCode::Char('k') => self.scrolled = self.scrolled.saturating_sub(1),
            KeyCode::Home => self.scrolled = 0,
            _ => {}
        }
        Action::None
    }
}
