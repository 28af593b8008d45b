//! The table of fields: where each stands in the settings, and its limits.
//!
//! Limits are those of the model, so that the form refuses what the model would refuse.

use farcore_card::OBJECTS_MAX;
use farcore_card::card_table::SLOTS_MAX;
use farcore_card::policy::PolicyName;
use farcore_card::simulator::POINTS_MAX;
use serde::Serialize;

/// Largest whole number that a browser holds exactly.
const WHOLE_MAX: f64 = 9_007_199_254_740_991.0;
/// Most messages.
const MESSAGES_MAX: f64 = 1e12;
/// Longest idle times and windows, in nanoseconds.
const TIME_MAX: f64 = 1e12;

/// What a field holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FieldKind {
    Integer,
    Number,
    Choice,
    Boolean,
}

/// A field is there only if another one has one of these values.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct When {
    pub(super) path: &'static str,
    pub(super) values: &'static [&'static str],
}

/// A field of the form.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Field {
    /// Where it stands in the JSON of the settings.
    pub(super) path: &'static str,
    /// What it belongs to.
    pub(super) group: &'static str,
    pub(super) kind: FieldKind,
    pub(super) minimum: Option<f64>,
    pub(super) maximum: Option<f64>,
    pub(super) unit: &'static str,
    pub(super) choices: &'static [&'static str],
    pub(super) when: Option<When>,
    /// The name in errors of the model.
    #[serde(skip)]
    pub(super) name: &'static str,
}

const fn field(
    group: &'static str,
    path: &'static str,
    name: &'static str,
    kind: FieldKind,
) -> Field {
    Field {
        path,
        group,
        kind,
        minimum: None,
        maximum: None,
        unit: "",
        choices: &[],
        when: None,
        name,
    }
}

/// A whole number of something.
const fn whole(
    group: &'static str,
    path: &'static str,
    name: &'static str,
    limits: (f64, f64),
    unit: &'static str,
) -> Field {
    Field {
        minimum: Some(limits.0),
        maximum: Some(limits.1),
        unit,
        ..field(group, path, name, FieldKind::Integer)
    }
}

/// A number of something.
const fn number(
    group: &'static str,
    path: &'static str,
    name: &'static str,
    limits: (f64, f64),
    unit: &'static str,
) -> Field {
    Field {
        kind: FieldKind::Number,
        ..whole(group, path, name, limits, unit)
    }
}

const fn choice(
    group: &'static str,
    path: &'static str,
    name: &'static str,
    choices: &'static [&'static str],
) -> Field {
    Field {
        choices,
        ..field(group, path, name, FieldKind::Choice)
    }
}

const fn only(field: Field, path: &'static str, values: &'static [&'static str]) -> Field {
    Field {
        when: Some(When { path, values }),
        ..field
    }
}

/// All policies but the clairvoyant one, which a card in use cannot have.
const POLICIES: &[&str] = &[
    PolicyName::Hybrid.name(),
    PolicyName::Lru.name(),
    PolicyName::Fifo.name(),
    PolicyName::Lfu.name(),
    PolicyName::Clock.name(),
    PolicyName::Sieve.name(),
    PolicyName::S3Fifo.name(),
];
/// Where the name of a pattern stands.
pub(super) const PATTERN: &str = "workload.pattern.name";
/// Where the name of an arrival stands.
pub(super) const ARRIVAL: &str = "arrival.name";
const OBJECTS: f64 = OBJECTS_MAX as f64;

/// Every field.
pub(super) const FIELDS: &[Field] = &[
    choice(
        "workload",
        PATTERN,
        "pattern",
        &["uniform", "zipf", "shifting", "storm", "scan"],
    ),
    only(
        number(
            "workload",
            "workload.pattern.exponent",
            "exponent",
            (0.0, 4.0),
            "",
        ),
        PATTERN,
        &["zipf", "shifting", "storm", "scan"],
    ),
    only(
        whole(
            "workload",
            "workload.pattern.period",
            "period",
            (1.0, TIME_MAX),
            "messages",
        ),
        PATTERN,
        &["shifting", "storm", "scan"],
    ),
    only(
        whole(
            "workload",
            "workload.pattern.burst",
            "burst",
            (0.0, TIME_MAX),
            "messages",
        ),
        PATTERN,
        &["storm"],
    ),
    only(
        whole(
            "workload",
            "workload.pattern.length",
            "length",
            (0.0, TIME_MAX),
            "messages",
        ),
        PATTERN,
        &["scan"],
    ),
    whole(
        "workload",
        "workload.population.queue_pairs",
        "queue-pairs",
        (0.0, OBJECTS),
        "objects",
    ),
    whole(
        "workload",
        "workload.population.regions",
        "regions",
        (0.0, OBJECTS),
        "objects",
    ),
    whole(
        "workload",
        "workload.population.completion_queues",
        "completion-queues",
        (0.0, OBJECTS),
        "objects",
    ),
    whole(
        "workload",
        "workload.population.domains",
        "domains",
        (1.0, OBJECTS),
        "objects",
    ),
    number(
        "workload",
        "workload.relaxed_share",
        "relaxed-share",
        (0.0, 1.0),
        "share",
    ),
    number(
        "workload",
        "workload.strict_share",
        "strict-share",
        (0.0, 1.0),
        "share",
    ),
    number(
        "workload",
        "workload.foreign_share",
        "foreign-share",
        (0.0, 1.0),
        "share",
    ),
    whole("workload", "workload.seed", "seed", (0.0, WHOLE_MAX), ""),
    choice(
        "arrival",
        ARRIVAL,
        "arrival",
        &["closed", "open", "recorded"],
    ),
    only(
        whole(
            "arrival",
            "arrival.window",
            "window",
            (1.0, 1_048_576.0),
            "messages",
        ),
        ARRIVAL,
        &["closed"],
    ),
    only(
        number(
            "arrival",
            "arrival.messages_s",
            "rate",
            (1e3, 1e10),
            "messages/s",
        ),
        ARRIVAL,
        &["open"],
    ),
    whole(
        "length",
        "messages",
        "messages",
        (1.0, MESSAGES_MAX),
        "messages",
    ),
    whole(
        "length",
        "warmup",
        "warmup",
        (0.0, MESSAGES_MAX),
        "messages",
    ),
    whole(
        "length",
        "points",
        "points",
        (1.0, POINTS_MAX as f64),
        "points",
    ),
    number(
        "card",
        "card.messages_s",
        "messages-s",
        (1e3, 1e10),
        "messages/s",
    ),
    whole(
        "card",
        "card.card_entries",
        "card-entries",
        (16.0, SLOTS_MAX as f64),
        "tokens",
    ),
    number("card", "card.card_ns", "card-ns", (0.0, 1e4), "ns"),
    choice("card", "card.policy", "policy", POLICIES),
    whole("card", "card.weights.alpha", "", (0.0, 1_024.0), "uses"),
    whole(
        "card",
        "card.weights.window",
        "",
        (1.0, 1_024.0),
        "times places",
    ),
    whole(
        "card",
        "card.weights.half_life",
        "",
        (1.0, 1_024.0),
        "times places",
    ),
    whole("card", "card.weights.samples", "", (1.0, 64.0), "tokens"),
    whole(
        "card",
        "card.pinned",
        "pinned",
        (0.0, SLOTS_MAX as f64 / 2.0),
        "queue pairs",
    ),
    whole(
        "card",
        "card.staging_entries",
        "staging-entries",
        (16.0, 65_536.0),
        "tokens",
    ),
    whole(
        "card",
        "card.context_bytes",
        "context-bytes",
        (16.0, 65_536.0),
        "bytes",
    ),
    number("card", "card.check_ns", "check-ns", (0.0, 1e6), "ns"),
    number("card", "card.update_ns", "update-ns", (0.0, 1e6), "ns"),
    whole(
        "card",
        "card.update_retries",
        "update-retries",
        (0.0, 1_000.0),
        "tries",
    ),
    whole(
        "cxl",
        "card.cxl_pages",
        "cxl-pages",
        (0.0, 1_048_576.0),
        "pages",
    ),
    number(
        "cxl",
        "card.cxl.latency_ns",
        "cxl-latency-ns",
        (0.0, 1e6),
        "ns",
    ),
    number(
        "cxl",
        "card.cxl.bytes_s",
        "cxl-bytes-s",
        (1e6, 1e13),
        "bytes/s",
    ),
    whole(
        "cxl",
        "card.cxl.transfers_max",
        "cxl-transfers",
        (1.0, 65_536.0),
        "transfers",
    ),
    number(
        "host",
        "card.host.latency_ns",
        "host-latency-ns",
        (0.0, 1e6),
        "ns",
    ),
    number(
        "host",
        "card.host.bytes_s",
        "host-bytes-s",
        (1e6, 1e13),
        "bytes/s",
    ),
    whole(
        "host",
        "card.host.transfers_max",
        "host-transfers",
        (1.0, 65_536.0),
        "transfers",
    ),
    number("host", "card.host_busy", "host-busy", (0.0, 0.95), "share"),
    whole(
        "thresholds",
        "card.thresholds.to_cxl",
        "to-cxl",
        (1.0, 65_535.0),
        "uses",
    ),
    whole(
        "thresholds",
        "card.thresholds.to_card",
        "to-card",
        (1.0, 65_535.0),
        "uses",
    ),
    whole(
        "thresholds",
        "card.thresholds.window_ns",
        "window-ns",
        (1e3, TIME_MAX),
        "ns",
    ),
    whole(
        "thresholds",
        "card.thresholds.card_idle_ns",
        "card-idle-ns",
        (1e3, TIME_MAX),
        "ns",
    ),
    whole(
        "thresholds",
        "card.thresholds.cxl_idle_ns",
        "cxl-idle-ns",
        (1e3, TIME_MAX),
        "ns",
    ),
    field(
        "thresholds",
        "card.thresholds.adaptive",
        "",
        FieldKind::Boolean,
    ),
    choice("thresholds", "card.treatment", "", &["optimistic", "wait"]),
    whole(
        "batch",
        "card.batch.min",
        "batch-min",
        (1.0, 256.0),
        "tokens",
    ),
    whole(
        "batch",
        "card.batch.max",
        "batch-max",
        (1.0, 256.0),
        "tokens",
    ),
    whole(
        "batch",
        "card.batch.wait_ns",
        "batch-wait-ns",
        (0.0, 1e9),
        "ns",
    ),
    whole(
        "batch",
        "card.batch.queue",
        "batch-queue",
        (1.0, 1_048_576.0),
        "tokens",
    ),
    whole(
        "batch",
        "card.batch.prefetch_at",
        "",
        (0.0, 65_535.0),
        "uses",
    ),
    whole(
        "batch",
        "card.batch.backlog_ns",
        "backlog-ns",
        (0.0, 1e9),
        "ns",
    ),
    whole(
        "maintenance",
        "card.maintenance.every_ns",
        "maintenance-ns",
        (1e3, TIME_MAX),
        "ns",
    ),
    whole(
        "maintenance",
        "card.maintenance.samples",
        "maintenance-samples",
        (1.0, 65_536.0),
        "tokens",
    ),
    number(
        "maintenance",
        "card.maintenance.free_share",
        "free-share",
        (0.0, 0.5),
        "share",
    ),
];
