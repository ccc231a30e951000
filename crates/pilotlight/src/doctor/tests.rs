//! Whole reports on recorded machines, and invariants of every report.
//!
//! The trees are small: as many CPUs and queues as the machine's shape needs. To accept a change of
//! the snapshots: `UPDATE_EXPECT=1 cargo test -p pilotlight doctor`.

mod cases;
pub(super) mod fixture;
mod machines;

use std::collections::BTreeMap;

use expect_test::expect_file;
use serde_json::Value;

use super::facts::{Architecture, Chosen, Cpu, Facts, Limit};
use super::report::{Mark, Report};
use super::{examine, render};
use fixture::Fixture;
use machines::{Recorded, amd, intel, vm};

fn report(recorded: &Recorded) -> Report {
    examine(&recorded.facts, &recorded.chosen)
}

fn text(recorded: &Recorded) -> String {
    render::render(&report(recorded), false)
}

/// Values for programs: a line per row.
fn values(recorded: &Recorded) -> String {
    let report = report(recorded);
    let rows = report.sections.iter().flat_map(|section| section.rows.iter().map(move |row| (section.name, row)));
    let lines = rows.map(|(name, row)| format!("{name}, {}: {}\n", row.item, row.value));
    format!("{}\n{}", report.value, lines.collect::<String>())
}

#[test]
fn an_intel_server_with_two_packages() {
    expect_file!["tests/snapshots/intel.txt"].assert_eq(&text(&intel()));
    expect_file!["tests/snapshots/intel-values.txt"].assert_eq(&values(&intel()));
}

#[test]
fn an_amd_server_and_a_user_without_rights() {
    expect_file!["tests/snapshots/amd.txt"].assert_eq(&text(&amd()));
    expect_file!["tests/snapshots/amd-values.txt"].assert_eq(&values(&amd()));
}

#[test]
fn a_bare_virtual_machine() {
    expect_file!["tests/snapshots/vm.txt"].assert_eq(&text(&vm()));
    expect_file!["tests/snapshots/vm-values.txt"].assert_eq(&values(&vm()));
}

/// A machine without any readable file.
fn empty() -> Recorded {
    let fixture = Fixture::default();
    let unlimited = Limit { soft: None, hard: None };
    let cpu = Cpu {
        architecture: Architecture::Other,
        vendor: String::new(),
        model: "riscv64".to_owned(),
        hypervisor: None,
        waitpkg: false,
        monitorx: false,
        wfxt: false,
        tsc_khz: None,
    };
    let facts = Facts {
        tree: fixture.tree(),
        cpu,
        allowed: vec![0],
        raises_limits: false,
        open_files: unlimited,
        locked_memory: unlimited,
        wake_up: Err(anyhow::anyhow!("it takes two CPUs, and this process has one")),
        ring: Err(anyhow::anyhow!("function not implemented")),
        coalescing: BTreeMap::new(),
        power_states: BTreeMap::new(),
    };
    let chosen =
        Chosen { cores: vec![0], main: 0, by: "chosen by --cores", io_threads: 1, files: None, max_connections: 1 };
    Recorded { fixture, facts, chosen }
}

fn all() -> [Recorded; 4] {
    [intel(), amd(), vm(), empty()]
}

#[test]
fn a_machine_that_shows_nothing_is_told_so() {
    let report = report(&empty());
    assert_eq!(report.sections.len(), 9);
    assert!(report.count(Mark::Missing) >= 8, "{}", render::render(&report, false));
}

#[test]
fn every_finding_has_reason_cost_and_remedy() {
    for recorded in all() {
        for section in report(&recorded).sections {
            let wanting = section.rows.iter().filter(|row| row.mark != Mark::Ok).map(|row| &row.item);
            assert!(wanting.eq(section.lacks.iter().map(|lack| &lack.what)), "{section:#?}");
            for lack in &section.lacks {
                assert!(!lack.why.is_empty() && !lack.costs.is_empty() && !lack.remedy.is_empty(), "{lack:?}");
                assert!(lack.remedy.iter().all(|text| !text.is_empty()), "{lack:?}");
            }
        }
    }
}

#[test]
fn people_and_programs_are_told_the_same() {
    let flat = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for recorded in all() {
        let (people, programs) = (flat(&text(&recorded)), report(&recorded).json());
        let sections = programs["sections"].as_array().unwrap();
        let list = |name: &str| sections.iter().flat_map(|section| section[name].as_array().unwrap().clone()).collect();
        let rows: Vec<Value> = list("rows");
        let lacks: Vec<Value> = list("missing");
        let wait_row = |value: &Value| assert!(people.contains(&flat(value.as_str().unwrap())), "{value}");
        rows.iter().for_each(|row| ["item", "mark", "found"].iter().for_each(|key| wait_row(&row[key])));
        lacks.iter().for_each(|lack| ["what", "why", "costs"].iter().for_each(|key| wait_row(&lack[key])));
        lacks.iter().flat_map(|lack| lack["remedy"].as_array().unwrap()).for_each(wait_row);
        assert_eq!(programs["summary"]["missing"], report(&recorded).count(Mark::Missing));
    }
}

#[test]
fn paths_are_those_of_the_machine_and_lines_fit() {
    for recorded in all() {
        let text = text(&recorded);
        assert!(!text.contains("/tmp"), "{text}");
        // a command is not broken, so that it can be pasted
        let long = text.lines().filter(|line| line.chars().count() > 110 && !line.contains('`'));
        assert_eq!(long.collect::<Vec<_>>(), Vec::<&str>::new());
    }
}
