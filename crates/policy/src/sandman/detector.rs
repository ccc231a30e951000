//! Which I/O threads have surged: the fine interval (SANDMAN section 4.4.2).
//!
//! **Problem.** Every 10 us the main core looks at the requests that each I/O thread polled, and has to say within a fraction
//! of a microsecond whose load has risen, for 48 threads or 4,800, without being called while nothing arrives.
//!
//! **Words.** The *count* `x` of a thread: its requests in a tick, as they would have been had the tick been as long as the
//! fine interval. The *window*: the last `n` counts before those that are tested. `MA`, `s`: their mean and standard
//! deviation. `SE`: the standard error `s / sqrt(n)`.
//!
//! **Rule.** A thread has surged where `x > MA + Z * SE`. With the sums `S` of the counts and `Q` of their squares over the
//! window that is, without a root or a division,
//!
//! ```text
//! n x > S   and   (n x - S)^2 (n - 1) > Z^2 (n Q - S^2)
//! ```
//!
//! With fewer than two counts there is no `SE` and nothing fires. Two guards change what is compared with what:
//!
//! - [`Spread::Deviation`]: `Z` counts deviations of what is tested, `s`, in the place of errors of the mean.
//! - `average`: the mean of the latest counts, over so many fine intervals, is tested in the place of the last one. A late
//!   tick counts for as many intervals as it is about. The window is what came before them. With `R` requests in `W` intervals
//!   the mean is `R / W` and its deviation `s / sqrt(W)`.
//!
//! All four cases are `(n R - W S)^2 (n - 1) > f (n Q - S^2)`, with `f` from [`Detector::bound`].
//!
//! **How.** A structure of arrays: a row of counts per tick in a ring, first the window, then the *recent* rows that are
//! tested. Per thread `S` and `Q` over the window and `R` over the recent rows, which a tick changes by the rows that come, change sides
//! and go. Counts are integers (256ths of a request), and so are the sums, held in `f64` and exact: no drift, however long it
//! runs. Threads come in blocks of [`LANES`]; a block in which nobody polled anything cannot fire and costs next to nothing.
//!
//! **Quiet ticks** change nothing when they come, and may not come at all. The next tick with requests says how long it was
//! quiet before it, and that many rows of zeros are put in first.
//!
//! **Properties** (tests/detector.rs, tests/properties.rs). The same answers as the definition written out; the same with and
//! without quiet ticks; no allocation after [`Detector::new`].

use pilotlight_plant::{ThreadCount, ThreadId, Tick};

use super::parameters::{Confirm, Parameters, Resume, Spread};

/// Threads in a block.
const LANES: usize = 16;
/// Counts are in 2^-8 of a request.
const FRACTION: u32 = 8;
/// The largest count: 4,096 requests. The sums stay exact with windows of any length that can be set.
const MOST: u64 = 4_096 << FRACTION;
/// One, where counts are scaled by the length of a tick.
const SCALE: f64 = (1 << 24) as f64;
/// A tick of less than a 128th of the fine interval counts as one of a 128th.
const MOST_SCALE: u64 = 128 << 24;
/// No tick is about more intervals than these (10 s at 10 us).
const MOST_INTERVALS: u64 = 1_000_000;

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
    resume: Resume,
    ring: Ring,
    blocks: usize,
    /// A block of each row after the other.
    rows: Vec<Counts>,
    /// Which blocks of `rows` hold anything; what the others hold does not count.
    live: Vec<bool>,
    /// `S`, `Q` and `R`, by block.
    sums: Vec<Sums>,
    squares: Vec<Sums>,
    recent: Vec<Sums>,
    /// End of the last tick with requests.
    end_ns: u64,
    /// Ticks so far, with the quiet ones.
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
    /// Rows in the window, those of quiet ticks included.
    filled: usize,
    /// Rows after them.
    recent: usize,
    /// Fine intervals in the recent rows, `W`, and in each row.
    intervals: u64,
    of_row: Vec<u64>,
}

/// What one tick does to the ring.
#[derive(Clone, Copy, Default)]
struct Step {
    /// The row that leaves the window.
    gone: Option<usize>,
    /// The row that was recent and is in the window now.
    aged: Option<usize>,
}

/// When a thread was above its bound lately: a bit a tick, the lowest is tick `tick`.
#[derive(Clone, Copy, Debug, Default)]
struct Exceeded {
    tick: u64,
    bits: u64,
}

/// What does not change from tick to tick.
#[derive(Clone, Copy, Debug)]
struct Rule {
    z_squared: f64,
    spread: Spread,
    /// What `R` has to be above, in 256ths of a request: half a request less than the parameter, so that a tick that is a
    /// little late is as good as one that is not.
    floor: f64,
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
    /// Fine intervals of the tick itself, and of the row that is recent no longer.
    fresh_intervals: f64,
    aged_intervals: f64,
    /// `f`.
    factor: f64,
    floor: f64,
}

impl Detector {
    /// No thread has done anything yet.
    #[must_use]
    pub fn new(parameters: &Parameters, threads: usize, now_ns: u64) -> Self {
        let blocks = threads.div_ceil(LANES);
        let rule = Rule {
            z_squared: parameters.z * parameters.z,
            spread: parameters.spread,
            floor: (f64::from(parameters.floor) - 0.5) * f64::from(1 << FRACTION) - 0.5,
            least: parameters.min_samples.max(2),
        };
        let ring = Ring::new(parameters.window, u64::from(parameters.average));
        let rows = ring.of_row.len() * blocks;
        Self {
            interval_ns: parameters.fine_interval_ns,
            rule,
            confirm: parameters.confirm,
            resume: parameters.resume,
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

    /// There were no ticks until now, and nothing came. If the window ends before, what was in it is no measure of what comes, and it
    /// starts anew; else the next tick puts in the quiet ones.
    pub fn resume(&mut self, now_ns: u64) {
        let window_ns = (self.ring.window as u64 + self.ring.average).saturating_mul(self.interval_ns);
        if now_ns.saturating_sub(self.end_ns) >= window_ns {
            self.restart(now_ns);
        }
    }

    /// What was before is no measure of what comes: the windows start anew at `now_ns`.
    pub fn restart(&mut self, now_ns: u64) {
        self.forget();
        match self.resume {
            Resume::Anew => self.ring.empty(),
            Resume::Quiet => self.ring.fill_with_zeros(),
        }
        self.end_ns = now_ns;
        self.exceeded.fill(Exceeded::default());
    }

    /// Takes in a tick, and appends the threads that have surged to `surged`, in the order of their numbers.
    pub fn on_tick(&mut self, tick: &Tick<'_>, surged: &mut Vec<ThreadId>) {
        if tick.counts.is_empty() {
            return;
        }
        self.put_in_quiet_ticks(tick.now_ns.saturating_sub(tick.elapsed_ns));
        self.end_ns = tick.now_ns;
        // A division of floating point numbers is several times as fast as one of integers.
        let scale = (self.interval_ns as f64 / tick.elapsed_ns.max(1) as f64 * SCALE) as u64;
        let scale = scale.min(MOST_SCALE);
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

    /// How many fine intervals a tick counts for.
    fn intervals(&self, elapsed_ns: u64) -> u64 {
        if self.ring.average == 1 || elapsed_ns < 2 * self.interval_ns {
            return 1;
        }
        (elapsed_ns / self.interval_ns).min(MOST_INTERVALS)
    }

    /// The rule, for a tick that counts for so many intervals. `f` is `Z^2 W^2` for errors, `Z^2 W n` for deviations.
    fn bound(&self, fresh: u64, step: Step) -> Bound {
        let n = self.ring.filled as f64;
        let intervals = (self.ring.intervals + fresh) as f64;
        let per_mean = match self.rule.spread {
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
            floor: if self.ring.filled < self.rule.least { f64::INFINITY } else { self.rule.floor },
        }
    }

    /// Rows of zeros for the time since the last tick with requests: as many as there were ticks, to the nearest one.
    fn put_in_quiet_ticks(&mut self, until_ns: u64) {
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

    /// Takes as many steps as a tick of so many intervals needs; the last is for the caller to take.
    fn make_room(&mut self, intervals: u64) -> Step {
        let mut step = self.ring.step(intervals).unwrap_or_default();
        while let Some(next) = self.ring.step(intervals) {
            (0..self.blocks).for_each(|block| self.slide(block, step));
            step = next;
        }
        step
    }

    /// A block's part of a step in which it has no fresh counts.
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
            // Where nothing is averaged there is no recent sum to keep.
            let intervals = if self.ring.average == 1 { 0.0 } else { self.ring.of_row[at / self.blocks] as f64 };
            for (lane, &count) in self.rows[at].iter().enumerate() {
                let count = f64::from(count);
                self.sums[block][lane] += count;
                self.squares[block][lane] += count * count;
                self.recent[block][lane] -= count * intervals;
            }
        }
    }

    /// Where a block of a row is, if it holds anything.
    fn live_at(&self, row: Option<usize>, block: usize) -> Option<usize> {
        row.map(|row| row * self.blocks + block).filter(|&at| self.live[at])
    }

    /// A block's part of a step with fresh counts, which become row `row`: how far each lane is above its bound.
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

    /// Of the lanes above their bound, those that were so often enough.
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

    /// Ages the oldest recent row if the others and a tick of so many intervals are enough to average.
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
    /// Notes that the thread is above its bound; whether that makes `times` of the last `ticks`. If so, counting starts anew.
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

/// Takes the counts of a block from the front of a list in the order of threads, each at the length of the fine interval;
/// whether there were any.
fn take_block(rest: &mut &[ThreadCount], block: usize, scale: u64, fresh: &mut Counts) -> bool {
    let first = block * LANES;
    let count = |requests: u32| ((u64::from(requests) * scale) >> (24 - FRACTION)).min(MOST) as i32;
    // In the order of their numbers and each once: where the first and the last of a block are in their places, all are.
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

/// The arithmetic of a block, written so that the compiler makes vector instructions of it, and apart so that it can tell that
/// nothing overlaps. How far each lane is above its bound: above if positive. A lane without requests never is.
///
/// Where nothing is `AVERAGED` the fresh count is all that is recent.
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
        above[lane] = lesser(lesser(excess, distance), lesser(requests - bound.floor, new - 0.5));
        (sums[lane], squares[lane]) = (sum, square);
        if AVERAGED {
            recent[lane] = requests;
        }
    }
    above
}

/// One vector instruction, unlike `f64::min`, which minds what is not a number.
fn lesser(one: f64, other: f64) -> f64 {
    if one < other { one } else { other }
}
