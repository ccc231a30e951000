//! The tolerances in force, each with its own latency; the one nearest to its limit, or farthest beyond it, binds.
//!
//! The first is the server's: the operator's, else the paper's. A tolerance of a namespace without requests or without measured latency does not bind.

use pilotlight_plant::{Capabilities, Goals, ReadingId, Sample};

use super::adaptor::Loss;
use super::load::Load;
use super::monitor::{LossEstimate, Monitor};
use super::parameters::{Parameters, share};
use super::tolerance::Tolerance;

/// All of them, at least one.
#[derive(Debug)]
pub(super) struct Monitors(Vec<Monitor>);

impl Monitors {
    pub(super) fn new(goals: &Goals, parameters: &Parameters) -> Self {
        Self(Tolerance::all(goals).map(|tolerance| Monitor::new(tolerance, parameters)).collect())
    }

    /// Replaces the tolerances; latency of the same requests and statistic is kept. Whether any tolerance changed, and whether baselines have to be
    /// measured.
    pub(super) fn replace(
        &mut self,
        goals: &Goals,
        capabilities: &Capabilities,
        parameters: &Parameters,
    ) -> (bool, bool) {
        let before = std::mem::take(&mut self.0);
        let tolerances: Vec<_> = before.iter().map(|monitor| monitor.tolerance).collect();
        let mut before: Vec<_> = before.into_iter().map(Some).collect();
        let mut is_new = false;
        for tolerance in Tolerance::all(goals) {
            let same = |known: &Tolerance| (known.scope, known.stat) == (tolerance.scope, tolerance.stat);
            let known = tolerances.iter().position(same).and_then(|at| before[at].take());
            is_new |= known.is_none();
            let mut monitor = known.unwrap_or_else(|| {
                let mut monitor = Monitor::new(tolerance, parameters);
                monitor.find(capabilities);
                monitor
            });
            monitor.tolerance = tolerance;
            self.0.push(monitor);
        }
        let is_other = !tolerances.into_iter().eq(self.0.iter().map(|monitor| monitor.tolerance));
        (is_other, is_new)
    }

    /// That of the server.
    pub(super) fn server(&self) -> &Monitor {
        &self.0[0]
    }

    /// Those with requests, and the server's.
    fn active(&self) -> impl Iterator<Item = &Monitor> {
        self.0.iter().enumerate().filter(|(at, monitor)| *at == 0 || monitor.is_active()).map(|(_, monitor)| monitor)
    }

    pub(super) fn find(&mut self, capabilities: &Capabilities) {
        self.0.iter_mut().for_each(|monitor| monitor.find(capabilities));
    }

    /// The readings that they need, each once.
    pub(super) fn readings(&self) -> Vec<ReadingId> {
        let mut ids = Vec::new();
        for id in self.0.iter().flat_map(|monitor| monitor.readings.ids()) {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        ids
    }

    pub(super) fn read(&mut self, sample: &Sample<'_>) {
        self.0.iter_mut().for_each(|monitor| monitor.read(sample));
    }

    pub(super) fn add(&mut self, sample: &Sample<'_>, holds_ns: u64, parameters: &Parameters) {
        self.0.iter_mut().for_each(|monitor| monitor.add(sample, holds_ns, parameters));
    }

    /// Clears the windows after a change.
    pub(super) fn clear(&mut self) {
        self.0.iter_mut().for_each(|monitor| monitor.windows.clear());
    }

    /// Forgets the baselines.
    pub(super) fn forget(&mut self) {
        self.0.iter_mut().for_each(|monitor| monitor.baseline = None);
    }

    /// Whether every tolerance allows a loss of latency.
    pub(super) fn may_save(&self) -> bool {
        self.active().all(|monitor| monitor.plf() > 0.0)
    }

    /// Increase of latency that every tolerance allows, in nanoseconds; 0 without a baseline of the server, which is used for namespaces without one.
    pub(super) fn tolerated_ns(&self) -> f64 {
        let of = |monitor: &Monitor| {
            let baseline = monitor.baseline.or(self.server().baseline);
            baseline.map_or(0.0, |baseline| monitor.tolerance.plf(baseline.ns) * baseline.ns)
        };
        self.0.iter().map(of).fold(f64::INFINITY, f64::min)
    }

    /// Whether all baselines are old.
    pub(super) fn are_old(&self, now_ns: u64, parameters: &Parameters) -> bool {
        let mut baselines = self.0.iter().filter_map(|monitor| monitor.baseline).peekable();
        baselines.peek().is_some() && baselines.all(|baseline| baseline.is_old(now_ns, parameters))
    }

    pub(super) fn is_burst(&self, parameters: &Parameters) -> bool {
        self.active().any(|monitor| monitor.is_burst(parameters))
    }

    pub(super) fn is_of_other_load(&self, parameters: &Parameters) -> bool {
        self.active().any(|monitor| monitor.is_of_other_load(parameters))
    }

    pub(super) fn is_surge_of_load(&self, sample: &Sample<'_>, parameters: &Parameters) -> bool {
        self.active().any(|monitor| monitor.is_surge_of_load(sample, parameters))
    }

    /// The largest divergence, if the interval has ended a window and each has enough of them.
    pub(super) fn divergence(&self) -> Option<f64> {
        if !self.active().any(|monitor| monitor.ended.is_some()) {
            return None;
        }
        let divergences = self.active().map(|monitor| monitor.windows.divergence());
        divergences.reduce(|most, one| Some(most?.max(one?))).flatten()
    }

    /// Measures the baselines; returns the load of the server, `None` without its latency.
    pub(super) fn measure(&mut self, now_ns: u64) -> Option<Load> {
        self.server().windows.mean_ns()?;
        self.0.iter_mut().for_each(|monitor| monitor.measure(now_ns));
        self.server().baseline.map(|baseline| baseline.load)
    }

    /// The loss before savings start.
    pub(super) fn no_loss(&self, parameters: &Parameters) -> Loss {
        let room_ns = self.active().filter_map(|monitor| {
            let baseline = monitor.baseline?;
            let error = baseline.error_ns / baseline.ns.max(1.0);
            room_ns(monitor, LossEstimate { share: 0.0, error, total_error: error, recent: (0.0, error) }, parameters)
        });
        Loss {
            share: 0.0,
            delay_ns: 0.0,
            distance: 1.0,
            headroom: 1.0,
            excess: 1.0,
            room_ns: room_ns.fold(f64::INFINITY, f64::min),
            is_certain: true,
            is_sparse: false,
            is_whole: true,
        }
    }

    /// The loss under the binding tolerance, if the interval has ended a window.
    pub(super) fn loss(&self, parameters: &Parameters) -> Option<Loss> {
        if !self.active().any(|monitor| monitor.ended.is_some()) {
            return None;
        }
        let known = || self.active().filter_map(|monitor| Some((monitor, monitor.loss()?)));
        let (binding, loss) = known().min_by(|one, other| {
            let distance = |(monitor, loss): &(&Monitor, LossEstimate)| distance(monitor, loss.share, parameters);
            distance(one).total_cmp(&distance(other))
        })?;
        let least = |of: fn(LossEstimate) -> f64| {
            known().map(|(monitor, loss)| distance(monitor, of(loss), parameters)).fold(f64::INFINITY, f64::min)
        };
        let room_ns = known().filter_map(|(monitor, loss)| room_ns(monitor, loss, parameters));
        Some(Loss {
            share: loss.share,
            delay_ns: displayed(loss) * binding.baseline.map_or(0.0, |baseline| baseline.ns),
            distance: distance(binding, loss.share, parameters),
            headroom: least(at_most),
            excess: least(at_least),
            room_ns: room_ns.fold(f64::INFINITY, f64::min),
            is_certain: binding.windows.len() > 1,
            is_sparse: self.active().any(|monitor| monitor.windows.are_sparse()),
            is_whole: self.active().all(|monitor| monitor.windows.len() > 0),
        })
    }

    /// Latency without savings, for the first bound below it.
    pub(super) fn unreachable(&self) -> Option<String> {
        let of = |monitor: &Monitor| {
            let baseline = monitor.baseline.filter(|baseline| monitor.tolerance.is_unreachable(baseline.ns))?;
            Some(format!("the {} is {:.1} us without savings", monitor.tolerance.name(), baseline.ns / 1e3))
        };
        self.0.iter().find_map(of)
    }

    /// Whether each has this number of windows.
    pub(super) fn have_windows(&self, number: usize) -> bool {
        self.active().all(|monitor| monitor.windows.len() >= number)
    }

    /// The binding tolerance.
    pub(super) fn binding(&self, parameters: &Parameters) -> Tolerance {
        let distance =
            |monitor: &Monitor| monitor.loss().map_or(f64::INFINITY, |loss| distance(monitor, loss.share, parameters));
        let binding = self.active().min_by(|one, other| distance(one).total_cmp(&distance(other)));
        binding.unwrap_or(self.server()).tolerance
    }
}

/// Standard errors of the upper bound of a loss, which is used to save more, and of the lower bound, which is used to save less, over all and over
/// the last windows; chosen.
const HIGHER: f64 = 1.5;
const LOWER: f64 = 1.0;
const RECENT_LOWER: f64 = 3.0;

fn at_most(loss: LossEstimate) -> f64 {
    loss.share + HIGHER * loss.total_error
}

fn at_least(loss: LossEstimate) -> f64 {
    (loss.share - LOWER * loss.error).max(recent_at_least(loss))
}

fn recent_at_least(loss: LossEstimate) -> f64 {
    loss.recent.0 - RECENT_LOWER * loss.recent.1
}

/// The mean, or the lower bound of the last windows if that is more.
fn displayed(loss: LossEstimate) -> f64 {
    loss.share.max(recent_at_least(loss))
}

/// The target loss, as a share.
fn aim(monitor: &Monitor, parameters: &Parameters) -> f64 {
    monitor.plf() * share(parameters.aim_ppm)
}

/// Distance to the target loss, relative to it.
fn distance(monitor: &Monitor, loss: f64, parameters: &Parameters) -> f64 {
    1.0 - loss / aim(monitor, parameters)
}

/// Remaining increase of latency that is allowed, in nanoseconds.
fn room_ns(monitor: &Monitor, loss: LossEstimate, parameters: &Parameters) -> Option<f64> {
    Some((aim(monitor, parameters) - at_most(loss)) * monitor.baseline?.ns)
}
