//! `pacer`: fewer cores and a lower frequency while load is steady and latency within a tolerance (PACER, MSST 2024, sections IV-B to IV-E).
//!
//! **Problem.** Storage servers have low utilization most of the time, and saving power makes requests take longer. Save as much as a latency
//! tolerance allows, and nothing while load changes.
//!
//! **Terms.** The *tolerance* (`plf`) is the allowed increase of latency over that without savings, as a share; 0.2 by default, as in the paper. The
//! *loss* is the actual increase. The *baseline* is latency without savings.
//!
//! **Algorithm.** Every interval (500 ms) the *state* follows from latency and CPU use: `state`. *Unstable*: no savings; once latency over `k`
//! windows diverges little (`stability`), it becomes the baseline (`baseline`) and savings start. *Stable*: after each window cores, then the
//! frequency, follow the loss: `adaptor`, `cores`, `frequency`; a step whose `forecast` exceeds the tolerance is not made (`variant = paper`: no
//! forecast, both together); `migrator` moves I/O threads and puts cores to sleep, by `groups`. A burst, another load, or the age of the baseline end
//! savings at once. *Idle*: one core of each group, and `background` work at its highest rate until none is left; then drives may enter idle states
//! with wake-up times within the tolerance (with `stable_drives` in Stable too). On a plant of one core the tolerance governs how that core waits for
//! requests, instead of cores and frequency: `completion`.
//!
//! **Properties** (tests/pacer.rs, tests/properties.rs). Once settled the loss is within the tolerance, with a forecast. A burst restores all cores,
//! at the highest frequency, at the first interval that shows it. At constant load cores and frequency vary by at most one core or step. With
//! tolerance 0 nothing that costs latency is saved. No drive has a wake-up time above `plf` times the baseline. The main core is never commanded to
//! sleep. A plant that skips intervals without requests gets the same commands.

mod adaptor;
mod baseline;
mod completion;
mod cores;
mod forecast;
mod frequency;
mod groups;
mod load;
mod migrator;
mod monitor;
mod monitors;
pub mod parameters;
mod readings;
mod running;
mod stability;
mod state;
mod tolerance;

use pilotlight_plant::{
    Capabilities, Command, CompletionMode, Goal, Goals, Next, Policy, Refusal, Sample, Start, ThreadId, Unsupported,
    View, Wants,
};

pub use parameters::{NAME, Parameters};

use self::parameters::Adapt;
use self::running::Running;

/// The policy.
#[derive(Debug)]
pub struct Pacer {
    /// Its name in the registry.
    name: &'static str,
    parameters: Parameters,
    /// From [`Policy::start`] on.
    running: Option<Running>,
    refused: u64,
}

impl Pacer {
    /// With these parameters.
    #[must_use]
    pub fn new(parameters: Parameters) -> Self {
        Self::named(NAME, parameters)
    }

    /// Under another name of the registry, with some parameters preset.
    pub(crate) fn named(name: &'static str, parameters: Parameters) -> Self {
        Self { name, parameters, running: None, refused: 0 }
    }

    fn unsupported(&self) -> Unsupported {
        let what = match self.parameters.adapt {
            Adapt::Both => {
                "cores that can sleep and I/O threads that can be moved, or cores whose frequency can be set"
            }
            Adapt::Cores => "cores that can sleep and I/O threads that can be moved",
            Adapt::Frequency => "cores whose frequency can be set",
        };
        Unsupported { policy: self.name, feature: what, remedy: "choose policy native or sandman" }
    }
}

impl Policy for Pacer {
    fn name(&self) -> &'static str {
        self.name
    }

    fn wants(&self) -> Wants {
        let readings = self.running.as_ref().map(Running::readings).unwrap_or_default();
        Wants { interval_ns: Some(self.parameters.interval_ns), service: true, readings, ..Wants::default() }
    }

    /// Starts with all cores, at their highest frequency, and I/O threads spread over them.
    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        let mut running = Running::new(start, &self.parameters);
        if !running.can_adapt() {
            return Err(self.unsupported());
        }
        let threads = (0..start.homes.len() as u16).map(ThreadId);
        out.extend(threads.map(|thread| Command::Completions { thread, mode: CompletionMode::Poll }));
        if let Some(before) = self.running.take() {
            running.inherit(before, &self.parameters);
        }
        let next = running.start(start, &self.parameters, out);
        self.running = Some(running);
        Ok(next)
    }

    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        self.running.as_mut().map_or(Next::NEVER, |running| running.on_interval(sample, &self.parameters, out))
    }

    fn uses(&self, goal: Goal) -> bool {
        goal == Goal::Tolerance
    }

    fn on_goals(&mut self, now_ns: u64, goals: &Goals, _out: &mut Vec<Command>) {
        if let Some(running) = &mut self.running {
            running.on_goals(now_ns, goals, &self.parameters);
        }
    }

    fn on_plant(&mut self, now_ns: u64, capabilities: &Capabilities, _out: &mut Vec<Command>) {
        if let Some(running) = &mut self.running {
            running.on_plant(now_ns, capabilities);
        }
    }

    fn on_refused(&mut self, now_ns: u64, command: &Command, refusal: Refusal) {
        self.refused += 1;
        match (&mut self.running, *command) {
            (Some(running), Command::Set { knob, value }) => running.on_refused(now_ns, (knob, value), refusal),
            (Some(running), Command::Completions { .. }) if refusal == Refusal::Failed => running.on_refused_wait(),
            _ => {}
        }
    }

    fn view(&self) -> View {
        let mut view = self.running.as_ref().map(Running::view).unwrap_or_default();
        view.push(("commands_refused", self.refused.to_string()));
        view
    }
}
