//! `pilotlab compare`, `advise` and `report` on synthetic results: exit codes and output.

use std::path::{Path, PathBuf};

use pilotlight_lab::results::Results;
use pilotlight_lab::results::summary::{MetricInfo, PointResult, Spread};
use pilotlight_workloads::{Point, Value};

use super::process::{run, text};

/// Two depths; the second has twice the I/Os. All I/Os are scaled by `more`.
pub(crate) fn folder(root: &Path, name: &str, more: f64) -> PathBuf {
    let point = |(at, depth): (usize, i64)| {
        let rate = [0.99, 1.0, 1.02, 1.01].map(|noise| noise * more * 1_000.0 * depth as f64);
        let watts = [1.0, 1.01, 0.99, 1.0].map(|noise| 50.0 * noise);
        let values = [("iops", rate), ("io_per_j_system", rate.map(|rate| rate / 50.0)), ("system_power_w", watts)];
        let knobs = [
            ("rw", Value::Word("randread".into())),
            ("bs", Value::Word("4k".into())),
            ("iodepth", Value::Integer(depth)),
        ];
        PointResult {
            point: at,
            knobs: knobs.map(|(name, value)| (name.to_owned(), value)).into_iter().collect::<Point>(),
            repeats: 4,
            values: values.map(|(key, values)| (key.to_owned(), Spread::new(&values).unwrap())).into(),
            ..PointResult::default()
        }
    };
    let about = |(key, unit): (&str, &str)| MetricInfo {
        key: key.into(),
        title: key.into(),
        unit: unit.into(),
        modelled: false,
    };
    let results = Results {
        title: name.into(),
        complete: true,
        knobs: ["rw", "bs", "iodepth"].map(str::to_owned).to_vec(),
        metrics: [("iops", "1/s"), ("io_per_j_system", "1/J"), ("system_power_w", "W")].map(about).to_vec(),
        points: [1, 2].into_iter().enumerate().map(point).collect(),
        ..Results::default()
    };
    let folder = root.join(name);
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("results.json"), serde_json::to_string(&results).unwrap()).unwrap();
    folder
}

fn outcome(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = run(arguments);
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn differences_are_printed_and_optionally_in_the_exit_code() {
    let root = tempfile::tempdir().unwrap();
    let (a, b) = (folder(root.path(), "a", 1.0), folder(root.path(), "b", 1.5));
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    let (code, table, _) = outcome(&["compare", a, b]);
    assert_eq!(code, Some(0), "{table}");
    assert!(
        table.contains("iodepth=2") && table.contains("higher") && table.contains("no significant difference"),
        "{table}"
    );
    assert_eq!(outcome(&["compare", a, b, "--exit-code"]).0, Some(3));
    assert_eq!(outcome(&["compare", a, b, "--exit-code", "--metric", "system_power_w"]).0, Some(0));
    let (code, json, _) = outcome(&["compare", a, b, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, json["pairs"][0]["verdict"].as_str()), (Some(0), Some("higher")));
    let (code, _, why) = outcome(&["compare", a]);
    assert!(code == Some(2) && why.contains("same points"), "{why}");
    let (code, table, _) =
        outcome(&["compare", a, "--point", "iodepth=1", "--versus", "iodepth=2", "--metric", "iops"]);
    assert!(code == Some(0) && table.contains("higher"), "{table}");
    let (code, _, why) = outcome(&["compare", a, root.path().to_str().unwrap()]);
    assert!(code == Some(1) && why.contains("results.json"), "{why}");
}

#[test]
fn advice_lists_the_setting_and_knobs_not_varied() {
    let root = tempfile::tempdir().unwrap();
    let given = folder(root.path(), "a", 1.0);
    let given = given.to_str().unwrap();
    let (code, advice, _) = outcome(&["advise", given]);
    assert_eq!(code, Some(0));
    let depth = advice.lines().find(|line| line.contains("I/O depth")).unwrap();
    assert!(depth.contains("50.") && depth.contains("1 of 1"), "{advice}");
    assert!(advice.contains("not varied") && advice.contains("measure: io_per_j_system"), "{advice}");
    let (code, _, why) = outcome(&["advise", given, "--baseline", "iodepth=7"]);
    assert!(code == Some(2) && why.contains("iodepth=7"), "{why}");
}

#[test]
fn claims_of_an_unknown_paper_are_refused() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let (code, out, err) = outcome(&["claims", "--root", root, "--results", "/none", "--paper", "foo"]); // before results
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
    assert!(err.contains("--paper foo") && err.contains("sandman") && err.contains("thesis"), "{err}");
}

#[test]
fn a_report_needs_a_whole_folder() {
    let root = tempfile::tempdir().unwrap();
    let (code, _, why) = outcome(&["report", folder(root.path(), "a", 1.0).to_str().unwrap()]);
    assert!(code == Some(1) && why.contains(".json"), "{why}");
}

/// Results of a simulated server are read as those of any experiment; the policy is a parameter.
#[test]
fn simulated_results_can_be_compared_and_have_a_report() {
    let results = concat!(env!("CARGO_MANIFEST_DIR"), "/../../papers/sandman/results/fig4");
    let requested = ["compare", results, "--point", "policy=spdk-static", "--versus", "policy=sandman"];
    let (code, printed, why) = outcome(&requested);
    assert_eq!((code, why.as_str()), (Some(0), ""));
    for (metric, verdict) in [("system_power_w", "lower: better"), ("burst.latency_p99_us", "")] {
        let line = printed.lines().find(|line| line.trim().starts_with(metric));
        assert!(line.is_some_and(|line| line.contains(verdict)), "{metric} {verdict}: {printed}");
    }
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let (code, _, why) = outcome(&["report", results, "--out", page.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{why}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("Figure 4") && page.contains("<svg"), "the figure's own charts");
}
