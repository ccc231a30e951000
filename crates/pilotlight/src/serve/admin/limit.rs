//! The limit of the budget over the control socket, and what a program that sets it reads. Nothing here waits for the server's state: a reload can
//! hold it while it opens a device, and the end of a limit must not wait for that.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pilotlight_reactor::clock;
use rustix::io::{Errno, read};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};
use tracing::warn;

use super::Admin;
use super::audit::{self, Author, Values};
use crate::admin::refusal::Refusal;
use crate::admin::request::LimitRequest;
use crate::config::{Operation, format_budget, parse_power};
use crate::policies::BudgetDomain;
use crate::serve::budget::{self, Limit, Setting};
use crate::serve::state::State;
use crate::status::report::{CountersReport, LimitReport, PowerReport, PowerWindowReport};

const NO_FLOOR: &str =
    "a budget with a deadline needs a floor, which holds from the start of the server until the first one";
const FLOOR: &str = "add `floor = \"120W\"` to [goals], and restart the server";
const CLOCK: &str = "a deadline is CLOCK_BOOTTIME, whose seconds are the first number of /proc/uptime";

/// The limit of a server, and what is read with it.
pub(super) struct Place {
    /// `None` without a floor.
    limit: Option<(Mutex<Held>, OwnedFd)>,
    /// Whose power is reported.
    domain: Option<BudgetDomain>,
    /// Whether the bottleneck is wanted, and the last one.
    asks: AtomicBool,
    bottleneck: Mutex<Option<String>>,
}

struct Held {
    limit: Limit,
    /// Since when its power is in force ([`clock`]).
    since_ns: u64,
    /// What was put in force last, in microwatts; `None` at the start.
    in_force_uw: Option<u64>,
    is_stopped: bool,
}

impl Place {
    /// At the start; its timer is that of the deadline.
    pub(super) fn new(operation: &Operation) -> io::Result<Self> {
        let since_ns = clock::now_ns();
        let held = |floor_uw| Held { limit: Limit::new(floor_uw), since_ns, in_force_uw: None, is_stopped: false };
        let limit = operation.floor_uw.map(|floor_uw| {
            let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
            io::Result::Ok((Mutex::new(held(floor_uw)), timer))
        });
        let (asks, bottleneck) = (AtomicBool::default(), Mutex::default());
        Ok(Self { limit: limit.transpose()?, domain: operation.domain, asks, bottleneck })
    }

    fn held(&self) -> Option<(MutexGuard<'_, Held>, &OwnedFd)> {
        let (held, timer) = self.limit.as_ref()?;
        Some((held.lock().unwrap_or_else(PoisonError::into_inner), timer))
    }
}

impl Held {
    /// The limit after the deadline is in force until the end.
    fn stop(&mut self) {
        self.is_stopped = true;
        self.limit.end();
    }

    fn report(&self, now_ns: u64) -> LimitReport {
        let Limit { floor_uw, settings, expiries, .. } = self.limit;
        LimitReport {
            power_uw: self.limit.power_uw(),
            since_ns: self.since_ns,
            until_boottime_ns: self.limit.until_ns(),
            valid_for_ns: self.limit.until_ns().map(|until_ns| until_ns.saturating_sub(now_ns)),
            then_uw: self.limit.then_uw(),
            floor_uw,
            settings,
            expiries,
        }
    }
}

/// The clock of deadlines, in nanoseconds.
fn boottime_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Sets a timer to a time; one that is past ends a read at once.
fn arm(timer: &OwnedFd, at_ns: u64) -> Result<(), Errno> {
    let at_ns = at_ns.max(1); // 0 disarms
    let it_value = Timespec { tv_sec: (at_ns / 1_000_000_000) as i64, tv_nsec: (at_ns % 1_000_000_000) as i64 };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &once).map(drop)
}

impl Admin {
    /// Ends the limit at its deadline, until [`Admin::stop_limit`].
    pub(in crate::serve) fn watch_limit(&self) {
        let Some((_, timer)) = &self.limit.limit else { return };
        self.change_limit(|_, _| ());
        loop {
            let read = read(timer, &mut [0_u8; 8]);
            let is_stopped = self.change_limit(|held, _| {
                if let Err(error) = &read
                    && !matches!(*error, Errno::INTR | Errno::AGAIN)
                {
                    warn!("the timer of the budget's deadline has failed: the limit after the deadline is in force until a restart: {error}");
                    held.stop();
                } else if held.limit.expire(boottime_ns()) {
                    let then = format_budget(Some(held.limit.then_uw()));
                    warn!("the deadline of the budget's limit is past: the limit is {then}");
                }
                held.is_stopped
            });
            if is_stopped.unwrap_or(true) {
                return;
            }
        }
    }

    /// Ends the limit before its deadline, and [`Admin::watch_limit`].
    pub(super) fn stop_limit(&self) {
        self.change_limit(|held, timer| {
            held.stop();
            if let Err(error) = arm(timer, 0) {
                warn!("the timer of the budget's deadline has failed: {error}");
            }
        });
    }

    /// Changes the limit, and puts it in force if it is another one; `None` without a floor. The thread that watches the budget notes it in the
    /// server's state.
    fn change_limit<R>(&self, change: impl FnOnce(&mut Held, &OwnedFd) -> R) -> Option<R> {
        let (mut held, timer) = self.limit.held()?;
        let result = change(&mut held, timer);
        let power_uw = held.limit.power_uw();
        if held.in_force_uw != Some(power_uw) {
            (held.in_force_uw, held.since_ns) = (Some(power_uw), clock::now_ns());
            self.server.set_limit(power_uw);
            self.goals_have_changed();
        }
        Some(result)
    }

    /// Limits all budgets until a deadline, and afterwards.
    pub(super) fn set_limit(&self, request: &LimitRequest, by: &Author) -> Result<LimitReport, Refusal> {
        let power = |field, text: &str| parse_power(text).map_err(|what| Refusal::for_field(field, what));
        let (power_uw, then_uw) = (power("power", &request.power)?, power("then", &request.then)?);
        let setting = Setting { power_uw, until_ns: request.until_boottime_ns, then_uw };
        let set = self.change_limit(|held, timer| {
            let (before_uw, now_ns) = (held.limit.power_uw(), boottime_ns());
            if held.is_stopped {
                return Err(Refusal::new(
                    "no limit is taken any more: the server stops, or its timer has failed (see its log)",
                ));
            }
            let set = held.limit.set(setting, now_ns);
            set.map_err(|error| Refusal::for_field("until_boottime_ns", error).help(CLOCK))?;
            if let Err(error) = arm(timer, setting.until_ns) {
                held.limit.end();
                return Err(Refusal::new(format!("the timer of the deadline cannot be set: {error}")));
            }
            let value = |uw| Values::from([("limit of the budget".to_owned(), format_budget(Some(uw)))]);
            audit::log(by, &value(before_uw), &value(power_uw));
            Ok(())
        });
        set.unwrap_or_else(|| Err(Refusal::for_field("until_boottime_ns", NO_FLOOR).help(FLOOR)))?;
        Ok(self.limit_report().unwrap_or_default())
    }

    /// The limit; `None` without a floor.
    pub(super) fn limit_report(&self) -> Option<LimitReport> {
        Some(self.limit.held()?.0.report(boottime_ns()))
    }

    /// Notes the limit, and looks for the bottleneck if that is wanted.
    pub(super) fn follow_limit(&self, state: &mut State) {
        if let Some((held, _)) = self.limit.held() {
            state.configured.limit_uw = Some(held.limit.power_uw());
        }
        if self.limit.asks.swap(false, Acquire) {
            let found = self.server.bottleneck().map(|component| component.name().to_owned());
            *self.limit.bottleneck.lock().unwrap_or_else(PoisonError::into_inner) = found;
        }
    }

    /// Power and load. The bottleneck is the one that was last known; it is looked for again if that is wanted, which wakes the main core.
    pub(super) fn counters(&self, asks: bool) -> CountersReport {
        if asks {
            self.limit.asks.store(true, Release);
            self.goals_have_changed();
        }
        let domain = budget::domain(self.limit.domain, &self.server.sources());
        let window = self.server.window(domain);
        let source = |power: PowerReport| power.modelled.map_or(power.sensor, |profile| format!("modelled: {profile}"));
        let stats = self.server.stats();
        CountersReport {
            now_ns: clock::now_ns(),
            power: window.map(|(began_ns, ended_ns, power_uw)| PowerWindowReport { began_ns, ended_ns, power_uw }),
            source: self.server.power().map_or_else(|| "no sensor".to_owned(), source),
            bottleneck: self.limit.bottleneck.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            read_bytes: stats.totals.read_bytes,
            written_bytes: stats.totals.written_bytes,
            busy_ns: stats.runtime.reactors.iter().map(|reactor| reactor.busy_ns).sum(),
            in_progress_ns: stats.threads.iter().map(|of| of.latency.sum_ns() + of.cap_waits.sum_ns()).sum(),
            io_threads: stats.threads.len(),
            limit: self.limit_report(),
        }
    }
}
