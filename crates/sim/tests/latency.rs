//! Latency readings of a run include the idle time of cores.

mod support;

use pilotlight_conformance::latency::{Served, a_rest_is_part_of_the_latency};
use pilotlight_conformance::script::Board;
use pilotlight_plant::{Policy, Quantity, ReadingId, Scope, Stat};
use pilotlight_sim::engine::capabilities;
use pilotlight_sim::run;
use pilotlight_sim::scenario::{Rate, Scenario, Sensors};

const MS: u64 = 1_000_000;

/// One I/O thread, and a host that reads at depth 1.
struct Simulated;

impl Simulated {
    fn scenario() -> Scenario {
        let mut scenario = support::scenario(2, 1, 0.0, 2_000 * MS, 3);
        scenario.workload.connections.truncate(1);
        scenario.threads = 1;
        for connection in &mut scenario.workload.connections {
            connection.depth = 1;
            connection.phases.iter_mut().for_each(|phase| phase.rate = Rate::Unlimited);
        }
        scenario.sensors = Sensors { window_ns: 100 * MS, lag_ns: MS, silent: Vec::new(), meter: None };
        scenario
    }
}

impl Served for Simulated {
    fn interval_ns(&self) -> u64 {
        100 * MS
    }

    fn median(&self) -> ReadingId {
        let median = Quantity::LatencyNs(Stat::P50);
        capabilities(&Self::scenario()).find_source(Scope::Server, median).unwrap().0
    }

    fn rest_ns(&self) -> u32 {
        MS as u32
    }

    fn is_alone(&self) -> bool {
        true
    }

    fn run(&mut self, policy: Box<dyn Policy>, _board: &Board) {
        run(&Self::scenario(), policy).unwrap();
    }
}

#[test]
fn a_rest_of_the_core_is_part_of_the_latency() {
    a_rest_is_part_of_the_latency(&mut Simulated);
}
