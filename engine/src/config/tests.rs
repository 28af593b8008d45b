use super::*;

#[test]
fn a_bad_field_is_named_with_its_value_and_limit() {
    let good = Config {
        cores: vec![available_cores()[0]],
        ..Config::default()
    };
    good.validate().unwrap();
    let table: [(Config, &str, &str); 16] = [
        (
            Config {
                cores: vec![],
                ..good.clone()
            },
            "cores",
            "empty",
        ),
        (
            Config {
                cores: vec![9999],
                ..good.clone()
            },
            "core 9999",
            "does not exist",
        ),
        (
            Config {
                local_bytes: 1 << 20,
                ..good.clone()
            },
            "local_bytes",
            "1048576",
        ),
        (
            Config {
                page_bytes: Some(100_000),
                ..good.clone()
            },
            "page_bytes",
            "100000",
        ),
        (
            Config {
                far_bytes: 5,
                ..good.clone()
            },
            "far_bytes",
            "5",
        ),
        (
            Config {
                embedded_nodes: 0,
                ..good.clone()
            },
            "embedded_nodes",
            "1 to 64",
        ),
        (
            Config {
                embedded_nodes: 65,
                ..good.clone()
            },
            "embedded_nodes",
            "65",
        ),
        (
            Config {
                page_bytes: Some(64 << 10),
                embedded_nodes: 3,
                far_bytes: 3 * (64 << 10) - 1,
                ..good.clone()
            },
            "far_bytes",
            "at least 196608",
        ),
        (
            Config {
                lane_bytes: Some(1000),
                ..good.clone()
            },
            "lane_bytes",
            "1000",
        ),
        (
            Config {
                batch: 0,
                ..good.clone()
            },
            "batch",
            "is 0: 1 to 128",
        ),
        (
            Config {
                batch: 129,
                ..good.clone()
            },
            "batch",
            "129",
        ),
        (
            Config {
                cache_percent: 91,
                ..good.clone()
            },
            "cache_percent",
            "91: 0 to 90",
        ),
        (
            Config {
                read_ahead_chunks: 13,
                ..good.clone()
            },
            "read_ahead_chunks",
            "13: 0 to 12",
        ),
        (
            Config {
                spin_ns: 2_000_000_000,
                ..good.clone()
            },
            "spin_ns",
            "at most 1000000000",
        ),
        (
            Config {
                handles_max: 300,
                ..good.clone()
            },
            "handles_max",
            "300",
        ),
        (
            Config {
                keys_expected: 1 << 40,
                ..good.clone()
            },
            "local_bytes",
            "keys_expected",
        ),
    ];
    for (config, field, value) in table {
        let error = config.validate().unwrap_err().to_string();
        assert!(error.contains(field) && error.contains(value), "{error}");
    }
}
#[test]
fn a_profile_sets_what_it_names_and_nothing_else() {
    let plain = format!("{:?}", Config::default());
    assert_eq!(
        format!("{:?}", Config::from_profile(&Profile::default())),
        plain
    );
    let text = "window = 9\nbatch = 8\npage_bytes = 131072\ncache_percent = 0\nread_ahead_chunks = 3\n\
                lane_bytes = 32768\nspin_ns = 7\n";
    let config = Config::from_profile(&Profile::parse(text).unwrap());
    config.validate().unwrap();
    let expected = Config {
        batch: 8,
        page_bytes: Some(128 << 10),
        cache_percent: 0,
        read_ahead_chunks: 3,
        lane_bytes: Some(32 << 10),
        spin_ns: 7,
        ..Config::default()
    };
    assert_eq!(format!("{config:?}"), format!("{expected:?}"));
    let bad = Config::from_profile(&Profile::parse("batch = 4000\n").unwrap());
    let error = bad.validate().unwrap_err().to_string();
    assert!(error.contains("batch") && error.contains("4000"), "{error}");
}

/// The lanes between cores are as long as pays, and shorter where there are many or little memory.
#[test]
fn lanes_between_cores_follow_from_cores_and_memory() {
    let used = |cores: usize, local_bytes| {
        let config = Config {
            cores: (0..cores).collect(),
            local_bytes,
            ..Config::default()
        };
        config.lane_bytes_used() >> 10
    };
    let of_cores = [1, 2, 3, 4, 5, 6, 16, 64].map(|cores| used(cores, 64 << 30));
    assert_eq!(of_cores, [1024, 1024, 512, 512, 256, 256, 128, 64]);
    let of_memory = [16, 32, 64, 128, 1024].map(|mebibytes| used(2, mebibytes << 20));
    assert_eq!(of_memory, [64, 256, 512, 1024, 1024]);
    let set = Config {
        lane_bytes: Some(32 << 10),
        ..Config::default()
    };
    assert_eq!(
        (set.lane_bytes_used(), set.handle_lane_bytes()),
        (32 << 10, 32 << 10)
    );
}
