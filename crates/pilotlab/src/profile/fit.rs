//! The linear models of section 3.2, fitted to measurements, with intervals of the coefficients.

use pilotlight_stats::linear::{self, Fit};
use pilotlight_stats::{CONFIDENCE, Estimate};
use serde::Serialize;

use super::subject::{Axes, DriveMeasured, Measured};

/// The model of a CPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct CpuFit {
    /// Power without a limit: constant part, and per core of CPU time.
    pub(super) power_w: Option<Line>,
    /// Polling interval in nanoseconds: constant part, and per I/O thread of a core; with full CPU time and no power limit.
    pub(super) interval_ns: Option<Line>,
    /// Power per watt of an effective limit.
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
/// Under an effective limit, power differs from the least and the greatest measured power by at least this share.
const MIN_LIMIT_EFFECT: f64 = 0.02;

impl CpuFit {
    /// Fits a CPU with this number of I/O threads, by a sensor with a resolution of `step_w`.
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

    /// Effective limits, with all cores and full CPU time.
    fn limited(measured: &[Measured], axes: &Axes) -> Vec<([f64; 2], f64)> {
        let (cores, full_ppm) = (axes.cores, axes.full_ppm(axes.cores));
        let all = |one: &&Measured| one.configuration.cores == cores && one.configuration.quota_ppm == full_ppm;
        let rows: Vec<&Measured> = measured.iter().filter(all).collect();
        let watts = || rows.iter().map(|one| one.mean_w());
        let (least, most) = (watts().fold(f64::INFINITY, f64::min), watts().fold(0.0, f64::max));
        let inner = (least * (1.0 + MIN_LIMIT_EFFECT))..(most * (1.0 - MIN_LIMIT_EFFECT));
        let binds = rows.iter().filter(|one| inner.contains(&one.mean_w()));
        binds.map(|one| ([1.0, one.configuration.limit_uw as f64 / 1e6], one.mean_w())).collect()
    }
}

/// A line through values with one-sided deviations, because limits are enforced in steps of the clock frequency. Intervals of a fit assume
/// noise; a systematic error can grow over the range of limits by twice the largest residual, so the intervals are widened by that.
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

/// The model of a drive: idle power, and power per GB/s of reads and writes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct DriveFit {
    pub(super) idle_w: Estimate,
    pub(super) read_w_per_gb_s: Estimate,
    /// `None` without writes.
    pub(super) written_w_per_gb_s: Option<Estimate>,
    pub(super) r2: f64,
    /// Maximum bandwidth of one drive for reads and writes, in bytes per second.
    pub(super) most_read: f64,
    pub(super) most_written: f64,
}

const GB: f64 = 1e9;

impl DriveFit {
    /// Fits a number of drives under equal loads; `None` if the loads do not determine the coefficients.
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
