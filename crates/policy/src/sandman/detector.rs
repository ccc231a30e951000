//! Detection of surges: I/O threads whose load has risen, at each fine interval (SANDMAN section 4.4.2).
//!
//! **Problem.** Every 10 us the main core reads the number of requests that each I/O thread polled, and must decide within a fraction of a
//! microsecond which loads have risen, for 48 threads or 4,800, without being called while no requests arrive.
//!
//! **Terms.** The *count* `x` of a thread: its requests in a tick, scaled to the length of the fine interval. The *window*: the last `n`
//! counts before the tested ones. `MA`, `s`: their mean and standard deviation. `SE`: the standard error of the forecast of a count,
//! `s sqrt(1 + 1/n)`: the paper's is "at the current scheduling event based on previous scheduling events".
//!
//! **Rule.** A thread has surged if `x > MA + Z * SE`. With the sums `S` of the counts and `Q` of their squares over the window that is,
//! without a root or a division,
//!
//! ```text
//! n x > S   and   (n x - S)^2 (n - 1) > Z^2 (n + 1) (n Q - S^2)
//! ```
//!
//! With fewer than two counts there is no `SE` and no surge. Two parameters change the comparison:
//!
//! - [`Spread`]: `Z` multiplies the error of the mean, `s / sqrt(n)`, or the deviation of counts, `s`, instead.
//! - `average`: the mean of the latest counts over this number of fine intervals is tested instead of the last count. A late tick counts as
//!   several intervals. The window is the counts before them. With `R` requests in `W` intervals the mean is `R / W` and its deviation
//!   `s / sqrt(W)`, its forecast has the error `s sqrt(1/W + 1/n)`.
//!
//! All cases are `(n R - W S)^2 (n - 1) > f (n Q - S^2)`, with `f` from [`Detector::bound`].
//!
//! **Implementation.** A structure of arrays: a ring with a row of counts per tick, first the window, then the *recent* rows that are
//! tested. Per thread `S` and `Q` over the window and `R` over the recent rows, updated in each tick by the rows that enter, age and leave.
//! Counts are integers (256ths of a request), and so are the sums, held exactly in `f64`: no drift. Threads form blocks of [`LANES`]; a block
//! without requests cannot surge and costs almost nothing.
//!
//! **Ticks without requests** change nothing and may be skipped. At the next tick with requests, rows of zeros are inserted for the time since.
//!
//! **Properties** (tests/detector.rs, tests/properties.rs). Same results as the definition; same results with and without ticks without
//! requests; no allocation after [`Detector::new`].

use pilotlight_plant::{ThreadCount, ThreadId, Tick};

use super::parameters::{AfterSleep, Confirm, Parameters, Spread};

/// Threads in a block.
const LANES: usize = 16;
/// Counts are in 2^-8 of a request.
const FRACTION: u32 = 8;
/// The largest count: 4,096 requests. The sums stay exact with every allowed length of the window.
const MOST: u64 = 4_096 << FRACTION;
/// One, where counts are scaled by the length of a tick.
const SCALE: f64 = (1 << 24) as f64;
/// A tick shorter than a 128th of the fine interval counts as a 128th.
const MAX_SCALE: u64 = 128 << 24;
/// A tick counts at most as this number of intervals (10 s at 10 us).
const MAX_INTERVALS: u64 = 1_000_000;

/// The counts of a block's threads.
type Counts = [i32; LANES];
/// Sums over a block's threads.
type Sums = [f64; LANES];

/// The request counts of every I/O thread over the last ticks.
#[derive(Debug)]
pub struct Detector {
    interval_ns: u64,
    rule: Rule,
    confirm: Confirm,
    after_sleep: AfterSleep,
    ring: Ring,
    blocks: usize,
    /// By row, then by block.
    rows: Vec<Counts>,
    /// Which blocks of `rows` are valid; the others count as zeros.
    live: Vec<bool>,
    /// `S`, `Q` and `R`, by block.
    sums: Vec<Sums>,
    squares: Vec<Sums>,
    recent: Vec<Sums>,
    /// End of the last tick with requests.
    end_ns: u64,
    /// Ticks so far, including those without requests.
    tick: u64,
    exceeded: Vec<Exceeded>,
}

/// Which rows are in the window and which are recent: one after the other in a ring.
#[derive(Debug)]
struct Ring {
    /// Rows that the window holds when it is full.
    window: usize,
    /// Fine intervals that are averaged.
    average: u64,
    /// The oldest row.
    first: usize,
    /// Rows in the window, including those of ticks without requests.
    filled: usize,
    /// Rows after them.
    recent: usize,
    /// Fine intervals in the recent rows, `W`, and in each row.
    intervals: u64,
    of_row: Vec<u64>,
}

/// Effect of one tick on the ring.
#[derive(Clone, Copy, Default)]
struct Step {
    /// The row that leaves the window.
    gone: Option<usize>,
    /// The row that moves from the recent rows to the window.
    aged: Option<usize>,
}

/// Recent ticks in which a thread was above its bound: one bit a tick, the lowest is tick `tick`.
#[derive(Clone, Copy, Debug, Default)]
struct Exceeded {
    tick: u64,
    bits: u64,
}

/// Constants of the rule.
#[derive(Clone, Copy, Debug)]
struct Rule {
    z_squared: f64,
    spread: Spread,
    /// Lower bound of `R`, in 256ths of a request: half a request less than the parameter, so that a slightly late tick makes no
    /// difference.
    min_requests: f64,
    /// Least number of counts in the window.
    least: usize,
}

/// The rule for one tick.
#[derive(Clone, Copy)]
struct Bound {
    n: f64,
    /// `n - 1`.
    freedom: f64,
    /// `W`.
    intervals: f64,
    /// Fine intervals of the tick, and of the row that leaves the recent rows.
    fresh_intervals: f64,
    aged_intervals: f64,
    /// `f`.
    factor: f64,
    min_requests: f64,
}

impl Detector {
    /// Without any counts.
    #[must_use]
    pub fn new(parameters: &Parameters, threads: usize, now_ns: u64) -> Self {
        let blocks = threads.div_ceil(LANES);
        let rule = Rule {
            z_squared: parameters.z * parameters.z,
            spread: parameters.spread,
            min_requests: (f64::from(parameters.min_requests) - 0.5) * f64::from(1 << FRACTION) - 0.5,
            least: parameters.min_samples.max(2),
        };
        let ring = Ring::new(parameters.window, u64::from(parameters.average));
        let rows = ring.of_row.len() * blocks;
        Self {
            interval_ns: parameters.fine_interval_ns,
            rule,
            confirm: parameters.confirm,
            after_sleep: parameters.after_sleep,
            ring,
            blocks,
            rows: vec![[0; LANES]; rows],
            live: vec![false; rows],
            sums: vec![[0.0; LANES]; blocks],
            squares: vec![[0.0; LANES]; blocks],
            recent: vec![[0.0; LANES]; blocks],
            end_ns: now_ns,
            tick: 0,
            exceeded: vec![Exceeded::default(); blocks * LANES],
        }
    }

    /// Ticks resume after a sleep without requests. A sleep longer than the window resets it; else the next tick inserts rows of
    /// zeros.
    pub fn resume(&mut self, now_ns: u64) {
        let window_ns = (self.ring.window as u64 + self.ring.average).saturating_mul(self.interval_ns);
        if now_ns.saturating_sub(self.end_ns) >= window_ns {
            self.restart(now_ns);
        }
    }

    /// Resets the windows at `now_ns`.
    pub fn restart(&mut self, now_ns: u64) {
        self.forget();
        match self.after_sleep {
            AfterSleep::Empty => self.ring.empty(),
            AfterSleep::Zeros => self.ring.fill_with_zeros(),
        }
        self.end_ns = now_ns;
        self.exceeded.fill(Exceeded::default());
    }

    /// Processes a tick, and appends the threads that have surged to `surged`, in the order of their numbers.
    pub fn on_tick(&mut self, tick: &Tick<'_>, surged: &mut Vec<ThreadId>) {
        if tick.counts.is_empty() {
            return;
        }
        self.insert_empty_ticks(tick.now_ns.saturating_sub(tick.elapsed_ns));
        self.end_ns = tick.now_ns;
        // A floating-point division is several times as fast as an integer division.
        let scale = (self.interval_ns as f64 / tick.elapsed_ns.max(1) as f64 * SCALE) as u64;
        let scale = scale.min(MAX_SCALE);
        let intervals = self.intervals(tick.elapsed_ns);
        let step = self.make_room(intervals);
        let bound = self.bound(intervals, step);
        let row = self.ring.push(intervals);
        let mut rest = tick.counts;
        for block in 0..self.blocks {
            let mut fresh = [0; LANES];
            if take_block(&mut rest, block, scale, &mut fresh) {
                let above = self.test(block, row, &fresh, step, bound);
                self.confirm_block(block, &above, surged);
            } else {
                self.slide(block, step);
            }
        }
        self.tick += 1;
    }

    /// Whether a thread has at least as many requests an interval as in its window, and an eighth of `min_requests`: the rule for threads of a core on which another has
    /// surged. A flooded core has polled them last before or early in the burst, so that their counts show little of it.
    pub(super) fn is_active(&self, thread: ThreadId) -> bool {
        let (block, lane) = (thread.index() / LANES, thread.index() % LANES);
        let (recent, sum) = (self.recent[block][lane], self.sums[block][lane]);
        let is_known = self.ring.filled >= self.rule.least && self.ring.average > 1;
        is_known
            && recent * 8.0 >= self.rule.min_requests
            && recent * self.ring.filled as f64 >= sum * self.ring.intervals as f64
    }

    /// The number of fine intervals that a tick counts as.
    fn intervals(&self, elapsed_ns: u64) -> u64 {
        if self.ring.average == 1 || elapsed_ns < 2 * self.interval_ns {
            return 1;
        }
        (elapsed_ns / self.interval_ns).min(MAX_INTERVALS)
    }

    /// The rule for a tick that counts as `fresh` intervals. `f` is `Z^2 W (n + W)` for forecasts, `Z^2 W^2` for errors, `Z^2 W n` for deviations.
    fn bound(&self, fresh: u64, step: Step) -> Bound {
        let n = self.ring.filled as f64;
        let intervals = (self.ring.intervals + fresh) as f64;
        let per_mean = match self.rule.spread {
            Spread::Forecast => n + intervals,
            Spread::Error => intervals,
            Spread::Deviation => n,
        };
        Bound {
            n,
            freedom: n - 1.0,
            intervals,
            fresh_intervals: fresh as f64,
            aged_intervals: step.aged.map_or(0.0, |row| self.ring.of_row[row] as f64),
            factor: self.rule.z_squared * intervals * per_mean,
            min_requests: if self.ring.filled < self.rule.least { f64::INFINITY } else { self.rule.min_requests },
        }
    }

    /// Inserts rows of zeros for the ticks since the last one with requests, rounded.
    fn insert_empty_ticks(&mut self, until_ns: u64) {
        let gap_ns = until_ns.saturating_sub(self.end_ns);
        if gap_ns < self.interval_ns / 2 {
            return;
        }
        let quiet = gap_ns.saturating_add(self.interval_ns / 2) / self.interval_ns;
        self.tick += quiet;
        if quiet >= self.ring.of_row.len() as u64 {
            self.forget();
            self.ring.fill_with_zeros();
            return;
        }
        for _ in 0..quiet {
            let step = self.make_room(1);
            (0..self.blocks).for_each(|block| self.slide(block, step));
            self.ring.push(1);
        }
    }

    /// Takes the steps for a tick of this number of intervals, except the last, which is returned.
    fn make_room(&mut self, intervals: u64) -> Step {
        let mut step = self.ring.step(intervals).unwrap_or_default();
        while let Some(next) = self.ring.step(intervals) {
            (0..self.blocks).for_each(|block| self.slide(block, step));
            step = next;
        }
        step
    }

    /// A step of a block without fresh counts.
    fn slide(&mut self, block: usize, step: Step) {
        if let Some(at) = self.live_at(step.gone, block) {
            self.live[at] = false;
            for (lane, &count) in self.rows[at].iter().enumerate() {
                let count = f64::from(count);
                self.sums[block][lane] -= count;
                self.squares[block][lane] -= count * count;
            }
        }
        if let Some(at) = self.live_at(step.aged, block) {
            // Without averaging no recent sum is kept.
            let intervals = if self.ring.average == 1 { 0.0 } else { self.ring.of_row[at / self.blocks] as f64 };
            for (lane, &count) in self.rows[at].iter().enumerate() {
                let count = f64::from(count);
                self.sums[block][lane] += count;
                self.squares[block][lane] += count * count;
                self.recent[block][lane] -= count * intervals;
            }
        }
    }

    /// Index of a block of a row, if it is valid.
    fn live_at(&self, row: Option<usize>, block: usize) -> Option<usize> {
        row.map(|row| row * self.blocks + block).filter(|&at| self.live[at])
    }

    /// A step of a block with fresh counts, which become row `row`. Returns the distance of each lane above its bound.
    fn test(&mut self, block: usize, row: usize, fresh: &Counts, step: Step, bound: Bound) -> Sums {
        let gone = self.live_at(step.gone, block);
        let aged = self.live_at(step.aged, block);
        let counts = |at: Option<usize>| at.map_or(&[0; LANES], |at| &self.rows[at]);
        let sums = (&mut self.sums[block], &mut self.squares[block], &mut self.recent[block]);
        let test_and_slide = if self.ring.average == 1 { test_and_slide::<false> } else { test_and_slide::<true> };
        let above = test_and_slide(bound, fresh, counts(aged), counts(gone), sums.0, sums.1, sums.2);
        if let Some(at) = gone {
            self.live[at] = false;
        }
        self.rows[row * self.blocks + block] = *fresh;
        self.live[row * self.blocks + block] = true;
        above
    }

    fn forget(&mut self) {
        self.live.fill(false);
        for sums in [&mut self.sums, &mut self.squares, &mut self.recent] {
            sums.fill([0.0; LANES]);
        }
    }

    /// Appends the lanes that exceeded their bound often enough.
    fn confirm_block(&mut self, block: usize, above: &Sums, surged: &mut Vec<ThreadId>) {
        let mut lanes = 0;
        for (lane, &above) in above.iter().enumerate() {
            lanes |= if above > 0.0 { 1_u64 << lane } else { 0 };
        }
        while lanes != 0 {
            let thread = block * LANES + lanes.trailing_zeros() as usize;
            lanes &= lanes - 1;
            if self.confirm.at_once() || self.exceeded[thread].often_enough(self.tick, self.confirm) {
                surged.push(ThreadId(thread as u16));
            }
        }
    }
}

impl Ring {
    fn new(window: usize, average: u64) -> Self {
        let of_row = vec![1; window + average as usize + 2];
        Self { window, average, first: 0, filled: 0, recent: 0, intervals: 0, of_row }
    }

    fn empty(&mut self) {
        (self.filled, self.recent, self.intervals) = (0, 0, 0);
    }

    fn fill_with_zeros(&mut self) {
        (self.filled, self.recent, self.intervals) = (self.window, self.average as usize, self.average);
        self.of_row.fill(1);
    }

    fn row(&self, nth: usize) -> usize {
        let row = self.first + nth;
        if row < self.of_row.len() { row } else { row - self.of_row.len() }
    }

    /// Moves the oldest recent row to the window if the others and a tick of this number of intervals suffice for the average.
    fn step(&mut self, intervals: u64) -> Option<Step> {
        if self.recent == 0 {
            return None;
        }
        let aged = self.row(self.filled);
        let left = self.intervals - self.of_row[aged];
        if left + intervals < self.average {
            return None;
        }
        (self.intervals, self.recent, self.filled) = (left, self.recent - 1, self.filled + 1);
        let mut step = Step { gone: None, aged: Some(aged) };
        if self.filled > self.window {
            step.gone = Some(self.first);
            (self.first, self.filled) = (self.row(1), self.filled - 1);
        }
        Some(step)
    }

    /// Adds a recent row.
    fn push(&mut self, intervals: u64) -> usize {
        let row = self.row(self.filled + self.recent);
        self.of_row[row] = intervals;
        (self.recent, self.intervals) = (self.recent + 1, self.intervals + intervals);
        row
    }
}

impl Exceeded {
    /// Records that the thread is above its bound; whether that makes `times` of the last `ticks`. If so, counting restarts.
    fn often_enough(&mut self, tick: u64, confirm: Confirm) -> bool {
        let since = u32::try_from(tick - self.tick).unwrap_or(u32::MAX);
        self.bits = self.bits.checked_shl(since).unwrap_or(0) | 1;
        self.tick = tick;
        let last = u64::MAX >> (64 - confirm.ticks);
        let enough = (self.bits & last).count_ones() >= confirm.times;
        if enough {
            self.bits = 0;
        }
        enough
    }
}

/// Takes the counts of a block from the front of a list sorted by thread, scaled to the length of the fine interval; whether
/// there were any.
fn take_block(rest: &mut &[ThreadCount], block: usize, scale: u64, fresh: &mut Counts) -> bool {
    let first = block * LANES;
    let count = |requests: u32| ((u64::from(requests) * scale) >> (24 - FRACTION)).min(MOST) as i32;
    // Sorted and unique: if the first and the last of a block are in place, all are.
    if let Some((all, others)) = rest.split_first_chunk::<LANES>()
        && all[0].thread.index() == first
        && all[LANES - 1].thread.index() == first + LANES - 1
    {
        *fresh = std::array::from_fn(|lane| count(all[lane].requests));
        *rest = others;
        return true;
    }
    let before = rest.len();
    while let [next, others @ ..] = *rest
        && let lane = next.thread.index().wrapping_sub(first)
        && lane < LANES
    {
        fresh[lane] = count(next.requests);
        *rest = others;
    }
    rest.len() < before
}

/// The arithmetic of a block, in a form that the compiler vectorizes, and in its own function so that it sees that nothing aliases.
/// Returns the distance of each lane above its bound; never positive for a lane without requests.
///
/// Without `AVERAGED` the fresh count is the only recent one.
#[inline(never)]
fn test_and_slide<const AVERAGED: bool>(
    bound: Bound,
    fresh: &Counts,
    aged: &Counts,
    gone: &Counts,
    sums: &mut Sums,
    squares: &mut Sums,
    recent: &mut Sums,
) -> Sums {
    let mut above = [0.0; LANES];
    for lane in 0..LANES {
        let [new, aged, gone] = [fresh[lane], aged[lane], gone[lane]].map(f64::from);
        let sum = sums[lane] + (aged - gone);
        let square = squares[lane] + (aged * aged - gone * gone);
        let change = new * bound.fresh_intervals - aged * bound.aged_intervals;
        let requests = if AVERAGED { recent[lane] + change } else { new };
        let distance = bound.n * requests - if AVERAGED { bound.intervals * sum } else { sum };
        let variance = bound.n * square - sum * sum;
        let excess = distance * distance * bound.freedom - bound.factor * variance;
        above[lane] = lesser(lesser(excess, distance), lesser(requests - bound.min_requests, new - 0.5));
        (sums[lane], squares[lane]) = (sum, square);
        if AVERAGED {
            recent[lane] = requests;
        }
    }
    above
}

/// One vector instruction, unlike `f64::min`, which handles NaN.
fn lesser(one: f64, other: f64) -> f64 {
    if one < other { one } else { other }
}
