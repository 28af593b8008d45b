//! Replication in a simulated world, of which the server has the parts: runs of seeds, and planted
//! faults that they must find.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use farcore_server::{ReplicationOutcome, simulate_replication};

/// Faults that are planted in replication and found within seconds.
pub const QUICK: [&str; 8] = [
    "changes-on-their-way-ignored",
    "counted-though-loading",
    "load-without-identity",
    "noted-not-awaited",
    "parts-not-joined",
    "position-within-transaction",
    "resets-ignored",
    "window-ignored",
];

/// Those that are found within two minutes.
pub const SLOW: [&str; 6] = [
    "database-of-relay-ignored",
    "held-not-awaited",
    "promoted-without-identity",
    "read-kept-though-removed",
    "renamed-amid-load",
    "stream-before-unbounded",
];

/// Which runs are wanted.
#[derive(Clone, Debug)]
pub struct Request {
    /// The first seed.
    pub first: u64,
    /// How many; `None` for as many as the time allows.
    pub count: Option<u64>,
    /// The longest time; for each planted fault by itself.
    pub limit: Duration,
    /// Events that a failure shows.
    pub trace: usize,
    /// Print what each run has done.
    pub verbose: bool,
}

impl Request {
    fn seeds(&self) -> impl Iterator<Item = u64> {
        let count = self.count.unwrap_or(u64::MAX);
        let (end, until) = (
            self.first.saturating_add(count),
            Instant::now() + self.limit,
        );
        (self.first..end).take_while(move |_| Instant::now() < until)
    }
}

/// Runs seeds one after the other.
///
/// # Errors
/// A run has broken a promise.
pub fn run(request: &Request) -> Result<()> {
    let began = Instant::now();
    let (mut runs, mut sum, mut hash) = (0, ReplicationOutcome::default(), 0);
    for seed in request.seeds() {
        let outcome = match simulate_replication(seed, request.trace) {
            Ok(outcome) => outcome,
            Err(failure) => bail!("{failure}again: farcore-sim --replication --seed {seed}"),
        };
        if request.verbose {
            println!("seed {seed}: {outcome:?}");
        }
        runs += 1;
        hash = outcome.hash;
        sum.writes += outcome.writes;
        sum.promised += outcome.promised;
        sum.promotions += outcome.promotions;
        sum.full_syncs += outcome.full_syncs;
        sum.partial_syncs += outcome.partial_syncs;
        sum.looks += outcome.looks;
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{runs} runs in {seconds:.1} s: {} writes, {} waited for, {} promotions, {} loads, {} links \
         that went on, {} looks at a replica",
        sum.writes, sum.promised, sum.promotions, sum.full_syncs, sum.partial_syncs, sum.looks
    );
    println!("hash of the last: {hash:016x}");
    Ok(())
}

/// Plants faults one after the other: that of a name, those of [`QUICK`] by `quick`, or all.
///
/// # Errors
/// There is no such fault, this build has none, or one is not found.
pub fn find(name: &str, request: &Request) -> Result<()> {
    let all = || QUICK.into_iter().chain(SLOW);
    let names: Vec<_> = match name {
        "quick" => QUICK.to_vec(),
        "all" => all().collect(),
        name => all().filter(|known| *known == name).collect(),
    };
    ensure!(
        !names.is_empty(),
        "no such fault of replication: there are {}",
        all().collect::<Vec<_>>().join(", ")
    );
    let mut missed = Vec::new();
    for name in names {
        ensure!(
            plant(name),
            "this build has no planted faults: build it with `--features mutations`"
        );
        let began = Instant::now();
        let mut seeds = request.seeds();
        let found =
            seeds.find_map(|seed| Some((seed, simulate_replication(seed, request.trace).err()?)));
        let seconds = began.elapsed().as_secs_f64();
        match found {
            Some((seed, failure)) => {
                let first = failure.lines().next().unwrap_or_default();
                let short: String = first.chars().take(160).collect();
                println!("{name}: seed {seed}, {seconds:.1} s: {short}");
            }
            None => {
                println!("{name}: NOT FOUND in {seconds:.1} s");
                missed.push(name);
            }
        }
    }
    plant("");
    ensure!(missed.is_empty(), "not found: {}", missed.join(", "));
    Ok(())
}

/// Plants the fault of a name; none if it is empty. False if this build has none.
fn plant(name: &'static str) -> bool {
    #[cfg(feature = "mutations")]
    {
        farcore_tuning::simulated::plant(name);
        true
    }
    #[cfg(not(feature = "mutations"))]
    name.is_empty()
}
