//! What the simulator counted, as what sensors and fio would have said.
//!
//! Counters are told at the end of each slot of time, energy in whole microjoules. CPU time is of all processors together.

use std::collections::BTreeMap;

use pilotlight_bench::run::computed::Observed;
use pilotlight_sensors::energy::{Point, Window};
use pilotlight_sensors::recording::{Marker, Track};
use pilotlight_sensors::sensor::{Counts, Kind, Unit};
use pilotlight_sensors::{Domain, Origin, Part, Recording};
use pilotlight_sim::histogram::Histogram;
use pilotlight_sim::local::{Load, Local, Slot, Tally};
use pilotlight_workloads::Stage;
use pilotlight_workloads::record::{Class, Latency, Record, Tool, What};

use super::asked::is_whole;

/// The sensor that tells energy.
const POWER: &str = "simulated";

fn power_domains(machine: &Local) -> Vec<Domain> {
    let modelled = |name: &str, part: Part| Domain {
        origin: Origin::Modelled { profile: machine.name.clone() },
        ..Domain::new(name, Kind::EnergyCounter(Counts::endless()), Unit::MicroJoule, part)
    };
    vec![
        modelled("drive", Part::Drive("simulated".into())),
        modelled("cpu", Part::Cpu),
        modelled("system", Part::System),
    ]
}

/// Every domain, with its sensor's name.
pub(super) fn domains(machine: &Local) -> Vec<(String, Domain)> {
    power_domains(machine).into_iter().map(|domain| (POWER.to_owned(), domain)).collect()
}

/// Everything that was said of a run.
pub(super) fn observed(machine: &Local, load: &Load, tally: &Tally, stage: &Stage) -> Observed {
    let window = Window { from_ns: load.ramp_ns, to_ns: load.ramp_ns + load.duration_ns };
    let mut recording = recording(machine, load, tally);
    let phases = [("start", 0), ("measure", window.from_ns), ("measured", window.to_ns), ("end", window.to_ns)];
    recording.markers = phases.map(|(name, at_ns)| Marker { at_ns, name: name.into() }).to_vec();
    Observed { record: record(load, tally, stage), recording, end_ns: window.to_ns, window }
}

/// All counters over time.
pub(super) fn recording(machine: &Local, load: &Load, tally: &Tally) -> Recording {
    let length_ns = tally.slot_ns as f64;
    let energy = |of: fn(&pilotlight_sim::local::Energy) -> f64| {
        counter(tally, |slot| of(&slot.energy(machine, load.state, length_ns)))
    };
    let mut power = Track::new(POWER, &power_domains(machine), tally.slot_ns);
    power.points = vec![energy(|e| e.drive_uj), energy(|e| e.cpu_uj), energy(|e| e.system_uj)];
    let times = [Domain::counter("all/system", Unit::NanoSecond)];
    let mut cpu = Track::new("cputime", &times, tally.slot_ns);
    cpu.points = vec![counter(tally, |slot| slot.run_ns + slot.spin_ns)];
    let counts = [Domain::counter("context-switches", Unit::Count), Domain::counter("interrupts", Unit::Count)];
    let mut kernel = Track::new("kernel", &counts, tally.slot_ns);
    kernel.points = vec![counter(tally, |slot| slot.switches), counter(tally, |slot| slot.interrupts + slot.timers)];
    let wall_ns = tally.slot_ns * tally.slots.len() as u64;
    Recording { tracks: vec![power, cpu, kernel], wall_ns, ..Recording::default() }
}

fn counter(tally: &Tally, of: impl Fn(&Slot) -> f64) -> Vec<Point> {
    let mut sum = 0.0;
    let mut points = vec![Point { at_ns: 0, value: 0 }];
    for (at, slot) in tally.slots.iter().enumerate() {
        sum += of(slot);
        points.push(Point { at_ns: (at as u64 + 1) * tally.slot_ns, value: sum.round() as i64 });
    }
    points
}

/// What fio would say.
fn record(load: &Load, tally: &Tally, stage: &Stage) -> Record {
    let classes = [(What::Read, &tally.reads), (What::Write, &tally.writes)];
    let classes: Vec<Class> =
        classes.into_iter().filter(|(_, of)| of.count() > 0).map(|(what, of)| class(what, of, load)).collect();
    let counted = tally.sum(load.ramp_ns, load.ramp_ns + load.duration_ns);
    let mut warnings = Vec::new();
    if !is_whole(load) {
        let (of, all) = (load.duration_ns as f64 / 1e9, stage.duration_s);
        warnings.push(format!(
            "{of} s of {all} s were simulated: without writes and rests nothing depends on the time before"
        ));
    }
    if load.jobs > 0 && classes.is_empty() {
        warnings.push("no operation ended within the measured time".into());
    }
    let mut extra = BTreeMap::from([("context_switches_count".to_owned(), counted.switches)]);
    if load.writes_ppm > 0 {
        let written = classes.iter().filter(|class| class.what == What::Write).filter_map(|class| class.bytes);
        extra.insert("written_bytes".into(), written.sum::<u64>() as f64);
        extra.insert("drive_busy_after_s".into(), tally.gc_after_ns as f64 / 1e9);
    }
    let tool = Tool { name: "fio (simulated)".into(), version: env!("CARGO_PKG_VERSION").into(), known: true };
    let window_ns = Some((load.ramp_ns, load.ramp_ns + load.duration_ns));
    Record { tool, classes, window_ns, extra, warnings }
}

fn class(what: What, of: &Histogram, load: &Load) -> Class {
    let latency = Latency {
        mean_ns: Some(of.mean()),
        greatest_ns: Some(of.max()),
        histogram: of.buckets().filter(|(_, count)| *count > 0).collect(),
        ..Latency::default()
    };
    let bytes = Some(of.count() * load.bytes);
    Class { what, operations: Some(of.count()), bytes, runtime_ns: load.duration_ns, latency }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use pilotlight_lab::local;
    use pilotlight_sim::local::{Scheduler, Way, run};
    use pilotlight_workloads::Place;

    use super::*;

    fn load(way: Way) -> Load {
        Load {
            way,
            jobs: 6,
            depth: 1,
            bytes: 4_096,
            sequential: false,
            writes_ppm: 0,
            scheduler: Scheduler::None,
            state: 0,
            autonomous: false,
            think_after: 0,
            think_ns: 0,
            think_spin_ns: 0,
            ramp_ns: 1_000_000,
            duration_ns: 10_000_000,
            after_ns: 0,
            seed: 1,
        }
    }

    fn told(way: Way) -> (Local, Load, Tally, Observed) {
        let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let machine = local::load(&root.join("profiles/poll-optane-900p.toml")).unwrap().machine;
        let load = load(way);
        let tally = run(&machine, &load);
        let stage =
            Stage { scratch: "/tmp".into(), place: Place::Nothing, ramp_s: 0.001, duration_s: 120.0, seed: load.seed };
        let observed = observed(&machine, &load, &tally, &stage);
        (machine, load, tally, observed)
    }

    /// The last reading of a counter.
    fn last(observed: &Observed, sensor: &str, domain: usize) -> f64 {
        let track = observed.recording.tracks.iter().find(|track| track.sensor == sensor).unwrap();
        track.points[domain].last().unwrap().value as f64
    }

    #[test]
    fn sensors_say_what_was_counted() {
        let (machine, load, tally, observed) = told(Way::Hybrid);
        let all = tally.sum(0, tally.slot_ns * tally.slots.len() as u64);
        let near = |ours: f64, expected: f64| assert!((ours - expected).abs() <= 1.0, "{ours}, not {expected}");
        near(last(&observed, "cputime", 0), all.run_ns + all.spin_ns);
        near(last(&observed, "kernel", 0), all.switches);
        near(last(&observed, "kernel", 1), all.interrupts + all.timers);
        assert!(all.spin_ns > 0.0 && all.timers > 0.0 && all.interrupts == 0.0);
        let energies: Vec<_> =
            tally.slots.iter().map(|slot| slot.energy(&machine, load.state, tally.slot_ns as f64)).collect();
        let of = |part: Part| {
            let named = power_domains(&machine);
            last(&observed, POWER, named.iter().position(|domain| domain.part == part).unwrap())
        };
        near(of(Part::Cpu), energies.iter().map(|energy| energy.cpu_uj).sum());
        near(of(Part::Drive("simulated".into())), energies.iter().map(|energy| energy.drive_uj).sum());
        near(of(Part::System), energies.iter().map(|energy| energy.system_uj).sum());
    }

    #[test]
    fn fio_says_what_was_done_in_the_measured_time() {
        let (_, load, tally, observed) = told(Way::Interrupt);
        let Observed { record, window, end_ns, .. } = observed;
        assert_eq!((window.from_ns, window.to_ns, end_ns), (1_000_000, 11_000_000, 11_000_000));
        assert_eq!(record.window_ns, Some((window.from_ns, window.to_ns)));
        let [class] = &record.classes[..] else { panic!("{:?}", record.classes) };
        let reads = tally.reads.count();
        assert_eq!((&class.what, class.operations, class.bytes), (&What::Read, Some(reads), Some(reads * load.bytes)));
        assert_eq!(class.runtime_ns, load.duration_ns);
        assert_eq!(class.latency.histogram.iter().map(|(_, count)| count).sum::<u64>(), reads);
        // One switch for each request, of the measured time alone.
        let switches = record.extra["context_switches_count"];
        assert!((switches / reads as f64 - 1.0).abs() < 0.01, "{switches} {reads}");
        assert!(record.warnings.iter().any(|warning| warning.contains("0.01 s of 120 s")), "{:?}", record.warnings);
    }
}
