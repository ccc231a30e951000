//! Result tables (CSV, Parquet), self-contained HTML reports, and the files that they and all other output are written to.
//!
//! Knows nothing of what is reported: whoever has results makes [`Table`]s of them, with a unit for each column, [`Chart`]s,
//! and a [`Report`] of both.

pub mod chart;
pub mod file;
pub mod html;
pub mod output;
pub mod table;

pub use chart::Chart;
pub use html::{Block, Report, Section};
pub use output::Output;
pub use table::{Cell, Column, Kind, Table};
