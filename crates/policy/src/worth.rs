//! What page cache is worth to a group: the hit ratio that its reads have with more or less of it.
//!
//! A [`Curve`] is what was learned from the reuse of a sample of pages. It ends where nothing is known:
//! beyond its last point it says nothing, and a group without a curve is treated as before.

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// Hit ratio by size of page cache.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// By size, strictly increasing; the hit ratio never decreases.
    points: Vec<Point>,
    /// Bytes that the group's buffered reads ask for per second.
    asked_per_s: f64,
}

/// With `cache` bytes of page cache, this part of the pages that reads ask for is there.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Page cache that the group holds.
    pub cache: Bytes,
    /// 0 to 1.
    pub hit_ratio: f64,
}

impl Curve {
    /// Shape: points in any order. Those that contradict a smaller one, or are no ratio, are raised or left
    /// out. `None` where no point is left or the rate is no number.
    pub fn new(mut points: Vec<Point>, asked_per_s: f64) -> Option<Curve> {
        points.retain(|point| point.cache > Bytes::ZERO && point.hit_ratio.is_finite());
        points.sort_by_key(|point| point.cache);
        points.dedup_by_key(|point| point.cache);
        let mut least: f64 = 0.0;
        for point in &mut points {
            least = least.max(point.hit_ratio.min(1.0));
            point.hit_ratio = least;
        }
        let known = asked_per_s.is_finite() && asked_per_s >= 0.0 && !points.is_empty();
        known.then_some(Curve {
            points,
            asked_per_s,
        })
    }

    /// By size, strictly increasing.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Bytes that the group's buffered reads ask for per second.
    pub fn asked_per_s(&self) -> f64 {
        self.asked_per_s
    }

    /// The largest size of which the curve says something.
    pub fn known(&self) -> Bytes {
        self.points.last().map_or(Bytes::ZERO, |point| point.cache)
    }

    /// The hit ratio with this much page cache, linear between points and from no hit with none. `None`
    /// beyond [`Curve::known`].
    pub fn hit_ratio(&self, cache: Bytes) -> Option<f64> {
        let above = self.points.partition_point(|point| point.cache < cache);
        let high = self.points.get(above)?;
        let low = above.checked_sub(1).map_or((Bytes::ZERO, 0.0), |i| {
            (self.points[i].cache, self.points[i].hit_ratio)
        });
        let part = (cache - low.0).0 as f64 / (high.cache - low.0).0 as f64;
        Some(low.1 + (high.hit_ratio - low.1) * part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(points: &[(u64, f64)]) -> Option<Curve> {
        let point = |&(mib, hit_ratio): &(u64, f64)| Point {
            cache: Bytes::mib(mib),
            hit_ratio,
        };
        Curve::new(points.iter().map(point).collect(), 1e6)
    }

    #[test]
    fn hit_ratios_never_decrease_and_stay_ratios() {
        let made = curve(&[(30, 0.2), (10, 0.5), (20, f64::NAN), (40, 1.5), (0, 0.1)]).unwrap();
        let ratios: Vec<f64> = made.points().iter().map(|point| point.hit_ratio).collect();
        assert_eq!(ratios, [0.5, 0.5, 1.0]);
        assert_eq!(curve(&[]), None);
    }

    #[test]
    fn a_curve_is_linear_from_nothing_and_silent_beyond_its_last_point() {
        let made = curve(&[(10, 0.5), (20, 1.0)]).unwrap();
        assert_eq!(made.hit_ratio(Bytes::ZERO), Some(0.0));
        assert_eq!(made.hit_ratio(Bytes::mib(5)), Some(0.25));
        assert_eq!(made.hit_ratio(Bytes::mib(15)), Some(0.75));
        assert_eq!(made.hit_ratio(Bytes::mib(20)), Some(1.0));
        assert_eq!(made.hit_ratio(Bytes(20 * 1024 * 1024 + 1)), None);
    }
}
