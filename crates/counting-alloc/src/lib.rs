//! A global allocator that counts allocations, for tests.
//!
//! A test declares it with `#[global_allocator]`. The test harness runs on the first thread of the process, which [`calls`] does not
//! count. Releases are not counted as calls.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};

/// Maximum number of threads of [`count_only`].
pub const MAX_THREADS: usize = 4;

/// The system's allocator with counters.
#[derive(Debug)]
pub struct CountingAlloc;

static CALLS: AtomicU64 = AtomicU64::new(0);
static IS_RESTRICTED: AtomicBool = AtomicBool::new(false);
/// Thread IDs to count; 0 for none.
static THREADS: [AtomicI32; MAX_THREADS] = [const { AtomicI32::new(0) }; MAX_THREADS];

thread_local! {
    static THREAD_CALLS: Cell<u64> = const { Cell::new(0) };
    static THREAD_BYTES: Cell<i64> = const { Cell::new(0) };
}

/// Allocations and reallocations of all threads but the first, or of those of [`count_only`].
#[must_use]
pub fn calls() -> u64 {
    CALLS.load(Relaxed)
}

/// Restricts [`calls`] to threads with these IDs from now on.
///
/// # Panics
/// If there are more than [`MAX_THREADS`].
pub fn count_only(threads: &[i32]) {
    assert!(threads.len() <= MAX_THREADS, "at most {MAX_THREADS} threads");
    for (at, slot) in THREADS.iter().enumerate() {
        slot.store(threads.get(at).copied().unwrap_or(0), Relaxed);
    }
    IS_RESTRICTED.store(true, Relaxed);
}

/// Allocations and reallocations of the calling thread.
#[must_use]
pub fn thread_calls() -> u64 {
    THREAD_CALLS.with(Cell::get)
}

/// Bytes that the calling thread has allocated, less those that it has released.
#[must_use]
pub fn thread_bytes() -> i64 {
    THREAD_BYTES.with(Cell::get)
}

fn add_bytes(bytes: i64) {
    let _ = THREAD_BYTES.try_with(|total| total.set(total.get() + bytes)); // none at the end of a thread
}

fn add_call(bytes: i64) {
    add_bytes(bytes);
    let _ = THREAD_CALLS.try_with(|calls| calls.set(calls.get() + 1));
    let thread = rustix::thread::gettid();
    let is_counted = if IS_RESTRICTED.load(Relaxed) {
        THREADS.iter().any(|counted| counted.load(Relaxed) == thread.as_raw_nonzero().get())
    } else {
        thread != rustix::process::getpid()
    };
    if is_counted {
        CALLS.fetch_add(1, Relaxed);
    }
}

// SAFETY: every call is passed unchanged to the system's allocator, which fulfils the contract.
unsafe impl GlobalAlloc for CountingAlloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add_call(layout.size() as i64);
        // SAFETY: the caller fulfils the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        add_bytes(-(layout.size() as i64));
        // SAFETY: the caller fulfils the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add_call(size as i64 - layout.size() as i64);
        // SAFETY: the caller fulfils the contract of `realloc`.
        unsafe { System.realloc(memory, layout, size) }
    }
}
