//! The director with simulated cores.

use std::sync::mpsc::sync_channel;

use pilotlight_plant::{Cost, Depth, SleepGoal, Wants};
use proptest::prelude::*;

use super::*;
use crate::inbox::Inbox;

/// Sends the scripted commands of each tick.
struct Script(Vec<Vec<Command>>);

impl Script {
    fn next(&mut self, out: &mut Vec<Command>) {
        if !self.0.is_empty() {
            out.extend(self.0.remove(0));
        }
    }
}

impl Policy for Script {
    fn name(&self) -> &'static str {
        "script"
    }
    fn wants(&self) -> Wants {
        Wants { tick_ns: Some(10_000), ..Wants::default() }
    }
    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        self.next(out);
        Ok(Next::with_idle_timeout(start.now_ns, 0))
    }
    fn on_tick(&mut self, tick: &Tick<'_>, out: &mut Vec<Command>) -> Next {
        self.next(out);
        Next::with_idle_timeout(if self.0.is_empty() { NEVER } else { tick.now_ns }, 0)
    }
}

/// A director and the rings of its cores.
struct Fixture {
    director: Director,
    inboxes: Vec<Inbox<Event>>,
    cells: Vec<Arc<ThreadCell>>,
    now_ns: u64,
}

fn fixture(cores: u16, ring: usize, threads: usize, script: Vec<Vec<Command>>) -> Fixture {
    let inboxes: Vec<Inbox<Event>> = (0..cores).map(|_| Inbox::new(ring)).collect();
    let peers: Arc<[Peer]> = inboxes.iter().map(|own| Peer { events: own.sender(), cell: Arc::default() }).collect();
    let none = Cost::Measured(0);
    let cost = |depth| pilotlight_plant::SleepCost { depth, waker: none, wake: none };
    let capabilities = Capabilities {
        sleeps: vec![cost(Depth::MonitorWait)],
        moves: Some(none),
        interrupts: true,
        ..Capabilities::default()
    };
    let topology = Topology::flat(cores).expect("cores");
    let mut director = Director::new(peers, topology, capabilities, &DirectorOptions::default(), Arc::default());
    let cells: Vec<Arc<ThreadCell>> = (0..threads).map(|_| Arc::default()).collect();
    let (reply, answer) = sync_channel(1);
    director.instruct(Instruction::Policy { policy: Box::new(Script(script)), cells: cells.clone(), reply });
    answer.recv().expect("an answer").expect("it needs nothing");
    Fixture { director, inboxes, cells, now_ns: clock::now_ns() }
}

impl Fixture {
    /// The next tick, in which the first I/O thread has got a request.
    fn tick(&mut self) {
        self.now_ns += 1_000_000;
        add(&self.cells[0].requests, 1);
        self.director.step(self.now_ns);
    }

    fn fall_asleep(&self, core: usize, depth: Depth) {
        self.director.peers[core].cell.fall_asleep(depth, self.now_ns);
    }

    /// What a core finds: its depth after the last `Sleep`, unless `Wake` came after it.
    fn sleep_of(&mut self, core: usize, mut sleep: Option<Depth>) -> Option<Depth> {
        while let Some(event) = self.inboxes[core].take() {
            match event {
                Event::Sleep(depth) => sleep = Some(depth),
                Event::Wake { .. } => sleep = None,
                _ => {}
            }
        }
        sleep
    }
}

fn sleep(core: u16) -> Command {
    Command::Sleep { core: CoreId(core), goal: SleepGoal::SHALLOWEST }
}

#[test]
fn a_core_entering_deep_sleep_can_be_made_shallow() {
    let mut fixture = fixture(2, 16, 1, vec![vec![sleep(1)]]);
    assert_eq!(fixture.sleep_of(1, None), Some(Depth::MonitorWait));
    fixture.fall_asleep(1, Depth::MonitorWait);
    fixture.director.before_sleep(fixture.now_ns, 0);
    assert_eq!(fixture.sleep_of(1, None), Some(Depth::ServerSleep));
    fixture.director.peers[1].cell.wake(fixture.now_ns); // to fall asleep again, deeper, soon
    fixture.director.after_sleep(fixture.now_ns);
    fixture.tick();
    assert_eq!(fixture.sleep_of(1, None), Some(Depth::MonitorWait));
}

#[test]
fn a_core_that_is_being_woken_does_not_sleep_deeper() {
    let mut fixture = fixture(2, 16, 1, vec![vec![sleep(1)], vec![Command::Wake { core: CoreId(1) }]]);
    fixture.fall_asleep(1, Depth::MonitorWait);
    fixture.tick();
    fixture.director.before_sleep(fixture.now_ns, 0);
    assert_eq!(fixture.sleep_of(1, None), None);
    assert!(!fixture.director.may_sleep(fixture.now_ns, 0), "a core is awake");
}

/// Whether the first core has received a hand-over.
fn is_handed(fixture: &mut Fixture) -> bool {
    std::iter::from_fn(|| fixture.inboxes[0].take()).any(|event| matches!(event, Event::HandOver { .. }))
}

#[test]
fn the_old_core_serves_until_the_woken_one_is_awake() {
    for (depth, at_once) in [(Depth::SoftwareWait, false), (Depth::ServerSleep, false), (Depth::MonitorWait, true)] {
        let commands = vec![Command::Wake { core: CoreId(1) }, Command::Move { thread: ThreadId(0), to: CoreId(1) }];
        let mut fixture = fixture(2, 16, 1, vec![vec![sleep(1)], commands]);
        fixture.fall_asleep(1, depth);
        fixture.tick();
        assert_eq!(fixture.sleep_of(1, Some(depth)), None, "it is woken");
        assert_eq!(is_handed(&mut fixture), at_once, "{depth}: not awake yet");
        fixture.director.peers[1].cell.wake(fixture.now_ns);
        fixture.director.step(fixture.now_ns);
        assert_eq!(is_handed(&mut fixture), !at_once, "{depth}: awake now");
    }
}

/// Commands about three cores and four I/O threads.
fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        (1..3_u16).prop_map(sleep),
        (0..3_u16).prop_map(|core| Command::Wake { core: CoreId(core) }),
        (0..4_u16, 0..3_u16).prop_map(|(thread, to)| Command::Move { thread: ThreadId(thread), to: CoreId(to) }),
    ]
}

proptest! {
    /// With rings of one event that are read rarely, the last command takes effect for every core and I/O thread.
    #[test]
    fn full_rings_lose_no_command(script in prop::collection::vec(prop::collection::vec(command(), 0..6), 1..20), reads in any::<u64>()) {
        let ticks = script.len();
        let mut fixture = fixture(3, 1, 4, script.clone());
        let mut sleeps = [None; 3];
        let mut hands: Vec<(ThreadId, CoreId)> = Vec::new();
        for round in 0..ticks + 400 {
            if round < ticks {
                fixture.tick();
            } else {
                fixture.director.step(fixture.now_ns);
            }
            for (core, sleep) in sleeps.iter_mut().enumerate() {
                if round < ticks && reads >> ((round * 3 + core) % 64) & 1 == 0 {
                    continue;
                }
                while let Some(event) = fixture.inboxes[core].take() {
                    match event {
                        Event::Sleep(depth) => *sleep = Some(depth),
                        Event::Wake { .. } => *sleep = None,
                        Event::HandOver { thread, to } => {
                            prop_assert_eq!(fixture.cells[thread.index()].home().index(), core, "handed by its home");
                            hands.push((thread, to));
                        }
                        _ => {}
                    }
                }
            }
            // The hand-overs arrive a round later.
            for (thread, to) in hands.drain(..) {
                fixture.cells[thread.index()].home.store(to.0, std::sync::atomic::Ordering::Release);
            }
        }
        prop_assert!(fixture.director.has_no_pending_work(), "pending work");
        let asleep: Vec<bool> = sleeps.iter().map(Option::is_some).collect();
        prop_assert_eq!(&asleep, &fixture.director.commanded_asleep);
        for thread in 0..4_u16 {
            let last = script.iter().flatten().filter_map(|command| match *command {
                Command::Move { thread: moved, to } if moved.0 == thread => Some(to),
                _ => None,
            }).next_back();
            prop_assert_eq!(fixture.cells[usize::from(thread)].home(), last.unwrap_or(CoreId(0)));
        }
    }
}
