//! Energy by host in the status: a line for each host, and the source of the figures.

use std::collections::BTreeMap;

use super::format::line;
use super::report::{EnergySharesReport, EnergyZoneReport};
use crate::table::printable;

/// Hosts that are listed; of more, those with the most energy. JSON and metrics have all, and namespaces.
const MAX_HOSTS: usize = 16;

/// A line for each zone, and one below for each host.
pub(crate) fn shares(report: &EnergySharesReport) -> String {
    let from = match &report.modelled {
        Some(profile) => format!("modelled, profile {profile}"),
        None => report.sensor.clone(),
    };
    let mut out = String::new();
    for zone in &report.zones {
        let text = format!(
            "{}: {} since the start ({from}); {} of no host (idle energy: {})",
            zone.of,
            joules(zone.energy_uj),
            joules(zone.unassigned_uj),
            report.idle
        );
        line(&mut out, "energy by host", &text);
        by_host(zone)
            .into_iter()
            .take(MAX_HOSTS)
            .for_each(|(host, uj)| line(&mut out, &format!("  {}", joules(uj)), &printable(&host)));
    }
    out
}

/// Hosts with their energy, the most first.
fn by_host(zone: &EnergyZoneReport) -> Vec<(String, u64)> {
    let mut sums = BTreeMap::<&str, u64>::new();
    zone.users.iter().for_each(|user| *sums.entry(&user.host).or_default() += user.energy_uj);
    let mut hosts: Vec<_> = sums.into_iter().map(|(host, uj)| (host.to_owned(), uj)).collect();
    hosts.sort_by_key(|(_, uj)| std::cmp::Reverse(*uj));
    hosts
}

fn joules(uj: u64) -> String {
    format!("{:.3} J", uj as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::report::EnergyUserReport;

    #[test]
    fn each_host_has_its_energy_over_all_namespaces() {
        let user = |host: &str, nsid, energy_uj| EnergyUserReport {
            host: host.to_owned(),
            nqn: "a".to_owned(),
            nsid,
            energy_uj,
        };
        let users =
            vec![user("x", 1, 1_000_000), user("other", 1, 4_500_000), user("x", 2, 2_000_000), user("\x1b[2J", 2, 1)];
        let zone = EnergyZoneReport { of: "package 0".to_owned(), energy_uj: 8_000_000, unassigned_uj: 500_000, users };
        let report = EnergySharesReport {
            sensor: "rapl".to_owned(),
            modelled: None,
            idle: "unassigned".to_owned(),
            zones: vec![zone],
        };
        let text = shares(&report);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(
            lines[0].split_once("  ").unwrap().1.trim(),
            "package 0: 8.000 J since the start (rapl); 0.500 J of no host (idle energy: unassigned)"
        );
        assert!(lines[1].starts_with("4.500 J") && lines[1].ends_with("other"), "{text}");
        assert!(lines[2].starts_with("3.000 J") && lines[2].ends_with('x'), "{text}");
        assert!(text.contains(r"\u{1b}[2J") && !text.contains('\x1b'), "{text}");
        let modelled = EnergySharesReport { modelled: Some("p".to_owned()), ..report };
        assert!(shares(&modelled).contains("(modelled, profile p)"));
    }
}
