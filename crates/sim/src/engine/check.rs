//! Whether a scenario can be run: its parts fit each other.

use super::meter::EPOCH_NS;
use super::{LONGEST_WINDOW_NS, RunError};
use crate::jobs::Job;
use crate::scenario::{Background, Kind, Scenario, Sensors};

pub(super) fn check(scenario: &Scenario) -> Result<(), RunError> {
    let wrong = |text: String| Err(RunError::Scenario(text));
    let on_grid = |ns: u64| ns.is_multiple_of(EPOCH_NS);
    let (duration, warm_up, series) = (scenario.duration_ns, scenario.warm_up_ns, scenario.series_ns);
    if series == 0 || !on_grid(series) || !duration.is_multiple_of(series) || !warm_up.is_multiple_of(series) {
        return wrong(format!(
            "duration ({duration} ns) and warm-up ({warm_up} ns) must be multiples of the series' step ({series} ns), and that of {EPOCH_NS} ns"
        ));
    }
    let Sensors { window_ns, lag_ns, .. } = scenario.sensors;
    if window_ns == 0 || !on_grid(window_ns) || lag_ns < LONGEST_WINDOW_NS {
        return wrong(format!(
            "sensors measure over a multiple of {EPOCH_NS} ns ({window_ns} ns), and are at least {LONGEST_WINDOW_NS} ns late ({lag_ns} ns)"
        ));
    }
    if scenario.sensors.meter.is_some_and(|meter| meter.lag_ns < LONGEST_WINDOW_NS || meter.update_ns == 0) {
        return wrong(format!("a meter is at least {LONGEST_WINDOW_NS} ns late, and has a time between two readings"));
    }
    if !scenario.goals.is_sorted_by_key(|&(at_ns, _)| at_ns) || !scenario.changes.is_sorted_by_key(|&(at_ns, _)| at_ns)
    {
        return wrong("goals and changes must come in the order of time".to_owned());
    }
    if warm_up >= duration {
        return wrong(format!("the warm-up ({warm_up} ns) must be shorter than the duration ({duration} ns)"));
    }
    let network = scenario.machine.network;
    if network.ports == 0 || network.port_mbit_s == 0 || network.round_trip_ns < 2 {
        return wrong("network needs a port, a rate and a round trip of at least 2 ns".to_owned());
    }
    let speed = scenario.machine.speed;
    if speed.min_khz == 0 || speed.min_khz > speed.max_khz || scenario.machine.poll.batch == 0 {
        return wrong("speed.min_khz must be at least 1 and at most speed.max_khz, poll.batch at least 1".to_owned());
    }
    let kernel = scenario.machine.kernel;
    if (kernel.drive_queues > 0 || kernel.network_queues > 0) && (kernel.ipi_ns == 0 || scenario.scheduled.is_some()) {
        return wrong(
            "where cores take interrupts of others, kernel.ipi_ns is at least 1 and no core is scheduled".to_owned(),
        );
    }
    if kernel.md && kernel.md_page_ns == 0 {
        return wrong("with kernel.md, kernel.md_page_ns is at least 1".to_owned());
    }
    if let Some(scheduled) = &scenario.scheduled {
        check_scheduled(scenario, scheduled).or_else(wrong)?;
    }
    for (index, class) in scenario.workload.background.iter().enumerate() {
        let (first, count) = class.drives;
        let fits = count > 0 && usize::from(first) + usize::from(count) <= scenario.drives.len();
        let io = (1..=Background::MOST_BYTES).contains(&class.io_bytes);
        if !fits || !io || class.most_bytes_per_s == 0 || class.rate_ppm > 1_000_000 || scenario.threads == 0 {
            return wrong(format!(
                "background work {index} needs an I/O thread, drives that there are, I/O of 1 to {} bytes, a highest rate, and at most that",
                Background::MOST_BYTES
            ));
        }
    }
    for (index, connection) in scenario.workload.connections.iter().enumerate() {
        let (first, count) = connection.drives;
        if connection.thread >= scenario.threads {
            return wrong(format!(
                "connection {index} is for I/O thread {}, and there are {}",
                connection.thread, scenario.threads
            ));
        }
        if count == 0 || usize::from(first) + usize::from(count) > scenario.drives.len() {
            return wrong(format!(
                "connection {index} uses {count} drives from {first} on, and there are {}",
                scenario.drives.len()
            ));
        }
        if let Kind::Steps { steps, .. } = &connection.request
            && steps.iter().any(|step| step.reads + step.writes == 0)
        {
            return wrong(format!("connection {index}: every step of a request needs a command"));
        }
        if connection.phases.is_empty() || connection.phases.iter().any(|phase| phase.length_ns == 0) {
            return wrong(format!("connection {index} needs a phase, and every phase a length"));
        }
    }
    Ok(())
}

/// What clients and jobs with a backlog may not be.
fn check_client(job: &Job, all: &[Job]) -> Result<(), String> {
    let waits = job.backlog_ppm > 0 || job.stalls_bytes > 0;
    if job.think_after > 0 && (waits || job.is_client()) {
        return Err("is a client or has a backlog, and rests".to_owned());
    }
    if waits && job.way.spins() {
        return Err("waits for a backlog, and its way never sleeps".to_owned());
    }
    // Less than a request is never worked off, so that who waits for it would wait forever.
    let too_few = |other: &Job| {
        u128::from(job.stalls_bytes) * u128::from(other.backlog_ppm) < u128::from(other.bytes) * 1_000_000
    };
    if job.stalls_bytes > 0 && all.iter().any(|other| other.backlog_ppm > 0 && too_few(other)) {
        return Err("waits for a backlog of less than a request".to_owned());
    }
    if job.backlog_ppm > 0 && (job.bytes == 0 || job.is_client() || job.stalls_bytes > 0) {
        return Err("has a backlog: it needs requests, no hits, and adds nothing".to_owned());
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
        if job.way == crate::jobs::Way::UringPolled && !scheduled_core(job.helper) {
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
