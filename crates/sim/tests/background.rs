//! Background work: its timing, its effect on hosts, and its readings. Both engines agree, and the auditor finds its rules kept.

mod support;

use std::io::Write as _;

use pilotlight_conformance::script::{Script, Seen};
use pilotlight_plant::{Command, Kind, Quantity, Scope};
use pilotlight_sim::audit::{Law, TraceAuditor, Violation};
use pilotlight_sim::engine::{capabilities, run_naive, run_traced};
use pilotlight_sim::outcome::Outcome;
use pilotlight_sim::scenario::{Background, Kind as Request, Rate, Scenario, Sensors};
use pilotlight_sim::ssd::SsdModel;
use pilotlight_sim::trace::{Record, RecordKind};

const MS: u64 = 1_000_000;

fn class() -> Background {
    Background {
        drives: (0, 3),
        backlog_bytes: 3 << 20,
        bytes_per_s: 300_000_000,
        max_bytes_per_s: 1_200_000_000,
        rate_ppm: 500_000,
        io_bytes: 65_536,
        write: false,
        ns_per_kib: 20,
    }
}

fn scenario(rate: f64, background: &[Background]) -> Scenario {
    let mut scenario = support::scenario(4, 3, rate, 20 * MS, 1);
    scenario.series_ns = MS;
    scenario.sensors = Sensors { window_ns: MS, lag_ns: MS, ..Sensors::default() };
    scenario.workload.background = background.to_vec();
    if rate == 0.0 {
        for connection in &mut scenario.workload.connections {
            connection.phases[0].rate = Rate::Off;
        }
    }
    scenario
}

fn every() -> Script {
    Script::every(100_000).reads()
}

fn rate(scenario: &Scenario, class: u16, value: u64) -> Command {
    let all = capabilities(scenario);
    let (knob, _) = all.find_knob(Scope::Background(class), Kind::RatePpm).unwrap();
    Command::Set { knob, value }
}

fn backlog(scenario: &Scenario, class: u16, seen: &Seen) -> Option<u64> {
    let all = capabilities(scenario);
    let (id, _) = all.find_source(Scope::Background(class), Quantity::BacklogBytes).unwrap();
    seen.readings[id.index()].value
}

/// Runs a script in both engines and checks it with the auditor.
fn run(scenario: &Scenario, script: impl Fn() -> Script) -> (Outcome, Vec<u8>) {
    let (policy, board) = script().policy();
    let mut trace = Vec::new();
    let outcome = run_traced(scenario, policy, &mut trace).unwrap();
    assert!(board.log().refused.is_empty());
    let mut plain = Vec::new();
    assert_eq!(outcome, run_naive(scenario, script().policy().0, &mut plain).unwrap());
    assert!(trace == plain, "the engines' traces differ");
    let mut audit = TraceAuditor::new(scenario);
    audit.write_all(&trace).unwrap();
    assert_eq!(audit.finish(&outcome).err(), None);
    (outcome, trace)
}

fn records(trace: &[u8]) -> impl Iterator<Item = Record> {
    trace.as_chunks().0.iter().filter_map(Record::decode)
}

#[test]
fn both_engines_and_the_accountant_agree() {
    let trim = Background { write: true, drives: (1, 2), io_bytes: 20_000, backlog_bytes: 0, ..class() };
    for host_rate in [0.0, 30_000.0, 600_000.0] {
        let mut scenario = scenario(host_rate, &[class(), trim]);
        for connection in &mut scenario.workload.connections {
            connection.request = Request::Plain { writes_ppm: 300_000, bytes: 4_096, sequential: false };
        }
        let changes = [rate(&scenario, 0, 0), rate(&scenario, 1, 1_000_000), rate(&scenario, 0, 1_000_000)];
        let (outcome, _) = run(&scenario, || {
            changes.iter().fold(every(), |script, &change| script.holds("a while", 30, |_| true).command(&[change]))
        });
        let done: Vec<u64> = outcome.background.iter().map(|class| class.done_bytes).collect();
        // An I/O thread that always has a request in progress does no background work.
        let least = if host_rate > 100_000.0 { 1 } else { 1_000_000 };
        assert!(done.iter().all(|&bytes| bytes >= least), "{done:?} at {host_rate}");
    }
}

/// 3 MiB plus 300 MB/s, processed at 600 MB/s: the backlog is empty after 10.5 ms, and then work is processed as it arrives.
#[test]
fn background_work_has_its_rate_until_it_is_done() {
    let scenario = scenario(0.0, &[class()]);
    let (_, trace) = run(&scenario, every);
    let done = |from_ms: u64, to_ms: u64| -> f64 {
        let within = |record: &Record| (from_ms * MS..to_ms * MS).contains(&record.at_ns);
        let all = records(&trace).filter(|record| record.kind == RecordKind::BackgroundDone).filter(within);
        all.map(|record| record.b).sum::<u64>() as f64 / ((to_ms - from_ms) as f64 / 1e3)
    };
    assert!((done(1, 9) / 600e6 - 1.0).abs() < 0.05, "{}", done(1, 9));
    assert!((done(12, 20) / 300e6 - 1.0).abs() < 0.1, "{}", done(12, 20));
}

#[test]
fn a_rate_of_zero_stops_it_and_the_backlog_grows() {
    let scenario = scenario(0.0, &[class()]);
    let script = || every().holds("a while", 20, |_| true).command(&[rate(&scenario, 0, 0)]);
    let (policy, board) = script().policy();
    run_traced(&scenario, policy, &mut std::io::sink()).unwrap();
    let log = board.log();
    let known: Vec<u64> = log.samples.iter().filter_map(|seen| backlog(&scenario, 0, seen)).collect();
    let (first, last) = (known[0], known[known.len() - 1]);
    let (lowest, _) = known.iter().enumerate().min_by_key(|(_, bytes)| **bytes).unwrap();
    assert!(known[lowest] < first && known[lowest] < last, "{known:?}");
    // Then it grows at the arrival rate.
    let grown = known.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max().unwrap();
    assert_eq!(grown, 300_000, "in a window of a millisecond");
    let (outcome, _) = run(&scenario, script);
    assert!(outcome.background[0].backlog_bytes > last);
}

/// With many requests always in progress on every I/O thread, almost no work is done; at depth 1, work runs between requests.
#[test]
fn no_background_io_starts_during_a_request() {
    let busy = |depth: u32| {
        let mut scenario = scenario(0.0, &[class()]);
        for connection in &mut scenario.workload.connections {
            connection.depth = depth;
            connection.phases[0].rate = if depth > 0 { Rate::Unlimited } else { Rate::Off };
        }
        run(&scenario, every).0.background[0].done_bytes
    };
    let (free, one, many) = (busy(0), busy(1), busy(8));
    assert!(one > free / 2 && many < free / 50, "{free}, {one}, {many}");
}

/// A second I/O of a drive, a too large I/O, an I/O during a request, and one that ends too late after a request.
#[test]
fn the_auditor_finds_violations() {
    let scenario = scenario(300_000.0, &[class()]);
    let (outcome, trace) = run(&scenario, every);
    let breaks = |expected: &str, change: &dyn Fn(&mut Vec<Record>)| {
        let mut all: Vec<Record> = records(&trace).collect();
        change(&mut all);
        let mut audit = TraceAuditor::new(&scenario);
        all.iter().for_each(|record| audit.write_all(&record.bytes()).unwrap());
        let violations = audit.finish(&outcome).unwrap_err();
        let found = |violation: &Violation| violation.law == Law::Background && violation.what.contains(expected);
        assert!(violations.iter().any(found), "{violations:?}");
    };
    let begin = |all: &[Record]| all.iter().position(|record| record.kind == RecordKind::Background).unwrap();
    breaks("during one of class 0", &|all| {
        let at = begin(all);
        all.insert(at + 1, all[at]);
    });
    breaks("of 65537 bytes", &|all| {
        let at = begin(all);
        all[at].b += 1;
    });
    breaks("of class 0 are started, and", &|all| {
        let at = begin(all);
        let Record { at_ns, a, b, .. } = all[at];
        let kinds = [RecordKind::Background, RecordKind::BackgroundDone];
        all.splice(at..at, kinds.map(|kind| Record { at_ns, kind, a, b }).repeat(200));
    });
    breaks("that was not in progress", &|all| {
        let at = all.iter().position(|record| record.kind == RecordKind::BackgroundDone).unwrap();
        all[at].b -= 1;
    });
    breaks("ns after a request was polled", &|all| {
        // shift the first that begins on an idle drive and overlaps a request by over 2 ms
        let mut commands = [0_u64; 3];
        let mut alone = None;
        let met = all.iter().find_map(|record| {
            match record.kind {
                RecordKind::Submitted => commands[record.b as usize] += 1,
                RecordKind::Completed => commands[record.b as usize] -= 1,
                RecordKind::Background if commands[record.a as usize] == 0 => alone = alone.or(Some(*record)),
                RecordKind::BackgroundDone if alone.is_some_and(|io| io.a == record.a) => alone = None,
                RecordKind::Polled => return alone,
                _ => {}
            }
            None
        });
        let io = met.expect("a request meets one");
        let is_its_end = |record: &Record| (record.kind, record.a) == (RecordKind::BackgroundDone, io.a);
        let end = all.iter().position(|record| record.at_ns > io.at_ns && is_its_end(record)).expect("it ends");
        let mut late = all.remove(end);
        late.at_ns += 2 * MS;
        let is_next = |record: &Record| {
            matches!(record.kind, RecordKind::Background | RecordKind::BackgroundDone) && record.a == io.a
        };
        all.retain(|record| !is_next(record) || record.at_ns <= io.at_ns || record.at_ns > late.at_ns);
        let at = all.partition_point(|record| record.at_ns <= late.at_ns);
        all.insert(at, late);
    });
    breaks("I/O thread has", &|all| {
        let is_polled = |record: &Record| record.kind == RecordKind::Polled && record.a >> 40 < 3;
        let at = all.iter().position(is_polled).unwrap();
        let busy = Record { at_ns: all[at].at_ns + 1, kind: RecordKind::Background, a: 0, b: 4_096 };
        let ring: Vec<Record> = (0..3).map(|drive| Record { a: drive, ..busy }).collect();
        let after = all.partition_point(|record| record.at_ns <= all[at].at_ns);
        all.splice(after..after, ring);
    });
}

/// For I/Os during which a request was polled: time from the first such poll to the end of the I/O, in nanoseconds.
fn overlaps(trace: &[u8]) -> Vec<u64> {
    let mut in_progress: Vec<(u64, Option<u64>)> = Vec::new();
    let mut all = Vec::new();
    for record in records(trace) {
        match record.kind {
            RecordKind::Background => in_progress.push((record.a, None)),
            RecordKind::Polled => {
                in_progress.iter_mut().for_each(|(_, polled_ns)| _ = polled_ns.get_or_insert(record.at_ns))
            }
            RecordKind::BackgroundDone => {
                let at = in_progress.iter().position(|(of, _)| *of == record.a).expect("it has begun");
                all.extend(in_progress.swap_remove(at).1.map(|polled_ns| record.at_ns - polled_ns));
            }
            _ => {}
        }
    }
    all
}

#[test]
fn background_io_ends_within_a_millisecond_of_a_request() {
    for host_rate in [3_000.0, 30_000.0, 100_000.0] {
        let (_, trace) = run(&scenario(host_rate, &[class()]), every);
        let overlaps = overlaps(&trace);
        let longest = overlaps.iter().copied().max().unwrap_or(0);
        println!("{host_rate} requests/s: {} I/Os met, {longest} ns at most", overlaps.len());
        assert!(!overlaps.is_empty() && longest <= MS, "{overlaps:?}");
    }
}

/// With concurrent host writes, which drives program. The auditor's bound, where it has one, is kept; the maximum of each profile is printed.
#[test]
fn background_io_of_every_shipped_drive_keeps_the_accountant_s_bound() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles/ssd");
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let drive = SsdModel::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let mut scenario = scenario(20_000.0, &[class()]);
        scenario.drives.iter_mut().for_each(|one| *one = SsdModel { power: one.power, ..drive.clone() });
        for connection in &mut scenario.workload.connections {
            connection.request = Request::Plain { writes_ppm: 300_000, bytes: 4_096, sequential: false };
        }
        let (_, trace) = run(&scenario, every);
        let overlaps = overlaps(&trace);
        let longest = overlaps.iter().copied().max();
        println!("{}: {} I/Os met, {longest:?} ns at most", drive.name, overlaps.len());
        assert!(longest.is_some());
    }
}

/// A drive that takes longer than a millisecond for one I/O: that time is the bound.
#[test]
fn a_slow_drive_takes_no_longer_than_one_io_takes() {
    let mut scenario = scenario(100.0, &[class()]);
    scenario.duration_ns *= 10;
    for drive in &mut scenario.drives {
        (drive.flash.read_ns, drive.program, drive.gc) = (3 * MS, None, None);
    }
    let (_, trace) = run(&scenario, every);
    let longest = overlaps(&trace).into_iter().max().unwrap_or(0);
    assert!(longest > MS && longest < 4 * MS, "{longest}");
}

#[test]
fn what_cannot_be_done_is_refused() {
    for wrong in [
        Background { io_bytes: 65_537, ..class() },
        Background { drives: (2, 2), ..class() },
        Background { max_bytes_per_s: 0, ..class() },
    ] {
        let error = run_traced(&scenario(0.0, &[wrong]), every().policy().0, &mut std::io::sink()).unwrap_err();
        assert!(error.to_string().contains("background work 0"), "{error}");
    }
}
