//! Autonomous idle states of drives: entry times, exit latencies and power. Both engines agree, and the auditor finds the same energy.

mod support;

use std::io::Write as _;

use pilotlight_conformance::script::Script;
use pilotlight_plant::{Command, Kind, Scope, Values};
use pilotlight_sim::audit::{Law, TraceAuditor, Violation};
use pilotlight_sim::engine::{capabilities, run_naive, run_traced};
use pilotlight_sim::outcome::Outcome;
use pilotlight_sim::scenario::{Kind as Request, Rate, Scenario, Sensors};
use pilotlight_sim::ssd::{AutonomousActivity, Op, Request as ToDrive, Ssd, SsdModel};
use pilotlight_sim::trace::{Record, RecordKind};

const MS: u64 = 1_000_000;

/// PACER's Table I, with reads of 50 us and programs of 200 us; 0.1 uJ per KiB.
const DRIVE: &str = "name = 'd'\nsource = 'd'\n[flash]\ndies = 4\npage_bytes = 4096\nread_ns = 50000\n\
    [program]\nprogram_ns = 200000\nprogram_bytes = 16384\nbuffer_bytes = 524288\n\
    [rest]\nafter_ns = 1000000\nwake_ns = 0\nasleep_after_ns = 1000000\n\
    [[idle]]\nname = 'idle-0'\nafter_ns = 1000\nwake_ns = 1000\nuw = 6800000\n\
    [[idle]]\nname = 'idle-1'\nafter_ns = 200000\nwake_ns = 200000\nuw = 5900000\n\
    [energy]\nawake_uw = 10200000\nrest_uw = 8500000\nasleep_uw = 8500000\nread_pj_per_byte = 100\nwrite_pj_per_byte = 100\n";

fn model() -> SsdModel {
    SsdModel::parse(DRIVE).unwrap()
}

fn scenario(rate: f64, writes_ppm: u32) -> Scenario {
    let mut scenario = support::scenario(3, 2, rate, 20 * MS, 1);
    scenario.drives = vec![model(); 2];
    scenario.series_ns = MS;
    scenario.sensors = Sensors { window_ns: 700_000, lag_ns: MS, ..Sensors::default() };
    for connection in &mut scenario.workload.connections {
        connection.request = Request::Plain { writes_ppm, bytes: 4_096, sequential: false };
    }
    scenario
}

/// Wake-up limits that allow no idle state, the first, and both.
const LIMITS_NS: [u64; 3] = [0, 1_000, 200_000];

/// Command that allows `states` idle states.
fn set(scenario: &Scenario, drive: u16, states: usize) -> Command {
    let all = capabilities(scenario);
    let (knob, _) = all.find_knob(Scope::Device(drive), Kind::WakeLimitNs).unwrap();
    Command::Set { knob, value: LIMITS_NS[states] }
}

/// Runs a script in both engines and checks it with the auditor.
fn run(scenario: &Scenario, script: impl Fn() -> Script) -> Outcome {
    let mut trace = Vec::new();
    let (policy, board) = script().reads().policy();
    let outcome = run_traced(scenario, policy, &mut trace).unwrap();
    assert!(board.log().refused.is_empty());
    let mut plain = Vec::new();
    assert_eq!(outcome, run_naive(scenario, script().reads().policy().0, &mut plain).unwrap());
    assert!(trace == plain, "the engines' traces differ");
    let mut audit = TraceAuditor::new(scenario);
    audit.write_all(&trace).unwrap();
    assert_eq!(audit.finish(&outcome).err(), None);
    outcome
}

fn every() -> Script {
    Script::every(100_000)
}

#[test]
fn both_engines_and_the_accountant_agree() {
    for (rate, writes_ppm) in [(5_000.0, 0), (5_000.0, 300_000), (60_000.0, 500_000)] {
        let scenario = scenario(rate, writes_ppm);
        let changes = [set(&scenario, 0, 2), set(&scenario, 1, 1), set(&scenario, 0, 0)];
        let held = run(&scenario, every);
        let changing = run(&scenario, || {
            changes.iter().fold(every(), |script, &change| script.holds("a while", 30, |_| true).command(&[change]))
        });
        let lower = changing.energy.drives_uj < held.energy.drives_uj;
        assert!(lower, "{} uJ and {} uJ at {rate}", changing.energy.drives_uj, held.energy.drives_uj);
    }
}

#[test]
fn drive_power_and_readings_follow_its_state() {
    for (state, uw) in [(0, 8_500_000), (1, 6_800_000), (2, 5_900_000)] {
        let mut scenario = scenario(0.0, 0);
        for connection in &mut scenario.workload.connections {
            connection.phases[0].rate = Rate::Off;
        }
        let script = || every().command(&[set(&scenario, 0, state), set(&scenario, 1, state)]);
        let (policy, board) = script().reads().policy();
        let outcome = run_traced(&scenario, policy, &mut std::io::sink()).unwrap();
        assert_eq!(outcome.series.last().unwrap().energy.drives_uj, 2 * uw / 1_000, "over a millisecond");
        let log = board.log();
        let (id, _) = capabilities(&scenario)
            .find_source(Scope::Device(1), pilotlight_plant::Quantity::PowerUw)
            .map(|(id, source)| (id, *source))
            .unwrap();
        let read = log.samples.last().unwrap().readings[id.index()].value.unwrap();
        assert!(read.abs_diff(uw) < 10, "{read} uW");
    }
}

/// A state with a too long exit latency is not entered, nor any deeper one.
#[test]
fn no_wake_up_is_longer_than_the_limit() {
    let request = |at_ns| ToDrive { at_ns, op: Op::Read, offset: 0, bytes: 4_096, draw: 7, sequential: false };
    for (limit_ns, wake_ns) in
        [(0, 0), (999, 0), (1_000, 1_000), (199_999, 1_000), (200_000, 200_000), (u64::MAX, 200_000)]
    {
        let mut drive = Ssd::new(&model());
        drive.set_wake_limit(limit_ns);
        let done_ns = drive.submit(&request(0));
        let came_ns = done_ns + 300_000;
        assert_eq!(drive.submit(&request(came_ns)) - came_ns, 50_000 + wake_ns, "with {limit_ns} ns");
    }
}

#[test]
fn states_follow_each_other_and_have_exit_latencies() {
    let request = |at_ns, op| ToDrive { at_ns, op, offset: 0, bytes: 4_096, draw: 7, sequential: false };
    let took = |state: usize, gap_ns: u64| {
        let mut drive = Ssd::new(&model());
        drive.set_wake_limit(LIMITS_NS[state]);
        let done_ns = drive.submit(&request(0, Op::Read));
        drive.submit(&request(done_ns + gap_ns, Op::Read)) - done_ns - gap_ns
    };
    for state in 0..3 {
        assert_eq!(took(state, 500), 50_000, "it has not gone anywhere");
    }
    assert_eq!([0, 1, 2].map(|state| took(state, 100_000)), [50_000, 51_000, 51_000]);
    assert_eq!([0, 1, 2].map(|state| took(state, 300_000)), [50_000, 51_000, 250_000]);
    let mut drive = Ssd::new(&model());
    drive.set_wake_limit(200_000);
    drive.submit(&request(0, Op::Write));
    for at_ns in [1, 2, 3] {
        drive.submit(&request(at_ns, Op::Write)); // the last one fills a unit, which is programmed
    }
    drive.advance(500_000);
    let spans: Vec<_> = drive.spans().map(|span| (span.activity, span.from_ns, span.to_ns)).collect();
    let programmed_ns = 200_003;
    assert_eq!(
        spans,
        [
            (AutonomousActivity::Idles(0), programmed_ns + 1_000, programmed_ns + 200_000),
            (AutonomousActivity::Idles(1), programmed_ns + 200_000, 500_000)
        ]
    );
}

/// A drive that idles longer than a stretch, and one that idles for a whole stretch in which it has commands.
#[test]
fn a_drive_that_idles_too_long_is_found() {
    let scenario = scenario(5_000.0, 0);
    let script = || every().command(&[set(&scenario, 0, 2), set(&scenario, 1, 2)]);
    let mut trace = Vec::new();
    let outcome = run_traced(&scenario, script().reads().policy().0, &mut trace).unwrap();
    let all: Vec<Record> = trace.as_chunks().0.iter().filter_map(Record::decode).collect();
    let stretch = |record: &Record| (5 * MS..6 * MS).contains(&record.at_ns);
    let idles =
        |record: &Record| record.kind == RecordKind::Drive && record.a & u64::from(u32::MAX) == 0 && stretch(record);
    let idle_ns: u64 = all.iter().filter(|record| idles(record)).map(|record| record.b).sum();
    let commands = |record: &Record| record.kind == RecordKind::Submitted && record.b == 0 && stretch(record);
    assert!(idle_ns > 0 && all.iter().any(commands), "{idle_ns} ns");
    for (longer_ns, expected) in [
        (0, None),
        (MS - idle_ns, Some(format!("autonomous activity for {MS} ns"))),
        (MS, Some(format!("autonomous activity for {} ns", MS + idle_ns))),
    ] {
        let mut all = all.clone();
        all.iter_mut().find(|record| idles(record)).unwrap().b += longer_ns;
        let mut audit = TraceAuditor::new(&scenario);
        all.iter().for_each(|record| audit.write_all(&record.bytes()).unwrap());
        let violations = audit.finish(&outcome).err().unwrap_or_default();
        let found = |violation: &Violation| {
            violation.law == Law::Bounds && expected.as_ref().is_some_and(|expected| violation.what.contains(expected))
        };
        assert!(
            violations.is_empty() == expected.is_none() && violations.iter().any(found) == expected.is_some(),
            "{violations:?}"
        );
    }
}

/// 0.1 uJ per KiB exceeds the milliwatt that the profile allows.
#[test]
fn what_load_takes_ends_at_the_ceiling() {
    let mut scenario = scenario(60_000.0, 500_000);
    scenario.drives = vec![SsdModel::parse(&format!("{DRIVE}[power]\nmost_load_uw = 1000\n")).unwrap(); 2];
    let outcome = run(&scenario, every);
    assert_eq!(outcome.series[5].energy.drives_uj, 2 * (10_200_000 + 1_000) / 1_000, "over a millisecond");
}

#[test]
fn idle_states_need_watts_and_an_order() {
    let without = DRIVE.split("[energy]").next().unwrap();
    assert!(SsdModel::parse(without).unwrap_err().to_string().contains("[energy]"));
    let twice = DRIVE.replace("after_ns = 200000\n", "after_ns = 1000\n");
    assert!(SsdModel::parse(&twice).unwrap_err().to_string().contains("idle.after_ns"));
    let plain = support::scenario(3, 2, 0.0, MS, 1);
    assert_eq!(capabilities(&plain).knobs_of(Kind::WakeLimitNs).count(), 0, "a drive without states has no knob");
    let knobs = capabilities(&scenario(0.0, 0)).knobs;
    let of_drive: Vec<_> =
        knobs.iter().filter(|knob| knob.scope == Scope::Device(1)).map(|knob| (knob.kind, &knob.values)).collect();
    assert_eq!(of_drive, [(Kind::WakeLimitNs, &Values::List(LIMITS_NS.to_vec()))]);
}
