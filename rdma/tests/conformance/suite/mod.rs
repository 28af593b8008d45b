//! The cases of the suite, by subject.

mod faults;
mod messages;
mod queues;
mod refusals;
mod transfers;

use crate::fixture::REGION_BYTES;

pub(crate) use self::faults::*;
pub(crate) use self::messages::*;
pub(crate) use self::queues::*;
pub(crate) use self::refusals::*;
pub(crate) use self::transfers::*;

const END: u64 = REGION_BYTES as u64;

fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes)
        .map(|place| (place as u8).wrapping_mul(31).wrapping_add(seed) ^ (place >> 8) as u8)
        .collect()
}
