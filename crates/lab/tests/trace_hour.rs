//! A sampled replay compared with an exact one: `experiments/traces/trace-hour.toml`. CI runs its short form; the
//! whole hour by `cargo test --release -p pilotlight-lab --test trace_hour -- --ignored --nocapture`.

use std::num::NonZeroUsize;
use std::path::Path;

use pilotlight_lab::simulated::experiment::{self, Request};
use pilotlight_lab::simulated::sweep::{self, Sweep};
use pilotlight_lab::simulated::variant::{self, Choice};
use pilotlight_lab::stored::values::Results;

fn run(smoke: bool) -> (Results, Vec<String>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/traces/trace-hour.toml");
    let request = Request { smoke, repeats: Some(1), ..Request::default() };
    let bench = experiment::load(&path, &request).unwrap();
    let variants = variant::variants(&bench.machine.calibration, &Choice::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let workers = NonZeroUsize::new(2).unwrap();
    let watcher = |done: &sweep::Progress<'_>| println!("{}/{} {:?}", done.finished, done.of, done.run);
    let sweep = Sweep::new(&bench, &variants);
    let results = sweep.run(&folder.path().join("results.csv"), workers, &sweep::simulator, &watcher).unwrap();
    let policies = bench.experiment.policies.iter().map(|policy| policy.label.clone()).collect();
    (results, policies)
}

/// Relative difference of the sampled from the exact energy, by policy. The exact energy must be in the sample's interval, widened by
/// `slack` times the exact energy.
fn differences(smoke: bool, slack: f64) -> Vec<(String, f64)> {
    let (results, policies) = run(smoke);
    let of = |policy: &str, replay: &str, metric: &str| {
        let point = format!("replay={replay}");
        let run = results.runs.iter().find(|(key, _)| key.policy == policy && key.point == point).unwrap().1;
        run.get(metric).unwrap()
    };
    let compare = |policy: String| {
        let sampled = |metric: &str| of(&policy, "sampled", metric);
        let exact = of(&policy, "exact", "joules_per_day");
        assert_eq!(of(&policy, "exact", "replayed_share"), 1.0);
        assert!(sampled("replayed_share") < 0.5);
        let (low, high) = (sampled("joules_per_day_low"), sampled("joules_per_day_high"));
        let estimate = sampled("joules_per_day");
        println!("{policy}: exact {exact:.0} J a day, sampled {estimate:.0} ({low:.0} to {high:.0})");
        assert!(low - slack * exact <= exact && exact <= high + slack * exact, "{policy}");
        (policy, estimate / exact - 1.0)
    };
    policies.into_iter().map(compare).collect()
}

#[test]
fn a_short_sampled_replay_matches_the_exact_one() {
    for (policy, difference) in differences(true, 0.02) {
        assert!(difference.abs() < 0.03, "{policy}: {difference}"); // 10 windows of 30; the hour has more
    }
}

#[test]
#[ignore = "replays an hour exactly: minutes in a release build"]
fn a_sampled_hour_is_within_1_percent() {
    for (policy, difference) in differences(false, 0.005) {
        assert!(difference.abs() < 0.01, "{policy}: {difference}");
    }
}
