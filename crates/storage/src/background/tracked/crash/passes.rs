//! Passes of scrubbing: repeated reads, and the schedule.

use std::time::{Duration, Instant};

use super::super::super::control::{Class, FULL_PPM};
use super::super::super::upkeep::UpkeepStats;
use super::*;

const DAY: u64 = 86_400 * S;
/// Time limit of the thread of the sums file, in real time.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A summed namespace of zeroes at the start of a pass.
fn summed() -> (Shared, Served) {
    let shared = Shared::default();
    shared.media().data = vec![0; BYTES as usize];
    let mut served = Served::open(&shared);
    served.scrub_all();
    while served.stats().scrubbed_bytes < RANGES * RANGE {
        served.scrub(); // until the next pass has begun
        std::thread::yield_now();
    }
    (shared, served)
}

impl Served {
    fn stats(&self) -> UpkeepStats {
        self.scrubber.upkeep.stats().expect("placed")
    }

    /// Polls the scrubber at `now_ns`; `has_requests`: another I/O thread has requests.
    fn poll_at(&mut self, now_ns: u64, has_requests: bool) {
        let round = Round { now_ns, took_requests: false, has_requests, has_hosts: has_requests };
        let channel = &mut *self.channels[0];
        self.scrubber.poll(&mut Cx { channel, shared: &self.background, round, tag: 0 });
        let mut done = Vec::with_capacity(4);
        self.channels[0].poll(now_ns, &mut done);
        done.into_iter().for_each(|one| self.scrubber.on_completion(one, &self.background, now_ns));
    }
}

/// The first read of a block differs from its checksum, the uncached one does not: in a clean range, and in a range that is
/// summed again after a write to another block.
#[test]
fn a_block_that_differs_only_in_the_cache_is_not_counted() {
    let (shared, mut served) = summed();
    let lba = BLOCKS as u64 + 4;
    for (reads, is_written) in [(1, false), (2, true)] {
        if is_written {
            served.submit(Op::Write { fua: false }, lba + 1, 1, 7);
            served.drain();
            assert_eq!(served.tracker.ranges.mark(1), Mark::Dirty);
        }
        shared.media().stale = Some(lba);
        served.scrub_all();
        let Media { stale, stale_reads, .. } = *shared.media();
        assert_eq!((stale, stale_reads), (None, reads), "read once, then dropped from the cache");
        let stats = served.stats();
        assert_eq!((stats.mismatches, stats.bad_blocks, served.bad()), (0, 0, Vec::new()), "written: {is_written}");
    }
    served.drain();
}

/// In simulated time; other I/O threads have requests in every second hour.
#[test]
fn a_pass_at_rate_zero_follows_its_schedule() {
    let (_, mut served) = summed();
    let period_ns = u64::from(served.background.config().scrub_days) * DAY;
    served.background.set_ppm(Class::Scrub, 0);
    assert_eq!(served.background.rate(Class::Scrub), 0);
    let passes = served.stats().passes;
    let mut began_ns = served.now_ns;
    while served.stats().scrubbed_bytes > 0 {
        began_ns += DAY;
        served.poll_at(began_ns, true);
        assert!(began_ns <= served.now_ns + period_ns, "the next pass does not begin");
    }
    for hour in 1..=period_ns / (DAY / 24) {
        let now_ns = began_ns + hour * (DAY / 24);
        let due = RANGES * (now_ns - began_ns) / period_ns;
        let until = Instant::now() + TIMEOUT;
        while served.stats().scrubbed_bytes < due * RANGE || served.scrubber.is_on_drive() {
            served.poll_at(now_ns, hour % 2 == 0);
            assert!(Instant::now() < until, "hour {hour}: {due} ranges are due: {:?}", served.stats());
            std::thread::yield_now();
        }
        if due < RANGES {
            served.poll_at(now_ns, false); // after the last range it would begin the next pass
        }
        assert_eq!(served.stats().scrubbed_bytes, due * RANGE, "hour {hour}: the schedule and no more");
    }
    assert_eq!((served.stats().passes, served.background.rate(Class::Scrub)), (passes + 1, 0));
    served.drain();
}

#[test]
fn a_pause_overrides_the_schedule() {
    let (_, mut served) = summed();
    served.background.set_paused(Class::Scrub, true);
    let before = served.stats();
    for day in 1..=90 {
        served.poll_at(served.now_ns + day * DAY, false);
    }
    assert_eq!((served.stats(), served.background.ppm(Class::Scrub)), (before, FULL_PPM));
    served.background.set_paused(Class::Scrub, false);
    served.scrub_all();
}
