//! `cargo xtask results`: runs the published configurations and writes one page of what they gave.
//!
//! ```text
//! plan     what is run, and which columns of which table it fills
//! figures  what the benchmark writes as JSON
//! facts    where, when and with which versions
//! trip     up to which way between the cores figures are taken
//! table    rows, the best of each, ratios, losses
//! page     the Markdown page
//! ```
//!
//! Figures and a page come of the same commit: the benchmark is built once, and that program does
//! all runs.

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

use self::facts::Facts;
use self::figures::{Report, Rounds};
use self::page::Refused;
use self::plan::{Measurement, Plan, Wishes};
use self::trip::TripLimit;

/// Where the build goes, whatever the environment says: the page names it.
const TARGET: &str = "target";
/// The benchmark in it.
const BENCHMARK: &str = "target/release/farcore-bench";
/// Where the rounds leave their JSON, each in a file of its own.
const FOLDER: &str = "target/results";
/// The engines of the published page.
const ENGINES: &str = "farcore,dashmap,sharded,locked-lru,scc,papaya,quick-cache,moka,foyer";

#[derive(Debug, Args)]
pub(crate) struct Results {
    /// Runs of each configuration, in turn with all the others; medians are published.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Keys of each core; local and far memory grow with them.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    keys_per_core: u64,
    /// Engines to compare, farcore among them.
    #[arg(long, value_delimiter = ',', value_name = "LIST", default_value = ENGINES)]
    engines: Vec<String>,
    /// The page.
    #[arg(long, value_name = "FILE", default_value = "docs/results.md")]
    out: PathBuf,
    /// Farcore beside fjall and RocksDB as well, which keep files. RocksDB needs a C++ compiler and
    /// libclang-dev, and half an hour of two cores to build.
    #[arg(long)]
    file_stores: bool,
    /// With little local memory also `locked-lru`, the one other engine with a far tier; takes
    /// minutes a run.
    #[arg(long)]
    far_baseline: bool,
    /// An eighth of the full contest as well, 24 million keys on two cores: takes 10 GiB of memory
    /// and minutes.
    #[arg(long)]
    largest: bool,
    /// Run commands on two cores again, 20 times at most, if a cache line took longer from one to
    /// the other and back just before or right after: a virtual machine's cores can be near each
    /// other in one minute and not in the next. The page tells how many were.
    #[arg(long, value_name = "NS", value_parser = clap::value_parser!(u64).range(1..))]
    line_trip_ns_max: Option<u64>,
    /// Print the commands only.
    #[arg(long)]
    dry_run: bool,
}

impl Results {
    /// The engines, each once.
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
    let mut arguments = vec!["build", "--release", "--locked", "-p", "farcore-bench"];
    arguments.extend(["--features", if rocksdb { "rocksdb" } else { "peers" }]);
    arguments.extend(["--target-dir", TARGET]);
    arguments
}

/// Runs one measurement and reads what it wrote.
fn measure(arguments: &[String], json: &Path) -> Result<Report> {
    // What an earlier run left must not pass for this one's.
    if json.exists() {
        fs::remove_file(json).with_context(|| format!("{} is in the way", json.display()))?;
    }
    super::run(Command::new(BENCHMARK).args(arguments))?;
    let text = fs::read_to_string(json).with_context(|| format!("no {}", json.display()))?;
    Report::parse(&text).with_context(|| format!("{} is not understood", json.display()))
}

/// Runs a measurement until its figures are taken; with them how many were not, which stay in files
/// of their own.
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

/// Runs everything once, and again, so that each measurement has its share of the machine's better
/// and worse minutes, as far as their figures are taken.
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

pub(crate) fn perform(results: &Results) -> Result<()> {
    let engines = results.engines()?;
    let mut built = engines.clone();
    if results.file_stores {
        built.extend(plan::FILE_STORES.map(str::to_owned));
    }
    let build = build_arguments(&built);
    let facts = Facts::here(&built, format!("cargo {}", build.join(" ")), results.runs)?;
    let plan = plan::plan(&Wishes {
        cores: facts::cores(),
        keys_per_core: results.keys_per_core,
        runs: results.runs,
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
        return Ok(());
    }
    // A page that cannot be written is better known before the runs than after.
    let folder = results.out.parent().unwrap_or(Path::new(""));
    for folder in [folder, Path::new(FOLDER)] {
        fs::create_dir_all(folder).with_context(|| format!("no folder {}", folder.display()))?;
    }
    super::run(super::cargo(&build).env_remove("RUSTFLAGS"))?;
    let limit = results.line_trip_ns_max.map(TripLimit::new);
    let (reports, refused) = measure_all(&plan, limit)?;
    let page = page::render(&facts, &plan, &reports, refused)?;
    let out = &results.out;
    fs::write(out, page).with_context(|| format!("{} cannot be written", out.display()))?;
    println!("\nwritten: {}", out.display());
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
    fn rocksdb_is_built_where_it_is_run() {
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
    fn a_comparison_without_farcore_is_refused() {
        let error = results("--engines moka,scc").engines().unwrap_err();
        assert!(error.to_string().contains("must name farcore"), "{error}");
    }
}
