//! Random numbers for loads: a small seeded generator, gamma-distributed sizes, zipf-distributed
//! blocks.
//!
//! The generator is splitmix64: one multiplication chain per number, no shared state, and for a given seed
//! the same sequence on every machine. Its quality is far higher than picking files needs.

/// splitmix64.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator for stream `stream` of `seed`; streams of one seed are unrelated.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut rng = Self(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        rng.next_u64();
        rng
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `0..bound`; `bound` must be above zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Standard normal, by the polar method.
    fn normal(&mut self) -> f64 {
        loop {
            let x = 2.0 * self.unit() - 1.0;
            let y = 2.0 * self.unit() - 1.0;
            let s = x * x + y * y;
            if s > 0.0 && s < 1.0 {
                return x * (-2.0 * s.ln() / s).sqrt();
            }
        }
    }

    /// Gamma with `shape` >= 1 and the given mean, by Marsaglia and Tsang's squeeze (2000).
    pub fn gamma(&mut self, shape: f64, mean: f64) -> f64 {
        debug_assert!(shape >= 1.0);
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && (1.0 - self.unit()).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v * mean / shape;
            }
        }
    }

    /// Shuffles in place, with every order equally likely.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

/// Blocks with zipf popularity: rank `r` (from 1) has weight `r^-theta`. A random permutation maps ranks to
/// blocks, so hot blocks are scattered over the file and readahead does not help.
#[derive(Debug)]
pub struct Zipf {
    cumulative: Vec<f64>,
    block_of_rank: Vec<u32>,
}

impl Zipf {
    /// A distribution over `blocks` blocks (at least one).
    pub fn new(blocks: u32, theta: f64, rng: &mut Rng) -> Self {
        let mut sum = 0.0;
        let cumulative = (1..=blocks)
            .map(|rank| {
                sum += f64::from(rank).powf(-theta);
                sum
            })
            .collect();
        let mut block_of_rank: Vec<u32> = (0..blocks).collect();
        rng.shuffle(&mut block_of_rank);
        Self {
            cumulative,
            block_of_rank,
        }
    }

    pub fn pick(&self, rng: &mut Rng) -> u32 {
        let total = self.cumulative[self.cumulative.len() - 1];
        let x = rng.unit() * total;
        let rank = self
            .cumulative
            .partition_point(|&c| c <= x)
            .min(self.block_of_rank.len() - 1);
        self.block_of_rank[rank]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_differ() {
        let take = |seed, stream| {
            let mut rng = Rng::new(seed, stream);
            [rng.next_u64(), rng.next_u64()]
        };
        assert_eq!(take(1, 1), take(1, 1));
        assert_ne!(take(1, 1), take(1, 2));
        assert_ne!(take(1, 1), take(2, 1));
    }

    #[test]
    fn gamma_has_its_mean_and_variance() {
        let mut rng = Rng::new(7, 0);
        let n = 200_000;
        let (mut sum, mut squares) = (0.0, 0.0);
        for _ in 0..n {
            let x = rng.gamma(1.5, 100.0);
            assert!(x > 0.0);
            sum += x;
            squares += x * x;
        }
        let mean = sum / f64::from(n);
        let variance = squares / f64::from(n) - mean * mean;
        assert!((mean - 100.0).abs() < 1.0, "{mean}");
        // variance of a gamma = mean^2 / shape
        assert!(
            (variance / (10_000.0 / 1.5) - 1.0).abs() < 0.03,
            "{variance}"
        );
    }

    #[test]
    fn zipf_follows_rank_and_reaches_every_block() {
        let mut rng = Rng::new(3, 0);
        let zipf = Zipf::new(50, 1.0, &mut rng);
        let mut count = [0u32; 50];
        for _ in 0..100_000 {
            count[zipf.pick(&mut rng) as usize] += 1;
        }
        assert!(count.iter().all(|&c| c > 0));
        let first = f64::from(count[zipf.block_of_rank[0] as usize]);
        let tenth = f64::from(count[zipf.block_of_rank[9] as usize]);
        assert!((first / tenth - 10.0).abs() < 1.0, "{first} {tenth}");
    }

    #[test]
    fn theta_zero_is_uniform() {
        let mut rng = Rng::new(4, 0);
        let zipf = Zipf::new(4, 0.0, &mut rng);
        let mut count = [0i32; 4];
        for _ in 0..40_000 {
            count[zipf.pick(&mut rng) as usize] += 1;
        }
        assert!(count.iter().all(|&c| (c - 10_000).abs() < 500), "{count:?}");
    }
}
