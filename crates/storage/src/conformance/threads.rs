//! Blocks are atomic across threads: writers write uniform blocks, and every read block must be uniform.

use std::sync::atomic::{AtomicU64, Ordering};

use super::super::{Op, Random};
use super::{Driver, Subject, ok};

const THREADS: usize = 4;
/// Few blocks, so that threads collide; several pages at either block size.
const BLOCKS: u64 = 24;

pub(super) fn atomic_blocks(subject: &Subject<'_>, block_size: u32) {
    let backend = (subject.create)(block_size, BLOCKS + 1);
    // The newest generation that each thread may have written.
    let newest: Vec<_> = (0..THREADS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (backend, newest) = (&*backend, &newest[..]);
            scope.spawn(move || {
                let mut driver = Driver::open(backend, 16);
                let mut random = Random::new(subject.seed + thread as u64);
                let mut reads = Vec::new();
                for _ in 0..subject.requests {
                    let tag = start_one(&mut driver, &mut random, thread, newest, block_size as usize);
                    reads.extend(tag);
                    if reads.len() >= 4 {
                        let tag = reads.swap_remove(random.below(4) as usize);
                        check_blocks(&ok(driver.wait(tag)), block_size as usize, newest);
                    }
                }
                reads.into_iter().for_each(|tag| check_blocks(&ok(driver.wait(tag)), block_size as usize, newest));
            });
        }
    });
}

/// Starts a random request and returns its tag if it is a read.
fn start_one(
    driver: &mut Driver,
    random: &mut Random,
    thread: usize,
    newest: &[AtomicU64],
    block_size: usize,
) -> Option<u64> {
    let blocks = 1 + random.below(6);
    let lba = random.below(BLOCKS - blocks + 1);
    match random.below(16) {
        0 => driver.submit(Op::WriteZeroes { fua: false, deallocate: random.one_in(2) }, lba, blocks as u32, None),
        1..8 => {
            let generation = newest[thread].fetch_add(1, Ordering::SeqCst) + 1;
            let word = generation << 8 | (thread as u64 + 1);
            let data = word.to_le_bytes().repeat(blocks as usize * block_size / 8);
            driver.submit(Op::Write { fua: random.one_in(16) }, lba, blocks as u32, Some(&data))
        }
        _ => return Some(driver.submit(Op::Read, lba, blocks as u32, None)),
    };
    None
}

/// Each block must be uniform: zeroes, or a generation that its thread has reached.
fn check_blocks(data: &[u8], block_size: usize, newest: &[AtomicU64]) {
    for block in data.chunks(block_size) {
        let words = block.chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
        let first = words.clone().next().expect("blocks are not empty");
        assert!(words.clone().all(|word| word == first), "a torn block: {:x?}", words.collect::<Vec<_>>());
        let (thread, generation) = ((first & 0xff) as usize, first >> 8);
        if first != 0 {
            let newest = newest.get(thread.wrapping_sub(1)).expect("some thread's number").load(Ordering::SeqCst);
            assert!(generation <= newest, "thread {thread} has not written generation {generation} yet");
        }
    }
}
