//! The trait that every policy implements.
//!
//! A plant calls [`Policy::start`] once and then the other methods one at a time, always from the main core. Commands are appended to
//! `out` in the order in which they begin. They take effect later and can fail ([`Policy::on_refused`]); the next [`Sample`] has the
//! actual state. When a policy ends, the plant restores the knobs that it has set ([`Command::Set`]).
//!
//! Each method returns the earliest time at which the policy could issue a command if no request arrives until then. Before that time a
//! plant may skip every tick without requests, and every interval without arrivals and requests in progress: **the commands are the same
//! with and without them**. Every policy has a property test for this. It allows the whole server to sleep, and the simulator to skip
//! idle time.

use crate::command::{Capabilities, Command, Refusal};
use crate::goal::{Component, Goal, Goals, Standing, Unreachable};
use crate::reading::ReadingId;
use crate::rounds::LongRound;
use crate::sample::{CoreSample, Sample, Tick};
use crate::topology::{CoreId, Topology};

/// No time; unlimited.
pub const NEVER: u64 = u64::MAX;

/// Idle timeout under a policy without its own rule, in nanoseconds; chosen: longer than the gaps between requests of a
/// loaded core, a hundred wake-ups long, and short beside the 5 ms after which no core may poll.
pub const DEFAULT_IDLE_TIMEOUT_NS: u64 = 2_000_000;

/// A policy: samples in, commands out.
pub trait Policy: Send {
    /// The name in the configuration.
    fn name(&self) -> &'static str;

    /// The samples it needs. Called after [`Policy::start`], [`Policy::on_goals`] and [`Policy::on_plant`], so it may depend on the plant
    /// and the goals.
    fn wants(&self) -> Wants;

    /// Starts on a plant in any state: a previous policy may have left cores asleep and I/O threads anywhere.
    ///
    /// # Errors
    /// If the plant does not support a command that the policy requires.
    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported>;

    /// Requests since the last tick. Called every [`Wants::tick_ns`] or later, earlier before the server sleeps (it then counts as a whole
    /// tick), and not at all without requests.
    fn on_tick(&mut self, _tick: &Tick<'_>, _out: &mut Vec<Command>) -> Next {
        Next::NEVER
    }

    /// Activity of cores and I/O threads. Called every [`Wants::interval_ns`] or later.
    fn on_interval(&mut self, _sample: &Sample<'_>, _out: &mut Vec<Command>) -> Next {
        Next::NEVER
    }

    /// Two rounds in a row of a core were longer than [`Next::round_ns`], or one twice as long. The sample is that of an interval that ends now; the next one begins.
    fn on_long_round(&mut self, _long: LongRound, _sample: &Sample<'_>, _out: &mut Vec<Command>) -> Next {
        Next::NEVER
    }

    /// Whether the policy acts on a goal. Setting an unused goal gives a warning.
    fn uses(&self, _goal: Goal) -> bool {
        false
    }

    /// The goal that it cannot reach at present, if any.
    fn unreachable(&self) -> Option<Unreachable> {
        None
    }

    /// The component that limits throughput under the present goals, if known.
    fn bottleneck(&self) -> Option<Component> {
        None
    }

    /// What limits it at present, if it knows.
    fn standing(&self) -> Option<Standing> {
        None
    }

    /// The goals have changed. The next tick or interval is not skipped.
    fn on_goals(&mut self, _now_ns: u64, _goals: &Goals, _out: &mut Vec<Command>) {}

    /// Namespaces, hosts or devices were added or removed. Knobs and sources keep their ids. The next tick or interval is not skipped.
    fn on_plant(&mut self, _now_ns: u64, _capabilities: &Capabilities, _out: &mut Vec<Command>) {}

    /// The plant refused `command`. After [`Refusal::Failed`] the policy must not retry at once, as each attempt may take long; after any
    /// other refusal not before the plant has changed.
    fn on_refused(&mut self, _now_ns: u64, _command: &Command, _refusal: Refusal) {}

    /// The whole server has slept until now; there were no requests.
    fn on_resume(&mut self, _now_ns: u64) {}

    /// The policy's state, for display.
    fn view(&self) -> View {
        View::new()
    }
}

/// Longest [`Next::pause_ns`] that a plant obeys, in nanoseconds.
pub const LONGEST_PAUSE_NS: u64 = 500_000;

/// A policy's next deadline, valid until the next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// The earliest time at which it could issue a command without arrivals, in nanoseconds; or [`NEVER`].
    pub needed_ns: u64,
    /// Idle timeout: time after the last request on the main core until it waits in the kernel (`server-sleep`), in nanoseconds; or [`NEVER`].
    /// It waits only while every worker waits or sleeps.
    pub idle_timeout_ns: u64,
    /// Idle timeout of a worker: time after its last request until it waits in the kernel, in nanoseconds; or [`NEVER`].
    pub worker_idle_timeout_ns: u64,
    /// Length of two rounds in a row of a core, or half that of one, from which on [`Policy::on_long_round`] is called, in nanoseconds; or [`NEVER`].
    /// A core with one I/O thread reports none: other cores would not help.
    pub round_ns: u64,
    /// Longest wait in the kernel of a core that has I/O threads, in nanoseconds; then it looks and waits again, so that it sleeps less deep. Or [`NEVER`].
    pub wait_ns: u64,
    /// Time after requests in which a core all of whose I/O threads wait in the kernel ([`crate::CompletionMode::Interrupt`]) does not look for more,
    /// nor for completions, so that they come together, in nanoseconds; at most [`LONGEST_PAUSE_NS`]; 0 for none. A command ends it.
    pub pause_ns: u64,
}

impl Next {
    /// No deadline; keeps the server awake.
    pub const NEVER: Self = Self::at(NEVER);

    /// A deadline at `needed_ns`; keeps the server awake.
    #[must_use]
    pub const fn at(needed_ns: u64) -> Self {
        Self {
            needed_ns,
            idle_timeout_ns: NEVER,
            worker_idle_timeout_ns: NEVER,
            round_ns: NEVER,
            wait_ns: NEVER,
            pause_ns: 0,
        }
    }

    /// A deadline at `needed_ns`; the server sleeps after [`DEFAULT_IDLE_TIMEOUT_NS`].
    #[must_use]
    pub const fn with_default_timeout(needed_ns: u64) -> Self {
        Self::with_idle_timeout(needed_ns, DEFAULT_IDLE_TIMEOUT_NS)
    }

    /// A deadline at `needed_ns`; the main core waits after `idle_timeout_ns`, a worker after at least [`DEFAULT_IDLE_TIMEOUT_NS`], as its gaps
    /// are longer than those of the server.
    #[must_use]
    pub const fn with_idle_timeout(needed_ns: u64, idle_timeout_ns: u64) -> Self {
        let worker_idle_timeout_ns =
            if idle_timeout_ns > DEFAULT_IDLE_TIMEOUT_NS { idle_timeout_ns } else { DEFAULT_IDLE_TIMEOUT_NS };
        Self { idle_timeout_ns, worker_idle_timeout_ns, ..Self::at(needed_ns) }
    }
}

/// The samples a policy needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// Time between two ticks in nanoseconds; `None` for no ticks.
    pub tick_ns: Option<u64>,
    /// Whether ticks contain busy times.
    pub tick_busy: bool,
    /// Time between two intervals in nanoseconds; `None` for none.
    pub interval_ns: Option<u64>,
    /// Whether intervals contain answered requests and their time in progress.
    pub service: bool,
    /// The readings in intervals; no others are taken.
    pub readings: Vec<ReadingId>,
}

/// The state of a plant when a policy starts.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// Monotonic time in nanoseconds.
    pub now_ns: u64,
    /// The cores.
    pub topology: &'a Topology,
    /// Capabilities and their costs.
    pub capabilities: &'a Capabilities,
    /// The state of each core, by [`CoreId`].
    pub cores: &'a [CoreSample],
    /// The core of each I/O thread, by [`crate::ThreadId`].
    pub homes: &'a [CoreId],
    /// The operator's goals.
    pub goals: &'a Goals,
}

/// A policy requires a feature that the plant does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy {policy} needs {feature}, which is not available here: {remedy}")]
pub struct Unsupported {
    /// The policy.
    pub policy: &'static str,
    /// The missing feature.
    pub feature: &'static str,
    /// How to get it, or what to use instead.
    pub remedy: &'static str,
}

/// State of a policy for display, as names (with units) and values.
pub type View = Vec<(&'static str, String)>;
