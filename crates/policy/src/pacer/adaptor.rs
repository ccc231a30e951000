//! Adapts the number of cores, then the frequency, to a loss of latency (PACER IV-C).
//!
//! **Rule.** With `loss_distance = (aim - loss) / aim` (`plf` instead of `aim` in the paper) under the binding tolerance: within the dead band
//! nothing changes. With headroom cores are removed, and the frequency is lowered only once no core can be removed. With too much loss the frequency
//! rises, and cores are added once it is the highest. With `refine` both follow each window, as printed. A setting that was too low is not retried
//! under the same load until the baseline is measured again; then one step less is allowed.
//!
//! **Noise.** A loss is the mean of several windows, with a standard error. Headroom is computed with a higher loss, excess with a lower one. Over
//! many windows noise sometimes shows headroom, so a setting that has been stable for long is held until savings start again; not with `refine`.

use super::cores::Size;
use super::forecast::Forecast;
use super::frequency::Frequency;
use super::load::Load;
use super::migrator::CpuUse;
use super::parameters::{Adapt, Parameters, share};

/// Lower bound of loss distances, so that one window does not undo all savings; chosen.
const MIN_DISTANCE: f64 = -3.0;

/// A loss distance below this is not noise of a single window; chosen.
const SURE_DISTANCE: f64 = -1.0;

/// A setting is held after this multiple of `windows` windows without a change; chosen.
const HELD_AFTER: usize = 3;

/// A loss of latency under the binding tolerance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loss {
    /// Relative to the baseline.
    pub(super) share: f64,
    /// The same, or that of the last windows if more, in nanoseconds.
    pub(super) delay_ns: f64,
    /// Distance to the aim, relative to it; negative beyond it.
    pub(super) distance: f64,
    /// The distance with the upper bound of the loss, and with its lower bound.
    pub(super) headroom: f64,
    pub(super) excess: f64,
    /// Additional latency that every tolerance allows at the upper bound of the loss, in nanoseconds.
    pub(super) room_ns: f64,
    /// Whether it covers more than one window.
    pub(super) is_certain: bool,
    /// Whether one of its windows is sparse: then it shows only excess.
    pub(super) is_sparse: bool,
    /// Whether the latency under every active tolerance is known.
    pub(super) is_whole: bool,
}

impl Loss {
    /// Whether it is significantly beyond the aim.
    pub(super) fn is_beyond(&self, parameters: &Parameters) -> bool {
        self.excess < -share(parameters.dead_band_ppm)
    }

    /// Whether latency is significantly below the baseline.
    pub(super) fn is_gain(&self, parameters: &Parameters) -> bool {
        self.headroom > 1.0 + share(parameters.dead_band_ppm)
    }

    /// Whether it exceeds this multiple of the tolerance.
    pub(super) fn is_far(&self, tolerances: f64, parameters: &Parameters) -> bool {
        self.excess < 1.0 - tolerances / share(parameters.aim_ppm)
    }
}

/// Cores and frequency under adaptation.
#[derive(Debug)]
pub(super) struct Adaptor {
    /// By core group.
    pub(super) sizes: Vec<Size>,
    pub(super) frequency: Frequency,
    /// CPU use of each group since the last change.
    uses: Vec<CpuUse>,
    has_cores: bool,
    has_frequency: bool,
    /// The load of the adaptation.
    load: Option<Load>,
    /// Windows since the last change, and whether headroom is ignored until savings start again.
    steady: usize,
    is_held: bool,
}

impl Adaptor {
    /// With core groups of these sizes.
    pub(super) fn new(
        sizes: impl Iterator<Item = usize>,
        can_gather: bool,
        frequency: Frequency,
        adapt: Adapt,
    ) -> Self {
        let sizes: Vec<_> = sizes.map(Size::new).collect();
        Self {
            uses: vec![CpuUse::default(); sizes.len()],
            sizes,
            has_cores: can_gather && adapt != Adapt::Frequency,
            has_frequency: adapt != Adapt::Cores,
            frequency,
            load: None,
            steady: 0,
            is_held: false,
        }
    }

    /// Takes over the state of another with other numbers of cores.
    pub(super) fn inherit(&mut self, before: &Self) {
        self.sizes.iter_mut().zip(&before.sizes).for_each(|(size, before)| size.inherit(before));
        self.frequency.inherit(&before.frequency);
        self.load = before.load;
    }

    /// Whether anything can be adapted.
    pub(super) fn can_adapt(&self) -> bool {
        self.has_cores || self.can_set_frequency()
    }

    fn can_set_frequency(&self) -> bool {
        self.has_frequency && self.frequency.exists()
    }

    /// Whether all cores are in use.
    pub(super) fn uses_all(&self) -> bool {
        self.sizes.iter().all(|size| size.n == size.most)
    }

    /// Cores in use.
    pub(super) fn cores(&self) -> usize {
        self.sizes.iter().map(|size| size.n).sum()
    }

    /// Whether nothing is saved.
    pub(super) fn is_full(&self) -> bool {
        self.uses_all() && self.frequency.is_highest()
    }

    /// Clears the CPU use after a change.
    pub(super) fn clear(&mut self) {
        self.uses.fill(CpuUse::default());
        self.steady = 0;
    }

    /// Adds an interval under the current setting.
    pub(super) fn add(&mut self, uses: impl Iterator<Item = CpuUse>) {
        self.uses.iter_mut().zip(uses).for_each(|(sum, more)| sum.add(more));
    }

    fn each_size(&mut self, mut of: impl FnMut(&mut Size, f64) -> bool) -> bool {
        let changed = self.sizes.iter_mut().zip(&self.uses).map(|(size, cpu_use)| of(size, cpu_use.share()));
        changed.fold(false, |any, one| any | one)
    }

    /// Starts savings under this load. `retry` is whether settings that were too low may be retried.
    pub(super) fn begin(
        &mut self,
        load: &Load,
        retry: bool,
        (no_loss, parameters): (&Loss, &Parameters),
        forecast: &mut Forecast<'_>,
    ) {
        self.is_held = false;
        let known = self.load.filter(|known| !known.differs(load, parameters.other_load(), 0.0));
        self.load = Some(known.unwrap_or(*load));
        if known.is_none() {
            self.each_size(|size, cpu_use| (size.begin(cpu_use), false).1);
            self.frequency.begin();
        } else {
            self.each_size(|size, cpu_use| (size.resume(cpu_use, retry, parameters), false).1);
            let before_khz = self.frequency.khz;
            let most_use = self.sizes.iter().map(Size::desired).fold(0.0, f64::max);
            self.frequency.resume(retry, most_use / share(parameters.use_limit_ppm));
            self.note_frequency(before_khz, parameters);
        }
        if self.is_full() {
            self.step(no_loss, parameters, forecast);
        }
    }

    /// Adapts to a loss under the current setting; whether anything changes.
    pub(super) fn step(&mut self, loss: &Loss, parameters: &Parameters, forecast: &mut Forecast<'_>) -> bool {
        // The last windows may show more excess than the mean.
        let distance = loss.distance.min(loss.excess).clamp(MIN_DISTANCE, 1.0);
        if loss.is_certain {
            self.each_size(|size, cpu_use| (size.measure(cpu_use), false).1);
        }
        if loss.is_beyond(parameters) {
            return (loss.is_certain || distance < SURE_DISTANCE) && self.raise(distance, parameters);
        }
        if !loss.is_whole || loss.is_sparse {
            return false;
        }
        if loss.is_certain {
            self.sizes.iter_mut().for_each(Size::prove);
            self.frequency.prove();
        }
        if self.has_cores && self.each_size(|size, cpu_use| size.follow(cpu_use, parameters)) {
            return true;
        }
        // Not steady while the target CPU use still grows; it ends at its limit.
        let grows = self.has_cores
            && loss.headroom > share(parameters.dead_band_ppm)
            && !self.sizes.iter().all(Size::is_settled);
        self.steady += usize::from(!grows);
        self.is_held |= !parameters.refines && self.steady >= HELD_AFTER * parameters.windows;
        let may_lower = !self.is_held && loss.headroom > share(parameters.dead_band_ppm);
        may_lower && self.lower(loss.headroom.min(1.0), loss.room_ns, parameters, forecast)
    }

    fn lower(&mut self, distance: f64, room_ns: f64, parameters: &Parameters, forecast: &mut Forecast<'_>) -> bool {
        let mut lowered = false;
        if self.has_cores {
            let each = room_ns / self.sizes.len() as f64;
            for (group, (size, cpu_use)) in self.sizes.iter_mut().zip(&self.uses).enumerate() {
                let fits = |n| forecast.with_cores(group, n) <= each;
                lowered |= size.lower(cpu_use.share(), distance, parameters, fits);
            }
            if !parameters.refines && (lowered || !self.sizes.iter().all(Size::is_settled)) {
                return lowered;
            }
        }
        let before_khz = self.frequency.khz;
        lowered |= self.can_set_frequency()
            && self.frequency.lower(distance, parameters, |slower| forecast.with_frequency(slower) <= room_ns);
        self.note_frequency(before_khz, parameters);
        lowered
    }

    /// Scales the target CPU use after a change of the frequency.
    fn note_frequency(&mut self, before_khz: u64, parameters: &Parameters) {
        let slower = before_khz as f64 / self.frequency.khz.max(1) as f64;
        if before_khz != self.frequency.khz {
            self.sizes.iter_mut().for_each(|size| size.scale(slower, parameters));
        }
    }

    fn raise(&mut self, distance: f64, parameters: &Parameters) -> bool {
        let before_khz = self.frequency.khz;
        let raised = self.can_set_frequency() && self.frequency.raise(distance, parameters);
        if raised {
            self.note_frequency(before_khz, parameters);
        }
        let goes_on = self.has_cores && (parameters.refines || !raised);
        raised | (goes_on && self.each_size(|size, cpu_use| size.raise(cpu_use, distance, parameters)))
    }

    /// Ends savings. If they are the `cause`, settings not proven to keep the tolerance are not retried under this load; if all were proven, none
    /// is retried.
    pub(super) fn restore(&mut self, is_cause: bool) {
        let is_any_new = self.frequency.is_new() || self.sizes.iter().any(Size::is_new);
        let cause = |is_new: bool| is_cause && (is_new || !is_any_new);
        self.sizes.iter_mut().for_each(|size| size.restore(cause(size.is_new())));
        self.frequency.restore(cause(self.frequency.is_new()));
    }

    /// Idle server: one core of each group, and those that background work needs; at the highest frequency, so that the first request
    /// is not delayed.
    pub(super) fn idle(&mut self, works: bool, parameters: &Parameters) {
        if self.has_cores {
            self.each_size(|size, cpu_use| (size.idle(cpu_use, works, parameters), false).1);
        }
        self.frequency.restore(false);
    }

    /// The tolerance has changed.
    pub(super) fn forget(&mut self) {
        self.sizes.iter_mut().for_each(Size::forget);
        self.frequency.forget();
        self.is_held = false;
    }
}
