//! Cost of backends: buffers, and reads and writes of 4 KiB.
//!
//! `cargo bench -p pilotlight-storage --bench backend`. Addresses of the memory backend are random over 256 MiB, more than
//! the caches, and over 1 MiB, which shows its own cost. Plain copies over the same addresses are the lower bound of a read.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pilotlight_storage::buffer::BufferPool;
use pilotlight_storage::{
    Backend, Completion, FileBackend, FileOptions, MemoryBackend, MemoryBudget, NullBackend, Op, Random, Request,
    Submitted,
};

const BLOCK: usize = 4096;
const LARGE: u64 = (256 << 20) / BLOCK as u64;
const SMALL: u64 = (1 << 20) / BLOCK as u64;

/// Allocation and release of a buffer, without and with other buffers in use.
fn buffers(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("buffer");
    for out in [0, 100] {
        let mut pool = BufferPool::new(64 << 20).expect("memory");
        let mut held: Vec<_> = (0..out).map(|_| pool.alloc(BLOCK).expect("memory")).collect();
        group.bench_function(format!("alloc and free 4 KiB, {out} in use"), |bencher| {
            let mut oldest = 0;
            bencher.iter(|| {
                let mut buffer = pool.alloc(black_box(BLOCK)).expect("memory");
                if let Some(slot) = held.get_mut(oldest) {
                    std::mem::swap(slot, &mut buffer);
                    oldest = (oldest + 1) % out;
                }
                pool.free(buffer);
            });
        });
        held.into_iter().for_each(|buffer| pool.free(buffer));
    }
}

/// A copy of 4 KiB from random addresses, the reference for reads.
fn bare_copies(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("bare");
    group.throughput(Throughput::Bytes(BLOCK as u64));
    for blocks in [LARGE, SMALL] {
        let source = vec![1_u8; blocks as usize * BLOCK];
        let mut target = vec![0_u8; BLOCK];
        let mut random = Random::new(1);
        group.bench_function(format!("copy 4 KiB of {} MiB", blocks >> 8), |bencher| {
            bencher.iter(|| {
                let start = random.below(blocks) as usize * BLOCK;
                target.copy_from_slice(&source[start..start + BLOCK]);
                black_box(&mut target);
            });
        });
    }
}

/// Reads and writes of one block at random addresses, one at a time.
fn requests(criterion: &mut Criterion, name: &str, backend: &dyn Backend) {
    let blocks = backend.geometry().blocks;
    let mut group = criterion.benchmark_group(format!("{name}, {} MiB", blocks >> 8));
    group.throughput(Throughput::Bytes(BLOCK as u64));
    let mut channel = backend.open_channel(32).expect("a channel");
    let mut pool = BufferPool::new(1 << 20).expect("memory");
    let mut done: Vec<Completion> = Vec::with_capacity(32);
    let mut random = Random::new(1);
    let mut run = |op: Op, lba: u64| {
        let buffer = Some(pool.alloc(BLOCK).expect("memory"));
        let completion = match channel.submit(Request { tag: 1, op, lba, blocks: 1, buffer }, 0) {
            Submitted::Done(completion) => completion,
            Submitted::Pending => loop {
                channel.poll(0, &mut done);
                if let Some(completion) = done.pop() {
                    break completion;
                }
            },
            Submitted::Busy(_) => unreachable!("one request at a time"),
        };
        completion.result.expect("works");
        pool.free(completion.buffer.expect("the buffer comes back"));
    };
    (0..blocks).for_each(|lba| run(Op::Write { fua: false }, lba));
    group.bench_function("read 4 KiB", |bencher| bencher.iter(|| run(Op::Read, random.below(blocks))));
    group.bench_function("write 4 KiB", |bencher| {
        bencher.iter(|| run(Op::Write { fua: false }, random.below(blocks)));
    });
}

fn memory(criterion: &mut Criterion) {
    for blocks in [LARGE, SMALL] {
        let backend = MemoryBackend::new(BLOCK as u32, blocks, Arc::new(MemoryBudget::unlimited())).expect("memory");
        requests(criterion, "memory", &backend);
    }
}

fn null(criterion: &mut Criterion) {
    requests(criterion, "null", &NullBackend::new(BLOCK as u32, SMALL).expect("valid"));
}

fn tmpfs(criterion: &mut Criterion) {
    let Ok(dir) = tempfile::TempDir::new_in("/dev/shm") else {
        return println!("skipped: no tmpfs at /dev/shm");
    };
    let options = FileOptions {
        path: dir.path().join("disk"),
        block_size: BLOCK as u32,
        size: Some(SMALL * BLOCK as u64),
        is_read_only: false,
    };
    requests(criterion, "tmpfs", &FileBackend::open(&options).expect("opens"));
}

criterion_group! {
    name = benches;
    config = Criterion::default().warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    targets = buffers, bare_copies, memory, null, tmpfs
}
criterion_main!(benches);
