//! Readings of power, bytes and latencies equal the run's values, a window and a lag later; measuring does not change the run.

mod support;

use std::sync::{Arc, Mutex};

use pilotlight_plant::{
    Command, CoreId, Goals, Next, Policy, Quantity, Reading, ReadingId, Sample, Scope, SleepGoal, Source, Start, Stat,
    Unsupported, Wants,
};
use pilotlight_sim::engine::{run_naive, run_traced};
use pilotlight_sim::outcome::Outcome;
use pilotlight_sim::scenario::{Scenario, Sensors};
use pilotlight_sim::sensor::SensorModel;

const WINDOW_NS: u64 = 1_000_000;
const LAG_NS: u64 = 2_000_000;
const INTERVAL_NS: u64 = 300_000;

/// The policy's readings: time, and all readings.
type Samples = Arc<Mutex<Vec<(u64, Vec<Reading>)>>>;

/// A policy that wants all readings or none, and occasionally puts a core to sleep.
#[derive(Default)]
struct Reader {
    reads: bool,
    wanted: Vec<ReadingId>,
    sources: Arc<Mutex<Vec<Source>>>,
    samples: Samples,
}

impl Policy for Reader {
    fn name(&self) -> &'static str {
        "reader"
    }

    fn wants(&self) -> Wants {
        Wants { interval_ns: Some(INTERVAL_NS), readings: self.wanted.clone(), ..Wants::default() }
    }

    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        let sources = &start.capabilities.sources;
        self.sources.lock().unwrap().clone_from(sources);
        self.wanted = (0..sources.len() as u16).map(ReadingId).filter(|_| self.reads).collect();
        out.push(Command::Sleep { core: CoreId(3), goal: SleepGoal::SHALLOWEST });
        Ok(Next::at(0))
    }

    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        self.samples.lock().unwrap().push((sample.now_ns, sample.readings.to_vec()));
        if (sample.now_ns / INTERVAL_NS).is_multiple_of(7) {
            out.push(Command::Move { thread: pilotlight_plant::ThreadId(3), to: CoreId(0) });
        }
        Next::at(0)
    }

    fn on_goals(&mut self, _now_ns: u64, _goals: &Goals, out: &mut Vec<Command>) {
        out.push(Command::Wake { core: CoreId(3) });
    }
}

fn scenario() -> Scenario {
    let mut scenario = support::scenario(4, 3, 150_000.0, 20_000_000, 5);
    scenario.series_ns = WINDOW_NS;
    scenario.sensors =
        Sensors { window_ns: WINDOW_NS, lag_ns: LAG_NS, silent: vec![(12_000_000, 16_000_000)], meter: None };
    scenario.goals = vec![(0, Goals::default()), (7_777_777, Goals::default())];
    scenario
}

struct RunResult {
    outcome: Outcome,
    trace: Vec<u8>,
    sources: Vec<Source>,
    samples: Vec<(u64, Vec<Reading>)>,
}

fn ran(reads: bool, naive: bool) -> RunResult {
    ran_with(None, reads, naive)
}

fn ran_with(meter: Option<SensorModel>, reads: bool, naive: bool) -> RunResult {
    let mut scenario = scenario();
    scenario.sensors.meter = meter;
    let policy = Reader { reads, ..Reader::default() };
    let (samples, sources) = (Arc::clone(&policy.samples), Arc::clone(&policy.sources));
    let mut trace = Vec::new();
    let engine = if naive { run_naive } else { run_traced };
    let outcome = engine(&scenario, Box::new(policy), &mut trace).unwrap();
    let (samples, sources) = (samples.lock().unwrap().clone(), sources.lock().unwrap().clone());
    RunResult { outcome, trace, sources, samples }
}

#[test]
fn reading_changes_nothing_else() {
    let (with, without) = (ran(true, false), ran(false, false));
    assert!(with.trace == without.trace && with.outcome == without.outcome);
    assert!(without.samples.iter().all(|(_, readings)| readings.is_empty()));
}

#[test]
fn both_engines_read_the_same() {
    let (fast, naive) = (ran(true, false), ran(true, true));
    assert!(fast.trace == naive.trace && fast.outcome == naive.outcome);
    assert_eq!(fast.samples, naive.samples);
}

#[test]
fn power_is_that_of_the_run_a_lag_later() {
    let RunResult { outcome, sources, samples, .. } = ran(true, false);
    let find =
        |of, quantity| sources.iter().position(|source| source.scope == of && source.quantity == quantity).unwrap();
    let (server, package) = (find(Scope::Server, Quantity::PowerUw), find(Scope::Package(0), Quantity::PowerUw));
    let drives: Vec<_> = (0..3).map(|drive| find(Scope::Device(drive), Quantity::PowerUw)).collect();
    let mut seen = 0;
    for (now_ns, readings) in &samples {
        let known = now_ns.saturating_sub(LAG_NS) / WINDOW_NS; // windows whose end is a lag ago
        let Some(value) = readings[server].value else { continue };
        let ended_ns = now_ns - readings[server].age_ns;
        let window = (ended_ns / WINDOW_NS) as usize - 1;
        let silent = (12..16).contains(&(ended_ns / WINDOW_NS));
        assert!(!silent && ended_ns / WINDOW_NS <= known && *now_ns >= ended_ns + LAG_NS, "{ended_ns} at {now_ns}");
        let energy = outcome.series[window].energy;
        assert_eq!(value, energy.system_uj() * 1_000, "uJ in 1 ms as uW");
        assert_eq!(readings[package].value, Some(energy.cpu_uj * 1_000));
        let all: u64 = drives.iter().filter_map(|&drive| readings[drive].value).sum();
        assert!(all.abs_diff(energy.drives_uj * 1_000) < 10_000, "{all} of {}", energy.drives_uj);
        seen += 1;
    }
    assert!(seen > 30, "{seen} readings");
    let stale =
        samples.iter().filter(|(at_ns, readings)| *at_ns > 5_000_000 && readings[server].value.is_none()).count();
    assert!(stale > 3, "sensors were silent");
}

/// Like IPMI's sensor: a moving average of 3 ms, 2 ms late, every millisecond, in whole watts.
#[test]
fn a_meter_is_delayed_averaged_and_quantised() {
    let exact = ran(true, false);
    let meter = SensorModel {
        window_ns: 3 * WINDOW_NS,
        lag_ns: LAG_NS,
        update_ns: WINDOW_NS,
        quantum_uw: 1_000_000,
        noise_uw: 0,
        gain_ppm: 1_000_000,
        missing_ppm: 0,
    };
    let [fast, naive] = [false, true].map(|naive| ran_with(Some(meter), true, naive));
    assert!(fast.trace == exact.trace, "who reads changes nothing");
    assert!(fast.samples == naive.samples && fast.outcome == naive.outcome);
    let source = fast.sources.iter().position(|source| source.scope == Scope::Server).unwrap();
    let Source { window_ns, lag, .. } = fast.sources[source];
    assert_eq!((window_ns, lag.ns()), (3 * WINDOW_NS, LAG_NS));
    let mut seen = 0;
    for (now_ns, readings) in &fast.samples {
        let Some(value) = readings[source].value else { continue };
        let ended = (now_ns / WINDOW_NS * WINDOW_NS - LAG_NS) / WINDOW_NS;
        assert_eq!(now_ns - readings[source].age_ns, ended * WINDOW_NS);
        let window = &fast.outcome.series[ended as usize - 3..ended as usize];
        let watts = window.iter().map(|stretch| stretch.energy.system_uj() as f64 / 1e3).sum::<f64>() / 3.0;
        assert!((value as f64 / 1e6 - watts).abs() < 0.502 && value.is_multiple_of(1_000_000), "{value} of {watts} W");
        seen += 1;
    }
    assert!(seen > 20, "{seen} readings");
    assert_eq!(fast.outcome.metered_uw.len(), fast.outcome.series.len());
    assert_eq!(exact.outcome.metered_uw, []);
    let noisy = SensorModel { noise_uw: 5_000_000, gain_ppm: 900_000, ..meter };
    let noisy = ran_with(Some(noisy), true, false).outcome.metered_uw;
    let samples = |all: &[Option<u64>]| all.iter().flatten().map(|uw| uw / 1_000_000).collect::<Vec<_>>();
    let (plain, noisy) = (samples(&fast.outcome.metered_uw), samples(&noisy));
    let mean = |all: &[u64]| all.iter().sum::<u64>() as f64 / all.len() as f64;
    assert!((mean(&noisy) / mean(&plain) - 0.9).abs() < 0.02, "{plain:?} {noisy:?}");
}

#[test]
fn bytes_and_latencies_are_those_of_the_requests() {
    let RunResult { outcome, sources, samples, .. } = ran(true, false);
    let of = |quantity| {
        let sources = sources.iter().enumerate().filter(move |(_, source)| source.quantity == quantity);
        sources.map(|(at, _)| at).collect::<Vec<_>>()
    };
    let (_, readings) = samples.iter().find(|(_, readings)| readings[0].age_ns < u64::MAX).unwrap();
    let bytes: u64 = of(Quantity::BytesPerS).into_iter().filter_map(|at| readings[at].value).sum();
    let iops = bytes as f64 / 4_096.0;
    assert!((120_000.0..180_000.0).contains(&iops), "{iops} of 150,000 offered");
    let latency = |stat| readings[of(Quantity::LatencyNs(stat))[0]].value.unwrap();
    let [mean, p50, p99] = [Stat::Mean, Stat::P50, Stat::P99].map(latency);
    let host = outcome.latency[0].1.mean() as u64;
    assert!(p50 < p99 && mean < p99 && mean < host, "{mean} {p50} {p99} of {host} at the host");
}
