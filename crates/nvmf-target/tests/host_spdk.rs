//! A host like SPDK's: no host NQN, an admin queue of 31 entries, a keep-alive timeout of 10 s with a Keep Alive every 5 s, I/O
//! queues of 128 entries with SQ flow control, and the admin commands of SPDK's initialization in their order.
//!
//! Verified to fail: all tests, with `nqn_from_field`, which rejects an empty name, in place of `hostnqn_from_field`
//! ("Connect Invalid Parameters").

mod host_support;

#[path = "waiting/host.rs"]
mod stepped;

use std::time::{Duration, Instant};

use host_support::{Target, load, memory_target, verify_spec};
use pilotlight_host::load::LoadSpec;
use pilotlight_host::{Buffers, ConnectOptions, Connection, Controller, QueueSpec};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::opcode::{admin, io};
use pilotlight_nvme::fabrics::{CNTLID_DYNAMIC, ConnectCmd, ConnectData, PropertyCmd, cc, csts, property};
use pilotlight_nvme::feature::fid;
use pilotlight_nvme::identify::cns;
use pilotlight_nvmf_target::testing::NQN;
use stepped::{Host, MS, bench, capsule, connect_cmd, memory};

const ADMIN_ENTRIES: u16 = 31;
const KATO_MS: u32 = 10_000;
/// One less than the entries of an I/O queue.
const DEPTH: u16 = 127;
/// Outstanding Asynchronous Event Requests (AERL + 1).
const EVENT_REQUESTS: u16 = 4;
const LARGE: usize = 131_072;

fn options(target: &Target) -> ConnectOptions {
    ConnectOptions {
        hostnqn: String::new(),
        admin_entries: ADMIN_ENTRIES,
        kato_ms: KATO_MS,
        disable_sq_flow: false,
        ..target.options()
    }
}

/// Initializes a controller up to the first I/O queue.
fn initialize(options: ConnectOptions) -> Controller {
    let mut controller = Controller::attach(options).expect("an admin queue");
    assert!(controller.property(property::VS, false).expect("VS") >= 0x0001_0300);
    assert_eq!(controller.property(property::CC, false).expect("CC") as u32 & cc::EN, 0);
    assert_eq!(controller.property(property::CSTS, false).expect("CSTS") as u32 & csts::RDY, 0);
    controller.enable().expect("enabled");
    controller.identify_controller().expect("Identify Controller");
    let events = 0xff | 1 << 8 | 1 << 9; // health, namespace attributes, firmware
    controller.set_feature(u32::from(fid::ASYNC_EVENT_CONFIGURATION), 0, events).expect("events configured");
    for _ in 0..EVENT_REQUESTS {
        controller.admin().submit(Sqe::new(admin::ASYNC_EVENT_REQUEST, 0), &[], 0).expect("submitted");
    }
    assert_eq!(controller.feature(u32::from(fid::KEEP_ALIVE_TIMER), 0).expect("the timeout"), KATO_MS);
    controller.identify(cns::CONTROLLER_IOCS, 0).expect("the NVM command set's part");
    let all = 1023; // the maximum number of queues, zero-based
    controller.set_feature(u32::from(fid::NUMBER_OF_QUEUES), 0, all << 16 | all).expect("queues");
    assert_eq!(controller.active_namespaces().expect("a list"), [1]);
    controller.namespace(1).expect("Identify Namespace");
    assert_ne!(controller.identify(cns::NAMESPACE_DESCRIPTORS, 1).expect("descriptors")[..4], [0; 4]);
    controller.identify(cns::NAMESPACE_IOCS, 1).expect("the NVM command set's part");
    controller
}

/// Content of the blocks from `lba` on: each block contains its number plus one.
fn pattern(lba: u64, len: usize) -> Vec<u8> {
    let blocks = (lba..).take(len / 4096);
    blocks.flat_map(|lba| (lba + 1).to_le_bytes().repeat(512)).collect()
}

/// Runs a command for each of `lbas` with a full queue. `on_end` gets the data of reads.
fn in_parallel(
    queue: &mut Connection,
    (opcode, len): (u8, usize),
    lbas: impl Iterator<Item = u64>,
    on_end: impl Fn(u64, &[u8]),
) {
    let commands: Vec<(u16, u64)> = lbas
        .map(|lba| {
            let sqe = Sqe::block_io(opcode, 1, lba, (len / 4096) as u32);
            let (out, read_len) = if opcode == io::WRITE { (pattern(lba, len), 0) } else { (Vec::new(), len as u32) };
            (queue.submit(sqe, &out, read_len).expect("submitted"), lba)
        })
        .collect();
    let mut data = vec![0; len];
    for (cid, lba) in commands {
        let completed = queue.wait(cid, "a read or write", &mut data).expect("answered");
        assert!(completed.status.is_success() && completed.sqhd.is_some(), "{completed:?}");
        on_end(lba, &data);
    }
}

fn write_and_read_back(queue: &mut Connection, len: usize) {
    let lbas = || (0..u64::from(DEPTH)).map(|at| at * (len as u64 / 4096));
    in_parallel(queue, (io::WRITE, len), lbas(), |_, _| {});
    in_parallel(queue, (io::READ, len), lbas(), |lba, data| assert!(data == pattern(lba, len), "block {lba}"));
}

#[test]
fn initialization_writes_reads_and_disconnect_succeed() {
    let target = memory_target();
    let mut controller = initialize(options(&target));
    let spec = QueueSpec { qid: 1, depth: DEPTH, max_io: LARGE as u32, buffers: Buffers::PerCommand };
    let mut queue = controller.open_queue(&spec).expect("an I/O queue");
    write_and_read_back(&mut queue, 4096);
    write_and_read_back(&mut queue, 30 * 4096);

    // the admin queue takes one command less than its entries
    let keep_alive = Sqe::new(admin::KEEP_ALIVE, 0);
    let admin = controller.admin();
    let cids: Vec<u16> =
        (EVENT_REQUESTS..ADMIN_ENTRIES - 1).map(|_| admin.submit(keep_alive, &[], 0).expect("a free entry")).collect();
    for cid in cids {
        assert!(admin.wait(cid, "Keep Alive", &mut []).expect("answered").status.is_success());
    }
    assert!(admin.take_completion(0).expect("connected").is_none(), "no event has occurred");

    drop(queue);
    controller.shutdown().expect("shut down");
    let deadline = Instant::now() + Duration::from_secs(20);
    while target.server.stats().associations > 0 || target.server.stats().totals.connections > 0 {
        assert!(
            Instant::now() < deadline,
            "the association ends with its connections: {:?}",
            target.server.stats().totals
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    target.stop();
}

#[test]
fn a_verified_load_has_no_errors() {
    let target = memory_target();
    let spec = LoadSpec { depth: DEPTH, ..verify_spec() };
    for block_bytes in [4096, LARGE as u32] {
        let report = load(&options(&target), &LoadSpec { block_bytes, ..spec.clone() });
        assert!(report.is_clean(), "{report}");
    }
    target.stop();
}

#[test]
fn keep_alives_at_half_the_timeout_keep_the_host_connected() {
    let mut bench = bench(&memory(), 1 << 20);
    let mut host = Host::shaken(&mut bench, false);
    let command = ConnectCmd { kato_ms: KATO_MS, ..connect_cmd(0, ADMIN_ENTRIES) };
    let connected = host.try_connect(&mut bench, command, &ConnectData::new([1; 16], CNTLID_DYNAMIC, NQN, ""));
    assert!(connected.status().is_success(), "{}", connected.status());
    host.send(&capsule(0, PropertyCmd::set(property::CC, cc::EN | cc::IOSQES_IOCQES), &[]));
    host.completion(&mut bench);
    let half_ns = u64::from(KATO_MS) / 2 * MS;
    for cid in 0..12 {
        bench.run(half_ns);
        host.send(&capsule(cid, Sqe::new(admin::KEEP_ALIVE, 0), &[]));
        host.completion(&mut bench);
    }
    bench.run(3 * half_ns);
    assert!(host.is_closed(), "no Keep Alive within the timeout");
    assert_eq!(bench.associations(), 0);
}
