//! The worth of page cache to a group: the hit ratio of its reads as a function of its page cache.
//!
//! A [`Curve`] is estimated from the reuse of a sample of pages. It ends where the observations end; beyond
//! its last point nothing is known.

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// Misses that differ by less than this part count as equal. Hits are compared by their misses, because a reader waits
/// for those: with 2 % misses instead of 1 it is half as fast.
pub const SLACK: f64 = 0.03;
/// A curve that ends with fewer misses cannot rise further.
const ALL_HITS: f64 = 0.999;
/// A hull that lies above the curve by less is no cliff.
const CLIFF: f64 = 0.01;
/// A curve that rises above the line to its last point by less than this has no knee.
const BENDS: f64 = 0.05;

/// Hit ratio by size of page cache.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// By size, strictly increasing; the hit ratio never decreases.
    points: Vec<Point>,
    /// Bytes that the group's buffered reads ask for per second.
    asked_per_s: f64,
}

/// A segment of a curve's convex hull.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stretch {
    /// Additional page cache.
    pub bytes: Bytes,
    /// Additional hit ratio.
    pub hits: f64,
    /// A cliff: the curve lies below the segment, so half of the bytes brings less than half of the hits.
    pub whole: bool,
}

/// The hit ratio of reads with `cache` bytes of page cache.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Page cache that the group holds.
    pub cache: Bytes,
    /// 0 to 1.
    pub hit_ratio: f64,
}

impl Curve {
    /// Takes points in any order. A hit ratio above 1 becomes 1; one below that of a smaller size is raised
    /// to it. Points without a size or with a ratio that is not finite are dropped. `None` if no point is
    /// left or the rate is not a finite number of at least 0.
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

    /// The largest size that the curve covers.
    pub fn known(&self) -> Bytes {
        self.points.last().map_or(Bytes::ZERO, |point| point.cache)
    }

    /// The hit ratio with this much page cache, linear between points and from no hit with none. `None`
    /// beyond [`Curve::known`].
    pub fn hit_ratio(&self, cache: Bytes) -> Option<f64> {
        let above = self.points.partition_point(|point| point.cache < cache);
        let (low, high) = (self.before(above), self.points.get(above)?);
        let part = (cache - low.cache).as_f64() / (high.cache - low.cache).as_f64();
        Some(low.hit_ratio + (high.hit_ratio - low.hit_ratio) * part)
    }

    /// The point before that with this index. Without page cache there are no hits.
    fn before(&self, index: usize) -> Point {
        let nothing = Point {
            cache: Bytes::ZERO,
            hit_ratio: 0.0,
        };
        index.checked_sub(1).map_or(nothing, |i| self.points[i])
    }

    /// A lower bound of the hit ratio with this much page cache: beyond [`Curve::known`], its last value.
    pub fn at_least(&self, cache: Bytes) -> f64 {
        self.hit_ratio(cache.min(self.known())).unwrap_or(0.0)
    }

    /// True if the curve covers this size, or ends at a hit ratio that cannot rise further.
    pub fn tells(&self, cache: Bytes) -> bool {
        cache <= self.known() || self.at_least(cache) >= ALL_HITS
    }

    /// The smallest size with this hit ratio; [`Curve::known`] if no size has it.
    pub fn size_for(&self, hit_ratio: f64) -> Bytes {
        let above = self.points.partition_point(|p| p.hit_ratio < hit_ratio);
        let Some(high) = self.points.get(above) else {
            return self.known();
        };
        let low = self.before(above);
        if hit_ratio <= low.hit_ratio {
            return low.cache;
        }
        let part = (hit_ratio - low.hit_ratio) / (high.hit_ratio - low.hit_ratio);
        low.cache + (high.cache - low.cache).scale(part)
    }

    /// The smallest size whose misses are those of `cache` and [`SLACK`] more; at most `cache`. `missed`: the part of the
    /// reads that missed of late. If that is less than the curve says of any size, the curve does not tell the last
    /// misses apart, and the need is `cache`.
    pub fn need(&self, cache: Bytes, missed: Option<f64>) -> Bytes {
        let misses = (1.0 - self.at_least(cache)).min(missed.unwrap_or(1.0));
        self.size_for(1.0 - misses * (1.0 + SLACK)).min(cache)
    }

    /// Bytes per second that hit with this much page cache.
    pub fn hit_per_s(&self, cache: Bytes) -> f64 {
        self.asked_per_s * self.at_least(cache)
    }

    /// The size beyond which more memory brings clearly less: where the curve is highest above the line
    /// to its last point (Kneedle, ICDCSW 2011). `None`: it does not bend.
    pub fn knee(&self) -> Option<Bytes> {
        let last = *self.points.last()?;
        let above =
            |p: &Point| p.hit_ratio - last.hit_ratio * (p.cache.as_f64() / last.cache.as_f64());
        let knee = self
            .points
            .iter()
            .max_by(|a, b| above(a).total_cmp(&above(b)))?;
        (above(knee) > BENDS).then_some(knee.cache)
    }

    /// The convex hull between two sizes, steepest part first (Talus, HPCA 2015); empty where the curve
    /// says nothing or is flat.
    pub fn hull(&self, from: Bytes, to: Bytes) -> Vec<Stretch> {
        let to = to.min(self.known());
        if from >= to {
            return Vec::new();
        }
        let at = |cache: Bytes| (cache.as_f64(), self.at_least(cache));
        let inner = self.points.iter().map(|point| point.cache);
        let inner = inner.filter(|&cache| cache > from && cache < to);
        let points: Vec<(f64, f64)> = [from]
            .into_iter()
            .chain(inner)
            .chain([to])
            .map(at)
            .collect();
        let slope = |a: usize, b: usize| (points[b].1 - points[a].1) / (points[b].0 - points[a].0);
        let mut corners: Vec<usize> = Vec::new();
        for next in 0..points.len() {
            while let [.., a, b] = corners[..] {
                if slope(a, b) > slope(b, next) {
                    break;
                }
                corners.pop();
            }
            corners.push(next);
        }
        let stretch = |pair: &[usize]| {
            let (a, b) = (pair[0], pair[1]);
            let below =
                |i: usize| points[a].1 + slope(a, b) * (points[i].0 - points[a].0) - points[i].1;
            Stretch {
                bytes: Bytes::from_f64(points[b].0 - points[a].0),
                hits: points[b].1 - points[a].1,
                whole: (a + 1..b).any(|i| below(i) > CLIFF),
            }
        };
        let stretches = corners.windows(2).map(stretch);
        stretches.filter(|stretch| stretch.hits > 0.0).collect()
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

    #[test]
    fn a_need_hits_as_often_and_is_never_more() {
        let scan = curve(&[(10, 0.02), (900, 0.02), (1000, 1.0)]).unwrap();
        assert_eq!(scan.need(Bytes::mib(500), None), Bytes::ZERO);
        assert_eq!(scan.need(Bytes::mib(2000), None), Bytes::mib(1000));
        for mib in 1..1100 {
            let held = Bytes::mib(mib);
            let need = scan.need(held, None);
            let misses = |size| 1.0 - scan.at_least(size);
            assert!(need <= held && misses(need) <= misses(held) * (1.0 + SLACK) + 1e-6);
        }
    }

    #[test]
    fn the_last_percent_of_hits_is_a_need() {
        let skewed = curve(&[(100, 0.9), (200, 0.97), (250, 0.985), (300, 1.0)]).unwrap();
        assert_eq!(skewed.need(Bytes::mib(320), None), Bytes::mib(300));
        let need = skewed.need(Bytes::mib(250), None);
        assert!(need > Bytes::mib(248) && need < Bytes::mib(250), "{need}");
        let sampled = curve(&[(100, 0.9), (200, 0.98), (2000, 0.98)]).unwrap();
        let need = |missed| sampled.need(Bytes::mib(300), missed);
        assert!(need(None) < Bytes::mib(200) && need(Some(0.02)) < Bytes::mib(200));
        assert_eq!(need(Some(0.007)), Bytes::mib(300), "it hits more than that");
        assert!(need(Some(0.5)) < Bytes::mib(200));
    }

    #[test]
    fn sizes_beyond_a_curve_are_known_only_if_it_ends_at_all_hits() {
        let part = curve(&[(100, 0.5)]).unwrap();
        assert!(part.tells(Bytes::mib(100)) && !part.tells(Bytes::mib(101)));
        assert!(!curve(&[(100, 0.995)]).unwrap().tells(Bytes::mib(4000)));
        assert!(curve(&[(100, 1.0)]).unwrap().tells(Bytes::mib(4000)));
        assert_eq!(part.hit_ratio(part.known()), Some(0.5));
        assert!(part.at_least(Bytes::mib(300)) >= 0.5);
    }

    #[test]
    fn a_hull_takes_a_cliff_as_a_whole_and_a_straight_line_in_parts() {
        let mib = Bytes::mib;
        let cliff = curve(&[(100, 0.4), (500, 0.4), (510, 0.9), (600, 0.9)]).unwrap();
        let hull = cliff.hull(Bytes::ZERO, mib(600));
        assert_eq!(hull.len(), 2, "{hull:?}");
        assert_eq!((hull[0].bytes, hull[0].whole), (mib(100), false));
        assert_eq!((hull[1].bytes, hull[1].whole), (mib(410), true));
        assert!(
            cliff.hull(mib(510), mib(600)).is_empty(),
            "it is flat there"
        );
        let third = |i: u64| (i * 100, i as f64 / 3.0);
        let line = curve(&[third(1), third(2), third(3)]).unwrap();
        assert!(line.hull(mib(30), mib(900)).iter().all(|part| !part.whole));
        assert_eq!(line.knee(), None);
        assert_eq!(cliff.knee(), Some(mib(100)));
    }
}
