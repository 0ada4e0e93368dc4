//! What page cache is worth to a group, in numbers that people compare.

use justitia_policy::units::Bytes;
use justitia_policy::worth::Curve;
use serde::{Deserialize, Serialize};

/// So much more memory is what [`WorthStatus::more_bytes_per_s`] is about.
pub const MORE: Bytes = Bytes::mib(64);

/// A group's curve, and what it says of where the group stands. `None`: the curve does not go so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorthStatus {
    /// Bytes that its buffered reads ask for per second.
    pub asked_bytes_per_s: f64,
    /// Hit ratio with the page cache that it holds, as the curve has it.
    pub now_hit_ratio: Option<f64>,
    /// With half of that.
    pub half_hit_ratio: Option<f64>,
    /// With twice of that.
    pub twice_hit_ratio: Option<f64>,
    /// Bytes per second that it would not have to read from a disk with [`MORE`] page cache.
    pub more_bytes_per_s: Option<f64>,
    /// Beyond this size more memory brings clearly less.
    pub knee_bytes: Option<u64>,
    /// The curve, by size.
    pub points: Vec<WorthPoint>,
}

/// A point of a curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WorthPoint {
    /// Page cache.
    pub cache_bytes: u64,
    /// Hit ratio with it, 0 to 1.
    pub hit_ratio: f64,
}

impl WorthStatus {
    /// Of a group that holds so much page cache; `None`: not known how much.
    pub(crate) fn new(curve: &Curve, held: Option<Bytes>) -> WorthStatus {
        let at = |cache: Bytes| curve.tells(cache).then(|| curve.at_least(cache));
        let times = |factor| held.and_then(|held| at(held.scale(factor)));
        let more = held.and_then(|held| Some(at(held + MORE)? - at(held)?));
        let points = curve.points().iter().map(|point| WorthPoint {
            cache_bytes: point.cache.0,
            hit_ratio: point.hit_ratio,
        });
        WorthStatus {
            asked_bytes_per_s: curve.asked_per_s(),
            now_hit_ratio: times(1.0),
            half_hit_ratio: times(0.5),
            twice_hit_ratio: times(2.0),
            more_bytes_per_s: more.map(|hits| hits * curve.asked_per_s()),
            knee_bytes: curve.knee().map(|size| size.0),
            points: points.collect(),
        }
    }
}
