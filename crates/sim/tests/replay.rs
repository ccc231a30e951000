//! Drives receive a trace's requests at the trace's times.

mod support;

use pilotlight_sim::scenario::{Arrival, Kind, Scenario, Traced};
use pilotlight_sim::trace::{Record, RecordKind};
use pilotlight_sim::{run_replay, run_replay_traced};
use support::{policy, scenario};

fn traced(depth: u32) -> Scenario {
    traced_after(depth, None)
}

fn traced_after(depth: u32, service_ns: Option<u64>) -> Scenario {
    let mut scenario = scenario(2, 2, 0.0, 10_000_000, 1);
    for connection in &mut scenario.workload.connections {
        connection.request = Kind::Traced { service_ns };
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
    // 75 reads and 25 writes of 4 KiB, above the drives' idle energy.
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
    // Depth 1, 50 requests per connection: waiting at the host is not part of a request's latency.
    let last = |outcome: &pilotlight_sim::outcome::Outcome| outcome.latency[0].1.max();
    assert!(last(&one) < last(&open), "{} {}", last(&one), last(&open));
}

/// Dependent replay at depth 1: actual response times, gaps of the trace.
#[test]
fn a_dependent_replay_keeps_the_gaps_after_each_answer() {
    for (every_ns, service_ns) in [(50_000, 0), (50_000, 40_000), (50_000, 2_000_000), (1_000, 0), (300_000, 100_000)] {
        let mut trace = Vec::new();
        let scenario = traced_after(1, Some(service_ns));
        run_replay_traced(&scenario, policy("static", &[]), Box::new(arrivals(every_ns)), &mut trace).unwrap();
        let records = trace.as_chunks::<{ Record::BYTES }>().0.iter().map(|bytes| Record::decode(bytes).unwrap());
        let (mut expected, mut seen) = ([Some(0), Some(every_ns)], [0, 0]);
        for record in records {
            let connection = (record.a >> 40) as usize;
            match record.kind {
                RecordKind::Issued => {
                    assert_eq!(expected[connection].take(), Some(record.at_ns), "{every_ns} {service_ns}");
                    seen[connection] += 1;
                }
                RecordKind::Received => {
                    let gap_ns: u64 = 2 * every_ns; // two connections in turn
                    let due_ns = (2 * seen[connection] + connection as u64) * every_ns;
                    expected[connection] = Some(due_ns.max(record.at_ns + gap_ns.saturating_sub(service_ns)));
                }
                _ => {}
            }
        }
        assert!(seen[0] > 10 && seen[1] > 10, "{seen:?}");
    }
}

#[test]
fn unsent_requests_of_a_trace_make_it_saturated() {
    let run = |count: u64| {
        let arrivals = (0..count).flat_map(|_| arrivals(0));
        run_replay(&traced(1), policy("static", &[]), Box::new(arrivals)).unwrap()
    };
    assert!(!run(1).saturated);
    let late = run(50);
    assert!(late.saturated, "{} of 5000 were sent", late.requests.issued);
}
