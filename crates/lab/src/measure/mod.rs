//! Measures a command (`pilotlab measure`): samples sensors during several runs, with an idle baseline before each.
//!
//! The command keeps its standard input and error, and stays in the foreground of the terminal. The caller applies and restores settings of the machine.

pub mod settings;
pub mod summary;
pub mod text;

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use pilotlight_sensors::clock::now_ns;
use pilotlight_sensors::energy::Window;
use pilotlight_sensors::sampler::{Failure, StartError};
use pilotlight_sensors::{Missing, Roots, Sampler, Usage, wait_for};
use rustix::process::{Pid, Signal, kill_process};

use crate::record::Sensed;
use crate::run::StopFlag;
use crate::sensor_set::SensorSet;
pub use summary::{EnergyLine, Line, Summary};

/// Polling interval of a wait.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time from SIGTERM to SIGKILL, in nanoseconds.
const GRACE_NS: u64 = 10_000_000_000;

/// Options of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// Measured runs.
    pub repeats: u32,
    /// Unmeasured runs before them.
    pub warmup: u32,
    /// Settling time before each idle baseline, and before the first run if settings were changed, in nanoseconds.
    pub settle_ns: u64,
    /// Length of the idle baseline before each run, in nanoseconds; 0: none.
    pub idle_ns: u64,
    /// Whether failed runs count.
    pub ignore_failure: bool,
    /// Where the command's standard output goes.
    pub output: Output,
}

/// Where the standard output of a command goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// Nowhere: results and progress stay readable.
    #[default]
    Discarded,
    /// To standard output.
    Kept,
    /// To standard error, to keep standard output for the results.
    ToStderr,
}

/// Progress of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// A wait, in seconds.
    Settling(f64),
    /// An idle baseline, in seconds.
    Baseline(f64),
    /// Start of an unmeasured run.
    Warmup(u32),
    /// Start of a run, numbered from 1.
    Run(u32),
}

/// Errors of a measurement.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The command cannot be started.
    #[error("cannot start {program}: {error}")]
    Start {
        /// The program.
        program: String,
        /// The error.
        error: io::Error,
    },
    /// The command cannot be waited for.
    #[error("cannot wait for the command: {0}")]
    Wait(io::Error),
    /// A run failed.
    #[error("run {run} of {of} failed: {command} {status}; --ignore-failure includes failed runs")]
    Failed {
        /// The command.
        command: String,
        /// Number of the run, from 1; 0: unmeasured.
        run: u32,
        /// Number of runs.
        of: u32,
        /// Its exit status or signal.
        status: String,
    },
    /// A signal was received.
    #[error("interrupted by signal {0}")]
    Stopped(i32),
    /// A required sensor cannot be read.
    #[error(transparent)]
    Sensor(#[from] Missing),
    /// A required sensor failed.
    #[error(transparent)]
    SensorFailed(#[from] Failure),
    /// Sampling cannot start.
    #[error(transparent)]
    Sampler(#[from] StartError),
}

/// Values of sensors in a window.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The window on the monotonic clock.
    pub window: Window,
    /// Energies, counters and gauges. If the window is too short for a sensor, its energy is an error and its counters are absent.
    pub sensed: Sensed,
}

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Round {
    /// The run of the command.
    pub run: Span,
    /// The idle baseline before it.
    pub idle: Option<Span>,
    /// Resource usage of the command.
    pub usage: Usage,
    /// Whether it succeeded.
    pub success: bool,
}

/// Measures. With `settings_changed` the first run waits for the settling time; commands run in `cgroup`.
///
/// # Errors
/// If it stops early. The command has ended then.
pub fn measure(
    options: &Options,
    sensors: &SensorSet,
    roots: &Roots,
    (settings_changed, cgroup): (bool, Option<&Path>),
    stop: &StopFlag,
    watch: &mut dyn FnMut(Event),
) -> Result<Vec<Round>, Error> {
    let mut measuring = Measuring { options, sensors, roots, cgroup, stop, watch };
    if settings_changed {
        measuring.settle()?;
    }
    for number in 1..=options.warmup {
        (measuring.watch)(Event::Warmup(number));
        let (status, ..) = measuring.command(|| None)?;
        measuring.check(status, 0)?;
    }
    let rounds = 1..=options.repeats;
    rounds.map(|number| measuring.round(number, number == 1 && options.warmup == 0)).collect()
}

struct Measuring<'a> {
    options: &'a Options,
    sensors: &'a SensorSet,
    roots: &'a Roots,
    cgroup: Option<&'a Path>,
    stop: &'a StopFlag,
    watch: &'a mut dyn FnMut(Event),
}

impl Measuring<'_> {
    /// One run after its idle baseline. The `first` needs no settling time, because nothing ran before.
    fn round(&mut self, number: u32, first: bool) -> Result<Round, Error> {
        let idle = if self.options.idle_ns > 0 { Some(self.idle(first)?) } else { None };
        (self.watch)(Event::Run(number));
        let sampler = Sampler::start(self.sensors.open(self.roots)?)?;
        let (status, usage, window) = self.command(|| sampler.failure())?;
        let span = spanned(sampler, window)?;
        self.check(status, number)?;
        Ok(Round { run: span, idle, usage, success: status.success() })
    }

    fn idle(&mut self, first: bool) -> Result<Span, Error> {
        if !first {
            self.settle()?;
        }
        (self.watch)(Event::Baseline(self.options.idle_ns as f64 / 1e9));
        let sampler = Sampler::start(self.sensors.open_idle(self.roots)?)?;
        let from_ns = now_ns();
        self.wait(self.options.idle_ns)?;
        spanned(sampler, Window { from_ns, to_ns: now_ns() })
    }

    fn settle(&mut self) -> Result<(), Error> {
        if self.options.settle_ns == 0 {
            return Ok(());
        }
        (self.watch)(Event::Settling(self.options.settle_ns as f64 / 1e9));
        self.wait(self.options.settle_ns)
    }

    fn wait(&self, ns: u64) -> Result<(), Error> {
        let until_ns = now_ns() + ns;
        loop {
            if let Some(signal) = self.stop.signal() {
                return Err(Error::Stopped(signal));
            }
            let left_ns = until_ns.saturating_sub(now_ns());
            if left_ns == 0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_nanos(left_ns).min(POLL_INTERVAL));
        }
    }

    /// Runs the command to its end; ends it on a signal or the failure of a required sensor.
    fn command(&self, failed: impl Fn() -> Option<Failure>) -> Result<(ExitStatus, Usage, Window), Error> {
        let from_ns = now_ns();
        let child = start(self.options, self.cgroup)?;
        let mut ending: Option<(Error, u64)> = None;
        loop {
            if let Some((status, usage)) = wait_for(&child, POLL_INTERVAL).map_err(Error::Wait)? {
                let window = Window { from_ns, to_ns: now_ns() };
                // Ctrl-C in a terminal also reaches the command, which may end before the signal is seen here.
                let reason = ending.map(|(reason, _)| reason).or_else(|| self.stop.signal().map(Error::Stopped));
                return reason.map_or(Ok((status, usage, window)), Err);
            }
            let reason = || self.stop.signal().map(Error::Stopped).or_else(|| failed().map(Into::into));
            match &ending {
                None => {
                    ending = reason().map(|reason| (reason, now_ns()));
                    if ending.is_some() {
                        signal(&child, Signal::TERM);
                    }
                }
                Some((_, since_ns)) if now_ns() > since_ns + GRACE_NS => signal(&child, Signal::KILL),
                Some(_) => {}
            }
        }
    }

    fn check(&self, status: ExitStatus, run: u32) -> Result<(), Error> {
        if status.success() || self.options.ignore_failure {
            return Ok(());
        }
        let status = match (status.code(), status.signal()) {
            (Some(code), _) => format!("exited with status {code}"),
            (None, Some(signal)) => format!("was killed by signal {signal}"),
            (None, None) => "did not end".to_owned(),
        };
        Err(Error::Failed { command: title(&self.options.argv), run, of: self.options.repeats, status })
    }
}

/// The command in shell syntax.
#[must_use]
pub fn title(argv: &[OsString]) -> String {
    crate::run::process::title(&pilotlight_workloads::Step {
        argv: argv.to_vec(),
        ..pilotlight_workloads::Step::default()
    })
}

/// Starts the command; a shell joins the cgroup and executes it.
fn start(options: &Options, cgroup: Option<&Path>) -> Result<Child, Error> {
    const JOIN_CGROUP: &str = "echo $$ >\"$0/cgroup.procs\" && exec \"$@\"";
    let (program, arguments) =
        options.argv.split_first().map_or_else(Default::default, |(first, rest)| (first.clone(), rest));
    let mut command = match cgroup {
        Some(_) => Command::new("/bin/sh"),
        None => Command::new(&program),
    };
    if let Some(cgroup) = cgroup {
        command.args(["-c", JOIN_CGROUP]).arg(cgroup).arg(&program);
    }
    match options.output {
        Output::Discarded => drop(command.stdout(Stdio::null())),
        Output::Kept => {}
        Output::ToStderr => drop(command.stdout(io::stderr())),
    }
    let started = command.args(arguments).spawn();
    started.map_err(|error| Error::Start { program: program.to_string_lossy().into_owned(), error })
}

fn signal(child: &Child, signal: Signal) {
    let _ = kill_process(Pid::from_child(child), signal);
}

fn spanned(sampler: Sampler, window: Window) -> Result<Span, Error> {
    let (recording, failure) = sampler.stop();
    failure.map_or(Ok(()), Err)?;
    Ok(Span { window, sensed: Sensed::measured(&recording, window) })
}

#[cfg(test)]
mod tests;
