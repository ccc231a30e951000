//! Validation of scenarios.

use pilotlight_plant::Unsupported;

use super::LONGEST_WINDOW_NS;
use super::meter::EPOCH_NS;
use crate::jobs::Job;
use crate::machine::Machine;
use crate::scenario::{Background, Kind, Rate, Scenario, Sensors};

/// How a scenario is inconsistent. Times are in nanoseconds.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// It breaks a rule.
    #[error("{0}")]
    Rule(&'static str),
    /// A connection or a job, by its number, breaks a rule.
    #[error("{0} {1}{2}")]
    Part(&'static str, usize, &'static str),
    /// Duration, warm-up and step of the series are not multiples.
    #[error(
        "duration ({0} ns) and warm-up ({1} ns) must be multiples of the series' step ({2} ns), and that of {EPOCH_NS} ns"
    )]
    Times(u64, u64, u64),
    /// The warm-up is not shorter than the duration.
    #[error("the warm-up ({0} ns) must be shorter than the duration ({1} ns)")]
    WarmUp(u64, u64),
    /// The window or the lag of sensors is invalid.
    #[error(
        "the window of sensors ({0} ns) must be a multiple of {EPOCH_NS} ns, their lag ({1} ns) at least {LONGEST_WINDOW_NS} ns"
    )]
    Sensors(u64, u64),
    /// The lag or the update interval of a meter is invalid.
    #[error("the lag of a meter must be at least {LONGEST_WINDOW_NS} ns, and update_ns at least 1")]
    Meter,
    /// A class of background work is invalid.
    #[error(
        "background work {0} needs an I/O thread, existing drives, I/O of 1 to {max} bytes, a maximum rate, and a rate of at most 1,000,000 \
         ppm of it", max = Background::MAX_BYTES
    )]
    Background(usize),
    /// A connection uses a thread beyond the last.
    #[error("connection {0} uses I/O thread {1}; there are {2}")]
    Thread(usize, u16, u16),
    /// A connection uses drives (number and first) beyond the last.
    #[error("connection {0} uses {1} drives from {2} on; there are {3}")]
    Drives(usize, u16, u16, usize),
    /// A job uses a drive beyond the last.
    #[error("job {0} uses drive {1}, and there are {2}")]
    Drive(usize, u16, usize),
    /// Cores from a first one on are scheduled, without any for the I/O threads or the jobs.
    #[error("of {0} cores those from {1} on are scheduled: I/O threads need others, and jobs these")]
    Scheduled(usize, usize),
    /// A job uses cores (number and first) that are not those scheduled (first and last).
    #[error("job {0} runs on {1} cores from {2} on, and those from {3} to {4} are scheduled")]
    Cores(usize, u16, u16, usize, usize),
    /// The worker of a job is on a core that is not scheduled.
    #[error("the worker of job {0} is on core {1}, which is not scheduled")]
    Worker(usize, u16),
    /// The governor has the frequencies that the policy needs.
    #[error("{0}; under machine.governor = schedutil no policy can set a frequency")]
    Governor(Unsupported),
}

use ScenarioError::{Part, Rule};

pub(super) fn check(scenario: &Scenario) -> Result<(), ScenarioError> {
    check_times(scenario)?;
    check_sensors(&scenario.sensors)?;
    check_machine(scenario)?;
    scenario.scheduled.as_ref().map_or(Ok(()), |scheduled| check_scheduled(scenario, scheduled))?;
    check_background(scenario)?;
    check_connections(scenario)
}

fn on_grid(ns: u64) -> bool {
    ns.is_multiple_of(EPOCH_NS)
}

fn check_times(scenario: &Scenario) -> Result<(), ScenarioError> {
    let (duration, warm_up, series) = (scenario.duration_ns, scenario.warm_up_ns, scenario.series_ns);
    if series == 0 || !on_grid(series) || !duration.is_multiple_of(series) || !warm_up.is_multiple_of(series) {
        return Err(ScenarioError::Times(duration, warm_up, series));
    }
    if !scenario.goals.is_sorted_by_key(|&(at_ns, _)| at_ns) || !scenario.changes.is_sorted_by_key(|&(at_ns, _)| at_ns)
    {
        return Err(Rule("goals and changes must be in order of time"));
    }
    if warm_up >= duration {
        return Err(ScenarioError::WarmUp(warm_up, duration));
    }
    Ok(())
}

fn check_sensors(sensors: &Sensors) -> Result<(), ScenarioError> {
    let Sensors { window_ns, lag_ns, .. } = *sensors;
    if window_ns == 0 || !on_grid(window_ns) || lag_ns < LONGEST_WINDOW_NS {
        return Err(ScenarioError::Sensors(window_ns, lag_ns));
    }
    if sensors.meter.is_some_and(|meter| meter.lag_ns < LONGEST_WINDOW_NS || meter.update_ns == 0) {
        return Err(ScenarioError::Meter);
    }
    Ok(())
}

fn check_machine(scenario: &Scenario) -> Result<(), ScenarioError> {
    let Machine { network, speed, kernel, poll, .. } = &scenario.machine;
    if network.ports == 0 || network.port_mbit_s == 0 || network.round_trip_ns < 2 {
        return Err(Rule("the network needs a port, a rate and a round trip of at least 2 ns"));
    }
    if speed.min_khz == 0 || speed.min_khz > speed.max_khz || poll.batch == 0 {
        return Err(Rule("speed.min_khz must be at least 1 and at most speed.max_khz, poll.batch at least 1"));
    }
    if (kernel.drive_queues > 0 || kernel.network_queues > 0) && (kernel.ipi_ns == 0 || scenario.scheduled.is_some()) {
        return Err(Rule(
            "where cores take interrupts of others, kernel.ipi_ns is at least 1 and no core is scheduled",
        ));
    }
    if scenario.machine.sockets.server_sleep_ns > 0 && (kernel.drive_queues > 0 || kernel.network_queues > 0) {
        return Err(Rule("sockets.server_sleep_ns is 0 where cores take interrupts of others"));
    }
    if kernel.md && kernel.md_page_ns == 0 {
        return Err(Rule("with kernel.md, kernel.md_page_ns is at least 1"));
    }
    Ok(())
}

fn check_background(scenario: &Scenario) -> Result<(), ScenarioError> {
    for (index, class) in scenario.workload.background.iter().enumerate() {
        let (first, count) = class.drives;
        let fits = count > 0 && usize::from(first) + usize::from(count) <= scenario.drives.len();
        let io = (1..=Background::MAX_BYTES).contains(&class.io_bytes);
        if !fits || !io || class.max_bytes_per_s == 0 || class.rate_ppm > 1_000_000 || scenario.threads == 0 {
            return Err(ScenarioError::Background(index));
        }
    }
    Ok(())
}

fn check_connections(scenario: &Scenario) -> Result<(), ScenarioError> {
    let (threads, drives) = (scenario.threads, scenario.drives.len());
    for (index, connection) in scenario.workload.connections.iter().enumerate() {
        let (first, count) = connection.drives;
        if connection.thread >= threads {
            return Err(ScenarioError::Thread(index, connection.thread, threads));
        }
        if count == 0 || usize::from(first) + usize::from(count) > drives {
            return Err(ScenarioError::Drives(index, count, first, drives));
        }
        if let Kind::Steps { steps, .. } = &connection.request
            && steps.iter().any(|step| step.reads + step.writes == 0)
        {
            return Err(Part("connection", index, ": every step of a request needs a command"));
        }
        if connection.phases.is_empty() || connection.phases.iter().any(|phase| phase.length_ns == 0) {
            return Err(Part("connection", index, " needs a phase, and every phase a length"));
        }
        let has_rates = connection.phases.iter().all(|phase| phase.rate != Rate::Unlimited);
        let is_open = has_rates && connection.think_ns == 0 && !matches!(connection.request, Kind::Traced { .. });
        if scenario.machine.sockets.client.look_ns > 0 && !is_open {
            let rule = ": threads of a client (sockets.client) send at a rate only, without a trace";
            return Err(Part("connection", index, rule));
        }
    }
    Ok(())
}

/// Validates clients and jobs with a backlog.
fn check_client(job: &Job, all: &[Job]) -> Result<(), &'static str> {
    let waits = job.backlog_ppm > 0 || job.stalls_bytes > 0;
    if job.think_after > 0 && (waits || job.is_client()) {
        return Err(" is a client or has a backlog; think_after must be 0 (no rests)");
    }
    if waits && job.method.spins() {
        return Err(" waits for a backlog, but its I/O method never sleeps");
    }
    // Less than a request is never processed, so waiting for it would never end.
    let too_few = |other: &Job| {
        u128::from(job.stalls_bytes) * u128::from(other.backlog_ppm) < u128::from(other.bytes) * 1_000_000
    };
    if job.stalls_bytes > 0 && all.iter().any(|other| other.backlog_ppm > 0 && too_few(other)) {
        return Err(" waits for a backlog of less than a request");
    }
    if job.backlog_ppm > 0 && (job.bytes == 0 || job.is_client() || job.stalls_bytes > 0) {
        return Err(" has a backlog: it needs requests, no hits, and adds nothing to backlogs");
    }
    Ok(())
}

fn check_scheduled(scenario: &Scenario, scheduled: &crate::jobs::Scheduled) -> Result<(), ScenarioError> {
    let (cores, first) = (scenario.topology.len(), usize::from(scheduled.first_core));
    if first >= cores || (first == 0 && scenario.threads > 0) {
        return Err(ScenarioError::Scheduled(cores, first));
    }
    let scheduled_core = |core: u16| (first..cores).contains(&usize::from(core));
    for (index, job) in scheduled.jobs.iter().enumerate() {
        let (core, count) = job.cores;
        if count == 0 || usize::from(core) < first || usize::from(core) + usize::from(count) > cores {
            return Err(ScenarioError::Cores(index, count, core, first, cores - 1));
        }
        if job.method == crate::jobs::IoMethod::UringPolled && !scheduled_core(job.helper) {
            return Err(ScenarioError::Worker(index, job.helper));
        }
        if job.quota.is_some_and(|quota| usize::from(quota) >= scheduled.quotas.len()) {
            return Err(Part("job", index, " has a quota that is not there"));
        }
        check_client(job, &scheduled.jobs).map_err(|rule| Part("job", index, rule))?;
        if job.bytes > 0 && usize::from(job.drive) >= scenario.drives.len() {
            return Err(ScenarioError::Drive(index, job.drive, scenario.drives.len()));
        }
    }
    let of_none = scheduled.quotas.iter().any(|quota| quota.period_ns == 0 || quota.slice_ns == 0);
    if of_none { Err(Rule("a quota needs a period and a slice")) } else { Ok(()) }
}
