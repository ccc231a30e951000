//! TOML into structs, with errors that say which file and which key.

use serde::de::DeserializeOwned;
use toml::Table;

/// A file is not written as it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {place}{reason}")]
pub struct ReadError {
    /// Which file.
    pub file: String,
    /// Which key or line, with a colon, or nothing.
    pub place: String,
    /// What is wrong.
    pub reason: String,
}

/// Reads text as TOML.
///
/// # Errors
/// If it is none; the line is named.
pub fn parse(file: &str, text: &str) -> Result<Table, ReadError> {
    text.parse().map_err(|error: toml::de::Error| {
        let line = error.span().map(|span| text[..span.start.min(text.len())].lines().count().max(1));
        let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
        ReadError { file: file.to_owned(), place, reason: error.message().to_owned() }
    })
}

/// Reads a table as a struct.
///
/// # Errors
/// If a key is missing, unknown or of another type; it is named with all that it stands in.
pub fn table<T: DeserializeOwned>(table: Table, file: &str) -> Result<T, ReadError> {
    serde_path_to_error::deserialize(table).map_err(|error| {
        let path = error.path().to_string();
        let place = if path == "." { String::new() } else { format!("{path}: ") };
        ReadError { file: file.to_owned(), place, reason: error.inner().message().to_owned() }
    })
}
