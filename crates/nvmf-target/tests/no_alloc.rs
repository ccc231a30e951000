//! Reactor threads allocate no memory for requests: no allocation in more than a million I/Os in the steady state.
//!
//! `host_alloc.rs` counts the whole process under a mixed load. Here the host may allocate, so that other cases are covered: several
//! reactors and queues, several R2Ts per command, a bandwidth cap, SQ flow control, data alignment, late completions out of order,
//! and failures.
//!
//! Verified to fail: with a `Box` in `Connection::step`, "4 KiB reads: 513902 allocations on reactor threads in 513870 I/Os"; with a
//! vector of one byte per 64 KiB in `Connection::complete`, "64 KiB in several R2Ts: 5298 allocations ... in 11272 I/Os".

mod host_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use host_support::{NQN, Target, base, target};
use pilotlight_counting_alloc::{CountingAlloc, calls, count_only};
use pilotlight_host::load::{LoadSpec, run};
use pilotlight_host::{Buffers, ConnectOptions, Controller, Handshake, QueueSpec};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::opcode;
use pilotlight_nvme::pdu::Digests;
use pilotlight_nvmf_target::FailureCount;
use pilotlight_nvmf_target::Operation;
use pilotlight_nvmf_target::{Capped, NamespaceFailures};
use pilotlight_storage::{Backend, DelayBackend, Delays, MemoryBackend, MemoryBudget};

#[global_allocator]
static ALLOCATOR: CountingAlloc = CountingAlloc;

/// Completed I/Os and counted allocations.
type Reading = (u64, u64);

/// Restricts the counter to the reactor threads of this process. Returns their number.
fn count_reactors() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("this is Linux");
    let is_reactor = |task: &std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with("reactor-"))
    };
    let reactors = tasks.flatten().filter(is_reactor);
    let ids: Vec<i32> = reactors.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect();
    count_only(&ids);
    ids.len()
}

/// Runs `spec` until `ios` I/Os have completed after a warm-up, without an allocation. Returns their number.
fn check(name: &str, target: &Target, options: &ConnectOptions, spec: &LoadSpec, ios: u64) -> u64 {
    let stop = AtomicBool::new(false);
    let (mut from, mut to): (Option<Reading>, Option<Reading>) = (None, None);
    let spec = LoadSpec { runtime_ns: Some(600_000_000_000), ..spec.clone() };
    assert!(count_reactors() > 0, "no reactor runs");
    let before = calls();
    run(options, &spec, &stop, &mut |progress| {
        let now = (progress.ios, calls());
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
    assert!(calls() > before, "{name}: allocations of Connect are not counted");
    let (done, calls) = (to.0 - from.0, to.1 - from.1);
    assert_eq!(calls, 0, "{name}: {calls} allocations on reactor threads in {done} I/Os");
    assert!(target.server.stats().totals.faults == 0);
    done
}

#[test]
fn reactors_do_not_allocate_in_the_steady_state() {
    let one = target(1, 16_384, 4096, |memory| memory);
    let options = one.options();
    let spec = LoadSpec { depth: 32, ..base() };
    let mut done = check("4 KiB reads", &one, &options, &spec, 500_000);
    done += check("4 KiB writes", &one, &options, &LoadSpec { read_percent: 0, ..spec.clone() }, 500_000);

    let mut all_features = options.clone();
    all_features.disable_sq_flow = false;
    all_features.handshake = Handshake { digests: Digests { header: true, data: true }, hpda: 31, max_r2t: 4 };
    let mixed = LoadSpec { read_percent: 50, jobs: 2, ..spec };
    let large = LoadSpec { block_bytes: 65_536, flush_every: 10, ..mixed.clone() };
    done += check("64 KiB in several R2Ts", &one, &all_features, &large, 10_000);
    one.server.set_cap(&Capped::Namespace { nqn: NQN.into(), nsid: 1 }, Some(200_000_000)).expect("a cap");
    done += check("throttled", &one, &all_features, &large, 2_000);
    assert!(one.server.stats().caps.iter().any(|cap| cap.stats.throttled > 0), "the cap throttles");
    one.stop();

    let delays = Delays { shortest_ns: 0, longest_ns: 200_000, seed: 1 };
    let late = target(2, 16_384, 4096, move |memory| Arc::new(DelayBackend::new(memory, delays)));
    let trims = LoadSpec { trim_percent: 20, ..mixed };
    done += check("two reactors, late completions", &late, &late.options(), &trims, 20_000);
    late.stop();
    failed_commands_are_counted_without_allocation();
    assert!(done >= 1_000_000, "{done} I/Os");
}

/// A medium without free space: every write fails and is counted.
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
    assert!(count_reactors() > 0, "no reactor runs");
    let mut from = 0;
    for number in 0..FAILED {
        if number == FAILED / 10 {
            from = calls();
        }
        let write = Sqe::block_io(opcode::io::WRITE, 1, number, 1);
        queue.execute("a write", write, &[1; 4096], &mut []).expect_err("a write without free space fails");
    }
    let allocations = calls() - from;
    assert_eq!(allocations, 0, "failed writes: {allocations} allocations on reactor threads");
    let failures = full.server.stats().failures;
    let counted = FailureCount { status: "Capacity Exceeded", cause: "", commands: FAILED };
    let mut by_operation = [0; Operation::ALL.len()];
    by_operation[Operation::Write as usize] = FAILED;
    assert_eq!(failures, [NamespaceFailures { nqn: NQN.into(), nsid: 1, counts: vec![counted], by_operation }]);
    drop((queue, host));
    full.stop();
}
