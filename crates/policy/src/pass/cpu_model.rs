//! Profiled power and performance of CPU configurations (PASS, section 3.2.2), and the best one for a power.
//!
//! **Order.** The better of two configurations has the lower p99 polling interval; at equal intervals the one with more CPU time, since the
//! interval cannot rank bandwidth (the artifact has 5.18 from 5 to 100 % on two cores); then the one with the higher power limit. A configuration
//! that draws more than a better one is never used.
//! **Between rows** quota and power limit are interpolated, because the artifact's steps of 5 W exceed the no-action range of 1 %; the number of
//! cores is that which the quota fills. Around a policy that saves power, whole cores are used if possible: the backlog of a throttled core looks
//! like a burst, for which `sandman` wakes another core, and both draw more than cores without a limit (`sim/tests/budget.rs`).

use serde::Deserialize;

/// A CPU configuration and its measurements.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuRow {
    /// Power of all packages in microwatts.
    pub power_uw: u64,
    /// Polling cores, including the main core.
    pub cores: u16,
    /// CPU time that all of them may use together, in millionths of one core.
    pub quota_ppm: u64,
    /// Power limit of all packages together, in microwatts.
    pub limit_uw: u64,
    /// 99th percentile of the time between two polls, in a unit that all rows share.
    pub p99_interval: f64,
}

impl CpuRow {
    /// CPU time of its cores, in millionths of one core.
    fn all_ppm(&self) -> u64 {
        u64::from(self.cores) * 1_000_000
    }

    /// Whether its cores poll all the time.
    fn is_whole(&self) -> bool {
        self.quota_ppm >= self.all_ppm()
    }
}

/// The parts of a configuration that a plant can set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settable {
    /// The number of polling cores.
    pub cores: bool,
    /// The least CPU time of all polling cores that a quota can leave, in millionths of one core; `None` without a quota.
    pub least_quota_ppm: Option<u64>,
    /// The power limit.
    pub limit: bool,
}

/// Configurations of which each is better than all that draw less; from low to high power.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuModel {
    rows: Vec<CpuRow>,
}

impl CpuModel {
    /// Of these rows, in any order; `None` if there are none.
    #[must_use]
    pub fn new(mut rows: Vec<CpuRow>) -> Option<Self> {
        rows.sort_by(|a, b| a.power_uw.cmp(&b.power_uw).then_with(|| rank(b).total_cmp_with(&rank(a))));
        let mut best: Vec<CpuRow> = Vec::new();
        for row in rows {
            if best.last().is_none_or(|last| rank(&row).is_above(&rank(last))) {
                best.push(row);
            }
        }
        (!best.is_empty()).then_some(Self { rows: best })
    }

    /// A missing mechanism stays at its highest value. Of configurations that are equal on the plant the one with the highest power remains.
    #[must_use]
    pub fn restrict(&self, settable: Settable) -> Self {
        let top = *self.top();
        let as_set = |row: &CpuRow| {
            let cores = if settable.cores { row.cores } else { top.cores };
            // The main core alone has no quota.
            let least_ppm = settable.least_quota_ppm.map(|least_ppm| if cores > 1 { least_ppm } else { 0 });
            CpuRow {
                cores,
                quota_ppm: least_ppm.map_or(top.quota_ppm, |least_ppm| row.quota_ppm.max(least_ppm)),
                limit_uw: if settable.limit { row.limit_uw } else { top.limit_uw },
                ..*row
            }
        };
        let mut rows: Vec<CpuRow> = Vec::new();
        for row in self.rows.iter().map(as_set) {
            let key = |row: &CpuRow| (row.cores, row.quota_ppm, row.limit_uw);
            match rows.last_mut().filter(|last| key(last) == key(&row)) {
                Some(last) => *last = row,
                None => rows.push(row),
            }
        }
        Self { rows }
    }

    /// The configuration with the lowest p99 polling interval within a power (PASS's `get_CPU_configuration`), interpolated; its interval is
    /// that of the row below.
    #[must_use]
    pub fn configuration(&self, target_uw: u64) -> CpuRow {
        let above = self.rows.partition_point(|row| row.power_uw <= target_uw);
        let (Some(low), Some(high)) = (self.rows.get(above.wrapping_sub(1)), self.rows.get(above)) else {
            return if above == 0 { *self.bottom() } else { *self.top() };
        };
        let part = u128::from(target_uw - low.power_uw);
        let whole = u128::from(high.power_uw - low.power_uw);
        let between = |low: u64, high: u64| {
            let distance = u128::from(low.abs_diff(high)) * part / whole;
            if high >= low { low + distance as u64 } else { low - distance as u64 }
        };
        let quota_ppm = between(low.quota_ppm, high.quota_ppm);
        let filled = quota_ppm.div_ceil(1_000_000).min(u64::from(u16::MAX)) as u16;
        let cores = filled.clamp(low.cores.min(high.cores), low.cores.max(high.cores));
        let limit_uw = between(low.limit_uw, high.limit_uw);
        CpuRow { power_uw: target_uw, cores, quota_ppm, limit_uw, p99_interval: low.p99_interval }
    }

    /// As [`CpuModel::configuration`], with one more whole core instead of a throttled one, if the neighbouring rows have whole cores.
    #[must_use]
    pub fn in_whole_cores(&self, target_uw: u64) -> CpuRow {
        let row = self.configuration(target_uw);
        let above = self.rows.partition_point(|row| row.power_uw <= target_uw);
        let around = &self.rows[above.saturating_sub(1)..self.rows.len().min(above + 1)];
        if around.iter().all(CpuRow::is_whole) { CpuRow { quota_ppm: row.all_ppm(), ..row } } else { row }
    }

    /// CPU time of a configuration in time of a core at full speed, in millionths of one core: a power limit lowers the frequency.
    ///
    /// Speed under a limit is the inverse of the polling interval of all cores under it, relative to that of the best configuration: in the
    /// artifact 0.51, 0.74, 0.82 and 0.89 at 110, 120, 130 and 140 W, where requests a second are 0.51, 0.79, 0.89 and 0.89 of those at 160 W.
    #[must_use]
    pub fn full_speed_ppm(&self, row: &CpuRow) -> u64 {
        let top = self.top();
        let all_cores = |other: &&CpuRow| (other.cores, other.quota_ppm) == (top.cores, top.quota_ppm);
        let under = self.rows.iter().filter(all_cores).find(|other| other.limit_uw >= row.limit_uw).unwrap_or(top);
        let speed = if under.p99_interval > 0.0 { (top.p99_interval / under.p99_interval).min(1.0) } else { 1.0 };
        (row.quota_ppm as f64 * speed) as u64
    }

    /// The same of the best configuration within this power of the CPU, between rows interpolated.
    #[must_use]
    pub fn full_speed_ppm_at(&self, power_uw: u64) -> u64 {
        let above = self.rows.partition_point(|row| row.power_uw <= power_uw);
        let (Some(low), Some(high)) = (self.rows.get(above.wrapping_sub(1)), self.rows.get(above)) else {
            return self.full_speed_ppm(if above == 0 { self.bottom() } else { self.top() });
        };
        let part = (power_uw - low.power_uw) as f64 / (high.power_uw - low.power_uw) as f64;
        let [low, high] = [low, high].map(|row| self.full_speed_ppm(row) as f64);
        (low + part * (high - low)) as u64
    }

    /// The configurations.
    #[must_use]
    pub fn rows(&self) -> &[CpuRow] {
        &self.rows
    }

    /// The configuration with the least power.
    #[must_use]
    pub fn bottom(&self) -> &CpuRow {
        &self.rows[0]
    }

    /// The best configuration.
    #[must_use]
    pub fn top(&self) -> &CpuRow {
        &self.rows[self.rows.len() - 1]
    }
}

/// Rank of a configuration.
struct Rank {
    p99_interval: f64,
    more: (u64, u64),
}

fn rank(row: &CpuRow) -> Rank {
    Rank { p99_interval: row.p99_interval, more: (row.quota_ppm, row.limit_uw) }
}

impl Rank {
    fn total_cmp_with(&self, other: &Self) -> std::cmp::Ordering {
        other.p99_interval.total_cmp(&self.p99_interval).then(self.more.cmp(&other.more))
    }

    fn is_above(&self, other: &Self) -> bool {
        self.total_cmp_with(other).is_gt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::profile::Profile;

    fn row(power_w: u64, cores: u16, quota_percent: u64, limit_w: u64, p99_interval: f64) -> CpuRow {
        let (power_uw, limit_uw) = (power_w * 1_000_000, limit_w * 1_000_000);
        CpuRow { power_uw, cores, quota_ppm: quota_percent * 10_000, limit_uw, p99_interval }
    }

    fn artifact() -> CpuModel {
        Profile::named("pass-xeon-gold-6430").unwrap().cpu
    }

    #[test]
    fn each_row_of_the_artifact_is_the_configuration_of_its_power() {
        for (power_w, expected) in [
            (45, row(45, 2, 5, 110, 5.18)),
            (70, row(70, 2, 100, 110, 5.18)),
            (85, row(85, 4, 400, 110, 3.95)),
            (144, row(144, 8, 800, 160, 0.78)),
            (210, row(210, 8, 800, 226, 0.78)),
        ] {
            assert_eq!(artifact().configuration(power_w * 1_000_000), expected);
        }
        assert_eq!(artifact().configuration(0), *artifact().bottom());
        assert_eq!(artifact().configuration(u64::MAX), *artifact().top());
    }

    #[test]
    fn a_power_limit_costs_speed() {
        let model = artifact();
        let whole = |power_w: u64| model.full_speed_ppm_at(power_w * 1_000_000) as f64 / 1e6;
        let expected =
            [(210, 8.0), (144, 8.0), (124, 8.0 * 0.78 / 0.88), (99, 8.0 * 0.78 / 1.54), (85, 4.0 * 0.78 / 1.54)];
        for (power_w, cores) in expected {
            assert!((whole(power_w) - cores).abs() < 1e-3, "{} of {cores} cores at {power_w} W", whole(power_w));
        }
        assert!((whole(87) - 4.4 * 0.78 / 1.54).abs() < 1e-3, "between rows");
        assert_eq!((whole(0), whole(300)), (whole(45), whole(210)));
        assert_eq!(model.full_speed_ppm(&row(70, 2, 100, 110, 5.18)), (1e6 * 0.78 / 1.54) as u64);
    }

    #[test]
    fn between_rows_quota_and_limit_are_interpolated_and_cores_follow() {
        let between = artifact().configuration(97_000_000);
        assert_eq!((between.cores, between.quota_ppm, between.p99_interval), (7, 7_000_000, 3.95));
        assert_eq!(artifact().configuration(140_400_000).limit_uw, 156_400_000);
    }

    #[test]
    fn whole_cores_are_used_if_the_model_has_them() {
        let model = artifact();
        let whole = |power_w: u64| model.in_whole_cores(power_w * 1_000_000);
        assert_eq!((whole(77).cores, whole(77).quota_ppm), (3, 3_000_000), "not 2.4 cores");
        assert_eq!((whole(75).cores, whole(75).quota_ppm), (2, 2_000_000));
        assert_eq!((whole(67).cores, whole(67).quota_ppm), (2, 700_000), "these rows have no whole cores");
        assert_eq!([0, 45, 210, 300].map(whole), [0, 45, 210, 300].map(|w| model.configuration(w * 1_000_000)));
    }

    #[test]
    fn a_configuration_that_draws_more_than_a_better_one_is_never_used() {
        let rows = vec![
            row(90, 4, 400, 100, 2.0),
            row(80, 8, 200, 100, 2.5),
            row(95, 6, 600, 100, 3.0), // worse than the one of 90 W
            row(85, 2, 100, 100, 2.5), // as good as that of 80 W, with less CPU time
            row(90, 5, 500, 100, 2.0), // as good as the other of 90 W, with more CPU time
        ];
        let model = CpuModel::new(rows).unwrap();
        assert_eq!(model.rows, [row(80, 8, 200, 100, 2.5), row(90, 5, 500, 100, 2.0)]);
        assert_eq!(CpuModel::new(Vec::new()), None);
    }

    #[test]
    fn a_mechanism_that_is_missing_stays_at_its_highest_value() {
        let all = Settable { cores: true, least_quota_ppm: Some(0), limit: true };
        let model = artifact().restrict(Settable { limit: false, ..all });
        assert_eq!(*model.top(), row(210, 8, 800, 226, 0.78));
        assert_eq!(model.configuration(95_000_000), row(95, 6, 600, 226, 3.95));
        assert_eq!(model.rows.len(), 12, "without limits all rows from 99 W on are the same");
        let model = artifact().restrict(Settable { least_quota_ppm: Some(1_070_000), ..all });
        assert_eq!(*model.bottom(), CpuRow { quota_ppm: 1_070_000, ..row(70, 2, 0, 110, 5.18) });
        let model = artifact().restrict(Settable { least_quota_ppm: None, cores: false, ..all });
        assert_eq!(*model.bottom(), row(99, 8, 800, 110, 1.54));
        assert_eq!(artifact().restrict(all), artifact());
    }
}
