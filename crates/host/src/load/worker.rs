//! One thread's polling loop over its connections.
//!
//! An iteration receives from each connection once, handles the completions, issues new commands in the freed slots, and sends them
//! as one batch. In a closed loop the latency of a command starts with its batch, in an open loop with its arrival. An iteration
//! allocates nothing and reads the clock once a batch.
//!
//! The loop never sleeps, which would increase latencies. It yields only with `yield_when_idle`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::clock;
use crate::connection::SCRATCH_LEN;
use crate::error::HostError;
use crate::ledger::{Journal, Ledger};
use crate::load::due::Due;
use crate::load::executor::{Executor, Job, Limits};
use crate::load::stats::Stats;

/// Empty iterations between two reads of the clock.
const SPINS_PER_CLOCK: u32 = 32;

/// Progress of a running thread.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) ios: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) errors: AtomicU64,
}

/// A thread with its connections.
#[derive(Debug)]
pub(crate) struct Worker<'a> {
    jobs: Vec<Job>,
    executor: Executor,
    due: Option<Due>,
    next_job: usize,
    scratch: Vec<u8>,
    counters: &'a Counters,
    stop: &'a AtomicBool,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(
        jobs: Vec<Job>,
        limits: Limits,
        (ledger, journal): (Option<Ledger>, Option<Journal>),
        due: Option<Due>,
        phases: usize,
        (counters, stop): (&'a Counters, &'a AtomicBool),
    ) -> Self {
        let executor = Executor {
            limits,
            stats: Stats::new(phases),
            ledger,
            journal,
            journal_error: None,
            read_back: None,
            now_ns: 0,
            ramped: false,
            stopping: false,
        };
        Self { jobs, executor, due, next_job: 0, scratch: vec![0; SCRATCH_LEN], counters, stop }
    }

    /// Runs to the end; returns the statistics also after an error.
    pub(crate) fn run(mut self) -> (Stats, Result<(), HostError>) {
        let result = self.work();
        (self.executor.stats, result)
    }

    fn work(&mut self) -> Result<(), HostError> {
        while clock::now_ns() < self.executor.limits.start_ns {
            std::hint::spin_loop();
        }
        let cpu_ns = clock::thread_cpu_ns();
        let outcome = if self.executor.limits.verify_only { self.read_back() } else { self.drive() };
        self.executor.stats.cpu_ns = clock::thread_cpu_ns() - cpu_ns;
        outcome?;
        if self.executor.limits.verify_only {
            return Ok(());
        }
        self.count_unstarted();
        let clean = self.executor.stats.mismatches == 0 || self.executor.limits.continue_on_error;
        if clean { self.read_back() } else { Ok(()) }
    }

    /// Reads all written blocks, if there is a ledger.
    fn read_back(&mut self) -> Result<(), HostError> {
        let Some(ledger) = &self.executor.ledger else { return Ok(()) };
        let ranges: Vec<(u64, u32)> = ledger.changed_ranges(self.executor.limits.blocks_per_io).collect();
        self.executor.read_back = Some(ranges.into_iter());
        self.executor.stopping = false;
        self.executor.limits.end_ns = u64::MAX;
        self.due = None;
        self.jobs.iter_mut().for_each(|l| l.left = u64::MAX);
        self.drive()
    }

    /// Iterates until the run ends and nothing is in flight.
    fn drive(&mut self) -> Result<(), HostError> {
        self.executor.now_ns = clock::now_ns();
        let mut last_received_ns = self.executor.now_ns;
        let mut spins = 0u32;
        loop {
            if self.iterate()? {
                last_received_ns = self.executor.now_ns;
                self.publish();
                spins = 0;
            } else {
                spins += 1;
                if self.executor.limits.yield_when_idle {
                    std::thread::yield_now();
                }
                if spins.is_multiple_of(SPINS_PER_CLOCK) {
                    self.executor.now_ns = clock::now_ns();
                }
            }
            self.executor.check_time(self.stop);
            let in_flight: u32 = self.jobs.iter_mut().map(|l| l.connection.queue().in_flight()).sum();
            if in_flight == 0 {
                if self.executor.stopping || self.is_finished() {
                    return Ok(());
                }
                last_received_ns = self.executor.now_ns;
            }
            let waited_ms = self.executor.now_ns.saturating_sub(last_received_ns) / 1_000_000;
            if in_flight > 0 && waited_ms > self.executor.limits.timeout_ms {
                // This process may have been descheduled: the response may be in the socket.
                if !self.iterate()? {
                    return Err(self.timeout_error());
                }
                self.executor.now_ns = clock::now_ns();
                (last_received_ns, spins) = (self.executor.now_ns, 0);
                self.publish();
            }
        }
    }

    fn is_finished(&self) -> bool {
        match &self.executor.read_back {
            Some(ranges) => ranges.len() == 0,
            None => self.due.as_ref().is_some_and(Due::is_over) || self.jobs.iter().all(|l| l.left == 0),
        }
    }

    /// One iteration over the connections; whether any of them received anything.
    fn iterate(&mut self) -> Result<bool, HostError> {
        let mut has_received = false;
        for job in &mut self.jobs {
            has_received |= self.executor.receive(job, &mut self.scratch)?;
            if self.due.is_none() {
                while self.executor.issue(job, self.executor.now_ns, 0, None) {}
                self.executor.check_journal()?;
                job.connection.flush()?;
            }
        }
        if self.due.is_some() {
            self.executor.now_ns = clock::now_ns();
            self.start_due();
            self.executor.check_journal()?;
            for job in &mut self.jobs {
                job.connection.flush()?;
            }
        }
        Ok(has_received)
    }

    /// Open loop: issues due requests on the connections in turn, as long as there are free slots.
    fn start_due(&mut self) {
        let Some(due) = &mut self.due else { return };
        let (now_ns, until_ns) = (self.executor.now_ns, self.executor.limits.end_ns);
        while let Some(next) = due.next().filter(|next| next.due_ns <= now_ns && next.due_ns < until_ns) {
            let n = self.jobs.len();
            let started = (0..n).any(|i| {
                let job = (self.next_job + i) % n;
                let started = self.executor.issue(&mut self.jobs[job], next.due_ns, next.phase, next.command);
                if started {
                    self.next_job = (job + 1) % n;
                }
                started
            });
            if !started {
                return;
            }
            self.executor.stats.start(now_ns - next.due_ns);
            due.advance();
        }
    }

    /// Open loop: counts requests that were due before the end and not sent.
    fn count_unstarted(&mut self) {
        let Some(due) = &mut self.due else { return };
        let until_ns = self.executor.limits.end_ns.min(self.executor.now_ns);
        if self.jobs.iter().all(|l| l.left == 0) {
            return; // all were sent
        }
        while due.next_waiting().is_some_and(|next| next.due_ns < until_ns) {
            self.executor.stats.unstarted += 1;
            due.advance();
        }
    }

    #[inline]
    fn publish(&self) {
        let stats = &self.executor.stats;
        self.counters.ios.store(stats.ios(), Relaxed);
        self.counters.bytes.store(stats.kinds.iter().map(|k| k.bytes).sum(), Relaxed);
        self.counters.errors.store(stats.io_errors() + stats.mismatches, Relaxed);
    }

    #[cold]
    fn timeout_error(&mut self) -> HostError {
        let waiting = self.jobs.iter_mut().map(|l| l.connection.queue().in_flight()).sum::<u32>();
        self.executor.stats.sample(|| format!("{waiting} commands without a response"));
        HostError::Timeout { what: "I/O commands", after_ms: self.executor.limits.timeout_ms }
    }
}
