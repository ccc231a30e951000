//! The knobs of the server's machine.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use pilotlight_actuators::Roots;
use pilotlight_actuators::changes::{self, Error, Options};
use pilotlight_actuators::knobs::{Knobs as Found, Wanted, list};
use pilotlight_actuators::machine::drive_of;
use pilotlight_nvmf_target::config::ServerConfig;
use pilotlight_plant::{CoreId, Kind, Knob, KnobId, Refusal, Scope};
use pilotlight_reactor::{Actuation, Knobs, Machine};
use tracing::{debug, info, warn};

use super::drives::KnobsAndDrives;
use crate::config::Operation;
use crate::status::report::NameAndValue;

/// This machine, by its knobs.
struct ThisMachine {
    found: Found,
    /// Knobs whose last setting was refused, logged once.
    refused: BTreeSet<KnobId>,
    settings: Settings,
}

/// The knobs that are set, and their values; shared with reports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings(Arc<Mutex<BTreeMap<KnobId, (Knob, u64)>>>);

impl Settings {
    fn note(&self, id: KnobId, setting: Option<(Knob, u64)>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match setting {
            Some(setting) => all.insert(id, setting),
            None => all.remove(&id),
        };
    }

    /// The knobs that are set below what was found.
    pub(super) fn throttled(&self) -> Vec<NameAndValue> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.values().filter_map(|(knob, value)| throttled(knob, *value)).collect()
    }
}

fn throttled(knob: &Knob, value: u64) -> Option<NameAndValue> {
    let of = match knob.scope {
        Scope::Core(core) => format!(" of core {}", core.0),
        Scope::Package(package) => format!(" of package {package}"),
        Scope::Device(device) => format!(" of drive {device}"),
        Scope::Namespace(namespace) => format!(" of namespace {namespace}"),
        Scope::Host(host) => format!(" of host {host}"),
        Scope::Background(class) => format!(" of background class {class}"),
        Scope::Server => String::new(),
    };
    let is_below = match knob.kind {
        Kind::PowerState => value > knob.initial, // the higher the slower
        Kind::QuotaPeriodNs => false,             // limits nothing by itself
        Kind::WakeLimitNs => false,               // a lower limit saves less
        _ => value < knob.initial,
    };
    let percent = |ppm: u64| ppm as f64 / 1e4;
    let (name, value) = match knob.kind {
        Kind::FrequencyKhz => ("frequency", format!("{} MHz of {} MHz", value / 1000, knob.initial / 1000)),
        Kind::LimitUw => ("power limit", format!("{:.1} W of {:.1} W", value as f64 / 1e6, knob.initial as f64 / 1e6)),
        Kind::QuotaPpm => {
            ("CPU quota of the worker cores", format!("{:.1} % of {:.0} %", percent(value), percent(knob.initial)))
        }
        Kind::QuotaPeriodNs => ("period of the CPU quota", format!("{} ms", value / 1_000_000)),
        Kind::Online => ("online", "no".to_owned()),
        Kind::PowerState => ("power state", format!("PS{value}")),
        Kind::WakeLimitNs => ("wake-up limit", format!("{} us", value / 1_000)),
        Kind::BytesPerS => ("bandwidth cap", format!("{:.1} MB/s", value as f64 / 1e6)),
        Kind::RatePpm => ("rate", format!("{:.1} %", percent(value))),
    };
    is_below.then(|| NameAndValue { name: format!("{name}{of}"), value })
}

impl Machine for ThisMachine {
    fn knobs(&self) -> Vec<Knob> {
        self.found.list()
    }

    fn set_workers(&mut self, workers: &[u32]) {
        self.found.set_workers(workers);
    }

    fn set(&mut self, knob: KnobId, value: Option<u64>) -> Result<(), Refusal> {
        match self.found.set(knob, value) {
            Ok(()) => {
                self.refused.remove(&knob);
                let known = self.found.list().into_iter().nth(knob.index());
                self.settings.note(knob, known.zip(value));
                Ok(())
            }
            Err(error) => {
                if self.refused.insert(knob) {
                    warn!("{error}");
                }
                Err(Refusal::Failed)
            }
        }
    }
}

/// The knobs that a server may set, and its journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnobAccess {
    pub(super) roots: Roots,
    /// The folder of journals.
    journals: PathBuf,
    /// Reactors whose CPUs may be taken offline.
    hotplug: Vec<CoreId>,
}

impl KnobAccess {
    /// All but taking CPUs offline.
    pub(crate) fn this_machine() -> Self {
        Self { roots: Roots::default(), journals: changes::folder(), hotplug: Vec::new() }
    }

    pub(super) fn of(operation: &Operation) -> Self {
        let workers = operation.reactors.topology.workers();
        let hotplug = workers.filter(|_| operation.hotplug).collect();
        let roots = operation.roots.as_ref();
        Self {
            roots: roots.map_or_else(Roots::default, Roots::below),
            journals: roots.map_or_else(changes::folder, changes::folder_below),
            hotplug,
        }
    }
}

/// The knobs for the reactors on these CPUs. Nothing is changed.
pub(super) fn look(config: &ServerConfig, cores: &[Option<u32>], reach: &KnobAccess) -> Vec<Knob> {
    let drives = drives(&reach.roots, config).into_iter().filter_map(|(_, drive)| drive.ok()).collect();
    list(&reach.roots, &Wanted { hotplug: reach.hotplug.clone(), ..wanted(cores, drives) })
}

/// Starts setting knobs for the reactors on these CPUs, and for the drives of the namespaces. Missing knobs are logged at debug level,
/// as most policies need none. Settings that a killed process has left are restored first.
pub(crate) fn open(
    config: &ServerConfig,
    cores: &[Option<u32>],
    reach: &KnobAccess,
    settings: &Settings,
) -> Arc<dyn Knobs> {
    let KnobAccess { roots, journals, hotplug } = reach;
    let mut wanted = Wanted { hotplug: hotplug.clone(), ..wanted(cores, Vec::new()) };
    for (path, drive) in drives(roots, config) {
        match drive {
            Ok(drive) => wanted.drives.push(drive),
            Err(why) => info!("the power state of {} cannot be set: {why}", path.display()),
        }
    }
    let machine = open_in(roots, &changes::fresh_in(journals), &wanted, settings);
    Arc::new(KnobsAndDrives::new(machine, roots.clone(), wanted.drives))
}

/// The NVMe drives that hold namespaces, each once, and the block devices that are none, with the reason.
fn drives(roots: &Roots, config: &ServerConfig) -> Vec<(PathBuf, Result<String, String>)> {
    let namespaces = config.subsystems.iter().flat_map(|subsystem| &subsystem.namespaces);
    let mut drives: Vec<(PathBuf, Result<String, String>)> = Vec::new();
    for path in namespaces.filter_map(|namespace| namespace.backend.path()) {
        let Some(drive) = drive_of(roots, path) else { continue };
        if !drives.iter().any(|(_, known)| *known == drive) {
            drives.push((path.to_owned(), drive));
        }
    }
    drives
}

fn open_in(roots: &Roots, journal: &Path, wanted: &Wanted, settings: &Settings) -> Option<Arc<dyn Knobs>> {
    put_leftovers_back(roots, journal.parent()?);
    let found = match find(roots, journal, wanted) {
        Ok(found) => found,
        Err(error) => {
            warn!("nothing of this machine will be set: {error}");
            return None;
        }
    };
    if found.list().is_empty() {
        return None;
    }
    let machine = ThisMachine { found, refused: BTreeSet::new(), settings: settings.clone() };
    match Actuation::start(Box::new(machine), &wanted.cpus) {
        Ok(actuation) => Some(Arc::new(actuation)),
        Err(error) => {
            warn!("nothing of this machine will be set: cannot start a thread for it: {error}");
            None
        }
    }
}

fn find(roots: &Roots, journal: &Path, wanted: &Wanted) -> Result<Found, Error> {
    let (found, missing) = Found::find(roots, journal, wanted)?;
    missing.iter().for_each(|missing| debug!("{} cannot be set: {}", missing.what, missing.why));
    Ok(found)
}

fn wanted(cores: &[Option<u32>], drives: Vec<String>) -> Wanted {
    Wanted { cpus: cores.to_vec(), drives, ..Wanted::default() }
}

/// Puts back what processes that were killed have set. What cannot be put back stays in its journal.
fn put_leftovers_back(roots: &Roots, folder: &Path) {
    for journal in left_behind(folder) {
        match changes::restore(&journal, roots, Options::default()) {
            Ok(all) => all.iter().for_each(|back| info!("left behind by a process that was killed: {back}")),
            Err(Error::Lives { .. } | Error::Foreign { .. }) => {} // another process's; no journal
            Err(error) => warn!("{error}"),
        }
    }
}

fn left_behind(folder: &Path) -> Vec<PathBuf> {
    changes::find(folder).unwrap_or_else(|error| {
        warn!("{error}");
        Vec::new()
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::{Duration, Instant};

    use pilotlight_nvmf_target::config::{NamespaceConfig, SubsystemConfig};

    use super::*;

    /// A machine with the frequencies of CPU 7.
    fn machine() -> (tempfile::TempDir, Roots, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let cpufreq = folder.path().join("sys/devices/system/cpu/cpu7/cpufreq");
        fs::create_dir_all(&cpufreq).unwrap();
        let files = ["cpuinfo_min_freq", "cpuinfo_max_freq", "scaling_min_freq", "scaling_max_freq"];
        for (name, khz) in files.into_iter().zip(["1000000", "2000000", "1000000", "2000000"]) {
            fs::write(cpufreq.join(name), format!("{khz}\n")).unwrap();
        }
        let roots = Roots::below(folder.path());
        (folder, roots, cpufreq.join("scaling_max_freq"))
    }

    fn on(cores: &[Option<u32>]) -> Wanted {
        wanted(cores, Vec::new())
    }

    fn khz(file: &Path) -> String {
        fs::read_to_string(file).unwrap().trim().to_owned()
    }

    fn until_it_is(file: &Path, wanted: &str) {
        let until = Instant::now() + Duration::from_secs(60);
        while khz(file) != wanted {
            assert!(Instant::now() < until, "{} is {}, not {wanted}", file.display(), khz(file));
            std::thread::yield_now();
        }
    }

    #[test]
    fn reactors_are_set_by_the_cpus_that_they_run_on_and_put_back() {
        let (folder, roots, max) = machine();
        let journal = folder.path().join("run/1.jsonl");
        assert!(open_in(&roots, &journal, &on(&[None]), &Settings::default()).is_none(), "not pinned");
        assert!(open_in(&roots, &journal, &on(&[Some(0)]), &Settings::default()).is_none(), "no cpufreq");
        let settings = Settings::default();
        let knobs = open_in(&roots, &journal, &on(&[Some(7)]), &settings).unwrap();
        assert_eq!(knobs.knobs()[0].values.highest(), Some(2_000_000));
        knobs.set(KnobId(0), 1_500_000).unwrap();
        until_it_is(&max, "1500000");
        while settings.throttled().is_empty() {
            std::thread::yield_now(); // noted after it is set
        }
        let throttled = NameAndValue { name: "frequency of core 0".into(), value: "1500 MHz of 2000 MHz".into() };
        assert_eq!(settings.throttled(), [throttled]);
        drop(knobs);
        assert_eq!(khz(&max), "2000000");
        assert!(!journal.exists());
    }

    #[test]
    fn drives_are_those_of_the_namespaces_by_whatever_name_each_once() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::below(folder.path());
        let at = |path: &str| folder.path().join(path);
        let write = |path: &str, text: &str| {
            fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            fs::write(at(path), text).unwrap();
        };
        write("sys/devices/pci/nvme/nvme3/nvme3n1/nvme3n1p2/partition", "2\n");
        write("sys/devices/pci/nvme/nvme3/transport", "pcie\n");
        write("sys/devices/net/nvme4/nvme4n1/size", "8\n");
        write("sys/devices/net/nvme4/transport", "tcp\n");
        write("sys/devices/virtio/vda/size", "8\n");
        let link = |from: &str, to: &str| {
            fs::create_dir_all(at(from).parent().unwrap()).unwrap();
            symlink(at(to), at(from)).unwrap();
        };
        let devices = [("nvme3n1", "pci/nvme/nvme3/nvme3n1"), ("nvme3n1p2", "pci/nvme/nvme3/nvme3n1/nvme3n1p2")];
        for (name, place) in devices.into_iter().chain([("nvme4n1", "net/nvme4/nvme4n1"), ("vda", "virtio/vda")]) {
            link(&format!("sys/class/block/{name}"), &format!("sys/devices/{place}"));
            link(&format!("sys/block/{name}"), &format!("sys/devices/{place}"));
            write(&format!("dev/{name}"), "");
        }
        for (drive, bus) in [("nvme3", "pci/nvme"), ("nvme4", "net")] {
            link(&format!("sys/class/nvme/{drive}"), &format!("sys/devices/{bus}/{drive}"));
            link(&format!("sys/devices/{bus}/{drive}/{drive}n1/device"), &format!("sys/devices/{bus}/{drive}"));
        }
        link("dev/disk/by-id/nvme-Fast_1-part2", "dev/nvme3n1p2");
        write("srv/disk.img", "");
        let paths = ["dev/disk/by-id/nvme-Fast_1-part2", "srv/disk.img", "dev/vda", "dev/nvme3n1", "dev/nvme4n1"];
        let backends = paths.map(|path| format!("file:{}", at(path).display()).parse().unwrap());
        let namespace =
            |(nsid, backend)| NamespaceConfig { nsid, backend, block_size: 512, uuid: None, hosts: Vec::new() };
        let subsystem = SubsystemConfig {
            nqn: "nqn.2024-05.com.example:a".to_owned(),
            serial: None,
            allowed_hosts: Vec::new(),
            controller_ids: None,
            namespaces: (1..).zip(backends).map(namespace).collect(),
        };
        let config = ServerConfig { subsystems: vec![subsystem], ..ServerConfig::default() };
        let found = drives(&roots, &config);
        let [(_, fast), (_, vda), (_, network)] = &found[..] else { panic!("{found:?}") };
        assert_eq!(fast.as_deref(), Ok("nvme3"));
        assert!(vda.as_ref().unwrap_err().contains("vda is not an NVMe drive's"), "{vda:?}");
        assert!(network.as_ref().unwrap_err().contains("transport tcp"), "{network:?}");

        write("sys/devices/pci/nvme/nvme3/nvme3n1/nvme3n1p3/partition", "3\n");
        link("sys/class/block/nvme3n1p3", "sys/devices/pci/nvme/nvme3/nvme3n1/nvme3n1p3");
        for (volume, below) in
            [("dm-0", &["nvme3n1p3"][..]), ("md1", &["nvme3n1", "vda"]), ("dm-2", &["dm-0"]), ("loop0", &[])]
        {
            fs::create_dir_all(at(&format!("sys/devices/virtual/block/{volume}/slaves"))).unwrap();
            link(&format!("sys/class/block/{volume}"), &format!("sys/devices/virtual/block/{volume}"));
            write(&format!("dev/{volume}"), "");
            for below in below {
                link(
                    &format!("sys/devices/virtual/block/{volume}/slaves/{below}"),
                    &format!("sys/class/block/{below}"),
                );
            }
        }
        let knobs = KnobsAndDrives::new(None, roots, vec!["nvme3".to_owned()]);
        let number = |name: &str| knobs.drive_of(&at(&format!("dev/{name}")));
        let on_fast = ["nvme3n1", "disk/by-id/nvme-Fast_1-part2", "nvme3n1p3", "dm-0", "dm-2"];
        assert_eq!(on_fast.map(number), [Some(0); 5], "the number that its power state has");
        assert_eq!(["vda", "nvme4n1", "md1", "loop0", "none"].map(number), [Some(1), None, None, None, None]);
    }

    #[test]
    fn settings_left_by_a_killed_server_are_restored_first() {
        let (folder, roots, max) = machine();
        let killed = folder.path().join("run/1.jsonl");
        let knobs = open_in(&roots, &killed, &on(&[Some(7)]), &Settings::default()).unwrap();
        knobs.set(KnobId(0), 1_500_000).unwrap();
        until_it_is(&max, "1500000");
        let left = fs::read_to_string(&killed).unwrap();
        drop(knobs);
        // as after a kill: set, and in the journal of a dead process
        fs::write(&killed, left.replacen(&format!("\"pid\":{}", std::process::id()), "\"pid\":0", 1)).unwrap();
        fs::write(&max, "1500000\n").unwrap();
        let again = open_in(&roots, &folder.path().join("run/2.jsonl"), &on(&[Some(7)]), &Settings::default()).unwrap();
        assert_eq!(khz(&max), "2000000");
        assert_eq!(again.knobs()[0].initial, 2_000_000);
        assert!(!killed.exists());
    }
}
