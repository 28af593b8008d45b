use farcore_command::machine::Machine;

use super::*;

fn contest(hot_ops: u64) -> Scenario {
    Scenario::Contest {
        hot_ops,
        skew: Skew::default(),
    }
}

fn plan() -> Plan {
    plan_of(contest(1000))
}

/// A small plan of a scenario.
pub(crate) fn plan_of(scenario: Scenario) -> Plan {
    Plan {
        cores: vec![0, 1],
        keys_per_core: 1000,
        ..Plan::new(scenario)
    }
}

fn machine() -> Machine {
    Machine {
        cores: vec![0, 1],
        memory_available_bytes: 1 << 30,
        ..Machine::default()
    }
}

#[test]
fn a_sound_plan_passes() {
    assert_eq!(plan().validate(&machine()), Ok(()));
}

#[expect(clippy::type_complexity, reason = "a table of cases")]
#[test]
fn bad_settings_are_named_with_limit_and_value() {
    let cases: [(fn(&mut Plan), &str); 12] = [
        (
            |plan| plan.cores = vec![0, 7],
            "core 7, which does not exist",
        ),
        (|plan| plan.cores = vec![1, 1], "core 1 twice"),
        (|plan| plan.cores.clear(), "at least one core"),
        (|plan| plan.keys_per_core = 0, "must be at least 1"),
        (
            |plan| plan.far_nodes = 65,
            "--far-nodes is 65: it must be 1 to 64",
        ),
        (
            |plan| plan.replicas = 2,
            "--replicas is 2: it must be 1, as there is one memory node",
        ),
        (
            |plan| (plan.far_nodes, plan.replicas) = (5, 4),
            "--replicas is 4: it must be 1 to 3, a memory node for each copy",
        ),
        (
            |plan| plan.window = 0,
            "--window is 0: it must be 1 to 4096",
        ),
        (
            |plan| plan.local_bytes = 4096,
            "--local is 4 KiB: 2 cores need at least 2 MiB",
        ),
        (
            |plan| plan.far_bytes = 8 << 30,
            "farcore needs about 8.3 GiB (--local 64 MiB, --far 8 GiB), and only 1 GiB is available, 7.3 GiB too little: lower --far, or the number of keys",
        ),
        (|plan| plan.keys_per_core = 1 << 33, "at most 4294967296"),
        (|plan| plan.scenario = contest(0), "--hot-ops is 0"),
    ];
    for (spoil, message) in cases {
        let mut plan = plan();
        spoil(&mut plan);
        let error = plan.validate(&machine()).expect_err(message).to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn mixed_requests_are_divided_among_threads_without_a_rest() {
    let mut plan = plan();
    plan.scenario = contest(1001);
    assert_eq!(plan.steps(Phase::Hot, 0) + plan.steps(Phase::Hot, 1), 1001);
}
