//! What a rack delivered under a budget, and whether it kept it.

use pilotlight_sim::histogram::Histogram;

use super::leader::{Change, Method, Rack, RackRun, powers_uw};
use super::server::{INTERVAL_NS, PRIORITIES, Server, WARM_UP_NS};

/// Excess of a budget that `pass` corrects at once.
const HIGH: f64 = 1.02;

/// Figures of one or more runs of racks of the same number of servers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    /// Bytes delivered, and those delivered without a budget, by priority.
    delivered: [f64; PRIORITIES],
    demanded: [f64; PRIORITIES],
    latency: Histogram,
    /// The highest sum of powers in an interval, by the budget.
    peak: f64,
    /// The most intervals in sequence whose power is above the budget by more than [`HIGH`].
    longest_over: usize,
    /// Intervals, and those above.
    intervals: usize,
    over: usize,
    /// Sums over intervals, in microwatts, per server.
    unused_uw: f64,
}

impl Figures {
    /// Figures of a run, compared with one without a budget.
    pub(crate) fn new(rack: &Rack, run: &RackRun, free: &RackRun, budget_uw: u64) -> Self {
        let mut figures = Self::default();
        for ((server, outcome), free) in rack.servers.iter().zip(&run.outcomes).zip(&free.outcomes) {
            let priority = usize::from(server.priority);
            figures.delivered[priority] += delivered_bytes(server, outcome);
            figures.demanded[priority] += delivered_bytes(server, free);
            outcome.latency.iter().for_each(|(_, latency)| figures.latency.merge(latency));
        }
        let sums_uw = sums_uw(run);
        let by_budget: Vec<f64> = sums_uw.iter().map(|&uw| uw as f64 / budget_uw as f64).collect();
        figures.peak = by_budget.iter().copied().fold(0.0, f64::max);
        let runs = by_budget.split(|part| *part <= HIGH).map(<[f64]>::len);
        figures.longest_over = runs.max().unwrap_or(0);
        figures.intervals = by_budget.len();
        figures.over = by_budget.iter().filter(|part| **part > HIGH).count();
        let servers = rack.servers.len() as f64;
        figures.unused_uw = sums_uw.iter().map(|&uw| (budget_uw as f64 - uw as f64) / servers).sum();
        figures
    }

    /// Adds those of another rack.
    pub(crate) fn add(&mut self, other: &Self) {
        for priority in 0..PRIORITIES {
            self.delivered[priority] += other.delivered[priority];
            self.demanded[priority] += other.demanded[priority];
        }
        self.latency.merge(&other.latency);
        self.peak = self.peak.max(other.peak);
        self.longest_over = self.longest_over.max(other.longest_over);
        self.intervals += other.intervals;
        self.over += other.over;
        self.unused_uw += other.unused_uw;
    }

    /// Per cent of what is delivered without a budget.
    pub(crate) fn percent(&self) -> f64 {
        100.0 * self.delivered.iter().sum::<f64>() / self.demanded.iter().sum::<f64>()
    }

    /// The same of a priority; `None` without servers of it.
    pub(crate) fn percent_of(&self, priority: usize) -> Option<f64> {
        (self.demanded[priority] > 0.0).then(|| 100.0 * self.delivered[priority] / self.demanded[priority])
    }

    pub(crate) fn p99_ms(&self) -> f64 {
        self.latency.quantile(0.99) as f64 / 1e6
    }

    pub(crate) fn peak_percent(&self) -> f64 {
        100.0 * self.peak
    }

    pub(crate) fn over_percent(&self) -> f64 {
        100.0 * self.over as f64 / self.intervals.max(1) as f64
    }

    pub(crate) fn longest_over(&self) -> usize {
        self.longest_over
    }

    pub(crate) fn unused_w(&self) -> f64 {
        self.unused_uw / self.intervals.max(1) as f64 / 1e6
    }
}

/// Bytes answered after the warm-up.
fn delivered_bytes(server: &Server, outcome: &pilotlight_sim::outcome::Outcome) -> f64 {
    let measured = outcome.series.iter().skip((WARM_UP_NS / INTERVAL_NS) as usize);
    measured.map(|stretch| stretch.answered).sum::<u64>() as f64 * f64::from(server.request_bytes)
}

/// Power of all servers in each measured interval.
fn sums_uw(run: &RackRun) -> Vec<u64> {
    let series: Vec<Vec<u64>> = run.outcomes.iter().map(|outcome| powers_uw(outcome).collect()).collect();
    (0..series[0].len()).map(|at| series.iter().map(|one| one[at]).sum()).collect()
}

/// Most intervals in sequence above the budget by more than 2 %: the time in which `pass` settles after a change of demand or budget.
const SETTLES: usize = 10;

/// Checks that the budget holds: the bounds always, the power but for the time in which `pass` settles.
pub(crate) fn check(run: &RackRun, figures: &Figures, budget_uw: u64) -> Result<(), String> {
    if run.most_bound_uw > budget_uw {
        return Err(format!("{} uW may be in force together, the budget is {budget_uw} uW", run.most_bound_uw));
    }
    if figures.longest_over > SETTLES {
        return Err(format!("power exceeds {HIGH} of the budget in {} intervals in sequence", figures.longest_over));
    }
    Ok(())
}

/// Runs a rack by a method, checks it, and adds its figures.
pub(crate) fn measure(rack: &Rack, method: Method, percent: u64, free: &RackRun) -> Figures {
    let budget_uw = rack.budget_uw(percent);
    let run = rack.run(method, budget_uw, Change::LowerFirst, &free.histories);
    let figures = Figures::new(rack, &run, free, budget_uw);
    if let Err(error) = check(&run, &figures, budget_uw) {
        panic!("{method:?} at {percent} % with {} servers: {error}", rack.servers.len());
    }
    figures
}
