//! The sampler on sensors with known values, for fractions of a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use pilotlight_sensors::clock::{ClockReading, now_ns};
use pilotlight_sensors::energy::{EnergyError, Point, Window};
use pilotlight_sensors::hook::Hook;
use pilotlight_sensors::recording::{Recording, Track};
use pilotlight_sensors::sampler::StartError;
use pilotlight_sensors::{
    Config, Counts, Domain, Kind, Part, Planned, ReadError, Reading, Roots, Sampler, Sensor, Unit,
};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

fn counter(name: &str, part: Part) -> Vec<Domain> {
    vec![Domain::new(name, Kind::EnergyCounter(Counts::endless()), Unit::MicroJoule, part)]
}

/// A counter of 5 W: 5 uJ per microsecond.
fn five_watts() -> Planned {
    let read = |into: &mut Vec<Reading>| {
        into.push(Reading { domain: 0, value: (now_ns() / 200) as i64 });
        Ok(())
    };
    Planned::new(Box::new(Hook::new("truth", counter("five-watts", Part::Package(0)), 2 * MS, read)))
}

#[test]
fn energy_between_markers_is_what_flowed() {
    let sampler = Sampler::start(vec![five_watts()]).unwrap();
    let from_ns = sampler.mark("load");
    thread::sleep(Duration::from_millis(150));
    let to_ns = sampler.mark("cool-down");
    let (recording, failure) = sampler.stop();
    assert_eq!(failure, None);
    let window = recording.window("load", "cool-down").unwrap();
    assert_eq!((window.from_ns, window.to_ns), (from_ns, to_ns));
    let energy = recording.energy(0, 0, window).unwrap();
    let truth = (window.length_ns() / 200) as i64;
    // Times are known to half the duration of a reading.
    let unsure = i64::from(recording.tracks[0].punctuality().took_max_ns) / 200 + 2;
    assert!((energy.uj - truth).abs() <= unsure, "{energy:?} of {truth}, give or take {unsure}");
    let (least, most) = energy.bounds_uj.unwrap();
    assert!(least <= truth + unsure && most + unsure >= truth);
    assert_eq!(recording.window("cool-down", "load"), None);
}

#[test]
fn what_sampling_costs_is_measured() {
    let busy_ns = 300_000;
    let reads = Arc::new(AtomicU64::new(0));
    let counted = reads.clone();
    let read = move |into: &mut Vec<Reading>| {
        let until = now_ns() + busy_ns;
        while now_ns() < until {}
        counted.fetch_add(1, Ordering::Relaxed);
        into.push(Reading { domain: 0, value: 1 });
        Ok(())
    };
    let busy = Hook::new("busy", vec![Domain::gauge("load", Unit::Count)], 5 * MS, read);
    let sampler = Sampler::start(vec![Planned::new(Box::new(busy))]).unwrap();
    while reads.load(Ordering::Relaxed) < 8 {
        thread::sleep(Duration::from_millis(5)); // eight can take long on a busy machine
    }
    let (recording, _) = sampler.stop();
    let cost = recording.tracks[0].cost;
    assert!(cost.reads >= 5 && cost.wall_ns >= cost.reads * busy_ns, "{cost:?}");
    // A reading may be preempted by another thread, which is not its cost. Reading the clocks is.
    assert!(cost.cpu_ns > 0 && cost.cpu_ns <= cost.wall_ns + cost.reads * 100_000, "{cost:?}");
    assert!(recording.cpu_ns <= recording.wall_ns && recording.cost_ppm() > 0);
    let punctuality = recording.tracks[0].punctuality();
    assert_eq!(punctuality.reads as u64, cost.reads);
    assert!(
        punctuality.late_median_ns <= punctuality.late_p99_ns && punctuality.late_p99_ns <= punctuality.late_max_ns
    );
}

#[test]
fn a_sensor_that_takes_longer_than_its_interval_misses() {
    let read = |into: &mut Vec<Reading>| {
        thread::sleep(Duration::from_millis(12));
        into.push(Reading { domain: 0, value: 1 });
        Ok(())
    };
    let sleepy = Hook::new("sleepy", vec![Domain::gauge("x", Unit::Count)], MS, read).slow();
    let sampler = Sampler::start(vec![Planned::new(Box::new(sleepy)), five_watts()]).unwrap();
    thread::sleep(Duration::from_millis(120));
    let (recording, _) = sampler.stop();
    let (sleepy, quick) = (&recording.tracks[0], &recording.tracks[1]);
    assert!(sleepy.missed >= 11 * (sleepy.cost.reads - 1), "{} missed of {}", sleepy.missed, sleepy.cost.reads);
    // It has its own thread: the other one is read many times while it sleeps.
    assert!(quick.cost.reads > sleepy.cost.reads, "{} and {}", quick.cost.reads, sleepy.cost.reads);
    let at = |track: &Track| track.points[0].iter().map(|point| point.at_ns).collect::<Vec<_>>();
    assert!(at(quick).is_sorted() && at(sleepy).is_sorted());
}

/// A switch that breaks a sensor, and its number of reads.
#[derive(Clone, Default)]
struct Switch {
    broken: Arc<AtomicBool>,
    once: Arc<AtomicBool>,
    reads: Arc<AtomicU64>,
}

impl Switch {
    /// A power that fails while the switch is set.
    fn sensor(&self) -> Box<dyn Sensor> {
        let switch = self.clone();
        let read = move |into: &mut Vec<Reading>| {
            switch.reads.fetch_add(1, Ordering::Relaxed);
            if switch.broken.load(Ordering::Relaxed) || switch.once.swap(false, Ordering::Relaxed) {
                return Err(ReadError::Content("the BMC does not answer".into()));
            }
            into.push(Reading { domain: 0, value: 7_000_000 });
            Ok(())
        };
        Box::new(Hook::new("bmc", vec![Domain::power("system", Part::System)], 2 * MS, read))
    }

    fn set_broken(&self, broken: bool) {
        self.broken.store(broken, Ordering::Relaxed);
    }

    /// Has the next reading fail.
    fn fail_once(&self) {
        self.once.store(true, Ordering::Relaxed);
    }

    /// Waits for more reads of the sensor.
    fn wait(&self) {
        let enough = self.reads.load(Ordering::Relaxed) + 4;
        while self.reads.load(Ordering::Relaxed) < enough {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_needed_sensor_that_fails_ends_the_run() {
    let switch = Switch::default();
    let sampler = Sampler::start(vec![Planned::new(switch.sensor()), five_watts()]).unwrap();
    let from_ns = sampler.mark("load");
    switch.wait();
    switch.set_broken(true);
    while sampler.failure().is_none() {
        thread::sleep(Duration::from_millis(1));
    }
    let to_ns = sampler.mark("end") + S;
    let (recording, failure) = sampler.stop();
    let failure = failure.unwrap();
    assert_eq!((failure.sensor.as_str(), failure.why.as_str()), ("bmc", "the BMC does not answer"));
    let error = recording.energy(0, 0, Window { from_ns, to_ns }).unwrap_err();
    let EnergyError::Uncovered { from_ns: gap_ns, why, .. } = error else { panic!("{error}") };
    assert_eq!(why.as_deref(), Some("the BMC does not answer"));
    assert!(gap_ns > from_ns && gap_ns <= failure.at_ns);
    // A sensor that fails at once prevents the start.
    let StartError::Sensor(failure) = Sampler::start(vec![Planned::new(switch.sensor())]).err().unwrap() else {
        panic!()
    };
    assert_eq!(failure.sensor, "bmc");
}

#[test]
fn a_needed_sensor_that_recovers_leaves_a_gap() {
    let switch = Switch::default();
    let sampler = Sampler::start(vec![Planned::new(switch.sensor())]).unwrap();
    switch.fail_once();
    switch.wait();
    let (recording, failure) = sampler.stop();
    assert_eq!(failure, None);
    let gaps = &recording.tracks[0].gaps;
    assert!(gaps.len() == 1 && gaps[0].to_ns > gaps[0].from_ns, "{gaps:?}");
    assert_eq!(gaps[0].why, "the BMC does not answer");
    // At the start too.
    switch.fail_once();
    assert!(Sampler::start(vec![Planned::new(switch.sensor())]).is_ok());
}

#[test]
fn an_optional_sensor_leaves_a_gap_with_its_reason() {
    let switch = Switch::default();
    let planned = Planned { optional: true, ..Planned::new(switch.sensor()) };
    let sampler = Sampler::start(vec![planned, five_watts()]).unwrap();
    let from_ns = sampler.mark("load");
    for broken in [false, true, false] {
        switch.set_broken(broken);
        switch.wait();
    }
    let to_ns = sampler.mark("end");
    let (recording, failure) = sampler.stop();
    assert_eq!(failure, None);
    let gaps = &recording.tracks[0].gaps;
    assert!(gaps.len() == 1 && gaps[0].to_ns > gaps[0].from_ns && gaps[0].to_ns < to_ns, "{gaps:?}");
    let window = Window { from_ns, to_ns };
    let said = recording.energy(0, 0, window).unwrap_err().to_string();
    assert!(said.contains("the BMC does not answer"), "{said}");
    assert!(recording.energy(1, 0, window).is_ok(), "the other sensor has no gap");
    let before = Window { from_ns, to_ns: gaps[0].from_ns - MS };
    if let Ok(energy) = recording.energy(0, 0, before) {
        let truth = 7.0 * before.length_ns() as f64 / 1_000.0;
        assert!(
            (energy.uj as f64 - truth).abs() <= 0.5,
            "the energy before the gap is known: {energy:?} of {truth} uJ"
        );
    }
}

#[test]
fn the_time_of_a_value_is_the_middle_of_its_reading() {
    let read = |into: &mut Vec<Reading>| {
        into.push(Reading { domain: 0, value: now_ns() as i64 });
        thread::sleep(Duration::from_millis(8));
        Ok(())
    };
    let lazy = Hook::new("lazy", vec![Domain::gauge("began", Unit::Count)], 10 * MS, read).slow();
    let sampler = Sampler::start(vec![Planned::new(Box::new(lazy))]).unwrap();
    thread::sleep(Duration::from_millis(60));
    let (recording, _) = sampler.stop();
    let track = &recording.tracks[0];
    for (point, &took_ns) in track.points[0].iter().zip(&track.took_ns) {
        let after_ns = point.at_ns - point.value as u64;
        assert!(after_ns <= u64::from(took_ns) / 2, "{after_ns} ns after its beginning, of {took_ns}");
    }
}

#[test]
fn power_is_interpolated_over_few_intervals_only() {
    let energy = |interval_ns, apart_ns| {
        let mut track = Track::new("pdu", &[Domain::power("system", Part::System)], interval_ns);
        track.points[0] = [0, apart_ns].map(|at_ns| Point { at_ns, value: 1_000_000 }).to_vec();
        track.energy(0, Window { from_ns: 0, to_ns: apart_ns }).map(|energy| energy.uj)
    };
    // Five intervals, at least one second.
    assert_eq!((energy(2 * S, 10 * S), energy(MS, S)), (Ok(10_000_000), Ok(1_000_000)));
    for (interval_ns, apart_ns) in [(2 * S, 10 * S + 1), (MS, S + 1)] {
        assert!(matches!(energy(interval_ns, apart_ns), Err(EnergyError::Gap { .. })));
    }
}

#[test]
fn suspend_gives_no_energy_and_a_set_clock_does() {
    let point = |at_ns, value| Point { at_ns, value };
    let mut track = Track::new("pdu", &[Domain::power("system", Part::System)], S);
    track.points[0] = vec![point(0, 10), point(S, 10), point(2 * S, 10), point(3 * S, 10)];
    let reading = |at_ns, wall_offset_ns: u64, asleep_ns| ClockReading {
        at_ns,
        wall_offset_ns: wall_offset_ns as i64,
        asleep_ns,
    };
    let mut recording = Recording { tracks: vec![track], ..Recording::default() };
    let window = Window { from_ns: 0, to_ns: 3 * S };
    recording.clock = vec![reading(0, 0, 0), reading(S, 3_600 * S, 0), reading(3 * S, 3_600 * S, 0)];
    assert_eq!(recording.jumps().len(), 1);
    assert_eq!(recording.energy(0, 0, window).unwrap().uj, 30);
    recording.clock = vec![reading(0, 0, 0), reading(S, 60 * S, 60 * S), reading(3 * S, 60 * S, 60 * S)];
    assert_eq!(recording.energy(0, 0, window), Err(EnergyError::Suspended { at_ns: S, asleep_ns: 60 * S }));
    assert!(recording.energy(0, 0, Window { from_ns: S, to_ns: 3 * S }).is_ok(), "afterwards it was awake");
}

#[test]
fn the_kernel_s_counters_are_sampled_on_this_machine() {
    let names = ["cputime", "kernel", "diskstats", "modelled"];
    let planned: Vec<Planned> = names
        .iter()
        .filter_map(|name| match Config::by_name(name).unwrap().open(&Roots::default()) {
            Ok(sensor) => Some(Planned { interval_ns: Some(10 * MS), ..Planned::new(sensor) }),
            Err(missing) => {
                println!("skipped: {missing}");
                None
            }
        })
        .collect();
    let count = planned.len();
    let sampler = Sampler::start(planned).unwrap();
    let from_ns = sampler.mark("busy");
    let work = AtomicU64::new(0);
    while now_ns() < from_ns + 400 * MS {
        work.fetch_add(1, Ordering::Relaxed);
    }
    sampler.mark("end");
    let (recording, failure) = sampler.stop();
    assert_eq!((failure, recording.tracks.len()), (None, count));
    let text = serde_json::to_string(&recording).unwrap();
    assert_eq!(serde_json::from_str::<Recording>(&text).unwrap(), recording);
    if let Some(modelled) = recording.tracks.iter().position(|track| track.sensor == "modelled") {
        let window = recording.window("busy", "end").unwrap();
        let energy = recording.energy(modelled, 0, window).unwrap();
        // The base alone is 10 W; each core adds at most 5 W.
        assert!(energy.mean_uw(window) >= 9_000_000, "{} uW modelled", energy.mean_uw(window));
    }
    println!("sampling took {} millionths of a CPU", recording.cost_ppm());
}
