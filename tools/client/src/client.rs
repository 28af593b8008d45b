//! A client: what callers use.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use farcore_protocol::scan::{ENTRIES_MAX, Page};
use farcore_protocol::{
    CREDITS_MAX, CREDITS_MIN, Flags, Header, KEY_BYTES_MAX, Kind, SMALL_BYTES_MAX, SMALL_BYTES_MIN,
    Status, TRANSFER_SLOT_BYTES_MAX, VALUE_BYTES_MAX,
};
use farcore_rdma::FabricAddress;

use crate::command::{Command, Reply, is_repeatable};
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::figures::ClientFigures;
use crate::many;
use crate::options::{ClientOptions, QUEUE_MAX, TIMEOUT_MAX, TIMEOUT_MIN};
use crate::pending::{Pending, pending};
use crate::port::{Port, checked};
use crate::values::{
    CasOutcome, Condition, Cursor, Expiry, ExpiryCondition, Metadata, PutOptions, PutOutcome,
    ScanEntry, ScanOptions, ScanPage, Value, Version,
};

/// The shortest landing buffer, in bytes.
const LANDING_BYTES_MIN: usize = 4096;

/// A connection to a server, for any number of threads and tasks. Clones share it. The last clone
/// that is dropped ends it, after what is under way.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

pub(crate) struct Inner {
    port: Arc<Port>,
    address: FabricAddress,
    options: ClientOptions,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.port.close();
        let thread = self
            .thread
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("address", &self.0.address)
            .finish_non_exhaustive()
    }
}

fn range(option: &'static str, value: usize, holds: bool, range: &'static str) -> Result<()> {
    if holds {
        return Ok(());
    }
    Err(Error::Option {
        option,
        value: value as u64,
        range,
    })
}

impl ClientOptions {
    fn check(&self) -> Result<()> {
        let credits = (CREDITS_MIN..=CREDITS_MAX).contains(&self.credits);
        range("credits", self.credits.into(), credits, "4 to 1024")?;
        let queue = (1..=QUEUE_MAX).contains(&self.queue);
        range("queue", self.queue, queue, "1 to 1048576")?;
        if !(TIMEOUT_MIN..=TIMEOUT_MAX).contains(&self.timeout) {
            return Err(Error::Option {
                option: "timeout, in milliseconds,",
                value: u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX),
                range: "1 to 86400000 (a day)",
            });
        }
        let small = (SMALL_BYTES_MIN..=SMALL_BYTES_MAX).contains(&self.small_bytes);
        range("small_bytes", self.small_bytes, small, "512 to 49152")?;
        let landing = (LANDING_BYTES_MIN..=TRANSFER_SLOT_BYTES_MAX).contains(&self.landing_bytes);
        range(
            "landing_bytes",
            self.landing_bytes,
            landing,
            "4096 to 1048576",
        )?;
        let landings = (1..=256).contains(&self.landings);
        range("landings", self.landings.into(), landings, "1 to 256")
    }
}

impl Client {
    /// Connects to a server. Starts the client's thread, which connects again whenever the
    /// connection is lost.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::Refused`], [`Error::Token`], [`Error::Option`],
    /// [`Error::Start`].
    pub fn connect(address: &FabricAddress, options: ClientOptions) -> Result<Self> {
        options.check()?;
        let port = Arc::new(Port::new(options.queue)?);
        let driver = Driver::new(address.clone(), options.clone(), Arc::clone(&port));
        let (begun, began) = mpsc::channel();
        let failed = begun.clone();
        let thread = std::thread::Builder::new()
            .name("farcore-client".to_owned())
            .spawn(move || {
                if let Err(error) = farcore_rdma::run_local(driver_run(driver, begun)) {
                    let _ = failed.send(Err(error.into()));
                }
            })?;
        let client = Self(Arc::new(Inner {
            port,
            address: address.clone(),
            options,
            thread: Mutex::new(Some(thread)),
        }));
        began.recv().map_err(|_| Error::Closed)??;
        Ok(client)
    }

    /// The server's address.
    #[must_use]
    pub fn address(&self) -> &FabricAddress {
        &self.0.address
    }

    /// The client's own figures.
    #[must_use]
    pub fn figures(&self) -> ClientFigures {
        self.0.port.counters.figures()
    }

    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.0.options.timeout
    }

    pub(crate) fn send(&self, command: Command) {
        self.0.port.send(command);
    }

    /// Submits a request, whose reply becomes the outcome.
    fn submit<T: Send + 'static>(
        &self,
        header: Header,
        key: &[u8],
        value: Vec<u8>,
        outcome: impl FnOnce(Reply) -> Result<T> + Send + 'static,
    ) -> Pending<T> {
        self.submit_into(header, (key, value), Vec::new(), outcome)
    }

    fn submit_into<T: Send + 'static>(
        &self,
        header: Header,
        (key, value): (&[u8], Vec<u8>),
        found: Vec<u8>,
        outcome: impl FnOnce(Reply) -> Result<T> + Send + 'static,
    ) -> Pending<T> {
        let (pending, completer) = pending();
        self.send(Command {
            header,
            key: key.to_vec(),
            value,
            found,
            total: 0,
            deadline: self.deadline(),
            not_before: None,
            is_repeatable: is_repeatable(header.kind),
            done: Box::new(move |reply, _| completer.complete(reply.and_then(outcome))),
        });
        pending
    }

    /// Submits a request on one key, unless key or value is too long.
    fn on_key<T: Send + 'static>(
        &self,
        header: Header,
        key: &[u8],
        value: &[u8],
        outcome: impl FnOnce(Reply) -> Result<T> + Send + 'static,
    ) -> Pending<T> {
        if let Err(error) = check(key, value) {
            return Pending::ready(Err(error));
        }
        self.submit(header, key, value.to_vec(), outcome)
    }

    /// Reads a value; `None` if there is no such key.
    pub fn get(&self, key: &[u8]) -> Pending<Option<Value>> {
        self.get_into(key, Vec::new())
    }

    /// Reads a value into a buffer whose memory is used again; `None` if there is no such key. What
    /// the buffer holds is lost.
    pub fn get_into(&self, key: &[u8], mut buffer: Vec<u8>) -> Pending<Option<Value>> {
        if let Err(error) = check(key, &[]) {
            return Pending::ready(Err(error));
        }
        buffer.clear();
        let header = Header::new(Kind::Get, 0);
        self.submit_into(header, (key, Vec::new()), buffer, |reply| Ok(found(reply)))
    }

    /// Stores a value; returns its version.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Pending<Version> {
        self.on_key(Header::new(Kind::Put, 0), key, value, |reply| {
            Ok(reply.header.version)
        })
    }

    /// Stores a value if a condition holds, with an expiry.
    pub fn put_with(&self, key: &[u8], value: &[u8], options: PutOptions) -> Pending<PutOutcome> {
        let (expiry, argument) = options.expiry.encode();
        let (condition, version) = options.condition.encode();
        let header = Header {
            options: Header::put_options(condition, expiry),
            version,
            argument,
            ..Header::new(Kind::Put, 0)
        };
        self.on_key(header, key, value, |reply| {
            let version = reply.header.version;
            Ok(match reply.header.status {
                Status::Ok => PutOutcome::Stored(version),
                _ => PutOutcome::Unmet(version),
            })
        })
    }

    /// Removes a key; false if it was absent.
    pub fn delete(&self, key: &[u8]) -> Pending<bool> {
        self.on_key(Header::new(Kind::Delete, 0), key, &[], |reply| {
            Ok(reply.header.status == Status::Ok)
        })
    }

    /// Removes a key if it has a version. `Unmet` has the version that it has, 0 if it is absent.
    pub fn delete_if(&self, key: &[u8], expected: Version) -> Pending<PutOutcome> {
        let (condition, version) = Condition::Version(expected).encode();
        let header = Header {
            options: Header::put_options(condition, farcore_protocol::ExpiryKind::Never),
            version,
            ..Header::new(Kind::Delete, 0)
        };
        self.on_key(header, key, &[], |reply| {
            Ok(match reply.header.status {
                Status::Ok => PutOutcome::Stored(0),
                _ => PutOutcome::Unmet(reply.header.version),
            })
        })
    }

    /// Stores a value if the key has a version; 0 expects that it is absent.
    pub fn compare_and_swap(
        &self,
        key: &[u8],
        value: &[u8],
        expected: Version,
    ) -> Pending<CasOutcome> {
        let header = Header {
            version: expected,
            ..Header::new(Kind::CompareAndSwap, 0)
        };
        self.on_key(header, key, value, |reply| {
            let version = reply.header.version;
            Ok(match reply.header.status {
                Status::Ok => CasOutcome::Stored(version),
                _ => CasOutcome::Mismatch(version),
            })
        })
    }

    /// Adds to a decimal integer, and returns the sum; an absent key counts as 0.
    pub fn increment(&self, key: &[u8], by: i64) -> Pending<i64> {
        let header = Header {
            argument: by.cast_unsigned(),
            ..Header::new(Kind::Increment, 0)
        };
        self.on_key(header, key, &[], |reply| {
            Ok(reply.header.argument.cast_signed())
        })
    }

    /// Sets when a key expires; false if it is absent.
    pub fn expire(&self, key: &[u8], expiry: Expiry) -> Pending<bool> {
        self.expire_if(key, expiry, ExpiryCondition::Always)
    }

    /// Sets a key's expiry if the present one meets a condition; false if it does not, or if the
    /// key is absent.
    pub fn expire_if(
        &self,
        key: &[u8],
        expiry: Expiry,
        condition: ExpiryCondition,
    ) -> Pending<bool> {
        let (kind, argument) = expiry.encode();
        let header = Header {
            options: condition.encode() as u8 | (kind as u8) << 4,
            argument,
            ..Header::new(Kind::Expire, 0)
        };
        self.on_key(header, key, &[], |reply| {
            Ok(reply.header.status == Status::Ok)
        })
    }

    /// Reads a key's version, length and expiry without its value.
    pub fn inspect(&self, key: &[u8]) -> Pending<Option<Metadata>> {
        self.on_key(Header::new(Kind::Inspect, 0), key, &[], |reply| {
            Ok(metadata(&reply.header))
        })
    }

    /// When a key expires, in milliseconds since 1970: `None` if it is absent, `Some(None)` if it
    /// does not expire.
    pub fn time_to_live(&self, key: &[u8]) -> Pending<Option<Option<u64>>> {
        self.on_key(Header::new(Kind::Inspect, 0), key, &[], |reply| {
            Ok(metadata(&reply.header).map(|found| found.expiry_ms))
        })
    }

    /// Whether a key exists.
    pub fn exists(&self, key: &[u8]) -> Pending<bool> {
        self.on_key(Header::new(Kind::Inspect, 0), key, &[], |reply| {
            Ok(reply.header.status == Status::Ok)
        })
    }

    /// Reads many values, in the order of the keys. Several keys travel in one message.
    pub fn get_many(&self, keys: &[&[u8]]) -> Pending<Vec<Result<Option<Value>>>> {
        many::get(self, keys)
    }

    /// Stores many values, in the order of the pairs. Several short ones travel in one message.
    /// They are not stored together: each has its outcome.
    pub fn put_many(&self, pairs: &[(&[u8], &[u8])]) -> Pending<Vec<Result<Version>>> {
        many::put(self, pairs)
    }

    /// Removes many keys, in their order; false for one that was absent. Several keys travel in one
    /// message. They are not removed together: each has its outcome.
    pub fn delete_many(&self, keys: &[&[u8]]) -> Pending<Vec<Result<bool>>> {
        many::delete(self, keys)
    }

    /// Lists a page of keys from a cursor on, or from the begin.
    pub fn scan(&self, cursor: Option<Cursor>, options: ScanOptions) -> Pending<ScanPage> {
        if !(1..=ENTRIES_MAX).contains(&options.entries) {
            return Pending::ready(Err(Error::Option {
                option: "entries",
                value: options.entries.into(),
                range: "1 to 512",
            }));
        }
        let header = Header {
            argument: options.entries.into(),
            flags: if options.values {
                Flags::VALUES
            } else {
                Flags::NONE
            },
            ..Header::new(Kind::Scan, 0)
        };
        let cursor = cursor.map_or(Vec::new(), |cursor| cursor.0.to_vec());
        self.submit(header, &[], cursor, |reply| page(&reply.value))
    }

    /// The server's figures: names and numbers.
    pub fn statistics(&self) -> Pending<Vec<(String, u64)>> {
        let header = Header::new(Kind::Statistics, 0);
        self.submit(header, &[], Vec::new(), |reply| {
            let text = String::from_utf8_lossy(&reply.value);
            let line = |line: &str| {
                let (name, value) = line.split_once(' ')?;
                Some((name.to_owned(), value.parse().ok()?))
            };
            Ok(text.lines().filter_map(line).collect())
        })
    }

    /// Makes all keys absent whose records are lost with a memory node; returns how many there may
    /// have been of them. Until then they answer with [`Status::Unavailable`], unless they are
    /// written or deleted.
    ///
    /// [`Status::Unavailable`]: crate::Status::Unavailable
    pub fn forget_lost(&self) -> Pending<u64> {
        let header = Header::new(Kind::ForgetLost, 0);
        self.submit(header, &[], Vec::new(), |reply| Ok(reply.header.argument))
    }

    /// Nothing; a round trip.
    pub fn ping(&self) -> Pending<()> {
        self.submit(Header::new(Kind::Ping, 0), &[], Vec::new(), |_| Ok(()))
    }
}

async fn driver_run(driver: Driver, begun: mpsc::Sender<Result<()>>) {
    driver.run(begun).await;
}

/// Checks the limits of a key and a value.
pub(crate) fn check(key: &[u8], value: &[u8]) -> Result<()> {
    checked(key, KEY_BYTES_MAX)?;
    if value.len() as u64 > VALUE_BYTES_MAX {
        return Err(Error::ValueTooLong {
            bytes: value.len() as u64,
            max: VALUE_BYTES_MAX,
        });
    }
    Ok(())
}

pub(crate) fn found(reply: Reply) -> Option<Value> {
    (reply.header.status == Status::Ok).then_some(Value {
        version: reply.header.version,
        bytes: reply.value,
    })
}

fn metadata(header: &Header) -> Option<Metadata> {
    (header.status == Status::Ok).then_some(Metadata {
        version: header.version,
        length: header.offset,
        expiry_ms: (header.argument != u64::MAX).then_some(header.argument),
        collection: header.flags.has(Flags::COLLECTION),
    })
}

fn page(body: &[u8]) -> Result<ScanPage> {
    let invalid = |error: farcore_protocol::WireError| Error::Server {
        operation: "scan",
        status: Status::Protocol,
        reason: error.to_string(),
    };
    let page = Page::of(body).map_err(invalid)?;
    let (next, unreadable) = (page.next.map(Cursor), page.unreadable);
    let mut entries = Vec::new();
    for entry in page {
        let entry = entry.map_err(invalid)?;
        entries.push(ScanEntry {
            key: entry.key.to_vec(),
            value: entry.value.map(<[u8]>::to_vec),
            metadata: Metadata {
                version: entry.version,
                length: entry.length,
                expiry_ms: entry.expiry_ms,
                collection: entry.collection,
            },
        });
    }
    Ok(ScanPage {
        entries,
        next,
        unreadable,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_time_limit_that_no_clock_reaches_is_refused() {
        for (timeout, is_right) in [
            (Duration::ZERO, false),
            (TIMEOUT_MIN, true),
            (TIMEOUT_MAX, true),
            (Duration::MAX, false),
        ] {
            let options = ClientOptions {
                timeout,
                ..ClientOptions::default()
            };
            assert_eq!(options.check().is_ok(), is_right, "{timeout:?}");
        }
    }
}
