//! How a server of one core waits for requests: no core can be removed, so the tolerance governs how its core waits.
//!
//! **Rule.** The additional latency that is allowed (the tolerance aimed at, times the baseline) selects the wait with the least expected CPU time:
//! - *polling*, without delay;
//! - *sleeping in the kernel after an idle timeout*. After an idle timeout `q` a share `p` of the requests finds the core asleep and waits for
//!   its wake-up `w`: with independent gaps of mean `g`, `p = exp(-q / g)`. So `p` is the allowed time over `w`, and determines `q`;
//! - *resting* for a fixed time between polls: a request waits half of a rest on average;
//! - *interrupts*, if a whole wake-up is allowed.
//!
//! A rest never delays requests by more than a wake-up: beyond that the core sleeps until a request arrives.
//!
//! **Closed loop.** The cost of a wake-up and a rest is first that reported by the plant, then corrected by the measured loss after each window. An
//! underestimated cost is corrected at once and not used again until the baseline is old, an overestimated one by halves, and only if the loss is far
//! enough from the aim: so a steady load settles. A different load resets the costs.
//!
//! **Properties** (tests/one_core.rs). Once settled the mean loss is within the tolerance, whatever the real costs. Without allowed latency it polls.

use pilotlight_plant::{Command, CompletionMode, Depth, NEVER, Start, ThreadId};

use super::load::Load;
use super::parameters::Parameters;

/// CPU time of an empty poll, in nanoseconds; chosen.
const ROUND_NS: f64 = 1_000.0;
/// A different mechanism must need less than this share of the CPU time of the current one; chosen, so that noise causes no change.
const WORTHWHILE: f64 = 0.9;
/// Minimum saving of a wait, as a share of the CPU time; chosen.
const MIN_SAVING: f64 = 0.02;
/// Minimum and maximum of a corrected cost over the reported one; chosen.
const CORRECTION: (f64, f64) = (0.1, 50.0);
/// Minimum correction of an underestimated cost; chosen.
const NOT_AGAIN: f64 = 1.25;
/// The shortest rest, in nanoseconds; chosen.
const SHORTEST_REST_NS: f64 = 1_000.0;

/// Arrivals of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Arrivals {
    /// Mean time between them, in nanoseconds.
    gap_ns: f64,
    /// CPU time of a request, in nanoseconds.
    service_ns: f64,
}

/// How the core waits.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wait {
    /// It polls.
    Poll,
    /// It polls for an idle timeout, then sleeps until a request arrives; `asleep` is the expected share of requests that find it asleep.
    IdleTimeout { timeout_ns: u64, asleep: f64 },
    /// It rests between polls, which delays requests by `delay_ns` on average.
    Rest { rest_ns: u32, delay_ns: f64 },
    /// It sleeps until a request arrives.
    Interrupt,
}

/// A cost reported by the plant, and its measured correction.
#[derive(Clone, Copy, Debug)]
struct CostEstimate {
    reported_ns: f64,
    times: f64,
    /// Minimum of the correction factor under this load.
    least: f64,
}

impl CostEstimate {
    fn new(reported_ns: f64) -> Self {
        Self { reported_ns, times: 1.0, least: 0.0 }
    }

    fn ns(self) -> f64 {
        self.reported_ns * self.times
    }

    /// Corrects the cost by a measurement, both in the same unit.
    fn correct(&mut self, measured: f64, expected: f64) {
        let ratio = (measured / expected.max(1.0)).max(0.0);
        if ratio > 1.0 {
            self.least = (self.times * NOT_AGAIN).min(CORRECTION.1);
        }
        let ratio = if ratio > 1.0 { ratio } else { f64::midpoint(1.0, ratio) };
        self.times = (self.times * ratio).clamp(CORRECTION.0.max(self.least), CORRECTION.1);
    }
}

/// Sleeping in the kernel.
#[derive(Clone, Copy, Debug)]
struct Sleep {
    /// Delay of the request that ends it.
    wake: CostEstimate,
    /// CPU time of a sleep and its wake-up.
    cpu_ns: f64,
    /// Whether it can begin after an idle timeout.
    after_timeout: bool,
}

/// Resting between polls.
#[derive(Clone, Copy, Debug)]
struct Rests {
    /// Excess of a rest over the commanded time.
    late_ns: f64,
    cpu_ns: f64,
    /// Delay of requests, in units of half a rest.
    delay: CostEstimate,
}

/// The wait of a server of one core.
#[derive(Debug)]
pub(super) struct Completion {
    threads: u16,
    sleep: Option<Sleep>,
    rests: Option<Rests>,
    wait: Wait,
    /// The last command; `None` if it was refused.
    commanded: Option<CompletionMode>,
    /// Inputs of the choice: load, allowed latency and arrivals.
    load: Option<Load>,
    allowed_ns: f64,
    arrivals: Arrivals,
    /// Changes of the mechanism.
    changes: u64,
}

impl Completion {
    /// `None` if the plant has more than one core, or no mechanism except polling.
    pub(super) fn new(start: &Start<'_>, server_sleep: bool) -> Option<Self> {
        let can = start.capabilities;
        let kernel = can.sleeps.iter().find(|sleep| sleep.depth == Depth::SoftwareWait);
        let sleep = kernel.filter(|_| can.interrupts).map(|kernel| Sleep {
            wake: CostEstimate::new((kernel.wake.ns() as f64).max(1.0)),
            cpu_ns: can.server_sleep.map_or(kernel.waker.ns(), |cost| cost.ns()) as f64,
            after_timeout: can.server_sleep.is_some() && server_sleep,
        });
        let rests = can.rests.map(|cost| Rests {
            late_ns: cost.late.ns() as f64,
            cpu_ns: cost.cpu.ns() as f64,
            delay: CostEstimate::new(1.0),
        });
        let is_alone = start.topology.len() == 1 && (sleep.is_some() || rests.is_some());
        is_alone.then(|| Self {
            threads: start.homes.len() as u16,
            sleep,
            rests,
            wait: Wait::Poll,
            commanded: Some(CompletionMode::Poll),
            load: None,
            allowed_ns: 0.0,
            arrivals: Arrivals::default(),
            changes: 0,
        })
    }

    /// Starts savings under this load; with `retry` corrected costs may be lowered again. A different load resets costs to the reported ones.
    pub(super) fn begin(
        &mut self,
        load: &Load,
        retry: bool,
        (service_ns, allowed_ns): (f64, f64),
        parameters: &Parameters,
    ) {
        if self.load.is_none_or(|known| known.differs(load, parameters.other_load(), 0.0)) {
            self.load = Some(*load);
            self.sleep.iter_mut().for_each(|sleep| sleep.wake = CostEstimate::new(sleep.wake.reported_ns));
            self.rests.iter_mut().for_each(|rests| rests.delay = CostEstimate::new(1.0));
        } else if retry {
            self.sleep.iter_mut().for_each(|sleep| sleep.wake.least /= NOT_AGAIN);
            self.rests.iter_mut().for_each(|rests| rests.delay.least /= NOT_AGAIN);
        }
        self.arrivals = Arrivals { gap_ns: load.gap_ns(), service_ns };
        self.choose(allowed_ns);
    }

    /// Adapts to the measured delay of requests; whether the wait changes.
    pub(super) fn step(&mut self, delay_ns: f64, allowed_ns: f64, dead_band: f64) -> bool {
        let is_corrected = self.learn(delay_ns, dead_band);
        (is_corrected || allowed_ns != self.allowed_ns) && self.choose(allowed_ns)
    }

    /// Whether it polls all the time.
    pub(super) fn is_polling(&self) -> bool {
        self.wait == Wait::Poll
    }

    /// Polls from now on.
    pub(super) fn poll(&mut self) {
        self.set(Wait::Poll);
    }

    /// Idle server: it sleeps until a request arrives, if only interrupts allow that.
    pub(super) fn idle(&mut self) {
        let can_wait = self.sleep.is_some_and(|sleep| !sleep.after_timeout);
        self.set(if can_wait { Wait::Interrupt } else { Wait::Poll });
    }

    /// Corrects the cost of the wait by the measured delay; whether the difference is large enough.
    pub(super) fn learn(&mut self, delay_ns: f64, dead_band: f64) -> bool {
        let correct = |cost: &mut CostEstimate, expected_ns: f64| {
            let is_far = (delay_ns / expected_ns.max(1.0) - 1.0).abs() > dead_band;
            if is_far {
                cost.correct(delay_ns, expected_ns);
            }
            is_far
        };
        match (self.wait, &mut self.sleep, &mut self.rests) {
            (Wait::IdleTimeout { asleep, .. }, Some(Sleep { wake, .. }), _) => {
                let expected_ns = asleep * wake.ns();
                correct(wake, expected_ns)
            }
            (Wait::Interrupt, Some(Sleep { wake, .. }), _) => {
                let expected_ns = wake.ns();
                correct(wake, expected_ns)
            }
            (Wait::Rest { delay_ns: expected_ns, .. }, _, Some(rests)) => correct(&mut rests.delay, expected_ns),
            _ => false,
        }
    }

    /// Chooses the wait with the least CPU time within the allowed latency; whether it changes.
    fn choose(&mut self, allowed_ns: f64) -> bool {
        self.allowed_ns = allowed_ns;
        let mut best = (Wait::Poll, 1.0);
        let saves = |candidate: &(Wait, f64)| candidate.1 < 1.0 - MIN_SAVING;
        for candidate in [self.sleeping(allowed_ns), self.resting(allowed_ns)].into_iter().flatten().filter(saves) {
            let is_other = std::mem::discriminant(&candidate.0) != std::mem::discriminant(&self.wait);
            let weight = if is_other { 1.0 } else { WORTHWHILE };
            if candidate.1 * weight < best.1 {
                best = (candidate.0, candidate.1 * weight);
            }
        }
        let is_changed = best.0 != self.wait;
        self.set(best.0);
        is_changed
    }

    /// Sleeping, and its share of CPU time.
    fn sleeping(&self, allowed_ns: f64) -> Option<(Wait, f64)> {
        let sleep = self.sleep?;
        let Arrivals { gap_ns, service_ns } = self.arrivals;
        let wake_ns = sleep.wake.ns();
        let cpu = share_of_sleeper(gap_ns, wake_ns, sleep.cpu_ns, service_ns);
        if allowed_ns >= wake_ns {
            return Some((Wait::Interrupt, cpu));
        }
        let asleep = allowed_ns / wake_ns;
        let timeout_ns = (gap_ns * -asleep.ln()).min(NEVER as f64 / 4.0) as u64;
        (sleep.after_timeout && allowed_ns > 0.0)
            .then_some((Wait::IdleTimeout { timeout_ns, asleep }, 1.0 - asleep * (1.0 - cpu)))
    }

    /// Resting, and its share of CPU time.
    fn resting(&self, allowed_ns: f64) -> Option<(Wait, f64)> {
        let rests = self.rests?;
        let longest_ns = self.sleep.map_or(f64::INFINITY, |sleep| sleep.wake.ns());
        let delay_ns = allowed_ns.min(longest_ns);
        let whole_ns = 2.0 * delay_ns / rests.delay.times;
        let rest_ns = whole_ns - rests.late_ns;
        if rest_ns < SHORTEST_REST_NS {
            return None;
        }
        let cpu = share_of_sleeper(0.0, whole_ns, rests.cpu_ns.min(whole_ns) + ROUND_NS, self.busy() * whole_ns);
        Some((Wait::Rest { rest_ns: rest_ns.min(f64::from(u32::MAX >> 1)) as u32, delay_ns }, cpu))
    }

    /// Share of time spent on requests.
    fn busy(&self) -> f64 {
        (self.arrivals.service_ns / self.arrivals.gap_ns.max(1.0)).min(1.0)
    }

    fn set(&mut self, wait: Wait) {
        self.changes += u64::from(std::mem::discriminant(&wait) != std::mem::discriminant(&self.wait));
        self.wait = wait;
    }

    /// How long the server stays awake after a request.
    pub(super) fn idle_timeout_ns(&self) -> u64 {
        match self.wait {
            Wait::IdleTimeout { timeout_ns, .. } => timeout_ns,
            _ => NEVER,
        }
    }

    pub(super) fn command(&mut self, out: &mut Vec<Command>) {
        let how = match self.wait {
            Wait::Poll | Wait::IdleTimeout { .. } => CompletionMode::Poll,
            Wait::Rest { rest_ns, .. } => CompletionMode::Hybrid { idle_ns: rest_ns, rest_ns: 0 },
            Wait::Interrupt => CompletionMode::Interrupt,
        };
        if self.commanded.replace(how) != Some(how) {
            out.extend((0..self.threads).map(|thread| Command::Completions { thread: ThreadId(thread), mode: how }));
        }
    }

    /// A command was refused: the next interval repeats it.
    pub(super) fn on_refused(&mut self) {
        self.commanded = None;
    }

    /// State for display.
    pub(super) fn view(&self) -> [(&'static str, String); 3] {
        let wait = match self.wait {
            Wait::Poll => "polls".to_owned(),
            Wait::IdleTimeout { timeout_ns, .. } => format!("sleeps after {:.1} us", timeout_ns as f64 / 1e3),
            Wait::Rest { rest_ns, .. } => format!("rests for {:.1} us", f64::from(rest_ns) / 1e3),
            Wait::Interrupt => "sleeps until a request arrives".to_owned(),
        };
        let wake = self.sleep.map_or_else(|| "unknown".to_owned(), |sleep| format!("{:.1}", sleep.wake.ns() / 1e3));
        [("wait", wait), ("delay by a wake-up in us", wake), ("changes of the wait", self.changes.to_string())]
    }
}

/// Share of CPU time of a core that sleeps when it is idle: for a gap and a wake-up, then works for `cpu_ns` and for the requests that arrived
/// meanwhile. With `gap_ns` 0 all requests together take `service_ns`.
fn share_of_sleeper(gap_ns: f64, wake_ns: f64, cpu_ns: f64, service_ns: f64) -> f64 {
    let requests = if gap_ns > 0.0 { 1.0 + wake_ns / gap_ns } else { 1.0 };
    let work_ns = cpu_ns + requests * service_ns;
    (work_ns / (gap_ns + wake_ns + requests * service_ns).max(1.0)).min(1.0)
}
