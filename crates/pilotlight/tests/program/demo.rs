//! The demo, as short as it goes: every policy gets the same requests, and the table says what it has to.

use std::process::{Command, Output};

use serde_json::Value;

fn demo(arguments: &[&str]) -> Output {
    let short = ["demo", "--bursts", "1", "--time-scale", "100"];
    let output = Command::new(env!("CARGO_BIN_EXE_pilotlight")).args(short).args(arguments).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn every_policy_is_offered_the_same_and_serves_it() {
    let result: Value = serde_json::from_slice(&demo(&["--json"]).stdout).expect("JSON");
    let rows = result["rows"].as_array().expect("rows");
    let names: Vec<&str> = rows.iter().filter_map(|row| row["policy"].as_str()).collect();
    assert_eq!(names, ["static", "interrupt", "sandman, as printed", "sandman, guarded"]);
    for row in rows {
        assert_eq!(row["offered_iops"], rows[0]["offered_iops"]);
        assert_eq!(row["load"]["total"]["errors"], 0, "{row}");
        assert!(row["load"]["total"]["ios"].as_u64() > Some(0), "{row}");
        assert!(row["active_ns"].as_u64() > Some(0), "{row}");
        assert_eq!(row["power_profile"], "sandman-epyc-9454p");
    }
    let asleep = |row: &Value| row["asleep_ns"]["software-wait"].as_u64().expect("nanoseconds");
    assert_eq!(asleep(&rows[0]), 0, "static never sleeps");
    assert!(asleep(&rows[1]) > 0, "interrupts wait in the kernel");
    let few_cpus = result["cpus"].as_u64().expect("a number") < 3;
    assert_eq!(rows[3]["not_comparable"].is_string(), few_cpus, "{}", rows[3]["not_comparable"]);
}

#[test]
fn the_table_says_that_watts_are_modelled_and_from_what() {
    let text = String::from_utf8(demo(&["--policy", "static"]).stdout).expect("text");
    for wanted in ["100 times shorter", "p99.9 us", "W: modelled, profile sandman-epyc-9454p", "0 wrong"] {
        assert!(text.contains(wanted), "no `{wanted}` in\n{text}");
    }
}

#[test]
fn an_unknown_policy_is_refused_with_those_there_are() {
    let output = Command::new(env!("CARGO_BIN_EXE_pilotlight")).args(["demo", "--policy", "sandmann"]).output();
    let output = output.expect("it runs");
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("sandmann") && text.contains("interrupt"), "{text}");
}
