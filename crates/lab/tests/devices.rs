//! The runner with a loop device and a cgroup of the kernel. Skipped with a message without them (no root, or a container).

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;

use pilotlight_actuators::{Change, Changes};
use pilotlight_input::{Merged, file as read};
use pilotlight_lab::experiment::{self, Overrides};
use pilotlight_lab::plan::Plan;
use pilotlight_lab::results::samples::Format;
use pilotlight_lab::results::{Folder, Results};
use pilotlight_lab::run::{self, RunError, Settings, StopFlag};
use pilotlight_lab::sensor_set::SensorSet;
use pilotlight_sensors::Roots;

const MIB: u64 = 1 << 20;

fn bench(text: &str, folder: &Path, may_overwrite: Option<&Path>) -> Result<Results, RunError> {
    let merged = Merged::single("e.toml", read::parse("e.toml", text).unwrap());
    let loaded = experiment::from_merged(merged, &Overrides::default()).unwrap_or_else(|error| panic!("{error}"));
    let (plan, roots) = (Plan::new(&loaded), Roots::default());
    let sensors = SensorSet::find(&loaded.experiment, &roots).unwrap();
    let (out, changes) = (Folder::new(&folder.join("out")), Some(folder.join("changes.jsonl")));
    let may_overwrite = may_overwrite.map(Path::to_owned);
    let settings = Settings { folder: out, may_overwrite, format: Format::Csv, roots, changes };
    run::run(&loaded, &plan, &sensors, &settings, &StopFlag::default(), &mut |_| ())
}

/// A loop device of 3.5 MiB of zeroes; detached when dropped.
struct Loop {
    device: PathBuf,
    file: PathBuf,
}

impl Loop {
    fn new(folder: &Path) -> Option<Self> {
        let file = folder.join("disk");
        fs::write(&file, vec![0; (3 * MIB + MIB / 2) as usize]).unwrap();
        let made = Command::new("losetup").args(["--find", "--show"]).arg(&file).output();
        let why = match made {
            Ok(made) if made.status.success() => {
                let device = String::from_utf8(made.stdout).unwrap().trim().into();
                return Some(Self { device, file });
            }
            Ok(made) => String::from_utf8_lossy(&made.stderr).trim().to_owned(),
            Err(error) => error.to_string(),
        };
        println!("skipped: no loop device ({why})");
        None
    }

    fn scheduler(&self) -> PathBuf {
        Path::new("/sys/block").join(self.device.file_name().unwrap()).join("queue/scheduler")
    }

    fn schedulers(&self) -> String {
        fs::read_to_string(self.scheduler()).unwrap_or_default()
    }

    /// The first eight bytes of each MiB, and whether every byte of the last half is zero.
    fn looked_at(&self) -> (Vec<u64>, bool) {
        let mut file = fs::File::open(&self.file).unwrap();
        let heads = (0..4).map(|block| {
            let mut head = [0; 8];
            file.seek(SeekFrom::Start(block * MIB)).unwrap();
            file.read_exact(&mut head).unwrap();
            u64::from_le_bytes(head)
        });
        let heads = heads.collect();
        file.seek(SeekFrom::Start(3 * MIB + 8)).unwrap();
        let mut rest = Vec::new();
        file.read_to_end(&mut rest).unwrap();
        (heads, rest.iter().all(|byte| *byte == 0))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
    }
}

/// Once, without waits.
const QUICK: &str = "repeats = 1\nsettle = '0s'\nidle_baseline = '0s'\npower_sensors = 'listed'\n";

#[test]
fn a_confirmed_device_is_filled_and_its_scheduler_restored() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = Loop::new(folder.path()) else { return };
    let before = disk.schedulers();
    let can_vary = before.contains("none") && before.contains("mq-deadline");
    let vary = if can_vary { "[[parameter]]\nkey = 'machine.scheduler'\nvalues = ['none', 'mq-deadline']" } else { "" };
    let text = format!(
        "title = 'd'\n{QUICK}[target]\ndevice = '{device}'\n[precondition]\nfill = 2\n{vary}\n\
         [workload]\nkind = 'command'\nargv = ['sh', '-c', 'dd if={{device}} of=/dev/null bs=64k count=4; cat {scheduler}']",
        device = disk.device.display(),
        scheduler = disk.scheduler().display(),
    );
    let refused = bench(&text, folder.path(), None).unwrap_err().to_string();
    assert!(refused.contains("--i-may-overwrite"), "{refused}");
    let another = bench(&text, folder.path(), Some(Path::new("/dev/null"))).unwrap_err().to_string();
    assert!(another.contains("must be the same"), "{another}");
    assert_eq!(disk.looked_at(), (vec![0; 4], true), "nothing was written");
    let results = bench(&text, folder.path(), Some(&disk.device)).unwrap();
    assert!(results.complete);
    let (heads, zeroes) = disk.looked_at();
    assert_eq!(heads, [0, MIB, 2 * MIB, 3 * MIB], "each block begins with its place");
    assert!(!zeroes, "the part of a block at the end is written too");
    if can_vary {
        for (point, scheduler) in [("p000-r00", "[none]"), ("p001-r00", "[mq-deadline]")] {
            let said = fs::read_to_string(folder.path().join("out/raw").join(point).join("stdout")).unwrap();
            assert!(said.contains(scheduler), "{said}");
        }
    }
    assert_eq!(disk.schedulers(), before);
    assert!(!folder.path().join("changes.jsonl").exists());
}

#[test]
fn commands_run_in_the_cgroup_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("try-{}", std::process::id());
    let tried = Changes::begin(&folder.path().join("try.jsonl"), pilotlight_actuators::Roots::default())
        .and_then(|mut changes| changes.make(&Change::Cgroup { name, limits: Vec::new() }));
    if let Err(error) = tried {
        println!("skipped: {error}");
        return;
    }
    let text = format!(
        "title = 'c'\n{QUICK}target = {{ nothing = true }}\n[machine.cgroup]\n\
         [workload]\nkind = 'command'\nargv = ['cat', '/proc/self/cgroup']\n\
         metric = [{{ name = 'process', unit = 'count', regex = '/pilotlight-([0-9]+)' }}]"
    );
    let results = bench(&text, folder.path(), None).unwrap();
    let count = &results.points[0].values["process_count"];
    assert_eq!(count.mean, f64::from(std::process::id()), "named after the run's process, with one prefix");
    let left = fs::read_to_string("/proc/self/cgroup").unwrap();
    assert!(!left.contains("pilotlight-"), "{left}");
}
