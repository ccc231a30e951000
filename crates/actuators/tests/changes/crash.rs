//! The journal restores the machine byte for byte after a crash at any time. Crashes are injected after every write: each snapshot of tree
//! and journal is restored, also with an incomplete last line, and also with a crash while restoring.

use std::fs;

use pilotlight_actuators::changes::{Change, Changes, Options, restore_with};
use proptest::prelude::*;

use crate::fake::{Machine, Picture};

fn changes(machine: &Machine) -> Vec<Change> {
    let file = |path: &str, value: &str| Change::File { path: machine.path(path), value: value.into() };
    let scheduler = |name: &str| Change::Scheduler { device: "vda".into(), scheduler: name.into() };
    let frequency = |min, max| Change::Frequency { cpu: 1, min_khz: min, max_khz: max };
    let cgroup = |name: &str, cpu: &str| Change::Cgroup {
        name: name.into(),
        limits: vec![("memory.max".into(), "1073741824".into()), ("cpu.max".into(), cpu.into())],
    };
    vec![
        scheduler("none"),
        scheduler("bfq"),
        scheduler("kyber"),
        scheduler("no-such"),
        file("sys/block/vda/queue/nr_requests", "64"),
        file("sys/kernel/mm/transparent_hugepage/enabled", "never"),
        file("sys/ignored", "2"),
        file("proc/sys/vm/swappiness", "1"),
        Change::Governor { cpu: 0, governor: "performance".into() },
        frequency(Some(3_600_000), Some(3_600_000)),
        frequency(Some(1_300_000), None),
        frequency(Some(800_000), Some(800_000)),
        Change::PowerLimit { zone: "intel-rapl:0".into(), short_term: false, power_uw: 15_060_000 },
        cgroup("a", "150000 100000"),
        cgroup("b", "50000 100000"),
        Change::PowerState { drive: "nvme0".into(), state: 2 },
        Change::PowerState { drive: "nvme0".into(), state: 3 },
        Change::PowerState { drive: "nvme0".into(), state: 9 },
        Change::Transitions { drive: "nvme0".into(), on: false },
    ]
}

/// Owner of varied changes: one per setting.
fn owner(change: &Change) -> u32 {
    match change {
        Change::Cgroup { .. } => 0,
        Change::Frequency { .. } | Change::Governor { .. } => 1,
        _ => 2,
    }
}

/// A step of a process: a change, or (after the last) restoring.
fn life(machine: &Machine, steps: &[usize], varied: bool) -> Vec<Picture> {
    let (kernel, pictures) = machine.kernel().watched();
    let last = kernel.clone();
    let all = changes(machine);
    let mut made = Changes::begin_on(&machine.journal(), machine.roots(), kernel).unwrap();
    for &step in steps {
        match (all.get(step), varied) {
            (Some(change), false) => drop(made.make(change)),
            (Some(change), true) => drop(made.vary(owner(change), change)),
            (None, false) => drop(made.restore().unwrap()),
            (None, true) => drop(made.restore_of(step as u32 % 3).unwrap()),
        }
    }
    drop(made);
    last.picture();
    let mut pictures = pictures.lock().unwrap();
    std::mem::take(&mut *pictures)
}

/// States after a crash at every time: between two snapshots only the journal changes.
fn deaths(pictures: &[Picture]) -> Vec<Picture> {
    let mut all = pictures.to_vec();
    for pair in pictures.windows(2) {
        let tree = &pair[0].tree;
        let mut add =
            |journal: Option<&[u8]>| all.push(Picture { journal: journal.map(<[u8]>::to_vec), tree: tree.clone() });
        add(pair[1].journal.as_deref());
        let (old, Some(new)) = (pair[0].journal.as_deref().unwrap_or_default(), &pair[1].journal) else { continue };
        if new.starts_with(old) {
            let torn = (old.len()..new.len()).step_by(1 + (new.len() - old.len()) / 4);
            torn.for_each(|end| add(Some(&new[..end])));
        }
    }
    all
}

fn restore(machine: &Machine, watched: bool) -> Vec<Picture> {
    let (mut kernel, pictures) = machine.kernel().watched();
    if !watched {
        kernel = machine.kernel();
    }
    if machine.journal().exists() {
        restore_with(&machine.journal(), &machine.roots(), Options::default(), kernel.as_mut()).unwrap();
    }
    kernel.picture();
    let mut pictures = pictures.lock().unwrap();
    std::mem::take(&mut *pictures)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_machine_is_restored_after_a_crash_at_any_time(
        steps in prop::collection::vec(0..22_usize, 1..10),
        scheduler in prop::sample::select(vec!["[none] mq-deadline kyber bfq \n", "none mq-deadline [kyber] bfq \n"]),
        bounds in prop::sample::select(vec![("800000\n", "800000\n"), ("1200000\n", "3600000\n"), ("2400000\n", "2400000\n")]),
        state in 0..3_u32,
        second in 0..1000_usize,
        varied: bool,
    ) {
        let machine = Machine::new();
        machine.write("sys/block/vda/queue/scheduler", scheduler);
        machine.write("sys/devices/system/cpu/cpu1/cpufreq/scaling_min_freq", bounds.0);
        machine.write("sys/devices/system/cpu/cpu1/cpufreq/scaling_max_freq", bounds.1);
        machine.write("dev/nvme0", &format!("{state} 1"));
        let before = machine.tree();
        let pictures = life(&machine, &steps, varied);
        prop_assert_eq!(&machine.tree(), &before, "after its end");
        prop_assert!(!machine.journal().exists());
        let deaths = deaths(&pictures);
        for death in &deaths {
            machine.set(death);
            restore(&machine, false);
            prop_assert_eq!(&machine.tree(), &before, "killed with {:?}", death.journal.as_deref().map(String::from_utf8_lossy));
            prop_assert!(!machine.journal().exists());
        }
        if let Some(death) = deaths.get(second % deaths.len().max(1)) {
            machine.set(death);
            for again in restore(&machine, true) {
                machine.set(&again);
                restore(&machine, false);
                prop_assert_eq!(&machine.tree(), &before, "killed during restoration");
            }
        }
    }
}

#[test]
fn every_change_has_an_effect() {
    let machine = Machine::new();
    let all = changes(&machine);
    let mut made = Changes::begin_on(&machine.journal(), machine.roots(), machine.kernel()).unwrap();
    let outcomes: Vec<bool> = all.iter().map(|change| made.make(change).is_ok()).collect();
    let refused: Vec<usize> = (0..all.len()).filter(|&at| !outcomes[at]).collect();
    assert_eq!(refused, [3, 6, 17], "no such scheduler, a file that ignores, no such power state");
    assert_eq!(machine.read("sys/block/vda/queue/scheduler"), "none mq-deadline [kyber] bfq \n");
    assert_eq!(machine.read("sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw"), "15000000\n");
    assert_eq!(machine.read("sys/class/powercap/intel-rapl:0/enabled"), "1\n");
    assert_eq!(machine.read("sys/fs/cgroup/cgroup.subtree_control"), "memory cpu\n");
    assert_eq!(machine.read("sys/fs/cgroup/pilotlight-b/cpu.max"), "50000 100000\n");
    assert_eq!(machine.read("dev/nvme0"), "3 0");
    let text = fs::read_to_string(machine.journal()).unwrap();
    assert_eq!(text.lines().filter(|line| line.starts_with("{\"begin\"")).count(), 1, "{text}");
}
