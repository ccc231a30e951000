//! Cores and I/O threads: who lives where, who rests, and what the policy was told.

use super::{Findings, Law};
use crate::engine::capabilities;
use crate::machine::Machine;
use crate::scenario::{Kind, Scenario};
use crate::trace::{Record, THROTTLED, What};

/// Where an I/O thread is.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// The core that it lives on; `None` on its way.
    home: Option<u64>,
    /// Since when.
    since_ns: u64,
    /// It leaves this core at this moment, and the record that it comes there follows: it only passes through.
    passes: Option<(u64, u64)>,
    /// Where it is to live, and since when.
    ordered: Option<(u64, u64)>,
    /// Whether it is to be polled all the time.
    polls: bool,
}

/// A core.
#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    rests: bool,
    /// Whether it has ever been commanded to sleep.
    told_to_sleep: bool,
    /// Whether it has ever been told to be off: it may have refused I/O threads.
    told_to_leave: bool,
}

/// A core that rests although one of its I/O threads polls, for all that is known.
#[derive(Clone, Copy, Debug)]
struct Suspect {
    core: u64,
    thread: usize,
    at_ns: u64,
    /// Whether it is enough that it wakes.
    wakes: bool,
}

pub(super) struct Cores<'a> {
    scenario: &'a Scenario,
    threads: Vec<Place>,
    cores: Vec<Watched>,
    suspects: Vec<Suspect>,
    /// The longest time that a core may take until it reads a message.
    pub(super) patience_ns: u64,
    /// The longest time between what a core knows of the way its threads wait, and the command.
    slack_ns: u64,
    /// The longest rest, and by how much the slowest core was slower than the fastest can be.
    rest_ns: u64,
    slow: u64,
    /// Commands that set a knob, and whether a quota has kept a core from running.
    knobs_set: u64,
    /// The knob of the quota's period, and the longest period so far, in nanoseconds.
    period: (Option<usize>, u64),
    /// The knobs that switch cores off, each with its core.
    switches: Vec<(usize, usize)>,
    throttles: bool,
    polled: u64,
    /// When a request was last polled, and how many had been before that moment.
    polled_ns: u64,
    polled_before: u64,
    told: [u64; 2],
    /// When it was asked last in each way.
    asked_ns: [u64; 2],
    pub(super) moves: u64,
    pub(super) rests: u64,
}

impl<'a> Cores<'a> {
    pub(super) fn new(scenario: &'a Scenario) -> Self {
        let cores = scenario.topology.len();
        let place = |thread: u16| Place {
            home: Some(u64::from(thread) % cores as u64),
            since_ns: 0,
            passes: None,
            ordered: None,
            polls: true,
        };
        Self {
            scenario,
            threads: (0..scenario.threads).map(place).collect(),
            cores: vec![Watched::default(); cores],
            suspects: Vec::new(),
            patience_ns: patience_ns(scenario, 1),
            slack_ns: slack_ns(scenario, 1),
            rest_ns: 0,
            slow: 1,
            knobs_set: 0,
            period: (period_knob(scenario), scenario.machine.limits.quota_period_ns),
            switches: switches(scenario),
            throttles: false,
            polled: 0,
            polled_ns: 0,
            polled_before: 0,
            told: [0; 2],
            asked_ns: [0; 2],
            moves: 0,
            rests: 0,
        }
    }

    pub(super) fn enter(&mut self, record: &Record, findings: &mut Findings) {
        self.judge(record.at_ns, findings);
        match record.what {
            What::Polled => {
                self.count(record.at_ns);
                self.check_home(record, findings);
            }
            What::Answered => self.check_home(record, findings),
            What::Core => self.turn(record, findings),
            What::Left => self.leave(record, findings),
            What::Home => self.come(record, findings),
            What::Asked => self.check_count(record, findings),
            What::Frequency => self.slow_down(record.b as u32),
            What::Limited => self.slow_down(record.a as u32),
            What::Commanded => self.command(record),
            What::Issued
            | What::Arrived
            | What::Submitted
            | What::Completed
            | What::Received
            | What::Ordered
            | What::Exits
            | What::Drive
            | What::Background
            | What::BackgroundDone => {}
        }
    }

    fn slow_down(&mut self, khz: u32) {
        let speed = self.scenario.machine.speed;
        let slow = u64::from(speed.max_khz / khz.max(1)).saturating_add(1).min(1_000);
        if slow > self.slow {
            self.slow = slow;
            self.excuse();
        }
    }

    /// How long whoever may not be where it is told to be is excused.
    fn excuse(&mut self) {
        // Others may be served first in each period.
        let periods = self.scenario.topology.workers().count() as u64 + 1;
        let throttled_ns = if self.throttles { periods * self.period.1 } else { 0 };
        self.slack_ns = slack_ns(self.scenario, self.slow) + self.rest_ns + throttled_ns;
        self.patience_ns = patience_ns(self.scenario, self.slow) + self.rest_ns + 2 * throttled_ns;
    }

    fn count(&mut self, at_ns: u64) {
        if at_ns > self.polled_ns {
            self.polled_ns = at_ns;
            self.polled_before = self.polled;
        }
        self.polled += 1;
    }

    /// A policy sees what was polled before it was asked, since it was asked last.
    fn check_count(&mut self, record: &Record, findings: &mut Findings) {
        let polled = if record.at_ns > self.polled_ns { self.polled } else { self.polled_before };
        let Some(told) = self.told.get_mut((record.a as usize).wrapping_sub(1)) else {
            findings.add(Law::Counts, format!("the policy is asked in a way {} that is none", record.a));
            return;
        };
        let last_ns = std::mem::replace(&mut self.asked_ns[record.a as usize - 1], record.at_ns);
        *told += record.b;
        // Where goals changed in between, it may not have wanted to be asked for a while.
        let mut changes = self.scenario.goals.iter();
        if *told < polled && changes.any(|&(at_ns, _)| last_ns < at_ns && at_ns <= record.at_ns) {
            *told = polled;
        }
        if *told != polled {
            findings
                .add(Law::Counts, format!("{polled} requests have been polled, the policy has been told of {told}"));
            *told = polled;
        }
    }

    /// A request is polled and answered on the core where its I/O thread lives, which is awake.
    fn check_home(&self, record: &Record, findings: &mut Findings) {
        let connection = (record.a >> 40) as usize;
        let Some(connection) = self.scenario.workload.connections.get(connection) else { return };
        let Some(place) = self.threads.get(usize::from(connection.thread)) else { return };
        if place.home != Some(record.b) {
            let text =
                format!("I/O thread {} works on core {} and lives on {:?}", connection.thread, record.b, place.home);
            findings.add(Law::Threads, text);
        }
        if self.cores.get(record.b as usize).is_none_or(|core| core.rests) {
            findings.add(Law::Sleep, format!("core {} works while it rests, or does not exist", record.b));
        }
    }

    fn turn(&mut self, record: &Record, findings: &mut Findings) {
        let Some(core) = self.cores.get_mut(record.a as usize) else {
            findings.add(Law::Sleep, format!("there is no core {}", record.a));
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
            self.suspects.retain(|suspect| suspect.core != record.a || !suspect.wakes);
            return;
        }
        self.rests += u64::from(!rested);
        let told = core.told_to_sleep;
        let mut empty = true;
        for (thread, place) in self.threads.iter().enumerate().filter(|(_, place)| place.home == Some(record.a)) {
            empty = false;
            if place.polls {
                self.suspects.push(Suspect { core: record.a, thread, at_ns, wakes: false });
            }
        }
        if empty && !told && record.a < self.first_scheduled() {
            findings.add(Law::Sleep, format!("core {} sleeps, and nobody has told it to", record.a));
        }
    }

    /// A worker that the quota keeps from running owns what it owns, and whoever needs it waits until it runs.
    fn throttle(&mut self, record: &Record, findings: &mut Findings) {
        self.rests += 1;
        let is_main = record.a == self.scenario.topology.main().index() as u64;
        if self.knobs_set == 0 || (is_main && !self.scenario.machine.limits.quota_of_main) {
            findings.add(Law::Sleep, format!("core {} is throttled, and no quota of it was set", record.a));
        }
        self.throttles = true;
        self.excuse();
    }

    /// Those who had to be excused by now are guilty.
    fn judge(&mut self, now_ns: u64, findings: &mut Findings) {
        let slack_ns = self.slack_ns;
        self.suspects.retain(|suspect| {
            let waits = now_ns <= suspect.at_ns.saturating_add(slack_ns);
            if !waits {
                let Suspect { core, thread, at_ns, .. } = suspect;
                let text = format!("core {core} rests from {at_ns} ns on and owns I/O thread {thread}, which polls");
                findings.add(Law::Sleep, text);
            }
            waits
        });
    }

    fn leave(&mut self, record: &Record, findings: &mut Findings) {
        let Some(place) = self.threads.get_mut(record.a as usize) else {
            findings.add(Law::Threads, format!("there is no I/O thread {}", record.a));
            return;
        };
        if place.home.is_none() && place.passes.is_none() {
            place.passes = Some((record.b, record.at_ns));
            return;
        }
        if place.home != Some(record.b) {
            let text = format!("I/O thread {} leaves core {} and lives on {:?}", record.a, record.b, place.home);
            findings.add(Law::Threads, text);
        }
        if place.ordered.is_none_or(|(to, _)| to == record.b) {
            findings.add(
                Law::Threads,
                format!("I/O thread {} leaves core {}, and nobody has told it to", record.a, record.b),
            );
        }
        (place.home, place.since_ns) = (None, record.at_ns);
    }

    fn come(&mut self, record: &Record, findings: &mut Findings) {
        let patience_ns = self.patience_ns;
        let Some(place) = self.threads.get_mut(record.a as usize) else {
            findings.add(Law::Threads, format!("there is no I/O thread {}", record.a));
            return;
        };
        if let Some(home) = place.home {
            findings
                .add(Law::Threads, format!("I/O thread {} comes to core {} and lives on {home}", record.a, record.b));
        } else if record.at_ns - place.since_ns > patience_ns {
            let text = format!("I/O thread {} was on its way for {} ns", record.a, record.at_ns - place.since_ns);
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
            None => findings.add(Law::Threads, format!("there is no core {}", record.b)),
            Some(core) if core.rests => {
                findings.add(Law::Sleep, format!("I/O thread {} comes to core {}, which rests", record.a, record.b));
            }
            Some(_) if record.b >= self.first_scheduled() => {
                findings.add(
                    Law::Threads,
                    format!("I/O thread {} comes to core {}, which is scheduled", record.a, record.b),
                );
            }
            Some(_) => {}
        }
    }

    /// The first core that runs programs and no I/O threads.
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
                    core.told_to_sleep = true;
                }
            }
            4 => self.wait_by(subject, argument, record.at_ns),
            5 => {
                self.knobs_set += 1;
                if let Some(&(_, core)) = self.switches.iter().find(|(knob, _)| *knob == subject)
                    && argument == 0
                    && let Some(core) = self.cores.get_mut(core)
                {
                    (core.told_to_sleep, core.told_to_leave) = (true, true);
                }
                if self.period.0 == Some(subject) {
                    self.period.1 = self.period.1.max(argument);
                    self.excuse();
                }
            }
            _ => {}
        }
    }

    /// How an I/O thread waits: 0 for polling, 1 for interrupts, more for rests of so many nanoseconds less 2.
    fn wait_by(&mut self, thread: usize, how: u64, at_ns: u64) {
        let Some(place) = self.threads.get_mut(thread) else { return };
        place.polls = how == 0;
        self.suspects.retain(|suspect| suspect.thread != thread);
        let rest_ns = how.saturating_sub(2);
        let longer_ns = rest_ns.saturating_sub(self.rest_ns);
        self.rest_ns += longer_ns;
        self.slack_ns += longer_ns;
        self.patience_ns += longer_ns;
        let home = place.home.filter(|&home| self.cores.get(home as usize).is_some_and(|core| core.rests));
        if let (true, Some(core)) = (place.polls, home) {
            // It is on its way out of the kernel; when it is awake, `turn` says so.
            self.suspects.push(Suspect { core, thread, at_ns, wakes: true });
        }
    }

    pub(super) fn finish(&mut self, findings: &mut Findings) {
        let end_ns = self.scenario.duration_ns;
        self.judge(end_ns, findings);
        for (thread, place) in self.threads.iter().enumerate() {
            if place.passes.is_some() {
                findings.claim(Law::Threads, end_ns, format!("I/O thread {thread} has left a core that it was not on"));
            }
            if place.home.is_none() && end_ns.saturating_sub(place.since_ns) > self.patience_ns {
                let text = format!("I/O thread {thread} has left at {} ns and come nowhere", place.since_ns);
                findings.claim(Law::Threads, end_ns, text);
            }
            if let (Some((to, ordered_ns)), Some(home)) = (place.ordered, place.home)
                && home != to
                && !self.cores.get(to as usize).is_some_and(|core| core.told_to_leave)
                && end_ns.saturating_sub(ordered_ns) > 2 * self.patience_ns
            {
                let text = format!("I/O thread {thread} lives on core {home}; ordered to core {to} at {ordered_ns} ns");
                findings.claim(Law::Threads, end_ns, text);
            }
        }
    }
}

/// The longest loop that is possible, and the longest way out of a sleep.
fn patience_ns(scenario: &Scenario, slow: u64) -> u64 {
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
    2 * loop_ns * slow + wake + switched + slack_ns(scenario, slow)
}

/// Between a command on the way a thread waits and its last effect: the commands of one decision, and the gathering of interrupts.
fn slack_ns(scenario: &Scenario, slow: u64) -> u64 {
    let Machine { kernel, sleep, .. } = scenario.machine;
    1_000 * u64::from(scenario.threads) * slow + kernel.coalesce_ns + sleep.rest_wake_ns
}

/// The knobs that switch cores off, each with its core.
fn switches(scenario: &Scenario) -> Vec<(usize, usize)> {
    let all = capabilities(scenario);
    let switch = |(id, knob): (pilotlight_plant::KnobId, &pilotlight_plant::Knob)| match knob.scope {
        pilotlight_plant::Scope::Core(core) => Some((id.index(), core.index())),
        _ => None,
    };
    all.knobs_of(pilotlight_plant::Kind::Online).filter_map(switch).collect()
}

/// The knob of the period of the quota of CPU time.
fn period_knob(scenario: &Scenario) -> Option<usize> {
    let all = capabilities(scenario);
    all.knobs_of(pilotlight_plant::Kind::QuotaPeriodNs).next().map(|(knob, _)| knob.index())
}
