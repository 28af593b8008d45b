//! Places on the earth as scores of sorted sets: geohashes of 52 bits, and searches by them.
//!
//! Formulas and the order of operations are those of Redis 7.0.15, so that scores, distances and
//! what a search finds are equal to the last bit.

pub(crate) mod area;
pub(crate) mod hash;
pub(crate) mod point;
pub(crate) mod shape;
