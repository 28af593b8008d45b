//! What `farcore-bench --json` writes, as figures, and the medians of several runs.

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// One command's figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Report {
    /// Where.
    pub(super) machine: Machine,
    /// One entry for each engine.
    pub(super) runs: Vec<Run>,
}

/// The machine, as the benchmark saw it.
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
    /// In the order they ran.
    pub(super) phases: Vec<Phase>,
    /// Sum of the phases.
    pub(super) total_seconds: f64,
    /// A cache line from one core to another and back; `None` where only one was used.
    pub(super) line_trip_ns: Option<f64>,
    /// Opening the engine.
    pub(super) startup_seconds: f64,
    /// Bytes of the index for each key; 0 if the engine does not know.
    pub(super) index_bytes_per_key: f64,
    /// Of all runs together.
    pub(super) wrong_values: u64,
}

/// One phase's figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Phase {
    /// Its name.
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
    /// Reads the form that the benchmark writes.
    ///
    /// # Errors
    /// A figure is not there, or an engine is there twice.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(text)?;
        let runs: Result<Vec<Run>> = list(&value, "runs")?.iter().map(run).collect();
        let runs = runs?;
        for (place, run) in runs.iter().enumerate() {
            if runs[..place].iter().any(|other| other.engine == run.engine) {
                bail!("{} is there twice", run.engine);
            }
        }
        let machine = machine(&value["machine"])?;
        Ok(Self { machine, runs })
    }

    /// The medians of several runs of one command: each figure by itself, and the wrong values of all together.
    ///
    /// # Errors
    /// There is none, or they are not of the same engines and phases.
    pub(super) fn medians(reports: &[Self]) -> Result<Self> {
        let first = reports.first().context("nothing was measured")?;
        let runs = (0..first.runs.len()).map(|place| {
            let runs: Option<Vec<&Run>> = reports.iter().map(|one| one.runs.get(place)).collect();
            Run::medians(&runs.context("an engine did not run each time")?)
        });
        Ok(Self {
            machine: first.machine.clone(),
            runs: runs.collect::<Result<_>>()?,
        })
    }

    /// The figures of an engine.
    pub(super) fn run(&self, engine: &str) -> Option<&Run> {
        self.runs.iter().find(|run| run.engine == engine)
    }
}

/// The middle of some figures, at least one, or the mean of the two that are.
fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_unstable_by(f64::total_cmp);
    let (low, high) = ((figures.len() - 1) / 2, figures.len() / 2);
    f64::midpoint(figures[low], figures[high])
}

impl Run {
    fn medians(runs: &[&Self]) -> Result<Self> {
        let first = runs[0];
        if runs.iter().any(|run| run.engine != first.engine) {
            bail!("{} did not run each time", first.engine);
        }
        let of = |figure: fn(&Self) -> f64| median(runs.iter().map(|run| figure(run)));
        let trips: Vec<f64> = runs.iter().filter_map(|run| run.line_trip_ns).collect();
        let phases = (0..first.phases.len()).map(|place| {
            let phases: Option<Vec<&Phase>> =
                runs.iter().map(|run| run.phases.get(place)).collect();
            Phase::medians(&phases.context("a phase did not run each time")?)
        });
        Ok(Self {
            engine: first.engine.clone(),
            phases: phases.collect::<Result<_>>()?,
            total_seconds: of(|run| run.total_seconds),
            line_trip_ns: (!trips.is_empty()).then(|| median(trips.into_iter())),
            startup_seconds: of(|run| run.startup_seconds),
            index_bytes_per_key: of(|run| run.index_bytes_per_key),
            wrong_values: runs.iter().map(|run| run.wrong_values).sum(),
        })
    }

    /// The figures of a phase.
    pub(super) fn phase(&self, name: &str) -> Option<&Phase> {
        self.phases.iter().find(|phase| phase.name == name)
    }
}

impl Phase {
    fn medians(phases: &[&Self]) -> Result<Self> {
        let first = phases[0];
        if phases.iter().any(|phase| phase.name != first.name) {
            bail!("{} did not run each time", first.name);
        }
        let of = |figure: fn(&Self) -> f64| median(phases.iter().map(|phase| figure(phase)));
        Ok(Self {
            name: first.name.clone(),
            mops: of(|phase| phase.mops),
            p50_ns: of(|phase| phase.p50_ns),
            p99_ns: of(|phase| phase.p99_ns),
            p999_ns: of(|phase| phase.p999_ns),
            far_reads_per_op: of(|phase| phase.far_reads_per_op),
        })
    }
}

fn machine(value: &Value) -> Result<Machine> {
    Ok(Machine {
        cpu_model: text(value, "cpu_model")?,
        cores: list(value, "cores")?.len(),
        memory_bytes: count(value, "memory_bytes")?,
        kernel: text(value, "kernel")?,
        huge_pages: text(value, "huge_pages")?,
        // Not found where `cargo` is and `rustc` is not on the path.
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

fn list<'a>(value: &'a Value, name: &str) -> Result<&'a Vec<Value>> {
    value[name].as_array().with_context(|| format!("no {name}"))
}

fn text(value: &Value, name: &str) -> Result<String> {
    let text = value[name].as_str().map(str::to_owned);
    text.with_context(|| format!("no {name}"))
}

fn number(value: &Value, name: &str) -> Result<f64> {
    value[name].as_f64().with_context(|| format!("no {name}"))
}

fn count(value: &Value, name: &str) -> Result<u64> {
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
    fn the_benchmarks_form_is_understood() {
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
    fn a_lacking_figure_is_named() {
        let mut report = report(&["farcore"]);
        report["runs"][0]["phases"][0]["mops"].take();
        let error = Report::parse(&report.to_string()).unwrap_err();
        assert_eq!(error.to_string(), "no mops");
    }

    #[test]
    fn medians_are_of_each_figure_by_itself() {
        let round = |mops: f64, p50: f64, trip: Option<u64>, wrong: u64| {
            let mut value = report(&["farcore", "scc"]);
            let run = &mut value["runs"][1];
            run["phases"][0]["mops"] = json!(mops);
            run["phases"][0]["p50_ns"] = json!(p50);
            run["line_trip_ns"] = json!(trip);
            run["wrong_values"] = json!(wrong);
            Report::parse(&value.to_string()).unwrap()
        };
        let rounds = [
            round(3.0, 7.0, Some(90), 0),
            round(1.0, 9.0, None, 2),
            round(2.0, 5.0, Some(110), 1),
        ];
        let of = |rounds: &[Report]| Report::medians(rounds).unwrap().runs[1].clone();
        let scc = of(&rounds);
        assert_eq!((scc.phases[0].mops, scc.phases[0].p50_ns), (2.0, 7.0));
        assert_eq!((scc.line_trip_ns, scc.wrong_values), (Some(100.0), 3));
        assert_eq!(of(&rounds[..2]).phases[0].mops, 2.0);
        assert_eq!(of(&rounds[1..2]).line_trip_ns, None);
        let other = Report::parse(&report(&["farcore", "moka"]).to_string()).unwrap();
        for (lacks, other) in [("scc", other), ("engine", Report::default())] {
            let error = Report::medians(&[rounds[0].clone(), other]).unwrap_err();
            assert!(error.to_string().contains(lacks), "{error}");
        }
        assert!(Report::medians(&[]).is_err());
    }

    #[test]
    fn an_engine_that_is_there_twice_is_refused() {
        let error = Report::parse(&report(&["scc", "scc"]).to_string()).unwrap_err();
        assert!(error.to_string().contains("scc is there twice"), "{error}");
    }
}
