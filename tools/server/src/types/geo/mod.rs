//! Places on the earth as scores of sorted sets: geohashes of 52 bits, and searches by them.
//!
//! Formulas and the order of operations are those of Redis 7.0.15, so that scores, distances and
//! what a search finds are equal to the last bit.

pub(crate) mod area;
pub(crate) mod hash;
pub(crate) mod shape;

/// Metres from the centre of the earth to its surface, about.
const EARTH_RADIUS_M: f64 = 6_372_797.560_856;
/// Radians of a degree.
const RADIANS: f64 = std::f64::consts::PI / 180.0;

/// A place, in degrees.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Point {
    pub(crate) longitude: f64,
    pub(crate) latitude: f64,
}

/// Metres between two latitudes of one longitude.
fn latitude_distance(one: f64, other: f64) -> f64 {
    EARTH_RADIUS_M * (other * RADIANS - one * RADIANS).abs()
}

/// Metres between two places, by the haversine formula.
pub(crate) fn distance(one: Point, other: Point) -> f64 {
    let across = ((other.longitude * RADIANS - one.longitude * RADIANS) / 2.0).sin();
    if across == 0.0 {
        return latitude_distance(one.latitude, other.latitude);
    }
    let (from, to) = (one.latitude * RADIANS, other.latitude * RADIANS);
    let along = ((to - from) / 2.0).sin();
    let part = along * along + from.cos() * to.cos() * across * across;
    2.0 * EARTH_RADIUS_M * part.sqrt().asin()
}

/// A distance with four decimals.
#[expect(
    clippy::cast_possible_truncation,
    reason = "what is too large for 64 bits is no distance on the earth"
)]
pub(crate) fn distance_text(distance: f64) -> String {
    let scaled = (distance * 10_000.0).round_ties_even() as i64;
    let sign = if scaled < 0 { "-" } else { "" };
    let scaled = scaled.unsigned_abs();
    format!("{sign}{}.{:04}", scaled / 10_000, scaled % 10_000)
}

/// A coordinate with as many of 17 decimals as it takes.
pub(crate) fn coordinate_text(coordinate: f64) -> String {
    let text = format!("{coordinate:.17}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0" } else { text }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_redis() {
        let palermo = hash::point_of(hash::score_of(Point {
            longitude: 13.361_389,
            latitude: 38.115_556,
        }));
        let catania = hash::point_of(hash::score_of(Point {
            longitude: 15.087_269,
            latitude: 37.502_669,
        }));
        assert_eq!(distance_text(distance(palermo, catania)), "166274.1516");
        assert_eq!(coordinate_text(palermo.longitude), "13.36138933897018433");
        assert_eq!(hash::text_of(palermo), "sqc8b49rny0");
        assert_eq!(distance_text(0.0), "0.0000");
        assert_eq!(coordinate_text(-0.0), "0");
        assert_eq!(coordinate_text(2.5), "2.5");
    }
}
