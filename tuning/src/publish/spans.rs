//! Sends spans to an OpenTelemetry collector: OTLP, as protobuf over plain HTTP.
//!
//! Owns the sending thread and the connection to the collector.
//!
//! - I1: a thread that ends a span puts it into a bounded queue and does not wait. If the queue is
//!   full, the span is dropped.
//! - I2: a collector that is unreachable, slow or refuses costs one warning and the spans.
//! - I3: the end of the process waits for the collector for at most [`FLUSH_MAX`].
//!
//! Source: OpenTelemetry's environment variable specification, and its OTLP specification,
//! "OTLP/HTTP".

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry::{Key, KeyValue};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{
    ExporterBuildError, OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TIMEOUT,
    OTEL_EXPORTER_OTLP_TIMEOUT_DEFAULT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
    OTEL_EXPORTER_OTLP_TRACES_TIMEOUT, RetryPolicy, SpanExporter, WithHttpConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::{EnvResourceDetector, ResourceDetector};
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Subscriber, warn};
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

/// Limit on the wait for the collector at the end of the process.
const FLUSH_MAX: Duration = Duration::from_secs(3);
/// Limit on a collector's answer, which holds no more than the reason of a refusal.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// The variable that names the service in every span.
const SERVICE_NAME_VARIABLE: &str = "OTEL_SERVICE_NAME";
const SERVICE_NAME: Key = Key::from_static_str("service.name");

/// This process's export of spans. Dropping it sends the remaining ones.
#[derive(Debug)]
pub(crate) struct SpanExport {
    provider: SdkTracerProvider,
    collector: Arc<Collector>,
}

impl SpanExport {
    /// An export to the collector that the environment names, if it names one.
    ///
    /// # Errors
    /// The endpoint is not a URL.
    pub(crate) fn from_environment() -> Result<Option<Self>, ExporterBuildError> {
        let endpoints = [
            OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,
            OTEL_EXPORTER_OTLP_ENDPOINT,
        ];
        if first_of(endpoints).is_none() {
            return Ok(None);
        }
        let collector = Arc::new(Collector::new(send_max()));
        let exporter = SpanExporter::builder()
            .with_http()
            .with_shared_http_client(collector.clone())
            .with_retry_policy(RetryPolicy::disabled())
            .build()?;
        let provider = SdkTracerProvider::builder()
            .with_resource(resource())
            .with_batch_exporter(exporter)
            .build();
        Ok(Some(Self {
            provider,
            collector,
        }))
    }

    /// The subscriber layer that passes spans to the export.
    pub(crate) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        tracing_opentelemetry::layer().with_tracer(self.provider.tracer("farcore"))
    }
}

impl Drop for SpanExport {
    fn drop(&mut self) {
        // Earlier failures have been reported.
        if self.provider.shutdown_with_timeout(FLUSH_MAX).is_err() {
            self.collector
                .warn_once(&format!("no answer within {FLUSH_MAX:?}"));
        }
    }
}

/// The value of the first of some environment variables that is set and not empty.
fn first_of<const N: usize>(variables: [&str; N]) -> Option<String> {
    let mut said = variables.iter().filter_map(|name| env::var(name).ok());
    said.find(|value| !value.is_empty())
}

fn send_max() -> Duration {
    first_of([
        OTEL_EXPORTER_OTLP_TRACES_TIMEOUT,
        OTEL_EXPORTER_OTLP_TIMEOUT,
    ])
    .and_then(|text| text.parse().ok())
    .map_or(OTEL_EXPORTER_OTLP_TIMEOUT_DEFAULT, Duration::from_millis)
}

/// The sender's name: the environment's, or else the program's.
fn resource() -> Resource {
    let resource = Resource::builder();
    let named = first_of([SERVICE_NAME_VARIABLE]).is_some()
        || EnvResourceDetector::new()
            .detect()
            .get(&SERVICE_NAME)
            .is_some();
    let program = env::current_exe()
        .ok()
        .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    match program {
        Some(program) if !named => resource
            .with_attribute(KeyValue::new(SERVICE_NAME, program))
            .build(),
        _ => resource.build(),
    }
}

/// The HTTP client of the exporter's own thread.
#[derive(Debug)]
struct Collector {
    agent: ureq::Agent,
    warned: AtomicBool,
}

impl Collector {
    fn new(send_max: Duration) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(send_max))
            // The endpoint is used as configured, without proxy or redirects.
            .proxy(None)
            .max_redirects(0)
            // An idle connection may be dead by the next batch.
            .max_idle_connections(0)
            .http_status_as_error(false)
            .build();
        Self {
            agent: config.into(),
            warned: AtomicBool::new(false),
        }
    }

    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ureq::Error> {
        let (head, body) = request.into_parts();
        let answer = self.agent.run(Request::from_parts(head, body.as_ref()))?;
        let (head, mut body) = answer.into_parts();
        let body = body.with_config().limit(ANSWER_BYTES_MAX).read_to_vec()?;
        Ok(Response::from_parts(head, body.into()))
    }

    fn warn_once(&self, why: &str) {
        // ORDERING: relaxed. The flag publishes nothing else.
        if !self.warned.swap(true, Ordering::Relaxed) {
            warn!(
                "spans are lost: {why}; set {OTEL_EXPORTER_OTLP_ENDPOINT} to a collector that accepts OTLP over plain \
                 HTTP, or unset it; this is reported once"
            );
        }
    }
}

#[async_trait::async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        match self.send(request) {
            Ok(answer) => {
                if !answer.status().is_success() {
                    self.warn_once(&format!("the collector answered {}", answer.status()));
                }
                Ok(answer)
            }
            Err(error) => {
                self.warn_once(&error.to_string());
                Err(error.into())
            }
        }
    }
}
