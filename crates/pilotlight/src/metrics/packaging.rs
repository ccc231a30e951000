//! Tests of packaging/: the dashboard and the alerts use existing metrics and labels, and the tools accept the files.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::FAMILIES;
use super::family::{Family, Kind};

/// Labels that Prometheus adds, and that of buckets.
const OTHER_LABELS: [&str; 3] = ["job", "instance", "le"];

fn packaging(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(file)
}

fn read(file: &str) -> String {
    fs::read_to_string(packaging(file)).unwrap()
}

/// The family of a series, by its name in an expression.
fn family_of(series: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| match family.kind {
        Kind::Histogram => {
            let suffix = series.strip_prefix(family.name);
            suffix.is_some_and(|suffix| ["_bucket", "_count", "_sum"].contains(&suffix))
        }
        _ => series == family.sample_name(),
    })
}

fn is_name(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

/// Every metric in a text, with the text after it.
fn metrics(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.match_indices("pilotlight_").map(|(at, _)| {
        let rest = &text[at..];
        let end = rest.find(|character| !is_name(character)).unwrap_or(rest.len());
        rest.split_at(end)
    })
}

/// The labels that a selector such as `{a="x,y", b=~"z"}` names, if one begins the text.
fn selected(text: &str) -> Vec<&str> {
    let Some(text) = text.strip_prefix('{') else { return Vec::new() };
    let mut is_quoted = false;
    let end = text.find(|character| {
        is_quoted ^= character == '"';
        character == '}' && !is_quoted
    });
    let text = &text[..end.unwrap_or(text.len())];
    let parts = text.split(|character| {
        is_quoted ^= character == '"';
        character == ',' && !is_quoted
    });
    parts.filter_map(|part| part.trim().split(|c| !is_name(c)).next()).filter(|label| !label.is_empty()).collect()
}

/// The labels that an expression groups or joins by.
fn grouped(text: &str) -> Vec<&str> {
    let words = ["by (", "on (", "without (", "ignoring (", "group_left (", "group_right ("];
    let lists = words.iter().flat_map(|word| text.split(word).skip(1)).filter_map(|rest| rest.split(')').next());
    lists.flat_map(|list| list.split(',')).map(str::trim).filter(|label| !label.is_empty()).collect()
}

/// Errors in an expression and in the labels of its legend.
fn wrong(expression: &str, labels: &[&str]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut known: Vec<&str> = OTHER_LABELS.to_vec();
    for (series, rest) in metrics(expression) {
        let Some(family) = family_of(series) else {
            wrong.push(format!("there is no metric {series}"));
            continue;
        };
        let has = |label: &&str| !family.labels.contains(label) && !OTHER_LABELS.contains(label);
        wrong.extend(selected(rest).into_iter().filter(has).map(|label| format!("{series} has no label {label}")));
        known.extend(family.labels);
    }
    let unknown = grouped(expression).into_iter().chain(labels.iter().copied()).filter(|label| !known.contains(label));
    wrong.extend(unknown.map(|label| format!("no metric of {expression} has the label {label}")));
    wrong
}

/// Names in templates: `{{name}}` of Grafana, `{{ $labels.name }}` of alerts.
fn in_templates<'a>(text: &'a str, prefix: &str) -> Vec<&'a str> {
    let templates = text.split("{{").skip(1).filter_map(|rest| rest.split("}}").next());
    templates
        .filter_map(|template| template.trim().strip_prefix(prefix))
        .filter(|name| name.chars().all(is_name))
        .collect()
}

#[test]
fn mistakes_in_expressions_are_found() {
    for (expression, labels, expected) in [
        ("rate(pilotlight_io_requests_total{operation=\"read\"}[1m])", "operation", ""),
        ("sum by (cpu, le) (pilotlight_core_seconds_total{state=~\"a,b}|c\", cpu=\"1\"})", "state", ""),
        ("pilotlight_io_requests{operation=\"read\"}", "le", "there is no metric pilotlight_io_requests"),
        ("pilotlight_io_duration_seconds", "le", "there is no metric"),
        ("pilotlight_io_bytes_total{opration=\"read\"}", "le", "has no label opration"),
        ("sum by (cup) (pilotlight_core_seconds_total)", "le", "has the label cup"),
        ("sum(pilotlight_core_seconds_total)", "zone", "has the label zone"),
    ] {
        let wrong = wrong(expression, &[labels]).join("\n");
        assert!(wrong.contains(expected) && wrong.is_empty() == expected.is_empty(), "{expression}: {wrong}");
    }
    assert_eq!(in_templates("{{instance}} p99 {{ depth }}", ""), ["instance", "depth"]);
    assert_eq!(in_templates("{{ $labels.status }} {{ $value | humanize }}", "$labels."), ["status"]);
}

#[test]
fn the_dashboard_shows_metrics_that_exist() {
    let dashboard: Value = serde_json::from_str(&read("grafana/pilotlight.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut problems = Vec::new();
    for panel in panels {
        for target in panel["targets"].as_array().unwrap() {
            let (expression, legend) = (target["expr"].as_str().unwrap(), target["legendFormat"].as_str().unwrap());
            assert!(metrics(expression).next().is_some(), "{expression}");
            problems.extend(wrong(expression, &in_templates(legend, "")));
        }
    }
    problems.extend(wrong(dashboard["templating"].to_string().as_str(), &[]));
    assert!(problems.is_empty(), "{problems:#?}");
    let places: Vec<_> = panels.iter().map(|panel| panel["gridPos"].to_string()).collect();
    assert!(places.iter().all(|place| places.iter().filter(|other| *other == place).count() == 1), "{places:?}");
}

#[test]
fn alerts_are_about_metrics_that_exist() {
    let alerts = read("prometheus/alerts.yml");
    let mut problems = Vec::new();
    for alert in alerts.split("- alert:").skip(1) {
        let expression = alert.lines().find_map(|line| line.trim().strip_prefix("expr: ")).unwrap();
        problems.extend(wrong(expression, &in_templates(alert, "$labels.")));
    }
    let tests = read("prometheus/alerts_test.yml");
    let series = metrics(&tests).filter(|(series, _)| family_of(series).is_none());
    problems.extend(series.map(|(series, _)| format!("the tests have {series}, which does not exist")));
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn the_alert_of_a_budget_has_the_margin_of_held() {
    let alerts = read("prometheus/alerts.yml");
    let alert = alerts.split("- alert: ").find(|alert| alert.starts_with("PilotlightBudgetExceeded")).unwrap();
    let factor = alert.lines().find_map(|line| line.split_once("headroom_watts) < -")?.1.split_once(" * "));
    let (factor, rest) = factor.expect("a share of the budget");
    assert_eq!(factor.parse::<f64>().unwrap() * 1e6, crate::serve::budget::MARGIN_PPM as f64);
    assert!(rest.ends_with("(pilotlight_budget_watts)"), "{rest}");
}

/// Runs a tool in packaging/; skips the test if it is missing.
fn accepts(test: &str, tool: &str, args: &[&str]) {
    match Command::new(tool).args(args).current_dir(packaging("")).output() {
        Err(_) => eprintln!("SKIPPED: {test}: needs {tool}"),
        Ok(output) if output.status.code() == Some(77) => {
            eprintln!("SKIPPED: {test}: {}", String::from_utf8_lossy(&output.stdout).trim_end());
        }
        Ok(output) => assert!(output.status.success(), "{output:?}"),
    }
}

#[test]
fn promtool_reads_the_alerts_and_their_tests_pass() {
    accepts("promtool_reads_the_alerts", "promtool", &["check", "rules", "prometheus/alerts.yml"]);
    accepts("promtool_reads_the_alerts", "promtool", &["test", "rules", "prometheus/alerts_test.yml"]);
}

#[test]
fn the_units_share_no_user() {
    let user = |unit: &str| {
        let text = read(&format!("systemd/{unit}.service"));
        text.lines().find_map(|line| line.strip_prefix("User=")).unwrap_or(unit).to_owned() // systemd's default is the unit's name
    };
    assert_ne!(user("pilotlight"), user("pilotlight-devices"));
    let users = read("systemd/sysusers.conf");
    let is_static = |user: &str| users.lines().any(|line| line.split_whitespace().nth(1) == Some(user));
    assert!(is_static(&user("pilotlight-devices")) && !is_static(&user("pilotlight")), "{users}");
}

#[test]
fn manifests_follow_their_schemas() {
    // .ci/run installs the packages there
    let installed = packaging("../target/packaging-python/bin/python");
    let python = if installed.exists() { installed.to_string_lossy().into_owned() } else { "python3".to_owned() };
    accepts("manifests_follow_their_schemas", &python, &["kubernetes/check.py"]);
}
