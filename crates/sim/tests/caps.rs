//! Bandwidth caps in a run: each limits only its scope, and policies and results report it.

mod support;

use std::sync::{Arc, Mutex};

use pilotlight_conformance::cap_suite;
use pilotlight_conformance::caps::{Admitted, Storage};
use pilotlight_conformance::script::Board;
use pilotlight_plant::{
    Capabilities, Command, Kind, KnobId, Next, Policy, Quantity, Reading, ReadingId, Sample, Scope, Start, Stat,
    Unsupported, Wants,
};
use pilotlight_sim::engine::{capabilities, run_naive};
use pilotlight_sim::outcome::Outcome;
use pilotlight_sim::run;
use pilotlight_sim::scenario::{Kind as Request, Rate, Scenario, Sensors};

const MS: u64 = 1_000_000;
const DURATION_NS: u64 = 400 * MS;
const MIB: u64 = 1 << 20;

/// Sets caps at the start, and keeps the last readings.
struct Capper {
    caps: Vec<(Scope, u64)>,
    wanted: Vec<ReadingId>,
    last: Arc<Mutex<Vec<Reading>>>,
}

impl Policy for Capper {
    fn name(&self) -> &'static str {
        "capper"
    }

    fn wants(&self) -> Wants {
        Wants { interval_ns: Some(10 * MS), readings: self.wanted.clone(), ..Wants::default() }
    }

    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        let set = |&(of, value): &(Scope, u64)| {
            let knob = start.capabilities.find_knob(of, Kind::BytesPerS).unwrap().0;
            Command::Set { knob, value }
        };
        out.extend(self.caps.iter().map(set));
        self.wanted = (0..start.capabilities.sources.len() as u16).map(ReadingId).collect();
        Ok(Next::at(0))
    }

    fn on_interval(&mut self, sample: &Sample<'_>, _out: &mut Vec<Command>) -> Next {
        *self.last.lock().unwrap() = sample.readings.to_vec();
        Next::at(0)
    }
}

/// Four hosts that read 16 KiB, eight at a time; hosts 0 and 1 from drive 0, hosts 2 and 3 from drive 1.
fn scenario() -> Scenario {
    let mut scenario = support::scenario(4, 2, 0.0, DURATION_NS, 3);
    for (host, connection) in (0..).zip(&mut scenario.workload.connections) {
        connection.request = Request::Plain { writes_ppm: 0, bytes: 16_384, sequential: false };
        (connection.depth, connection.drives) = (8, (host / 2, 1));
        connection.phases = vec![pilotlight_sim::scenario::Phase { label: host as u8, ..connection.phases[0].clone() }];
        connection.phases[0].rate = Rate::Unlimited;
    }
    scenario.sensors = Sensors { window_ns: 100 * MS, lag_ns: MS, silent: Vec::new(), meter: None };
    scenario
}

struct RunResult {
    outcome: Outcome,
    capabilities: Capabilities,
    last: Vec<Reading>,
}

impl RunResult {
    /// MiB per second of each host.
    fn hosts(&self) -> Vec<u64> {
        let hosts = self.outcome.latency.iter();
        hosts.map(|(_, latency)| latency.count() * 16_384 * 1_000 / MIB / (DURATION_NS / MS)).collect()
    }

    fn reading(&self, scope: Scope, quantity: Quantity) -> u64 {
        let (id, _) = self.capabilities.find_source(scope, quantity).unwrap();
        self.last[id.index()].value.unwrap()
    }
}

/// Runs in both engines, which must agree.
fn capped(caps: &[(Scope, u64)]) -> RunResult {
    let scenario = scenario();
    let last = Arc::new(Mutex::new(Vec::new()));
    let policy = || Box::new(Capper { caps: caps.to_vec(), wanted: Vec::new(), last: Arc::clone(&last) });
    let outcome = run(&scenario, policy()).unwrap();
    let fast = last.lock().unwrap().clone();
    assert_eq!(outcome, run_naive(&scenario, policy(), &mut std::io::sink()).unwrap());
    assert_eq!(fast, *last.lock().unwrap(), "both engines read the same");
    RunResult { outcome, capabilities: capabilities(&scenario), last: fast }
}

#[test]
fn a_cap_limits_only_its_namespace() {
    let free = capped(&[]);
    let held = capped(&[(Scope::Namespace(0), 100 * MIB)]);
    let (before, after) = (free.hosts(), held.hosts());
    assert!(before.iter().all(|rate| *rate > 800), "{before:?}");
    assert!((98..=102).contains(&(after[0] + after[1])), "{after:?}");
    assert!(after[0].abs_diff(after[1]) <= 2, "hosts have equal parts: {after:?}");
    assert!(after[2] >= before[2] && after[3] >= before[3], "{before:?} and {after:?}");
    let both = capped(&[(Scope::Namespace(0), 100 * MIB), (Scope::Host(0), 20 * MIB)]).hosts();
    assert!(
        (19..=21).contains(&both[0]) && (78..=82).contains(&both[1]),
        "what one host may not use another does: {both:?}"
    );
}

#[test]
fn the_cap_wait_is_part_of_host_latency_and_reported_separately() {
    let (free, held) = (capped(&[]), capped(&[(Scope::Host(0), 20 * MIB)]));
    assert_eq!(free.outcome.cap_waits.count(), 0);
    let (waits, latency) = (&held.outcome.cap_waits, &held.outcome.latency[0].1);
    // Eight requests of 16 KiB at 20 MiB/s: 6.25 ms each.
    assert!((waits.mean() / 1e6 - 6.2).abs() < 0.3, "{} ns", waits.mean());
    assert!(latency.mean() > waits.mean() && latency.mean() < waits.mean() + 300_000.0, "{} ns", latency.mean());
    let mean = held.reading(Scope::Server, Quantity::LatencyNs(Stat::Mean));
    assert!(mean < 2 * MS / 10, "latencies of policies exclude it: {mean} ns");
}

#[test]
fn bandwidth_is_read_for_every_namespace_and_host() {
    let held = capped(&[(Scope::Namespace(0), 100 * MIB), (Scope::Host(0), 20 * MIB)]);
    let read = |of| held.reading(of, Quantity::ReadBytesPerS) / MIB;
    assert!((19..=21).contains(&read(Scope::Host(0))) && (78..=82).contains(&read(Scope::Host(1))));
    assert!((98..=102).contains(&read(Scope::Namespace(0))), "{}", read(Scope::Namespace(0)));
    assert!(read(Scope::Namespace(1)).abs_diff(held.hosts()[2] + held.hosts()[3]) < 100);
    assert_eq!(held.reading(Scope::Namespace(0), Quantity::WrittenBytesPerS), 0);
}

#[test]
fn each_namespace_has_a_drive_of_its_own() {
    let capabilities = capabilities(&scenario());
    assert_eq!(capabilities.drives, [(0, 0), (1, 1)]);
    assert_eq!((capabilities.drive_of(1), capabilities.drive_of(2)), (Some(1), None));
}

/// Two hosts that read from a capped namespace.
struct Simulated;

impl Simulated {
    fn scenario() -> Scenario {
        Scenario { duration_ns: 2_200 * MS, series_ns: 2_200 * MS, ..scenario() }
    }
}

impl Storage for Simulated {
    fn interval_ns(&self) -> u64 {
        100 * MS
    }

    fn largest_bytes(&self) -> u64 {
        16_384
    }

    fn cap(&self) -> KnobId {
        capabilities(&Self::scenario()).find_knob(Scope::Namespace(0), Kind::BytesPerS).unwrap().0
    }

    fn rate(&self) -> ReadingId {
        capabilities(&Self::scenario()).find_source(Scope::Namespace(0), Quantity::ReadBytesPerS).unwrap().0
    }

    /// Admitted bytes by sensor window, one per interval.
    fn run(&mut self, policy: Box<dyn Policy>, board: &Board) -> Vec<Admitted> {
        run(&Self::scenario(), policy).unwrap();
        let (mut admitted, mut last_ns, mut bytes) = (Vec::new(), 0, 0);
        for seen in &board.log().samples {
            let Some(reading) = seen.readings.iter().find(|reading| reading.id == self.rate()) else { continue };
            let ended_ns = seen.now_ns.saturating_sub(reading.age_ns);
            bytes += reading.value.unwrap_or(0) * (ended_ns - last_ns) / 1_000_000_000;
            last_ns = ended_ns;
            admitted.push(Admitted { before_ns: ended_ns, after_ns: ended_ns, bytes });
        }
        admitted
    }
}

cap_suite!(Simulated);
