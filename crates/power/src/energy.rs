//! Energy of a time window from samples of an energy counter or of power.
//!
//! **Problem.** An energy counter wraps around. Samples never coincide with the start and end of a phase of an experiment. A sensor can
//! fail, the machine can be suspended, and a counter can wrap several times between two samples. These cases must be detected.
//!
//! **Terms.** A *point* is a value at a time. A *step* is the interval between two adjacent points. A *window* lies between two markers;
//! each of its *edges* lies within a step. A counter with *modulus* M shows its value modulo M.
//!
//! **Counters.** The energy of a step is `d + k M`, where `d` is the difference modulo M and `k` the number of further wraps. The valid
//! `k` are those for which the mean power of the step is between the domain's least and greatest power. One valid `k` is used;
//! several make the step [`Ambiguous`](EnergyError::Ambiguous), none makes it [`Implausible`](EnergyError::Implausible). The number of
//! wraps is unique if `(greatest - least) x time < M`.
//!
//! **Powers.** The energy of a step is the trapezoid under its two points. A step longer than `longest_gap_ns` is a
//! [`Gap`](EnergyError::Gap).
//!
//! **Edges.** Within a step a counter is assumed to increase linearly, and a power to change linearly. Counters have bounds without this
//! assumption: at least the steps within the window, at most those that touch it ([`Energy::bounds_uj`]). A window that starts before
//! the first point or ends after the last is [`Uncovered`](EnergyError::Uncovered).
//!
//! **Properties** (tested in `tests/energy.rs` against a naive implementation). Integer arithmetic; the result is the exact sum, rounded
//! once to the nearest microjoule, half up. Partial steps have an error below 2^-39 uJ each. Energies of consecutive windows add up
//! to that of the whole, up to rounding.

use serde::{Deserialize, Serialize};

use crate::sensor::{Counts, Domain, Kind, Part};

/// A value at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Monotonic clock, in nanoseconds.
    pub at_ns: u64,
    /// Microjoules of a counter, or microwatts.
    pub value: i64,
}

/// A time window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Monotonic clock, in nanoseconds.
    pub from_ns: u64,
    /// Monotonic clock, in nanoseconds; after `from_ns`.
    pub to_ns: u64,
}

impl Window {
    /// Duration in nanoseconds.
    pub fn length_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }

    /// Whether it overlaps `from_ns..to_ns`.
    pub fn touches(&self, from_ns: u64, to_ns: u64) -> bool {
        from_ns < self.to_ns && to_ns > self.from_ns
    }
}

/// Integration rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// Differences of a counter.
    Counter(Counts),
    /// Trapezoids under powers.
    Power {
        /// A step that is longer is a gap, in nanoseconds.
        longest_gap_ns: u64,
    },
}

/// Energy of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Energy {
    /// Energy in microjoules.
    pub uj: i64,
    /// Lower and upper bound without assumptions about the edges; for counters only.
    pub bounds_uj: Option<(i64, i64)>,
    /// Steps that touch the window.
    pub steps: usize,
    /// Wraps of the counter in these steps.
    pub wraps: u64,
}

impl Energy {
    /// Mean power over `window`, in microwatts; rounded towards zero.
    pub fn mean_uw(&self, window: Window) -> i64 {
        let length = i128::from(window.length_ns().max(1));
        (i128::from(self.uj) * NS_PER_S / length) as i64
    }
}

/// Why the energy is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnergyError {
    /// The window is empty or goes backwards.
    #[error("the window from {from_ns} to {to_ns} ns is empty")]
    EmptyWindow {
        /// Its start, in nanoseconds.
        from_ns: u64,
        /// Its end, in nanoseconds.
        to_ns: u64,
    },
    /// Neither energy nor power.
    #[error("{0} is neither energy nor power")]
    NotEnergy(String),
    /// Samples do not extend over the window, as after a failure of the sensor.
    #[error("no samples from {from_ns} to {to_ns} ns: {}", why.as_deref().unwrap_or("the sensor started later or stopped earlier"))]
    Uncovered {
        /// Start of the time without samples, in nanoseconds.
        from_ns: u64,
        /// Its end, in nanoseconds.
        to_ns: u64,
        /// The sensor's error.
        why: Option<String>,
    },
    /// A step is too long.
    #[error("no samples from {from_ns} to {to_ns} ns, over which power is not interpolated: {}", why.as_deref().unwrap_or("the sampler was delayed"))]
    Gap {
        /// The last sample before, in nanoseconds.
        from_ns: u64,
        /// The first sample after, in nanoseconds.
        to_ns: u64,
        /// The sensor's error.
        why: Option<String>,
    },
    /// A sample is not later than the one before it: the clock went backwards.
    #[error("the sample at {to_ns} ns follows one at {from_ns} ns: the clock did not advance")]
    TimeBack {
        /// The sample before, in nanoseconds.
        from_ns: u64,
        /// The sample, in nanoseconds.
        to_ns: u64,
    },
    /// The machine was suspended within the window; the monotonic clock does not count that time.
    #[error("the machine was suspended for {asleep_ns} ns at about {at_ns} ns")]
    Suspended {
        /// When this was noticed, in nanoseconds.
        at_ns: u64,
        /// For how long, in nanoseconds.
        asleep_ns: u64,
    },
    /// More than one number of wraps is possible.
    #[error(
        "between {from_ns} and {to_ns} ns the counter may have wrapped {fewest} to {most} times; \
         sample more often, or set the least and greatest power of this domain"
    )]
    Ambiguous {
        /// The point before, in nanoseconds.
        from_ns: u64,
        /// The point after, in nanoseconds.
        to_ns: u64,
        /// The fewest wraps that are possible.
        fewest: u64,
        /// The most wraps that are possible.
        most: u64,
    },
    /// No number of wraps gives a power that this domain can have.
    #[error(
        "between {from_ns} and {to_ns} ns the counter went from {before_uj} to {after_uj} uJ, which is not possible with a power \
         between {min_uw} and {max_uw} uW; it may have been reset"
    )]
    Implausible {
        /// The point before, in nanoseconds.
        from_ns: u64,
        /// The point after, in nanoseconds.
        to_ns: u64,
        /// The counter before, in microjoules.
        before_uj: i64,
        /// The counter after, in microjoules.
        after_uj: i64,
        /// The least plausible power, in microwatts.
        min_uw: u64,
        /// The greatest plausible power, in microwatts.
        max_uw: u64,
    },
    /// The counter did not increment.
    #[error(
        "the counter did not increment from {value_uj} uJ between {from_ns} and {to_ns} ns, as in most virtual machines; \
         measure on the host"
    )]
    NotCounting {
        /// Its value, in microjoules.
        value_uj: i64,
        /// First point, in nanoseconds.
        from_ns: u64,
        /// Last point, in nanoseconds.
        to_ns: u64,
    },
    /// It does not fit into an `i64`.
    #[error("the energy does not fit into 64 bits")]
    TooMuch,
}

impl EnergyError {
    /// Adds the sensor's error as the reason of a gap.
    #[must_use]
    pub fn because(self, reason: Option<&str>) -> Self {
        let reason = reason.map(str::to_owned);
        match self {
            Self::Uncovered { from_ns, to_ns, why } => Self::Uncovered { from_ns, to_ns, why: why.or(reason) },
            Self::Gap { from_ns, to_ns, why } => Self::Gap { from_ns, to_ns, why: why.or(reason) },
            other => other,
        }
    }

    /// Start and end of the time without samples, in nanoseconds, for errors of that kind.
    pub fn unknown_time(&self) -> Option<(u64, u64)> {
        match *self {
            Self::Uncovered { from_ns, to_ns, .. } | Self::Gap { from_ns, to_ns, .. } => Some((from_ns, to_ns)),
            _ => None,
        }
    }
}

const NS_PER_S: i128 = 1_000_000_000;
/// Binary digits of sums below a microjoule.
const FINE: u32 = 40;
/// Time without an update of a counter that is not an error, in nanoseconds.
const STILL_NS: u64 = 100_000_000;

/// Energy of `window`.
///
/// # Errors
/// It is unknown, see [`EnergyError`].
pub fn energy(points: &[Point], window: Window, law: Law) -> Result<Energy, EnergyError> {
    if window.to_ns <= window.from_ns {
        return Err(EnergyError::EmptyWindow { from_ns: window.from_ns, to_ns: window.to_ns });
    }
    let points = touching(points, window)?;
    match law {
        Law::Counter(counts) => of_counter(points, window, counts),
        Law::Power { longest_gap_ns } => of_power(points, window, longest_gap_ns),
    }
}

/// The points from the last one at or before the window to the first one at or after it.
fn touching(points: &[Point], window: Window) -> Result<&[Point], EnergyError> {
    let uncovered = |from_ns, to_ns| EnergyError::Uncovered { from_ns, to_ns, why: None };
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Err(uncovered(window.from_ns, window.to_ns));
    };
    if let Some(pair) = points.windows(2).find(|pair| pair[1].at_ns <= pair[0].at_ns) {
        return Err(EnergyError::TimeBack { from_ns: pair[0].at_ns, to_ns: pair[1].at_ns });
    }
    if first.at_ns > window.from_ns {
        return Err(uncovered(window.from_ns, first.at_ns.min(window.to_ns)));
    }
    if last.at_ns < window.to_ns {
        return Err(uncovered(last.at_ns.max(window.from_ns), window.to_ns));
    }
    let start = points.partition_point(|point| point.at_ns <= window.from_ns) - 1;
    let end = points.partition_point(|point| point.at_ns < window.to_ns);
    Ok(&points[start..=end])
}

/// The part of a step that lies in the window, as offsets from the step's start.
fn cut(before: Point, after: Point, window: Window) -> (i128, i128) {
    let from = window.from_ns.max(before.at_ns) - before.at_ns;
    let to = window.to_ns.min(after.at_ns) - before.at_ns;
    (i128::from(from), i128::from(to))
}

/// `numerator / denominator` in units of 2^-FINE, rounded down.
fn fine(numerator: i128, denominator: i128) -> i128 {
    let (whole, rest) = (numerator.div_euclid(denominator), numerator.rem_euclid(denominator));
    (whole << FINE) + (rest << FINE) / denominator
}

/// To the nearest microjoule, half up. Cut steps have been rounded down: what they lost is given back first.
fn nearest(sum: i128) -> Result<i64, EnergyError> {
    let half = 1_i128 << (FINE - 1);
    i64::try_from((sum + half + 2) >> FINE).map_err(|_| EnergyError::TooMuch)
}

fn of_power(points: &[Point], window: Window, longest_gap_ns: u64) -> Result<Energy, EnergyError> {
    // Of steps within the window: twice the area, in uW ns, exact. Of those that were cut: in units of 2^-FINE uJ.
    let (mut twice, mut edges) = (0_i128, 0_i128);
    for pair in points.windows(2) {
        let (before, after) = (pair[0], pair[1]);
        let length = after.at_ns - before.at_ns;
        if length > longest_gap_ns {
            return Err(EnergyError::Gap { from_ns: before.at_ns, to_ns: after.at_ns, why: None });
        }
        let (length, (from, to)) = (i128::from(length), cut(before, after, window));
        let (p0, p1) = (i128::from(before.value), i128::from(after.value));
        if (from, to) == (0, length) {
            twice += (p0 + p1) * length;
        } else {
            let below = |x: i128| 2 * p0 * x * length + (p1 - p0) * x * x;
            edges += fine(below(to) - below(from), 2 * length * NS_PER_S);
        }
    }
    let uj = nearest(fine(twice, 2 * NS_PER_S) + edges)?;
    Ok(Energy { uj, bounds_uj: None, steps: points.len() - 1, wraps: 0 })
}

fn of_counter(points: &[Point], window: Window, counts: Counts) -> Result<Energy, EnergyError> {
    let (mut within, mut touching, mut edges, mut wraps) = (0_i128, 0_i128, 0_i128, 0);
    for pair in points.windows(2) {
        let (before, after) = (pair[0], pair[1]);
        let step = step(before, after, counts)?;
        let (length, (from, to)) = (i128::from(after.at_ns - before.at_ns), cut(before, after, window));
        touching += step.uj;
        wraps += step.wraps;
        if (from, to) == (0, length) {
            within += step.uj;
        } else {
            edges += fine(step.uj * (to - from), length);
        }
    }
    let (first, last) = (points[0], points[points.len() - 1]);
    if counts.always_advances && touching == 0 && last.at_ns - first.at_ns >= STILL_NS {
        return Err(EnergyError::NotCounting { value_uj: first.value, from_ns: first.at_ns, to_ns: last.at_ns });
    }
    let whole = |uj| i64::try_from(uj).map_err(|_| EnergyError::TooMuch);
    let bounds_uj = if counts.may_decrease { None } else { Some((whole(within)?, whole(touching)?)) };
    Ok(Energy { uj: nearest((within << FINE) + edges)?, bounds_uj, steps: points.len() - 1, wraps })
}

/// What a counter counted from one point to the next.
struct Step {
    uj: i128,
    wraps: u64,
}

fn step(before: Point, after: Point, counts: Counts) -> Result<Step, EnergyError> {
    let implausible = || EnergyError::Implausible {
        from_ns: before.at_ns,
        to_ns: after.at_ns,
        before_uj: before.value,
        after_uj: after.value,
        min_uw: counts.min_uw,
        max_uw: counts.max_uw,
    };
    let difference = i128::from(after.value) - i128::from(before.value);
    let (least, greatest) = plausible(after.at_ns - before.at_ns, counts);
    let Some(modulus) = counts.modulus_uj.map(i128::from) else {
        let allowed = counts.may_decrease || (least..=greatest).contains(&difference);
        return if allowed { Ok(Step { uj: difference, wraps: 0 }) } else { Err(implausible()) };
    };
    let rest = difference.rem_euclid(modulus);
    let fewest = ceil((least - rest).max(0), modulus);
    let most = (greatest - rest).div_euclid(modulus);
    if most < fewest {
        return Err(implausible());
    }
    // A fall means one more wrap than `rest`.
    let wraps = |rounds: i128| (rounds + i128::from(difference < 0)) as u64;
    if most > fewest {
        let (from_ns, to_ns) = (before.at_ns, after.at_ns);
        return Err(EnergyError::Ambiguous { from_ns, to_ns, fewest: wraps(fewest), most: wraps(most) });
    }
    Ok(Step { uj: rest + fewest * modulus, wraps: wraps(fewest) })
}

/// The least and the greatest energy of a step of `length_ns`, in microjoules: either end can be off by an update.
fn plausible(length_ns: u64, counts: Counts) -> (i128, i128) {
    let energy = |uw: u64, ns: u64| i128::from(uw) * i128::from(ns);
    let least = energy(counts.min_uw, length_ns.saturating_sub(counts.update_ns)) / NS_PER_S;
    let greatest = ceil(energy(counts.max_uw, length_ns.saturating_add(counts.update_ns)), NS_PER_S);
    (least, greatest)
}

fn ceil(numerator: i128, denominator: i128) -> i128 {
    -(-numerator).div_euclid(denominator)
}

/// How the points of a domain turn into energy. Powers are interpolated over `longest_gap_ns` at most.
///
/// # Errors
/// [`EnergyError::NotEnergy`] of gauges and counters of other things.
pub fn law(domain: &Domain, longest_gap_ns: u64) -> Result<Law, EnergyError> {
    match domain.kind {
        Kind::EnergyCounter(counts) => Ok(Law::Counter(counts)),
        Kind::Power => Ok(Law::Power { longest_gap_ns }),
        Kind::Gauge | Kind::Counter => Err(EnergyError::NotEnergy(domain.name.clone())),
    }
}

/// What is added up: a part of the machine, under the name that an error shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Sensor and domain, such as `rapl/package-0`.
    pub name: String,
    /// Of which part.
    pub part: Part,
    /// How much, in microjoules.
    pub uj: i64,
}

/// Two shares that would count the same energy twice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{first} ({first_part}) and {second} ({second_part}) overlap: their sum would count energy twice")]
pub struct Overlap {
    /// Name of one.
    pub first: String,
    /// What it is of.
    pub first_part: Part,
    /// Name of the other.
    pub second: String,
    /// What it is of.
    pub second_part: Part,
}

/// The sum of shares of which no two overlap, in microjoules.
///
/// # Errors
/// The first two that do.
pub fn sum(shares: &[Share]) -> Result<i64, Overlap> {
    for (index, first) in shares.iter().enumerate() {
        if let Some(second) = shares[index + 1..].iter().find(|second| first.part.overlaps(&second.part)) {
            return Err(Overlap {
                first: first.name.clone(),
                first_part: first.part.clone(),
                second: second.name.clone(),
                second_part: second.part.clone(),
            });
        }
    }
    Ok(shares.iter().map(|share| share.uj).sum())
}
