//! The rule that a policy arms for every core ([`crate::Next::round_ns`]): one with several I/O threads whose rounds are long reports it.
//!
//! A round is one poll of each I/O thread of a core, so its length is how long a request may have waited for its poll: the queueing delay,
//! without a clock reading or a look at a queue. Requests that wait through two long rounds in a row, or through one twice as long, show that
//! the core cannot follow (Caladan and Shenango add a core by the same rule, at the 5 to 10 us of a core that only passes packets on).
//!
//! *Properties* (tests below): a report needs two long rounds in a row, both with work, or one twice as long; at most one a round.

/// The rounds of a core.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rounds {
    began_ns: u64,
    /// Length of the round before; 0 if it had no work.
    before_ns: u64,
    /// Whether this round was reported.
    reported: bool,
}

/// A round, or two in a row, that were long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongRound {
    /// The core.
    pub core: crate::CoreId,
    /// Length of the longer of both so far, in nanoseconds.
    pub round_ns: u64,
}

impl Rounds {
    /// A round begins.
    pub fn begin(&mut self, now_ns: u64) {
        (self.began_ns, self.reported) = (now_ns, false);
    }

    /// It has ended.
    pub fn end(&mut self, now_ns: u64, had_work: bool) {
        self.before_ns = if had_work { now_ns.saturating_sub(self.began_ns) } else { 0 };
    }

    /// After a poll with work: the length to report, if this round and the one before are at least `limit_ns` long, or this one is twice as long.
    pub fn long_ns(&mut self, now_ns: u64, limit_ns: u64) -> Option<u64> {
        let so_far_ns = now_ns.saturating_sub(self.began_ns);
        let long_enough_ns = if self.before_ns >= limit_ns { limit_ns } else { limit_ns.saturating_mul(2) };
        let is_long = !self.reported && so_far_ns >= long_enough_ns;
        self.reported |= is_long;
        is_long.then_some(so_far_ns.max(self.before_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reports of rounds of these lengths; each is asked for after every 10 ns.
    fn reports(lengths: &[(u64, bool)]) -> Vec<(usize, u64)> {
        let (mut rounds, mut now_ns, mut found) = (Rounds::default(), 1_000, Vec::new());
        for (nth, &(length_ns, had_work)) in lengths.iter().enumerate() {
            rounds.begin(now_ns);
            for at_ns in (10..=length_ns).step_by(10).filter(|_| had_work) {
                found.extend(rounds.long_ns(now_ns + at_ns, 50).map(|long_ns| (nth, long_ns)));
            }
            now_ns += length_ns;
            rounds.end(now_ns, had_work);
        }
        found
    }

    #[test]
    fn two_long_rounds_in_a_row_are_reported_as_soon_as_the_second_is_long() {
        assert_eq!(reports(&[(90, true), (120, true)]), [(1, 90)]);
        assert_eq!(reports(&[(60, true), (90, true), (90, true)]), [(1, 60), (2, 90)], "once a round");
    }

    #[test]
    fn one_long_round_is_not_reported() {
        assert_eq!(reports(&[(90, true), (40, true), (90, true), (40, true)]), []);
        assert_eq!(reports(&[(90, true), (500, false), (90, true)]), [], "no request has waited");
    }

    #[test]
    fn a_round_twice_as_long_is_reported_alone() {
        assert_eq!(reports(&[(40, true), (500, true)]), [(1, 100)], "before its end");
    }
}
