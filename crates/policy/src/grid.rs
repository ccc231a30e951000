//! The grid of moments at which intervals end: an interval that runs late does not put off those after it.

/// Moments `start`, `start + every`, `start + 2 every`, and so on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub(crate) start_ns: u64,
    pub(crate) every_ns: u64,
}

impl Grid {
    /// The first of them that is not before `now_ns`.
    pub(crate) fn end(&self, now_ns: u64) -> u64 {
        let begun = now_ns.saturating_sub(self.start_ns).div_ceil(self.every_ns.max(1));
        self.start_ns.saturating_add(self.every_ns.saturating_mul(begun))
    }

    /// The first of them after `now_ns`.
    pub(crate) fn after(&self, now_ns: u64) -> u64 {
        self.end(now_ns.saturating_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_once_is_late_no_more() {
        let grid = Grid { start_ns: 5, every_ns: 10 };
        assert_eq!([0, 5, 6, 15, 16].map(|now| grid.end(now)), [5, 5, 15, 15, 25]);
        assert_eq!([5, 14, 15, 19].map(|now| grid.after(now)), [15, 15, 25, 25]);
        assert_eq!(grid.after(u64::MAX), u64::MAX);
    }
}
