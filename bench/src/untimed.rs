//! The untimed pass before a contest by its rules: all phases over a hundredth of the keys, with
//! memory by the same ratio, encrypted and verified. Its figures are not published.

use anyhow::bail;
use farcore_command::stop;
use tracing::info;

use crate::child::run_in_child;
use crate::failures;
use crate::plan::{Encryption, Plan, Scale, Scenario};
use crate::run::{Comparison, Outcome};

/// The pass has one key for this many of the run.
const KEYS_PER_KEY: u64 = 100;
/// Least keys of a worker.
const KEYS_PER_WORKER_MIN: u64 = 1000;

/// The plan of the pass; `None` for plans that are not by the rules.
fn plan_of(plan: &Plan) -> Option<Plan> {
    let Scenario::Contest { skew, .. } = plan.scenario else {
        return None;
    };
    let keys_per_worker = (plan.keys_per_core / KEYS_PER_KEY).max(KEYS_PER_WORKER_MIN);
    let scale = Scale {
        workers: plan.threads(),
        keys_per_worker: keys_per_worker.min(plan.keys_per_core),
    };
    let encrypt = match plan.encrypt {
        Encryption::Off => Encryption::Authenticated,
        mode => mode,
    };
    plan.by_rules.then(|| Plan {
        keys_per_core: scale.keys_per_worker,
        local_bytes: scale.local_bytes().min(plan.local_bytes),
        far_bytes: scale.far_bytes().min(plan.far_bytes),
        encrypt,
        record: None,
        time_limit_ns: None,
        scenario: Scenario::Contest {
            hot_ops: scale.hot_ops(),
            skew,
        },
        ..plan.clone()
    })
}

/// Runs the pass of a plan, if it has one. An outcome is returned only if answers were wrong; its
/// phases are left out.
///
/// # Errors
/// The run failed, or requests ended with an error.
pub(crate) fn pass(plan: &Plan) -> anyhow::Result<Option<Outcome>> {
    let Some(plan) = plan_of(plan).filter(|_| !stop::is_requested()) else {
        return Ok(None);
    };
    let engine = plan.engine.name();
    info!(
        engine,
        keys = plan.keys(),
        encryption = plan.encrypt.name(),
        "untimed pass starts"
    );
    match run_in_child::<Comparison>(&plan)? {
        Some(outcome) => judge(engine, outcome),
        None => Ok(None),
    }
}

/// What a pass has shown.
fn judge(engine: &str, mut outcome: Outcome) -> anyhow::Result<Option<Outcome>> {
    if outcome.report.wrong_values > 0 {
        outcome.report.phases.clear();
        return Ok(Some(outcome));
    }
    if let Some(why) = outcome.lost {
        bail!("the untimed pass of {engine} failed: {why}");
    }
    let errors = &outcome.report.errors;
    if failures::total(errors) > 0 {
        let kinds = failures::describe(errors);
        bail!("requests of the untimed pass of {engine} ended with an error: {kinds}");
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests;
    use crate::report::{PhaseReport, RunReport};
    use crate::skew::Skew;

    #[test]
    fn a_pass_is_encrypted_small_and_without_limit() {
        let scenario = Scenario::Contest {
            hot_ops: 5,
            skew: Skew::default(),
        };
        let plan = Plan {
            by_rules: true,
            workers: Some(3),
            keys_per_core: 1_000_000,
            local_bytes: 1 << 30,
            far_bytes: 1 << 40,
            time_limit_ns: Some(1),
            ..tests::plan_of(scenario)
        };
        let pass = plan_of(&plan).unwrap();
        assert_eq!((pass.threads(), pass.keys_per_core), (3, 10_000));
        assert_eq!(pass.encrypt, Encryption::Authenticated);
        assert_eq!((pass.time_limit_ns, pass.mixed_ops()), (None, 10_000));
        assert!(pass.local_bytes < 1 << 30 && pass.far_bytes < 1 << 40);
        let secret = Plan {
            encrypt: Encryption::SecrecyOnly,
            keys_per_core: 200,
            ..plan.clone()
        };
        let pass = plan_of(&secret).unwrap();
        assert_eq!(
            (pass.encrypt, pass.keys_per_core),
            (Encryption::SecrecyOnly, 200)
        );
        let plain = Plan {
            by_rules: false,
            ..plan
        };
        assert_eq!(plan_of(&plain), None);
    }
    #[test]
    fn a_pass_that_is_not_right_ends_the_command() {
        let outcome = |wrong_values, errors, lost: Option<&str>| Outcome {
            report: RunReport {
                wrong_values,
                errors,
                phases: vec![PhaseReport::default()],
                ..RunReport::default()
            },
            digest: 0,
            complaint: None,
            failure: None,
            lost: lost.map(str::to_owned),
            unwritten: None,
            mixed: None,
        };
        let none = failures::ErrorCounts::new;
        assert!(judge("x", outcome(0, none(), None)).unwrap().is_none());
        // Its phases are no figures; its wrong answers count.
        let wrong = judge("x", outcome(2, none(), Some("why")))
            .unwrap()
            .unwrap();
        assert_eq!((wrong.report.wrong_values, wrong.is_measured()), (2, false));
        let lost = judge("x", outcome(0, none(), Some("why"))).unwrap_err();
        assert_eq!(lost.to_string(), "the untimed pass of x failed: why");
        let full = failures::ErrorCounts::from([("FarFull".to_owned(), 3)]);
        let full = judge("x", outcome(0, full, None)).unwrap_err().to_string();
        assert!(full.ends_with("ended with an error: 3 FarFull"), "{full}");
    }
}
