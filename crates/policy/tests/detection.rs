//! A short version of the experiment in examples/detection, with loose bounds, for the claims of src/sandman/README.md about the printed rule
//! and the recommended guards.

#[path = "../examples/detection/experiment.rs"]
#[allow(dead_code)]
mod experiment;
#[path = "../examples/detection/workload.rs"]
#[allow(dead_code)]
mod workload;

use experiment::{Burst, Lateness, Setting, Stable, Steady, bursts, stable};
use workload::{Place, Shape};

fn settings() -> [Setting; 4] {
    [
        Setting::new("printed", &[("spread", "forecast")]),
        Setting::new("deviation", &[("spread", "deviation")]),
        Setting::new("recommended", &[("guards", "recommended")]),
        Setting::new("error", &[]),
    ]
}

fn right_per_thread_tick(result: &Stable) -> f64 {
    100.0 - 100.0 * result.moves as f64 / result.thread_ticks as f64
}

#[test]
fn steady_load() {
    for (shape, lateness) in
        [(Shape::Poisson, Lateness::Never), (Shape::Paced, Lateness::Never), (Shape::Poisson, Lateness::Stalls)]
    {
        for iops in [10_000.0, 320_000.0, 900_000.0, 10_240_000.0] {
            let results = stable(&Steady { shape, iops, lateness }, &settings(), 2, 3_000, 7);
            let recommended = results[2];
            assert_eq!(recommended.runs, 2);
            assert_eq!(recommended.moves, 0, "{shape:?} {lateness:?} {iops}: {recommended:?}");
        }
    }
}

#[test]
fn accuracy_of_each_spread() {
    let load = Steady { shape: Shape::Poisson, iops: 10_240_000.0, lateness: Lateness::Never };
    let results = stable(&load, &settings(), 1, 5_000, 7);
    let [printed, deviation, _, error] = [0, 1, 2, 3].map(|setting| right_per_thread_tick(&results[setting]));
    assert!((93.0..97.0).contains(&printed), "{printed}");
    assert!((93.0..97.0).contains(&deviation), "{deviation}");
    assert!((60.0..72.0).contains(&error), "{error}");
}

const BURSTS: [(Place, usize, bool); 7] = [
    (Place::Main, 1, false),
    (Place::Main, 4, false),
    (Place::Main, 48, false),
    (Place::Worker, 2, false),
    (Place::Worker, 16, false),
    (Place::Main, 4, true),
    (Place::Main, 48, true),
];

#[test]
fn the_recommended_guards_find_bursts() {
    for shape in [Shape::Poisson, Shape::Paced] {
        for (place, active, from_sleep) in BURSTS {
            let burst = Burst { shape, active, place, from_sleep };
            let [_, _, found, _] = bursts(&burst, &settings(), 10, 7)[..] else { panic!() };
            let case = format!("{shape:?}, {active} threads on {place:?}, slept: {from_sleep}: {found:?}");
            assert_eq!(found.by_chance.bursts, 0, "{case}");
            assert_eq!(found.late.bursts, found.bursts, "{case}");
            assert!(found.late.threads * 100 >= found.threads * 70, "{case}");
            assert!(active > 4 || found.soon.threads * 100 >= found.threads * 90, "{case}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_result() {
    let load = Steady { shape: Shape::Poisson, iops: 640_000.0, lateness: Lateness::Never };
    let moves = |seed| stable(&load, &settings(), 1, 500, seed).iter().map(|result| result.moves).collect::<Vec<_>>();
    assert_eq!(moves(3), moves(3));
    assert_ne!(moves(3), moves(4));
}
