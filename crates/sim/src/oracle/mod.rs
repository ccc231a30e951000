//! The clairvoyant limit.
mod bound;
mod bracket;
#[cfg(test)]
mod brute;
mod demand;
mod ledger;
mod limits;
mod prices;
mod replay;

pub use bound::{Bound, Level, lower_bound};
pub use bracket::{Aim, Bracket, UTILISATIONS_PERMILLE, bracket, bracket_of};
pub use demand::{Demand, Grain, Plan, Slot, Span};
pub use ledger::Lateness;
pub use limits::{Limits, States, UnitPower};
pub use replay::{Change, Fill, Replay, Schedule};

/// Why there is no bound.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OracleError {
    /// Powers are not ordered by depth.
    #[error("the machine's `power`: polling must burn no less than shallow sleep, and that no less than deep sleep")]
    Order,
    /// Shares of siblings are out of range.
    #[error("the machine's `sibling_gain_ppm` and `sibling_saves_ppm` must not exceed 1000000")]
    Siblings,
    /// A run that is needed for it could not be made.
    #[error("{0}")]
    Run(String),
    /// Requests come from a trace, which is read once.
    #[error(
        "the oracle runs a scenario several times, and requests of a trace come only once: give its connections rates instead"
    )]
    Traced,
    /// There is nothing to bound.
    #[error("there is no slot: measure for longer than one entry of the series")]
    NoSlots,
    /// More work than all cores can do.
    #[error("slot {slot} has more work than all cores can do: lengthen the slots or check the machine's `poll` costs")]
    TooMuch {
        /// The slot.
        slot: usize,
    },
}
