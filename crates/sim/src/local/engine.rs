//! Jobs on processors in front of a drive, in simulated time.
//!
//! *Problem.* A few dozen jobs each have requests done, one of several ways; what counts is when a request is done, where processor time
//! goes, and how often somebody is woken. *Words.* A job lives on one processor, which is a hardware thread; a processor is free from
//! some moment on, and whatever comes for it starts then or later, in the order of events. *Algorithm.* Events in a heap: a job may go on
//! (it takes what is done, submits, or waits), a request leaves a job, the drive has done one, somebody who slept before looking is woken.
//! A job that finds its processor busy comes again when it is free, before jobs that came later. Who looks at a queue all the time needs
//! no event: it is known at submission when the request will be done. *Properties.* Deterministic: events of one moment go in the order
//! in which they were made. Requests reach the drive in order of time. A processor does one thing at a time, and a core takes what the
//! dearer of its threads takes ([`super::covered`]). Latency is from the load generator's submission to its having the answer, as fio
//! counts it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::covered::{Core, Covered, Does};
use super::drive::Drive;
use super::load::{Load, Scheduler, Way};
use super::machine::{Costs, Local};
use super::tally::Tally;
use crate::rng::{Purpose, Stream};

/// A request in progress: when it was submitted, and whether it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    issued_ns: u64,
    write: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A job may go on.
    Run(usize),
    /// The drive has done a request of a job.
    Done(usize, Request),
    /// A request leaves a job: for the scheduler's lock, or for the drive.
    Left(usize, Request),
    /// A job that slept before it looks is woken: when its request left for the drive, and when it is done.
    Wake(usize, Request, u64, u64),
}

#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    free_ns: u64,
    /// An interrupt is being handled until then: what is done meanwhile is found by it.
    handling_ns: u64,
    /// Without work it looks at a queue instead of resting.
    looks: bool,
    /// Index of the hardware thread on the same core.
    sibling: Option<usize>,
}

#[derive(Clone, Debug)]
struct Job {
    cpu: usize,
    /// The processor of the thread that submits for it.
    helper: usize,
    ready: VecDeque<Request>,
    outstanding: u32,
    waits: bool,
    /// Submitted since it rested last.
    burst: u32,
    draws: Stream,
}

/// Runs a load on a machine.
#[must_use]
pub fn run(machine: &Local, load: &Load) -> Tally {
    let mut engine = Engine::new(machine, load);
    engine.everything();
    engine.tally
}

struct Engine<'a> {
    machine: &'a Local,
    costs: &'a Costs,
    load: &'a Load,
    drive: Drive,
    cpus: Vec<Cpu>,
    jobs: Vec<Job>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    made: u64,
    lock_ns: u64,
    /// Cores of which both threads are in use; processors are apart by the number of cores.
    cores: Vec<Core>,
    /// When some core was not in deep sleep.
    awake: Covered,
    /// Number and sum of the times that requests were away, for who sleeps half of their mean.
    away: (u64, u64),
    work_ends_ns: u64,
    tally: Tally,
}

impl<'a> Engine<'a> {
    fn new(machine: &'a Local, load: &'a Load) -> Self {
        let work_ends_ns = load.ramp_ns + load.duration_ns;
        let jobs = load.jobs as usize;
        let cpus = cpus(machine, if load.way == Way::UringPolled { 2 * jobs } else { jobs });
        let count = cpus.len();
        let job = |at: usize| Job {
            cpu: at % count,
            helper: (jobs + at) % count,
            ready: VecDeque::new(),
            outstanding: 0,
            waits: false,
            burst: 0,
            draws: Stream::new(load.seed, Purpose::Arrivals, at as u64),
        };
        let mut engine = Self {
            machine,
            costs: &machine.costs,
            load,
            drive: Drive::new(&machine.drive, load),
            cpus,
            jobs: (0..jobs).map(job).collect(),
            events: BinaryHeap::new(),
            made: 0,
            lock_ns: 0,
            cores: vec![Core::default(); machine.host.cores as usize],
            awake: Covered::default(),
            away: (0, 0),
            work_ends_ns,
            tally: Tally::new(work_ends_ns + load.after_ns),
        };
        for at in 0..jobs {
            let (cpu, helper) = (engine.jobs[at].cpu, engine.jobs[at].helper);
            engine.cpus[cpu].looks |= matches!(load.way, Way::Bypass | Way::UringPolled);
            engine.cpus[helper].looks |= load.way == Way::UringPolled;
            // Jobs do not begin in the same moment.
            engine.push(at as u64 * 100, Event::Run(at));
        }
        engine
    }

    fn push(&mut self, at_ns: u64, event: Event) {
        self.made += 1;
        self.events.push(Reverse((at_ns, self.made, event)));
    }

    fn everything(&mut self) {
        while let Some(Reverse((now, made, event))) = self.events.pop() {
            if now >= self.work_ends_ns {
                break;
            }
            match event {
                Event::Run(job) if self.free_ns(job) > now => {
                    // As it was made, so that it stays before those that came later.
                    self.events.push(Reverse((self.free_ns(job), made, event)));
                }
                Event::Run(job) => self.go_on(job, now),
                Event::Left(job, request) => self.left(job, request, now),
                Event::Done(job, request) => self.done(job, request, now),
                Event::Wake(job, request, left_ns, done_ns) => self.woken(job, request, left_ns, done_ns, now),
            }
        }
        let end = self.work_ends_ns + self.load.after_ns;
        for at in 0..self.cpus.len() {
            self.rested(at, self.work_ends_ns);
        }
        self.tally.gc_after_ns = self.drive.to_move_ns();
        self.drive.idle(end, &mut self.tally);
    }

    /// When the processor of a job is free.
    fn free_ns(&self, job: usize) -> u64 {
        self.cpus[self.jobs[job].cpu].free_ns
    }

    /// Accounts for the time in which a processor had nothing to do, up to now; returns how long coming back takes.
    fn rested(&mut self, cpu: usize, now: u64) -> u64 {
        let from = self.cpus[cpu].free_ns;
        if now <= from {
            return 0;
        }
        self.cpus[cpu].free_ns = now;
        let host = &self.machine.host;
        if self.cpus[cpu].looks {
            self.passes(cpu, Does::Looks, from, now);
            return 0;
        }
        if now - from >= host.deep_after_ns {
            return host.deep_exit_ns;
        }
        self.passes(cpu, Does::Rests, from, now);
        host.light_exit_ns
    }

    /// Accounts for what a processor did, once for itself, its core and all of them.
    fn passes(&mut self, cpu: usize, does: Does, from: u64, to: u64) {
        let tally = &mut self.tally;
        tally.over(from, to, |slot, ns| match does {
            Does::Works => slot.run_ns += ns,
            Does::Looks => slot.spin_ns += ns,
            Does::Rests => slot.light_ns += ns,
        });
        self.awake.add(from, to, |from, to| tally.over(from, to, |slot, ns| slot.awake_ns += ns));
        let Some(sibling) = self.cpus[cpu].sibling else {
            tally.over(from, to, |slot, ns| slot.core_ns[does as usize] += ns);
            return;
        };
        let known_ns = to.min(self.cpus[sibling].free_ns);
        let core = cpu % self.cores.len();
        self.cores[core].add(does, from, to, tally);
        self.cores[core].forget(known_ns);
    }

    /// Work on a processor; returns when it is done. Who is woken comes out of sleep first, and is no longer deeply asleep meanwhile.
    fn work(&mut self, cpu: usize, at: u64, ns: u64, wakes: bool) -> u64 {
        let exit_ns = self.rested(cpu, at);
        let begin = at.max(self.cpus[cpu].free_ns);
        let start = begin + if wakes { exit_ns } else { 0 };
        self.passes(cpu, Does::Rests, begin, start);
        let beside = self.cpus[cpu].sibling.is_some_and(|sibling| self.cpus[sibling].free_ns > start);
        let ns = if beside { ns + ns * self.machine.host.sibling_slows_ppm / 1_000_000 } else { ns };
        self.passes(cpu, Does::Works, start, start + ns);
        self.cpus[cpu].free_ns = start + ns;
        start + ns
    }

    fn go_on(&mut self, job: usize, now: u64) {
        self.jobs[job].waits = false;
        if let Some(request) = self.jobs[job].ready.pop_front() {
            self.taken(job, request, now);
        }
        if self.thinks(job, now) {
            return;
        }
        if self.may_submit(job) {
            self.submit(job, now);
        } else if self.jobs[job].ready.is_empty() {
            self.wait(job, now);
        } else {
            self.push(self.free_ns(job), Event::Run(job));
        }
    }

    /// Whether it may have one more request in progress.
    fn may_submit(&self, job: usize) -> bool {
        let depth = if self.load.way.is_synchronous() { 1 } else { self.load.depth };
        self.jobs[job].outstanding < depth && !self.burst_over(job)
    }

    fn burst_over(&self, job: usize) -> bool {
        self.load.think_after > 0 && self.jobs[job].burst >= self.load.think_after
    }

    /// Rests where it is time to, and everything it has submitted is back.
    fn thinks(&mut self, job: usize, now: u64) -> bool {
        if !self.burst_over(job) || self.jobs[job].outstanding > 0 {
            return false;
        }
        self.jobs[job].burst = 0;
        let cpu = self.jobs[job].cpu;
        let from = now.max(self.cpus[cpu].free_ns);
        if self.load.think_spin_ns > 0 {
            self.work(cpu, from, self.load.think_spin_ns, false);
        }
        self.push(from + self.load.think_ns.max(self.load.think_spin_ns), Event::Run(job));
        true
    }

    /// The job has an answer.
    fn taken(&mut self, job: usize, request: Request, now: u64) {
        self.jobs[job].outstanding -= 1;
        if now >= self.load.ramp_ns && now < self.work_ends_ns {
            let ns = now.saturating_sub(request.issued_ns);
            if request.write { self.tally.writes.record(ns) } else { self.tally.reads.record(ns) }
        }
        let bytes = self.load.bytes as f64;
        self.tally.at(now, |slot| {
            slot.requests += 1.0;
            if request.write { slot.written_bytes += bytes } else { slot.read_bytes += bytes }
        });
    }

    fn submit(&mut self, job: usize, now: u64) {
        let costs = self.costs;
        let cpu = self.jobs[job].cpu;
        let write = self.jobs[job].draws.below(1_000_000) < self.load.writes_ppm;
        let pages_ns = costs.page_ns_per_kib * self.load.bytes / 1024;
        let own_ns = match self.load.way {
            Way::Interrupt | Way::Classic => costs.submit_ns + pages_ns,
            Way::Hybrid => costs.submit_ns + pages_ns + costs.timer_ns / 2,
            Way::Libaio => costs.submit_ns + pages_ns + costs.libaio_ns,
            Way::Uring => costs.submit_ns + pages_ns + costs.uring_ns,
            Way::UringPolled => costs.ring_ns,
            Way::PosixAio => costs.submit_ns + pages_ns + costs.hand_over_ns,
            Way::Bypass => costs.bypass_ns,
        };
        let issued_ns = self.work(cpu, now, costs.job_ns, false);
        let mut left_ns = self.work(cpu, issued_ns, own_ns, false);
        if self.load.way == Way::UringPolled {
            left_ns = self.work(self.jobs[job].helper, left_ns, costs.submit_ns + pages_ns, false);
        }
        self.jobs[job].outstanding += 1;
        self.jobs[job].burst += 1;
        let request = Request { issued_ns, write };
        // Before jobs that wait for this processor: who looks does not let go of it.
        self.events.push(Reverse((left_ns, 0, Event::Left(job, request))));
        if self.load.way == Way::UringPolled {
            // A thread of the kernel's submits.
            self.submitted(job);
        }
    }

    /// What a job does once a request is on its way: it waits if there is nothing else to do.
    fn submitted(&mut self, job: usize) {
        let free_ns = self.free_ns(job);
        if self.jobs[job].ready.is_empty() && !self.may_submit(job) {
            self.wait(job, free_ns);
        } else {
            self.push(free_ns, Event::Run(job));
        }
    }

    fn leaves(&mut self, job: usize, request: Request, left_ns: u64) {
        let done_ns = self.drive.submit(left_ns, self.load.bytes, request.write, &mut self.tally);
        self.after(job, request, left_ns, done_ns);
    }

    /// What follows a submission.
    fn after(&mut self, job: usize, request: Request, left_ns: u64, done_ns: u64) {
        let cpu = self.jobs[job].cpu;
        match self.load.way {
            Way::Classic => self.looked(job, request, left_ns, done_ns),
            Way::Hybrid => {
                let away_ns = self.away.1 / self.away.0.max(1);
                self.leave(cpu, left_ns);
                self.push(left_ns + away_ns / 2, Event::Wake(job, request, left_ns, done_ns));
            }
            Way::UringPolled => self.push(done_ns, Event::Done(job, request)),
            _ => {
                self.push(done_ns, Event::Done(job, request));
                self.submitted(job);
            }
        }
    }

    /// Passes the scheduler's lock, if there is one: one processor holds it at a time while others try.
    fn left(&mut self, job: usize, request: Request, now: u64) {
        let hold_ns = match self.load.scheduler {
            Scheduler::None => return self.leaves(job, request, now),
            Scheduler::Kyber => self.costs.kyber_ns,
            Scheduler::Deadline => self.costs.deadline_ns,
        };
        self.lock_ns = self.lock_ns.max(now) + hold_ns;
        let tries_ns = self.lock_ns - now;
        self.work(self.jobs[job].cpu, now, tries_ns, false);
        self.leaves(job, request, self.lock_ns);
    }

    /// Looks until the request is done, and takes it.
    fn looked(&mut self, job: usize, request: Request, from: u64, done_ns: u64) {
        let cpu = self.jobs[job].cpu;
        let from = from.max(self.cpus[cpu].free_ns);
        let found = from.max(done_ns) + self.costs.look_ns / 2;
        self.passes(cpu, Does::Looks, from, found);
        self.cpus[cpu].free_ns = found;
        let now = self.work(cpu, found, self.costs.complete_ns, false);
        self.taken(job, request, now);
        self.push(now, Event::Run(job));
    }

    /// Half a context switch.
    fn leave(&mut self, cpu: usize, now: u64) {
        self.work(cpu, now, self.costs.switch_ns / 2, false);
        self.tally.at(now, |slot| slot.switches += 1.0);
    }

    fn woken(&mut self, job: usize, request: Request, left_ns: u64, done_ns: u64, now: u64) {
        let cpu = self.jobs[job].cpu;
        self.tally.at(now, |slot| slot.timers += 1.0);
        let awake = self.work(cpu, now, self.costs.timer_ns / 2 + self.costs.switch_ns / 2, true);
        self.away.0 += 1;
        self.away.1 += awake.max(done_ns) - left_ns;
        self.looked(job, request, awake, done_ns);
    }

    fn wait(&mut self, job: usize, now: u64) {
        self.jobs[job].waits = true;
        if !matches!(self.load.way, Way::Bypass | Way::UringPolled) {
            self.leave(self.jobs[job].cpu, now);
        }
    }

    fn done(&mut self, job: usize, request: Request, now: u64) {
        let cpu = self.jobs[job].cpu;
        let at = match self.load.way {
            Way::UringPolled => self.work(self.jobs[job].helper, now, self.costs.complete_ns, false),
            Way::Bypass => now.max(self.cpus[cpu].free_ns),
            _ => self.interrupt(cpu, now),
        };
        self.jobs[job].ready.push_back(request);
        if self.jobs[job].waits {
            self.jobs[job].waits = false;
            let looks = matches!(self.load.way, Way::Bypass | Way::UringPolled);
            let at = if looks { at } else { self.work(cpu, at, self.costs.switch_ns / 2, false) };
            self.push(at, Event::Run(job));
        }
    }

    /// An interrupt, or one more request for a handler that is at work.
    fn interrupt(&mut self, cpu: usize, now: u64) -> u64 {
        let found = now < self.cpus[cpu].handling_ns;
        let ns = if found { 0 } else { self.costs.interrupt_ns };
        if !found {
            self.tally.at(now, |slot| slot.interrupts += 1.0);
        }
        let end = self.work(cpu, now, ns + self.costs.complete_ns, true);
        self.cpus[cpu].handling_ns = end;
        end
    }
}

/// Hardware threads, of which the first so many are used; siblings are apart by the number of cores.
fn cpus(machine: &Local, used: usize) -> Vec<Cpu> {
    let cores = machine.host.cores as usize;
    let all = cores * machine.host.threads_per_core as usize;
    let both = |at: usize| if at < cores { at + cores } else { at - cores };
    let sibling = |at: usize| Some(both(at)).filter(|both| all > cores && (*both).max(at) < used);
    (0..all).map(|at| Cpu { sibling: sibling(at), ..Cpu::default() }).collect()
}
