//! Cost of moving an I/O thread, and cost to the main core of collecting the counts of all I/O threads.
//!
//! `cargo bench -p pilotlight-reactor --bench moves`; `instructions.rs` counts the instructions of both.
//!
//! A move is measured with both homes on one core: the work of both sides, without the transfer of a cache line between them. `apart`
//! measures, between two polling cores, the time of an I/O thread without a home, from the last poll in the old one to the first in the new
//! one; it includes the remainder of both reactors' rounds.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group};
use pilotlight_plant::{Command, CoreId, Next, Policy, Sample, Start, ThreadId, Tick, Unsupported, Wants};
use pilotlight_reactor::bench::{Gathering, Pair};
use pilotlight_reactor::{Histogram, Idle, IoThread, Polled, Runtime, RuntimeOptions, clock};
use rustix::thread::{CpuSet, sched_setaffinity};

fn moves(criterion: &mut Criterion) {
    let mut pair = Pair::new();
    criterion.bench_function("move, both homes on one core", |bencher| bencher.iter(|| pair.move_thread()));
}

/// Pins the calling OS thread to a CPU, if it exists.
fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    let _ = sched_setaffinity(None, &set);
}

fn gathering(criterion: &mut Criterion) {
    pin(0);
    let mut group = criterion.benchmark_group("gather a tick");
    for threads in [48, 480, 4_800] {
        group.throughput(Throughput::Elements(threads));
        let mut gathering = Gathering::new(threads as usize);
        group.bench_function(BenchmarkId::new("nothing came", threads), |bencher| bencher.iter(|| gathering.tick()));
        let arriving = gathering.arriving();
        group.bench_function(BenchmarkId::new("all active, same core", threads), |bencher| {
            bencher.iter(|| {
                arriving.add_request_to_each();
                gathering.tick()
            });
        });
        let (turn, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (turns, stopped, busy) = (Arc::clone(&turn), Arc::clone(&stop), arriving.clone());
        let other = std::thread::spawn(move || {
            pin(1);
            while !stopped.load(Relaxed) {
                if turns.load(Acquire) {
                    busy.add_request_to_each();
                    turns.store(false, Release);
                }
            }
        });
        // Alternating, so that each tick finds every count changed; only the time of the ticks counts.
        group.bench_function(BenchmarkId::new("all active, another core", threads), |bencher| {
            bencher.iter_custom(|ticks| {
                let mut spent = Duration::ZERO;
                for _ in 0..ticks {
                    turn.store(true, Release);
                    while turn.load(Acquire) {}
                    let begin = Instant::now();
                    std::hint::black_box(gathering.tick());
                    spent += begin.elapsed();
                }
                spent
            });
        });
        stop.store(true, Relaxed);
        other.join().expect("no panic");
    }
}

/// Records the time since its last poll when it runs on another OS thread.
struct Traveller {
    last_ns: u64,
    home: Option<std::thread::ThreadId>,
    gaps: Arc<Mutex<Histogram>>,
}

impl IoThread for Traveller {
    fn id(&self) -> u32 {
        0
    }
    fn poll(&mut self, _now_ns: u64) -> Polled {
        let (now_ns, here) = (clock::now_ns(), std::thread::current().id());
        if self.home.replace(here).is_some_and(|home| home != here) {
            self.gaps.lock().expect("no panic").record(now_ns - self.last_ns, 1);
        }
        self.last_ns = clock::now_ns();
        Polled::default()
    }
}

/// Moves I/O thread 0 to the other core at every interval.
struct Swing(u16);

impl Policy for Swing {
    fn name(&self) -> &'static str {
        "swing"
    }
    fn wants(&self) -> Wants {
        Wants { interval_ns: Some(50_000), ..Wants::default() }
    }
    fn start(&mut self, start: &Start<'_>, _out: &mut Vec<Command>) -> Result<Next, Unsupported> {
        Ok(Next::at(start.now_ns))
    }
    fn on_tick(&mut self, tick: &Tick<'_>, _out: &mut Vec<Command>) -> Next {
        Next::at(tick.now_ns)
    }
    fn on_interval(&mut self, sample: &Sample<'_>, out: &mut Vec<Command>) -> Next {
        self.0 = 1 - self.0;
        out.push(Command::Move { thread: ThreadId(0), to: CoreId(self.0) });
        Next::at(sample.now_ns)
    }
}

fn apart() {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus < 2 {
        println!("apart: SKIPPED, two polling cores need two CPUs");
        return;
    }
    let gaps = Arc::new(Mutex::new(Histogram::default()));
    let mut runtime = Runtime::start(&RuntimeOptions::new(vec![Some(0), Some(1)], Idle::Spin)).expect("two cores");
    runtime.adopt(CoreId(0), Box::new(Traveller { last_ns: 0, home: None, gaps: Arc::clone(&gaps) }));
    runtime.set_policy(Box::new(Swing(0))).expect("it needs nothing");
    std::thread::sleep(Duration::from_secs(2));
    runtime.stop();
    let gaps = gaps.lock().expect("no panic").snapshot();
    println!(
        "apart: {} moves between two polling cores: without a home p50 {} ns, p99 {} ns",
        gaps.count(),
        gaps.percentile_ns(0.5),
        gaps.percentile_ns(0.99)
    );
}

criterion_group!(benches, moves, gathering);

fn main() {
    apart();
    benches();
    Criterion::default().configure_from_args().final_summary();
}
