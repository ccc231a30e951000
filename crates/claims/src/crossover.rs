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

use super::assess::{Assessment, Lab, Scope};
use super::claim::{Claim, Relation};
use super::map::{Problem, RawRow, missing, pattern};
use super::point::Point;
use super::quantity::{Full, Selection, pair};
use super::results::Store;
use super::saturated;
use super::verdict;

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
struct Curve(Vec<(f64, Estimate)>);

/// A crossing, in logarithms of the rate.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Crossing {
    /// Where the mean last goes up through 0; infinite if it does nowhere.
    value: f64,
    /// Where it first does.
    first: f64,
    /// The last rate at which the first policy is surely lower.
    lower: f64,
    /// The first rate at which it is surely higher.
    higher: f64,
    /// How often the mean goes through 0.
    times: usize,
}

/// What a paper's printed rate allows, in logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    from: f64,
    to: f64,
}

pub(super) fn read(raw: RawRow) -> Result<Crossover, Problem> {
    let experiment = raw.experiment.ok_or_else(missing("experiment"))?;
    let metric = raw.metric.ok_or_else(missing("metric"))?;
    let along = raw.along.ok_or_else(missing("along"))?;
    let point = pattern(raw.point.as_deref())?.unwrap_or_default();
    let from = Selection { experiment, metric, policy: String::new(), point, fixed: false, own_metric: true };
    let of = raw.crossover.ok_or_else(missing("crossover"))?.map(|policy| Selection { policy, ..from.clone() });
    let step = raw.step.ok_or_else(missing("step"))?;
    if !(step.is_finite() && step > 1.0) {
        return Err(("step", "the paper's next rate is so many times the printed one: above 1".to_owned()));
    }
    Ok(Crossover { of, along, step, factor: raw.factor.unwrap_or(1.0) })
}

impl Crossover {
    /// The curve of a variant.
    fn curve(&self, store: &Store, variant: &str) -> Result<Curve, String> {
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

    fn saturated(&self, store: &Store, variant: &str) -> Vec<Full> {
        let each = |of: &Selection| -> Vec<Full> {
            let points = of.points(store, variant).unwrap_or_default().into_iter();
            points.filter_map(|(point, _)| of.saturated(store, variant, point)).collect()
        };
        self.of.iter().flat_map(each).collect()
    }
}

impl Curve {
    fn crossing(&self) -> Crossing {
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
    fn step(&self, paper: f64, times: f64) -> Result<(Step, f64), String> {
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
    fn outside(self, rate: f64) -> f64 {
        (self.from - rate).max(rate - self.to).max(0.0)
    }

    /// The least and the greatest error that a crossing allows.
    fn errors(self, crossing: &Crossing) -> (f64, f64) {
        let Crossing { lower, higher, .. } = *crossing;
        let least = (self.from - higher).max(lower - self.to).max(0.0);
        (least, least.max(self.outside(lower)).max(self.outside(higher)))
    }
}

impl Lab<'_> {
    pub(super) fn crossover(
        &self,
        claim: &Claim,
        crossover: &Crossover,
        scope: Scope<'_>,
        into: &mut Assessment,
    ) -> Result<(), String> {
        let paper = claim.value.number().filter(|paper| *paper > 0.0);
        let equal = matches!(claim.relation, Some(Relation::Eq | Relation::About));
        let paper = paper.filter(|_| equal).ok_or("the claim does not print the rate of a crossing")?;
        let variants = self.variants(&crossover.of[0].experiment, scope);
        let (mut crossings, mut errors) = (Vec::new(), (f64::INFINITY, 0.0_f64));
        let mut full = Vec::new();
        for variant in &variants {
            let curve = crossover.curve(self.store, variant)?;
            let ((step, length), crossing) = (curve.step(paper, crossover.step)?, curve.crossing());
            let (least, greatest) = step.errors(&crossing);
            errors = (errors.0.min(least / length), errors.1.max(greatest / length));
            if crossings.is_empty() {
                let error = step.outside(crossing.value).max(step.outside(crossing.first)) / length;
                into.error_percent = Some(100.0 * error).filter(|error| error.is_finite());
            }
            crossings.push(crossing);
            full.extend(crossover.saturated(self.store, variant));
        }
        let first = crossings.first().ok_or("no variant")?;
        into.verdict = verdict::between((verdict::beyond(errors.0), verdict::beyond(errors.1)));
        self.shifted(&claim.id, scope, into);
        let ends = || crossings.iter().flat_map(|crossing| [crossing.lower, crossing.higher]);
        let ours = Estimate {
            value: first.value.exp(),
            low: ends().fold(f64::INFINITY, f64::min).exp(),
            high: ends().fold(f64::NEG_INFINITY, f64::max).exp(),
            n: self.runs(crossover, variants.first().copied().unwrap_or_default()),
        };
        into.ours = Some(ours).filter(|_| first.value.is_finite());
        into.note = format!("{}, {}", crossover.of[0].experiment, words(crossover, first));
        into.saturated = saturated::once(full.into_iter());
        into.family = variants.len() - 1;
        Ok(())
    }

    /// The fewest replications of a point.
    fn runs(&self, crossover: &Crossover, variant: &str) -> usize {
        let curve = crossover.curve(self.store, variant);
        curve.iter().flat_map(|curve| &curve.0).map(|(_, ratio)| ratio.n).min().unwrap_or(0)
    }
}

fn words(crossover: &Crossover, crossing: &Crossing) -> String {
    let [lower, higher] = [0, 1].map(|i: usize| crossover.of[i].policy.as_str());
    match crossing.times {
        0 if crossing.value > 0.0 => format!("{lower} is not above {higher} anywhere"),
        0 => format!("{lower} is above {higher} everywhere"),
        1 => format!("where {lower} rises above {higher}"),
        times => format!("where {lower} last rises above {higher} ({times} crossings)"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::claim::tests::claim;
    use super::super::claim::{Kind, Printed};
    use super::super::map;
    use super::super::results::tests::store;
    use super::super::verdict::Verdict;
    use super::*;

    const RATES: [u32; 5] = [10, 20, 40, 80, 160];

    fn assessed(paper: f64, lines: &[String], more: &str) -> Assessment {
        let row = format!("[[row]]\nid='x'\nexperiment='e'\nmetric='latency_p99_us'\nalong='rate'\nstep=2.0\n{more}\n");
        let map = map::parse(&[("map".to_owned(), row)]).unwrap();
        let (store, calibrated) = (store(&lines.iter().map(String::as_str).collect::<Vec<_>>()), BTreeSet::new());
        let claims = [claim("x", Kind::Order, Some(Relation::Eq), Printed::Number(paper))];
        let lab = Lab {
            claims: &claims,
            map: &map,
            store: &store,
            calibrated: &calibrated,
            file: &|_| None,
            parameter: &|_, _| None,
            constants: None,
        };
        lab.assess_all().remove(0)
    }

    /// Curves whose ratio at each rate is this, with and without noise over three replications.
    fn curves(ratios: &[f64], noise: f64) -> Vec<String> {
        curves_at(&RATES.map(f64::from), ratios, noise)
    }

    fn curves_at(rates: &[f64], ratios: &[f64], noise: f64) -> Vec<String> {
        let line = |policy: &str, rate: f64, values: [f64; 3]| {
            format!("e,rate={rate},default,{policy},latency_p99_us,us,{},{},{}", values[0], values[1], values[2])
        };
        let each = rates.iter().zip(ratios).flat_map(|(rate, ratio)| {
            let noisy = [-noise, 0.0, noise].map(|by| 100.0 * ratio * (1.0 + by));
            [line("a", *rate, noisy), line("b", *rate, [100.0; 3])]
        });
        each.collect()
    }

    fn judged(paper: f64, ratios: &[f64]) -> Assessment {
        assessed(paper, &curves(ratios, 0.0), "crossover=['a', 'b']")
    }

    #[test]
    fn a_crossing_in_the_printed_step_comes_out_and_a_quarter_of_a_step_beside_it_is_near() {
        // up through 1 between 40 and 80: in the middle on a logarithmic scale, then nearer to either end
        let middle = [0.5, 0.6, 0.8, 1.25, 2.0];
        let found = judged(40.0, &middle);
        assert!((found.ours.unwrap().value - 40.0 * 2.0_f64.sqrt()).abs() < 1e-9, "{:?}", found.ours);
        assert_eq!((found.verdict, found.error_percent), (Verdict::ComesOut, Some(0.0)));
        assert!(found.note.ends_with("where a rises above b"), "{}", found.note);
        for (paper, ratios, expected, error) in [
            (20.0, middle, Verdict::Misses, 50.0),
            (80.0, middle, Verdict::Misses, 50.0),
            (10.0, middle, Verdict::Misses, 150.0),
            (20.0, [0.5, 0.6, 0.8, 3.0, 9.0], Verdict::Near, 100.0 * 0.8_f64.ln() / (0.8_f64 / 3.0).ln()),
            (80.0, [0.5, 0.6, 0.3, 1.25, 9.0], Verdict::Near, 100.0 * 1.25_f64.ln() / (1.25_f64 / 0.3).ln()),
        ] {
            let found = judged(paper, &ratios);
            assert_eq!(found.verdict, expected, "{paper} {ratios:?}");
            assert!(
                (found.error_percent.unwrap() - error).abs() < 1e-9,
                "{paper} {ratios:?} {:?}",
                found.error_percent
            );
        }
    }

    #[test]
    fn replications_that_disagree_widen_the_crossing_until_nothing_is_decided() {
        let ratios = [0.5, 0.6, 0.8, 1.25, 2.0];
        let with = |noise| assessed(40.0, &curves(&ratios, noise), "crossover=['a', 'b']");
        let narrow = with(0.01);
        assert_eq!(narrow.verdict, Verdict::ComesOut);
        let ours = narrow.ours.unwrap();
        assert!(40.0 < ours.low && ours.low < ours.value && ours.value < ours.high && ours.high < 80.0, "{ours:?}");
        let wide = with(0.2);
        assert_eq!(wide.verdict, Verdict::Undecided);
        assert!(wide.ours.unwrap().low < 40.0 && wide.ours.unwrap().high > 80.0, "{:?}", wide.ours);
        let one: Vec<String> =
            curves(&ratios, 0.0).iter().map(|line| line.split(',').take(7).collect::<Vec<_>>().join(",")).collect();
        assert_eq!(assessed(40.0, &one, "crossover=['a', 'b']").verdict, Verdict::Undecided, "one replication");
    }

    #[test]
    fn of_several_crossings_each_must_be_in_the_step_and_none_is_not_there() {
        let several = judged(80.0, &[0.5, 2.0, 0.5, 0.5, 2.0]);
        assert_eq!(several.verdict, Verdict::Misses, "the last alone is in the step");
        assert!(several.note.ends_with("(3 crossings)"), "{}", several.note);
        assert!((several.ours.unwrap().value - 80.0 * 2.0_f64.sqrt()).abs() < 1e-9);
        assert_eq!(judged(10.0, &[0.5, 2.0, 0.5, 0.5, 2.0]).verdict, Verdict::Misses, "so is the first");
        for (ratios, words) in [([0.5; 5], "a is not above b anywhere"), ([2.0; 5], "a is above b everywhere")] {
            let none = judged(40.0, &ratios);
            assert_eq!((none.verdict, none.ours), (Verdict::Misses, None));
            assert!(none.note.ends_with(words), "{}", none.note);
        }
        assert_eq!(judged(40.0, &[2.0, 2.0, 2.0, 0.5, 0.5]).verdict, Verdict::Misses, "downwards");
        assert_eq!(judged(40.0, &[1.0; 5]).verdict, Verdict::Undecided, "of what is equal nothing is said");
    }

    #[test]
    fn a_curve_without_end_is_crossed_somewhere_in_the_step() {
        let mut lines = curves(&[0.5, 0.5, 0.5, 2.0, 2.0], 0.0);
        lines.extend([80, 160].map(|rate| format!("e,rate={rate},default,a,saturated,1,1,1,1")));
        let found = assessed(40.0, &lines, "crossover=['a', 'b']");
        let ours = found.ours.unwrap();
        assert!((ours.low - 40.0).abs() < 1e-9 && (ours.high - 80.0).abs() < 1e-9, "{ours:?}");
        assert_eq!((found.verdict, found.saturated.len()), (Verdict::ComesOut, 2));
        assert_eq!(assessed(20.0, &lines, "crossover=['a', 'b']").verdict, Verdict::Undecided);
    }

    #[test]
    fn a_family_that_crosses_elsewhere_is_undecided() {
        let mut lines = curves(&[0.5, 0.6, 0.8, 1.25, 2.0], 0.0);
        let member = |ratios: &[f64]| -> Vec<String> {
            curves(ratios, 0.0).iter().map(|line| line.replace("default", "family:1")).collect()
        };
        let with = |ratios: &[f64]| {
            let all: Vec<String> = lines.iter().cloned().chain(member(ratios)).collect();
            assessed(40.0, &all, "crossover=['a', 'b']").verdict
        };
        assert_eq!(with(&[0.5, 0.6, 0.7, 1.25, 2.0]), Verdict::ComesOut);
        assert_eq!(with(&[0.5, 2.0, 2.0, 2.0, 2.0]), Verdict::Undecided);
        lines.clear();
    }

    /// Another point halfway between each two, on the straight line between them: nothing new is known.
    #[test]
    fn twice_as_many_points_of_the_same_curves_change_no_verdict() {
        let rates = RATES.map(f64::from);
        let halfway = |two: &[f64]| [two[0], (two[0] * two[1]).sqrt()];
        let doubled = |of: &[f64]| of.windows(2).flat_map(halfway).chain(of.last().copied()).collect::<Vec<f64>>();
        for ratios in [[0.5, 0.6, 0.8, 1.25, 2.0], [0.5, 0.6, 0.8, 3.0, 9.0], [0.5, 0.9, 1.1, 2.0, 3.0], [2.0; 5]] {
            for (paper, noise) in [(10.0, 0.0), (20.0, 0.0), (40.0, 0.0), (80.0, 0.0), (40.0, 0.01)] {
                let lines = curves_at(&doubled(&rates), &doubled(&ratios), noise);
                let (once, twice) = (curves(&ratios, noise), lines);
                let [once, twice] = [once, twice].map(|lines| assessed(paper, &lines, "crossover=['a', 'b']"));
                assert_eq!(once.verdict, twice.verdict, "{paper} {noise} {ratios:?}");
                let rate = |found: &Assessment| found.ours.map(|ours| (ours.value * 1e6).round());
                assert_eq!(rate(&once), rate(&twice), "{paper} {noise} {ratios:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_crossed_is_told() {
        let lines = curves(&[0.5, 0.6, 0.8, 1.25, 2.0], 0.0);
        let told = |paper, lines: &[String], more: &str, part: &str| {
            let found = assessed(paper, lines, more);
            assert!(found.verdict == Verdict::NoResult && found.note.contains(part), "{part}: {}", found.note);
        };
        let both = "crossover=['a', 'b']";
        told(160.0, &lines, both, "not both in the sweep");
        told(5.0, &lines, both, "not both in the sweep");
        told(0.0, &lines, both, "does not print the rate");
        told(40.0, &lines[..9], both, "no latency_p99_us of b at rate=160");
        told(40.0, &lines, "crossover=['a', 'c']", "of c");
        let zero: Vec<String> = lines.iter().map(|line| line.replace("100,100,100", "100,0,100")).collect();
        told(40.0, &zero, both, "is not above 0");
        let twice: Vec<String> = lines.iter().map(|line| line.replace("rate=10,", "bs=4;rate=20,")).collect();
        told(40.0, &twice, both, "several points match at one rate");
        let named: Vec<String> = lines.iter().map(|line| line.replace("rate=10,", "rate=fast,")).collect();
        told(40.0, &named, both, "rate of rate=fast is no number");
        let refused = |row: &str| {
            let row = format!("[[row]]\nid='x'\nexperiment='e'\nmetric='w'\n{row}\n");
            map::parse(&[("map".to_owned(), row)]).unwrap_err().to_string()
        };
        assert!(refused("crossover=['a', 'b']").contains("along: is missing"));
        assert!(refused("crossover=['a', 'b']\nalong='rate'").contains("step: is missing"));
        assert!(refused("crossover=['a', 'b']\nalong='rate'\nstep=1.0").contains("step: the paper's next rate"));
        assert!(refused("crossover=['a']\nalong='rate'").contains("row x: a key"));
        assert!(
            refused("crossover=['a', 'b']\nalong='rate'\nmargin=0.1").contains("margin: does not go with crossover")
        );
    }

    proptest! {
        /// Power laws are crossed exactly, whatever the units of curves and rates are, and the opposite order does not come out too.
        #[test]
        fn power_laws_are_crossed_exactly(
            at in 11.0_f64..159.0, slope in 0.2_f64..3.0, fall in -2.0_f64..0.0, scale in 0.01_f64..100.0, step in 0_usize..4,
        ) {
            let paper = f64::from(RATES[step]);
            let law = |name: &str, slope: f64, rate: u32| {
                let value = scale * (f64::from(rate) / at).powf(slope);
                format!("e,rate={rate},default,{name},latency_p99_us,us,{value},{value}")
            };
            let lines: Vec<String> = RATES.iter().flat_map(|rate| [law("a", slope, *rate), law("b", fall, *rate)]).collect();
            let found = assessed(paper, &lines, "crossover=['a', 'b']");
            let ours = found.ours.unwrap();
            prop_assert!((ours.value / at - 1.0).abs() < 1e-9 && (ours.low / at - 1.0).abs() < 1e-6, "{ours:?}");
            let steps = (at / paper).log2();
            let error = (-steps).max(steps - 1.0).max(0.0);
            prop_assert!((found.error_percent.unwrap() / 100.0 - error).abs() < 1e-6);
            prop_assume!([0.0, verdict::NEAR].iter().all(|edge| (error - edge).abs() > 1e-6 || error == 0.0));
            prop_assert_eq!(found.verdict, verdict::beyond(error));
            let scaled = assessed(paper * 1000.0, &lines, "crossover=['a', 'b']\nfactor=1000.0");
            prop_assert_eq!(scaled.verdict, found.verdict);
            prop_assert_ne!(assessed(paper, &lines, "crossover=['b', 'a']").verdict, Verdict::ComesOut);
        }
    }
}
