//! What `INFO` and `CONFIG GET` tell.

use std::fmt::Write as _;

use crate::commands::REDIS_VERSION;
use crate::shared::Shared;

/// The settings of `CONFIG GET`: name and value.
pub(crate) fn settings(shared: &Shared) -> Vec<(&'static str, String)> {
    let options = &shared.options;
    let policy = if options.evicts {
        "allkeys-lru"
    } else {
        "noeviction"
    };
    let timeout = options.idle_timeout.map_or(0, |timeout| timeout.as_secs());
    let cap = shared.reporter.stats().local_cap_bytes;
    [
        ("appendonly", "no".to_owned()),
        ("databases", "1".to_owned()),
        ("maxclients", options.clients_max.to_string()),
        ("maxmemory", cap.to_string()),
        ("maxmemory-policy", policy.to_owned()),
        ("port", shared.port.to_string()),
        ("proto-max-bulk-len", farcore_bytes().to_string()),
        ("save", String::new()),
        ("timeout", timeout.to_string()),
    ]
    .into()
}

/// Bytes of the longest value.
const fn farcore_bytes() -> u64 {
    64 << 20
}

type Section = (&'static str, fn(&Shared, u64, &mut String));

const SECTIONS: &[Section] = &[
    ("Server", server),
    ("Clients", clients),
    ("Memory", memory),
    ("Persistence", persistence),
    ("Stats", stats),
    ("Replication", replication),
    ("CPU", cpu),
    ("Cores", cores),
    ("Cluster", cluster),
    ("Keyspace", keyspace),
];

/// The sections that are wanted; all if none is named.
pub(crate) fn text(shared: &Shared, keys: u64, wanted: &[String]) -> String {
    let is_all = wanted.is_empty()
        || wanted
            .iter()
            .any(|one| matches!(&one[..], "all" | "everything" | "default"));
    let mut text = String::new();
    for (name, write) in SECTIONS {
        if is_all || wanted.iter().any(|one| one.eq_ignore_ascii_case(name)) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            let _ = write!(text, "# {name}\r\n");
            write(shared, keys, &mut text);
        }
    }
    text
}

fn line(text: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = write!(text, "{name}:{value}\r\n");
}

fn server(shared: &Shared, _: u64, text: &mut String) {
    line(text, "redis_version", REDIS_VERSION);
    line(text, "farcore_version", env!("CARGO_PKG_VERSION"));
    line(text, "redis_mode", "standalone");
    line(text, "os", std::env::consts::OS);
    line(text, "arch_bits", usize::BITS);
    line(text, "process_id", std::process::id());
    line(text, "run_id", &shared.run_id);
    line(text, "tcp_port", shared.port);
    line(
        text,
        "uptime_in_seconds",
        shared.started.elapsed().as_secs(),
    );
    line(
        text,
        "uptime_in_days",
        shared.started.elapsed().as_secs() / 86_400,
    );
    line(text, "io_threads_active", 0);
}

fn clients(shared: &Shared, _: u64, text: &mut String) {
    use std::sync::atomic::Ordering;
    line(
        text,
        "connected_clients",
        shared.connected.load(Ordering::Relaxed),
    );
    line(text, "maxclients", shared.options.clients_max);
    line(text, "blocked_clients", 0);
}

fn memory(shared: &Shared, _: u64, text: &mut String) {
    let stats = shared.reporter.stats();
    let resident = resident_bytes();
    let total = &stats.total;
    let used = (total.frames_total - total.frames_free) * u64::from(stats.page_bytes);
    line(text, "used_memory", used);
    line(text, "used_memory_rss", resident);
    line(text, "used_memory_human", human(used));
    line(text, "maxmemory", stats.local_cap_bytes);
    line(text, "maxmemory_human", human(stats.local_cap_bytes));
    let policy = if shared.options.evicts {
        "allkeys-lru"
    } else {
        "noeviction"
    };
    line(text, "maxmemory_policy", policy);
    line(text, "far_memory", stats.far_used_bytes);
    line(text, "mem_fragmentation_ratio", 1);
    line(text, "mem_allocator", "system");
}

fn human(bytes: u64) -> String {
    let units = ["B", "K", "M", "G", "T"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.2}{}", units[unit])
}

/// Resident memory of this process.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = (pages.split(' ').nth(1))
        .and_then(|pages| pages.parse().ok())
        .unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

fn persistence(_: &Shared, _: u64, text: &mut String) {
    line(text, "loading", 0);
    line(text, "rdb_changes_since_last_save", 0);
    line(text, "rdb_bgsave_in_progress", 0);
    line(text, "rdb_last_save_time", 0);
    line(text, "aof_enabled", 0);
}

fn stats(shared: &Shared, _: u64, text: &mut String) {
    use std::sync::atomic::Ordering;
    let sum = |figure: fn(&crate::counters::CoreCounters) -> u64| -> u64 {
        shared.counters.iter().map(figure).sum()
    };
    let engine = shared.reporter.stats().total;
    line(
        text,
        "total_connections_received",
        shared.accepted.load(Ordering::Relaxed),
    );
    line(
        text,
        "rejected_connections",
        shared.refused.load(Ordering::Relaxed),
    );
    line(
        text,
        "total_commands_processed",
        sum(|core| core.commands.get()),
    );
    line(
        text,
        "total_error_replies",
        sum(|core| core.failed_commands.get()),
    );
    line(
        text,
        "total_net_input_bytes",
        sum(|core| core.received_bytes.get()),
    );
    line(
        text,
        "total_net_output_bytes",
        sum(|core| core.sent_bytes.get()),
    );
    line(
        text,
        "total_reads_processed",
        sum(|core| core.receives.get()),
    );
    line(text, "total_writes_processed", sum(|core| core.sends.get()));
    line(
        text,
        "client_output_buffer_limit_disconnections",
        sum(|core| core.slow_subscribers.get()),
    );
    line(text, "expired_keys", engine.expired);
    line(text, "evicted_keys", engine.evicted);
    line(
        text,
        "keyspace_hits",
        engine.gets.saturating_sub(engine.gets_absent),
    );
    line(text, "keyspace_misses", engine.gets_absent);
}

fn replication(shared: &Shared, _: u64, text: &mut String) {
    line(text, "role", "master");
    line(text, "connected_slaves", 0);
    line(text, "master_replid", &shared.run_id);
    line(text, "master_repl_offset", 0);
}

fn cpu(_: &Shared, _: u64, text: &mut String) {
    let clock = |id| rustix::time::clock_gettime(id);
    let used = clock(rustix::time::ClockId::ProcessCPUTime);
    line(
        text,
        "used_cpu_user",
        format_args!("{}.{:06}", used.tv_sec, used.tv_nsec / 1000),
    );
    line(text, "used_cpu_sys", "0.000000");
}

fn cores(shared: &Shared, _: u64, text: &mut String) {
    use std::sync::atomic::Ordering;
    for (place, (core, port)) in shared.counters.iter().zip(&shared.cores).enumerate() {
        let connections = port.connections.load(Ordering::Relaxed);
        let _ = write!(
            text,
            "core{place}:connections={connections},commands={},receives={},sends={},sleeps={}\r\n",
            core.commands.get(),
            core.receives.get(),
            core.sends.get(),
            core.sleeps.get(),
        );
    }
}

fn cluster(_: &Shared, _: u64, text: &mut String) {
    line(text, "cluster_enabled", 0);
}

fn keyspace(_: &Shared, keys: u64, text: &mut String) {
    if keys > 0 {
        line(text, "db0", format_args!("keys={keys},expires=0,avg_ttl=0"));
    }
}
