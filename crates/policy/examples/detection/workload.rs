//! Arrivals of requests at I/O threads: Poisson, paced (equidistant), modulated (MMPP), and bursts; reproducible by seed.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};

/// The source of the random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(Xoshiro256PlusPlus);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// In (0, 1].
    fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Exponentially distributed, with a mean of 1.
    fn exponential(&mut self) -> f64 {
        -self.uniform().ln()
    }
}

/// The arrival process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Poisson.
    Poisson,
    /// Equidistant, as from a host that limits its rate; each I/O thread with a different phase.
    Paced,
    /// A Markov-modulated Poisson process of two states for each I/O thread: five times the mean rate for a tenth of the time, 10 ms on average
    /// (an assumption: no paper prints one).
    Mmpp,
}

/// Mean rate in the high state of [`Shape::Mmpp`], over the mean.
const HIGH: f64 = 5.0;
/// Share of time in it.
const HIGH_SHARE: f64 = 0.1;
/// Ticks of 10 us in which a thread stays there, on average.
const HIGH_TICKS: f64 = 1_000.0;

impl Shape {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Poisson => "Poisson",
            Self::Paced => "paced",
            Self::Mmpp => "MMPP",
        }
    }
}

/// One rate for each of some threads.
#[derive(Clone, Debug)]
pub(crate) enum Arrivals {
    /// Probabilities of at most 0, 1, 2, ... requests, in units of 2^-64.
    Poisson(Vec<u64>),
    /// Requests in a tick and the phase of each thread, in units of 2^-32.
    Paced { step: u64, phases: Vec<u64> },
    /// As `Poisson` in the low and the high state; the probability of leaving each in a tick, in units of 2^-64; and the ticks of each thread in the
    /// high state.
    Mmpp { at_most: [Vec<u64>; 2], leave: [u64; 2], high: Vec<Option<u64>> },
}

impl Arrivals {
    /// `rate` requests in a tick for each of `threads` threads.
    pub(crate) fn new(shape: Shape, rate: f64, threads: usize, random: &mut Random) -> Self {
        match shape {
            Shape::Poisson => Self::Poisson(poisson(rate)),
            Shape::Mmpp => {
                let low = (1.0 - HIGH_SHARE * HIGH) / (1.0 - HIGH_SHARE);
                let low_ticks = HIGH_TICKS * (1.0 - HIGH_SHARE) / HIGH_SHARE;
                Self::Mmpp {
                    at_most: [low, HIGH].map(|times| poisson(rate * times)),
                    leave: [low_ticks, HIGH_TICKS].map(|ticks| (2f64.powi(64) / ticks) as u64),
                    high: (0..threads).map(|_| (random.uniform() < HIGH_SHARE).then_some(u64::MAX / 2)).collect(),
                }
            }
            Shape::Paced => Self::Paced {
                step: (rate * f64::from(u32::MAX)) as u64,
                phases: (0..threads).map(|_| random.next() >> 32).collect(),
            },
        }
    }

    /// Requests of a thread in the next tick.
    pub(crate) fn next(&mut self, thread: usize, random: &mut Random) -> u32 {
        match self {
            Self::Poisson(at_most) => draw(at_most, random),
            Self::Mmpp { at_most, leave, high } => {
                let state = usize::from(high[thread].is_some());
                if random.next() < leave[state] {
                    high[thread] = if state == 0 { Some(0) } else { None };
                } else if let Some(ticks) = &mut high[thread] {
                    *ticks += 1;
                }
                draw(&at_most[usize::from(high[thread].is_some())], random)
            }
            Self::Paced { step, phases } => {
                let sum = phases[thread] + *step;
                phases[thread] = sum & u64::from(u32::MAX);
                (sum >> 32) as u32
            }
        }
    }
}

impl Arrivals {
    /// Whether a thread's rate rose within the last ticks: a move is right then.
    pub(crate) fn has_risen(&self, thread: usize, within: u64) -> bool {
        match self {
            Self::Mmpp { high, .. } => high[thread].is_some_and(|ticks| ticks < within),
            Self::Poisson(_) | Self::Paced { .. } => false,
        }
    }
}

fn draw(at_most: &[u64], random: &mut Random) -> u32 {
    let chance = random.next();
    at_most.iter().take_while(|&&bound| chance >= bound).count() as u32
}

/// The distribution function of a Poisson variable, up to 1 - 2^-60.
fn poisson(rate: f64) -> Vec<u64> {
    let mut at_most = Vec::new();
    let (mut chance, mut sum) = ((-rate).exp(), 0.0);
    for count in 1.. {
        sum += chance;
        if sum >= 1.0 - f64::EPSILON || chance < f64::MIN_POSITIVE {
            break;
        }
        at_most.push((sum * 2f64.powi(64)) as u64);
        chance *= rate / f64::from(count);
    }
    at_most
}

/// A core that polls its I/O threads in turn.
///
/// A loop over its threads takes 5 us (5.4: 4 to 6 us), or the time of its requests if that is more. The main core runs its tick at the end of
/// a loop, so the tick is late under load. Counts of a worker are read on time, and come in groups if its loops are long.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    place: Place,
    shape: Shape,
    /// Nanoseconds between two requests of a thread.
    every_ns: f64,
    /// When the next request of each thread arrives.
    next_ns: Vec<f64>,
    waiting: Vec<u32>,
    now_ns: f64,
    /// The thread to poll next, when the loop began, and the end of the last tick.
    turn: usize,
    loop_ns: f64,
    tick_ns: u64,
}

/// Home of the threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Main,
    Worker,
}

/// Time of a loop under low load.
const LOOP_NS: f64 = 5_000.0;
/// Time of one request: 800 k a second (2.2).
pub(crate) const REQUEST_NS: f64 = 1_250.0;
/// Requests that one thread takes in a loop.
const BATCH: u32 = 32;

impl Core {
    pub(crate) fn new(place: Place, threads: usize, now_ns: u64) -> Self {
        Self {
            place,
            shape: Shape::Poisson,
            every_ns: f64::INFINITY,
            next_ns: vec![f64::INFINITY; threads],
            waiting: vec![0; threads],
            now_ns: now_ns as f64,
            turn: 0,
            loop_ns: now_ns as f64,
            tick_ns: now_ns,
        }
    }

    /// Sets the rate of each thread from `now_ns` on.
    pub(crate) fn set_rate(&mut self, now_ns: u64, shape: Shape, per_second: f64, random: &mut Random) {
        self.shape = shape;
        self.every_ns = 1e9 / per_second;
        for thread in 0..self.next_ns.len() {
            let first = match shape {
                Shape::Poisson | Shape::Mmpp => random.exponential(),
                Shape::Paced => random.uniform(),
            };
            self.next_ns[thread] = now_ns as f64 + self.every_ns * first;
        }
    }

    /// Polls until the next tick; returns its end, and the requests of each thread in `taken`.
    pub(crate) fn tick(&mut self, every_ns: u64, taken: &mut [u32], random: &mut Random) -> u64 {
        taken.fill(0);
        let due_ns = self.tick_ns + every_ns;
        let late = |core: &Self| core.place == Place::Main && core.turn != 0;
        while self.now_ns < due_ns as f64 || late(self) {
            self.poll(taken, random);
        }
        self.tick_ns = if self.place == Place::Main { self.now_ns as u64 } else { due_ns };
        self.tick_ns
    }

    /// Polls the next thread.
    fn poll(&mut self, taken: &mut [u32], random: &mut Random) {
        let thread = self.turn;
        while self.next_ns[thread] <= self.now_ns {
            self.waiting[thread] += 1;
            self.next_ns[thread] += self.every_ns
                * match self.shape {
                    Shape::Poisson | Shape::Mmpp => random.exponential(),
                    Shape::Paced => 1.0,
                };
        }
        let batch = self.waiting[thread].min(BATCH);
        self.waiting[thread] -= batch;
        taken[thread] += batch;
        self.now_ns += f64::from(batch) * REQUEST_NS;
        self.turn += 1;
        if self.turn == taken.len() {
            self.turn = 0;
            self.now_ns = self.now_ns.max(self.loop_ns + LOOP_NS);
            self.loop_ns = self.now_ns;
        }
    }
}
