//! Selection of the windows to measure.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::random::Stream;

/// Parameters of the selection.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rule {
    /// Windows to draw, in addition to the exact ones.
    pub draws: usize,
    /// Number of strata; fewer if there are too few windows for two draws of each.
    pub strata: usize,
    /// A window is in a burst if its load is at least this many times the mean of the `background` windows before it.
    pub burst_factor: f64,
    /// Windows in that mean.
    pub background: usize,
    /// Windows before and after a burst that are exact too.
    pub guard: usize,
    /// Most exact windows in and around bursts; if there are more, they form strata.
    pub max_exact: usize,
}

impl Default for Rule {
    fn default() -> Self {
        Self { draws: 120, strata: 12, burst_factor: 2.0, background: 60, guard: 1, max_exact: usize::MAX }
    }
}

/// Windows of about the same load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stratum {
    /// Number of windows.
    pub windows: usize,
    /// Numbers of the measured windows.
    pub drawn: Vec<usize>,
}

/// The windows to measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Numbers of the windows in and around bursts that are measured.
    pub exact: Vec<usize>,
    /// The others, by ascending load; strata of bursts come last.
    pub strata: Vec<Stratum>,
    /// The stratum of each window; `None` if it is exact.
    pub stratum_of: Vec<Option<usize>>,
}

/// Error of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A confidence interval needs two draws of a stratum.
    #[error("a plan needs at least 2 draws for a confidence interval")]
    TooFewDraws,
}

/// Purpose of the draws.
const DRAWS: u64 = 201;

impl Plan {
    /// A plan for a trace whose windows have these loads. The same seed gives the same plan.
    ///
    /// # Errors
    /// [`PlanError`] with too few draws.
    pub fn new(loads: &[u64], rule: &Rule, seed: u64) -> Result<Self, PlanError> {
        if rule.draws < 2 {
            return Err(PlanError::TooFewDraws);
        }
        let (exact, separate) = exact_or_separate(loads, rule);
        let by_load = |mut windows: Vec<usize>| {
            windows.sort_by_key(|&window| (loads[window], window));
            windows
        };
        let in_burst = |window: &usize| exact.contains(window) || separate.contains(window);
        let rest = by_load((0..loads.len()).filter(|window| !in_burst(window)).collect());
        let bursts = by_load(separate.iter().copied().collect());
        let max_strata = rule.draws / 2;
        let parts = if bursts.is_empty() { 0 } else { (rule.strata / 3).clamp(1, max_strata - 1) };
        let mut strata = cut(&rest, rule.strata.saturating_sub(parts).clamp(1, max_strata - parts));
        strata.extend(cut(&bursts, parts));
        let mut stratum_of = vec![None; loads.len()];
        for (at, windows) in strata.iter().enumerate() {
            windows.iter().for_each(|&window| stratum_of[window] = Some(at));
        }
        let counts = draws_per_stratum(&strata, loads, rule.draws);
        let drawn = |(at, (windows, count)): (usize, (&&[usize], usize))| Stratum {
            windows: windows.len(),
            drawn: draw(windows, count, &mut Stream::new(seed, DRAWS, at as u64)),
        };
        let strata = strata.iter().zip(counts).enumerate().map(drawn).collect();
        Ok(Self { exact: exact.into_iter().collect(), strata, stratum_of })
    }

    /// A plan that measures all windows.
    #[must_use]
    pub fn whole(windows: usize) -> Self {
        Self { exact: (0..windows).collect(), strata: Vec::new(), stratum_of: vec![None; windows] }
    }

    /// Number of windows that a measured window represents; 0 if it is not measured.
    #[must_use]
    pub fn weight(&self, window: usize) -> f64 {
        match self.stratum_of.get(window) {
            Some(None) => 1.0,
            Some(&Some(stratum)) if self.strata[stratum].drawn.contains(&window) => {
                self.strata[stratum].windows as f64 / self.strata[stratum].drawn.len() as f64
            }
            _ => 0.0,
        }
    }

    /// Numbers of all measured windows.
    #[must_use]
    pub fn windows(&self) -> Vec<usize> {
        let drawn = self.strata.iter().flat_map(|stratum| &stratum.drawn);
        let all: BTreeSet<usize> = self.exact.iter().chain(drawn).copied().collect();
        all.into_iter().collect()
    }
}

/// Windows in and around bursts: the exact ones, or, if there are too many, those that form strata (which needs two draws in addition to
/// the two of the rest).
fn exact_or_separate(loads: &[u64], rule: &Rule) -> (BTreeSet<usize>, BTreeSet<usize>) {
    let bursts = around_bursts(loads, rule);
    match bursts.len() {
        count if count <= rule.max_exact => (bursts, BTreeSet::new()),
        _ if rule.draws < 4 => (BTreeSet::new(), BTreeSet::new()),
        _ => (BTreeSet::new(), bursts),
    }
}

/// Windows in bursts, with `guard` windows on either side.
fn around_bursts(loads: &[u64], rule: &Rule) -> BTreeSet<usize> {
    let mut exact = BTreeSet::new();
    let background = rule.background.max(1);
    let mut sum = 0_u64;
    for (window, &load) in loads.iter().enumerate() {
        let count = window.min(background);
        if count > 0 && load > 0 && load as f64 >= rule.burst_factor * sum as f64 / count as f64 {
            let last = (window + rule.guard).min(loads.len() - 1);
            exact.extend(window.saturating_sub(rule.guard)..=last);
        }
        sum += load;
        if window >= background {
            sum -= loads[window - background];
        }
    }
    exact
}

/// Divides into parts of about the same length, each of at least two windows if possible.
fn cut(windows: &[usize], parts: usize) -> Vec<&[usize]> {
    if windows.is_empty() {
        return Vec::new();
    }
    let parts = parts.min(windows.len() / 2).max(1);
    (0..parts).map(|at| &windows[windows.len() * at / parts..windows.len() * (at + 1) / parts]).collect()
}

/// Draws of each stratum: two, and the rest by size times deviation, at most its number of windows.
fn draws_per_stratum(strata: &[&[usize]], loads: &[u64], draws: usize) -> Vec<usize> {
    let weights: Vec<f64> =
        strata.iter().map(|windows| windows.len() as f64 * (deviation(windows, loads) + 1.0)).collect();
    let mut counts: Vec<usize> = strata.iter().map(|windows| windows.len().min(2)).collect();
    let mut left = draws.saturating_sub(counts.iter().sum());
    while left > 0 {
        // the next draw goes to the stratum with the largest weight per draw
        let open = (0..strata.len()).filter(|&at| counts[at] < strata[at].len());
        let weight = |at: usize| weights[at] / counts[at] as f64;
        let Some(next) = open.max_by(|&a, &b| weight(a).total_cmp(&weight(b)).then(b.cmp(&a))) else { break };
        counts[next] += 1;
        left -= 1;
    }
    counts
}

fn deviation(windows: &[usize], loads: &[u64]) -> f64 {
    let count = windows.len() as f64;
    let mean = windows.iter().map(|&window| loads[window] as f64).sum::<f64>() / count;
    (windows.iter().map(|&window| (loads[window] as f64 - mean).powi(2)).sum::<f64>() / count).sqrt()
}

/// Draws without replacement (Floyd's algorithm); returns sorted numbers.
fn draw(windows: &[usize], count: usize, stream: &mut Stream) -> Vec<usize> {
    let mut chosen = BTreeSet::new();
    for top in windows.len() - count..windows.len() {
        let at = stream.below(top as u64 + 1) as usize;
        if !chosen.insert(at) {
            chosen.insert(top);
        }
    }
    let mut drawn: Vec<usize> = chosen.into_iter().map(|at| windows[at]).collect();
    drawn.sort_unstable();
    drawn
}
