//! Tests of all metrics, and of the page that lists them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use pilotlight_nvmf_target::Operation;
use pilotlight_nvmf_target::latency::coarse::CoarseSnapshot;
use pilotlight_nvmf_target::{CapStats, Capped, TargetThreadStats};
use pilotlight_plant::{Limit, Standing};

use super::family::Kind;
use super::text::{Format, text};
use super::*;
use crate::status::report::ToleranceReport;

/// A server of which everything is known.
fn facts() -> Facts {
    let mut latency = CoarseSnapshot { sum_ns: 3_000_070_000, ..CoarseSnapshot::default() };
    (latency.counts[0], latency.counts[1], latency.counts[12]) = (1, 2, 1);
    let by_subsystem = vec![("nqn.a".to_owned(), Operation::Read, latency)];
    let threads = vec![TargetThreadStats::default()];
    let mut stats = ServerStats { threads, by_subsystem, ..ServerStats::default() };
    let counts = Counts { requests: [3, 2, 1, 0, 0, 0, 0], bytes: [12_288, 8192] };
    let failures =
        NamespaceFailures { nqn: "nqn.a".to_owned(), nsid: 1, counts: Vec::new(), by_operation: [0, 1, 0, 0, 0, 0, 0] };
    let host = Capped::Host { nqn: "nqn.2014-08.org:\"quoted\"\\\n".to_owned() };
    stats.caps = vec![CapStats { of: host, stats: Default::default() }];
    stats.caps[0].stats.operator = Some(1_000_000);
    let standing = Standing { limit: Limit::Tolerance, rise_ns: 30_000, allowed_ns: 40_000 };
    stats.runtime.director.standing = Some(standing);
    let zone = ZoneFacts { name: "package-0".to_owned(), energy_uj: 1_500_000, read_ns: 1, power_uw: Some(2_500_000) };
    let tolerance = ToleranceReport { stat: "p99".to_owned(), loss_ppm: Some(200_000), ..ToleranceReport::default() };
    Facts {
        stats,
        policy: "sandman".to_owned(),
        cpus: vec![Some(3)],
        namespaces: vec![NamespaceFacts {
            nqn: "nqn.a".to_owned(),
            nsid: 1,
            bytes: 4096,
            free_bytes: Some(7),
            counts,
            failures: Some(failures),
        }],
        hosts: vec![HostFacts { name: OTHER_HOSTS.to_owned(), counts }],
        power: Some(PowerFacts { sensor: "hwmon".to_owned(), model: None, gives_watts: true, zones: vec![zone] }),
        goals: GoalsReport { budget_uw: Some(300_000_000), tolerances: vec![tolerance], ..GoalsReport::default() },
        ..Facts::default()
    }
}

#[test]
fn names_follow_the_rules_of_the_formats() {
    let mut names = BTreeSet::new();
    for family in FAMILIES {
        assert!(names.insert(family.name), "{} is duplicated", family.name);
        assert!(family.name.starts_with("pilotlight_"), "{}", family.name);
        assert!(
            family.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'),
            "{}",
            family.name
        );
        assert!(family.unit.is_empty() || family.name.ends_with(family.unit), "{}: {}", family.name, family.unit);
        assert!(!family.name.ends_with("_total") && !family.name.ends_with("_info"), "{}", family.name);
        assert!(family.help.ends_with('.'), "{}", family.name);
        assert!(family.kind != Kind::Histogram || family.unit == "seconds", "{}", family.name);
    }
}

#[test]
fn every_series_is_unique_and_has_the_labels_of_its_family() {
    let facts = facts();
    for family in FAMILIES {
        let mut seen = BTreeSet::new();
        for sample in family.samples(&facts) {
            assert!(seen.insert((sample.suffix, sample.labels)), "{}", family.name);
        }
    }
}

#[test]
fn both_formats_say_the_same() {
    let facts = facts();
    let prometheus = text(&facts, Format::Prometheus);
    for line in [
        "# TYPE pilotlight_io_requests_total counter",
        "pilotlight_io_requests_total{subsystem=\"nqn.a\",namespace=\"1\",operation=\"read\"} 3",
        "pilotlight_io_bytes_total{subsystem=\"nqn.a\",namespace=\"1\",operation=\"write\"} 8192",
        "pilotlight_io_errors_total{subsystem=\"nqn.a\",namespace=\"1\",operation=\"write\"} 1",
        "pilotlight_host_io_requests_total{host=\"other\",operation=\"flush\"} 1",
        "pilotlight_io_duration_seconds_bucket{subsystem=\"nqn.a\",operation=\"read\",le=\"2e-05\"} 1",
        "pilotlight_io_duration_seconds_bucket{subsystem=\"nqn.a\",operation=\"read\",le=\"5e-05\"} 3",
        "pilotlight_io_duration_seconds_bucket{subsystem=\"nqn.a\",operation=\"read\",le=\"1.0\"} 3",
        "pilotlight_io_duration_seconds_bucket{subsystem=\"nqn.a\",operation=\"read\",le=\"+Inf\"} 4",
        "pilotlight_io_duration_seconds_count{subsystem=\"nqn.a\",operation=\"read\"} 4",
        "pilotlight_io_duration_seconds_sum{subsystem=\"nqn.a\",operation=\"read\"} 3.00007",
        "pilotlight_energy_joules_total{zone=\"package-0\",sensor=\"hwmon\",model=\"\"} 1.5",
        "pilotlight_power_watts{zone=\"package-0\",sensor=\"hwmon\"} 2.5",
        "pilotlight_budget_watts 300",
        "pilotlight_tolerance_ratio{subsystem=\"\",namespace=\"\",stat=\"p99\"} 0.2",
        "pilotlight_bandwidth_cap_bytes_per_second{subsystem=\"\",namespace=\"\",host=\"nqn.2014-08.org:\\\"quoted\\\"\\\\\\n\",by=\"operator\"} 1000000",
        "pilotlight_policy_limit{limit=\"tolerance\"} 1",
        "pilotlight_policy_limit{limit=\"load\"} 0",
        "pilotlight_policy_latency_rise_seconds{kind=\"estimated\"} 0.00003",
        "pilotlight_policy_latency_rise_seconds{kind=\"allowed\"} 0.00004",
        "# TYPE pilotlight_policy_info gauge",
    ] {
        assert!(prometheus.lines().any(|other| other == line), "{line}\n\n{prometheus}");
    }
    let samples =
        |text: &str| text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>();
    let open = text(&facts, Format::OpenMetrics);
    assert_eq!(samples(&open), samples(&prometheus));
    assert!(open.contains("# UNIT pilotlight_energy_joules joules\n") && open.ends_with("# EOF\n"));
}

#[test]
fn buckets_rise_and_end_with_the_count() {
    let text = text(&facts(), Format::Prometheus);
    let value = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).unwrap();
    let buckets: Vec<f64> =
        text.lines().filter(|line| line.starts_with("pilotlight_io_duration_seconds_bucket")).map(value).collect();
    assert!(buckets.is_sorted() && buckets.len() == family::BUCKETS.len() + 1, "{buckets:?}");
}

#[test]
fn without_a_power_reading_there_is_no_watts_series() {
    let mut facts = facts();
    facts.power.as_mut().unwrap().gives_watts = false;
    let text = text(&facts, Format::Prometheus);
    assert!(!text.contains("pilotlight_power_watts") && text.contains("pilotlight_energy_joules_total"));
}

/// Run with `WRITE_DOCS=1` to write the page.
#[test]
fn the_page_lists_every_metric() {
    let mut page = String::from(
        "<!-- Written by `WRITE_DOCS=1 cargo test -p pilotlight the_page_lists_every_metric`. Do not edit. -->\n\n\
         # Metrics of the server\n\n\
         Which metrics does `pilotlight serve --metrics 9808` export to Prometheus? `GET /metrics` returns these in Prometheus's text format 0.0.4, or in OpenMetrics 1.0 if\n\
         `Accept` requests it; `pilotlight status --metrics` prints the same, and its `--json` has it under `metrics`. Scraping: [watch](operate/watch.md#metrics).\n\n\
         | metric | type | labels | meaning |\n|---|---|---|---|\n",
    );
    for family in FAMILIES {
        let kind = format!("{:?}", family.kind).to_lowercase();
        let labels = family.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let _ = writeln!(page, "| `{}` | {kind} | {labels} | {} |", family.sample_name(), family.help);
    }
    let ends = family::BUCKETS.map(|(end, _)| end);
    let _ = write!(
        page,
        "\nBuckets of histograms end at {} and infinity, in seconds. Series: one for each namespace, reactor, state, zone, and configured\n\
         host; the set of series does not depend on load.\n",
        ends.join(", ")
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics-server.md");
    if std::env::var_os("WRITE_DOCS").is_some() {
        return std::fs::write(&path, page).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), page, "WRITE_DOCS=1 writes it");
}

/// A benchmark: `cargo test --release -p pilotlight time_of_a_scrape -- --ignored --nocapture`.
#[test]
#[ignore = "a benchmark"]
fn time_of_a_scrape() {
    let mut facts = facts();
    let namespace = |nsid| NamespaceFacts {
        nqn: "nqn.2024-05.com.example:disks".to_owned(),
        nsid,
        bytes: 1 << 40,
        ..NamespaceFacts::default()
    };
    facts.namespaces = (1..=1000).map(namespace).collect();
    facts.stats.threads = vec![facts.stats.threads[0].clone(); 64];
    facts.stats.totals.connections = 10_000;
    for format in [Format::Prometheus, Format::OpenMetrics] {
        let mut times: Vec<_> = (0..100)
            .map(|_| {
                let begin = std::time::Instant::now();
                assert!(text(&facts, format).len() > 100_000);
                begin.elapsed()
            })
            .collect();
        times.sort_unstable();
        eprintln!("{format:?}: 1,000 namespaces, 64 I/O threads: {:?} (median of 100)", times[50]);
    }
}
