//! Views as plain text, one an interval, for pipes, files and terminals that cannot draw.
//!
//! - I1: a closed pipe ends the command without an error.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::app::App;
use super::{default_size, picture, view};
use crate::watch::source::Source;

/// The text to print after a sample; `None` if it says what the last one said.
fn text(app: &App, last_lost: &mut Option<String>) -> Option<String> {
    if app.lost.is_some() {
        let is_new = app.lost != *last_lost;
        last_lost.clone_from(&app.lost);
        let why = app.lost.as_deref().unwrap_or_default();
        return is_new.then(|| format!("{why}\nwaiting for an engine\n"));
    }
    *last_lost = None;
    // The first report has no rates yet.
    app.rates.as_ref()?;
    Some(picture::text(&view(app, default_size())))
}

/// Whether the reader of a pipe has closed it, without a write that would show it.
fn is_closed(out: &impl AsFd) -> bool {
    let mut one = [PollFd::new(out, PollFlags::empty())];
    poll(&mut one, Some(&Timespec::default())).is_ok() && one[0].revents().contains(PollFlags::ERR)
}

/// Prints views until the reader closes the pipe or a signal ends the process.
pub(super) fn watch(source: Source, app: &mut App) -> Result<()> {
    let (sender, samples) = mpsc::channel();
    // Without an order the interval stays. The thread ends with the process.
    let (_order, orders) = mpsc::channel();
    let interval = app.interval;
    thread::Builder::new()
        .name("samples".to_owned())
        .spawn(move || source.run(interval, &orders, &sender))
        .context("cannot start a thread")?;
    let mut last_lost = None;
    let mut out = io::stdout().lock();
    for (path, sample) in samples {
        app.on_sample(path, sample);
        let Some(text) = text(app, &mut last_lost) else {
            if is_closed(&out) {
                break;
            }
            continue;
        };
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break,
            Err(error) => return Err(error).context("standard output cannot be written"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_lost_engine_is_named_once() {
        let mut app = App::new(Duration::from_secs(1));
        let mut last = None;
        assert_eq!(text(&app, &mut last), None, "nothing was sampled");
        for (why, is_said) in [("gone", true), ("gone", false), ("elsewhere", true)] {
            app.on_sample("p".to_owned(), Err(why.to_owned()));
            let said = text(&app, &mut last);
            assert_eq!(said.is_some(), is_said, "{why}");
            assert!(said.is_none_or(|said| said.starts_with(why) && said.contains("waiting")));
        }
    }
}
