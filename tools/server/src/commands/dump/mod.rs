//! `DUMP` and `RESTORE`: values in Redis's RDB format, for moves between servers.
//!
//! A dump of a collection is gathered in memory that the client is charged for, since its length
//! comes first. That of a string in pieces is read as the client takes it. A payload is checked as
//! a whole, in slices, before the key is touched. Then it is stored under the key's section.
//!
//! - D1: a payload that is refused leaves the key as it was.
//! - D2: a dump is of one version of its key.

mod check;
mod collections;
mod pages;
mod parts;
mod restore;
mod store;
mod streams;
mod take;

use farcore::Error;
use farcore_rdb::write::{self, types};
use farcore_rdb::{Crc64, Packer, payload};

use self::parts::Parts;
use super::trees::Step;
use super::{Call, Flow, Refusal};
use crate::events::classes::EventClasses;
use crate::long::copy::{CHUNK_BYTES, Old, Segment, ValueUse, hold_value, send_chunks};
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::attempts::Attempts;
use crate::tasks::failure::TaskFailure;

pub(super) use self::restore::restore;
pub(super) use self::take::{take_key, take_page};

type Result = std::result::Result<Flow, Refusal>;

/// What a payload is made of.
enum Dumped {
    /// Of a string that is in pieces.
    Long(Old),
    Parts(Parts),
}

pub(super) fn dump(call: &mut Call<'_>) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let key = call.key().to_vec();
    Ok(call.task(move |mut core, output, protocol| async move {
        let dumped = dumped((&mut core, &output), &key).await;
        output.leave(&mut core);
        match dumped {
            Ok(Some(Dumped::Parts(parts))) => parts.send(&core, &output, protocol).await,
            Ok(Some(Dumped::Long(value))) => {
                if send_long((&mut core, &output), protocol, &value)
                    .await
                    .is_err()
                {
                    output.break_off();
                }
                value.release(&mut core).await;
            }
            Ok(None) => {
                output.notify(EventClasses::MISSED, "keymiss", &key);
                output.write(|bytes| Writer::new(bytes, protocol).null());
            }
            Err(failure) => failure.write(&output, protocol),
        }
        core
    }))
}

/// What a key's payload is made of; `None` if it is absent.
async fn dumped(
    (core, output): Step<'_>,
    key: &[u8],
) -> std::result::Result<Option<Dumped>, TaskFailure> {
    let mut attempts = Attempts::default();
    loop {
        let dumped = match core.tree(key).len().await {
            Ok(length) if length.version > 0 => {
                let parts = collections::parts((&mut *core, output), key, &length).await;
                parts.map(|parts| Some(Dumped::Parts(parts)))
            }
            Ok(_) | Err(Error::KeyTooLong { .. }) => return Ok(None),
            Err(Error::NoCollection) => of_string((&mut *core, output), key).await,
            Err(error) => return Err(error.into()),
        };
        match dumped {
            Err(TaskFailure::Engine(Error::CollectionVersion { .. } | Error::Collection)) => {
                attempts.again(core, output, &[key]).await;
            }
            dumped => return dumped,
        }
    }
}

async fn of_string(
    (core, output): Step<'_>,
    key: &[u8],
) -> std::result::Result<Option<Dumped>, TaskFailure> {
    let held = hold_value(core, output, key, ValueUse::Read).await?;
    let value = Old::open(core, key).await?;
    let text = match value {
        Old::Absent => return Ok(None),
        Old::Short(text, _) => text,
        Old::Long(_) => {
            // It is read as the client takes it.
            drop(held);
            return Ok(Some(Dumped::Long(value)));
        }
    };
    let mut parts = Parts::new(output);
    let mut packer = Packer::default();
    parts.hold(2 * text.len() + Packer::BYTES)?;
    write::length(parts.bytes(), u64::from(types::STRING));
    write::string(parts.bytes(), &text, &mut packer);
    steps::count_copied(2 * text.len());
    Ok(Some(Dumped::Parts(parts)))
}

/// Writes the payload of a string in pieces as the client takes it.
async fn send_long(
    (core, output): Step<'_>,
    protocol: Protocol,
    value: &Old,
) -> farcore::Result<()> {
    let _held = output.hold(usize::try_from(2 * CHUNK_BYTES).unwrap_or(0));
    let length = value.length();
    let mut head = vec![types::STRING];
    write::length(&mut head, length);
    let all = head.len() as u64 + length + payload::FOOTER_BYTES as u64;
    output.write(|bytes| {
        Writer::new(bytes, protocol).bulk_head(usize::try_from(all).unwrap_or(0));
        bytes.extend_from_slice(&head);
    });
    let mut crc = Crc64::default();
    crc.add(&head);
    let (whole, mut at, mut part) = (value.segment(0..length), 0, Vec::new());
    while at < length && !output.is_gone() {
        output.room(core).await;
        let bytes = usize::try_from(CHUNK_BYTES.min(length - at)).unwrap_or(0);
        output.turn(core, bytes).await;
        Segment::read(&whole, core, at, &mut part).await?;
        at += part.len() as u64;
        crc.add(&part);
        send_chunks(core, output, &part).await;
    }
    output.write(|bytes| {
        bytes.extend(payload::footer(crc));
        bytes.extend_from_slice(b"\r\n");
    });
    Ok(())
}
