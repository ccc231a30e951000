//! Checks of committed results: recomputation, sentinels, audits, bounds of the oracle.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use pilotlight_lab::report::figure;
use pilotlight_lab::results::simulated::summary_of;
use pilotlight_lab::simulated::audit::Auditor;
use pilotlight_lab::simulated::experiment::{self, Bench, Request};
use pilotlight_lab::simulated::sweep::{Sweep, simulator};
use pilotlight_lab::simulated::variant::{self, Choice, Variant};
use pilotlight_lab::simulated::{oracle, recheck, sentinel, stale};
use pilotlight_lab::stored::values::{self, Results, RunKey};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Two cores, a few milliseconds, two replications.
fn small(file: &str, set: &[(&str, &str)]) -> Bench {
    let mut keys = vec![
        ("topology", "{ cores = 2, siblings = true, threads = 2 }"),
        ("duration", "20ms"),
        ("series", "1ms"),
        ("warm_up", "5ms"),
    ];
    keys.extend(set);
    let set = keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let request = Request { set, smoke: false, repeats: Some(2) };
    experiment::load(&root().join("papers/sandman").join(file), &request).unwrap()
}

fn stable() -> Bench {
    let policies = "[{ label = 'static', name = 'static' }, { label = 'sandman', name = 'sandman', settings = { coarse_interval = \
                    '2ms' } }, { label = 'governor', name = 'governor' }]";
    let axis = "[[20000, '20ms'], [40000, '20ms']]";
    small("fig3.toml", &[("policy", policies), ("parameter.rate.values", axis), ("drive.pm1743.count", "2")])
}

fn variants(bench: &Bench, family: bool) -> Vec<Variant> {
    variant::variants(&bench.machine.calibration, &Choice { family, ..Choice::default() }).unwrap()
}

fn swept(bench: &Bench, variants: &[Variant], file: &Path) -> Results {
    Sweep::new(bench, variants).run(file, NonZeroUsize::MIN, &simulator, &|_| {}).unwrap()
}

#[test]
fn recomputed_results_are_equal_and_a_changed_value_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let bench = stable();
    let mut results = swept(&bench, &variants(&bench, true), &folder.path().join("r.csv"));
    let variants = stale::variants_of(&bench, results.cells.keys().map(|cell| cell.variant.as_str()));
    let sweep = Sweep::new(&bench, &variants);
    let all = recheck::candidates(0, &sweep, &results, 1);
    assert_eq!(all.len(), 12, "two rates, three policies, two replications; every member of the family rides");
    for run in &recheck::sample(all.clone(), 0.25, None).chosen {
        let equal = recheck::compare(&sweep, run.job, &results, &simulator).unwrap().unwrap();
        assert!(equal > 20, "{}: {equal} numbers", sweep.name(run.job));
    }
    let mut members = results.clone();
    members.runs.retain(|key, _| key.variant == "family:least-saving");
    let of_members = recheck::candidates(0, &sweep, &members, 1);
    assert_eq!(of_members, all, "results of members alone are computed again with the run that they ride on");
    let key = RunKey {
        point: "rate=20000".into(),
        variant: "family:least-saving".into(),
        policy: "sandman".into(),
        replication: 1,
    };
    let value = &mut results.runs.get_mut(&key).unwrap().values[0];
    value.value += 1e-6;
    let differing = all.iter().filter_map(|run| recheck::compare(&sweep, run.job, &results, &simulator).unwrap().err());
    let printed: Vec<String> = differing.map(|difference| difference.to_string()).collect();
    assert_eq!(printed.len(), 1, "{printed:?}");
    let name = "fig3 at rate=20000, sandman, family:least-saving, replication 1: cpu_power_w is ";
    assert!(printed[0].starts_with(name), "{printed:?}");
}

#[test]
fn a_sentinel_has_the_value_of_its_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    for folder in ["profiles/ssd", "profiles/calibration"] {
        std::fs::create_dir_all(file(folder)).unwrap();
    }
    for profile in ["sandman-epyc-9454p.toml", "calibration/sandman-epyc-9454p.toml", "ssd/pm1743.toml"] {
        std::fs::copy(root().join("profiles").join(profile), file("profiles").join(profile)).unwrap();
    }
    std::fs::write(file("small.toml"), toml::to_string(&small_experiment()).unwrap()).unwrap();
    let row = |policy: &str, metric: &str| {
        format!(
            "[[sentinel]]\nexperiment = 'small.toml'\npoint = '-'\npolicy = '{policy}'\nmetric = '{metric}'\nvalue = 0\n"
        )
    };
    let list = file("sentinels.toml");
    std::fs::write(&list, row("static", "latency_p99_us") + &row("static", "iops")).unwrap();
    let look = || {
        let watched = sentinel::watched(&list, &sentinel::read(&list).unwrap()).unwrap();
        assert_eq!(watched.len(), 1, "both look at the same run");
        watched[0].run(&simulator)
    };
    let findings = look().unwrap();
    assert!(findings.iter().all(|finding| finding.now > 0.0 && !finding.holds()), "{findings:?}");
    sentinel::bless(&list, &findings).unwrap();
    assert!(look().unwrap().iter().all(sentinel::Finding::holds));
    std::fs::write(&list, row("static", "latency_p98_us")).unwrap();
    assert!(look().unwrap_err().to_string().contains("small.toml: there is no metric latency_p98_us"));
    std::fs::write(&list, row("statik", "iops")).unwrap();
    assert!(look().unwrap_err().to_string().contains("no point - with a policy statik"));
}

fn small_experiment() -> experiment::Experiment {
    let mut experiment = stable().experiment;
    experiment.parameters.clear();
    experiment.smoke.clear();
    experiment.policies.truncate(1);
    experiment
}

#[test]
fn the_first_replications_are_audited() {
    let folder = tempfile::tempdir().unwrap();
    let bench = stable();
    let variants = variants(&bench, false);
    let sweep = Sweep::new(&bench, &variants);
    let auditor = Auditor::new(bench.experiment.seed);
    let file = folder.path().join("r.csv");
    let run =
        sweep.run(&file, NonZeroUsize::MIN, &|scenario, policy, source| auditor.run(scenario, policy, source), &|_| {});
    run.unwrap();
    let audited = auditor.audited();
    assert_eq!(audited.runs, 6);
    assert!(audited.requests > 6 * 300 && audited.records > 7 * audited.requests, "{audited:?}");
}

/// Replays are audited too.
#[test]
fn replays_are_audited() {
    let folder = tempfile::tempdir().unwrap();
    let trace = "{ source = 'surrogate:alibaba', volumes = 16, client_sets = 4, threads_per_client = 2, depth = 8, \
                 mean_iops = 20000.0 }";
    let policy = "[{ label = 'sandman', name = 'sandman' }]";
    let bench = small("fig15-alibaba.toml", &[("policy", policy), ("trace", trace), ("drive.pm1743.count", "4")]);
    let variants = variants(&bench, false);
    let auditor = Auditor::new(bench.experiment.seed);
    let sweep = Sweep::new(&bench, &variants);
    let file = folder.path().join("r.csv");
    let run =
        sweep.run(&file, NonZeroUsize::MIN, &|scenario, policy, source| auditor.run(scenario, policy, source), &|_| {});
    run.unwrap();
    assert_eq!(auditor.audited().runs, 1);
    assert!(auditor.audited().requests > 100, "{:?}", auditor.audited());
}

#[test]
fn brackets_are_stored_and_cells_without_one_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.csv");
    let bench = stable();
    let variants = variants(&bench, false);
    swept(&bench, &variants, &file);
    let sweep = Sweep::new(&bench, &variants);
    let (results, unbounded) = oracle::add(&sweep, &file, 1e6, NonZeroUsize::MIN, &|_, _| {}).unwrap();
    let summary = summary_of(&bench, &results);
    for cell in summary.points.iter().filter(|cell| cell.knobs["policy"].to_string() != "governor") {
        let joules = |metric: &str| cell.values[metric].mean;
        let burnt = joules("joules_above_c1_floor") + joules("c1_floor_j");
        assert!(joules("oracle_lower_j") <= joules("oracle_upper_j"), "{cell:?}");
        assert!(joules("oracle_lower_j") <= burnt * (1.0 + 1e-9), "{cell:?}");
        assert!(joules("oracle_all_states_lower_j") <= joules("oracle_lower_j"), "{cell:?}");
        assert!(joules("deep_floor_j") <= joules("c1_floor_j"));
    }
    assert_eq!(figure::limits(&bench, &summary).unwrap().rows.len(), 4);
    let lines = oracle::unbounded_lines(&unbounded);
    assert!(
        lines[0].starts_with("not bounded: governor at rate=20000, governor at rate=40000 (it does more"),
        "{lines:?}"
    );
    let bytes = std::fs::read(values::packed_path(&file)).unwrap();
    let again = oracle::add(&sweep, &file, 1e6, NonZeroUsize::MIN, &|_, _| panic!("nothing is missing")).unwrap();
    assert_eq!((again.0, again.1), (results, unbounded));
    assert_eq!(std::fs::read(values::packed_path(&file)).unwrap(), bytes);
    let few = folder.path().join("few.csv");
    swept(&bench, &variants, &few);
    let (_, unbounded) = oracle::add(&sweep, &few, 10.0, NonZeroUsize::MIN, &|_, _| {}).unwrap();
    assert!(unbounded.iter().any(|cell| cell.reason.contains("requests per run are more")), "{unbounded:?}");
}
