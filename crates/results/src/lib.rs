//! What experiments leave behind, measured or simulated.
//!
//! - [`values`]: the layout: a folder for each experiment, with all numbers of all runs. [`fingerprint`]: what tells today's from others.
//! - [`metric`]: what each number is called, its unit, and whether more of it is better.

pub mod fingerprint;
pub mod metric;
mod place;
pub mod values;
