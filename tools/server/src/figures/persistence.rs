//! What `INFO` and `CONFIG GET` show of the data directory.

use std::path::Path;
use std::time::Duration;

use farcore::{DurableStats, LogPolicy};

use super::lines::{line, lines};
use crate::cores::shared::Shared;
use crate::durability::{Kind, LastSave, save_points_text};

/// The settings of `CONFIG GET` about it.
pub(super) fn settings(shared: &Shared) -> Vec<(&'static str, String)> {
    let saving = &shared.saving;
    let yes_or_no = |is: bool| if is { "yes" } else { "no" }.to_owned();
    let Some(data) = &saving.options else {
        return vec![("appendonly", yes_or_no(false)), ("save", String::new())];
    };
    let sync = match data.log {
        LogPolicy::Always => "always",
        LogPolicy::EverySecond | LogPolicy::Off => "everysec",
    };
    vec![
        ("appendfsync", sync.to_owned()),
        ("appendonly", yes_or_no(data.log != LogPolicy::Off)),
        ("dbfilename", String::new()),
        ("dir", data.dir.display().to_string()),
        ("save", save_points_text(&saving.save_points())),
        (
            "stop-writes-on-bgsave-error",
            yes_or_no(saving.stops_writes()),
        ),
    ]
}

/// Seconds as Redis shows them: -1 for none.
fn seconds(text: &mut String, name: &str, time: Option<Duration>) {
    match time {
        Some(time) => line(text, name, time.as_secs()),
        None => line(text, name, -1),
    }
}

fn status(last: &LastSave) -> &'static str {
    if last.has_failed { "err" } else { "ok" }
}

/// Bytes of the files of a directory: of bases, and of all.
fn file_bytes(dir: &Path) -> (u64, u64) {
    let (mut bases, mut all) = (0, 0);
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let bytes = entry.metadata().map_or(0, |file| file.len());
        all += bytes;
        if entry.file_name().to_string_lossy().starts_with("base-") {
            bases += bytes;
        }
    }
    (bases, all)
}

/// Writes the section `Persistence`.
pub(super) fn write(shared: &Shared, text: &mut String) {
    let saving = &shared.saving;
    let is_loading = saving.refusals.is_loading();
    lines(
        text,
        &[("loading", is_loading.into()), ("async_loading", 0)],
    );
    let stats = saving.stats();
    let current = saving.current();
    let current_of = |kind| current.filter(|(of, _)| *of == kind).map(|(_, time)| time);
    let (save, rewrite) = (saving.last(Kind::Save), saving.last(Kind::Rewrite));
    let (saves, mut rewrites) = (current_of(Kind::Save), current_of(Kind::Rewrite));
    // One that the engine makes by itself makes the log shorter.
    if current.is_none() && stats.is_saving {
        rewrites = Some(Duration::ZERO);
    }
    let changes = if saving.is_durable() {
        saving.unsaved_changes()
    } else {
        0
    };
    let last_save = if saving.is_durable() {
        saving.last_save_s()
    } else {
        0
    };
    lines(
        text,
        &[
            ("rdb_changes_since_last_save", changes),
            ("rdb_bgsave_in_progress", saves.is_some().into()),
            ("rdb_last_save_time", last_save),
        ],
    );
    line(text, "rdb_last_bgsave_status", status(&save));
    seconds(text, "rdb_last_bgsave_time_sec", save.took);
    seconds(text, "rdb_current_bgsave_time_sec", saves);
    lines(
        text,
        &[
            ("rdb_saves", save.count),
            ("rdb_last_load_keys_loaded", stats.loaded_entries),
            ("aof_enabled", stats.is_logging.into()),
            ("aof_rewrite_in_progress", rewrites.is_some().into()),
            (
                "aof_rewrite_scheduled",
                (saving.scheduled() == Some(Kind::Rewrite)).into(),
            ),
        ],
    );
    seconds(text, "aof_last_rewrite_time_sec", rewrite.took);
    seconds(text, "aof_current_rewrite_time_sec", rewrites);
    line(text, "aof_last_bgrewrite_status", status(&rewrite));
    lines(
        text,
        &[
            ("aof_rewrites", rewrite.count),
            ("aof_rewrites_consecutive_failures", rewrite.failed),
        ],
    );
    log(shared, &stats, text);
    if is_loading {
        loading(shared, text);
    }
}

/// The lines of the log, and of what it follows.
fn log(shared: &Shared, stats: &DurableStats, text: &mut String) {
    let write_status = if stats.is_failing { "err" } else { "ok" };
    line(text, "aof_last_write_status", write_status);
    if let Some(data) = shared.saving.options.as_ref().filter(|_| stats.is_logging) {
        let (base_bytes, bytes) = file_bytes(&data.dir);
        lines(
            text,
            &[
                ("aof_current_size", bytes),
                ("aof_base_size", base_bytes),
                ("aof_pending_rewrite", 0),
                ("aof_buffer_length", stats.unsynced_bytes),
                ("aof_torn_bytes", stats.torn_bytes),
                ("aof_repair_in_progress", stats.is_repairing.into()),
                ("aof_repairs", stats.repairs),
                ("aof_repaired_keys", stats.repaired_keys),
            ],
        );
    }
}

fn loading(shared: &Shared, text: &mut String) {
    let saving = &shared.saving;
    let figures = saving.durability.load_figures();
    let (loaded, total) = (figures.bytes.min(figures.total_bytes), figures.total_bytes);
    let passed = shared.started.elapsed().as_secs_f64();
    lines(
        text,
        &[
            ("loading_start_time", saving.began_s),
            ("loading_total_bytes", total),
            ("loading_loaded_bytes", loaded),
        ],
    );
    let part = loaded as f64 / total.max(1) as f64;
    line(
        text,
        "loading_loaded_perc",
        format_args!("{:.2}", part * 100.0),
    );
    let left = if loaded > 0 {
        passed / part - passed
    } else {
        1.0
    };
    line(text, "loading_eta_seconds", format_args!("{left:.0}"));
}
