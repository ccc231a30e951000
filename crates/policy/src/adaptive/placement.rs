//! Which I/O threads share a core.
//!
//! *Problem.* Place threads of given loads on a given number of cores so that the busiest core is as little busy as can be, and few threads move.
//!
//! *Algorithm.* The heaviest thread first, each to the core with the least load so far (longest processing time first: at most a third above the best).
//! Of cores with equal loads, the thread's own, then the first in the order in which cores are woken: the main core, then pairs of siblings, so that whole
//! physical cores stay asleep (SANDMAN section 4.4.1).
//!
//! *Properties* (tests below): only the first cores are used; the busiest core's load is at most the mean plus the heaviest thread's.

use pilotlight_plant::{CoreId, Topology};

/// Cores in the order in which they are used.
pub(super) fn order(topology: &Topology) -> Vec<CoreId> {
    let mut order: Vec<CoreId> = Vec::with_capacity(topology.len());
    for core in [topology.main()].into_iter().chain(topology.workers()) {
        for next in [Some(core), topology.sibling(core)].into_iter().flatten() {
            if !order.contains(&next) {
                order.push(next);
            }
        }
    }
    order
}

/// The core of each thread on these cores, and their loads.
pub(super) fn place(loads: &[f64], homes: &[CoreId], cores: &[CoreId]) -> (Vec<CoreId>, Vec<f64>) {
    let mut by_load: Vec<usize> = (0..loads.len()).collect();
    by_load.sort_by(|&one, &other| loads[other].total_cmp(&loads[one]));
    let mut sums = vec![0.0; cores.len()];
    let mut placed = homes.to_vec();
    for thread in by_load {
        let home = cores.iter().position(|&core| core == homes[thread]);
        let mut best = 0;
        for (at, &sum) in sums.iter().enumerate().skip(1) {
            let is_home = Some(at) == home && Some(best) != home;
            if sum < sums[best] || sum == sums[best] && is_home {
                best = at;
            }
        }
        sums[best] += loads[thread].max(f64::EPSILON); // those without load are spread too
        placed[thread] = cores[best];
    }
    (placed, sums)
}

/// The load of each core.
pub(super) fn of_cores(loads: &[f64], homes: &[CoreId]) -> Vec<f64> {
    let cores = homes.iter().map(|core| core.index() + 1).max().unwrap_or(0);
    let mut sums = vec![0.0; cores];
    for (load, home) in loads.iter().zip(homes) {
        sums[home.index()] += load;
    }
    sums
}

/// The highest of these loads.
pub(super) fn busiest(loads: &[f64]) -> f64 {
    loads.iter().copied().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use pilotlight_plant::Stat;
    use proptest::prelude::*;

    use super::super::delay::{least_ns, of_cores_ns};
    use super::*;

    #[test]
    fn pairs_of_siblings_follow_the_main_core() {
        let order = |topology: Topology| order(&topology).into_iter().map(|core| core.0).collect::<Vec<_>>();
        assert_eq!(order(Topology::flat(4).unwrap()), [0, 1, 2, 3]);
        let paired = Topology::paired(6).unwrap();
        let pairs = order(paired.clone());
        assert_eq!(Some(CoreId(pairs[1])), paired.sibling(CoreId(pairs[0])));
        assert_eq!(Some(CoreId(pairs[3])), paired.sibling(CoreId(pairs[2])));
    }

    #[test]
    fn equal_threads_stay_where_they_can() {
        let cores = [0, 1, 2].map(CoreId);
        let placed = place(&[0.2; 3], &[CoreId(2), CoreId(0), CoreId(1)], &cores);
        assert_eq!(placed, (vec![CoreId(2), CoreId(0), CoreId(1)], vec![0.2; 3]));
    }

    #[test]
    fn a_heavy_thread_gets_a_core_to_itself() {
        let (placed, _) = place(&[0.1, 0.1, 0.7, 0.1], &[CoreId(0); 4], &[0, 1].map(CoreId));
        let alone = placed.iter().filter(|core| **core == placed[2]).count();
        assert_eq!(alone, 1, "{placed:?}");
    }

    proptest! {
        #[test]
        fn the_busiest_core_is_near_the_mean(loads in prop::collection::vec(0.0..0.4_f64, 1..24), cores in 1_u16..8, seed in 0_u16..8) {
            let homes: Vec<CoreId> = (0..loads.len() as u16).map(|thread| CoreId((thread * 5 + seed) % 8)).collect();
            let used: Vec<CoreId> = (0..cores).map(CoreId).collect();
            let (placed, sums) = place(&loads, &homes, &used);
            prop_assert!(placed.iter().all(|core| core.0 < cores));
            let (sum, heaviest) = (loads.iter().sum::<f64>(), loads.iter().copied().fold(0.0, f64::max));
            prop_assert!(busiest(&sums) <= sum / f64::from(cores) + heaviest + 1e-9);
            prop_assert!((busiest(&sums) - busiest(&of_cores(&loads, &placed))).abs() < 1e-9);
            for stat in [Stat::Mean, Stat::P99] {
                let least = least_ns(stat, 9_000.0, (sum, heaviest), used.len());
                prop_assert!(least <= of_cores_ns(stat, 9_000.0, &sums) * (1.0 + 1e-9), "{stat:?}: {least}");
                let with_more = least_ns(stat, 9_000.0, (sum, heaviest), used.len() + 1);
                prop_assert!(with_more <= least * (1.0 + 1e-9), "{stat:?}: {with_more} on one more");
            }
        }
    }
}
