//! Tests of a configuration: errors name the field, the value and the limit, and profiles set what
//! they name.

use farcore_tuning::Size;

use super::checks::KEYS_EXPECTED_MAX;
use super::*;
use crate::error::Error;
use crate::limits::available_cores;

#[test]
fn what_a_cache_notes_of_reads_is_part_of_the_cap() {
    let plain = Config {
        cores: vec![available_cores()[0]],
        local_bytes: 64 << 20,
        far_bytes: 256 << 20,
        keys_expected: 10_000,
        ..Config::default()
    };
    let cache = Config {
        when_full: WhenFull::Evict,
        ..plain.clone()
    };
    let arena = |config: &Config| config.sizes().unwrap().arena_bytes;
    // A byte for each 32 of local memory, rounded down to a power of two, and some pages' numbers.
    let taken = arena(&plain) - arena(&cache);
    assert!((1 << 20..=3 << 20).contains(&taken), "{taken}");
}

#[test]
#[expect(clippy::too_many_lines, reason = "one list of bad fields")]
fn a_bad_field_is_named_with_its_value_and_limit() {
    let good = Config {
        cores: vec![available_cores()[0]],
        ..Config::default()
    };
    good.validate().unwrap();
    let table: [(Config, &str, &str); 23] = [
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
            "`cores` names core 9999",
            "widen its affinity",
        ),
        (
            Config {
                local_bytes: 1 << 20,
                ..good.clone()
            },
            "local_bytes",
            "1 MiB: at least",
        ),
        (
            Config {
                page_bytes: Some(100_000),
                ..good.clone()
            },
            "page_bytes",
            "100000 bytes: a power of two",
        ),
        (
            Config {
                far_bytes: 5,
                ..good.clone()
            },
            "far_bytes",
            "5 bytes: at least",
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
                nodes_min: Some(1),
                ..good.clone()
            },
            "nodes_min",
            "name `nodes`",
        ),
        (
            Config {
                nodes: vec!["tcp://a:1".parse().unwrap()],
                nodes_min: Some(0),
                ..good.clone()
            },
            "nodes_min",
            "is 0: 1 to 1",
        ),
        (
            Config {
                nodes: vec!["tcp://a:1".parse().unwrap()],
                nodes_min: Some(2),
                ..good.clone()
            },
            "nodes_min",
            "is 2: 1 to 1",
        ),
        (
            Config {
                nodes: vec!["tcp://a:1".parse().unwrap()],
                nodes_wait_ns: u64::MAX,
                ..good.clone()
            },
            "nodes_wait_ns",
            "a day",
        ),
        (
            Config {
                page_bytes: Some(64 << 10),
                embedded_nodes: 3,
                far_bytes: 3 * (64 << 10) - 1,
                ..good.clone()
            },
            "far_bytes",
            "at least 192 KiB, a page of 64 KiB for each of 1 core on each of 3 memory nodes",
        ),
        (
            Config {
                lane_bytes: Some(1000),
                ..good.clone()
            },
            "lane_bytes",
            "1000 bytes: a power of two",
        ),
        (
            Config {
                handle_lane_bytes: 32 << 20,
                ..good.clone()
            },
            "handle_lane_bytes",
            "32 MiB: a power of two",
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
            "300: at most 253 with 1 core, for a shard has 254 lanes",
        ),
        (
            Config {
                keys_expected: 1 << 40,
                ..good.clone()
            },
            "keys_expected",
            "1099511627776: at most",
        ),
        (
            Config {
                local_bytes: 1 << 47,
                ..good.clone()
            },
            "`local_bytes`",
            "128 TiB: at most",
        ),
        (
            Config {
                far_bytes: 1 << 50,
                ..good.clone()
            },
            "`far_bytes`",
            "1 PiB: at most",
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

/// Lanes between cores are as long as is useful, and shorter with many cores or little memory.
#[test]
fn lanes_between_cores_follow_from_cores_and_memory() {
    let most = |cores: usize, local_bytes| {
        let config = Config {
            cores: (0..cores).collect(),
            ..Config::default()
        };
        config.lane_bytes_most(local_bytes) >> 10
    };
    let of_cores = [1, 2, 3, 4, 5, 6, 16, 64].map(|cores| most(cores, 64 << 30));
    assert_eq!(of_cores, [1024, 1024, 512, 512, 256, 256, 128, 64]);
    let of_memory = [16, 32, 64, 128, 1024].map(|mebibytes| most(2, mebibytes << 20));
    assert_eq!(of_memory, [64, 256, 512, 1024, 1024]);
}

/// Two cores, or as many as the machine has.
fn few_cores() -> Vec<usize> {
    available_cores().into_iter().take(2).collect()
}

#[test]
fn lanes_that_are_set_are_as_set() {
    let config = Config {
        cores: few_cores(),
        handle_lane_bytes: 16 << 10,
        lane_bytes: Some(32 << 10),
        ..Config::default()
    };
    assert_eq!(config.lane_bytes_used().unwrap(), 32 << 10);
    // A profile sets lanes between cores; there may be many handles.
    let profile = Profile::parse("lane_bytes = 2097152\n").unwrap();
    let config = Config::from_profile(&profile);
    assert_eq!(config.handle_lane_bytes, LANE_BYTES);
}

/// The least local memory that is accepted, found by trying.
fn least(config: &Config) -> u64 {
    let fits = |local_bytes| {
        let config = Config {
            local_bytes,
            ..config.clone()
        };
        config.validate().is_ok()
    };
    let (mut no, mut yes) = (0, 64 << 30);
    assert!(fits(yes));
    while yes - no > 1 {
        let middle = no.midpoint(yes);
        *(if fits(middle) { &mut yes } else { &mut no }) = middle;
    }
    yes
}

/// Long lanes are only for engines with enough memory. They keep no engine from opening, and the
/// minimum that an error names is the minimum.
#[test]
fn more_memory_is_never_too_little() {
    for keys_expected in [0, 1_000, 800_000, 5_000_000, 40_000_000] {
        for page_bytes in [64 << 10, 2 << 20] {
            let config = Config {
                cores: few_cores(),
                keys_expected,
                page_bytes: Some(page_bytes),
                ..Config::default()
            };
            let least = least(&config);
            let with = |local_bytes, lane_bytes| Config {
                local_bytes,
                lane_bytes,
                ..config.clone()
            };
            for more in (0..200).map(|step| step * 37_777) {
                with(least + more, None).validate().unwrap();
            }
            // The shortest lanes decide.
            let short = with(least - 1, Some(LANE_BYTES));
            let error = short.validate().unwrap_err().to_string();
            let named = format!("at least {:#} ", Size::at_least(least));
            assert!(error.contains(&named), "{error}: {least}");
            with(least, Some(LANE_BYTES)).validate().unwrap();
        }
    }
}

/// Derived pages grow with local memory, and so does what they need.
#[test]
fn the_local_memory_that_an_error_names_is_enough() {
    for keys_expected in (0..40).map(|step| step * 150_000) {
        let config = Config {
            cores: few_cores(),
            keys_expected,
            local_bytes: 1 << 20,
            ..Config::default()
        };
        let (field, named) = named(&config.validate().unwrap_err());
        assert_eq!(field, "local_bytes");
        let enough = Config {
            local_bytes: named,
            ..config
        };
        enough.validate().unwrap();
    }
}

#[test]
fn absurd_sizes_are_refused() {
    for (local_bytes, far_bytes) in [
        (u64::MAX, 1 << 30),
        (1 << 30, u64::MAX),
        (u64::MAX, u64::MAX),
    ] {
        for page_bytes in [None, Some(64 << 10)] {
            let config = Config {
                local_bytes,
                far_bytes,
                page_bytes,
                keys_expected: KEYS_EXPECTED_MAX,
                ..Config::default()
            };
            config.validate().unwrap_err();
        }
    }
}

/// The number behind "at least" or "at most" in an error, and the field that it is for.
fn named(error: &Error) -> (&'static str, u64) {
    let field = match error {
        Error::Config { field, .. } => field,
        Error::LocalMemory { .. } => "local_bytes",
        _ => panic!("{error}"),
    };
    let words = error.to_string().replace("at most", "at least");
    let (_, rest) = words.split_once("at least ").unwrap();
    let mut words = rest.split([' ', ',']);
    let number: u64 = words.next().unwrap().parse().unwrap();
    let unit = match words.next().unwrap() {
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        "byte" | "bytes" | "for" => 0,
        unit => panic!("{unit}: {error}"),
    };
    (field, number << unit)
}

/// A caller that follows the errors one after the other ends with a valid configuration.
#[test]
fn the_limits_that_errors_name_are_accepted() {
    let (good, huge) = (Config::default(), 1 << 47);
    let wrong = [
        [good.local_bytes, good.far_bytes, 1 << 40],
        [good.local_bytes, huge, 1 << 38],
        [huge, good.far_bytes, 1_000],
        [huge, huge, 1 << 33],
        [1 << 20, 1 << 52, 1 << 36],
    ];
    for [local_bytes, far_bytes, keys_expected] in wrong {
        for page_bytes in [None, Some(64 << 10), Some(2 << 20)] {
            let mut config = Config {
                cores: few_cores(),
                local_bytes,
                far_bytes,
                keys_expected,
                page_bytes,
                ..good.clone()
            };
            let mut fields = Vec::new();
            while let Err(error) = config.validate() {
                let (field, value) = named(&error);
                match field {
                    "local_bytes" => config.local_bytes = value,
                    "far_bytes" => config.far_bytes = value,
                    "keys_expected" => config.keys_expected = value,
                    field => panic!("{field}"),
                }
                fields.push(field);
                assert!(fields.len() <= 6, "{fields:?}: {error}");
            }
        }
    }
}
