//! The form of a simulation: presets, fields with their limits, and the check of what comes back.
//!
//! [`FIELDS`] names every setting that a form shows, by its path in the JSON of
//! [`SimulationSettings`]. The same table checks the settings of a new run, so that an error names
//! the field, and then the model checks them itself.
//!
//! - I1: the table knows every setting: a test compares it with the JSON of the defaults.

use axum::Json;
use farcore_tuning::metadata_cache::OBJECTS_MAX;
use farcore_tuning::metadata_cache::card_table::SLOTS_MAX;
use farcore_tuning::metadata_cache::policy::PolicyName;
use farcore_tuning::metadata_cache::settings::SettingError;
use farcore_tuning::metadata_cache::simulator::{
    Arrival, CardSettings, POINTS_MAX, Simulation, SimulationSettings, ThresholdSettings,
};
use farcore_tuning::metadata_cache::workload::{Pattern, Population, WorkloadSettings};
use serde::Serialize;
use serde_json::Value;

use crate::error::{ApiError, ApiResult};

/// Largest whole number that a browser holds exactly.
const WHOLE_MAX: f64 = 9_007_199_254_740_991.0;
/// Most messages.
const MESSAGES_MAX: f64 = 1e12;
/// Longest idle times and windows, in nanoseconds.
const TIME_MAX: f64 = 1e12;

/// What a field holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum FieldKind {
    Integer,
    Number,
    Choice,
    Boolean,
}

/// A field is there only if another one has one of these values.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
struct When {
    path: &'static str,
    values: &'static [&'static str],
}

/// A field of the form.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
struct Field {
    /// Where it stands in the JSON of the settings.
    path: &'static str,
    /// What it belongs to.
    group: &'static str,
    kind: FieldKind,
    minimum: Option<f64>,
    maximum: Option<f64>,
    unit: &'static str,
    choices: &'static [&'static str],
    when: Option<When>,
    /// The name in errors of the model.
    #[serde(skip)]
    name: &'static str,
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
const PATTERN: &str = "workload.pattern.name";
const ARRIVAL: &str = "arrival.name";
const OBJECTS: f64 = OBJECTS_MAX as f64;

/// Every field.
const FIELDS: &[Field] = &[
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
    whole("card", "card.weights.window", "", (1.0, 1_024.0), ""),
    whole("card", "card.weights.half_life", "", (1.0, 1_024.0), ""),
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

/// A field with its default.
#[derive(Debug, Serialize)]
struct ShownField {
    #[serde(flatten)]
    field: Field,
    default: Value,
}

/// Settings to start from.
#[derive(Debug, Serialize)]
struct Preset {
    id: &'static str,
    settings: SimulationSettings,
}

/// The form.
#[derive(Debug, Serialize)]
pub(super) struct Form {
    presets: Vec<Preset>,
    fields: Vec<ShownField>,
}

fn presets() -> Vec<Preset> {
    let base = SimulationSettings::default();
    let of = |id, settings| Preset { id, settings };
    let workload = |pattern, queue_pairs| WorkloadSettings {
        pattern,
        population: Population {
            queue_pairs,
            ..Population::default()
        },
        ..WorkloadSettings::default()
    };
    let [_, _, shifting, storm, scan] = Pattern::EXAMPLES;
    let mut adaptive = base.clone();
    adaptive.card.thresholds = ThresholdSettings {
        adaptive: true,
        ..adaptive.card.thresholds
    };
    adaptive.workload.pattern = shifting;
    let with = |workload| SimulationSettings {
        workload,
        ..base.clone()
    };
    vec![
        of("tiers", base.clone()),
        of(
            "plain",
            SimulationSettings {
                card: CardSettings::plain(),
                ..base.clone()
            },
        ),
        of("adaptive", adaptive),
        of(
            "many_queue_pairs",
            with(workload(Pattern::default(), 16_384)),
        ),
        of("connection_storm", with(workload(storm, 4_096))),
        of("scan", with(workload(scan, 4_096))),
    ]
}

/// The value at a path.
fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.')
        .try_fold(value, |value, step| value.get(step))
}

/// The default of a field that the default settings do not have.
fn default_of(field: &Field, settings: &Value) -> Value {
    if let Some(value) = at(settings, field.path) {
        return value.clone();
    }
    match field.path {
        "workload.pattern.period" => 20_000.into(),
        "workload.pattern.burst" => 4_000.into(),
        "workload.pattern.length" => 4_000.into(),
        "arrival.messages_s" => 5e6.into(),
        _ => Value::Null,
    }
}

/// `GET /api/form`
pub(super) async fn show() -> ApiResult<Json<Form>> {
    let settings = serde_json::to_value(SimulationSettings::default())?;
    let shown = |field: &Field| ShownField {
        field: *field,
        default: default_of(field, &settings),
    };
    Ok(Json(Form {
        presets: presets(),
        fields: FIELDS.iter().map(shown).collect(),
    }))
}

/// Where an answer says that a setting stands.
fn shown_path(path: &str) -> String {
    format!("settings.{path}")
}

fn check_field(field: &Field, settings: &Value) -> ApiResult<()> {
    let Some(value) = at(settings, field.path).and_then(Value::as_f64) else {
        // The type of the settings has checked what is no number.
        return Ok(());
    };
    let minimum = field.minimum.unwrap_or(f64::MIN);
    let maximum = field.maximum.unwrap_or(f64::MAX);
    if (minimum..=maximum).contains(&value) {
        return Ok(());
    }
    let message = format!("{} is {value}: write {minimum} to {maximum}", field.path);
    Err(ApiError::invalid(shown_path(field.path), message))
}

/// The error of the model, with the field that it is about.
fn named(error: &SettingError) -> ApiError {
    let (SettingError::Range { name, .. } | SettingError::Conflict { name, .. }) = error;
    // Of a sum, the first part.
    let first = name.split(' ').next().unwrap_or_default();
    let field = FIELDS.iter().find(|field| field.name == first);
    let path = field.map_or("settings".to_owned(), |field| shown_path(field.path));
    ApiError::invalid(path, error.to_string())
}

/// The settings of a new run, with every limit checked.
///
/// # Errors
/// 422 with the path of the first field that is wrong.
pub(super) fn settings(value: Value, has_trace: bool) -> ApiResult<SimulationSettings> {
    if !value.is_object() {
        let message = "settings are an object: write {} for the defaults";
        return Err(ApiError::invalid("settings", message));
    }
    // Inside a pattern or an arrival the type's own errors name no field.
    FIELDS
        .iter()
        .try_for_each(|field| check_field(field, &value))?;
    let read: Result<SimulationSettings, _> = serde_path_to_error::deserialize(value);
    let settings = read.map_err(|error| {
        let path = error.path().to_string();
        let field = if path == "." {
            "settings".to_owned()
        } else {
            shown_path(&path)
        };
        ApiError::invalid(field, error.into_inner().to_string())
    })?;
    let value = serde_json::to_value(&settings)?;
    FIELDS
        .iter()
        .try_for_each(|field| check_field(field, &value))?;
    settings.validate().map_err(|error| named(&error))?;
    if settings.arrival == Arrival::Recorded && !has_trace {
        let message = "only a trace has recorded times: choose a trace, or another arrival";
        return Err(ApiError::invalid(shown_path(ARRIVAL), message));
    }
    if !has_trace {
        // What the model checks only when it is built.
        Simulation::new(settings.clone()).map_err(|error| named(&error))?;
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    fn leaves(value: &Value, path: &str, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let dot = if path.is_empty() { "" } else { "." };
                    leaves(value, &format!("{path}{dot}{name}"), found);
                }
            }
            _ => {
                found.insert(path.to_owned());
            }
        }
    }

    /// Settings in which a field is there.
    fn with(field: &Field) -> Value {
        let mut value = serde_json::to_value(SimulationSettings::default()).unwrap();
        if let Some(When { path, values }) = field.when {
            let name = values[0];
            if path == PATTERN {
                let pattern = Pattern::EXAMPLES.into_iter().find(|one| one.name() == name);
                value["workload"]["pattern"] = serde_json::to_value(pattern.unwrap()).unwrap();
            } else {
                value["arrival"] = match name {
                    "open" => json!({ "name": name, "messages_s": 5e6 }),
                    _ => json!({ "name": name, "window": 512 }),
                };
            }
        }
        value
    }

    fn set(value: &mut Value, path: &str, new: Value) {
        let mut place = value;
        for step in path.split('.') {
            place = &mut place[step];
        }
        *place = new;
    }

    fn number(field: &Field, figure: f64) -> Value {
        match field.kind {
            FieldKind::Integer => serde_json::from_str(&format!("{figure:.0}")).unwrap(),
            _ => json!(figure),
        }
    }

    #[test]
    fn the_form_has_every_setting() {
        let mut wanted = BTreeSet::new();
        for settings in Pattern::EXAMPLES.map(|pattern| {
            let mut settings = SimulationSettings::default();
            settings.workload.pattern = pattern;
            settings
        }) {
            leaves(&serde_json::to_value(settings).unwrap(), "", &mut wanted);
        }
        wanted.insert("arrival.messages_s".to_owned());
        let shown: BTreeSet<_> = FIELDS.iter().map(|field| field.path.to_owned()).collect();
        assert_eq!(shown, wanted);
    }

    #[test]
    fn limits_are_those_of_the_model() {
        for field in FIELDS {
            let (Some(minimum), Some(maximum)) = (field.minimum, field.maximum) else {
                continue;
            };
            for beyond in [minimum - 1.0, maximum + maximum.abs().max(1.0)] {
                let mut value = with(field);
                let new = number(field, beyond);
                set(&mut value, field.path, new);
                let error = settings(value, false).unwrap_err();
                assert_eq!(error.code(), "invalid", "{} {beyond}", field.path);
                let shown = format!("{error:?}");
                assert!(
                    shown.contains(&shown_path(field.path)),
                    "{}: {shown}",
                    field.path
                );
            }
            // The model knows the same limit, if it knows the field.
            if !field.name.is_empty() && field.kind == FieldKind::Number {
                let mut value = with(field);
                set(&mut value, field.path, json!(maximum * 1.01 + 0.01));
                let read: SimulationSettings = serde_json::from_value(value).unwrap();
                let error = named(&read.validate().unwrap_err());
                assert!(format!("{error:?}").contains(field.path), "{error:?}");
            }
        }
    }

    #[test]
    fn choices_are_accepted_and_presets_are_valid() {
        for field in FIELDS
            .iter()
            .filter(|field| field.kind == FieldKind::Choice)
        {
            for &name in field.choices {
                if field.path == PATTERN || field.path == ARRIVAL {
                    continue;
                }
                let mut value = with(field);
                set(&mut value, field.path, json!(name));
                settings(value, false).unwrap_or_else(|error| panic!("{name}: {error:?}"));
            }
        }
        for preset in presets() {
            let value = serde_json::to_value(&preset.settings).unwrap();
            settings(value, false).unwrap_or_else(|error| panic!("{}: {error:?}", preset.id));
        }
    }

    #[test]
    fn errors_name_the_field() {
        for (value, field) in [
            (json!({ "messages": "many" }), "settings.messages"),
            (json!({ "card": { "card_entires": 3 } }), "settings.card"),
            (
                json!({ "card": { "policy": "belady" } }),
                "settings.card.policy",
            ),
            (
                json!({ "arrival": { "name": "recorded" } }),
                "settings.arrival.name",
            ),
            (
                json!({ "workload": { "relaxed_share": 0.9, "strict_share": 0.9 } }),
                "settings.workload.relaxed_share",
            ),
            (
                json!({ "card": { "pinned": 4_000 } }),
                "settings.card.pinned",
            ),
            (json!([1]), "settings"),
        ] {
            let error = settings(value.clone(), false).unwrap_err();
            let shown = format!("{error:?}");
            assert!(
                shown.contains(&format!("Some(\"{field}")),
                "{value}: {shown}"
            );
        }
    }
}
