//! The policy on a plant: state, windows, baseline and settings.

use pilotlight_plant::{
    Capabilities, Command, DEFAULT_IDLE_TIMEOUT_NS, Goals, KnobId, NEVER, Next, ReadingId, Refusal, Sample, Start,
    ThreadSample, View,
};

use super::adaptor::{Adaptor, Loss};
use super::baseline::Baseline;
use super::completion::Completion;
use super::forecast::Forecast;
use super::frequency::Frequency;
use super::migrator::{CpuUse, Migrator};
use super::monitors::Monitors;
use super::parameters::{Adapt, Gate, Parameters, share};
use super::state::{Observations, State};
use super::tolerance::Tolerance;
use crate::background::Background;
use crate::drives::Drives;
use crate::load::is_quiet;
use crate::schedule::Schedule;

/// Mean gaps without a request after which the load has ended; chosen: 5 of 100,000 random gaps are longer.
const GAPS: u64 = 10;
/// Mean gap from which on requests are no load with a latency to keep, in nanoseconds; chosen.
const LONGEST_GAP_NS: u64 = 40_000_000;

/// Windows after which a loss is significant, on a plant of one core; chosen.
const CERTAIN_WINDOWS: usize = 3;
/// A loss above this multiple of the tolerance counts at once; chosen.
const FAR: f64 = 2.0;

/// The policy on a plant.
#[derive(Debug)]
pub(super) struct Running {
    schedule: Schedule,
    /// The last returned value.
    answer: Next,
    now_ns: u64,
    state: State,
    monitors: Monitors,
    capabilities: Capabilities,
    /// The last loss, and its binding tolerance.
    loss: Option<(f64, Tolerance)>,
    /// The baseline is measured again because of its age.
    retries: bool,
    /// Time until which a baseline above latency with savings is trusted.
    trusted_until_ns: u64,
    adaptor: Adaptor,
    /// On a plant of one core, instead of cores and frequency.
    completion: Option<Completion>,
    migrator: Migrator,
    background: Background,
    has_background: bool,
    drives: Drives,
    has_drives: bool,
    /// When the last settings take effect.
    holds_ns: u64,
    /// When an interval with requests last ended, and the mean gap between its requests.
    active_ns: u64,
    gap_ns: u64,
    can_server_sleep: bool,
    counters: Counters,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    bursts: u64,
    baselines: u64,
    changes: u64,
}

impl Running {
    pub(super) fn new(start: &Start<'_>, parameters: &Parameters) -> Self {
        let migrator = Migrator::new(start, parameters.gate == Gate::Offline);
        let frequency = Frequency::new(start.topology, start.capabilities);
        let adaptor = Adaptor::new(migrator.sizes(), migrator.can_gather(), frequency, parameters.adapt);
        let mut running = Self {
            schedule: Schedule { start_ns: start.now_ns, period_ns: parameters.interval_ns },
            answer: Next::NEVER,
            now_ns: start.now_ns,
            state: State::Unstable,
            monitors: Monitors::new(start.goals, parameters),
            capabilities: Capabilities::default(),
            loss: None,
            retries: false,
            trusted_until_ns: 0,
            adaptor,
            completion: Completion::new(start, parameters.server_sleep).filter(|_| parameters.adapt == Adapt::Both),
            migrator,
            background: Background::default(),
            has_background: parameters.background,
            drives: Drives::default(),
            has_drives: parameters.drives,
            holds_ns: start.now_ns,
            active_ns: start.now_ns,
            gap_ns: NEVER,
            can_server_sleep: parameters.server_sleep && start.capabilities.server_sleep.is_some(),
            counters: Counters::default(),
        };
        running.find(start.capabilities);
        running
    }

    fn find(&mut self, capabilities: &Capabilities) {
        self.capabilities = capabilities.clone();
        self.monitors.find(capabilities);
        self.migrator.find(capabilities);
        if self.has_background {
            self.background.find(capabilities);
        }
        if self.has_drives {
            self.drives.find(capabilities);
        }
    }

    /// Another number of cores on the same plant, as under a budget: keeps the latency, load and state of `before`.
    pub(super) fn inherit(&mut self, before: Self, parameters: &Parameters) {
        if !self.migrator.is_like(&before.migrator) {
            return;
        }
        let capabilities = std::mem::take(&mut self.capabilities);
        (self.monitors, self.state) = (before.monitors, before.state);
        (self.active_ns, self.gap_ns) = (before.active_ns, before.gap_ns);
        (self.retries, self.counters, self.loss) = (before.retries, before.counters, before.loss);
        self.trusted_until_ns = before.trusted_until_ns;
        (self.drives, self.background) = (before.drives, before.background);
        self.find(&capabilities);
        self.adaptor.inherit(&before.adaptor);
        if self.state == State::Idle && self.may_save() {
            self.adaptor.idle(self.background.is_left(), parameters);
        }
        if !self.adaptor.uses_all() {
            self.migrator.gather(self.adaptor.sizes.iter().map(|size| size.n), &[]);
        }
        if (self.completion.is_some() || before.completion.is_some()) && self.state == State::Stable {
            self.state = State::Unstable; // the wait of one core needs arrivals measured without savings
            return self.restore(false);
        }
        self.forget_windows();
    }

    pub(super) fn can_adapt(&self) -> bool {
        self.adaptor.can_adapt() || self.completion.is_some()
    }

    pub(super) fn readings(&self) -> Vec<ReadingId> {
        self.monitors.readings().into_iter().chain(self.background.readings()).collect()
    }

    pub(super) fn start(&mut self, start: &Start<'_>, parameters: &Parameters, out: &mut Vec<Command>) -> Next {
        self.migrator.command(start.cores, start.homes.iter().copied(), out);
        self.set(parameters, out);
        self.next(false, parameters)
    }

    pub(super) fn on_interval(&mut self, sample: &Sample<'_>, parameters: &Parameters, out: &mut Vec<Command>) -> Next {
        if is_quiet(sample) && sample.now_ns < self.answer.needed_ns {
            return self.answer;
        }
        self.now_ns = sample.now_ns;
        self.evaluate(sample, parameters);
        let before = out.len();
        self.migrator.command(sample.cores, sample.threads.iter().map(|thread| thread.home), out);
        self.set(parameters, out);
        let is_done = out.len() == before && self.migrator.is_in_place(sample) && !self.migrator.is_switching();
        self.next(is_done && self.state == State::Idle, parameters)
    }

    /// Sets the knobs.
    fn set(&mut self, parameters: &Parameters, out: &mut Vec<Command>) {
        self.adaptor.frequency.apply(self.now_ns, self.migrator.in_use(), out);
        self.background.set(self.now_ns, self.state == State::Idle, out);
        self.drives.limit(self.now_ns, self.wake_limit_ns(parameters), out);
        if let Some(completion) = &mut self.completion {
            completion.command(out);
        }
    }

    /// Wake-up limit of drives: the tolerance while the server is idle or, with `stable_drives`, under a stable load; else 0, as the forecast
    /// contains no wake-ups.
    fn wake_limit_ns(&self, parameters: &Parameters) -> u64 {
        let is_idle = self.state == State::Idle && !self.background.is_left();
        let is_stable = parameters.stable_drives && self.state == State::Stable;
        let may_rest = is_stable || is_idle && self.now_ns >= self.settled_ns(parameters);
        if may_rest { self.tolerated_ns() } else { 0 }
    }

    /// Allowed increase of latency; 0 without a baseline.
    fn tolerated_ns(&self) -> u64 {
        self.monitors.tolerated_ns() as u64
    }

    /// When garbage collection of drives has ended; any request counts as a write, as readings of bytes may not cover a whole interval.
    fn settled_ns(&self, parameters: &Parameters) -> u64 {
        self.active_ns.saturating_add(parameters.after_writes_ns)
    }

    fn next(&mut self, rests: bool, parameters: &Parameters) -> Next {
        let rests = rests && !self.background.is_left();
        let mut needed_ns = match rests {
            false => self.schedule.after(self.now_ns),
            true if self.background.has_backlog() => {
                self.schedule.at_or_after(self.now_ns.saturating_add(parameters.idle_after_ns))
            }
            true => NEVER,
        };
        let settled_ns = self.settled_ns(parameters);
        if settled_ns > self.now_ns && !self.drives.is_empty() && self.tolerated_ns() > 0 {
            needed_ns = needed_ns.min(self.schedule.at_or_after(settled_ns));
        }
        let sleeps = self.can_server_sleep && self.may_save();
        let wanted_ns = self.completion.as_ref().map_or(NEVER, Completion::idle_timeout_ns);
        let timeout_ns = if sleeps { wanted_ns.min(self.idle_timeout_ns()) } else { wanted_ns };
        self.answer = Next::with_idle_timeout(needed_ns, timeout_ns);
        self.answer
    }

    /// Time without requests after which the load has ended: so few gaps are longer that the wake-up after them is not seen in the latency.
    fn idle_timeout_ns(&self) -> u64 {
        if self.gap_ns > LONGEST_GAP_NS {
            DEFAULT_IDLE_TIMEOUT_NS
        } else {
            DEFAULT_IDLE_TIMEOUT_NS.max(self.gap_ns * GAPS)
        }
    }

    fn baseline(&self) -> Option<Baseline> {
        self.monitors.server().baseline
    }

    /// Whether the tolerances allow a loss of latency.
    fn may_save(&self) -> bool {
        self.monitors.may_save()
    }

    /// Evaluates an interval.
    fn evaluate(&mut self, sample: &Sample<'_>, parameters: &Parameters) {
        if !is_quiet(sample) {
            self.active_ns = sample.now_ns;
            let requests: u64 = sample.threads.iter().map(|thread| thread.requests).sum();
            let gap_ns = sample.elapsed_ns.checked_div(requests).unwrap_or(self.gap_ns);
            // A mean over some intervals, as the rest of a load that has ended is none; a higher rate counts at once.
            self.gap_ns = if gap_ns < self.gap_ns { gap_ns } else { self.gap_ns - self.gap_ns / 8 + gap_ns / 8 };
        }
        self.background.update(sample.now_ns, sample.readings, (0, parameters.idle_after_ns));
        self.monitors.read(sample);
        let is_old = self.monitors.are_old(sample.now_ns, parameters);
        let mut observed = Observations {
            quiet_ns: sample.now_ns - self.active_ns,
            surged: self.monitors.is_burst(parameters),
            cpu_use: self.cpu_use(sample),
            remeasure: is_old,
            divergence: None,
        };
        if self.add(sample, parameters) {
            observed.divergence = self.monitors.divergence();
            observed.remeasure |= self.monitors.is_of_other_load(parameters) || self.is_baseline_wrong(parameters);
        }
        let next = self.state.next(&observed, parameters);
        let before = std::mem::replace(&mut self.state, next);
        match (before, next) {
            (State::Unstable, State::Stable) => self.begin(sample, parameters),
            (State::Stable, State::Stable) => self.adapt(sample, parameters),
            (State::Stable, State::Unstable) => {
                self.retries = is_old;
                self.counters.bursts += u64::from(!observed.remeasure);
                let is_cause = !observed.remeasure && !self.monitors.is_surge_of_load(sample, parameters);
                if is_cause && observed.surged {
                    self.learn(parameters);
                }
                self.restore(is_cause);
            }
            (State::Idle, State::Unstable) => self.restore(false),
            (_, State::Idle) => self.rest(sample, parameters, before != State::Idle),
            _ => {}
        }
    }

    /// Whether latency is below the baseline, because the baseline was measured across a change of the load. Reported at most once in its lifetime,
    /// as fewer cores may really be faster.
    fn is_baseline_wrong(&mut self, parameters: &Parameters) -> bool {
        let Some(baseline) = self.baseline().filter(|_| self.state == State::Stable && self.may_save()) else {
            return false;
        };
        let is_less = self.monitors.loss(parameters).is_some_and(|loss| loss.is_gain(parameters));
        let is_wrong = is_less && self.now_ns >= self.trusted_until_ns;
        if is_wrong {
            self.trusted_until_ns = self.now_ns.saturating_add(baseline.lasts_ns(parameters));
        }
        is_wrong
    }

    /// The highest CPU use of a core group. On a plant of one core it is a share of all time, not of awake time.
    fn cpu_use(&self, sample: &Sample<'_>) -> f64 {
        if self.completion.is_some() {
            let busy_ns: u64 = sample.cores.iter().map(|core| core.busy_ns).sum();
            return busy_ns as f64 / sample.elapsed_ns.max(1) as f64;
        }
        self.migrator.cpu_use(sample.cores).map(CpuUse::share).fold(0.0, f64::max)
    }

    /// Adds an interval to the windows, if the current settings were in effect during all of it; whether it did.
    fn add(&mut self, sample: &Sample<'_>, parameters: &Parameters) -> bool {
        if !self.migrator.is_in_place(sample) {
            self.holds_ns = sample.now_ns;
        }
        if sample.now_ns.saturating_sub(sample.elapsed_ns) < self.holds_ns {
            return false;
        }
        self.adaptor.add(self.migrator.cpu_use(sample.cores));
        self.monitors.add(sample, self.holds_ns, parameters);
        true
    }

    /// Latency is steady: measures the baseline and starts savings.
    fn begin(&mut self, sample: &Sample<'_>, parameters: &Parameters) {
        let Some(load) = self.monitors.measure(sample.now_ns) else { return };
        self.loss = Some((0.0, self.monitors.binding(parameters)));
        self.counters.baselines += 1;
        if self.may_save() {
            let (retry, no_loss) = (std::mem::take(&mut self.retries), self.monitors.no_loss(parameters));
            if let Some(completion) = &mut self.completion {
                completion.begin(&load, retry, (service_ns(sample), no_loss.room_ns), parameters);
                return self.forget_windows();
            }
            let (adaptor, mut forecast) = self.forecast(sample, parameters);
            adaptor.begin(&load, retry, (&no_loss, parameters), &mut forecast);
            self.note_change(sample, true);
        }
    }

    /// Adapts savings at the end of a window.
    fn adapt(&mut self, sample: &Sample<'_>, parameters: &Parameters) {
        if !self.may_save() {
            if !self.saves_nothing() {
                self.restore(false);
            }
            return;
        }
        let Some(loss) = self.monitors.loss(parameters) else { return };
        self.loss = Some((loss.share, self.monitors.binding(parameters)));
        if self.completion.is_some() {
            return self.adapt_wait(&loss, parameters);
        }
        if self.adaptor.is_full() && loss.is_beyond(parameters) {
            return self.measure_without_savings(sample, parameters);
        }
        let cores = self.adaptor.cores();
        let (adaptor, mut forecast) = self.forecast(sample, parameters);
        if adaptor.step(&loss, parameters, &mut forecast) {
            self.note_change(sample, self.adaptor.cores() != cores);
        }
    }

    /// Adapts the wait of one core.
    fn adapt_wait(&mut self, loss: &Loss, parameters: &Parameters) {
        let is_certain = self.monitors.have_windows(CERTAIN_WINDOWS.min(parameters.windows));
        let is_seen = if loss.is_sparse { loss.is_beyond(parameters) } else { is_certain };
        if !is_seen && !loss.is_far(FAR, parameters) {
            return;
        }
        let allowed_ns = self.monitors.no_loss(parameters).room_ns;
        let Some(completion) = &mut self.completion else { return };
        if completion.step(loss.delay_ns, allowed_ns, share(parameters.dead_band_ppm)) {
            self.forget_windows();
        }
    }

    /// A burst of latency has ended savings: corrects the cost of the wait.
    fn learn(&mut self, parameters: &Parameters) {
        let delay_ns = self.monitors.server().last_delay_ns();
        if let (Some(completion), Some(delay_ns)) = (&mut self.completion, delay_ns) {
            completion.learn(delay_ns, share(parameters.dead_band_ppm));
        }
    }

    /// Latency is too high without savings, because of another limit or a slower drive: settings were not too low.
    fn measure_without_savings(&mut self, sample: &Sample<'_>, parameters: &Parameters) {
        if self.monitors.have_windows(parameters.windows) {
            self.adaptor.forget();
            self.begin(sample, parameters);
        }
    }

    /// The adaptor and the forecast for it.
    fn forecast<'a>(&'a mut self, sample: &'a Sample<'a>, parameters: &Parameters) -> (&'a mut Adaptor, Forecast<'a>) {
        let limit = share(parameters.use_limit_ppm);
        (&mut self.adaptor, Forecast { migrator: &mut self.migrator, sample, times: parameters.forecast, limit })
    }

    /// The server is idle.
    fn rest(&mut self, sample: &Sample<'_>, parameters: &Parameters, is_new: bool) {
        if is_new {
            self.loss = None;
        }
        if !self.may_save() {
            if !self.saves_nothing() {
                self.restore(false);
            }
            return;
        }
        if let Some(completion) = &mut self.completion {
            completion.idle();
        }
        let cores = self.adaptor.cores();
        self.adaptor.idle(!is_new && self.background.is_left(), parameters);
        if self.adaptor.cores() != cores {
            self.note_change(sample, true);
        }
    }

    /// Whether all cores poll at the highest frequency.
    fn saves_nothing(&self) -> bool {
        self.adaptor.is_full() && self.completion.as_ref().is_none_or(Completion::is_polling)
    }

    /// Ends savings.
    fn restore(&mut self, is_cause: bool) {
        self.adaptor.restore(is_cause);
        self.migrator.spread();
        self.completion.iter_mut().for_each(Completion::poll);
        self.loss = None;
        self.forget_windows();
    }

    /// Settings have changed; with another number of cores I/O threads move.
    fn note_change(&mut self, sample: &Sample<'_>, has_moved: bool) {
        if has_moved && !self.adaptor.uses_all() {
            self.migrator.gather(self.adaptor.sizes.iter().map(|size| size.n), sample.threads);
        } else if has_moved {
            self.migrator.spread();
        }
        self.forget_windows();
    }

    fn forget_windows(&mut self) {
        self.counters.changes += 1;
        self.holds_ns = self.now_ns.saturating_add(self.adaptor.frequency.effect_ns().max(1));
        self.monitors.clear();
        self.adaptor.clear();
    }

    /// Requests the next interval.
    pub(super) fn on_goals(&mut self, now_ns: u64, goals: &Goals, parameters: &Parameters) {
        let (is_other, is_new) = self.monitors.replace(goals, &self.capabilities, parameters);
        self.answer.needed_ns = now_ns;
        if is_new {
            (self.now_ns, self.state, self.retries) = (now_ns, State::Unstable, false);
            self.monitors.forget();
            self.restore(false);
        }
        if is_other {
            self.adaptor.forget();
        }
    }

    /// Requests the next interval.
    pub(super) fn on_plant(&mut self, now_ns: u64, capabilities: &Capabilities) {
        self.find(capabilities);
        self.answer.needed_ns = now_ns;
    }

    pub(super) fn on_refused(&mut self, now_ns: u64, (knob, value): (KnobId, u64), refusal: Refusal) {
        let _is_known = self.migrator.on_refused(knob, value)
            || self.adaptor.frequency.on_refused(now_ns, knob, refusal)
            || self.background.on_refused(now_ns, knob, refusal)
            || self.drives.on_refused(now_ns, knob, refusal);
    }

    pub(super) fn on_refused_wait(&mut self) {
        self.completion.iter_mut().for_each(Completion::on_refused);
        self.answer.needed_ns = 0; // the next interval is needed even if it is quiet
    }

    pub(super) fn view(&self) -> View {
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let unknown = || "unknown".to_owned();
        let age = |baseline: Baseline| format!("{} s", self.now_ns.saturating_sub(baseline.at_ns) / 1_000_000_000);
        let desired = self.adaptor.sizes.iter().map(|size| percent(size.desired())).collect::<Vec<_>>();
        let loss = self.loss;
        let wait = self.completion.iter().flat_map(Completion::view);
        let all = vec![
            ("state", self.state.name().to_owned()),
            ("loss", loss.map_or_else(unknown, |(share, _)| percent(share))),
            ("loss_of", loss.map_or_else(unknown, |(_, of)| of.name())),
            ("baseline", self.baseline().map_or_else(unknown, |baseline| format!("{:.1} us", baseline.ns / 1e3))),
            ("baseline_age", self.baseline().map_or_else(unknown, age)),
            ("plf", percent(self.monitors.server().plf())),
            ("cores", self.adaptor.cores().to_string()),
            ("frequency", format!("{} kHz", self.adaptor.frequency.khz)),
            ("cpu_use_aimed_at", desired.join(", ")),
            ("baselines", self.counters.baselines.to_string()),
            ("bursts", self.counters.bursts.to_string()),
            ("changes", self.counters.changes.to_string()),
        ];
        let unreachable = self.monitors.unreachable().map(|what| ("unreachable", what));
        all.into_iter().chain(unreachable).chain(wait).collect()
    }
}

/// CPU time of a request, in nanoseconds.
fn service_ns(sample: &Sample<'_>) -> f64 {
    let sum = |of: fn(&ThreadSample) -> u64| sample.threads.iter().map(of).sum::<u64>();
    sum(|thread| thread.busy_ns) as f64 / sum(|thread| thread.requests).max(1) as f64
}
