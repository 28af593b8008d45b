//! Carries out commands with the client library.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail, ensure};
use farcore_client::{
    CasOutcome, Client, Cursor, Error, ExpiryCondition, Pending, PutOutcome, ScanEntry, ScanOptions,
};
use farcore_command::outputs::OutputFile;
use farcore_protocol::VALUE_BYTES_MAX;

use super::answer::{Answer, Change, Ending, Found};
use super::bench;
use super::escaped::escaped;
use super::output::Output;
use super::words::{Command, Delete, Expire, Get, Put, Scan, Source};
use crate::text::grouped;

/// The most entries of a page of a scan.
const PAGE_ENTRIES: u32 = 512;

/// Options of the client and settings of the engine behind the server, and the flags that set them.
const FLAGS: [(&str, &str); 5] = [
    ("`timeout`", "--timeout"),
    ("`local_bytes` or `keys_expected`", "--local of the server"),
    ("`local_bytes`", "--local of the server"),
    ("`far_bytes`", "--far of the server"),
    (
        "; if keys collide, open the engine with a random `seed`",
        "",
    ),
];

/// A connection, and where results go.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) output: Output,
}

/// The client's error as one line that a terminal can show. The texts of a server are among it.
pub(super) fn explained(error: Error) -> anyhow::Error {
    let said = FLAGS.iter().fold(error.to_string(), |said, (field, flag)| {
        said.replace(field, flag)
    });
    let said = escaped(said.trim_end().as_bytes());
    anyhow!("{said}")
}

/// Waits for an operation.
pub(super) fn ended<T>(pending: Pending<T>) -> Result<T> {
    pending.wait().map_err(explained)
}

impl Session {
    pub(super) fn new(client: Client, output: Output) -> Self {
        Self { client, output }
    }

    /// Carries out a command and writes its results.
    ///
    /// # Errors
    /// The operation failed, or a file or standard output cannot be used.
    pub(super) fn carry_out(&mut self, command: &Command) -> Result<Ending> {
        let client = &self.client;
        let answer = match command {
            Command::Get(get) => get_value(client, get)?,
            Command::Put(put) => put_value(client, put, self.output.is_single())?,
            Command::Del(delete) => remove(client, delete)?,
            Command::Cas(swap) => {
                let (key, value) = (swap.key.as_bytes(), swap.value.as_bytes());
                let outcome = ended(client.compare_and_swap(key, value, swap.expected))?;
                stored(
                    &swap.key,
                    match outcome {
                        CasOutcome::Stored(version) => PutOutcome::Stored(version),
                        CasOutcome::Mismatch(version) => PutOutcome::Unmet(version),
                    },
                )
            }
            Command::Mget(many) => return self.get_many(&many.keys),
            Command::Incr(increment) => Answer::Sum {
                key: bytes(&increment.key),
                sum: ended(client.increment(increment.key.as_bytes(), increment.by))?,
            },
            Command::Ttl(one) => expiry(client, &one.key)?,
            Command::Expire(expire) => set_expiry(client, expire)?,
            Command::Scan(scan) => return self.scan(scan),
            Command::Bench(arguments) => Answer::Measured(bench::measure(client, arguments)?),
            Command::Stats => Answer::Figures(ended(client.statistics())?),
            Command::ForgetLost => Answer::Forgotten {
                keys: ended(client.forget_lost())?,
            },
        };
        self.output.answer(&answer)
    }

    fn get_many(&mut self, keys: &[OsString]) -> Result<Ending> {
        let all: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        let found = ended(self.client.get_many(&all))?;
        let mut ending = Ending::Done;
        for (key, found) in keys.iter().zip(found) {
            let key = bytes(key);
            let name = || escaped(&key);
            let found = found.map_err(|error| anyhow!("`{}`: {}", name(), explained(error)))?;
            let answer = match found {
                Some(value) => Answer::Pair(Found {
                    key,
                    value: value.bytes,
                    version: value.version,
                }),
                None => Answer::Absent { key },
            };
            ending = ending.max(self.output.answer(&answer)?);
        }
        Ok(ending)
    }

    fn scan(&mut self, scan: &Scan) -> Result<Ending> {
        let mut left = scan.limit.unwrap_or(u64::MAX);
        let mut cursor: Option<Cursor> = None;
        let mut unreadable = 0;
        loop {
            let wanted = if scan.takes_all() { left } else { u64::MAX };
            let options = ScanOptions {
                values: scan.values,
                entries: u32::try_from(wanted).map_or(PAGE_ENTRIES, |left| left.min(PAGE_ENTRIES)),
            };
            let page = ended(self.client.scan(cursor, options))?;
            unreadable += page.unreadable;
            let entries = page.entries.into_iter();
            for entry in entries.filter(|entry| scan.takes(&entry.key)) {
                if left == 0 {
                    break;
                }
                let Some(entry) = self.whole(entry, scan.values)? else {
                    continue;
                };
                self.output.answer(&Answer::Entry(entry))?;
                left -= 1;
            }
            cursor = page.next;
            if cursor.is_none() || left == 0 || self.output.is_closed() {
                break;
            }
        }
        // The keys above are printed, whatever is missing.
        self.output.flush()?;
        ensure!(
            unreadable == 0,
            "{} records are lost or damaged, so that their keys are not listed; `farcore cli forget-lost` makes lost keys absent, `farcore top` shows the memory nodes",
            grouped(unreadable)
        );
        Ok(Ending::Done)
    }

    /// An entry with its value if values are wanted and it has one; `None` if it is gone.
    fn whole(&self, entry: ScanEntry, values: bool) -> Result<Option<ScanEntry>> {
        if !values || entry.value.is_some() || entry.metadata.collection {
            return Ok(Some(entry));
        }
        // It did not fit the page.
        let Some(value) = ended(self.client.get(&entry.key))? else {
            return Ok(None);
        };
        let mut entry = entry;
        entry.metadata.version = value.version;
        entry.metadata.length = value.bytes.len() as u64;
        entry.value = Some(value.bytes);
        Ok(Some(entry))
    }
}

fn bytes(word: &OsString) -> Vec<u8> {
    word.as_bytes().to_vec()
}

fn get_value(client: &Client, get: &Get) -> Result<Answer> {
    let file = OutputFile::open_if("--output", get.output.as_deref())?;
    let key = bytes(&get.key);
    let Some(found) = ended(client.get(&key))? else {
        return Ok(Answer::Absent { key });
    };
    let version = found.version;
    let (Some(file), Some(path)) = (file, &get.output) else {
        return Ok(Answer::Value(Found {
            key,
            value: found.bytes,
            version,
        }));
    };
    file.write(&found.bytes)?;
    Ok(Answer::Written {
        key,
        version,
        bytes: found.bytes.len() as u64,
        file: path.clone(),
    })
}

/// Reads a value of at most the longest length.
fn read_value(name: &str, source: impl Read) -> Result<Vec<u8>> {
    let mut value = Vec::new();
    source
        .take(VALUE_BYTES_MAX + 1)
        .read_to_end(&mut value)
        .with_context(|| name.to_owned())?;
    ensure!(
        value.len() as u64 <= VALUE_BYTES_MAX,
        "{name}: the value has more than {VALUE_BYTES_MAX} bytes, the limit; split it"
    );
    Ok(value)
}

fn read_file(path: &Path) -> Result<Vec<u8>> {
    let name = format!("--file {}", path.display());
    let file = File::open(path).with_context(|| name.clone())?;
    read_value(&name, file)
}

fn value_of(source: &Source, may_read_stdin: bool) -> Result<Vec<u8>> {
    match (&source.value, &source.file) {
        (Some(value), _) => Ok(bytes(value)),
        (None, Some(path)) => read_file(path),
        (None, None) if may_read_stdin => read_value("--stdin", io::stdin().lock()),
        (None, None) => {
            bail!("--stdin: the commands come from standard input; give --file FILE instead")
        }
    }
}

fn stored(key: &OsString, outcome: PutOutcome) -> Answer {
    let key = bytes(key);
    match outcome {
        PutOutcome::Stored(version) => Answer::Stored { key, version },
        PutOutcome::Unmet(version) => Answer::Unmet {
            key,
            version,
            change: Change::Store,
        },
    }
}

fn put_value(client: &Client, put: &Put, may_read_stdin: bool) -> Result<Answer> {
    let value = value_of(&put.source, may_read_stdin)?;
    let outcome = ended(client.put_with(put.key.as_bytes(), &value, put.options()))?;
    Ok(stored(&put.key, outcome))
}

fn remove(client: &Client, delete: &Delete) -> Result<Answer> {
    let key = bytes(&delete.key);
    let Some(expected) = delete.if_version else {
        let existed = ended(client.delete(&key))?;
        return Ok(if existed {
            Answer::Deleted { key }
        } else {
            Answer::Absent { key }
        });
    };
    Ok(match ended(client.delete_if(&key, expected))? {
        PutOutcome::Stored(_) => Answer::Deleted { key },
        PutOutcome::Unmet(version) => Answer::Unmet {
            key,
            version,
            change: Change::Delete,
        },
    })
}

fn expiry(client: &Client, key: &OsString) -> Result<Answer> {
    let key = bytes(key);
    let Some(expiry_ms) = ended(client.time_to_live(&key))? else {
        return Ok(Answer::Absent { key });
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ms = now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX));
    let expires = expiry_ms.map(|at_ms| (at_ms, at_ms.saturating_sub(now_ms)));
    Ok(Answer::Expiry { key, expires })
}

fn set_expiry(client: &Client, expire: &Expire) -> Result<Answer> {
    let key = bytes(&expire.key);
    let condition = expire.condition();
    if ended(client.expire_if(&key, expire.expiry(), condition))? {
        let seconds = expire.seconds;
        return Ok(Answer::ExpirySet { key, seconds });
    }
    // An absent key and a condition that does not hold have one status.
    let exists = condition != ExpiryCondition::Always && ended(client.exists(&key))?;
    Ok(if exists {
        Answer::ExpiryKept { key }
    } else {
        Answer::Absent { key }
    })
}

#[cfg(test)]
mod tests {
    use farcore_client::Status;

    use super::*;

    #[test]
    fn a_value_is_read_up_to_the_limit() {
        let limit = VALUE_BYTES_MAX;
        let value = read_value("--stdin", io::repeat(7).take(limit)).expect("the limit fits");
        assert_eq!(value.len() as u64, limit);
        // An endless source ends the reading, too.
        let error = read_value("--stdin", io::repeat(7))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("67108864") && error.contains("split it"),
            "{error}"
        );
    }

    #[test]
    fn what_a_server_says_cannot_move_the_cursor() {
        let error = Error::Server {
            operation: "put",
            status: Status::Internal,
            reason: "\x1b[2Jgone\r\n".to_owned(),
        };
        let said = explained(error).to_string();
        assert!(!said.contains(|c: char| c.is_control()), "{said:?}");
    }
}
