//! Time from a send until the owner runs, for each kind of wait, and the cost to the sender.
//!
//! `cargo bench -p pilotlight-reactor --bench wake_up [-- ROUNDS PAUSE_US]`. Sender and owner are pinned to two CPUs. The owner has been
//! waiting for PAUSE_US (default 200) when the message is sent. Times are of `CLOCK_MONOTONIC`, whose two readings are part of each figure;
//! a polling owner has the minimum that can be measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

use pilotlight_reactor::{Inbox, Monitor, Sender, clock, wait};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::{CpuSet, sched_setaffinity};

const NO_LIMIT: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
enum Way {
    Poll,
    Monitor(Monitor),
    Futex,
    Doorbell,
}

impl Way {
    fn wait(self, inbox: &mut Inbox<u64>) {
        match self {
            Self::Poll => std::hint::spin_loop(),
            Self::Monitor(how) => inbox.wait_monitor(how, NO_LIMIT),
            Self::Futex => inbox.wait_futex(NO_LIMIT),
            Self::Doorbell => {
                if inbox.arm() {
                    let fd = inbox.doorbell().expect("made");
                    poll(&mut [PollFd::new(&fd, PollFlags::IN)], None).expect("polls");
                    inbox.disarm();
                }
            }
        }
    }
}

fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    if sched_setaffinity(None, &set).is_err() {
        println!("CPU {cpu} may not be used: not pinned");
    }
}

/// Takes one message per round and records the time.
fn owner(way: Way, mut inbox: Inbox<u64>, rounds: u64, back_ns: &AtomicU64) {
    pin(1);
    inbox.doorbell().expect("made");
    for _ in 0..rounds {
        while inbox.take().is_none() {
            way.wait(&mut inbox);
        }
        back_ns.store(clock::now_ns(), SeqCst);
    }
}

/// Waits without a system call, so that the CPU does not sleep.
fn spin_until(done: impl Fn() -> bool) {
    while !done() {
        std::hint::spin_loop();
    }
}

/// Each round's `(send to awake, time in send)` in nanoseconds.
fn rounds(sender: &Sender<u64>, rounds: u64, pause_ns: u64, back_ns: &AtomicU64) -> (Vec<u64>, Vec<u64>) {
    let round = |n| {
        let asleep = clock::now_ns() + pause_ns;
        spin_until(|| clock::now_ns() > asleep);
        back_ns.store(0, SeqCst);
        let before = clock::now_ns();
        sender.send(n).expect("room");
        let sent = clock::now_ns();
        spin_until(|| back_ns.load(SeqCst) != 0);
        (back_ns.load(SeqCst).saturating_sub(before), sent - before)
    };
    (0..rounds).map(round).unzip()
}

fn percentiles(mut values: Vec<u64>) -> [f64; 2] {
    values.sort_unstable();
    [50, 99].map(|p| values[(values.len() - 1) * p / 100] as f64 / 1000.0)
}

fn measure(way: Way, count: u64, pause_ns: u64) {
    let inbox = Inbox::new(1);
    let sender = inbox.sender();
    let back_ns = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&back_ns);
    let owner = thread::spawn(move || owner(way, inbox, count, &seen));
    let (awake, paid) = rounds(&sender, count, pause_ns, &back_ns);
    owner.join().expect("took every message");
    let ([awake, awake_p99], [paid, paid_p99]) = (percentiles(awake), percentiles(paid));
    println!("{:<18}{awake:>10.2}{awake_p99:>10.2}{paid:>14.2}{paid_p99:>10.2}", format!("{way:?}"));
}

fn main() {
    let numbers: Vec<u64> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    let (count, pause_us) = (numbers.first().copied().unwrap_or(5000), numbers.get(1).copied().unwrap_or(200));
    if thread::available_parallelism().map_or(1, usize::from) < 2 {
        println!("skipped: sender and owner need a CPU each");
        return;
    }
    pin(0);
    println!("{count} rounds, owner waiting for {pause_us} us before each send; times in microseconds");
    println!("{:<18}{:>10}{:>10}{:>14}{:>10}", "way", "awake p50", "p99", "send p50", "p99");
    let monitor = wait::available().map(Way::Monitor);
    for way in [Some(Way::Poll), monitor, Some(Way::Futex), Some(Way::Doorbell)].into_iter().flatten() {
        measure(way, count, pause_us * 1000);
    }
    if monitor.is_none() {
        println!("Monitor: this machine has no instruction that waits for a store");
    }
}
