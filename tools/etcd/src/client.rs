//! Calls of etcd.

use std::fmt;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::address::EtcdAddress;
use crate::error::EtcdError;
use crate::reply::{Entries, encoded, entries, number, revision};

/// Bytes of an answer, at most, unless a user of etcd expects less; a value is in base 64, and
/// etcd's own limit on one is 1.5 MiB.
pub const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Bytes of an error that is shown.
const ERROR_BYTES: usize = 300;

/// Codes of gRPC by which a call was refused for good, and has changed nothing.
const REFUSALS: &[i64] = &[3, 5, 7, 9, 11, 12];
/// The code of a token that is not valid any more, or of a call without one.
const UNAUTHENTICATED: i64 = 16;
/// What etcd 3.4 says of a token, with another code.
const BAD_TOKENS: [&str; 3] = [
    "invalid auth token",
    "revision of auth store is old",
    "revision in header is old",
];

/// Files of encrypted connections, in PEM.
#[derive(Clone, Debug)]
pub struct EtcdTls {
    /// The authorities of etcd's certificates.
    pub authority: PathBuf,
    /// What is shown to etcd: a certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// How etcd is reached.
#[derive(Clone)]
pub struct EtcdOptions {
    /// Where it is.
    pub address: EtcdAddress,
    /// User and password, if it wants them.
    pub user: Option<(String, Zeroizing<String>)>,
    /// For an address that begins with `etcds://`.
    pub tls: Option<EtcdTls>,
    /// How long an endpoint may take for one call.
    pub time_limit: Duration,
    /// Bytes of an answer, at most: a longer one is an error. See [`ANSWER_BYTES_MAX`].
    pub answer_bytes_max: u64,
}

impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdOptions")
            .field("address", &self.address)
            .field("user", &self.user.as_ref().map(|(name, _)| name))
            .field("tls", &self.tls)
            .field("time_limit", &self.time_limit)
            .field("answer_bytes_max", &self.answer_bytes_max)
            .finish()
    }
}

/// What must hold for a change to be made: the last change of a key is of a revision, or there is
/// no such key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    /// The whole key.
    pub key: String,
    /// The revision of its last change; 0 if it must not be there.
    pub revision: i64,
}

/// A client of etcd. Its calls block.
pub struct Etcd {
    agent: ureq::Agent,
    options: EtcdOptions,
    endpoints: Vec<String>,
    /// The place of the endpoint that answered last.
    preferred: AtomicUsize,
    token: Mutex<Option<Zeroizing<String>>>,
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Etcd")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// How a call of one endpoint has failed.
enum Failure {
    /// Another endpoint may do it. The text, and whether this one may have done it.
    Elsewhere(String, bool),
    /// The token is not valid.
    Token(String),
    Final(EtcdError),
}

impl Etcd {
    /// A client. Nothing is sent yet.
    ///
    /// # Errors
    /// [`EtcdError::Tls`].
    pub fn new(options: EtcdOptions) -> Result<Self, EtcdError> {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .timeout_global(Some(options.time_limit));
        let config = match options.address.is_encrypted() {
            true => encrypted(config, &options)?,
            false => config.build(),
        };
        Ok(Self {
            agent: config.into(),
            endpoints: options.address.endpoints(),
            preferred: AtomicUsize::new(0),
            token: Mutex::new(None),
            options,
        })
    }

    /// The key of a name under the prefix of the address.
    #[must_use]
    pub fn key(&self, name: &str) -> String {
        self.options.address.key(name)
    }

    /// One key. The answer is not older than the call.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn get(&self, key: &str) -> Result<Entries, EtcdError> {
        entries(&self.call("/v3/kv/range", &json!({ "key": encoded(key) }))?)
    }

    /// One key without its value, which may be long: what is there has the revision of its last
    /// change. The answer is not older than the call.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn look(&self, key: &str) -> Result<Entries, EtcdError> {
        let body = json!({ "key": encoded(key), "keys_only": true });
        entries(&self.call("/v3/kv/range", &body)?)
    }

    /// All keys that begin with a prefix. The answer is not older than the call.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn list(&self, prefix: &str) -> Result<Entries, EtcdError> {
        let body = json!({ "key": encoded(prefix), "range_end": encoded(end_of(prefix)) });
        entries(&self.call("/v3/kv/range", &body)?)
    }

    /// Stores a value if conditions hold, and has it go with a lease, unless that is 0. Returns the
    /// revision of the change, or `None` if one of them does not hold.
    ///
    /// # Errors
    /// [`EtcdError`]; whether it is stored is known only after [`EtcdError::Refused`].
    pub fn put_if(
        &self,
        conditions: &[Condition],
        (key, value): (&str, &[u8]),
        lease: i64,
    ) -> Result<Option<i64>, EtcdError> {
        let compare: Vec<_> = conditions
            .iter()
            .map(|condition| {
                json!({
                    "key": encoded(&condition.key),
                    "target": "MOD",
                    "result": "EQUAL",
                    "mod_revision": condition.revision.to_string(),
                })
            })
            .collect();
        let put = json!({
            "key": encoded(key),
            "value": encoded(value),
            "lease": lease.to_string(),
        });
        let body = json!({ "compare": compare, "success": [{ "request_put": put }] });
        // One that may have been made must not be tried again: it would find itself.
        let answer =
            self.try_endpoints(false, |endpoint| self.ask(endpoint, "/v3/kv/txn", &body))?;
        let revision = revision(&answer)?;
        Ok((answer["succeeded"] == true).then_some(revision))
    }

    /// Removes a key.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn delete(&self, key: &str) -> Result<(), EtcdError> {
        self.call("/v3/kv/deleterange", &json!({ "key": encoded(key) }))
            .map(drop)
    }

    /// Begins a lease, whose keys go when it has not been renewed for a time; returns its number.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn grant(&self, time: Duration) -> Result<i64, EtcdError> {
        let seconds = time.as_secs().max(1).to_string();
        let answer = self.call("/v3/lease/grant", &json!({ "TTL": seconds }))?;
        match number(&answer, "ID")? {
            0 => Err(EtcdError::Malformed("a lease has no number".to_owned())),
            lease => Ok(lease),
        }
    }

    /// Renews a lease. False if it has ended.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn keep_alive(&self, lease: i64) -> Result<bool, EtcdError> {
        let body = json!({ "ID": lease.to_string() });
        let answer = self.call("/v3/lease/keepalive", &body)?;
        Ok(number(&answer["result"], "TTL")? > 0)
    }

    /// Ends a lease, and its keys.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn revoke(&self, lease: i64) -> Result<(), EtcdError> {
        let body = json!({ "ID": lease.to_string() });
        self.call("/v3/lease/revoke", &body).map(drop)
    }

    /// Waits until keys that begin with a prefix have changed since a revision, or for a time.
    /// Returns whether they have; what they are now must be read.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn wait(&self, prefix: &str, since: i64, limit: Duration) -> Result<bool, EtcdError> {
        let body = json!({ "create_request": {
            "key": encoded(prefix),
            "range_end": encoded(end_of(prefix)),
            "start_revision": (since + 1).to_string(),
        }});
        let until = Instant::now() + limit;
        self.try_endpoints(true, |endpoint| {
            let response = self.send(endpoint, "/v3/watch", &body, limit)?;
            let status = response.status();
            let mut lines = BufReader::new(response.into_body().into_reader());
            loop {
                let mut line = Vec::new();
                let mut limited = lines.by_ref().take(self.options.answer_bytes_max);
                match limited.read_until(b'\n', &mut line) {
                    // Nothing has changed in that time.
                    Err(_) if Instant::now() >= until => return Ok(false),
                    Err(error) => return Err(Failure::Elsewhere(error.to_string(), true)),
                    Ok(0) => {
                        return Err(Failure::Elsewhere("the watch has ended".to_owned(), true));
                    }
                    Ok(_) => {}
                }
                let message = judged(endpoint, status.is_success(), &line)?;
                let result = &message["result"];
                // Also if the changes since then are gone from the history.
                if result["events"].is_array() || result["canceled"] == true {
                    return Ok(true);
                }
            }
        })
    }

    fn token(&self) -> std::sync::MutexGuard<'_, Option<Zeroizing<String>>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the endpoints in turn until one answers.
    fn call(&self, path: &str, body: &Value) -> Result<Value, EtcdError> {
        self.try_endpoints(true, |endpoint| self.ask(endpoint, path, body))
    }

    /// Calls the endpoints in turn until one answers, or, unless it `may_repeat`, until one may
    /// have done it.
    fn try_endpoints<T>(
        &self,
        may_repeat: bool,
        mut call: impl FnMut(&str) -> Result<T, Failure>,
    ) -> Result<T, EtcdError> {
        // ORDERING: relaxed; it is a hint.
        let first = self.preferred.load(Ordering::Relaxed);
        let count = self.endpoints.len();
        let mut failed = None;
        for place in (0..count).map(|place| (first + place) % count) {
            let endpoint = &self.endpoints[place];
            let mut outcome = call(endpoint);
            if let Err(Failure::Token(_)) = &outcome
                && self.options.user.is_some()
            {
                *self.token() = None;
                outcome = call(endpoint);
            }
            match outcome {
                Ok(answer) => {
                    // ORDERING: relaxed; it is a hint.
                    self.preferred.store(place, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Elsewhere(error, is_sent)) => {
                    failed = Some((endpoint, error));
                    if is_sent && !may_repeat {
                        // ORDERING: relaxed; it is a hint.
                        self.preferred.store((place + 1) % count, Ordering::Relaxed);
                        break;
                    }
                }
                Err(Failure::Token(error)) => {
                    let endpoint = endpoint.clone();
                    return Err(EtcdError::Refused { endpoint, error });
                }
            }
        }
        let (endpoint, error) = failed.map_or_else(
            || (String::new(), "there is no endpoint".to_owned()),
            |(endpoint, error)| (endpoint.clone(), error),
        );
        Err(EtcdError::Unreachable { endpoint, error })
    }

    fn ask(&self, endpoint: &str, path: &str, body: &Value) -> Result<Value, Failure> {
        let response = self.send(endpoint, path, body, self.options.time_limit)?;
        let is_right = response.status().is_success();
        let mut answer = Vec::new();
        let limit = self.options.answer_bytes_max;
        // A byte more, so that one that is too long is noticed.
        let mut reader = response.into_body().into_reader().take(limit + 1);
        let read = reader.read_to_end(&mut answer);
        read.map_err(|error| Failure::Elsewhere(error.to_string(), true))?;
        if answer.len() as u64 > limit {
            let error = format!("its answer has more than {limit} bytes");
            return Err(Failure::Elsewhere(error, true));
        }
        judged(endpoint, is_right, &answer)
    }

    /// Sends a question, with a token if there is a user.
    fn send(
        &self,
        endpoint: &str,
        path: &str,
        body: &Value,
        limit: Duration,
    ) -> Result<ureq::http::Response<ureq::Body>, Failure> {
        let token = self.authenticated(endpoint)?;
        self.post(endpoint, path, body, (token.as_ref(), limit))
    }

    fn authenticated(&self, endpoint: &str) -> Result<Option<Zeroizing<String>>, Failure> {
        let Some((name, password)) = &self.options.user else {
            return Ok(None);
        };
        if let Some(token) = &*self.token() {
            return Ok(Some(token.clone()));
        }
        let body = json!({ "name": name, "password": **password });
        let limit = self.options.time_limit;
        let response = self.post(endpoint, "/v3/auth/authenticate", &body, (None, limit))?;
        let is_right = response.status().is_success();
        let mut answer = Zeroizing::new(Vec::new());
        let mut reader = response.into_body().into_reader().take(ANSWER_BYTES_MAX);
        let read = reader.read_to_end(&mut answer);
        read.map_err(|error| Failure::Elsewhere(error.to_string(), false))?;
        let answer = judged(endpoint, is_right, &answer).map_err(|failure| match failure {
            // It is no place for a password that a proxy repeats.
            Failure::Elsewhere(..) => {
                let text = "it does not authenticate the user".to_owned();
                Failure::Elsewhere(text, false)
            }
            failure => failure,
        })?;
        let token = answer["token"].as_str().map(str::to_owned);
        let token = token.ok_or_else(|| {
            let error = EtcdError::Malformed("there is no token for the user".to_owned());
            Failure::Final(error)
        })?;
        let token = Zeroizing::new(token);
        *self.token() = Some(token.clone());
        Ok(Some(token))
    }

    fn post(
        &self,
        endpoint: &str,
        path: &str,
        body: &Value,
        (token, limit): (Option<&Zeroizing<String>>, Duration),
    ) -> Result<ureq::http::Response<ureq::Body>, Failure> {
        let mut request = self.agent.post(format!("{endpoint}{path}"));
        request = request.header("Content-Type", "application/json");
        if let Some(token) = token {
            request = request.header("Authorization", token.as_str());
        }
        let request = request.config().timeout_global(Some(limit)).build();
        let body = Zeroizing::new(body.to_string());
        let sent = request.send(body.as_bytes());
        sent.map_err(|error| {
            let is_sent = !is_of_connecting(&error);
            Failure::Elsewhere(error.to_string(), is_sent)
        })
    }
}

/// An answer, or what it says has failed.
fn judged(endpoint: &str, is_right: bool, answer: &[u8]) -> Result<Value, Failure> {
    let value: Value = serde_json::from_slice(answer).map_err(|error| {
        // A proxy in between, or something else altogether.
        let text = String::from_utf8_lossy(&answer[..answer.len().min(ERROR_BYTES)]);
        Failure::Elsewhere(format!("{error}: {text:?}"), true)
    })?;
    if is_right && value["error"].is_null() {
        return Ok(value);
    }
    // Of a stream, it stands within `error`.
    let within = if value["error"].is_object() {
        &value["error"]
    } else {
        &value
    };
    let code = number(within, "code").or_else(|_| number(within, "grpc_code"));
    let code = code.unwrap_or(0);
    let text = within["message"].as_str().or(within["error"].as_str());
    let error: String = text
        .unwrap_or("no reason")
        .chars()
        .take(ERROR_BYTES)
        .collect();
    if code == UNAUTHENTICATED || BAD_TOKENS.iter().any(|text| error.contains(text)) {
        return Err(Failure::Token(error));
    }
    if REFUSALS.contains(&code) {
        let endpoint = endpoint.to_owned();
        return Err(Failure::Final(EtcdError::Refused { endpoint, error }));
    }
    Err(Failure::Elsewhere(error, true))
}

/// True if nothing was sent, as there is no connection.
fn is_of_connecting(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => true,
        ureq::Error::Timeout(ureq::Timeout::Resolve | ureq::Timeout::Connect) => true,
        ureq::Error::Io(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        _ => false,
    }
}

/// The least key that is greater than all that begin with a prefix.
fn end_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // All keys.
    vec![0]
}

#[cfg(feature = "tls")]
fn tls_of(options: &EtcdOptions) -> Result<ureq::tls::TlsConfig, EtcdError> {
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;
    use ureq::tls::{
        Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, TlsProvider,
    };

    let wrong = |file: &Path, error: &dyn fmt::Display| {
        EtcdError::Tls(format!("{}: {error}", file.display()))
    };
    let read = |file: &Path| {
        let bytes = fs::read(file).map(Zeroizing::new);
        bytes.map_err(|error| wrong(file, &error))
    };
    let chain_of = |file: &Path| -> Result<Vec<Certificate<'static>>, EtcdError> {
        let bytes = read(file)?;
        let items: Result<Vec<_>, _> = ureq::tls::parse_pem(&bytes).collect();
        let items = items.map_err(|error| wrong(file, &error))?;
        let chain: Vec<_> = items
            .into_iter()
            .filter_map(|item| match item {
                PemItem::Certificate(certificate) => Some(certificate.to_owned()),
                _ => None,
            })
            .collect();
        match chain.is_empty() {
            true => Err(wrong(file, &"there is no certificate in it")),
            false => Ok(chain),
        }
    };
    let files = options.tls.as_ref();
    let files = files.ok_or_else(|| {
        EtcdError::Tls("no file with the authorities of etcd's certificates".to_owned())
    })?;
    let mut config = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .root_certs(RootCerts::new_with_certs(&chain_of(&files.authority)?));
    if let Some((certificate, key)) = &files.identity {
        let private = PrivateKey::from_pem(&read(key)?).map_err(|error| wrong(key, &error))?;
        let shown = ClientCert::new_with_certs(&chain_of(certificate)?, private);
        config = config.client_cert(Some(shown));
    }
    Ok(config.build())
}

/// The settings of an agent, made step by step.
type AgentBuilder = ureq::config::ConfigBuilder<ureq::typestate::AgentScope>;

#[cfg(feature = "tls")]
fn encrypted(
    config: AgentBuilder,
    options: &EtcdOptions,
) -> Result<ureq::config::Config, EtcdError> {
    let config = config.tls_config(tls_of(options)?);
    Ok(config.https_only(true).build())
}

#[cfg(not(feature = "tls"))]
fn encrypted(
    _config: AgentBuilder,
    _options: &EtcdOptions,
) -> Result<ureq::config::Config, EtcdError> {
    let text = "this program is built without TLS: write etcd://, or build it with the feature tls";
    Err(EtcdError::Tls(text.to_owned()))
}
