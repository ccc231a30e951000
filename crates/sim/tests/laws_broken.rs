//! The auditor detects every kind of corruption: a correct trace or outcome, changed in one place, breaks the expected law.

mod support;

use pilotlight_sim::audit::{Law, Violation, audit};
use pilotlight_sim::outcome::Outcome;
use pilotlight_sim::run_traced;
use pilotlight_sim::scenario::{Kind, Phase, Rate, Scenario};
use pilotlight_sim::ssd::DrivePower;
use pilotlight_sim::trace::{Record, RecordKind};
use support::{policy, scenario};

struct Run {
    scenario: Scenario,
    outcome: Outcome,
    records: Vec<Record>,
}

/// Bursts under `sandman`: threads move, cores sleep.
fn run() -> Run {
    run_of("sandman", &[("guards", "printed"), ("coarse_interval", "2ms")])
}

fn run_of(name: &str, settings: &[(&str, &str)]) -> Run {
    let mut scenario = scenario(6, 2, 0.0, 20_000_000, 7);
    for connection in &mut scenario.workload.connections {
        connection.request = Kind::Plain { writes_ppm: 300_000, bytes: 4_096, sequential: false };
        connection.phases = vec![
            Phase { label: 0, length_ns: 3_000_000, rate: Rate::PerSecond(5_000.0) },
            Phase { label: 1, length_ns: 1_000_000, rate: Rate::PerSecond(150_000.0) },
        ];
    }
    let mut trace = Vec::new();
    let outcome = run_traced(&scenario, policy(name, settings), &mut trace).unwrap();
    let records = trace.as_chunks().0.iter().map(|bytes| Record::decode(bytes).unwrap()).collect();
    Run { scenario, outcome, records }
}

fn bytes(records: &[Record]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for record in records {
        bytes.extend(record.at_ns.to_le_bytes());
        bytes.extend((record.kind as u16).to_le_bytes());
        bytes.extend(record.a.to_le_bytes());
        bytes.extend(record.b.to_le_bytes());
    }
    bytes
}

impl Run {
    fn violations(&self) -> Vec<Violation> {
        audit(bytes(&self.records).as_slice(), &self.scenario, &self.outcome).err().unwrap_or_default()
    }

    /// The middle record that matches `is`.
    fn find(&self, is: impl Fn(&Record) -> bool) -> usize {
        let all: Vec<_> = (0..self.records.len()).filter(|&at| is(&self.records[at])).collect();
        assert!(!all.is_empty(), "the run has no such record");
        all[all.len() / 2]
    }

    fn find_kind(&self, kind: RecordKind) -> usize {
        self.find(|record| record.kind == kind)
    }

    /// Moves the middle record of a kind in time.
    fn shift(&mut self, kind: RecordKind, by_ns: i64) {
        let mut record = self.records.remove(self.find_kind(kind));
        record.at_ns = record.at_ns.saturating_add_signed(by_ns);
        self.insert(record);
    }

    fn insert(&mut self, record: Record) {
        let at = self.records.partition_point(|other| *other < record);
        self.records.insert(at, record);
    }
}

/// Corrupts a correct run and checks that `law` breaks, at a record if `by_record`.
fn lie(law: Law, by_record: bool, change: impl FnOnce(&mut Run)) {
    lie_in(run(), law, by_record, change);
}

fn lie_in(mut run: Run, law: Law, by_record: bool, change: impl FnOnce(&mut Run)) {
    change(&mut run);
    let violations = run.violations();
    let found = violations.iter().any(|violation| violation.law == law && violation.record.is_some() == by_record);
    assert!(found, "{law:?} is not among what was found: {violations:#?}");
}

#[test]
fn the_true_run_breaks_no_law() {
    assert_eq!(run().violations(), []);
    assert_eq!(run_of("governor", &[("interval", "1ms")]).violations(), []);
}

#[test]
fn a_lost_or_repeated_record_of_any_request_is_found() {
    for kind in [
        RecordKind::Issued,
        RecordKind::Arrived,
        RecordKind::Polled,
        RecordKind::Submitted,
        RecordKind::Completed,
        RecordKind::Answered,
    ] {
        lie(Law::Requests, true, |run| {
            run.records.remove(run.find_kind(kind));
        });
        lie(Law::Requests, true, |run| {
            let at = run.find_kind(kind);
            run.records.insert(at, run.records[at]);
        });
    }
    lie(Law::Requests, false, |run| {
        run.records.remove(run.find_kind(RecordKind::Received));
    });
}

#[test]
fn a_stuck_request_is_found() {
    let way = [
        RecordKind::Arrived,
        RecordKind::Polled,
        RecordKind::Submitted,
        RecordKind::Completed,
        RecordKind::Answered,
        RecordKind::Received,
    ];
    for kept in 0..way.len() - 1 {
        lie(Law::Requests, false, |run| {
            let name = run.records[run.find_kind(RecordKind::Received)].a;
            run.records.retain(|record| record.a != name || !way[kept + 1..].contains(&record.kind));
        });
    }
}

#[test]
fn effects_before_causes_are_found() {
    for (early, late) in [
        (RecordKind::Arrived, RecordKind::Polled),
        (RecordKind::Submitted, RecordKind::Completed),
        (RecordKind::Completed, RecordKind::Answered),
    ] {
        lie(Law::Requests, true, |run| {
            let at = run.find_kind(late);
            let cause = (0..at)
                .rev()
                .find(|&other| run.records[other].kind == early && run.records[other].a == run.records[at].a);
            let Record { at_ns, .. } = run.records[cause.expect("a cause")];
            let mut record = run.records.remove(at);
            record.at_ns = at_ns - 1;
            run.insert(record);
        });
    }
}

#[test]
fn wrong_latencies_are_found() {
    lie(Law::Requests, true, |run| {
        let at = run.find_kind(RecordKind::Received);
        run.records[at].b += 1;
    });
    lie(Law::Little, false, |run| run.outcome.series[1].latency_ns += 1);
}

#[test]
fn wrong_counts_are_found() {
    lie(Law::Requests, false, |run| run.outcome.requests.answered += 1);
    lie(Law::Requests, false, |run| run.outcome.requests.in_progress -= 1);
    lie(Law::Requests, false, |run| run.outcome.series[0].answered -= 1);
    lie(Law::Counts, true, |run| {
        let at = run.find_kind(RecordKind::PolicyCalled);
        run.records[at].b += 1;
    });
}

#[test]
fn lost_and_doubled_threads_are_found() {
    lie(Law::Threads, false, |run| {
        let left = run.find(|record| record.kind == RecordKind::Left && record.at_ns < 8_000_000);
        let Record { at_ns, a: thread, .. } = run.records[left];
        run.records.retain(|record| {
            let its = match record.kind {
                RecordKind::Polled | RecordKind::Answered => record.a >> 40 == thread,
                RecordKind::Left | RecordKind::Home => record.a == thread,
                _ => false,
            };
            !its || record.at_ns <= at_ns
        });
        run.records.retain(|record| matches!(record.kind, RecordKind::Left | RecordKind::Home | RecordKind::Commanded));
    });
    lie(Law::Threads, true, |run| {
        run.records.remove(run.find_kind(RecordKind::Left));
    });
    lie(Law::Threads, true, |run| {
        let at = run.find_kind(RecordKind::Polled);
        run.records[at].b ^= 1;
    });
    lie(Law::Threads, true, |run| run.records.retain(|record| record.kind != RecordKind::Commanded || record.a != 1));
}

#[test]
fn sleep_with_a_thread_or_without_a_command_is_found() {
    lie(Law::Sleep, true, |run| {
        let at = run.find_kind(RecordKind::Polled);
        let Record { at_ns, b: core, .. } = run.records[at];
        run.insert(Record { at_ns: at_ns + 1, kind: RecordKind::Core, a: core, b: 1 });
        run.insert(Record { at_ns: at_ns + 2, kind: RecordKind::Core, a: core, b: 0 });
    });
    lie(Law::Sleep, true, |run| run.records.retain(|record| record.kind != RecordKind::Commanded || record.a != 2));
    lie(Law::Sleep, true, |run| {
        let awake = run.find(|record| record.kind == RecordKind::Core && record.b == 0);
        run.records.remove(awake);
    });
}

#[test]
fn a_microjoule_is_found() {
    lie(Law::Energy, false, |run| run.outcome.energy.cpu_uj += 1);
    lie(Law::Energy, false, |run| run.outcome.series[1].energy.others_uj -= 1);
    lie(Law::Energy, false, |run| run.outcome.series[0].energy.drives_uj += 1);
    lie(Law::Energy, false, |run| run.outcome.series[0].awake_ns -= 1);
}

#[test]
fn a_state_that_lasts_a_microsecond_longer_is_found() {
    lie(Law::Energy, false, |run| {
        let at = run.find(|record| record.kind == RecordKind::Core && record.b != 0);
        let mut record = run.records.remove(at);
        record.at_ns += 1_000;
        run.insert(record);
    });
}

#[test]
fn watts_and_frequencies_that_do_not_exist_are_found() {
    lie(Law::Bounds, false, |run| run.outcome.series[0].energy.cpu_uj /= 8);
    lie(Law::Bounds, false, |run| run.outcome.series[1].energy.others_uj *= 8);
    lie(Law::Bounds, true, |run| run.insert(Record { at_ns: 10_000, kind: RecordKind::Frequency, a: 0, b: 9_000_000 }));
}

#[test]
fn a_drive_above_its_ceiling_is_found() {
    lie(Law::Bounds, false, |run| {
        run.scenario.drives.iter_mut().for_each(|drive| drive.power = Some(DrivePower { most_load_uw: 20_000_000 }));
        run.outcome.series[0].energy.drives_uj *= 8;
    });
}

#[test]
fn an_exit_that_no_state_takes_is_found() {
    lie(Law::Bounds, true, |run| {
        let at = run.find_kind(RecordKind::Exits);
        run.records[at].b = 10_000_000;
    });
}

/// A frequency that is lost, early, late, different from the commanded one, or not commanded.
#[test]
fn lost_late_and_invented_frequencies_are_found() {
    let lie = |change: fn(&mut Run)| lie_in(run_of("governor", &[("interval", "1ms")]), Law::Frequencies, true, change);
    lie(|run| {
        run.records.remove(run.find_kind(RecordKind::Frequency));
    });
    lie(|run| {
        run.records.remove(run.find_kind(RecordKind::Ordered));
    });
    lie(|run| run.shift(RecordKind::Frequency, -20_000));
    lie(|run| run.shift(RecordKind::Frequency, 20_000));
    lie(|run| {
        let at = run.find_kind(RecordKind::Frequency);
        run.records[at].b = if run.records[at].b == 400_000 { 450_000 } else { 400_000 };
    });
}

#[test]
fn invalid_traces_are_found() {
    lie(Law::Trace, true, |run| {
        let middle = run.records.len() / 2;
        run.records.swap(0, middle);
    });
    let run = run();
    let mut trace = bytes(&run.records);
    trace.pop();
    let violations = audit(trace.as_slice(), &run.scenario, &run.outcome).unwrap_err();
    assert!(violations.iter().any(|violation| violation.law == Law::Trace), "{violations:?}");
    trace.extend([0; Record::BYTES + 1]);
    let violations = audit(trace.as_slice(), &run.scenario, &run.outcome).unwrap_err();
    assert!(violations.iter().any(|violation| violation.to_string().contains("invalid record")), "{violations:?}");
}
