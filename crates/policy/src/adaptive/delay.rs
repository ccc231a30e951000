//! Estimate of the mean or a percentile of latency in the server, from the load of its cores.
//!
//! *Problem.* How long requests would take if every core polled is not measured while some sleep, but the tolerance is relative to it.
//!
//! *Estimate.* A core is a queue with random arrivals and a service time of `s`, busy for a share `r` of the time (M/D/1). The mean of waiting and
//! service is `s + s r / (2 - 2 r)` (Pollaczek and Khinchine). The tail of its waiting time is exponential: `P(W > t) = r exp(-x t / s)`, and `x`
//! solves `r (exp(x) - 1) = x` (Cramér and Lundberg). So the 99th percentile is `s + s ln(100 r) / x`, or `s` if fewer than one request in a
//! hundred waits. At a low load a request finds at most one other, whose remaining time is uniform: `2 s - s / (100 r)`; the larger of both
//! counts. The median likewise, with 2 instead of 100.
//!
//! *Several cores.* The mean of all requests is that of the cores, each by its share of the work. A percentile is taken as that of the busiest core,
//! which is too much if few requests are on it.
//!
//! *Properties* (tests below): the mean is within 3 %, the 99th percentile within 15 % and the median within 25 % of a simulated queue from 5 to 90 %
//! load; grows with the load; no placement has less than the least.

use pilotlight_plant::Stat;

use super::placement::busiest;

/// The load from which on a queue is taken as saturated.
const SATURATED: f64 = 0.98;

/// This statistic of the time in a core of this load (0 to 1) with this service time, in nanoseconds.
pub(super) fn delay_ns(stat: Stat, service_ns: f64, load: f64) -> f64 {
    let one_in = match stat {
        _ if load >= SATURATED => return f64::INFINITY,
        Stat::Mean => return service_ns * (1.0 + load / (2.0 - 2.0 * load)),
        Stat::P50 => 2.0,
        Stat::P99 => 100.0,
    };
    let waits = (one_in * load).ln().max(0.0);
    if waits == 0.0 {
        return service_ns;
    }
    let rest_of_one = 1.0 - 1.0 / (one_in * load);
    service_ns * (1.0 + (waits / decay(load)).max(rest_of_one))
}

/// This statistic of all requests on cores of these loads.
pub(super) fn of_cores_ns(stat: Stat, service_ns: f64, loads: &[f64]) -> f64 {
    let sum: f64 = loads.iter().sum();
    if stat == Stat::Mean && sum > 0.0 {
        let of_core = |load: &f64| if *load > 0.0 { load / sum * delay_ns(stat, service_ns, *load) } else { 0.0 };
        return loads.iter().map(of_core).sum();
    }
    delay_ns(stat, service_ns, busiest(loads))
}

/// What any placement of threads of this load, the heaviest among them, has on this number of cores at least: the heaviest alone, the others even.
pub(super) fn least_ns(stat: Stat, service_ns: f64, (sum, heaviest): (f64, f64), cores: usize) -> f64 {
    let one = heaviest.max(sum / cores as f64).min(sum);
    let other = (sum - one) / (cores.max(2) - 1) as f64;
    if stat != Stat::Mean || sum <= 0.0 {
        return delay_ns(stat, service_ns, one);
    }
    let rest = if other > 0.0 { (sum - one) * delay_ns(stat, service_ns, other) } else { 0.0 };
    (one * delay_ns(stat, service_ns, one) + rest) / sum
}

/// The positive solution of `r (exp(x) - 1) = x`, by Newton's method from above, where the function is convex.
fn decay(load: f64) -> f64 {
    let mut x = 2.0 * (1.0 / load).ln() + 2.0 * (1.0 - load);
    for _ in 0..12 {
        let value = load * (x.exp() - 1.0) - x;
        x -= value / (load * x.exp() - 1.0);
    }
    x
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::SplitMix64;
    use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

    use super::*;

    /// A queue served in order, request by request.
    fn simulated_ns(stat: Stat, service_ns: f64, load: f64) -> f64 {
        let mut random = SplitMix64::seed_from_u64(3);
        let (mut now_ns, mut free_ns) = (0.0, 0.0_f64);
        let mut took: Vec<f64> = (0..400_000)
            .map(|_| {
                let uniform = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
                now_ns -= service_ns / load * (1.0 - uniform).ln();
                free_ns = free_ns.max(now_ns) + service_ns;
                free_ns - now_ns
            })
            .collect();
        took.sort_by(f64::total_cmp);
        match stat {
            Stat::Mean => took.iter().sum::<f64>() / took.len() as f64,
            Stat::P50 => took[took.len() / 2],
            Stat::P99 => took[took.len() / 100 * 99],
        }
    }

    #[test]
    fn it_is_that_of_a_simulated_queue() {
        for (stat, error) in [(Stat::Mean, 0.03), (Stat::P50, 0.25), (Stat::P99, 0.15)] {
            for percent in (5..=90).step_by(5) {
                let load = f64::from(percent) / 100.0;
                let ratio = delay_ns(stat, 9_000.0, load) / simulated_ns(stat, 9_000.0, load);
                assert!((ratio - 1.0).abs() < error, "{stat:?} at {percent} %: {ratio}");
            }
        }
    }

    #[test]
    fn it_grows_with_the_load_and_the_service_time() {
        for stat in [Stat::Mean, Stat::P50, Stat::P99] {
            let of = |percent: u32| delay_ns(stat, 9_000.0, f64::from(percent) / 100.0);
            assert!((0..99).all(|percent| of(percent) <= of(percent + 1)));
            assert_eq!((of(0), of(100)), (9_000.0, f64::INFINITY));
            assert!((delay_ns(stat, 18_000.0, 0.6) / delay_ns(stat, 9_000.0, 0.6) - 2.0).abs() < 1e-9);
        }
    }
}
