//! Fixtures: the target, and valid connections to it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use pilotlight_host::{Buffers, ConnectOptions, Controller, Handshake, QueueSpec};
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::Sgl;
use pilotlight_nvme::command::opcode::io::{READ, WRITE};
use pilotlight_nvme::fabrics::{CNTLID_DYNAMIC, ConnectCmd, ConnectData, PropertyCmd, cc, property};
use pilotlight_nvme::pdu::{Digests, R2T};
use pilotlight_nvmf_target::{Limits, NamespaceConfig, Server, ServerConfig, SubsystemConfig};
use pilotlight_peers::raw::RawPeer;
use pilotlight_reactor::{Idle, RuntimeOptions};
use pilotlight_storage::{MemoryBudget, open};
use zerocopy::FromBytes;

/// A subsystem for all hosts: namespace 1 has blocks of 4 KiB, namespace 2 of 512 bytes.
pub(crate) const OPEN: &str = "nqn.2026-01.test:open";
/// A subsystem for [`FRIEND`] only.
pub(crate) const CLOSED: &str = "nqn.2026-01.test:closed";
/// The host with access to [`CLOSED`].
pub(crate) const FRIEND: &str = "nqn.2026-01.test:friend";
/// Bytes of namespace 1.
pub(crate) const BYTES: u64 = 1 << 30;
/// Blocks of namespace 1.
pub(crate) const BLOCKS: u64 = BYTES / 4096;
/// Most I/O queues of a controller.
pub(crate) const IO_QUEUES: u16 = 4;
/// Most entries of a queue.
pub(crate) const QUEUE_DEPTH: u16 = 256;
/// Most entries of an admin queue (ASQSZ).
pub(crate) const ADMIN_DEPTH: u16 = 128;
/// The target's timeout for ICReq.
pub(crate) const ICREQ_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of a peer, long enough for a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) const NONE: Digests = Digests { header: false, data: false };
pub(crate) const HEADER: Digests = Digests { header: true, data: false };
pub(crate) const DATA: Digests = Digests { header: false, data: true };
pub(crate) const BOTH: Digests = Digests { header: true, data: true };

/// A server with the subsystems above, and `limits`.
pub(crate) fn server(limits: Limits) -> Server {
    let namespace = |nsid, block_size, backend: &str| {
        let backend = backend.parse().expect("a backend");
        NamespaceConfig::new(nsid, backend, block_size)
    };
    let subsystem = |nqn: &str, allowed: &[&str], namespaces| SubsystemConfig {
        allowed_hosts: allowed.iter().map(ToString::to_string).collect(),
        ..SubsystemConfig::new(nqn, namespaces)
    };
    let config = ServerConfig {
        listeners: vec![(Ipv4Addr::LOCALHOST, 0).into()],
        subsystems: vec![
            subsystem(OPEN, &[], vec![namespace(1, 4096, "mem:1GiB"), namespace(2, 512, "mem:1MiB")]),
            subsystem(CLOSED, &[FRIEND], vec![namespace(1, 4096, "mem:1MiB")]),
        ],
        limits,
        ..ServerConfig::default()
    };
    let runtime = RuntimeOptions::new(vec![None], Idle::Yield);
    let opener = |ns: &NamespaceConfig| open(&ns.backend, ns.block_size, &MemoryBudget::unlimited().into());
    Server::start_with(config, runtime, Box::new(opener)).expect("the server starts")
}

/// The target of all rows.
static TARGET: LazyLock<Server> = LazyLock::new(|| {
    server(Limits {
        icreq_timeout: ICREQ_TIMEOUT,
        max_io_queues: IO_QUEUES,
        max_queue_depth: QUEUE_DEPTH,
        ..Limits::default()
    })
});

/// Address of the target of all rows.
pub(crate) fn address() -> SocketAddr {
    TARGET.local_addrs()[0]
}

/// A host that no other row uses.
pub(crate) fn host() -> ConnectOptions {
    static HOSTS: AtomicU64 = AtomicU64::new(1);
    let number = HOSTS.fetch_add(1, Relaxed);
    let mut options = ConnectOptions::new(address(), OPEN);
    options.hostid = u128::from(number).to_le_bytes();
    options.hostnqn = format!("nqn.2026-01.test:host-{number}");
    options.timeout_ms = TIMEOUT.as_millis() as u64;
    options
}

/// 32 blocks of namespace 1 that no other row uses.
pub(crate) fn blocks() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(32, Relaxed)
}

/// A TCP connection.
pub(crate) fn tcp() -> RawPeer {
    RawPeer::connect(address(), TIMEOUT).expect("the target accepts")
}

/// A connection after ICReq and ICResp.
pub(crate) fn shaken(digests: Digests, max_r2t: u32) -> RawPeer {
    let mut peer = tcp();
    peer.shake_hands(&Handshake { digests, max_r2t, hpda: 0 }).expect("an ICResp");
    assert_eq!(peer.digests, digests);
    peer
}

/// Connect's command: queue `qid` of `entries` entries, SQ flow control off.
pub(crate) fn connect_cmd(qid: u16, entries: u16) -> ConnectCmd {
    ConnectCmd { recfmt: 0, qid, sqsize: entries - 1, cattr: ConnectCmd::DISABLE_SQ_FLOW, kato_ms: 0 }
}

/// Connect's data for `host` and the controller `cntlid`.
pub(crate) fn connect_data(host: &ConnectOptions, cntlid: u16) -> ConnectData {
    ConnectData::new(host.hostid, cntlid, &host.subnqn, &host.hostnqn)
}

/// An admin queue of a controller that is not enabled, and the controller's identifier.
pub(crate) fn admin_of(host: &ConnectOptions, digests: Digests) -> (RawPeer, u16) {
    let mut peer = shaken(digests, 1);
    let cqe = peer.connect_queue(&connect_cmd(0, 32), &connect_data(host, CNTLID_DYNAMIC)).expect("an answer");
    assert!(cqe.status().is_success(), "{}", cqe.status());
    (peer, cqe.result.get() as u16)
}

/// An admin queue of a controller that is not enabled.
pub(crate) fn admin() -> RawPeer {
    admin_of(&host(), NONE).0
}

/// An admin queue of an enabled controller.
pub(crate) fn enabled() -> RawPeer {
    enabled_of(&host())
}

/// An admin queue of an enabled controller of the subsystem of `host`.
pub(crate) fn enabled_of(host: &ConnectOptions) -> RawPeer {
    let mut peer = admin_of(host, NONE).0;
    let enable = peer.capsule(PropertyCmd::set(property::CC, cc::EN | cc::IOSQES_IOCQES), &[]);
    peer.send(&enable).expect("sent");
    assert!(peer.read_pdu().expect("an answer").completion().expect("a completion").status().is_success());
    peer
}

/// An I/O queue and its controller.
pub(crate) struct Io {
    pub(crate) peer: RawPeer,
    pub(crate) host: ConnectOptions,
    pub(crate) controller: Controller,
}

/// An I/O queue with these digests, outstanding R2Ts per command, and entries.
pub(crate) fn io_with(digests: Digests, max_r2t: u32, entries: u16) -> Io {
    let host = host();
    let controller = Controller::connect(host.clone()).expect("a controller");
    let mut peer = shaken(digests, max_r2t);
    let data = connect_data(&host, controller.cntlid());
    let cqe = peer.connect_queue(&connect_cmd(1, entries), &data).expect("an answer");
    assert!(cqe.status().is_success(), "{}", cqe.status());
    Io { peer, host, controller }
}

/// The usual I/O queue.
pub(crate) fn io() -> Io {
    io_with(NONE, 1, 32)
}

/// A write of `blocks` blocks to namespace 1, its data in PDUs.
pub(crate) fn write(cid: u16, lba: u64, blocks: u32) -> Sqe {
    with_cid(Sqe { sgl: Sgl::transport(blocks * 4096), ..Sqe::block_io(WRITE, 1, lba, blocks) }, cid)
}

/// A write of one block to namespace 1, its data in the capsule.
pub(crate) fn write_in_capsule(cid: u16, lba: u64) -> Sqe {
    with_cid(Sqe { sgl: Sgl::in_capsule(4096), ..Sqe::block_io(WRITE, 1, lba, 1) }, cid)
}

/// A read of `blocks` blocks of namespace 1.
pub(crate) fn read(cid: u16, lba: u64, blocks: u32) -> Sqe {
    with_cid(Sqe { sgl: Sgl::transport(blocks * 4096), ..Sqe::block_io(READ, 1, lba, blocks) }, cid)
}

pub(crate) fn with_cid(mut sqe: Sqe, cid: u16) -> Sqe {
    sqe.cid = cid.into();
    sqe
}

/// Sends a command without in-capsule data and reads its R2T.
pub(crate) fn r2t(peer: &mut RawPeer, sqe: Sqe) -> R2T {
    let capsule = peer.capsule(sqe, &[]);
    peer.send(&capsule).expect("sent");
    read_r2t(peer)
}

/// Reads an R2T.
pub(crate) fn read_r2t(peer: &mut RawPeer) -> R2T {
    let pilotlight_peers::raw::Reply::Pdu(pdu) = peer.read_pdu().expect("an answer") else { panic!("no R2T") };
    let (r2t, _) = R2T::read_from_prefix(&pdu).expect("a complete header");
    assert_eq!(r2t.ch.pdu_type, pilotlight_nvme::pdu::PduType::R2T as u8, "{pdu:02x?}");
    r2t
}

/// Content of `count` blocks of namespace 1, read by another host.
pub(crate) fn content(lba: u64, count: u32) -> Vec<u8> {
    let controller = Controller::connect(host()).expect("another host connects");
    let spec = QueueSpec { qid: 1, depth: 1, max_io: 131_072, buffers: Buffers::PerCommand };
    let mut queue = controller.open_queue(&spec).expect("an I/O queue");
    let mut data = vec![0xee; count as usize * 4096];
    queue.execute("a read", Sqe::block_io(READ, 1, lba, count), &[], &mut data).expect("read");
    data
}

/// Verifies that `count` blocks from `lba` on are unwritten.
pub(crate) fn assert_unwritten(lba: u64, count: u32) {
    assert!(content(lba, count).iter().all(|&byte| byte == 0), "blocks from {lba} on were written");
}
