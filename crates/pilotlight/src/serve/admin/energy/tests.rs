//! Energy of hosts by CPU time and bytes.

use super::*;
use crate::metrics::ZoneFacts;

fn user(host: &str) -> User {
    (host.to_owned(), "nqn.a".to_owned(), 1)
}

fn counters(cpu_s: &[u64], reads: &[&[(&str, u64)]]) -> Arc<Counters> {
    let counts = |reads: u64| {
        let mut counts = Counts { bytes: [reads * 4096, 0], ..Counts::default() };
        counts.requests[0] = reads;
        counts
    };
    let of_thread = |hosts: &&[(&str, u64)]| hosts.iter().map(|(host, reads)| (user(host), counts(*reads))).collect();
    let cpu_ns = cpu_s.iter().map(|s| s * 1_000_000_000).collect();
    Arc::new(Counters { cpu_ns, counts: reads.iter().map(of_thread).collect() })
}

/// A counter value after this time.
fn power(at_s: u64, energy_uj: u64) -> PowerFacts {
    let zone = ZoneFacts { name: "package 0".to_owned(), energy_uj, read_ns: at_s * 1_000_000_000, power_uw: None };
    PowerFacts { sensor: "rapl".to_owned(), zones: vec![zone], ..PowerFacts::default() }
}

#[test]
fn the_power_of_the_system_goes_by_bytes_too() {
    let mut state = State::default();
    let system = |at_s, energy_uj| {
        let mut power = power(at_s, energy_uj);
        power.zones[0].name = SYSTEM.to_owned();
        power
    };
    state.begin(&counters(&[0, 0], &[&[], &[]]), &system(1, 0));
    state.add(&counters(&[1, 1], &[&[("a", 100)], &[("b", 300)]]), &system(2, 80), Some(0), Idle::Unassigned);
    // 40 by CPU time, 20 each; 40 by bytes, 10 and 30
    assert_eq!(state.zones[SYSTEM].users_uj, BTreeMap::from([(user("a"), 30), (user("b"), 50)]));
}

#[test]
fn energy_above_idle_is_divided_by_served_requests() {
    let mut state = State::default();
    state.begin(&counters(&[0, 0, 0], &[&[], &[], &[]]), &power(1, 0));
    let now = counters(&[4, 2, 2], &[&[("a", 300), ("b", 100)], &[("b", 7)], &[]]);
    state.add(&now, &power(2, 90), Some(10), Idle::Unassigned);
    let zone = &state.zones["package 0"];
    // 80 of 8 s: thread 0 has 40 (a 30, b 10), thread 1 has 20; the 20 of thread 2 and 10 idle are unassigned
    assert_eq!(zone.users_uj, BTreeMap::from([(user("a"), 30), (user("b"), 30)]));
    assert_eq!(zone.unassigned_uj, 30);
    let quiet = counters(&[5, 3, 3], &[&[("a", 300), ("b", 100)], &[("b", 7)], &[]]);
    state.add(&quiet, &power(3, 101), Some(10), Idle::Unassigned);
    let zone = &state.zones["package 0"];
    assert_eq!(zone.users_uj.values().sum::<u64>() + zone.unassigned_uj, 101);
    assert_eq!(zone.unassigned_uj, 41, "no requests");
}

#[test]
fn idle_energy_is_of_the_time_that_a_reading_covers() {
    let mut state = State::default();
    state.begin(&counters(&[0], &[&[]]), &power(1, 5));
    // the sensor fails for a minute, of which 90 of 100 microwatts are idle power
    for second in 1..=60 {
        state.add(&counters(&[second], &[&[("a", second)]]), &power(1, 5), Some(90), Idle::Unassigned);
    }
    state.add(&counters(&[61], &[&[("a", 61)]]), &power(61, 6_005), Some(90), Idle::Unassigned);
    let zone = &state.zones["package 0"];
    assert_eq!((zone.users_uj.clone(), zone.unassigned_uj), (BTreeMap::from([(user("a"), 600)]), 5_405));
}
