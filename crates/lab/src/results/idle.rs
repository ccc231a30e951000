//! Whether idle baselines were of an idle machine, and whether the power above them is larger than their variation.

use pilotlight_stats::contrast::contrast;
use pilotlight_stats::{CONFIDENCE, Estimate};

use super::summary::{MetricInfo, Results};
use crate::metrics::busy_cpus;
use crate::record::Sensed;

/// Maximum share of busy CPUs of an idle machine: system services and the sampling of sensors stay far below it.
const MOST_BUSY: f64 = 0.1;

/// The reason why the machine was not idle in one of these baselines; `None` if it was, or CPU time was not read.
pub fn not_idle<'a>(baselines: impl Iterator<Item = &'a Sensed>) -> Option<String> {
    let busy: Vec<(f64, usize)> = baselines.filter_map(busy_cpus).collect();
    let above = || busy.iter().filter(|(busy, cpus)| *busy > MOST_BUSY * *cpus as f64);
    let (most, cpus) = above().max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(format!(
        "the machine was not idle: other programs kept up to {most:.1} of {cpus} CPUs busy in {} of {} idle baselines; end them (a server that is measured is named by a sensor `target`) and measure again",
        above().count(),
        busy.len()
    ))
}

/// The mean power above idle over all points, if its interval includes zero: the load cannot be told from the variation of the baseline.
#[must_use]
pub fn indistinct<'a>(results: &'a Results, scope: &str) -> Option<(&'a MetricInfo, Estimate)> {
    let about = results.find(&format!("{scope}_power_above_idle_w"))?;
    let values = results.points.iter().filter_map(|point| Some(point.values.get(&about.key)?.values.as_slice()));
    let values: Vec<&[f64]> = values.filter(|values| values.len() > 1).collect();
    let weight = 1.0 / values.len() as f64;
    let groups: Vec<(f64, &[f64])> = values.into_iter().map(|values| (weight, values)).collect();
    let mean = contrast(&groups, CONFIDENCE)?.estimate;
    (mean.low <= 0.0).then_some((about, mean))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::power::PowerDomains;
    use crate::plan::Plan;
    use crate::record::{Baseline, Entry};
    use crate::results::journal::Finished;
    use pilotlight_sensors::energy::Window;
    use pilotlight_workloads::Point;

    /// Two CPUs, of which `busy` are busy, and a server that uses `of_server`.
    fn sensed(busy: f64, of_server: f64) -> Sensed {
        let observed = [
            ("cputime/cpu0/user_ns_per_s", busy * 0.5e9),
            ("cputime/cpu1/user_ns_per_s", busy * 0.4e9),
            ("cputime/cpu1/system_ns_per_s", busy * 0.1e9),
            ("cputime/cpu0/idle_ns_per_s", (2.0 - busy) * 1e9),
            ("target/scheduled_ns_per_s", of_server * 1e9),
        ];
        Sensed { observed: observed.map(|(column, rate)| (column.to_owned(), rate)).into(), ..Sensed::default() }
    }

    #[test]
    fn baselines_of_a_busy_machine_are_noted_in_the_results() {
        let note = |baselines: &[(f64, f64, bool)]| {
            let mut finished = Finished::default();
            for &(busy, of_server, own_programs) in baselines {
                let (setting, window, sensed) =
                    (Point::new(), Window { from_ns: 0, to_ns: 1 }, sensed(busy, of_server));
                finished.add(Entry::Baseline(Box::new(Baseline { setting, round: 0, own_programs, window, sensed })));
            }
            let results = Results::new(&Plan::default(), &finished, &PowerDomains::default(), Vec::new());
            assert_eq!(results.notes, results.not_idle.iter().cloned().collect::<Vec<_>>());
            results.not_idle
        };
        assert_eq!(note(&[]), None);
        assert_eq!(note(&[(0.05, 0.0, false), (0.19, 0.0, false)]), None);
        assert_eq!(note(&[(1.0, 0.9, false)]), None, "a measured server that polls");
        assert_eq!(note(&[(1.0, 0.0, true)]), None, "a program of the experiment");
        let why = note(&[(0.05, 0.0, false), (1.9, 0.0, false), (0.3, 0.0, false)]).unwrap();
        assert!(why.contains("up to 1.9 of 2 CPUs busy in 2 of 3 idle baselines"), "{why}");
        assert_eq!(not_idle([Sensed::default()].iter()), None, "CPU time was not read");
    }
}
