//! Sums outcomes of windows with their weights.
//!
//! In the series of the whole, a window that was not simulated has the mean of its stratum and its own number of requests.

use pilotlight_sim::histogram::Histogram;
use pilotlight_sim::outcome::{Decisions, Energy, Jobs, Outcome, Requests, Stretch};
use pilotlight_sim::scenario::Scenario;
use pilotlight_trace::sampling::Plan;

/// A stretch with floating-point values.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    answered: f64,
    latency_ns: f64,
    energy: [f64; 3],
    awake_ns: f64,
    capacity_ns: f64,
    moves: f64,
}

impl Mean {
    fn add(&mut self, other: &Self, weight: f64) {
        self.answered += other.answered * weight;
        self.latency_ns += other.latency_ns * weight;
        self.energy.iter_mut().zip(other.energy).for_each(|(mine, theirs)| *mine += theirs * weight);
        self.awake_ns += other.awake_ns * weight;
        self.capacity_ns += other.capacity_ns * weight;
        self.moves += other.moves * weight;
    }

    fn joules(&self) -> f64 {
        self.energy.iter().sum::<f64>() / 1e6
    }
}

impl From<&Stretch> for Mean {
    fn from(stretch: &Stretch) -> Self {
        let Energy { cpu_uj, drives_uj, others_uj } = stretch.energy;
        Self {
            answered: stretch.answered as f64,
            latency_ns: stretch.latency_ns as f64,
            energy: [cpu_uj, drives_uj, others_uj].map(|uj| uj as f64),
            awake_ns: stretch.awake_ns as f64,
            capacity_ns: stretch.capacity_ns as f64,
            moves: stretch.moves as f64,
        }
    }
}

impl From<Mean> for Stretch {
    fn from(mean: Mean) -> Self {
        Self {
            answered: mean.answered.round() as u64,
            latency_ns: mean.latency_ns.round() as u64,
            energy: energy(mean.energy),
            awake_ns: mean.awake_ns.round() as u64,
            capacity_ns: mean.capacity_ns.round() as u64,
            moves: mean.moves.round() as u64,
        }
    }
}

fn energy([cpu, drives, others]: [f64; 3]) -> Energy {
    let whole = |uj: f64| uj.round() as u64;
    Energy { cpu_uj: whole(cpu), drives_uj: whole(drives), others_uj: whole(others) }
}

/// The sum of simulated windows.
pub(super) struct Total<'a> {
    plan: &'a Plan,
    window_ns: u64,
    /// Width of a bin of the series of the whole.
    series_ns: u64,
    /// Outcomes by window.
    measured: Vec<Option<Mean>>,
    latency: Vec<(u8, Histogram, f64)>,
    family: Vec<[f64; 3]>,
    capped_uj: f64,
    requests: [f64; 2],
    decisions: [f64; 10],
    /// Number of windows represented by saturated ones.
    saturated: f64,
}

impl<'a> Total<'a> {
    pub(super) fn new(scenario: &Scenario, window_ns: u64, plan: &'a Plan) -> Self {
        Self {
            plan,
            window_ns,
            series_ns: scenario.series_ns,
            measured: vec![None; plan.stratum_of.len()],
            latency: Vec::new(),
            family: vec![[0.0; 3]; scenario.family.len()],
            capped_uj: 0.0,
            requests: [0.0; 2],
            decisions: [0.0; 10],
            saturated: 0.0,
        }
    }

    /// Adds consecutive windows from `first` on, with the weight of the first.
    pub(super) fn add(&mut self, first: usize, windows: usize, outcome: &Outcome, scenario: &Scenario) {
        let weight = self.plan.weight(first);
        let each = (self.window_ns / scenario.series_ns) as usize;
        let run_in = (scenario.warm_up_ns / scenario.series_ns) as usize;
        for (at, stretches) in outcome.series.get(run_in..).unwrap_or_default().chunks(each).take(windows).enumerate() {
            let mut window = Mean::default();
            stretches.iter().for_each(|stretch| window.add(&stretch.into(), 1.0));
            self.measured[first + at] = Some(window);
        }
        for (label, histogram) in &outcome.latency {
            let at = self.latency.iter().position(|(known, ..)| known == label).unwrap_or_else(|| {
                self.latency.push((*label, Histogram::default(), 0.0));
                self.latency.len() - 1
            });
            let (_, all, carry) = &mut self.latency[at];
            all.merge_weighted(histogram, weight, carry);
        }
        for (mine, Energy { cpu_uj, drives_uj, others_uj }) in self.family.iter_mut().zip(&outcome.family) {
            mine.iter_mut().zip([cpu_uj, drives_uj, others_uj]).for_each(|(all, &uj)| *all += uj as f64 * weight);
        }
        self.capped_uj += outcome.capped_uj as f64 * weight;
        let Requests { answered, in_progress, .. } = outcome.requests;
        self.requests[0] += answered as f64 * weight;
        self.requests[1] += in_progress as f64 * weight;
        let decided = numbers(&outcome.decisions);
        self.decisions.iter_mut().zip(decided).for_each(|(all, number)| *all += number as f64 * weight);
        self.saturated += if outcome.saturated { weight * windows as f64 } else { 0.0 };
    }

    /// Number of simulated windows.
    pub(super) fn windows(&self) -> usize {
        self.measured.iter().flatten().count()
    }

    /// Energy of a window; `None` if it was not simulated.
    pub(super) fn joules(&self, window: usize) -> Option<f64> {
        self.measured.get(window)?.as_ref().map(Mean::joules)
    }

    /// The outcome of the whole.
    pub(super) fn outcome(self, loads: &[u64], saturated_share: f64) -> Outcome {
        let means = self.means();
        let mut all = Mean::default();
        let mut series = Vec::new();
        let each = (self.series_ns / self.window_ns).max(1) as usize;
        for (at, windows) in loads.chunks(each).enumerate() {
            let mut entry = Mean::default();
            for (within, &load) in windows.iter().enumerate() {
                let window = at * each + within;
                let measured = self.measured[window];
                let of_stratum = || self.plan.stratum_of[window].map(|stratum| means[stratum]).unwrap_or_default();
                let own = measured.filter(|_| self.plan.stratum_of[window].is_none()).unwrap_or_else(of_stratum);
                all.add(&own, 1.0);
                entry.add(&Mean { answered: measured.map_or(load as f64, |mean| mean.answered), ..own }, 1.0);
            }
            series.push(entry.into());
        }
        let span_ns = loads.len() as u64 * self.window_ns;
        let [answered, in_progress] = self.requests.map(|count| count.round() as u64);
        Outcome {
            jobs: Jobs::default(),
            measured_ns: span_ns,
            requests: Requests { issued: answered + in_progress, answered, in_progress },
            label_ns: self.latency.iter().map(|&(label, ..)| (label, span_ns)).collect(),
            latency: self.latency.into_iter().map(|(label, histogram, _)| (label, histogram)).collect(),
            energy: energy(all.energy),
            family: self.family.into_iter().map(energy).collect(),
            cap_waits: Histogram::default(), // a replay has no caps
            background: Vec::new(),          // nor is background work estimated over windows
            metered_uw: Vec::new(),
            capped_uj: self.capped_uj.round() as u64,
            series,
            decisions: decisions(self.decisions.map(|number| number.round() as u64)),
            view: Vec::new(),
            saturated: self.saturated > saturated_share * loads.len() as f64,
        }
    }

    /// The mean of each stratum.
    fn means(&self) -> Vec<Mean> {
        let mean = |stratum: &pilotlight_trace::sampling::Stratum| {
            let mut mean = Mean::default();
            let weight = 1.0 / stratum.drawn.len().max(1) as f64;
            let drawn = stratum.drawn.iter().filter_map(|&window| self.measured[window].as_ref());
            drawn.for_each(|window| mean.add(window, weight));
            mean
        };
        self.plan.strata.iter().map(mean).collect()
    }
}

fn numbers(d: &Decisions) -> [u64; 10] {
    let Decisions { asked, judged, moves, sleeps, wakes, frequencies, refused, switches, late_ns, deciding_ns } = *d;
    [asked, judged, moves, sleeps, wakes, frequencies, refused, switches, late_ns, deciding_ns]
}

fn decisions(
    [asked, judged, moves, sleeps, wakes, frequencies, refused, switches, late_ns, deciding_ns]: [u64; 10],
) -> Decisions {
    Decisions { asked, judged, moves, sleeps, wakes, frequencies, refused, switches, late_ns, deciding_ns }
}
