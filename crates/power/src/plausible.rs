//! Whether a power can be what the machine draws. Pure: times, powers and loads are arguments.
//!
//! **Rules.** 0 W is refused: a machine that reads its sensor draws power. So is the value of an error code.
//! Power of the server below the mean of its packages over the sensor's own window, beyond the errors of both, is refused. A reading that stays the same while the packages' mean has moved by more than
//! both errors, and stays so for a window and the lag, is stale until it changes.
//!
//! Where the packages are not measured, or no longer, the load decides instead: a reading that stays the same from a mean of at most an eighth of all CPU time
//! to one of at least half is stale. CPU time, because it includes the work for network and drives, whatever their number and kind. The distance
//! is large on purpose: between the two no machine draws the same to a step of its sensor, while less load can change power by less than
//! a step, and under a power limit not at all. At constant load, idle too, no reading is stale.
//!
//! A sensor can show a window that ended up to its lag ago. A power is refused only if it is below the least mean of that time.

use std::collections::VecDeque;
use std::fmt;

use crate::sensor::Part;

/// Share of a power by which it can be wrong, in thousandths: what makers of boards and of CPUs claim at the load of a server (chosen).
const ERROR_PERMILLE: u64 = 50;
/// Error beside it, in microwatts: sensors of servers have steps of 1 W.
const STEP_UW: u64 = 1_000_000;
/// Share of CPU time up to which the machine is idle and from which it is busy, in thousandths (chosen, see above).
const IDLE_PERMILLE: u64 = 125;
const BUSY_PERMILLE: u64 = 500;

/// Powers from here on are error codes, in microwatts: 65,535 W is all bits of DCMI's field, and more than a server draws.
const MAX_UW: i64 = 65_535_000_000;
/// Error codes in microwatts: all bits of a field of 32 bits, and all but the sign.
const CODES_UW: [i64; 2] = [u32::MAX as i64, i32::MAX as i64];

/// Whether this part of the machine can draw this power, in microwatts. All sensors are checked by this function.
///
/// # Errors
/// It cannot.
pub fn power(part: &Part, uw: i64) -> Result<(), Refused> {
    // Others, such as rails, can be without load, or have current that flows back.
    let always_draws = matches!(part, Part::System | Part::Platform | Part::Cpu | Part::Package(_) | Part::Die(..));
    match uw {
        0 if always_draws => Err(Refused::Zero),
        uw if uw >= MAX_UW || CODES_UW.contains(&uw) || (uw < 0 && always_draws) => Err(Refused::ErrorCode { uw }),
        _ => Ok(()),
    }
}

/// Why a power is not used. All powers are in microwatts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is 0 W.
    Zero,
    /// It is no power.
    ErrorCode {
        /// Its value.
        uw: i64,
    },
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
    /// It stayed the same while the machine went from idle to busy, or back.
    Unloaded {
        /// The power.
        uw: u64,
        /// Lowest and highest mean of the CPU time in use, in thousandths.
        busy_permille: (u64, u64),
    },
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let watts = |uw: u64| uw as f64 / 1e6;
        match *self {
            Self::Zero => f.write_str("it reads 0 W"),
            Self::ErrorCode { uw } => write!(f, "{:.1} W is an error code, not a power", uw as f64 / 1e6),
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
            Self::Unloaded { uw, busy_permille: (low, high) } => write!(
                f,
                "it stays at {:.1} W while from {} to {} % of all CPU time were in use",
                watts(uw),
                low / 10,
                high / 10
            ),
        }
    }
}

/// The check of one source. Without the packages' power ([`Self::note_packages`]) and the load ([`Self::note_busy`]) only 0 W is refused.
#[derive(Clone, Debug, Default)]
pub struct Plausibility {
    window_ns: u64,
    lag_ns: u64,
    packages_uw: Witness,
    busy_permille: Witness,
    same: Option<Same>,
}

/// What is measured beside the source.
#[derive(Clone, Debug, Default)]
struct Witness {
    /// Ends and values of its readings: the last before the window, and those in it.
    values: VecDeque<(u64, u64)>,
    /// Ends and means of windows, until a reading must show them.
    means: VecDeque<(u64, u64)>,
}

/// A reading that stays the same.
#[derive(Clone, Copy, Debug)]
struct Same {
    uw: u64,
    since_ns: u64,
    /// Lowest and highest mean of each witness since then that it must have shown.
    packages_uw: Option<(u64, u64)>,
    busy_permille: Option<(u64, u64)>,
}

impl Witness {
    /// Its mean since its last reading; `None` where it is unknown.
    fn note(&mut self, now_ns: u64, value: Option<u64>, (window_ns, settles_ns): (u64, u64)) {
        let Some(value) = value else { return self.values.clear() };
        self.values.push_back((now_ns, value));
        let begin_ns = now_ns.saturating_sub(window_ns);
        while self.values.get(1).is_some_and(|&(ended_ns, _)| ended_ns <= begin_ns) {
            self.values.pop_front();
        }
        if let Some(mean) = self.mean(now_ns, begin_ns) {
            self.means.push_back((now_ns, mean));
        }
        let kept_ns = 2 * settles_ns; // more than a check uses, so that a server without readings does not collect them
        while self.pop_mean(now_ns.saturating_sub(kept_ns)).is_some() {}
    }

    /// Removes the oldest mean if it ended before `begin_ns`.
    fn pop_mean(&mut self, begin_ns: u64) -> Option<(u64, u64)> {
        self.means.front().filter(|(ended_ns, _)| *ended_ns < begin_ns)?;
        self.means.pop_front()
    }

    /// The mean over the window; `None` before there is a whole one.
    fn mean(&self, now_ns: u64, begin_ns: u64) -> Option<u64> {
        let &(first_ns, _) = self.values.front().filter(|(ended_ns, _)| *ended_ns <= begin_ns)?;
        let parts = self.values.iter().zip(self.values.iter().skip(1));
        let sum: u128 = parts.map(|((from, _), (to, value))| u128::from(to - from) * u128::from(*value)).sum();
        sum.checked_div(u128::from(now_ns - first_ns)).and_then(|mean| u64::try_from(mean).ok())
    }

    /// Widens a range by the means that ended from `since_ns` to before `settled_ns`.
    fn widen(&mut self, range: &mut Option<(u64, u64)>, since_ns: u64, settled_ns: u64) {
        while let Some((ended_ns, mean)) = self.pop_mean(settled_ns) {
            if ended_ns >= since_ns {
                let (low, high) = range.unwrap_or((mean, mean));
                *range = Some((low.min(mean), high.max(mean)));
            }
        }
    }
}

impl Plausibility {
    /// For a source with this window and lag.
    #[must_use]
    pub fn new(window_ns: u64, lag_ns: u64) -> Self {
        Self { window_ns, lag_ns, ..Self::default() }
    }

    /// The packages' mean power since their last reading; `None` where it is unknown.
    pub fn note_packages(&mut self, now_ns: u64, uw: Option<u64>) {
        self.packages_uw.note(now_ns, uw, (self.window_ns, self.settles_ns()));
    }

    /// The part of all CPU time that was in use since the last reading, in thousandths; `None` where it is unknown.
    pub fn note_busy(&mut self, now_ns: u64, permille: Option<u64>) {
        self.busy_permille.note(now_ns, permille, (self.window_ns, self.settles_ns()));
    }

    /// After this time a reading shows nothing of what was before.
    fn settles_ns(&self) -> u64 {
        self.window_ns.saturating_add(self.lag_ns).min(u64::MAX / 2)
    }

    /// The power if it is plausible.
    ///
    /// # Errors
    /// It is not.
    pub fn check(&mut self, now_ns: u64, uw: u64) -> Result<u64, Refused> {
        self.note_same(now_ns, uw);
        power(&Part::System, i64::try_from(uw).unwrap_or(i64::MAX))?;
        let shown = self.packages_uw.means.iter().filter(|(ended_ns, _)| now_ns - ended_ns <= self.lag_ns);
        let least_uw = shown.map(|&(_, mean_uw)| mean_uw).min().unwrap_or(0);
        if uw + error_uw(uw) + error_uw(least_uw) < least_uw {
            return Err(Refused::BelowPackages { uw, packages_uw: least_uw });
        }
        let Some(same) = &mut self.same else { return Ok(uw) };
        if let Some(packages_uw @ (low, high)) = same.packages_uw {
            if high - low > error_uw(uw) + error_uw(high) {
                return Err(Refused::Constant { uw, packages_uw });
            }
            if !self.packages_uw.means.is_empty() {
                same.busy_permille = None; // they decide until now; where they are no longer measured, the load does from now on
                return Ok(uw);
            }
        }
        let is_stale = |&(low, high): &(u64, u64)| low <= IDLE_PERMILLE && high >= BUSY_PERMILLE;
        same.busy_permille.filter(is_stale).map_or(Ok(uw), |busy_permille| Err(Refused::Unloaded { uw, busy_permille }))
    }

    /// Remembers for how long the power is the same, and the means that it must have shown.
    fn note_same(&mut self, now_ns: u64, uw: u64) {
        let fresh = Same { uw, since_ns: now_ns, packages_uw: None, busy_permille: None };
        let mut same = self.same.filter(|same| same.uw == uw).unwrap_or(fresh);
        let settled_ns = now_ns.saturating_sub(self.settles_ns());
        self.packages_uw.widen(&mut same.packages_uw, same.since_ns, settled_ns);
        self.busy_permille.widen(&mut same.busy_permille, same.since_ns, settled_ns);
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
        assert_eq!(of.check(3 * S, 4_294_967 * W), Err(Refused::ErrorCode { uw: 4_294_967_000_000 }));
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

    #[test]
    fn without_packages_a_constant_power_from_idle_to_busy_is_stale_until_it_changes() {
        let checked = |readings: &[(u64, u64)]| -> Vec<bool> {
            let mut of = Plausibility::new(S, S);
            let one = |(now_s, &(busy, server)): (u64, &(u64, u64))| {
                of.note_busy(now_s * S, Some(busy));
                of.check(now_s * S, server * W).is_err()
            };
            (1..).zip(readings).map(one).collect()
        };
        let (idle, busy, loaded) = ([(20, 90); 9], [(700, 90); 6], [(700, 91); 9]);
        let refused = checked(&[&idle[..], &busy, &loaded, &[(20, 91); 6]].concat());
        let expected = [&[false; 9][..], &[false, false, false, true, true, true], &[false; 9]].concat();
        assert_eq!(refused[..24], expected, "from idle to busy");
        assert_eq!(refused[24..], [false, false, false, true, true, true], "and back");
        let never = |readings: &[(u64, u64)]| checked(readings).iter().all(|refused| !refused);
        assert!(never(&[(20, 90); 90]) && never(&[(1_000, 90); 90]), "at constant load");
        assert!(never(&[[(20, 90); 9], [(400, 90); 9]].concat()), "power can change by less than a step");
        assert!(never(&[[(200, 90); 9], [(1_000, 90); 9]].concat()), "as under a power limit");
    }

    #[test]
    fn measured_packages_have_precedence_over_the_load() {
        let mut of = Plausibility::new(S, 0);
        for now_s in 1..40 {
            of.note_packages(now_s * S, Some(50 * W));
            of.note_busy(now_s * S, Some(if now_s < 20 { 0 } else { 1_000 }));
            assert_eq!(of.check(now_s * S, 90 * W), Ok(90 * W), "a limit of the packages keeps their power constant");
        }
        let mut check = |now_s: u64, busy| {
            of.note_packages(now_s * S, None);
            of.note_busy(now_s * S, Some(busy));
            of.check(now_s * S, 90 * W)
        };
        assert!((40..50).all(|now_s| check(now_s, 1_000).is_ok()), "no longer measured: the load counts from then on");
        assert!(
            (50..60).any(|now_s| check(now_s, 0) == Err(Refused::Unloaded { uw: 90 * W, busy_permille: (0, 1_000) }))
        );
    }
}
