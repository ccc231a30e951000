//! Wake-up limit of a drive's autonomous idle states (APST; NVM Express Base Specification 2.1, section 8.1.17). Linux configures them by
//! `power/pm_qos_latency_tolerance_us` of the controller.
//!
//! **Linux** (`nvme_configure_apst` in drivers/nvme/host/core.c) uses at most the non-operational states whose exit latency is not above the
//! number in the file: none with 0, all with `auto` or `any`. Since 5.14 it also excludes states whose total latency exceeds
//! `nvme_core.apst_secondary_latency_tol_us`.
//!
//! **Limit.** A request during entry waits for entry and exit. The limit of a number is therefore the longest sum of entry and exit latency
//! of the states that Linux may use.

use std::path::Path;

use pilotlight_drive::Roots;
use pilotlight_plant::{Cost, Kind, Knob, Scope, Values};

use super::{Found, Resource, Why, writable};
use crate::changes::{Change, IdleState, Kernel, idle_states, latency_tolerance};

/// Estimated time of one Set Features command.
const EFFECT_NS: u64 = 1_000_000;
/// The kernel's value for no limit.
const UNLIMITED: [&str; 2] = ["auto", "any"];

/// A limit and its value in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    pub(super) limit_ns: u64,
    tolerance_us: u64,
}

pub(super) fn find(roots: &Roots, kernel: &mut dyn Kernel, drives: &[String], found: &mut Found) {
    for (device, drive) in (0..).zip(drives) {
        match limits_of(roots, kernel, drive) {
            Ok((limits, found_ns)) => {
                let knob = Knob {
                    scope: Scope::Device(device),
                    kind: Kind::WakeLimitNs,
                    values: Values::List(limits.iter().map(|limit| limit.limit_ns).collect()),
                    initial: found_ns,
                    caller: Cost::Assumed(0),
                    effect: Cost::Assumed(EFFECT_NS),
                };
                found.add(knob, Resource::WakeLimit { file: latency_tolerance(roots, drive), limits });
            }
            Err(why) => found.misses(format!("wake-up limit of {drive}"), why),
        }
    }
}

/// The limits of a drive, and the current one.
fn limits_of(roots: &Roots, kernel: &mut dyn Kernel, drive: &str) -> Result<(Vec<Limit>, u64), Why> {
    let states = kernel.drive(&roots.dev.join(drive)).and_then(|mut drive| idle_states(drive.as_mut()));
    let states = states.map_err(Why::States)?;
    if states.is_empty() {
        return Err(Why::NoTransitions);
    }
    if states.iter().any(|state| state.exit_us == 0) {
        return Err(Why::NoLatencies);
    }
    let file = latency_tolerance(roots, drive);
    if !file.exists() {
        return Err(Why::NoTolerance(file));
    }
    writable(&file)?;
    let text = match kernel.read(&file) {
        Ok(text) => text.trim().to_owned(),
        Err(error) => return Err(Why::Unreadable(file, error)),
    };
    match in_force(&states, &text) {
        Some(in_force) => Ok((limits(&states), in_force)),
        None => Err(Why::Holds(file, text, "a time in microseconds")),
    }
}

/// All limits, ascending.
fn limits(states: &[IdleState]) -> Vec<Limit> {
    let mut exits: Vec<u64> = states.iter().map(|state| state.exit_us).collect();
    exits.sort_unstable();
    let mut limits = vec![Limit { limit_ns: 0, tolerance_us: 0 }];
    for tolerance_us in exits {
        let limit_ns = longest_ns(states, tolerance_us);
        // A longer exit latency with a shorter entry latency may not need a higher limit.
        limits.retain(|limit| limit.limit_ns < limit_ns);
        limits.push(Limit { limit_ns, tolerance_us });
    }
    limits
}

/// The longest sum of entry and exit latency of the states that Linux may use with this number in the file.
fn longest_ns(states: &[IdleState], tolerance_us: u64) -> u64 {
    let used = states.iter().filter(|state| state.exit_us <= tolerance_us);
    used.map(|state| (state.entry_us + state.exit_us) * 1_000).max().unwrap_or(0)
}

/// The limit of this text in the file.
fn in_force(states: &[IdleState], text: &str) -> Option<u64> {
    let tolerance_us = if UNLIMITED.contains(&text) { u64::MAX } else { text.parse().ok()? };
    Some(longest_ns(states, tolerance_us))
}

/// The text in the file for this limit.
pub(super) fn change(file: &Path, limits: &[Limit], limit_ns: u64) -> Option<Change> {
    let limit = limits.iter().rev().find(|limit| limit.limit_ns <= limit_ns)?;
    Some(Change::File { path: file.to_path_buf(), value: limit.tolerance_us.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_covers_entry_and_exit_of_all_states_that_linux_uses() {
        let states = |latencies: &[(u64, u64)]| {
            latencies.iter().map(|&(entry_us, exit_us)| IdleState { entry_us, exit_us }).collect::<Vec<_>>()
        };
        let pairs = |latencies: &[(u64, u64)]| {
            limits(&states(latencies)).iter().map(|limit| (limit.limit_ns, limit.tolerance_us)).collect::<Vec<_>>()
        };
        assert_eq!(pairs(&[(210, 1_200), (2_000, 8_000)]), [(0, 0), (1_410_000, 1_200), (10_000_000, 8_000)]);
        // The state that is left sooner is entered later: Linux uses it with either limit.
        assert_eq!(pairs(&[(210, 1_200), (2_000, 1_000)]), [(0, 0), (3_000_000, 1_200)]);
        assert_eq!(pairs(&[(5, 10), (5, 10)]), [(0, 0), (15_000, 10)]);
    }

    #[test]
    fn what_is_in_force_is_read() {
        let nested = [IdleState { entry_us: 210, exit_us: 1_200 }, IdleState { entry_us: 2_000, exit_us: 8_000 }];
        let held = ["0", "1199", "1200", "7999", "100000", "auto", "any", "-1"].map(|text| in_force(&nested, text));
        let [first, second] = [Some(1_410_000), Some(10_000_000)];
        assert_eq!(held, [Some(0), Some(0), first, first, second, second, second, None]);
        // With 1000 Linux uses the state that is left sooner and entered later.
        let crossed = [IdleState { entry_us: 210, exit_us: 1_200 }, IdleState { entry_us: 2_000, exit_us: 1_000 }];
        let held = ["999", "1000", "1200"].map(|text| in_force(&crossed, text));
        assert_eq!(held, [Some(0), Some(3_000_000), Some(3_000_000)]);
    }
}
