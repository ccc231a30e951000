//! The simulated plant passes the conformance suite of all plants.

mod support;

use pilotlight_conformance::script::Board;
use pilotlight_conformance::{Plant, PolicyAndBoard, Setup, suite};
use pilotlight_plant::{Policy, Topology};
use pilotlight_sim::engine::run_in_turn;
use pilotlight_sim::machine::Limits;
use pilotlight_sim::run_traced;
use pilotlight_sim::scenario::{Phase, Rate, Scenario, Sensors, Workload};
use pilotlight_sim::trace::{Record, RecordKind};

const INTERVAL_NS: u64 = 100_000;
const FED_NS: u64 = 25_000_000;
/// Time of the first goals: just after the end of an interval.
const GOALS_NS: u64 = 5_001_000;

/// Three polling cores draw 342 W here, 313 W at the lowest frequency, 320 W with the minimum quota; one core draws 331 W.
const BUDGET_UW: u64 = 334_000_000;

struct Simulated;

fn scenario(setup: &Setup) -> Scenario {
    let mut scenario = support::scenario(setup.cores, 2, 0.0, 40_000_000, 1);
    scenario.topology = Topology::flat(setup.cores).unwrap();
    scenario.threads = setup.threads;
    let mut connections = support::connections(setup.fed.len() as u16, setup.threads, 2, 0.0);
    for (connection, &thread) in connections.iter_mut().zip(&setup.fed) {
        connection.thread = thread;
        connection.phases = vec![
            Phase { label: 0, length_ns: FED_NS, rate: Rate::PerSecond(100_000.0) },
            Phase { label: 0, length_ns: u64::MAX - FED_NS, rate: Rate::Off },
        ];
    }
    scenario.workload = Workload { connections, ..Workload::default() };
    scenario.machine.limits =
        Limits { quota_period_ns: 500_000, quota_slice_ns: 50_000, power_period_ns: 50_000, ..scenario.machine.limits };
    scenario.machine.director.fails_ppm = if setup.refuses { 1_000_000 } else { 0 };
    let silent = if setup.sensors_fail { vec![(FED_NS / 2, u64::MAX)] } else { Vec::new() };
    scenario.sensors = Sensors { window_ns: 500_000, lag_ns: 1_000_000, silent, meter: None };
    let at_ns = |nth: usize| GOALS_NS + nth as u64 * INTERVAL_NS / 10;
    scenario.goals = setup.goals.iter().enumerate().map(|(nth, goals)| (at_ns(nth), goals.clone())).collect();
    scenario
}

impl Plant for Simulated {
    fn interval_ns(&self) -> u64 {
        INTERVAL_NS
    }

    fn exchange(&mut self, setup: &Setup, first: PolicyAndBoard, second: PolicyAndBoard) {
        let policies = vec![(0, first.0), (Self::EXCHANGED_NS, second.0)];
        run_in_turn(&scenario(setup), policies, &mut std::io::sink()).unwrap();
    }

    fn budget_uw(&self) -> u64 {
        BUDGET_UW
    }

    fn run(&mut self, setup: &Setup, policy: Box<dyn Policy>, _board: &Board) -> Vec<u64> {
        let mut trace = Vec::new();
        run_traced(&scenario(setup), policy, &mut trace).unwrap();
        let mut fed = vec![0; usize::from(setup.threads)];
        let records = trace.as_chunks().0.iter().filter_map(Record::decode);
        for record in records.filter(|record| record.kind == RecordKind::Issued) {
            fed[usize::from(setup.fed[(record.a >> 40) as usize])] += 1;
        }
        fed
    }
}

impl Simulated {
    /// Time at which another policy takes over.
    const EXCHANGED_NS: u64 = 20_000_000;
}

suite!(Simulated);
