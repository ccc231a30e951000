//! How sure a share is: exact binomial intervals (Clopper and Pearson, 1934).

use serde::Serialize;
use statrs::function::gamma::ln_gamma;

/// So many of so many, with the 95 % interval of the share, in per cent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Share {
    pub(crate) count: u64,
    pub(crate) of: u64,
    pub(crate) percent: f64,
    pub(crate) low_percent: f64,
    pub(crate) high_percent: f64,
}

impl Share {
    /// Counted on the smaller side, so that a share near 1 is as exact as one near 0.
    pub(crate) fn new(count: u64, of: u64) -> Self {
        let percent = 100.0 * count as f64 / of as f64;
        let ([low, high], mirrored) = (interval(count.min(of - count), of), count > of - count);
        let [low_percent, high_percent] =
            if mirrored { [1.0 - high, 1.0 - low] } else { [low, high] }.map(|x| 100.0 * x);
        Self { count, of, percent, low_percent, high_percent }
    }
}

/// The shares at which `count` or more, and `count` or fewer, come with a chance of 2.5 %.
fn interval(count: u64, of: u64) -> [f64; 2] {
    let (count, of) = (count as f64, of as f64);
    let low = if count == 0.0 { 0.0 } else { solve(|share| at_least(count, of, share) < 0.025) };
    let high = if count == of { 1.0 } else { solve(|share| at_least(count + 1.0, of, share) < 0.975) };
    [low, high]
}

/// Where something stops being true, between 0 and 1, by halving.
fn solve(is_below: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        *(if is_below(middle) { &mut low } else { &mut high }) = middle;
    }
    low
}

/// Chance of `count` or more of `of`: the regularised incomplete beta function.
fn at_least(count: f64, of: f64, share: f64) -> f64 {
    let (a, b) = (count, of - count + 1.0);
    if share <= 0.0 || share >= 1.0 {
        return share;
    }
    // The fraction converges fast on the side of the mean that is nearer to 0.
    if share > (a + 1.0) / (a + b + 2.0) { 1.0 - tail(b, a, 1.0 - share) } else { tail(a, b, share) }
}

/// The incomplete beta function by its continued fraction (DLMF 8.17.22), evaluated by Lentz's method. statrs has one too, but it
/// does not come back with arguments of some ten millions.
fn tail(a: f64, b: f64, x: f64) -> f64 {
    let scale = a * x.ln() + b * (-x).ln_1p() - a.ln() - ln_gamma(a) - ln_gamma(b) + ln_gamma(a + b);
    let (mut c, mut d) = (1.0, 1.0 / (1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for m in 1..100_000 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let before = fraction;
        for term in [even, odd] {
            d = 1.0 / (1.0 + term * d);
            c = 1.0 + term / c;
            fraction *= c * d;
        }
        if (fraction / before - 1.0).abs() < 1e-15 {
            break;
        }
    }
    scale.exp() * fraction
}

/// As many digits as say something near 0 and near 100.
pub(crate) fn digits(percent: f64) -> String {
    match percent.min(100.0 - percent) {
        0.0 => format!("{percent:.0}"),
        rest if rest < 0.01 => format!("{percent:.6}"),
        rest if rest < 1.0 => format!("{percent:.4}"),
        _ => format!("{percent:.2}"),
    }
}

impl std::fmt::Display for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [share, low, high] = [self.percent, self.low_percent, self.high_percent].map(digits);
        f.pad(&format!("{share} [{low}, {high}]"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use statrs::distribution::{Binomial, DiscreteCDF};

    #[test]
    fn at_the_ends_either_tail_has_2_5_per_cent() {
        for (count, of) in [(1, 10), (5, 10), (9, 10), (3, 1_000), (17, 100), (97, 100)] {
            let share = Share::new(count, of);
            let binomial = |percent: f64| Binomial::new(percent / 100.0, of).unwrap();
            let fewer = binomial(share.low_percent).cdf(count - 1);
            let most = binomial(share.high_percent).cdf(count);
            assert!((fewer - 0.975).abs() < 1e-6, "{share}: {fewer}");
            assert!((most - 0.025).abs() < 1e-6, "{share}: {most}");
        }
    }

    #[test]
    fn nothing_of_many_and_all_of_many() {
        // With none of n the upper end is 1 - 0.025^(1/n).
        let none = Share::new(0, 46_080_000);
        assert_eq!(none.low_percent, 0.0);
        assert!((none.high_percent / 8.005e-6 - 1.0).abs() < 1e-3, "{none}");
        assert_eq!(Share::new(100, 100).high_percent, 100.0);
        assert!((Share::new(100, 100).low_percent - 96.3783).abs() < 1e-3);
    }
}
