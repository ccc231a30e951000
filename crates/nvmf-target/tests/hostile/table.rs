//! Reads the table of `docs/faults.md`.

use super::answer::Answer;

const TABLE: &str = include_str!("../../../../docs/faults.md");

/// One row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// `F07`.
    pub(crate) id: String,
    /// The response as [`Answer`] formats it.
    pub(crate) answer: String,
}

/// Every row: the lines of the form `| F07 | what the peer does | answer | section |`.
pub(crate) fn rows() -> Vec<Row> {
    let is_row = |line: &&str| line.starts_with("| F") && line.as_bytes().get(3).is_some_and(u8::is_ascii_digit);
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim().trim_matches('|').split(" | ").map(str::trim).collect();
        assert!(cells.len() == 4 && cells.iter().all(|cell| !cell.is_empty()), "four cells in: {line}");
        Row { id: cells[0].to_owned(), answer: cells[2].trim_matches('`').to_owned() }
    };
    TABLE.lines().filter(is_row).map(row).collect()
}

/// `F07` for a test named `f07_plen_too_small`.
pub(crate) fn id_of(test: &str) -> String {
    test.split('_').next().unwrap_or(test).to_uppercase()
}

/// Compares the response with the row of the table that `test` is named after.
pub(crate) fn check(test: &str, answer: &Answer) {
    let id = id_of(test);
    let row = rows().into_iter().find(|row| row.id == id);
    let documented = row.unwrap_or_else(|| panic!("docs/faults.md has no row {id}")).answer;
    assert_eq!(answer.to_string(), documented, "left: response; right: docs/faults.md, row {id}");
}
