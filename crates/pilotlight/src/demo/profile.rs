//! A short profile of this machine for `pass`: what the CPU draws at a few CPU quotas of the worker cores, and how often they then poll.
//!
//! `pilotlab profile` makes a full one. This one has the mean time between two polls where `pass` uses the 99th percentile: of
//! configurations that differ only in the quota both have the same order.

use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, Instant};

use pilotlight_plant::{Command, Kind, Next, Policy, Start, Unsupported, Wants};
use pilotlight_reactor::clock;

use super::stage::Stage;
use crate::policies::BudgetDomain;
use crate::serve::power::Power;

/// Quotas, as shares of the highest.
const SHARES: [f64; 4] = [1.0, 0.6, 0.3, 0.1];
/// Longest wait for a window of the sensor.
const SENSOR_TIMEOUT: Duration = Duration::from_secs(3);
/// Time until a quota holds: two of its periods.
const HOLDS_NS: u64 = 200_000_000;
const INTERVAL: Duration = Duration::from_millis(20);
const CORE_PPM: f64 = 1e6;
/// Power has to fall by this share from the highest quota to the lowest, or it does not follow the quota: several times the difference
/// between two windows at rest (chosen).
const MIN_FALL: f64 = 0.1;

/// Sets the CPU quota, with all cores polling.
struct Hold(f64);

impl Policy for Hold {
    fn name(&self) -> &'static str {
        "hold"
    }

    fn wants(&self) -> Wants {
        Wants::default()
    }

    fn start(&mut self, start: &Start<'_>, out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        for (knob, found) in start.capabilities.knobs_of(Kind::QuotaPpm) {
            let highest = found.values.highest().unwrap_or(found.initial);
            out.push(Command::Set { knob, value: (highest as f64 * self.0) as u64 });
        }
        if out.is_empty() {
            let remedy = "it takes a cgroup that the server may write";
            return Err(Unsupported { policy: "hold", feature: "a quota of CPU time", remedy });
        }
        Ok(Next::NEVER)
    }
}

/// The measurement at one quota.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// The quota, as a share of the highest.
    share: f64,
    power_uw: u64,
    /// Mean time between two polls of a worker, in nanoseconds.
    interval_ns: f64,
}

/// The text of a profile; `None` where this machine has no quota, or its power does not follow it.
pub(super) fn measure(stage: &Stage, power: &Power, domain: BudgetDomain) -> Option<String> {
    let workers = stage.reactors() - 1;
    let mut rows = Vec::new();
    for share in SHARES {
        stage.set_policy(Box::new(Hold(share))).ok()?;
        let since_ns = clock::now_ns() + HOLDS_NS;
        let (before, begin) = (polls(stage), Instant::now());
        let power_uw = window_since(power, domain, since_ns)?;
        let polls = polls(stage).saturating_sub(before).max(1);
        let interval_ns = begin.elapsed().as_nanos() as f64 * workers as f64 / polls as f64;
        rows.push(Row { share, power_uw, interval_ns });
    }
    text(&rows, workers)
}

/// Of rows with falling quotas.
fn text(rows: &[Row], workers: usize) -> Option<String> {
    let (first, last) = (rows.first()?, rows.last()?);
    if last.power_uw as f64 > first.power_uw as f64 * (1.0 - MIN_FALL) {
        return None; // something else draws what the workers leave
    }
    let mut text = "name = \"measured by the demo\"\ncpu.rows = [".to_owned();
    for Row { share, power_uw, interval_ns } in rows {
        let quota_ppm = CORE_PPM + share * workers as f64 * CORE_PPM; // the main core has none
        let _ = write!(
            text,
            "{{ power_uw = {power_uw}, cores = {}, quota_ppm = {quota_ppm:.0}, limit_uw = 1_000_000_000, p99_interval = {interval_ns:.1} }}, ",
            workers + 1
        );
    }
    // Drives are no part of it: the namespace is in memory.
    text += "]\nothers.most_uw = 0\n[ssd]\ndrives = 1\nidle_uw = 0\nread_uw = 1\nread_bytes_per_s = 1_000_000_000\nwritten_uw = 1\n\
             written_bytes_per_s = 1_000_000_000\nfloor_bytes_per_s = 10_485_760\n";
    Some(text)
}

/// Polls of all workers.
fn polls(stage: &Stage) -> u64 {
    stage.stats().reactors.iter().skip(1).map(|reactor| reactor.loops).sum()
}

/// Power of the first window that begins then or later, in microwatts.
fn window_since(power: &Power, domain: BudgetDomain, since_ns: u64) -> Option<u64> {
    let begin = Instant::now();
    while begin.elapsed() < SENSOR_TIMEOUT {
        if let Some((began_ns, _, power_uw)) = power.window(domain)
            && began_ns >= since_ns
        {
            return Some(power_uw);
        }
        thread::sleep(INTERVAL);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(watts: [u64; 4]) -> Vec<Row> {
        let row = |(share, watts): (f64, u64)| Row { share, power_uw: watts * 1_000_000, interval_ns: 500.0 / share };
        SHARES.into_iter().zip(watts).map(row).collect()
    }

    #[test]
    fn pass_takes_the_profile() {
        let text = text(&rows([20, 16, 13, 11]), 1).expect("power follows the quota");
        assert!(text.contains("power_uw = 16000000, cores = 2, quota_ppm = 1600000"), "{text}");
        assert!(pilotlight_policy::build("pass", &[("profile", &text)]).is_ok(), "{text}");
    }

    #[test]
    fn power_independent_of_the_quota_gives_no_profile() {
        assert!(text(&rows([20, 20, 20, 19]), 1).is_none());
        assert!(text(&[], 1).is_none());
    }
}
