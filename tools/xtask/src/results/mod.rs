//! `cargo xtask results`: runs the published configurations and writes docs/results.md.
//!
//! ```text
//! plan     the measurements, and which columns of which table they fill
//! figures  the benchmark's JSON
//! embed    callers of embedded engines: a command and a section of their own
//! facts    machine, date and versions
//! trip     repeats runs in which the cores were too far apart
//! table    rows, the best of each, ratios, losses
//! page     the Markdown page
//! ```
//!
//! All figures of a page are of one commit: the benchmark is built once, and that program does all
//! runs.

mod embed;
mod facts;
mod figures;
mod page;
mod plan;
mod table;
mod trip;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use self::embed::Embedding;
use self::facts::Facts;
use self::figures::{Report, Rounds};
use self::page::Refused;
use self::plan::{Measurement, Plan, Request};
use self::trip::TripLimit;

/// Target folder of the build. It overrides the environment, because the page shows the command.
const TARGET: &str = "target";
/// The benchmark's program.
const BENCHMARK: &str = "target/published/farcore-bench";
/// Folder of the rounds' JSON files.
const FOLDER: &str = "target/results";
/// Where a page's figures begin that other commands measured and that stay as they are.
const APART: &str = "<!-- measured apart -->";
/// The engines of the published page.
const ENGINES: &str = "farcore,dashmap,sharded,locked-lru,scc,papaya,quick-cache,moka,foyer";

#[derive(Debug, Args)]
pub(crate) struct Results {
    /// Rounds: runs of each configuration, in turn with all others; medians are published.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Keys of each core; local and far memory grow with them.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    keys_per_core: u64,
    /// Engines to compare, farcore among them.
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = ENGINES)]
    engines: Vec<String>,
    /// The file of the page.
    #[arg(long, value_name = "FILE", default_value = "docs/results.md")]
    out: PathBuf,
    /// Also compare farcore with fjall and RocksDB, which keep files. RocksDB needs a C++ compiler
    /// and libclang-dev, and takes half an hour of two cores to build.
    #[arg(long)]
    file_stores: bool,
    /// Also run `locked-lru`, the only other engine with a far tier, with little local memory; a
    /// run takes minutes.
    #[arg(long)]
    far_baseline: bool,
    /// Also run an eighth of the contest by its rules, 24 million keys on two cores; takes 6 GiB of
    /// memory and a minute.
    #[arg(long)]
    largest: bool,
    /// Repeat a run on two cores, at most 20 times, if a cache line took longer than this from one
    /// core to the other and back just before or right after the run. A virtual machine's cores can
    /// be near each other in one minute and apart in the next. The page states the number of
    /// repeated runs.
    #[arg(long, value_name = "NS", value_parser = clap::value_parser!(u64).range(1..))]
    line_trip_ns_max: Option<u64>,
    /// Print the commands only.
    #[arg(long)]
    dry_run: bool,
}

impl Results {
    /// The engines without duplicates.
    fn engines(&self) -> Result<Vec<String>> {
        let mut engines: Vec<String> = Vec::new();
        for engine in &self.engines {
            if !engines.contains(engine) {
                engines.push(engine.clone());
            }
        }
        if !engines.iter().any(|engine| engine == plan::OURS) {
            bail!("--engines must name {}: {}", plan::OURS, engines.join(","));
        }
        Ok(engines)
    }
}

/// Arguments of cargo that build the benchmark with these engines.
fn build_arguments(engines: &[String]) -> Vec<&'static str> {
    let rocksdb = engines.iter().any(|engine| engine == "rocksdb");
    let mut arguments = vec!["build", "--profile", crate::PUBLISHED];
    arguments.extend(["--locked", "-p", "farcore-bench"]);
    arguments.extend(["--features", if rocksdb { "rocksdb" } else { "peers" }]);
    arguments.extend(["--target-dir", TARGET]);
    arguments
}

/// Runs one measurement and reads its figures.
fn measure(arguments: &[String], json: &Path) -> Result<Report> {
    // The file of an earlier run must not pass for this run's.
    if json.exists() {
        fs::remove_file(json).with_context(|| format!("cannot remove {}", json.display()))?;
    }
    super::run(Command::new(BENCHMARK).args(arguments))?;
    let text = fs::read_to_string(json).with_context(|| format!("no {}", json.display()))?;
    Report::parse(&text).with_context(|| format!("{} cannot be parsed", json.display()))
}

/// Runs a measurement until a run is accepted; returns its figures and the number of refused runs,
/// whose figures stay in separate files.
fn measure_within(
    limit: Option<TripLimit>,
    measurement: &Measurement,
    round: u32,
) -> Result<(Report, u32)> {
    let json = measurement.json(round);
    let arguments = measurement.arguments_into(&json);
    let Some(limit) = limit else {
        return Ok((measure(&arguments, &json)?, 0));
    };
    let put_aside = |number| {
        let aside = json.with_extension(format!("refused-{number}.json"));
        fs::rename(&json, &aside).with_context(|| format!("no {}", aside.display()))
    };
    limit.measure(measurement.cores, || measure(&arguments, &json), put_aside)
}

/// Runs all measurements round by round, so that slow spells of the machine affect all of them
/// alike.
fn measure_all(
    plan: &Plan,
    limit: Option<TripLimit>,
) -> Result<(BTreeMap<&'static str, Rounds>, Option<Refused>)> {
    let all = &plan.measurements;
    let rounds = all.iter().map(|one| one.rounds).max().unwrap_or(0);
    let count: u32 = all.iter().map(|one| one.rounds).sum();
    let (mut seen, mut refusals) = (0, 0);
    let mut reports = BTreeMap::<_, Vec<Report>>::new();
    for round in 0..rounds {
        for measurement in all.iter().filter(|one| round < one.rounds) {
            seen += 1;
            println!("\n== {seen} of {count}: {}", measurement.command());
            let (report, refused) = measure_within(limit, measurement, round + 1)?;
            reports.entry(measurement.name).or_default().push(report);
            refusals += refused;
        }
    }
    let rounds = |(name, reports): (&'static str, Vec<Report>)| {
        let rounds = Rounds::new(reports).with_context(|| format!("the rounds of {name}"))?;
        Ok((name, rounds))
    };
    let refused = limit.map(|limit| Refused {
        limit_ns: limit.ns,
        runs: refusals,
    });
    let reports: Result<_> = reports.into_iter().map(rounds).collect();
    Ok((reports?, refused))
}

/// The end of an earlier page, which other commands measured: from its marker on.
fn measured_apart(page: &str) -> String {
    let start = page.find(APART);
    start.map_or_else(String::new, |start| format!("\n{}", &page[start..]))
}

pub(crate) fn perform(results: &Results) -> Result<()> {
    let engines = results.engines()?;
    let mut built = engines.clone();
    if results.file_stores {
        built.extend(plan::FILE_STORES.map(str::to_owned));
    }
    let build = build_arguments(&built);
    let facts = Facts::here(&built, format!("cargo {}", build.join(" ")), results.runs)?;
    let cores = facts::cores();
    let (keys, runs) = (results.keys_per_core, results.runs);
    let embedding = Embedding::new(&engines, cores.len(), keys, runs);
    let plan = plan::plan(&Request {
        cores,
        keys_per_core: keys,
        runs,
        engines,
        far_baseline: results.far_baseline,
        file_stores: results.file_stores,
        largest: results.largest,
    })?;
    for note in &plan.notes {
        eprintln!("{note}");
    }
    if results.dry_run {
        println!("{}", facts.build);
        for measurement in &plan.measurements {
            println!("{}", measurement.command());
        }
        for command in embedding.commands() {
            println!("{command}");
        }
        return Ok(());
    }
    // Fail before the runs rather than after them.
    let folder = results.out.parent().unwrap_or(Path::new(""));
    for folder in [folder, Path::new(FOLDER)] {
        fs::create_dir_all(folder).with_context(|| format!("no folder {}", folder.display()))?;
    }
    super::run(super::cargo(&build).env_remove("RUSTFLAGS"))?;
    let limit = results.line_trip_ns_max.map(TripLimit::new);
    let (reports, refused) = measure_all(&plan, limit)?;
    let embedded = embedding.measure()?;
    let out = &results.out;
    let apart = measured_apart(&fs::read_to_string(out).unwrap_or_default());
    let page = page::render(&facts, &plan, &reports, &embedded, refused)? + &apart;
    fs::write(out, page).with_context(|| format!("{} cannot be written", out.display()))?;
    println!("\nwrote {}", out.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        results: Results,
    }

    fn results(flags: &str) -> Results {
        let line = ["results"].into_iter().chain(flags.split_whitespace());
        Line::try_parse_from(line).unwrap().results
    }

    #[test]
    fn rocksdb_is_built_only_if_it_is_run() {
        let with = |flags: &str| {
            let engines = results(flags).engines().unwrap();
            let rocksdb = build_arguments(&engines).contains(&"rocksdb");
            (engines.len(), rocksdb)
        };
        assert_eq!(with(""), (9, false));
        assert_eq!(with("--engines farcore,rocksdb"), (2, true));
        assert_eq!(with("--engines farcore,moka,farcore"), (2, false));
        let stores = plan::FILE_STORES.map(str::to_owned);
        assert!(build_arguments(&stores).contains(&"rocksdb"));
    }

    #[test]
    fn what_was_measured_apart_stays() {
        let page = format!("# Results\n\n{APART}\n\n## Expiry\n");
        assert_eq!(measured_apart(&page), format!("\n{APART}\n\n## Expiry\n"));
        assert_eq!(measured_apart("# Results\n"), "");
    }

    #[test]
    fn a_comparison_without_farcore_is_refused() {
        let error = results("--engines moka,scc").engines().unwrap_err();
        assert!(error.to_string().contains("must name farcore"), "{error}");
    }
}
