//! Which I/O threads have surged: the fine interval (SANDMAN section 4.4.2).
//!
//! **Problem.** Every 10 us the main core looks at the requests that each I/O thread polled, and has to say within a fraction
//! of a microsecond whose load has risen, for 48 threads or 4,800, without being called while nothing arrives.
//!
//! **Words.** The *count* `x` of a thread: its requests in a tick, as they would have been had the tick been as long as the
//! fine interval. The *window*: the last `n` counts before this one. `MA`, `s`: their mean and standard deviation. `SE`: the
//! standard error `s / sqrt(n)`.
//!
//! **Rule.** A thread has surged where `x > MA + Z * SE`. With the sums `S` of the counts and `Q` of their squares over the
//! window that is, without a root or a division,
//!
//! ```text
//! n x > S   and   (n x - S)^2 (n - 1) > Z^2 (n Q - S^2)
//! ```
//!
//! and with the deviation in the error's place ([`Spread::Deviation`]) the right-hand side has a factor `n` more. With fewer
//! than two counts there is no `SE` and nothing fires.
//!
//! **How.** A structure of arrays: a row of counts per tick in a ring, and per thread `S` and `Q`, which gain the new row and
//! lose the one that it replaces. Counts are integers (256ths of a request), and so are the sums, held in `f64` and exact: no
//! drift, however long it runs. Threads come in blocks of [`LANES`]; a block in which nobody polled anything cannot fire
//! and costs nothing.
//!
//! **Quiet ticks** change nothing when they come, and may not come at all. The next tick with requests says how long it was
//! quiet before it, and that many rows of zeros are put in first.
//!
//! **Properties** (tests/detector.rs, tests/properties.rs). The same answers as the definition written out; the same with and
//! without quiet ticks; no allocation after [`Detector::new`].

use pilotlight_plant::{ThreadCount, ThreadId, Tick};

use super::parameters::{Confirm, Late, Parameters, Resume, Spread};

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

/// A count, the sums, and the row of each thread of a block.
type Counts = [i32; LANES];
type Sums = [f64; LANES];

/// The request counts of every I/O thread over the last ticks.
#[derive(Debug)]
pub struct Detector {
    interval_ns: u64,
    window: usize,
    rule: Rule,
    confirm: Confirm,
    resume: Resume,
    blocks: usize,
    /// Rows of blocks; the oldest, which is the next to be replaced, is row `next`.
    rows: Vec<Counts>,
    /// Which blocks of `rows` hold anything; what the others hold does not count.
    live: Vec<bool>,
    next: usize,
    sums: Vec<Sums>,
    squares: Vec<Sums>,
    /// Rows in the window, with those of quiet ticks.
    filled: usize,
    /// End of the last tick with requests.
    end_ns: u64,
    /// Fine intervals so far, with the quiet ones.
    tick: u64,
    /// As how many of them the present tick counts where counts above the bound are to be confirmed.
    worth: u64,
    exceeded: Vec<Exceeded>,
}

/// When a thread was above its bound lately: a bit for each fine interval, the lowest is `tick`.
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
    /// What a count has to be above, in 256ths of a request: half a request less than the parameter, so that a tick that is
    /// a little late is as good as one that is not. Never under any count at all.
    floor: f64,
    /// Least number of counts in the window.
    least: usize,
    /// Whether a late tick counts as the several that it is about.
    weigh_late: bool,
}

/// The rule at the present length of the window.
#[derive(Clone, Copy)]
struct Bound {
    n: f64,
    /// `n - 1`.
    freedom: f64,
    /// `Z^2`, times `n` for the deviation, and less for a late tick.
    z_squared: f64,
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
            floor: ((f64::from(parameters.floor) - 0.5) * f64::from(1 << FRACTION) - 0.5).max(0.5),
            least: parameters.min_samples.max(2),
            weigh_late: parameters.late == Late::Weighed,
        };
        Self {
            interval_ns: parameters.fine_interval_ns,
            window: parameters.window,
            rule,
            confirm: parameters.confirm,
            resume: parameters.resume,
            blocks,
            rows: vec![[0; LANES]; parameters.window * blocks],
            live: vec![false; parameters.window * blocks],
            next: 0,
            sums: vec![[0.0; LANES]; blocks],
            squares: vec![[0.0; LANES]; blocks],
            filled: 0,
            end_ns: now_ns,
            tick: 0,
            worth: 1,
            exceeded: vec![Exceeded::default(); threads],
        }
    }

    /// What was before is no measure of what comes: the windows start anew at `now_ns`.
    pub fn restart(&mut self, now_ns: u64) {
        self.forget();
        self.filled = match self.resume {
            Resume::Anew => 0,
            Resume::Quiet => self.window,
        };
        self.end_ns = now_ns;
        self.exceeded.fill(Exceeded::default());
    }

    /// The rule, for a tick about so many fine intervals.
    ///
    /// [`Late::Weighed`]: `k` counts in a row above `MA + Z s` have a mean that is above it too, and `sqrt(k)` times as sure as
    /// one count. The count of a tick about `d > k` intervals is a mean itself; it is as sure at `MA + Z s sqrt(k / d)`.
    fn bound(&self, intervals: u64) -> Bound {
        let Rule { z_squared, spread, floor, least, weigh_late } = self.rule;
        let n = self.filled as f64;
        let per_mean = if spread == Spread::Error { 1.0 } else { n };
        let confirmed = f64::from(self.confirm.times) / intervals as f64;
        let late = if weigh_late { confirmed.min(1.0) } else { 1.0 };
        let floor = if self.filled < least { f64::INFINITY } else { floor };
        Bound { n, freedom: n - 1.0, z_squared: z_squared * per_mean * late, floor }
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
        let intervals = (tick.elapsed_ns / self.interval_ns).max(1);
        let bound = self.bound(intervals);
        self.tick += intervals;
        self.worth = if self.rule.weigh_late { intervals } else { 1 };
        let mut rest = tick.counts;
        for block in 0..self.blocks {
            let mut fresh = [0; LANES];
            let of_block = take_block(&mut rest, block, scale, &mut fresh);
            if of_block {
                let above = self.replace(block, &fresh, bound);
                self.confirm_block(block, &above, surged);
            } else {
                self.expire(block);
            }
        }
        self.advance();
    }

    /// Rows of zeros for the time since the last tick with requests: as many as there were ticks, to the nearest one.
    fn put_in_quiet_ticks(&mut self, until_ns: u64) {
        let gap_ns = until_ns.saturating_sub(self.end_ns);
        if gap_ns < self.interval_ns / 2 {
            return;
        }
        let quiet = gap_ns.saturating_add(self.interval_ns / 2) / self.interval_ns;
        self.tick += quiet;
        if quiet >= self.window as u64 {
            self.forget();
            self.filled = self.window;
            return;
        }
        for _ in 0..quiet {
            for block in 0..self.blocks {
                self.expire(block);
            }
            self.advance();
        }
    }

    /// Tests a block's fresh counts against its window, then lets them replace the oldest row. How far each lane is above its
    /// bound.
    fn replace(&mut self, block: usize, fresh: &Counts, bound: Bound) -> Sums {
        let at = self.next * self.blocks + block;
        let (row, live) = (&mut self.rows[at], &mut self.live[at]);
        if !*live {
            *row = [0; LANES];
        }
        *live = true;
        test_and_slide(bound, fresh, row, &mut self.sums[block], &mut self.squares[block])
    }

    /// Takes a block's oldest row out of its sums.
    fn expire(&mut self, block: usize) {
        let at = self.next * self.blocks + block;
        if !self.live[at] {
            return;
        }
        self.live[at] = false;
        for (lane, &old) in self.rows[at].iter().enumerate() {
            let old = f64::from(old);
            self.sums[block][lane] -= old;
            self.squares[block][lane] -= old * old;
        }
    }

    fn advance(&mut self) {
        self.filled = (self.filled + 1).min(self.window);
        self.next += 1;
        if self.next == self.window {
            self.next = 0;
        }
    }

    fn forget(&mut self) {
        self.live.fill(false);
        self.sums.fill([0.0; LANES]);
        self.squares.fill([0.0; LANES]);
    }

    /// Of the lanes above their bound, those that were so often enough.
    fn confirm_block(&mut self, block: usize, above: &Sums, surged: &mut Vec<ThreadId>) {
        let all_negative = above.iter().fold(u64::MAX, |signs, lane| signs & lane.to_bits()) >> 63 == 1;
        if all_negative {
            return;
        }
        for (lane, &above) in above.iter().enumerate() {
            let thread = block * LANES + lane;
            if above > 0.0 && (self.confirm.at_once() || self.is_confirmed(thread)) {
                surged.push(ThreadId(thread as u16));
            }
        }
    }

    /// Notes that a thread is above its bound; whether it was so often enough. A late tick counts as many times as it is about
    /// fine intervals, but not more often than it brought requests.
    fn is_confirmed(&mut self, thread: usize) -> bool {
        let count = self.rows[self.next * self.blocks + thread / LANES][thread % LANES] as u64;
        let requests = (count * self.worth + (1 << (FRACTION - 1))) >> FRACTION;
        let worth = requests.clamp(1, self.worth.min(64));
        self.exceeded[thread].often_enough(self.tick, worth, self.confirm)
    }
}

impl Exceeded {
    /// Notes that the thread was above its bound for `worth` fine intervals up to `tick`; whether that makes `times` of the
    /// last `ticks`. If so, counting starts anew.
    fn often_enough(&mut self, tick: u64, worth: u64, confirm: Confirm) -> bool {
        let since = u32::try_from(tick - self.tick).unwrap_or(u32::MAX);
        self.bits = self.bits.checked_shl(since).unwrap_or(0) | (u64::MAX >> (64 - worth));
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
    let before = rest.len();
    while let [count, others @ ..] = *rest
        && let lane = count.thread.index().wrapping_sub(first)
        && lane < LANES
    {
        fresh[lane] = ((u64::from(count.requests) * scale) >> (24 - FRACTION)).min(MOST) as i32;
        *rest = others;
    }
    rest.len() < before
}

/// The arithmetic of a block, written so that the compiler makes vector instructions of it, and apart so that it can tell that
/// nothing overlaps: tests the fresh counts, and puts them in the oldest row's place. How far each lane is above its bound:
/// above if positive.
#[inline(never)]
fn test_and_slide(bound: Bound, fresh: &Counts, row: &mut Counts, sums: &mut Sums, squares: &mut Sums) -> Sums {
    let mut above = [0.0; LANES];
    for lane in 0..LANES {
        let (new, old) = (f64::from(fresh[lane]), f64::from(row[lane]));
        let (sum, square) = (sums[lane], squares[lane]);
        let distance = bound.n * new - sum;
        let variance = bound.n * square - sum * sum;
        let excess = distance * distance * bound.freedom - bound.z_squared * variance;
        above[lane] = lesser(lesser(excess, distance), new - bound.floor);
        sums[lane] = sum + (new - old);
        squares[lane] = square + (new * new - old * old);
    }
    *row = *fresh;
    above
}

/// One vector instruction, unlike `f64::min`, which minds what is not a number.
fn lesser(one: f64, other: f64) -> f64 {
    if one < other { one } else { other }
}
