//! A target's status from its control socket or from `pilotlight status --json` (docs/operate/watch.md): the fields that this program uses.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Supported format of a status.
const FORMAT: u64 = 1;

/// Activity of a target in a window.
#[derive(Clone, Debug, Deserialize)]
pub struct Status {
    format: u64,
    server: Server,
    /// Length of the window, in nanoseconds.
    pub window_ns: u64,
    pub(super) io: Io,
    pub(super) reactors: Vec<Reactor>,
    commands: Commands,
}

#[derive(Clone, Debug, Deserialize)]
struct Server {
    uptime_ns: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Io {
    pub(super) connections: i64,
    pub(super) iops: f64,
    pub(super) read_bytes_per_s: f64,
    pub(super) written_bytes_per_s: f64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Reactor {
    state: String,
    busy_percent: f64,
    idle_percent: f64,
    asleep_percent: BTreeMap<String, f64>,
    scheduled_percent: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
struct Commands {
    moves: Count,
    sleeps: Count,
    wakes: Count,
    refusals: Count,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Count {
    in_window: i64,
}

/// Times in percent of one CPU, summed over the reactors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// Serving requests.
    pub busy: f64,
    /// Polling without work.
    pub polling_idle: f64,
    /// Asleep, at any depth.
    pub asleep: f64,
    /// CPU time as accounted by the kernel; `None` if unknown.
    pub scheduled: Option<f64>,
}

/// Not a supported status.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// Invalid JSON, or a field is missing.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// Another format.
    #[error("status format {0}; supported: {FORMAT}")]
    Format(u64),
}

impl Status {
    /// Parses a line of JSON.
    ///
    /// # Errors
    /// It is not a supported status.
    pub fn read(line: &str) -> Result<Self, StatusError> {
        serde_json::from_str::<Self>(line)?.known()
    }

    /// Checks the format.
    pub(super) fn known(self) -> Result<Self, StatusError> {
        match self.format {
            FORMAT => Ok(self),
            other => Err(StatusError::Format(other)),
        }
    }

    /// Uptime of the target at the end of the window, in nanoseconds.
    #[must_use]
    pub fn uptime_ns(&self) -> u64 {
        self.server.uptime_ns
    }

    /// Times of the reactors.
    #[must_use]
    pub fn shares(&self) -> Shares {
        let sum = |of: &dyn Fn(&Reactor) -> f64| self.reactors.iter().map(of).sum::<f64>();
        Shares {
            busy: sum(&|reactor| reactor.busy_percent),
            polling_idle: sum(&|reactor| reactor.idle_percent),
            asleep: sum(&|reactor| reactor.asleep_percent.values().sum()),
            scheduled: self.reactors.iter().map(|reactor| reactor.scheduled_percent).sum(),
        }
    }

    /// Reactors that are awake at the end of the window.
    #[must_use]
    pub fn awake(&self) -> usize {
        self.reactors.iter().filter(|reactor| reactor.state == "awake").count()
    }

    /// The policy's commands in the window, by name.
    #[must_use]
    pub fn commands(&self) -> [(&'static str, i64); 4] {
        let Commands { moves, sleeps, wakes, refusals } = &self.commands;
        let named = [("moves", moves), ("sleeps", sleeps), ("wakes", wakes), ("refusals", refusals)];
        named.map(|(name, count)| (name, count.in_window))
    }
}
