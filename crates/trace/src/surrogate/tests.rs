//! Marginals and determinism of surrogates.

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
    for (family, seed) in [(Family::alibaba(), 1), (Family::alibaba(), 2), (Family::tencent(), 3)] {
        let marginals = family.marginals;
        let member = Member { mean_iops: 400.0, ..family.member(seed) };
        let found = summary(&member, seed, 1800 * S);
        let within = |found: f64, published: f64, part: f64| (found / published - 1.0).abs() <= part;
        assert!(within(found.read_share.unwrap(), marginals.read_share, 0.01), "{found:?}");
        let (reads, writes) = (found.read_sizes.unwrap(), found.write_sizes.unwrap());
        assert!(within(reads.quartile3_bytes.into(), marginals.read_quartile3_bytes.into(), 0.03), "{reads:?}");
        assert!(within(writes.quartile3_bytes.into(), marginals.write_quartile3_bytes.into(), 0.03), "{writes:?}");
        println!("{seed}: {member:?}\n{:?}", found.bursts);
        assert!(within(found.bursts.max_per_window as f64, 82.0, 0.03), "{:?}", found.bursts);
        assert_eq!(found.volumes.volumes, 128);
    }
}

#[test]
fn requests_depend_on_the_seed() {
    let member = Member { mean_iops: 2000.0, ..Family::alibaba().member(7) };
    let first = |seed| Generator::new(&member, seed, 20 * S).collect::<Vec<Request>>();
    let one = first(7);
    assert!(one.len() > 20_000 && one.is_sorted_by_key(|request| request.at_ns));
    assert_eq!(one, first(7));
    assert_ne!(one, first(8));
    assert_ne!(Family::alibaba().member(7), Family::alibaba().member(8));
    assert!(one.iter().all(|r| r.offset + u64::from(r.bytes) <= member.volume_bytes && r.at_ns < 20 * S));
}

#[test]
fn seeking_gives_the_same_requests() {
    for seed in 0..3 {
        let member = Member { mean_iops: 300.0, ..Family::tencent().member(seed) };
        let all: Vec<Request> = Generator::new(&member, seed, 90 * S).collect();
        let mut generator = Generator::new(&member, seed, 90 * S);
        for from_ns in [0, 1, 3 * S + 7, 3 * S + 8, 40 * S, 89 * S + S / 2, 95 * S] {
            generator.seek(from_ns);
            let expected: Vec<Request> = all.iter().copied().filter(|request| request.at_ns >= from_ns).collect();
            let found: Vec<Request> = generator.clone().collect();
            assert!(found == expected, "seed {seed} from {from_ns} ns: {} of {}", found.len(), expected.len());
            // advance, so that quiet volumes are far ahead at the next seek
            (0..500).for_each(|_| {
                let _ = generator.next();
            });
        }
    }
}

#[test]
fn expected_loads_are_those_of_the_requests() {
    let member = Member { mean_iops: 2000.0, batch: 2.0, ..Family::alibaba().member(5) };
    let (span, width) = (1800 * S, 7 * S);
    let expected = Generator::expected_loads(&member, 5, span, width);
    let mut counts = vec![0_u64; expected.len()];
    Generator::new(&member, 5, span).for_each(|request| counts[(request.at_ns / width) as usize] += 1);
    let (mut squares, mut most) = (0.0, 0.0_f64);
    for (&count, &load) in counts.iter().zip(&expected) {
        // batches of a geometric size of mean b: variance over mean is 2 b - 1
        let z = (count as f64 - load) / (3.0 * load).sqrt();
        squares += z * z;
        most = most.max(z.abs());
    }
    let spread = squares / counts.len() as f64;
    assert!(most < 5.0 && (0.7..1.3).contains(&spread), "{most} {spread}");
    let peak = expected.iter().copied().fold(0.0, f64::max) / (2000.0 * 7.0);
    assert!(peak > 1.5, "includes bursts: {peak}");
}

#[test]
fn batches_do_not_reduce_the_mean_rate() {
    for (mean_iops, seconds) in [(300.0, 600), (100_000.0, 5)] {
        let member = Member { batch: 4.0, volumes: 1, mean_iops, ..plain() };
        let found = summary(&member, 8, seconds * S).mean_rate_iops.unwrap();
        let deviation = (7.0 * mean_iops / seconds as f64).sqrt();
        assert!((found - mean_iops).abs() < 4.0 * deviation + 0.002 * mean_iops, "{found}");
    }
}

/// A member without variation, bursts and batches: a Poisson process.
fn plain() -> Member {
    let mut member = Family::alibaba().member(1);
    member.marginals.max_bursts = 0;
    Member { modulation: 0.0, diurnal: 0.0, batch: 1.0, volume_skew: 1.0, mean_iops: 5000.0, ..member }
}

#[test]
fn without_variation_it_is_a_poisson_process_with_zipf_rates() {
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
fn load_varies_more_with_a_larger_hurst_parameter() {
    let swinging = |hurst| Member { hurst, modulation: 0.35, mean_iops: 200.0, volumes: 1, ..plain() };
    let slow_over_fast = |hurst| {
        let windows = summary(&swinging(hurst), 3, 7200 * S).windows;
        windows[5].dispersion.unwrap() / windows[3].dispersion.unwrap() // 60 s over 1 s
    };
    let (weak, strong) = (slow_over_fast(0.55), slow_over_fast(0.95));
    assert!(strong > weak && weak > 1.0, "{strong} {weak}");
}

#[test]
fn batches_have_the_configured_mean() {
    let member = Member { batch: 3.0, volumes: 1, mean_iops: 1000.0, ..plain() };
    let found = summary(&member, 3, 60 * S);
    assert!((found.mean_rate_iops.unwrap() - 1000.0).abs() < 60.0, "{:?}", found.mean_rate_iops);
    // of a Poisson process of batches with geometric sizes of mean b: variance over mean = 2 b - 1
    let dispersion = found.windows[2].dispersion.unwrap();
    assert!((dispersion - 5.0).abs() < 1.2, "{dispersion}");
}
