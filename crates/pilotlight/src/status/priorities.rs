//! Priorities as text.

use super::format::line;
use super::report::{MinimumReport, PrioritiesReport, PriorityReport};
use crate::config::format_cap;
use crate::table::printable;

/// A line for the priorities and one for the minimums; nothing where nothing is named.
pub(crate) fn priorities(report: &PrioritiesReport) -> String {
    let mut out = String::new();
    let unused = if report.unused { "; the active policy does not use them" } else { "" };
    let named: Vec<String> = report.named.iter().map(priority).collect();
    if !named.is_empty() {
        line(&mut out, "priorities", &format!("{}; others none{unused}", named.join(", ")));
    }
    let minimums: Vec<String> = report.minimums.iter().map(minimum).collect();
    if !minimums.is_empty() {
        line(&mut out, "minimums", &format!("{}{unused}", minimums.join(", ")));
    }
    out
}

fn priority(report: &PriorityReport) -> String {
    let of = match (&report.host, &report.nqn, report.nsid) {
        (Some(host), ..) => format!("host {}", printable(host)),
        (_, Some(nqn), Some(nsid)) => format!("namespace {nsid} of {nqn}"),
        _ => "unknown".to_owned(),
    };
    let manual = if report.manual { " (manual)" } else { "" };
    format!("{of} {}{manual}", report.priority)
}

fn minimum(report: &MinimumReport) -> String {
    format!("priority {} {}", report.priority, format_cap(Some(report.bytes_per_s)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_are_named_with_what_has_them() {
        let namespace = PriorityReport {
            nqn: Some("nqn.2024-05.com.example:disks".to_owned()),
            nsid: Some(7),
            priority: 5,
            manual: true,
            ..PriorityReport::default()
        };
        let host = PriorityReport { host: Some("h".to_owned()), priority: 2, ..PriorityReport::default() };
        let minimums = vec![MinimumReport { priority: 5, bytes_per_s: 100_000_000 }];
        let hostile = PriorityReport { host: Some("\x1b[2J".to_owned()), ..host.clone() };
        assert!(priority(&hostile).starts_with(r"host \u{1b}[2J"));
        let report = PrioritiesReport { named: vec![namespace, host], minimums, unused: true };
        let text = priorities(&report);
        for words in [
            "namespace 7 of nqn.2024-05.com.example:disks 5 (manual), host h 2; others none; the active policy does not use them",
            "priority 5 100MB/s",
        ] {
            assert!(text.contains(words), "no `{words}` in {text}");
        }
        assert_eq!(priorities(&PrioritiesReport::default()), "");
    }
}
