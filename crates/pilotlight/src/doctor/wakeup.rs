//! Measures the cost of waking a sleeping thread by futex.
//!
//! One thread sleeps in `FUTEX_WAIT`; another on another CPU waits, stores, and calls `FUTEX_WAKE`. The sleeper's CPU is idle in between,
//! so the figure includes the exit from an idle state of that depth and, under a hypervisor, the re-entry into the guest. Reactors use the
//! same software wake-up.
//!
//! Other work on the sleeper's CPU delays the sleeper and prevents idle states, so the load of that CPU is reported with the figures.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::thread::futex::{self, Flags};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::facts::WakeUp;
use super::tree::Tree;

/// Number of measured wake-ups.
const ROUNDS: usize = 200;
/// Sleep before each wake-up.
const REST: Duration = Duration::from_millis(1);
/// Time limit, as other processes may use these CPUs.
const TIME_LIMIT: Duration = Duration::from_millis(800);
/// The minimum number for a 99th percentile.
const FEWEST: usize = 100;

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const LEAVE: u32 = 2;

/// Shared state; times are nanoseconds since `start`.
struct Shared {
    word: AtomicU32,
    back_ns: AtomicU64,
    start: Instant,
}

impl Shared {
    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

/// Measures wake-ups of a thread on `sleeper` by one on `waker`.
///
/// # Errors
/// If there are no figures; the reason.
pub(super) fn measure(tree: &Tree, waker: u32, sleeper: u32) -> anyhow::Result<WakeUp> {
    let before = times(tree, sleeper);
    let found = measure_times(waker, sleeper)?;
    Ok(WakeUp { busy_percent: busy_percent(before, times(tree, sleeper)), ..found })
}

/// CPU time since the start, in the kernel's ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Times {
    all: u64,
    idle: u64,
}

/// Of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal (proc_stat(5)).
fn times(tree: &Tree, cpu: u32) -> Times {
    let stat = tree.text("/proc/stat").unwrap_or_default();
    let Some(line) = stat.lines().find_map(|line| line.strip_prefix(&format!("cpu{cpu} "))) else {
        return Times::default();
    };
    let ticks: Vec<u64> = line.split_whitespace().take(8).map(|field| field.parse().unwrap_or(0)).collect();
    Times { all: ticks.iter().sum(), idle: ticks.iter().skip(3).take(2).sum() }
}

fn busy_percent(before: Times, after: Times) -> u32 {
    let all = after.all.saturating_sub(before.all);
    let idle = after.idle.saturating_sub(before.idle).min(all);
    ((all - idle) * 100).checked_div(all).unwrap_or(0) as u32
}

fn measure_times(waker: u32, sleeper: u32) -> anyhow::Result<WakeUp> {
    let shared = Shared { word: AtomicU32::new(AWAKE), back_ns: AtomicU64::new(0), start: Instant::now() };
    let samples = thread::scope(|scope| {
        scope.spawn(|| sleep(&shared, sleeper));
        scope.spawn(|| wake(&shared, waker)).join().unwrap_or_default()
    });
    summarise(&samples, [waker, sleeper])
        .with_context(|| format!("only {} of {ROUNDS} wake-ups in {} ms", samples.len(), TIME_LIMIT.as_millis()))
}

/// The sleeper: announces its sleep, sleeps, and records its wake-up.
fn sleep(shared: &Shared, cpu: u32) {
    pin(cpu);
    while shared.word.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
        while shared.word.load(Ordering::SeqCst) == ASLEEP {
            // the word is checked again after every return, which may be spurious
            let _ = futex::wait(&shared.word, Flags::PRIVATE, ASLEEP, None);
        }
        shared.back_ns.store(shared.now_ns(), Ordering::SeqCst);
    }
}

/// The waker: (time until the sleeper runs, time spent by the waker), in nanoseconds.
fn wake(shared: &Shared, cpu: u32) -> Vec<(u64, u64)> {
    pin(cpu);
    let mut samples = Vec::with_capacity(ROUNDS);
    while samples.len() < ROUNDS && shared.start.elapsed() < TIME_LIMIT {
        until(|| shared.word.load(Ordering::SeqCst) == ASLEEP);
        let rested = Instant::now() + REST;
        until(|| Instant::now() >= rested);
        shared.back_ns.store(0, Ordering::SeqCst);
        let before = shared.now_ns();
        shared.word.store(AWAKE, Ordering::SeqCst);
        let woken = futex::wake(&shared.word, Flags::PRIVATE, 1);
        let after = shared.now_ns();
        until(|| shared.back_ns.load(Ordering::SeqCst) != 0);
        // a sleeper that was already awake records nothing
        if woken == Ok(1) {
            let back = shared.back_ns.load(Ordering::SeqCst);
            samples.push((back.saturating_sub(before), after - before));
        }
    }
    leave(shared);
    samples
}

/// Stops the sleeper in any state.
fn leave(shared: &Shared) {
    shared.word.store(LEAVE, Ordering::SeqCst);
    let _ = futex::wake(&shared.word, Flags::PRIVATE, 1);
}

/// Spins like a polling core; yields if it shares the sleeper's CPU.
fn until(done: impl Fn() -> bool) {
    let mut spins = 0_u32;
    while !done() {
        std::hint::spin_loop();
        spins += 1;
        if spins.is_multiple_of(1 << 16) {
            thread::yield_now();
        }
    }
}

fn pin(cpu: u32) {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    // if pinning is refused, the thread runs on any CPU
    let _ = sched_setaffinity(None, &set);
}

/// Median and 99th percentile of both, if there are enough samples.
fn summarise(samples: &[(u64, u64)], cpus: [u32; 2]) -> Option<WakeUp> {
    if samples.len() < FEWEST {
        return None;
    }
    let percentiles = |part: fn(&(u64, u64)) -> u64| {
        let mut sorted: Vec<u64> = samples.iter().map(part).collect();
        sorted.sort_unstable();
        [50, 99].map(|percent| Duration::from_nanos(sorted[(sorted.len() - 1) * percent / 100]))
    };
    let [back, waker] = [percentiles(|sample| sample.0), percentiles(|sample| sample.1)];
    Some(WakeUp { samples: samples.len(), asleep: REST, back, waker, cpus, busy_percent: 0 })
}

#[cfg(test)]
mod tests {
    use super::super::tests::fixture::Fixture;
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_samples() {
        let samples: Vec<(u64, u64)> = (0..200).rev().map(|n| (n * 1000, n)).collect();
        let found = summarise(&samples, [0, 1]).unwrap();
        assert_eq!(found.back, [99_000, 197_000].map(Duration::from_nanos));
        assert_eq!(found.waker, [99, 197].map(Duration::from_nanos));
        assert_eq!(summarise(&samples[..FEWEST - 1], [0, 1]), None);
    }

    #[test]
    fn a_cpu_is_busy_when_it_neither_idles_nor_waits() {
        let at = |text: &str| times(&Fixture::default().file("/proc/stat", text).tree(), 1);
        let before = at("cpu  9 9 9 9\ncpu1 10 0 5 100 20 0 0 0 0 0\ncpu11 1 1 1 1 1 1 1 1");
        assert_eq!(before, Times { all: 135, idle: 120 });
        let after = at("cpu1 12 0 6 110 25 1 0 1 7 0");
        assert_eq!(busy_percent(before, after), 25);
        assert_eq!(busy_percent(after, after), 0);
        assert_eq!(at("cpu0 1 1 1 1"), Times::default());
    }

    #[test]
    fn a_sleeper_comes_back_after_the_waker_called() {
        let allowed = crate::config::Machine::this().cores;
        let [waker, sleeper, ..] = allowed[..] else {
            println!("skipped: it takes two CPUs, this process has {}", allowed.len());
            return;
        };
        match measure(&Tree::live(), waker, sleeper) {
            Ok(found) => assert!(found.back[0] > Duration::ZERO && found.back[0] <= found.back[1], "{found:?}"),
            Err(why) => println!("skipped: {why}"),
        }
    }
}
