//! Places, the distances between them, and both as texts.

/// Metres from the centre of the earth to its surface, about.
pub(super) const EARTH_RADIUS_M: f64 = 6_372_797.560_856;
/// Radians of a degree.
pub(super) const RADIANS: f64 = std::f64::consts::PI / 180.0;

/// A place, in degrees.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Point {
    pub(crate) longitude: f64,
    pub(crate) latitude: f64,
}

/// Metres between two latitudes of one longitude.
pub(super) fn latitude_distance(one: f64, other: f64) -> f64 {
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
