//! Reactors stepped by the test, with event rings that are almost always full: every I/O thread stays in exactly one place.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use proptest::prelude::*;

use super::*;
use crate::cells::ThreadCell;
use crate::io_thread::{IoThread, Polled};

mod flood;
mod quiet;

/// Counts its polls, and in the end its drop.
struct Counted {
    id: u32,
    polls: Arc<[AtomicU64]>,
    drops: Arc<[AtomicU64]>,
}

impl IoThread for Counted {
    fn id(&self) -> u32 {
        self.id
    }
    fn poll(&mut self, _now_ns: u64) -> Polled {
        self.polls[self.id as usize].fetch_add(1, SeqCst);
        Polled::default()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.drops[self.id as usize].fetch_add(1, SeqCst);
    }
}

fn reactors(cores: u16, ring: usize) -> Vec<Reactor> {
    let inboxes: Vec<Inbox<Event>> = (0..cores).map(|_| Inbox::new(ring)).collect();
    let peers: Arc<[Peer]> = inboxes.iter().map(|own| Peer { events: own.sender(), cell: Arc::default() }).collect();
    inboxes.into_iter().zip(0..).map(|(inbox, id)| Reactor::new(CoreId(id), inbox, &peers, Idle::Spin)).collect()
}

const CORES: u16 = 3;
const THREADS: u16 = 8;

#[derive(Clone, Copy, Debug)]
enum Do {
    /// A round of a core.
    Round(u16),
    /// An order for an I/O thread, if it has come to where the last one sent it.
    Hand { thread: u16, to: u16 },
    /// Something that takes room in a ring.
    Fill(u16),
}

fn steps() -> impl Strategy<Value = Vec<Do>> {
    let hand = (0..THREADS, 0..CORES).prop_map(|(thread, to)| Do::Hand { thread, to });
    let step = prop_oneof![2 => (0..CORES).prop_map(Do::Round), 5 => hand, 2 => (0..CORES).prop_map(Do::Fill)];
    prop::collection::vec(step, 0..200)
}

fn all_home(reactors: &[Reactor], cells: &[Arc<ThreadCell>]) {
    for (thread, cell) in cells.iter().enumerate() {
        let owners: Vec<u16> = reactors
            .iter()
            .filter(|one| one.slots.iter().any(|slot| slot.thread.id() == thread as u32))
            .map(|one| one.id.0)
            .collect();
        assert_eq!(owners, [cell.home().0], "I/O thread {thread}");
    }
    for one in reactors {
        assert!(one.unsent.is_empty());
        assert_eq!(one.cell.io_threads.load(Relaxed), one.slots.len() as u64);
    }
    let sum = |of: fn(&ReactorCell) -> &std::sync::atomic::AtomicU64| {
        reactors.iter().map(|one| of(&one.cell).load(Relaxed)).sum::<u64>()
    };
    let (out, arrived) = (sum(|cell| &cell.moves_out), sum(|cell| &cell.moves_in));
    assert_eq!(arrived, out + u64::from(THREADS), "who left has arrived, and who was made");
    assert_eq!(cells.iter().map(|cell| cell.moves.load(Relaxed)).sum::<u64>(), out);
}

proptest! {
    #[test]
    fn a_full_event_ring_loses_nothing(steps in steps()) {
        let counters = || -> Arc<[AtomicU64]> { (0..THREADS).map(|_| AtomicU64::new(0)).collect() };
        let (polls, drops) = (counters(), counters());
        let mut reactors = reactors(CORES, 2);
        let cells: Vec<Arc<ThreadCell>> = (0..THREADS).map(|_| Arc::default()).collect();
        for (id, cell) in (0..).zip(&cells) {
            let thread = Box::new(Counted { id, polls: Arc::clone(&polls), drops: Arc::clone(&drops) });
            reactors[0].adopt(Slot::new(thread, Arc::clone(cell)));
        }
        let mut goals = [CoreId(0); THREADS as usize];
        let mut now = 0;
        for step in steps {
            match step {
                Do::Round(core) => {
                    let before: Vec<u64> = polls.iter().map(|polls| polls.load(SeqCst)).collect();
                    let one = &mut reactors[usize::from(core)];
                    prop_assert!(one.round(&mut now).is_some());
                    for slot in &one.slots {
                        let id = slot.thread.id() as usize;
                        prop_assert_eq!(polls[id].load(SeqCst), before[id] + 1, "who stays for want of room is served");
                    }
                }
                Do::Hand { thread, to } => {
                    let goal = &mut goals[usize::from(thread)];
                    let event = Event::HandOver { thread: ThreadId(thread), to: CoreId(to) };
                    let home = &reactors[goal.index()].peers[goal.index()];
                    if cells[usize::from(thread)].home() == *goal && home.events.send(event).is_ok() {
                        *goal = CoreId(to);
                    }
                }
                Do::Fill(core) => {
                    let _ = reactors[usize::from(core)].peers[usize::from(core)].events.send(Event::EndWait);
                }
            }
        }
        // Whatever is on its way arrives: a ring holds two, so some have to wait for room again and again.
        for _ in 0..4 * THREADS {
            for one in &mut reactors {
                prop_assert!(one.round(&mut now).is_some());
            }
        }
        all_home(&reactors, &cells);
        prop_assert!(cells.iter().zip(goals).all(|(cell, goal)| cell.home() == goal), "an order was forgotten");
        prop_assert!(drops.iter().all(|drops| drops.load(SeqCst) == 0));
        drop(reactors);
        prop_assert!(drops.iter().all(|drops| drops.load(SeqCst) == 1));
    }
}
