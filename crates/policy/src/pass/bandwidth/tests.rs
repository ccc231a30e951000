//! Caps on the bandwidth of namespaces and hosts, by class.

use pilotlight_plant::{Cost, Knob, Values};

use super::*;
use crate::pass::profile::Profile;

const MIB: f64 = 1_048_576.0;
/// One watt of reads.
const WATT: f64 = 1_000.0 * MIB;

/// Two namespaces and a host, on two drives.
fn bandwidth(priorities: &[(Scope, u8)]) -> Bandwidth {
    bandwidth_of(1, priorities)
}

fn plant(namespaces: u32, hosts: u32) -> Capabilities {
    let knob = |scope| Knob {
        scope,
        kind: Kind::BytesPerS,
        values: Values::Range { min: 1, max: u64::MAX, step: 1 },
        initial: u64::MAX,
        caller: Cost::Measured(0),
        effect: Cost::Measured(0),
    };
    let knobs = (0..namespaces).map(Scope::Namespace).chain((0..hosts).map(Scope::Host)).map(knob).collect();
    Capabilities { knobs, ..Capabilities::default() }
}

fn bandwidth_of(hosts: u32, priorities: &[(Scope, u8)]) -> Bandwidth {
    let ssd = SsdModel { drives: 2, ..Profile::named("pass-xeon-gold-6430").unwrap().ssd };
    let mut bandwidth = Bandwidth::new(ssd);
    let goals = Goals { priorities: priorities.to_vec(), ..Goals::default() };
    bandwidth.start(&plant(2, hosts), &goals);
    bandwidth
}

fn reads(bytes: &[f64]) -> Vec<Rate> {
    bytes.iter().map(|&read| Rate { read, written: 0.0 }).collect()
}

fn caps(bandwidth: &Bandwidth) -> Vec<Option<i64>> {
    bandwidth.items.iter().map(|item| bandwidth.cap_of(item).map(|cap| (cap / MIB).round() as i64)).collect()
}

#[test]
fn a_class_has_one_cap_that_does_not_limit_lighter_users() {
    let mut bandwidth = bandwidth(&[]);
    let rates = reads(&[5.0 * WATT, WATT]);
    assert!((bandwidth.power_uw(&rates) - 6e6).abs() < 1.0);
    let saved_uw = bandwidth.cut(3e6, &rates);
    assert!((saved_uw - 3e6).abs() < 1_000.0, "{saved_uw}");
    assert_eq!(caps(&bandwidth), [Some(2_000), Some(2_000)]);
    let used_uw = bandwidth.raise(1e6, &reads(&[2.0 * WATT, WATT]));
    assert_eq!((used_uw, caps(&bandwidth)), (1e6, vec![Some(3_000), Some(3_000)]), "only one of them can use it");
}

#[test]
fn a_class_is_capped_when_the_lower_one_is_at_the_floor_and_raised_before_it() {
    let mut bandwidth = bandwidth(&[(Scope::Namespace(1), 5)]);
    let rates = reads(&[2.0 * WATT, 2.0 * WATT]);
    bandwidth.cut(1.5e6, &rates);
    assert_eq!(caps(&bandwidth), [Some(500), None]);
    bandwidth.cut(1e6, &rates);
    assert_eq!(caps(&bandwidth), [Some(10), Some(1_490)], "10 MiB/s a drive");
    bandwidth.raise(0.4e6, &reads(&[10.0 * MIB, 1_490.0 * MIB]));
    assert_eq!(caps(&bandwidth), [Some(10), Some(1_890)]);
    let used_uw = bandwidth.raise(1e6, &reads(&[10.0 * MIB, 100.0 * MIB]));
    assert_eq!((used_uw, caps(&bandwidth)), (1e6, vec![Some(1_010), None]), "a cap that limits nothing is lifted");
}

#[test]
fn the_class_of_a_request_is_the_lower_one_of_its_host_and_its_namespace() {
    let mut bandwidth = bandwidth(&[(Scope::Namespace(0), 5), (Scope::Namespace(1), 5), (Scope::Host(0), 1)]);
    assert_eq!(bandwidth.items.len(), 3, "a configured host has its own cap");
    bandwidth.cut(0.5e6, &reads(&[WATT, WATT, WATT]));
    assert_eq!(caps(&bandwidth), [None, None, Some(500)]);
}

#[test]
fn a_namespace_that_is_not_named_has_the_class_of_its_hosts() {
    let mut bandwidth = bandwidth_of(2, &[(Scope::Host(0), 5), (Scope::Host(1), 1)]);
    let rates = reads(&[WATT, WATT, 1.5 * WATT, 0.5 * WATT]);
    bandwidth.cut(0.25e6, &rates);
    assert_eq!(caps(&bandwidth), [None, None, None, Some(250)], "the other host is not held back");
    bandwidth.cut(1e6, &rates);
    // 240 MiB/s of the other host, the rest of the first one: its 1,500 less 760.
    assert_eq!(caps(&bandwidth), [Some(740), Some(740), Some(740), Some(10)]);
}

#[test]
fn before_any_sample_each_host_may_use_the_full_bandwidth() {
    let mut bandwidth = bandwidth_of(2, &[(Scope::Host(0), 5), (Scope::Host(1), 1)]);
    bandwidth.limit(10e6);
    assert_eq!(caps(&bandwidth), [Some(1_800), Some(1_800), Some(1_800), Some(10)]);
}

#[test]
fn new_priorities_keep_lower_classes_at_the_floor() {
    let mut bandwidth = bandwidth(&[(Scope::Namespace(1), 5)]);
    bandwidth.cut(1e6, &reads(&[2.0 * WATT, 2.0 * WATT]));
    assert_eq!(caps(&bandwidth), [Some(1_000), None]);
    bandwidth.replace(&plant(2, 1), &Goals { priorities: vec![(Scope::Namespace(0), 7)], ..Goals::default() });
    assert_eq!(caps(&bandwidth), [Some(1_000), Some(10)]);
}

#[test]
fn namespaces_on_one_drive_have_half_of_its_floor_each() {
    let mut bandwidth = bandwidth(&[]);
    let mut plant = plant(2, 1);
    plant.drives = vec![(0, 3), (1, 3)];
    bandwidth.replace(&plant, &Goals::default());
    let rates = reads(&[2.0 * WATT, 2.0 * WATT]);
    assert!((bandwidth.available_uw(&rates) - 3.99e6).abs() < 1_000.0, "all but twice 5 MiB/s");
    bandwidth.cut(9e6, &rates);
    assert_eq!(caps(&bandwidth), [Some(5), Some(5)]);
    plant.drives = vec![(0, 3), (1, 0)];
    bandwidth.replace(&plant, &Goals::default());
    assert_eq!(caps(&bandwidth), [Some(10), Some(10)], "a drive for each");
}

#[test]
fn namespaces_that_share_a_drive_have_lower_floors() {
    let mut bandwidth = bandwidth(&[(Scope::Host(0), 0)]);
    let mut plant = plant(2, 1);
    let third = plant.knobs[0].clone();
    plant.knobs.push(Knob { scope: Scope::Namespace(2), ..third });
    plant.drives = vec![(0, 1), (1, 1), (2, 0)];
    bandwidth.replace(&plant, &Goals { priorities: vec![(Scope::Host(0), 0)], ..Goals::default() });
    bandwidth.cut(9e6, &reads(&[WATT, WATT, WATT, WATT]));
    assert_eq!(caps(&bandwidth), [Some(5), Some(5), Some(20), Some(10)], "the host has two drives");
}

#[test]
fn a_class_keeps_its_minimum() {
    let mut bandwidth = bandwidth(&[(Scope::Namespace(1), 5)]);
    let goals = |mib: u64| Goals {
        priorities: vec![(Scope::Namespace(1), 5)],
        minimums: vec![(0, mib << 20), (5, 1_000 << 20)],
        ..Goals::default()
    };
    bandwidth.replace(&plant(2, 1), &goals(200));
    let rates = reads(&[2.0 * WATT, 2.0 * WATT]);
    assert!((bandwidth.available_uw(&rates) - 2.8e6).abs() < 1_000.0);
    bandwidth.cut(9e6, &rates);
    assert_eq!(caps(&bandwidth), [Some(200), Some(1_000)]);
    bandwidth.replace(&plant(2, 1), &goals(300));
    assert_eq!(caps(&bandwidth), [Some(300), Some(1_000)], "a higher minimum holds at once");
}

#[test]
fn new_hosts_and_namespaces_change_no_cap() {
    let priorities = [(Scope::Namespace(1), 5), (Scope::Namespace(2), 5)];
    let mut bandwidth = bandwidth(&priorities);
    bandwidth.cut(3e6, &reads(&[2.0 * WATT, 2.0 * WATT]));
    let before = caps(&bandwidth);
    assert!(before[0] < before[1] && before[1].is_some(), "both classes are capped: {before:?}");
    let goals = Goals { priorities: priorities.to_vec(), ..Goals::default() };
    bandwidth.replace(&plant(2, 2), &goals);
    assert_eq!(caps(&bandwidth), before, "a host");
    bandwidth.replace(&plant(3, 2), &goals);
    assert_eq!(caps(&bandwidth), [Some(7), before[1], before[1]], "a namespace; three share the floor");
}

#[test]
fn before_any_sample_drives_are_assumed_to_write_at_full_speed() {
    let mut bandwidth = bandwidth(&[]);
    assert_eq!(bandwidth.most_uw().round(), 20e6);
    bandwidth.limit(20e6);
    assert!(!bandwidth.is_capped());
    for _ in 0..2 {
        bandwidth.limit(10e6);
        assert_eq!(caps(&bandwidth), [Some(1_800), Some(1_800)], "a limit that holds changes nothing");
    }
}
