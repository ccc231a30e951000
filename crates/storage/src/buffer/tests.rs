//! The pool against an oracle: a list of allocated pages.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::Random;

/// The oracle: whether each page is allocated.
struct Oracle {
    taken: Vec<bool>,
}

impl Oracle {
    fn new(bytes: usize) -> Self {
        Self { taken: vec![false; bytes / MIN_BUFFER] }
    }

    /// Whether a block for `len` bytes is free.
    fn can_serve(&self, len: usize) -> bool {
        let block = len.max(1).next_power_of_two().max(MIN_BUFFER) / MIN_BUFFER;
        len <= MAX_BUFFER && self.taken.chunks_exact(block).any(|pages| !pages.contains(&true))
    }

    fn set(&mut self, pages: std::ops::Range<usize>, taken: bool) {
        for page in pages {
            assert_ne!(self.taken[page], taken, "page {page} allocated or freed twice");
            self.taken[page] = taken;
        }
    }

    fn free_bytes(&self) -> usize {
        self.taken.iter().filter(|&&taken| !taken).count() * MIN_BUFFER
    }
}

fn pages_of(pool: &BufferPool, buffer: &Buffer) -> std::ops::Range<usize> {
    let offset = buffer.as_ptr().addr() - pool.arena.base().as_ptr().addr();
    assert_eq!(offset % buffer.capacity(), 0, "a block starts at a multiple of its size");
    offset / MIN_BUFFER..(offset + buffer.capacity()) / MIN_BUFFER
}

#[derive(Clone, Debug)]
enum Step {
    Alloc(usize),
    Free(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Alloc(MIN_BUFFER)),
        3 => (0..=MAX_BUFFER + 1).prop_map(Step::Alloc),
        1 => Just(Step::Alloc(MAX_BUFFER)),
        5 => any::<usize>().prop_map(Step::Free),
    ]
}

proptest! {
    #[test]
    fn agrees_with_the_oracle(bytes in MIN_BUFFER..5 * MAX_BUFFER, steps in prop::collection::vec(step(), 1..300)) {
        let mut pool = BufferPool::new(bytes).expect("memory");
        let mut oracle = Oracle::new(bytes);
        let mut live: BTreeMap<u64, Buffer> = BTreeMap::new();
        let mut serial = 0;
        for step in steps {
            match step {
                Step::Alloc(len) => {
                    let buffer = pool.alloc(len);
                    assert_eq!(buffer.is_some(), oracle.can_serve(len), "{len} bytes");
                    let Some(mut buffer) = buffer else { continue };
                    assert_eq!(buffer.len(), len);
                    oracle.set(pages_of(&pool, &buffer), true);
                    serial += 1;
                    buffer.fill(serial as u8);
                    live.insert(serial, buffer);
                }
                Step::Free(which) if !live.is_empty() => {
                    let key = *live.keys().nth(which % live.len()).expect("not empty");
                    let buffer = live.remove(&key).expect("live");
                    assert!(buffer.iter().all(|&byte| byte == key as u8), "the buffer was overwritten");
                    oracle.set(pages_of(&pool, &buffer), false);
                    pool.free(buffer);
                }
                Step::Free(_) => {}
            }
            assert_eq!(pool.available_bytes(), oracle.free_bytes());
            assert_eq!(pool.outstanding(), live.len());
        }
        for buffer in live.into_values() {
            pool.free(buffer);
        }
        assert_eq!(pool.available_bytes(), pool.capacity_bytes());
        assert_eq!(pool.outstanding(), 0);
    }
}

#[test]
fn bit_operations_agree_with_counting() {
    let mut random = Random::new(1);
    for round in 0..20_000 {
        let bits = random.next_u64();
        // Sparse, dense and in between.
        let free = match round % 3 {
            0 => bits as u32,
            1 => (bits >> 32) as u32 | bits as u32,
            _ => bits as u32 | 0x00ff_0000,
        };
        let mut largest = FULL;
        for order in 0..ORDERS {
            let size = 1usize << order;
            let naive = (0..32).step_by(size).filter(|&page| (page..page + size).all(|bit| free >> bit & 1 == 1));
            let naive = naive.fold(0u32, |bits, page| bits | 1 << page);
            assert_eq!(free_blocks(free, order), naive, "{free:#034b} order {order}");
            if naive != 0 {
                largest = order as u8;
            }
        }
        assert_eq!(largest_order(free), largest, "{free:#034b}");
    }
}

#[test]
fn lengths_and_alignment() {
    let mut pool = BufferPool::new(4 * MAX_BUFFER).expect("memory");
    for (len, capacity) in
        [(0, 4096), (1, 4096), (4096, 4096), (4097, 8192), (20_000, 32_768), (MAX_BUFFER, MAX_BUFFER)]
    {
        let mut buffer = pool.alloc(len).expect("free memory");
        assert_eq!((buffer.len(), buffer.capacity()), (len, capacity));
        assert_eq!(buffer.as_ptr().align_offset(MIN_BUFFER), 0);
        assert_eq!(buffer.as_mut_ptr().cast_const(), buffer.as_ptr());
        assert_eq!(pool.available_bytes(), pool.capacity_bytes() - capacity);
        pool.free(buffer);
    }
    assert!(pool.alloc(MAX_BUFFER + 1).is_none());
    assert!(pool.alloc(usize::MAX).is_none());
}

#[test]
fn pool_sizes_are_rounded_or_refused() {
    assert_eq!(BufferPool::new(0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(BufferPool::new(4095).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(BufferPool::new(usize::MAX).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    let mut pool = BufferPool::new(3 * 4096 + 5).expect("memory");
    assert_eq!(pool.capacity_bytes(), 3 * 4096);
    assert!(pool.alloc(16_384).is_none(), "the chunk has three pages only");
    let pair = pool.alloc(8192).expect("two pages");
    let single = pool.alloc(1).expect("the third");
    assert!(pool.alloc(1).is_none());
    pool.free(pair);
    pool.free(single);
}

#[test]
fn the_most_recently_freed_memory_is_reused_first() {
    let mut pool = BufferPool::new(64 * MAX_BUFFER).expect("memory");
    let buffer = pool.alloc(4096).expect("free memory");
    let first = buffer.as_ptr();
    pool.free(buffer);
    for _ in 0..100 {
        let buffer = pool.alloc(4096).expect("free memory");
        assert_eq!(buffer.as_ptr(), first);
        pool.free(buffer);
    }
}

#[test]
fn small_buffers_share_a_chunk() {
    let mut pool = BufferPool::new(4 * MAX_BUFFER).expect("memory");
    let small: Vec<_> = (0..32).map(|_| pool.alloc(4096).expect("free memory")).collect();
    let large: Vec<_> = (0..3).map(|_| pool.alloc(MAX_BUFFER).expect("small ones share one chunk")).collect();
    assert!(pool.alloc(1).is_none());
    small.into_iter().chain(large).for_each(|buffer| pool.free(buffer));
}

#[test]
fn a_dropped_buffer_panics_and_its_memory_stays_valid() {
    let mut pool = BufferPool::new(MAX_BUFFER).expect("memory");
    let buffer = pool.alloc(4096).expect("free memory");
    let address = buffer.as_ptr();
    let lost = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || drop(buffer)));
    let message = *lost.unwrap_err().downcast::<String>().expect("a message");
    assert!(message.contains("return it with BufferPool::free"), "{message}");
    assert_eq!(pool.outstanding(), 1);
    drop(pool);
    // SAFETY: the pool left its arena mapped because a buffer was outstanding. (Otherwise this read faults.)
    assert_eq!(unsafe { address.read_volatile() }, 0);
}

#[test]
fn a_buffer_may_outlive_its_pool() {
    let mut pool = BufferPool::new(MAX_BUFFER).expect("memory");
    let mut buffer = pool.alloc(5000).expect("free memory");
    drop(pool);
    buffer.fill(0xa5);
    assert!(buffer.iter().all(|&byte| byte == 0xa5));
    let _lost_on_purpose = ManuallyDrop::new(buffer);
}

#[test]
#[should_panic(expected = "freed to another pool")]
fn a_buffer_of_another_pool_is_refused() {
    let mut mine = BufferPool::new(MAX_BUFFER).expect("memory");
    let mut other = BufferPool::new(MAX_BUFFER).expect("memory");
    let buffer = other.alloc(1).expect("free memory");
    mine.free(buffer);
}

#[test]
fn buffers_move_between_threads() {
    let mut pool = BufferPool::new(MAX_BUFFER).expect("memory");
    let mut buffer = pool.alloc(4096).expect("free memory");
    let buffer = std::thread::spawn(move || {
        buffer.fill(9);
        buffer
    })
    .join()
    .expect("no panic");
    assert_eq!(buffer[4095], 9);
    pool.free(buffer);
}
