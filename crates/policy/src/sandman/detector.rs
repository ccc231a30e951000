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

use super::parameters::{Confirm, Parameters, Resume, Spread};

/// Threads in a block.
const LANES: usize = 16;
/// Counts are in 2^-8 of a request.
const FRACTION: u32 = 8;
/// The largest count: 4,096 requests. The sums stay exact with windows of any length that can be set.
const MOST: u64 = 4_096 << FRACTION;

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
    threads: usize,
    blocks: usize,
    /// Rows of blocks; the oldest, which is the next to be replaced, is row `next`.
    rows: Vec<Counts>,
    /// Which blocks of `rows` hold anything; what the others hold does not count.
    live: Vec<bool>,
    next: usize,
    sums: Vec<Sums>,
    squares: Vec<Sums>,
    /// The counts of this tick, all zero between ticks.
    fresh: Vec<Counts>,
    touched: Vec<bool>,
    /// Rows in the window, with those of quiet ticks.
    filled: usize,
    /// End of the last tick with requests.
    end_ns: u64,
    /// Ticks so far, with the quiet ones.
    tick: u64,
    exceeded: Vec<Exceeded>,
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
    /// Least count, in 256ths of a request: half a request less than the parameter, so that a tick that is a little late
    /// is as good as one that is not.
    floor: f64,
    /// Least number of counts in the window.
    least: usize,
}

/// The rule at the present length of the window.
#[derive(Clone, Copy)]
struct Bound {
    n: f64,
    /// `n - 1`.
    freedom: f64,
    /// `Z^2`, or `Z^2 n` for the deviation.
    z_squared: f64,
    floor: f64,
}

impl Rule {
    fn bound(&self, filled: usize) -> Bound {
        let n = filled as f64;
        let z_squared = match self.spread {
            Spread::Error => self.z_squared,
            Spread::Deviation => self.z_squared * n,
        };
        let floor = if filled < self.least { f64::INFINITY } else { self.floor };
        Bound { n, freedom: n - 1.0, z_squared, floor }
    }
}

impl Detector {
    /// No thread has done anything yet.
    #[must_use]
    pub fn new(parameters: &Parameters, threads: usize, now_ns: u64) -> Self {
        let blocks = threads.div_ceil(LANES);
        let rule = Rule {
            z_squared: parameters.z * parameters.z,
            spread: parameters.spread,
            floor: (f64::from(parameters.floor) - 0.5) * f64::from(1 << FRACTION),
            least: parameters.min_samples.max(2),
        };
        Self {
            interval_ns: parameters.fine_interval_ns,
            window: parameters.window,
            rule,
            confirm: parameters.confirm,
            resume: parameters.resume,
            threads,
            blocks,
            rows: vec![[0; LANES]; parameters.window * blocks],
            live: vec![false; parameters.window * blocks],
            next: 0,
            sums: vec![[0.0; LANES]; blocks],
            squares: vec![[0.0; LANES]; blocks],
            fresh: vec![[0; LANES]; blocks],
            touched: vec![false; blocks],
            filled: 0,
            end_ns: now_ns,
            tick: 0,
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

    /// Takes in a tick, and appends the threads that have surged to `surged`, in the order of their numbers.
    pub fn on_tick(&mut self, tick: &Tick<'_>, surged: &mut Vec<ThreadId>) {
        if tick.counts.is_empty() {
            return;
        }
        self.put_in_quiet_ticks(tick.now_ns.saturating_sub(tick.elapsed_ns));
        self.end_ns = tick.now_ns;
        self.spread_out(tick);
        let bound = self.rule.bound(self.filled);
        for block in 0..self.blocks {
            if self.touched[block] {
                self.touched[block] = false;
                let above = self.replace(block, bound);
                self.confirm_block(block, above, surged);
            } else {
                self.expire(block);
            }
        }
        self.advance();
    }

    /// Rows of zeros for the time since the last tick with requests: as many as there were ticks, to the nearest one.
    fn put_in_quiet_ticks(&mut self, until_ns: u64) {
        let gap_ns = until_ns.saturating_sub(self.end_ns);
        let quiet = gap_ns.saturating_add(self.interval_ns / 2) / self.interval_ns;
        if quiet >= self.window as u64 {
            self.forget();
            self.filled = self.window;
            self.tick += quiet;
            return;
        }
        for _ in 0..quiet {
            for block in 0..self.blocks {
                self.expire(block);
            }
            self.advance();
        }
    }

    /// From the sparse list to a row, each count at the length of the fine interval.
    fn spread_out(&mut self, tick: &Tick<'_>) {
        let scale = (u128::from(self.interval_ns) << 24) / u128::from(tick.elapsed_ns.max(1));
        let scale = scale.min(MOST as u128 * (1 << 16)) as u64;
        for &ThreadCount { thread, requests, .. } in tick.counts {
            let thread = thread.index();
            if thread < self.threads {
                let count = (u64::from(requests).saturating_mul(scale) >> (24 - FRACTION)).min(MOST);
                self.fresh[thread / LANES][thread % LANES] = count as i32;
                self.touched[thread / LANES] = true;
            }
        }
    }

    /// Tests a block's fresh counts against its window, then lets them replace the oldest row. The lanes above the bound.
    fn replace(&mut self, block: usize, bound: Bound) -> [u64; LANES] {
        let at = self.next * self.blocks + block;
        let (row, live) = (&mut self.rows[at], &mut self.live[at]);
        if !*live {
            *row = [0; LANES];
        }
        *live = true;
        let fresh = &mut self.fresh[block];
        let above = test_and_slide(bound, fresh, row, &mut self.sums[block], &mut self.squares[block]);
        *row = *fresh;
        *fresh = [0; LANES];
        above
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
        self.tick += 1;
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
    fn confirm_block(&mut self, block: usize, above: [u64; LANES], surged: &mut Vec<ThreadId>) {
        if above.iter().fold(0, |any, lane| any | lane) == 0 {
            return;
        }
        for lane in (0..LANES).filter(|&lane| above[lane] != 0) {
            let thread = block * LANES + lane;
            if self.confirm.at_once() || self.exceeded[thread].often_enough(self.tick, self.confirm) {
                surged.push(ThreadId(thread as u16));
            }
        }
    }
}

impl Exceeded {
    /// Notes that the thread is above its bound; whether that makes `of` times in the last `ticks`. If so, counting starts anew.
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

/// The arithmetic of a block; written so that the compiler makes vector instructions of it.
#[inline]
fn test_and_slide(bound: Bound, fresh: &Counts, oldest: &Counts, sums: &mut Sums, squares: &mut Sums) -> [u64; LANES] {
    let mut above = [0; LANES];
    for lane in 0..LANES {
        let (new, old) = (f64::from(fresh[lane]), f64::from(oldest[lane]));
        let (sum, square) = (sums[lane], squares[lane]);
        let distance = bound.n * new - sum;
        let variance = bound.n * square - sum * sum;
        let exceeds = distance * distance * bound.freedom > bound.z_squared * variance;
        above[lane] = u64::from(exceeds & (distance > 0.0) & (new >= bound.floor));
        sums[lane] = sum + (new - old);
        squares[lane] = square + (new * new - old * old);
    }
    above
}
