//! Parsers shared by both programs.
//!
//! - [`quantity`]: a number with its unit: `450us`, `4KiB`, `2.1GHz`. [`Time`] and [`Size`] are fields of files.
//! - [`cpu_list`]: lists of CPUs such as `0-3,8`.
//! - [`file`]: TOML to structs, with errors that name the file, the key and the nearest known name. [`include`]: included files.
//!   [`dotted`]: values by dotted keys. [`Parameter`]: a parameter of an experiment.

pub mod cpu_list;
pub mod dotted;
pub mod file;
pub mod include;
pub mod parameter;
pub mod quantity;
mod typed;

pub use file::ReadError;
pub use include::Merged;
pub use parameter::Parameter;
pub use typed::{Size, Time};
