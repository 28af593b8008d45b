//! Reads the output of Redis's `runtest`.

use std::time::Duration;

use crate::limited::Run;

/// What a unit's tests gave.
#[derive(Debug, Default)]
pub(super) struct UnitReport {
    pub(super) passed: usize,
    pub(super) failures: Vec<Failure>,
    /// Left out by name.
    pub(super) skipped: Vec<String>,
    /// Left out by tag, or because the server is not the suite's own.
    pub(super) ignored: usize,
    pub(super) took: Duration,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) test: String,
    pub(super) detail: String,
}

/// A failure that belongs to no test.
const OUTSIDE: &str = "outside a test";
/// A failure of a test that did not end.
const HANGS: &str = "no progress: it hangs";

impl UnitReport {
    pub(super) fn of(run: &Run) -> Self {
        let mut report = Self::parse(&run.output);
        report.took = run.took;
        if run.status.is_none() {
            let last = last_test(&run.output);
            report.fail(
                OUTSIDE,
                &format!("the time limit ended the unit after: {last}"),
            );
        } else if report.failures.is_empty() && !run.status.is_some_and(|status| status.success()) {
            report.fail(OUTSIDE, last_lines(&run.output));
        }
        report
    }

    fn parse(output: &str) -> Self {
        let mut report = Self::default();
        let lines: Vec<_> = output.lines().collect();
        let mut is_complete = false;
        for (at, line) in lines.iter().enumerate() {
            let Some((status, rest)) = status_of(line) else {
                if let Some((_, test)) = line.split_once(" => (IN PROGRESS) ") {
                    report.fail(test, HANGS);
                }
                continue;
            };
            match status {
                "ok" => report.passed += 1,
                "skip" => report.skipped.push(rest.to_owned()),
                "ignore" => report.ignored += 1,
                // The summary at the end repeats failures behind "!!!" or "***", not at a line's
                // start.
                "err" => {
                    let test = rest.split_once(" in tests/").map_or(rest, |(test, _)| test);
                    report.fail(test, detail(&lines[at + 1..]));
                }
                "exception" => report.fail(OUTSIDE, rest),
                status if status.ends_with(" done") => is_complete = true,
                _ => {}
            }
        }
        if !is_complete && report.failures.is_empty() && report.passed > 0 {
            let last = last_test(output);
            report.fail(OUTSIDE, &format!("the unit broke off after: {last}"));
        }
        report
    }

    fn fail(&mut self, test: &str, detail: &str) {
        self.failures.push(Failure {
            test: test.to_owned(),
            detail: detail.trim().to_owned(),
        });
    }

    /// Removes the failure of the test that hung.
    pub(super) fn take_hang(&mut self) -> Option<Failure> {
        let mut failures = self.failures.iter();
        let at = failures.position(|failure| failure.detail == HANGS)?;
        Some(self.failures.remove(at))
    }

    /// Tests that were meant to run.
    pub(super) fn all(&self) -> usize {
        self.passed + self.failures.len() + self.skipped.len()
    }

    /// Adds a unit to its group.
    pub(super) fn add(&mut self, unit: Self) {
        self.passed += unit.passed;
        self.failures.extend(unit.failures);
        self.skipped.extend(unit.skipped);
        self.ignored += unit.ignored;
        self.took += unit.took;
    }
}

/// Splits `[STATUS]: REST`.
fn status_of(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix('[')?.split_once("]: ")
}

/// The reason of a failure, from the lines after it. The suite cuts ten characters off an error
/// that is no failed assertion, and repeats it in full.
fn detail<'a>(after: &[&'a str]) -> &'a str {
    let mut reasons = after.iter().take_while(|line| status_of(line).is_none());
    let first = reasons.next().copied().unwrap_or_default();
    match reasons.next() {
        Some(whole) if !first.is_empty() && whole.ends_with(first) => whole,
        _ => first,
    }
}

/// The last test that ended.
fn last_test(output: &str) -> &str {
    let ended = |line| match status_of(line) {
        Some(("ok" | "err", test)) => Some(test),
        _ => None,
    };
    output.lines().rev().find_map(ended).unwrap_or("its start")
}

/// The last line that says something.
fn last_lines(output: &str) -> &str {
    let mut lines = output.lines().rev();
    lines
        .find(|line| !line.trim().is_empty())
        .unwrap_or("it printed nothing")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(report: &UnitReport) -> Vec<(&str, &str)> {
        (report.failures.iter())
            .map(|failure| (failure.test.as_str(), failure.detail.as_str()))
            .collect()
    }

    #[test]
    fn tests_are_counted_by_their_status() {
        let output = "Starting test server at port 21079\n\
            [ready]: 29939\n\
            Testing unit/type/string\n\
            [ok]: SET and GET an item (1 ms)\n\
            [ignore]: Tag: slow denied\n\
            [skip]: MGET\n\
            [err]: GETEX EX option in tests/unit/type/string.tcl\n\
            Expected '1' to equal or match '2'\n\
            [err]: LCS basic in tests/unit/type/string.tcl\n\
            n command 'lcs'\n\
            ERR unknown command 'lcs'\n\
            while executing\n\
            [ok]: LCS len (0 ms)\n\
            [1/1 done]: unit/type/string (3 seconds)\n\
            !!! WARNING The following tests failed:\n\
            *** [err]: GETEX EX option in tests/unit/type/string.tcl\n";
        let report = UnitReport::parse(output);
        assert_eq!((report.passed, report.ignored, report.all()), (2, 1, 5));
        assert_eq!(report.skipped, ["MGET"]);
        let failures = [
            ("GETEX EX option", "Expected '1' to equal or match '2'"),
            ("LCS basic", "ERR unknown command 'lcs'"),
        ];
        assert_eq!(names(&report), failures);
    }

    #[test]
    fn a_test_that_hangs_is_named() {
        let output = "[ok]: MULTI (0 ms)\n\
            [TIMEOUT]: clients state report follows.\n\
            sock5581 => (IN PROGRESS) EXEC works\n\
            Killing still running Redis server\n";
        let mut report = UnitReport::parse(output);
        assert_eq!(names(&report), [("EXEC works", HANGS)]);
        let hang = report.take_hang().unwrap();
        assert_eq!(
            (hang.test.as_str(), report.take_hang()),
            ("EXEC works", None)
        );
    }

    #[test]
    fn a_unit_that_breaks_off_has_failed() {
        let report =
            UnitReport::parse("[ok]: A (0 ms)\n[exception]: Executing test client: ERR x\n");
        assert_eq!(names(&report), [(OUTSIDE, "Executing test client: ERR x")]);
        let report = UnitReport::parse("[ok]: A (0 ms)\n");
        assert_eq!(
            names(&report),
            [(OUTSIDE, "the unit broke off after: A (0 ms)")]
        );
    }
}
