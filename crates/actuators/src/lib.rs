//! Orders out: what changes the machine below the server. Each puts back what it has changed.
//!
//! So far there is [`cpufreq`], for the policy `governor`.

pub mod cpufreq;

pub use cpufreq::{CpuFreq, OpenError};
