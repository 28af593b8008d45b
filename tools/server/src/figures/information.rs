//! What `INFO` and `CONFIG GET` show.

use std::fmt::Write as _;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cores::shared::Shared;
use crate::databases::{Counts, DATABASES};
use crate::figures::counters::CoreCounters;
use crate::figures::failures::Failures;
use crate::figures::lines::{line, lines};
use crate::figures::persistence;
use crate::figures::server_figures::{Baseline, CallFigures, CoreFigures};
use crate::replication;

/// The version of Redis whose behaviour clients can expect.
pub(crate) const REDIS_VERSION: &str = "7.2.4";
/// Bytes of the longest value.
const VALUE_BYTES_MAX: u64 = 64 << 20;

/// The settings of `CONFIG GET`: name and value.
pub(crate) fn settings(shared: &Shared) -> Vec<(&'static str, String)> {
    let options = &shared.options;
    let timeout = options.idle_timeout.map_or(0, |timeout| timeout.as_secs());
    let cap = shared.reporter.stats().local_cap_bytes;
    let cap = shared.memory_limit.bytes().unwrap_or(cap);
    let slow = &shared.slow;
    let file = options.acl_file.as_ref();
    let file = file.map_or_else(String::new, |file| file.display().to_string());
    let channels = if shared.users.defaults().has_all_channels {
        "allchannels"
    } else {
        "resetchannels"
    };
    let mut settings = vec![
        ("aclfile", file),
        ("acllog-max-len", shared.users.denials_kept().to_string()),
        ("acl-pubsub-default", channels.to_owned()),
        ("databases", DATABASES.to_string()),
        ("latency-monitor-threshold", "0".to_owned()),
        (
            "busy-reply-threshold",
            options.script_time_limit.as_millis().to_string(),
        ),
        (
            "lua-time-limit",
            options.script_time_limit.as_millis().to_string(),
        ),
        ("maxclients", options.clients_max.to_string()),
        ("maxmemory", cap.to_string()),
        ("maxmemory-policy", policy(shared).to_owned()),
        (
            "notify-keyspace-events",
            shared.event_classes.selected().to_string(),
        ),
        ("port", shared.port.to_string()),
        ("proto-max-bulk-len", VALUE_BYTES_MAX.to_string()),
        (
            "slowlog-log-slower-than",
            slow.limit_us.load(Ordering::Relaxed).to_string(),
        ),
        (
            "slowlog-max-len",
            slow.commands_max.load(Ordering::Relaxed).to_string(),
        ),
        (
            "tracking-table-max-keys",
            shared.tracking.keys_max.load(Ordering::Relaxed).to_string(),
        ),
        ("tcp-keepalive", shared.keepalive.seconds().to_string()),
        ("timeout", timeout.to_string()),
    ];
    settings.extend(persistence::settings(shared));
    settings.extend(replication::information::settings(shared));
    settings.extend(shared.encoding_limits.settings());
    settings
}

fn policy(shared: &Shared) -> &'static str {
    if shared.options.evicts {
        "allkeys-lru"
    } else {
        "noeviction"
    }
}

/// What the sections are made from.
pub(crate) struct Gathering<'a> {
    shared: &'a Shared,
    /// Keys of each database, by its number.
    keys_of: Counts,
    failures: Vec<(String, u64)>,
    now: Baseline,
    /// Where the figures that are shown begin.
    since: Baseline,
}

impl<'a> Gathering<'a> {
    pub(crate) fn of(shared: &'a Shared, keys_of: Counts, failures: Failures) -> Self {
        let since = shared.baseline.lock();
        let since = since.unwrap_or_else(PoisonError::into_inner).clone();
        Self {
            shared,
            keys_of,
            failures: failures.sorted(),
            now: shared.figures(),
            since,
        }
    }

    /// A figure since it was reset.
    fn since(&self, figure: impl Fn(&Baseline) -> u64) -> u64 {
        figure(&self.now).saturating_sub(figure(&self.since))
    }

    /// A figure of all cores since it was reset.
    fn sum(&self, figure: impl Fn(&CoreFigures) -> u64) -> u64 {
        self.since(|at| figure(&at.server.total()))
    }

    /// Figures of a command since they were reset.
    fn calls(&self, place: usize, now: &CallFigures) -> CallFigures {
        let since = self.since.server.calls.get(place).copied();
        let since = since.unwrap_or_default();
        CallFigures {
            command: now.command,
            calls: now.calls.saturating_sub(since.calls),
            rejected: now.rejected.saturating_sub(since.rejected),
            failed: now.failed.saturating_sub(since.failed),
        }
    }
}

/// Figures of the memory of engine and server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryFigures {
    /// Local memory that holds data or the index.
    pub(crate) used_bytes: u64,
    /// That part of it that holds copies of far records, which leave when others need it.
    pub(crate) copied_bytes: u64,
    pub(crate) cap_bytes: u64,
    pub(crate) index_bytes: u64,
    pub(crate) far_bytes: u64,
    pub(crate) resident_bytes: u64,
    pub(crate) client_bytes: u64,
    pub(crate) keys: u64,
    /// Memory that was touched in advance, of what is to be.
    pub(crate) touched_bytes: u64,
    pub(crate) to_touch_bytes: u64,
}

impl MemoryFigures {
    pub(crate) fn of(shared: &Shared) -> Self {
        let stats = shared.reporter.stats();
        let total = &stats.total;
        let frames = total.frames_total - total.frames_free.min(total.frames_total);
        let clients = shared.counters.iter();
        Self {
            used_bytes: frames * u64::from(stats.page_bytes),
            copied_bytes: total.frames_cache * u64::from(stats.page_bytes),
            cap_bytes: shared.memory_limit.bytes().unwrap_or(stats.local_cap_bytes),
            index_bytes: total.index_bytes,
            far_bytes: stats.far_used_bytes,
            resident_bytes: resident_bytes(),
            client_bytes: clients.map(|core| core.connection_bytes.get()).sum(),
            keys: total.keys,
            touched_bytes: stats.touched_bytes,
            to_touch_bytes: stats.to_touch_bytes,
        }
    }
}

impl MemoryFigures {
    /// What `maxmemory` limits.
    pub(crate) fn limited_bytes(&self) -> u64 {
        self.used_bytes.saturating_sub(self.copied_bytes)
    }
}

/// When a section is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shown {
    Always,
    /// Only if all or this one is wanted.
    OnDemand,
}

type Section = (&'static str, Shown, fn(&Gathering<'_>, &mut String));

const SECTIONS: &[Section] = &[
    ("Server", Shown::Always, server),
    ("Clients", Shown::Always, clients),
    ("Memory", Shown::Always, memory),
    ("Persistence", Shown::Always, |gathered, text| {
        persistence::write(gathered.shared, text);
    }),
    ("Stats", Shown::Always, stats),
    ("Replication", Shown::Always, |gathered, text| {
        replication::information::write(gathered.shared, text);
    }),
    ("CPU", Shown::Always, cpu),
    ("Modules", Shown::Always, |_, _| {}),
    ("Commandstats", Shown::OnDemand, command_stats),
    ("Errorstats", Shown::Always, error_stats),
    ("Latencystats", Shown::OnDemand, |_, _| {}),
    ("Cores", Shown::Always, cores),
    ("Cluster", Shown::Always, cluster),
    ("Keyspace", Shown::Always, keyspace),
];

/// The sections that are wanted, in small letters; the usual ones if none is named.
pub(crate) fn text(gathered: &Gathering<'_>, wanted: &[String]) -> String {
    let has = |name: &str| wanted.iter().any(|one| one.eq_ignore_ascii_case(name));
    let is_all = has("all") || has("everything");
    let is_default = wanted.is_empty() || has("default");
    let mut text = String::new();
    for (name, shown, write) in SECTIONS {
        if is_all || (is_default && *shown == Shown::Always) || has(name) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            let _ = write!(text, "# {name}\r\n");
            write(gathered, &mut text);
        }
    }
    text
}

fn server(gathered: &Gathering<'_>, text: &mut String) {
    let shared = gathered.shared;
    let uptime = shared.started.elapsed().as_secs();
    line(text, "redis_version", REDIS_VERSION);
    line(text, "farcore_version", env!("CARGO_PKG_VERSION"));
    let is_part = shared.cluster.is_some();
    let mode = if is_part { "cluster" } else { "standalone" };
    line(text, "redis_mode", mode);
    line(text, "os", std::env::consts::OS);
    line(text, "arch_bits", usize::BITS);
    line(text, "multiplexing_api", "epoll+io_uring");
    line(text, "process_id", std::process::id());
    line(text, "run_id", &shared.run_id);
    line(text, "tcp_port", shared.port);
    line(text, "server_time_usec", farcore_tuning::system_ns() / 1000);
    line(text, "uptime_in_seconds", uptime);
    line(text, "uptime_in_days", uptime / 86_400);
    line(text, "io_threads_active", 0);
}

fn clients(gathered: &Gathering<'_>, text: &mut String) {
    let shared = gathered.shared;
    let connected = shared.connected.load(Ordering::Relaxed) as u64;
    let tracking = shared.tracking.clients.load(Ordering::Relaxed) as u64;
    let paused = shared.pause.waiting.load(Ordering::Relaxed);
    lines(
        text,
        &[
            ("connected_clients", connected),
            ("cluster_connections", 0),
            ("maxclients", shared.options.clients_max as u64),
            (
                "blocked_clients",
                (shared.waiting.clients() + paused) as u64,
            ),
            ("tracking_clients", tracking),
            (
                "unauthenticated_clients",
                gathered.now.server.total().unauthenticated,
            ),
            (
                "monitoring_clients",
                shared.monitors.load(Ordering::Relaxed) as u64,
            ),
        ],
    );
}

/// What scripts take, by the names of Redis.
fn scripts(shared: &Shared, text: &mut String) {
    let sum = |figure: fn(&CoreCounters) -> u64| shared.counters.iter().map(figure).sum::<u64>();
    let interpreters = sum(|core| core.interpreter_bytes.get());
    let cached = sum(|core| core.script_bytes.get());
    line(
        text,
        "number_of_cached_scripts",
        sum(|core| core.cached_scripts.get()),
    );
    line(text, "number_of_functions", 0);
    line(text, "number_of_libraries", 0);
    for (name, bytes) in [
        ("used_memory_lua", interpreters),
        ("used_memory_vm_eval", interpreters),
        ("used_memory_scripts_eval", cached),
        ("used_memory_vm_functions", 0),
        ("used_memory_vm_total", interpreters),
        ("used_memory_functions", 0),
        ("used_memory_scripts", cached),
    ] {
        line(text, name, bytes);
    }
    line(text, "used_memory_lua_human", human(interpreters));
    line(text, "used_memory_vm_total_human", human(interpreters));
    line(text, "used_memory_scripts_human", human(cached));
}

fn memory(gathered: &Gathering<'_>, text: &mut String) {
    let figures = MemoryFigures::of(gathered.shared);
    for (name, bytes) in [
        ("used_memory", figures.used_bytes),
        ("used_memory_rss", figures.resident_bytes),
        ("used_memory_dataset", figures.used_bytes),
        ("maxmemory", figures.cap_bytes),
        ("far_memory", figures.far_bytes),
    ] {
        line(text, name, bytes);
        line(text, &format!("{name}_human"), human(bytes));
    }
    line(text, "maxmemory_policy", policy(gathered.shared));
    scripts(gathered.shared, text);
    line(text, "index_memory", figures.index_bytes);
    line(text, "mem_clients_normal", figures.client_bytes);
    let clients = &gathered.shared.client_memory;
    for (name, bytes) in [
        ("client_memory", clients.limit()),
        ("client_memory_free", clients.free()),
        ("client_memory_of_one", clients.large_limit()),
    ] {
        line(text, name, bytes);
    }
    let ratio = figures.resident_bytes as f64 / figures.used_bytes.max(1) as f64;
    line(text, "mem_fragmentation_ratio", format_args!("{ratio:.2}"));
    line(text, "mem_allocator", "system");
    lines(
        text,
        &[
            ("memory_touched", figures.touched_bytes),
            ("memory_to_touch", figures.to_touch_bytes),
        ],
    );
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

/// What is known of keys that clients cache, and of replicas.
fn parts_of_stats(gathered: &Gathering<'_>, text: &mut String) {
    let tracking = &gathered.shared.tracking;
    let tracked = |count: &AtomicUsize| count.load(Ordering::Relaxed) as u64;
    lines(
        text,
        &[
            ("tracking_total_keys", tracked(&tracking.keys)),
            ("tracking_total_items", tracked(&tracking.items)),
            ("tracking_total_prefixes", tracked(&tracking.prefixes)),
        ],
    );
    replication::information::write_stats(gathered.shared, text);
}

fn stats(gathered: &Gathering<'_>, text: &mut String) {
    let rates = &gathered.shared.rates;
    let (received, sent) = (rates.received.get(), rates.sent.get());
    let lost_keys = gathered.shared.reporter.stats().total.lost_keys;
    parts_of_stats(gathered, text);
    lines(
        text,
        &[
            (
                "total_connections_received",
                gathered.since(|at| at.server.accepted),
            ),
            (
                "total_commands_processed",
                gathered.sum(|core| core.commands),
            ),
            ("instantaneous_ops_per_sec", rates.commands.get()),
            (
                "total_net_input_bytes",
                gathered.sum(|core| core.received_bytes),
            ),
            (
                "total_net_output_bytes",
                gathered.sum(|core| core.sent_bytes),
            ),
        ],
    );
    for (name, rate) in [
        ("instantaneous_input_kbps", received),
        ("instantaneous_output_kbps", sent),
    ] {
        line(text, name, format_args!("{:.2}", rate as f64 / 1024.0));
    }
    lines(
        text,
        &[
            (
                "rejected_connections",
                gathered.since(|at| at.server.refused),
            ),
            (
                "idle_connections_closed",
                gathered.since(|at| at.server.idle_closed),
            ),
            ("expired_keys", gathered.since(|at| at.expired)),
            ("evicted_keys", gathered.since(|at| at.evicted)),
            ("lost_keys", lost_keys),
            (
                "keyspace_hits",
                gathered.since(|at| at.gets.saturating_sub(at.gets_absent)),
            ),
            ("keyspace_misses", gathered.since(|at| at.gets_absent)),
            ("pubsub_channels", 0),
            ("pubsub_patterns", 0),
            ("latest_fork_usec", 0),
            ("unexpected_error_replies", 0),
            (
                "total_error_replies",
                gathered.sum(|core| core.failed_commands),
            ),
            ("total_reads_processed", gathered.sum(|core| core.receives)),
            ("total_writes_processed", gathered.sum(|core| core.sends)),
        ],
    );
    line(
        text,
        "client_output_buffer_limit_disconnections",
        gathered.sum(|core| core.slow_subscribers),
    );
    turns(gathered, text);
    evictions(gathered, text);
}

/// What kept the cores from serving other clients.
fn turns(gathered: &Gathering<'_>, text: &mut String) {
    let longest = gathered.now.server.total().longest_turn_steps;
    lines(text, &[("longest_turn_steps", longest)]);
}

/// Clients that were evicted, connections that authenticate late or never, and wrong passwords.
fn evictions(gathered: &Gathering<'_>, text: &mut String) {
    lines(
        text,
        &[
            ("evicted_clients", gathered.sum(|core| core.evicted_clients)),
            ("refused_held", gathered.sum(|core| core.refused_held)),
            ("stalled_uploads", gathered.sum(|core| core.stalled_uploads)),
            (
                "evicted_unauthenticated_clients",
                gathered.sum(|core| core.evicted_unauthenticated),
            ),
            (
                "late_unauthenticated_clients",
                gathered.sum(|core| core.late_unauthenticated),
            ),
            (
                "acl_access_denied_auth",
                gathered.sum(|core| core.failed_authentications),
            ),
            (
                "delayed_authentications",
                gathered.sum(|core| core.delayed_authentications),
            ),
        ],
    );
}

fn cpu(_: &Gathering<'_>, text: &mut String) {
    // User and system time in ticks, of which Linux counts 100 a second.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks: Vec<u64> = (fields.split_whitespace().skip(11).take(2))
        .map(|ticks| ticks.parse().unwrap_or(0))
        .collect();
    for (name, place) in [("used_cpu_sys", 1), ("used_cpu_user", 0)] {
        let ticks = ticks.get(place).copied().unwrap_or(0);
        let (whole, rest) = (ticks / 100, ticks % 100);
        line(text, name, format_args!("{whole}.{rest:02}0000"));
    }
}

/// Times of single commands are not measured: they are 0.
fn command_stats(gathered: &Gathering<'_>, text: &mut String) {
    for (place, now) in gathered.now.server.calls.iter().enumerate() {
        let CallFigures {
            command,
            calls,
            rejected,
            failed,
        } = gathered.calls(place, now);
        if calls + rejected > 0 {
            line(
                text,
                &format!("cmdstat_{command}"),
                format_args!(
                    "calls={calls},usec=0,usec_per_call=0.00,rejected_calls={rejected},failed_calls={failed}"
                ),
            );
        }
    }
}

fn error_stats(gathered: &Gathering<'_>, text: &mut String) {
    for (code, count) in &gathered.failures {
        line(
            text,
            &format!("errorstat_{code}"),
            format_args!("count={count}"),
        );
    }
}

fn cores(gathered: &Gathering<'_>, text: &mut String) {
    for (place, core) in gathered.now.server.cores.iter().enumerate() {
        line(
            text,
            &format!("core{place}"),
            format_args!(
                "connections={},commands={},receives={},sends={},sleeps={}",
                core.connections, core.commands, core.receives, core.sends, core.sleeps
            ),
        );
    }
}

fn cluster(gathered: &Gathering<'_>, text: &mut String) {
    let is_part = gathered.shared.cluster.is_some();
    line(text, "cluster_enabled", u8::from(is_part));
}

/// Keys that expire are not counted: their number is 0.
fn keyspace(gathered: &Gathering<'_>, text: &mut String) {
    for (number, &keys) in gathered.keys_of.iter().enumerate() {
        if keys > 0 {
            let name = format!("db{number}");
            line(text, &name, format_args!("keys={keys},expires=0,avg_ttl=0"));
        }
    }
}
