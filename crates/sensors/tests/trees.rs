//! Sensors on trees of machines; see `trees/README.md`.

use std::path::Path;

use pilotlight_sensors::energy::{Share, Window, sum};
use pilotlight_sensors::{Config, Kind, Missing, Part, Planned, Roots, Sampler, Sensor, Why, rapl, survey};

fn tree(name: &str) -> Roots {
    Roots::below(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trees").join(name))
}

fn open(name: &str, tree_name: &str) -> Result<Box<dyn Sensor>, Missing> {
    Config::by_name(name).unwrap().open(&tree(tree_name))
}

/// Columns and values of one reading.
fn read(sensor: &mut dyn Sensor) -> Vec<(String, i64)> {
    let mut readings = Vec::new();
    sensor.read(&mut readings).unwrap();
    readings.iter().map(|reading| (sensor.domains()[reading.domain].column(), reading.value)).collect()
}

/// Name, part and name of the parent of all domains.
fn shape(sensor: &dyn Sensor) -> Vec<(&str, Part, Option<&str>)> {
    let domains = sensor.domains();
    let name = |index: usize| domains[index].name.as_str();
    domains.iter().map(|domain| (domain.name.as_str(), domain.part.clone(), domain.parent.map(name))).collect()
}

fn values(all: &[(&str, i64)]) -> Vec<(String, i64)> {
    all.iter().map(|&(name, value)| (name.to_owned(), value)).collect()
}

#[test]
fn rapl_domains_of_an_intel_client_are_nested() {
    let mut rapl = open("rapl", "intel-client").unwrap();
    let expected = [
        ("package-0", Part::Package(0), Some("psys")),
        ("package-0/core", Part::Core(0), Some("package-0")),
        ("package-0/uncore", Part::Uncore(0), Some("package-0")),
        ("package-0/dram", Part::Dram(0), Some("psys")),
        ("psys", Part::Platform, None),
    ];
    assert_eq!(shape(&*rapl), expected);
    let read = read(&mut *rapl);
    assert_eq!(read[0], ("package-0_uj".to_owned(), 41_236_549_872));
    assert_eq!(read[4], ("psys_uj".to_owned(), 91_236_549_872));
    let Kind::EnergyCounter(counts) = rapl.domains()[0].kind else { panic!("a counter") };
    assert_eq!(counts.modulus_uj, Some(262_143_328_851));
    // The maximum of a package does not apply to the rest of the platform.
    let options = rapl::Options { max_package_uw: Some(400_000_000), ..rapl::Options::default() };
    let bounded = Config::Rapl(options).open(&tree("intel-client")).unwrap();
    let greatest = |index: usize| match bounded.domains()[index].kind {
        Kind::EnergyCounter(counts) => counts.max_uw,
        _ => 0,
    };
    assert_eq!((greatest(0), greatest(4)), (400_000_000, 8_000_000_000));
    // The graphics may be idle, the package may not.
    let moves = |index: usize| matches!(rapl.domains()[index].kind, Kind::EnergyCounter(c) if c.always_advances);
    assert_eq!([moves(0), moves(1), moves(2)], [true, true, false]);
}

#[test]
fn packages_of_a_server_add_up_and_their_parts_do_not() {
    let mut rapl = open("rapl", "intel-server-2p").unwrap();
    let expected = [
        ("package-0", Part::Package(0), None),
        ("package-0/dram", Part::Dram(0), None),
        ("package-1", Part::Package(1), None),
        ("package-1/dram", Part::Dram(1), None),
    ];
    assert_eq!(shape(&*rapl), expected);
    let share = |index: usize| Share { name: index.to_string(), part: rapl.domains()[index].part.clone(), uj: 1 };
    assert_eq!(sum(&[share(0), share(1), share(2), share(3)]), Ok(4));
    // Memory has a separate, shorter counter.
    let Kind::EnergyCounter(counts) = rapl.domains()[1].kind else { panic!("a counter") };
    assert_eq!(counts.modulus_uj, Some(65_712_999_614));
    assert_eq!(read(&mut *rapl)[3].1, 20_000_000_001);
}

#[test]
fn the_amd_core_domain_is_one_core() {
    let rapl = open("rapl", "amd").unwrap();
    // The zone `core` is one core on AMD: not the cores of the package, and not added to other domains.
    let one = Part::Unknown("one core of package 0".into());
    assert_eq!(shape(&*rapl), [("package-0", Part::Package(0), None), ("package-0/core", one, Some("package-0"))]);
    let mut chips = open("hwmon", "amd").unwrap();
    assert_eq!(shape(&*chips), [("amd_energy/Esocket0", Part::Package(0), None)], "cores are within the socket");
    assert_eq!(read(&mut *chips), values(&[("amd_energy/Esocket0_uj", 65_532_000_000)]));
}

#[test]
fn chips_measure_power_and_current_times_voltage() {
    let mut chips = open("hwmon", "intel-server-2p").unwrap();
    let expected = [
        ("power_meter/power1_uw", 214_000_000),
        ("ina3221/NVME_3V3_uw", 1_250 * 3_312),
        ("ina219@hwmon9/power1_uw", 9_000_000),
        ("ina219@hwmon10/power1_uw", 10_000_000),
    ];
    assert_eq!(read(&mut *chips), values(&expected));
    assert_eq!(chips.domains()[0].part, Part::System);
    let averaging = [0, 2].map(|domain| chips.domains()[domain].timing.averaging_ns);
    assert_eq!(averaging, [Some(1_000_000_000), None], "the firmware's is in a file");
    // The part supplied by a rail must be configured.
    assert!(matches!(chips.domains()[1].part, Part::Unknown(_)));
    let mut options = pilotlight_sensors::hwmon::Options::default();
    options.parts.insert("ina3221/NVME_3V3".into(), Part::Drive("nvme0".into()));
    options.chips = vec!["power_meter".into(), "ina3221".into()];
    let opened = Config::Hwmon(options).open(&tree("intel-server-2p")).unwrap();
    assert_eq!(opened.domains()[1].part, Part::Drive("nvme0".into()));
    assert_eq!(opened.domains().len(), 2);
}

/// A folder with these files below it.
fn files(all: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in all {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

#[test]
fn on_other_chips_equal_labels_form_a_rail() {
    let chip = "sys/class/hwmon/hwmon0";
    let path = |file: &str| format!("{chip}/{file}");
    let all = [
        ("name", "board"),
        ("curr1_input", "2000"),
        ("curr1_label", "vin"),
        ("in2_input", "12000"),
        ("in2_label", "vin"),
        ("in1_input", "5000"),
        ("in1_label", "vout"),
        ("curr2_input", "7"),
        ("curr3_input", "1000"),
        ("curr3_label", "vin"),
        ("power9_enable", "0"),
        ("power9_input", "1"),
    ];
    let all: Vec<(String, &str)> = all.iter().map(|(file, text)| (path(file), *text)).collect();
    let folder = files(&all.iter().map(|(path, text)| (&**path, *text)).collect::<Vec<_>>());
    let mut chips = Config::by_name("hwmon").unwrap().open(&Roots::below(folder.path())).unwrap();
    let expected = [("board/vin_uw", 2_000 * 12_000), ("board/vin#2_uw", 1_000 * 12_000)];
    assert_eq!(read(&mut *chips), values(&expected), "names are never twice");
}

#[test]
fn absent_and_unmeasured_batteries_have_no_watts() {
    let of = |battery: &str, file: &str| format!("sys/class/power_supply/{battery}/{file}");
    let all = [
        (of("BAT0", "type"), "Battery"),
        (of("BAT0", "status"), "Discharging"),
        (of("BAT0", "power_now"), "-9000000"),
        (of("BAT1", "type"), "Battery"),
        (of("BAT1", "present"), "0"),
    ];
    let folder = files(&all.iter().map(|(path, text)| (&**path, *text)).collect::<Vec<_>>());
    let open = || Config::Battery {}.open(&Roots::below(folder.path()));
    // An empty bay has no status; some drivers report discharging as negative.
    assert_eq!(read(&mut *open().unwrap()), values(&[("battery_uw", 9_000_000)]));
    let power = folder.path().join(of("BAT0", "power_now"));
    std::fs::write(&power, "0").unwrap();
    let silent = open().err().unwrap();
    assert!(silent.why == Why::NotCounting && silent.what.contains("reports 0 W"), "{silent}");
    std::fs::remove_file(&power).unwrap();
    let broken = open().err().unwrap();
    assert!(broken.why == Why::Broken && !broken.help.contains("charger"), "{broken}");
}

#[test]
fn disk_times_and_interrupts_continue_after_32_bit_wraps() {
    let text = |ms: u64, irqs: u32| {
        let disk =
            format!("259 0 nvme0n1 1000 10 80000 {} 2000 20 160000 900 3 700 1400 5 0 4000 1 6 12", ms % (1 << 32));
        (disk, format!("     CPU0 CPU1\n 130: {irqs} 7 IR-PCI-MSIX nvme0q1\n"))
    };
    let (disk, interrupts) = text(4_294_967_000, u32::MAX);
    let all = [
        ("proc/diskstats", &*disk),
        ("proc/interrupts", &*interrupts),
        ("proc/loadavg", "0.5 0 0"),
        ("proc/stat", "intr 1\nctxt 1\nprocesses 1"),
        ("sys/block/nvme0n1/size", "1"),
    ];
    let folder = files(&all);
    let open = |name: &str| Config::by_name(name).unwrap().open(&Roots::below(folder.path())).unwrap();
    let (mut disks, mut kernel) = (open("diskstats"), open("kernel"));
    let mut both = || (read(&mut *disks)[2].1, read(&mut *kernel)[4].1);
    let before = both();
    let (disk, interrupts) = text(4_294_967_000 + 500, 4);
    std::fs::write(folder.path().join("proc/diskstats"), disk).unwrap();
    std::fs::write(folder.path().join("proc/interrupts"), interrupts).unwrap();
    let after = both();
    assert_eq!((after.0 - before.0, after.1 - before.1), (500_000_000, 5));
}

#[test]
fn a_cpu_added_later_starts_at_zero_energy() {
    let line = |cpu: u32| format!("cpu{cpu} 1000 10 500 8000 40 5 15 0 0 0\n");
    let folder = files(&[("proc/stat", &line(0))]);
    let mut modelled = Config::by_name("modelled").unwrap().open(&Roots::below(folder.path())).unwrap();
    read(&mut *modelled);
    std::fs::write(folder.path().join("proc/stat"), line(0) + &line(1)).unwrap();
    assert!(modelled.read(&mut Vec::new()).unwrap_err().to_string().contains("number of CPUs"));
}

#[test]
fn a_battery_gives_watts_only_while_it_discharges() {
    let mut battery = open("battery", "intel-client").unwrap();
    assert_eq!(read(&mut *battery), values(&[("battery_uw", 14_250_000)]));
    let folder = tempfile::tempdir().unwrap();
    let supply = folder.path().join("sys/class/power_supply/BAT0");
    std::fs::create_dir_all(&supply).unwrap();
    for (file, text) in [("type", "Battery"), ("status", "Full"), ("power_now", "0")] {
        std::fs::write(supply.join(file), text).unwrap();
    }
    let open = || Config::Battery {}.open(&Roots::below(folder.path())).err().unwrap();
    assert_eq!(open().why, Why::NotCounting);
    std::fs::write(supply.join("status"), "Charging").unwrap();
    let charging = open();
    assert!(
        charging
            .to_string()
            .ends_with("is Charging, which is not the system's power; unplug the charger while measuring"),
        "{charging}"
    );
}

#[test]
fn counters_beside_watts() {
    let client = "intel-client";
    let disk = read(&mut *open("diskstats", client).unwrap());
    let expected =
        [("nvme0n1/reads_count", 1_000), ("nvme0n1/read_bytes", 80_000 * 512), ("nvme0n1/read-time_ns", 500_000_000)];
    assert_eq!(disk[..3], values(&expected));
    assert_eq!(disk[6], ("nvme0n1/in-flight_count".to_owned(), 3));
    assert_eq!(disk[11..], values(&[("nvme0n1/flushes_count", 6), ("nvme0n1/flush-time_ns", 12_000_000)]));

    let fast = read(&mut *open("frequency", client).unwrap());
    assert_eq!(
        fast,
        values(&[("cpu0_khz", 3_200_000), ("cpu1_khz", 3_200_001), ("cpu2_khz", 3_200_002), ("cpu3_khz", 3_200_003)])
    );

    let idle = read(&mut *open("idle", client).unwrap());
    assert_eq!(idle.len(), 4 * 4 * 2);
    assert_eq!(idle[2..4], values(&[("cpu0/C1E/time_ns", 2_000_000_000), ("cpu0/C1E/usage_count", 200)]));

    let time = read(&mut *open("cputime", client).unwrap());
    assert_eq!(time[0], ("cpu0/user_ns".to_owned(), 10_000_000_000));
    assert_eq!(time[8 + 3], ("cpu1/idle_ns".to_owned(), 79_990_000_000));

    let kernel = read(&mut *open("kernel", client).unwrap());
    let expected = [
        ("load-1min_milli", 520),
        ("context-switches_count", 987_654),
        ("forks_count", 4_321),
        ("interrupts_count", 123_456),
        ("irq/130:nvme0q1_count", 4 * 1_000 + 6),
        ("irq/LOC_count", 4 * 50_000 + 6),
        ("irq/ERR_count", 0),
    ];
    assert_eq!(kernel, values(&expected));
}

#[test]
fn the_error_for_an_unknown_disk_lists_the_known_ones() {
    let options = pilotlight_sensors::diskstats::Options { devices: vec!["sda".into()] };
    let missing = Config::Diskstats(options).open(&tree("amd")).err().unwrap();
    assert_eq!(missing.to_string(), "diskstats: no block device sda; known: nvme0n1");
}

#[test]
fn what_is_modelled_says_so() {
    let mut modelled = open("modelled", "intel-client").unwrap();
    let domain = &modelled.domains()[0];
    assert_eq!(domain.column(), "cpu-modelled-generic_uj");
    assert_eq!(domain.origin, pilotlight_sensors::Origin::Modelled { profile: "generic".into() });
    // Idle: (8000 + 40) ticks of 10 ms less 0 to 3, at 1 W; busy: 1530 ticks and 0 to 3 more, at 5 W; 95.7 s at 10 W.
    let (idle_s, busy_s) = (4.0 * 80.4 - 0.06, 4.0 * 15.3 + 0.06);
    let expected = (idle_s * 1.0 + busy_s * 5.0 + 95.7 * 10.0) * 1e6;
    assert!((read(&mut *modelled)[0].1 as f64 - expected).abs() < 2.0);
}

#[test]
fn without_sensors_remedies_are_listed() {
    let found = survey(&tree("none"));
    let power: Vec<&str> =
        found.iter().flatten().filter(|found| found.is_power()).map(|found| found.sensor.as_str()).collect();
    assert_eq!(power, [""; 0]);
    let beside: Vec<&str> = found.iter().flatten().map(|found| found.sensor.as_str()).collect();
    assert_eq!(beside, ["diskstats", "idle", "cputime", "kernel"]);
    let missing: Vec<&Missing> = found.iter().filter_map(|found| found.as_ref().err()).collect();
    let names: Vec<&str> = missing.iter().map(|missing| missing.sensor.as_str()).collect();
    let expected =
        ["rapl", "rapl-perf", "ipmi", "redfish", "hwmon", "nvme", "powersensor3", "netio", "battery", "frequency"];
    assert_eq!(names, expected);
    assert!(missing.iter().all(|missing| missing.help.len() > 10), "{missing:?}");
    assert!(missing[0].to_string().contains("intel_rapl_msr"), "{}", missing[0]);
}

#[test]
fn a_survey_lists_readable_and_unreadable_sensors() {
    let found = survey(&tree("intel-server-2p"));
    let power: Vec<&str> =
        found.iter().flatten().filter(|found| found.is_power()).map(|found| found.sensor.as_str()).collect();
    assert_eq!(power, ["rapl", "hwmon"]);
    // A file instead of the drive's device does not answer admin commands.
    let nvme = found.iter().filter_map(|found| found.as_ref().err()).find(|missing| missing.sensor == "nvme").unwrap();
    assert!(nvme.what.starts_with("nvme0 failed"), "{nvme}");
}

#[test]
fn columns_have_names_of_their_own() {
    for tree_name in ["intel-client", "intel-server-2p", "amd", "none"] {
        for found in survey(&tree(tree_name)).into_iter().flatten() {
            let mut columns: Vec<String> = found.domains.iter().map(|domain| domain.column()).collect();
            columns.sort_unstable();
            assert!(columns.windows(2).all(|pair| pair[0] != pair[1]), "{tree_name}: {columns:?}");
            let no_loop = |(index, parent): (usize, Option<usize>)| parent.is_none_or(|parent| parent != index);
            assert!(found.domains.iter().map(|domain| domain.parent).enumerate().all(no_loop));
        }
    }
}

#[test]
fn a_counter_that_stays_at_zero_is_no_sensor() {
    let folder = tempfile::tempdir().unwrap();
    let zone = folder.path().join("sys/class/powercap/intel-rapl:0");
    std::fs::create_dir_all(&zone).unwrap();
    for (file, text) in [("name", "package-0\n"), ("energy_uj", "0\n"), ("max_energy_range_uj", "262143328850\n")] {
        std::fs::write(zone.join(file), text).unwrap();
    }
    let roots = Roots::below(folder.path());
    let open = || Config::by_name("rapl").unwrap().open(&roots);
    assert_eq!(open().err().unwrap().why, Why::NotCounting);
    std::fs::write(zone.join("energy_uj"), "5\n").unwrap();
    assert!(open().is_ok());
    std::fs::write(zone.join("energy_uj"), "?\n").unwrap();
    assert_eq!(open().err().unwrap().why, Why::Broken);
    std::fs::remove_file(zone.join("max_energy_range_uj")).unwrap();
    assert_eq!(open().err().unwrap().why, Why::Absent);
}

/// A powercap with these zones, all of which increment.
fn zones(all: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (zone, name) in all {
        let zone = folder.path().join("sys/class/powercap").join(zone);
        std::fs::create_dir_all(&zone).unwrap();
        for (file, text) in [("name", *name), ("energy_uj", "7"), ("max_energy_range_uj", "262143328850")] {
            std::fs::write(zone.join(file), text).unwrap();
        }
    }
    folder
}

/// Has each reading of this file fail: it is a folder.
fn break_file(root: &Path, file: &str) {
    let _ = std::fs::remove_file(root.join(file));
    std::fs::create_dir_all(root.join(file)).unwrap();
}

/// What had no value at the last reading, by name, with the reason.
fn failed(sensor: &dyn Sensor) -> Vec<(&str, &str)> {
    let name = |domain: usize| sensor.domains()[domain].name.as_str();
    sensor.failed().iter().map(|failed| (name(failed.domain), failed.why.as_str())).collect()
}

const METER: [(&str, &str); 4] = [
    ("sys/class/hwmon/hwmon0/name", "amdgpu"),
    ("sys/class/hwmon/hwmon0/power1_input", "30000000"),
    ("sys/class/hwmon/hwmon1/name", "power_meter"),
    ("sys/class/hwmon/hwmon1/power1_average", "231000000"),
];
const GPU: &str = "sys/class/hwmon/hwmon0/power1_input";

#[test]
fn a_chip_that_fails_does_not_hide_the_others() {
    let folder = files(&METER);
    let open = || Config::by_name("hwmon").unwrap().open(&Roots::below(folder.path()));
    let sampler = Sampler::start(vec![Planned::new(open().unwrap())]).unwrap();
    let from_ns = sampler.mark("load");
    break_file(folder.path(), GPU);
    let (recording, failure) = sampler.stop();
    assert_eq!(failure, None);
    let window = Window { from_ns, to_ns: recording.tracks[0].points[1].last().unwrap().at_ns };
    assert!(recording.energy(0, 1, window).is_ok(), "the meter's");
    let why = recording.energy(0, 0, window).unwrap_err().to_string();
    assert!(why.contains(GPU), "{why}");
    // Broken from the beginning.
    let mut chips = open().unwrap();
    assert_eq!(read(&mut *chips), values(&[("power_meter/power1_uw", 231_000_000)]));
    let [note] = chips.info().notes.as_slice() else { panic!("{:?}", chips.info().notes) };
    assert!(note.starts_with("amdgpu/power1 is not read: cannot read") && note.contains(GPU), "{note}");
    break_file(folder.path(), METER[3].0);
    let missing = open().err().unwrap();
    assert!(missing.why == Why::Broken && !missing.help.contains("run as root"), "{missing}");
}

#[test]
fn an_error_code_is_no_power() {
    for code in ["4294967295000", "4294967295", "65535000000", "0", "-1"] {
        let folder = files(&[METER[2], (METER[3].0, code)]);
        let missing = Config::by_name("hwmon").unwrap().open(&Roots::below(folder.path())).err().unwrap();
        assert!(missing.why == Why::Broken && missing.what.contains("power_meter/power1: "), "{missing}");
    }
}

#[test]
fn a_zone_that_fails_does_not_hide_the_others() {
    let all = [
        ("intel-rapl:0", "package-0"),
        ("intel-rapl:0:0", "dram"),
        ("intel-rapl:1", "package-1"),
        ("intel-rapl:2", "psys"),
    ];
    let energy = |zone: &str| format!("sys/class/powercap/{zone}/energy_uj");
    let open = |still: &[&str], broken: &[&str]| {
        let folder = zones(&all);
        still.iter().for_each(|zone| std::fs::write(folder.path().join(energy(zone)), "0").unwrap());
        broken.iter().for_each(|zone| break_file(folder.path(), &energy(zone)));
        Config::by_name("rapl").unwrap().open(&Roots::below(folder.path()))
    };
    let rapl = open(&["intel-rapl:2"], &["intel-rapl:0:0"]).unwrap();
    assert_eq!(shape(&*rapl), [("package-0", Part::Package(0), None), ("package-1", Part::Package(1), None)]);
    let notes = &rapl.info().notes;
    assert!(notes[0].starts_with("package-0/dram is not read: cannot read"), "{notes:?}");
    assert_eq!(notes[1], "psys is not read: the counter of psys stays at 0");
    // A sum of packages must not lack one.
    let packages =
        |rapl: &dyn Sensor| rapl.domains().iter().filter(|domain| matches!(domain.part, Part::Package(_))).count();
    let mut rapl = open(&["intel-rapl:1"], &[]).unwrap();
    assert_eq!((packages(&*rapl), read(&mut *rapl).len()), (2, 3));
    assert_eq!(failed(&*rapl), [("package-1", "the counter of package-1 stays at 0")]);
    let mut rapl = open(&[], &["intel-rapl:1"]).unwrap();
    assert_eq!((packages(&*rapl), read(&mut *rapl).len()), (2, 3));
    assert!(failed(&*rapl)[0].1.contains("intel-rapl:1/energy_uj"), "{:?}", failed(&*rapl));
    let every = ["intel-rapl:0", "intel-rapl:0:0", "intel-rapl:1", "intel-rapl:2"];
    let still = open(&every, &[]).err().unwrap();
    assert!(still.why == Why::NotCounting && still.help.contains("virtual machines"), "{still}");
    let broken = open(&[], &every).err().unwrap();
    assert!(broken.why == Why::Broken && broken.help.contains("dmesg"), "{broken}");
}

#[test]
fn each_package_can_have_a_psys_of_its_own() {
    let all = [
        ("intel-rapl:0", "package-0"),
        ("intel-rapl:1", "package-1"),
        ("intel-rapl:1:0", "dram"),
        ("intel-rapl:2", "psys"),
        ("intel-rapl:3", "psys-1"),
    ];
    let folder = zones(&all);
    let rapl = Config::by_name("rapl").unwrap().open(&Roots::below(folder.path())).unwrap();
    let expected = [
        ("package-0", Part::Package(0), Some("psys")),
        ("package-1", Part::Package(1), Some("psys-1")),
        ("package-1/dram", Part::Dram(1), Some("psys-1")),
        ("psys", Part::Platform, None),
        ("psys-1", Part::Platform, None),
    ];
    assert_eq!(shape(&*rapl), expected);
}

#[test]
fn dies_of_a_package_are_apart() {
    let folder = zones(&[("intel-rapl:0", "package-0-die-0"), ("intel-rapl:1", "package-0-die-1")]);
    let options = rapl::Options { min_package_uw: 20_000_000, ..rapl::Options::default() };
    let rapl = Config::Rapl(options).open(&Roots::below(folder.path())).unwrap();
    // The minimum of a package does not apply to its dies.
    assert!(rapl.domains().iter().all(|die| matches!(die.kind, Kind::EnergyCounter(counts) if counts.min_uw == 0)));
    let expected = [("package-0-die-0", Part::Die(0, 0), None), ("package-0-die-1", Part::Die(0, 1), None)];
    assert_eq!(shape(&*rapl), expected);
}

#[test]
fn unknown_keys_of_configurations_are_refused() {
    let parse = |text: &str| serde_json::from_str::<Config>(text);
    let rapl = parse(r#"{"sensor": "rapl", "max_package_uw": 400000000}"#).unwrap();
    assert_eq!(rapl.name(), "rapl");
    assert!(parse(r#"{"sensor": "rapl", "greatest": 1}"#).is_err());
    assert!(parse(r#"{"sensor": "ripple"}"#).is_err());
    let gpu = r#"{"sensor": "command", "name": "gpu", "from": {"command": ["nvidia-smi"]}, "unit": "W", "part": {"other": "gpu"}}"#;
    assert_eq!(parse(gpu).unwrap().name(), "gpu");
    for config in pilotlight_sensors::catalogue::all() {
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(parse(&text).unwrap(), config, "{text}");
    }
}

/// On any machine: each failure has a reason, and no power is 0 W.
#[test]
fn this_machine_answers_or_says_why_not() {
    for result in survey(&Roots::default()) {
        match result {
            Err(missing) => assert!(!missing.what.is_empty() && !missing.help.is_empty(), "{missing}"),
            Ok(found) => println!("{}: {} domains", found.sensor, found.domains.len()),
        }
    }
}
