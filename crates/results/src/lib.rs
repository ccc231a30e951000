//! What experiments leave behind, measured or simulated.
//!
//! - [`metric`]: what each number is called, its unit, and whether more of it is better.

pub mod metric;
