//! CPU time of the worker reactors, by a quota of the kernel (`changes/quota.rs`). The main core, which serves connections, decides and
//! keeps time, has none: a controller that stops itself cannot let go again.

use pilotlight_drive::Roots;
use pilotlight_plant::{Cost, Kind, Knob, Of, Values};

use super::{Found, Place};
use crate::changes::{Change, CpuGroup, PERIOD_US, SHORTEST_US};

/// Millionths of a core in a whole one.
const CORE_PPM: u64 = 1_000_000;
/// From one value to the next, and the lowest: a hundredth of a core, the shortest quota of a period.
const STEP_PPM: u64 = SHORTEST_US * CORE_PPM / PERIOD_US;
/// Time until a quota holds: what is left of the period before is used up first.
const EFFECT: Cost = Cost::Assumed(PERIOD_US * 1_000);

/// For so many reactors, one of which is the main core.
pub(super) fn find(roots: &Roots, reactors: usize, found: &mut Found) {
    const WHAT: &str = "CPU quota of the worker cores";
    let workers = reactors.saturating_sub(1) as u64;
    if workers == 0 {
        let why = "the server has one reactor, which is the main core and must not be held up: give it more (--cores)";
        return found.misses(WHAT, why);
    }
    match CpuGroup::find(roots) {
        Ok(group) => found.add(knob(workers), Place::Quota { group }),
        Err(why) => found.misses(WHAT, why),
    }
}

fn knob(workers: u64) -> Knob {
    let max = workers * CORE_PPM;
    Knob {
        of: Of::Server,
        kind: Kind::QuotaPpm,
        values: Values::Range { min: STEP_PPM, max, step: STEP_PPM },
        found: max,
        caller: Cost::Assumed(0),
        effect: EFFECT,
    }
}

/// All that the workers can use is no quota.
pub(super) fn change(group: &CpuGroup, quota_ppm: u64, workers: &[u32]) -> Change {
    let all_ppm = workers.len() as u64 * CORE_PPM;
    let quota_us = (quota_ppm < all_ppm).then(|| quota_ppm * PERIOD_US / CORE_PPM);
    let name = format!("workers-{}", std::process::id());
    Change::Quota { group: group.clone(), name, threads: workers.to_vec(), quota_us }
}
