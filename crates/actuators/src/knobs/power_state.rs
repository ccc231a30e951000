//! Power states of drives: NVMe feature 02h, Power Management (NVM Express Base Specification 2.1, sections 8.1.17 and 5.1.25). Only
//! operational states are available: a drive leaves the others at the next request.

use pilotlight_drive::Roots;
use pilotlight_plant::{Cost, Kind, Knob, Scope, Values};

use super::{Found, Resource, Why};
use crate::changes::{Kernel, states};

/// Estimated transition time if the drive does not report it.
const EFFECT_US: u64 = 1_000;

pub(super) fn find(roots: &Roots, kernel: &mut dyn Kernel, drives: &[String], found: &mut Found) {
    for (device, drive) in (0..).zip(drives) {
        let what = || format!("power state of {drive}");
        match kernel.drive(&roots.dev.join(drive)).and_then(|mut drive| states(drive.as_mut())) {
            Ok(states) if states.operational.len() > 1 => {
                let knob = Knob {
                    scope: Scope::Device(device),
                    kind: Kind::PowerState,
                    values: Values::List(states.operational.iter().copied().map(u64::from).collect()),
                    initial: states.now.into(),
                    caller: Cost::Assumed(0),
                    effect: Cost::Assumed(if states.change_us > 0 { states.change_us } else { EFFECT_US } * 1_000),
                };
                found.add(knob, Resource::PowerState { drive: drive.clone() });
            }
            Ok(_) => found.misses(what(), Why::OneState),
            Err(error) => found.misses(what(), Why::States(error)),
        }
    }
}
