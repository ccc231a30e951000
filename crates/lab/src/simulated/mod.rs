//! Policies on a simulated server.
//!
//! An experiment ([`experiment`]) with a machine ([`machine`]) expands into points ([`experiment::points`]), which run under every policy, machine
//! variant ([`variant`]) and seed. [`sweep`] runs them on all cores and stores the values (`crate::stored::values`, [`journal`]). [`matrix`]
//! has lists of experiments. [`host`] is the simulated machine with one drive for experiments that run a tool.

pub mod audit;
pub mod calibration;
pub mod cells;
pub mod cost;
pub mod experiment;
pub mod fingerprint;
pub mod fitted;
pub mod hold;
pub mod host;
pub mod inert;
pub mod journal;
pub mod machine;
pub mod matrix;
pub mod merge;
pub mod metrics;
pub mod oracle;
pub mod parallel;
pub mod pressure;
pub mod quantity;
pub mod recheck;
pub mod sentinel;
pub mod stale;
pub mod sweep;
pub mod variant;
