//! Knobs of a recorded machine, and drives of namespaces.

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

fn open_in(roots: &Roots, journal: &Path, wanted: &Wanted, settings: &Settings) -> Option<Arc<dyn Knobs>> {
    actuate(machine_in((roots, journal), wanted, false, settings)?, &wanted.cpus)
}

#[test]
fn reactors_are_set_by_cpu_and_restored() {
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
fn each_drive_of_the_namespaces_is_listed_once() {
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
    let namespace = |(nsid, backend)| NamespaceConfig::new(nsid, backend, 512);
    let subsystem = SubsystemConfig::new("nqn.2024-05.com.example:a", (1..).zip(backends).map(namespace).collect());
    let config = ServerConfig { subsystems: vec![subsystem], ..ServerConfig::default() };
    let found = drives(&roots, &config);
    let [(_, fast), (_, vda), (_, network)] = &found[..] else { panic!("{found:?}") };
    assert_eq!(fast.as_ref().unwrap(), "nvme3");
    assert!(vda.as_ref().unwrap_err().to_string().contains("vda is not an NVMe drive"), "{vda:?}");
    assert!(network.as_ref().unwrap_err().to_string().contains("transport tcp"), "{network:?}");

    write("sys/devices/pci/nvme/nvme3/nvme3n1/nvme3n1p3/partition", "3\n");
    link("sys/class/block/nvme3n1p3", "sys/devices/pci/nvme/nvme3/nvme3n1/nvme3n1p3");
    for (volume, below) in
        [("dm-0", &["nvme3n1p3"][..]), ("md1", &["nvme3n1", "vda"]), ("dm-2", &["dm-0"]), ("loop0", &[])]
    {
        fs::create_dir_all(at(&format!("sys/devices/virtual/block/{volume}/slaves"))).unwrap();
        link(&format!("sys/class/block/{volume}"), &format!("sys/devices/virtual/block/{volume}"));
        write(&format!("dev/{volume}"), "");
        for below in below {
            link(&format!("sys/devices/virtual/block/{volume}/slaves/{below}"), &format!("sys/class/block/{below}"));
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
    // as after a kill: set, and in the journal of a killed process
    fs::write(&killed, left.replacen(&format!("\"pid\":{}", std::process::id()), "\"pid\":0", 1)).unwrap();
    fs::write(&max, "1500000\n").unwrap();
    let again = open_in(&roots, &folder.path().join("run/2.jsonl"), &on(&[Some(7)]), &Settings::default()).unwrap();
    assert_eq!(khz(&max), "2000000");
    assert_eq!(again.knobs()[0].initial, 2_000_000);
    assert!(!killed.exists());
}
