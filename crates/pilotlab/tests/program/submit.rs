//! `pilotlab submit slurm` with a program in place of `sbatch`: scripts, options, and refusals. tests/slurm/ uses Slurm itself.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;

use crate::process::{command, text};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const SHARDS: &str = include_str!("slurm/shards.sbatch");
const MERGE: &str = include_str!("slurm/merge.sbatch");
const LIVE: &str = include_str!("slurm/live.sbatch");

/// Replaces `sbatch`: appends its arguments to the file `calls`, and prints numbers of jobs from 1.
const SBATCH: &str = "#!/bin/sh\necho \"$@\" >>\"$0.calls\"\necho \"$(wc -l <\"$0.calls\");cluster\"\n";

/// Runs `pilotlab submit slurm` with the replaced `sbatch` in the folder.
fn submit(folder: &Path, sbatch: &str, args: &[&str]) -> Output {
    let program = folder.join("sbatch");
    std::fs::write(&program, sbatch).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    command(&[&["submit", "slurm"], args].concat()).env("PATH", path).output().unwrap()
}

fn calls(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("sbatch.calls")).unwrap_or_default()
}

/// The expected script, with the paths of this test.
fn expected(text: &str, out: &Path, file: &Path) -> String {
    let file = file.canonicalize().unwrap();
    text.replace("@PROGRAM@", env!("CARGO_BIN_EXE_pilotlab"))
        .replace("@OUT@", out.to_str().unwrap())
        .replace("@FILE@", file.to_str().unwrap())
}

#[test]
fn an_array_job_and_a_dependent_merge_are_submitted() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let file = Path::new(ROOT).join("papers/sandman/t2.toml");
    let args = [
        &[file.to_str().unwrap(), "--tasks", "3", "--smoke", "--set", "seed=7", "--out", out.to_str().unwrap()][..],
        &["--", "--partition=long", "--time=10"],
    ]
    .concat();
    let output = submit(folder.path(), SBATCH, &args);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(said.contains("job 1: 3 tasks") && said.contains("job 2 merges"), "{said}");
    let [shards, merge] = ["shards", "merge"].map(|name| out.join(format!("{name}.sbatch")));
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    assert_eq!(read(&shards), expected(SHARDS, &out, &file));
    assert_eq!(read(&merge), expected(MERGE, &out, &file));
    assert!(out.join("logs").is_dir(), "Slurm does not create it");
    let [shards, merge] = [shards, merge].map(|path| path.display().to_string());
    let options = "--partition=long --time=10";
    let after = "--dependency=afterok:1 --kill-on-invalid-dep=yes";
    assert_eq!(calls(folder.path()), format!("--parsable {options} {shards}\n--parsable {after} {options} {merge}\n"));
}

/// As sites' wrappers of `sbatch` do (nipype 1330, Parsl 2636).
#[test]
fn a_merge_follows_where_sbatch_prints_more_than_a_number() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let file = format!("{ROOT}/papers/sandman/t2.toml");
    for said in ["Welcome\\n\\n7;c1", "Submitted batch job 7 on cluster c1"] {
        let sbatch = format!("#!/bin/sh\necho \"$@\" >>\"$0.calls\"\nprintf '{said}\\n'\n");
        let output = submit(folder.path(), &sbatch, &[&file, "--out", out.to_str().unwrap()]);
        assert!(output.status.success(), "{said}: {}", text(&output.stderr));
        assert!(text(&output.stdout).contains("job 7 merges"), "{said}");
        assert!(calls(folder.path()).lines().last().unwrap().contains("--dependency=afterok:7 "), "{said}");
    }
}

#[test]
fn a_measured_experiment_is_one_task_on_its_own_node() {
    let folder = tempfile::tempdir().unwrap();
    let (out, file) = (folder.path().join("out"), folder.path().join("e.toml"));
    let text_of_file =
        "title = 'e'\nduration = '1s'\ntarget = { nothing = true }\n[workload]\nkind = 'command'\nargv = ['true']\n";
    std::fs::write(&file, text_of_file).unwrap();
    let args = [file.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let output = submit(folder.path(), SBATCH, &args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let script = std::fs::read_to_string(out.join("shards.sbatch")).unwrap();
    assert_eq!(script, expected(LIVE, &out, &file));
    assert_eq!(calls(folder.path()).lines().count(), 1, "nothing is merged");
    let output = submit(folder.path(), SBATCH, &[&args[..], &["--tasks", "2"]].concat());
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("one task"));
}

#[test]
fn a_dry_run_prints_scripts_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let file = format!("{ROOT}/papers/sandman/t2.toml");
    let output = submit(folder.path(), SBATCH, &[&file, "--dry-run", "--out", out.to_str().unwrap()]);
    let said = text(&output.stdout);
    assert!(output.status.success() && said.contains("#SBATCH --array=1-8") && said.contains("afterok:JOB"), "{said}");
    assert!(!out.exists() && calls(folder.path()).is_empty());
}

#[test]
fn errors_name_the_cause() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let file = format!("{ROOT}/papers/sandman/t2.toml");
    let list = format!("{ROOT}/papers/all.toml");
    let refused = "#!/bin/sh\necho 'sbatch: error: invalid partition specified: x' >&2\nexit 1\n";
    for (sbatch, args, code, expected) in [
        (SBATCH, vec![&file[..], "--", "--array=1-2"], 2, "--array=1-2: the scripts set this option"),
        (SBATCH, vec![&list], 2, "submit each of them"),
        (SBATCH, vec![&file, "--at", "rate=3"], 2, "no such point"),
        (SBATCH, vec!["missing.toml"], 2, "missing.toml"),
        (refused, vec![&file], 1, "invalid partition specified: x"),
        (
            "#!/bin/sh\necho Queued\n",
            vec![&file],
            1,
            "sbatch submitted job pilotlab-t2, but its number is not in \"Queued\"",
        ),
    ] {
        let more = [&["--out", out.to_str().unwrap()], &args[..]].concat();
        let output = submit(folder.path(), sbatch, &more);
        let error = text(&output.stderr);
        assert!(output.status.code() == Some(code) && error.contains(expected), "{args:?}: {error}");
    }
}
