//! `pilotlight demo --budget`: a server under a power budget that steps down and up, and how fast and how exactly it follows.
//!
//! Requests are due at the same rate all the time, open loop. Budgets are shares of the power that was read just before, without one. A
//! reading counts for a step if its window began after the budget was set, so that a step cannot be followed sooner than a window of the
//! sensor lasts.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use pilotlight_actuators::Roots;
use pilotlight_host::load::{LoadSpec, OpenLoop, Report};
use pilotlight_host::schedule::{Phase, Process, Schedule};
use pilotlight_plant::Goals;
use serde::Serialize;
use serde_json::json;

use super::profile;
use super::stage::Stage;
use crate::config::SensorChoice;
use crate::console;
use crate::policies::{BudgetDomain, PolicyChoice};
use crate::serve::budget;
use crate::serve::power::{self, Meter, Power};

/// The policies that hold a budget without a profile, the first that this machine can have.
const POLICIES: [&str; 2] = ["cpu-bandwidth", "rapl-only"];
/// Budgets, as shares of the power without one; each with how long it holds. In all 20 s with the start and the profile.
const STEPS: [(Option<f64>, Duration); 4] = [
    (None, Duration::from_secs(2)),
    (Some(0.8), Duration::from_secs(5)),
    (Some(0.9), Duration::from_secs(5)),
    (None, Duration::from_secs(2)),
];
/// The policy where there is a profile.
const PASS: &str = "pass";
/// Within this share of the budget it is followed: PASS's upper threshold (3.3), on both sides.
const MARGIN: f64 = 0.02;
/// Requests per second: few, so that the load leaves the target enough CPU time.
const RATE_IOPS: f64 = 4_000.0;
const INTERVAL: Duration = Duration::from_millis(20);

/// A window of the sensor.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Window {
    /// Time from the step until it began and ended, in seconds; the beginning may lie before the step.
    began_s: f64,
    ended_s: f64,
    power_w: f64,
}

/// Measurements of one step.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Followed {
    budget_w: Option<f64>,
    /// Time until a window that began after the step was within [`MARGIN`] of the budget; `None`: it never was, or there is no budget.
    after_s: Option<f64>,
    /// Mean power from then on; without a budget, or where it was never within, of all windows of the step.
    power_w: Option<f64>,
    /// By how much a window exceeded the budget from then on, at most, in percent of it.
    highest_excess_percent: Option<f64>,
}

/// Runs the demo.
pub(super) fn run(as_json: bool) -> anyhow::Result<ExitCode> {
    let meter = meter()?;
    let (stage, power) = Stage::under_budget(meter).context("the demo's server does not start")?;
    let domain = budget::domain(None, &power.sources());
    let report = power.report();
    let profile = profile::measure(&stage, &power, domain);
    let policy = choose(&stage, domain, profile.as_deref())?;
    let print = |text: String| if as_json { Ok(()) } else { console::println(text) };
    let sensor = match &report.modelled {
        Some(profile) => format!("modelled (profile {profile}): watts are computed from CPU time, not measured"),
        None => report.sensor.clone(),
    };
    print(format!("{}\nSensor: {sensor}.", stage.description()))?;
    print(format!(
        "Policy: {policy}{}, budget of the {}, quota period 100 ms. Load: {:.1} k reads of 4 KiB a second. It takes 20 s.",
        if policy == PASS { ", by a profile that was just measured at four quotas" } else { "" },
        crate::status::goals::domain_name(domain.name()),
        RATE_IOPS / 1e3
    ))?;
    let verified = stage.verify(500_000_000).context("verifying")?;
    let (steps, load) = measure(&stage, &power, domain)?;
    stage.stop().context("stopping the demo's server")?;
    let is_clean = verified.is_clean() && load.is_clean();
    if as_json {
        let result = json!({
            "sensor": report.sensor,
            "modelled": report.modelled,
            "policy": policy,
            "domain": domain.name(),
            "quota_period_ns": 100_000_000,
            "steps": steps,
            "verified": verified,
            "load": load,
        });
        console::println(serde_json::to_string_pretty(&result)?)?;
    } else {
        console::print(table(&steps, &load, report.modelled.is_some()))?;
    }
    Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The sensor that there is, else a model.
fn meter() -> anyhow::Result<Meter> {
    let roots = Roots::default();
    let found = power::open(&SensorChoice::Auto, &roots)?;
    found.map_or_else(|| Meter::modelled_share(&roots), Ok)
}

/// Lets the first policy decide that this machine can have; its name.
fn choose(stage: &Stage, domain: BudgetDomain, profile: Option<&str>) -> anyhow::Result<&'static str> {
    let mut refusals = Vec::new();
    let pass = profile.map(|profile| (PASS, vec![("profile".to_owned(), profile.to_owned())]));
    for (name, parameters) in pass.into_iter().chain(POLICIES.map(|name| (name, Vec::new()))) {
        let choice = PolicyChoice { name: name.to_owned(), parameters }.with_domain(domain, true);
        let policy = choice.build().map_err(|unfit| anyhow::anyhow!("{}: {}", unfit.what, unfit.help))?;
        match stage.set_policy(policy) {
            Ok(()) => return Ok(name),
            Err(error) => refusals.push(format!("\n  {error}")),
        }
    }
    bail!("this machine has nothing to hold a power budget with:{}", refusals.concat())
}

/// Steps the budget under load.
fn measure(stage: &Stage, power: &Power, domain: BudgetDomain) -> anyhow::Result<(Vec<Followed>, Report)> {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let load = scope.spawn(|| {
            let report = stage.load(load()?);
            is_over.store(true, Ordering::Relaxed);
            report
        });
        let mut steps = Vec::new();
        let mut full_w = None;
        for (share, lasts) in STEPS {
            let budget_w: Option<f64> = share.zip(full_w).map(|(share, full_w): (f64, f64)| share * full_w);
            let budget_uw = budget_w.map(|watts| (watts * 1e6) as u64);
            let begin_ns = pilotlight_reactor::clock::now_ns();
            stage.set_goals(Goals { budget_uw, ..Goals::default() });
            let windows = windows(power, domain, begin_ns, lasts, &is_over);
            let step = follow(budget_w, &windows);
            full_w = full_w.or(step.power_w);
            steps.push(step);
        }
        let report = load.join().unwrap_or_else(|_| bail!("the load has failed"))?;
        if full_w.is_none() {
            bail!("the sensor gave no reading");
        }
        Ok((steps, report))
    })
}

fn load() -> anyhow::Result<LoadSpec> {
    let phase =
        |(_, lasts): &(Option<f64>, Duration)| Phase { rate_iops: RATE_IOPS, duration_ns: lasts.as_nanos() as u64 };
    let phases: Vec<Phase> = STEPS.iter().map(phase).collect();
    Ok(LoadSpec {
        depth: super::stage::DEPTH,
        jobs: 2,
        runtime_ns: Some(phases.iter().map(|phase| phase.duration_ns).sum()),
        open: Some(OpenLoop { schedule: Schedule::new(phases)?, process: Process::Poisson }),
        ..LoadSpec::default()
    })
}

/// Windows of the sensor for a time, or until the load has ended.
fn windows(power: &Power, domain: BudgetDomain, begin_ns: u64, lasts: Duration, is_over: &AtomicBool) -> Vec<Window> {
    let begin = Instant::now();
    let mut windows: Vec<Window> = Vec::new();
    let since_s = |ns: u64| (ns as f64 - begin_ns as f64) / 1e9;
    while begin.elapsed() < lasts && !is_over.load(Ordering::Relaxed) {
        if let Some((began_ns, ended_ns, uw)) = power.window(domain) {
            let window = Window { began_s: since_s(began_ns), ended_s: since_s(ended_ns), power_w: uw as f64 / 1e6 };
            // Ages are computed from the clock, so that one window ends at slightly different times.
            if windows.last().is_none_or(|last| window.ended_s - last.ended_s > 0.1) {
                windows.push(window);
            }
        }
        thread::sleep(INTERVAL);
    }
    windows
}

/// How a step was followed.
fn follow(budget_w: Option<f64>, windows: &[Window]) -> Followed {
    let own: Vec<Window> = windows.iter().copied().filter(|window| window.began_s >= 0.0).collect();
    let mean = |windows: &[Window]| {
        let sum: f64 = windows.iter().map(|window| window.power_w).sum();
        (!windows.is_empty()).then(|| sum / windows.len() as f64)
    };
    let Some(budget_w) = budget_w else {
        return Followed { budget_w, after_s: None, power_w: mean(&own), highest_excess_percent: None };
    };
    let excess = |window: &Window| window.power_w / budget_w - 1.0;
    let first = own.iter().position(|window| excess(window).abs() <= MARGIN);
    let rest = &own[first.unwrap_or(own.len())..];
    let highest = rest.iter().map(excess).reduce(f64::max);
    Followed {
        budget_w: Some(budget_w),
        after_s: first.map(|first| own[first].ended_s),
        power_w: mean(if first.is_some() { rest } else { &own }),
        highest_excess_percent: highest.map(|excess| 100.0 * excess),
    }
}

fn table(steps: &[Followed], load: &Report, is_modelled: bool) -> String {
    let watts = if is_modelled { "W (modelled)" } else { "W" };
    let mut text = format!(
        "\n{:>10}  {:>10}  {:>14}  {:>10}  {:>10}  {:>10}  {:>10}\n",
        "budget W", "within +-2%", watts, "deviation", "highest", "p99 us", "p99.9 us"
    );
    for (step, phase) in steps.iter().zip(&load.phases) {
        let number = |value: Option<f64>, decimals: usize, unit: &str| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}{unit}"))
        };
        let after = match (step.budget_w, step.after_s) {
            (Some(_), None) => "never".to_owned(),
            (_, after_s) => number(after_s, 1, " s"),
        };
        let deviation = step.budget_w.zip(step.power_w).map(|(budget_w, power_w)| 100.0 * (power_w / budget_w - 1.0));
        let _ = writeln!(
            text,
            "{:>10}  {after:>10}  {:>14}  {:>10}  {:>10}  {:>10.0}  {:>10.0}",
            step.budget_w.map_or_else(|| "none".to_owned(), |watts| format!("{watts:.2}")),
            number(step.power_w, 2, ""),
            number(deviation, 1, " %"),
            number(step.highest_excess_percent, 1, " %"),
            phase.latency.p99_ns as f64 / 1e3,
            phase.latency.p99_9_ns as f64 / 1e3,
        );
    }
    text + "  W, deviation and highest: from when power was within 2 % of the budget until the step's end; one reading each half second.\n  \
           What else runs on this machine draws power too, and no budget holds it.\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows of half a second, the first of which begins before the step.
    fn windows(watts: &[f64]) -> Vec<Window> {
        let window = |(index, &power_w): (usize, &f64)| {
            let began_s = index as f64 / 2.0 - 0.25;
            Window { began_s, ended_s: began_s + 0.5, power_w }
        };
        watts.iter().enumerate().map(window).collect()
    }

    #[test]
    fn a_step_is_followed_from_the_first_window_within_it() {
        let followed = follow(Some(100.0), &windows(&[100.0, 130.0, 101.0, 99.0, 103.0]));
        assert_eq!((followed.after_s, followed.power_w), (Some(1.25), Some(101.0)));
        assert!((followed.highest_excess_percent.unwrap() - 3.0).abs() < 1e-9, "{followed:?}");
        let never = follow(Some(100.0), &windows(&[100.0, 130.0, 90.0]));
        assert_eq!((never.after_s, never.power_w, never.highest_excess_percent), (None, Some(110.0), None));
        let free = follow(None, &windows(&[50.0, 130.0, 110.0]));
        assert_eq!((free.after_s, free.power_w), (None, Some(120.0)));
    }

    #[test]
    fn the_steps_take_less_than_twenty_seconds() {
        let all: Duration = STEPS.iter().map(|(_, lasts)| *lasts).sum();
        assert!(all < Duration::from_secs(20));
    }
}
