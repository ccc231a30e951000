//! The end of a server: requests in progress, reactors, flushes, and what they hold, with one deadline for all.
//!
//! # The problem
//! Anything that a stop waits for may never come: a request that a device keeps, a flush, a reactor in a call that does not
//! return, the memory of a namespace being unmapped. A system call that blocks cannot be taken back.
//!
//! # The algorithm
//! Each phase has a share of the time ([`Schedule`]), and what may block runs on OS threads that are left behind when their
//! time is over. Requests have four fifths: the rest is kept for the flush, so that a medium that keeps a request does not
//! cost the other namespaces theirs. Every namespace is flushed, all at the same time.
//!
//! # The properties
//! - Of each namespace that was not flushed, and of each whose requests did not come back, the error says so.
//! - Nothing that a device may still write to is unmapped (`thread/end.rs`).
//! - The stop waits for nothing after the deadline, except that a phase always has [`LEAST`]: so with a short deadline it
//!   can be three times that longer.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use super::{DrainError, Leftover, Server, Shared};
use crate::backend::{Backend, Completion, Op, Request, Submitted};
use crate::message::Message;

/// The least time for ending the reactors, for the flush, and for closing: what takes longer on an idle machine is stuck.
const LEAST: Duration = Duration::from_millis(500);
/// Time between two looks at what is waited for.
const LOOK: Duration = Duration::from_millis(1);

/// What I/O threads that end are told, and what they leave behind.
#[derive(Default)]
pub(crate) struct Ending {
    given_up: AtomicBool,
    left: Mutex<Left>,
}

#[derive(Default)]
struct Left {
    /// Connections with commands in progress that were cut.
    cut: usize,
    /// Subsystem, NSID and number of requests.
    abandoned: Vec<(usize, u32, usize)>,
}

impl Ending {
    /// From now on nobody waits for a backend.
    fn give_up(&self) {
        self.given_up.store(true, SeqCst);
    }

    pub(crate) fn has_given_up(&self) -> bool {
        self.given_up.load(SeqCst)
    }

    /// Notes what an I/O thread has left behind.
    pub(crate) fn note(&self, cut: usize, abandoned: &[(usize, u32, usize)]) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        left.cut += cut;
        for &(subsystem, nsid, requests) in abandoned {
            match left.abandoned.iter_mut().find(|one| (one.0, one.1) == (subsystem, nsid)) {
                Some(one) => one.2 += requests,
                None => left.abandoned.push((subsystem, nsid, requests)),
            }
        }
    }
}

/// When each phase of a stop is over.
struct Schedule {
    began: Instant,
    within: Duration,
}

impl Schedule {
    fn requests(&self) -> Instant {
        self.began + self.within / 5 * 4
    }

    fn reactors(&self) -> Instant {
        at_least(self.began + self.within / 10 * 9)
    }

    fn rest(&self) -> Instant {
        at_least(self.began + self.within)
    }
}

fn at_least(until: Instant) -> Instant {
    until.max(Instant::now() + LEAST)
}

impl Server {
    /// Stops: accepts nothing more, finishes what is in progress, flushes every namespace. Does not wait longer than
    /// `within` for all of it (a short time is stretched by at most 1.5 s); four fifths of that are for what is in progress.
    ///
    /// # Errors
    /// Says what was not finished or not flushed, by namespace. What still works on it is left behind: OS threads in calls
    /// that do not return, and the memory that devices may write to.
    pub fn stop(mut self, within: Duration) -> Result<(), DrainError> {
        let schedule = Schedule { began: Instant::now(), within };
        self.acceptor.stop();
        self.drain(schedule.requests());
        self.shared.ending.give_up();
        let stuck = self.runtime.stop_until(schedule.reactors());
        let mut leftovers = self.shared.left_behind();
        leftovers.extend(stuck.into_iter().map(|core| Leftover::Reactor(core.0)));
        leftovers.extend(flush_all(&self.shared, schedule.rest()));
        close(self, schedule.rest());
        if leftovers.is_empty() { Ok(()) } else { Err(DrainError { within, leftovers }) }
    }

    /// Has every I/O thread finish what is in progress, and waits for that until then.
    fn drain(&self, until: Instant) {
        for thread in self.threads.iter() {
            let mut message = Message::Drain;
            while let Err(back) = thread.send(message) {
                message = back;
                if Instant::now() >= until {
                    return;
                }
                std::thread::sleep(LOOK);
            }
        }
        while self.runtime.is_serving() && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
    }
}

impl Shared {
    /// What I/O threads have left behind.
    fn left_behind(&self) -> Vec<Leftover> {
        let left = self.ending.left.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = Arc::clone(&self.state().directory);
        let nqn = |at: usize| directory.subsystem(at).map_or("", |subsystem| subsystem.nqn()).to_owned();
        let abandoned = left.abandoned.iter();
        let mut leftovers: Vec<Leftover> = abandoned
            .map(|&(subsystem, nsid, requests)| Leftover::Requests { nqn: nqn(subsystem), nsid, requests })
            .collect();
        if left.cut > 0 {
            leftovers.push(Leftover::Connections(left.cut));
        }
        leftovers
    }

    /// Every namespace.
    fn backends(&self) -> Vec<(String, u32, Arc<dyn Backend>)> {
        let state = self.state();
        let of = |entry: &super::Entry| {
            let nqn = entry.subsystem.nqn().to_owned();
            let one = |(&nsid, namespace): (&u32, &super::Namespace)| {
                (nqn.clone(), nsid, Arc::clone(&namespace.storage.backend))
            };
            entry.namespaces.iter().map(one).collect::<Vec<_>>()
        };
        state.subsystems.iter().flat_map(of).collect()
    }
}

/// Why a namespace is not flushed.
enum Unflushed {
    Failed(String),
    Late,
}

type Flushed = (usize, Result<(), Unflushed>);

/// Flushes all namespaces, each on an OS thread; returns those that failed and those that had not returned by then.
fn flush_all(shared: &Shared, until: Instant) -> Vec<Leftover> {
    let (done, results) = channel();
    let backends = shared.backends();
    let mut names: Vec<Option<(String, u32)>> = Vec::new();
    for (at, (nqn, nsid, backend)) in backends.into_iter().enumerate() {
        names.push(Some((nqn, nsid)));
        start_flush(at, nsid, backend, until, &done);
    }
    drop(done);
    let mut leftovers = Vec::new();
    while let Some((at, result)) = next_result(&results, until) {
        let Some((nqn, nsid)) = names[at].take() else { continue };
        match result {
            Ok(()) => {}
            Err(Unflushed::Failed(reason)) => leftovers.push(Leftover::FlushFailed { nqn, nsid, reason }),
            Err(Unflushed::Late) => leftovers.push(Leftover::FlushLate { nqn, nsid }),
        }
    }
    let late = names.into_iter().flatten().map(|(nqn, nsid)| Leftover::FlushLate { nqn, nsid });
    leftovers.extend(late);
    leftovers.sort_by_key(|leftover| leftover.nsid());
    leftovers
}

fn start_flush(at: usize, nsid: u32, backend: Arc<dyn Backend>, until: Instant, done: &Sender<Flushed>) {
    let reply = done.clone();
    let body = move || {
        let result = flush(backend.as_ref(), until);
        drop(backend); // whoever has the result may be the last to hold the namespace
        let _ = reply.send((at, result));
    };
    if let Err(error) = Builder::new().name(format!("flush-{nsid}")).spawn(body) {
        let _ = done.send((at, Err(Unflushed::Failed(format!("the system has no thread for it: {error}")))));
    }
}

fn next_result(results: &Receiver<Flushed>, until: Instant) -> Option<Flushed> {
    results.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
}

/// Flushes a backend from an ordinary OS thread.
fn flush(backend: &dyn Backend, until: Instant) -> Result<(), Unflushed> {
    let failed = |error: &dyn std::fmt::Display| Unflushed::Failed(error.to_string());
    let mut channel = backend.open_channel(1).map_err(|error| failed(&error))?;
    let mut request = Request { tag: 0, op: Op::Flush, lba: 0, blocks: 0, buffer: None };
    loop {
        match channel.submit(request, pilotlight_reactor::clock::now_ns()) {
            Submitted::Done(completion) => return completion.result.map_err(|error| failed(&error)),
            Submitted::Pending => break,
            Submitted::Busy(back) => request = back,
        }
        if Instant::now() >= until {
            return Err(Unflushed::Late);
        }
        std::thread::yield_now();
    }
    let mut done: Vec<Completion> = Vec::with_capacity(1);
    loop {
        channel.poll(pilotlight_reactor::clock::now_ns(), &mut done);
        if let Some(completion) = done.pop() {
            return completion.result.map_err(|error| failed(&error));
        }
        if Instant::now() >= until {
            Box::leak(channel); // closing it waits for the flush
            return Err(Unflushed::Late);
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Drops what the server holds: namespaces, their threads and memory, the reaper. What is not done by then goes on alone.
/// Connections that were abandoned keep what I/O threads share, so the namespaces are taken out of it first.
fn close(server: Server, until: Instant) {
    let body = move || {
        let subsystems = std::mem::take(&mut server.shared.state().subsystems);
        drop(subsystems);
        drop(server);
    };
    let Ok(closing) = Builder::new().name("closing".to_owned()).spawn(body) else { return };
    while !closing.is_finished() && Instant::now() < until {
        std::thread::sleep(LOOK);
    }
}
