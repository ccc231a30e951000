//! `pilotlab run --replay` with a trace only.

use serde_json::Value;

use crate::process::{run, text};

/// 400 requests in 0.4 s, of four volumes.
fn small(folder: &std::path::Path) -> String {
    let line = |at: u64| {
        format!("{},{},{},4096,{}\n", at % 4, if at.is_multiple_of(3) { "R" } else { "W" }, at << 16, at * 1000)
    };
    let path = folder.join("io_traces.csv");
    std::fs::write(&path, (0..400).map(line).collect::<String>()).unwrap();
    path.to_str().expect("text").to_owned()
}

#[test]
fn a_trace_gives_energy_per_day_and_month() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, out) = (small(folder.path()), folder.path().join("out").to_str().expect("text").to_owned());
    let short = ["--set", "trace.sample.window=500ms", "--set", "trace.sample.run_in=500ms", "--set", "series=500ms"];
    let policies = ["--policy", "spdk-static", "--policy", "linux-interrupt"];
    let replay = [&["run", "--replay", &trace, "--out", &out], &short[..], &policies[..]].concat();
    let output = run(&[&replay[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let [polling, linux] = &report["policies"].as_array().expect("a list")[..] else { panic!("{report}") };
    let number = |row: &Value, name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name} in {row}"));
    for row in [polling, linux] {
        assert_eq!((number(row, "trace_requests"), number(row, "replayed_share")), (400.0, 1.0));
        let day = number(row, "joules_per_day");
        assert!((day / 86_400.0 / number(row, "system_power_w") - 1.0).abs() < 1e-6);
        assert!((number(row, "kwh_per_month") / (day * 30.0 / 3.6e6) - 1.0).abs() < 1e-6);
    }
    assert!(number(polling, "joules_per_day") > number(linux, "joules_per_day"));
    let table = text(&run(&replay).stdout);
    assert!(!table.contains("exact"), "a day is extrapolated: {table}");
    let page = std::fs::read_to_string(folder.path().join("out/trace-file/report.html")).unwrap();
    for wanted in
        [&format!("Trace {trace}: 400 requests in 0."), "Energy saved of that of spdk-static: linux-interrupt "]
    {
        assert!(page.contains(wanted), "no `{wanted}` in\n{page}");
    }
    for wanted in [
        "400 requests",
        "replayed whole",
        "days and months are extrapolated",
        "a month is 30 days",
        "kWh/month",
        "spdk-static",
        "saved",
    ] {
        assert!(table.contains(wanted), "no `{wanted}` in\n{table}");
    }
}

#[test]
fn a_planner_sets_the_own_server_goals_price_and_carbon() {
    let folder = tempfile::tempdir().unwrap();
    let (trace, out) = (small(folder.path()), folder.path().join("out").to_str().expect("text").to_owned());
    let short = ["--set", "trace.sample.window=500ms", "--set", "trace.sample.run_in=500ms", "--set", "series=500ms"];
    let machine = ["--cores", "8", "--drives", "4", "--idle-power", "60W", "--busy-power", "150W"];
    let goals = ["--set", "budget_w=120", "--set", "tolerance=0.2", "--price", "0.25/kWh", "--carbon", "380g/kWh"];
    let policies = ["--policy", "spdk-static", "--policy", "adaptive", "--policy", "pass", "--policy", "pacer"];
    let replay =
        [&["run", "--replay", &trace, "--out", &out], &short[..], &machine[..], &goals[..], &policies[..]].concat();
    let output = run(&[&replay[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let rows = report["policies"].as_array().expect("a list");
    let number = |row: &Value, name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name} in {row}"));
    assert_eq!(rows.len(), 4, "{report}");
    for row in rows {
        let kwh = number(row, "kwh_per_month");
        assert!((number(row, "cost_per_month") / kwh / 0.25 - 1.0).abs() < 1e-9);
        assert!((number(row, "co2_kg_per_month") / kwh / 0.38 - 1.0).abs() < 1e-9);
    }
    let polling_w = number(&rows[0], "system_power_w");
    assert!((148.0..156.0).contains(&polling_w), "every core polls, the drives do little: {polling_w} W");
    assert!(report["extent"].as_str().unwrap().contains("extrapolated"));
    let table = text(&run(&replay).stdout);
    for wanted in ["cost/month", "kg CO2/month", "scaled to 8 cores, 4 drives, 60 W idle and 150 W busy"] {
        assert!(table.contains(wanted), "no `{wanted}` in\n{table}");
    }
}

#[test]
fn errors_list_the_valid_values() {
    let folder = tempfile::tempdir().unwrap();
    let trace = small(folder.path());
    let out = folder.path().to_str().expect("text");
    for (args, code, expected) in [
        (vec!["--replay", &trace, "--policy", "spdk"], 2, "spdk-static, linux-interrupt"),
        (vec!["--replay", &trace, "--format", "snia"], 2, "blkparse"),
        (vec!["--policy", "sandman"], 2, "--replay"),
        (vec!["--replay", &trace, "--policy", "pass"], 2, "--set budget_w=300"),
        (vec!["--replay", &trace, "--cores", "8"], 2, "--idle-power"),
        (vec!["--replay", &trace, "--price", "0.25"], 2, "0.25/kWh"),
        (vec!["--replay", "/no/such/file", "--policy", "spdk-static"], 2, "/no/such/file"),
        (vec!["--replay", &trace, "--sizes", &trace, "--policy", "spdk-static"], 1, "device_id,capacity"),
    ] {
        let output = run(&[&["run", "--out", out], &args[..]].concat());
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(expected), "{args:?}: {}", text(&output.stderr));
    }
}
