//! Power states of drives: NVMe feature 02h, Power Management (NVM Express Base Specification 2.1, sections 8.1.17 and 5.1.25). Only
//! operational states are offered: a drive leaves the others by itself at the next request.

use pilotlight_plant::{Cost, Kind, Knob, Of, Values};

use super::{Found, Place};
use crate::changes::Changes;

pub(super) fn find(drives: &[String], changes: &mut Changes, found: &mut Found) {
    for (device, drive) in (0..).zip(drives) {
        let what = || format!("power state of {drive}");
        match changes.power_states(drive) {
            Ok(states) if states.operational.len() > 1 => {
                let knob = Knob {
                    of: Of::Device(device),
                    kind: Kind::PowerState,
                    values: Values::List(states.operational.iter().copied().map(u64::from).collect()),
                    found: states.now.into(),
                    caller: Cost::Assumed(0),
                    effect: Cost::Assumed(states.change_us * 1_000),
                };
                found.add(knob, Place::PowerState { drive: drive.clone() });
            }
            Ok(_) => found.lacks(what(), "the drive has one operational state"),
            Err(error) => found.lacks(what(), format!("cannot ask the drive: {error}; run the server as root")),
        }
    }
}
