//! Adapters of other tools, and the record of what one run of a tool gave. A workload knows its knobs, builds command lines and reads what its tool printed; it starts nothing
//! itself and changes nothing: the runner does, so that what was started is stopped whatever happens.

pub mod catalogue;
pub mod client;
pub mod command;
pub mod db_bench;
pub mod dlio;
pub mod filebench;
pub mod fio;
pub mod knob;
pub mod latency;
pub mod load;
pub mod mechanism;
pub mod moments;
mod own;
pub mod pgbench;
pub(crate) mod postgres;
pub mod program;
pub mod read;
pub mod record;
pub mod sysbench;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod wall;
pub mod ycsb;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use mechanism::Mechanism;
pub use record::{Class, Latency, Record, Tool, What};

/// A tool that makes work.
pub trait Workload: Send {
    /// Its name, such as `fio`.
    fn name(&self) -> &str;

    /// What is varied: names and the values of each, in order. The plan is their cartesian product.
    fn knobs(&self) -> Vec<(String, Vec<Value>)>;

    /// Looks for the tool.
    ///
    /// # Errors
    /// It is not there, and how to get it.
    fn tool(&self) -> Result<Tool, Missing>;

    /// What to do once, before the first point: fill a file, start and load a database.
    ///
    /// # Errors
    /// What is asked for cannot be done on this place.
    fn prepare(&self, stage: &Stage) -> Result<Vec<Step>, Problem> {
        let _ = stage;
        Ok(Vec::new())
    }

    /// What to do before this point, unmeasured; usually nothing.
    ///
    /// # Errors
    /// What is asked for cannot be done.
    fn before(&self, point: &Point, stage: &Stage) -> Result<Vec<Step>, Problem> {
        let _ = (point, stage);
        Ok(Vec::new())
    }

    /// What is measured.
    ///
    /// # Errors
    /// What is asked for cannot be done.
    fn command(&self, point: &Point, stage: &Stage) -> Result<Step, Problem>;

    /// How requests are to be completed at a point, where the workload asks for that: what of the machine it takes is set before,
    /// and afterwards it is looked whether it was so.
    fn mechanism(&self, point: &Point) -> Option<Mechanism> {
        let _ = point;
        None
    }

    /// What a simulated machine does for it, where it is a model of an application.
    fn client(&self) -> Option<&client::Client> {
        None
    }

    /// Reads what the command printed.
    ///
    /// # Errors
    /// The tool failed, or said something that cannot be read: which field.
    fn parse(&self, point: &Point, stage: &Stage, outcome: &Outcome) -> Result<Record, Problem>;

    /// What ends whatever `prepare` began; run on every way out.
    fn clean_up(&self, stage: &Stage) -> Vec<Step> {
        let _ = stage;
        Vec::new()
    }
}

/// Short for a [`Problem`].
pub fn problem(at: impl Into<String>, why: impl Into<String>) -> Problem {
    Problem { at: at.into(), why: why.into() }
}

/// One value of a knob.
#[derive(Clone, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A switch.
    Switch(bool),
    /// A number, such as a depth.
    Integer(i64),
    /// A number with a fraction.
    Number(f64),
    /// A word, such as an engine, or a size with its unit as the person wrote it.
    Word(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(value) => value.fmt(f),
            Self::Integer(value) => value.fmt(f),
            Self::Number(value) => value.fmt(f),
            Self::Word(value) => f.write_str(value),
        }
    }
}

/// One combination of knobs.
pub type Point = BTreeMap<String, Value>;

/// Where and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// A folder for whatever the tool needs beside its data: job files, logs. Empty at the start, the run's own.
    pub scratch: PathBuf,
    /// What is worked on.
    pub place: Place,
    /// Unmeasured time at the start of each command, in seconds.
    pub ramp_s: f64,
    /// Measured time, in seconds.
    pub duration_s: f64,
    /// For tools that draw random numbers: differs between repeats.
    pub seed: u64,
}

/// What is worked on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file that may be made and overwritten, of this many bytes.
    File(PathBuf, u64),
    /// A folder in which a database or many files may be made.
    Folder(PathBuf),
    /// A block device that may be overwritten: the person has said so.
    Device(PathBuf),
    /// Nothing of the machine: the workload brings its own.
    Nothing,
}

/// Something to start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// Variables beside those of the environment.
    pub env: Vec<(OsString, OsString)>,
    /// Where it is started; the scratch folder if `None`.
    pub folder: Option<PathBuf>,
    /// Files to write before it is started, such as a job file.
    pub files: Vec<(PathBuf, String)>,
    /// It goes on beside what follows (a server) and is ended with SIGTERM when the point ends (from `before`) or the run does
    /// (from `prepare`). The runner goes on when `ready` is there.
    pub background: bool,
    /// A file or socket whose appearance says that a background step is ready.
    pub ready: Option<PathBuf>,
    /// Timeout in seconds, after which it is ended; 0 for none.
    pub limit_s: f64,
    /// What a person reads while it runs, such as "filling 4 GiB".
    pub why: String,
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Its exit status; `None` if a signal ended it.
    pub status: Option<i32>,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// What it complained.
    pub stderr: Vec<u8>,
    /// When it was started and had ended, in nanoseconds on the monotonic clock.
    pub span_ns: (u64, u64),
    /// When it was started, in nanoseconds since 1970 on the wall clock: tools that log wall-clock times are placed by it.
    pub began_wall_ns: u64,
}

/// A tool that is not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{tool}: {why}. {help}")]
pub struct Missing {
    /// Its name.
    pub tool: String,
    /// What was looked for, and where.
    pub why: String,
    /// What would help, such as `apt install fio`.
    pub help: String,
}

/// Something that cannot be done, or an output that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {why}")]
pub struct Problem {
    /// The key of the experiment or the field of the output.
    pub at: String,
    /// What is wrong with it, and what can be done.
    pub why: String,
}
