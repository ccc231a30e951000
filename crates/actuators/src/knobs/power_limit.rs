//! Power limits of CPU packages: RAPL through powercap (Documentation/power/powercap/powercap.rst of the kernel). The limits of both
//! windows are set to the value: with the longer one alone a package may exceed it for the length of that window, often tens of seconds.

use std::fs;

use pilotlight_drive::Roots;
use pilotlight_plant::{Cost, Kind, Knob, Scope, Values};

use super::{Found, Missing, Resource, Why, number, writable};
use crate::changes::{Changes, LONG_TERM, SHORT_TERM};

/// RAPL's unit on known machines: 1/8 W.
const STEP_UW: u64 = 125_000;
/// Lowest limit; no known package follows a lower one.
const LOWEST_UW: u64 = 5_000_000;
/// Estimated time until a limit is effective, of the order of RAPL's averaging window.
const EFFECT: Cost = Cost::Assumed(10_000_000);

pub(super) fn find(roots: &Roots, found: &mut Found) {
    let folder = roots.sys.join("class/powercap");
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut zones: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    // Packages only: `intel-rapl:0:1` is a part of `intel-rapl:0`.
    zones.retain(|zone| zone.starts_with("intel-rapl:") && zone.matches(':').count() == 1);
    zones.sort();
    if zones.is_empty() {
        found.misses("power limit", Why::NoZone(folder));
    }
    for zone in zones {
        match knob(roots, &zone) {
            Ok(Some(knob)) => found.add(knob, Resource::PowerLimit { zone }),
            Ok(None) => {}
            Err(why) => found.misses(format!("power limit of {zone}"), why),
        }
    }
}

/// Drops the limits that firmware has locked: their files open for writing, and refuse each value, also the one that they have.
pub(super) fn drop_locked(roots: &Roots, changes: &mut Changes, found: &mut Found) {
    let Found { entries, resources, missing } = found;
    entries.retain(|one| {
        let Resource::PowerLimit { zone } = &resources[one.resource] else { return true };
        let folder = roots.sys.join("class/powercap").join(zone);
        let refused = [LONG_TERM, SHORT_TERM]
            .map(|file| folder.join(file))
            .into_iter()
            .find_map(|file| changes.write_back(&file).err().map(|error| Why::Locked(file, error)));
        let is_free = refused.is_none();
        missing.extend(refused.map(|why| Missing { what: format!("power limit of {zone}"), why }));
        is_free
    });
}

/// The limit of a zone; `None` if it is not a package.
fn knob(roots: &Roots, zone: &str) -> Result<Option<Knob>, Why> {
    let folder = roots.sys.join("class/powercap").join(zone);
    let name = fs::read_to_string(folder.join("name")).unwrap_or_default();
    let Some(package) = name.trim().strip_prefix("package-") else { return Ok(None) };
    let package = package.parse().map_err(|_| Why::Part(name.trim().to_owned()))?;
    let (limit, short_term) = (folder.join(LONG_TERM), folder.join(SHORT_TERM));
    writable(&limit)?;
    if short_term.exists() {
        writable(&short_term)?;
    }
    let limit_uw = number(&limit)?;
    let max_uw = number(&folder.join("constraint_0_max_power_uw")).ok().filter(|&max_uw| max_uw > LOWEST_UW);
    let max = max_uw.unwrap_or(limit_uw).max(limit_uw).max(LOWEST_UW);
    Ok(Some(Knob {
        scope: Scope::Package(package),
        kind: Kind::LimitUw,
        values: Values::Range { min: LOWEST_UW, max, step: STEP_UW },
        initial: limit_uw,
        caller: Cost::Assumed(0),
        effect: EFFECT,
    }))
}
