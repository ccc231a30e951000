//! The contract: what a plant calls, and what a policy promises.
//!
//! A plant calls [`Policy::start`] once and then the other methods one at a time, always from the main core. Commands are
//! appended to `out` in the order in which they are to begin. They take effect later, and can fail
//! ([`Policy::on_refused`]); what really holds is in the next [`Sample`]. What a policy has set of the machine
//! ([`Command::Set`]) the plant puts back when it ends.
//!
//! Each answer says the earliest moment at which the policy could command something even if no request arrives until
//! then. A plant may leave out every quiet tick, and every interval in which no request arrived and none was in progress,
//! before that moment: **with and without them the commands are the same**. Every policy has a property test of that. It is what
//! lets a whole server sleep, and a simulator skip an idle hour.

use crate::command::{Capabilities, Command, Refusal};
use crate::goal::{Component, Goal, Goals, Unreachable};
use crate::reading::ReadingId;
use crate::sample::{CoreSample, Sample, Tick};
use crate::topology::{CoreId, Topology};

/// No moment at all, or no end.
pub const NEVER: u64 = u64::MAX;

/// A pure decision: samples in, commands out.
pub trait Policy: Send {
    /// The name by which an operator chooses it.
    fn name(&self) -> &'static str;

    /// What has to be gathered for it. Asked after [`Policy::start`], [`Policy::on_goals`] and [`Policy::on_plant`], so it may depend
    /// on what the plant has and on what the operator asks for.
    fn wants(&self) -> Wants;

    /// Takes over a plant as it is: a policy that was in charge before may have left cores asleep and I/O threads anywhere.
    ///
    /// # Errors
    /// If a command that it cannot do without is beyond the plant.
    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported>;

    /// What arrived since the last tick. Comes as often as [`Wants::tick_ns`] says, or later, or never while it is quiet.
    fn on_tick(&mut self, _tick: &Tick<'_>, _out: &mut Vec<Command>) -> Next {
        Next::NEVER
    }

    /// What cores and I/O threads did. Comes as often as [`Wants::interval_ns`] says, or later.
    fn on_interval(&mut self, _sample: &Sample<'_>, _out: &mut Vec<Command>) -> Next {
        Next::NEVER
    }

    /// Whether it acts on a goal. Whoever sets one that the policy does not use is told so.
    fn uses(&self, _goal: Goal) -> bool {
        false
    }

    /// The goal that it does not reach at present, if there is one.
    fn unreachable(&self) -> Option<Unreachable> {
        None
    }

    /// The component that limits throughput under the goals at present, where the policy has found out.
    fn bottleneck(&self) -> Option<Component> {
        None
    }

    /// Other goals hold from now on. The next tick or interval comes, quiet or not.
    fn on_goals(&mut self, _now_ns: u64, _goals: &Goals, _out: &mut Vec<Command>) {}

    /// Namespaces, hosts or devices have come or gone. Knobs and sources keep their numbers. The next tick or interval
    /// comes.
    fn on_plant(&mut self, _now_ns: u64, _capabilities: &Capabilities, _out: &mut Vec<Command>) {}

    /// The plant could not do `command`. A knob that failed is not to be set again at once, as each try may take the plant long; with any
    /// other refusal not before the plant has changed.
    fn on_refused(&mut self, _now_ns: u64, _command: &Command, _refusal: Refusal) {}

    /// The whole server has slept until now, and ticks with it: the time was quiet.
    fn on_resume(&mut self, _now_ns: u64) {}

    /// What it sees, for people.
    fn view(&self) -> View {
        View::new()
    }
}

/// What a policy answers, valid until it answers again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// The earliest moment at which it could command something although nothing arrives, in nanoseconds; or [`NEVER`].
    pub needed_ns: u64,
    /// How long the server stays awake after the last request, in nanoseconds, before every core waits in the kernel
    /// (`server-sleep`); or [`NEVER`].
    pub awake_ns: u64,
}

impl Next {
    /// Needs nothing, and keeps the server awake.
    pub const NEVER: Self = Self::at(NEVER);

    /// Needed at `needed_ns`, and keeps the server awake.
    #[must_use]
    pub const fn at(needed_ns: u64) -> Self {
        Self { needed_ns, awake_ns: NEVER }
    }
}

/// What a policy wants to be told, and how often.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// Time between two ticks in nanoseconds; `None` for no ticks.
    pub tick_ns: Option<u64>,
    /// Whether ticks carry busy times beside request counts.
    pub tick_busy: bool,
    /// Time between two intervals in nanoseconds; `None` for none.
    pub interval_ns: Option<u64>,
    /// Whether intervals carry how many requests were answered, and how long they were in progress.
    pub service: bool,
    /// Which readings intervals carry; no others are gathered.
    pub readings: Vec<ReadingId>,
}

/// A plant as a policy finds it.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// Monotonic time in nanoseconds.
    pub now_ns: u64,
    /// The cores.
    pub topology: &'a Topology,
    /// What the plant can do, and what that costs.
    pub capabilities: &'a Capabilities,
    /// The state of each core, by [`CoreId`].
    pub cores: &'a [CoreSample],
    /// Where each I/O thread lives, by [`crate::ThreadId`].
    pub homes: &'a [CoreId],
    /// What the operator asks for.
    pub goals: &'a Goals,
}

/// A policy needs what a plant cannot do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy {policy} needs {feature}, which is not available here: {remedy}")]
pub struct Unsupported {
    /// The policy.
    pub policy: &'static str,
    /// The command without a substitute.
    pub feature: &'static str,
    /// What would bring it, or what to use instead.
    pub remedy: &'static str,
}

/// What a policy sees, as names and values for people; units stand in the names.
pub type View = Vec<(&'static str, String)>;
