//! Commands of estimates of how many elements were added. A change reads the value, and stores the
//! new one if the key holds that still; else it begins anew. `PFMERGE` stores under the sections of
//! all its keys.

use farcore::constants::KEY_BYTES_MAX;
use farcore::{Condition, Core, Expiry, PutOptions, PutOutcome, Version};

use super::trees::{Step, finish};
use super::{Call, Flow, Refusal, read_of};
use crate::events::classes::EventClasses;
use crate::long::copy::{Old, Segment, ValueUse, hold_value, put_segments};
use crate::resp::Writer;
use crate::steps;
use crate::tasks::attempts::Attempts;
use crate::tasks::failure::TaskFailure;
use crate::types::hyperloglog::layout::{BYTES_MAX, DENSE_BYTES, HEADER_BYTES, REGISTERS};
use crate::types::hyperloglog::value::{Damage, HyperLogLog, Registers, estimate_of};

type Result = std::result::Result<Flow, Refusal>;
type Done<T> = std::result::Result<T, TaskFailure>;

/// Elements of the test of the implementation.
const TESTED_ELEMENTS: u64 = 100_000;

/// Bytes of an element that are hashed in a step.
const HASHED_BYTES: usize = 256;
/// Bytes of a sparse value that are searched in a step.
const SEARCHED_BYTES: usize = 128;

/// Steps of the search for a register.
fn searched_steps(value: &HyperLogLog) -> usize {
    match value.is_dense() {
        true => 0,
        false => value.bytes().len() / SEARCHED_BYTES,
    }
}

impl From<Damage> for TaskFailure {
    fn from(damage: Damage) -> Self {
        damage.text().into()
    }
}

/// What a key holds, with its version; none if it is absent.
async fn read((core, output): Step<'_>, key: &[u8]) -> Done<Option<(HyperLogLog, Version)>> {
    if key.len() > KEY_BYTES_MAX {
        // It cannot exist.
        return Ok(None);
    }
    let old = Old::open(core, key).await?;
    let (length, version) = (old.length(), old.version());
    let is_absent = matches!(old, Old::Absent);
    // The head alone says that a longer value is none, or damaged.
    let wanted = if length > BYTES_MAX as u64 {
        HEADER_BYTES as u64
    } else {
        length
    };
    let mut bytes = Vec::new();
    let read = match wanted {
        0 => Ok(()),
        _ => old.segment(0..wanted).read(core, 0, &mut bytes).await,
    };
    old.release(core).await;
    read?;
    if is_absent {
        output.notify(EventClasses::MISSED, "keymiss", key);
        return Ok(None);
    }
    Ok(Some((HyperLogLog::of(bytes, length)?, version)))
}

/// Stores a value if the key has a version still.
async fn store(
    (core, output): Step<'_>,
    key: &[u8],
    (value, version): (&HyperLogLog, Version),
) -> farcore::Result<PutOutcome> {
    let options = PutOptions {
        expiry: Expiry::Keep,
        condition: Condition::Version(version),
    };
    let segments = [Segment::Bytes(value.bytes())];
    put_segments(core, key, &segments, options, output).await
}

/// Leaves the events of a value that has changed.
fn notify((_, output): Step<'_>, key: &[u8], version: Version) {
    if version == 0 {
        output.notify(EventClasses::NEW, "new", key);
    }
    output.notify(EventClasses::STRING, "pfadd", key);
}

/// Adds elements; true if that has changed the value.
async fn add((core, output): Step<'_>, key: &[u8], elements: &[Vec<u8>]) -> Done<bool> {
    let used = ValueUse::Rewrite { added: DENSE_BYTES };
    let _held = hold_value(core, output, key, used).await?;
    let sparse_max = output.shared().encoding_limits.sparse_bytes();
    let mut attempts = Attempts::default();
    loop {
        let found = read((&mut *core, output), key).await?;
        let mut is_changed = found.is_none();
        let (mut value, version) = found.unwrap_or_else(|| (HyperLogLog::new(), 0));
        let mut damage = None;
        for element in elements {
            steps::count(1 + element.len() / HASHED_BYTES + searched_steps(&value));
            steps::end_slice(core).await;
            match value.add(element, sparse_max) {
                Ok(is_raised) => is_changed |= is_raised,
                Err(found) => {
                    damage = Some(found);
                    break;
                }
            }
        }
        if !is_changed {
            return damage.map_or(Ok(false), |damage| Err(damage.into()));
        }
        value.forget_estimate();
        let stored = store((&mut *core, output), key, (&value, version)).await?;
        if !matches!(stored, PutOutcome::Unmet(_)) {
            // As Redis, what was added before the damage was found stays.
            if let Some(damage) = damage {
                return Err(damage.into());
            }
            notify((core, output), key, version);
            return Ok(true);
        }
        attempts.again(core, output, &[key]).await;
    }
}

pub(super) fn pfadd(call: &mut Call<'_>) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let arguments = call.owned_arguments();
    Ok(call.task(move |mut core, output, protocol| async move {
        let key = &arguments[1][..];
        let added = add((&mut core, &output), key, &arguments[2..]).await;
        output.leave(&mut core);
        finish(&output, protocol, added, |writer, is_changed| {
            writer.integer(i64::from(is_changed));
        });
        core
    }))
}

/// The estimate of one key, which is stored with its value unless it is there.
async fn count_one((core, output): Step<'_>, key: &[u8]) -> Done<u64> {
    let _held = hold_value(core, output, key, ValueUse::Rewrite { added: 0 }).await?;
    let Some((mut value, version)) = read((&mut *core, output), key).await? else {
        return Ok(0);
    };
    if let Some(estimate) = value.stored_estimate() {
        return Ok(estimate);
    }
    steps::count_walked(DENSE_BYTES);
    let estimate = value.estimate()?;
    value.store_estimate(estimate);
    // If it is not stored, because the key has changed or memory is full, it is made again.
    let _ = store((core, output), key, (&value, version)).await;
    Ok(estimate)
}

/// What several keys hold.
struct Several {
    registers: Box<Registers>,
    has_dense: bool,
    /// Of each key; 0 if it is absent.
    versions: Vec<Version>,
}

async fn read_several((core, output): Step<'_>, keys: &[Vec<u8>]) -> Done<Several> {
    let mut several = Several {
        registers: Box::new([0; REGISTERS]),
        has_dense: false,
        versions: Vec::with_capacity(keys.len()),
    };
    for key in keys {
        let found = read((&mut *core, output), key).await?;
        let Some((value, version)) = found else {
            several.versions.push(0);
            continue;
        };
        several.has_dense |= value.is_dense();
        value.merge_into(&mut several.registers)?;
        several.versions.push(version);
        output.end_read(core, (REGISTERS / 16, DENSE_BYTES)).await?;
    }
    Ok(several)
}

/// True if keys have these versions still.
async fn are_same(core: &mut Core, keys: &[Vec<u8>], versions: &[Version]) -> Done<bool> {
    for (key, version) in keys.iter().zip(versions) {
        steps::count(1);
        steps::end_slice(core).await;
        let found = read_of(core.inspect(key).await)?;
        if found.map_or(0, |metadata| metadata.version) != *version {
            return Ok(false);
        }
    }
    Ok(true)
}

fn borrowed(keys: &[Vec<u8>]) -> Vec<&[u8]> {
    keys.iter().map(|key| &key[..]).collect()
}

/// The estimate of all elements that were added to any of several keys.
async fn count_all((core, output): Step<'_>, keys: &[Vec<u8>]) -> Done<u64> {
    let _held = output
        .hold_when_free(core, 2 * DENSE_BYTES + REGISTERS)
        .await?;
    let mut attempts = Attempts::default();
    loop {
        let several = read_several((&mut *core, output), keys).await?;
        if core.is_under_section() || are_same(core, keys, &several.versions).await? {
            return Ok(estimate_of(&several.registers));
        }
        attempts.again(core, output, &borrowed(keys)).await;
    }
}

/// Keys of a command, as they are stored.
fn keys_of(call: &Call<'_>) -> Vec<Vec<u8>> {
    let places = 1..call.count();
    places.map(|place| call.key_at(place).to_vec()).collect()
}

pub(super) fn pfcount(call: &mut Call<'_>) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let keys = keys_of(call);
    Ok(call.task(move |mut core, output, protocol| async move {
        let step = (&mut core, &output);
        let counted = match &keys[..] {
            [key] => count_one(step, key).await,
            keys => count_all(step, keys).await,
        };
        output.leave(&mut core);
        finish(&output, protocol, counted, |writer, count| {
            writer.integer(i64::try_from(count).unwrap_or(i64::MAX));
        });
        core
    }))
}

/// Stores what several keys hold together as the first of them.
async fn merge((core, output): Step<'_>, keys: &[Vec<u8>]) -> Done<()> {
    let held = 4 * DENSE_BYTES + REGISTERS;
    let _held = output.hold_when_free(core, held).await?;
    let sparse_max = output.shared().encoding_limits.sparse_bytes();
    let mut several = read_several((&mut *core, output), keys).await?;
    if !core.is_under_section() {
        output.enter(core, &borrowed(keys)).await?;
        if !are_same(core, keys, &several.versions).await? {
            several = read_several((&mut *core, output), keys).await?;
        }
    }
    let target = &keys[0];
    let found = read((&mut *core, output), target).await?;
    let (mut value, version) = found.unwrap_or_else(|| (HyperLogLog::new(), 0));
    if several.has_dense {
        value.make_dense()?;
    }
    steps::count(REGISTERS / 4);
    value.merge(&several.registers, sparse_max)?;
    let stored = store((&mut *core, output), target, (&value, version)).await?;
    if matches!(stored, PutOutcome::Unmet(_)) {
        return Err(farcore::Error::CollectionVersion { current: 0 }.into());
    }
    notify((core, output), target, version);
    Ok(())
}

pub(super) fn pfmerge(call: &mut Call<'_>) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let keys = keys_of(call);
    Ok(call.task(move |mut core, output, protocol| async move {
        let merged = merge((&mut core, &output), &keys).await;
        output.leave(&mut core);
        finish(&output, protocol, merged, |writer, ()| writer.simple("OK"));
        core
    }))
}

/// What `PFDEBUG` shows or does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Debugged {
    Registers,
    Decoded,
    Encoding,
    MakeDense,
}

/// What `PFDEBUG` replies.
enum Shown {
    Registers(Box<Registers>),
    Decoded(String),
    Encoding(&'static str),
    WasMadeDense(bool),
}

/// Looks at the value of a key, and makes it dense, if that is wanted.
async fn look((core, output): Step<'_>, key: &[u8], word: &[u8]) -> Done<Shown> {
    let held = 3 * DENSE_BYTES + REGISTERS;
    let _held = output.hold_when_free(core, held).await?;
    let mut attempts = Attempts::default();
    loop {
        let found = read((&mut *core, output), key).await?;
        let (mut value, version) = found.ok_or("ERR The specified key does not exist")?;
        let wanted = match word.to_ascii_lowercase().as_slice() {
            b"getreg" => Debugged::Registers,
            b"decode" => Debugged::Decoded,
            b"encoding" => Debugged::Encoding,
            b"todense" => Debugged::MakeDense,
            _ => {
                let word = String::from_utf8_lossy(word);
                let text = format!("ERR Unknown PFDEBUG subcommand '{word}'");
                return Err(text.as_str().into());
            }
        };
        let was_dense = value.is_dense();
        match wanted {
            Debugged::Decoded => {
                let decoded = value.decoded().ok_or("ERR HLL encoding is not sparse")?;
                return Ok(Shown::Decoded(decoded));
            }
            Debugged::Encoding => {
                return Ok(Shown::Encoding(if was_dense { "dense" } else { "sparse" }));
            }
            Debugged::Registers | Debugged::MakeDense => value.make_dense()?,
        }
        if !was_dense {
            let stored = store((&mut *core, output), key, (&value, version)).await?;
            if matches!(stored, PutOutcome::Unmet(_)) {
                attempts.again(core, output, &[key]).await;
                continue;
            }
        }
        return Ok(match wanted {
            Debugged::Registers => Shown::Registers(value.registers()?),
            _ => Shown::WasMadeDense(!was_dense),
        });
    }
}

pub(super) fn pfdebug(call: &mut Call<'_>) -> Result {
    if call.is_early() {
        return Ok(Flow::Later);
    }
    let (word, key) = (call.argument(1).to_vec(), call.key_at(2).to_vec());
    Ok(call.task(move |mut core, output, protocol| async move {
        let shown = look((&mut core, &output), &key, &word).await;
        output.leave(&mut core);
        if let Ok(Shown::Registers(registers)) = &shown {
            output.write(|bytes| Writer::new(bytes, protocol).array(REGISTERS));
            for some in registers.chunks(steps::PIECE) {
                output.room(&core).await;
                steps::count(some.len());
                steps::end_slice(&core).await;
                output.write(|bytes| {
                    let mut writer = Writer::new(bytes, protocol);
                    some.iter()
                        .for_each(|number| writer.integer(i64::from(*number)));
                });
            }
            return core;
        }
        finish(&output, protocol, shown, |writer, shown| match shown {
            Shown::Decoded(decoded) => writer.bulk(decoded.as_bytes()),
            Shown::Encoding(name) => writer.simple(name),
            Shown::WasMadeDense(was_made) => writer.integer(i64::from(was_made)),
            Shown::Registers(_) => {}
        });
        core
    }))
}

/// Adds elements to a sparse value and to a dense one, and compares their estimates.
async fn test(core: &Core) -> std::result::Result<(), &'static str> {
    let (mut sparse, mut dense) = (HyperLogLog::new(), HyperLogLog::new());
    let made = dense.make_dense();
    made.map_err(Damage::text)?;
    let mut checkpoint = 1;
    for number in 1..=TESTED_ELEMENTS {
        steps::count(2 + searched_steps(&sparse));
        steps::end_slice(core).await;
        for value in [&mut sparse, &mut dense] {
            let added = value.add(&number.to_le_bytes(), 3000);
            let _ = added.map_err(Damage::text)?;
        }
        if number == checkpoint {
            let estimates = [&sparse, &dense].map(HyperLogLog::estimate);
            let Ok(estimate) = estimates[1] else {
                return Err("ERR TESTFAILED registers");
            };
            if estimates[0] != estimates[1] {
                return Err("ERR TESTFAILED dense/sparse disagree");
            }
            // Six times the standard error.
            if estimate.abs_diff(number) > 1 + number / 20 {
                return Err("ERR TESTFAILED Too big error.");
            }
            checkpoint *= 10;
        }
    }
    Ok(())
}

pub(super) fn pfselftest(call: &mut Call<'_>) -> Result {
    Ok(call.task(move |core, output, protocol| async move {
        let tested = test(&core).await.map_err(TaskFailure::from);
        finish(&output, protocol, tested, |writer, ()| writer.simple("OK"));
        core
    }))
}
