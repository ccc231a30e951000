//! A configuration file (TOML) as a draft.

use toml::de::DeTable;

use super::keys::{Draft, SCHEMAS};
use super::problem::{Origin, Problem};
use super::section::{Problems, Section};

/// Reads the text of a file. A file with problems still yields its valid values; one that is not TOML yields none.
pub(crate) fn read(text: &str) -> (Draft, Vec<Problem>) {
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return (Draft::default(), errors.iter().map(syntax).collect());
    }
    let problems = Problems::default();
    let draft = Draft::read(&Section::root(&table, &SCHEMAS, &problems));
    (draft, problems.into_inner())
}

/// A syntax error.
fn syntax(error: &toml::de::Error) -> Problem {
    let at = Origin::File { key: String::new(), span: error.span().unwrap_or(0..0) };
    Problem::error(&at, format!("invalid TOML: {}", error.message().replace('\n', "; ")))
}
