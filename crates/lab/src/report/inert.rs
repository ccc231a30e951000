//! Varied parameters without an effect on any metric.

use std::collections::BTreeMap;

use pilotlight_stats::inert::{self, Inert, Measured};

use super::knobs::varied;
use crate::results::summary::{PointResult, Results};

/// The varied parameters without effect, with their values.
#[must_use]
pub fn inert(results: &Results) -> Vec<Inert> {
    let known = varied(results);
    let measured: Vec<Measured> = results.points.iter().filter(|point| point.repeats > 0).map(measured).collect();
    known.iter().filter_map(|(parameter, _)| inert::inert(parameter, &measured, false)).collect()
}

fn measured(point: &PointResult) -> Measured {
    let at: BTreeMap<String, String> =
        point.knobs.iter().map(|(name, value)| (name.clone(), value.to_string())).collect();
    let metrics = point.values.iter().map(|(key, spread)| (key.clone(), spread.values.clone())).collect();
    Measured { at, metrics }
}

#[cfg(test)]
mod tests {
    use pilotlight_stats::inert::Effect;

    use super::*;
    use crate::results::summary::Spread;
    use pilotlight_workloads::{Point, Value};

    /// Three repeats of each block size and depth, with these rates.
    fn results(rate: impl Fn(i64, i64) -> f64) -> Results {
        let point = |bs: i64, depth: i64| PointResult {
            knobs: Point::from([
                ("bs".into(), Value::Integer(bs)),
                ("iodepth".into(), Value::Integer(depth)),
                ("rw".into(), Value::Integer(1)),
            ]),
            repeats: 3,
            values: BTreeMap::from([("iops".into(), Spread::new(&[rate(bs, depth); 3]).unwrap())]),
            ..PointResult::default()
        };
        let points = [(4, 1), (4, 16), (64, 1), (64, 16)].map(|(bs, depth)| point(bs, depth)).to_vec();
        Results { knobs: ["bs", "iodepth", "rw"].map(str::to_owned).to_vec(), points, ..Results::default() }
    }

    #[test]
    fn a_varied_knob_without_effect_is_found() {
        let found = inert(&results(|bs, _| bs as f64));
        let [one] = &found[..] else { panic!("{found:?}") };
        assert_eq!(
            (one.parameter.as_str(), one.values.as_slice()),
            ("iodepth", &["1".to_owned(), "16".to_owned()][..])
        );
        assert_eq!(one.effect, Effect::Identical);
        assert_eq!(inert(&results(|bs, depth| (bs + depth) as f64)), []);
    }

    #[test]
    fn points_without_measurements_are_ignored() {
        let mut results = results(|bs, _| bs as f64);
        results
            .points
            .iter_mut()
            .filter(|point| point.knobs["iodepth"] == Value::Integer(16))
            .for_each(|point| point.repeats = 0);
        assert_eq!(inert(&results), []);
    }
}
