//! From a loss of latency to numbers of cores and a frequency: cores first, then the frequency (PACER IV-C).
//!
//! **Rule.** With `loss_distance = (aim - loss) / aim`, where the paper has `plf` for `aim`, under the tolerance that binds: within the dead band nothing is changed. With headroom
//! cores go, and the frequency only once no more can. With too much loss the frequency rises, and cores come back once it is the highest.
//! What was too little is not tried again under the same load until the baseline is measured again; then one step less may be.
//!
//! **Chance.** A loss is the mean of some windows, with a standard error. Headroom counts with a higher loss, excess with a lower one. What is seen in many
//! windows is sometimes headroom by chance, so a setting that has stayed for long is held until savings begin again.

use super::cores::Size;
use super::forecast::Forecast;
use super::frequency::Frequency;
use super::load::Load;
use super::migrator::CpuUse;
use super::parameters::{Adapt, Parameters, share};

/// Loss distances below this are treated as this, so that one window does not undo all; chosen.
const LEAST_DISTANCE: f64 = -3.0;

/// A loss distance below this is beyond what chance makes of one window; chosen.
const SURE_DISTANCE: f64 = -1.0;

/// A setting is held after so many times `windows` windows without a change; chosen.
const HELD_AFTER: usize = 3;

/// A loss of latency under the tolerance that binds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loss {
    /// Relative to the baseline.
    pub(super) share: f64,
    /// The same, or what the last windows show if that is more, in nanoseconds.
    pub(super) delay_ns: f64,
    /// From what is aimed at, relative to that; negative beyond it.
    pub(super) distance: f64,
    /// The distance if the loss is higher than is seen, and if it is lower, as far as chance may make it so.
    pub(super) headroom: f64,
    pub(super) excess: f64,
    /// How much longer requests may take under every tolerance if the loss is higher than is seen, in nanoseconds.
    pub(super) room_ns: f64,
    /// Whether it is of more than one window.
    pub(super) is_certain: bool,
    /// Whether a window of it is sparse: then it shows excess alone.
    pub(super) is_sparse: bool,
    /// Whether the latency under every tolerance that can bind is known.
    pub(super) is_whole: bool,
}

impl Loss {
    /// Whether it is beyond what is aimed at by more than chance explains.
    pub(super) fn is_beyond(&self, parameters: &Parameters) -> bool {
        self.excess < -share(parameters.dead_band_ppm)
    }

    /// Whether latency is below the baseline by more than chance explains.
    pub(super) fn is_gain(&self, parameters: &Parameters) -> bool {
        self.headroom > 1.0 + share(parameters.dead_band_ppm)
    }

    /// Whether it is more than so many tolerances.
    pub(super) fn is_far(&self, tolerances: f64, parameters: &Parameters) -> bool {
        self.excess < 1.0 - tolerances / share(parameters.aim_ppm)
    }
}

/// What is adapted.
#[derive(Debug)]
pub(super) struct Adaptor {
    /// By core group.
    pub(super) sizes: Vec<Size>,
    pub(super) frequency: Frequency,
    /// CPU use of each group since the last change.
    uses: Vec<CpuUse>,
    has_cores: bool,
    has_frequency: bool,
    /// The load that it has adapted to.
    load: Option<Load>,
    /// Windows since the last change, and whether so many have passed that headroom lowers nothing any more until savings begin again.
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

    /// Takes over what another has found out with other numbers of cores.
    pub(super) fn inherit(&mut self, before: &Self) {
        self.sizes.iter_mut().zip(&before.sizes).for_each(|(size, before)| size.inherit(before));
        self.frequency.inherit(&before.frequency);
        self.load = before.load;
    }

    /// Whether there is anything to adapt.
    pub(super) fn can(&self) -> bool {
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

    /// Forgets the use of cores: something was changed.
    pub(super) fn clear(&mut self) {
        self.uses.fill(CpuUse::default());
        self.steady = 0;
    }

    /// An interval under the present setting.
    pub(super) fn add(&mut self, uses: impl Iterator<Item = CpuUse>) {
        self.uses.iter_mut().zip(uses).for_each(|(sum, more)| sum.add(more));
    }

    fn each_size(&mut self, mut of: impl FnMut(&mut Size, f64) -> bool) -> bool {
        let changed = self.sizes.iter_mut().zip(&self.uses).map(|(size, cpu_use)| of(size, cpu_use.share()));
        changed.fold(false, |any, one| any | one)
    }

    /// Savings begin under this load. `retry` is whether what was too little before may be tried again.
    pub(super) fn begin(
        &mut self,
        load: &Load,
        retry: bool,
        (no_loss, parameters): (&Loss, &Parameters),
        forecast: &mut Forecast<'_>,
    ) {
        self.is_held = false;
        let known = self.load.filter(|known| !known.differs(load, share(parameters.load_change_ppm), 0.0));
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

    /// What follows from this loss under the present setting; whether anything is changed.
    pub(super) fn step(&mut self, loss: &Loss, parameters: &Parameters, forecast: &mut Forecast<'_>) -> bool {
        // The last windows may show more excess than the mean.
        let distance = loss.distance.min(loss.excess).clamp(LEAST_DISTANCE, 1.0);
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
        // While the use that is aimed at still grows nothing is steady; it ends at its limit.
        let grows = self.has_cores
            && loss.headroom > share(parameters.dead_band_ppm)
            && !self.sizes.iter().all(Size::is_settled);
        self.steady += usize::from(!grows);
        self.is_held |= self.steady >= HELD_AFTER * parameters.windows;
        let may_lower = !self.is_held && loss.headroom > share(parameters.dead_band_ppm);
        may_lower && self.lower(loss.headroom.min(1.0), loss.room_ns, parameters, forecast)
    }

    fn lower(&mut self, distance: f64, room_ns: f64, parameters: &Parameters, forecast: &mut Forecast<'_>) -> bool {
        if self.has_cores {
            let each = room_ns / self.sizes.len() as f64;
            let mut lowered = false;
            for (group, (size, cpu_use)) in self.sizes.iter_mut().zip(&self.uses).enumerate() {
                let fits = |n| forecast.with_cores(group, n) <= each;
                lowered |= size.lower(cpu_use.share(), distance, parameters, fits);
            }
            if lowered || !self.sizes.iter().all(Size::is_settled) {
                return lowered;
            }
        }
        let before_khz = self.frequency.khz;
        let lowered = self.can_set_frequency()
            && self.frequency.lower(distance, parameters, |slower| forecast.with_frequency(slower) <= room_ns);
        self.note_frequency(before_khz, parameters);
        lowered
    }

    /// The frequency is another: the use of cores will be, without another load.
    fn note_frequency(&mut self, before_khz: u64, parameters: &Parameters) {
        let slower = before_khz as f64 / self.frequency.khz.max(1) as f64;
        if before_khz != self.frequency.khz {
            self.sizes.iter_mut().for_each(|size| size.scale(slower, parameters));
        }
    }

    fn raise(&mut self, distance: f64, parameters: &Parameters) -> bool {
        let before_khz = self.frequency.khz;
        if self.can_set_frequency() && self.frequency.raise(distance, parameters) {
            self.note_frequency(before_khz, parameters);
            return true;
        }
        self.has_cores && self.each_size(|size, cpu_use| size.raise(cpu_use, distance, parameters))
    }

    /// No savings. If they are `blamed`, what was not proven to keep the tolerance is not tried again under this load; if all of it was proven, none
    /// of it is.
    pub(super) fn restore(&mut self, blamed: bool) {
        let is_any_new = self.frequency.is_new() || self.sizes.iter().any(Size::is_new);
        let blames = |is_new: bool| blamed && (is_new || !is_any_new);
        self.sizes.iter_mut().for_each(|size| size.restore(blames(size.is_new())));
        self.frequency.restore(blames(self.frequency.is_new()));
    }

    /// The server is idle: one core of each group, and what background work needs; at the highest frequency, so that the first request
    /// waits for nothing.
    pub(super) fn idle(&mut self, works: bool, parameters: &Parameters) {
        if self.has_cores {
            self.each_size(|size, cpu_use| (size.idle(cpu_use, works, parameters), false).1);
        }
        self.frequency.restore(false);
    }

    /// Another tolerance holds.
    pub(super) fn forget(&mut self) {
        self.sizes.iter_mut().for_each(Size::forget);
        self.frequency.forget();
        self.is_held = false;
    }
}
