//! When the next background I/O of a namespace is due, and whether it may begin in this poll.
//!
//! # The algorithm
//! At a rate an I/O is due when the time has passed that the one before takes at that rate; nothing is made up for. While hosts are
//! *present* (one has sent a request within [`PRESENT_NS`]) it is due no earlier than [`SPACING`] times as long after the one before on the same
//! drive, of whatever namespace, as that one took. The pass of scrubbing has a schedule as well, a range after the other over its days: what is
//! behind it is due at whatever rate.
//!
//! # The properties
//! - What is due by its rate begins only while no I/O thread of the server has a request.
//! - While hosts are present, work that is due by its rate takes at most one part in [`SPACING`] of a drive's time. So of requests that come at
//!   any time at most that share meets it: with I/Os that take as long as requests do, mean latency grows by at most 5 %. Requests that are
//!   rarer than one in [`PRESENT_NS`] find no hosts present: each of them may meet an I/O.
//! - What is due by the schedule begins only in a poll that took no request, unless it is overdue by [`OVERDUE_NS`].

const NS_PER_S: u128 = 1_000_000_000;
/// Time after which what is behind the schedule of a pass begins although requests come in every poll, in nanoseconds.
pub const OVERDUE_NS: u64 = 1_000_000_000;

/// Time since the last request of a host for which hosts count as present, in nanoseconds.
pub const PRESENT_NS: u64 = 1_000_000_000;
/// While hosts are present, the time from the beginning of an I/O to the next one, in durations of the first.
pub const SPACING: u64 = 20;

/// What a poll of an I/O thread has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Now, in monotonic nanoseconds.
    pub now_ns: u64,
    /// Whether it took a request.
    pub took_requests: bool,
    /// Whether any I/O thread of the server has requests that are not answered.
    pub has_requests: bool,
    /// Whether any took one within [`PRESENT_NS`].
    pub has_hosts: bool,
}

/// The pace of one class of one namespace.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// The I/O before.
    last: Option<Last>,
}

/// An I/O that has begun.
#[derive(Clone, Copy, Debug)]
struct Last {
    began_ns: u64,
    bytes: u64,
}

impl Pace {
    /// An I/O of so many bytes begins.
    pub fn begin(&mut self, now_ns: u64, bytes: u64) {
        self.last = Some(Last { began_ns: now_ns, bytes });
    }

    /// When the next is due at this rate (bytes a second), in nanoseconds; `u64::MAX` for never.
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
    /// When the pass began, in monotonic nanoseconds; before 0 if the machine was started later.
    pub began_ns: i128,
    /// From one pass to the next, in nanoseconds.
    pub period_ns: u64,
}

impl Schedule {
    /// When range `position` of `ranges` has to be done; with `position` at the end, when the next pass begins.
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
        fn requests_go_first(
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
    fn a_rate_is_kept_and_a_pass_ends_with_its_days() {
        let mut pace = Pace::default();
        assert_eq!((pace.due_ns(0), pace.due_ns(1)), (u64::MAX, 0));
        pace.begin(1_000, 64_000);
        assert_eq!((pace.due_ns(64_000_000), pace.due_ns(u64::MAX)), (1_001_000, 1_000));
        let schedule = Schedule { began_ns: -500, period_ns: 1_000 };
        assert_eq!([0, 4, 5, 9, 10].map(|position| schedule.due_ns(position, 10)), [0, 0, 100, 500, 500]);
    }
}
