//! Checks by trial: the calibration of the clock, processor counters, opening an engine.

use std::time::{Duration, Instant};

use farcore::{Config, Engine, Error};
use farcore_tuning::{Clock, HardwareCounters};

use super::finding::Finding;

/// Time over which two clocks are compared.
const COMPARED: Duration = Duration::from_millis(200);
/// Largest drift; a larger one falsifies latencies by more than a step of their histograms.
const DRIFT_PPM_MAX: f64 = 500.0;

pub(super) fn check() -> Vec<Finding> {
    let mut findings = vec![calibration(), counting()];
    findings.extend(engine());
    findings
}

fn calibration() -> Finding {
    let what = "clock, tried";
    let clock = Clock::new();
    let (start, start_ns) = (Instant::now(), clock.now_ns());
    std::thread::sleep(COMPARED);
    let (taken, taken_ns) = (start.elapsed(), clock.now_ns() - start_ns);
    let taken = taken.as_nanos() as f64;
    let drift = (taken_ns as f64 - taken).abs() / taken * 1e6;
    let seen = format!("{drift:.0} ppm off the kernel's clock");
    if drift <= DRIFT_PPM_MAX {
        return Finding::fine(what, seen);
    }
    Finding::weak(what, seen)
        .because("the time-stamp counter is calibrated badly: the machine was busy, or the counter's rate changes")
        .mend("run this again on an idle machine; if it persists, see the clock source above")
}

fn counting() -> Finding {
    let what = "perf events, tried";
    let counters = HardwareCounters::open_here();
    match counters.missing() {
        "" => Finding::fine(
            what,
            "cycles, instructions, branch and cache misses are counted",
        ),
        missing => Finding::weak(what, "some are not counted").because(missing),
    }
}

fn engine() -> Vec<Finding> {
    let config = Config {
        local_bytes: 64 << 20,
        far_bytes: 64 << 20,
        keys_expected: 1_000,
        prefault: false,
        ..Config::default()
    };
    let cores = config.cores.len();
    let rings = "io_uring, tried";
    match Engine::open(config) {
        Ok(engine) => {
            engine.close();
            vec![
                Finding::fine(rings, format!("opened by {cores} executors")),
                Finding::fine("engine", format!("opened on {cores} cores")),
            ]
        }
        Err(Error::IoUring { reason }) => vec![
            Finding::broken(rings, "refused")
                .because(reason)
                .mend("sysctl -w kernel.io_uring_disabled=0; in a container, seccomp must let io_uring_setup, io_uring_register and io_uring_enter pass (docker \
                       run --security-opt seccomp=unconfined)"),
        ],
        Err(error) => vec![Finding::broken("engine", "did not open").because(error.to_string())],
    }
}
