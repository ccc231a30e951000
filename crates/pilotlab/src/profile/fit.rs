//! The linear models of section 3.2, fitted to what was measured, each coefficient with its interval.

use pilotlight_stats::linear::{self, Fit};
use pilotlight_stats::{CONFIDENCE, Estimate};
use serde::Serialize;

use super::subject::{Axes, DriveMeasured, Measured};

/// What the measurements of a CPU come to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct CpuFit {
    /// Watts without a power limit: what is always drawn, and what a core's worth of CPU time adds.
    pub(super) power_w: Option<Line>,
    /// Time between two polls in nanoseconds: what is always spent, and what each I/O thread of a core adds; with all CPU time and without a power limit.
    pub(super) interval_ns: Option<Line>,
    /// Watts drawn under a limit that is kept, for each watt of the limit.
    pub(super) limit_w: Option<Line>,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Line {
    pub(super) base: Estimate,
    pub(super) slope: Estimate,
    pub(super) r2: f64,
}

impl From<Fit<2>> for Line {
    fn from(fit: Fit<2>) -> Self {
        let [base, slope] = fit.coefficients;
        Self { base, slope, r2: fit.r2 }
    }
}

/// Resolution of the clock that intervals are measured with, in nanoseconds.
const CLOCK_NS: f64 = 1.0;
/// Under a limit that is kept the power is away from both ends of what there is by at least this share.
const BINDS: f64 = 0.02;

impl CpuFit {
    /// Of a CPU with so many I/O threads, by a sensor with steps of `step_w`.
    pub(super) fn new(measured: &[Measured], axes: &Axes, threads: u16, step_w: f64) -> Self {
        let free = || measured.iter().filter(|one| one.configuration.limit_uw == axes.most_uw());
        let power: Vec<_> = free().map(|one| ([1.0, one.used_cores], one.mean_w())).collect();
        let full = free().filter(|one| one.configuration.quota_ppm == axes.full_ppm(one.configuration.cores));
        let share = |one: &Measured| f64::from(threads) / f64::from(one.configuration.cores);
        let interval: Vec<_> = full.map(|one| ([1.0, share(one)], one.mean_ns)).collect();
        let fit = |rows: &[([f64; 2], f64)], step| linear::fit(rows, step, CONFIDENCE).map(Line::from);
        Self {
            power_w: fit(&power, step_w),
            interval_ns: fit(&interval, CLOCK_NS),
            limit_w: one_sided(&Self::limited(measured, axes), step_w),
        }
    }

    /// Limits that are kept, with all cores and all CPU time.
    fn limited(measured: &[Measured], axes: &Axes) -> Vec<([f64; 2], f64)> {
        let (cores, full_ppm) = (axes.cores, axes.full_ppm(axes.cores));
        let all = |one: &&Measured| one.configuration.cores == cores && one.configuration.quota_ppm == full_ppm;
        let rows: Vec<&Measured> = measured.iter().filter(all).collect();
        let watts = || rows.iter().map(|one| one.mean_w());
        let (least, most) = (watts().fold(f64::INFINITY, f64::min), watts().fold(0.0, f64::max));
        let inner = (least * (1.0 + BINDS))..(most * (1.0 - BINDS));
        let binds = rows.iter().filter(|one| inner.contains(&one.mean_w()));
        binds.map(|one| ([1.0, one.configuration.limit_uw as f64 / 1e6], one.mean_w())).collect()
    }
}

/// A line through values that miss a limit to one side: it is kept in steps of the clock frequency, of which the higher ones are more watts. Errors of
/// one sign are no noise, which intervals of a fit are about; in the worst case they grow from one end of the limits to the other, by twice
/// the largest residual. The intervals are wider by that.
fn one_sided(rows: &[([f64; 2], f64)], step_w: f64) -> Option<Line> {
    let Line { base, slope, r2 } = linear::fit(rows, step_w, CONFIDENCE).map(Line::from)?;
    let limits = || rows.iter().map(|([_, limit_w], _)| *limit_w);
    let (low, high) = (limits().fold(f64::INFINITY, f64::min), limits().fold(0.0, f64::max));
    let missed = rows.iter().map(|([_, limit_w], watts)| (watts - base.value - slope.value * limit_w).abs());
    let most = 2.0 * missed.fold(0.0, f64::max);
    let wider = |one: Estimate, by: f64| Estimate { low: one.low - by, high: one.high + by, ..one };
    let trend = most / (high - low);
    Some(Line { base: wider(base, most + trend * high), slope: wider(slope, trend), r2 })
}

/// What the measurements of drives come to: watts of one drive without requests, and for each GB/s that it reads or writes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct DriveFit {
    pub(super) idle_w: Estimate,
    pub(super) read_w_per_gb_s: Estimate,
    /// Nothing where nothing was written.
    pub(super) written_w_per_gb_s: Option<Estimate>,
    pub(super) r2: f64,
    /// Most that one drive reads and writes, in bytes a second.
    pub(super) most_read: f64,
    pub(super) most_written: f64,
}

const GB: f64 = 1e9;

impl DriveFit {
    /// Of so many drives under the same loads; `None` if loads do not tell the coefficients apart.
    pub(super) fn new(measured: &[DriveMeasured], drives: u32, step_w: f64) -> Option<Self> {
        let each = 1.0 / f64::from(drives.max(1));
        let row = |one: &DriveMeasured| -> Option<([f64; 3], f64)> {
            let watts = pilotlight_stats::mean::average(&one.watts)?;
            Some(([1.0, one.read * each / GB, one.written * each / GB], watts * each))
        };
        let rows: Vec<_> = measured.iter().filter_map(row).collect();
        let most = |of: fn(&DriveMeasured) -> f64| measured.iter().map(of).fold(0.0, f64::max) * each;
        let (most_read, most_written) = (most(|one| one.read), most(|one| one.written));
        let step_w = step_w * each;
        if most_written > 0.0 {
            let Fit { coefficients: [idle_w, read_w_per_gb_s, written], r2 } = linear::fit(&rows, step_w, CONFIDENCE)?;
            return Some(Self {
                idle_w,
                read_w_per_gb_s,
                written_w_per_gb_s: Some(written),
                r2,
                most_read,
                most_written,
            });
        }
        let reads: Vec<_> = rows.iter().map(|([one, read, _], watts)| ([*one, *read], *watts)).collect();
        let Fit { coefficients: [idle_w, read_w_per_gb_s], r2 } = linear::fit(&reads, step_w, CONFIDENCE)?;
        Some(Self { idle_w, read_w_per_gb_s, written_w_per_gb_s: None, r2, most_read, most_written })
    }
}
