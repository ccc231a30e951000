//! Windows of a server whose latency is known.

use pilotlight_plant::ReadingId;

use super::*;

const WINDOW_NS: u64 = 500_000_000;

/// Windows of a server whose polling takes `base_us`, with what cores that wait, or too few of them, add.
struct Bench {
    feedback: Feedback,
    now_ns: u64,
    base_us: f64,
    waits_us: f64,
    estimated_rise_us: f64,
    measured_rise_us: f64,
    /// What bursts, which the estimate does not know, add on fewer than all cores.
    bursts_us: f64,
    can_wait: bool,
    pauses: bool,
    /// From this scale on all cores are in use.
    enough: f64,
    requests: u64,
}

impl Bench {
    fn new() -> Self {
        let feedback = Feedback::default();
        let (base_us, waits_us, estimated_rise_us, measured_rise_us, bursts_us) = (30.0, 5.0, 0.0, 0.0, 0.0);
        let (now_ns, enough, requests) = (0, 1.5, 10_000);
        Self {
            feedback,
            now_ns,
            base_us,
            waits_us,
            estimated_rise_us,
            measured_rise_us,
            bursts_us,
            can_wait: true,
            pauses: false,
            enough,
            requests,
        }
    }

    /// A check of 10 ms with this number of requests, before the end of a window.
    fn check(&mut self, requests: u64) {
        let window = std::mem::replace(&mut self.requests, requests);
        self.learn(10_000_000, self.feedback.ended_ns);
        self.requests = window;
    }

    /// A window; the estimate of polling is 10 us without what was learnt, and half more is allowed, at least 20 us.
    fn window(&mut self) {
        self.learn(WINDOW_NS, self.now_ns + WINDOW_NS - 1);
    }

    fn learn(&mut self, elapsed_ns: u64, ended_ns: u64) {
        self.now_ns += elapsed_ns;
        let us = 1_000.0;
        let waits_us = if self.feedback.polls() { 0.0 } else { self.waits_us };
        let has_all_cores = self.feedback.measures() || self.feedback.scale() > self.enough;
        let few = if has_all_cores { 0.0 } else { 1.0 };
        let bursts_us = if self.feedback.takes_all() || self.feedback.spreads() { 0.0 } else { self.bursts_us };
        let measured_ns = (self.base_us + few * self.measured_rise_us + bursts_us + waits_us) * us;
        let base_ns = 10.0 * us + self.feedback.unexplained_ns();
        let state = State {
            now_ns: self.now_ns,
            requests: self.requests,
            elapsed_ns,
            pauses: self.pauses,
            estimated_ns: base_ns + few * self.estimated_rise_us * us,
            base_ns,
            allowed_ns: base_ns + (0.5 * base_ns).max(20.0 * us),
            is_tail: true,
            can_wait: self.can_wait,
            saves_cores: self.bursts_us > 0.0 && !self.feedback.spreads(),
            load: 0.5,
        };
        let value = (self.requests > 0).then_some(measured_ns as u64);
        self.feedback.learn(Reading { id: ReadingId(0), value, age_ns: self.now_ns - ended_ns }, &state);
    }

    /// The number of windows, of this many, in which cores poll.
    fn polled(&mut self, windows: usize) -> usize {
        (0..windows)
            .map(|_| {
                usize::from({
                    self.window();
                    self.feedback.polls()
                })
            })
            .sum()
    }
}

#[test]
fn the_first_trial_measures_the_baseline_and_ends() {
    let mut bench = Bench::new();
    assert_eq!(bench.polled(100), WINDOWS + 1, "and the window after which it is decided");
    assert_eq!(bench.feedback.unexplained_ns(), 20_000.0);
}

#[test]
fn waits_that_exceed_the_tolerance_lead_to_polling_and_are_tried_again() {
    let mut bench = Bench { waits_us: 60.0, ..Bench::new() };
    assert!(bench.polled(100) > 90);
    let tries = 60 * 60 * 2;
    let waiting = tries - bench.polled(tries);
    assert!((8..60).contains(&waiting), "{waiting} windows in an hour");
}

#[test]
fn too_few_cores_are_not_blamed_on_the_waits() {
    let mut bench = Bench { estimated_rise_us: 15.0, measured_rise_us: 40.0, ..Bench::new() };
    bench.polled(2 * WINDOWS + 2);
    let polled = bench.polled(4 * WINDOWS);
    assert!(bench.feedback.scale() > 1.5, "{}", bench.feedback.scale());
    assert_eq!(polled, 0);
}

/// All cores, which wait, are cheaper than one that polls.
#[test]
fn bursts_that_no_estimate_knows_lead_to_all_cores_and_not_to_polling() {
    let mut bench = Bench { bursts_us: 60.0, estimated_rise_us: 2.0, ..Bench::new() };
    bench.polled(2 * WINDOWS + 1);
    assert!(bench.feedback.spreads());
    assert_eq!(bench.polled(100), 0);
    bench.requests /= 10;
    bench.polled(5);
    assert!(!bench.feedback.spreads(), "at another rate");
}

#[test]
fn what_helps_neither_with_all_cores_nor_with_polling_costs_neither() {
    let mut bench = Bench { bursts_us: 60.0, estimated_rise_us: 2.0, ..Bench::new() };
    bench.polled(2 * WINDOWS + 1);
    bench.base_us += 60.0; // since the baseline was measured
    bench.polled(WINDOWS);
    assert!(bench.feedback.polls());
    bench.base_us += 10.0;
    bench.polled(WINDOWS);
    assert!(!bench.feedback.polls() && !bench.feedback.spreads());
}

/// The polling of few cores was measured, so only their waits differ from it.
#[test]
fn waits_that_are_to_blame_lead_to_no_more_cores() {
    let mut bench = Bench { bursts_us: 1.0, estimated_rise_us: 1.0, waits_us: 60.0, ..Bench::new() };
    bench.polled(WINDOWS);
    assert!(bench.feedback.measures() && !bench.feedback.takes_all());
    bench.polled(WINDOWS + 1);
    assert!(bench.feedback.polls() && !bench.feedback.spreads());
}

/// Where cores cannot wait, all of them would poll.
#[test]
fn no_more_cores_are_taken_where_they_cannot_wait() {
    let mut bench = Bench { bursts_us: 60.0, estimated_rise_us: 2.0, can_wait: false, ..Bench::new() };
    assert!((0..100).all(|_| (bench.window(), !bench.feedback.spreads()).1));
}

/// Each time all cores poll for a trial, wait, and few poll.
#[test]
fn what_nothing_helps_is_tried_ever_less() {
    let mut bench = Bench { bursts_us: 1.0, estimated_rise_us: 2.0, ..Bench::new() };
    let mut trials = 0;
    for _ in 0..2 * 3_600 {
        let before = bench.feedback.measures();
        bench.base_us = if before { 30.0 } else { 130.0 };
        bench.window();
        trials += u32::from(bench.feedback.measures() && !before);
    }
    assert!((2..=7).contains(&trials), "{trials} in an hour");
}

#[test]
fn one_window_of_four_with_a_burst_changes_nothing() {
    let mut bench = Bench { waits_us: 2.0, ..Bench::new() };
    bench.polled(2 * WINDOWS + 1);
    for window in 0..200 {
        bench.base_us = if window % 4 == 2 { 130.0 } else { 30.0 };
        assert_eq!(bench.polled(1), 0);
        assert!(!bench.feedback.spreads());
    }
}

/// At 300 requests a second a window of half a second has 150.
#[test]
fn windows_of_few_requests_are_judged_together() {
    let mut bench = Bench { requests: 150, ..Bench::new() };
    bench.polled(2 * WINDOWS);
    assert!(bench.feedback.measures());
    let mut slow = Bench { requests: 40, ..Bench::new() };
    assert_eq!(slow.polled(1_000), 0, "a trial would not see its windows in time");
}

/// The rise is measured to be `measured_us` of the estimated 10 us, once it was far too high.
fn scale_after(measured_us: f64, minutes: usize) -> f64 {
    let mut bench = Bench { estimated_rise_us: 10.0, measured_rise_us: measured_us, ..Bench::new() };
    bench.waits_us = 0.0;
    bench.feedback.scale = 1.4;
    bench.polled(120 * minutes);
    bench.feedback.scale()
}

#[test]
fn the_scale_falls_to_what_was_measured_for_a_minute() {
    assert!((scale_after(8.0, 3) - 0.8 * SPARE).abs() < 1e-9, "{}", scale_after(8.0, 3));
    assert_eq!(scale_after(8.0, 0), 1.4);
    assert_eq!(scale_after(1.0, 3), SMALLEST_SCALE);
}

/// Before, too little of the allowed rise was estimated to say anything.
#[test]
fn the_minute_begins_with_the_first_rise_that_says_something() {
    let mut bench = Bench { estimated_rise_us: 1.0, measured_rise_us: 8.0, waits_us: 0.0, ..Bench::new() };
    bench.feedback.scale = 1.4;
    bench.polled(480);
    bench.estimated_rise_us = 10.0;
    bench.polled(100);
    assert_eq!(bench.feedback.scale(), 1.4);
    bench.polled(40);
    assert!(bench.feedback.scale() < 1.4);
}

#[test]
fn the_scale_does_not_fall_to_one_that_was_too_low_before() {
    let mut bench = Bench { estimated_rise_us: 15.0, measured_rise_us: 40.0, ..Bench::new() };
    bench.polled(4 * WINDOWS);
    assert!(bench.feedback.scale() > 1.5, "{}", bench.feedback.scale());
    (bench.estimated_rise_us, bench.measured_rise_us) = (20.0, 12.0);
    (bench.waits_us, bench.enough) = (0.0, f64::INFINITY);
    let before = bench.feedback.scale();
    bench.polled(1_200);
    let floor = bench.feedback.scale();
    assert!((0.95..before).contains(&floor), "{floor} of {before}");
    bench.requests *= 4;
    bench.polled(1_200);
    assert!(bench.feedback.scale() < 0.95, "{}: another load", bench.feedback.scale());
}

#[test]
fn another_rate_ends_polling() {
    let mut bench = Bench { waits_us: 60.0, ..Bench::new() };
    bench.polled(20);
    assert!(bench.feedback.polls());
    (bench.requests, bench.waits_us) = (30_000, 0.0);
    bench.polled(2);
    assert!(!bench.feedback.polls());
}

#[test]
fn there_is_at_most_one_trial_a_minute() {
    let mut bench = Bench::new();
    let mut measured = 0;
    for _ in 0..1_200 {
        // always a little above what is allowed, and each trial finds a baseline that allows it
        let known_us = 10.0 + bench.feedback.unexplained_ns() / 1_000.0;
        (bench.base_us, bench.waits_us) = (known_us + 2.0, (0.5 * known_us).max(20.0) - 1.0);
        bench.window();
        measured += usize::from(bench.feedback.measures());
    }
    assert!((1..=11 * WINDOWS).contains(&measured), "{measured} windows in ten minutes");
}

/// At 1 k requests a second some checks have none, and some twice as many as others.
#[test]
fn a_single_check_ends_neither_a_trial_nor_polling() {
    let mut bench = Bench { waits_us: 60.0, requests: 500, ..Bench::new() };
    bench.polled(WINDOWS);
    assert!(bench.feedback.measures());
    bench.check(0);
    assert!(bench.feedback.measures());
    bench.polled(WINDOWS + 2);
    assert!(bench.feedback.polls() && !bench.feedback.measures());
    for requests in [0, 25, 3, 10, 22, 0] {
        bench.check(requests);
        assert!(bench.feedback.polls(), "after a check with {requests}");
    }
}

#[test]
fn a_trial_without_readings_is_given_up() {
    let mut bench = Bench::new();
    bench.polled(WINDOWS);
    let checks = (0..10_000).take_while(|_| {
        bench.check(100);
        bench.feedback.measures()
    });
    assert_eq!(checks.count() as u64, LONGEST_TRIAL_NS / 10_000_000 - 1);
    // The next come after two minutes, then four: at most six in an hour, and each ends after ten seconds.
    let mut polled = 0;
    for _ in 0..2 * 3_600 {
        if bench.feedback.measures() {
            bench.feedback.changed();
        }
        bench.window();
        polled += u32::from(bench.feedback.measures());
    }
    assert!((20..=6 * 20).contains(&polled), "{polled} half seconds of an hour");
}

#[test]
fn where_more_cores_would_hardly_differ_those_in_use_measure_the_baseline() {
    for (estimated_us, takes_all) in [(1.0, false), (10.0, true)] {
        let mut bench = Bench { estimated_rise_us: estimated_us, ..Bench::new() };
        bench.polled(WINDOWS);
        assert!(bench.feedback.measures());
        assert_eq!(bench.feedback.takes_all(), takes_all, "{estimated_us} us");
    }
}

#[test]
fn nothing_is_tried_without_requests() {
    let mut bench = Bench::new();
    bench.polled(WINDOWS);
    assert!(bench.feedback.polls());
    bench.requests = 0;
    assert_eq!(bench.polled(50), 0);
}

/// It is known that pauses are long, so neither cores nor waits are blamed.
#[test]
fn pauses_that_are_too_long_end_and_nothing_else_is_learnt() {
    let mut bench = Bench::new();
    assert!(!bench.feedback.may_pause(bench.now_ns), "the baseline is not known");
    bench.polled(20);
    assert!(bench.feedback.may_pause(bench.now_ns), "waits suffice");
    (bench.pauses, bench.waits_us, bench.estimated_rise_us) = (true, 60.0, 10.0);
    let scale = bench.feedback.scale();
    assert_eq!(bench.polled(WINDOWS), 0);
    assert!(!bench.feedback.may_pause(bench.now_ns) && bench.feedback.scale() == scale);
    (bench.pauses, bench.waits_us) = (false, 5.0);
    let without = (0..1_000).take_while(|_| (bench.window(), !bench.feedback.may_pause(bench.now_ns)).1).count();
    assert!((110..130).contains(&without), "{without} windows, about a minute");
    bench.pauses = true;
    bench.polled(200);
    assert!(bench.feedback.may_pause(bench.now_ns), "short ones stay");
}
