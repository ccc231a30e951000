//! CPU quota of the worker reactors (`changes/quota.rs`) and its period. The main core has no quota, because a stopped controller could not
//! remove it.

use pilotlight_drive::Roots;
use pilotlight_plant::{Cost, Kind, Knob, Scope, Values};

use super::{Found, Resource, Why};
use crate::changes::{Change, CpuGroup, MIN_QUOTA_US, PERIODS_US};

/// Parts per million of a core.
const CORE_PPM: u64 = 1_000_000;
/// The kernel's default period.
const PERIOD_US: u64 = PERIODS_US[0];
/// Step and minimum: 1/100 of a core, the shortest quota of the default period.
const STEP_PPM: u64 = MIN_QUOTA_US * CORE_PPM / PERIOD_US;

/// Adds the knobs for this many reactors, one of which is the main core.
pub(super) fn find(roots: &Roots, reactors: usize, found: &mut Found) {
    const WHAT: &str = "CPU quota of the worker cores";
    let workers = reactors.saturating_sub(1) as u64;
    if workers == 0 {
        return found.misses(WHAT, Why::OneCore);
    }
    match CpuGroup::find(roots) {
        Ok(group) => {
            knobs(workers).into_iter().for_each(|knob| found.add(knob, Resource::Quota { group: group.clone() }))
        }
        Err(why) => found.misses(WHAT, why.into()),
    }
}

/// The quota and its period.
fn knobs(workers: u64) -> [Knob; 2] {
    let max = workers * CORE_PPM;
    let knob = |kind, values, found, effect_us: u64| Knob {
        scope: Scope::Server,
        kind,
        values,
        initial: found,
        caller: Cost::Assumed(0),
        effect: Cost::Assumed(effect_us * 1_000),
    };
    let periods = Values::List(PERIODS_US.map(|period_us| period_us * 1_000).into());
    [
        knob(Kind::QuotaPpm, Values::Range { min: STEP_PPM, max, step: STEP_PPM }, max, PERIOD_US),
        knob(Kind::QuotaPeriodNs, periods, PERIOD_US * 1_000, PERIODS_US[1]),
    ]
}

/// The full CPU time of the workers means no quota; the period has a default.
pub(super) fn change(group: &CpuGroup, quota_ppm: u64, period_ns: Option<u64>, workers: &[u32]) -> Change {
    let all_ppm = workers.len() as u64 * CORE_PPM;
    let period_us = period_ns.map_or(PERIOD_US, |period_ns| period_ns / 1_000);
    let quota_us = (quota_ppm < all_ppm).then(|| quota_ppm * period_us / CORE_PPM);
    let name = format!("workers-{}", std::process::id());
    Change::Quota { group: group.clone(), name, threads: workers.to_vec(), quota_us, period_us }
}
