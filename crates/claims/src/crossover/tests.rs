//! Crossings of curves, and their verdicts.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::claim::Relation;
use crate::claim::tests::claim;
use crate::claim::{Kind, Printed};
use crate::lab::{Assessment, Lab};
use crate::map;
use crate::results::tests::store;
use crate::verdict;
use crate::verdict::Verdict;

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
fn crossings_within_a_step_are_reproduced_and_within_a_quarter_more_near() {
    // up through 1 between 40 and 80: in the middle on a logarithmic scale, then nearer to either end
    let middle = [0.5, 0.6, 0.8, 1.25, 2.0];
    let found = judged(40.0, &middle);
    assert!((found.ours.unwrap().value - 40.0 * 2.0_f64.sqrt()).abs() < 1e-9, "{:?}", found.ours);
    assert_eq!((found.verdict, found.error_percent), (Verdict::Reproduced, Some(0.0)));
    assert!(found.note.ends_with("where a rises above b"), "{}", found.note);
    for (paper, ratios, expected, error) in [
        (20.0, middle, Verdict::Misses, 50.0),
        (80.0, middle, Verdict::Misses, 50.0),
        (10.0, middle, Verdict::Misses, 150.0),
        (20.0, [0.5, 0.6, 0.8, 3.0, 9.0], Verdict::Size, 100.0 * 0.8_f64.ln() / (0.8_f64 / 3.0).ln()),
        (80.0, [0.5, 0.6, 0.3, 1.25, 9.0], Verdict::Size, 100.0 * 1.25_f64.ln() / (1.25_f64 / 0.3).ln()),
    ] {
        let found = judged(paper, &ratios);
        assert_eq!(found.verdict, expected, "{paper} {ratios:?}");
        assert!((found.error_percent.unwrap() - error).abs() < 1e-9, "{paper} {ratios:?} {:?}", found.error_percent);
    }
}

#[test]
fn disagreeing_replications_make_a_crossing_undecided() {
    let ratios = [0.5, 0.6, 0.8, 1.25, 2.0];
    let with = |noise| assessed(40.0, &curves(&ratios, noise), "crossover=['a', 'b']");
    let narrow = with(0.01);
    assert_eq!(narrow.verdict, Verdict::Reproduced);
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
fn all_crossings_must_be_within_the_step() {
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
fn an_unbounded_curve_is_crossed_within_the_step() {
    let mut lines = curves(&[0.5, 0.5, 0.5, 2.0, 2.0], 0.0);
    lines.extend([80, 160].map(|rate| format!("e,rate={rate},default,a,saturated,1,1,1,1")));
    let found = assessed(40.0, &lines, "crossover=['a', 'b']");
    let ours = found.ours.unwrap();
    assert!((ours.low - 40.0).abs() < 1e-9 && (ours.high - 80.0).abs() < 1e-9, "{ours:?}");
    assert_eq!((found.verdict, found.saturated.len()), (Verdict::Reproduced, 2));
    assert_eq!(assessed(20.0, &lines, "crossover=['a', 'b']").verdict, Verdict::Undecided);
}

#[test]
fn a_family_that_crosses_elsewhere_is_shown_beside_it() {
    let mut lines = curves(&[0.5, 0.6, 0.8, 1.25, 2.0], 0.0);
    let member = |ratios: &[f64]| -> Vec<String> {
        curves(ratios, 0.0).iter().map(|line| line.replace("default", "family:1")).collect()
    };
    let with = |ratios: &[f64]| {
        let all: Vec<String> = lines.iter().cloned().chain(member(ratios)).collect();
        let found = assessed(40.0, &all, "crossover=['a', 'b']");
        (found.verdict, found.robust.unwrap().verdict)
    };
    assert_eq!(with(&[0.5, 0.6, 0.7, 1.25, 2.0]), (Verdict::Reproduced, Verdict::Reproduced));
    assert_eq!(with(&[0.5, 2.0, 2.0, 2.0, 2.0]), (Verdict::Reproduced, Verdict::Undecided));
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
fn crossings_that_cannot_be_computed_are_errors() {
    let lines = curves(&[0.5, 0.6, 0.8, 1.25, 2.0], 0.0);
    let check_error = |paper, lines: &[String], more: &str, part: &str| {
        let found = assessed(paper, lines, more);
        assert!(found.verdict == Verdict::NoResult && found.note.contains(part), "{part}: {}", found.note);
    };
    let both = "crossover=['a', 'b']";
    check_error(160.0, &lines, both, "not both in the sweep");
    check_error(5.0, &lines, both, "not both in the sweep");
    check_error(0.0, &lines, both, "does not print the rate");
    check_error(40.0, &lines[..9], both, "no latency_p99_us of b at rate=160");
    check_error(40.0, &lines, "crossover=['a', 'c']", "of c");
    let zero: Vec<String> = lines.iter().map(|line| line.replace("100,100,100", "100,0,100")).collect();
    check_error(40.0, &zero, both, "is not above 0");
    let twice: Vec<String> = lines.iter().map(|line| line.replace("rate=10,", "bs=4;rate=20,")).collect();
    check_error(40.0, &twice, both, "several points match at one rate");
    let named: Vec<String> = lines.iter().map(|line| line.replace("rate=10,", "rate=fast,")).collect();
    check_error(40.0, &named, both, "rate of rate=fast is no number");
    let refused = |row: &str| {
        let row = format!("[[row]]\nid='x'\nexperiment='e'\nmetric='w'\n{row}\n");
        map::parse(&[("map".to_owned(), row)]).unwrap_err().to_string()
    };
    assert!(refused("crossover=['a', 'b']").contains("along: is missing"));
    assert!(refused("crossover=['a', 'b']\nalong='rate'").contains("step: is missing"));
    assert!(
        refused("crossover=['a', 'b']\nalong='rate'\nstep=1.0").contains("step: is the ratio of the paper's next rate")
    );
    assert!(refused("crossover=['a']\nalong='rate'").contains("row x: a key"));
    assert!(refused("crossover=['a', 'b']\nalong='rate'\nmargin=0.1").contains("margin: does not go with crossover"));
}

proptest! {
    /// Power laws are crossed exactly, whatever the units of curves and rates are, and the opposite order is not reproduced.
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
        prop_assume!([0.0, verdict::SIZE].iter().all(|edge| (error - edge).abs() > 1e-6 || error == 0.0));
        prop_assert_eq!(found.verdict, verdict::Tiers::of_errors((error, error), true).verdict());
        let scaled = assessed(paper * 1000.0, &lines, "crossover=['a', 'b']\nfactor=1000.0");
        prop_assert_eq!(scaled.verdict, found.verdict);
        prop_assert_ne!(assessed(paper, &lines, "crossover=['b', 'a']").verdict, Verdict::Reproduced);
    }
}
