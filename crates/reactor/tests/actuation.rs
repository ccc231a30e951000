//! Knobs that are set by a thread: the last wanted value is set, refusals are received, and all knobs are restored.

mod support;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use pilotlight_plant::{Command, CoreId, Cost, Knob, KnobId, Refusal, Topology};
use pilotlight_reactor::{Actuation, Idle, Knobs as _, Machine, Runtime, RuntimeOptions};
use support::{EVERY_MS, TIMEOUT, frequencies, scripted_policy};

/// Applied settings in order; `None`: restored.
type Settings = Arc<Mutex<Vec<(u16, Option<u64>)>>>;

/// A machine that waits for permission before each setting, and refuses 13.
struct SteppedMachine {
    settings: Settings,
    asked: Sender<(u16, Option<u64>)>,
    let_on: Receiver<()>,
}

impl Machine for SteppedMachine {
    fn knobs(&self) -> Vec<Knob> {
        frequencies(2, 0, 100, 1)
    }

    fn set(&mut self, knob: KnobId, value: Option<u64>) -> Result<(), Refusal> {
        self.asked.send((knob.0, value)).expect("somebody listens");
        let _ = self.let_on.recv();
        self.settings.lock().expect("no panic").push((knob.0, value));
        if value == Some(13) { Err(Refusal::Failed) } else { Ok(()) }
    }
}

struct Fixture {
    settings: Settings,
    asked: Receiver<(u16, Option<u64>)>,
    let_on: Sender<()>,
    actuation: Actuation,
}

fn fixture() -> Fixture {
    let settings = Settings::default();
    let ((received, asked), (let_on, wait)) = (channel(), channel());
    let actuation = Actuation::start(
        Box::new(SteppedMachine { settings: Arc::clone(&settings), asked: received, let_on: wait }),
        &[None],
    );
    Fixture { settings, asked, let_on, actuation: actuation.expect("a thread") }
}

impl Fixture {
    fn set(&self, knob: u16, value: u64) {
        self.actuation.set(KnobId(knob), value).expect("it is only said");
    }

    /// Lets the machine apply one setting; returns it.
    fn one(&self) -> (u16, Option<u64>) {
        let asked = self.asked.recv().expect("the thread runs");
        self.let_on.send(()).expect("the thread runs");
        asked
    }

    /// Ends it; returns all applied settings.
    fn end(self) -> Vec<(u16, Option<u64>)> {
        let Self { settings, asked, let_on, actuation } = self;
        drop(let_on); // applies the remaining settings
        drop(actuation);
        drop(asked);
        Arc::into_inner(settings).expect("the thread has ended").into_inner().expect("no panic")
    }
}

#[test]
fn only_the_last_of_several_values_is_set() {
    let fixture = fixture();
    fixture.set(0, 1);
    assert_eq!(fixture.asked.recv().expect("asked"), (0, Some(1)));
    (2..=40).for_each(|value| fixture.set(0, value)); // while the machine applies the first
    fixture.let_on.send(()).expect("runs");
    assert_eq!(fixture.one(), (0, Some(40)));
    assert_eq!(fixture.end(), [(0, Some(1)), (0, Some(40)), (0, None)], "and restored at the end");
}

#[test]
fn a_changing_knob_does_not_delay_others() {
    let fixture = fixture();
    fixture.set(0, 1);
    assert_eq!(fixture.asked.recv().expect("asked"), (0, Some(1)));
    fixture.set(1, 7);
    fixture.set(0, 2);
    fixture.let_on.send(()).expect("runs");
    assert_eq!((fixture.one(), fixture.one()), ((1, Some(7)), (0, Some(2))));
}

#[test]
fn a_refused_value_is_retried_when_it_is_set_again() {
    let fixture = fixture();
    for _ in 0..2 {
        fixture.set(0, 13);
        assert_eq!(fixture.one(), (0, Some(13)));
        // The refusal is recorded before the next setting is requested.
        fixture.set(1, 5);
        assert_eq!(fixture.one(), (1, Some(5)));
        fixture.actuation.restore();
        let mut back = [fixture.one(), fixture.one()];
        back.sort_unstable();
        assert_eq!(back, [(0, None), (1, None)]);
    }
    assert_eq!(fixture.end().len(), 8, "nothing is left to restore");
}

#[test]
fn all_knobs_are_restored_at_the_end() {
    let fixture = fixture();
    fixture.set(0, 3);
    fixture.set(1, 4);
    let mut all = fixture.end();
    all.sort_unstable();
    // Whether it was set before the end depends on timing; it is always restored.
    for knob in 0..2 {
        let of_knob: Vec<Option<u64>> = all.iter().filter(|line| line.0 == knob).map(|line| line.1).collect();
        assert!(of_knob == [None] || of_knob == [None, Some(u64::from(knob) + 3)], "{all:?}");
    }
}

/// The machine reports an immediate effect; the thread must be woken first.
#[test]
fn costs_contain_the_wake_up_of_the_thread() {
    let fixture = fixture();
    let knobs = fixture.actuation.knobs();
    match knobs[0].caller {
        Cost::Measured(ns) => assert!(ns > 0 && knobs[0].effect.ns() > 0, "{knobs:?}"),
        Cost::Assumed(_) => println!("skipped: the machine is too busy to measure a wake-up"),
    }
}

/// Sends the names of the workers' threads.
struct Workers(Sender<Vec<String>>);

impl Machine for Workers {
    fn knobs(&self) -> Vec<Knob> {
        frequencies(1, 0, 100, 1)
    }

    fn set_workers(&mut self, workers: &[u32]) {
        let name =
            |thread| std::fs::read_to_string(format!("/proc/self/task/{thread}/comm")).expect("a thread of ours");
        self.0.send(workers.iter().map(|thread| name(thread).trim().to_owned()).collect()).expect("somebody listens");
    }

    fn set(&mut self, _: KnobId, _: Option<u64>) -> Result<(), Refusal> {
        Ok(())
    }
}

#[test]
fn the_machine_gets_the_worker_threads_before_the_first_setting() {
    let (send, names) = channel();
    let actuation = Actuation::start(Box::new(Workers(send)), &[None; 3]).expect("a thread");
    let topology = Topology::new(CoreId(1), vec![None; 3]).expect("three cores");
    let options = RuntimeOptions { topology, ..RuntimeOptions::new(vec![None; 3], Idle::Yield) };
    let runtime = Runtime::start(&RuntimeOptions { knobs: Some(Arc::new(actuation)), ..options }).expect("starts");
    let (control, policy) = scripted_policy(EVERY_MS);
    control.command(Command::Set { knob: KnobId(0), value: 7 });
    runtime.set_policy(policy).expect("supported");
    assert_eq!(names.recv_timeout(TIMEOUT).expect("it is received"), ["reactor-0", "reactor-2"]);
}
