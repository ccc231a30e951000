//! Reads and writes of every backend allocate no memory in the steady state, where they are submitted; threads for blocking calls do
//! only when they start. One test, because a counter is global.

use std::path::Path;
use std::sync::Arc;

use pilotlight_counting_alloc::{CountingAlloc, calls, thread_calls};
use pilotlight_storage::buffer::BufferPool;
use pilotlight_storage::{
    Backend, BackendSpec, Channel, Completion, MemoryBudget, Op, Random, Request, Submitted, open,
};

#[global_allocator]
static ALLOCATOR: CountingAlloc = CountingAlloc;

const DEPTH: u32 = 32;
const BLOCKS: u64 = 1024;
/// Allocations of threads for blocking calls that start meanwhile: up to 64, each with less than 16.
const STARTS: u64 = 64 * 16;

/// A channel under load.
struct Load {
    channel: Box<dyn Channel>,
    pool: BufferPool,
    done: Vec<Completion>,
    random: Random,
    now_ns: u64,
    completed: u64,
}

impl Load {
    fn new(backend: &dyn Backend) -> Self {
        Self {
            channel: backend.open_channel(DEPTH).expect("a channel"),
            pool: BufferPool::new(16 << 20).expect("memory"),
            done: Vec::with_capacity(DEPTH as usize),
            random: Random::new(1),
            now_ns: 0,
            completed: 0,
        }
    }

    /// Keeps the channel full until `requests` more requests have completed.
    fn run(&mut self, requests: u64) {
        let end = self.completed + requests;
        while self.completed < end {
            self.submit();
            self.now_ns += 1_000;
            self.channel.poll(self.now_ns, &mut self.done);
            while let Some(completion) = self.done.pop() {
                self.finish(completion);
            }
        }
        while self.channel.in_flight() > 0 {
            self.channel.poll(u64::MAX / 2, &mut self.done);
            while let Some(completion) = self.done.pop() {
                self.finish(completion);
            }
        }
    }

    fn submit(&mut self) {
        let blocks = 1 << self.random.below(6);
        let lba = self.random.below(BLOCKS - blocks + 1);
        let (op, data) = match self.random.below(64) {
            0 => (Op::Flush, false),
            1 => (Op::Deallocate, false),
            2 => (Op::WriteZeroes { fua: false, deallocate: true }, false),
            3..32 => (Op::Write { fua: self.random.one_in(64) }, true),
            _ => (Op::Read, true),
        };
        let blocks = if op == Op::Flush { 0 } else { blocks as u32 };
        let buffer = data.then(|| self.pool.alloc(blocks as usize * 4096).expect("memory"));
        match self.channel.submit(Request { tag: 0, op, lba, blocks, buffer }, self.now_ns) {
            Submitted::Done(completion) => self.finish(completion),
            Submitted::Pending => {}
            Submitted::Busy(Request { buffer, .. }) => {
                if let Some(buffer) = buffer {
                    self.pool.free(buffer);
                }
            }
        }
    }

    fn finish(&mut self, completion: Completion) {
        completion.result.expect("works");
        if let Some(buffer) = completion.buffer {
            self.pool.free(buffer);
        }
        self.completed += 1;
    }
}

fn check(spec: &str, requests: u64) {
    let spec: BackendSpec = spec.parse().expect("valid");
    let backend = open(&spec, 4096, &Arc::new(MemoryBudget::unlimited())).expect("opens");
    let mut load = Load::new(&*backend);
    load.run(requests / 10);
    let before = (thread_calls(), calls());
    load.run(requests);
    let allocations = (thread_calls() - before.0, calls() - before.1);
    assert_eq!(allocations.0, 0, "{spec}: {} allocations in {requests} requests", allocations.0);
    assert!(allocations.1 <= STARTS, "{spec}: {} allocations of threads in {requests} requests", allocations.1);
}

fn check_file_in(dir: &Path, requests: u64) {
    match tempfile::TempDir::new_in(dir) {
        Ok(dir) => check(&format!("file:{}?size=4MiB", dir.path().join("disk").display()), requests),
        Err(error) => println!("skipped: {}: {error}", dir.display()),
    }
}

#[test]
fn requests_allocate_nothing() {
    let before = calls();
    drop(std::hint::black_box(Box::new(1)));
    assert!(calls() > before, "the counter works");
    check("mem:4MiB", 200_000);
    check("null:4MiB", 200_000);
    check("delay:1us-90us:mem:4MiB", 20_000);
    check_file_in(Path::new("/dev/shm"), 50_000);
    check_file_in(Path::new(env!("CARGO_TARGET_TMPDIR")), 2_000);
}
