//! Repeats a run whose cores were too far apart, by the round trip of a cache line that the
//! benchmark reports.
//!
//! The cores of a virtual machine can be near each other in one minute and apart in the next, and
//! the throughput of two near cores can be nearly twice that of two cores apart.

use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};

use super::FOLDER;
use super::figures::Report;

/// Most runs of one command.
const RUNS_MAX: u32 = 20;
/// Pause before a repeated run.
const REST: Duration = Duration::from_secs(5);

/// The longest accepted round trip.
#[derive(Clone, Copy, Debug)]
pub(super) struct TripLimit {
    pub(super) ns: u64,
    rest: Duration,
}

impl TripLimit {
    pub(super) fn new(ns: u64) -> Self {
        Self { ns, rest: REST }
    }

    /// Why a run on two cores is refused; `None` if it is accepted.
    fn objection(self, report: &Report) -> Option<String> {
        match report.line_trip_ns() {
            Some(trip_ns) if trip_ns <= self.ns as f64 => None,
            Some(trip_ns) => Some(format!("a cache line took {trip_ns:.0} ns there and back")),
            None => Some("the round trip of a cache line is not known".to_owned()),
        }
    }

    /// Runs a command on `cores` cores until a run is accepted. Returns its figures and the number
    /// of refused runs; `put_aside` keeps the figures of each. On one core the first run is
    /// accepted.
    ///
    /// # Errors
    /// A run failed, its figures could not be put aside, or all [`RUNS_MAX`] runs were refused.
    pub(super) fn measure(
        self,
        cores: usize,
        mut run: impl FnMut() -> Result<Report>,
        mut put_aside: impl FnMut(u32) -> Result<()>,
    ) -> Result<(Report, u32)> {
        let mut refused = 0;
        loop {
            let report = run()?;
            let objection = self.objection(&report).filter(|_| cores > 1);
            let Some(objection) = objection else {
                return Ok((report, refused));
            };
            refused += 1;
            put_aside(refused)?;
            println!("run refused: {objection}");
            if refused == RUNS_MAX {
                bail!(
                    "{RUNS_MAX} runs were refused, the last because {objection}: raise --line-trip-ns-max, which is {}, or try again \
                     later; the figures are in {FOLDER}",
                    self.ns
                );
            }
            thread::sleep(self.rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::figures::Run;
    use super::*;

    const LIMIT: TripLimit = TripLimit {
        ns: 200,
        rest: Duration::ZERO,
    };

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
    fn runs_with_a_longer_or_unknown_trip_are_repeated() {
        let trips = [
            [Some(90.0), Some(540.0)],
            [None, None],
            [Some(90.0), None],
            [Some(201.0), Some(100.0)],
            [Some(200.0), Some(100.0)],
            [Some(1.0), Some(1.0)],
        ];
        let (mut runs, mut aside) = (trips.iter(), Vec::new());
        let (taken, refused) = LIMIT
            .measure(
                2,
                || Ok(report(runs.next().unwrap())),
                |number| {
                    aside.push(number);
                    Ok(())
                },
            )
            .unwrap();
        assert_eq!(taken, report(&[Some(200.0), Some(100.0)]));
        assert_eq!((refused, runs.count(), aside), (4, 1, vec![1, 2, 3, 4]));
    }

    #[test]
    fn on_one_core_the_first_run_is_accepted() {
        for trip_ns in [None, Some(540.0)] {
            let (taken, refused) = LIMIT
                .measure(1, || Ok(report(&[trip_ns])), |_| bail!("put aside"))
                .unwrap();
            assert_eq!((taken, refused), (report(&[trip_ns]), 0));
        }
    }

    #[test]
    fn it_gives_up_with_a_reason() {
        let (mut runs, mut aside) = (0, 0);
        let error = LIMIT.measure(
            2,
            || {
                runs += 1;
                Ok(report(&[Some(540.0)]))
            },
            |number| {
                aside = number;
                Ok(())
            },
        );
        let error = error.unwrap_err().to_string();
        assert_eq!((runs, aside), (RUNS_MAX, RUNS_MAX));
        assert!(
            error.contains("540 ns") && error.contains("which is 200"),
            "{error}"
        );
        let away = || Ok(report(&[Some(540.0)]));
        assert!(LIMIT.measure(2, away, |_| bail!("no room")).is_err());
        assert!(
            LIMIT
                .measure(2, || bail!("no such file"), |_| Ok(()))
                .is_err()
        );
    }
}
