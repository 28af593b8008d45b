//! Keys as replicas get them: pages of plain values, and single keys as payloads, each with its
//! version.

use farcore::{Core, Cursor, ScanOptions};

use super::{Dumped, dumped, send_long};
use crate::commands::{Call, Flow, Refusal};
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::attempts::Attempts;
use crate::tasks::failure::TaskFailure;
use crate::tasks::output::TaskOutput;
use crate::types::replies::error_text;

/// Keys of a page: as many as fit these bytes, and no more than that.
const PAGE_KEYS: usize = 256;
const PAGE_BYTES: usize = 256 << 10;
/// What is said instead of a time at which a key expires.
const NEVER: i64 = -1;

fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Replies with the next keys: where the next page begins, or nothing; then of each key its name as
/// it is stored, its version, when it expires, and its value, or nothing if it is a collection's or
/// in pieces.
pub(in crate::commands) fn take_page(call: &mut Call<'_>) -> Result<Flow, Refusal> {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let cursor = call.argument(2).as_array().copied();
    let cursor = cursor.map(Cursor::from_bytes).ok_or("ERR invalid cursor")?;
    Ok(call.task(move |mut core, output, protocol| async move {
        match page(&mut core, &output, cursor, protocol).await {
            Ok(()) => {}
            Err(error) => output.write(|bytes| {
                Writer::new(bytes, protocol).error(&error_text(&error));
            }),
        }
        core
    }))
}

async fn page(
    core: &mut Core,
    output: &TaskOutput,
    cursor: Cursor,
    protocol: Protocol,
) -> farcore::Result<()> {
    steps::end_slice(core).await;
    output.room(core).await;
    let mut keys = PAGE_KEYS;
    // Values may be long: then fewer of them are read again.
    let page = loop {
        let options = ScanOptions {
            values: true,
            entries: keys,
        };
        let page = core.scan(cursor, options).await?;
        let values = page.entries().filter_map(|entry| entry.value);
        let bytes: usize = values.map(<[u8]>::len).sum();
        steps::count_walked(bytes);
        if bytes <= PAGE_BYTES || keys == 1 {
            break page;
        }
        keys = (keys / 4).max(1);
        steps::end_slice(core).await;
    };
    steps::count(page.entries().count());
    output.write(|bytes| {
        let mut writer = Writer::new(bytes, protocol);
        writer.array(1 + 4 * page.entries().count());
        match page.next() {
            Some(next) => writer.bulk(&next.to_bytes()),
            None => writer.bulk(b""),
        }
        for entry in page.entries() {
            writer.bulk(entry.key);
            writer.integer(integer(entry.version));
            writer.integer(entry.expiry_ms.map_or(NEVER, integer));
            match entry.value.filter(|_| !entry.collection) {
                Some(value) => writer.bulk(value),
                None => writer.null(),
            }
        }
    });
    Ok(())
}

/// Replies with a key's version, when it expires, and its payload as of `DUMP`; with null if it is
/// absent, and with no element if it is lost.
pub(in crate::commands) fn take_key(call: &mut Call<'_>) -> Result<Flow, Refusal> {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let key = call.argument(2).to_vec();
    Ok(call.task(move |mut core, output, protocol| async move {
        let taken = take(&mut core, &output, &key).await;
        output.leave(&mut core);
        match taken {
            Ok(Some((version, expiry_ms, dumped))) => {
                output.write(|bytes| {
                    let mut writer = Writer::new(bytes, protocol);
                    writer.array(3);
                    writer.integer(integer(version));
                    writer.integer(expiry_ms.map_or(NEVER, integer));
                });
                match dumped {
                    Dumped::Parts(parts) => parts.send(&core, &output, protocol).await,
                    Dumped::Long(value) => {
                        let step = (&mut core, &output);
                        if send_long(step, protocol, &value).await.is_err() {
                            output.break_off();
                        }
                        value.release(&mut core).await;
                    }
                }
            }
            Ok(None) => output.write(|bytes| Writer::new(bytes, protocol).null()),
            // Else no replica could be made of a server that has lost a node.
            Err(TaskFailure::Engine(error)) if error.is_lost() => {
                tracing::warn!(%error, "a key is lost, and replicas do not get it");
                output.write(|bytes| Writer::new(bytes, protocol).array(0));
            }
            Err(failure) => failure.write(&output, protocol),
        }
        core
    }))
}

/// What a key is dumped as, with its version and expiry then.
async fn take(
    core: &mut Core,
    output: &TaskOutput,
    key: &[u8],
) -> Result<Option<(u64, Option<u64>, Dumped)>, TaskFailure> {
    let mut attempts = Attempts::default();
    loop {
        let Some(before) = core.inspect(key).await? else {
            return Ok(None);
        };
        match dumped((&mut *core, output), key).await {
            Ok(Some(dumped)) => {
                let after = core.inspect(key).await?;
                if after.is_some_and(|after| after.version == before.version) {
                    return Ok(Some((before.version, before.expiry_ms, dumped)));
                }
                if let Dumped::Long(value) = dumped {
                    value.release(core).await;
                }
            }
            Ok(None) => {}
            Err(failure) => return Err(failure),
        }
        attempts.again(core, output, &[key]).await;
    }
}
