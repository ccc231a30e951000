//! Where one curve crosses another: "Linux draws more than SPDK above 5120 k IOPS".
//!
//! # The problem
//! A paper sweeps a rate in steps and prints the last one at which an order still holds; beyond it the order is the other way round.
//! Where ours crosses is a number between swept points. Whether it is the paper's step, and if not how far off it is, does not follow
//! from asking for the order at every point: then a crossing a fifth of a step off is as wrong as none.
//!
//! # The words
//! The *printed step* is from the printed rate to the paper's next one: a crossing anywhere in it gives what the paper prints. An *error*
//! is how far ours is outside that step, in steps, on a logarithmic scale, as the sweep is one. The *log ratio* is the logarithm of the
//! first curve over the second: negative where the first is lower.
//!
//! # The algorithm
//! At each swept point the log ratio is taken replication by replication, with its interval. Between points it is interpolated along
//! the logarithm of the rate: both curves are straight lines in a plot with two logarithmic axes. So where a latency grows
//! a hundredfold in one step, the crossing is not drawn to the near end, as it would be with differences.
//!
//! The crossing is the rate above which the first is higher: the last at which the mean goes up through 0. It is not before the
//! last rate at which the first is surely lower (the interval's upper end is below 0), and not beyond the first rate at which it is
//! surely higher. These two are its interval. Where a curve has no end (saturated), or nothing is known, what is between it and the
//! next point is not interpolated: it may be anything.
//!
//! - Several: if the first is surely higher before it is surely lower, no single rate says how they stand. Both rates must lie
//!   in the printed step, and the error is that of the one that is further off.
//! - None: a curve that is surely lower at the last point, or surely higher at the first, crosses outside the sweep, where the paper's
//!   did not: without end on that side.
//!
//! Under no error it comes out, under a quarter of a step it is near: the bounds of a range on the scale of the sweep.
//!
//! # The properties
//! Curves and rates in other units give the same verdict; so do more swept points on the same curves, since steps are the paper's. Power laws are crossed exactly. A crossover and the opposite one do not
//! both come out.

use std::collections::BTreeMap;

use pilotlight_stats::Estimate;

use super::point::Point;
use super::quantity::{Selection, pair};
use super::results::Store;
use super::saturated::{self, SaturatedRuns};

/// Where the first of two policies rises above the second.
#[derive(Clone, Debug, PartialEq)]
pub struct Crossover {
    /// The lower one before the crossing, and the higher one.
    pub of: [Selection; 2],
    /// The swept key.
    pub along: String,
    /// How many times a swept rate of the paper the next one is.
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
    /// Where the mean last goes up through 0; infinite if it does nowhere.
    pub(super) value: f64,
    /// Where it first does.
    pub(super) first: f64,
    /// The last rate at which the first policy is surely lower.
    pub(super) lower: f64,
    /// The first rate at which it is surely higher.
    pub(super) higher: f64,
    /// How often the mean goes through 0.
    pub(super) times: usize,
}

/// What a paper's printed rate allows, in logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Step {
    from: f64,
    to: f64,
}

impl Crossover {
    /// The curve of a variant.
    pub(super) fn curve(&self, store: &Store, variant: &str) -> Result<Curve, String> {
        let [lower, higher] = &self.of;
        let mut points: BTreeMap<&Point, f64> = BTreeMap::new();
        for selection in &self.of {
            for (point, _) in selection.points(store, variant)? {
                points.insert(point, self.rate(point)?);
            }
        }
        let mut curve = Vec::new();
        for (point, rate) in points {
            let (a, b) = pair(lower.beside(store, variant, point)?, higher.beside(store, variant, point)?);
            if a.iter().chain(&b).any(|value| *value <= 0.0) {
                return Err(format!("{} at {} is not above 0: it has no logarithm", lower.metric, point.words()));
            }
            let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a.ln() - b.ln()).collect();
            let ratio = saturated::estimate(&ratios).ok_or("no replication in common")?;
            curve.push((rate.ln(), ratio));
        }
        curve.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        match curve.windows(2).find(|two| two[0].0 == two[1].0) {
            Some(_) => Err(format!("several points match at one {}; name one", self.along)),
            None => Ok(Curve(curve)),
        }
    }

    /// The swept key of a point, in the claim's unit.
    fn rate(&self, point: &Point) -> Result<f64, String> {
        let rate = point.value(&self.along).and_then(|value| value.parse::<f64>().ok());
        let rate = rate.map(|rate| rate * self.factor).filter(|rate| rate.is_finite() && *rate > 0.0);
        rate.ok_or_else(|| format!("{} of {} is no number above 0", self.along, point.words()))
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
    pub(super) fn step(&self, paper: f64, times: f64) -> Result<(Step, f64), String> {
        let (from, length) = (paper.ln(), times.ln());
        // a rate that was swept is found again, whatever its unit's factor did to its last digit
        let within = |rate: f64| {
            let ends = self.0.first().zip(self.0.last());
            ends.is_some_and(|((first, _), (last, _))| *first <= rate + 1e-9 && rate <= *last + 1e-9)
        };
        if !within(from) || !within(from + length) {
            return Err(format!("{paper} and the next rate, {}, are not both in the sweep", paper * times));
        }
        Ok((Step { from, to: from + length }, length))
    }
}

/// Up to where a curve is last as is asked for: nowhere, or up to the last point, is without end. Towards a point without end it is
/// `share` of the way.
fn last(curve: &[(f64, f64)], is: fn(f64) -> bool, share: f64) -> f64 {
    match curve.iter().rposition(|(_, ratio)| is(*ratio)) {
        None => f64::NEG_INFINITY,
        Some(i) if i + 1 == curve.len() => f64::INFINITY,
        Some(i) => root(curve[i], curve[i + 1], share),
    }
}

/// From where a curve is first as is asked for.
fn first(curve: &[(f64, f64)], is: fn(f64) -> bool, share: f64) -> f64 {
    match curve.iter().position(|(_, ratio)| is(*ratio)) {
        None => f64::INFINITY,
        Some(0) => f64::NEG_INFINITY,
        Some(i) => root(curve[i - 1], curve[i], share),
    }
}

/// Where a line is 0 that is on both sides of it.
fn root((from, a): (f64, f64), (to, b): (f64, f64), share: f64) -> f64 {
    let share = if a.is_finite() && b.is_finite() { a / (a - b) } else { share };
    from + share * (to - from)
}

impl Step {
    /// How far a rate is outside.
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
