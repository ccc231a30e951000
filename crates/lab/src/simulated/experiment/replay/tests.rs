//! Whole replays, and sampled ones compared with whole ones.

use pilotlight_plant::Policy;
use pilotlight_sim::outcome::Outcome;
use pilotlight_sim::scenario::Scenario;

use super::*;
use crate::simulated::experiment::schema::{MeanRate, Sample, Siblings};
use crate::simulated::quantity::Time;
use crate::simulated::sweep::SimulationError;

const MS: u64 = 1_000_000;

fn trace(source: &str) -> Trace {
    Trace {
        source: source.into(),
        volumes: 16,
        client_sets: 4,
        threads_per_client: 2,
        dependent: None,
        depth: 8,
        mean_iops: Some(MeanRate::Fixed(20_000.0)),
        format: None,
        sizes: None,
        spread: Time(0),
        begin: Time(0),
        speed: 1.0,
        sample: None,
    }
}

#[test]
fn a_surrogate_is_replayed_on_all_connections_and_drives() {
    let trace = trace("surrogate:alibaba");
    let arrivals: Vec<Arrival> = source(&trace, 4, 1_000_000_000, 1).unwrap().collect();
    assert!(arrivals.len() > 5_000 && arrivals.is_sorted_by_key(|arrival| arrival.at_ns));
    assert!(arrivals.iter().all(|arrival| arrival.connection < 8 && arrival.what.drive < 4));
    let drives: std::collections::BTreeSet<u16> = arrivals.iter().map(|arrival| arrival.what.drive).collect();
    assert_eq!(drives.len(), 4);
    let again: Vec<Arrival> = source(&trace, 4, 1_000_000_000, 1).unwrap().collect();
    assert_eq!(arrivals, again);
    let cores = |placement| Cores { cores: 3, siblings: Siblings::Adjacent(false), threads: 3, placement };
    let threads = |placement| connections(&trace, cores(placement), 4).iter().map(|one| one.thread).collect::<Vec<_>>();
    assert_eq!(threads(ThreadPlacement::Queue), [0, 1, 2, 0, 1, 2, 0, 1]);
    assert_eq!(threads(ThreadPlacement::Host), [0, 0, 1, 1, 2, 2, 0, 0], "four client sets with two threads each");
}

#[test]
fn errors_name_an_unknown_surrogate_or_file() {
    assert!(source(&trace("surrogate:azure"), 4, 1, 1).err().unwrap().to_string().contains("azure"));
    assert!(source(&trace("/no/such/file"), 4, 1, 1).err().unwrap().to_string().contains("/no/such/file"));
    let folder = tempfile::tempdir().unwrap();
    let issued = Trace { source: folder.path().join("issued.txt").to_str().unwrap().into(), ..trace("") };
    std::fs::write(&issued.source, "8,0 1 1 0.0 697 D W 8 + 8 [fio]\n").unwrap();
    assert!(source(&issued, 4, 1, 1).err().unwrap().to_string().contains("--blkparse-action issued"));
    let range = |low, high| Trace { mean_iops: Some(MeanRate::Drawn([low, high])), ..trace("surrogate:alibaba") };
    assert!(source(&range(5.0, 1.0), 4, 1, 1).err().unwrap().to_string().contains("mean_iops"));
}

#[test]
fn a_rate_is_drawn_from_its_range_by_each_seed() {
    let drawn = |seed| {
        let trace = Trace { mean_iops: Some(MeanRate::Drawn([100.0, 10_000.0])), ..trace("surrogate:tencent") };
        Origin::new(&trace, 4, 1, seed).unwrap().mean_iops().unwrap()
    };
    let all: Vec<f64> = (0..50).map(drawn).collect();
    assert!(all.iter().all(|rate| (100.0..=10_000.0).contains(rate)));
    let low = all.iter().filter(|&&rate| rate < 1000.0).count();
    assert!((12..=38).contains(&low), "half of them below the middle of the logarithm: {low}");
}

/// A file with a request of 4 KiB per millisecond, for eight volumes in turn.
fn file(folder: &std::path::Path, requests: u64) -> Trace {
    let line = |at: u64| format!("{},W,{},4096,{}\n", at % 8, at * 4096, 1_577_808_000_000_000 + at * 1000);
    let path = folder.join("io_traces.csv");
    std::fs::write(&path, (0..requests).map(line).collect::<String>()).unwrap();
    Trace { volumes: 8, ..trace(path.to_str().unwrap()) }
}

#[test]
fn sizes_of_devices_choose_the_volumes() {
    let folder = tempfile::tempdir().unwrap();
    let mut trace = Trace { volumes: 1, ..file(folder.path(), 400) }; // of the busiest quarter, 0 and 1
    let volumes = |trace: &Trace| {
        let places = Origin::new(trace, 4, 1_000 * MS, 1).unwrap().placement.places;
        places.iter().map(|place| place.volume).collect::<Vec<_>>()
    };
    let sizes = folder.path().join("device_size.csv");
    std::fs::write(&sizes, "device_id,capacity\n0,40000000000\n1,500000000000\n").unwrap();
    trace.sizes = Some(sizes.to_str().unwrap().into());
    assert_eq!(volumes(&trace), [1], "the closest to 480 GB");
    std::fs::write(&sizes, "0,480000000000\n1,1\n").unwrap();
    assert_eq!(volumes(&trace), [0]);
    for wrong in ["1;1", "1,1,1", "1,-1"] {
        std::fs::write(&sizes, format!("# sizes\n0,480000000000\n{wrong}\n")).unwrap();
        let error = Origin::new(&trace, 4, 1_000 * MS, 1).unwrap_err().to_string();
        assert!(error.contains("line 3") && error.contains(wrong), "{error}");
    }
}

/// An engine with immediate completions and an energy of 1 uJ per request and 1 J per second, which records its input.
fn counting(scenario: &Scenario, source: Option<Source<'_>>, seen: &mut Vec<(u64, u64)>) -> Outcome {
    let mut outcome = Outcome {
        measured_ns: scenario.duration_ns - scenario.warm_up_ns,
        requests: pilotlight_sim::outcome::Requests::default(),
        latency: vec![(0, pilotlight_sim::histogram::Histogram::default())],
        cap_waits: pilotlight_sim::histogram::Histogram::default(),
        background: Vec::new(),
        metered_uw: Vec::new(),
        label_ns: Vec::new(),
        energy: pilotlight_sim::outcome::Energy::default(),
        family: Vec::new(),
        capped_uj: 0,
        series: vec![pilotlight_sim::outcome::Stretch::default(); (scenario.duration_ns / scenario.series_ns) as usize],
        decisions: pilotlight_sim::outcome::Decisions::default(),
        view: Vec::new(),
        saturated: false,
        jobs: pilotlight_sim::outcome::Jobs::default(),
    };
    for stretch in &mut outcome.series {
        stretch.energy.cpu_uj = scenario.series_ns / 1000;
    }
    let (mut run_in, mut measured) = (0, 0);
    for arrival in source.into_iter().flatten() {
        assert!(arrival.at_ns < scenario.duration_ns);
        if arrival.at_ns < scenario.warm_up_ns {
            run_in += 1;
            continue;
        }
        measured += 1;
        outcome.latency[0].1.record(1000);
        let stretch = &mut outcome.series[(arrival.at_ns / scenario.series_ns) as usize];
        stretch.answered += 1;
        stretch.energy.drives_uj += 1;
    }
    outcome.requests.answered = run_in + measured;
    seen.push((run_in, measured));
    outcome
}

/// A scenario for a part of a trace.
fn bare(duration_ns: u64, series_ns: u64) -> Scenario {
    let text = |path: &str| std::fs::read_to_string(format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let files = crate::simulated::machine::MachineFiles::parse(
        &text("profiles/sandman-epyc-9454p.toml"),
        &text("profiles/calibration/sandman-epyc-9454p.toml"),
    );
    let drive = pilotlight_sim::ssd::SsdModel::parse(&text("profiles/ssd/pm1743.toml")).unwrap();
    Scenario {
        machine: files.unwrap().machine(&[]).unwrap(),
        family: Vec::new(),
        topology: pilotlight_plant::Topology::flat(4).unwrap(),
        threads: 4,
        drives: vec![drive; 4],
        scheduled: None,
        workload: pilotlight_sim::scenario::Workload::default(),
        duration_ns,
        warm_up_ns: 0,
        series_ns,
        seed: 1,
        eager: false,
        sensors: pilotlight_sim::scenario::Sensors::default(),
        goals: Vec::new(),
        changes: Vec::new(),
    }
}

fn run_counting(trace: &Trace, scenario: &Scenario) -> (Outcome, SampledReplay, Vec<(u64, u64)>) {
    let seen = std::sync::Mutex::new(Vec::new());
    let engine = |scenario: &Scenario, _: Box<dyn Policy>, source: Option<Source<'_>>| {
        Ok(counting(scenario, source, &mut seen.lock().unwrap()))
    };
    let policy = || Ok(pilotlight_policy::build("static", &[])?);
    let sample = trace.sample.as_ref().unwrap();
    let run = sampled::Run { trace, sample, scenario, policy: &policy, engine: &engine };
    let (outcome, sampled) = Replays::default().run(&run).unwrap();
    (outcome, sampled, seen.into_inner().unwrap())
}

fn sample(windows: usize) -> Sample {
    Sample {
        windows,
        window: Time(100 * MS),
        run_in: Time(50 * MS),
        strata: 4,
        around_bursts: 0,
        exact_requests: 0,
        exact_time: Time(0),
    }
}

#[test]
fn a_whole_replay_counts_every_request_and_joule_once() {
    let folder = tempfile::tempdir().unwrap();
    let exact = Sample { exact_requests: 1000, exact_time: Time(2_000 * MS), ..sample(2) };
    let trace = Trace { sample: Some(exact), ..file(folder.path(), 950) };
    let (outcome, sampled, seen) = run_counting(&trace, &bare(3_600_000 * MS, 200 * MS));
    assert_eq!(seen, [(0, 950)], "one unit, and before its beginning it is quiet");
    assert_eq!((sampled.windows, sampled.requests, sampled.span_ns), ((10, 10), 950, 1000 * MS));
    assert!(sampled.is_exact());
    assert_eq!((outcome.measured_ns, outcome.latency[0].1.count()), (1000 * MS, 950));
    assert_eq!(outcome.energy.system_uj(), 1_000_000 + 950);
    assert!((sampled.joules.total - 1.00095).abs() < 1e-9 && sampled.joules.low == sampled.joules.total);
    let answered: Vec<u64> = outcome.series.iter().map(|stretch| stretch.answered).collect();
    assert_eq!(answered, [200, 200, 200, 200, 150]);
    let value = |name: &str| sampled.metrics(1.00095).into_iter().find(|metric| metric.name == name).unwrap().value;
    assert!((value("joules_per_day") - 86_482.08).abs() < 1e-6);
    assert!((value("kwh_per_month") - 86_482.08 * 30.0 / 3.6e6).abs() < 1e-9);
}

#[test]
fn windows_have_a_run_in_and_represent_others() {
    let folder = tempfile::tempdir().unwrap();
    let trace = Trace { sample: Some(sample(12)), ..file(folder.path(), 10_000) };
    let (outcome, sampled, seen) = run_counting(&trace, &bare(3_600_000 * MS, 1000 * MS));
    assert_eq!((sampled.windows, sampled.requests), ((12, 100), 10_000));
    assert!(seen.iter().all(|&(run_in, measured)| measured == 100 && (run_in == 50 || run_in == 0)), "{seen:?}");
    assert!(seen.iter().filter(|&&(run_in, _)| run_in == 0).count() <= 1, "only the very first has none: {seen:?}");
    assert_eq!((outcome.latency[0].1.count(), outcome.measured_ns), (10_000, 10_000 * MS));
    assert_eq!(outcome.energy.system_uj(), 10_000_000 + 10_000);
    assert_eq!(outcome.series.len(), 10);
    assert!(sampled.joules.high - sampled.joules.low < 1e-9, "all windows are alike");
}

#[test]
fn windows_of_a_surrogate_match_the_whole() {
    let trace = Trace {
        mean_iops: Some(MeanRate::Fixed(3000.0)),
        sample: Some(Sample { around_bursts: 3, ..sample(20) }),
        ..trace("surrogate:alibaba")
    };
    let scenario = bare(60_000 * MS, 1000 * MS);
    let (outcome, sampled, seen) = run_counting(&trace, &scenario);
    let all: Vec<Arrival> = source(&trace, 4, 60_000 * MS, 1).unwrap().collect();
    let ratio = sampled.requests as f64 / all.len() as f64;
    assert!((ratio - 1.0).abs() < 0.05, "{ratio}");
    let estimated = outcome.latency[0].1.count() as f64 / all.len() as f64;
    assert!((estimated - 1.0).abs() < 0.1, "{estimated}");
    assert!(!sampled.is_exact() && seen.len() <= 23 && sampled.windows.1 == 600, "{:?}", sampled.windows);
    let again = run_counting(&trace, &scenario);
    assert_eq!((outcome, sampled, seen), again);
}

#[test]
fn a_window_must_fit_the_series() {
    let trace = Trace { sample: Some(sample(4)), ..trace("surrogate:alibaba") };
    let policy = || Ok(pilotlight_policy::build("static", &[])?);
    let engine = |_: &Scenario, _: Box<dyn Policy>, _: Option<Source<'_>>| Err(SimulationError::Absent(""));
    let scenario = bare(1000 * MS, 150 * MS);
    let sample = trace.sample.as_ref().unwrap();
    let run = sampled::Run { trace: &trace, sample, scenario: &scenario, policy: &policy, engine: &engine };
    assert!(Replays::default().run(&run).unwrap_err().to_string().contains("sample.window"));
}
