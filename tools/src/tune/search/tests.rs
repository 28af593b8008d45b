//! The search on a simulated machine with a known optimum, seeded noise, drift and disturbances.

use rand::RngExt;

use super::*;

/// The rate of the simulated machine.
type Objective = fn(&Profile) -> f64;

struct Fake {
    objective: Objective,
    /// Largest relative error of a run.
    noise: f64,
    random: SmallRng,
    runs: Vec<Profile>,
    budget: usize,
    /// The run that the user interrupts.
    interrupted_at: usize,
    announced: String,
    /// Share of its objective that the whole profile reaches in its proof.
    whole: Objective,
    /// Whether an engine can be opened with a profile.
    allowed: fn(&Profile) -> bool,
}

impl Fake {
    fn new(objective: Objective, noise: f64, seed: u64) -> Self {
        Self {
            objective,
            noise,
            random: SmallRng::seed_from_u64(seed),
            runs: Vec::new(),
            budget: usize::MAX,
            interrupted_at: usize::MAX,
            announced: String::new(),
            whole: |_| 1.0,
            allowed: |_| true,
        }
    }
}

impl Trial for Fake {
    fn run(&mut self, profile: &Profile) -> Result<f64, Stop> {
        if self.runs.len() == self.interrupted_at {
            return Err(Stop::Interrupted);
        }
        self.runs.push(*profile);
        // The machine slows down and recovers, as shared ones do.
        let drift = 1.0 + 0.1 * (self.runs.len() as f64 / 40.0).sin();
        let noise = 1.0 + self.random.random_range(-self.noise..=self.noise);
        let whole = if self.announced.contains("against the default") {
            (self.whole)(profile)
        } else {
            1.0
        };
        Ok((self.objective)(profile) * drift * noise * whole)
    }

    fn allows(&self, profile: &Profile) -> bool {
        (self.allowed)(profile)
    }

    fn has_time_for(&self, runs: usize) -> bool {
        self.runs.len() + runs <= self.budget
    }

    fn announce(&mut self, what: &str) {
        what.clone_into(&mut self.announced);
    }

    fn found(&mut self, _: &Sweep) {}
}

fn ranges() -> Vec<Range> {
    let range = |knob, default, values: &[u32]| Range {
        knob,
        default,
        values: values.to_vec(),
    };
    vec![
        range(Knob::Window, 64, &[16, 32, 64, 128, 256]),
        range(Knob::Batch, 64, &[16, 32, 64, 128]),
        range(Knob::CachePercent, 75, &[0, 25, 50, 75, 90]),
        range(Knob::SpinNs, 50_000, &[0, 10_000, 50_000]),
    ]
}

fn options(seed: u64) -> Options {
    Options {
        repeats: 10,
        confidence: 0.95,
        seed,
    }
}

fn found(fake: &mut Fake, seed: u64) -> Findings {
    search(fake, &ranges(), options(seed)).expect("no run fails")
}

fn log2(value: Option<u32>, default: u32) -> f64 {
    f64::from(value.unwrap_or(default).max(1)).log2()
}

/// Best at a window of 128 and a batch of 16; the other settings are best at their defaults.
fn hill(profile: &Profile) -> f64 {
    let off = |distance: f64| 0.05 * distance * distance;
    let cache = f64::from(profile.cache_percent.unwrap_or(75)) - 75.0;
    1.0 - off(log2(profile.window, 64) - 7.0)
        - off(log2(profile.batch, 64) - 4.0) / 2.0
        - off(cache / 50.0)
}

/// Best at the defaults, and hardly worse elsewhere.
fn plateau(profile: &Profile) -> f64 {
    if profile.is_empty() { 1.0 } else { 0.998 }
}

/// A small cache pays only with a large window; a large window pays alone.
fn ridge(profile: &Profile) -> f64 {
    let window = if profile.window.unwrap_or(64) >= 128 {
        1.1
    } else {
        1.0
    };
    let cache = match (profile.cache_percent, profile.window) {
        (Some(25), Some(128 | 256)) => 1.1,
        (Some(_), _) => 0.95,
        _ => 1.0,
    };
    window * cache
}

#[test]
fn the_optimum_is_found_through_noise_and_drift() {
    for seed in 1..=10 {
        let findings = found(&mut Fake::new(hill, 0.02, seed), seed);
        let expected = Profile {
            window: Some(128),
            batch: Some(16),
            ..Profile::default()
        };
        assert_eq!(findings.profile, expected, "seed {seed}: {findings:#?}");
        assert_eq!(findings.ended, Ended::Complete);
        let proof = findings.proof.unwrap();
        let truth = hill(&expected) / hill(&Profile::default());
        assert!(proof.is_better(0.95) && (proof.median / truth - 1.0).abs() < 0.03);
    }
}

#[test]
fn a_knob_that_pays_beside_another_is_found() {
    let mut ranges = ranges();
    // The cache is tried first, when it does not pay yet.
    ranges.swap(0, 2);
    for seed in 1..=5 {
        let mut fake = Fake::new(ridge, 0.02, seed);
        let findings = search(&mut fake, &ranges, options(seed)).unwrap();
        assert_eq!(findings.profile.cache_percent, Some(25), "{findings:#?}");
        assert!(findings.profile.window >= Some(128), "{findings:#?}");
    }
}

#[test]
fn noise_never_gives_a_profile_worse_than_the_default() {
    for seed in 1..=200 {
        let findings = found(&mut Fake::new(plateau, 0.05, seed), seed);
        assert!(findings.profile.is_empty(), "seed {seed}: {findings:#?}");
        assert_eq!(findings.ended, Ended::Complete);
    }
}

#[test]
fn a_search_is_repeatable_from_its_seed() {
    let runs = |seed| {
        let mut fake = Fake::new(hill, 0.02, 1);
        found(&mut fake, seed);
        fake.runs
    };
    assert_eq!(runs(3), runs(3));
    assert_ne!(runs(3), runs(4));
}

#[test]
fn the_budget_bounds_the_search_and_leaves_time_for_the_proof() {
    for budget in (0..400).step_by(7) {
        let mut fake = Fake::new(hill, 0.02, 1);
        fake.budget = budget;
        let findings = found(&mut fake, 1);
        assert!(fake.runs.len() <= budget, "{budget}: {findings:#?}");
        let proven = findings.proof.is_some_and(|proof| proof.is_better(0.95));
        assert_eq!(proven, !findings.profile.is_empty(), "{budget}");
        if budget < 40 {
            assert_eq!((findings.ended, fake.runs.len()), (Ended::Budget, 0));
        }
    }
}

#[test]
fn an_interrupted_search_returns_proven_settings() {
    let mut fake = Fake::new(hill, 0.02, 1);
    found(&mut fake, 1);
    let mut moved = 0;
    for at in 0..fake.runs.len() {
        let mut fake = Fake::new(hill, 0.02, 1);
        fake.interrupted_at = at;
        let findings = found(&mut fake, 1);
        assert_eq!(findings.ended, Ended::Interrupted);
        assert_eq!(findings.proof, None);
        let mut steps = Profile::default();
        for sweep in &findings.sweeps {
            if sweep.after != sweep.before {
                let (value, proof) = sweep.proof.unwrap();
                assert!(value == sweep.after && proof.is_better(0.95));
                steps = sweep.knob.turned(&steps, Some(value));
            }
        }
        assert_eq!(findings.profile, steps, "interrupted at run {at}");
        moved += usize::from(!steps.is_empty());
    }
    assert!(moved > 0);
}

#[test]
fn settings_are_reset_if_the_whole_is_not_proven() {
    // The window gains most, so the batch is reset first.
    let mut fake = Fake::new(hill, 0.01, 1);
    fake.whole = |profile| if profile.batch.is_some() { 0.8 } else { 1.0 };
    let findings = found(&mut fake, 1);
    let window = Profile {
        window: Some(128),
        ..Profile::default()
    };
    assert!(findings.put_back == [Knob::Batch] || findings.put_back == [Knob::Window, Knob::Batch]);
    assert!(findings.profile == window || findings.profile.is_empty());
    assert_eq!(
        findings.proof.unwrap().is_better(0.95),
        findings.profile == window
    );

    let mut fake = Fake::new(hill, 0.01, 1);
    fake.whole = |profile| if profile.is_empty() { 1.0 } else { 0.8 };
    let findings = found(&mut fake, 1);
    assert_eq!(
        (findings.put_back.len(), findings.profile),
        (2, Profile::default())
    );
    assert!(!findings.proof.unwrap().is_better(0.95));
}

#[test]
fn an_interruption_after_a_failed_proof_leaves_the_default() {
    let mut whole = Fake::new(hill, 0.01, 1);
    whole.whole = |profile| if profile.is_empty() { 1.0 } else { 0.8 };
    found(&mut whole, 1);
    let mut fake = Fake::new(hill, 0.01, 1);
    fake.whole = whole.whole;
    // In the second of two proofs of 20 runs.
    fake.interrupted_at = whole.runs.len() - 10;
    let findings = found(&mut fake, 1);
    assert_eq!(
        (findings.ended, findings.put_back.len()),
        (Ended::Interrupted, 1)
    );
    assert!(findings.profile.is_empty() && findings.proof.is_some());
}

#[test]
fn invalid_values_are_not_tried() {
    let mut fake = Fake::new(hill, 0.01, 1);
    fake.allowed = |profile| profile.window.is_none_or(|window| window < 128);
    let findings = found(&mut fake, 1);
    assert!(fake.runs.iter().all(fake.allowed));
    assert_eq!(
        (findings.profile.window, findings.profile.batch),
        (None, Some(16))
    );
    fake.allowed = Profile::is_empty;
    assert!(found(&mut fake, 1).sweeps.is_empty());
}

#[test]
fn a_run_that_fails_fails_the_search() {
    struct Broken;
    impl Trial for Broken {
        fn run(&mut self, _: &Profile) -> Result<f64, Stop> {
            Err(Stop::Failed(anyhow::anyhow!("3 answers were wrong")))
        }
        fn allows(&self, _: &Profile) -> bool {
            true
        }
        fn has_time_for(&self, _: usize) -> bool {
            true
        }
        fn announce(&mut self, _: &str) {}
        fn found(&mut self, _: &Sweep) {}
    }
    let error = search(&mut Broken, &ranges(), options(1)).unwrap_err();
    assert_eq!(error.to_string(), "3 answers were wrong");
}
