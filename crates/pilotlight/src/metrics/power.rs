//! Samples of power, energy, budgets and their limit.

use std::collections::BTreeMap;

use super::Facts;
use super::family::Samples;
use super::table::{BUDGET_STATES, millionths};
use crate::status::report::LimitReport;

/// Energy of no host is its own series, so that the series add up.
const UNASSIGNED: &str = "unassigned";

pub(super) fn host_energy(facts: &Facts, out: &mut Samples<'_>) {
    let Some(energy) = &facts.energy else { return };
    for zone in &energy.zones {
        let mut sums: BTreeMap<&str, u64> = facts.hosts.iter().map(|host| (&*host.name, 0)).collect();
        zone.users.iter().for_each(|user| *sums.entry(&user.host).or_default() += user.energy_uj);
        for (host, uj) in sums.into_iter().chain([(UNASSIGNED, zone.unassigned_uj)]) {
            let model = energy.modelled.as_deref().unwrap_or_default();
            let labels = [("zone", &*zone.of), ("sensor", &*energy.sensor), ("model", model), ("host", host)];
            out.put(labels, millionths(uj));
        }
    }
}

pub(super) fn namespace_energy(facts: &Facts, out: &mut Samples<'_>) {
    let Some(energy) = &facts.energy else { return };
    for zone in &energy.zones {
        let mut sums: BTreeMap<(&str, u32), u64> = facts.namespaces.iter().map(|it| ((&*it.nqn, it.nsid), 0)).collect();
        zone.users.iter().for_each(|user| *sums.entry((&user.nqn, user.nsid)).or_default() += user.energy_uj);
        let named = sums.into_iter().map(|((nqn, nsid), uj)| (nqn, nsid.to_string(), uj));
        for (nqn, nsid, uj) in named.chain([("", UNASSIGNED.to_owned(), zone.unassigned_uj)]) {
            let model = energy.modelled.as_deref().unwrap_or_default();
            let of = [("zone", &*zone.of), ("sensor", &*energy.sensor), ("model", model)];
            out.put([of[0], of[1], of[2], ("subsystem", nqn), ("namespace", &nsid)], millionths(uj));
        }
    }
}

pub(super) fn watts(facts: &Facts, out: &mut Samples<'_>) {
    let Some(power) = facts.power.as_ref().filter(|power| power.gives_watts) else { return };
    for zone in &power.zones {
        out.put_some([("zone", &*zone.name), ("sensor", &*power.sensor)], zone.power_uw.map(millionths));
    }
}

pub(super) fn limit(facts: &Facts, out: &mut Samples<'_>, value: fn(&LimitReport) -> f64) {
    out.put_some([], facts.limit.as_ref().map(value));
}

pub(super) fn budget_states(facts: &Facts, out: &mut Samples<'_>) {
    let Some(budget) = &facts.budget else { return };
    for state in BUDGET_STATES {
        out.put([("state", state)], f64::from(u8::from(budget.state == state)));
    }
}
