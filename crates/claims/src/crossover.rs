//! Crossovers of two curves: "Linux draws more than SPDK above 5120 k IOPS".
//!
//! # The problem
//! A paper sweeps a rate in steps and prints the last one at which an order still holds. Our curves cross between swept points. Checking the
//! order at every point would treat a crossing a fifth of a step off like none at all.
//!
//! # Terms
//! The *printed step* is from the printed rate to the paper's next one: any crossing in it is consistent with the paper. The *error* is the
//! distance of our crossing from that step, in steps on a logarithmic scale. The *log ratio* is the logarithm of the first curve over the
//! second.
//!
//! # The algorithm
//! At each swept point the log ratio is computed per replication, with its interval. Between points it is interpolated over the logarithm of
//! the rate, as curves are straight in a log-log plot.
//!
//! The crossing is the last rate at which the mean rises through 0. Its interval extends from the last rate at which the first curve is
//! significantly lower to the first rate at which it is significantly higher. Next to a saturated or unknown point nothing is interpolated:
//! the crossing may be anywhere in that step.
//!
//! - Several crossings: both ends must lie in the printed step, and the larger error counts.
//! - None: the crossing is outside the sweep, and unbounded on that side.
//!
//! Without an error it is reproduced; below a quarter of a step it is near.
//!
//! # The properties
//! Units and additional swept points do not change the verdict. Crossings of power laws are exact. A crossover and its opposite are not both
//! reproduced.

use std::collections::BTreeMap;

use pilotlight_stats::Estimate;

use super::error::NoResult;
use super::point::Point;
use super::quantity::{Selection, pair};
use super::results::Store;
use super::saturated::{self, SaturatedRuns};

/// The rate at which the first of two policies rises above the second.
#[derive(Clone, Debug, PartialEq)]
pub struct Crossover {
    /// The lower one before the crossing, and the higher one.
    pub of: [Selection; 2],
    /// The swept key.
    pub along: String,
    /// Ratio of consecutive rates of the paper's sweep.
    pub step: f64,
    /// From the key's unit to the claim's.
    pub factor: f64,
}

/// Log ratios along the logarithm of a rate, in order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Curve(pub(super) Vec<(f64, Estimate)>);

/// A crossing, in logarithms of the rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Crossing {
    /// Last rise of the mean through 0; infinite if there is none.
    pub(super) value: f64,
    /// First rise of the mean through 0.
    pub(super) first: f64,
    /// Last rate at which the first policy is significantly lower.
    pub(super) lower: f64,
    /// First rate at which it is significantly higher.
    pub(super) higher: f64,
    /// Number of crossings of the mean.
    pub(super) times: usize,
}

/// The printed step, in logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Step {
    from: f64,
    to: f64,
}

impl Crossover {
    /// The curve of a variant.
    pub(super) fn curve(&self, store: &Store, variant: &str) -> Result<Curve, NoResult> {
        let [lower, higher] = &self.of;
        let mut points: BTreeMap<&Point, f64> = BTreeMap::new();
        for selection in &self.of {
            for (point, _) in selection.points(store, variant)? {
                points.insert(point, self.rate(point)?);
            }
        }
        let mut curve = Vec::new();
        for (point, rate) in points {
            let values =
                lower.series_at(store, variant, point).and_then(|a| Ok((a, higher.series_at(store, variant, point)?)));
            let is_saturated = || self.of.iter().any(|of| of.saturated(store, variant, point).is_some());
            let (a, b) = match values {
                Ok((a, b)) => pair(a, b),
                Err(_) if is_saturated() => continue, // it has no value there
                Err(error) => return Err(error),
            };
            if a.iter().chain(&b).any(|value| *value <= 0.0) {
                return Err(NoResult::NotPositive(lower.metric.clone(), point.clone()));
            }
            let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a.ln() - b.ln()).collect();
            let ratio = saturated::estimate(&ratios).ok_or(NoResult::Unpaired)?;
            curve.push((rate.ln(), ratio));
        }
        curve.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        match curve.windows(2).find(|two| two[0].0 == two[1].0) {
            Some(_) => Err(NoResult::AmbiguousAlong(self.along.clone())),
            None => Ok(Curve(curve)),
        }
    }

    /// The swept key of a point, in the claim's unit.
    fn rate(&self, point: &Point) -> Result<f64, NoResult> {
        let rate = point.value(&self.along).and_then(|value| value.parse::<f64>().ok());
        let rate = rate.map(|rate| rate * self.factor).filter(|rate| rate.is_finite() && *rate > 0.0);
        rate.ok_or_else(|| NoResult::NoRate(self.along.clone(), point.clone()))
    }

    pub(super) fn saturated(&self, store: &Store, variant: &str) -> Vec<SaturatedRuns> {
        let each = |of: &Selection| -> Vec<SaturatedRuns> {
            let points = of.points(store, variant).unwrap_or_default().into_iter();
            points.filter_map(|(point, _)| of.saturated(store, variant, point)).collect()
        };
        self.of.iter().flat_map(each).collect()
    }
}

impl Curve {
    pub(super) fn crossing(&self) -> Crossing {
        let known: Vec<(f64, f64)> =
            self.0.iter().map(|(x, ratio)| (*x, ratio.value)).filter(|(_, ratio)| !ratio.is_nan()).collect();
        let end = |of: fn(&Estimate) -> f64| -> Vec<(f64, f64)> { self.0.iter().map(|(x, r)| (*x, of(r))).collect() };
        let times = known.windows(2).filter(|two| (two[0].1 > 0.0) != (two[1].1 > 0.0)).count();
        Crossing {
            value: last(&known, |ratio| ratio <= 0.0, 0.5),
            first: first(&known, |ratio| ratio > 0.0, 0.5),
            lower: last(&end(|ratio| ratio.high), |ratio| ratio < 0.0, 0.0),
            higher: first(&end(|ratio| ratio.low), |ratio| ratio > 0.0, 1.0),
            times,
        }
    }

    /// The step of the paper's sweep that begins at the printed rate, and its length.
    pub(super) fn step(&self, paper: f64, times: f64) -> Result<(Step, f64), NoResult> {
        let (from, length) = (paper.ln(), times.ln());
        // a swept rate is found despite rounding by its unit's factor
        let within = |rate: f64| {
            let ends = self.0.first().zip(self.0.last());
            ends.is_some_and(|((first, _), (last, _))| *first <= rate + 1e-9 && rate <= *last + 1e-9)
        };
        if !within(from) || !within(from + length) {
            return Err(NoResult::OutsideSweep(paper, paper * times));
        }
        Ok((Step { from, to: from + length }, length))
    }
}

/// End of the last section of a curve for which `is` holds; infinite if there is none or it is the last point. `share` is the position next
/// to an infinite point.
fn last(curve: &[(f64, f64)], is: fn(f64) -> bool, share: f64) -> f64 {
    match curve.iter().rposition(|(_, ratio)| is(*ratio)) {
        None => f64::NEG_INFINITY,
        Some(i) if i + 1 == curve.len() => f64::INFINITY,
        Some(i) => root(curve[i], curve[i + 1], share),
    }
}

/// Begin of the first section of a curve for which `is` holds.
fn first(curve: &[(f64, f64)], is: fn(f64) -> bool, share: f64) -> f64 {
    match curve.iter().position(|(_, ratio)| is(*ratio)) {
        None => f64::INFINITY,
        Some(0) => f64::NEG_INFINITY,
        Some(i) => root(curve[i - 1], curve[i], share),
    }
}

/// Zero of a line between two points of opposite sign.
fn root((from, a): (f64, f64), (to, b): (f64, f64), share: f64) -> f64 {
    let share = if a.is_finite() && b.is_finite() { a / (a - b) } else { share };
    from + share * (to - from)
}

impl Step {
    /// Distance of a rate from the step.
    pub(super) fn outside(self, rate: f64) -> f64 {
        (self.from - rate).max(rate - self.to).max(0.0)
    }

    /// The least and the greatest error that a crossing allows.
    pub(super) fn errors(self, crossing: &Crossing) -> (f64, f64) {
        let Crossing { lower, higher, .. } = *crossing;
        let least = (self.from - higher).max(lower - self.to).max(0.0);
        (least, least.max(self.outside(lower)).max(self.outside(higher)))
    }
}

#[cfg(test)]
mod tests;
