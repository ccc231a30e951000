//! The contract: what a plant calls, and what a policy promises.
//!
//! A plant calls [`Policy::start`] once and then the other methods one at a time, always from the main core. Commands are
//! appended to `out` in the order in which they are to begin. They take effect later, and can fail
//! ([`Policy::on_refused`]); what really holds is in the next [`Sample`].
//!
//! Each answer says the earliest moment at which the policy could command something even if no request arrives until
//! then ([`NEVER`] where it could not). A plant may leave out every quiet tick, and every interval in which no request
//! arrived and none was in progress, before that moment: **with and without them the commands are the same**. Every policy
//! has a property test of that. It is what lets a whole server sleep, and a simulator skip an idle hour.

use crate::command::{Capabilities, Command, Refusal};
use crate::sample::{CoreSample, Sample, Tick};
use crate::topology::{CoreId, Topology};

/// No moment at all, as an answer to when a policy could act next.
pub const NEVER: u64 = u64::MAX;

/// A pure decision: samples in, commands out.
pub trait Policy: Send {
    /// The name by which an operator chooses it.
    fn name(&self) -> &'static str;

    /// What has to be gathered for it. Does not change after [`Policy::start`].
    fn wants(&self) -> Wants;

    /// Takes over a plant as it is: a policy that was in charge before may have left cores asleep and I/O threads anywhere.
    ///
    /// # Errors
    /// If a command that it cannot do without is beyond the plant.
    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<u64, Unsupported>;

    /// What arrived since the last tick. Comes as often as [`Wants::tick_ns`] says, or later, or never while it is quiet.
    fn on_tick(&mut self, tick: &Tick<'_>, out: &mut Vec<Command>) -> u64;

    /// What cores and I/O threads did. Comes as often as [`Wants::interval_ns`] says, or later.
    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> u64;

    /// The plant could not do `command`.
    fn on_refused(&mut self, now_ns: u64, command: &Command, refusal: Refusal);

    /// The whole server has slept until now: what was before is no measure of what comes, windows start anew.
    fn on_resume(&mut self, now_ns: u64);

    /// What it sees, for people.
    fn view(&self) -> View;
}

/// What a policy wants to be told, and how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// Time between two ticks in nanoseconds; `None` for no ticks.
    pub tick_ns: Option<u64>,
    /// Whether ticks carry busy times beside request counts.
    pub tick_busy: bool,
    /// Time between two intervals in nanoseconds; `None` for none.
    pub interval_ns: Option<u64>,
    /// Whether intervals carry how many requests were answered, and how long they were in progress.
    pub service: bool,
    /// Whether the plant may put every core into the kernel when all is quiet (`server-sleep`).
    pub sleeps_when_quiet: bool,
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
}

/// A policy needs what a plant cannot do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("policy {policy} needs {what}, which is not available here: {remedy}")]
pub struct Unsupported {
    /// The policy.
    pub policy: &'static str,
    /// The command without a substitute.
    pub what: &'static str,
    /// What would bring it, or what to use instead.
    pub remedy: &'static str,
}

/// What a policy sees, as names and values for people; units stand in the names.
pub type View = Vec<(&'static str, String)>;
