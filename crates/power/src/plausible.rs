//! Whether a power can be what the machine draws. Pure: times and powers are arguments.
//!
//! **Rules.** 0 W is refused: a machine that reads its sensor draws power. Power of the server below the mean of its packages over the
//! sensor's own window, beyond the errors of both, is refused. A reading that stays the same while the packages' mean has moved by more than
//! both errors, and stays so for a window and the lag, is stale until it changes.
//!
//! A sensor can show a window that ended up to its lag ago. A power is refused only if it is below the least mean of that time.

use std::collections::VecDeque;
use std::fmt;

/// Share of a power by which it can be wrong, in thousandths: what makers of boards and of CPUs claim at the load of a server (chosen).
const ERROR_PERMILLE: u64 = 50;
/// Error beside it, in microwatts: sensors of servers have steps of 1 W.
const STEP_UW: u64 = 1_000_000;

/// Why a power is not used. All powers are in microwatts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is 0 W.
    Zero,
    /// The packages alone drew more.
    BelowPackages {
        /// The power of the server.
        uw: u64,
        /// The least mean of its packages.
        packages_uw: u64,
    },
    /// It stayed the same while the packages' power changed.
    Constant {
        /// The power.
        uw: u64,
        /// Lowest and highest mean of the packages.
        packages_uw: (u64, u64),
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let watts = |uw: u64| uw as f64 / 1e6;
        match *self {
            Self::Zero => f.write_str("it reads 0 W"),
            Self::BelowPackages { uw, packages_uw } => {
                write!(f, "{:.1} W is less than the {:.1} W of the CPU packages", watts(uw), watts(packages_uw))
            }
            Self::Constant { uw, packages_uw: (low, high) } => write!(
                f,
                "it stays at {:.1} W while the CPU packages went from {:.1} to {:.1} W",
                watts(uw),
                watts(low),
                watts(high)
            ),
        }
    }
}

/// The check of one source. Without the packages' power ([`Self::note_packages`]) only 0 W is refused.
#[derive(Clone, Debug, Default)]
pub struct Plausibility {
    window_ns: u64,
    lag_ns: u64,
    /// Ends and powers of the packages' readings: the last before the window, and those in it.
    packages: VecDeque<(u64, u64)>,
    /// Ends and means of windows of the packages, until a reading must show them.
    means: VecDeque<(u64, u64)>,
    same: Option<Same>,
}

/// A reading that stays the same.
#[derive(Clone, Copy, Debug)]
struct Same {
    uw: u64,
    since_ns: u64,
    /// Lowest and highest mean of the packages since then that it must have shown.
    packages_uw: Option<(u64, u64)>,
}

impl Plausibility {
    /// For a source with this window and lag.
    #[must_use]
    pub fn new(window_ns: u64, lag_ns: u64) -> Self {
        Self { window_ns, lag_ns, ..Self::default() }
    }

    /// The packages' mean power since their last reading; `None` where it is unknown.
    pub fn note_packages(&mut self, now_ns: u64, uw: Option<u64>) {
        let Some(uw) = uw else { return self.packages.clear() };
        self.packages.push_back((now_ns, uw));
        let begin_ns = now_ns.saturating_sub(self.window_ns);
        while self.packages.get(1).is_some_and(|&(ended_ns, _)| ended_ns <= begin_ns) {
            self.packages.pop_front();
        }
        if let Some(mean_uw) = self.mean_uw(now_ns, begin_ns) {
            self.means.push_back((now_ns, mean_uw));
        }
        let kept_ns = 2 * self.settles_ns(); // more than a check uses, so that a server without readings does not collect them
        while self.pop_mean(now_ns.saturating_sub(kept_ns)).is_some() {}
    }

    /// Removes the oldest mean if it ended before `begin_ns`.
    fn pop_mean(&mut self, begin_ns: u64) -> Option<(u64, u64)> {
        self.means.front().filter(|(ended_ns, _)| *ended_ns < begin_ns)?;
        self.means.pop_front()
    }

    /// After this time a reading shows nothing of what was before.
    fn settles_ns(&self) -> u64 {
        self.window_ns.saturating_add(self.lag_ns).min(u64::MAX / 2)
    }

    /// The packages' mean power over the window; `None` before there is a whole one.
    fn mean_uw(&self, now_ns: u64, begin_ns: u64) -> Option<u64> {
        let &(first_ns, _) = self.packages.front().filter(|(ended_ns, _)| *ended_ns <= begin_ns)?;
        let parts = self.packages.iter().zip(self.packages.iter().skip(1));
        let energy: u128 = parts.map(|((from, _), (to, uw))| u128::from(to - from) * u128::from(*uw)).sum();
        energy.checked_div(u128::from(now_ns - first_ns)).and_then(|mean_uw| u64::try_from(mean_uw).ok())
    }

    /// The power if it is plausible.
    ///
    /// # Errors
    /// It is not.
    pub fn check(&mut self, now_ns: u64, uw: u64) -> Result<u64, Refused> {
        self.note_same(now_ns, uw);
        if uw == 0 {
            return Err(Refused::Zero);
        }
        let shown = self.means.iter().filter(|(ended_ns, _)| now_ns - ended_ns <= self.lag_ns);
        let least_uw = shown.map(|&(_, mean_uw)| mean_uw).min().unwrap_or(0);
        if uw + error_uw(uw) + error_uw(least_uw) < least_uw {
            return Err(Refused::BelowPackages { uw, packages_uw: least_uw });
        }
        let moved = self.same.and_then(|same| same.packages_uw);
        let is_stale = |(low, high): &(u64, u64)| high - low > error_uw(uw) + error_uw(*high);
        moved.filter(is_stale).map_or(Ok(uw), |packages_uw| Err(Refused::Constant { uw, packages_uw }))
    }

    /// Remembers for how long the power is the same, and the means that it must have shown.
    fn note_same(&mut self, now_ns: u64, uw: u64) {
        let fresh = Same { uw, since_ns: now_ns, packages_uw: None };
        let mut same = self.same.filter(|same| same.uw == uw).unwrap_or(fresh);
        let settled_ns = now_ns.saturating_sub(self.settles_ns());
        while let Some((ended_ns, mean_uw)) = self.pop_mean(settled_ns) {
            if ended_ns >= same.since_ns {
                let (low, high) = same.packages_uw.unwrap_or((mean_uw, mean_uw));
                same.packages_uw = Some((low.min(mean_uw), high.max(mean_uw)));
            }
        }
        self.same = Some(same);
    }
}

/// By how much a power can be wrong.
fn error_uw(uw: u64) -> u64 {
    STEP_UW.saturating_add(uw / 1000 * ERROR_PERMILLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;
    const W: u64 = 1_000_000;

    /// Readings each second of the packages and the server, in watts.
    fn checked(of: &mut Plausibility, from_s: u64, readings: &[(u64, u64)]) -> Vec<Result<u64, Refused>> {
        let one = |(now_s, &(packages, server)): (u64, &(u64, u64))| {
            of.note_packages(now_s * S, Some(packages * W));
            of.check(now_s * S, server * W)
        };
        (from_s..).zip(readings).map(one).collect()
    }

    #[test]
    fn no_power_is_0_w() {
        let mut of = Plausibility::new(S, 0);
        assert_eq!(of.check(S, 0), Err(Refused::Zero));
        assert_eq!(of.check(2 * S, 1), Ok(1));
    }

    #[test]
    fn a_server_draws_no_less_than_its_packages_over_the_sensors_window() {
        let mut of = Plausibility::new(4 * S, 0);
        let found = checked(&mut of, 1, &[(200, 100); 6]);
        assert!(found[..4].iter().all(Result::is_ok), "no whole window of the packages: {found:?}");
        assert_eq!(found[4], Err(Refused::BelowPackages { uw: 100 * W, packages_uw: 200 * W }));
        let beside = checked(&mut of, 7, &[(200, 190)]);
        assert_eq!(beside, [Ok(190 * W)], "within both errors");
        let mut of = Plausibility::new(4 * S, 0);
        let found = checked(&mut of, 1, &[(50, 70), (50, 70), (50, 70), (50, 70), (50, 70), (250, 110)]);
        assert!(found.iter().all(Result::is_ok), "a mean of 100 W over the window: {found:?}");
        of.note_packages(7 * S, None);
        assert_eq!(of.check(20 * S, W), Ok(W), "the packages are unknown");
    }

    #[test]
    fn a_window_that_ended_within_the_lag_may_be_shown() {
        let mut of = Plausibility::new(S, 3 * S);
        let found =
            checked(&mut of, 1, &[(50, 100), (50, 100), (200, 100), (200, 100), (200, 100), (200, 100), (200, 100)]);
        let refused: Vec<bool> = found.iter().map(Result::is_err).collect();
        assert_eq!(refused, [false, false, false, false, false, true, true], "{found:?}");
    }

    #[test]
    fn a_constant_power_under_changing_load_is_stale_until_it_changes() {
        let mut of = Plausibility::new(S, S);
        let steady = checked(&mut of, 1, &[(100, 400); 20]);
        assert!(steady.iter().all(Result::is_ok), "the load is constant too: {steady:?}");
        let found = checked(&mut of, 21, &[(200, 400); 5]);
        let stale = Err(Refused::Constant { uw: 400 * W, packages_uw: (100 * W, 200 * W) });
        assert_eq!(found, [Ok(400 * W), Ok(400 * W), Ok(400 * W), stale, stale]);
        let moves = checked(&mut of, 26, &[(200, 500); 9]);
        assert!(moves.iter().all(Result::is_ok), "a new value, with what was before it forgotten: {moves:?}");
    }
}
