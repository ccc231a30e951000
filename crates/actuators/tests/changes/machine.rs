//! The section `[machine]`: parsing, its changes on a simulated machine, and errors.

use std::os::unix::fs::symlink;
use std::path::Path;

use pilotlight_actuators::changes::{Change, Changes};

use crate::fake::Machine;

const ALL: &str = r#"
cpus = "0-1"
governor = "performance"
frequency_min = "1.2GHz"
frequency_max = "2.4GHz"
power_limit = "15W"
scheduler = "mq-deadline"
io_poll = true
io_poll_delay = 0
power_state = 2
apst = false
files = { "/proc/sys/vm/swappiness" = 1, "/sys/kernel/mm/transparent_hugepage/enabled" = "never" }

[cgroup]
cpus = "0,1"
cpu_time = "150%"
memory = "1GiB"
io_weight = 200
io_latency = "10ms"
read = "500MB/s"
write_iops = 1000
"#;

fn machine() -> Machine {
    let machine = Machine::new();
    machine.write("sys/devices/nvme0/nvme0n1/dev", "259:0\n");
    machine.write("sys/devices/nvme0/nvme0n1/queue/scheduler", "[none] mq-deadline \n");
    machine.write("sys/devices/nvme0/nvme0n1/queue/io_poll", "0\n");
    machine.write("sys/devices/nvme0/nvme0n1/queue/io_poll_delay", "-1\n");
    machine.write("sys/devices/nvme0/nvme0n1/nvme0n1p1/partition", "1\n");
    for (name, to) in [("nvme0n1", "devices/nvme0/nvme0n1"), ("nvme0n1p1", "devices/nvme0/nvme0n1/nvme0n1p1")] {
        std::fs::create_dir_all(machine.path("sys/class/block")).unwrap();
        symlink(machine.path("sys").join(to), machine.path("sys/class/block").join(name)).unwrap();
    }
    symlink(machine.path("sys/devices/nvme0/nvme0n1"), machine.path("sys/block/nvme0n1")).unwrap();
    symlink(machine.path("sys/devices/nvme0"), machine.path("sys/devices/nvme0/nvme0n1/device")).unwrap();
    // A second zone of the same package.
    machine.write("sys/class/powercap/intel-rapl-mmio:0/name", "package-0\n");
    machine.write("sys/class/powercap/intel-rapl-mmio:0/constraint_0_power_limit_uw", "45000000\n");
    machine.write("dev/nvme0n1", "");
    machine.write("dev/nvme0n1p1", "");
    machine
}

fn changes(machine: &Machine, text: &str) -> Result<Vec<Change>, String> {
    let section: pilotlight_actuators::Machine = toml::from_str(text).map_err(|error| error.to_string())?;
    let device = Path::new("/dev/nvme0n1p1");
    section.changes(&machine.roots(), Some(device), "7").map_err(|error| error.to_string())
}

fn queue(device: &str, attribute: &str, value: i64) -> Change {
    Change::Queue { device: device.into(), attribute: attribute.into(), value }
}

#[test]
fn with_several_paths_to_a_drive_each_is_polled() {
    let machine = machine();
    for way in ["nvme0c0n1", "nvme0c1n1", "nvme0c1n2", "nvme1c0n1"] {
        machine.write(&format!("sys/block/{way}/queue/io_poll_delay"), "-1\n");
    }
    let expected = ["nvme0c0n1", "nvme0c1n1"].map(|way| queue(way, "io_poll_delay", 4));
    assert_eq!(changes(&machine, "io_poll_delay = 4"), Ok(expected.to_vec()));
    assert!(changes(&machine, "io_poll_delay = -2").unwrap_err().contains("-1, 0 or a time in microseconds"));
}

#[test]
fn every_key_has_changes() {
    let machine = machine();
    let cpu = |cpu| {
        let governor = Change::Governor { cpu, governor: "performance".into() };
        [governor, Change::Frequency { cpu, min_khz: Some(1_200_000), max_khz: Some(2_400_000) }]
    };
    let file = |path: &str, value: &str| Change::File { path: machine.path(path), value: value.into() };
    let limits = [
        ("cpuset.cpus", "0,1"),
        ("cpu.max", "150000 100000"),
        ("memory.max", "1073741824"),
        ("io.weight", "default 200"),
        ("io.latency", "259:0 target=10000"),
        ("io.max", "259:0 rbps=500000000 wiops=1000"),
    ];
    let mut expected = vec![
        Change::Transitions { drive: "nvme0".into(), on: false },
        Change::PowerState { drive: "nvme0".into(), state: 2 },
        Change::Scheduler { device: "nvme0n1".into(), scheduler: "mq-deadline".into() },
        queue("nvme0n1", "io_poll", 1),
        queue("nvme0n1", "io_poll_delay", 0),
    ];
    expected.extend(cpu(0).into_iter().chain(cpu(1)));
    expected.push(Change::PowerLimit { zone: "intel-rapl:0".into(), short_term: false, power_uw: 15_000_000 });
    expected.push(file("proc/sys/vm/swappiness", "1"));
    expected.push(file("sys/kernel/mm/transparent_hugepage/enabled", "never"));
    let limits = limits.map(|(file, value)| (file.to_owned(), value.to_owned())).to_vec();
    expected.push(Change::Cgroup { name: "7".into(), limits });
    assert_eq!(changes(&machine, ALL).unwrap(), expected);
}

#[test]
fn all_changes_are_applied_and_restored() {
    let machine = machine();
    let before = machine.tree();
    let mut made = Changes::begin_on(&machine.journal(), machine.roots(), machine.kernel()).unwrap();
    for change in changes(&machine, ALL).unwrap() {
        made.make(&change).unwrap();
    }
    assert_eq!(machine.read("sys/fs/cgroup/pilotlight-7/io.max").trim(), "259:0 rbps=500000000 wiops=1000");
    assert_eq!(machine.read("sys/block/nvme0n1/queue/scheduler"), "none [mq-deadline] \n");
    assert_eq!(machine.read("dev/nvme0"), "2 0");
    assert_eq!(machine.read("sys/block/nvme0n1/queue/io_poll_delay"), "0\n");
    drop(made);
    assert_eq!(machine.tree(), before);
}

#[test]
fn an_empty_section_changes_nothing() {
    assert_eq!(changes(&machine(), ""), Ok(Vec::new()));
    assert!(pilotlight_actuators::Machine::default().is_empty());
}

#[test]
fn errors_name_the_key() {
    let machine = machine();
    for (text, expected) in [
        ("frequency_max = \"2.4\"", "machine.frequency_max: `2.4` is not a frequency such as 2.1GHz (kHz, MHz, GHz)"),
        ("frequency_min = \"3GHz\"\nfrequency_max = \"2GHz\"", "machine.frequency_min: is above frequency_max"),
        ("power_limit = \"15\"", "machine.power_limit: `15` is not a power such as 15W (uW, mW, W, kW)"),
        ("cpus = \"0-7\"\ngovernor = \"x\"", "machine.cpus: CPU 2 has no cpufreq"),
        ("cpus = \"a\"\ngovernor = \"x\"", "machine.cpus: `a` is not a list of CPUs such as 0-3,8"),
        ("power_state = 32", "machine.power_state: a drive has at most the states 0 to 31"),
        ("power_state = 1\ndrive = \"sda\"", "machine.drive: `sda` is not a controller; use a name such as nvme0"),
        ("files = { \"/etc/passwd\" = \"x\" }", "machine.files.\"/etc/passwd\": only files below /sys"),
        ("files = { \"/sys/a\" = \"x\\ny\" }", "machine.files.\"/sys/a\": must be one line"),
        ("[cgroup]\nread = \"500MB\"", "machine.cgroup.read: `500MB` is not a rate such as 500MB/s"),
        ("[cgroup]\nwrite_iops = 0", "machine.cgroup.write_iops: must be at least 1"),
        ("[cgroup]\nio_weight = 0", "machine.cgroup.io_weight: must be 1 to 10000"),
        ("governer = \"x\"", "unknown field `governer`"),
        ("[cgroup]\nmem = \"1GiB\"", "unknown field `mem`"),
    ] {
        let error = changes(&machine, text).expect_err(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn missing_settings_are_errors() {
    let machine = Machine::new();
    std::fs::remove_dir_all(machine.path("sys/devices")).unwrap();
    std::fs::remove_dir_all(machine.path("sys/class")).unwrap();
    for (text, expected) in [
        ("governor = \"performance\"", "machine.governor: no CPU has cpufreq"),
        ("power_limit = \"15W\"", "machine.power_limit: "),
        ("scheduler = \"none\"", "machine.scheduler: /dev/nvme0n1p1 is neither a block device"),
        ("power_state = 1", "machine.power_state: /dev/nvme0n1p1 is neither a block device"),
    ] {
        let error = changes(&machine, text).expect_err(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
    let section = pilotlight_actuators::Machine { scheduler: Some("none".into()), ..Default::default() };
    let error = section.changes(&machine.roots(), None, "7").unwrap_err();
    assert_eq!(error.to_string(), "machine.scheduler: the experiment has no device or file");
}

#[test]
fn with_multipath_every_path_to_a_device_has_a_scheduler() {
    let machine = machine();
    std::fs::remove_file(machine.path("sys/devices/nvme0/nvme0n1/queue/scheduler")).unwrap();
    let changes_of = |text| changes(&machine, text);
    assert!(changes_of("scheduler = \"none\"").unwrap_err().contains("nvme0n1 has no I/O scheduler"));
    for way in ["nvme0c1n1", "nvme0c0n1", "nvme0c0n2", "nvme1c0n1"] {
        machine.write(&format!("sys/block/{way}/queue/scheduler"), "[none] mq-deadline \n");
    }
    let scheduler = |device: &str| Change::Scheduler { device: device.into(), scheduler: "none".into() };
    assert_eq!(changes_of("scheduler = \"none\""), Ok(vec![scheduler("nvme0c0n1"), scheduler("nvme0c1n1")]));
}
