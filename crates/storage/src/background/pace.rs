//! Due times of background I/O, and whether it may begin in this poll.
//!
//! # The algorithm
//! By its rate an I/O is due after the time that the previous one takes at that rate; delays are not made up for. While
//! hosts are *present* (a request within [`PRESENT_NS`]) it is due no earlier than [`SPACING`] durations after the start of
//! the previous one on the same drive. A pass of scrubbing also has a schedule, spread evenly over its days; ranges behind
//! it are due at once.
//!
//! # The properties
//! - I/O due by its rate begins only while no I/O thread of the server has a request.
//! - While hosts are present, it takes at most 1 / [`SPACING`] of a drive's time. So at most that fraction of requests
//!   overlaps it: with I/Os as long as requests, mean latency grows by at most 5 %. Requests further apart than
//!   [`PRESENT_NS`] are not protected: each of them may overlap an I/O.
//! - I/O due by the schedule begins only in a poll that took no request, unless it is overdue by [`OVERDUE_NS`].

const NS_PER_S: u128 = 1_000_000_000;
/// Time behind the schedule after which an I/O begins in spite of requests, in nanoseconds.
pub const OVERDUE_NS: u64 = 1_000_000_000;

/// Time after the last request during which hosts count as present, in nanoseconds.
pub const PRESENT_NS: u64 = 1_000_000_000;
/// While hosts are present, the time from the start of an I/O to the next one, in durations of the first.
pub const SPACING: u64 = 20;

/// State of an I/O thread's poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Now, in monotonic nanoseconds.
    pub now_ns: u64,
    /// Whether it took a request.
    pub took_requests: bool,
    /// Whether any I/O thread of the server has outstanding requests.
    pub has_requests: bool,
    /// Whether any took one within [`PRESENT_NS`].
    pub has_hosts: bool,
}

/// The pace of one class of one namespace.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// The previous I/O.
    last: Option<Last>,
}

/// An I/O that has begun.
#[derive(Clone, Copy, Debug)]
struct Last {
    began_ns: u64,
    bytes: u64,
}

impl Pace {
    /// Records the start of an I/O.
    pub fn begin(&mut self, now_ns: u64, bytes: u64) {
        self.last = Some(Last { began_ns: now_ns, bytes });
    }

    /// Due time of the next one at `rate` bytes per second, in nanoseconds; `u64::MAX` for never.
    #[must_use]
    pub fn due_ns(&self, rate: u64) -> u64 {
        match self.last {
            _ if rate == 0 => u64::MAX,
            None => 0,
            Some(Last { began_ns, bytes }) => {
                let by_rate_ns = (u128::from(bytes) * NS_PER_S / u128::from(rate)).min(u128::from(u64::MAX)) as u64;
                began_ns.saturating_add(by_rate_ns)
            }
        }
    }
}

/// Whether an I/O that is due at `by_rate_ns` by its rate, or at `by_schedule_ns` by a schedule, may begin.
#[must_use]
pub fn may_begin(round: Round, by_rate_ns: u64, by_schedule_ns: u64) -> bool {
    if by_schedule_ns.saturating_add(OVERDUE_NS) <= round.now_ns {
        return true;
    }
    if round.took_requests {
        return false;
    }
    by_schedule_ns <= round.now_ns || by_rate_ns <= round.now_ns && !round.has_requests
}

/// The schedule of a pass.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// Start of the pass, in monotonic nanoseconds; negative if it precedes the boot.
    pub began_ns: i128,
    /// From one pass to the next, in nanoseconds.
    pub period_ns: u64,
}

impl Schedule {
    /// Due time of range `position` of `ranges`; at the end, the start of the next pass.
    #[must_use]
    pub fn due_ns(&self, position: u64, ranges: u64) -> u64 {
        let done = (position + 1).min(ranges);
        let after = i128::from(self.period_ns) * i128::from(done) / i128::from(ranges.max(1));
        (self.began_ns + after).clamp(0, i128::from(u64::MAX)) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn requests_have_priority(
            now_ns in 0..1_u64 << 40,
            took_requests: bool,
            has_requests: bool,
            by_rate_ns in 0..1_u64 << 40,
            by_schedule_ns in prop_oneof![Just(u64::MAX), 0..1_u64 << 40],
        ) {
            let has_requests = has_requests || took_requests;
            let round = Round { now_ns, took_requests, has_requests, has_hosts: has_requests };
            let begins = may_begin(round, by_rate_ns, by_schedule_ns);
            let overdue = now_ns.checked_sub(by_schedule_ns).is_some_and(|late| late >= OVERDUE_NS);
            prop_assert!(!begins || !took_requests || overdue);
            prop_assert!(!begins || by_rate_ns <= now_ns || by_schedule_ns <= now_ns);
            prop_assert!(!begins || !has_requests || by_schedule_ns <= now_ns);
            prop_assert!(begins || has_requests || by_rate_ns.min(by_schedule_ns) > now_ns);
        }
    }

    #[test]
    fn due_times_follow_the_rate_and_the_schedule() {
        let mut pace = Pace::default();
        assert_eq!((pace.due_ns(0), pace.due_ns(1)), (u64::MAX, 0));
        pace.begin(1_000, 64_000);
        assert_eq!((pace.due_ns(64_000_000), pace.due_ns(u64::MAX)), (1_001_000, 1_000));
        let schedule = Schedule { began_ns: -500, period_ns: 1_000 };
        assert_eq!([0, 4, 5, 9, 10].map(|position| schedule.due_ns(position, 10)), [0, 0, 100, 500, 500]);
    }
}
