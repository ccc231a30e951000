//! Compare-and-write: its result, and that it is atomic across threads.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::{IoError, Op, Random};
use super::{Driver, Subject, ok};

const THREADS: u64 = 4;
/// The block that all threads change, with blocks of its page around it where a page has several.
const BLOCK: u64 = 3;
const BLOCKS: u64 = 9;

/// Compares `blocks` blocks at `lba` with `expected`, and writes `data`.
fn swap(driver: &mut Driver, lba: u64, expected: &[u8], data: &[u8], fua: bool) -> Result<(), IoError> {
    let blocks = (expected.len() / driver.block_size()) as u32;
    driver.run(Op::CompareAndWrite { fua }, lba, blocks, Some(&[expected, data].concat())).map(drop)
}

pub(super) fn writes_if_equal(subject: &Subject<'_>, block_size: u32) {
    let backend = (subject.create)(block_size, 64);
    let mut driver = Driver::open(&*backend, 8);
    let size = block_size as usize;
    for (lba, blocks, fua) in [(0, 1, false), (5, 1, true), (7, 2, false), (9, 16, true), (63, 1, false)] {
        let (zeroes, ones, twos) = (vec![0; blocks * size], vec![1; blocks * size], vec![2; blocks * size]);
        assert_eq!(swap(&mut driver, lba, &ones, &twos, fua).unwrap_err(), IoError::Miscompare, "unwritten blocks");
        ok(swap(&mut driver, lba, &zeroes, &ones, fua));
        if !subject.stores {
            continue;
        }
        assert_eq!(ok(driver.read(lba, blocks as u32)), ones);
        assert_eq!(swap(&mut driver, lba, &zeroes, &twos, fua).unwrap_err(), IoError::Miscompare);
        for at in [0, blocks * size / 2, blocks * size - 1] {
            let mut different = ones.clone();
            different[at] = 3;
            assert_eq!(swap(&mut driver, lba, &different, &twos, fua).unwrap_err(), IoError::Miscompare, "byte {at}");
            assert_eq!(ok(driver.read(lba, blocks as u32)), ones, "nothing is written");
        }
        ok(swap(&mut driver, lba, &ones, &twos, fua));
        assert_eq!(ok(driver.read(lba, blocks as u32)), twos);
        ok(driver.run(Op::WriteZeroes { fua: false, deallocate: true }, lba, blocks as u32, None));
    }
}

/// A block of this value, the same in each word, so that a torn one is detected.
fn block_of(value: u64, block_size: u32) -> Vec<u8> {
    value.to_le_bytes().repeat(block_size as usize / 8)
}

fn value_of(block: &[u8]) -> u64 {
    let words = block.chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
    let first = words.clone().next().expect("a block is not empty");
    assert!(words.clone().all(|word| word == first), "a torn block: {:x?}", words.collect::<Vec<_>>());
    first
}

/// The final value is the number of successes, whatever other threads read, and write to the blocks around it.
pub(super) fn counts(subject: &Subject<'_>, block_size: u32) {
    if !subject.stores {
        return;
    }
    let backend = (subject.create)(block_size, BLOCKS);
    let successes = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (backend, successes) = (&*backend, &successes);
            scope.spawn(move || {
                let mut driver = Driver::open(backend, 8);
                let mut random = Random::new(subject.seed + thread);
                for _ in 0..subject.requests / 4 {
                    let seen = value_of(&ok(driver.read(BLOCK, 1)));
                    let (before, after) = (block_of(seen, block_size), block_of(seen + 1, block_size));
                    match swap(&mut driver, BLOCK, &before, &after, random.one_in(16)) {
                        Ok(()) => drop(successes.fetch_add(1, Ordering::SeqCst)),
                        Err(error) => assert_eq!(error, IoError::Miscompare),
                    }
                    let around = [BLOCK - 1, BLOCK + 1][random.below(2) as usize];
                    ok(driver.write(around, &block_of(seen, block_size)));
                }
            });
        }
    });
    let last = value_of(&ok(Driver::open(&*backend, 2).read(BLOCK, 1)));
    assert_eq!(last, successes.into_inner(), "an increment was lost");
    assert!(last >= u64::from(subject.requests / 4), "one of the threads always succeeds");
}

/// Every written value is different, and plain writes replace values too: two compare-and-writes that replace the same value were not
/// atomic.
pub(super) fn replaces_once(subject: &Subject<'_>, block_size: u32) {
    if !subject.stores {
        return;
    }
    let backend = (subject.create)(block_size, BLOCKS);
    let mut replaced = HashSet::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=THREADS)
            .map(|thread| {
                let backend = &*backend;
                scope.spawn(move || {
                    let mut driver = Driver::open(backend, 8);
                    let mut random = Random::new(subject.seed + thread);
                    let mut own = Vec::new();
                    for number in 0..u64::from(subject.requests / 4) {
                        let new = block_of(number << 8 | thread, block_size);
                        if random.one_in(4) {
                            ok(driver.write(BLOCK, &new));
                            continue;
                        }
                        let seen = value_of(&ok(driver.read(BLOCK, 1)));
                        if swap(&mut driver, BLOCK, &block_of(seen, block_size), &new, false).is_ok() {
                            own.push(seen);
                        }
                    }
                    own
                })
            })
            .collect();
        for value in threads.into_iter().flat_map(|thread| thread.join().expect("no panic")) {
            assert!(replaced.insert(value), "{value:x} was replaced twice");
        }
    });
    assert!(!replaced.is_empty());
}
