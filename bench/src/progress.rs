//! The progress bar of a phase, on standard error; hidden if that is not a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// One phase's bar.
#[derive(Debug)]
pub struct PhaseBar(ProgressBar);

impl PhaseBar {
    /// A bar of `steps` requests.
    #[must_use]
    pub fn new(engine: &str, phase: &str, steps: u64) -> Self {
        let bar = ProgressBar::new(steps);
        let style = ProgressStyle::with_template(
            "{prefix:>20} [{bar:40}] {percent:>3}% {human_pos:>12} ops {per_sec:>16} {elapsed_precise}",
        );
        if let Ok(style) = style {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(format!("{engine} {phase}"));
        bar.enable_steady_tick(Duration::from_millis(250));
        Self(bar)
    }

    /// A bar of a number of seconds; its position counts milliseconds.
    #[must_use]
    pub fn timed(engine: &str, phase: &str, seconds: f64) -> Self {
        let bar = Self::new(engine, phase, 0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a length of time"
        )]
        bar.0.set_length((seconds * 1e3) as u64);
        let style =
            ProgressStyle::with_template("{prefix:>20} [{bar:40}] {percent:>3}% {elapsed_precise}");
        if let Ok(style) = style {
            bar.0.set_style(style.progress_chars("=> "));
        }
        bar
    }

    /// Moves the bar to a number of requests, or milliseconds.
    pub fn set(&self, done: u64) {
        self.0.set_position(done);
    }

    /// Removes the bar from the screen.
    pub fn finish(self) {
        self.0.finish_and_clear();
    }
}
