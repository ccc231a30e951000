//! Completion mechanisms with the real fio on a synthetic kernel: settings are restored, the actual mechanism is verified by the kernel's
//! counts, and results have it as their label. Skipped with a message without fio. Real kernels: tests/linux.

use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use pilotlight_input::{Merged, file as read};
use pilotlight_lab::experiment::{self, Overrides};
use pilotlight_lab::plan::Plan;
use pilotlight_lab::result_set::ResultSet;
use pilotlight_lab::results::samples::Format;
use pilotlight_lab::results::{Folder, Results};
use pilotlight_lab::run::{self, Settings, StopFlag};
use pilotlight_lab::sensor_set::SensorSet;
use pilotlight_lab::study::map::{Question, maps};
use pilotlight_sensors::Roots;

/// Three mechanisms with one job, and a file on a disk.
fn text(folder: &Path) -> String {
    format!(
        r#"
title = "mechanisms"
warm_up = "0s"
duration = "200ms"
repeats = 1
settle = "0s"
idle_baseline = "0s"
power_sensors = "listed"
target = {{ file = "{}", size = "1MiB" }}
[[sensor]]
sensor = "kernel"
interval = "20ms"
[workload]
kind = "fio"
mechanism = ["interrupt", "classic", "hybrid 7us"]
rw = "randread"
options = {{ direct = true, thread = true }}
"#,
        folder.join("file").display()
    )
}

/// A kernel on which the device below `folder` supports polling, and whose drive raises no interrupts.
fn kernel(folder: &Path) -> (Roots, PathBuf) {
    let write = |path: &str, text: &str| {
        let path = folder.join("root").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("sys/block/nvme7n1/queue/io_poll", "0\n");
    write("sys/block/nvme7n1/queue/io_poll_delay", "-1\n");
    write("sys/devices/nvme7/model", "made up\n");
    write("sys/dev/block/.none", "");
    write("proc/loadavg", "0.00 0.00 0.00 1/1 1\n");
    write("proc/stat", "ctxt 5\nintr 5\nprocesses 5\n");
    write("proc/interrupts", "      CPU0\n 30:  5 PCI-MSIX nvme7q0\n 31:  9 PCI-MSIX nvme7q1\n");
    let root = folder.join("root");
    symlink(root.join("sys/devices/nvme7"), root.join("sys/block/nvme7n1/device")).unwrap();
    let number = folder.metadata().unwrap().dev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    symlink(root.join("sys/block/nvme7n1"), root.join(format!("sys/dev/block/{major}:{minor}"))).unwrap();
    let queue = root.join("sys/block/nvme7n1/queue");
    (Roots::below(&root), queue)
}

fn run(folder: &Path, roots: Roots) -> Result<Results, String> {
    let merged = Merged::single("e.toml", read::parse("e.toml", &text(folder)).unwrap());
    let loaded = experiment::from_merged(merged, &Overrides::default()).unwrap_or_else(|error| panic!("{error}"));
    let plan = Plan::new(&loaded);
    let sensors = SensorSet::find(&loaded.experiment, &roots).unwrap();
    let changes = Some(folder.join("changes.jsonl"));
    let out = Folder::new(&folder.join("out"));
    let settings = Settings { folder: out, may_overwrite: None, format: Format::Csv, roots, changes };
    run::run(&loaded, &plan, &sensors, &settings, &StopFlag::default(), &mut |_| ()).map_err(|error| error.to_string())
}

#[test]
fn mechanisms_are_verified_by_counts_and_settings_are_restored() {
    if run::find("fio").is_none() {
        eprintln!("SKIPPED: there is no fio");
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(); // on disk: /tmp may be a tmpfs, without direct I/O
    let (roots, queue) = kernel(folder.path());
    let results = match run(folder.path(), roots) {
        Err(error) if error.contains("Invalid argument") || error.contains("not supported") => {
            eprintln!("SKIPPED: {error}");
            return;
        }
        results => results.unwrap(),
    };
    let setting = |name: &str| std::fs::read_to_string(queue.join(name)).unwrap();
    assert_eq!((setting("io_poll").as_str(), setting("io_poll_delay").as_str()), ("0\n", "-1\n"));
    assert!(!folder.path().join("changes.jsonl").exists(), "a journal is left");

    let of = |at: usize| results.points[at].completion.clone().unwrap();
    // No interrupt over this number of reads makes the counts inconclusive; this kernel counts none.
    assert_eq!((of(0).requested.as_str(), of(0).actual.as_deref()), ("interrupt", None), "{}", of(0).why);
    assert_eq!(results.points[0].knobs["mechanism"].to_string(), "interrupt (not verified)");
    if of(1).actual.as_deref() == Some("classic") {
        // a virtual disk may answer before the thread has gone to sleep, and then all evidence fits
        eprintln!("SKIPPED: fio's thread hardly slept: {}", of(1).why);
        return;
    }
    // fio's thread slept for each read because the real kernel did not poll, so this is not classic polling.
    assert_eq!((of(1).io_poll, of(1).io_poll_delay, of(1).actual.as_deref()), (Some(true), Some(-1), None));
    assert!(of(1).why.contains("the threads slept"), "{}", of(1).why);
    // The thread slept as requested: all evidence on this kernel fits.
    assert_eq!(
        (of(2).io_poll, of(2).io_poll_delay, of(2).actual.as_deref()),
        (Some(true), Some(7), Some("hybrid 7us"))
    );
    assert_eq!(results.points[1].values["drive_interrupts_per_io"].mean, 0.0);
    let table = results.table().csv();
    assert!(table.contains("interrupt (not verified)") && !table.contains("\ninterrupt,"), "{table}");
    assert!(results.notes.iter().any(|note| note.contains("the counts are inconclusive")), "{:?}", results.notes);

    let result_set = ResultSet::read(&folder.path().join("out")).unwrap();
    let map = maps(&result_set, &Question::default()).unwrap().remove(0);
    let names: Vec<&str> = map.cells[0].means.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["hybrid 7us"]);
    let page = std::fs::read_to_string(folder.path().join("out/report.html")).unwrap();
    assert!(page.contains("Completion mechanisms") && page.contains("interrupt (not verified)"));
}
