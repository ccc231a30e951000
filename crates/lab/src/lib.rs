//! Experiments on the simulator: files, sweeps, results, claims.
//!
//! An experiment is a file (`experiments/*.toml`, [`experiment`]). With a machine from its two files ([`machine`]) it expands into
//! points ([`experiment::Points`]), each of which runs under every policy, machine variant ([`variant`]) and seed. [`sweep`]
//! runs that list on all cores and keeps one file ([`results`]) of long rows; [`summary`] makes values with intervals of it,
//! and [`figure`] tables and charts.

pub mod calibration;
pub mod claims;
pub mod dotted;
pub mod experiment;
pub mod machine;
pub mod metrics;
pub mod quantity;
pub mod read;
pub mod results;
pub mod summary;
pub mod sweep;
pub mod variant;
