//! Rate, latency and CPU time of files and devices by depth, and how long a reactor's calls take.
//!
//! `cargo bench -p pilotlight-storage --bench file_depths -- [--seconds S] [--rounds N] PATH...`
//!
//! 4 KiB random reads and writes through one channel of the file backend at depth 1, 32 and 128, medians over the rounds:
//! - *polled*: one OS thread submits and polls;
//! - *interrupt*: it waits for the channel's bell while nothing is complete;
//! - *moving*: two OS threads poll in turn, 1 ms each, as when an I/O thread moves between cores.
//!
//! The CPU time is the process's; *longest* is the longest call of the channel, for which a reactor serves nobody else. A PATH
//! that does not exist becomes a file of 256 MiB with all blocks allocated. Writes overwrite what is in the PATH.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use pilotlight_reactor::clock::now_ns;
use pilotlight_reactor::{CompletionMode, Histogram};
use pilotlight_storage::buffer::BufferPool;
use pilotlight_storage::wait::Wait;
use pilotlight_storage::{Backend, Bell, Channel, Completion, FileBackend, FileOptions};
use pilotlight_storage::{Op, Random, Request, Submitted};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};

const BLOCK: usize = 4096;
const BYTES: u64 = 256 << 20;
const DEPTHS: [usize; 3] = [1, 32, 128];
/// Time on each OS thread in the mode *moving*.
const TURN_NS: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Polled,
    Interrupt,
    Moving,
}

/// Requests in flight through one channel.
struct Load {
    channel: Box<dyn Channel>,
    bell: Arc<Bell>,
    pool: BufferPool,
    done: Vec<Completion>,
    random: Random,
    blocks: u64,
    op: Op,
    depth: usize,
    until: u64,
    waits: bool,
    latency: Histogram,
    longest: u64,
}

impl Load {
    fn new(backend: &dyn Backend, op: Op, depth: usize, mode: Mode) -> Self {
        let mut channel = backend.open_channel(DEPTHS[DEPTHS.len() - 1] as u32).expect("a channel");
        let bell = Arc::new(Bell::new().expect("a descriptor"));
        let waits = mode == Mode::Interrupt;
        channel.set_completions(if waits { CompletionMode::Interrupt } else { CompletionMode::Poll }, &bell);
        Self {
            channel,
            bell,
            pool: BufferPool::new(4 << 20).expect("memory"),
            done: Vec::with_capacity(128),
            random: Random::new(7),
            blocks: backend.geometry().blocks.min(BYTES / BLOCK as u64),
            op,
            depth,
            until: 0,
            waits,
            latency: Histogram::default(),
            longest: 0,
        }
    }

    /// Submits until the depth is reached.
    fn fill(&mut self, now: u64) {
        while self.channel.in_flight() < self.depth && now < self.until {
            let buffer = Some(self.pool.alloc(BLOCK).expect("memory"));
            let request = Request { tag: now, op: self.op, lba: self.random.below(self.blocks), blocks: 1, buffer };
            match self.timed(|channel| channel.submit(request, now)) {
                Submitted::Pending => {}
                Submitted::Done(completion) => return self.complete(completion),
                Submitted::Busy(request) => return self.pool.free(request.buffer.expect("a buffer")),
            }
        }
    }

    fn timed<T>(&mut self, call: impl FnOnce(&mut Box<dyn Channel>) -> T) -> T {
        let began = now_ns();
        let result = call(&mut self.channel);
        self.longest = self.longest.max(now_ns() - began);
        result
    }

    fn complete(&mut self, completion: Completion) {
        completion.result.expect("the request succeeds");
        self.latency.record(now_ns().saturating_sub(completion.tag), 1);
        self.pool.free(completion.buffer.expect("the buffer comes back"));
    }

    /// One round; `false` at the end.
    fn round(&mut self) -> bool {
        let now = now_ns();
        self.fill(now);
        let mut done = std::mem::take(&mut self.done);
        self.timed(|channel| channel.poll(now, &mut done));
        let idle = done.is_empty();
        done.drain(..).for_each(|completion| self.complete(completion));
        self.done = done;
        if idle && self.waits && self.channel.in_flight() > 0 {
            self.rest(now);
        }
        now < self.until || self.channel.in_flight() > 0
    }

    /// Waits as an I/O thread does.
    fn rest(&mut self, now: u64) {
        self.bell.arm();
        let timeout = match self.channel.wait(now) {
            Wait::Poll => None,
            Wait::Until(ns) => Some(Timespec { tv_sec: 0, tv_nsec: ns.saturating_sub(now) as i64 }),
            Wait::Event => Some(Timespec { tv_sec: 1, tv_nsec: 0 }),
        };
        if let Some(timeout) = timeout {
            let _ = poll(&mut [PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN)], Some(&timeout));
        }
        self.bell.disarm();
        self.bell.clear();
    }
}

#[derive(Clone, Copy, Default)]
struct Row {
    rate: f64,
    p50_us: f64,
    p99_us: f64,
    cpu_us: f64,
    longest_us: f64,
}

fn process_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn measure(backend: &dyn Backend, op: Op, depth: usize, mode: Mode, seconds: f64) -> Row {
    let mut load = Box::new(Load::new(backend, op, depth, mode));
    let (began, cpu) = (now_ns(), process_cpu_ns());
    load.until = began + (seconds * 1e9) as u64;
    if mode == Mode::Moving {
        load = take_turns(load);
    } else {
        while load.round() {}
    }
    let (elapsed, cpu) = (now_ns() - began, process_cpu_ns() - cpu);
    let latency = load.latency.snapshot();
    let done = latency.count() as f64;
    Row {
        rate: done * 1e9 / elapsed as f64,
        p50_us: latency.percentile_ns(0.5) as f64 / 1e3,
        p99_us: latency.percentile_ns(0.99) as f64 / 1e3,
        cpu_us: cpu as f64 / 1e3 / done,
        longest_us: load.longest as f64 / 1e3,
    }
}

/// Two OS threads run the load in turn, until its end.
fn take_turns(load: Box<Load>) -> Box<Load> {
    let (here, from_there) = mpsc::channel::<(Box<Load>, bool)>();
    let (there, from_here) = mpsc::channel::<(Box<Load>, bool)>();
    let turns = |from: mpsc::Receiver<(Box<Load>, bool)>, to: mpsc::Sender<(Box<Load>, bool)>| {
        while let Ok((mut load, mut more)) = from.recv() {
            let end = now_ns() + TURN_NS;
            while more && now_ns() < end {
                more = load.round();
            }
            let _ = to.send((load, more));
            if !more {
                break;
            }
        }
    };
    std::thread::scope(|scope| {
        let to_there = there; // dropped at the end, which ends the other thread
        scope.spawn(move || turns(from_here, here));
        to_there.send((load, true)).expect("it waits");
        loop {
            let (mut load, mut more) = from_there.recv().expect("it comes back");
            let end = now_ns() + TURN_NS;
            while more && now_ns() < end {
                more = load.round();
            }
            if !more {
                return load;
            }
            to_there.send((load, more)).expect("it waits");
        }
    })
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Creates the file with all blocks allocated.
fn create(path: &Path) {
    let file = File::create(path).expect("the file is created");
    let chunk = vec![0x5a_u8; 1 << 20];
    (0..BYTES >> 20).for_each(|at| file.write_all_at(&chunk, at << 20).expect("room for 256 MiB"));
    file.sync_all().expect("synced");
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let (mut seconds, mut rounds, mut paths) = (1.0, 3, Vec::new());
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse::<f64>().ok()).expect("a number");
        match argument.as_str() {
            "--seconds" => seconds = number(),
            "--rounds" => rounds = number() as usize,
            _ => paths.push(PathBuf::from(argument)),
        }
    }
    println!("path,operation,depth,mode,iops,p50_us,p99_us,cpu_us_per_request,longest_call_us");
    for path in paths {
        if !path.exists() {
            create(&path);
        }
        let options = FileOptions { path: path.clone(), block_size: BLOCK as u32, size: None, is_read_only: false };
        let backend = FileBackend::open(&options).expect("it opens");
        for (op, name) in [(Op::Read, "read"), (Op::Write { fua: false }, "write")] {
            for depth in DEPTHS {
                for mode in [Mode::Polled, Mode::Interrupt, Mode::Moving] {
                    let rows: Vec<Row> = (0..rounds).map(|_| measure(&backend, op, depth, mode, seconds)).collect();
                    let of = |value: fn(&Row) -> f64| median(rows.iter().map(value));
                    println!(
                        "{},{name},{depth},{mode:?},{:.0},{:.1},{:.1},{:.2},{:.0}",
                        path.display(),
                        of(|row| row.rate),
                        of(|row| row.p50_us),
                        of(|row| row.p99_us),
                        of(|row| row.cpu_us),
                        of(|row| row.longest_us)
                    );
                }
            }
        }
    }
}
