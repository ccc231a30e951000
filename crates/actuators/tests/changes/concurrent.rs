//! Changes by other processes, removed settings, restarts of the machine, and concurrent runs.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pilotlight_actuators::changes::{Change, Changes, Error, Options, Outcome, restore_with};

use crate::fake::{Fake, Machine};

const SCHEDULER: &str = "sys/block/vda/queue/scheduler";
const SWAPPINESS: &str = "proc/sys/vm/swappiness";

fn scheduler(name: &str) -> Change {
    Change::Scheduler { device: "vda".into(), scheduler: name.into() }
}

fn begin(machine: &Machine, journal: &str) -> Result<Changes, Error> {
    Changes::begin_on(&machine.path(journal), machine.roots(), machine.kernel())
}

/// Makes these changes and is killed.
fn killed(machine: &Machine, changes: &[Change]) {
    let mut made = begin(machine, "run/1.jsonl").unwrap();
    changes.iter().for_each(|change| made.make(change).unwrap());
    let (journal, tree) = (fs::read(machine.journal()).unwrap(), machine.tree());
    drop(made);
    machine.set(&crate::fake::Picture { journal: Some(journal), tree });
}

fn restore(machine: &Machine, force: bool) -> Result<Vec<Outcome>, Error> {
    let options = Options { force, ..Options::default() };
    let all = restore_with(&machine.journal(), &machine.roots(), options, machine.kernel().as_mut())?;
    Ok(all.into_iter().map(|back| back.outcome).collect())
}

#[test]
fn values_set_by_others_are_reported_and_kept_unless_forced() {
    let machine = Machine::new();
    let swappiness = Change::File { path: machine.path(SWAPPINESS), value: "1".into() };
    killed(&machine, &[scheduler("bfq"), swappiness]);
    machine.write(SCHEDULER, "none mq-deadline [kyber] bfq \n");
    let error = restore(&machine, false).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("kyber, set by another process meanwhile; it was none before"), "{text}");
    assert!(text.contains("--force"), "{text}");
    assert_eq!(machine.read(SWAPPINESS), "60\n", "the rest is back");
    assert_eq!(machine.read(SCHEDULER), "none mq-deadline [kyber] bfq \n");
    assert_eq!(restore(&machine, true).unwrap(), [Outcome::Restored], "only what was left");
    assert_eq!(machine.read(SCHEDULER), "[none] mq-deadline kyber bfq \n");
    assert!(!machine.journal().exists());
}

#[test]
fn settings_restored_or_removed_by_others_are_settled() {
    let machine = Machine::new();
    let swappiness = Change::File { path: machine.path(SWAPPINESS), value: "1".into() };
    killed(&machine, &[scheduler("bfq"), swappiness]);
    machine.write(SWAPPINESS, "60\n");
    fs::remove_dir_all(machine.path("sys/block/vda")).unwrap();
    assert_eq!(restore(&machine, false).unwrap(), [Outcome::Unchanged, Outcome::Gone]);
    assert!(!machine.journal().exists());
}

#[test]
fn after_a_restart_of_the_machine_there_is_nothing_to_do() {
    let machine = Machine::new();
    killed(&machine, &[scheduler("bfq")]);
    machine.write("proc/sys/kernel/random/boot_id", "the next boot\n");
    machine.write(SCHEDULER, "none [mq-deadline] kyber bfq \n");
    assert_eq!(restore(&machine, false).unwrap(), [Outcome::Restarted]);
    assert_eq!(machine.read(SCHEDULER), "none [mq-deadline] kyber bfq \n");
    assert!(!machine.journal().exists());
}

#[test]
fn a_dry_run_changes_nothing() {
    let machine = Machine::new();
    killed(&machine, &[scheduler("bfq")]);
    let (tree, journal) = (machine.tree(), fs::read(machine.journal()).unwrap());
    let options = Options { dry_run: true, ..Options::default() };
    let all = restore_with(&machine.journal(), &machine.roots(), options, machine.kernel().as_mut()).unwrap();
    assert_eq!(all[0].outcome, Outcome::DryRun);
    assert!(all[0].to_string().ends_with("/sys/block/vda/queue/scheduler: bfq -> none (not done)"), "{}", all[0]);
    assert_eq!((machine.tree(), fs::read(machine.journal()).unwrap()), (tree, journal));
}

#[test]
fn the_journal_of_a_running_process_is_refused() {
    let machine = Machine::new();
    let mut made = begin(&machine, "run/1.jsonl").unwrap();
    made.make(&scheduler("bfq")).unwrap();
    let error = restore(&machine, true).unwrap_err();
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    // Without the lock, as on some network file systems, the process is checked.
    let (journal, tree) = (fs::read(machine.journal()).unwrap(), machine.tree());
    drop(made);
    machine.set(&crate::fake::Picture { journal: Some(journal), tree });
    machine.write(&format!("proc/{}/stat", std::process::id()), &format!("1 (x) S {}7 0", "0 ".repeat(18)));
    assert!(matches!(restore(&machine, true), Err(Error::Lives { .. })));
    assert_eq!(machine.read(SCHEDULER), "none mq-deadline kyber [bfq] \n");
}

#[test]
fn a_run_does_not_start_on_changes_of_a_killed_one() {
    let machine = Machine::new();
    killed(&machine, &[scheduler("bfq")]);
    let error = begin(&machine, "run/2.jsonl").err().expect("a machine that is not as it was").to_string();
    assert!(error.contains("run/1.jsonl") && error.contains("pilotlab restore"), "{error}");
    restore(&machine, false).unwrap();
    begin(&machine, "run/2.jsonl").unwrap().make(&scheduler("kyber")).unwrap();
}

#[test]
fn two_runs_do_not_change_the_same_setting() {
    let machine = Machine::new();
    let mut first = begin(&machine, "run/1.jsonl").unwrap();
    first.make(&scheduler("bfq")).unwrap();
    let mut second = begin(&machine, "run/2.jsonl").unwrap();
    let error = second.make(&scheduler("kyber")).unwrap_err();
    assert!(matches!(error, Error::InUse { .. }), "{error}");
    second.make(&Change::File { path: machine.path(SWAPPINESS), value: "1".into() }).unwrap();
    first.restore().unwrap();
    second.make(&scheduler("kyber")).unwrap();
    drop(second);
    assert_eq!(machine.read(SCHEDULER), "[none] mq-deadline kyber bfq \n");
    assert_eq!(machine.read(SWAPPINESS), "60\n");
}

#[test]
fn a_setting_in_use_is_refused_even_with_the_same_value() {
    let machine = Machine::new();
    let mut first = begin(&machine, "run/1.jsonl").unwrap();
    first.make(&scheduler("bfq")).unwrap();
    let mut second = begin(&machine, "run/2.jsonl").unwrap();
    // The setting has the value only while the first run lasts.
    assert!(matches!(second.make(&scheduler("bfq")), Err(Error::InUse { .. })));
}

/// Runs that start and end continuously: no two have the same setting, and a temporary value is never recorded as the old one.
#[test]
fn concurrent_runs_exclude_each_other_and_restore_the_old_value() {
    let machine = Machine::new();
    let (before, holders, made_at_all) = (machine.tree(), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for run in 0..4 {
            let (machine, holders, made_at_all) = (&machine, &holders, &made_at_all);
            let change = Change::File { path: machine.path(SWAPPINESS), value: (run + 1).to_string() };
            scope.spawn(move || {
                for round in 0..60 {
                    let kernel = Box::new(Fake { answers_after: Duration::from_micros(300), ..*machine.kernel() });
                    let journal = machine.path(&format!("run/{run}-{round}.jsonl"));
                    let mut made = Changes::begin_on(&journal, machine.roots(), kernel).unwrap();
                    match made.make(&change) {
                        Err(Error::InUse { .. }) => continue,
                        other => other.unwrap(),
                    }
                    assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two runs have it");
                    made_at_all.fetch_add(1, Ordering::SeqCst);
                    std::thread::yield_now();
                    holders.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(machine.tree(), before);
    assert!(made_at_all.into_inner() > 0);
}

#[test]
fn a_non_operational_drive_is_restored_to_state_0_and_its_own_transitions_are_ignored() {
    let machine = Machine::new();
    let before = machine.tree();
    machine.write("dev/nvme0", "3 1");
    let mut made = begin(&machine, "run/1.jsonl").unwrap();
    made.make(&Change::PowerState { drive: "nvme0".into(), state: 2 }).unwrap();
    assert_eq!(machine.read("dev/nvme0"), "2 1");
    machine.write("dev/nvme0", "4 1");
    made.restore().unwrap();
    assert_eq!(machine.tree(), before);
}

#[test]
fn the_workload_hint_of_a_power_state_is_restored() {
    let machine = Machine::new();
    // State 1 in bits 4:0, hint 1 in bits 7:5.
    machine.write("dev/nvme0", "33 1");
    let mut made = begin(&machine, "run/1.jsonl").unwrap();
    made.make(&Change::PowerState { drive: "nvme0".into(), state: 2 }).unwrap();
    assert_eq!(machine.read("dev/nvme0"), "2 1");
    drop(made);
    assert_eq!(machine.read("dev/nvme0"), "33 1");
}

#[test]
fn a_value_that_the_kernel_ignores_is_not_restored() {
    let machine = Machine::new();
    killed(&machine, &[Change::File { path: machine.path(SWAPPINESS), value: "1".into() }]);
    // Simulates a file that accepted the value earlier and ignores writes now.
    let journal = fs::read_to_string(machine.journal()).unwrap();
    fs::write(machine.journal(), journal.replace(SWAPPINESS, "sys/ignored")).unwrap();
    let error = restore(&machine, false).unwrap_err().to_string();
    assert!(error.contains("still 1, not 60: the kernel ignored the value"), "{error}");
    assert!(machine.journal().exists());
}

#[test]
fn restoring_to_a_mark_keeps_earlier_changes() {
    let machine = Machine::new();
    let mut made = begin(&machine, "run/1.jsonl").unwrap();
    made.make(&scheduler("bfq")).unwrap();
    let mark = made.mark();
    made.make(&scheduler("kyber")).unwrap();
    made.make(&Change::Cgroup { name: "7".into(), limits: Vec::new() }).unwrap();
    assert_eq!(made.cgroup(), Some(machine.path("sys/fs/cgroup/pilotlight-7").as_path()));
    made.restore_to(mark, Options::default()).unwrap();
    assert_eq!(made.cgroup(), None);
    assert_eq!(machine.read(SCHEDULER), "none mq-deadline kyber [bfq] \n");
    assert!(machine.journal().exists());
    assert_eq!(made.restore().unwrap().len(), 1);
    assert!(!machine.journal().exists() && made.journal_path().is_none());
    made.make(&scheduler("kyber")).unwrap();
    assert!(machine.journal().exists(), "it can be resumed");
}
