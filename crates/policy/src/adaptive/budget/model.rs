//! Power of a machine without a profile: what its knobs say.

use pilotlight_plant::{Capabilities, Kind, Knob, Scope};

use crate::pass::cpu_model::{CpuModel, CpuRow};
use crate::pass::parameters::DEFAULT_PROFILE;
use crate::pass::profile::Profile;

/// Steps of the power limit.
const ROWS: u64 = 64;
const CORE_PPM: u64 = 1_000_000;

/// The profile that comes with the program, of PASS's machine.
pub(super) fn built_in() -> Profile {
    Profile::named(DEFAULT_PROFILE).expect("a test reads it")
}

/// Namespaces with a cap: each is taken for a drive.
pub(super) fn namespaces(capabilities: &Capabilities) -> u32 {
    let is_namespace = |knob: &Knob| matches!(knob.scope, Scope::Namespace(_)) && knob.values.lowest().is_some();
    capabilities.knobs_of(Kind::BytesPerS).filter(|(_, knob)| is_namespace(knob)).count() as u32
}

/// A machine of which nothing is known but the power limits of its packages: its CPU draws what they allow. `None` without such limits.
pub(super) fn of_limits(capabilities: &Capabilities, cores: usize) -> Option<CpuModel> {
    let knobs = || capabilities.knobs_of(Kind::LimitUw).map(|(_, knob)| knob);
    let low = knobs().map(|knob| knob.values.lowest()).sum::<Option<u64>>()?;
    let high = knobs().map(|knob| knob.values.highest().map(|most| most.min(knob.initial))).sum::<Option<u64>>()?;
    let row = |step: u64| {
        let limit_uw = low + (high - low) * step / ROWS;
        row(cores, limit_uw, limit_uw, (ROWS + 1 - step) as f64)
    };
    if high > low { CpuModel::new((0..=ROWS).map(row).collect()) } else { None }
}

/// A machine whose power cannot be limited: the power of PASS's, by the number of cores. A wrong one is corrected by the sensor.
pub(super) fn of_cores(cores: usize) -> CpuModel {
    let like = built_in().cpu;
    let (low, high) = (like.bottom().power_uw, like.top().power_uw);
    let power_uw = |used: usize| low + (high - low) * used as u64 / cores as u64;
    let rows = (1..=cores).map(|used| row(used, power_uw(used), like.top().limit_uw, (cores + 1 - used) as f64));
    CpuModel::new(rows.collect()).unwrap_or(like)
}

fn row(cores: usize, power_uw: u64, limit_uw: u64, p99_interval: f64) -> CpuRow {
    CpuRow { power_uw, cores: cores as u16, quota_ppm: cores as u64 * CORE_PPM, limit_uw, p99_interval }
}
