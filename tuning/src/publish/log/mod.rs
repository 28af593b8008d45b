//! Initializes the log of the project's commands: to stderr as text or JSON lines and, with the
//! feature `otel`, as spans to a collector too.
//!
//! Owns the process's subscriber and format. Fields and spans are named by OpenTelemetry's semantic
//! conventions where one fits, and `farcore.*` otherwise. `escape` makes lines safe to show and to
//! parse, `queue` keeps a stderr that is not read from stopping the threads that log.

mod escape;
mod queue;

use std::fmt;
use std::io::{self, IsTerminal};
use std::str::FromStr;
use std::sync::OnceLock;

use self::escape::Escaped;
use self::queue::{DroppedLines, LINES_MAX, Queue, QueueGuard};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry};

#[cfg(feature = "otel")]
use crate::publish::spans::SpanExport;

/// The format of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// Text, for people.
    #[default]
    Text,
    /// One JSON object per line, for collectors.
    Json,
}

impl LogFormat {
    /// The environment variable that sets the format if no flag does.
    pub const VARIABLE: &'static str = "FARCORE_LOG_FORMAT";
}

impl fmt::Display for LogFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(format!("`{text}` is not a log format: use text or json")),
        }
    }
}

static FORMAT: OnceLock<LogFormat> = OnceLock::new();
static DROPPED: OnceLock<DroppedLines> = OnceLock::new();

/// The format passed to [`log_to_stderr`], for child processes.
#[must_use]
pub fn log_format() -> LogFormat {
    FORMAT.get().copied().unwrap_or_default()
}

/// Lines of this process's log that were dropped, because stderr did not take them in time.
#[must_use]
pub fn log_lines_dropped() -> u64 {
    DROPPED.get().map_or(0, DroppedLines::count)
}

fn lines<W>(format: LogFormat, writer: W, colours: bool) -> Box<dyn Layer<Registry> + Send + Sync>
where
    W: for<'a> tracing_subscriber::fmt::MakeWriter<'a> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer().with_writer(writer);
    match format {
        LogFormat::Text => lines
            .with_ansi(colours)
            .map_event_format(|inner| {
                let inner = inner.with_ansi(colours);
                Escaped { inner, format }
            })
            .boxed(),
        LogFormat::Json => lines
            .json()
            .flatten_event(true)
            .map_event_format(|inner| Escaped { inner, format })
            .boxed(),
    }
}

/// Keeps the log's resources until the process ends.
#[derive(Debug)]
#[must_use = "writes the remaining lines when dropped, at the end of the process"]
pub struct LogGuard {
    // Before the lines: its end may log a warning.
    #[cfg(feature = "otel")]
    _spans: Option<SpanExport>,
    _lines: QueueGuard,
}

impl LogGuard {
    /// Writes the remaining lines and sends the remaining spans, as dropping does, for callers with
    /// work to do afterwards. Waits up to a second for a stderr that is not read, and up to three
    /// for a collector that does not answer. What is logged later is lost.
    pub fn end(self) {}
}

fn filter(level: &str) -> EnvFilter {
    EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level))
}

/// Writes the process's log to stderr, from `level` up unless `RUST_LOG` is set. Call it once,
/// before anything else.
///
/// A separate thread writes the lines, so that no thread that logs waits for stderr. Lines that
/// come faster than stderr takes them are dropped, and a later line says how many.
///
/// With the feature `otel`, a separate thread sends spans from `info` up (or as `RUST_LOG` sets) to
/// the collector at `OTEL_EXPORTER_OTLP_ENDPOINT`. `OTEL_SERVICE_NAME` names the sender; the
/// default is the program's name.
pub fn log_to_stderr(format: LogFormat, level: &str) -> LogGuard {
    let colours = io::stderr().is_terminal();
    let (queue, guard) = Queue::start(io::stderr(), format, LINES_MAX);
    let dropped = queue.dropped_lines();
    let lines = lines(format, queue, colours).with_filter(filter(level));
    let log = tracing_subscriber::registry().with(lines);
    #[cfg(feature = "otel")]
    let export = SpanExport::from_environment();
    #[cfg(feature = "otel")]
    let log = log.with(match &export {
        Ok(Some(export)) => Some(export.layer().with_filter(filter("info"))),
        _ => None,
    });
    // A second call has no effect.
    if log.try_init().is_ok() {
        let _ = FORMAT.set(format);
        let _ = DROPPED.set(dropped);
    }
    LogGuard {
        _lines: guard,
        #[cfg(feature = "otel")]
        _spans: export.unwrap_or_else(|error| {
            tracing::warn!("cannot send spans: {error}");
            None
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut kept = self.0.lock().map_err(|_| io::ErrorKind::Other)?;
            kept.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat) -> String {
        let kept = Kept::default();
        let writer = kept.clone();
        let layer = lines(format, move || writer.clone(), false);
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            let _span = tracing::info_span!("phase", farcore.phase = "hot").entered();
            tracing::info!(server.port = 7_400, "a \"quoted\"\nmessage");
        });
        String::from_utf8(kept.0.lock().expect("no panic").clone()).expect("text")
    }

    #[test]
    fn a_line_is_an_object_with_the_names_of_its_fields() {
        let line = logged(LogFormat::Json);
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line["message"], "a \"quoted\"\nmessage");
        assert_eq!(line["server.port"], 7_400);
        assert_eq!(
            (&line["level"], &line["span"]["farcore.phase"]),
            (&"INFO".into(), &"hot".into())
        );
        let text = logged(LogFormat::Text);
        assert!(
            text.contains("server.port=7400") && text.contains("phase{farcore.phase=\"hot\"}"),
            "{text}"
        );
    }

    #[test]
    fn formats_parse_as_they_print() {
        for format in [LogFormat::Text, LogFormat::Json] {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        assert!(
            "xml"
                .parse::<LogFormat>()
                .unwrap_err()
                .contains("text or json")
        );
    }
}
