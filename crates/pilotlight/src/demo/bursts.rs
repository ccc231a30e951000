//! SANDMAN's bursts (section 3.2), and what is measured of one of them under one policy.
//!
//! The paper repeats 5 % of the maximum for 10 s, then the maximum for 1 s. Here both are shorter by the time
//! scale. Intervals of policies are not scaled: they are about the machine.
//!
//! The load is an open loop: a request is due whether or not the ones before it were answered, and its latency counts from
//! then. The maximum is the rate of a closed loop with every core polling, measured just before; bursts use a part of it, as
//! random arrivals above the service rate would only measure the queue.
//!
//! Policies take turns, burst by burst, with the same requests due at the same times: other load on
//! the machine in that minute slows all of them alike.

use std::time::{Duration, Instant};

use anyhow::bail;
use pilotlight_host::load::{LoadSpec, OpenLoop, Report};
use pilotlight_host::schedule::{Phase, Process, Schedule};
use pilotlight_plant::{Depth, PowerProfile};
use pilotlight_reactor::RuntimeStats;
use pilotlight_reactor::cells::SLEEPS;

use super::stage::{DEPTH, Stage};

/// The quiet and the full phase of the paper, in nanoseconds.
const QUIET_NS: u64 = 10_000_000_000;
const FULL_NS: u64 = 1_000_000_000;
const QUIET_SHARE: f64 = 0.05;
/// The part of the measured maximum that bursts use.
const FULL_SHARE: f64 = 0.8;
/// The beginning of a burst, in which a policy has not reacted yet, in nanoseconds.
const FIRST_NS: u64 = 1_000_000;
/// Of a quiet phase this part settles the policy, before anything is measured.
const SETTLE: u64 = 5;
const PROFILE: &str = include_str!("../../../../profiles/sandman-epyc-9454p.toml");

/// The default policies: the two most used ones, and ours.
const COMPARED: [&str; 3] = ["static", "interrupt", "sandman"];

/// The policies to compare.
pub(super) fn contenders(wanted: &[String]) -> anyhow::Result<Vec<String>> {
    if let Some(unknown) = wanted.iter().find(|name| !pilotlight_policy::NAMES.contains(&name.as_str())) {
        bail!("there is no policy `{unknown}`; there are {}", pilotlight_policy::NAMES.join(", "));
    }
    Ok(if wanted.is_empty() { COMPARED.map(str::to_owned).into() } else { wanted.to_vec() })
}

/// The options.
pub(super) struct Bursts {
    /// IOPS of a closed loop under static polling.
    pub(super) maximum_iops: f64,
    /// Rates of the two phases, in IOPS.
    pub(super) quiet_iops: f64,
    pub(super) full_iops: f64,
    /// Their lengths in nanoseconds.
    pub(super) quiet_ns: u64,
    pub(super) full_ns: u64,
    /// Bursts under each policy.
    pub(super) count: u32,
    pub(super) time_scale: u32,
    seed: u64,
}

impl Bursts {
    pub(super) fn new(maximum_iops: f64, time_scale: u32, count: u32, seed: u64) -> Self {
        let full_iops = maximum_iops * FULL_SHARE;
        let scaled = |ns: u64| ns / u64::from(time_scale);
        Self {
            maximum_iops,
            quiet_iops: full_iops * QUIET_SHARE,
            full_iops,
            quiet_ns: scaled(QUIET_NS),
            full_ns: scaled(FULL_NS),
            count,
            time_scale,
            seed,
        }
    }

    fn settle_ns(&self) -> u64 {
        self.quiet_ns / SETTLE
    }

    /// How long one burst and the quiet phase before it take.
    pub(super) fn lasts(&self) -> Duration {
        Duration::from_nanos(self.quiet_ns + self.settle_ns() + self.full_ns)
    }

    pub(super) fn description(&self, stage: &Stage) -> String {
        format!(
            "\nMaximum under static polling: {:.0} k reads of 4 KiB a second over {} connection{}.\n\
             Bursts: {:.1} k IOPS for {:.2} s, then {:.0} k IOPS for {:.2} s, {} times under each policy, in turn (the paper's, {} \
             times shorter; full is {:.0} % of the maximum).",
            self.maximum_iops / 1e3,
            stage.reactors(),
            if stage.reactors() == 1 { "" } else { "s" },
            self.quiet_iops / 1e3,
            self.quiet_ns as f64 / 1e9,
            self.full_iops / 1e3,
            self.full_ns as f64 / 1e9,
            self.count,
            self.time_scale,
            FULL_SHARE * 100.0,
        )
    }

    fn spec(&self, phases: Vec<Phase>, ramp_ns: u64, jobs: usize, round: u32) -> anyhow::Result<LoadSpec> {
        let runtime_ns = phases.iter().map(|phase| phase.duration_ns).sum::<u64>() - ramp_ns;
        Ok(LoadSpec {
            depth: DEPTH,
            jobs: jobs as u16,
            ramp_ns,
            runtime_ns: Some(runtime_ns),
            open: Some(OpenLoop { schedule: Schedule::new(phases)?, process: Process::Poisson }),
            seed: self.seed + u64::from(round),
            ..LoadSpec::default()
        })
    }

    fn quiet(&self, duration_ns: u64) -> Phase {
        Phase { rate_iops: self.quiet_iops, duration_ns }
    }

    /// The quiet phase, of which the beginning settles the policy.
    fn quiet_spec(&self, jobs: usize, round: u32) -> anyhow::Result<LoadSpec> {
        self.spec(vec![self.quiet(self.quiet_ns)], self.settle_ns(), jobs, round)
    }

    /// A short quiet phase, and the burst in two parts.
    fn burst_spec(&self, jobs: usize, round: u32) -> anyhow::Result<LoadSpec> {
        let first_ns = FIRST_NS.min(self.full_ns / 2);
        let full = |duration_ns| Phase { rate_iops: self.full_iops, duration_ns };
        let phases = vec![self.quiet(self.settle_ns()), full(first_ns), full(self.full_ns - first_ns)];
        self.spec(phases, 0, jobs, round)
    }
}

/// One quiet phase and one burst under one policy.
pub(super) struct Sample {
    /// CPU time of the target's cores in the quiet phase, as the kernel accounts it, by time that went by: 1 is one core.
    pub(super) quiet_cpu: f64,
    /// As the reactors count it: awake, polling included.
    pub(super) quiet_awake: f64,
    /// Modelled power of the reactors' cores in the quiet phase, above deep sleep, in microwatts.
    pub(super) quiet_uw: u64,
    pub(super) quiet: Report,
    pub(super) burst: Report,
}

impl Sample {
    pub(super) fn is_clean(&self) -> bool {
        self.quiet.is_clean() && self.burst.is_clean()
    }

    /// Latency that 99 of 100 requests keep which were due in the first millisecond of the burst, in microseconds.
    pub(super) fn first_p99_us(&self) -> f64 {
        self.burst.phases.get(1).map_or(0.0, |phase| phase.latency.p99_ns as f64 / 1e3)
    }

    /// The same in the rest of it.
    pub(super) fn burst_p99_us(&self) -> f64 {
        self.burst.phases.get(2).map_or(0.0, |phase| phase.latency.p99_ns as f64 / 1e3)
    }
}

/// Sends one quiet phase and one burst under a policy.
pub(super) fn measure(stage: &Stage, bursts: &Bursts, policy: &str, round: u32) -> anyhow::Result<Sample> {
    stage.set_policy(pilotlight_policy::build(policy, &[])?)?;
    let (before, began) = (stage.stats(), Instant::now());
    let quiet = stage.load(bursts.quiet_spec(stage.reactors(), round)?)?;
    let (after, elapsed_ns) = (stage.stats(), began.elapsed().as_nanos() as u64);
    let burst = stage.load(bursts.burst_spec(stage.reactors(), round)?)?;
    let took = ReactorTimes::between(&before, &after);
    let share = |ns: u64| ns as f64 / elapsed_ns.max(1) as f64;
    let quiet_uw = modelled_uw(took.awake_ns, took.asleep_ns, elapsed_ns, &profile()?);
    Ok(Sample { quiet_cpu: share(took.cpu_ns), quiet_awake: share(took.awake_ns), quiet_uw, quiet, burst })
}

/// The power profile that watts are modelled with.
pub(super) fn profile() -> anyhow::Result<PowerProfile> {
    Ok(PowerProfile::parse(PROFILE)?)
}

/// Sums over all reactors, in nanoseconds.
struct ReactorTimes {
    cpu_ns: u64,
    /// Busy, and polling without finding work.
    awake_ns: u64,
    /// By depth, as in [`SLEEPS`].
    asleep_ns: [u64; 3],
}

impl ReactorTimes {
    fn between(before: &RuntimeStats, after: &RuntimeStats) -> Self {
        let sum = |of: &dyn Fn(&pilotlight_reactor::ReactorStats) -> u64| -> u64 {
            let all = |stats: &RuntimeStats| stats.reactors.iter().map(of).sum::<u64>();
            all(after).saturating_sub(all(before))
        };
        Self {
            cpu_ns: sum(&|r| r.cpu_ns),
            awake_ns: sum(&|r| r.busy_ns + r.idle_ns),
            asleep_ns: [0, 1, 2].map(|depth| sum(&|r| r.asleep[depth].ns)),
        }
    }
}

/// Power above deep sleep of cores that spent these times awake and asleep.
fn modelled_uw(awake_ns: u64, asleep_ns: [u64; 3], elapsed_ns: u64, profile: &PowerProfile) -> u64 {
    let energy = |depth: Depth, ns: u64| u128::from(profile.core_uw(depth)) * u128::from(ns);
    let asleep: u128 = SLEEPS.iter().zip(asleep_ns).map(|(&depth, ns)| energy(depth, ns)).sum();
    ((energy(Depth::Poll, awake_ns) + asleep) / u128::from(elapsed_ns.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_is_the_time_average_over_states() {
        let profile = profile().unwrap();
        let poll = profile.core_uw(Depth::Poll);
        assert_eq!(modelled_uw(2_000, [0; 3], 1_000, &profile), 2 * poll, "two cores that poll");
        let half = modelled_uw(500, [500, 0, 0], 1_000, &profile);
        assert_eq!(half, (poll + profile.core_uw(Depth::MonitorWait)) / 2);
        let kernel = [[0, 1_000, 0], [0, 0, 1_000]].map(|asleep_ns| modelled_uw(0, asleep_ns, 1_000, &profile));
        assert_eq!(kernel, [profile.core_uw(Depth::MonitorWait); 2], "a wait in the kernel has one price");
    }

    #[test]
    fn a_burst_has_the_paper_s_shape() {
        let bursts = Bursts::new(1_000_000.0, 10, 5, 1);
        assert_eq!((bursts.quiet_ns, bursts.full_ns), (1_000_000_000, 100_000_000));
        let quiet = bursts.quiet_spec(1, 0).unwrap();
        assert_eq!((quiet.ramp_ns, quiet.runtime_ns), (200_000_000, Some(800_000_000)));
        let burst = bursts.burst_spec(1, 0).unwrap();
        let phases: Vec<(f64, u64)> =
            burst.open.unwrap().schedule.phases().iter().map(|p| (p.rate_iops, p.duration_ns)).collect();
        assert_eq!(phases, [(40e3, 200_000_000), (800e3, 1_000_000), (800e3, 99_000_000)]);
    }

    #[test]
    fn rounds_differ_and_policies_get_equal_requests() {
        let bursts = Bursts::new(1_000_000.0, 10, 5, 7);
        let seed = |round| bursts.quiet_spec(1, round).unwrap().seed;
        assert_eq!((seed(0), seed(3)), (7, 10));
    }

    #[test]
    fn the_error_for_an_unknown_policy_lists_the_known_ones() {
        let Err(error) = contenders(&["sandmann".to_owned()]) else { panic!("accepted") };
        assert!(error.to_string().contains("sandmann") && error.to_string().contains("static"), "{error}");
    }
}
