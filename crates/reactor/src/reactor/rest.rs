//! How a round without work ends: polling on, a pause, sleep, or a wait in the kernel.

use std::num::NonZeroU64;
use std::time::Duration;

use pilotlight_plant::Depth;
use rustix::thread::{sched_yield, set_current_timer_slack};

use super::{Idle, Reactor, Slot};
use crate::clock;
use crate::io_thread::CompletionMode;

/// Loops without work, one after the other, until a reactor that yields naps: threads that do nothing but yield can keep
/// those of the kernel from running that finish direct writes, for seconds (seen on Linux 6.18 with two CPUs).
const YIELDS: u32 = 32;

/// How a round without work ends.
enum Rest {
    Poll,
    Sleep(Depth),
    Pause { until_ns: u64 },
    Kernel { depth: Depth, until_ns: u64 },
}

impl Reactor {
    pub(super) fn rest(&mut self, now: &mut u64) {
        match self.way_to_rest(*now) {
            Rest::Poll => self.spin(),
            Rest::Pause { until_ns } => self.pause(until_ns, now),
            Rest::Sleep(depth) => self.fall_asleep(depth, now),
            Rest::Kernel { depth, until_ns } => self.wait_in_kernel(depth, until_ns, now),
        }
    }

    fn spin(&mut self) {
        self.fruitless = self.fruitless.wrapping_add(1);
        match self.idle {
            Idle::Spin | Idle::YieldMain => std::hint::spin_loop(),
            Idle::Yield if self.fruitless.is_multiple_of(YIELDS) => std::thread::sleep(Duration::from_nanos(1)),
            Idle::Yield => sched_yield(),
        }
    }

    fn way_to_rest(&self, now: u64) -> Rest {
        if !self.unsent.is_empty() || !self.watch.is_settled() {
            return Rest::Poll;
        }
        let interrupts = |slot: &Slot| slot.completions == CompletionMode::Interrupt;
        let interrupts = !self.slots.is_empty() && self.slots.iter().all(interrupts);
        let pause = || match self.pause_ns(now) {
            0 => Rest::Poll,
            ns => Rest::Pause { until_ns: now.saturating_add(ns) },
        };
        if let Some(director) = &self.director {
            let depth = if director.is_quiet(now, self.last_request_ns) {
                Depth::ServerSleep
            } else if interrupts && director.may_wait() {
                Depth::SoftwareWait
            } else {
                return pause();
            };
            return Rest::Kernel { depth, until_ns: director.due_ns() };
        }
        match self.sleep {
            Some(depth) if self.slots.is_empty() => Rest::Sleep(depth),
            _ if interrupts => Rest::Kernel { depth: Depth::SoftwareWait, until_ns: u64::MAX },
            _ => pause(),
        }
    }

    /// The shortest pause that an I/O thread here is to have between two polls; 0 if one is to be polled all the time.
    fn pause_ns(&self, now: u64) -> u64 {
        let rest = |slot: &Slot| slot.completions.rest_ns(slot.arrivals.oldest_ns(), now);
        self.slots.iter().filter_map(rest).min().unwrap_or(0)
    }

    /// Rests until then, until a message comes, or until the director is due.
    fn pause(&mut self, mut until_ns: u64, now: &mut u64) {
        if let Some(director) = &self.director {
            until_ns = until_ns.min(director.next_step_ns());
        }
        let depth = if self.monitor.is_some() { Depth::MonitorWait } else { Depth::SoftwareWait };
        if until_ns <= *now {
            return self.spin();
        }
        self.end_pauses_on_time();
        self.fall_asleep_together(depth, *now);
        while self.inbox.is_empty() && *now < until_ns {
            match self.monitor {
                Some(monitor) => self.inbox.wait_monitor(monitor, until_ns),
                None => self.inbox.wait_futex(until_ns),
            }
            *now = clock::now_ns();
        }
        self.wake_together(*now);
    }

    /// Accounts a sleep to the core and to every I/O thread here.
    fn fall_asleep_together(&self, depth: Depth, now_ns: u64) {
        self.cell.fall_asleep(depth, now_ns);
        self.slots.iter().for_each(|slot| slot.cell.fall_asleep(depth, now_ns));
    }

    fn wake_together(&self, now_ns: u64) {
        self.slots.iter().for_each(|slot| slot.cell.wake(now_ns));
        self.cell.wake(now_ns);
    }

    /// The kernel ends waits up to 50 us late so as to end several together (`prctl(2)`, `PR_SET_TIMERSLACK`); as long as a
    /// pause is to be.
    fn end_pauses_on_time(&mut self) {
        if !std::mem::replace(&mut self.on_time, true) {
            let _ = set_current_timer_slack(NonZeroU64::new(1)); // refused nowhere; a pause would be longer
        }
    }

    /// Sleeps until a message comes. Arming, looking once more and waiting, in that order, are the inbox's.
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

    /// Waits in the kernel for messages and for whatever the I/O threads wait for, unless one of them has work.
    fn wait_in_kernel(&mut self, depth: Depth, mut until_ns: u64, now: &mut u64) {
        self.kernel_wait.clear();
        for at in 0..self.slots.len() {
            let Some(until) = self.slots[at].thread.prepare_wait(*now) else {
                self.end_waits(at);
                return self.spin(); // it goes on polling, and still leaves time to others
            };
            until_ns = until_ns.min(until);
            if let Some(fd) = self.slots[at].thread.wait_fd() {
                self.kernel_wait.add(fd);
            }
        }
        if self.inbox.arm() && self.waits_as_told() {
            let server = depth == Depth::ServerSleep;
            if let Some(director) = self.director.as_mut().filter(|_| server) {
                until_ns = until_ns.min(director.before_sleep(*now, self.last_request_ns));
            }
            self.fall_asleep_together(depth, *now);
            if let Ok(bell) = self.inbox.doorbell() {
                self.kernel_wait.add(bell);
            }
            let left_ns = if until_ns == u64::MAX { until_ns } else { until_ns.saturating_sub(clock::now_ns()) };
            self.kernel_wait.wait(left_ns);
            *now = clock::now_ns();
            self.wake_together(*now);
            self.woken = Some(depth);
            if let Some(director) = self.director.as_mut().filter(|_| server) {
                director.after_sleep(*now);
            }
        }
        self.inbox.disarm();
        self.end_waits(self.slots.len());
    }

    /// Whether every I/O thread still is to wait as it was told last. The director writes that down and then tells the home it
    /// sees; one that has just come here may have another in its eyes. So we have said where it lives before we look, and
    /// between the two lies the fence of arming.
    fn waits_as_told(&self) -> bool {
        self.slots.iter().all(|slot| slot.cell.completions() == slot.completions)
    }

    fn end_waits(&mut self, of_first: usize) {
        self.slots[..of_first].iter_mut().for_each(|slot| slot.thread.end_wait());
    }
}
