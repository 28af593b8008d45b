//! What an engine without requests takes from the machine: its processor time, and how much a
//! program that computes on all cores is slowed beside it.
//!
//! Each pair of windows runs in one process, one with an engine that holds keys and one without
//! any; which is first alternates.

use std::hint::black_box;
use std::thread;

use anyhow::{Context, anyhow};
use farcore_command::stop;
use farcore_tuning::{Clock, RatioEstimate};

use super::calls::pin;
use super::lead::{load, open};
use super::report::{Beside, Idle, Run};
use super::settings::Settings;
use super::stage::{Stage, cpu_seconds, pause};
use crate::plan::Plan;
use crate::progress::PhaseBar;
use crate::record::mix;

/// Time from the last request until an engine counts as idle, in seconds.
const SETTLE_SECONDS: f64 = 0.2;
/// Confidence of the interval of a ratio.
const CONFIDENCE: f64 = 0.95;
/// Steps of the program between two looks at the phase: some microseconds.
const STEPS: u64 = 2000;

/// The part `idle`.
pub(super) fn idle(plan: &Plan, settings: &Settings) -> anyhow::Result<Run> {
    let mut run = Run::of(settings.subject, settings.part);
    let engine = open(plan)?;
    load(&engine, plan, settings)?;
    pause(SETTLE_SECONDS);
    let clock = Clock::new();
    let (start_ns, start_cpu) = (clock.now_ns(), cpu_seconds());
    let bar = PhaseBar::timed(settings.subject.name(), "idle", settings.idle_seconds);
    pause(settings.idle_seconds);
    let seconds = (clock.now_ns() - start_ns) as f64 / 1e9;
    let share_of_a_core = (cpu_seconds() - start_cpu) / seconds;
    bar.finish();
    engine.close();
    run.partial = stop::is_requested();
    run.idle = (!run.partial).then_some(Idle {
        engine: settings.subject,
        seconds,
        share_of_a_core,
    });
    Ok(run)
}

/// The part `beside`.
pub(super) fn beside(plan: &Plan, settings: &Settings) -> anyhow::Result<Run> {
    let mut run = Run::of(settings.subject, settings.part);
    let total = settings.seconds * 2.0 * settings.pairs as f64;
    let bar = PhaseBar::timed(settings.subject.name(), "beside", total);
    let mut ratios = Vec::with_capacity(settings.pairs);
    for pair in 0..settings.pairs {
        let is_first = pair % 2 == 0;
        let one = window(plan, settings, is_first)?;
        let other = window(plan, settings, !is_first)?;
        if stop::is_requested() {
            break;
        }
        let (with, without) = if is_first { (one, other) } else { (other, one) };
        ratios.push(with / without);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a length of time"
        )]
        bar.set((settings.seconds * 2e3 * (pair + 1) as f64) as u64);
    }
    bar.finish();
    run.partial = stop::is_requested();
    run.beside = (!ratios.is_empty()).then(|| Beside {
        engine: settings.subject,
        ratio: RatioEstimate::of(&ratios, CONFIDENCE),
        ratios,
    });
    Ok(run)
}

/// The speed of the program, with an engine or without one.
fn window(plan: &Plan, settings: &Settings, has_engine: bool) -> anyhow::Result<f64> {
    let engine = if has_engine {
        let engine = open(plan)?;
        load(&engine, plan, settings)?;
        Some(engine)
    } else {
        None
    };
    pause(SETTLE_SECONDS);
    let speed = compute(&settings.machine_cores, settings.seconds);
    if let Some(engine) = engine {
        engine.close();
    }
    speed
}

/// Steps a second of a program with one thread on each core.
fn compute(cores: &[usize], seconds: f64) -> anyhow::Result<f64> {
    let stage = Stage::default();
    thread::scope(|scope| {
        let mut running = Vec::new();
        for &core in cores {
            let stage = &stage;
            let body = move || {
                pin(&[core]);
                stage.enter();
                let (mut word, mut count) = (core as u64, 0_u64);
                while stage.goes_on() {
                    for _ in 0..STEPS {
                        word = mix(black_box(word));
                    }
                    if stage.is_measured() {
                        count += 1;
                        stage.saw_sample();
                    }
                }
                black_box(word);
                count
            };
            match thread::Builder::new().spawn_scoped(scope, body) {
                Ok(thread) => running.push(thread),
                Err(error) => {
                    stage.end();
                    return Err(error).context("a thread could not be started");
                }
            }
        }
        let led = stage.lead(cores.len(), seconds);
        let mut count = 0;
        for thread in running {
            count += thread.join().map_err(|_| anyhow!("a thread panicked"))?;
        }
        Ok((count * STEPS) as f64 / led.seconds)
    })
}
