//! The polling loop of a core, and the runtime that starts and stops them.
//!
//! One loop: take the reactor's events, poll each I/O thread once in ring order, account the time. An I/O thread is only
//! ever touched by the reactor that owns its box, so nothing in it needs a lock.
//!
//! Properties: an I/O thread lives on exactly one reactor or in exactly one event ring; a stopped reactor has dropped
//! every I/O thread it owned; a panic on a reactor ends the process, since a target that serves half of its hosts is
//! worse than one that restarts.

use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;

use rustix::thread::{CpuSet, sched_setaffinity, sched_yield};

use crate::clock;
use crate::inbox::{Inbox, Sender};

/// Events that a reactor's ring holds at most.
const EVENT_RING: usize = 1024;

/// What one poll step of an I/O thread came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polled {
    /// I/O commands that arrived in this step on I/O queues; admin commands (keep-alive) do not count.
    pub requests: u32,
    /// Whether any work was done.
    pub busy: bool,
    /// The I/O thread has nothing left to do and is to be dropped.
    pub finished: bool,
}

/// How an I/O thread learns that a backend has completed something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Completions {
    /// By being polled.
    #[default]
    Poll,
    /// So that it can wait for it in the kernel.
    Interrupt,
}

/// A lightweight thread that a reactor polls. It never blocks.
pub trait IoThread: Send {
    /// Identifies the I/O thread for [`ReactorHandle::move_thread`].
    fn id(&self) -> u32;

    /// One step: take what has arrived, do what can be done now, return. `now_ns` is monotonic time.
    fn poll(&mut self, now_ns: u64) -> Polled;

    /// How the thread learns of backend completions from now on: by being polled, or so that it can wait in the kernel
    /// for them.
    fn set_completions(&mut self, _how: Completions) {}

    /// Arms every wake-up of this thread (its inbox's doorbell, completions) and looks once more whether there is
    /// something to do. `None`: it has to be polled on, and nothing stays armed. `Some(until_ns)`: until then nothing
    /// happens unless [`IoThread::wait_fd`] becomes readable (`u64::MAX`: no timer).
    fn prepare_wait(&mut self, _now_ns: u64) -> Option<u64> {
        None
    }

    /// Readable (poll(2), POLLIN) when there is something to do.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The wait is over; called after every successful [`IoThread::prepare_wait`].
    fn end_wait(&mut self) {}
}

/// What a reactor does with a loop that found no work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// Polls on at once.
    #[default]
    Spin,
    /// Yields to the scheduler: for tests with more reactors than CPUs. Figures never come from it.
    Yield,
}

/// How to start a [`Runtime`].
#[derive(Clone, Debug)]
pub struct RuntimeOptions {
    /// One reactor for each core; `None` leaves that reactor unpinned.
    pub cores: Vec<Option<u32>>,
    /// What idle loops do.
    pub idle: Idle,
}

/// Why a [`Runtime`] did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system refused to pin to this core.
    #[error("cannot run on core {core}: {source}; name cores that this process may use (see `taskset -p $$`)")]
    Pin {
        /// The core.
        core: u32,
        /// What the system said.
        source: std::io::Error,
    },
    /// The system refused a new OS thread.
    #[error("cannot start a reactor thread: {0}")]
    Spawn(std::io::Error),
}

enum Event {
    Adopt(Box<dyn IoThread>),
    Move { thread: u32, to: ReactorHandle },
    Stop,
}

/// A running reactor, to hand I/O threads to.
#[derive(Clone)]
pub struct ReactorHandle {
    events: Sender<Event>,
    counters: Arc<Counters>,
}

/// Written by the reactor alone, read by anyone.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counters {
    loops: AtomicU64,
    busy_ns: AtomicU64,
    idle_ns: AtomicU64,
    requests: AtomicU64,
    io_threads: AtomicU64,
    moves: AtomicU64,
    cpu_ns: AtomicU64,
}

/// What a reactor has done since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReactorStats {
    /// Loops.
    pub loops: u64,
    /// Time in poll steps that found work, in nanoseconds.
    pub busy_ns: u64,
    /// Time in poll steps that found none, in nanoseconds.
    pub idle_ns: u64,
    /// CPU time of the OS thread, in nanoseconds; renewed every few thousand loops.
    pub cpu_ns: u64,
    /// Requests that arrived.
    pub requests: u64,
    /// I/O threads living here now.
    pub io_threads: u64,
    /// I/O threads handed over to other reactors.
    pub moves: u64,
}

impl ReactorHandle {
    /// Gives an I/O thread a home here. Waits for room in the event ring, which a running reactor makes at once.
    pub fn adopt(&self, thread: Box<dyn IoThread>) {
        self.send(Event::Adopt(thread));
    }

    /// Hands the I/O thread `thread` over to `to`; nothing happens if it does not live here.
    pub fn move_thread(&self, thread: u32, to: &Self) {
        self.send(Event::Move { thread, to: to.clone() });
    }

    /// What the reactor has done so far.
    #[must_use]
    pub fn stats(&self) -> ReactorStats {
        let c = &self.counters;
        ReactorStats {
            loops: c.loops.load(Relaxed),
            busy_ns: c.busy_ns.load(Relaxed),
            idle_ns: c.idle_ns.load(Relaxed),
            cpu_ns: c.cpu_ns.load(Relaxed),
            requests: c.requests.load(Relaxed),
            io_threads: c.io_threads.load(Relaxed),
            moves: c.moves.load(Relaxed),
        }
    }

    fn send(&self, mut event: Event) {
        while let Err(back) = self.events.send(event) {
            event = back;
            sched_yield();
        }
    }
}

/// Running reactors; dropped, they stop and drop their I/O threads.
pub struct Runtime {
    reactors: Vec<ReactorHandle>,
    joins: Vec<JoinHandle<()>>,
}

impl Runtime {
    /// Starts one reactor per core.
    ///
    /// # Errors
    /// If a core cannot be used or the system has no thread left; nothing keeps running then.
    pub fn start(options: &RuntimeOptions) -> Result<Self, StartError> {
        let mut runtime = Self { reactors: Vec::new(), joins: Vec::new() };
        for (index, &core) in options.cores.iter().enumerate() {
            runtime.spawn(index, core, options.idle)?;
        }
        Ok(runtime)
    }

    fn spawn(&mut self, index: usize, core: Option<u32>, idle: Idle) -> Result<(), StartError> {
        let inbox = Inbox::new(EVENT_RING);
        let counters = Arc::new(Counters::default());
        let handle = ReactorHandle { events: inbox.sender(), counters: Arc::clone(&counters) };
        let (started, start) = std::sync::mpsc::channel();
        let body = move || {
            let pinned = core.map_or(Ok(()), pin);
            let failed = pinned.is_err();
            let _ = started.send(pinned);
            if failed {
                return;
            }
            let mut reactor = Reactor { inbox, threads: Vec::new(), counters, idle };
            if catch_unwind(AssertUnwindSafe(|| reactor.run())).is_err() {
                eprintln!(
                    "pilotlight: a reactor panicked (see above); ending the process so that it can restart clean"
                );
                std::process::abort();
            }
        };
        let join =
            std::thread::Builder::new().name(format!("reactor-{index}")).spawn(body).map_err(StartError::Spawn)?;
        self.joins.push(join);
        self.reactors.push(handle);
        match start.recv() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(source)) => Err(StartError::Pin { core: core.unwrap_or_default(), source }),
            Err(_) => Err(StartError::Spawn(std::io::ErrorKind::Other.into())),
        }
    }

    /// The reactors, in the order of the cores they were started with.
    #[must_use]
    pub fn reactors(&self) -> &[ReactorHandle] {
        &self.reactors
    }

    /// Stops every reactor, dropping the I/O threads that still live there.
    pub fn stop(&mut self) {
        for (reactor, join) in self.reactors.iter().zip(&self.joins) {
            if !join.is_finished() {
                reactor.send(Event::Stop);
            }
        }
        for join in self.joins.drain(..) {
            let _ = join.join();
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.stop();
    }
}

fn pin(core: u32) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    if core as usize >= CpuSet::MAX_CPU {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    set.set(core as usize);
    Ok(sched_setaffinity(None, &set)?)
}

struct Reactor {
    inbox: Inbox<Event>,
    threads: Vec<Box<dyn IoThread>>,
    counters: Arc<Counters>,
    idle: Idle,
}

/// Loops between two readings of the OS thread's CPU time.
const CPU_TIME_EVERY: u64 = 4096;

impl Reactor {
    fn run(&mut self) {
        let mut now = clock::now_ns();
        for loops in 1.. {
            while let Some(event) = self.inbox.take() {
                if !self.apply(event) {
                    return;
                }
            }
            let before = now;
            let busy = self.poll_all(&mut now);
            if self.threads.is_empty() {
                now = clock::now_ns();
                add(&self.counters.idle_ns, now - before);
            }
            add(&self.counters.loops, 1);
            if loops % CPU_TIME_EVERY == 0 {
                self.counters.cpu_ns.store(clock::thread_cpu_ns(), Relaxed);
            }
            if !busy {
                self.rest();
            }
        }
    }

    fn apply(&mut self, event: Event) -> bool {
        match event {
            Event::Adopt(thread) => self.threads.push(thread),
            Event::Move { thread, to } => {
                if let Some(at) = self.threads.iter().position(|t| t.id() == thread) {
                    to.adopt(self.threads.remove(at));
                    add(&self.counters.moves, 1);
                }
            }
            Event::Stop => return false,
        }
        self.counters.io_threads.store(self.threads.len() as u64, Relaxed);
        true
    }

    /// Polls each I/O thread once; one clock reading per step, which ends it and begins the next.
    fn poll_all(&mut self, now: &mut u64) -> bool {
        let mut any = false;
        let mut at = 0;
        while at < self.threads.len() {
            let polled = self.threads[at].poll(*now);
            let end = clock::now_ns();
            let spent = if polled.busy { &self.counters.busy_ns } else { &self.counters.idle_ns };
            add(spent, end - *now);
            *now = end;
            if polled.requests > 0 {
                add(&self.counters.requests, u64::from(polled.requests));
            }
            any |= polled.busy;
            if polled.finished {
                drop(self.threads.remove(at));
                self.counters.io_threads.store(self.threads.len() as u64, Relaxed);
            } else {
                at += 1;
            }
        }
        any
    }

    fn rest(&self) {
        match self.idle {
            Idle::Spin => std::hint::spin_loop(),
            Idle::Yield => sched_yield(),
        }
    }
}

/// Adds to a counter that only this reactor writes: a plain load and store, no locked instruction.
fn add(counter: &AtomicU64, value: u64) {
    counter.store(counter.load(Relaxed) + value, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// Reports the OS thread that polls it, until told to finish.
    struct Probe {
        id: u32,
        seen: mpsc::Sender<std::thread::ThreadId>,
        inbox: Inbox<()>,
    }

    impl IoThread for Probe {
        fn id(&self) -> u32 {
            self.id
        }
        fn poll(&mut self, _now_ns: u64) -> Polled {
            let _ = self.seen.send(std::thread::current().id());
            Polled { requests: 1, busy: true, finished: self.inbox.take().is_some() }
        }
    }

    fn two_reactors() -> Runtime {
        Runtime::start(&RuntimeOptions { cores: vec![None, None], idle: Idle::Yield }).expect("starts")
    }

    #[test]
    fn a_moved_thread_is_polled_by_its_new_home_only() {
        let runtime = two_reactors();
        let (seen, polls) = mpsc::channel();
        let inbox = Inbox::new(1);
        runtime.reactors()[0].adopt(Box::new(Probe { id: 7, seen, inbox }));
        let first = polls.recv().expect("polled");
        runtime.reactors()[0].move_thread(7, &runtime.reactors()[1]);
        let second = polls.iter().find(|&t| t != first).expect("polled elsewhere");
        assert!(polls.iter().take(1000).all(|t| t == second), "the old home polled again");
        assert_eq!(runtime.reactors()[0].stats().io_threads, 0);
        assert_eq!(runtime.reactors()[0].stats().moves, 1);
        assert_eq!(runtime.reactors()[1].stats().io_threads, 1);
    }

    #[test]
    fn a_finished_thread_is_dropped() {
        let runtime = two_reactors();
        let (seen, polls) = mpsc::channel();
        let inbox = Inbox::new(1);
        let finish = inbox.sender();
        runtime.reactors()[1].adopt(Box::new(Probe { id: 1, seen, inbox }));
        finish.send(()).expect("room");
        // The sender lives in the probe: the channel closes when the probe is dropped.
        let polled = polls.iter().count() as u64;
        assert!(polled >= 1);
    }

    #[test]
    fn a_core_that_does_not_exist_is_named() {
        let options = RuntimeOptions { cores: vec![Some(1023)], idle: Idle::Yield };
        let Err(error) = Runtime::start(&options) else { panic!("started on core 1023") };
        assert!(error.to_string().contains("core 1023"), "{error}");
    }
}
