//! Reports of two snapshots.

use pilotlight_nvmf_target::FailureCount;
use pilotlight_plant::Depth;
use pilotlight_reactor::Histogram;
use proptest::prelude::*;

use super::*;

fn facts() -> ServerFacts {
    ServerFacts {
        version: String::new(),
        pid: 1,
        uptime_ns: 0,
        listening: Vec::new(),
        test_mode: false,
        sleep_after: "never".to_owned(),
    }
}

/// A snapshot after `seconds`, of a server whose every counter grew by `each` a second.
fn snapshot(seconds: u64, each: u64) -> Snapshot {
    let value = seconds * each;
    let mut reactor = none_yet();
    (reactor.busy_ns, reactor.cpu_ns, reactor.loops) = (value, 2 * value, value);
    reactor.asleep[1] = SleepStats { ns: value, wakes: value, ..SleepStats::default() };
    reactor.state = CoreState::Asleep(Depth::SoftwareWait);
    let mut stats = ServerStats::default();
    stats.totals.reads = value;
    stats.totals.read_bytes = 4096 * value;
    stats.totals.connections = 7;
    stats.runtime.reactors = vec![none_yet(), reactor];
    stats.power_states = vec![(3, 0), (4, 2)];
    Snapshot { uptime_ns: seconds * 1_000_000_000, stats }
}

fn measured(before: &Snapshot, now: &Snapshot) -> Report {
    let at = Reactors::pinned(&[4, 6], 4, &[vec![4, 6]]);
    report(before, now, facts(), policy(&PolicyChoice::default(), View::new()), &at)
}

#[test]
fn rates_and_percentages_are_of_the_window_alone() {
    let report = measured(&snapshot(10, 5_000_000), &snapshot(12, 5_000_000));
    assert_eq!((report.io.iops, report.io.read_bytes_per_s), (5e6, 4096.0 * 5e6));
    assert_eq!(report.io.connections, 7);
    assert_eq!(report.power_states[1], PowerStateReport { controller: 4, power_state: 2 });
    let reactor = &report.reactors[1];
    assert_eq!((reactor.busy_percent, reactor.scheduled_percent), (0.5, Some(1.0)));
    assert_eq!(reactor.asleep_percent["software-wait"], 0.5);
    assert_eq!((reactor.state.as_str(), reactor.core, reactor.sibling), ("software-wait", Some(6), Some(0)));
    assert_eq!((report.reactors[0].main, report.reactors[0].scheduled_percent), (true, None));
    assert_eq!(report.wake_ups[1].wakes, Count { in_window: 10_000_000, since_start: 60_000_000 });
}

#[test]
fn failures_are_counted_in_the_window_and_since_the_start() {
    let failed = |status, commands| FailureCount { status, cause: "", commands };
    let at = |nsid, counts| NamespaceFailures { nqn: "a".to_owned(), nsid, counts, by_operation: Default::default() };
    let (mut before, mut now) = (snapshot(1, 0), snapshot(2, 0));
    before.stats.failures = vec![at(1, vec![failed("Write Fault", 3)]), at(3, vec![failed("Write Fault", 7)])];
    let all = vec![failed("Write Fault", 5), failed("Capacity Exceeded", 1)];
    now.stats.failures = vec![at(1, all), at(2, vec![failed("Write Fault", 4)])];
    let counts: Vec<_> = measured(&before, &now)
        .failures
        .iter()
        .map(|it| (it.nsid, it.status.clone(), it.commands.in_window, it.commands.since_start))
        .collect();
    let expected = |nsid, status: &str, in_window, since| (nsid, status.to_owned(), in_window, since);
    assert_eq!(
        counts,
        [expected(1, "Write Fault", 2, 5), expected(1, "Capacity Exceeded", 1, 1), expected(2, "Write Fault", 4, 4)]
    );
}

#[test]
fn the_first_window_starts_at_zero() {
    let report = measured(&Snapshot::default(), &snapshot(2, 1_000));
    assert_eq!((report.window_ns, report.io.iops, report.reactors[1].loops_per_s), (2_000_000_000, 1e3, 1e3));
}

#[test]
fn latencies_are_those_of_the_window() {
    let (histogram, mut before, mut now) = (Histogram::default(), snapshot(1, 0), snapshot(2, 0));
    let thread = |histogram: &Histogram| TargetThreadStats { latency: histogram.snapshot(), ..Default::default() };
    histogram.record(1_000_000, 1_000);
    before.stats.threads = vec![thread(&histogram)];
    histogram.record(100, 99);
    histogram.record(120, 1);
    now.stats.threads = vec![thread(&histogram), thread(&histogram)];
    let latency = measured(&before, &now).io.latency;
    assert_eq!(latency.count, 1_200, "another I/O thread counts from its start");
    now.stats.threads.pop();
    let expected = Distribution { count: 100, p50_ns: 100, p99_ns: 100, p99_9_ns: 120, max_ns: 120 };
    assert_eq!(measured(&before, &now).io.latency, expected);
}

#[test]
fn set_parameters_are_marked() {
    let parameters = vec![("window".to_owned(), "64".to_owned())];
    let report = policy(&PolicyChoice { parameters, ..PolicyChoice::default() }, vec![("cores awake", "1".to_owned())]);
    let set: Vec<_> = report.parameters.iter().filter(|parameter| parameter.is_set).collect();
    assert_eq!((set.len(), set[0].key.as_str(), set[0].value.as_str()), (1, "window", "64"));
    assert_eq!(report.view[0].value, "1");
}

proptest! {
    /// Regardless of the delay between readings of the clocks and of parts that began before the window.
    #[test]
    fn shares_are_from_0_to_100_and_no_more_together(
        ns in 1..u64::MAX / 8,
        before_ns in prop::array::uniform4(0..u64::MAX / 8),
        parts_ns in prop::array::uniform4(0..u64::MAX / 8),
    ) {
        let now_ns = std::array::from_fn(|part| before_ns[part] + parts_ns[part]);
        let shares = Window { ns }.shares(before_ns, now_ns);
        prop_assert!(shares.iter().all(|share| (0.0..=100.0).contains(share)), "{:?}", shares);
        prop_assert!(shares.iter().sum::<f64>() <= 100.03, "{:?}", shares); // each is rounded
        if parts_ns.iter().sum::<u64>() <= ns {
            let expected = |part: usize| rounded(parts_ns[part] as f64 * 100.0 / ns as f64);
            prop_assert_eq!(shares, [0, 1, 2, 3].map(expected));
        }
    }
}
