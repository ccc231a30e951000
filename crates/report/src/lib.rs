//! Result tables (CSV, Parquet), self-contained HTML reports, and output files.
//!
//! Independent of the kind of results: callers convert them to [`Table`]s, with a unit for each column, to [`Chart`]s,
//! and to a [`Report`] of both.

pub mod chart;
pub mod file;
pub mod html;
pub mod output;
pub mod table;

pub use chart::Chart;
pub use html::{Block, Report, Section};
pub use output::Output;
pub use table::{Cell, Column, Kind, Table};
