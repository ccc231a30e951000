//! A policy whose commands take longer than its interval: the main core still polls between decisions.

mod support;

#[test]
fn requests_are_served_between_two_late_decisions() {
    let mut scenario = support::scenario(16, 1, 800_000.0, 50_000_000, 1);
    scenario.machine.director.frequency_ns = 4_000;
    let settings = [("interval", "10us"), ("up_threshold", "1%")];
    let outcome = pilotlight_sim::run(&scenario, support::policy("governor", &settings)).expect("it can be run");
    assert!(outcome.decisions.late_ns / outcome.decisions.policy_calls > 5_000, "{:?}", outcome.decisions);
    assert!(!outcome.saturated, "{:?}", outcome.requests);
}
