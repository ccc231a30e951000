//! `pilotlab run --shard` and `merge`: bytes equal to those of one run, interruptions, and refusals.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use crate::process::{run, spawn, text};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Arguments of a short experiment: its name, 4 policies of Table 2, 6 replications.
const TABLE2: [&str; 3] = ["--smoke", "--repeats", "6"];

fn experiment(name: &str) -> String {
    format!("{ROOT}/papers/sandman/{name}.toml")
}

fn arguments<'a>(file: &'a str, more: &[&'a str], out: &'a Path) -> Vec<&'a str> {
    [&["run", file, "--workers", "1", "--out", out.to_str().unwrap()], more].concat()
}

fn succeed(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Status and standard error.
fn fail(args: &[&str]) -> (Option<i32>, String) {
    let output = run(args);
    (output.status.code(), text(&output.stderr))
}

/// Files of a folder with their bytes.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .flatten()
        .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

fn assert_equal(one: &Path, other: &Path) {
    let [one, other] = [one, other].map(files);
    let names = |files: &[(String, Vec<u8>)]| files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&one), names(&other));
    assert!(names(&one).contains(&"values.csv.zst".to_owned()), "{:?}", names(&one));
    for ((name, one), (_, other)) in one.iter().zip(&other) {
        assert!(one == other, "{name} differs");
    }
}

/// Runs the shares of an experiment into `folder`; returns their folders.
fn shares(file: &str, more: &[&str], of: u32, folder: &Path) -> Vec<PathBuf> {
    let one = |number: u32| {
        let out = folder.join(format!("{number}-of-{of}"));
        succeed(&arguments(file, &[more, &["--shard", &format!("{number}/{of}")]].concat(), &out));
        out
    };
    (1..=of).map(one).collect()
}

fn merge_arguments(folders: &[PathBuf], out: &Path) -> Vec<String> {
    let folders = folders.iter().map(|folder| folder.to_str().unwrap().to_owned());
    let out = ["--out".to_owned(), out.to_str().unwrap().to_owned()];
    std::iter::once("merge".to_owned()).chain(folders).chain(out).collect()
}

fn merged(folders: &[PathBuf], out: &Path) -> (Option<i32>, String) {
    let words = merge_arguments(folders, out);
    fail(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Kills a share after its first stored run and before its end.
fn interrupted(args: &[&str], out: &Path) -> ExitStatus {
    loop {
        let mut child = spawn(args);
        let journal = out.join("t2/values.csv");
        let stored = || std::fs::read_to_string(&journal).is_ok_and(|text| text.contains(",saturated,"));
        while !stored() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1)); // between two looks at the condition
        }
        child.kill().unwrap();
        let status = child.wait().unwrap();
        if !status.success() {
            return status;
        }
        std::fs::remove_dir_all(out).unwrap(); // it ended before it was killed
    }
}

#[test]
fn merged_shares_have_the_bytes_of_one_run() {
    let root = tempfile::tempdir().unwrap();
    let (file, whole) = (experiment("t2"), root.path().join("whole"));
    succeed(&arguments(&file, &TABLE2, &whole));
    let broken = root.path().join("2-of-3");
    let share = arguments(&file, &[&TABLE2[..], &["--shard", "2/3"]].concat(), &broken);
    assert_eq!(interrupted(&share, &broken).code(), None, "it was killed");
    assert!(broken.join("t2/values.csv").is_file() && !broken.join("t2/values.csv.zst").exists());
    for of in [1, 3, 8] {
        let folders = shares(&file, &TABLE2, of, root.path());
        let out = root.path().join(format!("merged-{of}"));
        for _ in 0..2 {
            let (code, error) = merged(&folders, &out); // a merge may be repeated
            assert_eq!(code, Some(0), "{error}");
            assert_equal(&whole.join("t2"), &out.join("t2"));
        }
    }
}

#[test]
#[ignore = "slow: .ci/run test runs it"]
fn warm_ups_variants_and_bounds_are_those_of_one_run() {
    let root = tempfile::tempdir().unwrap();
    let (file, whole) = (experiment("fig3"), root.path().join("whole"));
    let more = ["--smoke", "--family", "--oracle", "--at", "rate=10000"];
    succeed(&arguments(&file, &more, &whole));
    let folders = shares(&file, &more, 3, root.path());
    let out = root.path().join("merged");
    assert_eq!(merged(&folders, &out).0, Some(0));
    assert_equal(&whole.join("fig3"), &out.join("fig3"));
}

/// A day is divided by the windows that are simulated of it.
#[test]
#[ignore = "slow: .ci/run test runs it"]
fn windows_of_a_replay_are_divided() {
    let root = tempfile::tempdir().unwrap();
    let settings = ["exact_requests=1", "windows=12", "around_bursts=3"].map(|key| format!("--set=trace.sample.{key}"));
    let policies = ["--policy", "spdk-static", "--policy", "sandman", "--family", "--smoke"];
    let more: Vec<&str> = settings.iter().map(String::as_str).chain(policies).collect();
    let whole = root.path().join("whole");
    let replay = "--replay=surrogate:alibaba";
    succeed(&arguments(replay, &more, &whole));
    for of in [1, 3, 8] {
        let folders = shares(replay, &more, of, root.path());
        let out = root.path().join(format!("merged-{of}"));
        // An interrupted share: its last line is incomplete.
        let last = folders.last().unwrap();
        let windows = last.join("trace-file/windows.jsonl");
        let before = std::fs::read(&windows).unwrap();
        std::fs::write(&windows, &before[..before.len() - 100]).unwrap();
        let (code, error) = merged(&folders, &out);
        assert!(code == Some(1) && error.contains("1 of 4 runs are missing"), "{error}");
        assert!(error.contains(", unit ") && error.lines().count() == 2, "{error}");
        succeed(&arguments(replay, &[&more[..], &["--shard", &format!("{of}/{of}")]].concat(), last));
        let lines = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(lines(&std::fs::read(&windows).unwrap()), lines(&before), "only the missing unit was simulated");
        let (code, error) = merged(&folders, &out);
        assert_eq!(code, Some(0), "{error}");
        assert_equal(&whole.join("trace-file"), &out.join("trace-file"));
    }
}

#[test]
fn shares_of_a_measurement_are_joined_on_one_host_only() {
    let root = tempfile::tempdir().unwrap();
    let file = crate::bench::experiment(root.path());
    let out = |name: &str| root.path().join(name);
    let measure = |number: u32| {
        let (shard, out) = (format!("{number}/2"), out(&number.to_string()));
        succeed(&["run", &file, "--shard", &shard, "--out", out.to_str().unwrap()]);
        out
    };
    let parts = [measure(1), measure(2)];
    let measured = || std::fs::read_to_string(root.path().join("pids")).unwrap().lines().count();
    assert_eq!(measured(), 4, "each point once");
    succeed(&["run", "--resume", parts[1].to_str().unwrap()]);
    assert_eq!(measured(), 4, "a resumed share is not extended");
    let (code, error) = fail(&["run", &file, "--shard", "1/2", "--out", parts[1].to_str().unwrap()]);
    assert!(code == Some(2) && error.contains("another share"), "{error}");

    let (code, error) = merged(&parts[..1], &out("merged"));
    assert!(code == Some(1) && error.contains("2 measurements are missing") && error.contains("depth="), "{error}");
    assert_eq!(merged(&parts, &out("merged")), (Some(0), String::new()));
    let results = std::fs::read_to_string(out("merged").join("results.json")).unwrap();
    let results: serde_json::Value = serde_json::from_str(&results).unwrap();
    let means: Vec<_> = (0..4).map(|at| results["points"][at]["values"]["said_count"]["mean"].as_f64()).collect();
    assert_eq!(means, [1.0, 2.0, 3.0, 4.0].map(Some));
    assert!(out("merged").join("report.html").exists() && out("merged").join("raw").is_dir());

    let environment = parts[1].join("environment.json");
    let before = std::fs::read_to_string(&environment).unwrap();
    let host = before.lines().find(|line| line.contains("\"host\"")).unwrap();
    std::fs::write(&environment, before.replace(host, "  \"host\": \"node8\",")).unwrap();
    let (code, error) = merged(&parts, &out("mixed"));
    assert!(code == Some(2) && error.contains("host") && error.contains("\"node8\""), "{error}");
    assert!(parts.iter().all(|part| error.contains(part.to_str().unwrap())) && !out("mixed").exists(), "{error}");

    // With the host as a parameter each host needs all measurements.
    let by_host = |folders: &[&Path]| {
        let folders: Vec<PathBuf> = folders.iter().map(|folder| (*folder).to_owned()).collect();
        let words = [merge_arguments(&folders, &out("hosts")), vec!["--by-host".to_owned()]].concat();
        fail(&words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let (code, error) = by_host(&[&parts[0], &parts[1]]);
    assert!(code == Some(1) && error.contains("4 measurements are missing") && error.contains("host=node8"), "{error}");
    let whole = out("merged");
    std::fs::write(&environment, &before).unwrap();
    let other = out("other");
    assert_eq!(merged(&parts, &other).0, Some(0));
    std::fs::write(other.join("environment.json"), before.replace(host, "  \"host\": \"node8\",")).unwrap();
    assert_eq!(by_host(&[&whole, &other]), (Some(0), String::new()));
    let results = std::fs::read_to_string(out("hosts").join("results.json")).unwrap();
    let results: serde_json::Value = serde_json::from_str(&results).unwrap();
    let points = results["points"].as_array().unwrap();
    assert_eq!(points.iter().filter(|point| point["knobs"]["host"] == "node8").count(), 4, "{points:?}");
    assert_eq!((points.len(), points[7]["values"]["said_count"]["mean"].as_f64()), (8, Some(4.0)));
}

#[test]
fn missing_runs_are_named_and_nothing_is_written() {
    let root = tempfile::tempdir().unwrap();
    let folders = shares(&experiment("t2"), &TABLE2, 3, root.path());
    let out = root.path().join("merged");
    let (code, error) = merged(&folders[..2], &out);
    assert!(code == Some(1) && error.contains("8 of 24 runs are missing"), "{error}");
    assert_eq!(error.matches("replication ").count(), 8, "{error}");
    assert!(!out.exists());
}

#[test]
fn folders_that_do_not_belong_together_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let (file, out) = (experiment("t2"), root.path().join("merged"));
    let folders = shares(&file, &TABLE2, 2, root.path());
    let manifest = folders[1].join("t2/shard.json");
    let before = std::fs::read_to_string(&manifest).unwrap();
    let scenario = before.lines().find(|line| line.contains("scenario")).unwrap();
    let program = format!("pilotlab {}", env!("CARGO_PKG_VERSION"));
    for (from, to, what) in
        [(scenario, "  \"scenario\": \"0123456789ab\",", "scenario hash"), (&program[..], "pilotlab 0.0.1", "program")]
    {
        assert!(before.contains(from));
        std::fs::write(&manifest, before.replace(from, to)).unwrap();
        let (code, error) = merged(&folders, &out);
        let names_both = folders.iter().all(|folder| error.contains(folder.to_str().unwrap()));
        let value = to.rsplit("\": \"").next().unwrap().trim_matches([',', '"']);
        assert!(code == Some(2) && names_both && error.contains(what) && error.contains(value), "{error}");
        // nor is such a share continued
        let share = arguments(&file, &[&TABLE2[..], &["--shard", "2/2"]].concat(), &folders[1]);
        let (code, error) = fail(&share);
        assert!(code == Some(2) && error.contains(what) && error.contains("--fresh"), "{error}");
    }
    assert!(!out.exists());
    let (code, error) = merged(&[root.path().join("1-of-2"), root.path().to_owned()], &out);
    assert!(code == Some(2) && error.contains("shard.json"), "{error}");
}

#[test]
fn results_of_a_whole_run_are_not_extended_by_a_share() {
    let root = tempfile::tempdir().unwrap();
    let (file, whole) = (experiment("t2"), root.path().join("whole"));
    succeed(&arguments(&file, &TABLE2, &whole));
    let (code, error) = fail(&arguments(&file, &[&TABLE2[..], &["--shard", "1/2"]].concat(), &whole));
    assert!(code == Some(2) && error.contains("without --shard"), "{error}");
    let list = format!("{ROOT}/papers/all.toml");
    let (code, error) = fail(&["run", &list, "--shard", "1/2", "--out", "x"]);
    assert!(code == Some(2) && error.contains("is a list"), "{error}");
}
