//! Goals and power for people.

use super::render::{line, time};
use std::fmt::Write as _;

use super::report::{BudgetReport, GoalsReport, PowerReading, PowerReport, ToleranceReport};
use crate::config::{format_budget, format_moment};

/// What is asked of the policy; nothing where nothing is.
pub(crate) fn goals(goals: &GoalsReport, policy: &str) -> String {
    let mut out = String::new();
    let budget = goals.budget_uw.map(|uw| ("budget", format_budget(Some(uw))));
    let tolerances = goals.tolerances.iter().map(|one| ("tolerance", tolerance(one)));
    for (name, value) in budget.into_iter().chain(tolerances) {
        let unused = goals.unused.iter().any(|unused| unused == name);
        let unused = if unused { format!("; policy {policy} does not use it") } else { String::new() };
        line(&mut out, name, &format!("{value}{unused}"));
    }
    out
}

/// `20%`, or `500us p99 of namespace 1 of NQN`.
pub(crate) fn tolerance(report: &ToleranceReport) -> String {
    match (&report.nqn, report.nsid) {
        (Some(nqn), Some(nsid)) => format!("{} of namespace {nsid} of {nqn}", report.text),
        _ => report.text.clone(),
    }
}

/// How the budget does, on four lines at most.
pub(crate) fn budget(report: &BudgetReport, power: Option<&PowerReport>) -> String {
    let from = power.and_then(|power| power.modelled.as_ref()).map_or("", |_| " (modelled)");
    let mut out = String::new();
    let mut state = report.state.clone();
    if let (Some(uw), Some(headroom_uw)) = (report.power_uw, report.headroom_uw) {
        let (watts, headroom) = (uw as f64 / 1e6, headroom_uw as f64 / 1e6);
        let domain = domain_name(&report.domain);
        let age = report.age_ns.map_or(String::new(), |ns| format!(", {} ago", time(ns)));
        let read = report.sensor.as_ref().map_or(from.to_owned(), |sensor| format!(" ({sensor}{age})"));
        let _ = write!(state, "; {domain} {watts:.1} W{read}, headroom {headroom:.1} W");
    }
    if report.state == "unreachable" {
        state += &floor(report, from);
    }
    if let Some(uw) = report.withdrawn_uw {
        let _ = write!(state, "; {} was unreachable and is taken back", format_budget(Some(uw)));
    }
    line(&mut out, "budget is", &state);
    let mut source = report.origin.clone();
    if let Some(until_s) = report.until_unix_s {
        let _ = write!(source, " until {}", format_moment(until_s));
    }
    if let Some(next) = &report.next {
        let _ = write!(source, "; next in the schedule: {} from {}", next.budget, format_moment(next.at_unix_s));
    }
    line(&mut out, "budget from", &source);
    let all: Vec<String> = report.throttled.iter().map(|knob| format!("{} {}", knob.name, knob.value)).collect();
    line(&mut out, "throttled", &if all.is_empty() { "nothing".to_owned() } else { all.join(", ") });
    report.bottleneck.iter().for_each(|component| line(&mut out, "bottleneck", component));
    out
}

/// `; the floor is 43.2 W`, where it is known.
pub(crate) fn floor(report: &BudgetReport, from: &str) -> String {
    let floor = report.floor_uw.map(|uw| format!("; the floor is {:.1} W{from}", uw as f64 / 1e6));
    floor.unwrap_or_default()
}

/// What a budget is of, in words.
pub(crate) fn domain_name(domain: &str) -> &str {
    if domain == "cpu" { "CPU packages" } else { domain }
}

/// Each reading, and what it is from: `package 0 43.2 W (rapl), 0.3 s ago`.
pub(crate) fn power(power: &PowerReport) -> String {
    let from = match &power.modelled {
        Some(profile) => format!("modelled, profile {profile}"),
        None => power.sensor.clone(),
    };
    let reading = |reading: &PowerReading| {
        let (of, age) = (&reading.of, reading.age_ns.map_or(String::new(), |ns| format!(", {} ago", time(ns))));
        match reading.power_uw {
            Some(uw) => format!("{of} {:.1} W ({from}){age}", uw as f64 / 1e6),
            None => format!("{of} unknown ({from}){age}"),
        }
    };
    power.readings.iter().map(reading).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::report::NameAndValue;

    #[test]
    fn a_budget_says_what_is_read_and_throttled_and_names_the_floor_where_it_is_out_of_reach() {
        let sensor = Some("rapl".to_owned());
        let read = BudgetReport {
            power_uw: Some(299_000_000),
            headroom_uw: Some(1_000_000),
            age_ns: Some(300_000_000),
            sensor,
            bottleneck: Some("drives".to_owned()),
            throttled: vec![NameAndValue { name: "bandwidth of host h (priority 1)".into(), value: "4.0 MB/s".into() }],
            ..BudgetReport::default()
        };
        let text = budget(&read, None);
        for words in ["299.0 W (rapl, 300 ms ago), headroom 1.0 W", "host h (priority 1) 4.0 MB/s", "drives"] {
            assert!(text.contains(words), "no `{words}` in {text}");
        }
        let held = BudgetReport { state: "held".into(), floor_uw: Some(312_340_000), ..BudgetReport::default() };
        assert!(!budget(&held, None).contains("floor"));
        let text = budget(&BudgetReport { state: "unreachable".into(), ..held }, None);
        assert!(text.contains("unreachable; the floor is 312.3 W"), "{text}");
    }
}
