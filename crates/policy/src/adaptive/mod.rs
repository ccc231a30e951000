//! `adaptive`: the fewest cores that keep a latency tolerance, waiting in the kernel between requests, and at once more of them for a burst.
//!
//! **Problem.** The papers' policies keep cores polling that have little to do, or detect a burst after the core that must detect it has
//! drowned. An operator names what may be lost, the tolerance, and should not have to name how.
//!
//! **Terms.** The *load* of an I/O thread is the share of time in which it works, of a core that of its threads. A core is *in use* if it has
//! an I/O thread. The *rise* is latency, as the tolerance counts it (99th percentile, median or mean), above that of polling on all cores. The
//! *allowed* rise is the tolerance (50 % of the 99th percentile) of what a host sees, at least 20 us.
//!
//! **How many cores.** Every check (10 ms) the fewest cores whose estimated rise is allowed: `delay.rs`; threads are placed by `placement.rs`,
//! the other workers sleep. Cores are taken at once; they are given back after a hold (50 ms), which doubles each time that they turn out not
//! to have been needed, so that nothing moves to and fro at a constant load.
//!
//! **Bursts** are detected by queueing delay, not by a count: the policy arms a rule that each core executes ([`pilotlight_plant::Rounds`]).
//! After two long rounds in a row, or one twice as long, its I/O threads are spread over the reserve, or over all cores, one each as far as there are any. It needs
//! no ticks: what it costs is a comparison after each poll with work. If the load turns out to be what it was, rounds must be longer from then
//! on. The requests that are late because a burst has to be found may be a quarter of one in a hundred (of a 99th percentile): if there are more, as in
//! short bursts, the hold doubles until it lasts over several, and halves with each burst once there are far fewer.
//!
//! **How a core waits.** In the kernel, on a plant where the main core can: even a core that is just below its limit takes less CPU time than
//! if it polled. A wait is short while there are requests (150 us, or four times what is allowed, and without end from 300 us allowed on), as a core that
//! sleeps longer sleeps deeper; where hardly any gap is that long it has no end, as setting a timer costs CPU time. Without requests all cores wait without
//! end. Where a core cannot wait, it polls. With what cores leave of the tolerance they pause after requests, so that others come together, where for a
//! second one and a half and more came meanwhile on each, and none is nearly full. If the measured latency is then too high, no core pauses for a minute.
//!
//! **Feedback.** The estimate is compared with the measured latency, if there is one. If the tolerance is exceeded because of the
//! number of cores, the estimated rise is scaled up; else all cores poll for two seconds, which measures the baseline, and then wait, or few of them go
//! on to poll if the waits were the cause, until the load has changed, or for a time.
//!
//! **Budget** (budget.rs). Limits of the CPU, and caps of drives, that the budget carries even if all of it is drawn: a burst wakes only what is within.
//! Under a budget nothing is tried that needs more power: what was not measured before is not measured. At tolerance 0 cores without work poll only until
//! the budget has been met once: then they would slow down those with work, so that the floor of 20 us holds instead.
//!
//! **Other cores** sleep deep, where power is measured, but for a reserve: as many as a burst needed in the last ten to twenty minutes (reserve.rs).
//!
//! **Background work** (as in PACER, IV-D), where power is measured: at its lowest rate, but after a second without requests at its highest, until none is
//! left or it makes no progress; then it accumulates.
//!
//! **Drives** may enter idle states, where power is measured: under load those whose wake-up takes a tenth of the allowed rise, after a second without
//! requests, and with no such work left, those within all of it.
//!
//! **Properties** (tests.rs and tests/properties.rs). At tolerance 0 every core polls, if the budget carries that. The main core and cores that get a thread are never
//! commanded to sleep. At a constant load threads move ever less. Without requests nothing is commanded but, once, the drives'
//! limit, the end of a trial or remedy, and the sleep of cores that leave the reserve, so such intervals can be skipped; and background work, if there is any.

mod budget;
mod cores;
mod delay;
mod feedback;
mod parameters;
mod placement;
mod reserve;
#[cfg(test)]
mod tests;

use pilotlight_plant::{
    Bound, Capabilities, Command, CompletionMode, Component, CoreId, CoreState, Goal, Goals, LongRound, NEVER, Next,
    Policy, Quantity, Reading, ReadingId, Refusal, Sample, Scope, Standing, Start, Stat, ThreadId, Tolerance, Topology,
    Unreachable, Unsupported, View, Wants,
};

pub use parameters::Parameters;

use crate::background::Background;
use crate::drives::Drives;
use crate::load::is_quiet;
use crate::sandman::plant_state::PlantState;
use budget::{Load, Wall};
use feedback::Feedback;
use placement::{busiest, order};
use reserve::Reserve;

/// The name by which an operator chooses it.
pub const NAME: &str = "adaptive";

/// Tolerance without a goal.
const TOLERANCE: Tolerance = Tolerance { scope: Scope::Server, stat: Stat::P99, bound: Bound::LossPpm(500_000) };
/// Weight of the last check in the smoothed load.
const WEIGHT: f64 = 0.25;
/// Standard deviations by which the load of random arrivals must exceed that for which cores are in use, for a check to take more.
const DEVIATIONS: f64 = 3.0;
/// Part by which the load must have exceeded that for which fewer cores suffice, for the cores to count as needed; chosen.
const NEEDED: f64 = 1.25;
/// Time after an early check in which reports of long rounds are of the time before it; chosen: a few wake-ups by software.
const SETTLE_NS: u64 = 300_000;
/// Largest multiple of the shortest long round to which the reported rounds grow. Longer ones at a load that stays, as on a machine whose other programs
/// take the CPU from a core, lengthen the hold: a burst must be found on such a machine too.
const LONGEST_ROUND: u64 = 4;
/// Part of the allowed rise that drives may take to wake up while there are requests, and time without any after which they may take all, and of requests
/// that come together after which cores pause; chosen.
const OF_DRIVES: f64 = 0.1;
const QUIET_NS: u64 = 1_000_000_000;
/// Time without progress after which background work counts as steady; chosen: this server looks for work only after 5 s without requests.
const STEADY_NS: u64 = 8_000_000_000;
/// Time for which background work accumulates while drives rest (PACER).
const ACCUMULATES_NS: u64 = 30_000_000_000;
/// Requests of which no round is long, even if they take longer than the parameter (160 us each on PACER's machine, simulated); chosen.
const ROUND_OF: f64 = 3.0;
/// Long rounds whose requests are late because a burst had to be found: two that report it, and the wake-up of the cores that help; chosen.
const LATE_ROUNDS: f64 = 4.0;
/// Part of what may be late from which on the hold becomes longer, as other requests are late too, and below which it becomes shorter again; chosen.
const OFTEN: f64 = 0.25;
const SELDOM: f64 = 0.05;
/// Longest wait by what is allowed; chosen: of waits of 150 and 600 us the rise of the 99th percentile was a tenth (simulated, `live-16cpu`); some states of
/// CPUs take up to a third.
const WAIT_OF: f64 = 4.0;
/// Requests in the longest wait from which on it needs no end; chosen: of random arrivals one wait in 400 is twice as long.
const OFTEN_ENOUGH: f64 = 3.0;
/// The allowed rise from which on waits have no end; chosen: the deepest states of today's CPUs take up to about 300 us to leave.
const DEEPEST_NS: f64 = 300_000.0;
/// What a pause adds to the 99th percentile by its length, at most. Simulated (`live-16cpu`, one core): pauses of 30 us added 9 us at 100 k requests a second and
/// 14 at 40 k; of 37 us 26 at 40 k.
const OF_PAUSE: f64 = 0.75;
/// Loads of the busiest core from which on no pauses begin, and those that were made end: requests come together by themselves.
const PAUSES_BELOW: (f64, f64) = (0.8, 0.85);
/// Requests that must come in a pause, for it to save more than it costs (simulated: with one it saved nothing), and with fewer than which it ends.
const TOGETHER: (f64, f64) = (1.5, 1.2);
/// Part of a pause by which another must differ, to be taken.
const OTHER_PAUSE: f64 = 0.25;
/// Longest hold: at a constant load nothing moves more often.
const LONGEST_HOLD_NS: u64 = 120_000_000_000;

/// The policy.
#[derive(Debug)]
pub struct Adaptive {
    parameters: Parameters,
    /// From [`Policy::start`] on.
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    topology: Topology,
    /// Cores in the order in which they are used.
    order: Vec<CoreId>,
    plant_state: PlantState,
    reserve: Reserve,
    can_wait: bool,
    latency: Option<ReadingId>,
    tolerance: Bound,
    stat: Stat,
    wall: Wall,
    feedback: Feedback,
    drives: Drives,
    background: Background,
    /// When its backlog is looked at next.
    background_ns: u64,
    /// Power is measured, or a profile says it: knobs have a price.
    has_power: bool,
    /// Smoothed load of each I/O thread, and the service time; 0 before the first request.
    loads: Vec<f64>,
    /// The same in the last check.
    last: Vec<f64>,
    service_ns: f64,
    /// Requests in the last check, the last check with any, and the relative deviation of the smoothed load.
    has_requests: bool,
    requested_ns: u64,
    noise: f64,
    /// The mode commanded last.
    mode: CompletionMode,
    hold: Hold,
    /// Cores look for requests again after this time; and when requests last came alone.
    pause_ns: u64,
    alone_ns: u64,
    /// Cores report rounds of this length.
    round_ns: u64,
    /// Reports before are ignored.
    settled_ns: u64,
    /// [`pilotlight_plant::NEVER`] if no check is needed without requests, else each.
    due_ns: u64,
    counters: Counters,
}

/// Cores that were taken and are not given back yet.
#[derive(Clone, Copy, Debug)]
struct Hold {
    until_ns: u64,
    /// The next hold.
    length_ns: u64,
    /// Cores in use before, and the highest loads since.
    before: usize,
    peak: f64,
    /// The longest reported round; 0 if a check took the cores.
    longest_ns: u64,
    /// Requests since the last burst was found, and whether it was found too often for the hold to become shorter.
    requests: u64,
    is_late: bool,
}

/// Counters since the start, for display.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    long_rounds: u64,
    taken: u64,
    given_back: u64,
    moves: u64,
    refused: u64,
}

impl Adaptive {
    /// With these parameters.
    #[must_use]
    pub fn new(parameters: Parameters) -> Self {
        Self { parameters, running: None }
    }
}

/// The tolerance of the server; those of namespaces are not used.
fn tolerance(goals: &Goals) -> Tolerance {
    goals.tolerance(Scope::Server).unwrap_or(TOLERANCE)
}

impl Policy for Adaptive {
    fn name(&self) -> &'static str {
        NAME
    }

    fn wants(&self) -> Wants {
        let Some(running) = &self.running else {
            return Wants { interval_ns: Some(self.parameters.check_ns), ..Wants::default() };
        };
        let mut readings: Vec<ReadingId> = running.latency.into_iter().chain(running.wall.readings()).collect();
        readings.extend(running.background.readings());
        readings.sort_unstable();
        readings.dedup();
        Wants { interval_ns: Some(self.parameters.check_ns), readings, ..Wants::default() }
    }

    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        let remedy = "choose policy static or interrupt";
        if start.capabilities.moves.is_none() {
            return Err(Unsupported { policy: NAME, feature: "I/O threads that can be moved", remedy });
        }
        if start.capabilities.sleeps.is_empty() {
            return Err(Unsupported { policy: NAME, feature: "a core that can sleep by command", remedy });
        }
        let mut plant_state = PlantState::new(start.topology, start.cores, start.homes.iter().copied());
        for (thread, &home) in start.homes.iter().enumerate() {
            if start.cores[home.index()].state != CoreState::Awake {
                let command = Command::Move { thread: ThreadId(thread as u16), to: start.topology.main() };
                plant_state.apply(&command);
                out.push(command);
            }
        }
        let tolerance = tolerance(start.goals);
        // A policy around this one starts it again, with other cores.
        let before = self.running.take().map(|before| (before.reserve, before.background));
        let (reserve, background) = before.unwrap_or_else(|| (Reserve::new(start.now_ns), Background::default()));
        let mut running = Running {
            topology: start.topology.clone(),
            order: order(start.topology),
            plant_state,
            reserve,
            can_wait: start.capabilities.interrupts && start.capabilities.server_sleep.is_some(),
            latency: latency(start.capabilities, tolerance.stat),
            tolerance: tolerance.bound,
            stat: tolerance.stat,
            wall: Wall::new(&self.parameters),
            feedback: Feedback::default(),
            drives: Drives::default(),
            background,
            background_ns: start.now_ns,
            has_power: has_power(start.capabilities, &self.parameters),
            loads: vec![0.0; start.homes.len()],
            last: vec![0.0; start.homes.len()],
            service_ns: 0.0,
            has_requests: false,
            requested_ns: start.now_ns,
            noise: 0.0,
            mode: CompletionMode::Poll,
            hold: Hold {
                until_ns: start.now_ns,
                length_ns: self.parameters.hold_ns,
                before: 0,
                peak: 0.0,
                longest_ns: 0,
                requests: 0,
                is_late: false,
            },
            pause_ns: 0,
            alone_ns: start.now_ns,
            round_ns: self.parameters.round_ns,
            settled_ns: start.now_ns,
            due_ns: start.now_ns,
            counters: Counters::default(),
        };
        running.drives.find(start.capabilities);
        running.find_background(start.capabilities);
        running.reserve.find(start.capabilities, running.has_power);
        running.set_mode(&self.parameters, out);
        running.wall.start(start, out);
        let next = running.next(&self.parameters);
        self.running = Some(running);
        Ok(next)
    }

    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        let Some(running) = &mut self.running else { return Next::NEVER };
        if is_quiet(sample) && sample.now_ns < running.needed_ns() {
            return running.next(&self.parameters); // a plant may skip it
        }
        running.plant_state.update(sample.cores, sample.threads.iter().map(|thread| thread.home));
        running.update(sample, self.parameters.check_ns);
        if running.wall.due_ns().is_some_and(|due_ns| sample.now_ns >= due_ns) {
            let allowed_nothing = running.allows_nothing();
            running.wall.on_sample(sample, running.load(), out);
            if allowed_nothing && !running.allows_nothing() {
                running.wall.forget(sample.now_ns);
            }
        }
        let before = out.len();
        if running.wall.is_active() {
            running.feedback.give_up();
        }
        if running.wall.binding().is_some() {
            running.feedback.changed(); // latency under a limit says nothing about cores and waits
        }
        running.learn(sample, &self.parameters);
        running.set_mode(&self.parameters, out);
        running.set_background(sample, out);
        running.limit_drives(sample, &self.parameters, out); // first: what they may take is not left for cores
        running.adjust(sample, &self.parameters, out);
        running.deepen(sample, out);
        running.choose_pause(sample.now_ns, &self.parameters);
        // A trial ends with the load: cores that poll for it wait again.
        let is_settled = running.is_settled() && !running.feedback.polls();
        let is_at_rest = !running.has_requests && out.len() == before && is_settled;
        running.due_ns = if is_at_rest { running.rest_due_ns(sample.now_ns) } else { sample.now_ns };
        running.next(&self.parameters)
    }

    fn on_long_round(&mut self, long: LongRound, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        let Some(running) = &mut self.running else { return Next::NEVER };
        running.counters.long_rounds += 1;
        running.hold.requests += sample.threads.iter().map(|thread| thread.requests).sum::<u64>();
        running.plant_state.update(sample.cores, sample.threads.iter().map(|thread| thread.home));
        running.due_ns = sample.now_ns;
        running.has_requests = true;
        if sample.now_ns < running.settled_ns || running.plant_state.owned(long.core) < 2 {
            return running.next(&self.parameters); // it is of the time before
        }
        running.spread(long, sample, &self.parameters, out);
        running.next(&self.parameters)
    }

    fn uses(&self, goal: Goal) -> bool {
        matches!(goal, Goal::Tolerance | Goal::Budget | Goal::Priorities)
    }

    fn unreachable(&self) -> Option<Unreachable> {
        self.running.as_ref()?.wall.unreachable()
    }

    fn bottleneck(&self) -> Option<Component> {
        self.running.as_ref()?.wall.binding()
    }

    fn standing(&self) -> Option<Standing> {
        let running = self.running.as_ref()?;
        let (rise_ns, allowed_ns) = running.rise_and_allowed_ns(&self.parameters);
        let (limit, _) = running.limited_by((rise_ns, allowed_ns), &self.parameters);
        let finite = |ns: f64| if ns.is_finite() { ns.max(0.0) as u64 } else { NEVER };
        Some(Standing { limit, rise_ns: finite(rise_ns), allowed_ns: finite(allowed_ns) })
    }

    fn on_goals(&mut self, now_ns: u64, goals: &Goals, out: &mut Vec<Command>) {
        if let Some(running) = &mut self.running {
            let Tolerance { stat, bound, .. } = tolerance(goals);
            if std::mem::replace(&mut running.stat, stat) != stat {
                running.latency = latency(running.wall.capabilities(), stat);
                running.feedback = Feedback::default(); // it is of another statistic
            }
            if std::mem::replace(&mut running.tolerance, bound) != bound {
                running.feedback.start_again(now_ns);
            }
            running.wall.on_goals(now_ns, goals, out);
            running.due_ns = now_ns;
        }
    }

    fn on_plant(&mut self, now_ns: u64, capabilities: &Capabilities, out: &mut Vec<Command>) {
        if let Some(running) = &mut self.running {
            running.latency = latency(capabilities, running.stat);
            running.drives.find(capabilities);
            running.has_power = has_power(capabilities, &self.parameters);
            running.find_background(capabilities);
            running.reserve.find(capabilities, running.has_power);
            running.wall.on_plant(now_ns, capabilities, out);
            running.due_ns = now_ns;
        }
    }

    fn on_refused(&mut self, now_ns: u64, command: &Command, refusal: Refusal) {
        if let Some(running) = &mut self.running {
            running.counters.refused += 1;
            if let Command::Set { knob, value } = *command {
                _ = running.wall.on_refused(now_ns, (knob, value), refusal)
                    || running.drives.on_refused(now_ns, knob, refusal)
                    || running.background.on_refused(now_ns, knob, refusal);
                return;
            }
            running.plant_state.revert(command);
        }
    }

    fn view(&self) -> View {
        let Some(running) = &self.running else { return View::new() };
        let us = |ns: f64| if ns.is_finite() { format!("{:.0} us", ns / 1e3) } else { "saturated".to_owned() };
        let base_ns = running.base_ns(&running.loads);
        let (limit, why) = running.limited_by(running.rise_and_allowed_ns(&self.parameters), &self.parameters);
        let Counters { long_rounds, taken, given_back, moves, refused } = running.counters;
        let mut view = vec![
            ("limited by", format!("{}: {why}", limit.name())),
            ("cores in use", format!("{} of {}", running.in_use(), running.order.len())),
            (
                "cores wait",
                if running.mode == CompletionMode::Interrupt { "in the kernel" } else { "polling" }.to_owned(),
            ),
            ("cores in use or shallow asleep", running.kept().to_string()),
            ("load of the busiest core", format!("{:.0} %", 100.0 * running.load().busiest)),
            ("tolerance is of", running.stat.name().to_owned()),
            ("latency of polling, estimated", us(base_ns)),
            ("latency allowed", us(base_ns + running.allowed_ns(base_ns, &self.parameters))),
            ("of the tolerance not used", running.unused(&self.parameters)),
            ("reports of long rounds", long_rounds.to_string()),
            ("cores taken", taken.to_string()),
            ("cores given back", given_back.to_string()),
            ("moves", moves.to_string()),
            ("commands refused", refused.to_string()),
        ];
        view.extend(running.wall.view());
        view
    }
}

impl Running {
    /// When an interval without requests may change something.
    fn needed_ns(&self) -> u64 {
        self.wall.due_ns().map_or(self.due_ns, |due_ns| due_ns.min(self.due_ns))
    }

    fn load(&self) -> Load {
        let on_cores = self.on_cores();
        let main = *on_cores.get(self.topology.main().index()).unwrap_or(&0.0);
        Load {
            busiest: busiest(&on_cores),
            workers: on_cores.iter().sum::<f64>() - main,
            main: if self.mode == CompletionMode::Interrupt { main } else { 1.0 },
            used: self.in_use(),
            most: self.most(),
        }
    }

    /// When something may change without requests.
    fn rest_due_ns(&self, now_ns: u64) -> u64 {
        self.idle_due_ns(now_ns).min(self.background_due_ns(now_ns)).min(self.reserve.due_ns(self.in_use()))
    }

    /// Every thread on the main core, and every worker asleep.
    fn is_settled(&self) -> bool {
        self.plant_state.is_at_rest() || self.allows_nothing() && self.in_use() == self.most()
    }

    /// Compares the estimate with the measured latency.
    fn learn(&mut self, sample: &Sample<'_>, parameters: &Parameters) {
        let (base_ns, on_cores) = (self.base_ns(&self.loads), self.on_cores());
        let state = feedback::State {
            now_ns: sample.now_ns,
            requests: sample.threads.iter().map(|thread| thread.requests).sum(),
            elapsed_ns: sample.elapsed_ns,
            estimated_ns: self.delay_ns(&on_cores) + self.feedback.unexplained_ns(),
            pauses: self.pause_ns > 0,
            base_ns,
            allowed_ns: base_ns + self.allowed_ns(base_ns, parameters),
            is_tail: self.stat == Stat::P99,
            can_wait: parameters.waits && self.can_wait && !self.wall.is_active(),
            saves_cores: self.in_use() < self.most() && !self.wall.is_active(),
            load: busiest(&on_cores),
        };
        let of_server = |id: ReadingId| sample.readings.iter().find(|reading| reading.id == id);
        let polled = self.feedback.polls_few();
        let missing = |id| Reading { id, value: None, age_ns: u64::MAX };
        match self.latency {
            Some(id) => self.feedback.learn(of_server(id).copied().unwrap_or(missing(id)), &state),
            None => self.feedback.end(),
        }
        if self.feedback.polls_few() && !polled {
            // Cores that poll cost more than those that wait: those of a long hold do not.
            self.hold.until_ns = self.hold.until_ns.min(sample.now_ns.saturating_add(parameters.hold_ns));
        }
    }
}

/// The source of this statistic of the server's latency.
fn latency(capabilities: &Capabilities, stat: Stat) -> Option<ReadingId> {
    capabilities.find_source(Scope::Server, Quantity::LatencyNs(stat)).map(|(id, _)| id)
}

/// Whether it is known that a knob saves.
fn has_power(capabilities: &Capabilities, parameters: &Parameters) -> bool {
    parameters.profile.is_some() || capabilities.sources_of(Quantity::PowerUw).next().is_some()
}
