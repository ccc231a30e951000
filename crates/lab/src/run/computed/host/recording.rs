//! Converts counters of the simulator to samples of sensors and to the output of fio or of an application's clients.
//!
//! Counters have a sample at the end of each time slot; energy is in whole microjoules; CPU time is the sum of all processors.

use std::collections::BTreeMap;

use crate::run::computed::Measurement;
use crate::simulated::host::{Host, Load};
use pilotlight_sensors::energy::{Point, Window};
use pilotlight_sensors::recording::{Marker, Track};
use pilotlight_sensors::sensor::{Counts, Kind, Unit};
use pilotlight_sensors::{Domain, Origin, Part, Recording};
use pilotlight_sim::histogram::Histogram;
use pilotlight_sim::outcome::{JobStretch, Jobs, Outcome, Stretch};
use pilotlight_sim::scenario::Scenario;
use pilotlight_workloads::RunContext;
use pilotlight_workloads::record::{Class, Latency, OperationKind, Record, Tool};

use super::load::is_whole;

/// Name of the energy sensor.
const POWER: &str = "simulated";

fn power_domains(host: &Host) -> Vec<Domain> {
    let modelled = |name: &str, part: Part| Domain {
        origin: Origin::Modelled { profile: host.name.clone() },
        ..Domain::new(name, Kind::EnergyCounter(Counts::endless()), Unit::MicroJoule, part)
    };
    vec![
        modelled("drive", Part::Drive("simulated".into())),
        modelled("cpu", Part::Cpu),
        modelled("system", Part::System),
    ]
}

/// All domains, with the name of the sensor.
pub(super) fn domains(host: &Host) -> Vec<(String, Domain)> {
    power_domains(host).into_iter().map(|domain| (POWER.to_owned(), domain)).collect()
}

/// The simulated measurement of a run.
pub(super) fn observed(host: &Host, load: &Load, run: (&Scenario, &Outcome), stage: &RunContext) -> Measurement {
    let window = Window { from_ns: load.ramp_ns, to_ns: load.ramp_ns + load.duration_ns };
    let mut recording = recording(host, run.0, run.1);
    let phases = [("start", 0), ("measure", window.from_ns), ("measured", window.to_ns), ("end", window.to_ns)];
    recording.markers = phases.map(|(name, at_ns)| Marker { at_ns, name: name.into() }).to_vec();
    Measurement { record: record(load, run.0.series_ns, run.1, stage), recording, end_ns: window.to_ns, window }
}

/// All counters over time.
pub(super) fn recording(host: &Host, scenario: &Scenario, outcome: &Outcome) -> Recording {
    let step_ns = scenario.series_ns;
    let energy = |of: fn(&Stretch) -> u64| counter(step_ns, outcome.series.iter().map(of));
    let jobs = |of: fn(&JobStretch) -> u64| counter(step_ns, outcome.jobs.series.iter().map(of));
    let mut power = Track::new(POWER, &power_domains(host), step_ns);
    power.points =
        vec![energy(|of| of.energy.drives_uj), energy(|of| of.energy.cpu_uj), energy(|of| of.energy.system_uj())];
    let mut cpu = Track::new("cputime", &[Domain::counter("all/system", Unit::NanoSecond)], step_ns);
    cpu.points = vec![jobs(|of| of.work_ns + of.look_ns)];
    let counts = [Domain::counter("context-switches", Unit::Count), Domain::counter("interrupts", Unit::Count)];
    let mut kernel = Track::new("kernel", &counts, step_ns);
    kernel.points = vec![jobs(|of| of.switches), jobs(|of| of.interrupts + of.timers)];
    Recording { tracks: vec![power, cpu, kernel], wall_ns: scenario.duration_ns, ..Recording::default() }
}

fn counter(step_ns: u64, all: impl Iterator<Item = u64>) -> Vec<Point> {
    let mut points = vec![Point { at_ns: 0, value: 0 }];
    for one in all {
        let last = points[points.len() - 1];
        points.push(Point { at_ns: last.at_ns + step_ns, value: last.value + one as i64 });
    }
    points
}

/// The output of fio or of an application.
fn record(load: &Load, step_ns: u64, outcome: &Outcome, stage: &RunContext) -> Record {
    let jobs = &outcome.jobs;
    let classes = classes(load, jobs);
    let measured = load.ramp_ns / step_ns..(load.ramp_ns + load.duration_ns) / step_ns;
    let measured = &jobs.series[measured.start as usize..measured.end as usize];
    let switches: u64 = measured.iter().map(|stretch| stretch.switches).sum();
    let mut warnings = Vec::new();
    if !is_whole(load) {
        let (of, all) = (load.duration_ns as f64 / 1e9, stage.duration_s);
        warnings
            .push(format!("{of} s of {all} s were simulated: without writes and think time the load is memoryless"));
    }
    if load.jobs > 0 && classes.is_empty() {
        warnings.push("no operation completed within the measured time".into());
    }
    let mut extra = BTreeMap::from([("context_switches_count".to_owned(), switches as f64)]);
    if !classes.is_empty() && !is_client(load) {
        extra.insert("latency_sum_of_jobs_us".into(), sum_of_jobs_us(jobs));
    }
    if is_client(load) {
        let read: u64 = measured.iter().map(|stretch| stretch.read_bytes).sum();
        extra.insert("disk_read_bytes".into(), read as f64);
    }
    if load.job.writes_ppm > 0 {
        let written =
            classes.iter().filter(|class| class.kind == OperationKind::Write).filter_map(|class| class.bytes).sum();
        let by_any: u64 = measured.iter().map(|stretch| stretch.written_bytes).sum();
        extra.insert("written_bytes".into(), if is_client(load) { by_any } else { written } as f64);
        extra.insert("drive_busy_after_s".into(), jobs.to_move_ns as f64 / 1e9);
    }
    let name = if is_client(load) { "client (simulated)" } else { "fio (simulated)" };
    let tool = Tool { name: name.into(), version: env!("CARGO_PKG_VERSION").into(), known: true };
    let window_ns = Some((load.ramp_ns, load.ramp_ns + load.duration_ns));
    Record { tool, classes, window_ns, extra, warnings }
}

/// Whether the load is of an application: it has background jobs, or operations without a request.
fn is_client(load: &Load) -> bool {
    load.job.is_client() || !load.beside.is_empty()
}

/// fio's I/Os, or an application's operations.
fn classes(load: &Load, jobs: &Jobs) -> Vec<Class> {
    let all = if is_client(load) {
        let operation = |word: &str| OperationKind::Operation(word.to_owned());
        [(operation("read"), &jobs.client_reads), (operation("write"), &jobs.client_writes)]
    } else {
        [(OperationKind::Read, &jobs.reads), (OperationKind::Write, &jobs.writes)]
    };
    all.into_iter().filter(|(_, of)| of.count() > 0).map(|(what, of)| class(what, of, load)).collect()
}

/// Sum of the mean latencies of all jobs, as reported by a tool that adds fio's values of each job (errata 22).
fn sum_of_jobs_us(jobs: &Jobs) -> f64 {
    let means = jobs.operations.iter().zip(&jobs.latency_ns).filter(|(operations, _)| **operations > 0);
    means.map(|(operations, ns)| *ns as f64 / *operations as f64 / 1e3).sum()
}

fn class(kind: OperationKind, of: &Histogram, load: &Load) -> Class {
    let latency = Latency {
        mean_ns: Some(of.mean()),
        greatest_ns: Some(of.max()),
        histogram: of.buckets().filter(|(_, count)| *count > 0).collect(),
        ..Latency::default()
    };
    let bytes = (!is_client(load)).then(|| of.count() * u64::from(load.job.bytes));
    Class { kind, operations: Some(of.count()), bytes, runtime_ns: load.duration_ns, latency }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use pilotlight_sim::jobs::{Job, Way};
    use pilotlight_workloads::Target;

    use super::super::run;
    use super::*;

    struct Simulated {
        load: Load,
        scenario: Scenario,
        outcome: Outcome,
        observed: Measurement,
    }

    fn simulate(way: Way) -> Simulated {
        let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let host = crate::simulated::host::load(&root.join("profiles/poll-optane-900p.toml")).unwrap();
        let load = Load {
            job: Job { way, ..Job::default() },
            jobs: 6,
            beside: Vec::new(),
            drive_state: 0,
            drive_autonomous: false,
            ramp_ns: 1_000_000,
            duration_ns: 10_000_000,
            after_ns: 0,
            seed: 1,
        };
        let (scenario, outcome) = run(&host, &load).unwrap();
        let stage = RunContext {
            scratch: "/tmp".into(),
            target: Target::None,
            ramp_s: 0.001,
            duration_s: 120.0,
            seed: load.seed,
        };
        let observed = observed(&host, &load, (&scenario, &outcome), &stage);
        Simulated { load, scenario, outcome, observed }
    }

    /// The last sample of a counter.
    fn last(observed: &Measurement, sensor: &str, domain: usize) -> u64 {
        let track = observed.recording.tracks.iter().find(|track| track.sensor == sensor).unwrap();
        track.points[domain].last().unwrap().value as u64
    }

    #[test]
    fn samples_match_the_counters() {
        let Simulated { scenario, outcome, observed, .. } = simulate(Way::Hybrid);
        let jobs = |of: fn(&JobStretch) -> u64| outcome.jobs.series.iter().map(of).sum::<u64>();
        assert_eq!(last(&observed, "cputime", 0), jobs(|of| of.work_ns + of.look_ns));
        assert_eq!(last(&observed, "kernel", 0), jobs(|of| of.switches));
        assert_eq!(last(&observed, "kernel", 1), jobs(|of| of.timers));
        assert!(jobs(|of| of.look_ns) > 0 && jobs(|of| of.timers) > 0 && jobs(|of| of.interrupts) == 0);
        let energy = |of: fn(&Stretch) -> u64| outcome.series.iter().map(of).sum::<u64>();
        let parts: Vec<Part> = observed.recording.tracks[0].domains.iter().map(|domain| domain.part.clone()).collect();
        assert_eq!(parts, [Part::Drive("simulated".into()), Part::Cpu, Part::System]);
        assert_eq!(last(&observed, POWER, 0), energy(|of| of.energy.drives_uj));
        assert_eq!(last(&observed, POWER, 1), energy(|of| of.energy.cpu_uj));
        assert_eq!(last(&observed, POWER, 2), energy(|of| of.energy.system_uj()));
        assert_eq!(observed.recording.wall_ns, scenario.duration_ns);
    }

    #[test]
    fn the_record_covers_the_measured_window() {
        let Simulated { load, outcome, observed, .. } = simulate(Way::Interrupt);
        let Measurement { record, window, end_ns, .. } = observed;
        assert_eq!((window.from_ns, window.to_ns, end_ns), (1_000_000, 11_000_000, 11_000_000));
        assert_eq!(record.window_ns, Some((window.from_ns, window.to_ns)));
        let [class] = &record.classes[..] else { panic!("{:?}", record.classes) };
        let reads = outcome.jobs.reads.count();
        assert_eq!(
            (&class.kind, class.operations, class.bytes),
            (&OperationKind::Read, Some(reads), Some(reads * 4_096))
        );
        assert_eq!(class.runtime_ns, load.duration_ns);
        assert_eq!(class.latency.histogram.iter().map(|(_, count)| count).sum::<u64>(), reads);
        // One switch for each request in the measured window.
        let switches = record.extra["context_switches_count"];
        assert!((switches / reads as f64 - 1.0).abs() < 0.01, "{switches} {reads}");
        assert!(record.warnings.iter().any(|warning| warning.contains("0.01 s of 120 s")), "{:?}", record.warnings);
    }
}
