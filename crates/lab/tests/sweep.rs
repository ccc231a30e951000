//! Sweeps: equal results with one and two workers, after an interruption, and with the simulator.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use pilotlight_lab::report::{Read, report};
use pilotlight_lab::results::Folder;
use pilotlight_lab::simulated::experiment::{self, Bench, Point, Request};
use pilotlight_lab::simulated::sweep::{Engine, SimulationError, Sweep, simulator};
use pilotlight_lab::simulated::variant::{self, Choice, Variant};
use pilotlight_lab::stored::values::{self, Results, RunKey};
use pilotlight_sim::histogram::Histogram;
use pilotlight_sim::outcome::{Energy, Outcome, Requests, Stretch};
use pilotlight_sim::scenario::Scenario;

/// Tiny: a core, 3 ms, two policies, two rates, three replications.
fn bench(set: &[(&str, &str)]) -> Bench {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../papers/sandman/fig3.toml");
    let mut keys = vec![
        ("topology", "{ cores = 2, siblings = true, threads = 2 }"),
        ("policy", "[{ label = 'static', name = 'static' }, { label = 'hybrid', name = 'hybrid-poll' }]"),
        ("drive.pm1743.count", "2"),
        ("parameter.rate.values", "[[20000, '3ms'], [40000, '3ms']]"),
        ("duration", "3ms"),
        ("series", "100us"),
        ("warm_up", "{ rule = 'mser-5', min = '300us', max = '1ms' }"),
        ("smoke", "{}"),
    ];
    keys.extend(set);
    let set = keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    experiment::load(&path, &Request { set, smoke: false, repeats: Some(3) }).unwrap()
}

fn variants(bench: &Bench) -> Vec<Variant> {
    variant::variants(&bench.machine.calibration, &Choice::default()).unwrap()
}

/// A run without simulation: values derived from scenario and seed.
fn stand_in(scenario: &Scenario) -> Outcome {
    let mut latency = Histogram::default();
    latency.record(10_000 + scenario.seed * 100);
    let energy = Energy { cpu_uj: 5_000 * scenario.seed, drives_uj: 1, others_uj: 1 };
    Outcome {
        jobs: pilotlight_sim::outcome::Jobs::default(),
        background: Vec::new(),
        measured_ns: scenario.duration_ns - scenario.warm_up_ns,
        requests: Requests::default(),
        latency: vec![(0, latency)],
        label_ns: vec![(0, scenario.duration_ns)],
        energy,
        series: vec![Stretch { energy, answered: 1, latency_ns: 5, ..Stretch::default() }; 30],
        decisions: pilotlight_sim::outcome::Decisions::default(),
        view: Vec::new(),
        family: Vec::new(),
        cap_waits: Histogram::default(),
        metered_uw: Vec::new(),
        capped_uj: 0,
        saturated: scenario.seed == 2 && scenario.threads == 2,
    }
}

fn run(bench: &Bench, file: &Path, workers: usize, engine: &Engine<'_>) -> Result<Results, String> {
    let variants = variants(bench);
    let sweep = Sweep::new(bench, &variants);
    let workers = NonZeroUsize::new(workers).unwrap();
    sweep.run(file, workers, engine, &|_| {}).map_err(|error| error.to_string())
}

fn packed(file: &Path) -> Vec<u8> {
    assert!(!file.exists(), "the journal of a finished sweep is removed");
    std::fs::read(values::packed_path(file)).unwrap()
}

/// The results file of an experiment.
fn place(folder: &tempfile::TempDir, name: &str) -> PathBuf {
    let folder = folder.path().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(values::FILE)
}

#[test]
fn results_are_independent_of_the_number_of_workers() {
    let folder = tempfile::tempdir().unwrap();
    let bench = bench(&[]);
    let files = [1, 2].map(|workers| {
        let file = place(&folder, &workers.to_string());
        let results = run(&bench, &file, workers, &simulator).unwrap();
        assert_eq!(results.runs.len(), 12);
        assert_eq!(Results::read(&values::packed_path(&file)).unwrap(), results);
        packed(&file)
    });
    assert_eq!(files[0], files[1]);
    let text = values::text(&values::packed_path(&place(&folder, "1"))).unwrap();
    assert!(text.starts_with(&format!("# schema=2\n# profile=sandman-epyc-9454p hash={}\n", bench.hash)));
}

#[test]
fn variants_that_differ_only_in_power_ride_with_equal_results() {
    let folder = tempfile::tempdir().unwrap();
    let bench = bench(&[]);
    let choice = Choice { family: true, ..Choice::default() };
    let family = variant::variants(&bench.machine.calibration, &choice).unwrap();
    let member = family.iter().find(|variant| variant.name == "family:exit-at-rest").unwrap();
    assert!(member.rides() && !family.iter().find(|variant| variant.name == "family:idle-deep").unwrap().rides());
    // under a name that does not ride, the same changes have their own run
    let alone = [family[0].clone(), Variant { name: "alone".into(), ..member.clone() }];
    let results = [&family[..], &alone].map(|variants| {
        let file = place(&folder, &variants.len().to_string());
        Sweep::new(&bench, variants).run(&file, NonZeroUsize::MIN, &simulator, &|_| {}).unwrap()
    });
    let mut differ = 0;
    for (key, run) in results[1].runs.iter().filter(|(key, _)| key.variant == "alone") {
        let named = |name: &str| &results[0].runs[&RunKey { variant: name.into(), ..key.clone() }];
        let rider = named("family:exit-at-rest");
        let names: Vec<&str> = rider.values.iter().map(|value| value.metric.as_str()).collect();
        // only power is stored; all other values are those of the default
        assert_eq!(names, ["cpu_power_w", "ssd_power_w", "others_power_w", "system_power_w", "saturated"]);
        assert!(rider.values.iter().all(|value| run.get(&value.metric) == Some(value.value)), "{key:?}");
        assert_eq!(named("default").get("latency_p99_us"), run.get("latency_p99_us"));
        differ += u32::from(named("default").get("cpu_power_w") != run.get("cpu_power_w"));
    }
    assert!(differ > 0, "the member is another machine");
}

#[test]
fn a_changed_constant_of_power_rides_too() {
    let folder = tempfile::tempdir().unwrap();
    let bench = bench(&[]);
    let choice = Choice { perturb: Some(20), ..Choice::default() };
    let name = "perturb:power.read_4k_nj:+20";
    let moved = variant::variants(&bench.machine.calibration, &choice).unwrap();
    let rider = moved.iter().find(|variant| variant.name == name).unwrap().clone();
    let alone = Variant { name: "alone".into(), ..rider.clone() };
    let both = [moved[0].clone(), rider, alone];
    let file = place(&folder, "moved");
    let results = Sweep::new(&bench, &both).run(&file, NonZeroUsize::MIN, &simulator, &|_| {}).unwrap();
    let mut differ = 0;
    for (key, run) in results.runs.iter().filter(|(key, _)| key.variant == "alone") {
        let named = |name: &str| RunKey { variant: name.into(), ..key.clone() };
        let rider = &results.runs[&named(name)];
        assert!(rider.values.iter().all(|value| run.get(&value.metric) == Some(value.value)), "{key:?}");
        let default = &results.runs[&named("default")];
        differ += u32::from(default.get("system_power_w") != rider.get("system_power_w"));
    }
    assert!(differ > 0, "it draws more");
}

#[test]
fn an_interrupted_sweep_gives_the_same_results() {
    let folder = tempfile::tempdir().unwrap();
    let bench = bench(&[]);
    let (whole, broken) = (place(&folder, "whole"), place(&folder, "broken"));
    run(&bench, &whole, 1, &|scenario, _, _| Ok(stand_in(scenario))).unwrap();
    let calls = AtomicUsize::new(0);
    let fails = |scenario: &Scenario| {
        if calls.fetch_add(1, Ordering::Relaxed) < 7 {
            Ok(stand_in(scenario))
        } else {
            Err(SimulationError::Absent("more"))
        }
    };
    let message = run(&bench, &broken, 1, &|scenario, _, _| fails(scenario)).unwrap_err();
    assert!(message.contains("no more") && message.contains("rate=20000"), "{message}");
    // and killed in the middle of a row
    let half =
        std::fs::read_to_string(&broken).unwrap() + "fig3,rate=40000,default,hybrid,2,3,iops,IOPS,1\nfig3,rate=400";
    std::fs::write(&broken, half).unwrap();
    let again = AtomicUsize::new(0);
    let counted = |scenario: &Scenario| {
        again.fetch_add(1, Ordering::Relaxed);
        Ok(stand_in(scenario))
    };
    run(&bench, &broken, 2, &|scenario, _, _| counted(scenario)).unwrap();
    assert_eq!(packed(&whole), packed(&broken));
    // 12 runs and a pilot run for each of 4 cells, minus the stored ones
    assert!(again.load(Ordering::Relaxed) < 16, "{again:?}");
}

#[test]
fn more_replications_extend_packed_results() {
    let folder = tempfile::tempdir().unwrap();
    let (bench, longer) = (bench(&[]), bench(&[("repeats", "3")]));
    let fewer =
        Bench { points: bench.points.iter().map(|point| with_one_replication(point.clone())).collect(), ..bench };
    let file = place(&folder, "r");
    let runs = AtomicUsize::new(0);
    let engine = |scenario: &Scenario| {
        runs.fetch_add(1, Ordering::Relaxed);
        Ok(stand_in(scenario))
    };
    assert_eq!(run(&fewer, &file, 1, &|scenario, _, _| engine(scenario)).unwrap().runs.len(), 4);
    assert_eq!(run(&longer, &file, 1, &|scenario, _, _| engine(scenario)).unwrap().runs.len(), 12);
    let (bytes, count) = (packed(&file), runs.load(Ordering::Relaxed));
    assert_eq!(count, 4 + 8 + 2 * 4, "a run each, and a pilot for each cell and call");
    assert_eq!(run(&fewer, &file, 1, &|scenario, _, _| engine(scenario)).unwrap().runs.len(), 12);
    assert_eq!((packed(&file), runs.load(Ordering::Relaxed)), (bytes, count));
}

fn with_one_replication(mut point: Point) -> Point {
    point.experiment.repeats = 1;
    point
}

/// A sweep that is killed between packing and removing the journal leaves runs in both files.
#[test]
fn runs_in_both_files_count_once() {
    let folder = tempfile::tempdir().unwrap();
    let bench = bench(&[]);
    let file = place(&folder, "r");
    run(&bench, &file, 1, &|scenario, _, _| Ok(stand_in(scenario))).unwrap();
    let bytes = packed(&file);
    let text = values::text(&values::packed_path(&file)).unwrap();
    std::fs::write(&file, text.clone() + "fig3,rate=20000,default,static,9,10,iops,IOPS,5\n").unwrap();
    let rest = values::text(&file).unwrap();
    assert_eq!(
        rest.lines().filter(|line| line.starts_with("fig3,")).count(),
        1,
        "packed results are printed once: {rest}"
    );
    assert_eq!(values::read(&file).unwrap().unwrap().runs.len(), 12);
    run(&bench, &file, 1, &|_, _, _| Err(SimulationError::Absent("run"))).unwrap();
    assert_eq!(packed(&file), bytes);
}

#[test]
fn results_are_locked_by_a_sweep() {
    let folder = tempfile::tempdir().unwrap();
    let (bench, file) = (bench(&[]), place(&folder, "r"));
    let meanwhile = |scenario: &Scenario| {
        let other = run(&bench, &file, 1, &|_, _, _| Err(SimulationError::Absent("run"))).unwrap_err();
        assert!(other.contains("another sweep writes these results"), "{other}");
        Ok(stand_in(scenario))
    };
    run(&bench, &file, 1, &|scenario, _, _| meanwhile(scenario)).unwrap();
    run(&bench, &file, 1, &|_, _, _| Err(SimulationError::Absent("run"))).unwrap();
}

/// One of two policies has changed: its runs are set aside and repeated, the others are kept.
#[test]
fn only_stale_runs_are_set_aside_and_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let file = place(&folder, "r");
    let before = run(&bench(&[]), &file, 1, &|scenario, _, _| Ok(stand_in(scenario))).unwrap();
    let label = before.runs.keys().next().unwrap().policy.clone();
    let key = format!("policy.{label}.machine");
    let other = bench(&[(key.as_str(), "{ 'poll.loop_ns' = 77 }")]);
    let runs = AtomicUsize::new(0);
    let engine = |scenario: &Scenario| {
        runs.fetch_add(1, Ordering::Relaxed);
        assert_eq!(scenario.machine.poll.loop_ns, 77);
        Ok(stand_in(scenario))
    };
    let after = run(&other, &file, 1, &|scenario, _, _| engine(scenario)).unwrap();
    let stale = before.runs.keys().filter(|key| key.policy == label).count();
    let pilots = stale / 3;
    assert_eq!(runs.load(Ordering::Relaxed), stale + pilots);
    assert_eq!(after.runs.len(), before.runs.len());
    let is_aside = |name: &str| name.starts_with("values.stale-") && name.ends_with(".csv.zst");
    let entries = std::fs::read_dir(file.parent().unwrap()).unwrap();
    let aside: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    let aside: Vec<&PathBuf> =
        aside.iter().filter(|path| is_aside(&path.file_name().unwrap().to_string_lossy())).collect();
    let [aside] = aside[..] else { panic!("{aside:?}") };
    assert_eq!(Results::read(aside).unwrap().runs.len(), stale);
    assert!(!values::is_results(aside), "it is no part of the results");
    for (cell, fingerprint) in &before.cells {
        assert_eq!(after.cells[cell] == *fingerprint, cell.policy != label, "{cell:?}");
    }
    run(&other, &file, 1, &|_, _, _| Err(SimulationError::Absent("run"))).unwrap();
}

#[test]
fn seeds_depend_on_the_replication_only() {
    let folder = tempfile::tempdir().unwrap();
    let file = place(&folder, "r");
    let results = run(&bench(&[]), &file, 2, &|scenario, _, _| Ok(stand_in(scenario))).unwrap();
    assert!(results.runs.iter().all(|(key, run)| run.seed == u64::from(key.replication) + 1));
}

#[test]
fn the_report_has_every_chart_and_saturated_points() {
    let folder = tempfile::tempdir().unwrap();
    let bench = bench(&[]);
    let results = run(&bench, &place(&folder, "r"), 1, &|scenario, _, _| Ok(stand_in(scenario))).unwrap();
    let page = |results: &Results| {
        report(&Read::simulated(&bench, results, Folder::new(folder.path()), vec!["not bounded: x".into()])).html()
    };
    let saturated = page(&results);
    for part in ["saturated in 1 of 3 repeats", "rate=20000 policy=static", "not bounded: x", &bench.hash] {
        assert!(saturated.contains(part), "{part}");
    }
    let kept =
        run(&bench, &place(&folder, "s"), 1, &|scenario, _, _| Ok(Outcome { saturated: false, ..stand_in(scenario) }));
    let report = page(&kept.unwrap());
    for chart in &bench.experiment.output.charts {
        assert!(report.contains(&format!("aria-label=\"{}\"", chart.title)), "{}", chart.title);
    }
    assert!(!report.contains("://") && !report.contains("src="), "a report needs no network");
}

#[test]
fn a_warm_up_at_its_limit_gives_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let bench = bench(&[]);
    let warnings = |name: &str, growth: u64| {
        let results = run(&bench, &place(&folder, name), 1, &|scenario, _, _| {
            let mut outcome = Outcome { saturated: false, ..stand_in(scenario) };
            (0..).zip(&mut outcome.series).for_each(|(at, stretch)| stretch.latency_ns = 1_000 + at * growth);
            Ok(outcome)
        });
        let read = Read::simulated(&bench, &results.unwrap(), Folder::new(folder.path()), Vec::new());
        read.results.notes.into_iter().find(|note| note.contains("warm_up.max"))
    };
    assert_eq!(warnings("steady.csv", 0), None);
    assert!(warnings("rising.csv", 100).is_some_and(|text| text.contains("static at rate=20000")));
}

/// The replay is exact under the `exact_time` of one policy, but not of the other. Percentiles of a bursty trace depend on the windows, so all
/// policies replay the same ones; otherwise a slower policy could have the lower p99.
#[test]
fn the_minimum_exact_time_applies_to_all_policies() {
    let folder = tempfile::tempdir().unwrap();
    let sample =
        "{ windows = 4, window = '10ms', run_in = '10ms', strata = 2, exact_requests = 1000000, exact_time = '1s' }";
    let trace = format!(
        "{{ source = 'surrogate:alibaba', volumes = 4, client_sets = 2, threads_per_client = 1, depth = 8, \
         mean_iops = 1000.0, sample = {sample} }}"
    );
    let windows_under = |policies: &str| windows_under(&folder, &trace, policies);
    let whole = windows_under("[{ label = 'whole', name = 'static' }]");
    assert_eq!(whole["static"], [400; 3], "one go for each replication");
    let both = windows_under(
        "[{ label = 'static', name = 'static' }, { label = 'windows', name = 'hybrid-poll', exact_time = '100ms' }]",
    );
    assert_eq!(both["hybrid-poll"], [10; 12], "four windows for each");
    assert_eq!(both["static"], both["hybrid-poll"]);
}

/// The measured time of each run, in milliseconds, by policy.
fn windows_under(folder: &tempfile::TempDir, trace: &str, policies: &str) -> BTreeMap<&'static str, Vec<u64>> {
    let bench = bench(&[
        ("policy", policies),
        ("workload", "[]"),
        ("parameter", "[]"),
        ("duration", "400ms"),
        ("series", "10ms"),
        ("warm_up", "0s"),
        ("output.chart", "[]"),
        ("trace", trace),
    ]);
    let windows = std::sync::Mutex::new(BTreeMap::<&str, Vec<u64>>::new());
    let engine =
        |scenario: &Scenario, policy: Box<dyn pilotlight_plant::Policy>, _: Option<pilotlight_sim::Source<'_>>| {
            let measured_ms = (scenario.duration_ns - scenario.warm_up_ns) / 1_000_000;
            windows.lock().unwrap().entry(policy.name()).or_default().push(measured_ms);
            let series = vec![Stretch::default(); (scenario.duration_ns / scenario.series_ns) as usize];
            Ok(Outcome { series, ..stand_in(scenario) })
        };
    run(&bench, &place(folder, &format!("{}.csv", bench.experiment.policies.len())), 1, &engine).unwrap();
    windows.into_inner().unwrap()
}

#[test]
fn times_of_a_policy_apply_to_its_runs_only() {
    let folder = tempfile::tempdir().unwrap();
    let policies = "[{ label = 'static', name = 'static' }, \
                    { label = 'slow', name = 'hybrid-poll', duration = '4ms', warm_up = '2ms' }]";
    let bench = bench(&[("policy", policies), ("parameter", "[]"), ("output.chart", "[]"), ("warm_up", "1ms")]);
    let times = std::sync::Mutex::new(std::collections::BTreeMap::new());
    let engine =
        |scenario: &Scenario, policy: Box<dyn pilotlight_plant::Policy>, _: Option<pilotlight_sim::Source<'_>>| {
            times.lock().unwrap().insert(policy.name(), (scenario.duration_ns, scenario.warm_up_ns));
            Ok(stand_in(scenario))
        };
    run(&bench, &place(&folder, "times"), 1, &engine).unwrap();
    let times = times.into_inner().unwrap();
    assert_eq!((times["static"], times["hybrid-poll"]), ((3_000_000, 1_000_000), (4_000_000, 2_000_000)));
}

/// A family member no longer in the calibration is set aside by the next sweep.
#[test]
fn removed_members_are_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let bench = bench(&[]);
    let family = variant::variants(&bench.machine.calibration, &Choice { family: true, ..Choice::default() }).unwrap();
    let file = place(&folder, "r");
    let changes = vec![("power.family.package_ppm".to_owned(), 123_457.into())];
    let gone = Variant { name: "family:gone".into(), changes };
    let swept = |variants: &[Variant]| {
        Sweep::new(&bench, variants).run(&file, NonZeroUsize::MIN, &simulator, &|_| {}).unwrap();
        Results::read(&values::packed_path(&file)).unwrap()
    };
    let names =
        |results: &Results| -> BTreeSet<String> { results.runs.keys().map(|key| key.variant.clone()).collect() };
    assert!(names(&swept(&[family[0].clone(), gone])).contains("family:gone"));
    assert_eq!(names(&swept(&family[..1])), BTreeSet::from(["default".to_owned()]));
}

#[test]
fn a_sweep_of_some_points_keeps_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let bench = bench(&[]);
    let variants = variants(&bench);
    let file = place(&folder, "r");
    let swept = |points: &[usize]| {
        let sweep = Sweep::new(&bench, &variants).only(&points.iter().copied().collect());
        sweep.run(&file, NonZeroUsize::MIN, &simulator, &|_| {}).unwrap();
        let results = Results::read(&values::packed_path(&file)).unwrap();
        results.runs.keys().map(|key| key.point.clone()).collect::<BTreeSet<String>>()
    };
    let names = |points: &[usize]| points.iter().map(|&at| bench.points[at].name.clone()).collect::<BTreeSet<_>>();
    assert_eq!(swept(&[1]), names(&[1]));
    assert_eq!(swept(&[0]), names(&[0, 1]));
}
