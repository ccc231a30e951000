//! Stopping a server: requests in progress, reactors, flushes and closing, with one deadline.
//!
//! # The problem
//! A stop may wait for operations that never end: a request in a device, a flush, a reactor in a blocking call, unmapping a
//! namespace's memory. A blocking system call cannot be cancelled.
//!
//! # The algorithm
//! Each phase has a part of the time ([`Schedule`]), and blocking operations run on OS threads that are abandoned when their
//! time has expired. Requests have four fifths; the rest is for the flush, so that a medium with a stuck request does not
//! prevent the flushes of other namespaces. All namespaces are flushed concurrently.
//!
//! # The properties
//! - The error lists each namespace that was not flushed, and each with requests in flight.
//! - Memory that a device may still write to is not unmapped (`thread/end.rs`).
//! - The stop does not exceed the deadline, except that each of three phases always has [`MIN_PHASE`].

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use pilotlight_storage::{Backend, Completion, Op, Request, Submitted};

use super::{DrainError, Leftover, Server, Shared, failure_log};
use crate::thread::message::Message;

/// Minimum time for ending the reactors, for the flush, and for closing: longer operations on an idle machine are stuck.
const MIN_PHASE: Duration = Duration::from_millis(500);
/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// End of each phase of a stop.
struct Schedule {
    began: Instant,
    timeout: Duration,
}

impl Schedule {
    fn requests(&self) -> Instant {
        self.began + self.timeout / 5 * 4
    }

    fn reactors(&self) -> Instant {
        at_least(self.began + self.timeout / 10 * 9)
    }

    fn rest(&self) -> Instant {
        at_least(self.began + self.timeout)
    }
}

fn at_least(until: Instant) -> Instant {
    until.max(Instant::now() + MIN_PHASE)
}

impl Server {
    /// Stops the server: accepts no connections, finishes requests in progress, flushes every namespace. Takes at most
    /// `timeout` (a short one is extended by at most 1.5 s), of which four fifths are for requests in progress.
    ///
    /// # Errors
    /// The unfinished requests and flushes. OS threads in blocking calls, and memory that devices may write to, are leaked.
    pub fn stop(mut self, timeout: Duration) -> Result<(), DrainError> {
        let schedule = Schedule { began: Instant::now(), timeout };
        self.listeners.stop();
        self.drain(schedule.requests());
        self.shared.stop_state.expire();
        let stuck = self.runtime.stop_until(schedule.reactors());
        let mut leftovers = self.shared.leftovers();
        leftovers.extend(stuck.into_iter().map(|core| Leftover::Reactor(core.0)));
        leftovers.extend(flush_all(&self.shared, schedule.rest()));
        close(self, schedule.rest());
        if leftovers.is_empty() { Ok(()) } else { Err(DrainError { timeout, leftovers }) }
    }

    /// Drains every I/O thread, at most until `until`.
    fn drain(&self, until: Instant) {
        for thread in self.threads.iter() {
            let mut message = Message::Drain;
            while let Err(returned) = thread.send(message) {
                message = returned;
                if Instant::now() >= until {
                    return;
                }
                std::thread::sleep(POLL_INTERVAL);
            }
        }
        while self.runtime.is_serving() && Instant::now() < until {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Shared {
    /// The unfinished work of I/O threads.
    fn leftovers(&self) -> Vec<Leftover> {
        let unfinished = self.stop_state.unfinished();
        let directory = Arc::clone(&self.state().directory);
        let nqn = |at: usize| directory.subsystem(at).map_or("", |subsystem| subsystem.nqn()).to_owned();
        let abandoned = unfinished.abandoned.iter();
        let mut leftovers: Vec<Leftover> = abandoned
            .map(|&(subsystem, nsid, requests)| Leftover::Requests { nqn: nqn(subsystem), nsid, requests })
            .collect();
        if unfinished.closed > 0 {
            leftovers.push(Leftover::Connections(unfinished.closed));
        }
        leftovers
    }

    /// The backends of all namespaces.
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

/// Why a namespace was not flushed.
enum Unflushed {
    Failed(String),
    Late,
}

type Flushed = (usize, Result<(), Unflushed>);

/// Flushes all namespaces, each on an OS thread; returns failed and late ones.
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
        drop(backend); // the receiver of the result may drop the last reference
        let _ = reply.send((at, result));
    };
    if let Err(error) = Builder::new().name(format!("flush-{nsid}")).spawn(body) {
        let _ = done.send((at, Err(Unflushed::Failed(format!("cannot start a thread: {error}")))));
    }
}

fn next_result(results: &Receiver<Flushed>, until: Instant) -> Option<Flushed> {
    results.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
}

/// Flushes a backend.
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

/// Drops the server on a thread, which is abandoned at `until`. Abandoned connections keep the shared state, so the
/// namespaces are removed from it first.
fn close(server: Server, until: Instant) {
    failure_log::log(&server.shared);
    let body = move || {
        let subsystems = std::mem::take(&mut server.shared.state().subsystems);
        drop(subsystems);
        drop(server);
    };
    let Ok(closing) = Builder::new().name("closing".to_owned()).spawn(body) else { return };
    while !closing.is_finished() && Instant::now() < until {
        std::thread::sleep(POLL_INTERVAL);
    }
}
