//! What a trace says is what drives get, when it says so.

mod support;

use pilotlight_sim::run_replay;
use pilotlight_sim::scenario::{Arrival, Kind, Scenario, Traced};
use support::{policy, scenario};

fn traced(depth: u32) -> Scenario {
    let mut scenario = scenario(2, 2, 0.0, 10_000_000, 1);
    for connection in &mut scenario.workload.connections {
        connection.request = Kind::Traced;
        connection.depth = depth;
    }
    scenario
}

fn arrivals(every_ns: u64) -> impl Iterator<Item = Arrival> {
    (0..100).map(move |index| {
        let what = Traced { drive: (index % 2) as u16, write: index % 4 == 0, offset: index * 4_096, bytes: 4_096 };
        Arrival { at_ns: index * every_ns, connection: (index % 2) as u32, what }
    })
}

#[test]
fn every_request_of_a_trace_is_answered() {
    let outcome = run_replay(&traced(u32::MAX), policy("static", &[]), Box::new(arrivals(50_000))).unwrap();
    assert_eq!((outcome.requests.issued, outcome.requests.answered), (100, 100));
    // 75 reads and 25 writes of 4 KiB, above what the drives need without load.
    let machine = support::machine();
    let moved_nj = 75 * machine.power.read_4k_nj + 25 * machine.power.write_4k_nj;
    let idle_uj = machine.power.drives_idle_uw * 10_000_000 / 1_000_000_000;
    assert!(outcome.energy.drives_uj.abs_diff(idle_uj + moved_nj / 1_000) <= 2, "{:?}", outcome.energy);
}

#[test]
fn depth_makes_a_replay_dependent() {
    let at_once = |depth| run_replay(&traced(depth), policy("static", &[]), Box::new(arrivals(0))).unwrap();
    let (open, one) = (at_once(u32::MAX), at_once(1));
    assert_eq!(open.requests.answered, 100);
    assert_eq!(one.requests.answered, 100);
    // One at a time, 50 requests on each connection: what waits at the host is no part of a request's latency.
    let last = |outcome: &pilotlight_sim::outcome::Outcome| outcome.latency[0].1.max();
    assert!(last(&one) < last(&open), "{} {}", last(&one), last(&open));
}
