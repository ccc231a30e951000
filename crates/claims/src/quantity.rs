//! Numbers selected from results, with their 95 % interval.
//!
//! Values of a policy are averaged over replications; two policies are compared per replication, as they use the same arrivals and devices.
//! For a whole sweep the extreme over its points is taken, with the extremes of the interval ends.

use pilotlight_stats::{CONFIDENCE, Estimate, paired};
use serde::Deserialize;

use super::error::NoResult;
use super::point::{Pattern, Point};
use super::results::{Column, Series, Store};
use super::saturated::{self, SaturatedRuns};
use pilotlight_lab::simulated::metrics;

/// A selection of values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// The experiment.
    pub experiment: String,
    /// The output.
    pub metric: String,
    /// The policy.
    pub policy: String,
    /// At which points.
    pub point: Pattern,
    /// Whether it has its own point instead of that of the other side of the comparison.
    pub fixed: bool,
    /// Whether it has its own metric.
    pub own_metric: bool,
}

/// A number from results.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantity {
    /// The selected values.
    pub of: Selection,
    /// The reference.
    pub versus: Option<Selection>,
    /// The comparison.
    pub compare: Compare,
    /// Aggregation over several points.
    pub over: Option<Aggregation>,
    /// Further points to take the extreme over.
    pub also: Vec<(Selection, Option<Selection>)>,
    /// The unit of the results, if it differs from the claim's.
    pub unit: Option<String>,
    /// From the results' unit to the claim's.
    pub factor: f64,
}

/// Comparison of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Compare {
    /// The value itself.
    #[serde(rename = "value")]
    Value,
    /// `of - versus`.
    #[serde(rename = "difference")]
    Difference,
    /// `of / versus`.
    #[serde(rename = "ratio")]
    Ratio,
    /// `100 (1 - of / versus)`.
    #[serde(rename = "reduction %")]
    Reduction,
    /// `100 (of / versus - 1)`.
    #[serde(rename = "increase %")]
    Increase,
}

/// Aggregation over several points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Aggregation {
    /// The greatest value.
    Max,
    /// The least value.
    Min,
    /// The median value, with an interval that contains all intervals.
    All,
    /// The geometric mean of values above 0, with those of the interval ends.
    Geomean,
}

/// A number with its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// The number, in the results' unit times the row's factor.
    pub estimate: Estimate,
    /// The point; for an extreme, its point.
    pub point: Point,
    /// Saturated runs among its data.
    pub saturated: Vec<SaturatedRuns>,
}

impl Compare {
    /// Whether it needs a reference.
    #[must_use]
    pub const fn needs_versus(self) -> bool {
        !matches!(self, Self::Value)
    }

    /// Whether the result has the unit of the compared values.
    #[must_use]
    pub const fn keeps_unit(self) -> bool {
        matches!(self, Self::Value | Self::Difference)
    }

    /// What no effect is: 1 of a ratio, 0 of a difference; a value has none.
    #[must_use]
    pub const fn neutral(self) -> Option<f64> {
        match self {
            Self::Value => None,
            Self::Ratio => Some(1.0),
            Self::Difference | Self::Reduction | Self::Increase => Some(0.0),
        }
    }

    fn of_ratio(self, ratio: Estimate) -> Estimate {
        match self {
            Self::Reduction => ratio.affine(100.0, -100.0),
            Self::Increase => ratio.affine(-100.0, 100.0),
            _ => ratio,
        }
    }

    /// One replication against another.
    pub(super) fn once(self, of: f64, versus: f64) -> f64 {
        match self {
            Self::Value => of,
            Self::Difference => of - versus,
            _ => self.of_ratio(Estimate::exact(of / versus)).value,
        }
    }

    /// Over all replications; `None` if a ratio has no value. For saturated ones see [`saturated`].
    fn estimate(self, of: &[f64], versus: &[f64]) -> Option<Estimate> {
        if !of.iter().chain(versus).all(|value| value.is_finite()) {
            let each: Vec<f64> = of.iter().zip(versus).map(|(of, versus)| self.once(*of, *versus)).collect();
            return saturated::median(&each);
        }
        match self {
            Self::Value => saturated::estimate(of),
            Self::Difference => paired::difference(of, versus, CONFIDENCE),
            _ => paired::ratio(of, versus, CONFIDENCE).map(|ratio| self.of_ratio(ratio)),
        }
    }
}

impl Selection {
    /// Its column in the results.
    pub(super) fn column<'a>(&'a self, variant: &'a str) -> Column<'a> {
        Column { experiment: &self.experiment, metric: &self.metric, policy: &self.policy, variant }
    }

    /// The matching points with their values; at least one.
    ///
    /// # Errors
    /// If there is none.
    pub fn points<'a>(&'a self, store: &'a Store, variant: &str) -> Result<Vec<(&'a Point, &'a Series)>, NoResult> {
        let points: Vec<_> = store.points(&self.column(variant), &self.point).collect();
        if points.is_empty() { Err(self.no_result(store, variant, None)) } else { Ok(points) }
    }

    /// The values at `point`, or at its own fixed point.
    ///
    /// # Errors
    /// If there are none, or several points match.
    pub fn series_at<'a>(&'a self, store: &'a Store, variant: &str, point: &Point) -> Result<&'a Series, NoResult> {
        if !self.fixed {
            let series = store.series(&self.column(variant), point);
            return series.ok_or_else(|| self.no_result(store, variant, Some(point)));
        }
        match self.points(store, variant)?[..] {
            [(_, series)] => Ok(series),
            ref several => Err(NoResult::Ambiguous(several.len(), self.policy.clone())),
        }
    }

    /// For a proportion of counted events: with its exact interval ([`metrics::of_events`]).
    fn events(&self, store: &Store, variant: &str, point: &Point) -> Option<Estimate> {
        let [share, hits, events] = metrics::COUNTED;
        let sum = |metric: &str| {
            let series = store.series(&Column { metric, ..self.column(variant) }, point)?;
            Some(series.values().sum::<f64>())
        };
        if self.metric == share { metrics::of_events(sum(hits)?, sum(events)?) } else { None }
    }

    /// Saturated runs at `point`, or at its own fixed point.
    #[must_use]
    pub fn saturated(&self, store: &Store, variant: &str, point: &Point) -> Option<SaturatedRuns> {
        let own = self.fixed.then(|| store.points(&self.column(variant), &self.point).next()).flatten();
        let point = own.map_or(point, |(point, _)| point);
        let (saturated, runs) = store.saturated(&self.column(variant), point);
        let Self { experiment, policy, .. } = self.clone();
        (saturated > 0).then(|| SaturatedRuns { experiment, policy, point: point.to_string(), saturated, runs })
    }

    fn no_result(&self, store: &Store, variant: &str, point: Option<&Point>) -> NoResult {
        let Self { experiment, metric, policy, .. } = self.clone();
        if !store.has(&experiment) {
            return NoResult::NotRun(experiment);
        }
        let place = point.map(|point| format!(" at {}", point.description())).unwrap_or_default();
        NoResult::NoValues { experiment, metric, policy, place, variant: variant.to_owned() }
    }
}

impl Quantity {
    /// The number, for one variant.
    ///
    /// # Errors
    /// If results are missing or in another unit than the claim, or several points match without `over`.
    pub fn evaluate(&self, store: &Store, variant: &str, unit: &str) -> Result<Measurement, NoResult> {
        self.check_unit(store, unit)?;
        let mut found = self.at_points(&self.of, self.versus.as_ref(), store, variant)?;
        for (of, versus) in &self.also {
            found.extend(self.at_points(of, versus.as_ref(), store, variant)?);
        }
        let one = self.choose(found)?;
        Ok(Measurement { estimate: one.estimate.affine(0.0, self.factor), ..one })
    }

    fn check_unit(&self, store: &Store, unit: &str) -> Result<(), NoResult> {
        let wanted = self.unit.as_deref().unwrap_or(unit);
        let Selection { experiment, metric, .. } = &self.of;
        let known = store.unit(experiment, metric).filter(|_| self.compare.keeps_unit() || self.unit.is_some());
        match known {
            Some(ours) if ours != wanted => {
                let (ours, wanted) = (ours.to_owned(), wanted.to_owned());
                Err(NoResult::Unit { experiment: experiment.clone(), metric: metric.clone(), ours, wanted })
            }
            _ => Ok(()),
        }
    }

    fn at_points(
        &self,
        of: &Selection,
        versus: Option<&Selection>,
        store: &Store,
        variant: &str,
    ) -> Result<Vec<Measurement>, NoResult> {
        let each = |(point, series): (&Point, &Series)| {
            let reference = versus.map(|versus| versus.series_at(store, variant, point)).transpose()?;
            let (values, others) = pair(series, reference.unwrap_or(series));
            let events = if self.compare == Compare::Value { of.events(store, variant, point) } else { None };
            let estimate = events.or_else(|| self.compare.estimate(&values, &others));
            let estimate = estimate.ok_or_else(|| NoResult::Undefined(point.clone()))?;
            let full = |selection: Selection| selection.saturated(store, variant, point);
            let here = Selection { fixed: false, ..of.clone() };
            let saturated = [Some(here), versus.cloned()].into_iter().flatten().filter_map(full).collect();
            Ok(Measurement { estimate, point: point.clone(), saturated })
        };
        of.points(store, variant)?.into_iter().map(each).collect()
    }

    fn choose(&self, mut found: Vec<Measurement>) -> Result<Measurement, NoResult> {
        if found.len() < 2 {
            return found.pop().ok_or(NoResult::Unsuitable("no point"));
        }
        let Some(over) = self.over else {
            return Err(NoResult::NoAggregation(found.len()));
        };
        found.sort_by(|a, b| a.estimate.value.total_cmp(&b.estimate.value));
        let least =
            |of: fn(&Estimate) -> f64| found.iter().map(|found| of(&found.estimate)).fold(f64::INFINITY, f64::min);
        let greatest =
            |of: fn(&Estimate) -> f64| found.iter().map(|found| of(&found.estimate)).fold(f64::NEG_INFINITY, f64::max);
        let geomean = |of: fn(&Estimate) -> f64| {
            let logarithms = found.iter().map(|found| of(&found.estimate).max(0.0).ln());
            (logarithms.sum::<f64>() / found.len() as f64).exp()
        };
        let (value, low, high) = match over {
            Aggregation::Max => (greatest(|e| e.value), greatest(|e| e.low), greatest(|e| e.high)),
            Aggregation::Min => (least(|e| e.value), least(|e| e.low), least(|e| e.high)),
            Aggregation::All => (found[(found.len() - 1) / 2].estimate.value, least(|e| e.low), greatest(|e| e.high)),
            Aggregation::Geomean => (geomean(|e| e.value), geomean(|e| e.low), geomean(|e| e.high)),
        };
        let n = found.iter().map(|found| found.estimate.n).min().unwrap_or(0);
        let saturated = found.iter().flat_map(|found| found.saturated.clone()).collect();
        let place = found.into_iter().find(|found| found.estimate.value == value);
        let point = place.map(|found| found.point).unwrap_or_default();
        Ok(Measurement { estimate: Estimate { value, low, high, n }, point, saturated })
    }
}

/// The values of common replications.
pub(super) fn pair(a: &Series, b: &Series) -> (Vec<f64>, Vec<f64>) {
    a.iter().filter_map(|(replication, x)| b.get(replication).map(|y| (x, y))).unzip()
}

#[cfg(test)]
mod tests {
    use super::super::map::{Check, parse};
    use super::super::results::tests::store;
    use super::*;

    fn quantity(keys: &str) -> Quantity {
        let text = format!("[[row]]\nid='x'\nexperiment='e'\nmetric='w'\npolicy='sandman'\n{keys}\n");
        let map = parse(&[("map".to_owned(), text)]).unwrap();
        let Check::Quantity(quantity) = map.rows["x"].check.clone() else { panic!("not a quantity") };
        quantity
    }

    fn sweep() -> Store {
        store(&[
            "e,rate=10,default,sandman,w,W,60,62",
            "e,rate=20,default,sandman,w,W,90,90",
            "e,rate=10,default,static,w,W,100,102",
            "e,rate=20,default,static,w,W,100,100",
        ])
    }

    fn measurement(keys: &str, store: &Store) -> Result<Measurement, NoResult> {
        quantity(keys).evaluate(store, "default", "W")
    }

    #[test]
    fn one_point_by_each_comparison() {
        let versus = "versus='static'\npoint='rate=20'\ncompare=";
        for (keys, expected) in [
            ("point='rate=20'\ncompare='value'".to_owned(), 90.0),
            (format!("{versus}'difference'"), -10.0),
            (format!("{versus}'ratio'"), 0.9),
            (format!("{versus}'reduction %'"), 10.0),
            (format!("{versus}'increase %'"), -10.0),
        ] {
            let estimate = measurement(&keys, &sweep()).unwrap().estimate;
            assert!((estimate.value - expected).abs() < 1e-9, "{keys}: {estimate:?}");
            assert!(estimate.high - estimate.low < 1e-9, "{keys}: {estimate:?}");
        }
    }

    #[test]
    fn differences_are_paired() {
        // each alone varies by 2, their difference not at all
        let found = measurement("versus='static'\npoint='rate=10'\ncompare='difference'", &sweep()).unwrap();
        assert_eq!((found.estimate.low, found.estimate.high), (-40.0, -40.0));
    }

    #[test]
    fn of_counted_events_the_interval_is_exact() {
        let store = store(&[
            "e,,default,sandman,accuracy_percent,%,100,100",
            "e,,default,sandman,phases_detected,phases,5,5",
            "e,,default,sandman,phases,phases,5,5",
        ]);
        let map = "[[row]]\nid='x'\nexperiment='e'\nmetric='accuracy_percent'\npolicy='sandman'\ncompare='value'\n";
        let map = parse(&[("map".to_owned(), map.to_owned())]).unwrap();
        let Check::Quantity(quantity) = map.rows["x"].check.clone() else { panic!("not a quantity") };
        let found = quantity.evaluate(&store, "default", "%").unwrap().estimate;
        // all of 10: from 0.025^(1/10) on
        assert!((found.low - 69.15).abs() < 0.01 && (found.value, found.high) == (100.0, 100.0), "{found:?}");
    }

    #[test]
    fn only_common_replications_are_compared() {
        let mut store = Store::default();
        let line =
            |policy: &str, replication: u32, value: u32| format!("e,-,default,{policy},{replication},1,w,W,{value}\n");
        let of = line("sandman", 0, 10) + &line("sandman", 1, 20) + &line("sandman", 2, 30);
        let versus = line("static", 1, 25) + &line("static", 2, 35) + &line("static", 3, 99);
        let header = "experiment,point,variant,policy,replication,seed,metric,unit,value\n";
        store.add("r.csv", &(header.to_owned() + &of + &versus)).unwrap();
        let found = quantity("compare='difference'\nversus='static'").evaluate(&store, "default", "W").unwrap();
        assert_eq!((found.estimate.low, found.estimate.high, found.estimate.n), (-5.0, -5.0, 2));
    }

    #[test]
    fn extremes_over_a_sweep_have_their_point() {
        let keys = "versus='static'\ncompare='reduction %'\nover=";
        let most = measurement(&format!("{keys}'max'"), &sweep()).unwrap();
        assert_eq!(most.point.to_string(), "rate=10");
        assert!((most.estimate.value - 39.6).abs() < 0.1);
        let least = measurement(&format!("{keys}'min'"), &sweep()).unwrap();
        assert!((least.estimate.value - 10.0).abs() < 1e-9 && least.point.to_string() == "rate=20");
        let mean = measurement("versus='static'\ncompare='ratio'\nover='geomean'", &sweep()).unwrap().estimate;
        let ends = [60.0 / 100.0, 62.0 / 102.0].map(|ratio: f64| (ratio * 0.9).sqrt());
        assert!(
            (ends[0]..=ends[1]).contains(&mean.value) && mean.low < mean.value && mean.value < mean.high,
            "{mean:?}"
        );
        assert!(measurement("compare='value'", &sweep()).unwrap_err().to_string().contains("2 points match"));
    }

    #[test]
    fn a_saturated_policy_has_power_but_no_latency() {
        let latency = |text: &str| format!("e,rate=10,default,{text}");
        let lines = [
            latency("sandman,latency_p99_us,us,50,50,50"),
            latency("static,latency_p99_us,us,90,99,95"),
            latency("static,saturated,1,1,1,1"),
            latency("sandman,w,W,60,60,60"),
            latency("static,w,W,100,100,100"),
            "e,rate=20,default,sandman,latency_p99_us,us,50,50,50".to_owned(),
            "e,rate=20,default,static,latency_p99_us,us,49,50,51".to_owned(),
        ];
        let store = store(&lines.each_ref().map(String::as_str));
        let of = |keys: &str, policy: &str, metric: &str| {
            let text = format!(
                "[[row]]\nid='x'\nexperiment='e'\nmetric='{metric}'\npolicy='{policy}'\npoint='rate=10'\n{keys}\n"
            );
            let map = parse(&[("map".to_owned(), text)]).unwrap();
            let Check::Quantity(quantity) = map.rows["x"].check.clone() else { panic!("not a quantity") };
            quantity.evaluate(&store, "default", "us").unwrap()
        };
        let value = of("compare='value'", "static", "latency_p99_us");
        assert_eq!((value.estimate.low, value.estimate.high), (f64::INFINITY, f64::INFINITY));
        assert_eq!(value.saturated[0].to_string(), "static in e at rate=10 3/3");
        let more = of("compare='increase %'\nversus='sandman'", "static", "latency_p99_us");
        assert_eq!((more.estimate.low, more.saturated.len()), (f64::INFINITY, 1));
        let less = of("compare='reduction %'\nversus='static'", "sandman", "latency_p99_us");
        assert_eq!(less.estimate.value, 100.0);
        let watts = of("compare='reduction %'\nversus='static'", "sandman", "w");
        assert!((watts.estimate.value - 40.0).abs() < 1e-9 && watts.saturated.len() == 1, "{watts:?}");
        let every = of(
            "compare='increase %'\nversus='sandman'\nover='max'\nalso=[{point='rate=20'}]",
            "static",
            "latency_p99_us",
        );
        assert_eq!((every.estimate.value, every.point.to_string().as_str()), (f64::INFINITY, "rate=10"));
    }

    #[test]
    fn another_point_or_experiment_is_compared_with() {
        let store = store(&[
            "e,rate=10,default,sandman,w,W,60",
            "e,rate=20,default,sandman,w,W,90",
            "f,,default,sandman,w,W,30",
        ]);
        let keys = "point='rate=10'\ncompare='difference'\nversus={point='rate=20'}";
        assert_eq!(measurement(keys, &store).unwrap().estimate.value, -30.0);
        let keys = "point='rate=10'\ncompare='value'\nover='min'\nalso=[{experiment='f', point=''}]";
        assert_eq!(measurement(keys, &store).unwrap().estimate.value, 30.0);
    }

    #[test]
    fn units_must_be_those_of_the_claim() {
        let store = store(&["e,,default,sandman,w,kW,2"]);
        assert!(measurement("compare='value'", &store).unwrap_err().to_string().contains("is in kW, not in W"));
        assert_eq!(measurement("compare='value'\nunit='kW'\nfactor=1000.0", &store).unwrap().estimate.value, 2_000.0);
        assert!(measurement("compare='value'\nunit='MW'", &store).unwrap_err().to_string().contains("not in MW"));
    }

    #[test]
    fn errors_name_what_is_missing() {
        let store = store(&["e,,default,sandman,w,W,2", "e,,default,static,v,W,2"]);
        assert_eq!(
            measurement("compare='ratio'\nversus='static'", &store).unwrap_err().to_string(),
            "e has no w of static at its only point (variant default)"
        );
        let absent = measurement("compare='ratio'\nversus={experiment='f', policy='static'}", &store);
        assert_eq!(absent.unwrap_err().to_string(), "no results of f");
    }
}
