//! How deep cores without I/O threads sleep, and how many of them stay shallow for a burst.
//!
//! *Problem.* A core that waits for a store wakes in microseconds and costs a good part of one that polls; one that waits in the kernel costs little,
//! but the core that wakes it makes a system call, and the kernel may take most of a millisecond to leave its deepest state.
//!
//! *Rule.* As many cores as the load of a single check needed in the last ten to twenty minutes (two periods) are in use or sleep shallow, the first in the
//! order in which they are taken: a burst of the size seen before meets no deep one. The others sleep as deep as they can. Where there is no reading
//! of power and no profile, or one depth, all sleep shallow. Whether the deep state saves is not measured; where it does not, a larger burst wakes
//! cores later for nothing. A server that rests (no request for 10 ms) sleeps in the kernel as a whole, the reserve too: the burst that
//! ends it wakes every core at once.
//!
//! *Properties* (tests below): the reserve is at least what was needed within the last period, and at most what was within two.

use pilotlight_plant::{Capabilities, NEVER};

/// Time for which a burst is remembered at least; chosen.
const PERIOD_NS: u64 = 600_000_000_000;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reserve {
    /// Depth matters, and saves.
    is_active: bool,
    /// The most cores that were needed in this period and in the last one.
    most: [usize; 2],
    ends_ns: u64,
}

impl Reserve {
    pub(super) fn new(now_ns: u64) -> Self {
        Self { ends_ns: now_ns.saturating_add(PERIOD_NS), ..Self::default() }
    }

    /// Takes what the plant can do; whether depth saves power is for the caller to know.
    pub(super) fn find(&mut self, capabilities: &Capabilities, saves: bool) {
        self.is_active = saves && capabilities.sleeps.len() > 1;
    }

    /// Takes the number of cores that a check needs.
    pub(super) fn note(&mut self, now_ns: u64, needed: usize) {
        while now_ns >= self.ends_ns {
            (self.most, self.ends_ns) = ([0, self.most[0]], self.ends_ns.saturating_add(PERIOD_NS));
        }
        self.most[0] = self.most[0].max(needed);
    }

    /// How many of the first cores may not sleep deep, if this many can be in use.
    pub(super) fn kept(&self, can: usize) -> usize {
        if self.is_active { self.most[0].max(self.most[1]).min(can) } else { usize::MAX }
    }

    /// When it becomes smaller if no more than `used` cores are in use; [`NEVER`] if it does not.
    pub(super) fn due_ns(&self, used: usize) -> u64 {
        if self.is_active && self.most[0].max(self.most[1]) > used { self.ends_ns } else { NEVER }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_in_use_is_kept_for_one_to_two_periods(seen in prop::collection::vec((0_u64..4, 1_usize..48), 1..40)) {
            let mut reserve = Reserve { is_active: true, ..Reserve::new(0) };
            let mut now_ns = 0;
            let mut times: Vec<(u64, usize)> = Vec::new();
            for (thirds, used) in seen {
                now_ns += thirds * PERIOD_NS / 3;
                reserve.note(now_ns, used);
                times.push((now_ns, used));
                let since = |ns: u64| {
                    times.iter().filter(|(at_ns, _)| at_ns + ns > now_ns).map(|(_, used)| *used).max().unwrap_or(0)
                };
                prop_assert!(reserve.kept(usize::MAX) >= since(PERIOD_NS));
                prop_assert!(reserve.kept(usize::MAX) <= since(2 * PERIOD_NS));
                prop_assert!(reserve.kept(3) <= 3);
            }
        }
    }
}
