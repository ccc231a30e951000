//! The share of a rack's budget, and what the rack learns.

use super::{Admin, goals};
use crate::config::Fleet;
use crate::serve::budget::{self, Verdict};
use crate::serve::fleet::Counters;
use crate::status::report::FleetReport;
use pilotlight_fleet::StateReader;

/// Power, as the rack learns it.
pub(in crate::serve) struct PowerForRack {
    pub(in crate::serve) measured_uw: Option<u64>,
    /// The budget in force.
    pub(in crate::serve) budget_uw: Option<u64>,
    /// The sensor, or that power is modelled and with which profile.
    pub(in crate::serve) source: String,
    /// Whether power is within the budget in force.
    pub(in crate::serve) is_within: bool,
}

impl Admin {
    /// Notes the rack.
    pub(in crate::serve) fn note_fleet(&self, fleet: &Fleet, state: StateReader) {
        let _ = self.fleet.set((fleet.clone(), state));
    }

    /// The share in microwatts is the upper bound of all budgets from now on.
    pub(in crate::serve) fn set_share(&self, power_uw: u64) {
        let mut state = self.state();
        if state.configured.share_uw == Some(power_uw) {
            return;
        }
        state.configured.share_uw = Some(power_uw);
        self.follow(&mut state, budget::now_s());
        self.update_verdict(&mut state);
        drop(state);
        self.goals_have_changed();
    }

    /// Power, and whether it is within the budget in force. Takes what the watching thread has found.
    pub(in crate::serve) fn power_for_rack(&self) -> PowerForRack {
        let state = self.state();
        let domain = goals::domain_in_force(&state, self.server.as_ref());
        let source = self.server.power().map_or_else(
            || "no sensor".to_owned(),
            |power| power.modelled.map_or(power.sensor, |profile| format!("modelled: {profile}")),
        );
        PowerForRack {
            measured_uw: self.server.window(domain).map(|(.., power_uw)| power_uw),
            budget_uw: state.operation.goals.budget_uw,
            source,
            is_within: state.monitor.verdict() == Verdict::Held,
        }
    }

    /// Counters of load.
    pub(in crate::serve) fn load_counters(&self) -> Counters {
        let stats = self.server.stats();
        let busy_ns = stats.runtime.reactors.iter().map(|reactor| reactor.busy_ns).sum();
        Counters { read_bytes: stats.totals.read_bytes, written_bytes: stats.totals.written_bytes, busy_ns }
    }

    /// The component that limits throughput. Asking wakes the main core.
    pub(in crate::serve) fn bottleneck(&self) -> Option<String> {
        self.server.bottleneck().map(|component| component.name().to_owned())
    }

    /// The place in the rack; `None` without one.
    pub(super) fn fleet_report(&self) -> Option<FleetReport> {
        let (fleet, state) = self.fleet.get()?;
        let state = state.get();
        Some(FleetReport {
            rack: fleet.rack.clone(),
            name: fleet.name.clone(),
            share_uw: state.share_uw,
            granted: state.is_granted,
            valid_for_ns: state.valid_for_ns,
            leader: state.is_leader,
            grants: state.grants,
            expiries: state.expiries,
            failure: state.failure,
        })
    }
}
