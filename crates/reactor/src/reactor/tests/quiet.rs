//! Many I/O threads on one reactor: those that have something to do are polled in the same round, the others not at all.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicBool;

use rustix::event::{EventfdFlags, eventfd};

use super::*;

/// What a test sees and sets of an I/O thread.
struct Controls {
    /// Readable until a poll has read it.
    socket: OwnedFd,
    needs_poll: AtomicBool,
    finish: AtomicBool,
    polls: AtomicU64,
    unreadable_polls: AtomicU64,
}

struct Quiet {
    id: u32,
    controls: Arc<Controls>,
}

impl IoThread for Quiet {
    fn id(&self) -> u32 {
        self.id
    }
    fn poll(&mut self, _now_ns: u64) -> Polled {
        self.controls.polls.fetch_add(1, SeqCst);
        let read = rustix::io::read(&self.controls.socket, &mut [0_u8; 8]).is_ok();
        let needed = self.controls.needs_poll.swap(false, SeqCst);
        Polled { busy: read || needed, finished: self.controls.finish.load(SeqCst), ..Polled::default() }
    }
    fn needs_poll(&mut self, _now_ns: u64) -> bool {
        self.controls.needs_poll.load(SeqCst) || self.controls.finish.load(SeqCst)
    }
    fn poll_unreadable(&mut self, _now_ns: u64) -> Polled {
        self.controls.unreadable_polls.fetch_add(1, SeqCst);
        let needed = self.controls.needs_poll.swap(false, SeqCst);
        Polled { busy: needed, finished: self.controls.finish.load(SeqCst), ..Polled::default() }
    }
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.controls.socket.as_fd())
    }
}

impl Controls {
    fn new() -> Arc<Self> {
        let socket = eventfd(0, EventfdFlags::NONBLOCK).expect("a descriptor");
        let (needs_poll, finish) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { socket, needs_poll, finish, polls: AtomicU64::new(0), unreadable_polls: AtomicU64::new(0) })
    }
    fn send(&self) {
        rustix::io::write(&self.socket, &1_u64.to_ne_bytes()).expect("room");
    }
    fn is_readable(&self) -> bool {
        let mut polled = [rustix::event::PollFd::new(&self.socket, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut polled, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(1)
    }
    fn polls(&self) -> (u64, u64) {
        (self.polls.load(SeqCst), self.unreadable_polls.load(SeqCst))
    }
}

struct Cores {
    reactors: Vec<Reactor>,
    threads: Vec<Arc<Controls>>,
    cells: Vec<Arc<ThreadCell>>,
    now_ns: u64,
    began_ns: u64,
}

impl Cores {
    /// Two reactors; all I/O threads are on the first.
    fn new(threads: u32) -> Self {
        let mut reactors = reactors(2, 64);
        let controls: Vec<Arc<Controls>> = (0..threads).map(|_| Controls::new()).collect();
        let cells: Vec<Arc<ThreadCell>> = (0..threads).map(|_| Arc::default()).collect();
        for (id, (controls, cell)) in (0..).zip(controls.iter().zip(&cells)) {
            let thread = Box::new(Quiet { id, controls: Arc::clone(controls) });
            reactors[0].adopt(Slot::new(thread, Arc::clone(cell)));
        }
        let now_ns = clock::now_ns();
        Self { reactors, threads: controls, cells, now_ns, began_ns: now_ns }
    }

    fn round(&mut self, core: usize) {
        assert!(self.reactors[core].round(&mut self.now_ns).is_some());
    }

    /// Rounds until every I/O thread of a core is quiet.
    fn settle(&mut self, core: usize) {
        for _ in 0..10_000 {
            if self.reactors[core].quiet == self.reactors[core].slots.len() && self.reactors[core].watch.is_settled() {
                return;
            }
            self.round(core);
        }
        panic!("I/O threads without work stay active");
    }

    fn hand_over(&mut self, thread: u16, to: u16) {
        let from = self.cells[usize::from(thread)].home();
        self.reactors[from.index()].hand_over(ThreadId(thread), CoreId(to));
    }

    fn polls(&self) -> Vec<(u64, u64)> {
        self.threads.iter().map(|controls| controls.polls()).collect()
    }

    fn is_on(&self, core: usize, thread: usize) -> bool {
        self.reactors[core].slots.iter().any(|slot| slot.id as usize == thread)
    }
}

#[test]
fn idle_threads_are_not_polled() {
    let mut cores = Cores::new(8);
    cores.settle(0);
    let before = cores.polls();
    (0..100).for_each(|_| cores.round(0));
    assert_eq!(cores.polls(), before);
}

#[test]
fn a_readable_descriptor_is_polled_for_until_a_poll_finds_no_work() {
    let mut cores = Cores::new(8);
    cores.settle(0);
    for thread in [0, 7, 3] {
        let before = cores.polls();
        cores.threads[thread].send();
        cores.round(0);
        let mut expected = before.clone();
        expected[thread].0 += 1;
        assert_eq!(cores.polls(), expected, "only these, in the same round");
        (0..10).for_each(|_| cores.round(0));
        expected[thread].0 += 1;
        assert_eq!(cores.polls(), expected, "once more, and then it is quiet again");
    }
}

#[test]
fn a_thread_that_needs_a_poll_is_polled_without_checking_its_descriptor() {
    let mut cores = Cores::new(8);
    cores.settle(0);
    let mut expected = cores.polls();
    cores.threads[5].needs_poll.store(true, SeqCst);
    cores.round(0);
    expected[5].1 += 1;
    assert_eq!(cores.polls(), expected);
}

#[test]
fn a_quiet_thread_that_moves_is_polled_on_its_new_core() {
    let mut cores = Cores::new(8);
    cores.settle(0);
    for (from, to) in [(0, 1), (1, 0), (0, 1)] {
        cores.hand_over(2, to);
        cores.threads[2].send(); // on its way
        let before = cores.polls();
        cores.round(from);
        assert_eq!(cores.polls(), before, "it does not live there any more");
        cores.round(to.into());
        assert_eq!(cores.polls()[2].0, before[2].0 + 1);
        cores.settle(0);
        assert!(from == 1 || cores.reactors[0].watch.is_settled(), "its old home has forgotten it");
        cores.threads[2].send();
        cores.round(to.into());
        assert!(!cores.threads[2].is_readable());
    }
}

#[test]
fn a_quiet_one_that_finishes_is_dropped() {
    let mut cores = Cores::new(8);
    cores.settle(0);
    cores.threads[1].finish.store(true, SeqCst);
    cores.threads[6].finish.store(true, SeqCst);
    cores.round(0);
    let finished: Vec<usize> = (0..8).filter(|&one| cores.cells[one].finished.load(Relaxed)).collect();
    assert_eq!((finished, cores.reactors[0].slots.len()), (vec![1, 6], 6));
    for thread in [0, 2, 3, 4, 5, 7] {
        let before = cores.polls();
        cores.threads[thread].send();
        cores.round(0);
        assert_eq!(cores.polls()[thread].0, before[thread].0 + 1, "I/O thread {thread}");
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Rounds { core: usize, count: u8 },
    Hand { thread: u16, to: u16 },
    Send(usize),
    Need(usize),
}

fn quiet_steps() -> impl Strategy<Value = Vec<Step>> {
    let rounds = (0..2_usize, prop_oneof![4 => 1..4_u8, 1 => 40..90_u8]);
    let step = prop_oneof![
        4 => rounds.prop_map(|(core, count)| Step::Rounds { core, count }),
        2 => (0..THREADS, 0..2_u16).prop_map(|(thread, to)| Step::Hand { thread, to }),
        3 => (0..usize::from(THREADS)).prop_map(Step::Send),
        1 => (0..usize::from(THREADS)).prop_map(Step::Need),
    ];
    prop::collection::vec(step, 0..200)
}

proptest! {
    /// A thread with work at the start of a round of its home is polled in it; and no time is lost or counted twice.
    #[test]
    fn a_thread_with_work_is_polled_in_the_same_round(steps in quiet_steps()) {
        let mut cores = Cores::new(THREADS.into());
        cores.settle(0);
        let settled = [0, 1].map(|core| busy_and_idle(&cores.reactors[core].cell));
        prop_assert_eq!(settled.iter().sum::<u64>(), cores.now_ns - cores.began_ns);
        for step in steps {
            match step {
                Step::Rounds { core, count } => for _ in 0..count {
                    let here: Vec<usize> = (0..cores.threads.len()).filter(|&thread| cores.is_on(core, thread)).collect();
                    cores.round(core);
                    for thread in here {
                        let controls = &cores.threads[thread];
                        prop_assert!(!controls.is_readable() && !controls.needs_poll.load(SeqCst), "I/O thread {}", thread);
                    }
                },
                Step::Hand { thread, to } => cores.hand_over(thread, to),
                Step::Send(thread) => cores.threads[thread].send(),
                Step::Need(thread) => cores.threads[thread].needs_poll.store(true, SeqCst),
            }
        }
        let of_cores: u64 = cores.reactors.iter().map(|one| busy_and_idle(&one.cell)).sum();
        let stats = cores.cells.iter().map(|cell| cell.stats());
        let of_threads: u64 = stats.map(|stats| stats.busy_ns + stats.idle_ns).sum();
        prop_assert_eq!(of_cores, cores.now_ns - cores.began_ns);
        let without_threads = cores.reactors[0].cell.idle_ns.load(Relaxed) + cores.reactors[1].cell.idle_ns.load(Relaxed);
        prop_assert!(of_threads <= of_cores && of_cores - of_threads <= without_threads);
    }
}

fn busy_and_idle(cell: &ReactorCell) -> u64 {
    cell.busy_ns.load(Relaxed) + cell.idle_ns.load(Relaxed)
}

#[test]
fn the_remainder_is_shared_in_turn() {
    let cores = Cores::new(48);
    let before: Vec<u64> = cores.cells.iter().map(|cell| cell.idle_ns.load(SeqCst)).collect();
    for _ in 0..48 {
        cores.reactors[0].share(2 * 48 + 5);
        add(&cores.reactors[0].cell.loops, 1);
    }
    for (cell, before) in cores.cells.iter().zip(before) {
        assert_eq!(cell.idle_ns.load(SeqCst) - before, 2 * 48 + 5);
    }
}
