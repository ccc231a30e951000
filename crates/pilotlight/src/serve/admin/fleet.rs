//! The share of a rack's budget, and what the rack learns. Nothing here waits for the server's state: a reload can hold it while it opens a device,
//! and the floor must not wait for that.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, OnceLock};

use pilotlight_fleet::StateReader;

use super::Admin;
use crate::config::Fleet;
use crate::policies::BudgetDomain;
use crate::serve::budget;
use crate::serve::fleet::Counters;
use crate::serve::state::State;
use crate::status::report::FleetReport;

/// A server's place in a rack.
#[derive(Default)]
pub(super) struct Place {
    /// The rack, and the state there.
    rack: OnceLock<(Fleet, StateReader)>,
    /// The share in microwatts; 0 before the first.
    share_uw: AtomicU64,
    /// Whether the bottleneck is wanted, and the last one.
    asks: AtomicBool,
    bottleneck: Mutex<Option<String>>,
}

impl Admin {
    /// Notes the rack.
    pub(in crate::serve) fn note_fleet(&self, fleet: &Fleet, state: StateReader) {
        let _ = self.fleet.rack.set((fleet.clone(), state));
    }

    /// The share in microwatts is the upper bound of all budgets from now on. The watching thread notes it in the server's state.
    pub(in crate::serve) fn set_share(&self, power_uw: u64) {
        self.server.set_share(power_uw);
        self.fleet.share_uw.store(power_uw, Release);
        self.goals_have_changed();
    }

    /// Notes the share, and looks for the bottleneck if that is wanted.
    pub(super) fn follow_share(&self, state: &mut State) {
        let share_uw = self.fleet.share_uw.load(Acquire);
        if share_uw != 0 {
            state.configured.share_uw = Some(share_uw);
        }
        if self.fleet.asks.swap(false, Acquire) {
            let found = self.server.bottleneck().map(|component| component.name().to_owned());
            *self.fleet.bottleneck.lock().unwrap_or_else(PoisonError::into_inner) = found;
        }
    }

    /// The component that limits throughput, as it was last known; looks for it again, which wakes the main core.
    pub(in crate::serve) fn last_bottleneck(&self, asks: bool) -> Option<String> {
        if asks {
            self.fleet.asks.store(true, Release);
            self.goals_have_changed();
        }
        self.fleet.bottleneck.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The last window of power: when it began, and microwatts.
    pub(in crate::serve) fn power_for_rack(&self, wanted: Option<BudgetDomain>) -> Option<(u64, u64)> {
        let domain = budget::domain(wanted, &self.server.sources());
        self.server.window(domain).map(|(began_ns, _, power_uw)| (began_ns, power_uw))
    }

    /// The sensor, or that power is modelled and with which profile.
    pub(in crate::serve) fn source_of_power(&self) -> String {
        self.server.power().map_or_else(
            || "no sensor".to_owned(),
            |power| power.modelled.map_or(power.sensor, |profile| format!("modelled: {profile}")),
        )
    }

    /// Counters of load.
    pub(in crate::serve) fn load_counters(&self) -> Counters {
        let stats = self.server.stats();
        Counters {
            read_bytes: stats.totals.read_bytes,
            written_bytes: stats.totals.written_bytes,
            busy_ns: stats.runtime.reactors.iter().map(|reactor| reactor.busy_ns).sum(),
            in_progress_ns: stats.threads.iter().map(|of| of.latency.sum_ns() + of.cap_waits.sum_ns()).sum(),
            threads: stats.threads.len(),
        }
    }

    /// The place in the rack; `None` without one.
    pub(super) fn fleet_report(&self) -> Option<FleetReport> {
        let (fleet, state) = self.fleet.rack.get()?;
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
