//! A power budget around `sandman`: its limits are ceilings, so that `sandman`'s savings remain.

mod support;

use pilotlight_plant::{Goals, Policy};
use pilotlight_sim::machine::Limits;
use pilotlight_sim::outcome::Outcome;
use pilotlight_sim::run;
use pilotlight_sim::scenario::{Scenario, Sensors};

const MS: u64 = 1_000_000;

/// `sandman` and `pass` decide ten times as often as by default, so that they settle within seconds.
const SANDMAN: [(&str, &str); 1] = [("coarse_interval", "100ms")];
const PASS: [(&str, &str); 4] =
    [("inner", "sandman"), ("inner_coarse_interval", "100ms"), ("interval", "100ms"), ("sample_interval", "10ms")];

/// Requests per second.
const RATE: f64 = 1_200_000.0;

/// A load on eight cores of which `sandman` serves [`RATE`] with three.
fn scenario(rate: f64, budget_w: Option<u64>) -> Scenario {
    let mut scenario = support::scenario(8, 2, rate, 1_600 * MS, 1);
    scenario.warm_up_ns = 1_000 * MS;
    scenario.series_ns = 100 * MS;
    scenario.sensors = Sensors { window_ns: 100 * MS, lag_ns: 10 * MS, ..Sensors::default() };
    scenario.machine.limits = Limits { quota_period_ns: 10 * MS, quota_slice_ns: MS, ..Limits::default() };
    let budget_uw = budget_w.map(|watts| watts * 1_000_000);
    scenario.goals = vec![(0, Goals { budget_uw, ..Goals::default() })];
    scenario
}

struct Run {
    power_w: f64,
    outcome: Outcome,
}

fn ran(rate: f64, policy: Box<dyn Policy>, budget_w: Option<u64>) -> Run {
    let outcome = run(&scenario(rate, budget_w), policy).unwrap();
    Run { power_w: outcome.energy.system_uj() as f64 / 1e6 / (outcome.measured_ns as f64 / 1e9), outcome }
}

impl Run {
    fn p99_us(&self) -> f64 {
        self.outcome.latency[0].1.quantile(0.99) as f64 / 1e3
    }
}

#[test]
fn a_loose_budget_costs_no_savings_and_a_tight_one_is_held() {
    let polling = ran(RATE, support::policy("static", &[]), None);
    let alone = ran(RATE, support::policy("sandman", &SANDMAN), None);
    assert!(alone.power_w < polling.power_w - 20.0, "{} W of {} W", alone.power_w, polling.power_w);

    let generous = ran(RATE, support::policy("pass", &PASS), Some(alone.power_w as u64 + 10));
    assert!(generous.power_w < 1.005 * alone.power_w, "{} W of {} W", generous.power_w, alone.power_w);
    assert!(generous.p99_us() < 1.1 * alone.p99_us(), "{} us of {} us", generous.p99_us(), alone.p99_us());

    let tight_w = alone.power_w as u64 - 20;
    let tight = ran(RATE, support::policy("pass", &PASS), Some(tight_w));
    let share = tight.power_w / tight_w as f64;
    assert!((0.98..1.005).contains(&share), "{} W of {tight_w} W: {:?}", tight.power_w, tight.outcome.view);
}

/// Figure 11's baselines: RAPL and Thunderbolt around the dynamic scheduler.
#[test]
fn baselines_hold_a_budget_around_the_dynamic_scheduler() {
    const INNER: [(&str, &str); 3] = [("inner", "dynamic"), ("inner_interval", "1ms"), ("interval", "100ms")];
    let alone = ran(RATE, support::policy("dynamic", &[("interval", "1ms")]), None);
    let budget_w = alone.power_w as u64 - 10;
    for name in ["rapl-only", "thunderbolt"] {
        let under = ran(RATE, support::policy(name, &INNER), Some(budget_w));
        assert!(under.power_w < budget_w as f64, "{name}: {} W of {budget_w} W", under.power_w);
        assert!(under.outcome.requests.answered > 0);
    }
}
