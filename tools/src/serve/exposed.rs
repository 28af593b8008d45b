//! The server's metrics in OpenMetrics, as `farcore_server_*`, beside those of its engine.

use std::fmt;

use farcore::statistics::Exposition;
use farcore_server::{CoreFigures, ServerFigures, ServerReporter};
use farcore_tuning::Exposed;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// Exposes the figures of an engine and of its server.
#[derive(Debug)]
pub(super) struct ExposedServer {
    pub(super) engine: Exposition,
    pub(super) server: ServerReporter,
}

impl Exposed for ExposedServer {
    fn prefix(&self) -> &'static str {
        self.engine.prefix()
    }

    fn is_healthy(&self) -> bool {
        self.engine.is_healthy()
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        self.engine.encode(encoder)?;
        let now = self.server.figures();
        encode_gauges(encoder, &now)?;
        encode_cores(encoder, &now)?;
        for (name, help, value) in [
            (
                "server_accepted_connections",
                "Connections that were accepted",
                now.accepted,
            ),
            (
                "server_refused_connections",
                "Connections that were refused because there were too many",
                now.refused,
            ),
            (
                "server_idle_connections_closed",
                "Connections that were closed because their clients were silent",
                now.idle_closed,
            ),
        ] {
            let metric = ConstCounter::new(value);
            let family = encoder.encode_descriptor(name, help, None, metric.metric_type())?;
            metric.encode(family)?;
        }
        encode_native(encoder, &now)?;
        encode_calls(encoder, &now)
    }
}

/// A figure of each core: its name, its meaning, and where it is.
type CoreFamily = (&'static str, &'static str, fn(&CoreFigures) -> u64);

const GAUGES: &[CoreFamily] = &[
    ("server_connections", "Open connections", |core| {
        core.connections
    }),
    (
        "server_unauthenticated_connections",
        "Open connections that have not authenticated, if they must",
        |core| core.unauthenticated,
    ),
    (
        "server_connection_bytes",
        "Memory of connections and their buffers",
        |core| core.connection_bytes,
    ),
    (
        "server_longest_turn_steps",
        "Work of the longest turn of the loop since CONFIG RESETSTAT, in steps",
        |core| core.longest_turn_steps,
    ),
];

const COUNTERS: &[CoreFamily] = &[
    ("server_commands", "Commands", |core| core.commands),
    ("server_failed_commands", "Errors replied", |core| {
        core.failed_commands
    }),
    ("server_received_bytes", "Bytes received", |core| {
        core.received_bytes
    }),
    ("server_sent_bytes", "Bytes sent", |core| core.sent_bytes),
    ("server_receives", "Calls that received bytes", |core| {
        core.receives
    }),
    ("server_sends", "Calls that sent bytes", |core| core.sends),
    (
        "server_sleeps",
        "Times that a core had nothing to do and slept",
        |core| core.sleeps,
    ),
    (
        "server_evicted_clients",
        "Clients disconnected because all took too much memory",
        |core| core.evicted_clients,
    ),
    (
        "server_refused_held",
        "Encrypted connections closed while they waited for memory",
        |core| core.refused_held,
    ),
    (
        "server_stalled_uploads",
        "Uploads of long values that ended because they had stalled while others waited",
        |core| core.stalled_uploads,
    ),
    (
        "server_slow_subscribers",
        "Subscribers disconnected because they did not read",
        |core| core.slow_subscribers,
    ),
    (
        "server_unsent_events",
        "Events of keys that were not sent: too many at once, or of keys that were removed unread",
        |core| core.unsent_events,
    ),
    (
        "server_protocol_errors",
        "Connections closed because their bytes were no requests, or beyond a limit",
        |core| core.protocol_errors,
    ),
    (
        "server_failed_handshakes",
        "Encrypted connections that failed, or whose handshake took too long",
        |core| core.failed_handshakes,
    ),
    (
        "server_evicted_unauthenticated",
        "Unauthenticated connections that made room for others, or took too much memory together",
        |core| core.evicted_unauthenticated,
    ),
    (
        "server_late_unauthenticated",
        "Connections that did not authenticate in time",
        |core| core.late_unauthenticated,
    ),
    ("server_failed_authentications", "Wrong passwords", |core| {
        core.failed_authentications
    }),
    (
        "server_delayed_authentications",
        "Times that a connection waited because of wrong passwords",
        |core| core.delayed_authentications,
    ),
    (
        "server_pauses",
        "Times that a connection was not read from until its replies were made and read",
        |core| core.pauses,
    ),
];

fn encode_gauges(encoder: &mut DescriptorEncoder<'_>, now: &ServerFigures) -> fmt::Result {
    for (name, help, figure) in GAUGES {
        let kind = ConstGauge::new(0i64).metric_type();
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for (place, core) in now.cores.iter().enumerate() {
            let metric = ConstGauge::new(i64::try_from(figure(core)).unwrap_or(i64::MAX));
            let labels = [("shard", place.to_string())];
            metric.encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn encode_cores(encoder: &mut DescriptorEncoder<'_>, now: &ServerFigures) -> fmt::Result {
    for (name, help, figure) in COUNTERS {
        let kind = ConstCounter::new(0u64).metric_type();
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for (place, core) in now.cores.iter().enumerate() {
            let labels = [("shard", place.to_string())];
            let metric = ConstCounter::new(figure(core));
            metric.encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// Figures of native connections, by shard.
fn encode_native(encoder: &mut DescriptorEncoder<'_>, now: &ServerFigures) -> fmt::Result {
    let by_core: Vec<_> = now.cores.iter().map(|core| core.native.all()).collect();
    let Some(first) = by_core.first() else {
        return Ok(());
    };
    for (place, figure) in first.iter().enumerate() {
        let kind = if figure.only_grows {
            ConstCounter::new(0u64).metric_type()
        } else {
            ConstGauge::new(0i64).metric_type()
        };
        let help = format!("Native clients: {}", figure.about);
        let name = format!("server_native_{}", figure.name);
        let mut family = encoder.encode_descriptor(&name, &help, None, kind)?;
        for (shard, figures) in by_core.iter().enumerate() {
            let labels = [("shard", shard.to_string())];
            let value = figures[place].value;
            let encoder = family.encode_family(&labels)?;
            if figure.only_grows {
                ConstCounter::new(value).encode(encoder)?;
            } else {
                ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(encoder)?;
            }
        }
    }
    Ok(())
}

/// Calls by command; those that were never called are left out.
fn encode_calls(encoder: &mut DescriptorEncoder<'_>, now: &ServerFigures) -> fmt::Result {
    let kind = ConstCounter::new(0u64).metric_type();
    let help = "Calls by command and outcome: ran, refused its arguments, was not run";
    let mut family = encoder.encode_descriptor("server_calls", help, None, kind)?;
    for calls in &now.calls {
        let outcomes = [
            ("ran", calls.calls.saturating_sub(calls.failed)),
            ("failed", calls.failed),
            ("rejected", calls.rejected),
        ];
        for (outcome, count) in outcomes {
            // A series that is missing is one that was never counted.
            if count > 0 {
                let labels = [("command", calls.command), ("outcome", outcome)];
                ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
            }
        }
    }
    Ok(())
}
