//! The power budget of a running server: which one is in force now, and whether power stays within it.
//!
//! | file | what it holds |
//! |---|---|
//! | `layers.rs` | a budget set by hand, the schedule and the configuration: which of them is in force |
//! | `store.rs` | what was set by hand, kept over a restart |
//! | `judge.rs` | whether power stays within the budget, by readings alone, for any policy |

mod judge;
mod layers;
mod store;

use std::time::{SystemTime, UNIX_EPOCH};

use pilotlight_plant::{Quantity, Scope, Source};

pub(super) use judge::{Judge, Seen, Verdict};
pub(super) use layers::{ByHand, Configured, HandBudget, Named, Origin};
pub(super) use store::Store;

use crate::config::BudgetDomain;

/// Seconds since 1970.
pub(super) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// What a budget is of: what was asked for, else the whole server where that is measured, else its CPU packages.
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
