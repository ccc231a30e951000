//! Adapters of load generators, and the record of one run. A workload lists its knobs, builds command lines and parses output. It
//! starts no process and changes nothing: the runner does, and so cleans up after every exit.

pub mod catalogue;
pub mod client;
pub mod command;
pub mod db_bench;
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

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use mechanism::Mechanism;
pub use record::{Class, Latency, OperationKind, Record, Tool};

/// A load generator.
pub trait Workload: Send {
    /// Its name, such as `fio`.
    fn name(&self) -> &str;

    /// Names of the knobs and the values of each, in order. The plan is their cartesian product.
    fn knobs(&self) -> Vec<(String, Vec<Value>)>;

    /// Looks for the tool.
    ///
    /// # Errors
    /// It is not installed; with how to install it.
    fn tool(&self) -> Result<Tool, Missing>;

    /// Steps that run once, before the first point: fill a file, start and load a database.
    ///
    /// # Errors
    /// The options do not fit this target.
    fn prepare(&self, context: &RunContext) -> Result<Vec<Step>, Problem> {
        let _ = context;
        Ok(Vec::new())
    }

    /// Unmeasured steps before this point; usually none.
    ///
    /// # Errors
    /// The options do not fit this point or target.
    fn before(&self, point: &Point, context: &RunContext) -> Result<Vec<Step>, Problem> {
        let _ = (point, context);
        Ok(Vec::new())
    }

    /// The measured step.
    ///
    /// # Errors
    /// The options do not fit this point or target.
    fn command(&self, point: &Point, context: &RunContext) -> Result<Step, Problem>;

    /// The completion mechanism of a point, where the workload sets one. The runner configures the machine for it before, and checks
    /// afterwards that it was used.
    fn mechanism(&self, point: &Point) -> Option<Mechanism> {
        let _ = point;
        None
    }

    /// The model for simulated machines, where the workload is a model of an application.
    fn client(&self) -> Option<&client::Client> {
        None
    }

    /// Parses the output of the command.
    ///
    /// # Errors
    /// The tool failed, or a field of its output cannot be parsed: which.
    fn parse(&self, point: &Point, context: &RunContext, outcome: &Outcome) -> Result<Record, Problem>;

    /// Steps that undo `prepare`; run on every exit.
    fn clean_up(&self, context: &RunContext) -> Vec<Step> {
        let _ = context;
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
    /// A word, such as an engine, or a size with its unit as written.
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

/// Target and duration of one run of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct RunContext {
    /// A folder for other files of the tool, such as job files and logs. Empty at the start; each run has its own.
    pub scratch: PathBuf,
    /// The file, folder or device under test.
    pub target: Target,
    /// Unmeasured time at the start of each command, in seconds.
    pub ramp_s: f64,
    /// Measured time, in seconds.
    pub duration_s: f64,
    /// Seed of the tool's random numbers; differs between repeats.
    pub seed: u64,
}

/// The storage under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A file of this many bytes that may be created and overwritten.
    File(PathBuf, u64),
    /// A folder in which a database or files may be created.
    Folder(PathBuf),
    /// A block device that the user has allowed to overwrite.
    Device(PathBuf),
    /// No storage of this machine: the workload has its own.
    None,
}

/// A process to start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// Variables added to the environment.
    pub env: Vec<(OsString, OsString)>,
    /// Working directory; the scratch folder if `None`.
    pub folder: Option<PathBuf>,
    /// Files to write before it is started, such as a job file.
    pub files: Vec<(PathBuf, String)>,
    /// It runs in the background (a server) until SIGTERM at the end of the point (from `before`) or of the run (from `prepare`). The
    /// runner continues when `ready` exists.
    pub background: bool,
    /// A file or socket that exists once a background step is ready.
    pub ready: Option<PathBuf>,
    /// Timeout in seconds, after which it is ended; 0 for none.
    pub limit_s: f64,
    /// Progress message, such as "filling 4 GiB".
    pub why: String,
}

/// Result of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Exit status; `None` if it was killed by a signal.
    pub status: Option<i32>,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Start and end, in nanoseconds on the monotonic clock.
    pub span_ns: (u64, u64),
    /// Start in nanoseconds since 1970 on the wall clock, to convert the wall-clock times that tools log.
    pub began_wall_ns: u64,
}

impl Outcome {
    /// The exit status in words.
    #[must_use]
    pub fn status_text(&self) -> String {
        self.status.map_or_else(|| "killed by a signal".into(), |status| format!("exit status {status}"))
    }
}

/// A tool that is not installed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{tool}: {why}. {help}")]
pub struct Missing {
    /// Name of the tool.
    pub tool: String,
    /// The program that was not found, and why.
    pub why: String,
    /// How to install it, such as `apt install fio`.
    pub help: String,
}

/// An invalid option, or output that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {why}")]
pub struct Problem {
    /// The key of the experiment or the field of the output.
    pub at: String,
    /// The error and how to fix it.
    pub why: String,
}
