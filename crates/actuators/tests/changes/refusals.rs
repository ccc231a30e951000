//! Refused changes and their messages.

use pilotlight_actuators::changes::{Attempt, Change, Changes};

use crate::fake::Machine;

fn refused(machine: &Machine, change: &Change) -> String {
    let before = machine.tree();
    let mut made = Changes::begin_on(&machine.journal(), machine.roots(), machine.kernel()).unwrap();
    let error = made.make(change).expect_err("it is refused").to_string();
    assert_eq!(machine.tree(), before, "a change is made as a whole or not at all");
    error
}

fn file(machine: &Machine, path: &str, value: &str) -> Change {
    Change::File { path: machine.path(path), value: value.into() }
}

#[test]
fn errors_list_the_available_values() {
    let machine = Machine::new();
    let error = refused(&machine, &Change::Scheduler { device: "vda".into(), scheduler: "cfq".into() });
    assert!(error.contains("scheduler to cfq: Invalid argument"), "{error}");
    assert!(error.ends_with("available: none, mq-deadline, kyber, bfq"), "{error}");
    let error = refused(&machine, &Change::Scheduler { device: "sdz".into(), scheduler: "none".into() });
    assert!(error.contains("cannot read") && error.contains("omit the key"), "{error}");
    let error = refused(&machine, &Change::PowerState { drive: "nvme0".into(), state: 5 });
    assert!(error.contains("the drive has states 0 to 4"), "{error}");
    let error = refused(&machine, &Change::PowerState { drive: "nvme9".into(), state: 1 });
    assert!(error.contains("see /dev/nvme*"), "{error}");
}

#[test]
fn a_value_that_is_ignored_is_an_error() {
    let machine = Machine::new();
    let error = refused(&machine, &file(&machine, "sys/ignored", "2"));
    assert!(
        error.ends_with("was set to 2 without an error but is 1: the kernel or the hardware ignores it"),
        "{error}"
    );
}

#[test]
fn optional_changes_that_fail_are_reported_and_undone() {
    let machine = Machine::new();
    let before = machine.tree();
    let mut made = Changes::begin_on(&machine.journal(), machine.roots(), machine.kernel()).unwrap();
    let mut attempt = |path: &str, value: &str| made.attempt(&file(&machine, path, value));
    assert_eq!(attempt("sys/ignored", "2").unwrap(), Attempt::Ignored("1".into()));
    let refused = attempt("sys/block/vda/queue/scheduler", "cfq").unwrap();
    assert!(matches!(&refused, Attempt::Refused(why) if why.contains("Invalid argument")), "{refused:?}");
    assert!(matches!(attempt("sys/block/vda/queue/io_poll", "1").unwrap(), Attempt::Refused(_)));
    assert_eq!(machine.tree(), before, "nothing has changed so far");
    assert_eq!(attempt("sys/block/vda/queue/nr_requests", "64").unwrap(), Attempt::Applied);
    assert_eq!(machine.read("sys/block/vda/queue/nr_requests"), "64\n");
    assert!(attempt("etc/passwd", "x").is_err(), "what is no setting at all is no attempt");
    drop(made);
    assert_eq!(machine.tree(), before);
}

#[test]
fn only_settings_of_the_machine_are_changed() {
    let machine = Machine::new();
    machine.write("etc/passwd", "root\n");
    machine.write("proc/1/oom_score_adj", "0\n");
    for path in ["etc/passwd", "sys/../etc/passwd", "proc/1/oom_score_adj"] {
        let error = refused(&machine, &file(&machine, path, "x"));
        assert!(error.contains("must not be changed; allowed are files below /sys"), "{error}");
    }
    machine.write("sys/many", "a\nb\n");
    let error = refused(&machine, &file(&machine, "sys/many", "c"));
    assert!(error.contains("it has 2 lines"), "{error}");
}

#[test]
fn a_cgroup_with_an_error_is_removed() {
    let machine = Machine::new();
    let cgroup = |limit: &str| Change::Cgroup { name: "1".into(), limits: vec![(limit.into(), "1".into())] };
    let error = refused(&machine, &cgroup("hugetlb.max"));
    assert!(error.contains("the controller `hugetlb` is not in"), "{error}");
    let error = refused(&machine, &cgroup("memory.ignored"));
    assert!(error.contains("memory.ignored was set to 1 without an error but is :"), "{error}");
    let error = refused(&machine, &cgroup("memory.no-such"));
    assert!(error.contains("memory.no-such to 1"), "{error}");
}

#[test]
fn transitions_are_set_through_the_kernel_and_confirmed_by_the_drive() {
    let machine = Machine::new();
    for drive in ["nvme0", "nvme1"] {
        machine.write(&format!("sys/class/nvme/{drive}/power/pm_qos_latency_tolerance_us"), "100000\n");
        machine.write(&format!("dev/{drive}"), "0 1");
    }
    let before = machine.tree();
    let off = |drive: &str| Change::Transitions { drive: drive.into(), on: false };
    let error = refused(&machine, &off("nvme1"));
    assert!(error.contains("was set to off without an error but is on"), "{error}");
    let mut made = Changes::begin_on(&machine.journal(), machine.roots(), machine.kernel()).unwrap();
    made.make(&off("nvme0")).unwrap();
    assert_eq!(machine.read("dev/nvme0"), "0 0");
    made.make(&Change::Transitions { drive: "nvme0".into(), on: true }).unwrap();
    assert_eq!(machine.read("dev/nvme0"), "0 1");
    drop(made);
    assert_eq!(machine.tree(), before);
}
