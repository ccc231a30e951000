//! Bounds on what sleeping cores save on an open loop: the energy of schedules that know every request in advance.
//!
//! **Problem.** A policy saves energy against static polling; how much was there to save? The exact optimum is not computed. It lies
//! between two bounds: no schedule takes less than the lower ([`lower_bound`]), and one takes the upper, which has been run in the
//! simulator ([`bracket`]).
//!
//! **What is bounded.** Schedules that only put cores to sleep and wake them, all at their highest frequency, under requests whose times do
//! not depend on answers. The bounds say nothing of:
//! - lower frequencies: a core that polls slowly draws less than one that polls fast (`governor` can be below the lower bound);
//! - closed loops (an unlimited rate, a think time, jobs), which are refused: faster answers bring later requests earlier. A connection of
//!   limited depth is open only as long as it does not reach its depth;
//! - requests of a trace, and machines or drives of which [`OracleError`] tells why;
//! - runs that answer later than the terms below allow;
//! - sleep states that are not in [`States`]: where the main core rests too (`interrupt`, `hybrid-poll`, a server that sleeps as a
//!   whole) set `main_rests`; where the kernel rests cores deep (`kernel_idles_deep`) use [`States::ALL`];
//! - one detail of the simulator: it sets a core's speed by its sibling's state in the epoch *before* ([`crate::engine::EPOCH_NS`]), so that each
//!   wake-up lends the pair up to an epoch at the speed of a core alone.
//!
//! Energy is that of the simulator's power model for the machine's member of the power family, drives included. The drives' energy is
//! taken from the run of static polling, so where a drive reaches its power ceiling there are no bounds.
//!
//! **Words.** *Schedule*: for each core and moment whether it is awake, in the shallow or in the deep state. *Sample path*: what
//! arrived and was answered when under static polling. *Work*: requests as a fluid, in nanoseconds of a core at full speed whose
//! sibling is busy. *Slot*: a stretch of time of any length. *Level*: counts of cores, awake and not deep, held through a slot.
//!
//! **What a schedule must do.** At the end of every slot it has done at least the work that static polling had answered epsilon before, and at
//! most what had arrived. A core that wakes burns what a polling core burns for the exit latency of its state, and works nothing.
//!
//! **Why the lower bound is one.** Take any such schedule, in continuous time, cores paired as they like.
//! 1. *Power is above straight lines* in capacity, cores awake and cores not deep, with a price for cores that are waking
//!    (`prices.rs`). Lines may be integrated: in a slot only sums of time remain, whatever happened within it. The waking time of a wake-up
//!    may lie in another slot than the wake-up; so a family of lines has one price for it, the least of its lines.
//! 2. *Counts instead of cores.* In a slot let `m` be the fewest and `M` the most cores that work at once, and `need` the fewest that can do its
//!    work. The slot is given the level `k = max(m, need)`. If `k = m`, cores were awake for at least `k` times its length. If not,
//!    for at least as long as the work needs, which need not be a whole number of cores. The same holds for cores that are not
//!    deep, since who works is not deep.
//! 3. *Wake-ups.* Between two slots the counts have risen at least from one level to the next: in a slot that was entered with
//!    `x` cores and left with `y`, at least `max(k - x, 0) + max(y - k, 0)` have woken, because `m <= k <= M`, and if `k > m` then
//!    `y - m >= y - k`. Each rise of the count awake is a wake-up, and each rise of the count not deep one from the deep state.
//!    Only what lies in the measured time counts of a wake-up at its beginning.
//! 4. So every schedule has a path of levels that costs no more, and the cheapest path is found exactly (`bound.rs`). Work may move between
//!    slots as far as its limits allow; its sum over all slots has a price (weak duality: any price gives a bound).
//!
//! **What is relaxed**, so that the bound is below the optimum: within a slot the last core sleeps and wakes for nothing; work of a
//! slot is there from its beginning and due at its end; any core may do any request, in pieces; between odd and even counts of
//! a pair power is a line; a convex curve of the other components is a tangent. What the simulator's plant has beyond that and the bound
//! leaves out: loops, device queues and I/O threads cost time; a command takes the main core's time; moves; ticks.
//!
//! **The upper bound.** The cheapest path of levels becomes a schedule ([`Replay`]). Its counts are raised until no core is busy for more
//! than a share of a slot, since cores with exactly enough work have endless queues. The largest share is used at which the n-th
//! answer is at most epsilon later than static polling's n-th, except for a share of the answers ([`BracketOptions`]). Where a profile does not let cores rest
//! deep by command, the schedule of [`States::ALL`] uses shallow sleep, and the main core never sleeps in it, so that with `main_rests` the
//! bounds are about a core apart.
//!
//! **Properties**, each a test: no schedule of up to three cores is below the bound, every pairing tried (`brute.rs`); where nothing is
//! relaxed it is the least energy exactly; the program finds the cheapest of all paths; no arrangement burns less than a line
//! says; static polling's own work is always between what it must and what it can; a bracket of a scenario is below what
//! policies burn that meet its terms.

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

/// Why there is no bound.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OracleError {
    /// Powers are not ordered by depth.
    #[error("the machine's `power`: polling must burn no less than shallow sleep, and that no less than deep sleep")]
    Order,
    /// Shares of siblings are out of range.
    #[error("the machine's `sibling_gain_ppm` and `sibling_saves_ppm` must not exceed 1000000")]
    Siblings,
    /// The package's power beside its cores is not bounded yet.
    #[error("the machine's `power.uncore_uw`: the oracle does not know machines with it yet")]
    Uncore,
    /// A run that is needed for it could not be made.
    #[error("{0}")]
    Run(String),
    /// Requests come from a trace, which is read once.
    #[error(
        "the oracle runs a scenario several times, and requests of a trace come only once: give its connections rates instead"
    )]
    Traced,
    /// A drive reaches its power ceiling.
    #[error("a drive reaches its power ceiling, and the bound takes the energy of the drives' requests as given")]
    Ceiling,
    /// Times of requests depend on answers.
    #[error(
        "requests wait for answers (an unlimited rate, a think time or jobs), and the oracle bounds open loops only"
    )]
    Closed,
    /// There is nothing to bound.
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
