//! The experiments of `docs/card.md`: prints their tables. `cargo run --release -p farcore-card
//! --example card_experiments -- NAME`, with a name from `EXPERIMENTS`, or none for all.

use std::ops::ControlFlow;

use farcore_card::policy::{HybridWeights, PolicyName};
use farcore_card::replay::replay;
use farcore_card::settings::SettingError;
use farcore_card::simulator::{
    Arrival, CardSettings, Outcome, Simulation, SimulationSettings, ThresholdSettings, Treatment,
    largest,
};
use farcore_card::workload::{Pattern, Population, Workload, WorkloadSettings};
use farcore_tuning::MeanEstimate;

const SEEDS: u64 = 3;
/// Messages that a card works on at one time. More would share fetches that a card makes twice.
const AT_ONE_TIME: Arrival = Arrival::Closed { window: 32 };

type Done = Result<(), SettingError>;

/// A name and what it runs.
type Experiment = (&'static str, fn() -> Done);

const EXPERIMENTS: [Experiment; 6] = [
    ("thresholds", thresholds),
    ("treatments", treatments),
    ("sizes", sizes),
    ("policies", policies),
    ("calibration", calibration),
    ("limits", limits),
];

fn population(queue_pairs: u32, regions: u32) -> Population {
    Population {
        queue_pairs,
        regions,
        completion_queues: 64,
        domains: 4,
    }
}

/// The outcomes of several seeds.
fn outcomes(settings: &SimulationSettings) -> Result<Vec<Outcome>, SettingError> {
    let one = |seed| {
        let mut settings = settings.clone();
        settings.workload.seed = seed;
        Ok(Simulation::new(settings)?.run(|_| ControlFlow::Continue(())))
    };
    (1..=SEEDS).map(one).collect()
}

/// A figure's mean and half of its interval.
fn estimate(outcomes: &[Outcome], unit: f64, of: fn(&Outcome) -> f64) -> String {
    let figures: Vec<f64> = outcomes.iter().map(of).collect();
    MeanEstimate::of(&figures).map_or_else(String::new, |one| {
        let (mean, half) = (one.mean / unit, (one.high - one.mean) / unit);
        let decimals = if mean < 100.0 { 2 } else { 0 };
        format!("{mean:.decimals$} \u{b1} {half:.decimals$}")
    })
}

fn row(cells: &[String]) {
    println!("| {} |", cells.join(" | "));
}

fn head(cells: &[&str]) {
    row(&cells
        .iter()
        .map(|&cell| cell.to_owned())
        .collect::<Vec<_>>());
    row(&cells.iter().map(|_| "---".to_owned()).collect::<Vec<_>>());
}

fn figures(outcomes: &[Outcome]) -> [String; 7] {
    [
        estimate(outcomes, 1e6, |one| one.messages_s),
        estimate(outcomes, 0.01, |one| one.hit_ratio),
        estimate(outcomes, 1.0, |one| one.p50_ns as f64),
        estimate(outcomes, 1.0, |one| one.p99_ns as f64),
        estimate(outcomes, 1.0, |one| one.p999_ns as f64),
        estimate(outcomes, 0.01, |one| one.cxl_load.max(one.host_load)),
        estimate(outcomes, 1e3, |one| one.statistics.migration.total() as f64),
    ]
}

const FIGURES: [&str; 7] = [
    "M messages/s",
    "served by the card, %",
    "p50, ns",
    "p99, ns",
    "p99.9, ns",
    "busier link, %",
    "1000 moves",
];

fn patterns() -> [(&'static str, Pattern); 4] {
    [
        ("zipf", Pattern::Zipf { exponent: 1.0 }),
        (
            "shifting",
            Pattern::Shifting {
                exponent: 1.0,
                period: 200_000,
            },
        ),
        (
            "storm",
            Pattern::Storm {
                exponent: 1.0,
                period: 20_000,
                burst: 2_000,
            },
        ),
        (
            "scan",
            Pattern::Scan {
                exponent: 1.0,
                period: 50_000,
                length: 10_000,
            },
        ),
    ]
}

fn busy(pattern: Pattern) -> SimulationSettings {
    SimulationSettings {
        workload: WorkloadSettings {
            pattern,
            population: population(16_384, 16_384),
            ..WorkloadSettings::default()
        },
        messages: 1_000_000,
        warmup: 500_000,
        points: 1,
        ..SimulationSettings::default()
    }
}

/// Fixed against adaptive thresholds.
fn thresholds() -> Done {
    let mut columns = vec!["pattern", "thresholds"];
    columns.extend(FIGURES);
    head(&columns);
    for (name, pattern) in patterns() {
        for (label, to_cxl, to_card, adaptive) in [
            ("16, 128", 16, 128, false),
            ("4, 32", 4, 32, false),
            ("1, 8", 1, 8, false),
            ("adaptive", 16, 128, true),
        ] {
            let mut settings = busy(pattern);
            settings.card.thresholds = ThresholdSettings {
                to_cxl,
                to_card,
                adaptive,
                ..ThresholdSettings::default()
            };
            let outcomes = outcomes(&settings)?;
            let mut cells = vec![name.to_owned(), label.to_owned()];
            cells.extend(figures(&outcomes));
            row(&cells);
        }
    }
    Ok(())
}

/// Waiting against going on with the old copy.
fn treatments() -> Done {
    head(&[
        "pattern",
        "treatment",
        "p50, ns",
        "p99, ns",
        "p99.9, ns",
        "met a move, 1000",
        "reconciled",
        "M messages/s",
    ]);
    for (name, pattern) in patterns() {
        for (label, treatment) in [
            ("wait", Treatment::Wait),
            ("optimistic", Treatment::Optimistic),
        ] {
            let mut settings = busy(pattern);
            settings.card.treatment = treatment;
            // A small card that moves tokens soon and slowly, so that messages meet them.
            settings.card.card_entries = 256;
            settings.card.staging_entries = 64;
            settings.card.cxl.latency_ns = 1_000.0;
            settings.card.thresholds = ThresholdSettings {
                to_cxl: 2,
                to_card: 8,
                card_idle_ns: 10_000,
                ..ThresholdSettings::default()
            };
            settings.card.maintenance.every_ns = 5_000;
            settings.card.maintenance.free_share = 0.2;
            settings.workload.population = population(512, 512);
            // Less than the card can do, so that the latency is that of tokens.
            settings.arrival = Arrival::Open { messages_s: 5e6 };
            let outcomes = outcomes(&settings)?;
            row(&[
                name.to_owned(),
                label.to_owned(),
                estimate(&outcomes, 1.0, |one| one.p50_ns as f64),
                estimate(&outcomes, 1.0, |one| one.p99_ns as f64),
                estimate(&outcomes, 1.0, |one| one.p999_ns as f64),
                estimate(&outcomes, 1e3, |one| {
                    let moved = &one.statistics.migration;
                    (moved.waited + moved.passed) as f64
                }),
                estimate(&outcomes, 1.0, |one| {
                    one.statistics.migration.reconciled as f64
                }),
                estimate(&outcomes, 1e6, |one| one.messages_s),
            ]);
        }
    }
    Ok(())
}

/// The size of the card against the number of queue pairs.
fn sizes() -> Done {
    let counts = [256, 1_024, 4_096, 16_384, 65_536];
    let mut adaptive = CardSettings::default();
    adaptive.thresholds.adaptive = true;
    for (label, base) in [
        ("plain, uniform", (CardSettings::plain(), Pattern::Uniform)),
        ("plain, zipf", (CardSettings::plain(), Pattern::default())),
        (
            "tiers with adaptive thresholds, zipf",
            (adaptive, Pattern::default()),
        ),
    ] {
        println!("\nM messages/s, {label}:\n");
        let mut columns = vec!["tokens on the card".to_owned()];
        columns.extend(counts.map(|count| format!("{count} queue pairs")));
        head(&columns.iter().map(String::as_str).collect::<Vec<_>>());
        for card_entries in [1_024, 2_048, 4_096, 8_192, 16_384, 32_768] {
            let mut cells = vec![card_entries.to_string()];
            for queue_pairs in counts {
                let mut settings = busy(base.1);
                settings.card = CardSettings {
                    card_entries,
                    ..base.0.clone()
                };
                settings.workload.population = population(queue_pairs, 64);
                settings.messages = 300_000;
                settings.warmup = 300_000;
                let outcomes = outcomes(&settings)?;
                cells.push(estimate(&outcomes, 1e6, |one| one.messages_s));
            }
            row(&cells);
        }
    }
    Ok(())
}

/// Policies against each other and the bound, on one tier.
fn policies() -> Done {
    const ACCESSES: usize = 4_000_000;
    let mut columns = vec!["pattern", "places"];
    columns.extend(PolicyName::ALL.map(PolicyName::name));
    head(&columns);
    let mut all = patterns().to_vec();
    all.push(("uniform", Pattern::Uniform));
    for (name, pattern) in all {
        let settings = WorkloadSettings {
            pattern,
            population: population(16_384, 16_384),
            ..WorkloadSettings::default()
        };
        let accesses = Workload::drawn(&settings)?.accesses(ACCESSES);
        let keys = settings.population.keys();
        for places in [1_024, 4_096] {
            let mut cells = vec![name.to_owned(), places.to_string()];
            for policy in PolicyName::ALL {
                let counts = replay(policy, places, keys, &accesses, HybridWeights::default());
                cells.push(format!("{:.4}", counts.miss_ratio()));
            }
            row(&cells);
        }
    }
    Ok(())
}

/// A card that is nothing but its rate, its memory and eight fetches in flight.
fn published(messages_s: f64, entries: u32) -> CardSettings {
    CardSettings {
        messages_s,
        // The staging area holds the rest.
        card_entries: entries - 16,
        staging_entries: 16,
        ..CardSettings::plain()
    }
}

/// Messages a second of a card whose messages use a queue pair each, all alike.
fn rate(card: CardSettings, queue_pairs: u32) -> Result<f64, SettingError> {
    let settings = SimulationSettings {
        card,
        workload: WorkloadSettings {
            pattern: Pattern::Uniform,
            population: Population {
                queue_pairs,
                regions: 0,
                completion_queues: 0,
                domains: 1,
            },
            relaxed_share: 0.0,
            strict_share: 0.0,
            ..WorkloadSettings::default()
        },
        arrival: AT_ONE_TIME,
        messages: 400_000,
        warmup: 200_000,
        points: 1,
    };
    let outcome = Simulation::new(settings)?.run(|_| ControlFlow::Continue(()));
    Ok(outcome.messages_s)
}

/// Published cliffs.
fn calibration() -> Done {
    println!("\nTwo ConnectX-6, READs by queue pairs, M/s:\n");
    head(&["queue pairs", "model", "measured", "error"]);
    for (queue_pairs, measured) in [(32, 83.0), (64, 55.0), (512, 42.0), (4_096, 21.0)] {
        let modelled = 2.0 * rate(published(41.5e6, 137), queue_pairs / 2)? / 1e6;
        row(&[
            queue_pairs.to_string(),
            format!("{modelled:.1}"),
            format!("{measured:.0}"),
            format!("{:+.0} %", (modelled / measured - 1.0) * 100.0),
        ]);
    }
    println!("\nConnectX-5, READs by connections, as a share of the rate of few:\n");
    head(&["connections", "model"]);
    let card = || published(40e6, 2_000_000 / 375 / 2);
    let best = rate(card(), 16)?;
    for queue_pairs in [1_000, 2_000, 2_500, 3_000, 4_000, 5_000, 10_000, 20_000] {
        let share = rate(card(), queue_pairs)? / best;
        row(&[queue_pairs.to_string(), format!("{:.0} %", share * 100.0)]);
    }
    Ok(())
}

/// How many objects a host may have before its messages slow down by 5 %.
fn limits() -> Done {
    head(&[
        "tokens on the card",
        "pattern",
        "queue pairs, few regions",
        "regions, few queue pairs",
    ]);
    for card_entries in [2_048, 4_096, 5_333, 8_192, 16_384] {
        for pattern in [Pattern::Uniform, Pattern::Zipf { exponent: 1.0 }] {
            let mut cells = vec![card_entries.to_string(), pattern.name().to_owned()];
            for is_region in [false, true] {
                let mut settings = busy(pattern);
                settings.card = CardSettings {
                    card_entries,
                    ..CardSettings::plain()
                };
                settings.workload.population = population(64, 64);
                settings.arrival = AT_ONE_TIME;
                (settings.messages, settings.warmup) = (300_000, 300_000);
                let fits = largest(&settings, 0.95, |population, count| {
                    if is_region {
                        population.regions = count;
                    } else {
                        population.queue_pairs = count;
                    }
                })?;
                cells.push(fits.to_string());
            }
            row(&cells);
        }
    }
    Ok(())
}

fn main() -> Done {
    let wanted = std::env::args().nth(1);
    for (name, experiment) in EXPERIMENTS {
        if wanted.as_deref().is_none_or(|wanted| wanted == name) {
            println!("\n## {name}\n");
            experiment()?;
        }
    }
    Ok(())
}
