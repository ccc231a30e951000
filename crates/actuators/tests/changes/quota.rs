//! The CPU quota of worker threads, on simulated machines with each version of cgroups and on this machine's kernel.

use std::fs;
use std::path::Path;

use pilotlight_actuators::changes::{Changes, Error, Options, restore};
use pilotlight_actuators::knobs::{Missing, Wanted};
use pilotlight_actuators::{Knobs, Roots};
use pilotlight_plant::{Kind, KnobId, Values};

use crate::fake::Machine;

const QUOTA: KnobId = KnobId(0);

/// A machine without other settings.
fn machine() -> Machine {
    let machine = Machine::new();
    fs::remove_dir_all(machine.path("sys/class/powercap")).unwrap();
    machine
}

/// With version 1, as its kernel puts this process into `/a/b` of a mount that shows `/a`.
fn machine_v1() -> Machine {
    let machine = machine();
    let mount = "31 24 0:27 /a /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpuacct,cpu\n";
    machine.write("proc/self/mountinfo", mount);
    machine.write("proc/self/cgroup", "3:cpuacct,cpu:/a/b\n0::/\n");
    machine.write("sys/fs/cgroup/cpu/b/tasks", "41\n42\n43\n");
    machine
}

fn find(machine: &Machine, reactors: usize) -> (Knobs, Vec<Missing>) {
    let changes = Changes::begin_on(&machine.journal(), machine.roots(), machine.kernel()).unwrap();
    let wanted = Wanted { cpus: vec![None; reactors], ..Wanted::default() };
    Knobs::find_with(&machine.roots(), &wanted, changes)
}

fn group(folder: &str) -> String {
    format!("{folder}/pilotlight-workers-{}", std::process::id())
}

#[test]
fn workers_get_a_threaded_group_with_the_quota() {
    let machine = machine();
    let before = machine.tree();
    let (mut knobs, _) = find(&machine, 3);
    assert_eq!(knobs.list()[0].values, Values::Range { min: 10_000, max: 2_000_000, step: 10_000 });
    knobs.set_workers(&[42, 43]);
    knobs.set(QUOTA, Some(500_000)).unwrap();
    let group = group("sys/fs/cgroup");
    let read = |name: &str| machine.read(&format!("{group}/{name}"));
    assert_eq!(read("cgroup.type"), "threaded\n");
    assert_eq!((read("cpu.max"), read("cgroup.threads")), ("50000 100000\n".into(), "42\n43\n".into()));
    assert_eq!(machine.read("sys/fs/cgroup/cgroup.subtree_control"), "memory cpu\n");
    assert_eq!(machine.read("sys/fs/cgroup/cgroup.threads"), "41\n", "the main core's is not held up");
    let journal = fs::read(machine.journal()).unwrap();
    knobs.set(QUOTA, Some(0)).unwrap();
    assert_eq!(read("cpu.max"), "1000 100000\n", "the shortest that the kernel takes");
    knobs.set(QUOTA, Some(2_000_000)).unwrap();
    assert_eq!(read("cpu.max"), "max 100000\n");
    assert_eq!(fs::read(machine.journal()).unwrap(), journal);
    knobs.set(QUOTA, None).unwrap();
    assert_eq!(machine.tree(), before);
    assert!(!machine.journal().exists());
}

#[test]
fn version_1_has_files_of_its_own() {
    let machine = machine_v1();
    let before = machine.tree();
    let (mut knobs, _) = find(&machine, 3);
    knobs.set_workers(&[42, 43]);
    knobs.set(QUOTA, Some(1_500_000)).unwrap();
    let group = group("sys/fs/cgroup/cpu/b");
    let read = |name: &str| machine.read(&format!("{group}/{name}")).trim().to_owned();
    assert_eq!(["cpu.cfs_period_us", "cpu.cfs_quota_us", "tasks"].map(read), ["100000", "150000", "42\n43"]);
    knobs.set(QUOTA, Some(2_000_000)).unwrap();
    assert_eq!(read("cpu.cfs_quota_us"), "-1");
    drop(knobs);
    assert_eq!(machine.tree(), before);
}

/// The share of CPU time stays constant when the period becomes ten times as long.
#[test]
fn a_longer_period_keeps_the_ratio() {
    const PERIOD: KnobId = KnobId(1);
    for (machine, files) in
        [(machine(), ["cpu.max"].as_slice()), (machine_v1(), &["cpu.cfs_quota_us", "cpu.cfs_period_us"])]
    {
        let before = machine.tree();
        let (mut knobs, _) = find(&machine, 3);
        assert_eq!(knobs.list()[1].values, Values::List(vec![100_000_000, 1_000_000_000]));
        knobs.set_workers(&[42, 43]);
        knobs.set(PERIOD, Some(1_000_000_000)).unwrap();
        assert_eq!(machine.tree(), before, "a period alone limits nothing");
        let folder = if files.len() == 1 { "sys/fs/cgroup" } else { "sys/fs/cgroup/cpu/b" };
        let after = |knobs: &mut Knobs, knob, value| {
            knobs.set(knob, value).unwrap();
            files
                .iter()
                .map(|file| machine.read(&format!("{}/{file}", group(folder))).trim().to_owned())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(after(&mut knobs, QUOTA, Some(500_000)), "500000 1000000");
        assert_eq!(after(&mut knobs, PERIOD, Some(100_000_000)), "50000 100000");
        assert_eq!(after(&mut knobs, PERIOD, Some(1_000_000_000)), "500000 1000000");
        assert_eq!(after(&mut knobs, PERIOD, None), "50000 100000");
        knobs.set(PERIOD, Some(1_000_000_000)).unwrap();
        knobs.set(QUOTA, None).unwrap();
        assert_eq!(machine.tree(), before);
    }
}

#[test]
fn missing_requirements_are_reported() {
    let why = |machine: &Machine, reactors| {
        let (knobs, missing) = find(machine, reactors);
        assert!(knobs.list().is_empty());
        missing.into_iter().find(|missing| missing.what.contains("CPU quota")).expect("it is missing").why.to_string()
    };
    assert!(why(&machine(), 1).contains("only the main core"));
    let machine = machine();
    machine.write("sys/fs/cgroup/cgroup.controllers", "cpuset memory\n");
    assert!(why(&machine, 2).contains("Delegate=cpu"), "{}", why(&machine, 2));
    machine.write("proc/self/mountinfo", "30 24 0:26 / /mnt rw - cgroup2 cgroup2 rw\n");
    assert!(why(&machine, 2).contains("/mnt is not below /sys"), "{}", why(&machine, 2));
    machine.write("proc/self/mountinfo", "");
    assert!(why(&machine, 2).contains("no cgroup file system"), "{}", why(&machine, 2));
}

#[test]
fn unknown_threads_get_no_quota() {
    let machine = machine();
    let before = machine.tree();
    let (mut knobs, _) = find(&machine, 2);
    assert!(matches!(knobs.set(QUOTA, Some(500_000)), Err(Error::Cgroup(_))));
    drop(knobs);
    assert_eq!(machine.tree(), before);
}

/// Limits a thread of this test to a tenth of a CPU; its group is removed as after `kill -9`.
#[test]
fn the_kernel_limits_a_thread_and_the_limit_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("1.jsonl");
    let wanted = Wanted { cpus: vec![None; 2], ..Wanted::default() };
    let (mut knobs, missing) = Knobs::find(&Roots::default(), &journal, &wanted).unwrap();
    let Some(quota) = knobs.list().iter().position(|knob| knob.kind == Kind::QuotaPpm) else {
        println!("skipped: {missing:?}");
        return;
    };
    let (started, start) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        started.send(own).unwrap();
        let _ = ended.recv();
    });
    let worker = start.recv().unwrap();
    knobs.set_workers(&[worker]);
    if let Err(error) = knobs.set(KnobId(quota as u16), Some(100_000)) {
        println!("skipped: {error}");
        return;
    }
    let groups = |thread| fs::read_to_string(format!("/proc/self/task/{thread}/cgroup")).unwrap();
    let name = format!("pilotlight-workers-{}", std::process::id());
    assert!(groups(worker).contains(&name) && !groups(std::process::id()).contains(&name), "{}", groups(worker));
    let left = fs::read_to_string(&journal).unwrap();
    let setting = left.lines().find(|line| line.contains("\"cgroup\"")).expect("the group is on record");
    let path = setting.split('"').find(|word| word.ends_with(&name)).map(Path::new).expect("its path").to_owned();
    let of = |file: &str| fs::read_to_string(path.join(file)).unwrap_or_default();
    assert!(of("cpu.max") == "10000 100000\n" || of("cpu.cfs_quota_us") == "10000\n");
    // Its journal is locked; a copy simulates a killed process.
    let killed = folder.path().join("2.jsonl");
    fs::write(&killed, left.replacen(&format!("\"pid\":{}", std::process::id()), "\"pid\":0", 1)).unwrap();
    restore(&killed, &Roots::default(), Options::default()).unwrap();
    assert!(!path.exists() && !groups(worker).contains(&name), "{}", groups(worker));
    drop(knobs);
    drop(end);
    thread.join().unwrap();
}
