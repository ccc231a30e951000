//! CPU hotplug of configured cores (kernel: Documentation/core-api/cpu_hotplug.rst). A reactor whose core is offline may run on others; its
//! affinity is restored with the core (`changes/hotplug.rs`).

use std::fs;

use pilotlight_drive::Roots;
use pilotlight_plant::{CoreId, Cost, Kind, Knob, Scope, Values};

use super::{Found, Resource, Why, pinned, writable};
use crate::changes::switch;

/// Estimated time to take a CPU off- or online.
const EFFECT: Cost = Cost::Assumed(100_000_000);

pub(super) fn find(roots: &Roots, cpus: &[Option<u32>], hotplug: &[CoreId], found: &mut Found) {
    for (core, cpu) in pinned(cpus).filter(|(core, _)| hotplug.contains(core)) {
        match check(roots, cpu) {
            Ok(()) => found.add(knob(core), Resource::Online { cpu }),
            Err(why) => found.misses(format!("whether core {} (CPU {cpu}) is online", core.0), why),
        }
    }
}

fn check(roots: &Roots, cpu: u32) -> Result<(), Why> {
    let switch = switch(roots, cpu);
    match fs::read_to_string(&switch) {
        Ok(text) if text.trim() == "1" => writable(&switch),
        Ok(_) => Err(Why::Offline),
        Err(error) => Err(Why::NoSwitch(switch, error)),
    }
}

fn knob(core: CoreId) -> Knob {
    Knob {
        scope: Scope::Core(core),
        kind: Kind::Online,
        values: Values::List(vec![0, 1]),
        initial: 1,
        caller: Cost::Assumed(0),
        effect: EFFECT,
    }
}
