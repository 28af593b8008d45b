//! What `INFO replication`, `ROLE` and `CONFIG GET` show.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::state::{Phase, State};
use crate::cores::shared::Shared;
use crate::figures::lines::line;
use crate::replication::replicas::port::{ONLINE, ReplicaLine};
use crate::resp::Writer;

/// The settings of `CONFIG GET`: name and value. Each has Redis's older name, too.
pub(crate) fn settings(shared: &Shared) -> Vec<(&'static str, String)> {
    let settings = shared.replication.state().settings.clone();
    let yes = |is_set: bool| if is_set { "yes" } else { "no" }.to_owned();
    let of = |one: &'static str, older, value: String| [(one, value.clone()), (older, value)];
    let mut all = vec![
        ("masteruser", settings.user.clone()),
        ("masterauth", settings.password.to_string()),
        ("repl-timeout", settings.timeout_s.to_string()),
    ];
    let replicas = &shared.replication.replicas.settings;
    // ORDERING: relaxed; they are settings.
    let behind = replicas.behind_bytes.load(Ordering::Relaxed);
    let behind = if behind == u64::MAX { 0 } else { behind };
    let waits = replicas.waits.load(Ordering::Relaxed);
    all.extend([
        (
            "repl-backlog-size",
            replicas.backlog_bytes.load(Ordering::Relaxed).to_string(),
        ),
        (
            "client-output-buffer-limit",
            format!("normal 0 0 0 slave {behind} {behind} 0 pubsub 33554432 8388608 60"),
        ),
        (
            "slow-replicas",
            if waits { "wait" } else { "drop" }.to_owned(),
        ),
        ("repl-diskless-sync", "yes".to_owned()),
        ("tls-replication", yes(shared.source_tls.is_some())),
    ]);
    for pair in [
        of(
            "min-replicas-to-write",
            "min-slaves-to-write",
            replicas.least.load(Ordering::Relaxed).to_string(),
        ),
        of(
            "min-replicas-max-lag",
            "min-slaves-max-lag",
            replicas.lag_s.load(Ordering::Relaxed).to_string(),
        ),
        of(
            "replica-read-only",
            "slave-read-only",
            yes(settings.is_read_only),
        ),
        of(
            "replica-serve-stale-data",
            "slave-serve-stale-data",
            yes(settings.serves_stale),
        ),
        of(
            "replica-priority",
            "slave-priority",
            settings.priority.to_string(),
        ),
    ] {
        all.extend(pair);
    }
    all
}

/// Writes the section `Replication`.
pub(crate) fn write(shared: &Shared, text: &mut String) {
    let state = shared.replication.state();
    if state.link.is_some() {
        write_link(shared, &state, text);
    } else {
        line(text, "role", "master");
    }
    write_replicas(shared, text);
    line(text, "master_failover_state", "no-failover");
    let history = &state.history;
    line(text, "master_replid", history.id);
    let before = history.before;
    let id = before.map_or(super::history::StreamId::NONE, |(id, _)| id);
    line(text, "master_replid2", id);
    line(text, "master_repl_offset", shared.replication.offset());
    match before {
        Some((_, offset)) => line(text, "second_repl_offset", offset),
        None => line(text, "second_repl_offset", -1),
    }
    let replicas = &shared.replication.replicas;
    let (start, end) = {
        let backlog = replicas.backlog();
        (backlog.start(), backlog.end())
    };
    let size = replicas.settings.backlog_bytes.load(Ordering::Relaxed);
    let figures = &replicas.figures;
    let figure = |figure: &std::sync::atomic::AtomicU64| figure.load(Ordering::Relaxed);
    for (name, value) in [
        ("repl_backlog_active", u64::from(end > start)),
        ("repl_backlog_size", size),
        // As Redis, which counts bytes from 1 on.
        (
            "repl_backlog_first_byte_offset",
            if end > start { start + 1 } else { 0 },
        ),
        ("repl_backlog_histlen", end - start),
        ("served_full_syncs", figure(&figures.full_syncs)),
        ("served_partial_syncs", figure(&figures.partial_syncs)),
        ("served_partial_refused", figure(&figures.partial_refused)),
        ("dropped_replicas", figure(&figures.dropped)),
        ("replicated_whole_keys", figure(&figures.whole_keys)),
    ] {
        line(text, name, value);
    }
}

/// Writes what the section `Stats` has of replicas, as in Redis.
pub(crate) fn write_stats(shared: &Shared, text: &mut String) {
    let figures = &shared.replication.replicas.figures;
    for (name, figure) in [
        ("sync_full", &figures.full_syncs),
        ("sync_partial_ok", &figures.partial_syncs),
        ("sync_partial_err", &figures.partial_refused),
    ] {
        line(text, name, figure.load(Ordering::Relaxed));
    }
}

/// Writes which replicas there are.
fn write_replicas(shared: &Shared, text: &mut String) {
    let replicas = shared.replication.replicas.lines().clone();
    line(text, "connected_slaves", replicas.len());
    let settings = &shared.replication.replicas.settings;
    if settings.least.load(Ordering::Relaxed) > 0 {
        let lag = Duration::from_secs(settings.lag_s.load(Ordering::Relaxed).into());
        let good = shared.replication.replicas.good(lag);
        line(text, "min_slaves_good_slaves", good);
    }
    let behind = replicas.iter().map(|replica| replica.behind).max();
    line(text, "replicas_behind_bytes", behind.unwrap_or(0));
    for (place, replica) in replicas.iter().enumerate() {
        let ReplicaLine {
            host,
            port,
            state,
            offset,
            heard,
            behind: _,
        } = replica;
        let lag = heard.elapsed().as_secs();
        line(
            text,
            &format!("slave{place}"),
            format_args!("ip={host},port={port},state={state},offset={offset},lag={lag}"),
        );
    }
}

fn write_link(shared: &Shared, state: &State, text: &mut String) {
    let Some(link) = &state.link else {
        return;
    };
    let figures = &shared.replication.figures;
    // ORDERING: relaxed; they are figures.
    let figure = |figure: &std::sync::atomic::AtomicU64| figure.load(Ordering::Relaxed);
    let is_up = link.phase == Phase::Connected;
    let is_syncing = link.phase == Phase::Sync;
    line(text, "role", "slave");
    line(text, "master_host", &link.address.host);
    line(text, "master_port", link.address.port);
    line(
        text,
        "master_link_status",
        if is_up { "up" } else { "down" },
    );
    let silent_ms = farcore_tuning::system_ms().saturating_sub(figure(&figures.heard_ms));
    match is_up || is_syncing {
        true => line(text, "master_last_io_seconds_ago", silent_ms / 1000),
        false => line(text, "master_last_io_seconds_ago", -1),
    }
    line(text, "master_sync_in_progress", u8::from(is_syncing));
    line(text, "slave_read_repl_offset", figure(&figures.read));
    line(text, "slave_repl_offset", figure(&figures.applied));
    if is_syncing {
        let (total, read) = (figure(&figures.total_bytes), figure(&figures.loaded_bytes));
        let share = read as f64 * 100.0 / total.max(1) as f64;
        line(text, "master_sync_total_bytes", total);
        line(text, "master_sync_read_bytes", read);
        line(text, "master_sync_left_bytes", total.saturating_sub(read));
        // Of a file without a length no share is known.
        if total > 0 {
            line(text, "master_sync_perc", format_args!("{share:.2}"));
        }
    }
    if !is_up {
        let since = link.down_since.elapsed().as_secs();
        line(text, "master_link_down_since_seconds", since);
    }
    if let Some(error) = &link.error {
        line(text, "master_link_error", error.replace(['\r', '\n'], " "));
    }
    let settings = &state.settings;
    line(text, "slave_priority", settings.priority);
    line(text, "slave_read_only", u8::from(settings.is_read_only));
    line(text, "replica_announced", 1);
    for (name, value) in [
        ("replica_full_syncs", figure(&figures.full_syncs)),
        ("replica_partial_syncs", figure(&figures.partial_syncs)),
        ("replica_failed_commands", figure(&figures.failed)),
        ("replica_passed_over_commands", figure(&figures.passed_over)),
    ] {
        line(text, name, value);
    }
}

/// Writes the reply of `ROLE`.
pub(crate) fn write_role(shared: &Shared, writer: &mut Writer<'_>) {
    let state = shared.replication.state();
    let offset = i64::try_from(shared.replication.offset()).unwrap_or(i64::MAX);
    match &state.link {
        Some(link) => {
            writer.array(5);
            writer.bulk(b"slave");
            writer.bulk(link.address.host.as_bytes());
            writer.integer(link.address.port.into());
            writer.bulk(link.phase.word().as_bytes());
            // As Redis, which knows no offset of a link that is down.
            writer.integer(match link.phase {
                Phase::Connected => offset,
                _ => -1,
            });
        }
        None => {
            let replicas = shared.replication.replicas.lines().clone();
            let online: Vec<_> = (replicas.iter())
                .filter(|replica| replica.state == ONLINE)
                .collect();
            writer.array(3);
            writer.bulk(b"master");
            writer.integer(offset);
            writer.array(online.len());
            for replica in online {
                writer.array(3);
                writer.bulk(replica.host.as_bytes());
                writer.bulk(replica.port.to_string().as_bytes());
                writer.bulk(replica.offset.to_string().as_bytes());
            }
        }
    }
}
