//! What is searched: all places within a circle or a box around a centre.

use crate::types::geo::point::{EARTH_RADIUS_M, Point, RADIANS, distance, latitude_distance};

/// A shape, in the client's unit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Size {
    Circle { radius: f64 },
    Box { width: f64, height: f64 },
}

/// A shape around a centre.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Shape {
    pub(crate) centre: Point,
    pub(crate) size: Size,
    /// Metres of the client's unit.
    pub(crate) unit_m: f64,
}

/// The least box of the map around a shape.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Bounds {
    pub(super) west: f64,
    pub(super) south: f64,
    pub(super) east: f64,
    pub(super) north: f64,
}

impl Shape {
    /// Metres from the centre to the farthest place.
    pub(super) fn radius_m(&self) -> f64 {
        let radius = match self.size {
            Size::Circle { radius } => radius,
            Size::Box { width, height } => {
                ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt()
            }
        };
        radius * self.unit_m
    }

    pub(super) fn bounds(&self) -> Bounds {
        let (width, height) = match self.size {
            Size::Circle { radius } => (radius, radius),
            Size::Box { width, height } => (width / 2.0, height / 2.0),
        };
        let (width, height) = (self.unit_m * width, self.unit_m * height);
        let Point {
            longitude,
            latitude,
        } = self.centre;
        let along = height / EARTH_RADIUS_M / RADIANS;
        // The end that is nearer to a pole is the wider one in degrees.
        let widest = if latitude < 0.0 {
            latitude - along
        } else {
            latitude + along
        };
        let across = width / EARTH_RADIUS_M / (widest * RADIANS).cos() / RADIANS;
        Bounds {
            west: longitude - across,
            south: latitude - along,
            east: longitude + across,
            north: latitude + along,
        }
    }

    /// Metres from the centre to a place; none if that lies outside.
    pub(crate) fn distance(&self, point: Point) -> Option<f64> {
        match self.size {
            Size::Circle { radius } => {
                let metres = distance(self.centre, point);
                let is_outside = metres > radius * self.unit_m;
                (!is_outside).then_some(metres)
            }
            Size::Box { width, height } => {
                let along = latitude_distance(point.latitude, self.centre.latitude);
                if along > height * self.unit_m / 2.0 {
                    return None;
                }
                let beside = Point {
                    longitude: self.centre.longitude,
                    latitude: point.latitude,
                };
                let is_outside = distance(point, beside) > width * self.unit_m / 2.0;
                (!is_outside).then(|| distance(self.centre, point))
            }
        }
    }
}
