//! The boxes of the map whose scores a search reads: that of the centre and those around it, as far
//! as the shape reaches them.

use crate::types::geo::hash::{GeoBox, STEPS_MAX};
use crate::types::geo::shape::Shape;

/// Half of the length of the equator on the map, in metres.
const MERCATOR_MAX_M: f64 = 20_037_726.37;
/// Boxes to the east and to the north of the centre, in the order in which they are read.
const AROUND: [(i32, i32); 9] = [
    (0, 0),
    (0, 1),
    (0, -1),
    (1, 0),
    (-1, 0),
    (1, 1),
    (-1, 1),
    (1, -1),
    (-1, -1),
];

/// How often the map is halved so that nine boxes cover a circle.
fn steps_of(radius_m: f64, latitude: f64) -> u32 {
    if radius_m == 0.0 {
        return STEPS_MAX;
    }
    let (mut steps, mut reached) = (1_i32, radius_m);
    while reached < MERCATOR_MAX_M {
        reached *= 2.0;
        steps += 1;
    }
    steps -= 2;
    // Boxes are narrower near the poles.
    if latitude.abs() > 66.0 {
        steps -= 1;
        if latitude.abs() > 80.0 {
            steps -= 1;
        }
    }
    u32::try_from(steps).unwrap_or(0).clamp(1, STEPS_MAX)
}

/// The ranges of scores that have all places of a shape, and others: the least one of each, and the
/// least one behind it.
pub(crate) fn score_ranges(shape: &Shape) -> Vec<(f64, f64)> {
    let bounds = shape.bounds();
    let mut steps = steps_of(shape.radius_m(), shape.centre.latitude);
    let mut centre = GeoBox::of(shape.centre, steps);
    let is_short = centre.beside(0, 1).ends().north < bounds.north
        || centre.beside(0, -1).ends().south > bounds.south
        || centre.beside(1, 0).ends().east < bounds.east
        || centre.beside(-1, 0).ends().west > bounds.west;
    if steps > 1 && is_short {
        steps -= 1;
        centre = GeoBox::of(shape.centre, steps);
    }
    let ends = centre.ends();
    let is_left_out = |(east, north): (i32, i32)| {
        steps >= 2
            && ((north < 0 && ends.south < bounds.south)
                || (north > 0 && ends.north > bounds.north)
                || (east < 0 && ends.west < bounds.west)
                || (east > 0 && ends.east > bounds.east))
    };
    let mut last = None;
    let mut ranges = Vec::with_capacity(AROUND.len());
    for (east, north) in AROUND {
        if is_left_out((east, north)) {
            continue;
        }
        let found = centre.beside(east, north);
        // Boxes on both sides of a large shape may be one.
        if last == Some(found) {
            continue;
        }
        ranges.push(found.scores());
        last = ((east, north) != (0, 0)).then_some(found);
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::geo::hash;
    use crate::types::geo::point::Point;
    use crate::types::geo::shape::Size;

    #[test]
    fn all_places_of_a_shape_are_in_its_ranges() {
        let mut numbers = crate::random::Numbers::new();
        let mut degrees = |max: i32| {
            let number = i32::try_from(numbers.below(2_000_000)).unwrap() - 1_000_000;
            f64::from(number) * f64::from(max) / 1_000_000.0
        };
        for _ in 0..2_000 {
            let centre = Point {
                longitude: degrees(170),
                latitude: degrees(70),
            };
            let size = degrees(300).abs() + 1.0;
            let shape = Shape {
                centre,
                size: if size > 150.0 {
                    Size::Circle { radius: size }
                } else {
                    Size::Box {
                        width: size,
                        height: 200.0,
                    }
                },
                unit_m: 1000.0,
            };
            let ranges = score_ranges(&shape);
            assert!(ranges.len() <= AROUND.len());
            for _ in 0..20 {
                let score = hash::score_of(Point {
                    longitude: centre.longitude + degrees(8),
                    latitude: centre.latitude + degrees(4),
                });
                if shape.distance(hash::point_of(score)).is_some() {
                    let mut ranges = ranges.iter();
                    assert!(ranges.any(|(from, end)| (*from..*end).contains(&score)));
                }
            }
        }
    }
}
