//! Errors of a run.

use pilotlight_actuators::changes::Error as ChangeError;
use pilotlight_actuators::machine::KeyError;
use pilotlight_input::ReadError;
use pilotlight_sensors::Missing as MissingSensor;
use pilotlight_sensors::sampler::{Failure, StartError};
use pilotlight_workloads::{Missing, Problem};

use super::StepError;
use crate::results::FolderError;

/// Errors of a run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A signal was received.
    #[error("interrupted by signal {0}")]
    Stopped(i32),
    /// A required sensor cannot be read.
    #[error("a required sensor cannot be read (set optional = true to continue without it)")]
    Sensor(#[from] MissingSensor),
    /// A required sensor failed.
    #[error(transparent)]
    SensorFailed(#[from] Failure),
    /// Sampling cannot start.
    #[error(transparent)]
    Sampler(#[from] StartError),
    /// A tool is not installed.
    #[error(transparent)]
    Tool(#[from] Missing),
    /// The workload does not support a key, or its output cannot be parsed.
    #[error(transparent)]
    Workload(#[from] Problem),
    /// A program cannot be started or failed.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The results folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A setting of the machine is not supported.
    #[error(transparent)]
    Machine(#[from] KeyError),
    /// A setting of the machine cannot be changed or restored.
    #[error(transparent)]
    Changes(#[from] ChangeError),
    /// A setting of the machine is invalid.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The stop rule has an unknown metric.
    #[error("stop.metric: there is no metric {name:?} in the results{hint}")]
    NoMetric {
        /// Its name.
        name: String,
        /// The nearest known name.
        hint: String,
    },
}
