//! The power budget of a running server: which one is in force now, and whether power stays within it.
//!
//! | file | content |
//! |---|---|
//! | `overrides.rs` | which goals are in force: set manually, of the schedule or of the configuration |
//! | `store.rs` | the state file, which keeps goals set manually over a restart |
//! | `limit.rs` | the limit that ends at a deadline |
//! | `monitor.rs` | whether power stays within the budget, by readings, for any policy |

mod limit;
mod monitor;
mod overrides;
mod store;

use std::time::{SystemTime, UNIX_EPOCH};

use pilotlight_plant::{Quantity, Scope, Source};

pub(super) use limit::{Limit, Setting};
#[cfg(test)]
pub(crate) use monitor::MARGIN_PPM;
pub(super) use monitor::{BudgetMonitor, Observation, Verdict};
pub(super) use overrides::{BudgetOverride, Configured, GoalOverrides, Named, Origin};
pub(super) use store::Store;

use crate::policies::BudgetDomain;

/// The error for a budget without a sensor.
pub(super) const NO_SENSOR: &str = "a power budget needs a sensor of power, and there is none that this server reads";
/// How to get a sensor.
pub(super) const NO_SENSOR_HELP: &str = "start the server with --sensor rapl or hwmon; or with --sensor modelled, which computes watts from CPU time and measures nothing";

/// Seconds since 1970.
pub(super) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The domain of a budget: as requested, else the server if it is measured, else its CPU packages.
pub(crate) fn domain(wanted: Option<BudgetDomain>, sources: &[Source]) -> BudgetDomain {
    let is_measured = |domain| sources.iter().any(|source| belongs(source, domain));
    let measured = || [BudgetDomain::Server, BudgetDomain::Cpu].into_iter().find(|&domain| is_measured(domain));
    wanted.or_else(measured).unwrap_or(BudgetDomain::Server)
}

/// Whether a source measures a part of this domain.
pub(super) fn belongs(source: &Source, domain: BudgetDomain) -> bool {
    let of_domain = match domain {
        BudgetDomain::Server => source.scope == Scope::Server,
        BudgetDomain::Cpu => matches!(source.scope, Scope::Package(_)),
    };
    of_domain && source.quantity == Quantity::PowerUw
}
