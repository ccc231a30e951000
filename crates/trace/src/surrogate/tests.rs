//! The published marginals hold, and the same seed gives the same bytes.

use super::*;
use crate::request::Request;
use crate::stats::{Stats, Summary};

const S: u64 = 1_000_000_000;

fn summary(member: &Member, seed: u64, span_ns: u64) -> Summary {
    let mut stats = Stats::default();
    Generator::new(member, seed, span_ns).for_each(|request| stats.add(&request));
    stats.summary()
}

#[test]
fn published_marginals_hold_for_every_member() {
    for (family, seed) in
        [(Family::alibaba(), 1), (Family::alibaba(), 2), (Family::tencent(), 3), (Family::tencent(), 4)]
    {
        let marginals = family.marginals;
        let member = Member { mean_iops: 150.0, ..family.member(seed) };
        let found = summary(&member, seed, 1800 * S);
        let within = |found: f64, published: f64, part: f64| (found / published - 1.0).abs() <= part;
        assert!(within(found.read_share.unwrap(), marginals.read_share, 0.01), "{found:?}");
        let (reads, writes) = (found.read_sizes.unwrap(), found.write_sizes.unwrap());
        assert!(within(reads.quartile3_bytes.into(), marginals.read_quartile3_bytes.into(), 0.03), "{reads:?}");
        assert!(within(writes.quartile3_bytes.into(), marginals.write_quartile3_bytes.into(), 0.03), "{writes:?}");
        println!("{seed}: {member:?}\n{:?}", found.bursts);
        assert!(within(found.bursts.most_per_window as f64, 82.0, 0.10), "{:?}", found.bursts);
        assert_eq!(found.volumes.volumes, 128);
    }
}

#[test]
fn the_same_seed_gives_the_same_requests_and_another_others() {
    let member = Member { mean_iops: 2000.0, ..Family::alibaba().member(7) };
    let first = |seed| Generator::new(&member, seed, 20 * S).collect::<Vec<Request>>();
    let one = first(7);
    assert!(one.len() > 20_000 && one.is_sorted_by_key(|request| request.at_ns));
    assert_eq!(one, first(7));
    assert_ne!(one, first(8));
    assert_ne!(Family::alibaba().member(7), Family::alibaba().member(8));
    assert!(one.iter().all(|r| r.offset + u64::from(r.bytes) <= member.volume_bytes && r.at_ns < 20 * S));
}

/// A member without swings, bursts and batches, whose law is known.
fn plain() -> Member {
    let mut member = Family::alibaba().member(1);
    member.marginals.most_bursts = 0;
    Member { modulation: 0.0, diurnal: 0.0, batch: 1.0, volume_skew: 1.0, mean_iops: 5000.0, ..member }
}

#[test]
fn without_swings_it_is_a_poisson_process_with_zipfs_law() {
    let member = plain();
    let found = summary(&member, 5, 60 * S);
    let expected = 300_000.0_f64;
    assert!((found.requests as f64 - expected).abs() < 4.0 * expected.sqrt(), "{}", found.requests);
    let dispersion = found.windows[1].dispersion.unwrap(); // 10 ms, 6,000 windows
    assert!((dispersion - 1.0).abs() < 4.0 * (2.0 / 6000_f64).sqrt(), "{dispersion}");
    let harmonic: f64 = (1..=128).map(|rank| 1.0 / f64::from(rank)).sum();
    assert!((found.volumes.busiest_share.unwrap() * harmonic - 1.0).abs() < 0.02);
}

#[test]
fn load_swings_more_with_a_larger_hurst_parameter() {
    let swinging = |hurst| Member { hurst, modulation: 0.35, mean_iops: 500.0, volumes: 1, ..plain() };
    let slow_over_fast = |hurst| {
        let windows = summary(&swinging(hurst), 3, 7200 * S).windows;
        windows[5].dispersion.unwrap() / windows[3].dispersion.unwrap() // 60 s over 1 s
    };
    let (weak, strong) = (slow_over_fast(0.55), slow_over_fast(0.95));
    assert!(strong > weak && weak > 1.0, "{strong} {weak}");
}

#[test]
fn batches_are_as_long_as_asked() {
    let member = Member { batch: 3.0, volumes: 1, mean_iops: 1000.0, ..plain() };
    let found = summary(&member, 3, 60 * S);
    assert!((found.mean_rate_iops.unwrap() - 1000.0).abs() < 60.0, "{:?}", found.mean_rate_iops);
    // of a Poisson process of batches with geometric sizes of mean b: variance over mean = 2 b - 1
    let dispersion = found.windows[2].dispersion.unwrap();
    assert!((dispersion - 5.0).abs() < 1.2, "{dispersion}");
}
