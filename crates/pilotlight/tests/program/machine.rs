//! Changes of a machine by a server under a budget, and their restoration after `kill -9`: by `pilotlight restore` or the next
//! server. The machine is a tree of files made by the test, except its cgroups, which are this machine's if they can be written.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use crate::process::{Server, run, text};

const QUOTA: &str = "CPU quota of the worker cores";

/// Two CPUs with frequencies, the second of which can be taken offline, and two packages with limits.
struct Machine(TempDir);

impl Machine {
    fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        for package in 0..2 {
            let zone = format!("sys/class/powercap/intel-rapl:{package}");
            machine.write(&format!("{zone}/name"), &format!("package-{package}"));
            machine.write(&format!("{zone}/enabled"), "0");
            machine.write(&format!("{zone}/constraint_0_power_limit_uw"), &format!("6{package}000000"));
            machine.write(&format!("{zone}/constraint_1_power_limit_uw"), &format!("8{package}000000"));
        }
        for cpu in 0..2 {
            let cpufreq = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq");
            for (name, khz) in [("min", 800_000), ("max", 2_400_000)] {
                machine.write(&format!("{cpufreq}/scaling_{name}_freq"), &khz.to_string());
                machine.write(&format!("{cpufreq}/cpuinfo_{name}_freq"), &khz.to_string());
            }
        }
        machine.write("sys/devices/system/cpu/online", "0-1");
        machine.write("sys/devices/system/cpu/cpu1/online", "1");
        machine.write(
            "profile.toml",
            "name = \"made-up\"\nsource = \"this test\"\ncores = 2\n\
             [power.cpu_uw]\npoll = 201_000_000\nshallow = 1_000_000\ndeep = 1_000_000",
        );
        fs::create_dir_all(machine.path("sys/fs")).unwrap();
        symlink("/sys/fs/cgroup", machine.path("sys/fs/cgroup")).unwrap();
        symlink("/proc", machine.path("proc")).unwrap();
        machine
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap().trim().to_owned()
    }

    fn roots(&self) -> String {
        format!("--roots={}", self.0.path().display())
    }

    /// Every file, byte for byte.
    fn tree(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut tree = BTreeMap::new();
        ["sys/class", "sys/devices"].iter().for_each(|folder| collect(&self.path(folder), &mut tree));
        tree
    }

    /// A server on it, with cores 0 and 1.
    fn serve(&self, options: &[&str]) -> Server {
        let sensor = format!("--sensor=modelled:{}", self.path("profile.toml").display());
        let roots = self.roots();
        let fixed = ["--listen=127.0.0.1:0", "--namespace=mem:1MiB", "--cores=0,1", &sensor, &roots];
        Server::start(&[&fixed[..], options].concat())
    }

    /// This server's groups, in the hierarchy that the journal names.
    fn groups(&self) -> Vec<PathBuf> {
        let journals = fs::read_dir(self.path("run/pilotlight/changes")).into_iter().flatten().flatten();
        let text: String = journals.filter_map(|file| fs::read_to_string(file.path()).ok()).collect();
        let named = text.split('"').filter(|word| word.contains("/pilotlight-workers-")).map(PathBuf::from);
        named.filter(|path| path.is_dir()).collect()
    }
}

fn collect(folder: &Path, tree: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_dir() {
            collect(&entry.path(), tree);
        } else {
            tree.insert(entry.path(), fs::read(entry.path()).unwrap());
        }
    }
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not seen");
        std::thread::yield_now();
    }
}

/// A server under a budget that it cannot meet, so that every knob has its lowest value; and whether it has a CPU quota.
fn throttled(machine: &Machine, options: &[&str]) -> (Server, bool) {
    let server = machine.serve(&[&["--policy=pass", "--policy-set=inner=governor"], options].concat());
    server.request(&["set", "budget", "5W", "--no-wait"]);
    let limit = |package, window| {
        machine.read(&format!("sys/class/powercap/intel-rapl:{package}/constraint_{window}_power_limit_uw"))
    };
    until("all limits", || {
        [0, 1].iter().all(|&at| limit(at, 0) != format!("6{at}000000") && limit(at, 1) == limit(at, 0))
    });
    until("limits that are enabled", || {
        (0..2).all(|at| machine.read(&format!("sys/class/powercap/intel-rapl:{at}/enabled")) == "1")
    });
    until("frequencies", || {
        (0..2).all(|cpu| machine.read(&format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_max_freq")) == "800000")
    });
    let has_quota = can_have_quota(machine);
    if has_quota {
        let names = |status: &serde_json::Value| {
            let all = status["budget"]["throttled"].as_array().cloned().unwrap_or_default();
            all.iter().any(|knob| knob["name"] == json!(QUOTA))
        };
        server.status_until("a quota", names);
        assert!(!machine.groups().is_empty());
    } else {
        println!("SKIPPED: the CPU quota, which needs a cgroup that can be written");
    }
    (server, has_quota)
}

/// Whether a server here has the quota: policy `cpu-bandwidth` needs it.
fn can_have_quota(machine: &Machine) -> bool {
    let sensor = format!("--sensor=modelled:{}", machine.path("profile.toml").display());
    let roots = machine.roots();
    let options = ["--policy=cpu-bandwidth", "--cores=0,1", "--listen=127.0.0.1:0", "--namespace=mem:1MiB"];
    run(&[&["serve", "--check", "--admin-socket=none", &sensor, &roots], &options[..]].concat()).status.success()
}

#[test]
fn restore_after_kill_9_restores_every_byte() {
    let machine = Machine::new();
    let before = machine.tree();
    let (mut server, has_quota) = throttled(&machine, &[]);
    server.kill();
    let groups = machine.groups();
    assert_ne!(machine.tree(), before, "something other than `restore` has restored it");
    assert_eq!(groups.is_empty(), !has_quota);
    let restored = run(&["restore", &machine.roots()]);
    assert_eq!(restored.status.code(), Some(0), "{}", text(&restored.stdout));
    assert_eq!(machine.tree(), before);
    assert!(groups.iter().all(|group| !group.is_dir()), "{groups:?}");
    let again = text(&run(&["restore", &machine.roots()]).stdout);
    assert!(again.starts_with("nothing to restore"), "{again}");
}

#[test]
fn the_helper_of_a_server_without_privileges_restores_every_byte() {
    if !rustix::process::geteuid().is_root() {
        return println!("SKIPPED: only root can give privileges up");
    }
    let machine = Machine::new();
    // like /sys and /proc: the server's user reads what it measures
    fs::set_permissions(machine.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let before = machine.tree();
    let (mut server, has_quota) = throttled(&machine, &["--user=nobody"]);
    let groups = machine.groups();
    assert_eq!(groups.is_empty(), !has_quota);
    assert_ne!(machine.tree(), before);
    server.kill();
    until("all settings as before", || machine.tree() == before);
    until("no groups", || groups.iter().all(|group| !group.is_dir()));
    drop(server);
    let (mut server, _) = throttled(&machine, &["--user=nobody"]);
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
    assert_eq!(machine.tree(), before, "a server that stops waits for the restore");
}

#[test]
fn the_next_server_after_kill_9_restores_every_byte() {
    let machine = Machine::new();
    let before = machine.tree();
    let (mut server, _) = throttled(&machine, &[]);
    server.kill();
    let groups = machine.groups();
    assert_ne!(machine.tree(), before);
    drop(server);
    let server = machine.serve(&["--policy=static"]);
    server.expect_log("left behind by a process that was killed");
    assert_eq!(machine.tree(), before);
    assert!(groups.iter().all(|group| !group.is_dir()), "{groups:?}");
}

/// With `--keep-limits` a killed server's power limits stay, all else is restored; the next server takes over and restores them at its end.
fn limits_outlast(options: &[&str], restore: impl Fn(&Machine)) {
    let machine = Machine::new();
    fs::set_permissions(machine.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let before = machine.tree();
    let limits = |tree: &BTreeMap<PathBuf, Vec<u8>>| -> Vec<_> {
        tree.iter()
            .filter(|(path, _)| path.to_string_lossy().contains("powercap"))
            .map(|(_, text)| text.clone())
            .collect()
    };
    let options = [&["--keep-limits"], options].concat();
    let (mut server, _) = throttled(&machine, &options);
    let held = limits(&machine.tree());
    server.kill();
    drop(server);
    restore(&machine);
    let left = machine.tree();
    assert_eq!(limits(&left), held);
    assert_eq!(left.iter().filter(|(path, text)| before[*path] != **text).count(), 6, "of two packages");
    let (mut server, _) = throttled(&machine, &options);
    server.signal("TERM");
    assert_eq!(server.exit_code(), Some(0));
    assert_eq!(machine.tree(), before);
    let (mut server, _) = throttled(&machine, &options);
    server.kill();
    drop(server);
    restore(&machine);
    assert_eq!(run(&["restore", "--force", &machine.roots()]).status.code(), Some(0));
    assert_eq!(machine.tree(), before, "by hand");
}

#[test]
fn kept_limits_outlast_a_killed_server() {
    limits_outlast(&[], |machine| {
        let restored = run(&["restore", &machine.roots()]);
        let text = text(&restored.stdout);
        assert_eq!(restored.status.code(), Some(0), "{text}");
        assert!(text.contains("until a server starts (keep_limits)") && text.contains("journal stays"), "{text}");
    });
}

#[test]
fn kept_limits_outlast_a_killed_server_with_a_helper() {
    if !rustix::process::geteuid().is_root() {
        return println!("SKIPPED: only root can give privileges up");
    }
    limits_outlast(&["--user=nobody"], |machine| {
        until("frequencies as before", || {
            machine.read("sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq") == "2400000"
                && machine.read("sys/devices/system/cpu/cpu1/cpufreq/scaling_max_freq") == "2400000"
        });
        until("the end of the helper", || {
            let journals = fs::read_dir(machine.path("run/pilotlight/changes")).unwrap().flatten();
            journals.map(|journal| fs::File::open(journal.path()).unwrap()).all(|journal| journal.try_lock().is_ok())
        });
    });
}

#[test]
fn hotplug_takes_a_core_offline_only_where_allowed() {
    let machine = Machine::new();
    let before = machine.tree();
    let online = || machine.read("sys/devices/system/cpu/cpu1/online");
    for hotplug in [&["--hotplug"][..], &[]] {
        let mut server = machine.serve(&[&["--policy=cpu-jailing"], hotplug].concat());
        server.request(&["set", "budget", "5W", "--no-wait"]);
        server.status_until("a core that sleeps", |status| status["reactors"][1]["state"] != json!("awake"));
        if hotplug.is_empty() {
            assert_eq!(online(), "1");
            continue;
        }
        until("a core that leaves", || online() == "0");
        server.request(&["set", "budget", "off"]);
        until("a core that comes back", || online() == "1");
        server.request(&["set", "budget", "5W", "--no-wait"]);
        until("a core that leaves", || online() == "0");
        server.kill();
        assert_eq!(run(&["restore", &machine.roots()]).status.code(), Some(0));
        assert_eq!(machine.tree(), before);
    }
}
