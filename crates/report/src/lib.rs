//! Result tables (CSV, JSON, Parquet) and self-contained HTML reports.
//!
//! Knows nothing of what is reported: whoever has results makes [`Table`]s of them, with a unit for each column.

pub mod file;
pub mod table;

pub use table::{Cell, Column, Kind, Table};
