//! SANDMAN's bursts (section 3.2), and what is measured under a policy: the same requests, due at the same times.
//!
//! The paper: 5 % of the maximum for 10 s, then the maximum for 1 s, again and again. Here both are shorter by the time
//! scale, and so is the policy's coarse interval, so that a policy has as many looks at the quiet time as it has there.
//! Ticks are not scaled: they are about the machine.
//!
//! The load is an open loop: a request is due whether or not the ones before it were answered, and its latency counts from
//! then. The maximum is what a closed loop reached just before with every core polling; bursts ask for a part of it, since
//! requests that come by chance faster than they can be served would only measure the queue.

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
/// The part of the measured maximum that bursts ask for.
const FULL_SHARE: f64 = 0.8;
/// Coarse interval of the paper, in nanoseconds.
const COARSE_NS: u64 = 1_000_000_000;
const PROFILE: &str = include_str!("../../../../profiles/sandman-epyc-9454p.toml");

/// A policy with its settings.
pub(super) struct Contender {
    /// What the table calls it.
    pub(super) label: String,
    name: String,
    settings: Vec<(&'static str, String)>,
}

/// Every policy, or those asked for.
pub(super) fn contenders(wanted: &[String], time_scale: u32) -> anyhow::Result<Vec<Contender>> {
    if let Some(unknown) = wanted.iter().find(|name| !pilotlight_policy::NAMES.contains(&name.as_str())) {
        bail!("there is no policy `{unknown}`; there are {}", pilotlight_policy::NAMES.join(", "));
    }
    let plain = |name: &str| Contender { label: name.to_owned(), name: name.to_owned(), settings: Vec::new() };
    let coarse = ("coarse_interval", format!("{}us", COARSE_NS / 1000 / u64::from(time_scale)));
    let sandman = |label: &str, guards: &str| Contender {
        label: label.to_owned(),
        name: "sandman".to_owned(),
        settings: vec![coarse.clone(), ("guards", guards.to_owned())],
    };
    let all = vec![
        plain("static"),
        plain("interrupt"),
        sandman("sandman, as printed", "printed"),
        sandman("sandman, guarded", "recommended"),
    ];
    Ok(all.into_iter().filter(|one| wanted.is_empty() || wanted.contains(&one.name)).collect())
}

/// What is asked for.
pub(super) struct Bursts {
    /// What a closed loop reached under static polling, in IOPS.
    pub(super) maximum_iops: f64,
    /// Rates of the two phases, in IOPS.
    pub(super) quiet_iops: f64,
    pub(super) full_iops: f64,
    /// Their lengths in nanoseconds.
    pub(super) quiet_ns: u64,
    pub(super) full_ns: u64,
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

    fn cycle_ns(&self) -> u64 {
        self.quiet_ns + self.full_ns
    }

    /// How long one policy takes, in all.
    pub(super) fn lasts(&self) -> Duration {
        Duration::from_nanos(self.cycle_ns() * u64::from(self.count + 1))
    }

    /// Requests a second, over quiet and full times.
    pub(super) fn offered_iops(&self) -> f64 {
        let requests = self.quiet_iops * self.quiet_ns as f64 + self.full_iops * self.full_ns as f64;
        requests / self.cycle_ns() as f64
    }

    pub(super) fn told(&self, stage: &Stage) -> String {
        format!(
            "\nMaximum under static polling: {:.0} k reads of 4 KiB a second over {} connection{}.\n\
             Bursts: {:.1} k IOPS for {:.2} s, then {:.0} k IOPS for {:.2} s, {} times (the paper's, {} times shorter; full is \
             {:.0} % of the maximum).",
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

    fn spec(&self, jobs: usize) -> anyhow::Result<LoadSpec> {
        let quiet = Phase { rate_iops: self.quiet_iops, duration_ns: self.quiet_ns };
        let full = Phase { rate_iops: self.full_iops, duration_ns: self.full_ns };
        Ok(LoadSpec {
            depth: DEPTH,
            jobs: jobs as u16,
            // The first cycle is the policy's, to settle after what was before.
            ramp_ns: self.cycle_ns(),
            runtime_ns: Some(self.cycle_ns() * u64::from(self.count)),
            open: Some(OpenLoop { schedule: Schedule::new(vec![quiet, full])?, process: Process::Poisson }),
            seed: self.seed,
            ..LoadSpec::default()
        })
    }
}

/// What was measured under one policy. Times are sums over all reactors, in nanoseconds.
pub(super) struct Measured {
    pub(super) label: String,
    pub(super) report: Report,
    pub(super) elapsed_ns: u64,
    /// In poll steps that found work.
    pub(super) busy_ns: u64,
    /// Busy, and polling without finding work.
    pub(super) active_ns: u64,
    /// In the kernel's books.
    pub(super) scheduled_ns: u64,
    /// By depth, as in [`SLEEPS`].
    pub(super) asleep_ns: [u64; 3],
    pub(super) moves: u64,
    pub(super) wakes: u64,
    /// Modelled power of the reactors' cores above deep sleep, in microwatts.
    pub(super) modelled_uw: u64,
    /// Where that is from.
    pub(super) profile: String,
}

/// Runs the bursts under a policy.
pub(super) fn measure(stage: &Stage, bursts: &Bursts, contender: &Contender) -> anyhow::Result<Measured> {
    let settings: Vec<(&str, &str)> = contender.settings.iter().map(|(key, value)| (*key, value.as_str())).collect();
    stage.set_policy(pilotlight_policy::build(&contender.name, &settings)?)?;
    let spec = bursts.spec(stage.reactors())?;
    let profile = PowerProfile::parse(PROFILE)?;
    let (before, began) = (stage.stats(), Instant::now());
    let report = stage.load(spec)?;
    let (after, elapsed_ns) = (stage.stats(), began.elapsed().as_nanos() as u64);
    Ok(Measured::new(&contender.label, report, (&before, &after), elapsed_ns, &profile))
}

impl Measured {
    fn new(
        label: &str,
        report: Report,
        (before, after): (&RuntimeStats, &RuntimeStats),
        elapsed_ns: u64,
        profile: &PowerProfile,
    ) -> Self {
        let sum = |of: &dyn Fn(&pilotlight_reactor::ReactorStats) -> u64| -> u64 {
            let all = |stats: &RuntimeStats| stats.reactors.iter().map(of).sum::<u64>();
            all(after).saturating_sub(all(before))
        };
        let busy_ns = sum(&|r| r.busy_ns);
        let active_ns = busy_ns + sum(&|r| r.idle_ns);
        let asleep_ns = [0, 1, 2].map(|depth| sum(&|r| r.asleep[depth].ns));
        Self {
            label: label.to_owned(),
            report,
            elapsed_ns,
            busy_ns,
            active_ns,
            scheduled_ns: sum(&|r| r.cpu_ns),
            asleep_ns,
            moves: sum(&|r| r.moves_out),
            wakes: [0, 1, 2].iter().map(|&depth| sum(&|r| r.asleep[depth].wakes)).sum(),
            modelled_uw: modelled_uw(active_ns, asleep_ns, elapsed_ns, profile),
            profile: profile.name.clone(),
        }
    }

    /// Nanoseconds an I/O. The sums reach over the ramp, the report's I/Os do not: so a share of time, times the rate.
    pub(super) fn per_io_us(&self, ns: u64) -> f64 {
        ns as f64 / self.elapsed_ns as f64 * 1e6 / self.report.total.rate_iops.max(1e-9)
    }
}

/// Power above deep sleep of cores that spent these times awake and asleep.
fn modelled_uw(active_ns: u64, asleep_ns: [u64; 3], elapsed_ns: u64, profile: &PowerProfile) -> u64 {
    let energy = |depth: Depth, ns: u64| u128::from(profile.core_uw(depth)) * u128::from(ns);
    let asleep: u128 = SLEEPS.iter().zip(asleep_ns).map(|(&depth, ns)| energy(depth, ns)).sum();
    ((energy(Depth::Poll, active_ns) + asleep) / u128::from(elapsed_ns.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_is_the_mean_over_time_of_what_the_states_burn() {
        let profile = PowerProfile::parse(PROFILE).unwrap();
        let poll = profile.core_uw(Depth::Poll);
        assert_eq!(modelled_uw(2_000, [0; 3], 1_000, &profile), 2 * poll, "two cores that poll");
        let half = modelled_uw(500, [500, 0, 0], 1_000, &profile);
        assert_eq!(half, (poll + profile.core_uw(Depth::MonitorWait)) / 2);
        assert_eq!(modelled_uw(0, [0, 0, 1_000], 1_000, &profile), 0, "deep sleep is where it counts from");
    }

    #[test]
    fn the_offered_rate_is_that_of_the_paper_s_shape() {
        let bursts = Bursts::new(1_000_000.0, 10, 5, 1);
        assert_eq!((bursts.quiet_ns, bursts.full_ns), (1_000_000_000, 100_000_000));
        let expected = (40_000.0 * 10.0 + 800_000.0) / 11.0;
        assert!((bursts.offered_iops() - expected).abs() < 1e-6);
    }

    #[test]
    fn a_policy_that_does_not_exist_is_named_with_those_that_do() {
        let Err(error) = contenders(&["sandmann".to_owned()], 10) else { panic!("accepted") };
        assert!(error.to_string().contains("sandmann") && error.to_string().contains("static"), "{error}");
    }
}
