//! The time between two polls of an I/O thread follows from the machine's costs.

mod support;

use pilotlight_plant::Topology;
use pilotlight_sim::run_polls;
use pilotlight_sim::scenario::{Scenario, Workload};

const MS: u64 = 1_000_000;

/// No requests; two I/O threads per core, three drives, no siblings.
fn idle() -> Scenario {
    let topology = Topology::flat(4).unwrap();
    let mut scenario = support::scenario(4, 3, 0.0, 20 * MS, 1);
    scenario.machine.speed.sibling_gain_ppm = 0; // without it, costs equal the machine's to the nanosecond
    Scenario { topology, threads: 8, workload: Workload::default(), warm_up_ns: 5 * MS, series_ns: 5 * MS, ..scenario }
}

#[test]
fn an_idle_loop_costs_a_fixed_part_and_a_step_per_thread() {
    let (_, intervals) = run_polls(&idle(), support::policy("static", &[])).unwrap();
    let poll = support::machine().poll;
    let step_ns = u64::from(poll.thread_ns + 3 * poll.queue_ns);
    let loop_ns = u64::from(poll.loop_ns) + 2 * step_ns;
    assert_eq!((intervals.mean(), intervals.quantile(0.99)), (loop_ns as f64, loop_ns));
    let expected = 8.0 * 15.0 * MS as f64 / loop_ns as f64;
    assert!((intervals.count() as f64 / expected - 1.0).abs() < 0.01, "{} for {expected}", intervals.count());
}

#[test]
fn measuring_changes_nothing_that_happens() {
    for scenario in [idle(), support::scenario(4, 3, 100_000.0, 20 * MS, 1)] {
        for policy in [("static", &[][..]), ("dynamic", &[("interval", "50us")])] {
            let policy = || support::policy(policy.0, policy.1);
            let plain = pilotlight_sim::run(&scenario, policy()).unwrap();
            let (measured, _) = run_polls(&scenario, policy()).unwrap();
            assert_eq!(measured, plain);
        }
    }
}
