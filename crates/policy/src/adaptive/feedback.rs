//! What the measured latency says about the estimate: whether too few cores, or the waits, exceed the tolerance.
//!
//! *Problem.* The estimate knows neither how far this load is from random arrivals, nor what a wait in the kernel costs here, nor what else
//! delays requests on this machine.
//!
//! *Rule.* Of four windows with enough requests, in which no thread moved, the middle (the mean of the second and third) counts, as one may have a burst. If
//! three of them exceed what is allowed, and at least a third of its rise above polling is estimated to come from the load of the cores, the estimated rise is scaled to the
//! measured one. If for a minute it never is, the scale falls to the mean of what was measured, but not to one at which it was, until the rate
//! of requests has doubled or halved.
//! Otherwise, and the first time, cores poll for as many windows: all of them, or those in use if more would hardly make a difference. What these
//! exceed the estimate by is *unexplained*: part of the baseline.
//! If the latency before was within the tolerance of this baseline, cores wait again. Else the waits are to blame, or, if all cores polled, perhaps the
//! number of cores: bursts that end before they are found are in no estimate. So then all cores are used, waiting. If that exceeds the tolerance too, or
//! the cores in use had polled, the cores that the estimate needs go on to poll; and if that is no better, they wait. Each until the rate of requests has
//! doubled or halved, or for a minute, which doubles up to an hour.
//! While cores pause after requests, a latency that is too high ends the pauses for a minute, which doubles too, and nothing else is learnt.
//!
//! *Limits.* A mean or median needs 200 requests in a window. A burst that is in less than half of the windows is not seen, however many requests it has: `adaptive` answers it by the hold.
//!
//! *Properties* (tests below). Without a reading nothing changes. A trial of polling lasts for four windows; there is at most one a minute; after
//! each that got no windows, as where threads move at every burst, the time until the next doubles.

use pilotlight_plant::Reading;

/// Scale of the estimated rise before any measurement; chosen between the two measured ones (simulated, `live-16cpu`): 0.88 on three cores at
/// 240 k requests a second, 0.99 on one at 54 k.
const SCALE: f64 = 0.95;
const LARGEST_SCALE: f64 = 3.0;
const SMALLEST_SCALE: f64 = 0.5;
/// The scale falls to this multiple of the measured one, and is a scale higher by this factor than one at which latency was too high.
const SPARE: f64 = 1.05;
/// Part of the allowed rise that must be estimated, for the measured rise to say something about the scale.
const SOME: f64 = 0.25;
/// Fewest requests whose latency says something: of windows with fewer the highest percentile of several counts.
const ENOUGH: f64 = 200.0;
/// Part of the latency before that a remedy must leave, to be one.
const BETTER: f64 = 0.9;
/// Windows that decide; chosen: the 99th percentiles of windows of 5,400 requests were 50 to 64 us (simulated).
const WINDOWS: usize = 4;
/// Load of a core from which on it hardly waits, so that polling would measure nothing else.
const LIGHT: f64 = 0.9;
/// Time until polling is tried again, or given up again.
const RETRY_NS: u64 = 60_000_000_000;
const LONGEST_RETRY_NS: u64 = 3_600_000_000_000;
/// A trial that has not seen its windows by then is given up.
const LONGEST_TRIAL_NS: u64 = 10_000_000_000;
/// Time over which the rate of requests is smoothed, in nanoseconds: a check has ten requests at 1 k a second.
const RATE_NS: f64 = 640e6;
/// Time without requests after which a trial is given up.
const QUIET_NS: u64 = 100_000_000;

/// How threads wait.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Trial {
    /// In the kernel, as long as that is allowed.
    Waits,
    /// They poll, to measure the baseline, on every core or on those in use; the latency before.
    Measures { before: Before, on_all: bool },
    /// The baseline was measured: the next check decides.
    Measured(Before, f64),
    /// All cores are used, and wait.
    Spreads(Remedy),
    /// They poll.
    Polls(Remedy),
}

/// What is done about a latency that the estimate does not explain.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Remedy {
    /// The latency before, and whether there were cores to take.
    before: Before,
    /// At this rate of requests, until then.
    rate: f64,
    until_ns: u64,
}

/// The latency before a trial, and the estimated rise.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Before {
    latency_ns: f64,
    rise_ns: f64,
    /// With more cores, which wait, it may be less.
    more_may_help: bool,
}

/// What was learnt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Feedback {
    scale: f64,
    /// No lower scale, at this rate of requests.
    floor: (f64, f64),
    /// Measured by estimated rises since then: number and sum.
    ratios: (u64, u32, f64),
    /// `None` before it was measured.
    unexplained_ns: Option<f64>,
    trial: Trial,
    /// Windows since the last decision, and their number.
    windows: ([f64; WINDOWS], usize),
    /// End of the last window.
    ended_ns: u64,
    /// Requests since the last one with enough, the highest value since, and whether threads have moved.
    requests: f64,
    largest_ns: u64,
    moved: bool,
    /// Smoothed rate of requests, and time since the last one.
    rate: f64,
    quiet_ns: u64,
    /// How long cores poll after the next trial that says so.
    retry_ns: u64,
    /// The rate of requests at which no remedy helped.
    helpless_rate: f64,
    /// No trial before; the pause after one that gets no windows.
    try_after_ns: u64,
    pause_ns: u64,
    /// When the present trial is given up.
    over_ns: u64,
    /// Some of these windows have pauses; and the last decision without was within the tolerance.
    paused: bool,
    keeps: bool,
    /// No pauses before, and for how long there are none after the next that are too long.
    pauses_after_ns: u64,
    no_pause_ns: u64,
}

/// The estimate and its circumstances at a check.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    pub(super) now_ns: u64,
    /// In the check.
    pub(super) requests: u64,
    pub(super) elapsed_ns: u64,
    /// Latency now, without pauses, and that of polling on every core.
    pub(super) estimated_ns: f64,
    pub(super) base_ns: f64,
    pub(super) allowed_ns: f64,
    /// The latency is a high percentile.
    pub(super) is_tail: bool,
    pub(super) can_wait: bool,
    /// Cores pause after requests.
    pub(super) pauses: bool,
    /// Not all cores are in use that may be.
    pub(super) saves_cores: bool,
    /// The load of the busiest core.
    pub(super) load: f64,
}

impl Default for Feedback {
    fn default() -> Self {
        Self {
            scale: SCALE,
            floor: (SMALLEST_SCALE, 0.0),
            ratios: (0, 0, 0.0),
            unexplained_ns: None,
            trial: Trial::Waits,
            windows: ([0.0; WINDOWS], 0),
            ended_ns: 0,
            requests: 0.0,
            largest_ns: 0,
            rate: 0.0,
            quiet_ns: 0,
            moved: false,
            retry_ns: RETRY_NS,
            helpless_rate: 0.0,
            try_after_ns: 0,
            pause_ns: RETRY_NS,
            over_ns: 0,
            paused: false,
            keeps: false,
            pauses_after_ns: 0,
            no_pause_ns: RETRY_NS,
        }
    }
}

impl Feedback {
    /// By which the estimated rise is multiplied.
    pub(super) fn scale(&self) -> f64 {
        self.scale
    }

    /// Part of the baseline that the estimate does not explain.
    pub(super) fn unexplained_ns(&self) -> f64 {
        self.unexplained_ns.unwrap_or(0.0)
    }

    /// Whether cores poll although they could wait.
    pub(super) fn polls(&self) -> bool {
        !matches!(self.trial, Trial::Waits | Trial::Spreads(_))
    }

    /// Whether cores may pause after requests: the baseline is known, and when they waited last the latency was within the tolerance.
    pub(super) fn may_pause(&self, now_ns: u64) -> bool {
        let waits_suffice = self.keeps && self.trial == Trial::Waits;
        self.unexplained_ns.is_some() && waits_suffice && now_ns >= self.pauses_after_ns
    }

    /// Whether all cores are used although the estimate needs fewer.
    pub(super) fn spreads(&self) -> bool {
        matches!(self.trial, Trial::Spreads(_))
    }

    /// Threads move, or wait differently: the current window is of both states.
    pub(super) fn changed(&mut self) {
        (self.moved, self.paused, self.windows.1) = (true, false, 0);
    }

    /// Pauses have begun or ended: the windows before count with those to come, as windows with pauses.
    pub(super) fn paused(&mut self) {
        (self.moved, self.paused) = (true, true);
    }

    /// Whether cores poll for longer than a trial.
    pub(super) fn polls_few(&self) -> bool {
        matches!(self.trial, Trial::Polls(_))
    }

    /// Whether the baseline is being measured.
    pub(super) fn measures(&self) -> bool {
        matches!(self.trial, Trial::Measures { .. })
    }

    /// Whether that needs every core.
    pub(super) fn takes_all(&self) -> bool {
        matches!(self.trial, Trial::Measures { on_all: true, .. })
    }

    /// A budget limits the cores: nothing can be measured, and no more cores be used for it.
    pub(super) fn give_up(&mut self) {
        if !self.polls_few() {
            self.end();
        }
    }

    /// Another tolerance: what was tried says nothing, so it may be tried again.
    pub(super) fn start_again(&mut self, now_ns: u64) {
        self.end();
        (self.retry_ns, self.pause_ns, self.no_pause_ns) = (RETRY_NS, RETRY_NS, RETRY_NS);
        self.pauses_after_ns = self.pauses_after_ns.min(now_ns.saturating_add(RETRY_NS));
        self.try_after_ns = self.try_after_ns.min(now_ns.saturating_add(RETRY_NS));
    }

    /// No trial and no remedy any more.
    pub(super) fn end(&mut self) {
        if self.trial != Trial::Waits {
            (self.trial, self.windows.1) = (Trial::Waits, 0);
        }
    }

    /// Takes the reading of a check.
    pub(super) fn learn(&mut self, reading: Reading, state: &State) {
        self.requests += state.requests as f64;
        let elapsed_ns = state.elapsed_ns.max(1) as f64;
        self.rate += elapsed_ns / (elapsed_ns + RATE_NS) * (state.requests as f64 / elapsed_ns - self.rate);
        let rate = self.rate;
        self.quiet_ns = if state.requests == 0 { self.quiet_ns.saturating_add(state.elapsed_ns) } else { 0 };
        let is_over = state.now_ns >= self.over_ns;
        if self.measures() && (self.quiet_ns >= QUIET_NS || is_over) {
            if is_over {
                self.pause_ns = (self.pause_ns * 2).min(LONGEST_RETRY_NS);
                self.try_after_ns = state.now_ns.saturating_add(self.pause_ns);
            }
            self.end(); // nothing to measure, or the readings have stopped
        }
        if let Trial::Measured(before, rate) = self.trial {
            self.end_trial(before, rate, state);
        }
        if let Trial::Polls(remedy) | Trial::Spreads(remedy) = self.trial
            && (state.now_ns >= remedy.until_ns || rate > 2.0 * remedy.rate || rate < remedy.rate / 2.0)
        {
            self.end();
        }
        let ended_ns = state.now_ns.saturating_sub(reading.age_ns);
        if reading.age_ns == u64::MAX || ended_ns == self.ended_ns {
            return;
        }
        self.ended_ns = ended_ns;
        if std::mem::take(&mut self.moved) {
            (self.requests, self.largest_ns) = (0.0, 0);
            return;
        }
        self.largest_ns = self.largest_ns.max(reading.value.unwrap_or(0));
        let is_enough = self.requests >= ENOUGH;
        if is_enough && self.largest_ns > 0 {
            self.window(self.largest_ns as f64, rate, state);
        }
        if is_enough || !state.is_tail {
            (self.requests, self.largest_ns) = (0.0, 0);
        }
    }

    fn window(&mut self, last_ns: f64, rate: f64, state: &State) {
        self.paused |= state.pauses;
        let (windows, number) = &mut self.windows;
        windows[*number] = last_ns;
        *number += 1;
        if *number < WINDOWS {
            return;
        }
        *number = 0;
        windows.sort_by(f64::total_cmp);
        let [_, second_ns, third_ns, _] = *windows;
        let measured_ns = f64::midpoint(second_ns, third_ns);
        let rise_ns = state.estimated_ns - state.base_ns;
        let before = Before { latency_ns: measured_ns, rise_ns, more_may_help: false };
        let is_exceeded = second_ns > state.allowed_ns;
        if std::mem::take(&mut self.paused) {
            if is_exceeded {
                self.pauses_after_ns = state.now_ns.saturating_add(self.no_pause_ns);
                self.no_pause_ns = self.no_pause_ns.saturating_mul(2).min(LONGEST_RETRY_NS);
            } else {
                self.no_pause_ns = (self.no_pause_ns / 2).max(RETRY_NS);
            }
            self.ratios = (state.now_ns, 0, 0.0);
            return; // of pauses it says nothing about cores and waits
        }
        self.keeps = !is_exceeded && self.trial == Trial::Waits;
        let is_known = self.unexplained_ns.is_some() && !self.measures();
        let is_other_load = rate > 2.0 * self.floor.1 || rate < self.floor.1 / 2.0;
        if is_other_load {
            self.floor = (SMALLEST_SCALE, rate);
        }
        if self.helpless_rate > 0.0 && (rate > 2.0 * self.helpless_rate || rate < self.helpless_rate / 2.0) {
            self.helpless_rate = 0.0;
            self.start_again(state.now_ns);
        }
        if is_exceeded || is_other_load {
            self.ratios = (state.now_ns, 0, 0.0);
        } else if is_known {
            self.lower_scale(measured_ns - state.base_ns, before.rise_ns, state);
        }
        match self.trial {
            Trial::Measures { before, .. } => {
                self.pause_ns = RETRY_NS;
                let explained_ns = state.estimated_ns - self.unexplained_ns();
                self.unexplained_ns = Some((measured_ns - explained_ns).max(0.0));
                self.trial = Trial::Measured(before, rate);
            }
            Trial::Waits if self.unexplained_ns.is_none() => self.try_polling(before, state),
            Trial::Waits if is_exceeded => {
                if !self.blame_cores(before, state) {
                    self.try_polling(before, state);
                }
            }
            Trial::Spreads(remedy) if is_exceeded => {
                if !self.blame_cores(before, state) {
                    let before = if measured_ns < remedy.before.latency_ns { before } else { remedy.before };
                    self.trial = Trial::Polls(Remedy { before, ..remedy });
                }
            }
            Trial::Polls(remedy) if is_exceeded => {
                let helps = measured_ns < BETTER * remedy.before.latency_ns;
                if !self.blame_cores(before, state) && !helps {
                    self.trial = Trial::Waits;
                    self.try_after_ns = remedy.until_ns;
                    self.helpless_rate = rate;
                }
            }
            Trial::Waits | Trial::Measured(..) | Trial::Spreads(_) | Trial::Polls(_) => {}
        }
    }

    /// Takes a measured and an estimated rise; lowers the scale once those of a minute say so.
    fn lower_scale(&mut self, measured_ns: f64, estimated_ns: f64, state: &State) {
        let says_something = estimated_ns * self.scale > SOME * (state.allowed_ns - state.base_ns).max(0.0);
        if !says_something || !estimated_ns.is_finite() || measured_ns < 0.0 {
            return; // a rise below 0 says that the baseline is wrong, not the scale
        }
        let (since_ns, number, sum) = self.ratios;
        let since_ns = if number == 0 { state.now_ns } else { since_ns };
        self.ratios = (since_ns, number + 1, sum + measured_ns / estimated_ns);
        if state.now_ns >= since_ns.saturating_add(RETRY_NS) {
            let lower = (self.ratios.2 / f64::from(self.ratios.1) * SPARE).max(self.floor.0);
            self.scale = self.scale.min(lower);
            self.ratios = (state.now_ns, 0, 0.0);
        }
    }

    /// Begins a trial, if polling would differ from waiting and the last trial was long ago.
    fn try_polling(&mut self, before: Before, state: &State) {
        let differs = state.saves_cores || state.can_wait && state.load < LIGHT;
        let ends = self.rate * LONGEST_TRIAL_NS as f64 > (WINDOWS as f64 + 2.0) * ENOUGH;
        if differs && ends && state.now_ns >= self.try_after_ns {
            let hardly_ns = SOME / LARGEST_SCALE * (state.allowed_ns - state.base_ns).max(0.0);
            let on_all = before.rise_ns > hardly_ns;
            let more_may_help = on_all && state.saves_cores && state.can_wait;
            self.trial = Trial::Measures { before: Before { more_may_help, ..before }, on_all };
            self.over_ns = state.now_ns.saturating_add(LONGEST_TRIAL_NS);
            self.try_after_ns = state.now_ns.saturating_add(RETRY_NS);
        }
    }

    /// Scales the estimated rise to the measured one, if it explains a good part of it; whether it does.
    fn blame_cores(&mut self, Before { latency_ns, rise_ns, .. }: Before, state: &State) -> bool {
        let measured_ns = latency_ns - state.base_ns;
        let explains = rise_ns * self.scale.max(1.0) >= measured_ns / 3.0 && self.scale < LARGEST_SCALE;
        if explains {
            self.floor = (self.scale * SPARE, self.rate);
            self.scale = (measured_ns / rise_ns).max(self.scale * 1.1).min(LARGEST_SCALE);
        }
        explains
    }

    /// Whether the latency before the trial is within the tolerance of the measured baseline, and why not.
    fn end_trial(&mut self, before: Before, rate: f64, state: &State) {
        if before.latency_ns <= state.allowed_ns || self.blame_cores(before, state) {
            self.trial = Trial::Waits;
            return;
        }
        let remedy = Remedy { before, rate, until_ns: state.now_ns.saturating_add(self.retry_ns) };
        self.trial = if before.more_may_help { Trial::Spreads(remedy) } else { Trial::Polls(remedy) };
        self.retry_ns = self.retry_ns.saturating_mul(2).min(LONGEST_RETRY_NS);
    }
}

#[cfg(test)]
mod tests;
