//! Comparison of Linux AIO with a context per I/O thread and io_uring with a ring per reactor.
//!
//! `cargo bench -p pilotlight-storage --bench device_path -- [--seconds S] [--rounds N] [--file PATH]`
//!
//! An io_uring ring returns completions to the OS thread that submitted, so it belongs to a reactor: with `DEFER_TASKRUN` and
//! `SINGLE_ISSUER` only that thread may reap. A reactor whose I/O threads have moved must drain its ring and forward completions.
//! An AIO context belongs to the I/O thread and moves with it.
//!
//! 4 KiB random reads of a file opened with O_DIRECT, both interfaces in turn in every round, medians over the rounds:
//! - *polled*: rate, latency and CPU time per read on one core that submits and polls (depth 1 and 32);
//! - *moved*: a read is in flight when its I/O thread moves aio from an otherwise idle core. Latency from the submission until the
//!   new core has the completion, and the time for which the old core cannot sleep.

use std::fs::File;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};

use io_uring::{IoUring, opcode, types};
use pilotlight_reactor::clock::now_ns;
use pilotlight_reactor::{Histogram, Inbox};
use pilotlight_storage::buffer::BufferPool;
use pilotlight_storage::{Backend, Channel, Completion, FileBackend, FileOptions, Op, Random, Request, Submitted};
use std::os::fd::AsRawFd as _;

const BLOCK: usize = 4096;
const BLOCKS: u64 = (256 << 20) / BLOCK as u64;

/// An I/O interface: submits reads and collects completions.
trait Interface {
    fn submit(&mut self, lba: u64);
    /// Completions since the last call.
    fn reap(&mut self) -> usize;
}

struct Aio {
    channel: Box<dyn Channel>,
    pool: BufferPool,
    done: Vec<Completion>,
}

impl Aio {
    fn new(path: &Path) -> Self {
        let options = FileOptions { path: path.to_owned(), block_size: BLOCK as u32, size: None, is_read_only: false };
        let backend = FileBackend::open(&options).expect("the file opens");
        let channel = backend.open_channel(64).expect("a context");
        Self { channel, pool: BufferPool::new(1 << 20).expect("memory"), done: Vec::with_capacity(64) }
    }
}

impl Interface for Aio {
    fn submit(&mut self, lba: u64) {
        let buffer = Some(self.pool.alloc(BLOCK).expect("memory"));
        match self.channel.submit(Request { tag: 0, op: Op::Read, lba, blocks: 1, buffer }, 0) {
            Submitted::Pending => {}
            Submitted::Done(completion) => self.done.push(completion),
            Submitted::Busy(_) => panic!("the channel has room"),
        }
    }

    fn reap(&mut self) -> usize {
        self.channel.poll(0, &mut self.done);
        let count = self.done.len();
        for completion in self.done.drain(..) {
            completion.result.expect("the read succeeds");
            self.pool.free(completion.buffer.expect("the buffer comes back"));
        }
        count
    }
}

struct Uring {
    ring: IoUring,
    file: File,
    buffers: Vec<Aligned>,
    free: Vec<usize>,
    in_flight: usize,
}

#[repr(align(4096))]
struct Aligned([u8; BLOCK]);

impl Uring {
    fn new(path: &Path) -> Self {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(64)
            .expect("a ring (kernel 6.1 or later, io_uring not disabled)");
        let file = File::options().read(true).custom_flags(libc::O_DIRECT).open(path).expect("the file opens");
        let buffers = (0..64).map(|_| Aligned([0; BLOCK])).collect();
        Self { ring, file, buffers, free: (0..64).collect(), in_flight: 0 }
    }
}

impl Interface for Uring {
    fn submit(&mut self, lba: u64) {
        let slot = self.free.pop().expect("a free buffer");
        let target = self.buffers[slot].0.as_mut_ptr();
        let read = opcode::Read::new(types::Fd(self.file.as_raw_fd()), target, BLOCK as u32);
        let read = read.offset(lba * BLOCK as u64).build().user_data(slot as u64);
        // SAFETY: the buffer is this value's and not used again until its completion has been reaped; `drop` waits.
        unsafe { self.ring.submission().push(&read) }.expect("room in the queue");
        self.in_flight += 1;
    }

    fn reap(&mut self) -> usize {
        // Submits what is queued and runs deferred completions: one system call.
        self.ring.submit_and_wait(0).expect("the ring works");
        if self.ring.completion().is_empty() && self.in_flight > 0 {
            // SAFETY: no argument is passed.
            unsafe { self.ring.submitter().enter::<libc::sigset_t>(0, 0, 1, None) }.expect("the ring works");
        }
        let mut count = 0;
        for entry in self.ring.completion() {
            assert_eq!(entry.result(), BLOCK as i32, "the read succeeds");
            self.free.push(entry.user_data() as usize);
            count += 1;
        }
        self.in_flight -= count;
        count
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        while self.in_flight > 0 {
            self.reap();
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Polled {
    rate: f64,
    p50_us: f64,
    p99_us: f64,
    cpu_us: f64,
}

/// Keeps `depth` reads in flight for a while.
fn polled(io: &mut dyn Interface, depth: usize, seconds: f64) -> Polled {
    let mut random = Random::new(7);
    let latency = Histogram::default();
    let (began, cpu) = (now_ns(), process_cpu_ns());
    let until = began + (seconds * 1e9) as u64;
    let mut sent = std::collections::VecDeque::with_capacity(depth);
    let mut done = 0_u64;
    let mut now = began;
    while now < until || !sent.is_empty() {
        while sent.len() < depth && now < until {
            io.submit(random.below(BLOCKS));
            sent.push_back(now);
        }
        let completed = io.reap();
        now = now_ns();
        // Assumes completions in order: exact at depth 1, and for the mean at any depth.
        for _ in 0..completed {
            latency.record(now - sent.pop_front().expect("a submitted read"), 1);
        }
        done += completed as u64;
    }
    let (elapsed, cpu) = (now - began, process_cpu_ns() - cpu);
    let latency = latency.snapshot();
    let us = |q| latency.percentile_ns(q) as f64 / 1e3;
    let per = |ns: u64| ns as f64 / 1e3 / done as f64;
    Polled { rate: done as f64 * 1e9 / elapsed as f64, p50_us: us(0.5), p99_us: us(0.99), cpu_us: per(cpu) }
}

#[derive(Clone, Copy, Default)]
struct Moved {
    p50_us: f64,
    p99_us: f64,
    /// Median time for which the old core cannot sleep.
    awake_us: f64,
}

/// AIO: the context moves to the new core, which polls it. The old core is idle at once.
fn moved_aio(path: &Path, times: usize) -> Moved {
    let mut forward = Inbox::<(Aio, u64)>::new(1);
    let (to, (back, returned)) = (forward.sender(), mpsc::channel());
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let new_core = std::thread::spawn(move || {
        let latency = Histogram::default();
        while !stopped.load(Relaxed) {
            let Some((mut io, sent)) = forward.take() else {
                std::hint::spin_loop();
                continue;
            };
            while io.reap() == 0 {}
            latency.record(now_ns() - sent, 1);
            back.send(io).expect("the old core waits");
        }
        latency.snapshot()
    });
    let mut random = Random::new(9);
    let mut io = Aio::new(path);
    let awake = Histogram::default();
    for _ in 0..times {
        let sent = now_ns();
        io.submit(random.below(BLOCKS));
        if io.reap() > 0 {
            continue; // done before it could move
        }
        let moving = now_ns();
        let Ok(()) = to.send((io, sent)) else { panic!("room") };
        awake.record(now_ns() - moving, 1);
        io = returned.recv().expect("it comes back"); // waits in the kernel
    }
    stop.store(true, Relaxed);
    let latency = new_core.join().expect("no panic");
    moved(&latency, &awake)
}

/// io_uring: the ring stays. The old core drains it and forwards the completion.
fn moved_uring(path: &Path, times: usize) -> Moved {
    let mut forward = Inbox::<u64>::new(1024);
    let (to, stop) = (forward.sender(), AtomicBool::new(false));
    let awake = Histogram::default();
    let latency = std::thread::scope(|scope| {
        let stop = &stop;
        let new_core = scope.spawn(move || {
            let latency = Histogram::default();
            while !stop.load(Relaxed) {
                match forward.take() {
                    Some(sent) => latency.record(now_ns() - sent, 1),
                    None => std::hint::spin_loop(),
                }
            }
            latency.snapshot()
        });
        let mut random = Random::new(9);
        let mut io = Uring::new(path);
        for _ in 0..times {
            let sent = now_ns();
            io.submit(random.below(BLOCKS));
            io.ring.submit().expect("the ring works");
            let moving = now_ns();
            while io.reap() == 0 {}
            to.send(sent).expect("room");
            awake.record(now_ns() - moving, 1);
        }
        stop.store(true, Relaxed);
        new_core.join().expect("no panic")
    });
    moved(&latency, &awake)
}

fn moved(latency: &pilotlight_reactor::HistogramSnapshot, awake: &Histogram) -> Moved {
    let us = |ns: u64| ns as f64 / 1e3;
    Moved {
        p50_us: us(latency.percentile_ns(0.5)),
        p99_us: us(latency.percentile_ns(0.99)),
        awake_us: us(awake.snapshot().percentile_ns(0.5)),
    }
}

/// With the threads that submit requests to files.
fn process_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn argument(name: &str) -> Option<String> {
    let mut arguments = std::env::args();
    arguments.find(|argument| argument == name)?;
    arguments.next()
}

/// Creates the file with all blocks allocated.
fn fill(path: &Path) {
    let file = File::create(path).expect("the file is created");
    let chunk = vec![0x5a_u8; 1 << 20];
    for at in 0..(BLOCKS * BLOCK as u64) >> 20 {
        file.write_all_at(&chunk, at << 20).expect("room for 256 MiB");
    }
    file.sync_all().expect("synced");
}

fn main() {
    let number = |name, default: f64| argument(name).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (seconds, rounds) = (number("--seconds", 1.0), number("--rounds", 3.0) as usize);
    let directory = tempfile::Builder::new().tempdir_in(".").expect("a directory");
    let path = argument("--file").map_or_else(|| directory.path().join("blocks"), PathBuf::from);
    if !path.exists() {
        fill(&path);
    }
    println!("{}: 4 KiB random reads, O_DIRECT, {rounds} rounds of {seconds} s, medians", path.display());
    for depth in [1, 32] {
        let mut ios: [(&str, Vec<Polled>); 2] = [("Linux AIO", vec![]), ("io_uring", vec![])];
        for _ in 0..rounds {
            ios[0].1.push(polled(&mut Aio::new(&path), depth, seconds));
            ios[1].1.push(polled(&mut Uring::new(&path), depth, seconds));
        }
        for (name, rows) in ios {
            let of = |f: fn(&Polled) -> f64| median(rows.iter().map(f).collect());
            println!(
                "polled, depth {depth:2}: {name:9} {:>8.0} reads/s  p50 {:>6.1} us  p99 {:>6.1} us  CPU {:>5.2} us per read",
                of(|row| row.rate),
                of(|row| row.p50_us),
                of(|row| row.p99_us),
                of(|row| row.cpu_us),
            );
        }
    }
    let times = (seconds * 2000.0) as usize;
    let mut ios: [(&str, Vec<Moved>); 2] = [("Linux AIO", vec![]), ("io_uring", vec![])];
    for _ in 0..rounds {
        ios[0].1.push(moved_aio(&path, times));
        ios[1].1.push(moved_uring(&path, times));
    }
    for (name, rows) in ios {
        let of = |f: fn(&Moved) -> f64| median(rows.iter().map(f).collect());
        println!(
            "moved in flight:  {name:9} p50 {:>6.1} us  p99 {:>6.1} us from submission to the new core; old core awake {:>6.2} us",
            of(|row| row.p50_us),
            of(|row| row.p99_us),
            of(|row| row.awake_us),
        );
    }
}
