//! `HRANDFIELD`: fields of a hash, drawn at random.

use farcore::Core;

use super::arguments::{integer, is_option};
use super::structured::Record;
use super::{Call, Flow, Refusal, SYNTAX};
use crate::hash_value::{Entry, HashValue};
use crate::kind::Kind;
use crate::resp::{Protocol, Writer};
use crate::tasks::TaskOutput;

/// Fields that are written before the client must have taken some.
const FIELDS_AT_ONCE: u64 = 64;

/// How many fields are drawn.
#[derive(Clone, Copy)]
enum Count {
    /// One, which is not in an array.
    One,
    /// So many, each once; or all.
    Distinct(usize),
    /// So many, each of all.
    Any(u64),
}

/// What is drawn.
#[derive(Clone, Copy)]
struct Draw {
    count: Count,
    has_values: bool,
}

impl Draw {
    fn of(call: &Call<'_>) -> Result<Self, Refusal> {
        if call.count() == 2 {
            return Ok(Self {
                count: Count::One,
                has_values: false,
            });
        }
        let count = integer(call.argument(2))?;
        let has_values = call.count() == 4 && is_option(call.argument(3), "withvalues");
        if call.count() > 3 && !has_values {
            return Err(SYNTAX.into());
        }
        let most = if has_values { i64::MAX / 2 } else { i64::MAX };
        if !(-most..=most).contains(&count) {
            return Err("ERR value is out of range".into());
        }
        let count = match usize::try_from(count) {
            Ok(count) => Count::Distinct(count),
            Err(_) => Count::Any(count.unsigned_abs()),
        };
        Ok(Self { count, has_values })
    }

    /// Draws fields and writes them.
    async fn write(
        self,
        hash: Option<HashValue<'_>>,
        core: &Core,
        (output, protocol): (&TaskOutput, Protocol),
    ) {
        let mut numbers = Numbers::new();
        let mut all: Vec<_> = hash.iter().flat_map(HashValue::iter).collect();
        let (count, is_distinct) = match self.count {
            Count::One => {
                let drawn = all.get(numbers.below(all.len()));
                return output.write(|bytes| {
                    let mut writer = Writer::new(bytes, protocol);
                    match drawn {
                        Some((field, _)) => writer.bulk(field),
                        None => writer.null(),
                    }
                });
            }
            Count::Distinct(count) => (count.min(all.len()) as u64, true),
            Count::Any(_) if all.is_empty() => (0, false),
            Count::Any(count) => (count, false),
        };
        let is_flat = self.has_values && protocol == Protocol::Resp2;
        let replies = count.saturating_mul(if is_flat { 2 } else { 1 });
        output.write(|bytes| {
            Writer::new(bytes, protocol).array(usize::try_from(replies).unwrap_or(usize::MAX));
        });
        let mut written = 0;
        while written < count {
            output.room(core).await;
            let end = count.min(written + FIELDS_AT_ONCE);
            output.write(|bytes| {
                let mut writer = Writer::new(bytes, protocol);
                for _ in written..end {
                    let place = numbers.below(all.len());
                    let entry = if is_distinct {
                        all.swap_remove(place)
                    } else {
                        all[place]
                    };
                    self.write_one(entry, &mut writer);
                }
            });
            written = end;
        }
    }

    fn write_one(self, (field, value): Entry<'_>, writer: &mut Writer<'_>) {
        if self.has_values && writer.protocol() == Protocol::Resp3 {
            writer.array(2);
        }
        writer.bulk(field);
        if self.has_values {
            writer.bulk(value);
        }
    }
}

/// Numbers that look random: splitmix64.
struct Numbers(u64);

impl Numbers {
    fn new() -> Self {
        let mut seed = [0; 8];
        if getrandom::fill(&mut seed).is_err() {
            seed = farcore_tuning::system_ms().to_le_bytes();
        }
        Self(u64::from_le_bytes(seed))
    }

    /// A number below another; 0 below 0.
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        let scaled = u128::from(mixed) * end as u128;
        usize::try_from(scaled >> u64::BITS).unwrap_or(0)
    }
}

pub(super) fn hrandfield(call: &mut Call<'_>) -> Result<Flow, Refusal> {
    let draw = Draw::of(call)?;
    let key = call.key().to_vec();
    Ok(call.task(move |mut core, output, protocol| async move {
        let record = Record::read(&mut core, &key).await;
        let hash = record.as_ref().map_err(|failure| failure.text(Kind::Hash));
        let hash =
            hash.and_then(|record| record.value().map_err(|failure| failure.text(Kind::Hash)));
        match hash {
            Ok(hash) => draw.write(hash, &core, (&output, protocol)).await,
            Err(text) => output.write(|bytes| Writer::new(bytes, protocol).error(&text)),
        }
        core
    }))
}
