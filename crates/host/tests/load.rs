//! Load and verification with a test target that shares no code with the real one.

mod support;

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use pilotlight_host::clock::now_ns;
use pilotlight_host::load::{Commands, LoadSpec, OpenLoop, Report, SpecError, TraceCommand, replay, run};
use pilotlight_host::schedule::{Phase, Process, Schedule};
use pilotlight_host::{ConnectOptions, HostError, SocketLimits};
use pilotlight_nvme::pdu::Digests;
use support::{Config, Tamper, TestTarget};

const NQN: &str = "nqn.2026-01.test:toy";
const MS: u64 = 1_000_000;

fn try_load(
    target: &TestTarget,
    change: impl FnOnce(&mut ConnectOptions),
    spec: &LoadSpec,
) -> Result<Report, HostError> {
    let mut options = ConnectOptions::new(target.addr, NQN);
    change(&mut options);
    run(&options, spec, &AtomicBool::new(false), &mut |_| {})
}

fn load(target: &TestTarget, spec: &LoadSpec) -> Report {
    try_load(target, |_| {}, spec).expect("the run ends well")
}

/// A closed loop of reads that yields while it waits.
fn base() -> LoadSpec {
    LoadSpec { yield_when_idle: true, ..LoadSpec::default() }
}

fn verify_spec() -> LoadSpec {
    LoadSpec { read_percent: 50, verify: true, depth: 16, jobs: 2, ios: Some(2000), ..base() }
}

#[test]
fn reads_are_counted_and_timed() {
    let target = TestTarget::start(Config::default());
    let spec = LoadSpec { depth: 8, jobs: 3, threads: 2, ios: Some(500), ..base() };
    let report = load(&target, &spec);
    let read = report.read.expect("reads");
    assert_eq!((read.ios, read.data_bytes, read.errors), (1500, 1500 * 4096, 0));
    assert!(read.latency.min_ns > 0 && read.latency.p50_ns <= read.latency.p99_ns);
    assert!(read.latency.max_ns <= report.elapsed_ns + 10 * MS && read.rate_iops > 0.0);
    assert!(report.write.is_none() && report.is_clean());
    target.finish();
}

#[test]
fn small_socket_buffers_change_only_the_timing() {
    let target = TestTarget::start(Config::default());
    let socket_limits =
        SocketLimits { send_buffer: Some(4096), receive_buffer: Some(4096), segment: Some(600), piece: Some(1000) };
    let spec = LoadSpec { block_bytes: 16384, ios: Some(200), ..verify_spec() };
    let report = try_load(&target, |options| options.socket_limits = socket_limits, &spec).expect("the run ends well");
    assert!(report.is_clean(), "{report}");
    target.finish();
}

#[test]
fn without_a_limit_each_byte_is_moved_once() {
    let target = TestTarget::start(Config { blocks: 256, ..Config::default() });
    let spec = LoadSpec { random: false, depth: 4, block_bytes: 16384, ..base() };
    assert_eq!(load(&target, &spec).total.data_bytes, 256 * 4096);
    target.finish();
}

#[test]
fn a_correct_target_passes_verification() {
    for (digests, flow_off, block_bytes, hpda) in
        [(false, true, 4096, 0), (true, false, 4096, 3), (true, true, 65536, 31), (false, false, 65536, 0)]
    {
        let config = Config {
            cpda: 7,
            r2t_len: 16384,
            c2h_len: 20000,
            max_h2c_data: 8192,
            in_capsule: if flow_off { 4096 } else { 0 },
            ..Config::default()
        };
        let target = TestTarget::start(config);
        let spec = LoadSpec { trim_percent: 20, flush_every: 50, fua: true, block_bytes, ..verify_spec() };
        let connect = |o: &mut ConnectOptions| {
            o.handshake.digests = Digests { header: digests, data: digests };
            o.handshake.hpda = hpda;
            o.handshake.max_r2t = 2;
            o.disable_sq_flow = flow_off;
        };
        let report = try_load(&target, connect, &spec).expect("the run ends well");
        let verify = report.verify.expect("verified");
        assert!(report.is_clean() && verify.blocks_read_back > 100, "{report}");
        assert!(report.write_zeroes.is_some() && report.deallocate.is_some() && report.flush.is_some());
        target.finish();
    }
}

#[test]
fn several_threads_verify_their_own_parts() {
    let target = TestTarget::start(Config { blocks: 512, ..Config::default() });
    let spec = LoadSpec { threads: 2, jobs: 4, ..verify_spec() };
    let report = load(&target, &spec);
    assert!(report.is_clean(), "{report}");
    target.finish();
}

/// A tampered run must have a mismatch whose description contains `text`.
fn assert_caught(tamper: Tamper, text: &str) {
    let target = TestTarget::start(Config { blocks: 64, tamper, ..Config::default() });
    let report = load(&target, &verify_spec());
    assert!(!report.is_clean(), "not caught: {report}");
    assert!(report.verify.expect("verified").mismatches > 0);
    assert!(report.faults.iter().any(|f| f.contains(text)), "{:?}", report.faults);
    target.finish();
}

#[test]
fn an_injected_swap_is_caught() {
    // block 5 is answered with the content of block 4
    let seen = Mutex::new(Vec::new());
    let on_read = move |lba: u64, data: &mut [u8]| {
        let mut seen = seen.lock().expect("lock");
        match lba {
            4 => *seen = data.to_vec(),
            5 if seen.iter().any(|&b| b != 0) => data.copy_from_slice(&seen),
            _ => {}
        }
    };
    assert_caught(Tamper { on_read: Some(Box::new(on_read)), ..Tamper::default() }, "swapped");
}

#[test]
fn a_stale_block_is_caught() {
    // from the third on, writes of block 7 are acknowledged and dropped
    let count = Mutex::new(0);
    let on_write = move |lba: u64, _: &mut [u8], _: &[u8]| {
        let mut count = count.lock().expect("lock");
        *count += u32::from(lba == 7);
        lba != 7 || *count < 3
    };
    assert_caught(Tamper { on_write: Some(Box::new(on_write)), ..Tamper::default() }, "stale");
}

#[test]
fn a_torn_block_is_caught() {
    // of every write to block 9 but the first, only the first half is stored
    let on_write = |lba: u64, data: &mut [u8], old: &[u8]| {
        if lba == 9 && old.iter().any(|&b| b != 0) {
            data[2048..].copy_from_slice(&old[2048..]);
        }
        true
    };
    assert_caught(Tamper { on_write: Some(Box::new(on_write)), ..Tamper::default() }, "torn");
}

#[test]
fn a_lost_first_write_is_caught() {
    let on_write = |lba: u64, _: &mut [u8], _: &[u8]| lba != 11;
    assert_caught(Tamper { on_write: Some(Box::new(on_write)), ..Tamper::default() }, "lost");
}

#[test]
fn one_flipped_bit_is_caught() {
    let on_read = |lba: u64, data: &mut [u8]| {
        if lba == 13 {
            data[4000] ^= 1;
        }
    };
    assert_caught(Tamper { on_read: Some(Box::new(on_read)), ..Tamper::default() }, "torn");
}

#[test]
fn failed_commands_are_counted_and_described() {
    let target = TestTarget::start(Config { fail_from: Some(2048), ..Config::default() });
    let spec = LoadSpec { depth: 4, ios: Some(400), continue_on_error: true, ..base() };
    let report = load(&target, &spec);
    assert_eq!(report.total.ios + report.total.errors, 400);
    assert!(report.total.errors > 100 && !report.is_clean());
    assert!(report.faults[0].contains("Unrecovered Read Error"), "{:?}", report.faults);
    let early = load(&target, &LoadSpec { continue_on_error: false, ..spec });
    assert!(early.total.ios < 400, "it stops at the first error");
    target.finish();
}

#[test]
fn an_open_loop_sends_due_requests() {
    let target = TestTarget::start(Config::default());
    for process in [Process::Linear, Process::Poisson] {
        let schedule = Schedule::constant(4000.0).expect("a rate");
        let spec = LoadSpec {
            depth: 64,
            jobs: 2,
            threads: 2,
            open: Some(OpenLoop { schedule, process }),
            runtime_ns: Some(500 * MS),
            ..base()
        };
        let report = load(&target, &spec);
        let open = report.open_loop.expect("an open loop");
        let slack = if process == Process::Linear { 3.0 } else { 6.0 * 2000f64.sqrt() };
        assert!((open.started as f64 + open.unstarted as f64 - 2000.0).abs() <= slack, "{open:?}");
        assert_eq!(report.total.ios, open.started);
    }
    target.finish();
}

#[test]
fn latency_of_an_open_loop_includes_a_stall() {
    // one read takes 200 ms: with one slot at 1,000 a second, some 200 requests fall due meanwhile and wait
    let stalled = AtomicBool::new(false);
    let on_read = move |_: u64, _: &mut [u8]| {
        if !stalled.swap(true, std::sync::atomic::Ordering::SeqCst) {
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
    };
    let target = TestTarget::start(Config {
        tamper: Tamper { on_read: Some(Box::new(on_read)), ..Tamper::default() },
        ..Config::default()
    });
    let schedule = Schedule::constant(1000.0).expect("a rate");
    let open = Some(OpenLoop { schedule, process: Process::Linear });
    let spec = LoadSpec { open, runtime_ns: Some(500 * MS), ..base() };
    let report = load(&target, &spec);
    let latency = report.total.latency;
    // 40 % of the requests were due during the stall, the median of all waited for little, the 70th percentile a lot
    assert!(latency.max_ns >= 190 * MS && latency.p90_ns >= 100 * MS, "{latency:?}");
    assert!(report.open_loop.expect("open").start_delay_max_ns >= 190 * MS);
    target.finish();
}

#[test]
fn bursts_are_reported_by_phase() {
    let target = TestTarget::start(Config::default());
    let phase = |rate_iops, ms| Phase { rate_iops, duration_ns: ms * MS };
    let schedule = Schedule::new(vec![phase(500.0, 100), phase(5000.0, 50)]).expect("a schedule");
    let open = Some(OpenLoop { schedule, process: Process::Linear });
    let spec = LoadSpec { depth: 256, open, runtime_ns: Some(300 * MS), ..base() };
    let report = load(&target, &spec);
    let ios: Vec<u64> = report.phases.iter().map(|p| p.ios).collect();
    // what a busy machine has not sent by the end is missing, and is never counted twice or elsewhere
    assert!((90..=103).contains(&ios[0]) && (400..=503).contains(&ios[1]), "{ios:?}");
    target.finish();
}

#[test]
fn the_report_has_the_start_of_the_ramp() {
    let target = TestTarget::start(Config::default());
    let spec = LoadSpec { ramp_ns: 20 * MS, runtime_ns: Some(20 * MS), ..base() };
    let before_ns = now_ns();
    let report = load(&target, &spec);
    let ended_ns = report.began_monotonic_ns + spec.ramp_ns + report.elapsed_ns;
    assert!(before_ns < report.began_monotonic_ns && ended_ns <= now_ns(), "{report:?}");
    target.finish();
}

/// Commands every 2 ms, alternately a read and a write, over 64 blocks.
fn trace(count: u64) -> impl Iterator<Item = TraceCommand> + Send {
    let command =
        |n: u64| TraceCommand { at_ns: n * 2 * MS, reads: n.is_multiple_of(2), offset: n % 64 * 4096, bytes: 4096 };
    (0..count).map(command)
}

fn replay_of(target: &TestTarget, spec: &LoadSpec, commands: Commands<'static>) -> Result<Report, HostError> {
    let options = ConnectOptions::new(target.addr, NQN);
    replay(&options, spec, Box::new(|_| commands), &AtomicBool::new(false), &mut |_| {})
}

#[test]
fn a_trace_is_replayed_at_its_times() {
    let target = TestTarget::start(Config { blocks: 64, ..Config::default() });
    let spec = LoadSpec { depth: 16, jobs: 3, threads: 2, block_bytes: 8192, ..base() };
    let report = replay_of(&target, &spec, Box::new(trace(200))).expect("the run ends well");
    let open = report.open_loop.expect("open");
    assert_eq!((report.total.ios, report.total.errors, open.started, open.unstarted), (200, 0, 200, 0));
    assert_eq!((report.read.expect("reads").ios, report.write.expect("writes").data_bytes), (100, 100 * 4096));
    assert_eq!((report.settings.rw, report.settings.arrivals), ("trace", "trace"));
    // the last is due after 398 ms
    assert!(report.elapsed_ns >= 398 * MS && report.elapsed_ns < 20_000 * MS, "{}", report.elapsed_ns);
    assert!(open.start_delay_p50_ns <= open.start_delay_p99_ns && open.late <= 200);
    target.finish();
}

#[test]
fn a_runtime_ends_a_replay_before_its_trace() {
    let target = TestTarget::start(Config { blocks: 64, ..Config::default() });
    let spec = LoadSpec { depth: 4, runtime_ns: Some(100 * MS), ..base() };
    let report = replay_of(&target, &spec, Box::new(trace(u64::MAX >> 24))).expect("the run ends well");
    let open = report.open_loop.expect("open");
    assert!((49..=50).contains(&(open.started + open.unstarted)), "{open:?}");
    target.finish();
}

#[test]
fn writes_of_a_trace_have_its_addresses() {
    let target = TestTarget::start(Config { blocks: 64, ..Config::default() });
    let write = |n: u64| TraceCommand { at_ns: 0, reads: false, offset: n * 2 * 4096, bytes: 4096 };
    let spec = LoadSpec { depth: 4, block_bytes: 4096, ..base() };
    replay_of(&target, &spec, Box::new((0..32).map(write))).expect("the run ends well");
    let store = target.store();
    for (at, block) in store.chunks(4096).take(64).enumerate() {
        assert_eq!(block.iter().any(|&byte| byte != 0), at % 2 == 0, "block {at}");
    }
    drop(store);
    target.finish();
}

#[test]
fn invalid_replays_are_rejected() {
    let target = TestTarget::start(Config { blocks: 64, ..Config::default() });
    let beyond = TraceCommand { at_ns: 0, reads: true, offset: 64 * 4096, bytes: 4096 };
    let refused = replay_of(&target, &base(), Box::new(std::iter::once(beyond)));
    assert!(matches!(refused, Err(HostError::Spec(SpecError::Command(..)))));
    let spec = LoadSpec { verify: true, read_percent: 50, ..base() };
    assert!(matches!(replay_of(&target, &spec, Box::new(trace(1))), Err(HostError::Unsupported(_))));
    target.finish();
}

#[test]
fn a_ramp_is_not_counted_and_keep_alives_are_sent() {
    let target = TestTarget::start(Config::default());
    let spec = LoadSpec { runtime_ns: Some(1000 * MS), ramp_ns: 500 * MS, ..base() };
    let report = try_load(&target, |o| o.kato_ms = 900, &spec).expect("the run ends well");
    assert!(report.elapsed_ns.abs_diff(1000 * MS) < 200 * MS, "{}", report.elapsed_ns);
    assert!(target.keep_alives() >= 2);
    target.finish();
}

#[test]
fn r2ts_are_served_in_random_order_and_pieces() {
    use pilotlight_host::{Buffers, Controller, QueueSpec, R2tOrder};
    use pilotlight_nvme::Sqe;
    use pilotlight_nvme::command::opcode::io::{READ, WRITE};
    for max_r2t in [1, 3, 16] {
        for digests in [false, true] {
            let target = TestTarget::start(Config { r2t_len: 9000, in_capsule: 0, cpda: 1, ..Config::default() });
            let mut options = ConnectOptions::new(target.addr, NQN);
            options.handshake.max_r2t = max_r2t;
            options.handshake.digests = Digests { header: digests, data: digests };
            let controller = Controller::connect(options).expect("connected");
            let spec = QueueSpec { qid: 1, depth: 4, max_io: 65536, buffers: Buffers::PerCommand };
            let mut queue = controller.open_queue(&spec).expect("a queue");
            queue.queue().set_r2t_order(R2tOrder::Shuffled { seed: 5, piece: 700 });
            let data: Vec<u8> = (0..65536u32).map(|i| (i * 7 / 3) as u8).collect();
            let cids: Vec<u16> = (0..4)
                .map(|i| queue.submit(Sqe::block_io(WRITE, 1, 16 * i, 16), &data, 0).expect("submitted"))
                .collect();
            for cid in cids {
                assert!(queue.wait(cid, "a write", &mut []).expect("answered").status.is_success());
            }
            let mut back = vec![0; 65536];
            queue.execute("a read", Sqe::block_io(READ, 1, 32, 16), &[], &mut back).expect("read");
            assert!(back == data && target.store()[..65536] == data);
            assert_eq!(target.max_outstanding_r2ts(), max_r2t.min(8));
            assert_eq!(target.has_reordered_data(), max_r2t > 1);
            // 7 R2Ts of 9,000 bytes in 13 PDUs each and one of 2,536 in 4, four times
            assert_eq!(target.h2c_pdus(), 4 * (7 * 13 + 4));
            controller.shutdown().expect("shut down");
            target.finish();
        }
    }
}

#[test]
fn a_raw_peer_reads_responses() {
    use pilotlight_host::Handshake;
    use pilotlight_nvme::fabrics::{CNTLID_DYNAMIC, ConnectCmd, ConnectData};
    use pilotlight_peers::raw::{RawPeer, Reply};
    use std::time::Duration;
    let target = TestTarget::start(Config::default());
    let mut peer = RawPeer::connect(target.addr, Duration::from_millis(100)).expect("connected");
    let both = Digests { header: true, data: true };
    peer.shake_hands(&Handshake { digests: both, ..Handshake::default() }).expect("an ICResp");
    let command = ConnectCmd { recfmt: 0, qid: 0, sqsize: 31, cattr: 0, kato_ms: 0 };
    let data = ConnectData::new([1; 16], CNTLID_DYNAMIC, NQN, NQN);
    let cqe = peer.connect_queue(&command, &data).expect("a completion");
    assert!(cqe.status().is_success());
    assert_eq!(peer.read_pdu().expect("read"), Reply::Timeout);
    peer.send(&[0xff; 16]).expect("sent");
    assert_eq!(peer.read_to_end().expect("read"), (vec![], Reply::Closed));
}
