//! Frequencies of CPUs through Linux cpufreq (Documentation/admin-guide/pm/cpufreq.rst of the kernel): the bounds
//! `scaling_min_freq` and `scaling_max_freq` are both set to the value.

use std::fs;
use std::path::{Path, PathBuf};

use pilotlight_drive::Roots;
use pilotlight_plant::{Cost, Kind, Knob, Scope, Values};

use super::{Found, Resource, Why, number, pinned, writable};

/// Step if the kernel lists no frequencies: 100 MHz.
const STEP_KHZ: u64 = 100_000;
/// Transition time if the kernel does not report it (SANDMAN, Figure 5: over 450 us).
const EFFECT: Cost = Cost::Assumed(450_000);
/// The kernel's value for an unknown time.
const UNKNOWN_NS: u64 = u32::MAX as u64;

pub(super) fn find(roots: &Roots, cpus: &[Option<u32>], found: &mut Found) {
    if cpus.iter().all(Option::is_none) {
        found.misses("frequency", Why::NotPinned);
        return;
    }
    let mut folders: Vec<(PathBuf, u32)> = Vec::new();
    for (core, cpu) in pinned(cpus) {
        let folder = roots.sys.join(format!("devices/system/cpu/cpu{cpu}/cpufreq"));
        match knob(&folder) {
            Ok(knob) => {
                // CPUs that share a clock have links to one folder.
                let real = fs::canonicalize(&folder).unwrap_or(folder);
                let first = folders.iter().find(|(other, _)| *other == real).map(|(_, first)| *first);
                if first.is_none() {
                    folders.push((real, cpu));
                }
                found.add(Knob { scope: Scope::Core(core), ..knob }, Resource::Frequency { cpu: first.unwrap_or(cpu) });
            }
            Err(why) => found.misses(format!("frequency of core {} (CPU {cpu})", core.0), why),
        }
    }
}

fn knob(folder: &Path) -> Result<Knob, Why> {
    if !folder.exists() {
        return Err(Why::NoCpufreq);
    }
    ["scaling_min_freq", "scaling_max_freq"].iter().try_for_each(|name| writable(&folder.join(name)))?;
    let listed = fs::read_to_string(folder.join("scaling_available_frequencies")).unwrap_or_default();
    let mut list: Vec<u64> = listed.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    list.sort_unstable();
    let [min, max] = ["cpuinfo_min_freq", "cpuinfo_max_freq"].map(|name| number(&folder.join(name)));
    let values =
        if list.is_empty() { Values::Range { min: min?, max: max?, step: STEP_KHZ } } else { Values::List(list) };
    let latency = number(&folder.join("cpuinfo_transition_latency"));
    let known = latency.ok().filter(|&ns| ns > 0 && ns < UNKNOWN_NS);
    Ok(Knob {
        scope: Scope::Server,
        kind: Kind::FrequencyKhz,
        values,
        initial: number(&folder.join("scaling_max_freq"))?,
        caller: Cost::Assumed(0),
        effect: known.map_or(EFFECT, Cost::Assumed),
    })
}
