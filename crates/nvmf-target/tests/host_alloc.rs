//! Nothing is allocated on the way of a request, neither in the target nor in the host that drives it: a counting
//! allocator sees no call over a million I/Os in the steady state.

mod host_support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use host_support::{base, target};
use pilotlight_host::load::{LoadSpec, run};
use pilotlight_nvme::pdu::Digests;

/// Counts what the system's allocator is asked for.
struct Counting;

static CALLS: AtomicU64 = AtomicU64::new(0);

/// One call, unless it is the test harness's, which has the process's first thread.
fn count() {
    // SAFETY: both only ask the kernel for a number.
    let harness = unsafe { libc::gettid() == libc::getpid() };
    if !harness {
        CALLS.fetch_add(1, Relaxed);
    }
}

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Allocations, in the whole process, from `warm` I/Os on until `ios` more are done.
fn allocations(digests: Digests, spec: &LoadSpec, warm: u64, ios: u64) -> u64 {
    let target = target(1, 16_384, 4096, |memory| memory);
    let mut options = target.options();
    options.handshake.digests = digests;
    let stop = AtomicBool::new(false);
    let (mut from, mut to): (Option<(u64, u64)>, Option<u64>) = (None, None);
    run(&options, spec, &stop, &mut |progress| {
        let calls = CALLS.load(Relaxed);
        match from {
            None if progress.ios >= warm => from = Some((progress.ios, calls)),
            Some((first, _)) if to.is_none() && progress.ios >= first + ios => {
                to = Some(calls);
                stop.store(true, Relaxed);
            }
            _ => {}
        }
    })
    .expect("the run ends well");
    target.stop();
    to.expect("enough I/Os") - from.expect("a steady state").1
}

#[test]
fn a_million_ios_allocate_nothing() {
    let none = Digests::default();
    let both = Digests { header: true, data: true };
    let patience = Some(600_000_000_000);
    let base = LoadSpec { runtime_ns: patience, depth: 64, read_percent: 70, ..base() };
    // small writes go in the capsule, large ones after an R2T
    assert_eq!(allocations(none, &base, 200_000, 1_000_000), 0, "4 KiB");
    let large = LoadSpec { block_bytes: 65536, flush_every: 10, ..base.clone() };
    assert_eq!(allocations(none, &large, 5_000, 20_000), 0, "64 KiB");
    assert_eq!(allocations(both, &large, 5_000, 20_000), 0, "64 KiB with digests");
    let verified = LoadSpec { verify: true, trim_percent: 20, ..base };
    assert_eq!(allocations(none, &verified, 50_000, 100_000), 0, "verified");
}
