//! `pilotlab measure` with settings and `pilotlab restore` on a real loop device, if available.

use std::fs;
use std::process::Command;

fn restore(args: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_pilotlab")).arg("restore").args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// The journal of an ended process that set this scheduler.
fn journal(before: &str, device: &str, now: &str) -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let process = format!(r#"{{"pid":4194303,"start_ticks":1,"boot_id":"{}"}}"#, boot.trim());
    let begin = format!(r#"{{"begin":{{"version":1,"process":{process},"command":"a test"}}}}"#);
    let place = format!(r#"{{"kind":"file","path":"/sys/block/{device}/queue/scheduler","accept":"exact"}}"#);
    let change = format!(r#"{{"change":{{"id":0,"setting":{place},"before":{before:?},"wanted":"{now}"}}}}"#);
    format!("{begin}\n{change}\n{}\n", format_args!(r#"{{"done":{{"id":0,"now":"[{now}]"}}}}"#))
}

#[test]
fn a_device_gets_its_scheduler_back() {
    on_loop_device(scenario);
}

#[test]
fn a_command_runs_under_settings_of_the_machine() {
    on_loop_device(command);
}

fn on_loop_device(scenario: fn(&str)) {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let output = Command::new("losetup").args(["--find", "--show"]).arg(file.path()).output();
    let Some(output) = output.ok().filter(|output| output.status.success()) else {
        println!("skipped: no loop device to be had");
        return;
    };
    let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    scenario(path.trim_start_matches("/dev/"));
    assert!(Command::new("losetup").args(["--detach", &path]).status().unwrap().success());
}

fn scenario(device: &str) {
    let scheduler = format!("/sys/block/{device}/queue/scheduler");
    let _ = fs::write(&scheduler, "none");
    let before = fs::read_to_string(&scheduler).unwrap();
    if !before.contains("[none]") || !before.contains("mq-deadline") || fs::write(&scheduler, "mq-deadline").is_err() {
        println!("skipped: the schedulers of {device} are {}", before.trim());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("1.jsonl");
    fs::write(&path, journal(&before, device, "mq-deadline")).unwrap();
    let name = path.to_str().unwrap();

    let (code, stdout, stderr) = restore(&[name, "--dry-run"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(stdout.contains("mq-deadline -> none (not done)") && stdout.contains("would then be removed"), "{stdout}");
    assert!(path.exists());

    fs::write(&scheduler, "none").unwrap();
    fs::write(&path, journal("none [mq-deadline]\n", device, "kyber")).unwrap();
    let (code, stdout, _) = restore(&[name]);
    assert_eq!(code, Some(1), "someone else has set it");
    assert!(stdout.contains("--force") && path.exists(), "{stdout}");
    let (code, stdout, _) = restore(&[name, "--force", "--json"]);
    assert_eq!(code, Some(0));
    assert!(stdout.contains(r#""outcome":"restored""#), "{stdout}");
    assert!(fs::read_to_string(&scheduler).unwrap().contains("[mq-deadline]") && !path.exists());
    fs::write(&scheduler, "none").unwrap();
}

fn command(device: &str) {
    let scheduler = format!("/sys/block/{device}/queue/scheduler");
    if fs::write(&scheduler, "none").is_err() || !fs::read_to_string(&scheduler).unwrap().contains("mq-deadline") {
        println!("skipped: no mq-deadline on {device}");
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), "[machine]\nscheduler = \"mq-deadline\"\n[of-others]\nkey = 1\n").unwrap();
    let path = file.path().to_str().unwrap();
    for settings in [["--settings", path], ["--set", "scheduler=mq-deadline"]] {
        let mut measure = Command::new(env!("CARGO_BIN_EXE_pilotlab"));
        measure.args([
            "measure",
            "--repeats",
            "1",
            "--settle",
            "0s",
            "--idle",
            "0s",
            "--ignore-failure",
            "--show-output",
        ]);
        measure.args(settings).args(["--device", &format!("/dev/{device}"), "--"]);
        let output = measure.args(["sh", "-c", &format!("cat {scheduler}; exit 7")]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("[mq-deadline]"), "{said}");
        assert!(fs::read_to_string(&scheduler).unwrap().contains("[none]"), "{said}");
    }
}

#[test]
fn other_files_are_left_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let whole = journal("a\n", "no-such", "b");
    let torn = &whole[..40]; // journals never have a truncated first line, and after a restart nothing must be restored
    for precious in ["", "precious", "precious\nand more", "{}\n", torn] {
        fs::write(&file, precious).unwrap();
        for (args, reason) in [(vec![&file], "is not a journal"), (vec![&link], "not a regular file")] {
            for more in [&[][..], &["--dry-run"], &["--force"]] {
                let args: Vec<&str> =
                    args.iter().map(|path| path.to_str().unwrap()).chain(more.iter().copied()).collect();
                let (code, stdout, _) = restore(&args);
                assert_eq!(code, Some(1), "{precious:?} {args:?}: {stdout}");
                assert!(stdout.contains(reason), "{stdout}");
            }
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), precious);
        assert!(link.is_symlink());
    }
    fs::write(&file, &whole).unwrap();
    let (code, stdout, _) = restore(&[link.to_str().unwrap()]);
    assert_eq!(code, Some(1), "a link is not followed to a journal either: {stdout}");
    assert_eq!(fs::read_to_string(&file).unwrap(), whole);
}

#[test]
fn a_dry_run_lists_changes_without_making_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("1.jsonl");
    let whole = journal("a\n", "no-such-device", "b") + "{\"back\""; // its last line is torn
    fs::write(&path, &whole).unwrap();
    let (code, stdout, _) = restore(&[path.to_str().unwrap(), "--dry-run"]);
    assert_eq!(code, Some(0), "{stdout}");
    assert!(stdout.contains("no longer exists") && stdout.contains("this journal would then be removed"), "{stdout}");
    assert_eq!(fs::read_to_string(&path).unwrap(), whole);
    let (code, stdout, _) = restore(&[path.to_str().unwrap()]);
    assert!(code == Some(0) && stdout.contains("this journal is removed") && !path.exists(), "{stdout}");
}

#[test]
fn a_missing_journal_is_an_error() {
    let (code, stdout, _) = restore(&["/no/such.jsonl"]);
    assert_eq!(code, Some(1));
    assert!(stdout.contains("/no/such.jsonl"), "{stdout}");
}
