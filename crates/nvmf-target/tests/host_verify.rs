//! The target under verified load by our own host: nothing is lost, swapped, stale or torn; and where the backend is
//! made to do one of these, it is caught.

mod host_support;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use host_support::{MS, Tamper, TamperBackend, base, honest, load, target, target_with, verify_spec};
use pilotlight_host::HostError;
use pilotlight_host::load::{LoadSpec, OpenLoop, run};
use pilotlight_host::schedule::{Phase, Process, Schedule};
use pilotlight_nvme::pdu::Digests;
use pilotlight_nvmf_target::Limits;
use pilotlight_nvmf_target::backend::{DelayBackend, Delays};
use pilotlight_nvmf_target::stats::Totals;

#[test]
fn verified_load_passes_with_every_way_of_framing() {
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
fn several_hosts_have_more_connections_than_a_controller_has_queues() {
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
    // one thread, four queues on two reactors, one book: a block written on one is read on another meanwhile
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
fn a_late_backend_in_random_order_changes_nothing_but_time() {
    let delays = Delays { shortest_ns: 20_000, longest_ns: 2 * MS, seed: 1 };
    let target = target(2, 512, 4096, move |memory| Arc::new(DelayBackend::new(memory, delays)));
    let spec = LoadSpec { block_bytes: 16384, trim_percent: 10, depth: 32, ..verify_spec() };
    let report = target.load(&spec);
    assert!(report.is_clean(), "{report}");
    // Not the smallest: a reactor that was put aside in a poll counts a delay from the poll's beginning.
    assert!(report.total.latency.p50_ns >= 20_000, "the delays are felt: {report}");
    target.stop();
}

/// A run on a tampered backend must be blamed, with the word `says`.
fn assert_caught(tamper: Tamper, says: &str) {
    let tamper = Arc::new(tamper);
    let wrap = move |inner| Arc::new(TamperBackend { inner, tamper: Arc::clone(&tamper) }) as _;
    let target = target(1, 64, 4096, wrap);
    let report = target.load(&verify_spec());
    assert!(!report.is_clean() && report.verify.expect("verified").mismatches > 0, "not caught: {report}");
    assert!(report.faults.iter().any(|f| f.contains(says)), "{:?}", report.faults);
    target.stop();
}

#[test]
fn a_swapped_block_is_caught() {
    // block 5 is answered with what block 4 held last
    let seen = Mutex::new(vec![0; 4096]);
    let on_read = move |lba: u64, data: &mut [u8]| {
        let mut seen = seen.lock().expect("lock");
        match lba {
            4 => seen.copy_from_slice(&data[..4096]),
            5 if seen.iter().any(|&b| b != 0) => data[..4096].copy_from_slice(&seen),
            _ => {}
        }
    };
    assert_caught(Tamper { on_read: Some(Box::new(on_read)), ..Tamper::default() }, "swapped");
}

#[test]
fn a_stale_block_is_caught() {
    // from the third on, writes of block 7 are acknowledged and dropped
    let count = Mutex::new(0);
    let on_write = move |lba: u64, _: &mut [u8]| {
        let mut count = count.lock().expect("lock");
        *count += u32::from(lba == 7);
        lba != 7 || *count < 3
    };
    assert_caught(Tamper { on_write: Some(Box::new(on_write)), ..Tamper::default() }, "stale");
}

#[test]
fn a_torn_block_is_caught() {
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
    assert_caught(Tamper { on_write: Some(Box::new(on_write)), ..Tamper::default() }, "torn");
}

#[test]
fn an_open_loop_keeps_its_rate_in_every_phase() {
    let target = honest();
    let phase = |rate_iops, ms| Phase { rate_iops, duration_ns: ms * MS };
    let schedule = Schedule::new(vec![phase(1000.0, 100), phase(8000.0, 50), phase(0.0, 50)]).expect("a schedule");
    for (process, slack) in [(Process::Linear, 4), (Process::Poisson, 200)] {
        let open = Some(OpenLoop { schedule: schedule.clone(), process });
        let spec = LoadSpec { depth: 256, jobs: 2, open, runtime_ns: Some(600 * MS), ..base() };
        let report = target.load(&spec);
        let ios: Vec<u64> = report.phases.iter().map(|p| p.ios).collect();
        // three cycles: 100, 400 and no requests each
        let unstarted = report.open_loop.expect("an open loop").unstarted;
        assert!(ios[0].abs_diff(300) <= slack && ios[1].abs_diff(1200) <= slack + unstarted, "{ios:?}");
        assert_eq!(ios[2], 0);
    }
    target.stop();
}
