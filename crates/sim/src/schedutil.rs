//! The kernel's frequency governor `schedutil`: the frequency of a core follows its utilisation.
//!
//! **Rule** (Linux 6.8). Utilisation is the running average of the time in which a core runs, with a half-life of 32 ms (PELT,
//! `kernel/sched/pelt.c`), on a clock that advances with the frequency while the core runs and catches up with real time while it is idle
//! (`update_rq_clock_pelt`), unless it was busy all the time before (`update_idle_rq_clock_pelt`). Every [`RATE_LIMIT_NS`] the core is set to 1.25 x
//! highest frequency x utilisation (`map_util_perf`), rounded up to an available frequency.
//! A core that polls without pause therefore reaches the highest frequency from any frequency. A CPU quota limits the running time of a core,
//! regardless of its frequency: share `q` at frequency `f` yields utilisation `q f`, and then 1.25 `q f`. Below a share of 0.8 the frequency falls to
//! the lowest one, or to one that rounding up preserves, unless the core runs so long at a time that the average rises meanwhile.
//!
//! **Differences from Linux.** No estimate of a task's utilisation (`util_est`): it is updated when a task goes to sleep, at most each millisecond,
//! and follows a falling average by a quarter each time. So it never changes for a reactor that polls, throttled or not, and for a worker that
//! sleeps between requests it lags by some 3 ms; only a core that had slept for long would start faster. The average is updated every [`STEP_NS`],
//! idle time before running time, not every 1,024 us; decisions are on a time grid, not at the scheduler's ticks; a core in a wait instruction counts
//! as idle.

use crate::machine::{Governor, Machine, Speed};

/// Update period of the average, in nanoseconds.
const STEP_NS: u64 = 1_000_000;

/// Time between two decisions, in nanoseconds: `INTEL_CPUFREQ_TRANSITION_DELAY_HWP` of `drivers/cpufreq/intel_pstate.c`, for CPUs with hardware
/// P-states such as the Xeon Gold 6430.
const RATE_LIMIT_NS: u64 = 5_000_000;

/// Half-life of the average, in nanoseconds.
const HALF_LIFE_NS: u64 = 32_000_000;

/// Utilisation from which a core counts as always busy: 1,023 of 1,024.
const FULL: f64 = 1_023.0 / 1_024.0;

/// The governor of all cores.
#[derive(Clone, Debug)]
pub(crate) struct Schedutil {
    speed: Speed,
    cores: Vec<Load>,
}

/// Load of a core.
#[derive(Clone, Debug)]
struct Load {
    /// Running time since the last update of the average, and the same scaled by frequency.
    awake_ns: u64,
    work_ns: u64,
    /// Lag of the average's clock.
    behind_ns: u64,
    utilisation: f64,
    /// The last commanded frequency.
    khz: u32,
}

impl Schedutil {
    /// The governor of a machine's cores, initially busy; `None` for another governor.
    pub(crate) fn new(machine: &Machine, cores: usize) -> Option<Self> {
        let speed = machine.speed;
        let load = Load { awake_ns: 0, work_ns: 0, behind_ns: 0, utilisation: 1.0, khz: speed.max_khz };
        (machine.governor == Governor::Schedutil).then(|| Self { speed, cores: vec![load; cores] })
    }

    /// The first update after `now_ns`.
    pub(crate) fn due_ns(now_ns: u64) -> u64 {
        (now_ns / STEP_NS + 1) * STEP_NS
    }

    /// Records that a core ran for `awake_ns` in each of `epochs` epochs, at frequency `khz`.
    pub(crate) fn spend(&mut self, core: usize, awake_ns: u64, khz: u32, epochs: u64) {
        let load = &mut self.cores[core];
        load.awake_ns += awake_ns * epochs;
        load.work_ns += awake_ns * u64::from(khz) / u64::from(self.speed.max_khz) * epochs;
    }

    /// Updates the averages if `now_ns` is the end of a step; returns cores with a new frequency.
    pub(crate) fn update(&mut self, now_ns: u64) -> Vec<(usize, u32)> {
        if !now_ns.is_multiple_of(STEP_NS) {
            return Vec::new();
        }
        self.cores.iter_mut().for_each(Load::step);
        if !now_ns.is_multiple_of(RATE_LIMIT_NS) {
            return Vec::new();
        }
        let speed = self.speed;
        let cores = self.cores.iter_mut().enumerate();
        cores.filter_map(|(index, load)| load.decide(&speed).map(|khz| (index, khz))).collect()
    }
}

impl Load {
    fn step(&mut self) {
        let (awake_ns, work_ns) = (std::mem::take(&mut self.awake_ns), std::mem::take(&mut self.work_ns));
        let idle_ns = STEP_NS.saturating_sub(awake_ns);
        if idle_ns > 0 {
            let behind_ns = std::mem::take(&mut self.behind_ns);
            let caught_up_ns = if self.utilisation < FULL { behind_ns } else { 0 };
            self.utilisation *= kept(idle_ns + caught_up_ns);
        }
        let kept = kept(work_ns);
        self.utilisation = self.utilisation * kept + (1.0 - kept);
        self.behind_ns += awake_ns.saturating_sub(work_ns);
    }

    /// The frequency for the current utilisation, if it has changed.
    fn decide(&mut self, speed: &Speed) -> Option<u32> {
        let Speed { min_khz, max_khz, step_khz, .. } = *speed;
        let wanted_khz = (1.25 * f64::from(max_khz) * self.utilisation) as u32;
        let steps = wanted_khz.saturating_sub(min_khz).div_ceil(step_khz.max(1));
        let khz = (min_khz + steps * step_khz).min(max_khz);
        (std::mem::replace(&mut self.khz, khz) != khz).then_some(khz)
    }
}

/// Decay of the average over `ns`. Uses only sums and products, so that all platforms agree.
fn kept(ns: u64) -> f64 {
    let halvings = (ns / HALF_LIFE_NS).min(63);
    let rest = (ns % HALF_LIFE_NS) as f64 / HALF_LIFE_NS as f64 * std::f64::consts::LN_2;
    // exp(-rest); the 16th term of the series is below 1e-15.
    let series = (1..=16).rev().fold(1.0, |sum, term| 1.0 - sum * rest / f64::from(term));
    series / (1_u64 << halvings) as f64
}

#[cfg(test)]
#[path = "schedutil_tests.rs"]
mod tests;
