//! Experiments (`experiments/*.toml`) on this machine and on simulated ones.
//!
//! - [`experiment`]: an experiment of a tool (`pilotlight_workloads`), as a file. [`plan`]: every point, their order, and how long it takes.
//! - [`run`]: runs it on this machine, with sensors beside it, or on a computed one ([`run::computed`]). Its journal lets an interrupted run go on.
//! - [`measure`]: a command as it is, without an experiment's file.
//! - [`metrics`]: the metrics of a run. Pure. [`results`]: the folder that holds all of it. [`report`]: a page of it.
//! - [`study`]: how requests are completed: interrupt or polling; which of them really ran, and which of them wins where.
//! - [`given`]: a folder of results as it is read again. [`compare`]: two of them, point by point. [`advise`]: what one of them
//!   recommends. [`shown`]: which metrics count.
//! - [`simulated`]: policies on a simulated server, in the same layout of results.

pub mod advise;
pub mod compare;
pub mod experiment;
pub mod given;
#[cfg(test)]
mod key_reference;
#[cfg(test)]
mod made;
pub mod measure;
pub mod metrics;
pub mod plan;
pub mod report;
pub mod results;
pub mod run;
pub mod shown;
pub mod simulated;
pub mod study;
