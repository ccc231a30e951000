//! `detect = load`: which I/O threads have surged, by the time that cores were busy in a tick (SANDMAN section 5.3, Figure 11(a):
//! "+SC" without "+DQ").
//!
//! The rule is that of [`crate::dynamic`] with SPDK's limits, on ticks: a thread has surged if it is active, its core has other threads
//! too and is above the healthy threshold, until the remaining threads bring the core below it. A tick carries the busy times of threads
//! that had requests; during a burst all have.

use pilotlight_plant::{ThreadId, Tick};

use super::parameters::Parameters;
use super::plant_state::PlantState;
use crate::load::{Limits, Load};

/// From this load on a thread is active (SPDK's `load_limit`).
const ACTIVE_PPM: u64 = 200_000;
/// From this load on a core's threads delay each other (SPDK's `core_busy`).
const BUSY_PPM: u64 = 950_000;

/// Detects surges in single ticks, without state.
#[derive(Clone, Debug)]
pub struct ByLoad {
    limits: Limits,
    /// Kept to avoid allocation.
    loads: Vec<Load>,
}

impl ByLoad {
    /// For a plant with this number of cores.
    #[must_use]
    pub fn new(parameters: &Parameters, cores: usize) -> Self {
        let core_ppm = u64::from(parameters.healthy_ppm);
        Self { limits: Limits { core_ppm, busy_ppm: BUSY_PPM.max(core_ppm) }, loads: Vec::with_capacity(cores) }
    }

    /// Appends the threads that have surged, in the order of their numbers.
    pub fn on_tick(&mut self, tick: &Tick<'_>, plant_state: &PlantState, surged: &mut Vec<ThreadId>) {
        if tick.counts.is_empty() {
            return;
        }
        let empty = |core| Load { busy_ns: 0, idle_ns: tick.elapsed_ns, threads: u64::from(plant_state.owned(core)) };
        self.loads.clear();
        self.loads.extend(plant_state.topology().cores().map(empty));
        for count in tick.counts {
            let core = &mut self.loads[plant_state.home(count.thread).index()];
            let busy_ns = count.busy_ns.min(core.idle_ns);
            core.busy_ns += busy_ns;
            core.idle_ns -= busy_ns;
        }
        for count in tick.counts {
            let core = &mut self.loads[plant_state.home(count.thread).index()];
            if core.is_at_limit(&self.limits) && core.of_thread(count.busy_ns) >= ACTIVE_PPM {
                surged.push(count.thread);
                core.remove(count.busy_ns, &self.limits);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pilotlight_plant::{CoreId, CoreSample, CoreState, ThreadCount, Topology};

    use super::*;

    /// Threads that surge in a tick of 10 us with these busy times, all on the main core of two.
    fn surged(busy_ns: &[u64]) -> Vec<u16> {
        let topology = Topology::flat(2).unwrap();
        let cores = [CoreSample::new(CoreState::Awake); 2];
        let plant_state = PlantState::new(&topology, &cores, busy_ns.iter().map(|_| CoreId(0)));
        let count =
            |(thread, &busy_ns): (usize, &u64)| ThreadCount { thread: ThreadId(thread as u16), requests: 1, busy_ns };
        let counts: Vec<_> = busy_ns.iter().enumerate().filter(|(_, busy)| **busy > 0).map(count).collect();
        let mut found = Vec::new();
        let tick = Tick { now_ns: 10_000, elapsed_ns: 10_000, counts: &counts };
        ByLoad::new(&Parameters::printed(), 2).on_tick(&tick, &plant_state, &mut found);
        found.into_iter().map(|thread| thread.0).collect()
    }

    #[test]
    fn threads_leave_a_core_until_it_is_healthy() {
        assert!(surged(&[3_000, 3_000]).is_empty(), "healthy");
        assert_eq!(surged(&[2_000, 3_500, 3_500]), [0], "without the first it is healthy");
        assert_eq!(
            surged(&[3_500, 3_500, 3_000]),
            [0, 1],
            "overloaded: a thread that leaves frees nothing, the last stays"
        );
        assert!(surged(&[10_000]).is_empty(), "alone");
    }

    #[test]
    fn a_thread_with_little_load_stays() {
        assert_eq!(surged(&[10, 5_000, 3_200]), [1]);
    }
}
