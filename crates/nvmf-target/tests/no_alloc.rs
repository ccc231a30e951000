//! The request path allocates nothing on reactor threads, in whatever shape requests come: a counting allocator looks at
//! the reactors alone, over more than a million I/Os in the steady state.
//!
//! `host_alloc.rs` counts the whole process, which host and target share, over mixed load. Here the host may allocate, so
//! that shapes are covered which cost it something: several reactors and queues, several R2Ts a command, a bandwidth cap, SQ flow control,
//! alignment of data, a backend that answers late and out of order, one that fails.
//!
//! Seen to fail: with a `Box` in `Connection::step`, "4 KiB reads: 513902 allocations on reactor threads in 513870 I/Os";
//! with a vector of one byte per 64 KiB in `Connection::complete`, "64 KiB in several R2Ts: 5298 allocations ... in 11272
//! I/Os", the shapes before it passing.

mod host_support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};

use host_support::{NQN, Target, base, target};
use pilotlight_host::load::{LoadSpec, run};
use pilotlight_host::{Buffers, ConnectOptions, Controller, Handshake, QueueSpec};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::opcode;
use pilotlight_nvme::pdu::Digests;
use pilotlight_nvmf_target::backend::{Backend, DelayBackend, Delays, MemoryBackend, MemoryBudget};
use pilotlight_nvmf_target::failures::FailureCount;
use pilotlight_nvmf_target::usage::Operation;
use pilotlight_nvmf_target::{Capped, NamespaceFailures};

/// Counts the calls of reactor threads.
struct Counting;

static CALLS: AtomicU64 = AtomicU64::new(0);
/// Thread identifiers of reactors; 0 for none.
static REACTORS: [AtomicI32; 4] = [const { AtomicI32::new(0) }; 4];

fn count() {
    // SAFETY: it only asks the kernel for a number.
    let this = unsafe { libc::gettid() };
    if REACTORS.iter().any(|reactor| reactor.load(Relaxed) == this) {
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

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// I/Os done and allocations counted.
type Reading = (u64, u64);

/// Finds the reactors among this process's threads; returns how many there are.
fn watch_reactors() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("this is Linux");
    let is_reactor = |task: &std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with("reactor-"))
    };
    let reactors = tasks.flatten().filter(is_reactor);
    let ids: Vec<i32> = reactors.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect();
    for (slot, at) in REACTORS.iter().zip(0..) {
        slot.store(ids.get(at).copied().unwrap_or(0), Relaxed);
    }
    ids.len()
}

/// Runs `spec` on `target` until `ios` I/Os have been done after a warm-up; nothing may be allocated meanwhile. Returns how
/// many there were.
fn check(name: &str, target: &Target, options: &ConnectOptions, spec: &LoadSpec, ios: u64) -> u64 {
    let stop = AtomicBool::new(false);
    let (mut from, mut to): (Option<Reading>, Option<Reading>) = (None, None);
    let spec = LoadSpec { runtime_ns: Some(600_000_000_000), ..spec.clone() };
    assert!(watch_reactors() > 0, "no reactor runs");
    let before = CALLS.load(Relaxed);
    run(options, &spec, &stop, &mut |progress| {
        let now = (progress.ios, CALLS.load(Relaxed));
        match from {
            None if progress.ios >= ios / 10 => from = Some(now),
            Some((first, _)) if to.is_none() && progress.ios >= first + ios => {
                to = Some(now);
                stop.store(true, Relaxed);
            }
            _ => {}
        }
    })
    .expect("the run ends well");
    let (from, to) = (from.expect("a warm-up"), to.expect("enough I/Os"));
    assert!(CALLS.load(Relaxed) > before, "{name}: connecting allocates, and was not counted");
    let (done, calls) = (to.0 - from.0, to.1 - from.1);
    assert_eq!(calls, 0, "{name}: {calls} allocations on reactor threads in {done} I/Os");
    assert!(target.server.stats().totals.faults == 0);
    done
}

#[test]
fn reactors_allocate_nothing_in_the_steady_state() {
    let one = target(1, 16_384, 4096, |memory| memory);
    let options = one.options();
    let spec = LoadSpec { depth: 32, ..base() };
    let mut done = check("4 KiB reads", &one, &options, &spec, 500_000);
    done += check("4 KiB writes", &one, &options, &LoadSpec { read_percent: 0, ..spec.clone() }, 500_000);

    let mut fine_print = options.clone();
    fine_print.disable_sq_flow = false;
    fine_print.handshake = Handshake { digests: Digests { header: true, data: true }, hpda: 31, max_r2t: 4 };
    let mixed = LoadSpec { read_percent: 50, jobs: 2, ..spec };
    let large = LoadSpec { block_bytes: 65_536, flush_every: 10, ..mixed.clone() };
    done += check("64 KiB in several R2Ts", &one, &fine_print, &large, 10_000);
    one.server.set_cap(&Capped::Namespace { nqn: NQN.into(), nsid: 1 }, Some(200_000_000)).expect("a cap");
    done += check("throttled", &one, &fine_print, &large, 2_000);
    assert!(one.server.stats().caps.iter().any(|cap| cap.stats.throttled > 0), "something was throttled");
    one.stop();

    let delays = Delays { shortest_ns: 0, longest_ns: 200_000, seed: 1 };
    let late = target(2, 16_384, 4096, move |memory| Arc::new(DelayBackend::new(memory, delays)));
    let trims = LoadSpec { trim_percent: 20, ..mixed };
    done += check("two reactors, late answers", &late, &late.options(), &trims, 20_000);
    late.stop();
    failed_commands_are_counted_without_allocation();
    assert!(done >= 1_000_000, "{done} I/Os");
}

/// A medium without space: every write fails, and is counted.
fn failed_commands_are_counted_without_allocation() {
    const FAILED: u64 = 2_000;
    let no_space = |_| -> Arc<dyn Backend> {
        Arc::new(MemoryBackend::new(4096, 16_384, Arc::new(MemoryBudget::new(0))).expect("address space"))
    };
    let full = target(1, 16_384, 4096, no_space);
    let mut host = Controller::connect(full.options()).expect("a controller");
    host.set_queue_count(1).expect("a queue");
    let spec = QueueSpec { qid: 1, depth: 4, max_io: 4096, buffers: Buffers::PerCommand };
    let mut queue = host.open_queue(&spec).expect("a queue");
    assert!(watch_reactors() > 0, "no reactor runs");
    let mut from = 0;
    for number in 0..FAILED {
        if number == FAILED / 10 {
            from = CALLS.load(Relaxed);
        }
        let write = Sqe::block_io(opcode::io::WRITE, 1, number, 1);
        queue.execute("a write", write, &[1; 4096], &mut []).expect_err("there is no space");
    }
    let calls = CALLS.load(Relaxed) - from;
    assert_eq!(calls, 0, "failed writes: {calls} allocations on reactor threads");
    let failures = full.server.stats().failures;
    let counted = FailureCount { status: "Capacity Exceeded", cause: "", commands: FAILED };
    let mut by_operation = [0; Operation::ALL.len()];
    by_operation[Operation::Write as usize] = FAILED;
    assert_eq!(failures, [NamespaceFailures { nqn: NQN.into(), nsid: 1, counts: vec![counted], by_operation }]);
    drop((queue, host));
    full.stop();
}
