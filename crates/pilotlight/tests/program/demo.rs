//! The demo at its shortest: every policy gets the same requests, and the table is complete.

use std::process::{Command, Output};

use serde_json::Value;

fn demo(arguments: &[&str]) -> Output {
    let short = ["demo", "--bursts", "1", "--time-scale", "100"];
    let output = Command::new(env!("CARGO_BIN_EXE_pilotlight")).args(short).args(arguments).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn every_policy_serves_the_same_load() {
    let result: Value = serde_json::from_slice(&demo(&["--json"]).stdout).expect("JSON");
    let rows = result["rows"].as_array().expect("rows");
    let names: Vec<&str> = rows.iter().filter_map(|row| row["policy"].as_str()).collect();
    assert_eq!(names, ["static", "interrupt", "sandman"]);
    for row in rows {
        let samples = row["samples"].as_array().expect("samples");
        assert_eq!(samples.len(), 1, "one burst");
        for part in ["quiet", "burst"] {
            let load = &samples[0][part];
            assert_eq!(load["open_loop"]["wanted_iops"], rows[0]["samples"][0][part]["open_loop"]["wanted_iops"]);
            assert_eq!(load["total"]["errors"], 0, "{row}");
            assert!(load["total"]["ios"].as_u64() > Some(0), "{row}");
        }
        assert!(samples[0]["quiet_awake_cores"].as_f64() > Some(0.0), "{row}");
    }
    assert_eq!(result["power_profile"], "sandman-epyc-9454p");
}

#[test]
fn the_table_names_the_model_of_its_power() {
    let text = String::from_utf8(demo(&["--policy", "static"]).stdout).expect("text");
    for wanted in ["100 times shorter", "first millisecond", "W: modelled, profile sandman-epyc-9454p", "0 wrong"] {
        assert!(text.contains(wanted), "no `{wanted}` in\n{text}");
    }
}

#[test]
fn the_error_for_an_unknown_policy_lists_the_known_ones() {
    let output = Command::new(env!("CARGO_BIN_EXE_pilotlight")).args(["demo", "--policy", "sandmann"]).output();
    let output = output.expect("it runs");
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("sandmann") && text.contains("interrupt"), "{text}");
}
