//! The instrument: any sensor beside any workload (`pilotlight_workloads`), on a real machine.
//!
//! - [`experiment`]: what is asked, as a file. [`plan`]: every point, their order, and how long it takes.
//! - [`run`]: does it, and leaves nothing behind, whatever happens. Its journal lets an interrupted run go on.
//! - [`measure`]: a command as it is, without an experiment's file.
//! - [`metrics`]: what a run's figures add up to. Pure. [`results`]: the folder that holds all of it. [`report`]: a page of it.
//! - [`study`]: how requests are completed: interrupt or polling; which of them really ran, and which of them wins where.
//! - [`given`]: a folder of results as it is read again. [`compare`]: two of them, point by point. [`advise`]: what one of them
//!   recommends. [`shown`]: which metrics count.

pub mod advise;
pub mod compare;
pub mod experiment;
pub mod given;
#[cfg(test)]
mod made;
pub mod measure;
pub mod metrics;
pub mod plan;
pub mod report;
pub mod results;
pub mod run;
pub mod shown;
pub mod study;
