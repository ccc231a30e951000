//! PASS's grid search for configurations of a CPU (section 3.2.2), as a pure function of the measurements, so that an interrupted search
//! continues unchanged.
//!
//! **Coarse.** Numbers of cores and CPU time by powers of two, power limits in equal steps. Limits above the power of a configuration have no
//! effect, and limits below an ineffective one are ineffective: neither is measured. **Ties.** At each budget the best configuration has the
//! lowest p99 polling interval; those within 5 % tie, and the one with the most CPU time, then the highest power limit, wins. At a tie,
//! configurations between the winner and the next ones above the budget are measured, down to the finest step.

use std::collections::HashMap;

use super::subject::{Axes, CORE_PPM, Configuration, Measured};

/// Maximum relative difference of polling intervals in a tie (section 3.2.2).
const TIE: f64 = 1.05;
/// The finest step of CPU time: 5 % of a core, as in the artifact's `cpu-profile.csv`.
const QUOTA_STEP_PPM: u64 = CORE_PPM / 20;
/// The finest step of a power limit: 1 W, as in the same file.
const LIMIT_STEP_UW: u64 = 1_000_000;
/// Minimum difference in power of distinct configurations, in watts.
const SAME_W: f64 = 1.0;

/// A search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search<'a> {
    /// Available knobs.
    pub(super) axes: &'a Axes,
    /// Step of power limits and budgets, in microwatts.
    pub(super) step_uw: u64,
}

impl Search<'_> {
    /// Configurations to measure, the first next; empty at the end.
    pub(super) fn next(&self, measured: &[Measured]) -> Vec<Configuration> {
        let known: HashMap<Configuration, f64> = measured.iter().map(|one| (one.configuration, one.mean_w())).collect();
        let mut wanted = self.coarse(&known);
        if wanted.is_empty() {
            wanted = self.refined(measured);
        }
        wanted.retain(|configuration| !known.contains_key(configuration));
        wanted.sort_unstable();
        wanted.dedup();
        wanted
    }

    fn coarse(&self, known: &HashMap<Configuration, f64>) -> Vec<Configuration> {
        let most_uw = self.axes.most_uw();
        let mut wanted = Vec::new();
        for cores in self.coarse_cores() {
            for quota_ppm in self.coarse_quotas(cores) {
                let free = Configuration { cores, quota_ppm, limit_uw: most_uw };
                match known.get(&free) {
                    None => wanted.push(free),
                    Some(&watts) => wanted.extend(self.next_limit(known, free, watts)),
                }
            }
        }
        wanted.retain(|configuration| !known.contains_key(configuration));
        wanted
    }

    fn coarse_cores(&self) -> Vec<u16> {
        let all = self.axes.cores;
        let powers = (0..16).map(|power| 1_u16 << power).take_while(|&cores| cores < all);
        powers.chain([all]).collect()
    }

    fn coarse_quotas(&self, cores: u16) -> Vec<u64> {
        let full_ppm = self.axes.full_ppm(cores);
        let Some(quota) = self.axes.quota.filter(|_| cores > 1) else { return vec![full_ppm] };
        let halves = (0..).map(|power| full_ppm >> power).take_while(|&ppm| ppm > quota.least_ppm.max(1));
        halves.chain([quota.least_ppm]).collect()
    }

    /// The highest unmeasured limit below the power of a configuration; none below an ineffective one.
    fn next_limit(
        &self,
        known: &HashMap<Configuration, f64>,
        free: Configuration,
        watts: f64,
    ) -> Option<Configuration> {
        let limit = self.axes.limit?;
        let mut limit_uw = (watts * 1e6) as u64 / self.step_uw * self.step_uw;
        while limit_uw >= limit.least_uw && limit_uw > 0 {
            let one = Configuration { limit_uw, ..free };
            match known.get(&one) {
                None => return Some(one),
                Some(&watts) if watts * 1e6 > (limit_uw + self.step_uw / 2) as f64 => return None,
                Some(_) => limit_uw = limit_uw.saturating_sub(self.step_uw),
            }
        }
        None
    }

    /// Configurations between the winners of ties and their neighbours above the budget.
    fn refined(&self, measured: &[Measured]) -> Vec<Configuration> {
        let mut wanted = Vec::new();
        for budget_w in self.budgets(measured) {
            let Some(winner) = winner(measured, budget_w).filter(|_| ties(measured, budget_w) > 1) else { continue };
            let own = winner.configuration;
            let above = |one: &&Measured| one.mean_w() > budget_w && one.mean_w() - winner.mean_w() > SAME_W;
            let mut between = |higher: Option<Configuration>,
                               middle: &dyn Fn(Configuration) -> Option<Configuration>| {
                wanted.extend(higher.and_then(middle));
            };
            let others = || measured.iter().filter(above).map(|one| one.configuration);
            let quota = others().filter(|one| one.cores == own.cores && one.limit_uw == own.limit_uw);
            between(quota.filter(|one| one.quota_ppm > own.quota_ppm).min_by_key(|one| one.quota_ppm), &|one| {
                let step_ppm = self.axes.quota.map_or(QUOTA_STEP_PPM, |quota| QUOTA_STEP_PPM.max(quota.least_ppm));
                let quota_ppm = middle(own.quota_ppm, one.quota_ppm, step_ppm)?;
                Some(Configuration { quota_ppm, ..own })
            });
            let limit = others().filter(|one| one.cores == own.cores && one.quota_ppm == own.quota_ppm);
            between(limit.filter(|one| one.limit_uw > own.limit_uw).min_by_key(|one| one.limit_uw), &|one| {
                let drawn_uw = (self.watts(measured, one) * 1e6) as u64; // a higher limit has no effect
                let limit_uw = middle(own.limit_uw, one.limit_uw.min(drawn_uw), LIMIT_STEP_UW)?;
                Some(Configuration { limit_uw, ..own })
            });
            let cores = others().filter(|one| one.cores > own.cores && self.is_full(*one) == self.is_full(own));
            between(cores.min_by_key(|one| one.cores), &|one| {
                let cores = middle(own.cores.into(), one.cores.into(), 1)? as u16;
                let quota_ppm = if self.is_full(own) { self.axes.full_ppm(cores) } else { own.quota_ppm };
                Some(Configuration { cores, quota_ppm, ..own })
            });
        }
        wanted
    }

    fn is_full(&self, one: Configuration) -> bool {
        one.quota_ppm == self.axes.full_ppm(one.cores)
    }

    fn watts(&self, measured: &[Measured], of: Configuration) -> f64 {
        measured.iter().find(|one| one.configuration == of).map_or(f64::NAN, Measured::mean_w)
    }

    /// Budgets in watts, from the first that any configuration keeps to the first that all keep.
    fn budgets(&self, measured: &[Measured]) -> Vec<f64> {
        let step_w = self.step_uw as f64 / 1e6;
        let ends = |most: f64, one: &Measured| most.max(one.mean_w());
        let highest = measured.iter().fold(0.0, ends);
        let steps = (highest / step_w).ceil() as u32;
        (1..=steps).map(|step| f64::from(step) * step_w).collect()
    }

    /// The best configuration of each budget, the one with the least power and the one with the most CPU time, by increasing power. Tied polling
    /// intervals are made equal, so that they do not determine the order.
    pub(super) fn rows(&self, measured: &[Measured]) -> Vec<(Measured, f64)> {
        let lowest = measured.iter().min_by(|a, b| a.mean_w().total_cmp(&b.mean_w()));
        let budgets = self.budgets(measured);
        let best = budgets.iter().filter_map(|&budget_w| winner(measured, budget_w));
        let mut rows: Vec<&Measured> = lowest.into_iter().chain(best).chain(winner(measured, f64::INFINITY)).collect();
        rows.sort_by(|a, b| a.mean_w().total_cmp(&b.mean_w()).then(a.configuration.cmp(&b.configuration)));
        rows.dedup_by_key(|one| one.configuration);
        let mut shared = Vec::with_capacity(rows.len());
        let mut tied_ns = f64::NAN;
        for row in rows.iter().rev() {
            if !(row.p99_ns <= tied_ns * TIE && row.p99_ns >= tied_ns / TIE) {
                tied_ns = row.p99_ns;
            }
            shared.push(((*row).clone(), tied_ns));
        }
        shared.reverse();
        shared
    }
}

/// The midpoint of two values in whole steps from the lower; `None` if there is none.
fn middle(low: u64, high: u64, step: u64) -> Option<u64> {
    let steps = high.checked_sub(low)? / step;
    (steps > 1).then(|| low + steps / 2 * step)
}

/// The tied configurations within a budget.
fn tied(measured: &[Measured], budget_w: f64) -> impl Iterator<Item = &Measured> {
    let within = move |one: &&Measured| one.mean_w() <= budget_w;
    let best = measured.iter().filter(within).map(|one| one.p99_ns).fold(f64::INFINITY, f64::min);
    measured.iter().filter(within).filter(move |one| one.p99_ns <= best * TIE)
}

fn ties(measured: &[Measured], budget_w: f64) -> usize {
    tied(measured, budget_w).count()
}

fn winner(measured: &[Measured], budget_w: f64) -> Option<&Measured> {
    let rank = |one: &Measured| (one.configuration.quota_ppm, one.configuration.limit_uw, one.configuration.cores);
    tied(measured, budget_w).max_by_key(|one| rank(one))
}

#[cfg(test)]
mod tests {
    use super::super::subject::{Limit, Quota};
    use super::*;

    /// 40 W plus 5 W per core of CPU time; a polling interval of 8 us divided by the polling cores, longer under limits.
    fn measure(axes: &Axes, configuration: Configuration) -> Measured {
        let Configuration { cores, quota_ppm, limit_uw } = configuration;
        let used = 1.0 + (quota_ppm.min(axes.full_ppm(cores)) as f64 / CORE_PPM as f64);
        let free_w = 40.0 + 5.0 * used;
        let limit_w = if limit_uw == 0 { f64::INFINITY } else { limit_uw as f64 / 1e6 };
        let watts = free_w.min(limit_w).max(42.0);
        let p99_ns = 8_000.0 / f64::from(cores) * (free_w / watts);
        Measured { configuration, mean_ns: p99_ns, p99_ns, used_cores: used, watts: vec![watts; 4] }
    }

    fn search(axes: &Axes) -> Vec<Measured> {
        let search = Search { axes, step_uw: 10_000_000 };
        let mut measured = Vec::new();
        loop {
            let next = search.next(&measured);
            if next.is_empty() {
                return measured;
            }
            assert!(measured.len() < 2_000, "it does not end");
            measured.push(measure(axes, next[0]));
        }
    }

    fn axes() -> Axes {
        let quota = Some(Quota { least_ppm: 10_000, is_shared: true });
        Axes { cores: 8, quota, limit: Some(Limit { least_uw: 5_000_000, most_uw: 200_000_000 }) }
    }

    #[test]
    fn quotas_fill_the_budgets_between_numbers_of_cores() {
        let axes = axes();
        let search_result = search(&axes);
        let rows = Search { axes: &axes, step_uw: 10_000_000 }.rows(&search_result);
        let watts: Vec<f64> = rows.iter().map(|(row, _)| row.mean_w()).collect();
        assert!(watts.is_sorted(), "{watts:?}");
        for budget_w in [50.0, 60.0, 70.0] {
            let near = watts.iter().any(|watts| (budget_w - SAME_W..=budget_w).contains(watts));
            assert!(near, "nothing fills {budget_w} W: {watts:?}");
        }
        let (top, _) = rows.last().unwrap();
        assert_eq!((top.configuration.cores, top.configuration.quota_ppm), (8, 7_000_000));
        for (row, tied_ns) in &rows {
            assert!(*tied_ns <= row.p99_ns * TIE && row.p99_ns <= tied_ns * TIE, "{row:?} {tied_ns}");
        }
    }

    #[test]
    fn ineffective_limits_are_not_measured() {
        let axes = axes();
        for one in search(&axes).iter().filter(|one| one.configuration.limit_uw < axes.most_uw()) {
            let free = Configuration { limit_uw: axes.most_uw(), ..one.configuration };
            let limit_w = one.configuration.limit_uw as f64 / 1e6;
            assert!(limit_w <= measure(&axes, free).mean_w(), "{one:?}");
            assert!(limit_w >= 40.0 - 10.0, "below 42 W no limit is kept: {one:?}");
        }
    }

    #[test]
    fn a_machine_without_knobs_is_profiled_by_cores_only() {
        let axes = Axes { quota: None, limit: None, ..axes() };
        let cores: Vec<u16> = search(&axes).iter().map(|one| one.configuration.cores).collect();
        assert_eq!(cores, [1, 2, 4, 8]);
    }

    #[test]
    fn an_interrupted_search_continues_unchanged() {
        let axes = axes();
        let whole = search(&axes);
        let search = Search { axes: &axes, step_uw: 10_000_000 };
        for cut in [0, 1, 7, whole.len() - 1] {
            let mut part = whole[..cut].to_vec();
            while let Some(&one) = search.next(&part).first() {
                part.push(measure(&axes, one));
            }
            let sorted = |all: &[Measured]| {
                let mut all: Vec<Configuration> = all.iter().map(|one| one.configuration).collect();
                all.sort_unstable();
                all
            };
            assert_eq!(sorted(&part), sorted(&whole), "cut after {cut}");
        }
    }

    #[test]
    fn the_midpoint_is_a_whole_step() {
        assert_eq!(middle(100, 200, 50), Some(150));
        assert_eq!((middle(100, 149, 50), middle(100, 199, 50), middle(5, 4, 1)), (None, None, None));
    }
}
