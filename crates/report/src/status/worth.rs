//! A group's miss-ratio curve in figures for people: the worth of page cache to it.

use justitia_policy::units::Bytes;
use justitia_policy::worth::Curve;
use serde::{Deserialize, Serialize};

/// The additional page cache of [`WorthStatus::more_bytes_per_s`].
pub const MORE: Bytes = Bytes::mib(64);

/// A group's curve, and its values at the page cache that the group holds. `None`: outside the range of the
/// curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorthStatus {
    /// Bytes per second that its buffered reads request.
    pub asked_bytes_per_s: f64,
    /// Hit ratio with the page cache that it holds, from the curve.
    pub now_hit_ratio: Option<f64>,
    /// Hit ratio with half of its page cache.
    pub half_hit_ratio: Option<f64>,
    /// Hit ratio with twice its page cache.
    pub twice_hit_ratio: Option<f64>,
    /// Bytes per second that it would not read from a disk if it had [`MORE`] additional page cache.
    pub more_bytes_per_s: Option<f64>,
    /// The knee of the curve: beyond this size more memory brings clearly less.
    pub knee_bytes: Option<u64>,
    /// The points of the curve in ascending order of size.
    pub points: Vec<WorthPoint>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WorthPoint {
    pub cache_bytes: u64,
    /// 0 to 1.
    pub hit_ratio: f64,
}

impl WorthStatus {
    /// `held`: page cache of the group; `None`: unknown.
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
