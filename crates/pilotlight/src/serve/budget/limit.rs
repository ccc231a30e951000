//! A limit of the budget that ends by itself: `set budget 300W until DEADLINE then 120W`. Pure; time is an argument.
//!
//! # The problem
//! A program that sets budgets, such as the agent of a rack, can die, hang, be stopped for a while or lose its network. What it set last must not
//! hold for longer than it knew to be right.
//!
//! # The rule
//! Each setting has a deadline, and the power that is the limit afterwards. A deadline that is past is refused, so that a program that was stopped
//! before it sent one cannot set what is no longer right. From the start of the server until the first setting the limit is the floor of the
//! configuration. Deadlines are of `CLOCK_BOOTTIME`, which is the same for all programs of a machine and also runs while it is suspended.
//!
//! # Properties
//! - The limit at a time is that of the last accepted setting if its deadline is later; otherwise the power after it.
//! - A restart leads to the floor.

use std::time::Duration;

/// Farthest deadline: one beyond it is of another clock, such as seconds since 1970.
const FARTHEST: Duration = Duration::from_hours(24);

/// A limit with a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) struct Setting {
    /// Limit until the deadline, in microwatts.
    pub(in crate::serve) power_uw: u64,
    /// The deadline: `CLOCK_BOOTTIME`, in nanoseconds.
    pub(in crate::serve) until_ns: u64,
    /// Limit after it, in microwatts.
    pub(in crate::serve) then_uw: u64,
}

/// Why a deadline is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::serve) enum DeadlineError {
    #[error("the deadline was {} s ago", seconds(*.0))]
    Past(u64),
    #[error("the deadline is in {} s, more than a day", seconds(*.0))]
    Far(u64),
}

fn seconds(ns: u64) -> f64 {
    (ns / 1_000_000) as f64 / 1e3
}

/// The limit of a server.
#[derive(Clone, Copy, Debug)]
pub(in crate::serve) struct Limit {
    /// Of the configuration, in microwatts.
    pub(in crate::serve) floor_uw: u64,
    /// The limit without a valid setting, in microwatts: at first the floor.
    then_uw: u64,
    /// The setting whose deadline is to come.
    setting: Option<Setting>,
    /// Settings so far, and how many deadlines have changed the limit.
    pub(in crate::serve) settings: u64,
    pub(in crate::serve) expiries: u64,
}

impl Limit {
    /// At the start of a server.
    pub(in crate::serve) fn new(floor_uw: u64) -> Self {
        Self { floor_uw, then_uw: floor_uw, setting: None, settings: 0, expiries: 0 }
    }

    /// Takes a setting.
    ///
    /// # Errors
    /// If its deadline is past, or too far ahead; nothing has changed.
    pub(in crate::serve) fn set(&mut self, setting: Setting, now_ns: u64) -> Result<(), DeadlineError> {
        match setting.until_ns.checked_sub(now_ns) {
            None | Some(0) => return Err(DeadlineError::Past(now_ns - setting.until_ns)),
            Some(ahead_ns) if u128::from(ahead_ns) > FARTHEST.as_nanos() => return Err(DeadlineError::Far(ahead_ns)),
            Some(_) => {}
        }
        self.then_uw = setting.then_uw;
        self.setting = Some(setting);
        self.settings += 1;
        Ok(())
    }

    /// Ends a setting whose deadline is past; whether that changes the limit.
    pub(in crate::serve) fn expire(&mut self, now_ns: u64) -> bool {
        let ended = self.setting.take_if(|setting| setting.until_ns <= now_ns);
        let has_changed = ended.is_some_and(|setting| setting.power_uw != setting.then_uw);
        self.expiries += u64::from(has_changed);
        has_changed
    }

    /// Ends the setting before its deadline.
    pub(in crate::serve) fn end(&mut self) {
        self.setting = None;
    }

    /// The limit in microwatts.
    pub(in crate::serve) fn power_uw(&self) -> u64 {
        self.setting.map_or(self.then_uw, |setting| setting.power_uw)
    }

    /// The limit without a valid setting, in microwatts.
    pub(in crate::serve) fn then_uw(&self) -> u64 {
        self.then_uw
    }

    /// The deadline, if there is one.
    pub(in crate::serve) fn until_ns(&self) -> Option<u64> {
        self.setting.map(|setting| setting.until_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn setting(power_uw: u64, until_s: u64, then_uw: u64) -> Setting {
        Setting { power_uw, until_ns: until_s * S, then_uw }
    }

    #[test]
    fn the_floor_holds_until_the_first_setting_and_after_its_deadline() {
        let mut limit = Limit::new(40);
        assert!(!limit.expire(99 * S));
        assert_eq!((limit.power_uw(), limit.until_ns()), (40, None));
        limit.set(setting(300, 105, 30), 100 * S).unwrap();
        assert_eq!((limit.power_uw(), limit.until_ns()), (300, Some(105 * S)));
        assert!(!limit.expire(105 * S - 1));
        assert_eq!(limit.power_uw(), 300);
        assert!(limit.expire(105 * S));
        assert_eq!((limit.power_uw(), limit.until_ns(), limit.expiries), (30, None, 1));
        assert!(!limit.expire(106 * S), "once");
        limit.set(setting(30, 108, 30), 107 * S).unwrap();
        assert!(!limit.expire(108 * S), "the same afterwards");
        assert_eq!((limit.power_uw(), limit.until_ns(), limit.expiries), (30, None, 1));
    }

    #[test]
    fn the_last_setting_counts() {
        let mut limit = Limit::new(40);
        limit.set(setting(300, 105, 40), 100 * S).unwrap();
        limit.set(setting(300, 110, 40), 104 * S).unwrap();
        assert!(!limit.expire(109 * S), "renewed");
        limit.set(setting(200, 112, 20), 109 * S).unwrap();
        assert_eq!((limit.power_uw(), limit.settings), (200, 3));
        limit.end();
        assert_eq!((limit.power_uw(), limit.expiries), (20, 0));
    }

    #[test]
    fn deadlines_of_the_past_and_of_other_clocks_are_refused() {
        let mut limit = Limit::new(40);
        limit.set(setting(300, 105, 30), 100 * S).unwrap();
        assert_eq!(limit.set(setting(500, 101, 10), 101 * S), Err(DeadlineError::Past(0)));
        assert_eq!(limit.set(setting(500, 99, 10), 101 * S), Err(DeadlineError::Past(2 * S)));
        let error = limit.set(setting(500, 1_800_000_000, 10), 101 * S).unwrap_err();
        assert!(matches!(error, DeadlineError::Far(_)), "seconds since 1970");
        assert_eq!((limit.power_uw(), limit.then_uw(), limit.settings), (300, 30, 1), "nothing has changed");
    }
}
