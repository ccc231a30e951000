//! Goals and power as text.

use super::format::{line, time};
use std::fmt::Write as _;

use super::report::{BudgetReport, GoalsReport, LimitReport, PolicyReport, PowerReading, PowerReport, ToleranceReport};
use crate::config::{format_budget, format_moment};
use crate::serve::power::{PACKAGES_ONLY, SYSTEM};

/// Entries of the view of a policy that keeps a tolerance: its state, the measured loss, the age of the baseline;
/// whether an absolute bound is below the latency without savings; and whether a budget has precedence.
pub(crate) const TOLERANCE_VIEW: [&str; 5] = ["state", "loss", "baseline_age", "unreachable", "tolerance"];

/// Goals as text; empty if there are none.
pub(crate) fn goals(goals: &GoalsReport, policy: &PolicyReport) -> String {
    let mut out = String::new();
    let budget = goals.budget_uw.map(|uw| ("budget", format_budget(Some(uw))));
    let tolerances = goals.tolerances.iter().map(|one| ("tolerance", tolerance(one)));
    for (name, value) in budget.into_iter().chain(tolerances) {
        let unused = goals.unused.iter().any(|unused| unused == name);
        let unused = if unused { format!("; policy {} does not use it", policy.name) } else { String::new() };
        let gives_way = if goals.gives_way.as_deref() == Some(name) { "; the budget has precedence" } else { "" };
        line(&mut out, name, &format!("{value}{unused}{gives_way}"));
    }
    tolerance_state(policy).iter().for_each(|state| line(&mut out, "tolerance is", state));
    out
}

/// The state of a tolerance ([`TOLERANCE_VIEW`]): `stable, loss 12.3 %, baseline 35 s old`.
pub(crate) fn tolerance_state(policy: &PolicyReport) -> Option<String> {
    let words = [("", ""), ("loss ", ""), ("baseline ", " old"), ("unreachable: ", ""), ("", "")];
    let value = |name: &str| policy.view.iter().find(|seen| seen.name == name).map(|seen| seen.value.as_str());
    let known = TOLERANCE_VIEW.iter().zip(words);
    let text = |(name, (before, after)): (&&str, (&str, &str))| {
        let value = value(name)?;
        Some(format!("{before}{value}{}", if value == "unknown" { "" } else { after }))
    };
    let all: Vec<_> = known.filter_map(text).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// `20%`, or `500us p99 of namespace 1 of NQN`.
pub(crate) fn tolerance(report: &ToleranceReport) -> String {
    match (&report.nqn, report.nsid) {
        (Some(nqn), Some(nsid)) => format!("{} of namespace {nsid} of {nqn}", report.text),
        _ => report.text.clone(),
    }
}

/// How the budget does, on five lines at most.
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
    report.held.iter().for_each(|reason| line(&mut out, "it is held", reason));
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

/// The limit of all budgets.
pub(crate) fn limit(limit: &LimitReport) -> String {
    let [power, then] = [limit.power_uw, limit.then_uw].map(|uw| format_budget(Some(uw)));
    match limit.valid_for_ns {
        Some(ns) => format!("{power} for {}, then {then}", time(ns)),
        None => format!("{power}: no `set budget ... until` is in force"),
    }
}

/// `; the floor is 43.2 W`, where it is known.
pub(crate) fn floor(report: &BudgetReport, from: &str) -> String {
    let floor = report.floor_uw.map(|uw| format!("; the floor is {:.1} W{from}", uw as f64 / 1e6));
    floor.unwrap_or_default()
}

/// A domain as text.
pub(crate) fn domain_name(domain: &str) -> &str {
    if domain == "cpu" { "CPU packages" } else { domain }
}

/// Each reading with its source: `package 0 43.2 W (rapl), 0.3 s ago`.
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
    let mut parts: Vec<String> = power.readings.iter().map(reading).collect();
    if !power.readings.iter().any(|reading| reading.of == SYSTEM) {
        parts.push(PACKAGES_ONLY.to_owned());
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::report::NameAndValue;

    #[test]
    fn a_tolerance_has_its_state_and_yields_to_a_budget() {
        let seen = |name: &str, value: &str| NameAndValue { name: name.to_owned(), value: value.to_owned() };
        let view =
            vec![seen("baseline_age", "35 s"), seen("cores", "3"), seen("state", "stable"), seen("loss", "12 %")];
        let policy = PolicyReport { name: "pacer".to_owned(), parameters: Vec::new(), view };
        let of = |nsid: Option<u32>, text: &str| {
            let nqn = nsid.map(|_| "a".to_owned());
            ToleranceReport { nqn, nsid, text: text.to_owned(), ..ToleranceReport::default() }
        };
        let tolerances = vec![of(None, "20%"), of(Some(7), "500us p99")];
        let gives_way = Some("tolerance".to_owned());
        let report = GoalsReport { budget_uw: Some(300_000_000), tolerances, gives_way, ..GoalsReport::default() };
        let text = goals(&report, &policy);
        for words in [
            "20%; the budget has precedence",
            "500us p99 of namespace 7 of a; the budget",
            "stable, loss 12 %, baseline 35 s old",
        ] {
            assert!(text.contains(words), "no `{words}` in {text}");
        }
        let unknown =
            PolicyReport { view: vec![seen("baseline_age", "unknown"), seen("loss", "unknown")], ..policy.clone() };
        assert_eq!(tolerance_state(&unknown).as_deref(), Some("loss unknown, baseline unknown"));
        let text = goals(&GoalsReport::default(), &PolicyReport { view: Vec::new(), ..policy });
        assert_eq!(text, "");
    }

    #[test]
    fn a_sensor_without_the_server_says_what_a_budget_leaves_out() {
        let reading = |of: &str| PowerReading { of: of.to_owned(), power_uw: Some(1_000_000), age_ns: None };
        let text = |of: &[&str]| {
            let readings = of.iter().map(|of| reading(of)).collect();
            power(&PowerReport { sensor: "rapl".to_owned(), modelled: None, readings })
        };
        assert!(
            text(&["package 0", "package 1"])
                .ends_with("; only the CPU packages: a budget leaves out the drives and caps none of them")
        );
        assert!(!text(&["package 0", "system"]).contains("drives"));
    }

    #[test]
    fn a_budget_has_readings_throttled_knobs_and_the_lowest_power() {
        let sensor = Some("rapl".to_owned());
        let read = BudgetReport {
            power_uw: Some(299_000_000),
            headroom_uw: Some(1_000_000),
            age_ns: Some(300_000_000),
            sensor,
            bottleneck: Some("drives".to_owned()),
            held: Some("by the CPU quota".to_owned()),
            throttled: vec![NameAndValue { name: "bandwidth of host h (priority 1)".into(), value: "4.0 MB/s".into() }],
            ..BudgetReport::default()
        };
        let text = budget(&read, None);
        for words in
            ["299.0 W (rapl, 300 ms ago), headroom 1.0 W", "by the CPU quota", "host h (priority 1) 4.0 MB/s", "drives"]
        {
            assert!(text.contains(words), "no `{words}` in {text}");
        }
        let held = BudgetReport { state: "held".into(), floor_uw: Some(312_340_000), ..BudgetReport::default() };
        assert!(!budget(&held, None).contains("floor"));
        let text = budget(&BudgetReport { state: "unreachable".into(), ..held }, None);
        assert!(text.contains("unreachable; the floor is 312.3 W"), "{text}");
    }
}
