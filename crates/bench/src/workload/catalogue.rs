//! All workloads by name, as an experiment has them under `[workload]`.

use serde::{Deserialize, Serialize};

use super::{Problem, Workload, command, db_bench, fio};
use crate::experiment::read::{self, ReadError};

/// A workload as an experiment names it. In TOML: `kind = "fio"`, and the keys of that workload beside it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Config {
    /// [`command`].
    Command(command::Options),
    /// [`fio`].
    Fio(fio::Options),
    /// [`db_bench`].
    DbBench(db_bench::Options),
}

impl Config {
    /// The name under which it is asked for.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Command(_) => "command",
            Self::Fio(_) => "fio",
            Self::DbBench(_) => "db-bench",
        }
    }

    /// The workload.
    ///
    /// # Errors
    /// A key that cannot be as it is.
    pub fn open(&self) -> Result<Box<dyn Workload>, Problem> {
        Ok(match self {
            Self::Command(options) => Box::new(command::Command::new(options.clone())?),
            Self::Fio(options) => Box::new(fio::Fio::new(options.clone())?),
            Self::DbBench(options) => Box::new(db_bench::DbBench::new(options.clone())?),
        })
    }
}

/// Reads `[workload]` of an experiment.
///
/// # Errors
/// If the kind is not known or its keys are not as they should be; the key is named.
pub fn read(section: &toml::Table, file: &str) -> Result<Box<dyn Workload>, ReadError> {
    let config: Config = read::table(section.clone(), file, "workload").map_err(with_key)?;
    config.open().map_err(|Problem { at, why }| ReadError::key(file, &at, why))
}

/// An enum that is told by one of its keys does not say where in it a mistake is; the message does where a key is not known.
fn with_key(error: ReadError) -> ReadError {
    let unknown = error.reason.strip_prefix("unknown field `").and_then(|rest| rest.split('`').next());
    let place = unknown.map(|key| format!("workload.{key}: "));
    ReadError { place: place.unwrap_or_else(|| error.place.clone()), ..error }
}
