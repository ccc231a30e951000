//! Knobs of a simulated machine: discovery, setting and restoring.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use pilotlight_actuators::Knobs;
use pilotlight_actuators::changes::{Change, Changes, Error, Options, Outcome, restore_with};
use pilotlight_actuators::knobs::{Missing, Wanted};
use pilotlight_plant::{CoreId, Kind, KnobId, Scope, Values};
use proptest::prelude::*;

use crate::fake::Machine;

fn wanted() -> Wanted {
    Wanted { cpus: vec![Some(1), Some(0)], drives: vec!["nvme0".into()], ..Wanted::default() }
}

fn find(machine: &Machine, wanted: &Wanted) -> (Knobs, Vec<Missing>) {
    let changes = Changes::begin_on(&machine.journal(), machine.roots(), machine.kernel()).unwrap();
    let (mut knobs, missing) = Knobs::find_with(&machine.roots(), wanted, changes);
    knobs.set_workers(&[43]);
    (knobs, missing)
}

fn bounds(machine: &Machine, cpu: u32) -> [String; 2] {
    let read = |name| machine.read(&format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/{name}")).trim().to_owned();
    ["scaling_min_freq", "scaling_max_freq"].map(read)
}

const LIMIT: &str = "sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw";
const SHORT_TERM: &str = "sys/class/powercap/intel-rapl:0/constraint_1_power_limit_uw";

#[test]
fn values_and_initial_values_are_reported() {
    let machine = Machine::new();
    let (knobs, missing) = find(&machine, &wanted());
    let list = knobs.list();
    let listed: Vec<(Scope, Kind, u64)> = list.iter().map(|knob| (knob.scope, knob.kind, knob.initial)).collect();
    let core = |core| Scope::Core(CoreId(core));
    let expected = [
        (core(0), Kind::FrequencyKhz, 2_400_000),
        (core(1), Kind::FrequencyKhz, 2_400_000),
        (Scope::Package(0), Kind::LimitUw, 65_000_000),
        (Scope::Device(0), Kind::PowerState, 0),
        (Scope::Server, Kind::QuotaPpm, 1_000_000),
        (Scope::Server, Kind::QuotaPeriodNs, 100_000_000),
    ];
    assert_eq!(listed, expected);
    assert_eq!(list[0].values, Values::List(vec![800_000, 1_200_000, 2_400_000, 3_600_000]));
    assert_eq!(list[0].effect.ns(), 20_000, "as reported by the kernel");
    assert_eq!(list[2].values, Values::Range { min: 5_000_000, max: 65_000_000, step: 125_000 });
    assert_eq!(list[3].values, Values::List(vec![0, 1, 2]), "the operational states");
    assert_eq!(list[4].values, Values::Range { min: 10_000, max: 1_000_000, step: 10_000 });
    let listed: Vec<&str> = missing.iter().map(|missing| missing.what.as_str()).collect();
    assert_eq!(listed, ["wake-up limit of nvme0"]);
    assert!(missing[0].why.to_string().contains("pm_qos_latency_tolerance_us"), "{missing:?}");
    assert!(!machine.journal().exists(), "looking changes nothing");
}

#[test]
fn set_values_are_effective_and_restored() {
    let machine = Machine::new();
    let before = machine.tree();
    let (mut knobs, _) = find(&machine, &wanted());
    knobs.set(KnobId(0), Some(3_500_000)).unwrap();
    assert_eq!(bounds(&machine, 1), ["3600000", "3600000"], "core 0 is CPU 1, at the nearest frequency");
    assert_eq!(bounds(&machine, 0), ["800000", "2400000"]);
    knobs.set(KnobId(0), Some(0)).unwrap();
    assert_eq!(bounds(&machine, 1), ["800000", "800000"]);
    knobs.set(KnobId(2), Some(40_000_000)).unwrap();
    assert_eq!([LIMIT, SHORT_TERM].map(|file| machine.read(file)), ["40000000\n"; 2], "over both windows");
    assert_eq!(machine.read("sys/class/powercap/intel-rapl:0/enabled"), "1\n");
    knobs.set(KnobId(3), Some(2)).unwrap();
    assert_eq!(machine.read("dev/nvme0"), "2 1");
    knobs.set(KnobId(0), None).unwrap();
    assert_eq!(bounds(&machine, 1), ["800000", "2400000"]);
    assert_eq!(machine.read(LIMIT), "40000000\n", "the others stay");
    knobs.set(KnobId(9), Some(1)).unwrap();
    drop(knobs);
    assert_eq!(machine.tree(), before);
    assert!(!machine.journal().exists());
}

const TOLERANCE: &str = "sys/class/nvme/nvme0/power/pm_qos_latency_tolerance_us";

/// Entry and exit take 1.41 ms in state 3, 10 ms in state 4; Linux compares its number with the exit alone.
#[test]
fn wake_ups_of_a_drive_are_limited_and_restored() {
    for (found, found_ns) in [("100000", 10_000_000), ("auto", 10_000_000), ("5000", 1_410_000), ("0", 0)] {
        let machine = Machine::new();
        machine.write(TOLERANCE, &format!("{found}\n"));
        machine.write("dev/nvme0", if found == "0" { "0 0" } else { "0 1" }); // whether the drive makes transitions
        let before = machine.tree();
        let (mut knobs, missing) = find(&machine, &wanted());
        assert!(missing.is_empty(), "{missing:?}");
        let at = knobs.list().iter().position(|knob| knob.kind == Kind::WakeLimitNs).unwrap();
        let knob = knobs.list()[at].clone();
        assert_eq!((knob.scope, knob.initial), (Scope::Device(0), found_ns), "{found}");
        assert_eq!(knob.values, Values::List(vec![0, 1_410_000, 10_000_000]));
        for (limit_ns, text) in [(1_410_000, "1200\n"), (0, "0\n"), (10_000_000, "8000\n")] {
            knobs.set(KnobId(at as u16), Some(limit_ns)).unwrap();
            assert_eq!(machine.read(TOLERANCE), text);
        }
        let killed = fs::read(machine.journal()).unwrap();
        knobs.set(KnobId(at as u16), None).unwrap();
        assert_eq!(machine.read(TOLERANCE).trim(), found);
        drop(knobs);
        assert_eq!(machine.tree(), before);
        // After a kill.
        machine.write(TOLERANCE, "8000\n");
        fs::write(machine.journal(), killed).unwrap();
        restore_with(&machine.journal(), &machine.roots(), Options::default(), machine.kernel().as_mut()).unwrap();
        assert_eq!(machine.read(TOLERANCE).trim(), found, "restored");
    }
}

#[test]
fn a_limit_that_firmware_locks_is_missing() {
    for file in [LIMIT, SHORT_TERM] {
        let machine = Machine::new();
        machine.write(&format!("{file}.locked"), "");
        let before = machine.tree();
        let (knobs, missing) = find(&machine, &Wanted::default());
        assert!(knobs.list().iter().all(|knob| knob.kind != Kind::LimitUw), "it opens, and refuses each value");
        let missing = missing.iter().find(|missing| missing.what == "power limit of intel-rapl:0").unwrap();
        assert!(missing.why.to_string().contains("firmware"), "{missing:?}");
        assert_eq!(machine.tree(), before);
    }
}

#[test]
fn a_kept_limit_that_somebody_has_changed_is_said_to_be_theirs() {
    let machine = Machine::new();
    let mut changes = Changes::begin_on(&machine.journal(), machine.roots(), machine.kernel()).unwrap();
    changes.keep_limits();
    let mark = changes.mark();
    let limit = Change::PowerLimit { zone: "intel-rapl:0".into(), short_term: true, power_uw: 40_000_000 };
    changes.make(&limit).unwrap();
    machine.write(SHORT_TERM, "50000000\n");
    let Err(Error::NotBack(all)) = changes.restore_to(mark, Options { leaves_limits: true, ..Options::default() })
    else {
        panic!("both stay")
    };
    let outcome = |file| all.iter().find(|back| back.setting.ends_with(file)).map(|back| &back.outcome);
    assert_eq!(outcome(LIMIT), Some(&Outcome::Left), "{all:?}");
    assert_eq!(outcome(SHORT_TERM), Some(&Outcome::ChangedElsewhere), "the next server leaves it too");
}

#[test]
fn limits_that_another_process_varies_are_not_written_back() {
    let machine = Machine::new();
    let (mut other, _) = find(&machine, &Wanted::default());
    other.set(KnobId(0), Some(40_000_000)).unwrap();
    let (kernel, pictures) = machine.kernel().watched();
    let changes = Changes::begin_on(&machine.path("run/2.jsonl"), machine.roots(), kernel).unwrap();
    let (knobs, _) = Knobs::find_with(&machine.roots(), &Wanted::default(), changes);
    assert!(knobs.list().iter().any(|knob| knob.kind == Kind::LimitUw) && pictures.lock().unwrap().is_empty());
}

#[test]
fn every_package_is_limited_for_all_its_windows() {
    let machine = Machine::new();
    let second = "sys/class/powercap/intel-rapl:1";
    for (name, text) in [("name", "package-1\n"), ("enabled", "1\n"), ("constraint_0_power_limit_uw", "90000000\n")] {
        machine.write(&format!("{second}/{name}"), text);
    }
    machine.write("sys/class/powercap/intel-rapl:1:0/name", "core\n");
    machine.write("sys/class/powercap/intel-rapl-mmio:0/name", "package-0\n");
    let before = machine.tree();
    let (mut knobs, _) = find(&machine, &Wanted::default());
    let of: Vec<Scope> = knobs.list().iter().filter(|knob| knob.kind == Kind::LimitUw).map(|knob| knob.scope).collect();
    assert_eq!(of, [Scope::Package(0), Scope::Package(1)]);
    knobs.set(KnobId(0), Some(50_000_000)).unwrap();
    knobs.set(KnobId(1), Some(70_000_000)).unwrap();
    let limits = [LIMIT, SHORT_TERM, &format!("{second}/constraint_0_power_limit_uw")].map(|file| machine.read(file));
    assert_eq!(limits, ["50000000\n", "50000000\n", "70000000\n"]);
    drop(knobs);
    assert_eq!(machine.tree(), before, "each window has its own limit again");
}

#[test]
fn only_the_first_value_is_written_to_the_journal() {
    let machine = Machine::new();
    let (mut knobs, _) = find(&machine, &wanted());
    knobs.set(KnobId(2), Some(60_000_000)).unwrap();
    let first = fs::read(machine.journal()).unwrap();
    for watts in 10..60 {
        knobs.set(KnobId(2), Some(watts * 1_000_000)).unwrap();
    }
    assert_eq!(machine.read(LIMIT), "59000000\n");
    assert_eq!(fs::read(machine.journal()).unwrap(), first);
}

#[test]
fn cores_that_share_a_clock_get_the_highest_wanted_frequency() {
    let machine = Machine::new();
    let cpu = machine.path("sys/devices/system/cpu");
    fs::remove_dir_all(cpu.join("cpu1/cpufreq")).unwrap();
    symlink(cpu.join("cpu0/cpufreq"), cpu.join("cpu1/cpufreq")).unwrap();
    let (mut knobs, _) = find(&machine, &wanted());
    let mut after = |knob, value| {
        knobs.set(KnobId(knob), value).unwrap();
        bounds(&machine, 0)[1].clone()
    };
    assert_eq!(after(0, Some(1_200_000)), "1200000");
    assert_eq!(after(1, Some(3_600_000)), "3600000");
    assert_eq!(after(0, Some(800_000)), "3600000", "the other one still needs it");
    assert_eq!(after(1, None), "800000", "now the first one alone");
    assert_eq!(after(0, None), "2400000", "as it was found");
}

#[test]
fn a_refused_value_is_not_applied_with_another_core() {
    let machine = Machine::new();
    let cpu = machine.path("sys/devices/system/cpu");
    fs::remove_dir_all(cpu.join("cpu1/cpufreq")).unwrap();
    symlink(cpu.join("cpu0/cpufreq"), cpu.join("cpu1/cpufreq")).unwrap();
    fs::write(cpu.join("cpu0/cpufreq/scaling_available_frequencies"), "3000000 2400000 1200000 800000 \n").unwrap();
    let (mut knobs, _) = find(&machine, &wanted());
    assert!(matches!(knobs.set(KnobId(0), Some(3_000_000)), Err(Error::Ignored { .. })));
    knobs.set(KnobId(1), Some(1_200_000)).unwrap();
    assert_eq!(bounds(&machine, 0), ["1200000", "1200000"]);
}

/// One step of RAPL is within the kernel's rounding.
#[test]
fn a_limit_follows_every_step() {
    let machine = Machine::new();
    let (mut knobs, _) = find(&machine, &wanted());
    for limit_uw in [60_000_000, 59_875_000, 59_750_000, 59_875_000] {
        knobs.set(KnobId(2), Some(limit_uw)).unwrap();
        assert_eq!(machine.read(LIMIT), format!("{limit_uw}\n"));
    }
}

#[test]
fn changes_of_a_killed_process_are_an_error() {
    let machine = Machine::new();
    let killed = {
        let (mut knobs, _) = find(&machine, &wanted());
        knobs.set(KnobId(2), Some(40_000_000)).unwrap();
        fs::read(machine.journal()).unwrap()
    };
    let changes = Changes::begin_on(&machine.path("run/2.jsonl"), machine.roots(), machine.kernel()).unwrap();
    let (mut knobs, _) = Knobs::find_with(&machine.roots(), &wanted(), changes);
    fs::write(machine.journal(), killed).unwrap(); // it was killed after the other had begun
    assert!(matches!(knobs.set(KnobId(2), Some(50_000_000)), Err(Error::LeftBehind(_))));
    knobs.set(KnobId(0), Some(800_000)).unwrap();
}

#[test]
fn missing_knobs_have_a_reason() {
    let machine = Machine::new();
    fs::remove_dir_all(machine.path("sys/class/powercap")).unwrap();
    fs::remove_dir_all(machine.path("sys/devices/system/cpu/cpu1/cpufreq")).unwrap();
    let drives = vec!["nvme0".into(), "nvme7".into()];
    let (knobs, missing) = find(&machine, &Wanted { drives, ..wanted() });
    let kinds: Vec<Kind> = knobs.list().iter().map(|knob| knob.kind).collect();
    assert_eq!(kinds, [Kind::FrequencyKhz, Kind::PowerState, Kind::QuotaPpm, Kind::QuotaPeriodNs]);
    assert_eq!(knobs.list()[0].scope, Scope::Core(CoreId(1)));
    let listed: Vec<&str> = missing.iter().map(|missing| missing.what.as_str()).collect();
    let of_drives = ["power state of nvme7", "wake-up limit of nvme0", "wake-up limit of nvme7"];
    assert_eq!(listed, [&["frequency of core 0 (CPU 1)", "power limit"], &of_drives[..]].concat());
    let why: Vec<String> = missing.iter().map(|missing| missing.why.to_string()).collect();
    assert!(why[0].contains("no cpufreq") && why[1].contains("no intel-rapl zone"), "{why:?}");
    let (_, missing) = find(&machine, &Wanted { cpus: vec![None], ..Wanted::default() });
    assert!(missing[0].why.to_string().contains("not pinned"), "{missing:?}");
}

#[test]
fn unwritable_knobs_are_missing() {
    let machine = Machine::new();
    let max = machine.path("sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq");
    fs::set_permissions(&max, fs::Permissions::from_mode(0o444)).unwrap();
    if fs::OpenOptions::new().write(true).open(&max).is_ok() {
        println!("skipped: this user may write read-only files");
        return;
    }
    let (_, missing) = find(&machine, &wanted());
    assert!(missing[0].why.to_string().contains("run the server as root"), "{missing:?}");
}

#[test]
fn an_ignored_value_is_an_error_and_the_next_one_is_set() {
    let machine = Machine::new();
    // A kernel that knows fewer frequencies than it lists.
    let list = machine.path("sys/devices/system/cpu/cpu1/cpufreq/scaling_available_frequencies");
    fs::write(&list, "3600000 3000000 2400000 1200000 800000 \n").unwrap();
    let (mut more, _) = find(&machine, &wanted());
    let error = more.set(KnobId(0), Some(3_000_000)).unwrap_err();
    assert!(matches!(error, Error::Ignored { .. }), "{error}");
    more.set(KnobId(0), Some(1_200_000)).unwrap();
    assert_eq!(bounds(&machine, 1), ["1200000", "1200000"]);
    drop(more);
    assert_eq!(bounds(&machine, 1), ["800000", "2400000"]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The journal restores everything after a kill.
    #[test]
    fn the_journal_restores_everything_after_any_values(
        settings in prop::collection::vec((0..6_u16, prop::option::of(0..70_000_000_u64)), 1..12),
    ) {
        let machine = Machine::new();
        let before = machine.tree();
        let (mut knobs, _) = find(&machine, &wanted());
        for (knob, value) in settings {
            let value = value.map(|value| if knob < 2 { value / 10 } else if knob == 3 { value % 3 } else { value });
            knobs.set(KnobId(knob), value).unwrap();
        }
        let killed = crate::fake::Picture { journal: fs::read(machine.journal()).ok(), tree: machine.tree() };
        drop(knobs);
        prop_assert_eq!(&machine.tree(), &before, "after its end");
        machine.set(&killed);
        if machine.journal().exists() {
            restore_with(&machine.journal(), &machine.roots(), Options::default(), machine.kernel().as_mut()).unwrap();
        }
        prop_assert_eq!(&machine.tree(), &before, "after kill -9");
    }
}
