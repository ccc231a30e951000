//! cpufreq on a made-up `/sys`: what is written where, in which order it could be, and that it is put back.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use pilotlight_actuators::{CpuFreq, OpenError};
use pilotlight_plant::{CoreId, Cost, Of, Values};
use tempfile::TempDir;

const USERSPACE: &[(&str, &str)] = &[
    ("cpuinfo_min_freq", "800000\n"),
    ("cpuinfo_max_freq", "3600000\n"),
    ("cpuinfo_transition_latency", "20000\n"),
    ("scaling_available_frequencies", "3600000 2400000 1200000 800000 \n"),
    ("scaling_available_governors", "conservative userspace performance \n"),
    ("scaling_governor", "performance\n"),
    ("scaling_setspeed", "<unsupported>\n"),
    ("scaling_min_freq", "800000\n"),
    ("scaling_max_freq", "3600000\n"),
];

const BOUNDS: &[(&str, &str)] = &[
    ("cpuinfo_min_freq", "400000\n"),
    ("cpuinfo_max_freq", "3650000\n"),
    ("cpuinfo_transition_latency", "4294967295\n"),
    ("scaling_available_governors", "performance powersave\n"),
    ("scaling_governor", "powersave\n"),
    ("scaling_min_freq", "1000000\n"),
    ("scaling_max_freq", "3000000\n"),
];

fn folder(root: &Path, cpu: u32) -> PathBuf {
    root.join(format!("cpu{cpu}/cpufreq"))
}

fn machine(cpus: &[u32], files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for &cpu in cpus {
        let folder = folder(root.path(), cpu);
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
    }
    root
}

/// A file's first line; the kernel's files hold what was written last, ours keep the rest of a longer line.
fn line(root: &TempDir, cpu: u32, name: &str) -> String {
    let text = fs::read_to_string(folder(root.path(), cpu).join(name)).unwrap();
    text.lines().next().unwrap_or_default().to_owned()
}

fn all(root: &TempDir, cpu: u32, files: &[(&str, &str)]) -> Vec<String> {
    files.iter().map(|(name, _)| line(root, cpu, name)).collect()
}

#[test]
fn with_the_userspace_governor_a_cpu_is_told_its_speed() {
    let root = machine(&[0, 5], USERSPACE);
    let before = all(&root, 5, USERSPACE);
    let cpus = CpuFreq::open(root.path(), &[0, 5]).unwrap();
    let knobs = cpus.knobs();
    assert_eq!(knobs[1].of, Of::Core(CoreId(1)), "the core of the CPU's index");
    assert_eq!(knobs[1].values, Values::List(vec![800_000, 1_200_000, 2_400_000, 3_600_000]));
    assert_eq!((knobs[1].found, knobs[1].effect), (3_600_000, Cost::Assumed(20_000)));
    assert_eq!(all(&root, 5, USERSPACE), before, "nothing is changed before the first setting");
    cpus.set(1, 2_400_000).unwrap();
    let told = |cpu| (line(&root, cpu, "scaling_governor"), line(&root, cpu, "scaling_setspeed"));
    assert_eq!(told(5), ("userspace".to_owned(), "2400000".to_owned()));
    assert_eq!(told(0), ("performance".to_owned(), "<unsupported>".to_owned()));
    cpus.set(1, 100).unwrap();
    assert_eq!(told(5).1, "800000", "the nearest that there is");
    cpus.restore();
    assert_eq!(told(5).0, "performance");
    cpus.set(0, 1_200_000).unwrap();
    drop(cpus);
    assert_eq!(told(0).0, "performance", "the end puts back as well");
}

#[test]
fn without_it_both_bounds_are_set() {
    let root = machine(&[2], BOUNDS);
    let cpus = CpuFreq::open(root.path(), &[2]).unwrap();
    let knob = &cpus.knobs()[0];
    assert_eq!(knob.values, Values::Range { min: 400_000, max: 3_650_000, step: 100_000 }, "the kernel lists none");
    assert_eq!((knob.found, knob.effect), (3_000_000, Cost::Assumed(450_000)), "the kernel does not say");
    let bounds = || (line(&root, 2, "scaling_min_freq"), line(&root, 2, "scaling_max_freq"));
    for khz in [3_650_000_u64, 400_000, 900_000] {
        cpus.set(0, khz).unwrap();
        assert_eq!(bounds(), (khz.to_string(), khz.to_string()));
    }
    assert_eq!(line(&root, 2, "scaling_governor"), "powersave");
    drop(cpus);
    assert_eq!(bounds(), ("1000000".to_owned(), "3000000".to_owned()));
}

#[test]
fn who_was_at_a_speed_of_its_own_goes_back_to_it() {
    let root = machine(&[0], USERSPACE);
    let file = |name| folder(root.path(), 0).join(name);
    fs::write(file("scaling_governor"), "userspace\n").unwrap();
    fs::write(file("scaling_setspeed"), "1200000\n").unwrap();
    let cpus = CpuFreq::open(root.path(), &[0]).unwrap();
    cpus.set(0, 3_600_000).unwrap();
    drop(cpus);
    assert_eq!(line(&root, 0, "scaling_setspeed"), "1200000");
}

#[test]
fn what_is_missing_is_named_with_what_would_help() {
    let root = machine(&[0], BOUNDS);
    let message = |cpus: &[u32]| CpuFreq::open(root.path(), cpus).unwrap_err().to_string();
    assert!(message(&[]).contains("pinned"), "{}", message(&[]));
    let missing = message(&[1]);
    assert!(missing.contains("cpu1/cpufreq/cpuinfo_min_freq") && missing.contains("virtual machines"), "{missing}");
    fs::write(folder(root.path(), 0).join("cpuinfo_max_freq"), "fast\n").unwrap();
    assert!(message(&[0]).contains("\"fast\\n\", not a frequency"), "{}", message(&[0]));
}

#[test]
fn a_file_that_may_not_be_written_is_an_error_at_once() {
    let root = machine(&[0], BOUNDS);
    let file = folder(root.path(), 0).join("scaling_max_freq");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).unwrap();
    if fs::OpenOptions::new().write(true).open(&file).is_ok() {
        println!("skipped: who runs this may write anything");
        fs::remove_file(&file).unwrap();
    }
    let refused = CpuFreq::open(root.path(), &[0]).unwrap_err();
    assert!(matches!(refused, OpenError::Write { .. }), "{refused}");
}
