//! The measurements, and which columns of which table they fill.
//!
//! A measurement is one command. A section is one table; its columns may come from several
//! measurements, also from those of earlier sections. Sizes of memory follow from the keys of a
//! core. Nothing is run here.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::{BENCHMARK, FOLDER};

/// The engine that the page is about.
pub(super) const OURS: &str = "farcore";
/// The baseline with a far tier.
const FAR_BASELINE: &str = "locked-lru";
/// Engines that keep files.
pub(super) const FILE_STORES: [&str; 2] = ["fjall", "rocksdb"];
/// Keys of a core beside the file stores, which are slow.
const FILE_STORES_KEYS_PER_CORE: u64 = 200_000;
/// There: local memory, or cache, of a core, and requests of the hot mix of all cores.
const FILE_STORES_LOCAL_MIB: u64 = 12;
const FILE_STORES_HOT_OPS: &str = "400000";
/// Keys of a core that the memory sizes below are for.
const KEYS_PER_CORE: u64 = 1_000_000;
/// Requests in flight on a core.
const WINDOW: u32 = 64;
/// Local memory that holds all records with room for the log, and far memory beside it. More would
/// only slow the start, which touches all memory.
const ALL_LOCAL_MIB: u64 = 2048;
const ALL_LOCAL_MIB_MIN: u64 = 512;
const UNUSED_FAR_MIB: u64 = 256;
/// Local memory of a core for about a quarter of the records: a million of 210 bytes at the mean
/// are 200 MiB.
const LITTLE_LOCAL_MIB: u64 = 50;
/// Least local memory of a core.
const LITTLE_LOCAL_MIB_MIN: u64 = 32;
/// Far memory for the keys of a core.
const FAR_MIB: u64 = 1024;
/// Local memory of a core for uniform reads, most of which must be far.
const UNIFORM_LOCAL_MIB: u64 = 32;
/// Number of uniform reads.
const UNIFORM_READS: &str = "4000000";
/// Skew that concentrates requests on few keys.
const EXTREME_ZIPF: &str = "1.2";
/// Latency added to each far access.
const FAR_LATENCY: &str = "2us";
/// The mode of runs with encryption: that of the contest.
const ENCRYPT: &str = "--encrypt=secrecy-only";

/// The contents of the page.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// Cores that this process may use; the first two are used.
    pub(super) cores: Vec<usize>,
    /// Keys of each core.
    pub(super) keys_per_core: u64,
    /// Runs of each engine.
    pub(super) runs: u32,
    /// Engines to compare.
    pub(super) engines: Vec<String>,
    /// Whether `locked-lru` runs with little local memory.
    pub(super) far_baseline: bool,
    /// Whether the engines that keep files run.
    pub(super) file_stores: bool,
    /// Whether an eighth of the full contest runs.
    pub(super) largest: bool,
}

/// One command.
#[derive(Clone, Debug)]
pub(super) struct Measurement {
    /// Its name, also that of its file.
    pub(super) name: &'static str,
    /// Arguments of the benchmark, without `--json`.
    pub(super) arguments: Vec<String>,
    /// Cores that it uses.
    pub(super) cores: usize,
    /// Number of runs.
    pub(super) rounds: u32,
}

impl Measurement {
    /// The command as the page shows it.
    pub(super) fn command(&self) -> String {
        let json = Path::new(FOLDER).join(self.name).with_extension("json");
        format!("{BENCHMARK} {}", self.arguments_into(&json).join(" "))
    }

    /// The file of a round's figures.
    pub(super) fn json(&self, round: u32) -> PathBuf {
        Path::new(FOLDER).join(format!("{}.{round}.json", self.name))
    }

    /// The arguments with the file of the figures.
    pub(super) fn arguments_into(&self, json: &Path) -> Vec<String> {
        let json = ["--json".to_owned(), json.display().to_string()];
        self.arguments.iter().cloned().chain(json).collect()
    }
}

/// One engine of one measurement.
#[derive(Clone, Debug)]
pub(super) struct Column {
    /// Its heading.
    pub(super) label: String,
    /// The measurement, by name.
    pub(super) measurement: &'static str,
    /// The engine in it.
    pub(super) engine: String,
}

impl Column {
    /// Whether its engine is one to compare farcore with.
    pub(super) fn is_peer(&self) -> bool {
        !self.engine.starts_with(OURS)
    }
}

/// What the last column compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contrast {
    /// The first column against the best of the peers, where there are any.
    Peers,
    /// The second column against the first: all rows.
    Pair(&'static str),
    /// The second column against the first: phases only, because the amounts of work differ.
    Rates(&'static str),
    /// The second column against the first: the last phase only, because the others are equal.
    Last(&'static str),
}

/// One table.
#[derive(Clone, Debug)]
pub(super) struct Section {
    /// Its heading.
    pub(super) title: &'static str,
    /// What a reader must know, in one paragraph.
    pub(super) about: &'static str,
    /// Its columns; farcore's is the first.
    pub(super) columns: Vec<Column>,
    /// Its last column.
    pub(super) contrast: Contrast,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// In the order they run.
    pub(super) measurements: Vec<Measurement>,
    /// In the order of the page.
    pub(super) sections: Vec<Section>,
    /// Sections that are left out, and why.
    pub(super) notes: Vec<String>,
}

/// A size of memory scaled to the keys of a core, in the benchmark's notation.
fn size(mib: u64, keys_per_core: u64, least_mib: u64) -> String {
    match (mib * keys_per_core / KEYS_PER_CORE).max(least_mib) {
        mib if mib.is_multiple_of(1024) => format!("{}GiB", mib / 1024),
        mib => format!("{mib}MiB"),
    }
}

/// Local and far memory for keys that all stay local.
fn all_local(keys_per_core: u64) -> (String, String) {
    (
        size(ALL_LOCAL_MIB, keys_per_core, ALL_LOCAL_MIB_MIN),
        size(UNUSED_FAR_MIB, keys_per_core, UNUSED_FAR_MIB),
    )
}

/// Farcore's column, then the others in their order.
fn columns(measurement: &'static str, engines: &[String]) -> Vec<Column> {
    let ours = engines.iter().filter(|&engine| engine == OURS);
    let others = engines.iter().filter(|&engine| engine != OURS);
    let column = |engine: &String| Column {
        label: engine.clone(),
        measurement,
        engine: engine.clone(),
    };
    ours.chain(others).map(column).collect()
}

fn our_column(measurement: &'static str, label: &str) -> Column {
    Column {
        label: label.to_owned(),
        measurement,
        engine: OURS.to_owned(),
    }
}

/// Adds measurements and sections to a plan.
#[derive(Debug)]
struct Planner<'a> {
    request: &'a Request,
    plan: Plan,
}

impl Planner<'_> {
    fn measure(
        &mut self,
        name: &'static str,
        cores: &[usize],
        memory: &[&str],
        window: u32,
        engines: &[String],
    ) {
        let (keys, rounds) = (self.request.keys_per_core, self.request.runs);
        self.measure_at(name, cores, keys, memory, window, engines, rounds);
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "each is one flag of the benchmark"
    )]
    fn measure_at(
        &mut self,
        name: &'static str,
        cores: &[usize],
        keys_per_core: u64,
        memory: &[&str],
        window: u32,
        engines: &[String],
        rounds: u32,
    ) {
        let count = cores.len();
        let cores: Vec<String> = cores.iter().map(ToString::to_string).collect();
        let has_window = engines.iter().any(|engine| engine == OURS);
        let (cores, engines) = (cores.join(","), engines.join(","));
        let (keys, window) = (keys_per_core.to_string(), window.to_string());
        let mut arguments = vec!["contest", "--cores", &cores, "--keys-per-core", &keys];
        arguments.extend(memory);
        // The benchmark refuses a flag that changes nothing.
        if has_window {
            arguments.extend(["--window", &window]);
        }
        arguments.extend(["--engines", &engines]);
        let arguments = arguments.into_iter().map(str::to_owned).collect();
        self.plan.measurements.push(Measurement {
            name,
            arguments,
            cores: count,
            rounds,
        });
    }

    fn section(
        &mut self,
        title: &'static str,
        about: &'static str,
        columns: Vec<Column>,
        contrast: Contrast,
    ) {
        self.plan.sections.push(Section {
            title,
            about,
            columns,
            contrast,
        });
    }

    /// All engines with all data local.
    fn compare(
        &mut self,
        name: &'static str,
        title: &'static str,
        about: &'static str,
        cores: &[usize],
        window: u32,
    ) {
        let keys = self.request.keys_per_core;
        let (local, far) = all_local(keys);
        let engines = self.request.engines.clone();
        let memory = ["--local", &local, "--far", &far];
        self.measure(name, cores, &memory, window, &engines);
        self.section(title, about, columns(name, &engines), Contrast::Peers);
    }

    /// All engines on two cores and on one, and farcore's step from one core to two.
    fn all_local(&mut self, cores: &[usize]) {
        let two = cores.len() == 2;
        if two {
            self.compare("two-cores", "Two cores, all local", "", cores, WINDOW);
        } else {
            self.plan.notes.push(
                "This process may run on one core only: sections of two cores are left out, and the rest runs on that core."
                    .to_owned(),
            );
        }
        self.compare("one-core", "One core, all local", "", &cores[..1], WINDOW);
        if two {
            let about =
                "Each core adds its own keys, so two cores do twice the work: only rates compare.";
            let columns = vec![
                our_column("one-core", "one core"),
                our_column("two-cores", "two cores"),
            ];
            let contrast = Contrast::Rates("two / one");
            self.section("From one core to two", about, columns, contrast);
        }
    }

    /// Farcore with memory for a quarter of the records, and `locked-lru` beside it on request.
    fn little_local(&mut self, cores: &[usize]) {
        let keys = self.request.keys_per_core;
        let per_core = LITTLE_LOCAL_MIB * cores.len() as u64;
        let little = size(per_core, keys, LITTLE_LOCAL_MIB_MIN);
        let far = size(FAR_MIB, keys, FAR_MIB);
        let memory = ["--local", &little, "--far", &far];
        let distant = [&memory[..], &["--far-latency", FAR_LATENCY]].concat();
        let about = "Local memory is 50 MiB for each million keys, 32 MiB at least: a quarter of the records as first written. It \
                     holds the index and buffers too.";
        let title = "Little local memory, far memory 2 us away";
        self.encrypt(["far", "far-encrypted"], title, about, cores, &distant);
        if !self.request.far_baseline {
            return;
        }
        let baseline = [FAR_BASELINE.to_owned()];
        self.measure("far-baseline", cores, &memory, WINDOW, &baseline);
        let mut columns = columns("far-baseline", &baseline);
        columns.insert(0, our_column("far", "farcore"));
        self.section(
            "Little local memory, beside `locked-lru`",
            "The figures of farcore are those above, with far memory 2 us away; the far memory of `locked-lru` answers at once.",
            columns,
            Contrast::Peers,
        );
    }

    /// Farcore on one core, with nearly every request for a record in far memory.
    fn far_reads(&mut self, core: usize) {
        let keys = self.request.keys_per_core;
        let (local, far) = (
            size(UNIFORM_LOCAL_MIB, keys, UNIFORM_LOCAL_MIB / 2),
            size(FAR_MIB, keys, FAR_MIB),
        );
        let (core, keys, window) = (core.to_string(), keys.to_string(), WINDOW.to_string());
        let mut arguments = vec!["ycsb", "--workload", "c", "--zipf", "0", "--cores", &core];
        arguments.extend(["--records", &keys, "--operations", UNIFORM_READS]);
        arguments.extend(["--value-bytes", "128", "--local", &local, "--far", &far]);
        arguments.extend(["--far-latency", FAR_LATENCY, "--window", &window]);
        arguments.extend(["--engines", OURS]);
        let arguments = arguments.into_iter().map(str::to_owned).collect();
        self.plan.measurements.push(Measurement {
            name: "uniform-reads",
            arguments,
            cores: 1,
            rounds: self.request.runs,
        });
        let about = "Records of 160 bytes, about an eighth of them local. Each other read is one READ of far memory.";
        let columns = columns("uniform-reads", &[OURS.to_owned()]);
        self.section(
            "One core, uniform reads of far memory",
            about,
            columns,
            Contrast::Peers,
        );
    }

    /// Farcore with requests for all keys alike, and for few keys of one shard and of any shard.
    fn skew(&mut self, cores: &[usize]) {
        let keys = self.request.keys_per_core;
        let (local, far) = all_local(keys);
        let ours = [OURS.to_owned()];
        let memory = ["--local", &local, "--far", &far];
        let uniform = [&memory[..], &["--zipf", "0"]].concat();
        let skewed = [&memory[..], &["--zipf", EXTREME_ZIPF]].concat();
        let extreme = [&skewed[..], &["--one-shard"]].concat();
        self.measure("uniform", cores, &uniform, WINDOW, &ours);
        self.measure("one-shard", cores, &extreme, WINDOW, &ours);
        self.measure("skewed", cores, &skewed, WINDOW, &ours);
        let columns = vec![
            our_column("uniform", "all keys alike"),
            our_column("one-shard", "few keys of one shard"),
            our_column("skewed", "few keys of any shard"),
        ];
        let about = "Few keys: Zipf 1.2. In the second column the hot mix of both cores requests keys of the first core's shard only.";
        let contrast = Contrast::Last("one shard / all");
        self.section("Extreme skew", about, columns, contrast);
    }

    /// Farcore beside engines that keep files, with memory for a quarter of the data.
    fn file_stores(&mut self, cores: &[usize]) {
        let local = size(FILE_STORES_LOCAL_MIB * cores.len() as u64, KEYS_PER_CORE, 0);
        let far = size(FAR_MIB, KEYS_PER_CORE, 0);
        let memory = ["--local", &local, "--far", &far];
        let distant = [
            "--far-latency",
            FAR_LATENCY,
            "--hot-ops",
            FILE_STORES_HOT_OPS,
        ];
        let engines: Vec<_> = [OURS]
            .into_iter()
            .chain(FILE_STORES)
            .map(str::to_owned)
            .collect();
        self.measure_at(
            "file-stores",
            cores,
            FILE_STORES_KEYS_PER_CORE,
            &[&memory[..], &distant].concat(),
            WINDOW,
            &engines,
            self.request.runs,
        );
        let about = "200 thousand keys a core, and local memory, or a cache, of 12 MiB a core: about a quarter of the records. The rest is \
                     2 us away for farcore, and in files in memory for the peers.";
        let title = "Beside stores that keep files";
        self.section(
            title,
            about,
            columns("file-stores", &engines),
            Contrast::Peers,
        );
    }

    /// The part of the contest that two of its 16 workers have, by its rules.
    fn largest(&mut self, cores: &[usize]) {
        let count = cores.len();
        let named: Vec<String> = cores.iter().map(ToString::to_string).collect();
        let (named, scale) = (named.join(","), count.to_string());
        let mut arguments = vec!["contest", "--scale", &scale, "--cores", &named];
        arguments.extend(["--far-latency", FAR_LATENCY, ENCRYPT, "--engines", OURS]);
        let arguments = arguments.into_iter().map(str::to_owned).collect();
        self.plan.measurements.push(Measurement {
            name: "largest",
            arguments,
            cores: count,
            rounds: 1,
        });
        let about = "One run by the contest's rules, at an eighth of its size: each core has what each of its 16 cores has, 12 M keys, \
                     512 MiB of local and 2 GiB of far memory, and 4 M hot requests, encrypted (secrecy only). What the rules \
                     are, and runs of other sizes: [benchmark.md](benchmark.md#the-contest-as-it-is-held).";
        let columns = columns("largest", &[OURS.to_owned()]);
        self.section("The largest run", about, columns, Contrast::Peers);
    }

    /// Farcore with and without encryption.
    fn encrypt(
        &mut self,
        names: [&'static str; 2],
        title: &'static str,
        about: &'static str,
        cores: &[usize],
        memory: &[&str],
    ) {
        let ours = [OURS.to_owned()];
        let encrypted = [memory, &[ENCRYPT]].concat();
        self.measure(names[0], cores, memory, WINDOW, &ours);
        self.measure(names[1], cores, &encrypted, WINDOW, &ours);
        let columns = vec![
            our_column(names[0], "farcore"),
            our_column(names[1], &format!("farcore `{ENCRYPT}`")),
        ];
        self.section(title, about, columns, Contrast::Pair("encrypted / plain"));
    }
}

/// The published configurations, as far as this machine has the cores.
///
/// # Errors
/// There is no core.
pub(super) fn plan(request: &Request) -> Result<Plan> {
    let cores = match request.cores[..] {
        [] => bail!("no core is known that this process may run on"),
        [_] => &request.cores[..],
        [..] => &request.cores[..2],
    };
    let (one, two) = (&cores[..1], cores.len() == 2);
    let mut planner = Planner {
        request,
        plan: Plan::default(),
    };
    planner.all_local(cores);
    planner.little_local(cores);
    let (all, unused) = all_local(request.keys_per_core);
    planner.encrypt(
        ["plain", "encrypted"],
        "All local, plain and encrypted",
        "",
        cores,
        &["--local", &all, "--far", &unused],
    );
    planner.far_reads(one[0]);
    if two {
        planner.skew(cores);
    }
    if request.file_stores {
        planner.file_stores(cores);
    }
    if two && request.largest {
        planner.largest(cores);
    }
    let about = "One request at a time on each core: latency without the wait in a window.";
    let title = "One core, all local, window of 1";
    planner.compare("one-core-window-1", title, about, one, 1);
    if two {
        let title = "Two cores, all local, window of 1";
        planner.compare("two-cores-window-1", title, about, cores, 1);
    }
    Ok(planner.plan)
}

#[cfg(test)]
mod tests;
