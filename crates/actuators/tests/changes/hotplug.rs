//! CPUs taken offline on a simulated machine with cpusets of version 1 and pinned threads, and restored with them.

use std::fs;

use pilotlight_actuators::Knobs;
use pilotlight_actuators::changes::{Change, Changes, Error, Options, restore_with};
use pilotlight_actuators::knobs::{Missing, Wanted};
use pilotlight_plant::{CoreId, Kind, KnobId, Scope, Values};
use proptest::prelude::*;

use crate::fake::{Machine, Picture, status};

/// Four CPUs, the first of which cannot be taken offline; a cpuset with one below it, and threads: 500 free, 501 and 502 pinned in the
/// cpusets, 503 pinned outside.
fn machine() -> Machine {
    let machine = Machine::new();
    fs::remove_dir_all(machine.path("sys/class/powercap")).unwrap();
    (0..2)
        .for_each(|cpu| fs::remove_dir_all(machine.path(&format!("sys/devices/system/cpu/cpu{cpu}/cpufreq"))).unwrap());
    let mount = "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";
    machine.write("proc/self/mountinfo", mount);
    machine.write("sys/devices/system/cpu/online", "0-3\n");
    (1..4).for_each(|cpu| machine.write(&format!("sys/devices/system/cpu/cpu{cpu}/online"), "1\n"));
    for (set, list, tasks) in [("", "0-3", "500\n503\n"), ("/a", "0-3", "501\n"), ("/a/b", "1,3", "502\n")] {
        machine.write(&format!("sys/fs/cgroup/cpuset{set}/cpuset.cpus"), &format!("{list}\n"));
        machine.write(&format!("sys/fs/cgroup/cpuset{set}/tasks"), tasks);
    }
    for (thread, list) in [(500, "0-3"), (501, "2-3"), (502, "3"), (503, "2")] {
        machine.write(&format!("proc/{thread}/task/{thread}/status"), &status(list));
        let zeros = "0 ".repeat(18);
        machine.write(&format!("proc/{thread}/task/{thread}/stat"), &format!("{thread} (a) S {zeros}7 0 0"));
    }
    machine
}

fn find(machine: &Machine, hotplug: &[u16]) -> (Knobs, Vec<Missing>) {
    let changes = Changes::begin_on(&machine.journal(), machine.roots(), machine.kernel()).unwrap();
    let hotplug = hotplug.iter().copied().map(CoreId).collect();
    let wanted = Wanted { cpus: (0..4).map(Some).collect(), hotplug, ..Wanted::default() };
    Knobs::find_with(&machine.roots(), &wanted, changes)
}

fn online(machine: &Machine) -> String {
    machine.read("sys/devices/system/cpu/online").trim().to_owned()
}

fn cpuset(machine: &Machine, set: &str) -> String {
    machine.read(&format!("sys/fs/cgroup/cpuset/{set}/cpuset.cpus")).trim().to_owned()
}

fn affinity(machine: &Machine, thread: u32) -> String {
    let status = machine.read(&format!("proc/{thread}/task/{thread}/status"));
    status.lines().last().unwrap().split('\t').next_back().unwrap().to_owned()
}

#[test]
fn only_configured_cores_have_the_knob() {
    let machine = machine();
    let (knobs, _) = find(&machine, &[]);
    assert!(knobs.list().is_empty(), "it is opt-in");
    drop(knobs);
    machine.write("sys/devices/system/cpu/cpu1/online", "0\n");
    let (knobs, missing) = find(&machine, &[0, 1, 2, 3]);
    let list = knobs.list();
    assert_eq!(list.iter().map(|knob| knob.scope).collect::<Vec<_>>(), [2, 3].map(|core| Scope::Core(CoreId(core))));
    assert_eq!((list[0].kind, &list[0].values, list[0].initial), (Kind::Online, &Values::List(vec![0, 1]), 1));
    let online = missing.iter().filter(|one| one.what.contains("online"));
    let why: Vec<String> = online.map(|one| one.why.to_string()).collect();
    assert!(why[0].contains("the boot CPU has no switch") && why[1] == "it is offline", "{missing:?}");
}

#[test]
fn cpusets_and_affinity_are_restored_with_the_cpu() {
    let machine = machine();
    let before = machine.tree();
    let (mut knobs, _) = find(&machine, &[1, 2, 3]);
    knobs.set(KnobId(2), Some(0)).unwrap();
    assert_eq!(online(&machine), "0-2");
    assert_eq!(["a", "a/b"].map(|set| cpuset(&machine, set)), ["0-2", "1"]);
    assert_eq!(affinity(&machine, 502), "0-2", "it may run anywhere");
    knobs.set(KnobId(1), Some(0)).unwrap();
    assert_eq!((online(&machine), affinity(&machine, 503)), ("0-1".into(), "0-1".into()));
    knobs.set(KnobId(2), Some(1)).unwrap();
    assert_eq!(online(&machine), "0-1,3", "the other one stays offline");
    assert_eq!(["a", "a/b"].map(|set| cpuset(&machine, set)), ["0-1,3", "1,3"]);
    assert_eq!((affinity(&machine, 502), affinity(&machine, 503)), ("3".into(), "0-1,3".into()));
    knobs.set(KnobId(1), None).unwrap();
    assert_eq!(machine.tree(), before);
    assert!(!machine.journal().exists());
}

#[test]
fn the_last_cpu_of_a_cpuset_stays_online() {
    let machine = machine();
    machine.write("sys/fs/cgroup/cpuset/a/b/cpuset.cpus", "3\n");
    let before = machine.tree();
    let (mut knobs, _) = find(&machine, &[1, 2, 3]);
    let error = knobs.set(KnobId(2), Some(0)).unwrap_err();
    assert!(
        matches!(error, Error::Cpuset { .. }) && error.to_string().contains("a/b/cpuset.cpus has no others"),
        "{error}"
    );
    assert_eq!(machine.tree(), before);
    assert!(!machine.journal().exists());
    knobs.set(KnobId(1), Some(0)).unwrap();
    assert_eq!(online(&machine), "0-1,3", "others can go");
}

#[test]
fn a_thread_with_a_reused_id_is_not_changed() {
    let machine = machine();
    let mut changes = Changes::begin_on(&machine.journal(), machine.roots(), machine.kernel()).unwrap();
    changes.vary(0, &Change::Offline { cpus: vec![3] }).unwrap();
    let stat = machine.read("proc/502/task/502/stat").replace(" 7 ", " 8 ");
    machine.write("proc/502/task/502/stat", &stat);
    let all = changes.restore().unwrap();
    assert!(
        all.iter().any(|back| back.to_string().contains("502") && back.to_string().contains("no longer exists")),
        "{all:?}"
    );
    assert_eq!(affinity(&machine, 502), "1,3", "as its cpuset gave it");
    assert_eq!(affinity(&machine, 501), "2-3");
}

#[test]
fn threads_and_cpusets_that_end_while_they_are_listed_do_not_keep_a_cpu_online() {
    let machine = machine();
    let mut kernel = machine.kernel();
    kernel.removed_with_status = ["proc/502", "sys/fs/cgroup/cpuset/a/b"].map(|path| machine.path(path)).into();
    let mut changes = Changes::begin_on(&machine.journal(), machine.roots(), kernel).unwrap();
    changes.vary(0, &Change::Offline { cpus: vec![3] }).unwrap();
    assert_eq!(online(&machine), "0-2");
    changes.restore().unwrap();
    assert_eq!((online(&machine).as_str(), affinity(&machine, 501).as_str()), ("0-3", "2-3"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Killed at any time, also while restoring.
    #[test]
    fn everything_is_restored_after_a_kill_at_any_time(
        settings in prop::collection::vec((0..3_u16, prop::option::of(0..2_u64)), 1..8),
        at: prop::sample::Index,
    ) {
        let machine = machine();
        let before = machine.tree();
        let (kernel, pictures) = machine.kernel().watched();
        let changes = Changes::begin_on(&machine.journal(), machine.roots(), kernel).unwrap();
        let wanted = Wanted { cpus: (0..4).map(Some).collect(), hotplug: [1, 2, 3].map(CoreId).into(), ..Wanted::default() };
        let (mut knobs, _) = Knobs::find_with(&machine.roots(), &wanted, changes);
        for (knob, value) in settings {
            let _ = knobs.set(KnobId(knob), value); // not both of a cpuset's last two can be taken offline
        }
        drop(knobs);
        prop_assert_eq!(&machine.tree(), &before, "after its end");
        let pictures: Vec<Picture> = pictures.lock().unwrap().drain(..).collect();
        if pictures.is_empty() {
            return Ok(());
        }
        machine.set(at.get(&pictures));
        if machine.journal().exists() {
            restore_with(&machine.journal(), &machine.roots(), Options::default(), machine.kernel().as_mut()).unwrap();
        }
        prop_assert_eq!(&machine.tree(), &before, "after kill -9");
    }
}
