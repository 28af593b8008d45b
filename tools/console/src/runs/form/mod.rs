//! The form of a simulation: presets, fields with their limits, and the check of what comes back.
//!
//! [`FIELDS`] names every setting that a form shows, by its path in the JSON of
//! [`SimulationSettings`]. The same table checks the settings of a new run, so that an error names
//! the field, and then the model checks them itself.
//!
//! - I1: the table knows every setting: a test compares it with the JSON of the defaults.
//! - I2: settings are checked on threads for blocking calls, [`CHECKS`] at a time, since the model
//!   is built to check them: that takes memory and time by the settings.

mod fields;

use std::sync::Arc;

use axum::Json;
use farcore_card::settings::SettingError;
use farcore_card::simulator::{Arrival, Preset, Simulation, SimulationSettings};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Semaphore;

use self::fields::{ARRIVAL, FIELDS, Field};
use crate::error::{ApiError, ApiResult};

/// Settings that are checked at a time.
pub(crate) const CHECKS: usize = 2;

/// A field with its default.
#[derive(Debug, Serialize)]
struct ShownField {
    #[serde(flatten)]
    field: Field,
    default: Value,
}

/// Settings to start from.
#[derive(Debug, Serialize)]
struct ShownPreset {
    id: &'static str,
    settings: SimulationSettings,
}

/// The form.
#[derive(Debug, Serialize)]
pub(super) struct Form {
    presets: Vec<ShownPreset>,
    fields: Vec<ShownField>,
}

fn presets() -> Vec<ShownPreset> {
    let shown = |Preset { id, settings }| ShownPreset { id, settings };
    Preset::all().into_iter().map(shown).collect()
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
    let message = beyond(value, minimum, maximum);
    Err(ApiError::invalid(shown_path(field.path), message))
}

/// What is wrong with a value beyond its limits. The field of the answer says which it is.
fn beyond(value: f64, minimum: f64, maximum: f64) -> String {
    format!("{value} does not work: write {minimum} to {maximum}")
}

/// The error of the model, with the field that it is about. The names that the model gives
/// settings are those of the command line, and a form has others: only an error that is of no field
/// repeats them.
fn named(error: &SettingError) -> ApiError {
    let (SettingError::Range { name, .. } | SettingError::Conflict { name, .. }) = error;
    // Of a sum, the first part.
    let first = name.split(' ').next().unwrap_or_default();
    let Some(field) = FIELDS.iter().find(|field| field.name == first) else {
        return ApiError::invalid("settings", error.to_string());
    };
    let message = match error {
        SettingError::Range { value, max, .. } if name.contains('+') => {
            format!("with the shares that exclude it this is {value}: write at most {max} in all")
        }
        SettingError::Range {
            value, min, max, ..
        } => beyond(*value, *min, *max),
        SettingError::Conflict { why, .. } => why.clone(),
    };
    ApiError::invalid(shown_path(field.path), message)
}

/// The settings of a new run, with every limit checked on another thread in its turn.
///
/// # Errors
/// 422 with the path of the first field that is wrong.
pub(crate) async fn checked(
    turns: &Arc<Semaphore>,
    value: Value,
    has_trace: bool,
) -> ApiResult<SimulationSettings> {
    let turns = Arc::clone(turns);
    let turn = turns.acquire_owned().await.map_err(ApiError::internal)?;
    // The turn lasts as long as the work, even if the client goes away.
    let work = move || {
        let outcome = settings(value, has_trace);
        drop(turn);
        outcome
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(ApiError::internal)?
}

/// The settings of a new run, with every limit checked.
///
/// # Errors
/// 422 with the path of the first field that is wrong.
fn settings(value: Value, has_trace: bool) -> ApiResult<SimulationSettings> {
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

    use farcore_card::workload::Pattern;
    use serde_json::json;

    use super::fields::{FieldKind, PATTERN, When};
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

    #[tokio::test]
    async fn a_check_waits_for_its_turn_off_the_threads_of_requests() {
        let turns = Arc::new(Semaphore::new(0));
        let check = {
            let turns = Arc::clone(&turns);
            tokio::spawn(async move { checked(&turns, json!({}), false).await })
        };
        // This test has one thread for requests: another task goes on beside the check.
        tokio::task::yield_now().await;
        assert!(!check.is_finished());
        // Others with a turn are checked meanwhile.
        let free = Arc::new(Semaphore::new(1));
        for _ in 0..3 {
            checked(&free, json!({}), false).await.unwrap();
        }
        assert!(!check.is_finished());
        turns.add_permits(1);
        assert!(check.await.unwrap().is_ok());
        let _back = turns.acquire().await.unwrap();
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

    #[test]
    fn errors_of_the_model_have_no_names_of_the_command_line() {
        for value in [
            json!({ "workload": { "relaxed_share": 0.9, "strict_share": 0.9 } }),
            json!({ "card": { "pinned": 4_000 } }),
            json!({ "card": { "batch": { "min": 9, "max": 8 } } }),
            json!({ "card": { "card_entries": 1 } }),
        ] {
            let error = settings(value.clone(), false).unwrap_err();
            let message = error.message();
            let names = FIELDS.iter().map(|field| field.name);
            let found: Vec<_> = names
                .filter(|name| name.contains('-') && message.contains(name))
                .collect();
            assert_eq!(found, [""; 0], "{value}: {message}");
            assert!(message.contains(": write "), "{message}");
        }
    }
}
