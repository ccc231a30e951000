//! Peers for tests and benchmarks, in no shipped program.
//!
//! - [`raw`]: a host that sends any bytes.
//! - [`bare`]: host and target without NVMe, with the same system calls.
#![forbid(unsafe_code)]

pub mod bare;
pub mod raw;
