//! Checks cores and I/O threads: location, sleep, and the counts reported to the policy.

use super::{Findings, Law};
use crate::engine::capabilities;
use crate::machine::Machine;
use crate::scenario::{Kind, Scenario};
use crate::trace::{Record, RecordKind, THROTTLED};

/// Location of an I/O thread.
#[derive(Clone, Copy, Debug)]
struct ThreadLocation {
    /// Its core; `None` while it moves.
    home: Option<u64>,
    /// Time of the last change.
    since_ns: u64,
    /// The core and time of a departure whose arrival record follows: it only passes through.
    passes: Option<(u64, u64)>,
    /// The commanded core, and the time of the command.
    ordered: Option<(u64, u64)>,
    /// Whether it is in polling mode.
    polls: bool,
}

/// A core.
#[derive(Clone, Copy, Debug, Default)]
struct TrackedCore {
    rests: bool,
    /// Whether a sleep was ever commanded.
    commanded_to_sleep: bool,
    /// Whether it was ever commanded offline; it may then have refused I/O threads.
    commanded_offline: bool,
}

/// A core that rests although one of its I/O threads polls: a violation unless a later record explains it.
#[derive(Clone, Copy, Debug)]
struct PendingViolation {
    core: u64,
    thread: usize,
    at_ns: u64,
    /// Whether waking up resolves it.
    wakes: bool,
}

pub(super) struct CoreCheck<'a> {
    scenario: &'a Scenario,
    threads: Vec<ThreadLocation>,
    cores: Vec<TrackedCore>,
    pending: Vec<PendingViolation>,
    /// The longest time until a core reads a message.
    pub(super) max_wait_ns: u64,
    /// The longest time between a change of completion mode and its effect on the core.
    slack_ns: u64,
    /// The longest rest, and the largest slowdown of a core.
    rest_ns: u64,
    slow: u64,
    /// Number of knobs set, and whether a quota has throttled a core.
    knobs_set: u64,
    /// The knob of the quota's period, and the longest period so far, in nanoseconds.
    period: (Option<usize>, u64),
    /// Hotplug knobs, each with its core.
    switches: Vec<(usize, usize)>,
    is_throttled: bool,
    polled: u64,
    /// Time of the last poll of a request, and the number polled before.
    polled_ns: u64,
    polled_before: u64,
    reported: [u64; 2],
    /// Time of the last tick and interval.
    called_ns: [u64; 2],
    pub(super) moves: u64,
    pub(super) rests: u64,
}

impl<'a> CoreCheck<'a> {
    pub(super) fn new(scenario: &'a Scenario) -> Self {
        let cores = scenario.topology.len();
        let place = |thread: u16| ThreadLocation {
            home: Some(u64::from(thread) % cores as u64),
            since_ns: 0,
            passes: None,
            ordered: None,
            polls: true,
        };
        Self {
            scenario,
            threads: (0..scenario.threads).map(place).collect(),
            cores: vec![TrackedCore::default(); cores],
            pending: Vec::new(),
            max_wait_ns: max_wait_ns(scenario, 1),
            slack_ns: slack_ns(scenario, 1),
            rest_ns: 0,
            slow: 1,
            knobs_set: 0,
            period: (period_knob(scenario), scenario.machine.limits.quota_period_ns),
            switches: switches(scenario),
            is_throttled: false,
            polled: 0,
            polled_ns: 0,
            polled_before: 0,
            reported: [0; 2],
            called_ns: [0; 2],
            moves: 0,
            rests: 0,
        }
    }

    pub(super) fn enter(&mut self, record: &Record, findings: &mut Findings) {
        self.check_pending(record.at_ns, findings);
        match record.kind {
            RecordKind::Polled => {
                self.count(record.at_ns);
                self.check_home(record, findings);
            }
            RecordKind::Answered => self.check_home(record, findings),
            RecordKind::Core => self.turn(record, findings),
            RecordKind::Left => self.leave(record, findings),
            RecordKind::Home => self.come(record, findings),
            RecordKind::PolicyCalled => self.check_count(record, findings),
            RecordKind::Frequency => self.slow_down(record.b as u32),
            RecordKind::Limited => self.slow_down(record.a as u32),
            RecordKind::Commanded => self.command(record),
            RecordKind::Issued
            | RecordKind::Arrived
            | RecordKind::Submitted
            | RecordKind::Completed
            | RecordKind::Received
            | RecordKind::Ordered
            | RecordKind::Exits
            | RecordKind::Drive
            | RecordKind::Background
            | RecordKind::BackgroundDone => {}
        }
    }

    fn slow_down(&mut self, khz: u32) {
        let speed = self.scenario.machine.speed;
        let slow = u64::from(speed.max_khz / khz.max(1)).saturating_add(1).min(1_000);
        if slow > self.slow {
            self.slow = slow;
            self.extend_waits();
        }
    }

    /// Extends the allowed waits.
    fn extend_waits(&mut self) {
        // Others may be served first in each period.
        let periods = self.scenario.topology.workers().count() as u64 + 1;
        let throttled_ns = if self.is_throttled { periods * self.period.1 } else { 0 };
        self.slack_ns = slack_ns(self.scenario, self.slow) + self.rest_ns + throttled_ns;
        self.max_wait_ns = max_wait_ns(self.scenario, self.slow) + self.rest_ns + 2 * throttled_ns;
    }

    fn count(&mut self, at_ns: u64) {
        if at_ns > self.polled_ns {
            self.polled_ns = at_ns;
            self.polled_before = self.polled;
        }
        self.polled += 1;
    }

    /// Compares the reported count with the requests polled since the last call.
    fn check_count(&mut self, record: &Record, findings: &mut Findings) {
        let polled = if record.at_ns > self.polled_ns { self.polled } else { self.polled_before };
        let Some(reported) = self.reported.get_mut((record.a as usize).wrapping_sub(1)) else {
            findings.add(Law::Counts, format!("the policy is called with unknown code {}", record.a));
            return;
        };
        let last_ns = std::mem::replace(&mut self.called_ns[record.a as usize - 1], record.at_ns);
        *reported += record.b;
        // After a change of goals it may not have requested calls for some time.
        let mut changes = self.scenario.goals.iter();
        if *reported < polled && changes.any(|&(at_ns, _)| last_ns < at_ns && at_ns <= record.at_ns) {
            *reported = polled;
        }
        if *reported != polled {
            findings.add(Law::Counts, format!("{polled} requests were polled, {reported} were reported to the policy"));
            *reported = polled;
        }
    }

    /// A request is polled and answered on the core of its I/O thread, which is awake.
    fn check_home(&self, record: &Record, findings: &mut Findings) {
        let connection = (record.a >> 40) as usize;
        let Some(connection) = self.scenario.workload.connections.get(connection) else { return };
        let Some(place) = self.threads.get(usize::from(connection.thread)) else { return };
        if place.home != Some(record.b) {
            let text = format!(
                "I/O thread {} runs on core {} and is assigned to {:?}",
                connection.thread, record.b, place.home
            );
            findings.add(Law::Threads, text);
        }
        if self.cores.get(record.b as usize).is_none_or(|core| core.rests) {
            findings.add(Law::Sleep, format!("core {} runs while it rests, or does not exist", record.b));
        }
    }

    fn turn(&mut self, record: &Record, findings: &mut Findings) {
        let Some(core) = self.cores.get_mut(record.a as usize) else {
            findings.add(Law::Sleep, format!("core {} does not exist", record.a));
            return;
        };
        let (rested, at_ns) = (core.rests, record.at_ns);
        let throttled = record.b & THROTTLED != 0;
        core.rests = matches!(record.b & !THROTTLED, 1 | 2);
        if throttled {
            self.throttle(record, findings);
            return;
        }
        if !core.rests {
            self.pending.retain(|pending| pending.core != record.a || !pending.wakes);
            return;
        }
        self.rests += u64::from(!rested);
        let reported = core.commanded_to_sleep;
        let mut empty = true;
        for (thread, place) in self.threads.iter().enumerate().filter(|(_, place)| place.home == Some(record.a)) {
            empty = false;
            if place.polls {
                self.pending.push(PendingViolation { core: record.a, thread, at_ns, wakes: false });
            }
        }
        if empty && !reported && record.a < self.first_scheduled() {
            findings.add(Law::Sleep, format!("core {} sleeps without a command", record.a));
        }
    }

    /// A throttled worker keeps its I/O threads; everything that needs it waits.
    fn throttle(&mut self, record: &Record, findings: &mut Findings) {
        self.rests += 1;
        let is_main = record.a == self.scenario.topology.main().index() as u64;
        if self.knobs_set == 0 || (is_main && !self.scenario.machine.limits.quota_of_main) {
            findings.add(Law::Sleep, format!("core {} is throttled without a quota", record.a));
        }
        self.is_throttled = true;
        self.extend_waits();
    }

    /// Reports pending violations that were not resolved in time.
    fn check_pending(&mut self, now_ns: u64, findings: &mut Findings) {
        let slack_ns = self.slack_ns;
        self.pending.retain(|pending| {
            let waits = now_ns <= pending.at_ns.saturating_add(slack_ns);
            if !waits {
                let PendingViolation { core, thread, at_ns, .. } = pending;
                let text = format!("core {core} rests from {at_ns} ns although I/O thread {thread} polls");
                findings.add(Law::Sleep, text);
            }
            waits
        });
    }

    fn leave(&mut self, record: &Record, findings: &mut Findings) {
        let Some(place) = self.threads.get_mut(record.a as usize) else {
            findings.add(Law::Threads, format!("I/O thread {} does not exist", record.a));
            return;
        };
        if place.home.is_none() && place.passes.is_none() {
            place.passes = Some((record.b, record.at_ns));
            return;
        }
        if place.home != Some(record.b) {
            let text = format!("I/O thread {} leaves core {} and is assigned to {:?}", record.a, record.b, place.home);
            findings.add(Law::Threads, text);
        }
        if place.ordered.is_none_or(|(to, _)| to == record.b) {
            findings.add(Law::Threads, format!("I/O thread {} leaves core {} without a command", record.a, record.b));
        }
        (place.home, place.since_ns) = (None, record.at_ns);
    }

    fn come(&mut self, record: &Record, findings: &mut Findings) {
        let max_wait_ns = self.max_wait_ns;
        let Some(place) = self.threads.get_mut(record.a as usize) else {
            findings.add(Law::Threads, format!("I/O thread {} does not exist", record.a));
            return;
        };
        if let Some(home) = place.home {
            findings.add(
                Law::Threads,
                format!("I/O thread {} arrives at core {} and is assigned to {home}", record.a, record.b),
            );
        } else if record.at_ns - place.since_ns > max_wait_ns {
            let text = format!("the move of I/O thread {} took {} ns", record.a, record.at_ns - place.since_ns);
            findings.add(Law::Threads, text);
        }
        let passes = place.passes.take();
        if passes.is_some_and(|passes| passes != (record.b, record.at_ns)) {
            findings.add(Law::Threads, format!("I/O thread {} has left a core that it was not on", record.a));
        }
        place.home = if passes.is_some() { None } else { Some(record.b) };
        place.since_ns = record.at_ns;
        self.moves += 1;
        match self.cores.get(record.b as usize) {
            None => findings.add(Law::Threads, format!("core {} does not exist", record.b)),
            Some(core) if core.rests => {
                findings.add(Law::Sleep, format!("I/O thread {} arrives at core {}, which rests", record.a, record.b));
            }
            Some(_) if record.b >= self.first_scheduled() => {
                findings.add(
                    Law::Threads,
                    format!("I/O thread {} arrives at core {}, which is scheduled", record.a, record.b),
                );
            }
            Some(_) => {}
        }
    }

    /// The first scheduled core.
    fn first_scheduled(&self) -> u64 {
        self.scenario.scheduled.as_ref().map_or(u64::MAX, |scheduled| u64::from(scheduled.first_core))
    }

    fn command(&mut self, record: &Record) {
        let (subject, argument) = ((record.b >> 32) as usize, record.b & u64::from(u32::MAX));
        match record.a {
            1 if argument < self.first_scheduled().min(self.cores.len() as u64) => {
                let Some(place) = self.threads.get_mut(subject) else { return };
                if place.ordered.is_none_or(|(to, _)| to != argument) {
                    place.ordered = Some((argument, record.at_ns));
                }
            }
            2 => {
                if let Some(core) = self.cores.get_mut(subject) {
                    core.commanded_to_sleep = true;
                }
            }
            4 => self.wait_by(subject, argument, record.at_ns),
            5 => {
                self.knobs_set += 1;
                if let Some(&(_, core)) = self.switches.iter().find(|(knob, _)| *knob == subject)
                    && argument == 0
                    && let Some(core) = self.cores.get_mut(core)
                {
                    (core.commanded_to_sleep, core.commanded_offline) = (true, true);
                }
                if self.period.0 == Some(subject) {
                    self.period.1 = self.period.1.max(argument);
                    self.extend_waits();
                }
            }
            _ => {}
        }
    }

    /// Sets a completion mode: 0 polling, 1 interrupts, otherwise rests of `how - 2` nanoseconds.
    fn wait_by(&mut self, thread: usize, how: u64, at_ns: u64) {
        let Some(place) = self.threads.get_mut(thread) else { return };
        place.polls = how == 0;
        self.pending.retain(|pending| pending.thread != thread);
        let rest_ns = how.saturating_sub(2);
        let longer_ns = rest_ns.saturating_sub(self.rest_ns);
        self.rest_ns += longer_ns;
        self.slack_ns += longer_ns;
        self.max_wait_ns += longer_ns;
        let home = place.home.filter(|&home| self.cores.get(home as usize).is_some_and(|core| core.rests));
        if let (true, Some(core)) = (place.polls, home) {
            // It is leaving the kernel; `turn` resolves this once it is awake.
            self.pending.push(PendingViolation { core, thread, at_ns, wakes: true });
        }
    }

    pub(super) fn finish(&mut self, findings: &mut Findings) {
        let end_ns = self.scenario.duration_ns;
        self.check_pending(end_ns, findings);
        for (thread, place) in self.threads.iter().enumerate() {
            if place.passes.is_some() {
                findings.add_for_run(
                    Law::Threads,
                    end_ns,
                    format!("I/O thread {thread} has left a core that it was not on"),
                );
            }
            if place.home.is_none() && end_ns.saturating_sub(place.since_ns) > self.max_wait_ns {
                let text = format!("I/O thread {thread} left at {} ns and did not arrive", place.since_ns);
                findings.add_for_run(Law::Threads, end_ns, text);
            }
            if let (Some((to, ordered_ns)), Some(home)) = (place.ordered, place.home)
                && home != to
                && !self.cores.get(to as usize).is_some_and(|core| core.commanded_offline)
                && end_ns.saturating_sub(ordered_ns) > 2 * self.max_wait_ns
            {
                let text = format!("I/O thread {thread} is on core {home}; moved to core {to} at {ordered_ns} ns");
                findings.add_for_run(Law::Threads, end_ns, text);
            }
        }
    }
}

/// The longest loop plus the longest wake-up.
fn max_wait_ns(scenario: &Scenario, slow: u64) -> u64 {
    let Machine { poll, sleep, kernel, director, .. } = scenario.machine;
    let commands = |kind: &Kind| match kind {
        Kind::Plain { .. } | Kind::Traced { .. } => (1, 0),
        Kind::Steps { steps, .. } => steps.iter().fold((0, 0), |(commands, parity), step| {
            (commands + u64::from(step.reads + step.writes), parity + u64::from(step.parity_kib))
        }),
    };
    let all = scenario.workload.connections.iter().map(|connection| commands(&connection.request));
    let (commands, parity_kib) = all.fold((1, 0), |most, one| (one.0.max(most.0), one.1.max(most.1)));
    let received = u64::from(poll.receive_ns) + u64::from(kernel.request_ns);
    let begun = commands * u64::from(poll.submit_ns) + parity_kib * u64::from(poll.parity_ns_per_kib);
    let ended = u64::from(poll.complete_ns) + u64::from(poll.respond_ns);
    let work = u64::from(poll.batch) * (received + 2 * begun + ended);
    let empty = u64::from(poll.thread_ns) + u64::from(poll.queue_ns) * scenario.drives.len() as u64;
    let each = work + empty + u64::from(director.move_ns) + sleep.software_waker_ns + u64::from(director.frequency_ns);
    let takes = kernel.drive_queues > 0 || kernel.network_queues > 0;
    let taken = u64::from(kernel.interrupt_ns) * u64::from(poll.batch) * commands + u64::from(kernel.switch_ns);
    let each = if takes { each + taken + kernel.ipi_ns } else { each };
    let loop_ns = u64::from(poll.loop_ns) + u64::from(scenario.threads) * each;
    let wake = sleep.monitor_wake_ns + sleep.software_wake_ns + kernel.shallow_exit_ns + kernel.deep_exit_ns;
    let switched = scenario.machine.hotplug.map_or(0, |hotplug| 2 * (hotplug.offline_ns + hotplug.online_ns));
    let cold_ns = u64::from(scenario.machine.sockets.cold_ns(scenario.duration_ns));
    2 * loop_ns * slow + wake + cold_ns + switched + slack_ns(scenario, slow)
}

/// Longest time from a change of completion mode to its effect: the commands of one decision, and interrupt coalescing.
fn slack_ns(scenario: &Scenario, slow: u64) -> u64 {
    let Machine { kernel, sleep, .. } = scenario.machine;
    1_000 * u64::from(scenario.threads) * slow + kernel.coalesce_ns + sleep.rest_wake_ns + longest_pause_ns(scenario)
}

/// A pause after requests ends at a message that is known when it begins, so it may delay others by all of it.
fn longest_pause_ns(scenario: &Scenario) -> u64 {
    if scenario.machine.sockets.server_sleep_ns > 0 { pilotlight_plant::LONGEST_PAUSE_NS } else { 0 }
}

/// Hotplug knobs, each with its core.
fn switches(scenario: &Scenario) -> Vec<(usize, usize)> {
    let all = capabilities(scenario);
    let switch = |(id, knob): (pilotlight_plant::KnobId, &pilotlight_plant::Knob)| match knob.scope {
        pilotlight_plant::Scope::Core(core) => Some((id.index(), core.index())),
        _ => None,
    };
    all.knobs_of(pilotlight_plant::Kind::Online).filter_map(switch).collect()
}

/// The knob of the quota's period.
fn period_knob(scenario: &Scenario) -> Option<usize> {
    let all = capabilities(scenario);
    all.knobs_of(pilotlight_plant::Kind::QuotaPeriodNs).next().map(|(knob, _)| knob.index())
}
