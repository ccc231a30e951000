//! The policy on a plant: state, windows, baseline and what is set.

use pilotlight_plant::{Capabilities, Command, Goals, KnobId, NEVER, Next, ReadingId, Refusal, Sample, Start, View};

use super::adaptor::{Adaptor, Loss};
use super::background::Background;
use super::baseline::Baseline;
use super::forecast::Forecast;
use super::frequency::Frequency;
use super::migrator::{Migrator, Use};
use super::parameters::{Gate, Parameters, share};
use super::readings::Readings;
use super::stability::{Latency, Window, Windows};
use super::state::{Signs, State};
use super::tolerance::{PLF, Tolerance};
use crate::drives::Drives;
use crate::grid::Grid;
use crate::load::is_quiet;

/// The burst check needs one of so many requests that a window needs; chosen.
const BURST_PART: u64 = 4;

/// The policy on a plant.
#[derive(Debug)]
pub(super) struct Running {
    grid: Grid,
    /// The last answer.
    answer: Next,
    now_ns: u64,
    state: State,
    tolerance: Tolerance,
    readings: Readings,
    windows: Windows,
    baseline: Option<Baseline>,
    /// The loss at the last look.
    loss: Option<f64>,
    /// The baseline is measured again because of its age.
    retries: bool,
    adaptor: Adaptor,
    migrator: Migrator,
    background: Background,
    has_background: bool,
    drives: Drives,
    has_drives: bool,
    /// From when on what was set last holds.
    holds_ns: u64,
    /// When an interval with requests last ended.
    active_ns: u64,
    can_server_sleep: bool,
    counters: Counters,
}

/// What it has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    bursts: u64,
    baselines: u64,
    changes: u64,
}

impl Running {
    pub(super) fn new(start: &Start<'_>, parameters: &Parameters) -> Self {
        let tolerance = Tolerance::of(start.goals);
        let migrator = Migrator::new(start, parameters.gate == Gate::Offline);
        let frequency = Frequency::new(start.topology, start.capabilities);
        let adaptor = Adaptor::new(migrator.sizes(), migrator.can_gather(), frequency, parameters.adapt);
        let mut running = Self {
            grid: Grid { start_ns: start.now_ns, every_ns: parameters.interval_ns },
            answer: Next::NEVER,
            now_ns: start.now_ns,
            state: State::Unstable,
            tolerance,
            readings: Readings::new(tolerance.stat),
            windows: Windows::new(parameters),
            baseline: None,
            loss: None,
            retries: false,
            adaptor,
            migrator,
            background: Background::default(),
            has_background: parameters.background,
            drives: Drives::default(),
            has_drives: parameters.drives,
            holds_ns: start.now_ns,
            active_ns: start.now_ns,
            can_server_sleep: parameters.server_sleep && start.capabilities.server_sleep.is_some(),
            counters: Counters::default(),
        };
        running.find(start.capabilities);
        running
    }

    fn find(&mut self, capabilities: &Capabilities) {
        self.readings.find(capabilities);
        self.migrator.find(capabilities);
        if self.has_background {
            self.background.find(capabilities);
        }
        if self.has_drives {
            self.drives.find(capabilities);
        }
    }

    pub(super) fn can_adapt(&self) -> bool {
        self.adaptor.can()
    }

    pub(super) fn readings(&self) -> Vec<ReadingId> {
        self.readings.ids().chain(self.background.readings()).collect()
    }

    pub(super) fn start(&mut self, start: &Start<'_>, parameters: &Parameters, out: &mut Vec<Command>) -> Next {
        self.migrator.command(start.cores, start.homes.iter().copied(), out);
        self.set(start.now_ns, out);
        self.next(false, parameters)
    }

    pub(super) fn on_interval(&mut self, sample: &Sample<'_>, parameters: &Parameters, out: &mut Vec<Command>) -> Next {
        if is_quiet(sample) && sample.now_ns < self.answer.needed_ns {
            return self.answer;
        }
        self.now_ns = sample.now_ns;
        self.look(sample, parameters);
        let before = out.len();
        self.migrator.command(sample.cores, sample.threads.iter().map(|thread| thread.home), out);
        self.set(sample.now_ns, out);
        let is_done = out.len() == before && self.migrator.is_in_place(sample) && !self.migrator.is_switching();
        self.next(is_done && self.state == State::Idle, parameters)
    }

    /// Knobs.
    fn set(&mut self, now_ns: u64, out: &mut Vec<Command>) {
        self.adaptor.frequency.apply(now_ns, self.migrator.in_use(), out);
        let is_idle = self.state == State::Idle;
        self.background.set(now_ns, is_idle, out);
        self.drives.set(now_ns, is_idle && self.may_save() && !self.background.is_left(), out);
    }

    fn next(&mut self, rests: bool, parameters: &Parameters) -> Next {
        let rests = rests && !self.background.is_left();
        let needed_ns = match rests {
            false => self.grid.after(self.now_ns),
            true if self.background.has_backlog() => self.grid.end(self.now_ns.saturating_add(parameters.idle_ns)),
            true => NEVER,
        };
        let sleeps = rests && self.can_server_sleep && self.may_save();
        self.answer = Next { needed_ns, awake_ns: if sleeps { parameters.idle_ns } else { NEVER } };
        self.answer
    }

    /// How much longer requests may take, as a share; nothing is saved that costs latency where that is 0.
    fn plf(&self) -> f64 {
        self.tolerance.plf(self.baseline.map_or(0.0, |baseline| baseline.ns))
    }

    fn may_save(&self) -> bool {
        self.plf() > 0.0
    }

    /// What an interval shows, and what follows.
    fn look(&mut self, sample: &Sample<'_>, parameters: &Parameters) {
        if !is_quiet(sample) {
            self.active_ns = sample.now_ns;
        }
        self.background.see(sample.now_ns, sample.readings, parameters.idle_ns);
        let latency = self.readings.latency(sample);
        let is_old = self.baseline.is_some_and(|baseline| baseline.is_old(sample.now_ns, parameters));
        let mut signs = Signs {
            quiet_ns: sample.now_ns - self.active_ns,
            surged: latency.is_some_and(|(latency, _)| self.is_burst(latency, parameters)),
            cpu_use: self.migrator.cpu_use(sample.cores).map(Use::share).fold(0.0, f64::max),
            remeasure: is_old,
            divergence: None,
        };
        let window = self.add(sample, latency, parameters);
        if let Some(window) = &window {
            signs.divergence = self.windows.divergence(parameters);
            signs.remeasure |= self.is_of_other_load(window, parameters);
        }
        let next = self.state.next(&signs, parameters);
        let before = std::mem::replace(&mut self.state, next);
        match (before, next) {
            (State::Unstable, State::Stable) => self.begin(sample, parameters),
            (State::Stable, State::Stable) => self.adapt(window, sample, parameters),
            (State::Stable, State::Unstable) => {
                self.retries = is_old;
                self.counters.bursts += u64::from(!signs.remeasure);
                let is_blamed = !signs.remeasure && !self.is_surge_of_load(sample, parameters);
                self.restore(is_blamed);
            }
            (State::Idle, State::Unstable) => self.restore(false),
            (_, State::Idle) => self.rest(sample, parameters, before != State::Idle),
            _ => {}
        }
    }

    /// An interval goes into the windows, if all of it was under what is set; the window that it has ended.
    fn add(&mut self, sample: &Sample<'_>, latency: Option<(Latency, u64)>, parameters: &Parameters) -> Option<Window> {
        if !self.migrator.is_in_place(sample) {
            self.holds_ns = sample.now_ns;
        }
        if sample.now_ns.saturating_sub(sample.elapsed_ns) < self.holds_ns {
            return None;
        }
        let latency = latency.filter(|(_, began_ns)| *began_ns >= self.holds_ns).map(|(latency, _)| latency);
        self.adaptor.add(self.migrator.cpu_use(sample.cores));
        let least = self.least_requests(parameters);
        self.windows.add(latency, &self.readings.load(sample), least, parameters)
    }

    /// Whether latency of an interval is far above what it was since the last change, or above what is tolerated.
    fn is_burst(&self, latency: Latency, parameters: &Parameters) -> bool {
        let Some(baseline) = self.baseline else { return false };
        let expected_ns = self.windows.mean_ns().unwrap_or(baseline.ns * (1.0 + self.plf()));
        latency.requests >= parameters.least_requests.div_ceil(BURST_PART)
            && latency.ns > expected_ns * (1.0 + share(parameters.burst_ppm))
    }

    fn is_of_other_load(&self, window: &Window, parameters: &Parameters) -> bool {
        let differs = |baseline: Baseline| baseline.is_of_other(&window.load, baseline.loss(window.ns), parameters);
        self.baseline.is_some_and(differs)
    }

    /// Whether an interval has another load than the baseline: what latency it shows is not due to savings.
    fn is_surge_of_load(&self, sample: &Sample<'_>, parameters: &Parameters) -> bool {
        let load = self.readings.load(sample);
        self.baseline.is_some_and(|baseline| baseline.is_of_other(&load, self.plf(), parameters))
    }

    /// Latency is steady without savings: it is the baseline, and savings begin.
    fn begin(&mut self, sample: &Sample<'_>, parameters: &Parameters) {
        let Some(ns) = self.windows.mean_ns() else { return };
        let load = self.windows.load();
        self.baseline = Some(Baseline { ns, at_ns: sample.now_ns, load });
        self.loss = Some(0.0);
        self.counters.baselines += 1;
        if self.may_save() {
            let (retry, plf) = (std::mem::take(&mut self.retries), self.plf());
            let (adaptor, mut forecast) = self.forecast(ns, sample, parameters);
            adaptor.begin(&load, retry, (plf, parameters), &mut forecast);
            self.note_change(sample, true);
        }
    }

    /// A window has ended under savings: more or less of them.
    fn adapt(&mut self, window: Option<Window>, sample: &Sample<'_>, parameters: &Parameters) {
        if !self.may_save() {
            if !self.adaptor.is_full() {
                self.restore(false);
            }
            return;
        }
        let mean_ns = window.filter(|window| !window.is_sparse).and_then(|_| self.windows.mean_ns());
        let (Some(ns), Some(baseline)) = (mean_ns, self.baseline) else { return };
        let (loss, cores) = (baseline.loss(ns), self.adaptor.cores());
        self.loss = Some(loss);
        let (plf, loss) = (self.plf(), Loss { share: loss, is_certain: self.windows.len() > 1 });
        let (adaptor, mut forecast) = self.forecast(baseline.ns, sample, parameters);
        if adaptor.step(&loss, (plf, parameters), &mut forecast) {
            self.note_change(sample, self.adaptor.cores() != cores);
        }
    }

    /// The adaptor, and what tells it what a change would cost.
    fn forecast<'a>(
        &'a mut self,
        baseline_ns: f64,
        sample: &'a Sample<'a>,
        parameters: &Parameters,
    ) -> (&'a mut Adaptor, Forecast<'a>) {
        let limit = share(parameters.use_limit_ppm);
        (&mut self.adaptor, Forecast { migrator: &mut self.migrator, sample, baseline_ns, limit })
    }

    /// Requests that a window needs: the smaller the tolerance, the more, so that chance stays a fixed part of it.
    fn least_requests(&self, parameters: &Parameters) -> u64 {
        let plf = self.plf();
        let times = if plf > 0.0 { (PLF / plf).powi(2).max(1.0) } else { 1.0 };
        (parameters.least_requests as f64 * times) as u64
    }

    /// The server is idle.
    fn rest(&mut self, sample: &Sample<'_>, parameters: &Parameters, is_new: bool) {
        if is_new {
            self.loss = None;
        }
        if !self.may_save() {
            return;
        }
        let cores = self.adaptor.cores();
        self.adaptor.idle(!is_new && self.background.is_left(), parameters);
        if self.adaptor.cores() != cores {
            self.note_change(sample, true);
        }
    }

    /// No savings from now on.
    fn restore(&mut self, is_blamed: bool) {
        self.adaptor.restore(is_blamed);
        self.migrator.spread();
        self.loss = None;
        self.forget_windows();
    }

    /// What is set is another; with another number of cores I/O threads move.
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
        self.windows.clear();
        self.adaptor.clear();
    }

    /// The next interval comes.
    pub(super) fn on_goals(&mut self, now_ns: u64, goals: &Goals) {
        let before = std::mem::replace(&mut self.tolerance, Tolerance::of(goals));
        self.answer.needed_ns = now_ns;
        if before.stat != self.tolerance.stat {
            // The baseline is of another statistic.
            (self.now_ns, self.baseline, self.state) = (now_ns, None, State::Unstable);
            self.readings.choose(self.tolerance.stat);
            self.restore(false);
        }
        if before != self.tolerance {
            self.adaptor.forget();
        }
    }

    /// The next interval comes.
    pub(super) fn on_plant(&mut self, now_ns: u64, capabilities: &Capabilities) {
        self.find(capabilities);
        self.answer.needed_ns = now_ns;
    }

    pub(super) fn on_refused(&mut self, now_ns: u64, (knob, value): (KnobId, u64), refusal: Refusal) {
        let _is_known = self.migrator.on_refused(knob, value)
            || self.adaptor.frequency.on_refused(now_ns, knob, refusal)
            || self.background.on_refused(now_ns, knob, refusal)
            || self.drives.on_refused(now_ns, (knob, value), refusal);
    }

    pub(super) fn view(&self) -> View {
        let percent = |share: f64| format!("{:.1}", share * 100.0);
        let unknown = || "unknown".to_owned();
        let age_s = |baseline: Baseline| format!("{:.1}", self.now_ns.saturating_sub(baseline.at_ns) as f64 / 1e9);
        let desired = self.adaptor.sizes.iter().map(|size| percent(size.desired())).collect::<Vec<_>>();
        vec![
            ("state", self.state.name().to_owned()),
            ("tolerance in %", percent(self.plf())),
            ("loss in %", self.loss.map_or_else(unknown, percent)),
            ("baseline in us", self.baseline.map_or_else(unknown, |baseline| format!("{:.1}", baseline.ns / 1e3))),
            ("age of the baseline in s", self.baseline.map_or_else(unknown, age_s)),
            ("cores in use", self.adaptor.cores().to_string()),
            ("CPU use aimed at in %", desired.join(", ")),
            ("frequency in kHz", self.adaptor.frequency.khz.to_string()),
            ("baselines measured", self.counters.baselines.to_string()),
            ("savings ended by bursts", self.counters.bursts.to_string()),
            ("changes", self.counters.changes.to_string()),
        ]
    }
}
