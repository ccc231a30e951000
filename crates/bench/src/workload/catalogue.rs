//! All workloads by name, as an experiment has them under `[workload]`.

use serde::{Deserialize, Serialize};

use super::{Problem, Workload, db_bench, fio, pgbench};

/// A workload as an experiment names it. In TOML: `kind = "fio"`, and the keys of that workload beside it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Config {
    /// [`fio`].
    Fio(fio::Options),
    /// [`db_bench`].
    DbBench(db_bench::Options),
    /// [`pgbench`].
    Pgbench(pgbench::Options),
}

impl Config {
    /// The name under which it is asked for.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Fio(_) => "fio",
            Self::DbBench(_) => "db-bench",
            Self::Pgbench(_) => "pgbench",
        }
    }

    /// The workload.
    ///
    /// # Errors
    /// A key that cannot be as it is.
    pub fn open(&self) -> Result<Box<dyn Workload>, Problem> {
        Ok(match self {
            Self::Fio(options) => Box::new(fio::Fio::new(options.clone())?),
            Self::DbBench(options) => Box::new(db_bench::DbBench::new(options.clone())?),
            Self::Pgbench(options) => Box::new(pgbench::Pgbench::new(options.clone())?),
        })
    }
}
