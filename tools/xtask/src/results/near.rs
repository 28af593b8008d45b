//! How near each other the cores were: on a virtual machine they may be threads of one processor now and of two in a minute, and
//! figures of the one are none of the other.

use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};

use super::figures::Report;

/// Runs of one command, at most, until its cores are near.
const RUNS_MAX: u32 = 60;
/// Before the next of them.
const PAUSE: Duration = Duration::from_secs(5);

/// Takes only what was measured while a cache line went from one core to the other and back within a limit.
#[derive(Clone, Debug)]
pub(super) struct Near {
    /// Nanoseconds.
    pub(super) limit_ns: u64,
    /// Runs whose figures were dropped so far.
    pub(super) dropped: u32,
    pause: Duration,
}

impl Near {
    pub(super) fn new(limit_ns: u64) -> Self {
        Self {
            limit_ns,
            dropped: 0,
            pause: PAUSE,
        }
    }

    /// Runs a command until its cores were near each other, or it used only one.
    ///
    /// # Errors
    /// The command's; they never were.
    pub(super) fn measure(&mut self, mut run: impl FnMut() -> Result<Report>) -> Result<Report> {
        let mut nearest_ns = f64::INFINITY;
        for _ in 0..RUNS_MAX {
            let report = run()?;
            match report.line_trip_ns() {
                Some(trip_ns) if trip_ns > self.limit_ns as f64 => {
                    nearest_ns = nearest_ns.min(trip_ns);
                }
                _ => return Ok(report),
            }
            self.dropped += 1;
            println!("dropped: a cache line took up to {nearest_ns:.0} ns there and back");
            thread::sleep(self.pause);
        }
        bail!(
            "a cache line took {nearest_ns:.0} ns there and back at the best of {RUNS_MAX} runs: raise --line-trip-max, which is {}",
            self.limit_ns
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::Run;
    use super::*;

    fn near() -> Near {
        Near {
            pause: Duration::ZERO,
            ..Near::new(200)
        }
    }

    fn report(trips: &[Option<f64>]) -> Report {
        let run = |&line_trip_ns: &Option<f64>| Run {
            line_trip_ns,
            ..Run::default()
        };
        Report {
            runs: trips.iter().map(run).collect(),
            ..Report::default()
        }
    }

    #[test]
    fn what_was_measured_far_apart_is_measured_again() {
        let mut near = near();
        let mut trips = [[90.0, 540.0], [201.0, 100.0], [200.0, 100.0], [0.0, 0.0]].into_iter();
        let taken = near.measure(|| Ok(report(&trips.next().unwrap().map(Some))));
        assert_eq!(taken.unwrap(), report(&[Some(200.0), Some(100.0)]));
        assert_eq!((near.dropped, trips.count()), (2, 1));
    }

    #[test]
    fn one_core_is_near_itself() {
        let mut near = near();
        assert!(near.measure(|| Ok(report(&[None, None]))).is_ok());
        assert_eq!(near.dropped, 0);
    }

    #[test]
    fn cores_that_stay_apart_are_told_with_their_distance() {
        let mut trips = (0..).map(|run| 540.0 - f64::from(run % 7));
        let error = near()
            .measure(|| Ok(report(&[trips.next()])))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("534 ns") && error.contains("is 200"),
            "{error}"
        );
        assert!(near().measure(|| bail!("no such file")).is_err());
    }
}
