//! `RESTORE`.

use farcore::{Core, Expiry};
use farcore_rdb::{Crc64, payload};

use super::check::{Checked, check};
use super::store::store;
use crate::commands::arguments::{integer, is_option};
use crate::commands::trees::{Step, finish};
use crate::commands::{Call, Flow, Refusal, SYNTAX};
use crate::events::classes::EventClasses;
use crate::long::copy::CHUNK_BYTES;
use crate::memory::Charge;
use crate::steps;
use crate::tasks::failure::TaskFailure;

type Result = std::result::Result<Flow, Refusal>;

const TIME: &str = "ERR Invalid TTL value, must be >= 0";
const IDLE: &str = "ERR Invalid IDLETIME value, must be >= 0";
const FREQUENCY: &str = "ERR Invalid FREQ value, must be >= 0 and <= 255";
const EXISTS: &str = "BUSYKEY Target key name already exists.";
const DAMAGED: &str = "ERR DUMP payload version or checksum are wrong";

/// What stands behind the payload.
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    replaces: bool,
    /// The time is that of the end.
    is_end: bool,
}

impl Options {
    /// Reads them. Times of use are not kept, so they are only checked.
    fn of(call: &Call<'_>) -> std::result::Result<Self, Refusal> {
        let mut options = Self::default();
        let (mut has_idle, mut has_frequency, mut place) = (false, false, 4);
        while place < call.count() {
            let option = call.argument(place);
            let has_more = place + 1 < call.count();
            if is_option(option, "replace") {
                options.replaces = true;
            } else if is_option(option, "absttl") {
                options.is_end = true;
            } else if is_option(option, "idletime") && has_more && !has_frequency {
                place += 1;
                if integer(call.argument(place))? < 0 {
                    return Err(IDLE.into());
                }
                has_idle = true;
            } else if is_option(option, "freq") && has_more && !has_idle {
                place += 1;
                if !(0..=255).contains(&integer(call.argument(place))?) {
                    return Err(FREQUENCY.into());
                }
                has_frequency = true;
            } else {
                return Err(SYNTAX.into());
            }
            place += 1;
        }
        Ok(options)
    }
}

/// When a key expires whose time is given.
enum Life {
    Lasts(Expiry),
    HasEnded,
}

fn life(time: i64, options: Options) -> std::result::Result<Life, Refusal> {
    let time = u64::try_from(time).map_err(|_| Refusal::from(TIME))?;
    if time == 0 {
        return Ok(Life::Lasts(Expiry::Never));
    }
    let now_ms = farcore_tuning::system_ms();
    let at_ms = match options.is_end {
        true => time,
        false => now_ms.saturating_add(time),
    };
    // What clocks cannot count is past; as Redis, whose sum turns around.
    let has_ended = at_ms <= now_ms || i64::try_from(at_ms).is_err();
    Ok(match has_ended {
        true => Life::HasEnded,
        false => Life::Lasts(Expiry::At(at_ms)),
    })
}

/// What a restore came to.
enum Restored {
    Stored,
    /// The value has expired; it removed the key's.
    Removed,
    Expired,
}

pub(in crate::commands) fn restore(call: &mut Call<'_>) -> Result {
    let options = Options::of(call)?;
    let time = integer(call.argument(2)).and_then(|time| life(time, options));
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let key = call.key().to_vec();
    let given = call.argument(3).to_vec();
    steps::count_copied(given.len());
    let readiness = call.readiness();
    Ok(call.task(move |mut core, output, protocol| async move {
        let step = (&mut core, &output);
        let restored = run(step, &key, (&given, time, options)).await;
        output.leave(&mut core);
        drop(given);
        match restored {
            Ok(Restored::Stored) => {
                output.notify(EventClasses::NEW, "new", &key);
                output.notify(EventClasses::GENERIC, "restore", &key);
                readiness.note_any(&core, &key).await;
            }
            Ok(Restored::Removed) => output.notify(EventClasses::GENERIC, "del", &key),
            _ => {}
        }
        finish(&output, protocol, restored, |writer, _| writer.simple("OK"));
        core
    }))
}

async fn run(
    (core, output): Step<'_>,
    key: &[u8],
    (given, time, options): (&[u8], std::result::Result<Life, Refusal>, Options),
) -> std::result::Result<Restored, TaskFailure> {
    if !options.replaces && core.exists(key).await? {
        return Err(EXISTS.into());
    }
    let life = time.map_err(|Refusal(text)| TaskFailure::Refused(text))?;
    let (summed, checksum) = payload::split(given).ok_or(DAMAGED)?;
    if summed_up(core, summed).await != checksum {
        return Err(DAMAGED.into());
    }
    let (value_type, value) = payload::value(summed).ok_or(DAMAGED)?;
    let checked = check((&mut *core, output), (value_type, value)).await?;
    let _held = hold(core, output, &checked).await?;
    output.enter(core, &[key]).await?;
    if !options.replaces && core.exists(key).await? {
        return Err(EXISTS.into());
    }
    let Life::Lasts(expiry) = life else {
        let was_there = options.replaces && core.delete(key).await?;
        return Ok(match was_there {
            true => Restored::Removed,
            false => Restored::Expired,
        });
    };
    store(
        (&mut *core, output),
        key,
        (value_type, value),
        (&checked, expiry),
    )
    .await?;
    Ok(Restored::Stored)
}

/// The checksum of bytes.
async fn summed_up(core: &Core, bytes: &[u8]) -> u64 {
    let mut crc = Crc64::default();
    for chunk in bytes.chunks(usize::try_from(CHUNK_BYTES).unwrap_or(1)) {
        crc.add(chunk);
        steps::count_copied(chunk.len());
        steps::end_slice(core).await;
    }
    crc.value()
}

/// Charges what it takes to store what was checked. Under the section it would not be waited for.
async fn hold(
    core: &Core,
    output: &crate::tasks::output::TaskOutput,
    checked: &Checked,
) -> std::result::Result<Charge, TaskFailure> {
    Ok(output
        .hold_when_free(core, checked.stored_bytes(output))
        .await?)
}
