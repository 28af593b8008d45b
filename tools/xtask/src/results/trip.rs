//! How long a cache line takes from one core to the other and back while something is measured: those of a virtual machine can be near
//! each other in one minute and not in the next, and figures of two cores are by half as high in the one as in the other.

use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};

use super::FOLDER;
use super::figures::Report;

/// Runs of one command, at most.
const RUNS_MAX: u32 = 20;
/// How long the machine rests before it is tried again.
const REST: Duration = Duration::from_secs(5);

/// Up to which round trip figures are taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct TripLimit {
    pub(super) ns: u64,
    rest: Duration,
}

impl TripLimit {
    pub(super) fn new(ns: u64) -> Self {
        Self { ns, rest: REST }
    }

    /// Why the figures of a command on two cores are not taken, if they are not.
    fn objection(self, report: &Report) -> Option<String> {
        match report.line_trip_ns() {
            Some(trip_ns) if trip_ns <= self.ns as f64 => None,
            Some(trip_ns) => Some(format!("a cache line took {trip_ns:.0} ns there and back")),
            None => Some("how long a cache line took there and back is not known".to_owned()),
        }
    }

    /// Makes runs of a command on two cores, which are told how many were made before, until figures are taken; with them how many
    /// were not.
    ///
    /// # Errors
    /// The command's; none of [`RUNS_MAX`] were taken.
    pub(super) fn measure(
        self,
        mut run: impl FnMut(u32) -> Result<Report>,
    ) -> Result<(Report, u32)> {
        let mut refused = 0;
        loop {
            let report = run(refused)?;
            let Some(objection) = self.objection(&report) else {
                return Ok((report, refused));
            };
            refused += 1;
            println!("not taken: {objection}");
            if refused == RUNS_MAX {
                bail!(
                    "{RUNS_MAX} runs were not taken, the last because {objection}: raise --line-trip-ns-max, which is {}, or try it later; \
                     {FOLDER} has what was measured",
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
    fn what_took_longer_or_is_not_known_is_measured_again() {
        let trips = [
            [Some(90.0), Some(540.0)],
            [None, None],
            [Some(90.0), None],
            [Some(201.0), Some(100.0)],
            [Some(200.0), Some(100.0)],
            [Some(1.0), Some(1.0)],
        ];
        let mut runs = 0;
        let (taken, refused) = LIMIT
            .measure(|before| {
                assert_eq!(before, runs);
                runs += 1;
                Ok(report(&trips[before as usize]))
            })
            .unwrap();
        assert_eq!(taken, report(&[Some(200.0), Some(100.0)]));
        assert_eq!((refused, runs), (4, 5));
    }

    #[test]
    fn it_gives_up_and_tells_why() {
        let mut runs = 0;
        let error = LIMIT.measure(|_| {
            runs += 1;
            Ok(report(&[Some(540.0)]))
        });
        let error = error.unwrap_err().to_string();
        assert_eq!(runs, RUNS_MAX);
        assert!(
            error.contains("540 ns") && error.contains("which is 200"),
            "{error}"
        );
        assert!(LIMIT.measure(|_| bail!("no such file")).is_err());
    }
}
