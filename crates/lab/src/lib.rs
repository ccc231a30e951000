//! Experiments (`experiments/*.toml`) on this machine and on simulated ones.
//!
//! Layers, lower ones first: [`stored`] (values of all runs, metrics, fingerprints), [`experiment`] (files), [`plan`] (points and their order), [`sensor_set`] and [`record`] (one measurement),
//! [`study`] (completion mechanisms), [`metrics`], [`results`] (folders and statistics), [`result_set`] (a results folder, read back),
//! [`displayed`] (default metrics), [`shard`] (shares for several machines), [`advise`] and [`compare`], [`report`], [`run`] (the runner) and
//! [`measure`] (a single command).
//! [`simulated`] runs policies on a simulated server, with the same layout of results.

pub mod advise;
pub mod compare;
pub mod displayed;
pub mod experiment;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod key_reference;
pub mod measure;
pub mod metrics;
pub mod observed;
pub mod plan;
pub mod record;
pub mod report;
pub mod result_set;
pub mod results;
pub mod run;
pub mod sensor_set;
pub mod shard;
pub mod simulated;
pub mod stored;
pub mod study;
