//! Goals and power for people.

use super::render::{line, time};
use super::report::{GoalsReport, PowerReading, PowerReport};
use crate::config::{format_budget, format_tolerance};

/// What is asked of the policy; nothing where nothing is.
pub(crate) fn goals(goals: &GoalsReport, policy: &str) -> String {
    let mut out = String::new();
    let set = [
        ("budget", goals.budget_uw.map(|uw| format_budget(Some(uw)))),
        ("tolerance", goals.tolerance_ppm.map(|ppm| format_tolerance(Some(ppm)))),
    ];
    for (name, value) in set {
        let Some(value) = value else { continue };
        let unused = goals.unused.iter().any(|unused| unused == name);
        let unused = if unused { format!("; policy {policy} does not use it") } else { String::new() };
        let floor = goals.floor_uw.filter(|_| name == "budget").map_or(String::new(), |uw| {
            format!("; unreachable: {:.1} W with everything at its lowest", uw as f64 / 1e6)
        });
        line(&mut out, name, &format!("{value}{unused}{floor}"));
    }
    out
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

    #[test]
    fn a_budget_out_of_reach_names_the_floor() {
        let budget = GoalsReport { budget_uw: Some(300_000_000), ..GoalsReport::default() };
        assert!(!goals(&budget, "pass").contains("unreachable"));
        let unreachable = GoalsReport { floor_uw: Some(312_340_000), ..budget };
        let text = goals(&unreachable, "pass");
        assert!(text.contains("unreachable: 312.3 W with everything at its lowest"), "{text}");
    }
}
