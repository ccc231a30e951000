//! Precedence of overrides, schedule and configuration.

use pilotlight_plant::Tolerance;

use super::*;
use crate::config::parse_tolerance;

const W: u64 = 1_000_000;

fn configured(schedule: Option<&str>) -> Configured {
    let goals = Goals { budget_uw: Some(400 * W), ..Goals::default() };
    Configured {
        goals,
        priorities: Vec::new(),
        tolerances: Vec::new(),
        domain: None,
        schedule: schedule.map(|text| Schedule::parse(text).unwrap()),
        limit_uw: None,
    }
}

fn overrides(budget_uw: Option<u64>, until_s: Option<u64>) -> GoalOverrides {
    GoalOverrides { budget: Some(BudgetOverride { budget_uw, until_s }), ..GoalOverrides::default() }
}

#[test]
fn manual_goals_override_schedule_and_configuration() {
    let configured = configured(Some("1970-01-01T00:01Z 300W\n1970-01-01T00:02Z default\n1970-01-01T00:03Z off"));
    let at = |now_s| configured.budget(&GoalOverrides::default(), now_s);
    let conf = |until_s| InForce { budget_uw: Some(400 * W), origin: Origin::Configuration, until_s };
    assert_eq!(at(0), conf(Some(60)));
    assert_eq!(at(60), InForce { budget_uw: Some(300 * W), origin: Origin::Schedule, until_s: Some(120) });
    assert_eq!(at(120), conf(Some(180)));
    assert_eq!(at(180), InForce { budget_uw: None, origin: Origin::Schedule, until_s: None });
    let hand = |hand: &GoalOverrides, now_s| configured.budget(hand, now_s);
    let limited = overrides(Some(200 * W), Some(100));
    assert_eq!(hand(&limited, 99), InForce { budget_uw: Some(200 * W), origin: Origin::Manual, until_s: Some(100) });
    assert_eq!(hand(&limited, 100), at(100), "it has ended");
    assert_eq!(hand(&overrides(None, None), 0), InForce { budget_uw: None, origin: Origin::Manual, until_s: None });
}

#[test]
fn an_expired_budget_is_dropped_once() {
    let mut hand = overrides(Some(W), Some(100));
    assert!(!hand.expire(99) && hand.budget.is_some());
    assert!(hand.expire(100) && hand == GoalOverrides::default());
    assert!(!hand.expire(101));
}

#[test]
fn manual_priorities_and_minimums_override_the_configuration() {
    let host = |name: &str| Capped::Host { nqn: name.to_owned() };
    let goals = Goals { minimums: vec![(5, 100), (6, 200)], ..Goals::default() };
    let priorities = vec![(host("a"), 5), (host("b"), 6)];
    let configured = Configured { goals, priorities, ..Configured::default() };
    let named = |name: &str| Named::from(host(name));
    let priorities = vec![(named("a"), Some(1)), (named("b"), None), (named("c"), Some(9))];
    let hand = GoalOverrides { priorities, minimums: vec![(5, None), (7, Some(300))], ..GoalOverrides::default() };
    assert_eq!(configured.priorities(&hand), [(host("a"), 1), (host("c"), 9)]);
    assert_eq!(configured.goals(&hand, 0).minimums, [(6, 200), (7, 300)]);
    assert_eq!(configured.priorities(&GoalOverrides::default()), configured.priorities);
}

#[test]
fn a_manual_tolerance_of_off_is_kept() {
    let bound = |text: &str| parse_tolerance(text).unwrap();
    let goals = Goals { tolerances: vec![Tolerance::mean_loss(7)], ..Goals::default() };
    let configured = Configured { goals, ..Configured::default() };
    let tolerances = |overrides: Option<&str>| {
        let tolerances = overrides.map(|text| (None, bound(text))).into_iter().collect();
        configured.goals(&GoalOverrides { tolerances, ..GoalOverrides::default() }, 0).tolerances
    };
    let (before, after) = (Tolerance::mean_loss(7), bound("500us p99").unwrap().in_scope(Scope::Server));
    assert_eq!([None, Some("off"), Some("500us p99")].map(tolerances), [vec![before], vec![], vec![after]]);
    let namespace = |nsid| Capped::Namespace { nqn: "a".to_owned(), nsid };
    let configured = Configured { tolerances: vec![(namespace(1), bound("20%").unwrap())], ..configured };
    let tolerances = vec![(None, None), (Some(namespace(1).into()), None), (Some(namespace(2).into()), bound("1ms"))];
    let overrides = GoalOverrides { tolerances, ..GoalOverrides::default() };
    assert_eq!(configured.tolerances(&overrides), [(namespace(2), bound("1ms").unwrap())]);
    assert_eq!(configured.tolerances(&GoalOverrides::default()), configured.tolerances);
}

#[test]
fn the_limit_is_an_upper_bound_of_any_budget() {
    let limited = |own: Configured, limit_uw| Configured { limit_uw: Some(limit_uw * W), ..own };
    let in_force = |configured: &Configured, overrides: &GoalOverrides| {
        let budget = configured.budget(overrides, 0);
        (budget.budget_uw.map(|uw| uw / W), budget.origin)
    };
    let none = GoalOverrides::default();
    assert_eq!(in_force(&limited(configured(None), 300), &none), (Some(300), Origin::Limit));
    assert_eq!(in_force(&limited(configured(None), 500), &none), (Some(400), Origin::Configuration));
    assert_eq!(in_force(&limited(Configured::default(), 500), &none), (Some(500), Origin::Limit));
    assert_eq!(in_force(&limited(configured(None), 300), &overrides(None, None)), (Some(300), Origin::Limit), "off");
    assert_eq!(in_force(&limited(configured(None), 300), &overrides(Some(200 * W), None)), (Some(200), Origin::Manual));
    assert!(limited(Configured::default(), 500).has_budget());
}
