//! `RANDOMKEY`: each key is as likely as any other, about.
//!
//! All keys are gathered if they are few. Of many, a place in the order of scans is drawn, which is
//! that of their hash values, and then one of the keys that follow it. The places that are drawn
//! end where the keys of the shard end, which is searched once: it is a property of the index.

use std::sync::atomic::Ordering;

use farcore::{Core, Cursor, ScanOptions, ScanPage};

use super::{Call, Flow, Refusal};
use crate::cores::shared::Shared;
use crate::databases::{Database, shown_key};
use crate::random::Numbers;
use crate::steps;

/// Bits of the shard in a cursor's word, which are its lowest, and those of the order.
const SHARD_BITS: u32 = 8;
const ORDER_BITS: u32 = 45;
/// Keys of which one is drawn, if there are no more.
const FEW: usize = 1024;
/// Keys of which one is drawn behind a place. A key is the likelier, the longer the way to the ones
/// before it is: with this many the likelihoods of all differ by an eighth, typically.
const FOLLOWING: usize = 64;
/// How exactly the end is searched, in orders. The smallest index has 2^22.
const END_STEP: u64 = 1 << 14;

/// One of a page's keys, of those that are wanted.
fn one_of(page: &ScanPage, database: Option<Database>, numbers: &mut Numbers) -> Option<Vec<u8>> {
    let keys = page.entries().map(|entry| entry.key);
    let mut wanted =
        keys.filter(|key| database.is_none_or(|database| Database::of(key) == database));
    let place = numbers.below(wanted.clone().count());
    wanted.nth(place).map(|key| shown_key(key).to_vec())
}

fn word(shard: u64, order: u64) -> u64 {
    order << SHARD_BITS | shard
}

/// An order behind which a shard has no keys, or few.
async fn end_of(core: &mut Core, shard: u64) -> farcore::Result<u64> {
    let options = ScanOptions {
        values: false,
        entries: 1,
    };
    let (mut low, mut high) = (0, 1 << ORDER_BITS);
    while high - low > END_STEP {
        let middle = low + (high - low) / 2;
        let page = core.scan(core.cursor(word(shard, middle)), options).await?;
        // A page that goes on in this shard has found one of its keys.
        let next = page.next().map(|next| next.to_word() % (1 << SHARD_BITS));
        if next == Some(shard) {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(high)
}

async fn any_key(
    core: &mut Core,
    database: Option<Database>,
    shared: &Shared,
) -> farcore::Result<Option<Vec<u8>>> {
    // Values, because only with them expired records are seen.
    let options = |entries| ScanOptions {
        values: true,
        entries,
    };
    let mut numbers = Numbers::new();
    let core_place = numbers.below(shared.cores.len());
    let (shard, end) = (core_place as u64, &shared.cores[core_place].keys_end);
    let mut last = end.load(Ordering::Relaxed);
    if last == 0 {
        let page = core.scan(Cursor::START, options(FEW)).await?;
        if page.next().is_none() {
            return Ok(one_of(&page, database, &mut numbers));
        }
        last = end_of(core, shard).await?;
        end.store(last, Ordering::Relaxed);
    }
    let order = numbers.below(usize::try_from(last).unwrap_or(usize::MAX));
    let place = core.cursor(word(shard, order as u64));
    let page = core.scan(place, options(FOLLOWING)).await?;
    if let Some(key) = one_of(&page, database, &mut numbers) {
        return Ok(Some(key));
    }
    if page.entries().next().is_none() {
        // None follows in any shard: keys were removed.
        end.store(0, Ordering::Relaxed);
    }
    // The first ones that follow it, or that follow the start.
    for start in [page.next().unwrap_or(Cursor::START), Cursor::START] {
        let mut next = Some(start);
        while let Some(cursor) = next {
            steps::end_slice(core).await;
            let page = core.scan(cursor, options(FOLLOWING)).await?;
            steps::count(page.entries().count());
            if let Some(key) = one_of(&page, database, &mut numbers) {
                return Ok(Some(key));
            }
            next = page.next();
        }
    }
    Ok(None)
}

pub(super) fn randomkey(call: &mut Call<'_>) -> Result<Flow, Refusal> {
    let shared = std::sync::Arc::clone(&call.serving.shared);
    let database = call.database_among_several();
    Ok(call.task(move |mut core, output, protocol| async move {
        let key = any_key(&mut core, database, &shared).await;
        output.finish(protocol, key, |writer, key| match key {
            Some(key) => writer.bulk(&key),
            None => writer.null(),
        });
        core
    }))
}
