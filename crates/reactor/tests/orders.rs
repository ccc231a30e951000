//! Orders that cross each other, or the state that a core is in: nothing gets stuck, nothing is forgotten, nothing spins.

mod puppet;

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use pilotlight_plant::{
    Command, CompletionMode, CoreId, CoreState, Depth, NEVER, Next, Policy, Refusal, Sample, SleepGoal, Start,
    ThreadId, Tick, Unsupported, Wants,
};
use pilotlight_reactor::{Idle, QuietTime, Runtime, RuntimeOptions};
use puppet::{EVERY_MS, PATIENCE, Shown, eventually, probe, puppet, start, state};

const ASLEEP: CoreState = CoreState::Asleep(Depth::SoftwareWait);

/// Long enough for everything that is on its way to arrive.
fn settle(runtime: &Runtime) {
    let before = runtime.stats().director.intervals;
    eventually("some intervals", || runtime.stats().director.intervals > before + 20);
}

fn home(runtime: &Runtime, core: u16) {
    eventually("the move", || runtime.stats().threads[0].home == CoreId(core));
}

/// A runtime with one I/O thread.
fn one_thread(cores: usize, on: u16) -> (Runtime, Arc<Shown>) {
    let runtime = start(cores);
    let (shown, thread) = probe(0);
    runtime.adopt(CoreId(on), thread);
    (runtime, shown)
}

#[test]
fn a_core_that_is_about_to_get_a_thread_is_not_put_to_sleep() {
    let (runtime, _shown) = one_thread(2, 0);
    let (strings, policy) = puppet(EVERY_MS);
    strings.sleep(1);
    runtime.set_policy(policy).expect("it needs nothing");
    eventually("sleep", || state(&runtime, 1) == ASLEEP);
    let (strings, policy) = puppet(EVERY_MS);
    strings.go(0, 1);
    strings.sleep(1);
    runtime.set_policy(policy).expect("it needs nothing");
    assert_eq!(strings.refused.recv_timeout(PATIENCE).expect("a refusal").1, Refusal::NotEmpty);
    home(&runtime, 1);
}

#[test]
fn how_a_thread_waits_does_not_change_what_its_core_was_told() {
    let (runtime, _shown) = one_thread(2, 1);
    let (strings, policy) = puppet(EVERY_MS);
    strings.sleep(1);
    strings.say(Command::Completions { thread: ThreadId(0), mode: CompletionMode::Interrupt });
    strings.go(0, 0);
    runtime.set_policy(policy).expect("it needs nothing");
    home(&runtime, 0);
    eventually("sleep", || state(&runtime, 1) == ASLEEP);
}

#[test]
fn a_core_that_a_thread_only_passes_through_sleeps_as_it_was_told() {
    let (runtime, _shown) = one_thread(3, 0);
    for _ in 0..200 {
        let (strings, policy) = puppet(EVERY_MS);
        strings.go(0, 1);
        runtime.set_policy(policy).expect("it needs nothing");
        let (strings, policy) = puppet(EVERY_MS);
        strings.go(0, 2);
        strings.sleep(1);
        runtime.set_policy(policy).expect("it needs nothing");
        home(&runtime, 2);
        eventually("sleep", || state(&runtime, 1) == ASLEEP);
        let (strings, policy) = puppet(EVERY_MS);
        strings.say(Command::Wake { core: CoreId(1) });
        strings.go(0, 0);
        runtime.set_policy(policy).expect("it needs nothing");
        home(&runtime, 0);
        eventually("its wake-up", || state(&runtime, 1) == CoreState::Awake);
    }
}

#[test]
fn a_new_policy_finds_no_core_that_falls_asleep_later_by_the_last_one_s_command() {
    let (runtime, _shown) = one_thread(2, 1);
    let (strings, policy) = puppet(EVERY_MS);
    strings.sleep(1); // it owns a thread: as soon as it does not
    runtime.set_policy(policy).expect("it needs nothing");
    let (strings, policy) = puppet(EVERY_MS);
    strings.go(0, 0);
    runtime.set_policy(policy).expect("it needs nothing");
    home(&runtime, 0);
    settle(&runtime);
    assert_eq!(state(&runtime, 1), CoreState::Awake);
}

#[test]
fn a_runtime_that_was_stopped_answers() {
    let (done, finished) = mpsc::channel();
    std::thread::spawn(move || {
        let mut runtime = start(2);
        runtime.stop();
        let _ = runtime.set_policy(puppet(EVERY_MS).1);
        let _ = done.send(runtime.view().is_none());
    });
    assert_eq!(finished.recv_timeout(PATIENCE), Ok(true));
}

/// Asks to be needed at `needed_ns` after the start, and never again once an interval has come after it.
struct Sleepy {
    wants: Wants,
    needed_ns: u64,
    completions: CompletionMode,
    told: Arc<Told>,
}

#[derive(Default)]
struct Told {
    requests: AtomicU64,
    intervals: AtomicU64,
    /// Intervals before the last tick.
    intervals_before: AtomicU64,
}

impl Policy for Sleepy {
    fn name(&self) -> &'static str {
        "sleepy"
    }
    fn wants(&self) -> Wants {
        self.wants.clone()
    }
    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        out.extend((0..start.homes.len()).map(|thread| {
            let thread = ThreadId(thread as u16);
            Command::Completions { thread, mode: self.completions }
        }));
        let empty = start.topology.workers().filter(|core| !start.homes.contains(core));
        out.extend(empty.map(|core| Command::Sleep { core, goal: SleepGoal::SHALLOWEST }));
        self.needed_ns = start.now_ns.saturating_add(self.needed_ns);
        Ok(Next { needed_ns: self.needed_ns, awake_ns: 0 })
    }
    fn on_tick(&mut self, tick: &Tick<'_>, _out: &mut Vec<Command>) -> Next {
        self.told.intervals_before.store(self.told.intervals.load(SeqCst), SeqCst);
        self.told.requests.fetch_add(tick.counts.iter().map(|count| u64::from(count.requests)).sum(), SeqCst);
        Next { needed_ns: self.needed_ns, awake_ns: 0 }
    }
    fn on_interval(&mut self, sample: &Sample<'_>, _out: &mut Vec<Command>) -> Next {
        self.told.intervals.fetch_add(1, SeqCst);
        if sample.now_ns >= self.needed_ns {
            self.needed_ns = NEVER;
        }
        Next { needed_ns: self.needed_ns, awake_ns: 0 }
    }
}

fn sleepy(needed_ns: u64, interval_ns: u64, completions: CompletionMode) -> (Arc<Told>, Box<Sleepy>) {
    let told = Arc::<Told>::default();
    let wants = Wants { tick_ns: Some(10_000), interval_ns: Some(interval_ns), ..Wants::default() };
    (Arc::clone(&told), Box::new(Sleepy { wants, needed_ns, completions, told }))
}

/// Two cores that may sleep when nothing has come for `quiet_ns`, and a thread that can wait.
fn waiting_thread(on: u16, quiet_ns: u64) -> (Runtime, Arc<Shown>) {
    let options = RuntimeOptions::new(vec![None; 2], Idle::Yield);
    let options = RuntimeOptions { quiet: QuietTime::Fixed(quiet_ns), monitor: None, ..options };
    let runtime = Runtime::start(&options).expect("starts");
    let (shown, thread) = probe(0);
    shown.can_wait.store(true, SeqCst);
    runtime.adopt(CoreId(on), thread);
    (runtime, shown)
}

#[test]
fn a_quiet_server_whose_policy_waits_for_an_interval_does_not_spin() {
    let (runtime, _shown) = waiting_thread(0, 0);
    // Needed long before the interval that is due: the waits end at that moment and find nothing to do yet.
    let (told, policy) = sleepy(10_000_000, 400_000_000, CompletionMode::Poll);
    runtime.set_policy(policy).expect("it needs nothing");
    eventually("the interval", || told.intervals.load(SeqCst) == 1);
    let wakes = runtime.stats().reactors[0].asleep[2].wakes;
    assert!(wakes < 100, "{wakes} waits that did not wait");
}

#[test]
fn intervals_keep_to_their_grid_and_a_server_that_slept_through_some_begins_anew() {
    let (runtime, shown) = waiting_thread(0, 0);
    let (told, policy) = sleepy(NEVER, 300_000_000, CompletionMode::Poll);
    runtime.set_policy(policy).expect("it needs nothing");
    std::thread::sleep(Duration::from_millis(350));
    arrives(&shown);
    eventually("the request", || told.requests.load(SeqCst) == 1);
    assert_eq!(told.intervals_before.load(SeqCst), 0, "the interval that has ended was quiet");
}

fn arrives(shown: &Shown) {
    shown.waiting.store(1, SeqCst);
    rustix::io::write(shown.bell.get().expect("a bell"), &1_u64.to_ne_bytes()).expect("rung");
}

#[test]
fn the_main_core_watches_while_another_may_get_requests() {
    let (runtime, shown) = waiting_thread(1, 0);
    let (told, policy) = sleepy(NEVER, 1_000_000_000, CompletionMode::Interrupt);
    runtime.set_policy(policy).expect("it needs nothing");
    eventually("a wait", || state(&runtime, 1) == ASLEEP);
    std::thread::sleep(Duration::from_millis(20)); // for the main core to sleep, if it does
    arrives(&shown);
    eventually("the tick", || told.requests.load(SeqCst) == 1);
}

/// Lets core 1 sleep, wakes it, and says in what state it finds it in the next sample.
struct Rouser {
    asked: Option<CoreState>,
    finds: mpsc::Sender<CoreState>,
}

impl Policy for Rouser {
    fn name(&self) -> &'static str {
        "rouser"
    }
    fn wants(&self) -> Wants {
        Wants { interval_ns: Some(1), ..EVERY_MS }
    }
    fn start(&mut self, start: &Start<'_>, _out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        Ok(Next::at(start.now_ns))
    }
    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        let (core, found) = (CoreId(1), sample.cores[1].state);
        match self.asked {
            Some(CoreState::Asleep(_)) if found == ASLEEP => {
                out.push(Command::Wake { core });
                self.asked = Some(CoreState::Awake);
            }
            Some(CoreState::Asleep(_)) => {}
            asked => {
                if asked.is_some() {
                    let _ = self.finds.send(found);
                }
                out.push(Command::Sleep { core, goal: SleepGoal::SHALLOWEST });
                self.asked = Some(ASLEEP);
            }
        }
        Next::at(sample.now_ns)
    }
}

#[test]
fn a_core_that_is_being_woken_is_shown_awake() {
    let options = RuntimeOptions::new(vec![None; 2], Idle::Spin); // one that yields looks again only when the other is up
    let runtime = Runtime::start(&RuntimeOptions { monitor: None, ..options }).expect("starts");
    let (finds, found) = mpsc::channel();
    runtime.set_policy(Box::new(Rouser { asked: None, finds })).expect("it needs nothing");
    for _ in 0..100 {
        assert_eq!(found.recv_timeout(PATIENCE), Ok(CoreState::Awake));
    }
}
