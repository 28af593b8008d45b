use super::size::KEYS;
use super::*;

fn machine() -> Machine {
    Machine {
        cores: vec![0, 1],
        memory_available_bytes: 8 << 30,
        ..Machine::default()
    }
}

fn contest(flags: &[&str]) -> ContestArgs {
    let line = ["farcore-bench", "contest"].iter().chain(flags);
    match Cli::try_parse_from(line).unwrap().command {
        Command::Contest(args) => args,
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_flags_there_is_a_plan_for_every_engine() {
    let plans = contest(&[]).plans(&machine()).unwrap();
    let engines: Vec<&str> = plans.iter().map(|plan| plan.engine.name()).collect();
    assert_eq!(
        engines,
        [
            "farcore",
            "locked-lru",
            "farcore-all-local",
            "dashmap",
            "sharded"
        ]
    );
    assert_eq!(plans[0].keys(), 2_000_000);
    assert_eq!(plans[0].mixed_ops(), 200_000);
    let sized = contest(&["--keys-per-core", "600"]).plans(&machine());
    assert_eq!(sized.unwrap()[0].mixed_ops(), 400);
    assert!(plans[2].local_bytes > 3 * plans[2].data_bytes());
    assert!(plans[0].local_bytes < plans[0].data_bytes());
    assert!(
        plans
            .iter()
            .all(|plan| plan.cores == [0, 1] && plan.keys_per_core == KEYS / 2)
    );
}

#[test]
fn flags_reach_the_plan() {
    let flags = "--cores 1 --keys-per-core 10 --local 4GiB --far 1gb --far-nodes 3 --far-latency 2us --window 8 \
                 --engines dashmap,locked-lru,farcore --encrypt --hot-ops 5 --seed 9 --no-prefault --runs 3 --json a --plot b";
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let machine = Machine {
        memory_available_bytes: 32 << 30,
        ..machine()
    };
    let plans = contest(&flags).plans(&machine).unwrap();
    assert_eq!(
        plans[1],
        Plan {
            engine: EngineName::LockedLru,
            cores: vec![1],
            workers: None,
            keys_per_core: 10,
            local_bytes: 4 << 30,
            far_bytes: 1_000_000_000,
            fabric: Vec::new(),
            token_file: None,
            nodes_min: None,
            nodes_wait_ns: None,
            device: None,
            port: None,
            gid_index: None,
            far_nodes: 3,
            replicas: 1,
            far_latency_ns: 2_000,
            window: 8,
            profile: Profile::default(),
            encrypt: Encryption::Authenticated,
            prefault: false,
            seed: 9,
            watch: Watch {
                command: "bench".into(),
                ..Watch::default()
            },
            record: None,
            time_limit_ns: None,
            by_rules: false,
            scenario: Scenario::Contest {
                hot_ops: 5,
                skew: Skew::default(),
            },
        }
    );
}

#[test]
fn a_scale_has_the_rules_sizes_on_as_many_cores_as_there_are() {
    let machine = Machine {
        memory_available_bytes: 64 << 30,
        ..machine()
    };
    let of = |flags: &[&str]| contest(flags).plans(&machine);
    let plans = of(&["--scale", "official", "--encrypt=secrecy-only"]).unwrap();
    assert_eq!(plans.len(), 1);
    let official = &plans[0];
    assert_eq!((official.threads(), official.keys()), (16, 192_000_000));
    assert_eq!((official.cores.len(), official.core_of(5)), (2, Some(1)));
    assert_eq!(
        (official.local_bytes, official.far_bytes),
        (8 << 30, 32 << 30)
    );
    assert_eq!(
        (official.mixed_ops(), official.time_limit_ns),
        (64_000_000, None)
    );
    let flags = "--scale 3 --keys-per-core 5000 --cores 1 --time-limit 9m --far 1GiB --hot-ops 7";
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let plan = &of(&flags).unwrap()[0];
    assert_eq!((plan.threads(), plan.keys_per_core), (3, 5_000));
    assert_eq!((&plan.cores[..], plan.mixed_ops()), (&[1][..], 7));
    assert_eq!((plan.local_bytes, plan.far_bytes), (48 << 20, 1 << 30));
    assert_eq!(plan.time_limit_ns, Some(540_000_000_000));
}

#[test]
fn a_contest_that_does_not_fit_is_refused_with_what_is_missing() {
    let roomy = Machine {
        memory_available_bytes: 64 << 30,
        ..machine()
    };
    let refused =
        |machine: &Machine, flags: &[&str]| contest(flags).plans(machine).unwrap_err().to_string();
    let tagged = refused(&roomy, &["--scale", "2", "--encrypt"]);
    let missing = 24_000_000 * (156 + 16 + 16 + 12 + 16 + 10) - (5_u64 << 30) / 100 * 96;
    assert!(
        tagged.contains(&format!(": {missing} bytes are missing")),
        "{tagged}"
    );
    // As much far memory as it says, and no more, is enough.
    let far = format!("{}", (4_u64 << 30) + missing * 100 / 96 + 200);
    let plans = contest(&["--scale", "2", "--encrypt", "--far", &far]).plans(&roomy);
    assert_eq!(plans.unwrap().len(), 1);
    let poor = refused(&machine(), &["--scale", "official"]);
    assert!(
        poor.contains("40") && poor.contains("only 8 GiB is available, 3"),
        "{poor}"
    );
}

#[test]
fn a_time_limit_has_a_range_and_a_scale_has_one() {
    for (limit, value) in [("0s", "0s"), ("10us", "10us"), ("2days", "2days")] {
        let refused = contest(&["--time-limit", limit]).plans(&machine());
        let said = refused.unwrap_err().to_string();
        assert_eq!(
            said,
            format!("--time-limit is {value}: it must be 1ms to 1day")
        );
    }
    let beside = contest(&["--scale", "2", "--keys-per-core", "9", "--one-shard"]);
    let said = beside.plans(&machine()).unwrap_err().to_string();
    assert!(
        said.starts_with("--one-shard has no effect beside --scale"),
        "{said}"
    );
    for scale in ["none", "0", "65"] {
        let line = ["farcore-bench", "contest", "--scale", scale];
        let refused = Cli::try_parse_from(line).unwrap_err().to_string();
        assert!(
            refused.contains("is no scale: write `official`"),
            "{refused}"
        );
    }
}

#[test]
fn encryption_is_authenticated_unless_a_mode_is_named() {
    let of = |flags: &[&str]| contest(flags).plans(&machine()).unwrap()[0].encrypt;
    assert_eq!(of(&[]), Encryption::Off);
    assert_eq!(of(&["--encrypt"]), Encryption::Authenticated);
    assert_eq!(of(&["--encrypt=authenticated"]), Encryption::Authenticated);
    assert_eq!(of(&["--encrypt=secrecy-only"]), Encryption::SecrecyOnly);
    let wrong = Cli::try_parse_from(["farcore-bench", "contest", "--encrypt=rot13"]);
    let refused = wrong.unwrap_err().to_string();
    assert!(refused.contains("secrecy-only"), "{refused}");
}

#[test]
fn memory_nodes_are_compared_with_embedded_ones() {
    let flags = [
        "--fabric",
        "tcp://a:1,tcp://b:2",
        "--token-file",
        "t",
        "--nodes-min",
        "1",
    ];
    let plans = contest(&flags).plans(&machine()).unwrap();
    let engines: Vec<_> = plans.iter().map(|plan| plan.engine).collect();
    assert_eq!(engines, [EngineName::Farcore, EngineName::FarcoreEmbedded]);
    assert_eq!(plans[0].window, WINDOW_SOCKETS);
    assert_eq!(plans[0].fabric, ["tcp://a:1", "tcp://b:2"]);
    assert_eq!(plans[0].token_file, Some("t".into()));
    assert_eq!(plans[0].nodes_min, Some(1));
}

#[test]
fn copies_have_far_memory_of_their_own() {
    let once = contest(&[]).plans(&machine()).unwrap().remove(0);
    let twice = contest(&["--far-nodes", "2", "--replicas", "2"]);
    let twice = twice.plans(&machine()).unwrap().remove(0);
    assert_eq!((once.replicas, twice.replicas), (1, 2));
    assert_eq!(twice.far_bytes, 2 * once.far_bytes);
    let refused = contest(&["--replicas", "2"]).plans(&machine());
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("--replicas is 2: it must be 1"),
        "{refused}"
    );
}

#[test]
fn metrics_beyond_loopback_need_insecure() {
    let plans = contest(&["--stats-socket", "--http", "127.0.0.1:0"]).plans(&machine());
    let watch = plans.unwrap().remove(0).watch;
    assert_eq!(watch.stats_socket, Some("default".into()));
    assert_eq!(watch.http, Some(([127, 0, 0, 1], 0).into()));
    let flags = ["--stats-socket", "a", "--http", "0.0.0.0:0"];
    let refused = contest(&flags).plans(&machine()).unwrap_err().to_string();
    assert!(refused.contains("--insecure"), "{refused}");
    let flags = ["--http", "0.0.0.0:0", "--insecure"];
    assert!(contest(&flags).plans(&machine()).is_ok());
}

#[test]
fn the_window_is_that_of_the_flag_else_of_the_profile() {
    let file = std::env::temp_dir().join(format!("farcore-window-{}", std::process::id()));
    std::fs::write(&file, "window = 96\nbatch = 8\n").unwrap();
    let name = file.to_str().unwrap();
    let tuned = contest(&["--profile", name]).plans(&machine()).unwrap();
    let flagged = contest(&["--profile", name, "--window", "7"]);
    let flagged = flagged.plans(&machine()).unwrap();
    assert_eq!((tuned[0].window, flagged[0].window), (96, 7));
    assert_eq!(flagged[0].profile.batch, Some(8));
    std::fs::write(&file, "window = 0\n").unwrap();
    let refused = contest(&["--profile", name]).plans(&machine()).unwrap_err();
    let message = "window of --profile is 0: it must be 1 to 4096";
    assert!(refused.to_string().starts_with(message), "{refused}");
    let flagged = contest(&["--profile", name, "--window", "7"]);
    assert_eq!(flagged.plans(&machine()).unwrap()[0].window, 7);
    std::fs::remove_file(&file).unwrap();
    let gone = contest(&["--profile", name]).plans(&machine());
    assert!(gone.unwrap_err().to_string().contains(name));
}

#[test]
fn errors_of_bad_flags_show_a_valid_value() {
    for (flags, message) in [
        (["--local", "much"], "write e.g. 256MiB"),
        (["--far-latency", "2"], "write e.g. 2us"),
        (["--engines", "redis"], "possible values"),
        (["--runs", "0"], "1..=1000"),
    ] {
        let line = ["farcore-bench", "contest"].iter().chain(&flags);
        let error = Cli::try_parse_from(line).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

fn assert_refused(cases: &[(&str, &str)]) {
    for (flags, message) in cases {
        let flags: Vec<&str> = flags.split_whitespace().collect();
        let refused = contest(&flags).plans(&machine()).unwrap_err().to_string();
        assert!(refused.contains(message), "{flags:?}: {refused}");
    }
}

#[test]
fn flags_without_an_effect_on_far_memory_are_refused() {
    let tcp = "has no effect beside --fabric tcp://a:1";
    for (flag, why) in [
        ("--far-latency 2us", "it is for embedded far memory"),
        ("--far-latency 0s", "it is for embedded far memory"),
        ("--far-nodes 2", "it is for embedded far memory"),
        ("--device mlx5_0", "it is for rdma:// and rdma+tcp://"),
        ("--port 1", "it is for rdma:// and rdma+tcp://"),
        ("--gid-index 1", "it is for rdma:// and rdma+tcp://"),
    ] {
        let (name, _) = flag.split_once(' ').unwrap();
        let flags = format!("--fabric tcp://a:1 {flag}");
        assert_refused(&[(
            &flags,
            &format!("{name} {tcp}: {why}; leave one of them out"),
        )]);
    }
    for flag in [
        "--token-file t",
        "--nodes-min 1",
        "--wait-for-nodes",
        "--device d",
        "--port 1",
        "--gid-index 1",
    ] {
        let name = flag.split(' ').next().unwrap();
        let why = "has no effect without memory nodes: name them with --fabric";
        assert_refused(&[(flag, &format!("{name} {why}"))]);
    }
}

#[test]
fn flags_without_an_effect_on_the_engines_are_refused() {
    assert_refused(&[
        (
            "--fabric tcp://a:1 --engines locked-lru",
            "--fabric has no effect with --engines locked-lru",
        ),
        (
            "--fabric tcp://a:1 --engines farcore-embedded",
            "--fabric has no effect with --engines farcore-embedded: only farcore uses memory nodes",
        ),
        (
            "--engines dashmap,sharded --far 1GiB",
            "--far has no effect with --engines dashmap,sharded: none of them has far memory",
        ),
        (
            "--engines locked-lru --far-nodes 2",
            "--far-nodes has no effect",
        ),
    ]);
    for flag in [
        "--far-latency 2us",
        "--encrypt",
        "--local 1GiB",
        "--window 8",
        "--no-prefault",
        "--profile p",
        "--stats-socket",
        "--http 127.0.0.1:0",
        "--one-shard",
        "--record r",
    ] {
        let name = flag.split(' ').next().unwrap();
        let message = format!("{name} has no effect with --engines dashmap: ");
        assert_refused(&[(&format!("--engines dashmap {flag}"), &message)]);
    }
    let line = ["farcore-bench", "contest", "--insecure"];
    let refused = Cli::try_parse_from(line).unwrap_err().to_string();
    assert!(refused.contains("--http"), "{refused}");
}

#[test]
fn the_wait_for_nodes_is_in_the_plan() {
    let wait = |flags: &str| {
        let flags: Vec<&str> = flags.split_whitespace().collect();
        contest(&flags).plans(&machine()).unwrap()[0].nodes_wait_ns
    };
    assert_eq!(wait("--fabric tcp://a:1"), None);
    assert_eq!(
        wait("--fabric tcp://a:1 --wait-for-nodes"),
        Some(600_000_000_000)
    );
    assert_eq!(
        wait("--fabric tcp://a:1 --wait-for-nodes=3s"),
        Some(3_000_000_000)
    );
}

#[test]
fn cores_may_be_ranges() {
    assert_eq!(
        contest(&["--cores", "0-1"]).plans(&machine()).unwrap()[0].cores,
        [0, 1]
    );
}

#[test]
fn local_memory_for_all_data_needs_no_second_run_of_farcore() {
    let plans = contest(&["--local", "2GiB"]).plans(&machine()).unwrap();
    assert_eq!(plans.len(), 4);
    let named = contest(&["--local", "2GiB", "--engines", "farcore,farcore-all-local"]);
    assert_eq!(named.plans(&machine()).unwrap().len(), 2);
}

#[test]
fn what_only_farcore_can_do_is_refused_for_other_engines() {
    let plans = |flags: &str| {
        let line = format!("farcore-bench ycsb --records 1000 {flags}");
        match Cli::try_parse_from(line.split_whitespace())
            .unwrap()
            .command
        {
            Command::Ycsb(args) => args.plans(&machine()),
            other => panic!("{other:?}"),
        }
    };
    let ours = [EngineName::Farcore, EngineName::FarcoreAllLocal];
    for flags in ["--workload e", "--workload a --ttl 5s"] {
        let plans = plans(flags).unwrap();
        assert!(
            plans.iter().all(|plan| ours.contains(&plan.engine)),
            "{flags}"
        );
    }
    for (flags, message) in [
        (
            "--workload e --engines farcore,dashmap",
            "--workload e is for engines with scans in the order of the index, and dashmap has none",
        ),
        (
            "--workload b --ttl 5s --engines locked-lru",
            "--ttl is for engines with keys that expire, and locked-lru has none",
        ),
        ("--workload b --ttl 0s", "--ttl is less than 1ms"),
    ] {
        let error = plans(flags).expect_err(flags).to_string();
        assert!(error.starts_with(message), "{flags}: {error}");
    }
}

#[test]
fn an_error_says_what_to_write() {
    for (line, said) in [
        (
            "contest --keys-per-core abc",
            "error: invalid value 'abc' for '--keys-per-core <N>': write a whole number\n",
        ),
        (
            "contest --runs 0",
            "error: invalid value '0' for '--runs <N>': it must be 1 to 1000\n",
        ),
        (
            "trace x --limit 0",
            "error: invalid value '0' for '--limit <N>': it must be 1 or more\n",
        ),
        (
            "contest --port 256",
            "error: invalid value '256' for '--port <N>': it must be 0 to 255\n",
        ),
        (
            "contest --zipf much",
            "error: invalid value 'much' for '--zipf <EXPONENT>': write a number\n",
        ),
        (
            "contest --http here",
            "error: invalid value 'here' for '--http <ADDRESS>': write it as ADDRESS:PORT",
        ),
        // Words of our own, and of clap about the flags.
        ("contest --local big", "`big` is not a size: write e.g. "),
        ("contest --nothing", "unexpected argument '--nothing'"),
    ] {
        let words = std::iter::once("farcore-bench").chain(line.split_whitespace());
        let error = Cli::try_parse_from(words).unwrap_err();
        let text = farcore_command::plain(error).to_string();
        assert!(text.contains(said), "{line}: {text}");
        let help = "\nFor more information, try '--help'.\n";
        assert!(text.ends_with(help), "{line}: {text}");
    }
}

#[test]
fn the_latency_of_far_memory_is_for_exports_and_collections() {
    let plans = |parts: &str| {
        let line = format!("farcore-bench operations --parts {parts} --far-latency 2us");
        match Cli::try_parse_from(line.split(' ')).unwrap().command {
            Command::Operations(args) => args.plans(&machine()),
            other => panic!("{other:?}"),
        }
    };
    for part in ["export", "collections"] {
        assert_eq!(plans(part).unwrap()[0].far_latency_ns, 2_000, "{part}");
    }
    assert!(plans("scan").is_err());
}
