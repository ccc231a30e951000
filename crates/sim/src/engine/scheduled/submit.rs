//! Submission of requests: through the kernel, a worker, a helper thread or a user-space driver.

use super::program::{Continuation, JobEvent, Request};
use super::task::Ended;
use super::{Io, Scheduled, work};
use crate::jobs::{IoMethod, Job, Scheduler};

impl Scheduled {
    /// The program's own CPU time of a request.
    pub(super) fn own_ns(&self, job: usize) -> u64 {
        let (costs, job) = (&self.costs, &self.programs[job].job);
        let call_ns = costs.submit_ns + self.pages_ns(job);
        match job.method {
            IoMethod::Interrupt | IoMethod::Classic => call_ns,
            IoMethod::Hybrid => call_ns + costs.timer_ns / 2,
            IoMethod::Libaio => call_ns + costs.libaio_ns,
            IoMethod::Uring => call_ns + costs.uring_ns,
            IoMethod::UringPolled => costs.ring_ns,
            IoMethod::PosixAio => costs.hand_over_ns,
            IoMethod::Bypass => costs.bypass_ns,
        }
    }

    pub(super) fn pages_ns(&self, job: &Job) -> u64 {
        self.costs.page_ns_per_kib * u64::from(job.bytes) / 1024
    }

    /// Passes a request from the program to its submitter: itself, its worker or its helper.
    pub(super) fn leaves(&mut self, job: usize, task: usize, request: Request, ended: &Ended<Continuation>) -> bool {
        let program = &mut self.programs[job];
        if program.job.method == IoMethod::PosixAio {
            program.handed_over.push_back(request);
            self.call_by_helper(job, ended.at_ns);
            return self.submitted(job, ended.at_ns);
        }
        let Some(helper) = program.helper else { return self.submits(job, task, request, false, ended) };
        let ns = self.costs.submit_ns + self.pages_ns(&self.programs[job].job);
        self.dispatch.push(helper, work(ns), Continuation::Submits(job, request, false));
        self.dispatch.wake(ended.at_ns, helper, true);
        self.submitted(job, ended.at_ns)
    }

    /// An idle helper thread makes the call for its first waiting request.
    pub(super) fn call_by_helper(&mut self, job: usize, now_ns: u64) {
        let program = &mut self.programs[job];
        if program.helper_is_busy {
            return;
        }
        let Some(request) = program.handed_over.pop_front() else { return };
        program.helper_is_busy = true;
        let ns = self.costs.submit_ns + self.pages_ns(&self.programs[job].job);
        self.wake(job, now_ns, work(ns), Continuation::Submits(job, request, false), true);
    }

    pub(super) fn dispatched(&mut self, job: usize, core: u16, request: Request, now_ns: u64) {
        let (request, number) = (Request { left_ns: now_ns, ..request }, self.made);
        self.made += 1;
        self.ios.push(Io { at_ns: now_ns, core, number, job, request });
    }

    /// Sends a request to its drive, under the scheduler's lock if any: one request holds it, others spin, or wait in the scheduler's queue.
    pub(super) fn submits(
        &mut self,
        job: usize,
        task: usize,
        request: Request,
        locked: bool,
        ended: &Ended<Continuation>,
    ) -> bool {
        let now_ns = ended.at_ns;
        let hold_ns = match self.programs[job].job.scheduler {
            Scheduler::Kyber => self.costs.kyber_ns,
            Scheduler::Deadline => self.costs.deadline_ns,
            Scheduler::None => 0,
        };
        if hold_ns > 0 && !locked {
            self.lock_ns = self.lock_ns.max(now_ns) + hold_ns;
            let ns = if self.costs.lock_sleeps { hold_ns } else { self.lock_ns - now_ns };
            let request = Request { left_ns: self.lock_ns, ..request };
            self.dispatch.push(task, work(ns), Continuation::Submits(job, request, true));
            return false;
        }
        let core = (self.first_core + ended.cpu) as u16;
        let request = if locked && self.costs.lock_sleeps && request.left_ns > now_ns {
            self.push(request.left_ns, JobEvent::Dispatched(job, core, request));
            request
        } else {
            self.dispatched(job, core, request, now_ns);
            Request { left_ns: now_ns, ..request }
        };
        if let Some(command) = self.split(job).next(request.command) {
            self.dispatch.push(
                task,
                work(self.costs.submit_ns),
                Continuation::Submits(job, Request { command, ..request }, false),
            );
            return false;
        }
        match self.programs[job].job.method {
            IoMethod::Classic => {
                self.looks(job, request, u64::MAX);
                false
            }
            IoMethod::Hybrid => {
                let away_ns = self.away.1 / self.away.0.max(1);
                (self.programs[job].awake_ns, self.programs[job].done_ns) = (None, None);
                self.push(now_ns + away_ns / 2, JobEvent::Timer(job, request));
                self.switches(now_ns);
                self.dispatch.push(task, work(self.costs.switch_ns / 2), Continuation::Nothing);
                false
            }
            IoMethod::UringPolled | IoMethod::PosixAio => false,
            _ => self.submitted(job, now_ns),
        }
    }
}
