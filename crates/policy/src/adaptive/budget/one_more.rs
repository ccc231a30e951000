//! One core more than the allowance is known to carry, where the power limit is known to hold: cores that share it may add nothing to the draw.

/// Time for which no core is tried after one with which the draw exceeded the allowance.
const REFUSED_NS: u64 = 60_000_000_000;

/// The core that is tried.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OneMore {
    /// Cores in use with it; `None` if none is tried.
    cores: Option<usize>,
    /// No more than these until then, as one more drew too much.
    refused: Option<usize>,
    /// The next is tried after a window that begins then.
    after_ns: u64,
}

impl OneMore {
    /// Cores that may be in use, where the allowance is known to carry some.
    pub(super) fn carried(&mut self, now_ns: u64, known: usize, draws_too_much: bool) -> usize {
        if let Some(cores) = self.cores.take_if(|_| draws_too_much) {
            (self.refused, self.after_ns) = (Some(cores - 1), now_ns.saturating_add(REFUSED_NS));
        }
        if now_ns >= self.after_ns {
            self.refused = None;
        }
        known.max(self.cores.unwrap_or(0)).min(self.refused.unwrap_or(usize::MAX))
    }

    /// A window of the server's power was read: whether the cores in use were full in all of it, and drew no more than they may.
    pub(super) fn follow(&mut self, (now_ns, began_ns): (u64, u64), used: usize, is_full: bool) {
        if began_ns < self.after_ns {
            return;
        }
        self.cores = is_full.then_some(used + 1);
        if is_full {
            self.after_ns = now_ns; // until a window with it has been read
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn one_core_is_tried_at_a_window_and_none_for_a_minute_after_one_too_many() {
        let mut more = OneMore::default();
        more.follow((3 * S, 2 * S), 2, true);
        assert_eq!(more.carried(3 * S, 2, false), 3);
        more.follow((4 * S, 2 * S), 3, true);
        assert_eq!(more.carried(4 * S, 2, false), 3, "the window began before");
        more.follow((5 * S, 3 * S), 3, true);
        assert_eq!(more.carried(5 * S, 3, false), 4);
        assert_eq!(more.carried(5 * S + 1, 4, true), 3, "it drew too much");
        more.follow((7 * S, 6 * S), 3, true);
        assert_eq!(more.carried(7 * S, 8, true), 3);
        more.follow((67 * S, 66 * S), 3, true);
        assert_eq!(more.carried(67 * S, 3, false), 4);
        more.follow((70 * S, 69 * S), 4, false);
        assert_eq!(more.carried(70 * S, 3, false), 3);
    }
}
