//! I/O threads that always have work, and take long for it: neither the policy nor the orders for others wait for a whole round.

use std::sync::Mutex;
use std::sync::mpsc::sync_channel;

use pilotlight_plant::{Capabilities, Command, Next, Policy, Start, Tick, Topology, Unsupported, Wants};

use super::*;
use crate::director::{Director, DirectorOptions};
use crate::instruction::Instruction;

/// Time of a poll, in nanoseconds: ten ticks.
const POLL_NS: u64 = 100_000;
const TICK_NS: u64 = 10_000;

struct Flooded {
    id: u32,
    polled: Arc<Mutex<Vec<u32>>>,
    /// What arrives on this core during the poll.
    event: Box<dyn FnMut(u32) + Send>,
}

impl IoThread for Flooded {
    fn id(&self) -> u32 {
        self.id
    }
    fn poll(&mut self, now_ns: u64) -> Polled {
        self.polled.lock().unwrap().push(self.id);
        (self.event)(self.id);
        while clock::now_ns() < now_ns + POLL_NS {}
        Polled { busy: true, requests: 1, ..Polled::default() }
    }
}

/// A reactor with these I/O threads, and the order of their polls.
fn flooded(threads: u32, event: impl Fn(u32, &Peer) + Clone + Send + 'static) -> (Vec<Reactor>, Arc<Mutex<Vec<u32>>>) {
    let mut reactors = reactors(2, 64);
    let polled: Arc<Mutex<Vec<u32>>> = Arc::default();
    for id in 0..threads {
        let (peers, event) = (Arc::clone(&reactors[0].peers), event.clone());
        let thread = Flooded { id, polled: Arc::clone(&polled), event: Box::new(move |id| event(id, &peers[0])) };
        reactors[0].adopt(Slot::new(Box::new(thread), Arc::default()));
    }
    (reactors, polled)
}

#[test]
fn an_order_waits_for_one_poll_at_most() {
    let hand = |id, own: &Peer| {
        let event = Event::HandOver { thread: ThreadId(3), to: CoreId(1) };
        assert!(id != 1 || own.events.send(event).is_ok());
    };
    let (mut reactors, polled) = flooded(4, hand);
    let mut now_ns = clock::now_ns();
    assert_eq!(reactors[0].round(&mut now_ns), Some(true));
    assert_eq!(*polled.lock().unwrap(), [0, 1], "the round ends where the order arrives");
    assert_eq!(reactors[0].round(&mut now_ns), Some(true));
    assert_eq!(reactors[0].slots.len(), 3, "handed over before another poll");
    assert_eq!(*polled.lock().unwrap(), [0, 1, 2, 0, 1], "the next round goes on where that one ended");
}

#[test]
fn events_in_every_poll_starve_no_thread() {
    let (mut reactors, polled) = flooded(5, |_, own: &Peer| assert!(own.events.send(Event::EndWait).is_ok()));
    let mut now_ns = clock::now_ns();
    (0..50).for_each(|_| assert_eq!(reactors[0].round(&mut now_ns), Some(true)));
    let polled = polled.lock().unwrap();
    assert!((0..5).all(|id| polled.iter().filter(|&&one| one == id).count() == 10), "{polled:?}");
}

/// Notes its ticks.
struct Ticks;

impl Policy for Ticks {
    fn name(&self) -> &'static str {
        "ticks"
    }
    fn wants(&self) -> Wants {
        Wants { tick_ns: Some(TICK_NS), ..Wants::default() }
    }
    fn start(&mut self, start: &Start<'_>, _out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        Ok(Next::at(start.now_ns))
    }
    fn on_tick(&mut self, tick: &Tick<'_>, _out: &mut Vec<Command>) -> Next {
        Next::at(tick.now_ns)
    }
}

#[test]
fn a_tick_waits_for_one_poll_at_most() {
    let (mut reactors, _) = flooded(4, |_, _: &Peer| ());
    let topology = Topology::flat(2).expect("cores");
    let (cell, capabilities) = (Arc::default(), Capabilities::default());
    let peers = Arc::clone(&reactors[0].peers);
    let mut director = Director::new(peers, topology, capabilities, &DirectorOptions::default(), Arc::clone(&cell));
    let (reply, answer) = sync_channel(1);
    director.instruct(Instruction::Policy { policy: Box::new(Ticks), cells: vec![Arc::default(); 4], reply });
    answer.recv().expect("an answer").expect("it needs nothing");
    reactors[0].director = Some(director);
    let mut now_ns = clock::now_ns();
    assert_eq!(reactors[0].round(&mut now_ns), Some(true));
    assert_eq!(cell.stats().ticks, 4, "one after each poll of ten ticks");
}
