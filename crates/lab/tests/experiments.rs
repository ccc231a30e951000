//! Every committed experiment loads, expands and results in valid scenarios.

use std::path::{Path, PathBuf};

use pilotlight_input::file as read;
use pilotlight_input::include;
use pilotlight_lab::simulated::experiment::schema::Experiment;
use pilotlight_lab::simulated::experiment::{self, Bench, Request, replay, scenario};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files() -> Vec<PathBuf> {
    let folder = std::fs::read_dir(root().join("papers/sandman")).unwrap();
    let mut files: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
    files.sort();
    files
}

fn check(bench: &Bench, file: &str) {
    for point in &bench.points {
        for policy in &point.experiment.policies {
            let changes: Vec<_> = policy.machine.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
            let machine = bench.machine.machine(&[point.changes.clone(), changes].concat());
            let machine = machine.unwrap_or_else(|error| panic!("{file}: {error}"));
            let scenario = scenario::build(&point.experiment, policy, machine, &bench.drives, 1);
            let scenario = scenario.unwrap_or_else(|error| panic!("{file} at {}: {error}", point.name));
            assert!(!scenario.workload.connections.is_empty(), "{file}");
            assert!(
                scenario.workload.connections.iter().all(|connection| connection.thread < scenario.threads),
                "{file}"
            );
            let settings = scenario::settings(policy);
            let settings: Vec<(&str, &str)> =
                settings.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            let built = pilotlight_policy::build(&policy.name, &settings);
            assert!(built.is_ok(), "{file}: {}: {:?}", policy.label, built.err());
        }
        if let Some(trace) = &point.experiment.trace {
            let source = replay::source(trace, 16, 1_000_000, 1);
            assert!(source.is_ok(), "{file}: {:?}", source.err());
        }
    }
}

#[test]
fn every_experiment_can_be_run() {
    let files = files();
    assert!(files.len() >= 18, "{files:?}");
    for path in &files {
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        for smoke in [false, true] {
            let request = Request { smoke, ..Request::default() };
            let bench = experiment::load(path, &request).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(format!("{}.toml", bench.experiment.name), file, "an experiment is called as its file");
            assert!(smoke || bench.experiment.repeats >= 3, "{file}");
            check(&bench, &file);
        }
    }
}

#[test]
fn parameters_and_metrics_of_every_chart_exist() {
    for path in files() {
        let bench = experiment::load(&path, &Request::default()).unwrap_or_else(|error| panic!("{error}"));
        let axes: Vec<&str> = bench.experiment.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
        let output = &bench.experiment.output;
        for chart in &output.charts {
            let file = path.display();
            assert!(chart.x.is_empty() || axes.contains(&chart.x.as_str()), "{file}: {}", chart.title);
            let bare = chart.metric.rsplit('.').next().unwrap_or_default();
            let kept = |metric: &String| *metric == chart.metric || metric == bare;
            let over_time = output.series.contains(&chart.metric);
            assert!(bench.experiment.metrics.iter().any(kept) || over_time, "{file}: {} is not kept", chart.metric);
        }
    }
}

#[test]
fn every_experiment_is_equal_after_a_round_trip() {
    for path in files() {
        let first: Experiment = read::table(include::load(&path).unwrap().table, "file").unwrap();
        let again = toml::to_string(&first).unwrap();
        let second: Experiment = read::table(read::parse("again", &again).unwrap(), "again").unwrap();
        assert_eq!(first, second, "{}", path.display());
    }
}
