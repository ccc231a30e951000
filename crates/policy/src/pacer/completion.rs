//! How a server of one core waits for requests: there are no cores to take away, so the tolerance governs how the one that is there waits.
//!
//! **Rule.** From the time by which a request may take longer (the tolerance that is aimed at, times the baseline) follows the wait that is
//! expected to take the least CPU time among those that keep it:
//! - *polling*, which delays nothing;
//! - *sleeping in the kernel after a quiet time*. After a quiet time `q` a share `p` of the requests finds the core asleep and waits for its
//!   wake-up `w`: with independent gaps of mean `g`, `p = exp(-q / g)`. So `p` is the allowed time over `w`, and `q` follows from it;
//! - *resting* for a fixed time between polls: a request waits for half of a rest on average;
//! - *interrupts*, where a whole wake-up is allowed.
//!
//! A rest is never longer than what delays requests by a wake-up: from there on the core sleeps until a request comes.
//!
//! **Closed loop.** What a wake-up and a rest cost a request is at first what the plant says. After each window it is what the measured loss says.
//! A cost that was too low is corrected at once and not taken again until the
//! baseline is old, one that was too high by halves, and only if the loss is far enough from what is aimed at: so a
//! steady load settles. Under another load it is as at first.
//!
//! **Properties** (tests/one_core.rs). Mean loss within the tolerance once settled, whatever the costs really are. With no time allowed it polls.

use pilotlight_plant::{Command, CompletionMode, Depth, NEVER, Start, ThreadId};

use super::load::Load;
use super::parameters::{Parameters, share};

/// CPU time of a round that finds nothing, in nanoseconds; chosen.
const ROUND_NS: f64 = 1_000.0;
/// Another mechanism is taken where it needs less than this share of the CPU time of the one in use; chosen, so that noise does not make it change.
const WORTHWHILE: f64 = 0.9;
/// A wait that saves less than this share of the CPU time is not taken; chosen.
const LEAST_SAVING: f64 = 0.02;
/// A cost that is corrected is at least, and at most, so many times what the plant says; chosen.
const CORRECTION: (f64, f64) = (0.1, 50.0);
/// A cost that was too low is raised by at least this factor; chosen.
const NOT_AGAIN: f64 = 1.25;
/// The shortest rest, in nanoseconds; chosen.
const SHORTEST_REST_NS: f64 = 1_000.0;

/// How requests come.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Arrivals {
    /// Mean time between them, in nanoseconds.
    gap_ns: f64,
    /// Time of the core for each, in nanoseconds.
    service_ns: f64,
}

/// How the core waits.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wait {
    /// It polls.
    Poll,
    /// It polls for a quiet time, then sleeps until a request comes; the share of requests that are expected to find it asleep.
    Quiet { quiet_ns: u64, asleep: f64 },
    /// It rests between polls, and this delays requests by so much on average.
    Rest { rest_ns: u32, delay_ns: f64 },
    /// It sleeps until a request comes.
    Interrupt,
}

/// A cost as the plant says, and how many times that it is found to be.
#[derive(Clone, Copy, Debug)]
struct Learned {
    said_ns: f64,
    times: f64,
    /// Less was too little under this load.
    least: f64,
}

impl Learned {
    fn new(said_ns: f64) -> Self {
        Self { said_ns, times: 1.0, least: 0.0 }
    }

    fn ns(self) -> f64 {
        self.said_ns * self.times
    }

    /// It was expected to be `expected`, and was `found`, both in the same unit.
    fn correct(&mut self, found: f64, expected: f64) {
        let ratio = (found / expected.max(1.0)).max(0.0);
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
    wake: Learned,
    /// CPU time of falling asleep and waking up.
    cpu_ns: f64,
    /// Whether it can begin after a quiet time.
    after_quiet: bool,
}

/// Resting between polls.
#[derive(Clone, Copy, Debug)]
struct Rests {
    /// Time that a rest is longer than commanded.
    late_ns: f64,
    cpu_ns: f64,
    /// Delay of requests, in halves of a rest.
    delay: Learned,
}

/// How a server of one core waits.
#[derive(Debug)]
pub(super) struct Completion {
    threads: u16,
    sleep: Option<Sleep>,
    rests: Option<Rests>,
    wait: Wait,
    /// What was commanded last; `None` if it was refused.
    commanded: Option<CompletionMode>,
    /// What it was chosen for: the load, the time allowed, and how requests came.
    load: Option<Load>,
    allowed_ns: f64,
    arrivals: Arrivals,
    /// Changes of the mechanism.
    changes: u64,
}

impl Completion {
    /// `None` where the plant has more cores than one, or no mechanism but polling.
    pub(super) fn new(start: &Start<'_>, server_sleep: bool) -> Option<Self> {
        let can = start.capabilities;
        let kernel = can.sleeps.iter().find(|sleep| sleep.depth == Depth::SoftwareWait);
        let sleep = kernel.filter(|_| can.interrupts).map(|kernel| Sleep {
            wake: Learned::new((kernel.wake.ns() as f64).max(1.0)),
            cpu_ns: can.server_sleep.map_or(kernel.waker.ns(), |cost| cost.ns()) as f64,
            after_quiet: can.server_sleep.is_some() && server_sleep,
        });
        let rests = can.rests.map(|cost| Rests {
            late_ns: cost.late.ns() as f64,
            cpu_ns: cost.cpu.ns() as f64,
            delay: Learned::new(1.0),
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

    /// Savings begin under this load; a little less than was too little may be tried again if `retry`. Under another load than before costs are what the plant says, until the loss has shown them.
    pub(super) fn begin(
        &mut self,
        load: &Load,
        retry: bool,
        (service_ns, allowed_ns): (f64, f64),
        parameters: &Parameters,
    ) {
        if self.load.is_none_or(|known| known.differs(load, share(parameters.moved_ppm), 0.0)) {
            self.load = Some(*load);
            self.sleep.iter_mut().for_each(|sleep| sleep.wake = Learned::new(sleep.wake.said_ns));
            self.rests.iter_mut().for_each(|rests| rests.delay = Learned::new(1.0));
        } else if retry {
            self.sleep.iter_mut().for_each(|sleep| sleep.wake.least /= NOT_AGAIN);
            self.rests.iter_mut().for_each(|rests| rests.delay.least /= NOT_AGAIN);
        }
        self.arrivals = Arrivals { gap_ns: load.gap_ns(), service_ns };
        self.choose(allowed_ns);
    }

    /// With savings requests took `delay_ns` longer; whether the wait is another from now on.
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

    /// The server is idle: it sleeps until a request comes, where no command but this one lets it.
    pub(super) fn idle(&mut self) {
        let can_wait = self.sleep.is_some_and(|sleep| !sleep.after_quiet);
        self.set(if can_wait { Wait::Interrupt } else { Wait::Poll });
    }

    /// Requests took so much longer than without savings. Whether that is far enough from what was expected to correct a cost.
    pub(super) fn learn(&mut self, delay_ns: f64, dead_band: f64) -> bool {
        let correct = |cost: &mut Learned, expected_ns: f64| {
            let is_far = (delay_ns / expected_ns.max(1.0) - 1.0).abs() > dead_band;
            if is_far {
                cost.correct(delay_ns, expected_ns);
            }
            is_far
        };
        match (self.wait, &mut self.sleep, &mut self.rests) {
            (Wait::Quiet { asleep, .. }, Some(Sleep { wake, .. }), _) => {
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

    /// The wait that takes the least CPU time where requests may take `allowed_ns` longer; whether it is another.
    fn choose(&mut self, allowed_ns: f64) -> bool {
        self.allowed_ns = allowed_ns;
        let mut best = (Wait::Poll, 1.0);
        let saves = |candidate: &(Wait, f64)| candidate.1 < 1.0 - LEAST_SAVING;
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
        let quiet_ns = (gap_ns * -asleep.ln()).min(NEVER as f64 / 4.0) as u64;
        (sleep.after_quiet && allowed_ns > 0.0)
            .then_some((Wait::Quiet { quiet_ns, asleep }, 1.0 - asleep * (1.0 - cpu)))
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

    /// Share of time that requests need.
    fn busy(&self) -> f64 {
        (self.arrivals.service_ns / self.arrivals.gap_ns.max(1.0)).min(1.0)
    }

    fn set(&mut self, wait: Wait) {
        self.changes += u64::from(std::mem::discriminant(&wait) != std::mem::discriminant(&self.wait));
        self.wait = wait;
    }

    /// How long the server stays awake after a request.
    pub(super) fn awake_ns(&self) -> u64 {
        match self.wait {
            Wait::Quiet { quiet_ns, .. } => quiet_ns,
            _ => NEVER,
        }
    }

    pub(super) fn command(&mut self, out: &mut Vec<Command>) {
        let how = match self.wait {
            Wait::Poll | Wait::Quiet { .. } => CompletionMode::Poll,
            Wait::Rest { rest_ns, .. } => CompletionMode::Hybrid { idle_ns: rest_ns, rest_ns: 0 },
            Wait::Interrupt => CompletionMode::Interrupt,
        };
        if self.commanded.replace(how) != Some(how) {
            out.extend((0..self.threads).map(|thread| Command::Completions { thread: ThreadId(thread), mode: how }));
        }
    }

    /// A command was refused: the next interval gives it again.
    pub(super) fn on_refused(&mut self) {
        self.commanded = None;
    }

    /// For people.
    pub(super) fn view(&self) -> [(&'static str, String); 3] {
        let wait = match self.wait {
            Wait::Poll => "polls".to_owned(),
            Wait::Quiet { quiet_ns, .. } => format!("sleeps after {:.1} us", quiet_ns as f64 / 1e3),
            Wait::Rest { rest_ns, .. } => format!("rests for {:.1} us", f64::from(rest_ns) / 1e3),
            Wait::Interrupt => "sleeps until a request comes".to_owned(),
        };
        let wake = self.sleep.map_or_else(|| "unknown".to_owned(), |sleep| format!("{:.1}", sleep.wake.ns() / 1e3));
        [("wait", wait), ("delay by a wake-up in us", wake), ("changes of the wait", self.changes.to_string())]
    }
}

/// Share of CPU time where the core sleeps as soon as nothing is left to do: for a gap and a wake-up, then it works for `cpu_ns` and for all that
/// has come meanwhile. With `gap_ns` 0 requests take `service_ns` in all.
fn share_of_sleeper(gap_ns: f64, wake_ns: f64, cpu_ns: f64, service_ns: f64) -> f64 {
    let requests = if gap_ns > 0.0 { 1.0 + wake_ns / gap_ns } else { 1.0 };
    let work_ns = cpu_ns + requests * service_ns;
    (work_ns / (gap_ns + wake_ns + requests * service_ns).max(1.0)).min(1.0)
}
