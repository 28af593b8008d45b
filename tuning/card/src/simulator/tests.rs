use super::*;
use crate::card_table::Slot;
use crate::cxl::CxlPlace;
use crate::handle::Kind;
use crate::place::Tier;
use crate::policy::PolicyName;
use crate::record::Record;
use crate::workload::{Pattern, WorkloadSettings};

fn settings(pattern: Pattern) -> SimulationSettings {
    SimulationSettings {
        card: CardSettings {
            card_entries: 200,
            staging_entries: 64,
            cxl_pages: 6,
            thresholds: ThresholdSettings {
                to_cxl: 4,
                to_card: 16,
                window_ns: 100_000,
                card_idle_ns: 100_000,
                cxl_idle_ns: 500_000,
                adaptive: false,
            },
            ..CardSettings::default()
        },
        workload: WorkloadSettings {
            pattern,
            population: Population {
                queue_pairs: 600,
                regions: 500,
                completion_queues: 20,
                domains: 4,
            },
            strict_share: 0.02,
            foreign_share: 0.02,
            ..WorkloadSettings::default()
        },
        arrival: Arrival::Closed { window: 128 },
        messages: 60_000,
        warmup: 5_000,
        points: 20,
    }
}

fn outcome(settings: &SimulationSettings) -> Outcome {
    let simulation = Simulation::new(settings.clone()).unwrap();
    simulation.run(|_| ControlFlow::Continue(()))
}

/// The newest record of a key (I1 of the card).
fn newest(card: &Card, key: u32) -> Record {
    let home = card.home[key as usize];
    let place = card.state(key).place().unwrap();
    let record = match place.tier {
        Tier::Card => {
            let (token, fields) = card.table.read(Slot::of(place).unwrap()).unwrap();
            Record { token, fields }
        }
        Tier::Cxl => card.cxl.record(CxlPlace::of(place).unwrap()).unwrap(),
        Tier::Host => home,
    };
    match card.staging.peek(key) {
        Some(staged) if staged.is_dirty => staged.record,
        _ => record,
    }
}

/// Runs a simulation and checks every token afterwards: nothing waits, no slot is lost, no update
/// is lost, and strict fields are the same everywhere.
fn run_and_check(settings: &SimulationSettings) -> Statistics {
    let mut simulation = Simulation::new(settings.clone()).unwrap();
    let every = simulation.card.durations.maintenance;
    simulation.card.events.add(every, Event::Maintenance);
    while simulation.started < simulation.total() {
        let next = simulation.start_next(&mut |_| ControlFlow::Continue(()));
        assert_eq!(next, Next::Started);
    }
    let drained = simulation.drain(&mut |_| ControlFlow::Continue(()));
    assert!(drained.is_continue());
    let card = &simulation.card;
    assert_eq!(card.waiters.count(), 0);
    assert!(card.migrations.is_empty() && card.misses.is_empty());
    let mut on_card = 0;
    for key in 0..u32::try_from(card.handles.len()).unwrap() {
        let state = card.state(key);
        assert!(
            !state.is_migrating() && state.place().is_some(),
            "{key}: {state:?}"
        );
        on_card += u64::from(card.tier(key) == Tier::Card);
        let newest = newest(card, key);
        let applied = card.applied[key as usize];
        assert_eq!(newest.fields.bits(), applied, "updates of {key}, {state:?}");
        let home = card.home[key as usize];
        assert_eq!(
            newest.token, home.token,
            "strict fields of {key}, {state:?}"
        );
        if !state.is_dirty() && card.staging.peek(key).is_none_or(|staged| !staged.is_dirty) {
            assert_eq!(
                home.fields.bits(),
                applied,
                "clean fields of {key}, {state:?}"
            );
        }
    }
    let free = card.free_slots.len() as u64;
    assert_eq!(on_card + free, u64::from(card.table.slots()));
    card.statistics.clone()
}

#[test]
fn nothing_is_lost_whatever_happens() {
    for pattern in Pattern::EXAMPLES {
        for treatment in [Treatment::Wait, Treatment::Optimistic] {
            for policy in PolicyName::ALL {
                if policy == PolicyName::Belady {
                    continue;
                }
                let mut settings = settings(pattern);
                settings.card.treatment = treatment;
                settings.card.policy = policy;
                settings.messages = 20_000;
                let counted = run_and_check(&settings);
                // Those in flight when the warm-up ended are counted, too.
                assert!((20_000..=20_128).contains(&counted.messages));
            }
        }
    }
}

#[test]
fn every_path_is_taken() {
    let mut settings = settings(Pattern::Shifting {
        exponent: 0.8,
        period: 5_000,
    });
    settings.card.thresholds.adaptive = true;
    let mut sums = Statistics::default();
    for treatment in [Treatment::Wait, Treatment::Optimistic] {
        settings.card.treatment = treatment;
        let counted = run_and_check(&settings);
        sums.hot.strict += counted.hot.strict;
        sums.hot.conflicts += counted.hot.conflicts;
        sums.migration.waited += counted.migration.waited;
        sums.migration.passed += counted.migration.passed;
        sums.migration.reconciled += counted.migration.reconciled;
        for (count, name) in [
            (counted.hot.reads, "reads"),
            (counted.hot.updates, "updates"),
            (counted.hot.denied + counted.expand.denied, "denied"),
            (counted.staging.installed, "installed"),
            (counted.staging.written_back, "written back"),
            (counted.batch.batches, "batches"),
            (counted.batch.fetched, "fetched"),
            (counted.batch.joined, "joined"),
            (counted.expand.urgent, "urgent"),
            (counted.expand.background, "background"),
            (counted.migration.to_card, "to the card"),
            (counted.migration.card_to_cxl, "card to CXL"),
            (counted.migration.host_to_cxl, "host to CXL"),
            (counted.migration.cxl_to_host, "CXL to host"),
        ] {
            assert!(count > 0, "{name}: {counted:#?}");
        }
    }
    for (count, name) in [
        (sums.hot.strict, "strict"),
        (sums.migration.waited, "waited"),
        (sums.migration.passed, "passed"),
        (sums.migration.reconciled, "reconciled"),
    ] {
        assert!(count > 0, "{name}");
    }
}

#[test]
fn the_same_seed_gives_the_same_outcome() {
    for pattern in Pattern::EXAMPLES {
        let text =
            |settings: &SimulationSettings| serde_json::to_string(&outcome(settings)).unwrap();
        let one = settings(pattern);
        let mut other = one.clone();
        other.workload.seed += 1;
        assert_eq!(text(&one), text(&one));
        assert_ne!(text(&one), text(&other));
    }
}

#[test]
fn a_small_host_runs_at_the_rate_of_the_card() {
    let mut settings = settings(Pattern::Uniform);
    settings.card = CardSettings::plain();
    settings.workload.foreign_share = 0.0;
    settings.workload.strict_share = 0.0;
    settings.workload.population.queue_pairs = 50;
    settings.workload.population.regions = 50;
    let fits = outcome(&settings);
    assert!(
        (fits.messages_s / 100e6 - 1.0).abs() < 0.01,
        "{}",
        fits.messages_s
    );
    assert!(fits.hit_ratio > 0.999);
    settings.workload.population.queue_pairs = 50_000;
    let does_not = outcome(&settings);
    assert!(does_not.messages_s < 50e6, "{}", does_not.messages_s);
    assert!(does_not.p50_ns > fits.p50_ns);
}

#[test]
fn refused_requests_move_no_byte() {
    let mut settings = settings(Pattern::Uniform);
    settings.workload.population.queue_pairs = 0;
    settings.workload.population.completion_queues = 0;
    settings.workload.relaxed_share = 0.0;
    settings.workload.strict_share = 0.0;
    settings.workload.foreign_share = 1.0;
    settings.warmup = 0;
    let refused = outcome(&settings);
    let counted = &refused.statistics;
    assert!(counted.expand.denied > 59_000, "{counted:?}");
    // One message in 2^32 may be drawn as permitted.
    assert!(
        counted.host_bytes + counted.cxl_bytes < 10_000,
        "{counted:?}"
    );
}

#[test]
fn pinned_tokens_never_move() {
    let mut settings = settings(Pattern::Uniform);
    settings.card.pinned = 50;
    let population = settings.workload.population;
    let mut simulation = Simulation::new(settings).unwrap();
    // A region that is pinned at the host.
    let key = population.key(Kind::Region, 3);
    let state = simulation.card.state(key);
    let handle = simulation.card.handles[key as usize];
    simulation.card.directory.pin(key, state, true).unwrap();
    simulation.card.events.add(1, Event::Maintenance);
    while simulation.started < simulation.total() {
        let next = simulation.start_next(&mut |_| ControlFlow::Continue(()));
        assert_eq!(next, Next::Started);
    }
    let drained = simulation.drain(&mut |_| ControlFlow::Continue(()));
    assert!(drained.is_continue());
    let state = simulation.card.directory.look_up(key, handle).unwrap();
    assert!(state.is_pinned() && state.place().unwrap().tier == Tier::Host);
    for index in 0..60 {
        let key = population.key(Kind::QueuePair, index);
        let state = simulation.card.state(key);
        assert_eq!(state.is_pinned(), index < 50);
        assert!(index >= 50 || state.place().unwrap().tier == Tier::Card);
        assert_eq!(
            newest(&simulation.card, key).fields.bits(),
            simulation.card.applied[key as usize]
        );
    }
}

#[test]
fn an_observer_sees_progress_and_may_end_it() {
    let settings = settings(Pattern::default());
    let mut points = 0;
    let whole = Simulation::new(settings.clone()).unwrap().run(|progress| {
        points += usize::from(progress.point.is_some());
        ControlFlow::Continue(())
    });
    assert!(!whole.is_interrupted);
    assert!(
        (18..=20).contains(&whole.series.len()),
        "{}",
        whole.series.len()
    );
    assert!(points >= 18);
    let part = Simulation::new(settings).unwrap().run(|progress| {
        if progress.started > 20_000 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert!(part.is_interrupted);
    assert!(part.statistics.messages < whole.statistics.messages);
}

#[test]
fn a_recording_gives_the_outcome_of_its_messages() {
    let mut settings = settings(Pattern::default());
    settings.workload.foreign_share = 0.0;
    let drawn = outcome(&settings);
    let mut workload = Workload::drawn(&settings.workload).unwrap();
    let count = settings.messages + settings.warmup;
    let messages = (0..count).filter_map(|_| workload.next_message());
    let tokens = settings.workload.population.tokens();
    let recording = Arc::new(Recording::of(&tokens, messages));
    let replayed = Simulation::of_recording(settings.clone(), Arc::clone(&recording)).unwrap();
    let replayed = replayed.run(|_| ControlFlow::Continue(()));
    assert_eq!(replayed.statistics.messages, drawn.statistics.messages);
    // The keys have another order, so that pages differ, but not by much.
    let ratio = replayed.messages_s / drawn.messages_s;
    assert!((0.9..1.1).contains(&ratio), "{ratio}");
    settings.warmup = 1_000_000;
    let error = Simulation::of_recording(settings, recording).unwrap_err();
    assert!(error.to_string().contains("65000 messages"), "{error}");
}

#[test]
fn wrong_settings_are_refused() {
    let mut wrong = settings(Pattern::Uniform);
    wrong.card.policy = PolicyName::Belady;
    let error = Simulation::new(wrong).unwrap_err().to_string();
    assert!(error.contains("--one-tier"), "{error}");
    let mut wrong = settings(Pattern::Uniform);
    wrong.card.card_entries = 70_000;
    let error = Simulation::new(wrong).unwrap_err().to_string();
    assert_eq!(error, "card-entries is 70000: write 16 to 65536");
    let mut wrong = settings(Pattern::Uniform);
    wrong.arrival = Arrival::Recorded;
    assert!(Simulation::new(wrong).is_err());
}

/// A recording with bursts of drawn messages, each after a gap, that begins at a time.
fn with_gaps(settings: &SimulationSettings, origin_ns: u64, gap_ns: u64) -> Arc<Recording> {
    const BURST: u64 = 400;
    let mut workload = Workload::drawn(&settings.workload).unwrap();
    let count = settings.messages + settings.warmup;
    let messages = (0..count).map(|number| {
        let mut message = workload.next_message().unwrap();
        message.time_ns = origin_ns + number / BURST * gap_ns + number % BURST * 20;
        message
    });
    Arc::new(Recording::of(
        &settings.workload.population.tokens(),
        messages,
    ))
}

fn recorded() -> SimulationSettings {
    let mut settings = settings(Pattern::default());
    settings.arrival = Arrival::Recorded;
    settings.messages = 7_600;
    settings.warmup = 400;
    settings
}

#[test]
fn time_without_messages_is_jumped_over() {
    const HOUR_NS: u64 = 3_600_000_000_000;
    for (policy, adaptive) in [(PolicyName::Lru, false), (PolicyName::Hybrid, true)] {
        for gap_ns in [50_000, 700_000, 1_000_000_000, HOUR_NS, 200 * DAY_NS / 20] {
            let mut settings = recorded();
            settings.card.policy = policy;
            settings.card.thresholds.adaptive = adaptive;
            let recording = with_gaps(&settings, 0, gap_ns);
            let mut reports = 0;
            let simulation = Simulation::of_recording(settings, recording).unwrap();
            let outcome = simulation.run(|_| {
                reports += 1;
                ControlFlow::Continue(())
            });
            assert!((7_600..=8_000).contains(&outcome.statistics.messages));
            assert!(outcome.virtual_ns > 18 * gap_ns);
            // The observer is called after a fixed number of steps. So the count of its calls is
            // the cost of the run, and does not grow with the gap.
            assert!(reports < 200, "{gap_ns}: {reports}");
            if gap_ns > 1_000_000 {
                // What was idle for long has left the card, and comes from the host again.
                let moved = &outcome.statistics.migration;
                assert!(moved.card_to_cxl + moved.card_to_host > 0, "{moved:?}");
                assert!(moved.cxl_to_host > 0, "{moved:?}");
                assert!(
                    outcome.statistics.served.host > 19,
                    "{:?}",
                    outcome.statistics.served
                );
            }
        }
    }
}

#[test]
fn messages_that_all_end_after_the_last_start_make_a_point() {
    let mut settings = recorded();
    (settings.messages, settings.warmup, settings.points) = (50, 0, 1);
    settings.card.host.latency_ns = 1e6;
    let simulation = Simulation::of_recording(settings.clone(), with_gaps(&settings, 0, 0));
    let simulation = simulation.unwrap();
    assert_eq!(simulation.total(), 50);
    let mut seen = Vec::new();
    let outcome = simulation.run(|progress| {
        seen.push((progress.started, progress.total));
        ControlFlow::Continue(())
    });
    assert_eq!(seen, [(50, 50)]);
    let [point] = &outcome.series[..] else {
        panic!("one point: {:?}", outcome.series);
    };
    assert_eq!(point.messages, 50);
}

#[test]
fn a_gap_leaves_the_card_as_it_would_be_without_a_jump() {
    let settings = recorded();
    // Every token has been idle for longer than the longest time of the settings.
    let of = |gap_ns| {
        let recording = with_gaps(&settings, 0, gap_ns);
        let simulation = Simulation::of_recording(settings.clone(), recording).unwrap();
        let outcome = simulation.run(|_| ControlFlow::Continue(()));
        (outcome.statistics.served, outcome.p50_ns)
    };
    assert_eq!(of(20_000_000), of(3_600_000_000_000));
}

#[test]
fn recorded_times_may_begin_anywhere() {
    let settings = recorded();
    let of = |origin_ns| {
        let recording = with_gaps(&settings, origin_ns, 100_000);
        let simulation = Simulation::of_recording(settings.clone(), recording).unwrap();
        let outcome = simulation.run(|_| ControlFlow::Continue(()));
        serde_json::to_string(&outcome).unwrap()
    };
    let from_zero = of(0);
    // The time of day since 1970, and the last times that there are.
    for origin_ns in [1, 1_764_000_000_000_000_000, u64::MAX - 10_000_000] {
        assert_eq!(of(origin_ns), from_zero);
    }
    let long = with_gaps(&settings, 5, 11 * DAY_NS);
    let error = Simulation::of_recording(settings, long)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("arrival: the trace lasts 209 days, and"),
        "{error}"
    );
}

#[test]
fn an_observer_may_end_a_stretch_without_messages() {
    // A worker that never finds room in the card it is to keep half empty, and turns often.
    let mut settings = recorded();
    settings.card.maintenance.every_ns = 1_000;
    settings.card.maintenance.samples = 65_536;
    let recording = with_gaps(&settings, 0, 3_600_000_000_000);
    let simulation = Simulation::of_recording(settings, recording).unwrap();
    let mut reports = 0;
    let outcome = simulation.run(|progress| {
        reports += 1;
        if progress.started > 800 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert!(outcome.is_interrupted && outcome.statistics.messages < 7_600);
}

#[test]
fn a_run_goes_on_until_it_is_steady() {
    let mut settings = settings(Pattern::default());
    settings.card = CardSettings {
        card_entries: 512,
        staging_entries: 64,
        ..CardSettings::default()
    };
    settings.card.thresholds.window_ns = 10_000;
    settings.messages = 30_000;
    settings.warmup = 0;
    let simulate = |settings: &SimulationSettings, most| {
        let simulation = Simulation::new(settings.clone()).unwrap();
        simulation.run_until_steady(most, |_| ControlFlow::Continue(()))
    };
    let short = simulate(&settings, settings.messages);
    assert_ne!(short.verdict, Verdict::Steady);
    // Of fewer windows than thresholds have steps, nothing is said, whatever the figures do.
    let mut few = settings.clone();
    few.card.thresholds.window_ns = 1_000_000_000;
    assert_eq!(simulate(&few, few.messages).verdict, Verdict::TooShort);
    let long = simulate(&settings, 4_000_000);
    assert_eq!(long.verdict, Verdict::Steady);
    assert!(long.settings.messages > settings.messages);
    // The figures are those of its last part, and better than those of the beginning.
    assert!(long.steady_since_ns > 0 && long.messages_s > short.messages_s);
    // A run of that length from the beginning is the same but for its points.
    let mut whole = simulate(&long.settings, 0);
    whole.series.clone_from(&long.series);
    assert!(whole == long);
}

#[test]
fn a_host_that_is_busy_for_others_answers_later_and_is_spared_moves() {
    let settings_with = |host_busy, arrival, adaptive| {
        let mut settings = settings(Pattern::default());
        settings.arrival = arrival;
        settings.card.host_busy = host_busy;
        settings.card.thresholds = ThresholdSettings {
            adaptive,
            card_idle_ns: 100_000_000,
            cxl_idle_ns: 100_000_000,
            ..settings.card.thresholds
        };
        settings
    };
    let closed = Arrival::Closed { window: 128 };
    let [free, busy] = [0.0, 0.9].map(|share| outcome(&settings_with(share, closed, false)));
    let expand = |one: &Outcome| one.statistics.expand_latency.quantile(0.5);
    assert!(expand(&busy) > 5 * expand(&free));
    assert!(busy.messages_s < 0.5 * free.messages_s);
    // The card alone does not fill the link to the host.
    let open = Arrival::Open { messages_s: 3e5 };
    let [free, busy] = [0.0, 0.9].map(|share| outcome(&settings_with(share, open, true)));
    // With a free host all tokens move that can. With a busy one moves are limited: they do not
    // outnumber the misses for long.
    let moves = |one: &Outcome| one.statistics.migration.total();
    assert!(
        moves(&busy) * 10 < moves(&free) * 7,
        "{} {}",
        moves(&busy),
        moves(&free)
    );
    let most = |one: &Outcome| one.series.iter().map(|point| point.to_card).max();
    assert!(most(&free) == Some(1) && most(&busy) > Some(1));
    let mut wrong = settings_with(1.0, open, true);
    let error = wrong.validate().unwrap_err().to_string();
    assert_eq!(error, "host-busy is 1: write 0 to 0.95");
    wrong.card.host_busy = f64::NAN;
    assert!(wrong.validate().is_err());
}

#[test]
fn moves_are_timed() {
    let mut settings = settings(Pattern::Shifting {
        exponent: 0.8,
        period: 5_000,
    });
    settings.card.thresholds.adaptive = true;
    let moved = outcome(&settings);
    let latency = &moved.statistics.migration_latency;
    assert!(
        latency.count() > 0 && latency.quantile(0.5) >= 100,
        "{latency:?}"
    );
    assert!(moved.series.iter().any(|point| point.migration_p99_ns > 0));
}
