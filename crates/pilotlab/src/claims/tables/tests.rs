//! The committed tables, and their replacement in documents.

use std::path::PathBuf;

use clap::Parser as _;

use super::*;

#[test]
fn the_demo_says_what_the_results_give() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = demo::file(&root).expect("the server's source is here");
    assert_eq!(text_of(&path).unwrap(), demo::text(&root).unwrap(), "run pilotlab claims --write-tables");
}
use crate::cli::{Cli, Command};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn material<R>(report: &Report, then: impl FnOnce(&Material<'_>) -> R) -> R {
    let varied = Varied { left_out: Vec::new(), moved: None, spreads: None, stale: Vec::new() };
    then(&Material { report, varied: &varied, calibration: &Calibration::default() })
}

/// The committed results; `None`, with a printed reason, if there are none.
fn committed<R>(then: impl FnOnce(&Material<'_>) -> R) -> Option<R> {
    let root = root();
    let arguments = ["pilotlab", "claims", "--root", &root.display().to_string()];
    let Command::Claims(args) = Cli::parse_from(arguments).command else { panic!("not claims") };
    let (root, claims) = super::super::claims(&args).unwrap();
    let files = super::super::Files::read(&args, root.clone(), claims).unwrap();
    if files.store.is_empty() {
        eprintln!("skipped: no results are committed in {}", root.display());
        return None;
    }
    let short = files.short(&args).unwrap();
    let shifts = short.as_ref().map(|short| short.judged(None, pilotlight_claims::constants::shifts));
    Some(files.judged(shifts.as_ref(), |lab| {
        let report = Report::new(lab, None);
        let varied = Varied::new(short.as_ref().unwrap_or(&files), (true, true));
        then(&Material { report: &report, varied: &varied, calibration: &files.calibration })
    }))
}

#[test]
#[ignore = "slow: .ci/run test runs it"]
fn committed_tables_match_the_committed_results() {
    committed(|material| {
        for (file, text) in documents(&root(), material).unwrap() {
            let committed = std::fs::read_to_string(root().join(&file)).unwrap_or_default();
            assert!(committed == text, "{file} is not what the results give: run pilotlab claims --write-tables");
        }
    });
}

#[test]
#[ignore = "slow: .ci/run test runs it"]
fn every_committed_miss_and_every_undecided_row_has_a_cause() {
    committed(|material| {
        let ids: Vec<&str> = material.report.without_cause().iter().map(|row| row.id.as_str()).collect();
        assert_eq!(ids, [""; 0], "say why in the map: cause = \"...\"");
    });
}

#[test]
fn every_document_has_its_marks() {
    let marks = |file: &str| std::fs::read_to_string(root().join(file)).unwrap().matches(BEGIN).count();
    assert!(FILES.iter().all(|file| marks(file) >= 2), "each has a beginning and an end");
}

#[test]
fn a_table_replaces_only_the_text_between_its_marks() {
    let report = super::super::text::tests::report();
    material(&report, |material| {
        let text =
            "a\n<!-- claims: verdicts -->old<!-- claims: end -->\nb\n<!-- claims: perturb --><!-- claims: end -->c";
        let once = filled(text, material).unwrap();
        assert!(once.starts_with("a\n<!-- claims: verdicts -->\n\n| paper | results |"), "{once}");
        assert!(once.contains("\n| results | rows |"), "{once}");
        assert!(once.contains("<!-- claims: end -->\nb\n<!-- claims: perturb -->") && once.ends_with("-->c"));
        assert!(!once.contains("old"), "{once}");
        assert_eq!(filled(&once, material).unwrap(), once);
        let refused = |text: &str| format!("{:#}", filled(text, material).unwrap_err());
        assert!(refused("<!-- claims: colours --><!-- claims: end -->").contains("no table \"colours\""));
        assert!(refused("<!-- claims: rows -->").contains("has no <!-- claims: end -->"));
    });
}

#[test]
fn rows_of_a_paper_are_only_its_own() {
    let report = super::super::text::tests::report();
    let rows = material(&report, |material| markdown(Table::Rows, Some("pass"), material));
    assert!(rows.contains("| pass-") && !rows.contains("| sandman-"), "{rows}");
}

#[test]
fn each_result_is_a_line_and_orders_are_in_words() {
    let report = super::super::text::tests::report();
    let table = material(&report, |material| markdown(Table::Rows, Some("sandman"), material));
    assert_eq!(table.lines().count(), 2 + 56);
    assert!(
        table.contains("| sandman-s52-lat-order | Fig 4 | sandman ~ hybrid-poll ~ spdk-static < dynamic"),
        "{table}"
    );
    let cells = |line: &str| line.matches(" | ").count();
    let columns = table.lines().next().map(cells);
    assert!(table.lines().skip(2).all(|line| Some(cells(line)) == columns), "{table}");
}
