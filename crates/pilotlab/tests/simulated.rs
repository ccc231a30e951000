//! Experiments on simulated machines: reproducible results, equal to the committed ones, and refusals that change nothing.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const THESIS: &str = "profiles/thesis-980pro.toml";

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pilotlab")).arg("run").args(args).current_dir(root()).output().unwrap()
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Runs an experiment into the folder `out`.
fn run(experiment: &str, folder: &Path, more: &[&str]) {
    let out = folder.join("out");
    let args = [&[experiment, "--simulated", THESIS, "--out", out.to_str().unwrap()], more].concat();
    let output = bench(&args);
    assert!(output.status.success(), "{}", printed(&output));
}

/// Every file below a folder, with its bytes.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            if entry.path().is_dir() { left.push(entry.path()) } else { found.push(entry.path()) }
        }
    }
    found.sort();
    found
        .into_iter()
        .map(|path| (path.strip_prefix(folder).unwrap().to_owned(), std::fs::read(path).unwrap()))
        .collect()
}

#[test]
fn the_same_bytes_twice() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    folders.iter().for_each(|folder| run("papers/thesis/gc-15s.toml", folder.path(), &["--repeats", "2", "--csv"]));
    let [first, second] = [0, 1].map(|at: usize| files(folders[at].path()));
    let names: Vec<_> = first.iter().map(|(name, _)| name.display().to_string()).collect();
    for needed in [
        "out/values.csv.zst",
        "out/runs.jsonl",
        "out/results.csv",
        "out/report.html",
        "out/samples/p000-r00/simulated.csv",
    ] {
        assert!(names.iter().any(|name| name == needed), "{needed} is not among {names:?}");
    }
    for ((name, one), (other, two)) in first.iter().zip(&second) {
        assert_eq!(name, other);
        assert!(one == two, "{} differs", name.display());
    }
}

#[test]
#[ignore = "slow: .ci/run test runs it"]
fn committed_results_are_reproduced() {
    for name in ["gc-15s", "gc-60s", "apst"] {
        let folder = tempfile::tempdir().unwrap();
        run(&format!("papers/thesis/{name}.toml"), folder.path(), &[]);
        let committed = root().join(format!("papers/thesis/results/thesis-{name}/values.csv.zst"));
        let read = |file: &Path| pilotlight_lab::stored::values::Results::read_whole(file).unwrap();
        assert!(read(&folder.path().join("out/values.csv.zst")) == read(&committed), "{name} differs");
    }
}

/// Results with another fingerprint fail the check, which prints them and the command to run them again.
#[test]
fn stale_results_fail_the_check() {
    let folder = tempfile::tempdir().unwrap();
    let check = || {
        let program = Command::new(env!("CARGO_BIN_EXE_pilotlab"))
            .args(["check", "results", folder.path().join("out").to_str().unwrap()])
            .current_dir(root())
            .output()
            .unwrap();
        (program.status.code(), printed(&program))
    };
    run("papers/thesis/gc-60s.toml", folder.path(), &[]);
    let rows = folder.path().join("out/values.csv.zst");
    let results = pilotlight_lab::stored::values::Results::read_whole(&rows).unwrap();
    let put = |results: &pilotlight_lab::stored::values::Results| {
        pilotlight_lab::stored::values::write(&folder.path().join("out/values.csv"), results).unwrap();
    };
    put(&results);
    assert_eq!(check().0, Some(0), "{}", check().1);
    let mut other = results.clone();
    let (cell, fingerprint) = other.cells.iter_mut().next().unwrap();
    *fingerprint = "0123456789".parse().unwrap();
    let name = format!("1 of {} cells are stale, computed from other values: {}", results.cells.len(), cell.policy);
    put(&other);
    let (code, said) = check();
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains(&name)
            && said.contains("pilotlab run papers/thesis/gc-60s.toml --simulated profiles/thesis-980pro.toml --out"),
        "{said}"
    );
    other.cells.clear();
    put(&other);
    let (code, said) = check();
    assert!(code == Some(1) && said.contains("all of it is stale"), "{said}");
}

/// Results of other machine constants would otherwise pass for current ones.
#[test]
fn results_of_another_machine_are_not_continued() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("calibration")).unwrap();
    for name in ["thesis-980pro.toml", "calibration/thesis-980pro.toml"] {
        std::fs::copy(root().join("profiles").join(name), folder.path().join(name)).unwrap();
    }
    let (profile, out) = (folder.path().join(Path::new(THESIS).file_name().unwrap()), folder.path().join("out"));
    let run = || {
        let (profile, out) = (profile.to_str().unwrap(), out.to_str().unwrap());
        bench(&["papers/thesis/gc-15s.toml", "--simulated", profile, "--repeats", "1", "--out", out])
    };
    assert_eq!(run().status.code(), Some(0));
    let before = std::fs::read(out.join("values.csv.zst")).unwrap();
    assert_eq!(run().status.code(), Some(0), "the same machine");
    let text = std::fs::read_to_string(&profile).unwrap();
    std::fs::write(&profile, text.replacen("rest_uw = 1_750_000", "rest_uw = 1_750_001", 1)).unwrap();
    let refused = run();
    assert_eq!(refused.status.code(), Some(2), "{}", printed(&refused));
    assert!(
        printed(&refused).contains("cpu.profile_hash changed from") && printed(&refused).contains("--out"),
        "{}",
        printed(&refused)
    );
    assert!(std::fs::read(out.join("values.csv.zst")).unwrap() == before);
}

#[test]
fn everything_says_that_it_is_modelled() {
    let folder = tempfile::tempdir().unwrap();
    run("papers/thesis/gc-15s.toml", folder.path(), &["--repeats", "1"]);
    let results = std::fs::read_to_string(folder.path().join("out/results.json")).unwrap();
    assert!(results.contains("all values are simulated") && results.contains("thesis-980pro"));
    let results: serde_json::Value = serde_json::from_str(&results).unwrap();
    let metrics = results["metrics"].as_array().unwrap();
    let of_power = |metric: &&serde_json::Value| metric["key"].as_str().unwrap().contains("power_w");
    assert!(metrics.iter().filter(of_power).count() > 3);
    assert!(metrics.iter().filter(of_power).all(|metric| metric["modelled"] == true));
}

#[test]
fn missing_parts_of_the_machine_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let quick = bench(&["experiments/quick.toml", "--simulated", "profiles/nowhere.toml"]);
    assert_eq!(quick.status.code(), Some(2), "{}", printed(&quick));
    assert!(printed(&quick).contains("profiles/nowhere.toml"));
    let file = folder.path().join("e.toml");
    std::fs::write(&file, "title = 'e'\nduration = '1s'\n[workload]\nkind = 'fio'\nioengine = 'sg'\nrw = 'read'\n")
        .unwrap();
    let refused = bench(&[file.to_str().unwrap(), "--simulated", THESIS, "--out", out.to_str().unwrap()]);
    assert!(!refused.status.success() && printed(&refused).contains("ioengine"), "{}", printed(&refused));
}

/// Restamping recomputes runs, and updates fingerprints only if the numbers are equal.
#[test]
fn results_with_equal_numbers_are_restamped() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let output = bench(&["papers/sandman/t2.toml", "--smoke", "--out", out]);
    assert!(output.status.success(), "{}", printed(&output));
    let (plain, packed) = (folder.path().join("t2/values.csv"), folder.path().join("t2/values.csv.zst"));
    let today = pilotlight_lab::stored::values::Results::read(&packed).unwrap();
    let put = |results: &pilotlight_lab::stored::values::Results| {
        pilotlight_lab::stored::values::write(&plain, results).unwrap()
    };
    let restamp = || {
        let program = Command::new(env!("CARGO_BIN_EXE_pilotlab"))
            .args(["check", "results", out, "--restamp", "--share", "1%"])
            .current_dir(root())
            .output()
            .unwrap();
        (program.status.code(), printed(&program))
    };
    let mut stale = today.clone();
    *stale.cells.values_mut().next().unwrap() = "0123456789".parse().unwrap();
    put(&stale);
    let (code, text) = restamp();
    assert!(code == Some(0) && text.contains("restamped") && text.contains(" 0 differ"), "{code:?} {text}");
    assert_eq!(pilotlight_lab::stored::values::Results::read(&packed).unwrap(), today);

    let cell = stale.cells.keys().next().unwrap().clone();
    for (_, run) in stale.runs.iter_mut().filter(|(key, _)| key.cell() == cell) {
        run.values.iter_mut().for_each(|value| value.value += 1.0);
    }
    put(&stale);
    let (code, text) = restamp();
    assert!(code == Some(1) && text.contains("DIFFERS") && text.contains("no file is written"), "{code:?} {text}");
    assert_eq!(pilotlight_lab::stored::values::Results::read(&packed).unwrap(), stale);
}
