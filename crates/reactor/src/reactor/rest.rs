//! Rest after a round without work: polling on, a pause, sleep, or a wait in the kernel.

use std::num::NonZeroU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use pilotlight_plant::Depth;
use rustix::thread::{sched_yield, set_current_timer_slack};

use super::{Idle, Reactor, Slot};
use crate::cells::add;
use crate::clock;
use crate::io_thread::CompletionMode;
use crate::wait::Monitor;

/// Consecutive yields before a short sleep: threads that only yield can delay kernel threads that complete direct writes for seconds
/// (Linux 6.18 with two CPUs).
const YIELDS: u32 = 32;

/// Time until an idle worker whose I/O thread could not wait tries again; chosen: hundreds of rounds, and short beside
/// [`DEFAULT_IDLE_TIMEOUT_NS`](pilotlight_plant::DEFAULT_IDLE_TIMEOUT_NS).
const RETRY_NS: u64 = 100_000;

/// Kinds of rest.
enum Rest {
    Poll,
    Sleep(Depth),
    /// Without a look at sockets; in the kernel, or else in a wait instruction where there is one.
    Pause {
        until_ns: u64,
        in_kernel: bool,
    },
    Kernel {
        depth: Depth,
        until_ns: u64,
    },
}

impl Reactor {
    pub(super) fn rest(&mut self, now: &mut u64) {
        match self.choose_rest(*now) {
            Rest::Poll => self.spin(),
            Rest::Pause { until_ns, in_kernel } => self.pause(until_ns, self.monitor.filter(|_| !in_kernel), now),
            Rest::Sleep(depth) => self.fall_asleep(depth, now),
            Rest::Kernel { depth, until_ns } => self.wait_in_kernel(depth, until_ns, now),
        }
    }

    fn spin(&mut self) {
        self.empty_rounds = self.empty_rounds.wrapping_add(1);
        match self.idle {
            Idle::Spin | Idle::YieldMain => std::hint::spin_loop(),
            Idle::Yield if self.empty_rounds.is_multiple_of(YIELDS) => std::thread::sleep(Duration::from_nanos(1)),
            Idle::Yield => sched_yield(),
        }
    }

    fn choose_rest(&mut self, now: u64) -> Rest {
        if !self.unsent.is_empty() || !self.watch.is_settled() {
            return Rest::Poll;
        }
        let interrupts = |slot: &Slot| slot.completions == CompletionMode::Interrupt;
        let interrupts = !self.slots.is_empty() && self.slots.iter().all(interrupts);
        let paused_ns = self.received_ns.saturating_add(self.cell.pause_ns.load(Relaxed));
        if interrupts && now < paused_ns {
            return Rest::Pause { until_ns: paused_ns, in_kernel: true };
        }
        if let Some(director) = &mut self.director {
            let request_ns = self.last_request_ns;
            return if director.may_sleep(now, request_ns) && director.report(now, request_ns) {
                Rest::Kernel { depth: Depth::ServerSleep, until_ns: director.due_ns() }
            } else if interrupts && director.may_wait() {
                Rest::Kernel { depth: Depth::SoftwareWait, until_ns: director.wait_ends_ns() }
            } else {
                self.choose_pause(now)
            };
        }
        match self.sleep {
            Some(depth) if self.slots.is_empty() => Rest::Sleep(depth),
            _ if interrupts || self.worker_may_rest(now) => {
                Rest::Kernel { depth: Depth::SoftwareWait, until_ns: u64::MAX }
            }
            _ => self.choose_pause(now),
        }
    }

    /// Whether this worker has had no request for as long as the policy says, and none is in progress.
    fn worker_may_rest(&self, now: u64) -> bool {
        let timeout_ns = self.cell.idle_timeout_ns.load(Relaxed);
        timeout_ns > 0
            && now >= self.retry_ns
            && now.saturating_sub(self.last_request_ns) >= timeout_ns
            && self.slots.iter().all(|slot| slot.polled.1 == 0)
    }

    fn choose_pause(&self, now: u64) -> Rest {
        match self.pause_ns(now) {
            0 => Rest::Poll,
            ns => Rest::Pause { until_ns: now.saturating_add(ns), in_kernel: false },
        }
    }

    /// The shortest pause of the I/O threads here; 0 if one polls without pause.
    fn pause_ns(&self, now: u64) -> u64 {
        let rest = |slot: &Slot| slot.completions.rest_ns(slot.arrivals.oldest_ns(), now);
        self.slots.iter().filter_map(rest).min().unwrap_or(0)
    }

    /// Rests until `until_ns`, an event, or the director is due.
    fn pause(&mut self, mut until_ns: u64, monitor: Option<Monitor>, now: &mut u64) {
        if let Some(director) = &self.director {
            until_ns = until_ns.min(director.next_step_ns());
        }
        let depth = if monitor.is_some() { Depth::MonitorWait } else { Depth::SoftwareWait };
        if until_ns <= *now {
            return self.spin();
        }
        self.set_timer_slack();
        self.start_sleep(depth, *now);
        while self.inbox.is_empty() && *now < until_ns {
            match monitor {
                Some(monitor) => self.inbox.wait_monitor(monitor, until_ns),
                None => self.inbox.wait_futex(until_ns),
            }
            *now = clock::now_ns();
        }
        self.end_sleep(*now);
    }

    /// Accounts a sleep to the core and to every I/O thread here.
    fn start_sleep(&self, depth: Depth, now_ns: u64) {
        self.cell.fall_asleep(depth, now_ns);
        self.slots.iter().for_each(|slot| slot.cell.fall_asleep(depth, now_ns));
    }

    fn end_sleep(&self, now_ns: u64) {
        self.slots.iter().for_each(|slot| slot.cell.wake(now_ns));
        self.cell.wake(now_ns);
    }

    /// Sets the timer slack, by which the kernel ends waits up to 50 us late (`prctl(2)`, `PR_SET_TIMERSLACK`): as long as a pause.
    fn set_timer_slack(&mut self) {
        if !std::mem::replace(&mut self.is_slack_set, true) {
            let _ = set_current_timer_slack(NonZeroU64::new(1)); // without it pauses are longer
        }
    }

    /// Sleeps until an event arrives. The inbox arms, checks again and waits.
    fn fall_asleep(&mut self, depth: Depth, now: &mut u64) {
        self.cell.fall_asleep(depth, *now);
        while self.inbox.is_empty() {
            match self.monitor.filter(|_| depth == Depth::MonitorWait) {
                Some(monitor) => self.inbox.wait_monitor(monitor, u64::MAX),
                None => self.inbox.wait_futex(u64::MAX),
            }
        }
        *now = clock::now_ns();
        self.cell.wake(*now);
        self.woken = Some(depth);
    }

    /// Waits in the kernel for events and for the descriptors of the I/O threads, unless one of them has work.
    fn wait_in_kernel(&mut self, depth: Depth, mut until_ns: u64, now: &mut u64) {
        self.kernel_wait.clear();
        for at in 0..self.slots.len() {
            let Some(until) = self.slots[at].thread.prepare_wait(*now) else {
                self.end_waits(at);
                self.retry_ns = now.saturating_add(RETRY_NS);
                return self.spin();
            };
            until_ns = until_ns.min(until);
            if let Some(fd) = self.slots[at].thread.wait_fd() {
                self.kernel_wait.add(fd);
            }
        }
        let longest_ns = self.cell.wait_ns.load(Relaxed);
        if longest_ns > 0 && !self.slots.is_empty() {
            self.set_timer_slack(); // once; `prctl` only writes a number of this thread
            until_ns = until_ns.min(self.kernel_wait.limit(*now, longest_ns).unwrap_or(u64::MAX));
        }
        if self.inbox.arm() && self.completions_are_current() && self.begin_rest(depth, *now) {
            let server = depth == Depth::ServerSleep;
            if let Some(director) = self.director.as_mut().filter(|_| server) {
                until_ns = until_ns.min(director.before_sleep(*now, self.last_request_ns));
            }
            let is_idle = server || self.director.is_none() && self.worker_may_rest(*now);
            let began_ns = *now;
            self.start_sleep(depth, began_ns);
            self.cell.rests_since_ns.store(if is_idle { began_ns } else { 0 }, Relaxed);
            if let Ok(bell) = self.inbox.doorbell() {
                self.kernel_wait.add(bell);
            }
            let left_ns = if until_ns == u64::MAX { until_ns } else { until_ns.saturating_sub(clock::now_ns()) };
            self.kernel_wait.wait(left_ns);
            *now = clock::now_ns();
            self.cell.rests.end();
            self.has_rested = self.director.is_none();
            if is_idle {
                add(&self.cell.rested_ns, *now - began_ns);
                self.cell.rests_since_ns.store(0, Relaxed);
            }
            self.end_sleep(*now);
            self.woken = Some(depth);
            if let Some(director) = self.director.as_mut().filter(|_| server) {
                director.after_sleep(*now);
            }
        }
        self.inbox.disarm();
        self.end_waits(self.slots.len());
    }

    /// Announces a wait in the kernel. False if the main core must stay awake, as a worker has got a request meanwhile.
    fn begin_rest(&self, depth: Depth, now: u64) -> bool {
        let Some(director) = &self.director else {
            self.cell.rests.begin();
            return true;
        };
        if depth != Depth::ServerSleep || !director.is_called() {
            return true; // it needs no worker to wake it
        }
        self.cell.rests.begin();
        let may_sleep = director.may_still_sleep(now);
        if !may_sleep {
            self.cell.rests.end();
        }
        may_sleep
    }

    /// Whether the completion mode of every I/O thread is current. The director stores the mode, then notifies the core that it reads as the
    /// I/O thread's; an I/O thread that has just arrived may have notified another. So its core is stored before the mode is read, and the
    /// fence of arming is between the two.
    fn completions_are_current(&self) -> bool {
        self.slots.iter().all(|slot| slot.cell.completions() == slot.completions)
    }

    fn end_waits(&mut self, of_first: usize) {
        self.slots[..of_first].iter_mut().for_each(|slot| slot.thread.end_wait());
    }
}
