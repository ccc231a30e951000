//! Validation of scenarios.

use super::meter::EPOCH_NS;
use super::{LONGEST_WINDOW_NS, RunError};
use crate::jobs::Job;
use crate::machine::Machine;
use crate::scenario::{Background, Kind, Rate, Scenario, Sensors};

pub(super) fn check(scenario: &Scenario) -> Result<(), RunError> {
    check_times(scenario)
        .and_then(|()| check_sensors(&scenario.sensors))
        .and_then(|()| check_machine(scenario))
        .and_then(|()| scenario.scheduled.as_ref().map_or(Ok(()), |scheduled| check_scheduled(scenario, scheduled)))
        .and_then(|()| check_background(scenario))
        .and_then(|()| check_connections(scenario))
        .map_err(RunError::Scenario)
}

fn on_grid(ns: u64) -> bool {
    ns.is_multiple_of(EPOCH_NS)
}

fn check_times(scenario: &Scenario) -> Result<(), String> {
    let (duration, warm_up, series) = (scenario.duration_ns, scenario.warm_up_ns, scenario.series_ns);
    if series == 0 || !on_grid(series) || !duration.is_multiple_of(series) || !warm_up.is_multiple_of(series) {
        return Err(format!(
            "duration ({duration} ns) and warm-up ({warm_up} ns) must be multiples of the series' step ({series} ns), and that of {EPOCH_NS} ns"
        ));
    }
    if !scenario.goals.is_sorted_by_key(|&(at_ns, _)| at_ns) || !scenario.changes.is_sorted_by_key(|&(at_ns, _)| at_ns)
    {
        return Err("goals and changes must be in order of time".to_owned());
    }
    if warm_up >= duration {
        return Err(format!("the warm-up ({warm_up} ns) must be shorter than the duration ({duration} ns)"));
    }
    Ok(())
}

fn check_sensors(sensors: &Sensors) -> Result<(), String> {
    let Sensors { window_ns, lag_ns, .. } = *sensors;
    if window_ns == 0 || !on_grid(window_ns) || lag_ns < LONGEST_WINDOW_NS {
        return Err(format!(
            "the window of sensors ({window_ns} ns) must be a multiple of {EPOCH_NS} ns, their lag ({lag_ns} ns) at least {LONGEST_WINDOW_NS} ns"
        ));
    }
    if sensors.meter.is_some_and(|meter| meter.lag_ns < LONGEST_WINDOW_NS || meter.update_ns == 0) {
        return Err(format!("the lag of a meter must be at least {LONGEST_WINDOW_NS} ns, and update_ns at least 1"));
    }
    Ok(())
}

fn check_machine(scenario: &Scenario) -> Result<(), String> {
    let Machine { network, speed, kernel, poll, .. } = &scenario.machine;
    if network.ports == 0 || network.port_mbit_s == 0 || network.round_trip_ns < 2 {
        return Err("the network needs a port, a rate and a round trip of at least 2 ns".to_owned());
    }
    if speed.min_khz == 0 || speed.min_khz > speed.max_khz || poll.batch == 0 {
        return Err("speed.min_khz must be at least 1 and at most speed.max_khz, poll.batch at least 1".to_owned());
    }
    if (kernel.drive_queues > 0 || kernel.network_queues > 0) && (kernel.ipi_ns == 0 || scenario.scheduled.is_some()) {
        return Err(
            "where cores take interrupts of others, kernel.ipi_ns is at least 1 and no core is scheduled".to_owned()
        );
    }
    if scenario.machine.sockets.server_sleep_ns > 0 && (kernel.drive_queues > 0 || kernel.network_queues > 0) {
        return Err("sockets.server_sleep_ns is 0 where cores take interrupts of others".to_owned());
    }
    if kernel.md && kernel.md_page_ns == 0 {
        return Err("with kernel.md, kernel.md_page_ns is at least 1".to_owned());
    }
    Ok(())
}

fn check_background(scenario: &Scenario) -> Result<(), String> {
    for (index, class) in scenario.workload.background.iter().enumerate() {
        let (first, count) = class.drives;
        let fits = count > 0 && usize::from(first) + usize::from(count) <= scenario.drives.len();
        let io = (1..=Background::MAX_BYTES).contains(&class.io_bytes);
        if !fits || !io || class.max_bytes_per_s == 0 || class.rate_ppm > 1_000_000 || scenario.threads == 0 {
            return Err(format!(
                "background work {index} needs an I/O thread, existing drives, I/O of 1 to {} bytes, a maximum rate, and a rate of at most 1,000,000 ppm of it",
                Background::MAX_BYTES
            ));
        }
    }
    Ok(())
}

fn check_connections(scenario: &Scenario) -> Result<(), String> {
    let (threads, drives) = (scenario.threads, scenario.drives.len());
    for (index, connection) in scenario.workload.connections.iter().enumerate() {
        let (first, count) = connection.drives;
        if connection.thread >= threads {
            return Err(format!("connection {index} uses I/O thread {}; there are {threads}", connection.thread));
        }
        if count == 0 || usize::from(first) + usize::from(count) > drives {
            return Err(format!("connection {index} uses {count} drives from {first} on; there are {drives}"));
        }
        if let Kind::Steps { steps, .. } = &connection.request
            && steps.iter().any(|step| step.reads + step.writes == 0)
        {
            return Err(format!("connection {index}: every step of a request needs a command"));
        }
        if connection.phases.is_empty() || connection.phases.iter().any(|phase| phase.length_ns == 0) {
            return Err(format!("connection {index} needs a phase, and every phase a length"));
        }
        let has_rates = connection.phases.iter().all(|phase| phase.rate != Rate::Unlimited);
        let is_open = has_rates && connection.think_ns == 0 && !matches!(connection.request, Kind::Traced { .. });
        if scenario.machine.sockets.client.look_ns > 0 && !is_open {
            return Err(format!(
                "connection {index}: threads of a client (sockets.client) send at a rate only, without a trace"
            ));
        }
    }
    Ok(())
}

/// Validates clients and jobs with a backlog.
fn check_client(job: &Job, all: &[Job]) -> Result<(), String> {
    let waits = job.backlog_ppm > 0 || job.stalls_bytes > 0;
    if job.think_after > 0 && (waits || job.is_client()) {
        return Err("is a client or has a backlog; think_after must be 0 (no rests)".to_owned());
    }
    if waits && job.method.spins() {
        return Err("waits for a backlog, but its I/O method never sleeps".to_owned());
    }
    // Less than a request is never processed, so waiting for it would never end.
    let too_few = |other: &Job| {
        u128::from(job.stalls_bytes) * u128::from(other.backlog_ppm) < u128::from(other.bytes) * 1_000_000
    };
    if job.stalls_bytes > 0 && all.iter().any(|other| other.backlog_ppm > 0 && too_few(other)) {
        return Err("waits for a backlog of less than a request".to_owned());
    }
    if job.backlog_ppm > 0 && (job.bytes == 0 || job.is_client() || job.stalls_bytes > 0) {
        return Err("has a backlog: it needs requests, no hits, and adds nothing to backlogs".to_owned());
    }
    Ok(())
}

fn check_scheduled(scenario: &Scenario, scheduled: &crate::jobs::Scheduled) -> Result<(), String> {
    let (cores, first) = (scenario.topology.len(), usize::from(scheduled.first_core));
    if first >= cores || (first == 0 && scenario.threads > 0) {
        return Err(format!(
            "of {cores} cores those from {first} on are scheduled: I/O threads need others, and jobs these"
        ));
    }
    let scheduled_core = |core: u16| (first..cores).contains(&usize::from(core));
    for (index, job) in scheduled.jobs.iter().enumerate() {
        let (core, count) = job.cores;
        if count == 0 || usize::from(core) < first || usize::from(core) + usize::from(count) > cores {
            return Err(format!(
                "job {index} runs on {count} cores from {core} on, and those from {first} to {} are scheduled",
                cores - 1
            ));
        }
        if job.method == crate::jobs::IoMethod::UringPolled && !scheduled_core(job.helper) {
            return Err(format!("the worker of job {index} is on core {}, which is not scheduled", job.helper));
        }
        if job.quota.is_some_and(|quota| usize::from(quota) >= scheduled.quotas.len()) {
            return Err(format!("job {index} has a quota that is not there"));
        }
        check_client(job, &scheduled.jobs).map_err(|why| format!("job {index} {why}"))?;
        if job.bytes > 0 && usize::from(job.drive) >= scenario.drives.len() {
            return Err(format!("job {index} uses drive {}, and there are {}", job.drive, scenario.drives.len()));
        }
    }
    let of_none = scheduled.quotas.iter().any(|quota| quota.period_ns == 0 || quota.slice_ns == 0);
    if of_none { Err("a quota needs a period and a slice".to_owned()) } else { Ok(()) }
}
