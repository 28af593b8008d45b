//! The progress bar of a phase, on standard error: one line, also on 80 columns; hidden if that is
//! not a terminal.

use std::fmt::Write;
use std::time::Duration;

use indicatif::style::TemplateError;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};

/// Engine and phase, the bar in what is left of the line, the share, the rate and the time.
const REQUESTS: &str = "{prefix:>30!} [{wide_bar}] {percent:>3}% {rate:>9} {elapsed:>4}";
/// Engine and phase, the bar in what is left of the line, the share and the time.
const SECONDS: &str = "{prefix:>30!} [{wide_bar}] {percent:>3}% {elapsed:>4}";

/// One phase's bar.
#[derive(Debug)]
pub struct PhaseBar(ProgressBar);

impl PhaseBar {
    /// A bar of `steps` requests.
    #[must_use]
    pub fn new(engine: &str, phase: &str, steps: u64) -> Self {
        Self::start(engine, phase, steps, REQUESTS)
    }

    /// A bar of a number of seconds; its position counts milliseconds.
    #[must_use]
    pub fn timed(engine: &str, phase: &str, seconds: f64) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a length of time"
        )]
        let milliseconds = (seconds * 1e3) as u64;
        Self::start(engine, phase, milliseconds, SECONDS)
    }

    fn start(engine: &str, phase: &str, steps: u64, template: &str) -> Self {
        let bar = ProgressBar::new(steps);
        if let Ok(style) = style(template) {
            bar.set_style(style);
        }
        bar.set_prefix(format!("{engine} {phase}"));
        bar.enable_steady_tick(Duration::from_millis(250));
        Self(bar)
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

fn style(template: &str) -> Result<ProgressStyle, TemplateError> {
    let write_rate = |state: &ProgressState, text: &mut dyn Write| {
        // A rate that cannot be formatted is left out.
        let _ = text.write_str(&rate(state.per_sec()));
    };
    let style = ProgressStyle::with_template(template)?;
    Ok(style.progress_chars("=> ").with_key("rate", write_rate))
}

/// Requests a second with two significant digits or more, such as `6.4 M/s`.
fn rate(per_second: f64) -> String {
    match per_second {
        1e6.. => format!("{:.1} M/s", per_second / 1e6),
        1e3.. => format!("{:.1} k/s", per_second / 1e3),
        _ => format!("{per_second:.0} /s"),
    }
}

#[cfg(test)]
mod tests {
    use indicatif::{InMemoryTerm, ProgressDrawTarget};

    use super::*;

    #[test]
    fn rates_are_short() {
        assert_eq!(rate(6_412_345.0), "6.4 M/s");
        assert_eq!(rate(123_456_789.0), "123.5 M/s");
        assert_eq!(rate(950_000.0), "950.0 k/s");
        assert_eq!(rate(12.3), "12 /s");
    }

    #[test]
    fn progress_is_one_line_on_80_columns() {
        for template in [REQUESTS, SECONDS] {
            let screen = InMemoryTerm::new(5, 80);
            let target = ProgressDrawTarget::term_like(Box::new(screen.clone()));
            let bar = ProgressBar::with_draw_target(Some(123_456_789_012), target);
            bar.set_style(style(template).unwrap());
            bar.set_prefix("farcore-all-local transactions");
            bar.set_position(1_000);
            bar.tick();
            let text = screen.contents();
            assert_eq!(text.lines().count(), 1, "{text}");
            assert!(
                text.starts_with("farcore-all-local transactions ["),
                "{text}"
            );
            assert_eq!(text.contains("/s"), template == REQUESTS, "{text}");
            bar.finish_and_clear();
        }
    }
}
