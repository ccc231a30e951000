//! TOML into structs; [`pilotlight_input::file`] without a key above the table.

pub use pilotlight_input::file::{ReadError, parse};
use serde::de::DeserializeOwned;
use toml::Table;

/// Reads a table as a struct.
///
/// # Errors
/// If a key is missing, unknown or of another type; it is named with all that it stands in.
pub fn table<T: DeserializeOwned>(table: Table, file: &str) -> Result<T, ReadError> {
    pilotlight_input::file::table(table, file, "")
}
