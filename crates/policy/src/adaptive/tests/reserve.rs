//! How deep cores sleep, and which wake for a burst.

use super::*;

/// A plant whose cores can also wait for a store.
fn with_monitor(capabilities: &mut Capabilities) {
    let monitor = SleepCost { depth: Depth::MonitorWait, wake: Cost::Measured(3_000), ..capabilities.sleeps[0] };
    capabilities.sleeps.insert(0, monitor);
}

#[test]
fn as_many_cores_stay_shallow_as_a_burst_had_in_use() {
    let mut bench = Bench::with(6, None, with_monitor);
    let asleep = |bench: &Bench| [Depth::MonitorWait, Depth::SoftwareWait].map(|depth| bench.asleep(depth));
    bench.run(2_000, 1_000);
    assert_eq!((bench.cores(), asleep(&bench)), (1, [0, 5]), "no burst was seen");
    bench.run(200_000, 1_000);
    let burst = bench.cores();
    assert!((3..6).contains(&burst), "{burst}");
    bench.run(2_000, 1_000);
    assert_eq!((bench.cores(), asleep(&bench)), (1, [burst - 1, 6 - burst]));
    bench.run(2_000, 550_000);
    assert_eq!(asleep(&bench), [burst - 1, 6 - burst], "for ten minutes");
    bench.run(2_000, 650_000);
    assert_eq!(asleep(&bench), [0, 5], "after twenty");
}

#[test]
fn a_burst_of_a_known_size_waits_for_no_deep_core() {
    let mut bench = Bench::with(12, None, with_monitor);
    bench.run(200_000, 1_000);
    let burst = bench.cores();
    bench.run(2_000, 1_000);
    assert_eq!((bench.cores(), bench.asleep(Depth::SoftwareWait)), (1, 6 - burst));
    let long = LongRound { core: CoreId(0), round_ns: 80_000 };
    bench.sample(200_000, 100_000, Some(long));
    let most = (0..6).map(|core| bench.homes.iter().filter(|home| **home == CoreId(core)).count()).max();
    assert_eq!((bench.cores(), bench.asleep(Depth::SoftwareWait)), (burst, 6 - burst));
    assert_eq!(most, Some(12_usize.div_ceil(burst)), "spread evenly");
    bench.sample(400_000, 400_000, Some(long));
    assert!(bench.cores() > burst, "more than was seen before");
}

#[test]
fn a_server_that_rests_wakes_cores_once_to_let_them_sleep_deep() {
    let mut bench = Bench::with(6, None, with_monitor);
    bench.run(200_000, 1_000);
    bench.run(0, 2_000);
    let shallow = bench.asleep(Depth::MonitorWait);
    assert!(shallow > 0);
    let (mut wanted, before, woken) = (0, bench.now_ns, bench.woken);
    while bench.next.needed_ns < NEVER && wanted < 100 {
        let until_ns = bench.next.needed_ns.max(bench.now_ns + CHECK_NS);
        bench.sample(0, until_ns - bench.now_ns, None);
        wanted += 1;
    }
    assert_eq!((bench.asleep(Depth::SoftwareWait), bench.asleep(Depth::MonitorWait)), (5, 0));
    assert_eq!(bench.woken - woken, shallow, "each core once");
    assert!(wanted < 20 && bench.now_ns - before > 600_000_000_000, "{wanted} intervals");
}

#[test]
fn without_a_price_no_core_sleeps_deep() {
    let mut bench = Bench::with(6, None, |capabilities| {
        with_monitor(capabilities);
        capabilities.sources.retain(|source| source.quantity != Quantity::PowerUw);
    });
    bench.run(2_000, 1_000);
    assert_eq!(bench.asleep(Depth::MonitorWait), 5);
}
