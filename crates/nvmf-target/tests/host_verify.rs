//! Verified load: no block is lost, swapped, stale or torn, and such faults of the backend are detected.

mod host_support;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use host_support::{MS, Tamper, TamperBackend, base, load, memory_target, target, target_with, verify_spec};
use pilotlight_host::HostError;
use pilotlight_host::load::{LoadSpec, OpenLoop, run};
use pilotlight_host::schedule::{Phase, Process, Schedule};
use pilotlight_nvme::pdu::Digests;
use pilotlight_nvmf_target::Limits;
use pilotlight_nvmf_target::Totals;
use pilotlight_storage::{DelayBackend, Delays};

#[test]
fn verified_load_passes_with_all_transport_options() {
    for block_size in [512u32, 4096] {
        let target = target(1, (32 << 20) / u64::from(block_size), block_size, |memory| memory);
        for (header, data, flow_off, block_bytes, hpda, max_r2t) in [
            (false, false, true, 4096, 0, 1),
            (true, false, false, 4096, 31, 1),
            (false, true, true, 65536, 3, 3),
            (true, true, false, 131_072, 1, 3),
            (true, true, true, 8192, 0, 16),
        ] {
            let mut options = target.options();
            options.handshake.digests = Digests { header, data };
            options.handshake.hpda = hpda;
            options.handshake.max_r2t = max_r2t;
            options.disable_sq_flow = flow_off;
            let spec = LoadSpec { block_bytes, trim_percent: 20, flush_every: 40, fua: true, ..verify_spec() };
            let report = load(&options, &spec);
            assert!(report.is_clean(), "{report}");
            assert!(report.verify.expect("verified").blocks_read_back > 100, "{report}");
        }
        target.stop();
    }
}

#[test]
fn several_hosts_may_have_more_connections_than_one_controller_has_queues() {
    let limits = Limits { max_io_queues: 2, ..Limits::default() };
    let target = target_with(limits, 1, 1024, 4096, |memory| memory);
    let spec = LoadSpec { jobs: 5, ..verify_spec() };
    let refused = run(&target.options(), &spec, &AtomicBool::new(false), &mut |_| {});
    assert!(matches!(refused, Err(HostError::Unsupported(_))), "{refused:?}");
    let report = target.load(&LoadSpec { hosts: 3, ..spec });
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.total.ios, 5 * 2000, "{report}");
    target.stop();
}

#[test]
fn two_reactors_on_one_namespace_tear_no_block() {
    let target = target(2, 64, 4096, |memory| memory);
    // one thread with four queues on two reactors: blocks written through one queue are read through another
    let spec = LoadSpec { jobs: 4, depth: 8, ios: Some(10_000), ..verify_spec() };
    let report = target.load(&spec);
    assert!(report.is_clean(), "{report}");
    let stats = target.server.stats();
    for thread in &stats.threads {
        let answered = thread.totals.reads + thread.totals.writes;
        assert!(answered > 1000 && thread.latency.count() == answered, "{thread:?}");
    }
    assert_eq!(stats.threads.iter().map(|thread| thread.totals).fold(Totals::default(), |a, b| a + b), stats.totals);
    target.stop();
}

#[test]
fn delayed_completions_in_random_order_return_correct_data() {
    let delays = Delays { shortest_ns: 20_000, longest_ns: 2 * MS, seed: 1 };
    let target = target(2, 512, 4096, move |memory| Arc::new(DelayBackend::new(memory, delays)));
    let spec = LoadSpec { block_bytes: 16384, trim_percent: 10, depth: 32, ..verify_spec() };
    let report = target.load(&spec);
    assert!(report.is_clean(), "{report}");
    // Not the minimum: if a reactor is preempted in a poll, the delay counts from the beginning of the poll.
    assert!(report.total.latency.p50_ns >= 20_000, "the delays are included: {report}");
    target.stop();
}

/// A run on a tampered backend must report a fault that contains `fault`.
fn assert_detected(tamper: Tamper, fault: &str) {
    let tamper = Arc::new(tamper);
    let wrap = move |inner| Arc::new(TamperBackend { inner, tamper: Arc::clone(&tamper) }) as _;
    let target = target(1, 64, 4096, wrap);
    let report = target.load(&verify_spec());
    assert!(!report.is_clean() && report.verify.expect("verified").mismatches > 0, "not detected: {report}");
    assert!(report.faults.iter().any(|f| f.contains(fault)), "{:?}", report.faults);
    target.stop();
}

#[test]
fn a_swapped_block_is_detected() {
    // reads of block 5 return the last content of block 4
    let seen = Mutex::new(vec![0; 4096]);
    let on_read = move |lba: u64, data: &mut [u8]| {
        let mut seen = seen.lock().expect("lock");
        match lba {
            4 => seen.copy_from_slice(&data[..4096]),
            5 if seen.iter().any(|&b| b != 0) => data[..4096].copy_from_slice(&seen),
            _ => {}
        }
    };
    assert_detected(Tamper { on_read: Some(Box::new(on_read)), ..Tamper::default() }, "swapped");
}

#[test]
fn a_stale_block_is_detected() {
    // from the third on, writes of block 7 are acknowledged and dropped
    let count = Mutex::new(0);
    let on_write = move |lba: u64, _: &mut [u8]| {
        let mut count = count.lock().expect("lock");
        *count += u32::from(lba == 7);
        lba != 7 || *count < 3
    };
    assert_detected(Tamper { on_write: Some(Box::new(on_write)), ..Tamper::default() }, "stale");
}

#[test]
fn a_torn_block_is_detected() {
    // block 9 keeps the second half of its first write
    let first = Mutex::new(Vec::new());
    let on_write = move |lba: u64, data: &mut [u8]| {
        let mut first = first.lock().expect("lock");
        if lba == 9 && first.is_empty() {
            *first = data[2048..4096].to_vec();
        } else if lba == 9 {
            data[2048..4096].copy_from_slice(&first);
        }
        true
    };
    assert_detected(Tamper { on_write: Some(Box::new(on_write)), ..Tamper::default() }, "torn");
}

#[test]
fn an_open_loop_keeps_its_rate_in_every_phase() {
    let target = memory_target();
    let phase = |rate_iops, ms| Phase { rate_iops, duration_ns: ms * MS };
    let schedule = Schedule::new(vec![phase(1000.0, 100), phase(8000.0, 50), phase(0.0, 50)]).expect("a schedule");
    for (process, slack) in [(Process::Linear, 4), (Process::Poisson, 200)] {
        let open = Some(OpenLoop { schedule: schedule.clone(), process });
        let spec = LoadSpec { depth: 256, jobs: 2, open, runtime_ns: Some(600 * MS), ..base() };
        let report = target.load(&spec);
        let ios: Vec<u64> = report.phases.iter().map(|p| p.ios).collect();
        // three cycles of 100, 400 and no requests
        let unstarted = report.open_loop.expect("an open loop").unstarted;
        assert!(ios[0].abs_diff(300) <= slack && ios[1].abs_diff(1200) <= slack + unstarted, "{ios:?}");
        assert_eq!(ios[2], 0);
    }
    target.stop();
}
