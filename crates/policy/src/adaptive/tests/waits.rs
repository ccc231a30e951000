//! How cores wait: within the tolerance, and while the baseline is measured.

use super::*;

#[test]
fn a_trial_of_polling_on_all_cores_gives_them_back() {
    let mut bench = Bench::new(6, None);
    bench.p99_ns = Some(30_000);
    bench.run(20_000, 1_000);
    assert_eq!(bench.cores(), 1);
    let measures = |bench: &Bench| bench.policy.running.as_ref().is_some_and(|running| running.feedback.measures());
    let (mut tried, mut all) = (0, 0);
    for _ in 0..1_000 {
        bench.run(20_000, 10);
        tried += u32::from(measures(&bench));
        all += u32::from(bench.cores() == 6);
    }
    assert!((150..350).contains(&tried), "{tried} checks of a trial");
    assert!(all < tried + 20, "{all} checks with all cores, {tried} of them in the trial");
    let hold = bench.policy.running.as_ref().map(|running| running.hold.length_ns);
    assert_eq!(hold, Some(Parameters::default().hold_ns), "a trial says nothing about the load");
}

/// A core that polls costs more than one that waits: those of a long hold do not.
#[test]
fn where_waits_exceed_the_tolerance_only_the_cores_poll_that_the_load_needs() {
    let mut bench = Bench::new(6, None);
    bench.run(20_000, 1_000);
    for _ in 0..20 {
        bench.sample(20_000, 5_000_000, Some(LongRound { core: CoreId(0), round_ns: 5_000_000 }));
        bench.run(20_000, 3_000);
    }
    let polls =
        |bench: &Bench| bench.policy.running.as_ref().is_some_and(|running| running.mode == CompletionMode::Poll);
    let with_few = (0..6_000).filter(|_| {
        bench.p99_ns = Some(if polls(&bench) { 30_000 } else { 130_000 });
        bench.run(20_000, 10);
        polls(&bench) && bench.cores() == 1
    });
    let with_few = with_few.count();
    assert!(with_few > 3_000, "in {with_few} of 6,000 checks one core polls");
}

#[test]
fn cores_that_poll_for_the_tolerance_wait_again_when_the_load_ends() {
    let mut bench = Bench::new(6, None);
    let mode = |bench: &Bench| bench.policy.running.as_ref().map(|running| running.mode);
    for _ in 0..2_000 {
        bench.p99_ns = Some(if mode(&bench) == Some(CompletionMode::Poll) { 30_000 } else { 130_000 });
        bench.run(20_000, 10);
    }
    assert_eq!(mode(&bench), Some(CompletionMode::Poll));
    bench.p99_ns = None;
    bench.run(0, 10_000);
    assert_eq!((mode(&bench), bench.next.needed_ns), (Some(CompletionMode::Interrupt), NEVER));
}

/// Four times the allowed rise, but not of a core without a limit.
#[test]
fn waits_are_longer_where_more_is_allowed() {
    let wait_us = |of: Bound| {
        let mut bench = Bench::with(6, Some(Tolerance { bound: of, ..bound(Stat::P99, 0) }), |_| ());
        bench.run(9_000, 1_000);
        bench.next.wait_ns / 1_000
    };
    assert_eq!([0.1, 0.5].map(|loss| wait_us(Bound::LossPpm((loss * 1e6) as u32))), [150; 2]);
    let [some, much] = [2, 10].map(|times| wait_us(Bound::LossPpm(times * 1_000_000)));
    assert!(some > 250 && some < 400 && much == NEVER / 1_000, "{some} and {much} us");
    let mut saturated = Bench::new(1, None);
    saturated.run(400_000, 1_000);
    assert_eq!(saturated.next.wait_ns, Parameters::default().wait_ns);
    assert!((160..200).contains(&wait_us(Bound::LatencyNs(60_000))), "{} us", wait_us(Bound::LatencyNs(60_000)));
}

#[test]
fn waits_are_short_under_load_and_without_end_without_it() {
    let mut bench = Bench::new(6, None);
    bench.run(10_000, 1_000);
    assert_eq!((bench.next.idle_timeout_ns, bench.next.wait_ns), (0, Parameters::default().wait_ns));
    bench.run(0, 1_500);
    assert_eq!((bench.next.needed_ns, bench.next.idle_timeout_ns, bench.next.wait_ns), (NEVER, 0, NEVER));
    assert!(bench.modes.iter().all(|mode| *mode == CompletionMode::Interrupt));
}

/// Where gaps are short anyway, a limit would cost more than it saves; and no wait has one because of a core that has nothing to do.
#[test]
fn waits_have_no_limit_where_requests_are_frequent() {
    let wait_ns = |rate| {
        let mut bench = Bench::new(6, None);
        bench.run(rate, 1_000);
        assert_eq!(bench.cores(), 1);
        bench.next.wait_ns
    };
    assert_eq!([15_000, 30_000].map(wait_ns), [Parameters::default().wait_ns, NEVER]);
}

/// As long as what is left of the tolerance allows, where more than one request comes meanwhile, once the baseline is known.
#[test]
fn cores_pause_where_requests_come_together() {
    let of = |threads, rate, ppm| {
        let mut bench = Bench::new(threads, Some(ppm));
        bench.p99_ns = Some(60_000);
        bench.run(rate, 150);
        assert_eq!(bench.next.pause_ns, 0, "the baseline is not known");
        bench.run(rate, 20_000);
        (bench.cores(), bench.next.pause_ns / 1_000)
    };
    let pause_us = |rate, ppm| of(1, rate, ppm).1;
    assert_eq!([10_000, 30_000].map(|rate| pause_us(rate, 500_000)), [0, 0], "one request at most");
    let some = pause_us(70_000, 500_000);
    assert!((20..50).contains(&some), "{some} us");
    assert_eq!([0, 3_000_000].map(|ppm| pause_us(70_000, ppm)), [0, 50], "by the tolerance");
    assert_eq!(
        [100_000, 400_000].map(|rate| pause_us(rate, 3_000_000)),
        [0, 0],
        "requests come together by themselves"
    );
    // what fewer cores take of the tolerance is not left
    let (cores, less) = of(6, 130_000, 1_000_000);
    assert!(cores < 6 && less > 0 && less < pause_us(70_000, 1_000_000), "{cores} {less}");
}

/// A plant whose cores only poll or sleep.
#[test]
fn the_baseline_is_measured_where_cores_cannot_wait() {
    let mut bench = Bench::with(6, None, |plant| plant.interrupts = false);
    bench.p99_ns = Some(30_000);
    bench.run(20_000, 1_000);
    assert_eq!(bench.cores(), 1);
    let measures = |bench: &Bench| bench.policy.running.as_ref().is_some_and(|running| running.feedback.measures());
    let tried = (0..1_000).filter(|_| (bench.run(20_000, 10), measures(&bench) && bench.cores() == 6).1).count();
    assert!((150..350).contains(&tried), "{tried} checks of a trial");
    assert_eq!(bench.cores(), 1);
}

/// On a plant whose cores only poll it would take all of them.
#[test]
fn under_a_budget_no_baseline_is_measured() {
    let mut bench = Bench::with(6, None, |plant| plant.interrupts = false);
    bench.budget(Some(400_000_000));
    bench.p99_ns = Some(30_000);
    bench.run(20_000, 100);
    let most = (0..1_000).map(|_| (bench.run(20_000, 10), bench.cores()).1).max();
    assert_eq!(most, Some(1));
}
