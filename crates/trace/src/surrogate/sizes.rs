//! Random sizes with a given third quartile.
//!
//! With probability `small` a size is 4 KiB. Otherwise it is log-logistic, `F(x) = 1 / (1 + (x/m)^-k)`, whose quantiles have a closed
//! form; `m` follows from `small + (1 - small) F(quartile) = 3/4`. It is rounded up to sectors and limited to 1 MiB. The quartile is
//! rounded down to sectors first, so that rounding up moves no size across it.

use crate::random::Stream;

const SECTOR: f64 = 512.0;
/// Size of a small request, in bytes.
const SMALL: u32 = 4096;
/// Largest request, in bytes.
const MAX_BYTES: f64 = 1_048_576.0;

#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    small: f64,
    scale: f64,
    shape: f64,
}

impl Sizes {
    /// `small` must be under 3/4, and the quartile above 4 KiB.
    pub(super) fn new(quartile3_bytes: u32, small: f64, tail: f64) -> Self {
        let small = small.clamp(0.0, 0.74);
        let quartile = (f64::from(quartile3_bytes) / SECTOR).floor().max(1.0) * SECTOR;
        let fraction = (0.75 - small) / (1.0 - small);
        let shape = tail.max(0.1);
        Self { small, scale: quartile * ((1.0 - fraction) / fraction).powf(1.0 / shape), shape }
    }

    pub(super) fn draw(&self, stream: &mut Stream) -> u32 {
        if stream.unit() <= self.small {
            return SMALL;
        }
        let above = stream.unit(); // 1 - F, uniform
        let size = self.scale * ((1.0 - above) / above).powf(1.0 / self.shape);
        ((size / SECTOR).ceil() * SECTOR).clamp(SECTOR, MAX_BYTES) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_quartile_is_met() {
        for (quartile, small, tail) in [(36_800, 0.2, 1.5), (24_000, 0.6, 4.0), (16_800, 0.0, 2.0), (47_000, 0.5, 1.5)]
        {
            let sizes = Sizes::new(quartile, small, tail);
            let mut stream = Stream::new(1, 0, 0);
            let all: Vec<u32> = (0..100_000).map(|_| sizes.draw(&mut stream)).collect();
            let share = all.iter().filter(|&&bytes| bytes <= quartile).count() as f64 / 1e5;
            assert!((share - 0.75).abs() < 0.0055, "{quartile}: {share}"); // four deviations
            assert!(all.iter().all(|&bytes| bytes > 0 && bytes % 512 == 0 && bytes <= 1 << 20));
        }
    }
}
