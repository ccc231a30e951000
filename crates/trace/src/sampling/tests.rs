//! Estimates compared with the true totals of synthetic days.

use super::*;
use crate::random::Stream;
use proptest::prelude::{prop_assert, prop_assert_eq, proptest};
use statrs::distribution::{ContinuousCDF as _, StudentsT};

fn student(degrees_of_freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, degrees_of_freedom).unwrap().inverse_cdf(0.975)
}

/// A day of 10 s windows: varying load with bursts, and joules that grow sublinearly with load, with proportional noise.
fn day(seed: u64) -> (Vec<u64>, Vec<f64>) {
    let mut stream = Stream::new(seed, 7, 0);
    let mut normal = move || (0..12).map(|_| stream.unit()).sum::<f64>() - 6.0;
    let mut level = 0.0;
    let load = |window: usize| {
        level = 0.98 * level + 0.08 * normal();
        let burst = if window % 173 == 50 { 6.0 } else { 1.0 };
        (20_000.0 * burst * f64::exp(level)) as u64
    };
    let loads: Vec<u64> = (0..8640).map(load).collect();
    let mut noise = Stream::new(seed, 8, 0);
    let joules = |&load: &u64| 1500.0 + 40.0 * (load as f64).powf(0.4) * (0.9 + 0.2 * noise.unit());
    let joules = loads.iter().map(joules).collect();
    (loads, joules)
}

#[test]
fn the_95_percent_interval_contains_the_truth_in_95_percent_of_draws() {
    let (loads, joules) = day(1);
    let truth: f64 = joules.iter().sum();
    let rule = Rule { draws: 60, ..Rule::default() };
    let (mut held, mut sum, mut width) = (0, 0.0, 0.0);
    let runs = 2000;
    for seed in 0..runs {
        let plan = Plan::new(&loads, &rule, seed).unwrap();
        let estimate = plan.estimate(|window| joules.get(window).copied(), student).unwrap();
        held += u64::from((estimate.low..=estimate.high).contains(&truth));
        sum += estimate.total / truth;
        width += (estimate.high - estimate.low) / truth;
    }
    let share = held as f64 / runs as f64;
    println!("held in {share}, mean {}, width {}", sum / runs as f64, width / runs as f64);
    assert!((0.93..=0.975).contains(&share), "{share}"); // binomial deviation 0.005
    assert!((sum / runs as f64 - 1.0).abs() < 0.0005, "unbiased: {}", sum / runs as f64);
    assert!(width / (runs as f64) < 0.03, "60 of about 8,500 windows give the total within 1.5 %");
}

#[test]
fn windows_in_and_beside_bursts_are_exact() {
    let mut loads = vec![100; 200];
    loads[90..92].fill(500);
    let plan = Plan::new(&loads, &Rule { guard: 2, ..Rule::default() }, 1).unwrap();
    assert_eq!(plan.exact, [88, 89, 90, 91, 92, 93]);
    assert!(plan.strata.iter().flat_map(|stratum| &stratum.drawn).all(|window| !plan.exact.contains(window)));
    assert_eq!(plan, Plan::new(&loads, &Rule { guard: 2, ..Rule::default() }, 1).unwrap());
}

#[test]
fn too_many_bursts_form_strata() {
    let (loads, joules) = day(2);
    let truth: f64 = joules.iter().sum();
    let rule = Rule { draws: 60, max_exact: 10, ..Rule::default() };
    let bursts = Plan::new(&loads, &Rule { max_exact: usize::MAX, ..rule }, 1).unwrap().exact;
    assert!(bursts.len() > 100);
    let (mut held, mut sum) = (0, 0.0);
    for seed in 0..500 {
        let plan = Plan::new(&loads, &rule, seed).unwrap();
        assert!(plan.exact.is_empty() && plan.windows().len() == 60);
        let quiet = plan.strata.iter().take(8).flat_map(|stratum| &stratum.drawn);
        assert!(plan.strata.len() == 12 && quiet.into_iter().all(|window| !bursts.contains(window)));
        let weights: f64 = plan.windows().into_iter().map(|window| plan.weight(window)).sum();
        assert!((weights - loads.len() as f64).abs() < 1e-6, "{weights}");
        let estimate = plan.estimate(|window| joules.get(window).copied(), student).unwrap();
        held += u32::from((estimate.low..=estimate.high).contains(&truth));
        sum += estimate.total / truth;
    }
    assert!(held > 450 && (sum / 500.0 - 1.0).abs() < 0.002, "{held} {}", sum / 500.0);
}

#[test]
fn a_whole_plan_measures_everything() {
    let plan = Plan::whole(5);
    assert_eq!((plan.windows(), plan.weight(4), plan.weight(5)), (vec![0, 1, 2, 3, 4], 1.0, 0.0));
    let estimate = plan.estimate(|window| Some(window as f64), student).unwrap();
    assert_eq!((estimate.total, estimate.low, estimate.high), (10.0, 10.0, 10.0));
}

#[test]
fn a_window_without_a_measurement_is_an_error() {
    let plan = Plan::new(&[1, 2, 3, 4], &Rule::default(), 1).unwrap();
    let missing = plan.windows()[1];
    assert_eq!(plan.estimate(|window| (window != missing).then_some(1.0), student), Err(Unmeasured(missing)));
    assert_eq!(Plan::new(&[1, 2], &Rule { draws: 1, ..Rule::default() }, 1), Err(PlanError::TooFewDraws));
}

#[test]
fn loads_are_counts_by_window() {
    let request = |at_ns| Request { at_ns, volume: 0, op: crate::Op::Read, offset: 0, bytes: 1 };
    let loads = Loads::from_requests([0, 5, 9, 10, 35].into_iter().map(request), 10).unwrap();
    assert_eq!(loads.requests, [3, 1, 0, 1]);
    assert!(Loads::from_requests([u64::MAX].into_iter().map(request), 10).is_err());
}

proptest! {
    #[test]
    fn plans_draw_the_requested_number_and_complete_plans_are_exact(
        loads in proptest::collection::vec(0_u64..1000, 0..120), draws in 2_usize..200, strata in 1_usize..20, seed: u64,
    ) {
        let rule = Rule { draws, strata, ..Rule::default() };
        let plan = Plan::new(&loads, &rule, seed).unwrap();
        let drawn: usize = plan.strata.iter().map(|stratum| stratum.drawn.len()).sum();
        let rest: usize = plan.strata.iter().map(|stratum| stratum.windows).sum();
        prop_assert_eq!(rest + plan.exact.len(), loads.len());
        prop_assert_eq!(drawn, draws.min(rest));
        prop_assert_eq!(plan.windows().len(), drawn + plan.exact.len());
        prop_assert!(plan.strata.iter().all(|stratum| stratum.drawn.len() >= stratum.windows.min(2)));
        let estimate = plan.estimate(|window| loads.get(window).map(|&load| load as f64), student).unwrap();
        let truth = loads.iter().sum::<u64>() as f64;
        prop_assert!(estimate.low <= estimate.total && estimate.total <= estimate.high);
        if drawn == rest {
            prop_assert!((estimate.total - truth).abs() < 1e-6 && estimate.high - estimate.low < 1e-6);
        }
    }
}
