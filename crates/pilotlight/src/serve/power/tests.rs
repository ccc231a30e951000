//! Sensors of recorded machines, and readings.

use std::fs;

use super::*;

fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Roots) {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let roots = Roots::below(folder.path());
    (folder, roots)
}

fn zone(index: u32, name: &str) -> Vec<(String, String)> {
    let at = |file: &str| format!("sys/class/powercap/intel-rapl:{index}/{file}");
    let files = [("name", name), ("energy_uj", "1000000"), ("max_energy_range_uj", "262143328850")];
    files.into_iter().map(|(file, text)| (at(file), text.to_owned())).collect()
}

const CHIP: [(&str, &str); 3] = [
    ("sys/class/hwmon/hwmon0/name", "power_meter\n"),
    ("sys/class/hwmon/hwmon0/power1_average", "231000000\n"),
    ("sys/class/hwmon/hwmon0/power1_average_interval", "3000\n"),
];

fn of(meter: &Meter) -> Vec<Scope> {
    meter.sources().iter().map(|source| source.scope).collect()
}

#[test]
fn packages_and_the_platform_are_read_by_rapl() {
    let zones: Vec<_> = [zone(0, "package-0"), zone(1, "package-1"), zone(2, "psys")].concat();
    let files: Vec<(&str, &str)> = zones.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let (folder, roots) = tree(&[&files[..], &CHIP].concat());
    let meter = open(&SensorChoice::Auto, &roots).unwrap().expect("RAPL before the firmware");
    assert_eq!(of(&meter), [Scope::Package(0), Scope::Package(1), Scope::Server]);
    assert_eq!(meter.profile(), None);
    drop(folder);
}

#[test]
fn auto_may_find_no_sensor_and_a_named_sensor_must_exist() {
    let (firmware, roots) = tree(&CHIP);
    let meter = open(&SensorChoice::Auto, &roots).unwrap().expect("the firmware's");
    assert_eq!(of(&meter), [Scope::Server]);
    assert_eq!(meter.sources()[0].window_ns, 3_000_000_000, "as long as the firmware averages");
    assert!(open(&SensorChoice::None, &roots).unwrap().is_none());
    let refused = |choice: &SensorChoice, roots| open(choice, roots).err().expect("there is none").to_string();
    assert!(refused(&SensorChoice::Hwmon(Some("ina226".into())), &roots).contains("no chip"));
    let (nothing, roots) = tree(&[]);
    assert!(open(&SensorChoice::Auto, &roots).unwrap().is_none());
    assert!(refused(&SensorChoice::Rapl, &roots).contains("intel_rapl_msr"));
    assert!(refused(&SensorChoice::Modelled(Some("/no/such/file".into())), &roots).contains("/no/such/file"));
    drop((firmware, nothing));
}

#[test]
fn auto_prefers_the_firmware_to_rapl_without_a_package_and_refuses_error_codes() {
    const DEAD: (&str, &str) = ("sys/class/powercap/intel-rapl:1/energy_uj", "0");
    let zones: Vec<_> = [zone(0, "package-0"), zone(1, "package-1")].concat();
    let zones: Vec<(&str, &str)> = zones.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let dead = [&zones[..], &[DEAD]].concat();
    let (_rapl, roots) = tree(&dead);
    let meter = open(&SensorChoice::Auto, &roots).unwrap().expect("the other package");
    assert_eq!(of(&meter), [Scope::Package(0), Scope::Package(1)]);
    let (_both, roots) = tree(&[&dead[..], &CHIP].concat());
    assert_eq!(of(&open(&SensorChoice::Auto, &roots).unwrap().unwrap()), [Scope::Server]);
    let code = [CHIP[0], ("sys/class/hwmon/hwmon0/power1_average", "4294967295000")];
    let (_code, roots) = tree(&code);
    assert!(open(&SensorChoice::Auto, &roots).unwrap().is_none());
    let refused = open(&SensorChoice::Hwmon(None), &roots).err().expect("no power").to_string();
    assert!(refused.contains("error code"), "{refused}");
}

#[test]
fn modelled_watts_are_labelled_and_match_the_profile() {
    let ticks = |idle: u64, busy: u64| format!("cpu  0 0 0 0\ncpu0 {busy} 0 0 {idle} 0 0 0 0 0 0\n");
    let (folder, roots) = tree(&[("proc/stat", &ticks(0, 0))]);
    let meter = open(&SensorChoice::Modelled(None), &roots).unwrap().expect("a model");
    assert_eq!((of(&meter), meter.profile().as_deref()), (vec![Scope::Package(0)], Some("sandman-epyc-9454p")));
    let Meter { mut sensor, parts, .. } = meter;
    let mut read = || {
        let mut readings = Vec::new();
        sensor.read(&mut readings).unwrap();
        readings[0].value
    };
    let before = read();
    fs::write(folder.path().join("proc/stat"), ticks(50, 50)).unwrap(); // a second, half of it busy
    let profile = PowerProfile::parse(PROFILE).unwrap();
    let (deep, cores) = (profile.cpu_uw.deep, u64::from(profile.cores));
    let expected = deep + ((profile.cpu_uw.shallow - deep) / cores + (profile.cpu_uw.poll - deep) / cores) / 2;
    assert_eq!((read() - before) as u64, expected);
    assert_eq!(parts.len(), 1);
}

#[test]
fn a_part_is_the_sum_of_its_domains_and_unknown_without_one_of_them() {
    let domain = |name| Domain::power(name, Part::Package(0));
    let parts = [(Scope::Package(0), vec![0, 1]), (Scope::Server, vec![2])];
    let source = |scope| Source { scope, quantity: Quantity::PowerUw, window_ns: 1, lag: Cost::Assumed(0) };
    let board = ReadingBoard::new(vec![source(Scope::Package(0)), source(Scope::Server)]);
    let sample = |watts: [Option<f64>; 3]| LiveReading {
        sensor: "rapl".into(),
        interval_ns: 1,
        notes: Vec::new(),
        failed: Vec::new(),
        values: Ok(["a", "b", "c"].map(domain).into_iter().zip(watts.map(|w| w.map(Value::Watts))).collect()),
    };
    let published = Arc::new(Published::new(board.sources()));
    let mut publisher = Publisher::new(Arc::clone(&published), 0);
    let mut check = Check::new(&board.sources());
    let mut read = |said: &LiveReading| {
        put((&board, &parts), said, (&mut check, None), (&mut publisher, 2_000_000_000));
        [0, 1].map(|id| board.last(ReadingId(id)).expect("a window").value)
    };
    assert_eq!(read(&sample([Some(20.5), Some(1.5), None])), [Some(22_000_000), None]);
    assert_eq!(read(&sample([Some(20.5), None, Some(3.0)])), [None, Some(3_000_000)], "no part of a sum");
    assert_eq!(read(&LiveReading { values: Err("unplugged".into()), ..sample([None; 3]) }), [None, None]);
    assert_eq!(read(&sample([Some(-0.5), Some(0.1), Some(0.0)])), [None, None], "no negative power, and no 0 W");
    publisher.publish(u64::MAX);
    assert!(published.spent.iter().all(|spent| spent.read_ns.load(Relaxed) > 0));
    let energy_uj: Vec<u64> = published.spent.iter().map(|spent| spent.energy_uj.load(Relaxed)).collect();
    assert_eq!(energy_uj, [44_000_000, 6_000_000], "of two seconds each, where power was known");
}

fn source(scope: Scope) -> Source {
    Source { scope, quantity: Quantity::PowerUw, window_ns: 1_000, lag: Cost::Assumed(0) }
}

#[test]
fn an_implausible_reading_is_a_missing_one() {
    const W: u64 = 1_000_000;
    let scopes = [Scope::Package(0), Scope::Package(1), Scope::Server];
    let mut check = Check::new(&scopes.map(source));
    let mut read = |now_ns, uw: [u64; 3]| {
        let read: Vec<_> = scopes.into_iter().zip(uw.map(|watts| Some(watts * W))).collect();
        check.plausible(now_ns, &read, None).0
    };
    assert_eq!(read(0, [100, 90, 300]), [100, 90, 300].map(|watts| Some(watts * W)));
    assert_eq!(read(1_000, [100, 90, 0]), [Some(100 * W), Some(90 * W), None], "0 W of the server");
    assert_eq!(read(2_000, [100, 90, 120]), [Some(100 * W), Some(90 * W), None], "less than the packages");
    assert_eq!(read(3_000, [0, 90, 120]), [None, Some(90 * W), Some(120 * W)], "0 W of a package");
}

#[test]
fn each_source_says_once_why_it_is_not_used_until_it_is_good_for_some_time() {
    let scopes = [Scope::Package(0), Scope::Server];
    let mut check = Check::new(&scopes.map(source));
    let mut now_ns = 0;
    let mut said = |watts: [u64; 2]| {
        now_ns += 1_000;
        let read: Vec<_> = scopes.into_iter().zip(watts.map(|watts| Some(watts * 1_000_000))).collect();
        check.plausible(now_ns, &read, None).1
    };
    assert_eq!(said([0, 300]), ["power of Package(0) is not used: it reads 0 W"]);
    assert_eq!(said([0, 0]), ["power of Server is not used: it reads 0 W"], "the other one is refused already");
    for at_edge in [100, 0, 100, 0] {
        assert!(said([at_edge, at_edge * 3]).is_empty(), "one good reading is not enough");
    }
    for watts in 0..u64::from(GOOD_AGAIN) {
        assert!(said([100, 300 + watts]).is_empty());
    }
    let below = said([100, 40]);
    assert!(below.len() == 1 && below[0].contains("`domain = \"cpu\"`"), "a platform zone of a part: {below:?}");
}

#[test]
fn a_constant_reading_is_a_missing_one_while_the_load_changes_also_without_rapl() {
    const S: u64 = 1_000_000_000;
    let (folder, roots) = tree(&CHIP);
    let mut meter = open(&SensorChoice::Auto, &roots).unwrap().expect("the firmware's");
    let mut check = Check::new(&meter.sources());
    let busy = meter.busy.as_mut().expect("a sensor that measures");
    let mut ticks = (0, 0);
    let mut read = |now_s: u64, percent: u64| {
        ticks = (ticks.0 + percent, ticks.1 + 100 - percent);
        let stat = format!("cpu  0 0 0 0\ncpu0 {} 0 0 {} 0 0 0 0 0 0\n", ticks.0, ticks.1);
        fs::create_dir_all(folder.path().join("proc")).unwrap();
        fs::write(folder.path().join("proc/stat"), stat).unwrap();
        check.note_busy(now_s * S, busy.permille());
        check.plausible(now_s * S, &[(Scope::Server, Some(231_000_000))], None).0[0]
    };
    let mut known =
        |from_s: u64, percent| (from_s..from_s + 60).filter(|&now_s| read(now_s, percent).is_some()).count();
    assert_eq!([1, 61].map(|now_s| known(now_s, 3)), [60, 60], "idle");
    let shown = known(121, 90);
    assert!((4..10).contains(&shown), "stale after a window and its lag: {shown} s");
    let (_folder, model) = tree(&[("proc/stat", "cpu  0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\n")]);
    assert!(
        open(&SensorChoice::Modelled(None), &model).is_ok_and(|meter| meter.is_none_or(|meter| meter.busy.is_none()))
    );
}

#[test]
fn a_sensor_of_the_server_only_is_checked_by_the_packages_beside_it() {
    let mut check = Check::new(&[source(Scope::Server)]);
    let mut read = |now_ns, beside_uw| check.plausible(now_ns, &[(Scope::Server, Some(100_000_000))], beside_uw).0[0];
    assert_eq!([0, 1_000, 2_000].map(|now_ns| read(now_ns, Some(200_000_000))), [Some(100_000_000), None, None]);
    let zones = [zone(0, "package-0"), zone(1, "package-1")].concat();
    let files: Vec<(&str, &str)> = zones.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let (folder, roots) = tree(&[&files[..], &CHIP].concat());
    let open = |choice: &SensorChoice| open(choice, &roots).unwrap().expect("a sensor");
    let firmware = open(&SensorChoice::Hwmon(None));
    assert!(firmware.witness.is_some() && firmware.lacks_server().is_none());
    let rapl = open(&SensorChoice::Auto);
    assert!(rapl.witness.is_none() && rapl.lacks_server().is_some_and(|why| why.contains("caps none of them")));
    drop(folder);
}
