//! Parses the JSON of `farcore-bench --json`, and groups the reports of several rounds. A missing
//! figure is an error that names it.

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// One command's figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Report {
    /// The machine.
    pub(super) machine: Machine,
    /// One entry for each engine.
    pub(super) runs: Vec<Run>,
}

/// The machine, as the benchmark reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Machine {
    /// Model of the processor.
    pub(super) cpu_model: String,
    /// Cores that the benchmark may use.
    pub(super) cores: usize,
    /// Memory of the machine.
    pub(super) memory_bytes: u64,
    /// Kernel release.
    pub(super) kernel: String,
    /// Setting of transparent huge pages.
    pub(super) huge_pages: String,
    /// Compiler.
    pub(super) rustc: String,
}

/// One engine's figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Run {
    /// The engine.
    pub(super) engine: String,
    /// The phases, in order.
    pub(super) phases: Vec<Phase>,
    /// Time of all phases.
    pub(super) total_seconds: f64,
    /// Round trip of a cache line between two cores; `None` on one core.
    pub(super) line_trip_ns: Option<f64>,
    /// Time to open the engine.
    pub(super) startup_seconds: f64,
    /// Bytes of the index for each key; 0 if the engine does not know.
    pub(super) index_bytes_per_key: f64,
    /// Wrong, missing and unexpected answers.
    pub(super) wrong_values: u64,
}

/// One phase's figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Phase {
    /// The name.
    pub(super) name: String,
    /// Million requests a second.
    pub(super) mops: f64,
    /// Median latency.
    pub(super) p50_ns: f64,
    /// Exceeded by one request in a hundred.
    pub(super) p99_ns: f64,
    /// Exceeded by one request in a thousand.
    pub(super) p999_ns: f64,
    /// READs of far memory for each request.
    pub(super) far_reads_per_op: f64,
}

impl Report {
    /// Parses a report.
    ///
    /// # Errors
    /// A figure is missing, or an engine occurs twice.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(text)?;
        let runs: Result<Vec<Run>> = list(&value, "runs")?.iter().map(run).collect();
        let runs = runs?;
        for (place, run) in runs.iter().enumerate() {
            if runs[..place].iter().any(|other| other.engine == run.engine) {
                bail!("{} occurs twice", run.engine);
            }
        }
        let machine = machine(&value["machine"])?;
        Ok(Self { machine, runs })
    }

    fn engines(&self) -> Vec<&str> {
        self.runs.iter().map(|run| &*run.engine).collect()
    }

    /// The longest round trip of a cache line of all runs; `None` if a run does not report it.
    pub(super) fn line_trip_ns(&self) -> Option<f64> {
        let trips: Option<Vec<f64>> = self.runs.iter().map(|run| run.line_trip_ns).collect();
        trips?.into_iter().max_by(f64::total_cmp)
    }

    /// The figures of an engine.
    pub(super) fn run(&self, engine: &str) -> Option<&Run> {
        self.runs.iter().find(|run| run.engine == engine)
    }
}

/// One command's figures of one or more rounds.
#[derive(Clone, Debug)]
pub(super) struct Rounds(Vec<Report>);

impl Rounds {
    /// The rounds of one command.
    ///
    /// # Errors
    /// There is no round, or engines or phases differ between rounds.
    pub(super) fn new(reports: Vec<Report>) -> Result<Self> {
        let first = reports.first().context("nothing was measured")?;
        for other in &reports[1..] {
            let (was, is) = (first.engines(), other.engines());
            if was != is {
                bail!(
                    "one round is of {}, another of {}",
                    was.join(", "),
                    is.join(", ")
                );
            }
            for (was, is) in first.runs.iter().zip(&other.runs) {
                let (was_of, is_of) = (was.phase_names(), is.phase_names());
                if was_of != is_of {
                    let (was_of, is_of) = (was_of.join(", "), is_of.join(", "));
                    bail!(
                        "{} has the phases {was_of} in one round, {is_of} in another",
                        was.engine
                    );
                }
            }
        }
        Ok(Self(reports))
    }

    /// The machine of the first round.
    pub(super) fn machine(&self) -> &Machine {
        &self.0[0].machine
    }

    /// An engine's figures in each round; empty if it did not run.
    pub(super) fn of(&self, engine: &str) -> Vec<&Run> {
        self.0
            .iter()
            .filter_map(|report| report.run(engine))
            .collect()
    }

    /// The figures of every engine and round.
    pub(super) fn all(&self) -> impl Iterator<Item = &Run> {
        self.0.iter().flat_map(|report| &report.runs)
    }
}

/// The median: the middle figure, or the mean of the two middle ones.
pub(super) fn median(figures: impl Iterator<Item = f64>) -> Option<f64> {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_unstable_by(f64::total_cmp);
    let low = figures.get(figures.len().checked_sub(1)? / 2)?;
    Some(f64::midpoint(*low, figures[figures.len() / 2]))
}

impl Run {
    fn phase_names(&self) -> Vec<&str> {
        self.phases.iter().map(|phase| &*phase.name).collect()
    }

    /// The figures of a phase.
    pub(super) fn phase(&self, name: &str) -> Option<&Phase> {
        self.phases.iter().find(|phase| phase.name == name)
    }
}

fn machine(value: &Value) -> Result<Machine> {
    Ok(Machine {
        cpu_model: text(value, "cpu_model")?,
        cores: list(value, "cores")?.len(),
        memory_bytes: count(value, "memory_bytes")?,
        kernel: text(value, "kernel")?,
        huge_pages: text(value, "huge_pages")?,
        // Missing if `rustc` is not on the path.
        rustc: text(value, "rustc").unwrap_or_else(|_| "unknown".to_owned()),
    })
}

fn run(value: &Value) -> Result<Run> {
    let phases: Result<Vec<Phase>> = list(value, "phases")?.iter().map(phase).collect();
    Ok(Run {
        engine: text(value, "engine")?,
        phases: phases?,
        total_seconds: number(value, "total_seconds")?,
        line_trip_ns: value["line_trip_ns"].as_f64(),
        startup_seconds: number(value, "startup_seconds")?,
        index_bytes_per_key: number(value, "index_bytes_per_key")?,
        wrong_values: count(value, "wrong_values")?,
    })
}

fn phase(value: &Value) -> Result<Phase> {
    Ok(Phase {
        name: text(value, "name")?,
        mops: number(value, "mops")?,
        p50_ns: number(value, "p50_ns")?,
        p99_ns: number(value, "p99_ns")?,
        p999_ns: number(value, "p999_ns")?,
        far_reads_per_op: number(value, "far_reads")? / number(value, "ops")?.max(1.0),
    })
}

pub(super) fn list<'a>(value: &'a Value, name: &str) -> Result<&'a Vec<Value>> {
    value[name].as_array().with_context(|| format!("no {name}"))
}

pub(super) fn text(value: &Value, name: &str) -> Result<String> {
    let text = value[name].as_str().map(str::to_owned);
    text.with_context(|| format!("no {name}"))
}

pub(super) fn number(value: &Value, name: &str) -> Result<f64> {
    value[name].as_f64().with_context(|| format!("no {name}"))
}

pub(super) fn count(value: &Value, name: &str) -> Result<u64> {
    value[name].as_u64().with_context(|| format!("no {name}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(engines: &[&str]) -> Value {
        let phase = json!({"name": "hot", "mops": 6.5, "p50_ns": 7, "p99_ns": 8, "p999_ns": 9, "far_reads": 3, "ops": 6});
        let runs: Vec<Value> = engines
            .iter()
            .map(|engine| {
                json!({
                    "engine": engine, "phases": [phase], "total_seconds": 2.5, "startup_seconds": 0.1, "line_trip_ns": 99,
                    "index_bytes_per_key": 9.8, "wrong_values": 0, "compaction": {},
                })
            })
            .collect();
        let machine = json!({
            "cpu_model": "x", "cores": [0, 1], "memory_bytes": 5, "kernel": "6", "huge_pages": "never", "rustc": null,
        });
        json!({"machine": machine, "runs": runs})
    }

    #[test]
    fn a_report_of_the_benchmark_is_parsed() {
        let report = Report::parse(&report(&["farcore", "scc"]).to_string()).unwrap();
        assert_eq!(
            (report.machine.cores, &*report.machine.rustc),
            (2, "unknown")
        );
        let hot = report.run("scc").and_then(|run| run.phase("hot")).unwrap();
        assert_eq!(
            (hot.mops, hot.p999_ns, hot.far_reads_per_op),
            (6.5, 9.0, 0.5)
        );
        assert!(report.run("moka").is_none());
    }

    #[test]
    fn a_missing_figure_is_named() {
        let mut report = report(&["farcore"]);
        report["runs"][0]["phases"][0]["mops"].take();
        let error = Report::parse(&report.to_string()).unwrap_err();
        assert_eq!(error.to_string(), "no mops");
    }

    #[test]
    fn the_median_is_the_middle_or_the_mean_of_two() {
        let of = |figures: &[f64]| median(figures.iter().copied());
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(of(&[9.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!((of(&[7.0]), of(&[])), (Some(7.0), None));
    }

    #[test]
    fn rounds_must_have_the_same_engines_and_phases() {
        let parse = |value: &Value| Report::parse(&value.to_string()).unwrap();
        let [one, two] = [&["farcore"][..], &["farcore", "scc"]].map(|names| parse(&report(names)));
        let mut value = report(&["farcore"]);
        let phases = value["runs"][0]["phases"].as_array_mut().unwrap();
        phases.push(phases[0].clone());
        let longer = parse(&value);
        let rounds = Rounds::new(vec![two.clone(), two.clone()]).unwrap();
        assert_eq!((rounds.of("scc").len(), rounds.all().count()), (2, 4));
        assert!(rounds.of("moka").is_empty());
        for (other, named) in [
            (two, "scc"),
            (longer, "hot, hot"),
            (Report::default(), "farcore"),
        ] {
            for rounds in [[one.clone(), other.clone()], [other.clone(), one.clone()]] {
                let error = Rounds::new(rounds.to_vec()).unwrap_err().to_string();
                assert!(error.contains(named), "{error}");
            }
        }
        assert!(Rounds::new(Vec::new()).is_err());
    }

    #[test]
    fn an_engine_that_occurs_twice_is_an_error() {
        let error = Report::parse(&report(&["scc", "scc"]).to_string()).unwrap_err();
        assert!(error.to_string().contains("scc occurs twice"), "{error}");
    }
}
