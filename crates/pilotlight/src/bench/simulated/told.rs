//! What the simulator counted, as what sensors and fio would have said.
//!
//! Counters are told at the end of each slot of time, energy in whole microjoules. CPU time is of all processors together.

use std::collections::BTreeMap;

use pilotlight_bench::record::{Class, Latency, Record, Tool, What};
use pilotlight_bench::run::computed::Observed;
use pilotlight_bench::workload::Stage;
use pilotlight_sensors::energy::{Point, Window};
use pilotlight_sensors::recording::{Marker, Track};
use pilotlight_sensors::sensor::{Counts, Kind, Unit};
use pilotlight_sensors::{Domain, Origin, Part, Recording};
use pilotlight_sim::histogram::Histogram;
use pilotlight_sim::local::{Load, Local, Slot, Tally};

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
    Class { what, operations: of.count(), bytes, runtime_ns: load.duration_ns, latency }
}
