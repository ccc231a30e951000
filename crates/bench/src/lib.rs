//! The instrument: any sensor beside any workload, on a real machine.
//!
//! - [`record`]: what one run of a workload gave, whatever the tool: the same for all of them.
//! - [`workload`]: tools that make work; each is a file of its own that builds a command line and reads the tool's output.

pub mod record;
pub mod workload;

pub use record::{Class, Latency, Record, Tool, What};
pub use workload::{Missing, Outcome, Place, Point, Problem, Stage, Step, Value, Workload};
