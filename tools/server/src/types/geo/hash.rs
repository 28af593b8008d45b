//! Geohashes: halves of the ranges of latitude and longitude, taken in turn.
//!
//! ```text
//! bit   51    50    ...   1     0
//!       long  lat         long  lat
//! ```

use crate::types::geo::point::Point;

/// Halvings of each range in a score.
pub(super) const STEPS_MAX: u32 = 26;
/// Bits of a score.
const SCORE_BITS: u32 = 2 * STEPS_MAX;
/// The ranges of scores: the projection of maps has no poles.
pub(crate) const LONGITUDE_MAX: f64 = 180.0;
pub(crate) const LATITUDE_MAX: f64 = 85.051_128_78;
/// Latitudes of the common form of geohashes.
const COMMON_LATITUDE_MAX: f64 = 90.0;
/// Letters of the common form.
const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
const LETTER_BITS: u32 = 5;
/// Letters that are shown. The last one has no bits any more, and is `0`.
const SHOWN: u32 = 11;

/// A box of the map: as many bits as it has halvings of both ranges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct GeoBox {
    pub(super) bits: u64,
    pub(super) steps: u32,
}

/// The ends of a box.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Ends {
    pub(super) west: f64,
    pub(super) east: f64,
    pub(super) south: f64,
    pub(super) north: f64,
}

/// Puts the bits of a number to the even places.
fn spread(number: u32) -> u64 {
    let mut bits = u64::from(number);
    for (shift, mask) in [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ] {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

/// Takes the bits of the even places together.
fn gather(bits: u64) -> u32 {
    let mut bits = bits & 0x5555_5555_5555_5555;
    for (shift, mask) in [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff),
    ] {
        bits = (bits | bits >> shift) & mask;
    }
    u32::try_from(bits).unwrap_or(u32::MAX)
}

/// Which of the parts of a range a number lies in.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of the range is in one of at most 2^26 parts, or at the end of the last"
)]
fn part(number: f64, max: f64, steps: u32) -> u32 {
    let share = (number + max) / (max + max);
    (share * f64::from(1_u32 << steps)) as u32
}

impl GeoBox {
    /// The box of a place.
    pub(super) fn of(point: Point, steps: u32) -> Self {
        Self::within(point, LATITUDE_MAX, steps)
    }

    fn within(point: Point, latitude_max: f64, steps: u32) -> Self {
        let north = spread(part(point.latitude, latitude_max, steps));
        let east = spread(part(point.longitude, LONGITUDE_MAX, steps));
        let bits = north | east << 1;
        Self { bits, steps }
    }

    /// The ends of the box.
    pub(super) fn ends(self) -> Ends {
        let parts = f64::from(1_u32 << self.steps);
        let end = |part: u32, max: f64| -max + (f64::from(part) / parts) * (max + max);
        let (north, east) = (gather(self.bits), gather(self.bits >> 1));
        Ends {
            west: end(east, LONGITUDE_MAX),
            east: end(east.wrapping_add(1), LONGITUDE_MAX),
            south: end(north, LATITUDE_MAX),
            north: end(north.wrapping_add(1), LATITUDE_MAX),
        }
    }

    /// The box beside it: some boxes to the east, and to the north. Behind the end of the map is
    /// its beginning.
    pub(super) fn beside(self, east: i32, north: i32) -> Self {
        let mask = (1_u32 << self.steps) - 1;
        // The end of a range is one behind its last part.
        let moved = |part: u32, by: i32| match by {
            0 => part,
            by => part.wrapping_add_signed(by) & mask,
        };
        let (to_north, to_east) = (gather(self.bits), gather(self.bits >> 1));
        let bits = spread(moved(to_north, north)) | spread(moved(to_east, east)) << 1;
        Self { bits, ..self }
    }

    /// The least score of the box, and the least one behind it.
    #[expect(clippy::cast_precision_loss, reason = "a score has 53 bits at most")]
    pub(super) fn scores(self) -> (f64, f64) {
        let shift = SCORE_BITS - 2 * self.steps;
        let first = self.bits << shift;
        let end = (self.bits + 1) << shift;
        (first as f64, end as f64)
    }
}

/// The score of a place.
#[expect(
    clippy::cast_precision_loss,
    reason = "as Redis, which rounds scores of 54 bits"
)]
pub(crate) fn score_of(point: Point) -> f64 {
    GeoBox::of(point, STEPS_MAX).bits as f64
}

/// The bits of a score; of one that is no geohash, those that the processor makes of it.
#[expect(clippy::cast_possible_truncation, reason = "what is too large is cut")]
fn bits_of(score: f64) -> u64 {
    const HALF: f64 = 9_223_372_036_854_775_808.0;
    if score < HALF {
        (score as i64).cast_unsigned()
    } else if score < 2.0 * HALF {
        (score - HALF) as u64 ^ 1 << 63
    } else {
        0
    }
}

/// The place of a score: the centre of its box.
pub(crate) fn point_of(score: f64) -> Point {
    let bits = bits_of(score);
    let ends = GeoBox {
        bits,
        steps: STEPS_MAX,
    }
    .ends();
    let middle = |from: f64, to: f64, max: f64| f64::midpoint(from, to).clamp(-max, max);
    Point {
        longitude: middle(ends.west, ends.east, LONGITUDE_MAX),
        latitude: middle(ends.south, ends.north, LATITUDE_MAX),
    }
}

/// The common form of the geohash of a place.
pub(crate) fn text_of(point: Point) -> String {
    let bits = GeoBox::within(point, COMMON_LATITUDE_MAX, STEPS_MAX).bits;
    let letter = |number: u32| {
        let shift = SCORE_BITS.checked_sub((number + 1) * LETTER_BITS);
        let place = shift.map_or(0, |shift| bits >> shift & 0x1f);
        char::from(LETTERS[usize::try_from(place).unwrap_or(0)])
    };
    (0..SHOWN).map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::geo::point::{coordinate_text, distance, distance_text};

    #[test]
    fn bits_are_spread_and_gathered() {
        for number in [0, 1, 0xffff_ffff, 0x8000_0000, 0x1234_5678] {
            assert_eq!(gather(spread(number)), number);
            assert_eq!(gather(spread(number) << 1), 0);
        }
        assert_eq!(spread(0b101), 0b10001);
    }

    #[test]
    fn boxes_lie_beside_each_other() {
        let here = GeoBox::of(
            Point {
                longitude: 10.0,
                latitude: 50.0,
            },
            8,
        );
        let (ends, east) = (here.ends(), here.beside(1, 0).ends());
        assert!((ends.east - east.west).abs() < 1e-9);
        let north = here.beside(0, 1).ends();
        assert!((ends.north - north.south).abs() < 1e-9);
        assert_eq!(here.beside(3, -2).beside(-3, 2), here);
        let last = GeoBox { bits: 0, steps: 1 }.beside(-1, -1);
        assert_eq!(last.bits, 0b11);
        assert_eq!(here.scores().1 - here.scores().0, f64::powi(2.0, 52 - 16));
    }

    #[test]
    fn distances_are_those_of_redis() {
        let place = |longitude, latitude| {
            point_of(score_of(Point {
                longitude,
                latitude,
            }))
        };
        let (palermo, catania) = (place(13.361_389, 38.115_556), place(15.087_269, 37.502_669));
        assert_eq!(distance_text(distance(palermo, catania)), "166274.1516");
        assert_eq!(coordinate_text(palermo.longitude), "13.36138933897018433");
        assert_eq!(text_of(palermo), "sqc8b49rny0");
        assert_eq!(distance_text(0.0), "0.0000");
        assert_eq!(coordinate_text(-0.0), "0");
        assert_eq!(coordinate_text(2.5), "2.5");
    }

    #[test]
    fn any_score_is_a_place() {
        for score in [
            -1.0,
            f64::INFINITY,
            f64::NEG_INFINITY,
            1e18,
            1e19,
            1e30,
            0.5,
        ] {
            let point = point_of(score);
            assert!(point.latitude.abs() <= LATITUDE_MAX && point.longitude.abs() <= 180.0);
        }
    }
}
