//! `MGET` of very many keys, or where values may be large: some keys are read at once, and the next
//! ones when the client has taken what was found.

use farcore::constants::KEY_BYTES_MAX;
use farcore::{Answer, Core, Error, Operation};

use super::{Call, Flow};
use crate::limits::LARGE_BYTES;
use crate::long::copy::hold_next;
use crate::long::read::LongRead;
use crate::memory::Charge;
use crate::resp::{Protocol, Writer};
use crate::steps;
use crate::tasks::output::TaskOutput;
use crate::texts::Texts;
use crate::types::replies::{ReplyKind, error_text, write_answer};

/// Keys that are read at once.
const KEYS_AT_ONCE: usize = 64;
/// Keys of an `MGET` from which it is read so in any case: the replies of fewer are kept until all
/// are there.
pub(super) const KEYS_MAX: usize = 1024;

/// What was found of a key.
enum Found {
    /// Its reply.
    Reply(Vec<u8>),
    /// A value that is read by itself.
    Large,
}

/// Starts the reads of all arguments.
pub(super) fn start(call: &mut Call<'_>) -> Flow {
    if call.is_early() {
        return Flow::Later;
    }
    let keys = Texts::of((1..call.count()).map(|place| call.argument(place)));
    call.task(move |mut core, output, protocol| async move {
        output.write(|bytes| Writer::new(bytes, protocol).array(keys.len()));
        let mut held = None;
        for start in (0..keys.len()).step_by(KEYS_AT_ONCE) {
            output.room(&core).await;
            steps::end_slice(&core).await;
            if output.is_gone() {
                break;
            }
            let keys: Vec<_> = keys
                .some(start..keys.len().min(start + KEYS_AT_ONCE))
                .collect();
            steps::count(keys.len());
            let keys = &keys[..];
            if let Err(error) = read_some(&mut core, keys, &mut held, &output, protocol).await {
                // The engine closes.
                tracing::debug!(%error, "a reply cannot be finished");
                output.break_off();
                break;
            }
        }
        core
    })
}

/// Reads some keys and writes their replies.
async fn read_some(
    core: &mut Core,
    keys: &[&[u8]],
    held: &mut Option<Charge>,
    output: &TaskOutput,
    protocol: Protocol,
) -> Result<(), Error> {
    let mut found: Vec<_> = keys.iter().map(|_| Found::Large).collect();
    // One that is too long cannot exist.
    let possible = |place: &usize| keys[*place].len() <= KEY_BYTES_MAX;
    let places: Vec<_> = (0..keys.len()).filter(possible).collect();
    for (place, found) in found.iter_mut().enumerate() {
        if !possible(&place) {
            *found = find(&Answer::Absent, protocol);
        }
    }
    let operations = places
        .iter()
        .map(|&place| Operation::Get { key: keys[place] });
    core.many_kept(operations, LARGE_BYTES, |place, answer| {
        found[places[place]] = find(&answer, protocol);
    })
    .await?;
    for (key, found) in keys.iter().zip(found) {
        match found {
            Found::Reply(reply) => output.write(|bytes| bytes.extend_from_slice(&reply)),
            Found::Large => {
                output.room(core).await;
                read_large(core, key, held, output, protocol).await;
            }
        }
    }
    Ok(())
}

fn find(answer: &Answer<'_>, protocol: Protocol) -> Found {
    let mut reply = Vec::new();
    let mut writer = Writer::new(&mut reply, protocol);
    match answer {
        Answer::Value { value, .. } if value.len() > LARGE_BYTES => return Found::Large,
        Answer::Failed(Error::LongValue { .. }) => return Found::Large,
        // Among strings, what is none counts as absent; as Redis.
        Answer::Failed(Error::Collection) => writer.null(),
        Answer::Failed(error) => writer.error(&error_text(error)),
        answer => write_answer(ReplyKind::Value, answer, &mut writer),
    }
    Found::Reply(reply)
}

async fn read_large(
    core: &mut Core,
    key: &[u8],
    held: &mut Option<Charge>,
    output: &TaskOutput,
    protocol: Protocol,
) {
    match hold_next(core, output, key, held).await {
        Ok(()) => {
            let read = LongRead {
                key: key.to_vec(),
                kind: ReplyKind::Value,
            };
            read.run_among(core, output, protocol).await;
        }
        Err(shortage) => output.refuse(protocol, &shortage),
    }
}
