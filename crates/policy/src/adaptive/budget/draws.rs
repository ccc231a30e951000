//! Draws of CPU and drives, sampled, for windows of a sensor that is late.

use std::collections::VecDeque;

/// Time over which samples are kept beyond a window: the lag of a sensor is less.
const KEPT_NS: u64 = 10_000_000_000;

#[derive(Clone, Copy, Debug)]
struct Draw {
    ended_ns: u64,
    /// `None` if it is not measured.
    cpu_uw: Option<f64>,
    drives_uw: f64,
}

/// The samples.
#[derive(Debug, Default)]
pub(super) struct Draws {
    samples: VecDeque<Draw>,
}

impl Draws {
    /// Adds a sample; `cpu` is the end of a window of the CPU's power, and its value.
    pub(super) fn push(&mut self, now_ns: u64, cpu: Option<(u64, f64)>, drives_uw: f64, window_ns: u64) {
        let begins_ns = now_ns.saturating_sub(window_ns.saturating_add(KEPT_NS));
        while self.samples.front().is_some_and(|draw| draw.ended_ns < begins_ns) {
            self.samples.pop_front();
        }
        let ended_ns = cpu.map_or(now_ns, |(ended_ns, _)| ended_ns);
        self.samples.push_back(Draw { ended_ns, cpu_uw: cpu.map(|(_, uw)| uw), drives_uw });
    }

    pub(super) fn clear(&mut self) {
        self.samples.clear();
    }

    /// The last power of the CPU.
    pub(super) fn last_cpu_uw(&self) -> Option<f64> {
        self.samples.back()?.cpu_uw
    }

    /// Means of CPU and drives over a window; `None` if they were not sampled for all of it.
    pub(super) fn mean(&self, ended_ns: u64, window_ns: u64, period_ns: u64) -> Option<(Option<f64>, f64)> {
        let began_ns = ended_ns.saturating_sub(window_ns);
        if self.samples.front()?.ended_ns > began_ns.saturating_add(period_ns) {
            return None;
        }
        let window = began_ns + 1..=ended_ns.saturating_add(period_ns / 2);
        let within = || self.samples.iter().filter(|draw| window.contains(&draw.ended_ns));
        let many = within().count();
        if many == 0 {
            return self.samples.back().map(|draw| (draw.cpu_uw, draw.drives_uw));
        }
        let drives_uw = within().map(|draw| draw.drives_uw).sum::<f64>() / many as f64;
        let cpu_uw = within().map(|draw| draw.cpu_uw).sum::<Option<f64>>().map(|sum| sum / many as f64);
        Some((cpu_uw, drives_uw))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_is_of_the_window_alone() {
        let mut draws = Draws::default();
        (0..40).for_each(|at: u64| draws.push(at * 10, Some((at * 10, at as f64)), 2.0 * at as f64, 100));
        assert_eq!(draws.mean(300, 100, 10), Some((Some(25.5), 51.0)), "of 210 to 300");
        assert_eq!(draws.mean(50, 100, 10), Some((Some(3.0), 6.0)), "of what there is");
        draws.clear();
        assert_eq!(draws.mean(300, 100, 10), None);
        (20..40).for_each(|at: u64| draws.push(at * 10, None, 1.0, 100));
        assert_eq!(draws.mean(350, 100, 10), Some((None, 1.0)), "the CPU is not measured");
        assert_eq!(draws.mean(250, 100, 10), None, "it begins before");
    }
}
