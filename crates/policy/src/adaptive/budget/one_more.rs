//! One core more than the allowance is known to carry, where the power limit is known to hold: cores that share it may add nothing to the draw.

/// Time for which no core is tried after one with which the draw exceeded the allowance.
const REFUSED_NS: u64 = 60_000_000_000;
/// Samples in a row whose draw must be too much: the first may have begun before the core was used.
const SAMPLES: u32 = 2;

/// The core that is tried.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OneMore {
    /// Cores in use with it; `None` if none is tried.
    cores: Option<usize>,
    /// Samples in a row with it whose draw was too much.
    exceeded: u32,
    /// No more than these until then, as one more drew too much, or until the allowance is known to carry more.
    refused: Option<usize>,
    /// The next is tried after a window that begins then.
    after_ns: u64,
}

impl OneMore {
    /// Cores that may be in use, where the allowance is known to carry some, at least those in use.
    pub(super) fn carried(&mut self, now_ns: u64, known: usize, used: usize, draws_too_much: bool) -> usize {
        if self.cores.is_some_and(|cores| known.max(used) > cores || used + 1 < cores) {
            self.cores = None; // it is no longer the next
        }
        self.exceeded = if draws_too_much && self.cores == Some(used) { self.exceeded + 1 } else { 0 };
        if self.exceeded >= SAMPLES {
            (self.cores, self.refused) = (None, Some(used - 1));
            (self.exceeded, self.after_ns) = (0, now_ns.saturating_add(REFUSED_NS));
        } else if now_ns >= self.after_ns || known > used {
            self.refused = None;
        }
        known.max(self.cores.unwrap_or(0)).min(self.refused.unwrap_or(usize::MAX))
    }

    /// A window of the server's power was read: whether the cores in use were full in all of it, and drew no more than they may.
    pub(super) fn follow(&mut self, (now_ns, began_ns): (u64, u64), used: usize, is_full: bool) {
        if began_ns >= self.after_ns && is_full {
            (self.cores, self.exceeded) = (Some(used + 1), 0);
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
        assert_eq!(more.carried(3 * S, 2, 2, true), 3, "it was not in use yet");
        assert_eq!(more.carried(4 * S, 3, 3, false), 3);
        more.follow((4 * S, 2 * S), 3, true);
        assert_eq!(more.carried(4 * S, 3, 3, false), 3, "the window began before");
        more.follow((5 * S, 3 * S), 3, true);
        assert_eq!(more.carried(5 * S, 3, 3, false), 4);
        assert_eq!(more.carried(5 * S + 1, 4, 4, true), 4, "perhaps of the time before");
        assert_eq!(more.carried(5 * S + 2, 4, 4, true), 3, "it drew too much");
        more.follow((7 * S, 6 * S), 3, true);
        assert_eq!(more.carried(7 * S, 3, 3, false), 3);
        more.follow((67 * S, 66 * S), 3, true);
        assert_eq!(more.carried(67 * S, 3, 3, false), 4);
    }

    #[test]
    fn what_is_known_to_be_carried_is_never_taken_away() {
        let mut more = OneMore::default();
        more.follow((3 * S, 2 * S), 2, true);
        assert_eq!([(6, 6), (6, 6)].map(|(known, used)| more.carried(4 * S, known, used, true)), [6, 6]);
        more.follow((5 * S, 4 * S), 2, true);
        assert_eq!([2, 3, 3].map(|used| more.carried(6 * S, used, used, true)), [3, 3, 2]);
        assert_eq!(more.carried(7 * S, 8, 2, false), 8, "another allowance");
        more.follow((70 * S, 69 * S), 7, true);
        assert_eq!(more.carried(70 * S, 2, 2, false), 2, "the load has ended");
    }
}
