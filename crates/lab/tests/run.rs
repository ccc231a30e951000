//! The runner with short processes: measurements, resumption, cleanup.

use std::path::Path;
use std::time::Duration;

use pilotlight_input::{Merged, file as read, include};
use pilotlight_lab::experiment::{self, Loaded, Overrides};
use pilotlight_lab::plan::Plan;
use pilotlight_lab::plan::steps::Step;
use pilotlight_lab::results::journal::Finished;
use pilotlight_lab::results::samples::Format;
use pilotlight_lab::results::{Folder, Results};
use pilotlight_lab::run::{self, Event, RunError, Settings, StopFlag};
use pilotlight_lab::sensor_set::SensorSet;
use pilotlight_lab::stored::values;
use pilotlight_sensors::Roots;

/// Two knobs, two repeats: eight measurements of 0.1 s. Each prints its work and appends a line to a file.
fn experiment(folder: &Path) -> String {
    let log = folder.join("log").display().to_string();
    format!(
        r#"
title = "a command"
repeats = 2
idle_baseline = "200ms"
target = {{ nothing = true }}
[[sensor]]
sensor = "cputime"
[[sensor]]
sensor = "kernel"
[[sensor]]
sensor = "modelled"
profile = "test"
base_uw = 10_000_000
idle_core_uw = 1_000_000
busy_core_uw = 5_000_000
[[sensor]]
sensor = "rapl"
optional = true
[workload]
kind = "command"
argv = ["sh", "-c", "echo {{a}}{{b}} >> {log}; sleep 0.1; echo did 1000{{a}} mean 0.5 ms"]
prepare = [["sh", "-c", "echo prepared >> {log}"]]
clean_up = [["sh", "-c", "echo cleaned >> {log}"]]
[workload.knobs]
a = [1, 2]
b = ["x", "y"]
[[workload.metric]]
name = "did"
unit = "count"
regex = "did ([0-9]+)"
class = "read"
field = "operations"
[[workload.metric]]
name = "mean"
unit = "ms"
regex = "mean ([0-9.]+)"
class = "read"
field = "latency-mean"
"#
    )
}

struct Bench {
    loaded: Loaded,
    plan: Plan,
    sensors: SensorSet,
    settings: Settings,
}

fn bench(text: &str, folder: &Path) -> Bench {
    bench_on(text, folder, Roots::default())
}

/// Runs everything once without waits unless the text sets them; the schema's defaults are tested with their definition.
const QUICK: &str = "repeats = 1\nsettle = '0s'\nidle_baseline = '0s'\npower_sensors = 'listed'\n";

fn bench_on(text: &str, folder: &Path, roots: Roots) -> Bench {
    let mut table = read::parse("quick", QUICK).unwrap();
    include::merge(&mut table, read::parse("e.toml", text).unwrap());
    let merged = Merged::single("e.toml", table);
    let loaded = experiment::from_merged(merged, &Overrides::default()).unwrap_or_else(|error| panic!("{error}"));
    let plan = Plan::new(&loaded);
    let sensors = SensorSet::find(&loaded.experiment, &roots).unwrap();
    let folder = Folder::new(&folder.join("out"));
    let changes = Some(folder.root().with_file_name("changes.jsonl"));
    let settings = Settings { folder, may_overwrite: None, format: Format::Csv, roots, changes };
    Bench { loaded, plan, sensors, settings }
}

impl Bench {
    fn run(&self, stop: &StopFlag, watch: &mut dyn FnMut(Event)) -> Result<Results, RunError> {
        run::run(&self.loaded, &self.plan, &self.sensors, &self.settings, stop, watch)
    }

    fn log(&self) -> Vec<String> {
        let path = self.settings.folder.root().parent().unwrap().join("log");
        std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

#[test]
fn everything_is_measured_and_summarised() {
    let folder = tempfile::tempdir().unwrap();
    let bench = bench(&experiment(folder.path()), folder.path());
    let results = bench.run(&StopFlag::default(), &mut |_| ()).unwrap();
    assert!(results.complete);
    assert_eq!(results.points.len(), 4);
    let log = bench.log();
    assert_eq!((log.len(), log[0].as_str(), log[9].as_str()), (10, "prepared", "cleaned"));

    let point = &results.points[3];
    assert_eq!((point.knobs["a"].to_string(), point.knobs["b"].to_string()), ("2".into(), "y".into()));
    assert_eq!((point.repeats, point.values["did_count"].mean), (2, 10_002.0));
    // 10,002 in slightly more than 0.1 s
    let rate = point.values["iops"].mean;
    assert!((10_000.0..100_100.0).contains(&rate), "{rate}");
    assert_eq!(point.values["latency_mean_us"].mean, 500.0);
    assert!(point.missing["latency_p99_us"].contains("neither a histogram"));

    // base 10 W, and 1 to 5 W for each CPU; over 0.1 s ticks of 10 ms can double it
    let cpus = std::thread::available_parallelism().unwrap().get() as f64;
    let watts = point.values["cpu_modelled_test_power_w"].mean;
    assert!(watts > 10.0 && watts < 2.0 * (10.0 + 5.0 * cpus), "{watts}");
    let per_joule = point.values["io_per_j_cpu_modelled_test"].mean;
    assert!((per_joule / (rate / watts) - 1.0).abs() < 0.5, "{per_joule}");
    assert!(point.values.contains_key("cpu_modelled_test_power_above_idle_w"));
    assert!(point.missing["ssd_power_w"].contains("no sensor"));
    assert!(results.metric("cpu_modelled_test_power_w").unwrap().modelled);
}

#[test]
fn the_folder_has_all_files() {
    let folder = tempfile::tempdir().unwrap();
    let bench = bench(&experiment(folder.path()), folder.path());
    let results = bench.run(&StopFlag::default(), &mut |_| ()).unwrap();
    let out = bench.settings.folder.root();
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let environment: serde_json::Value = serde_json::from_str(&read("environment.json")).unwrap();
    assert!(environment["kernel"]["release"].is_string());
    assert_eq!(read("experiment.toml").parse::<toml::Table>().unwrap(), bench.loaded.table);
    let again: Results = serde_json::from_str(&read("results.json")).unwrap();
    assert_eq!(again.points.len(), results.points.len());
    let table = read("results.csv");
    let header = table.lines().next().unwrap();
    for column in ["a,b,repeats", "iops,iops_median", "iops_ci95_low", "cpu_modelled_test_power_w"] {
        assert!(header.contains(column), "{column} in {header}");
    }
    let numbers = values::Results::read_whole(&out.join("values.csv.zst")).unwrap();
    assert!(numbers.about.is_measured() && numbers.runs.len() == results.points.len() * 2, "{:?}", numbers.about);
    for (key, run) in &numbers.runs {
        let rate = run.get("iops").unwrap();
        let same = |value: &f64| (value / rate - 1.0).abs() < 1e-8;
        assert!(results.points.iter().any(|point| point.values["iops"].values.iter().any(same)), "{key:?} {rate}");
    }
    let samples = read("samples/p000-r00/modelled.csv");
    assert!(samples.starts_with("since_start_ns,cpu_modelled_test_uj\n"), "{samples}");
    assert!(read("samples/p000-r00/markers.csv").contains("measure"));
    assert!(read("samples/idle-0/markers.csv").contains("idle"));
    assert!(read("raw/p003-r01/stdout").contains("did 10002"));
    assert!(!out.join("scratch").exists() && !out.join("data.bin").exists());
}

#[test]
fn an_interrupted_run_is_resumed() {
    let (folder, whole) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let uninterrupted = bench(&experiment(whole.path()), whole.path());
    uninterrupted.run(&StopFlag::default(), &mut |_| ()).unwrap();

    let bench = bench(&experiment(folder.path()), folder.path());
    let mut stops = 0;
    loop {
        let (stop, mut begun) = (StopFlag::default(), 0);
        let outcome = bench.run(&stop, &mut |event| {
            if matches!(event, Event::Measuring { .. }) {
                begun += 1;
                // During the third measurement of each part.
                if begun == 3 {
                    stop.set(2);
                }
            }
        });
        match outcome {
            Ok(results) => break assert!(results.complete),
            Err(RunError::Stopped(2)) => stops += 1,
            Err(error) => panic!("{error}"),
        }
        assert_eq!(bench.log().last().unwrap(), "cleaned");
        assert!(stops < 10);
    }
    assert_eq!(stops, 3, "two measurements each time, then the last two");
    let finished = |bench: &Bench| Finished::read(&bench.settings.folder.journal()).unwrap();
    assert_eq!(finished(&bench).runs.len(), 8);
    let rounds: Vec<u32> = finished(&bench).baselines.iter().map(|baseline| baseline.round).collect();
    assert_eq!(rounds, [0, 0, 1, 1], "the idle machine is measured in each round, and again in one that is resumed");
    // Interrupted measurements are repeated; except for these the order is that of the uninterrupted run.
    let order = |bench: &Bench| {
        let mut runs: Vec<_> = finished(bench).runs.into_values().map(|run| (run.began_wall_ns, run.key)).collect();
        runs.sort_unstable();
        runs.into_iter().map(|(_, key)| key).collect::<Vec<_>>()
    };
    assert_eq!(order(&bench), order(&uninterrupted));
}

/// A sensor of energy, which idle baselines require.
const MODELLED: &str =
    "[[sensor]]\nsensor = 'modelled'\nprofile = 'test'\nbase_uw = 1\nidle_core_uw = 1\nbusy_core_uw = 2\n";

/// Two settings of a synthetic machine, after preconditioning: the steps in the order of events.
#[test]
fn steps_come_in_the_order_of_the_plan() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("proc")).unwrap();
    std::fs::copy("/proc/stat", folder.path().join("proc/stat")).unwrap();
    let knob = folder.path().join("sys/kernel/knob");
    std::fs::create_dir_all(knob.parent().unwrap()).unwrap();
    std::fs::write(&knob, "5\n").unwrap();
    let text = "title = 'o'\nrepeats = 3\nsettle = '1ms'\nidle_baseline = '1ms'\ntarget = { nothing = true }\n\
                machine.files = { '/sys/kernel/knob' = 7 }\n[workload]\nkind = 'command'\nargv = ['true']\n\
                prepare = [['true']]\nknobs = { a = [1, 2] }\n";
    let bench = bench_on(&format!("{text}{MODELLED}"), folder.path(), Roots::below(folder.path()));
    let mut done = Vec::new();
    bench
        .run(&StopFlag::default(), &mut |event| match event {
            Event::Settling(seconds) => done.push(format!("settle {seconds}")),
            Event::Baseline => done.push("idle".to_owned()),
            Event::Measuring { key, .. } => done.push(format!("{key:?}")),
            Event::Step(_) | Event::Failed(..) => {}
        })
        .unwrap();
    let word = |step: &Step| match step {
        Step::Precondition | Step::Set(_) | Step::Prepare => None,
        Step::Settle => Some("settle 0.001".to_owned()),
        Step::Baseline(..) => Some("idle".to_owned()),
        Step::Measure(key) => Some(format!("{key:?}")),
    };
    let mut planned: Vec<String> = bench.plan.steps(3).iter().filter_map(word).collect();
    // A measurement is announced before its waits.
    announce_first(&mut planned);
    assert_eq!(done, planned);
    assert_eq!(done.iter().filter(|word| *word == "idle").count(), 3);
    assert_eq!(done.iter().filter(|word| word.starts_with("settle")).count(), 3);
}

fn announce_first(steps: &mut [String]) {
    for group in steps.split_inclusive_mut(|step| step.starts_with("Key")) {
        group.rotate_right(1);
    }
}

#[test]
fn an_idle_baseline_that_no_metric_reads_is_not_measured() {
    let folder = tempfile::tempdir().unwrap();
    let text = "title = 'i'\nidle_baseline = '1h'\ntarget = { nothing = true }\n\
                [workload]\nkind = 'command'\nargv = ['true']\n[[sensor]]\nsensor = 'cputime'\n";
    let bench = bench(text, folder.path());
    bench.run(&StopFlag::default(), &mut |event| assert!(!matches!(event, Event::Baseline))).unwrap();
    assert_eq!(Finished::read(&bench.settings.folder.journal()).unwrap().baselines.len(), 0);
}

#[test]
fn a_folder_of_another_experiment_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let first = bench(&experiment(folder.path()), folder.path());
    first.run(&StopFlag::default(), &mut |_| ()).unwrap();
    let other = bench(&experiment(folder.path()).replace("repeats = 2", "repeats = 3"), folder.path());
    let error = other.run(&StopFlag::default(), &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("another experiment") && error.contains("--out"), "{error}");
}

#[test]
fn the_stop_rule_ends_only_points_with_a_narrow_interval() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        r#"
title = "rule"
target = {{ nothing = true }}
stop = {{ metric = "score_points", within = "1%", at_least = 3, at_most = 5 }}
[workload]
kind = "command"
argv = ["sh", "-c", "echo x >> {log}; n=$(wc -l < {log}); [ {{kind}} = steady ] && echo 100 || echo $n"]
knobs = {{ kind = ["steady", "wild"] }}
metric = [{{ name = "score", unit = "points", regex = "([0-9]+)" }}]
"#,
        log = folder.path().join("log").display()
    );
    let rule = bench(&text, folder.path());
    let results = rule.run(&StopFlag::default(), &mut |_| ()).unwrap();
    let repeats: Vec<usize> = results.points.iter().map(|point| point.repeats).collect();
    assert_eq!(repeats, [3, 5]);

    let folder = tempfile::tempdir().unwrap();
    let wrong = bench(&text.replace("metric = \"score_points\"", "metric = \"score_point\""), folder.path());
    let error = wrong.run(&StopFlag::default(), &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("did you mean score_points?"), "{error}");
}

#[test]
fn a_rule_without_values_is_noted_and_does_not_stop() {
    let folder = tempfile::tempdir().unwrap();
    let text = "title = 'r'\ntarget = { nothing = true }\n\
                stop = { metric = 'system_power_w', within = '5%', at_least = 2, at_most = 3 }\n\
                [workload]\nkind = 'command'\nargv = ['true']\n";
    let mut steps = Vec::new();
    let results = bench(text, folder.path())
        .run(&StopFlag::default(), &mut |event| {
            if let Event::Step(what) = event {
                steps.push(what);
            }
        })
        .unwrap();
    assert_eq!(results.points[0].repeats, 3);
    assert!(steps[0].contains("stop.metric has no value here: no sensor"), "{steps:?}");
    let note = results.notes.iter().find(|note| note.starts_with("stop.metric: system_power_w")).unwrap();
    assert!(note.contains("measured 3 times"), "{note}");
}

/// Reported progress: number, total and remaining time.
fn progress_of(bench: &Bench) -> Vec<(usize, usize, f64)> {
    let mut progress = Vec::new();
    let _ = bench.run(&StopFlag::default(), &mut |event| {
        if let Event::Measuring { finished, of, left_s, .. } = event {
            progress.push((finished, of, left_s));
        }
    });
    progress
}

#[test]
fn progress_counts_failures_and_estimates_the_time() {
    let folder = tempfile::tempdir().unwrap();
    let text = "title = 'p'\ntarget = { nothing = true }\nrepeats = 3\non_failure = 'continue'\n\
                [workload]\nkind = 'command'\nargv = ['sh', '-c', 'sleep 0.5; [ {a} = 1 ]']\nknobs = { a = [1, 2] }\n";
    let progress = progress_of(&bench(text, folder.path()));
    assert_eq!(
        progress.iter().map(|(finished, of, _)| (*finished, *of)).collect::<Vec<_>>(),
        [(0, 6), (1, 6), (2, 6), (3, 6), (4, 6), (5, 6)]
    );
    let idle = text.replace("repeats = 3", "repeats = 1\nidle_baseline = '1s'") + MODELLED;
    let with_idle = progress_of(&bench(&idle, &folder.path().join("idle")));
    assert!((with_idle[0].2 - 1.6).abs() < 1e-9 && (0.5..1.4).contains(&with_idle[1].2), "{with_idle:?}");
    // The duration of the command is unknown: 0.3 s each are planned, at least 0.5 s each are measured.
    assert!((progress[0].2 - 6.0 * 0.3).abs() < 1e-9 && progress[1].2 >= 5.0 * 0.5, "{progress:?}");
}

#[test]
fn the_workload_cleans_up_after_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let bench = bench(&experiment(folder.path()), folder.path());
    let watch = |event| assert!(!matches!(event, Event::Measuring { finished: 1, .. }), "a watcher fails");
    let outcome =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bench.run(&StopFlag::default(), &mut { watch })));
    assert!(outcome.is_err());
    assert_eq!(bench.log().last().unwrap(), "cleaned");
    let out = bench.settings.folder.root();
    assert!(!out.join("scratch").exists() && !out.join("data.bin").exists());
    assert_eq!(Finished::read(&bench.settings.folder.journal()).unwrap().runs.len(), 1);
}

#[test]
fn a_failed_point_ends_the_run_or_leaves_its_error() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"
title = "failing"
target = { nothing = true }
on_failure = "ON"
[workload]
kind = "command"
argv = ["sh", "-c", "[ {a} = 1 ] || { echo no such drive >&2; exit 3; }"]
knobs = { a = [1, 2] }
"#;
    // Braces of the shell are escaped.
    let text = text.replace("{ echo", "{{ echo").replace("3; }\"", "3; }}\"");
    let stopping = bench(&text.replace("ON", "stop"), folder.path());
    let error = stopping.run(&StopFlag::default(), &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("status 3") && error.contains("no such drive"), "{error}");

    let folder = tempfile::tempdir().unwrap();
    let going_on = bench(&text.replace("ON", "continue"), folder.path());
    let results = going_on.run(&StopFlag::default(), &mut |_| ()).unwrap();
    assert!(!results.complete);
    assert_eq!((results.points[0].repeats, results.points[1].repeats), (1, 0));
    assert!(results.points[1].failures[0].contains("no such drive"));
}

#[test]
fn a_sensor_that_stops_ends_the_run_unless_it_is_optional() {
    let folder = tempfile::tempdir().unwrap();
    let reading = folder.path().join("watts");
    let text = format!(
        r#"
title = "sensor"
target = {{ nothing = true }}
[[sensor]]
sensor = "command"
name = "meter"
from = {{ file = "{meter}" }}
unit = "W"
part = "system"
interval_ms = 10
optional = OPTIONAL
[workload]
kind = "command"
argv = ["sh", "-c", "sleep 0.2; rm {meter}; sleep 0.3"]
"#,
        meter = reading.display()
    );
    std::fs::write(&reading, "25").unwrap();
    // the failure ends the run long before its command
    let needed =
        format!("on_failure = 'continue'\n{}", text.replace("OPTIONAL", "false").replace("sleep 0.3", "sleep 60"));
    let needed = bench(&needed, folder.path());
    // `on_failure` applies to errors of the workload only.
    let error = needed.run(&StopFlag::default(), &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("meter") && error.contains("optional"), "{error}");

    std::fs::write(&reading, "25").unwrap();
    let other = tempfile::tempdir().unwrap();
    let optional = bench(&text.replace("OPTIONAL", "true"), other.path());
    let results = optional.run(&StopFlag::default(), &mut |_| ()).unwrap();
    let point = &results.points[0];
    assert!(!point.values.contains_key("system_power_w"), "no watts rather than half of them");
    assert!(point.missing["system_power_w"].contains("meter"), "{:?}", point.missing);
}

#[test]
fn a_step_over_its_limit_is_ended() {
    let folder = tempfile::tempdir().unwrap();
    let text = "title = 't'\ntarget = { nothing = true }\n\
                [workload]\nkind = 'command'\nargv = ['sleep', '30']\nlimit = '200ms'\n";
    let began = std::time::Instant::now();
    let error = bench(text, folder.path()).run(&StopFlag::default(), &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("timeout"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn the_machine_is_restored_after_every_kind_of_exit() {
    for way in ["end", "failure", "signal"] {
        let folder = tempfile::tempdir().unwrap();
        let knob = folder.path().join("sys/kernel/knob");
        std::fs::create_dir_all(knob.parent().unwrap()).unwrap();
        std::fs::write(&knob, "5\n").unwrap();
        let script = if way == "failure" { "exit 1" } else { "cat" };
        let text = format!(
            "title = 'm'\nrepeats = 2\ntarget = {{ nothing = true }}\n[machine.files]\n'/sys/kernel/knob' = 7\n\
             [workload]\nkind = 'command'\nargv = ['sh', '-c', '{script} {knob}']\n\
             metric = [{{ name = 'knob', unit = 'count', regex = '([0-9]+)' }}]",
            knob = knob.display()
        );
        let bench = bench_on(&text, folder.path(), Roots::below(folder.path()));
        let stop = StopFlag::default();
        let mut during = String::new();
        let outcome = bench.run(&stop, &mut |event| {
            if matches!(event, Event::Measuring { finished, .. } if finished == 1) && way == "signal" {
                during = std::fs::read_to_string(&knob).unwrap();
                stop.set(15);
            }
        });
        match (way, outcome) {
            ("end", Ok(results)) => assert_eq!(results.points[0].values["knob_count"].mean, 7.0),
            ("failure", Err(RunError::Workload(_))) => {}
            ("signal", Err(RunError::Stopped(15))) => assert_eq!(during.trim(), "7"),
            (way, outcome) => panic!("{way}: {outcome:?}"),
        }
        assert_eq!(std::fs::read_to_string(&knob).unwrap().trim(), "5", "{way}");
        assert!(!folder.path().join("changes.jsonl").exists(), "{way}");
    }
}
