//! Policies on a simulated server. Pure: nothing here reads a sensor, starts a program or changes a machine.
//!
//! An experiment ([`experiment`]) with a machine from its two files ([`machine`]) expands into
//! points ([`experiment::points`]), each of which runs under every policy, machine variant ([`variant`]) and seed. [`sweep`]
//! runs that list on all cores and keeps one file of long rows (`pilotlight_results::values`, [`journal`]).
//! [`matrix`] lists experiments that are run one after the other. [`host`] is the simulated
//! machine with one drive that experiments for a real machine run on.

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
