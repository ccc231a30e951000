//! Output files: special files and failures.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Output};

use signal_hook::consts::{SIGPIPE, SIGXFSZ};

use super::process::{run, text};
use super::{bench, results};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Commands that write a file, without its name, which is the last argument. They need only an empty folder.
fn commands(nothing: &str) -> Vec<Vec<&str>> {
    vec![
        vec!["trace", "--generate", "alibaba", "--hours", "0.001", "--output"],
        vec!["claims", "--root", ROOT, "--results", nothing, "--html"],
    ]
}

fn write(command: &[&str], path: &Path) -> Output {
    run(&[command, &[path.to_str().unwrap()]].concat())
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn special_files_are_written_and_never_replaced() {
    let (home, nothing) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [file, link, fifo] = ["file", "link", "fifo"].map(|name| home.path().join(name));
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    symlink("file", &link).unwrap();
    for command in commands(nothing.path().to_str().unwrap()) {
        fs::write(&file, "before").unwrap();
        let output = write(&command, &link);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(link.is_symlink(), "{command:?}");
        let whole = fs::read(&file).unwrap();
        assert!(whole.len() > 100);

        let reader = std::thread::spawn({
            let fifo = fifo.clone();
            move || fs::read(fifo).unwrap()
        });
        assert!(write(&command, &fifo).status.success());
        assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());
        assert_eq!(reader.join().unwrap(), whole, "{command:?}");

        assert!(write(&command, Path::new("/dev/null")).status.success());
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        let output = write(&command, Path::new("/dev/stdout"));
        assert!(output.status.success() && output.stdout.starts_with(&whole), "{command:?}");
        assert_eq!(names(home.path()), ["fifo", "file", "link"]);
    }
}

/// The program in a shell, after `before`.
fn shell(before: &str, command: &[&str], rest: &str) -> Output {
    let words = [env!("CARGO_BIN_EXE_pilotlab")].iter().chain(command).map(|word| format!("'{word}'"));
    let line = format!("{before} {} {rest}", words.collect::<Vec<_>>().join(" "));
    Command::new("bash").args(["-c", &line]).output().unwrap()
}

#[test]
fn the_shell_s_own_files_are_written() {
    let (home, nothing) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let copy = home.path().join("copy");
    for command in commands(nothing.path().to_str().unwrap()) {
        let through = format!(">(cat > {}) > /dev/null; code=$?; wait $!; exit $code", copy.display());
        let output = shell("", &command, &through);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(fs::read(&copy).unwrap().len() > 100, "{command:?}");
        let output = shell("", &command, "/dev/stdout | head -c 1; exit ${PIPESTATUS[0]}");
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(128 + SIGPIPE) || output.status.success(), "{command:?}: {said}");
        assert_eq!(said, "");
    }
}

#[test]
fn a_failure_keeps_the_old_file_and_leaves_no_other() {
    let (home, nothing) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = home.path().join("file");
    for before in [None, Some("before")] {
        if let Some(before) = before {
            fs::write(&path, before).unwrap();
        }
        let check = |what: &str| {
            assert_eq!(fs::read_to_string(&path).ok().as_deref(), before, "{what}");
            assert_eq!(names(home.path()).len(), usize::from(before.is_some()), "{what}");
        };
        for command in commands(nothing.path().to_str().unwrap()) {
            // A limit on file sizes simulates a full disk if its signal is ignored; otherwise the signal ends the program.
            let failed = shell("trap '' XFSZ; ulimit -f 0; exec", &command, path.to_str().unwrap());
            let said = text(&failed.stderr);
            assert!(failed.status.code() == Some(1) && said.contains("cannot write"), "{command:?}: {said}");
            check("an error");
            let killed = shell("ulimit -f 0; exec", &command, path.to_str().unwrap());
            assert_eq!(killed.status.signal(), Some(SIGXFSZ), "{command:?}");
            check("a signal");
        }
    }
    for command in commands(nothing.path().to_str().unwrap()) {
        let full = write(&command, Path::new("/dev/full"));
        assert!(full.status.code() == Some(1) && text(&full.stderr).contains("cannot write /dev/full"), "{command:?}");
        let folder = write(&command, home.path());
        assert!(folder.status.code() == Some(1) && text(&folder.stderr).contains("folder"), "{command:?}");
    }
}

#[test]
fn the_page_of_a_run_is_written_to_the_given_path() {
    let home = tempfile::tempdir().unwrap();
    let (file, out) = (bench::experiment(home.path()), home.path().join("out"));
    let out = out.to_str().unwrap();
    assert!(run(&["run", &file, "--out", out, "--csv"]).status.success());
    let output = run(&["report", out, "--out", "/dev/stdout"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("<!DOCTYPE html>"));
    let unfinished = |name: &String| name.ends_with(".part") || name.ends_with(".new");
    assert!(!names(Path::new(out)).iter().any(unfinished));
    let output = run(&["report", results::folder(home.path(), "no-page", 1.0).to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
}
