//! Bandwidth caps as text.

use super::format::{bytes_per_s, line, measured, times};
use super::report::{CapReport, Report};
use crate::config::format_cap;
use crate::table::printable;

/// A line for each cap, and one for how long commands have waited; nothing where nothing was ever capped.
pub(super) fn caps(report: &Report) -> String {
    let mut out = String::new();
    for cap in &report.caps {
        let done = format!(
            "{} now; throttled {}, {} waiting",
            bytes_per_s(cap.bytes_per_s),
            times(cap.throttled),
            cap.throttled_now
        );
        line(&mut out, "cap", &format!("{}: {done}", cap_of(cap)));
    }
    if !report.caps.is_empty() {
        line(&mut out, "wait for caps", &measured(report.cap_wait, "none; not part of latency"));
    }
    out
}

/// A cap with its target: `namespace 1 of NQN 100MB/s (policy 50MB/s)`.
pub(crate) fn cap_of(cap: &CapReport) -> String {
    let of = match (&cap.host, &cap.nqn, cap.nsid) {
        (Some(host), ..) => format!("host {}", printable(host)),
        (_, Some(nqn), Some(nsid)) => format!("namespace {nsid} of {nqn}"),
        _ => "unknown".to_owned(),
    };
    let policy = cap.policy_bytes_per_s.map_or(String::new(), |rate| format!(" (policy {})", format_cap(Some(rate))));
    format!("{of} {}{policy}", format_cap(cap.operator_bytes_per_s))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::report::Count;

    #[test]
    fn a_cap_names_what_is_capped_and_by_whom() {
        let cap = CapReport {
            nqn: Some("nqn.2024-05.com.example:disks".to_owned()),
            nsid: Some(7),
            operator_bytes_per_s: Some(100_000_000),
            policy_bytes_per_s: Some(50_000_000),
            throttled: Count { in_window: 3, since_start: 17 },
            ..CapReport::default()
        };
        assert_eq!(cap_of(&cap), "namespace 7 of nqn.2024-05.com.example:disks 100MB/s (policy 50MB/s)");
        let host = CapReport { host: Some("h".to_owned()), ..CapReport::default() };
        assert_eq!(cap_of(&host), "host h off");
    }
}
