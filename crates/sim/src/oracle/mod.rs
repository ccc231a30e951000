//! Bounds on the energy savings of sleeping cores under open-loop load, from schedules with full knowledge of requests.
//!
//! **Problem.** The maximum possible saving relative to static polling is needed to judge a policy. The exact optimum is not computed. It lies
//! between two bounds: no schedule takes less than the lower one ([`lower_bound`]), and the upper one is the energy of a schedule run in the
//! simulator ([`bracket`]).
//!
//! **Scope.** Schedules that only put cores to sleep and wake them, all at their highest frequency, under requests whose times do not depend on
//! responses. The bounds do not cover:
//! - lower frequencies: a core that polls slowly draws less than one that polls fast (`governor` can be below the lower bound);
//! - closed loops (an unlimited rate, a think time, jobs), which are refused: faster responses advance later requests. A connection of
//!   limited depth is open only as long as it does not reach its depth;
//! - requests of a trace, and machines or drives rejected with [`OracleError`];
//! - runs with delays beyond the conditions below;
//! - sleep states that are not in [`States`]: if the main core sleeps too (`interrupt`, `hybrid-poll`, server-sleep)
//!   set `main_rests`; if the kernel idles cores in the deep state (`kernel_idles_deep`) use [`States::ALL`];
//! - one detail of the simulator: it sets a core's speed by its sibling's state in the epoch *before* ([`crate::engine::EPOCH_NS`]), so that each
//!   wake-up gains the pair up to an epoch at the speed of a core alone.
//!
//! Energy is that of the simulator's power model for the machine's member of the power family, drives included. The drives' energy is
//! taken from the run of static polling, so there are no bounds if a drive reaches its power ceiling.
//!
//! **Terms.** *Schedule*: the state of each core (awake, shallow, deep) over time. *Sample path*: arrival and response times under static polling.
//! *Work*: requests as a fluid, in nanoseconds of a core at full speed with a busy sibling. *Slot*: a stretch of time of any length. *Level*: numbers
//! of cores, awake and not deep, held throughout a slot.
//!
//! **Constraints.** At the end of every slot, a schedule has done at least the work that static polling had answered epsilon earlier, and at most the
//! work that had arrived. A waking core draws the power of a polling core for the exit latency of its state, and does no work.
//!
//! **Proof of the lower bound.** Consider any such schedule, in continuous time, with any pairing of cores.
//! 1. *Power is above straight lines* in capacity, cores awake and cores not deep, with a price for cores that are waking
//!    (`prices.rs`). Lines can be integrated: a slot depends only on sums of time. The waking time of a wake-up
//!    may lie in a slot other than the wake-up's; so a family of lines has one price for it, the minimum over its lines.
//! 2. *Counts instead of cores.* In a slot let `m` be the fewest and `M` the most cores that work at once, and `need` the fewest that can do its
//!    work. The slot is given the level `k = max(m, need)`. If `k = m`, cores were awake for at least `k` times its length. If not,
//!    for at least as long as the work needs, which need not be a whole number of cores. The same holds for cores that are not
//!    deep, since working cores are not deep.
//! 3. *Wake-ups.* Between two slots the counts have risen at least from one level to the next: in a slot that was entered with
//!    `x` cores and left with `y`, at least `max(k - x, 0) + max(y - k, 0)` have woken, because `m <= k <= M`, and if `k > m` then
//!    `y - m >= y - k`. Each rise of the count awake is a wake-up, and each rise of the count not deep one from the deep state.
//!    Only the part of a wake-up within the measured time counts.
//! 4. Hence every schedule has a path of levels that costs no more, and the cheapest path is found exactly (`bound.rs`). Work may move between
//!    slots within its limits; its sum over all slots has a price (weak duality: any price yields a bound).
//!
//! **Relaxations**, which put the bound below the optimum: within a slot the last core sleeps and wakes at no cost; a slot's work is available from
//! its beginning and due at its end; any core may process any request, in pieces; between odd and even counts of a pair, power is linear; a convex
//! curve of the other components is replaced by a tangent. The bound ignores costs that the simulated plant has: loops, device queues and I/O threads
//! take time; commands take the main core's time; moves; ticks.
//!
//! **The upper bound.** The cheapest path of levels becomes a schedule ([`Replay`]). Its counts are raised until no core exceeds a given utilisation,
//! since queues grow without bound at full utilisation. The largest utilisation is used at which the n-th response is at most epsilon later than
//! static polling's n-th, except for a share of the responses ([`BracketOptions`]). If a profile has no commanded deep sleep, the schedule of
//! [`States::ALL`] uses shallow sleep. The main core never sleeps in it, so with `main_rests` the bounds differ by about a core.
//!
//! **Properties**, each a test: no schedule of up to three cores is below the bound, for every pairing (`brute.rs`); without relaxation it is exactly
//! the minimum energy; the program finds the cheapest of all paths; no arrangement draws less power than a line; static polling's own work is always
//! between its minimum and maximum; the lower bound of a scenario is below the energy of policies that meet its conditions.

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
pub use bracket::{Bracket, BracketOptions, UTILISATIONS_PERMILLE, bracket, bracket_of};
pub use demand::{Demand, Slot, SlotLimits, Span, WorkBounds};
pub use ledger::{Delays, Lateness};
pub use limits::{Limits, States, UnitPower};
pub use replay::{Change, Fill, Replay, Schedule};

use crate::RunError;

/// Reason for a missing bound.
#[derive(Debug, thiserror::Error)]
pub enum OracleError {
    /// Powers are not ordered by depth.
    #[error("the machine's `power`: polling must burn no less than shallow sleep, and that no less than deep sleep")]
    Order,
    /// Shares of siblings are out of range.
    #[error("the machine's `sibling_gain_ppm` and `sibling_saves_ppm` must not exceed 1000000")]
    Siblings,
    /// The package's power outside its cores is not supported yet.
    #[error("the machine's `power.uncore_uw`: the oracle does not know machines with it yet")]
    Uncore,
    /// A required run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Requests come from a trace, which is read once.
    #[error(
        "the oracle runs a scenario several times, and requests of a trace come only once: give its connections rates instead"
    )]
    Traced,
    /// A drive reaches its power ceiling.
    #[error("a drive reaches its power ceiling, and the bound takes the energy of the drives' requests as given")]
    Ceiling,
    /// Request times depend on responses.
    #[error(
        "requests wait for answers (an unlimited rate, a think time or jobs), and the oracle bounds open loops only"
    )]
    Closed,
    /// There is no slot.
    #[error("there is no slot: measure for longer than one entry of the series")]
    NoSlots,
    /// A slot is too long for the arithmetic.
    #[error("a slot is longer than 10 s: gather fewer entries of the series into one")]
    LongSlot,
    /// More work than all cores can do.
    #[error("slot {slot} has more work than all cores can do: lengthen the slots or check the machine's `poll` costs")]
    TooMuch {
        /// The slot.
        slot: usize,
    },
}
