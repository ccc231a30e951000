//! Killed processes: the test starts itself as a child that repeatedly changes the simulated machine, and ends it by SIGKILL or SIGINT.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pilotlight_actuators::Roots;
use pilotlight_actuators::changes::{Change, Changes, Error, Linux, Options, restore, restore_with};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

use crate::fake::Machine;
use crate::loops::Loop;

/// Arguments of the child: `fake` and the folder of a simulated machine, `full` and a folder on a full disk, or `loop` and a device.
const CHILD: &str = "PILOTLIGHT_TEST_CHILD";
const JOURNAL: &str = "PILOTLIGHT_TEST_JOURNAL";

/// The child: changes and restores until it is stopped or killed.
#[test]
fn child() {
    let (Ok(what), Ok(journal)) = (std::env::var(CHILD), std::env::var(JOURNAL)) else { return };
    let end = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, end.clone()).unwrap();
    let (kind, name) = what.split_once(' ').unwrap();
    let journal = Path::new(&journal);
    if kind == "full" {
        return on_a_full_disk(Path::new(name), journal);
    }
    let (mut made, changes) = match kind {
        "fake" => {
            let made = Changes::begin_on(journal, Roots::below(name), crate::fake::at(Path::new(name)));
            (made, ["bfq", "kyber", "mq-deadline"].map(|scheduler| ("vda", scheduler)))
        }
        _ => (
            Changes::begin(journal, Roots::default()),
            ["mq-deadline", "none", "mq-deadline"].map(|scheduler| (name, scheduler)),
        ),
    };
    let made = made.as_mut().unwrap();
    // One setting stays changed, so that there is always a journal.
    made.make(&Change::Scheduler { device: changes[0].0.into(), scheduler: changes[0].1.into() }).unwrap();
    while !end.load(Ordering::Relaxed) {
        let mark = made.mark();
        for (device, scheduler) in changes {
            made.make(&Change::Scheduler { device: device.into(), scheduler: scheduler.into() }).unwrap();
        }
        made.restore_to(mark, Options::default()).unwrap();
        made.make(&Change::Scheduler { device: changes[0].0.into(), scheduler: changes[0].1.into() }).unwrap();
    }
    made.restore().unwrap();
}

/// Changes three settings, the second of which does not fit into the journal; then it is killed.
fn on_a_full_disk(root: &Path, journal: &Path) {
    let scheduler = |name: &str| Change::Scheduler { device: "vda".into(), scheduler: name.into() };
    let mut made = Changes::begin_on(journal, Roots::below(root), crate::fake::at(root)).unwrap();
    made.make(&scheduler("bfq")).unwrap();
    // SIGXFSZ would end the process.
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default()).unwrap();
    let all = getrlimit(Resource::Fsize);
    let few = std::fs::metadata(journal).unwrap().len() + 20;
    setrlimit(Resource::Fsize, Rlimit { current: Some(few), ..all }).unwrap();
    assert!(matches!(made.make(&scheduler("kyber")), Err(Error::Journal { .. })));
    setrlimit(Resource::Fsize, all).unwrap();
    made.make(&scheduler("mq-deadline")).unwrap();
    kill_process(rustix::process::getpid(), Signal::KILL).unwrap();
}

#[test]
fn a_line_that_did_not_fit_does_not_corrupt_later_lines() {
    let machine = Machine::new();
    let before = machine.tree();
    let mut child = start(&format!("full {}", machine.folder.path().display()), &machine.journal());
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::KILL.as_raw()), "it got to its end");
    assert_eq!(machine.read("sys/block/vda/queue/scheduler"), "none [mq-deadline] kyber bfq \n");
    restore_with(&machine.journal(), &machine.roots(), Options::default(), machine.kernel().as_mut()).unwrap();
    assert_eq!((machine.tree(), machine.journal().exists()), (before, false));
}

fn start(what: &str, journal: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "kill::child"]).env(CHILD, what).env(JOURNAL, journal);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while !journal.exists() {
        assert_eq!(child.try_wait().unwrap(), None, "the child has ended before its first change");
        thread::sleep(Duration::from_millis(1));
    }
    child
}

fn end(mut child: Child, signal: Signal) -> bool {
    kill_process(Pid::from_child(&child), signal).unwrap();
    child.wait().unwrap().success()
}

#[test]
fn after_kill_9_restore_brings_everything_back() {
    let machine = Machine::new();
    let before = machine.tree();
    let mut changed = 0;
    for round in 0..16 {
        let child = start(&format!("fake {}", machine.folder.path().display()), &machine.journal());
        thread::sleep(Duration::from_micros(700 * round));
        let lives = restore(&machine.journal(), &Roots::default(), Options::default()).unwrap_err();
        assert!(matches!(lives, Error::Lives { .. }), "while it lives: {lives}");
        assert!(!end(child, Signal::KILL));
        changed += u32::from(machine.tree() != before);
        restore_with(&machine.journal(), &machine.roots(), Options::default(), machine.kernel().as_mut()).unwrap();
        assert_eq!(machine.tree(), before, "round {round}");
        assert!(!machine.journal().exists());
    }
    assert!(changed > 0, "it never was killed where it mattered");
}

#[test]
fn ctrl_c_restores_everything() {
    let machine = Machine::new();
    let before = machine.tree();
    let child = start(&format!("fake {}", machine.folder.path().display()), &machine.journal());
    assert!(end(child, Signal::INT));
    assert_eq!(machine.tree(), before);
    assert!(!machine.journal().exists());
}

#[test]
fn a_panic_restores_everything() {
    let machine = Machine::new();
    let before = machine.tree();
    let journal = machine.journal();
    let (roots, kernel, during) = (machine.roots(), machine.kernel(), Arc::new(AtomicBool::new(false)));
    let (seen, path) = (during.clone(), machine.path("sys/block/vda/queue/scheduler"));
    let outcome = thread::spawn(move || {
        let mut made = Changes::begin_on(&journal, roots, kernel).unwrap();
        made.make(&Change::Scheduler { device: "vda".into(), scheduler: "bfq".into() }).unwrap();
        seen.store(std::fs::read_to_string(path).unwrap().contains("[bfq]"), Ordering::Relaxed);
        panic!("as a bug would");
    });
    assert!(outcome.join().is_err() && during.load(Ordering::Relaxed));
    assert_eq!(machine.tree(), before);
}

#[test]
fn the_scheduler_of_a_loop_device_is_restored_after_exit_ctrl_c_and_kill_9() {
    let Some(device) = Loop::with_schedulers(&["none", "mq-deadline"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("1.jsonl");
    let before = device.scheduler();
    let other = if before.contains("[none]") { "mq-deadline" } else { "none" };

    let mut made = Changes::begin_on(&journal, Roots::default(), Box::new(Linux)).unwrap();
    made.make(&Change::Scheduler { device: device.name().into(), scheduler: other.into() }).unwrap();
    assert!(device.scheduler().contains(&format!("[{other}]")), "{}", device.scheduler());
    drop(made);
    assert_eq!((device.scheduler(), journal.exists()), (before.clone(), false), "after the end");

    let child = start(&format!("loop {}", device.name()), &journal);
    assert!(end(child, Signal::INT));
    assert_eq!((device.scheduler(), journal.exists()), (before.clone(), false), "after Ctrl-C");

    for round in 0..8 {
        let child = start(&format!("loop {}", device.name()), &journal);
        thread::sleep(Duration::from_millis(7 * round));
        assert!(!end(child, Signal::KILL));
        restore(&journal, &Roots::default(), Options::default()).unwrap();
        assert_eq!((device.scheduler(), journal.exists()), (before.clone(), false), "after kill -9, round {round}");
    }
}
