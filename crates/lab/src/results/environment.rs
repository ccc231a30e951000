//! The environment of a run: CPU, kernel, settings, drives, versions and load of the machine.

use std::collections::BTreeMap;
use std::path::Path;

use pilotlight_sensors::Roots;
use serde::{Deserialize, Serialize};

use pilotlight_workloads::record::Tool;

/// The machine at the start of a run. Unreadable values are missing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Seconds since 1970.
    pub at_unix_s: u64,
    /// Version of Pilotlight.
    pub pilotlight: String,
    /// Name of the host.
    pub host: String,
    /// CPU: model, microcode, number, SMT.
    pub cpu: BTreeMap<String, String>,
    /// Kernel: release, version, command line, hypervisor.
    pub kernel: BTreeMap<String, String>,
    /// Frequency settings of the first CPU, and the number of CPUs with other settings.
    pub frequency: BTreeMap<String, String>,
    /// Memory, in bytes.
    pub memory_bytes: Option<u64>,
    /// Block devices: model, firmware, size, scheduler and the like.
    pub drives: BTreeMap<String, BTreeMap<String, String>>,
    /// The tool of the workload with its version.
    pub tools: Vec<Tool>,
    /// Load averages over 1, 5 and 15 minutes.
    pub load: Vec<f64>,
    /// The drive of the target, if known.
    pub drive: Option<String>,
}

impl Environment {
    /// Reads the environment.
    #[must_use]
    pub fn read(roots: &Roots, at_unix_s: u64, tools: Vec<Tool>, drive: Option<String>) -> Self {
        Self {
            at_unix_s,
            pilotlight: env!("CARGO_PKG_VERSION").into(),
            host: text(&roots.proc.join("sys/kernel/hostname")).unwrap_or_default(),
            cpu: cpu(roots),
            kernel: kernel(roots),
            frequency: frequency(&roots.sys),
            memory_bytes: memory(&roots.proc),
            drives: drives(&roots.sys),
            tools,
            load: load(&roots.proc),
            drive,
        }
    }
}

fn text(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The contents of readable files, by name.
fn files(folder: &Path, names: &[(&str, &str)]) -> BTreeMap<String, String> {
    names.iter().filter_map(|(name, file)| Some(((*name).to_owned(), text(&folder.join(file))?))).collect()
}

fn cpu(roots: &Roots) -> BTreeMap<String, String> {
    let info = text(&roots.proc.join("cpuinfo")).unwrap_or_default();
    let mut cpu = BTreeMap::new();
    let keys = [("model name", "model"), ("microcode", "microcode"), ("vendor_id", "vendor"), ("stepping", "stepping")];
    for (key, name) in keys {
        let value = info.lines().filter_map(|line| line.split_once(':')).find(|(found, _)| found.trim() == key);
        cpu.extend(value.map(|(_, value)| (name.to_owned(), value.trim().to_owned())));
    }
    let count = info.lines().filter(|line| line.starts_with("processor")).count();
    cpu.insert("logical_cpus".into(), count.to_string());
    cpu.extend(files(&roots.sys.join("devices/system/cpu"), &[("smt", "smt/control"), ("online", "online")]));
    cpu
}

fn kernel(roots: &Roots) -> BTreeMap<String, String> {
    let mut kernel = files(
        &roots.proc,
        &[("release", "sys/kernel/osrelease"), ("version", "sys/kernel/version"), ("command_line", "cmdline")],
    );
    let info = text(&roots.proc.join("cpuinfo")).unwrap_or_default();
    let flags = info.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let virtual_machine = flags.split_whitespace().any(|flag| flag == "hypervisor");
    kernel.insert("virtual_machine".into(), virtual_machine.to_string());
    kernel
}

const FREQUENCY: [(&str, &str); 5] = [
    ("driver", "scaling_driver"),
    ("governor", "scaling_governor"),
    ("min_khz", "scaling_min_freq"),
    ("max_khz", "scaling_max_freq"),
    ("energy_preference", "energy_performance_preference"),
];

fn frequency(sys: &Path) -> BTreeMap<String, String> {
    let cpus = sys.join("devices/system/cpu");
    let of = |cpu: usize| files(&cpus.join(format!("cpu{cpu}/cpufreq")), &FREQUENCY);
    let mut first = of(0);
    if first.is_empty() {
        return first;
    }
    let others = (1..).map_while(|cpu| cpus.join(format!("cpu{cpu}")).exists().then(|| of(cpu)));
    let unlike = others.filter(|other| *other != first).count();
    first.insert("cpus_with_other_settings".into(), unlike.to_string());
    let boost = [("boost", "cpufreq/boost"), ("no_turbo", "intel_pstate/no_turbo")];
    first.extend(files(&cpus, &boost));
    first
}

fn memory(proc: &Path) -> Option<u64> {
    let info = text(&proc.join("meminfo"))?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib * 1024)
}

const DRIVE: [(&str, &str); 9] = [
    ("model", "device/model"),
    ("firmware", "device/firmware_rev"),
    ("firmware_scsi", "device/rev"),
    ("sectors_of_512", "size"),
    ("scheduler", "queue/scheduler"),
    ("rotational", "queue/rotational"),
    ("write_cache", "queue/write_cache"),
    ("requests", "queue/nr_requests"),
    ("poll", "queue/io_poll"),
];

fn drives(sys: &Path) -> BTreeMap<String, BTreeMap<String, String>> {
    let folder = sys.join("block");
    let names = std::fs::read_dir(&folder).map(|entries| entries.flatten().map(|entry| entry.file_name()));
    let names = names.map(|names| names.map(|name| name.to_string_lossy().into_owned()).collect()).unwrap_or_default();
    let names: Vec<String> = names;
    let is_virtual = |name: &String| ["loop", "ram", "zram"].iter().any(|prefix| name.starts_with(prefix));
    let one = |name: String| (name.clone(), files(&folder.join(name), &DRIVE));
    names.into_iter().filter(|name| !is_virtual(name)).map(one).collect()
}

fn load(proc: &Path) -> Vec<f64> {
    let text = text(&proc.join("loadavg")).unwrap_or_default();
    text.split_whitespace().take(3).filter_map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_of_a_recorded_tree() {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put(
            "proc/cpuinfo",
            "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\nmicrocode\t: 0x2b\nflags\t: fpu hypervisor\n",
        );
        put("proc/meminfo", "MemTotal:       1024 kB\n");
        put("proc/loadavg", "0.50 0.25 0.10 1/100 42\n");
        put("proc/sys/kernel/osrelease", "6.12.0\n");
        put("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n");
        put("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n");
        put("sys/block/nvme0n1/device/model", "A drive\n");
        put("sys/block/nvme0n1/device/firmware_rev", "1.0\n");
        put("sys/block/loop0/size", "0\n");
        let found = Environment::read(&Roots::below(folder.path()), 7, Vec::new(), None);
        assert_eq!((found.cpu["model"].as_str(), found.cpu["microcode"].as_str()), ("A CPU @ 2 GHz", "0x2b"));
        assert_eq!((found.kernel["release"].as_str(), found.kernel["virtual_machine"].as_str()), ("6.12.0", "true"));
        assert_eq!(found.frequency["cpus_with_other_settings"], "1");
        assert_eq!((found.memory_bytes, found.load), (Some(1 << 20), vec![0.5, 0.25, 0.1]));
        assert_eq!(found.drives.keys().collect::<Vec<_>>(), ["nvme0n1"]);
        assert_eq!(found.drives["nvme0n1"]["firmware"], "1.0");
    }
}
