//! A host on the bench. The I/O thread runs as one that waits in the kernel.
#![allow(dead_code)] // each test file uses a part

use std::sync::Arc;

use pilotlight_nvme::fabrics::{CNTLID_DYNAMIC, ConnectCmd, ConnectData, PropertyCmd, cc, property};
use pilotlight_nvme::pdu::{CapsuleCmd, CapsuleResp, CommonHeader, Digests, H2CData, IcReq, PduType, R2T, data_offset};
use pilotlight_nvme::{Cqe, Sqe};
use pilotlight_nvmf_target::Limits;
use pilotlight_nvmf_target::testing::{Bench, NQN, Peer};
use pilotlight_peers::raw::framed;
use pilotlight_storage::{Backend, MemoryBackend, MemoryBudget};
use zerocopy::{FromBytes, IntoBytes};

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const BLOCK: u32 = 4096;
const NONE: Digests = Digests { header: false, data: false };
/// Timeout of a response in simulated time.
const TIMEOUT_NS: u64 = 1_000 * MS;
/// Simulated time between two reads of a host's socket.
const READ_INTERVAL_NS: u64 = 20_000;

pub(crate) fn memory() -> Arc<dyn Backend> {
    Arc::new(MemoryBackend::new(BLOCK, 1024, Arc::new(MemoryBudget::unlimited())).expect("memory"))
}

pub(crate) fn bench(backend: &Arc<dyn Backend>, pool_bytes: usize) -> Bench {
    Bench::new(backend, Limits::default(), pool_bytes).expect("a bench")
}

/// A command capsule with `data`, without digests.
pub(crate) fn capsule(cid: u16, sqe: Sqe, data: &[u8]) -> Vec<u8> {
    capsule_with(cid, sqe, data, NONE)
}

/// A command capsule with `data`.
pub(crate) fn capsule_with(cid: u16, mut sqe: Sqe, data: &[u8], digests: Digests) -> Vec<u8> {
    sqe.cid = cid.into();
    let pdo = data_offset(PduType::CapsuleCmd, digests, 0);
    let header = CapsuleCmd::new(sqe, data.len() as u32, pdo, digests);
    framed(header.as_bytes(), if data.is_empty() { 0 } else { pdo }, data, digests)
}

/// Connect's command: queue `qid` of `entries` entries, SQ flow control off, no keep-alive timeout.
pub(crate) fn connect_cmd(qid: u16, entries: u16) -> ConnectCmd {
    ConnectCmd { recfmt: 0, qid, sqsize: entries - 1, cattr: ConnectCmd::DISABLE_SQ_FLOW, kato_ms: 0 }
}

/// Connect's data: the host `hostid` and the controller `cntlid` of the subsystem on the bench.
pub(crate) fn connect_data(hostid: u8, cntlid: u16) -> ConnectData {
    ConnectData::new([hostid; 16], cntlid, NQN, &format!("nqn.2026-01.test:{hostid}"))
}

/// One queue of a host.
pub(crate) struct Host {
    peer: Peer,
    received: Vec<u8>,
}

impl Host {
    /// A connection after ICReq. With `narrow` the I/O thread's socket accepts few bytes at a time.
    pub(crate) fn shaken(bench: &mut Bench, narrow: bool) -> Self {
        Self::with_digests(bench, narrow, NONE)
    }

    /// The same with digests.
    pub(crate) fn with_digests(bench: &mut Bench, narrow: bool, digests: Digests) -> Self {
        let mut host = Self { peer: bench.connect(narrow).expect("a connection"), received: Vec::new() };
        host.send(IcReq::new(0, digests, 0).as_bytes());
        assert_eq!(host.pdu(bench)[0], PduType::ICResp as u8);
        host
    }

    /// The admin queue of an enabled controller, and the controller's number.
    pub(crate) fn admin(bench: &mut Bench, hostid: u8, kato_ms: u32) -> (Self, u16) {
        let mut host = Self::shaken(bench, false);
        let cntlid = host.connect(bench, hostid, 0, kato_ms, CNTLID_DYNAMIC);
        host.send(&capsule(1, PropertyCmd::set(property::CC, cc::EN | cc::IOSQES_IOCQES), &[]));
        host.completion(bench);
        (host, cntlid)
    }

    /// An admin queue and an I/O queue.
    pub(crate) fn both(bench: &mut Bench, hostid: u8, narrow: bool) -> (Self, Self) {
        let (admin, cntlid) = Self::admin(bench, hostid, 0);
        let mut host = Self::shaken(bench, narrow);
        host.connect(bench, hostid, 1, 0, cntlid);
        (admin, host)
    }

    fn connect(&mut self, bench: &mut Bench, hostid: u8, qid: u16, kato_ms: u32, cntlid: u16) -> u16 {
        let command = ConnectCmd { kato_ms, ..connect_cmd(qid, 32) };
        let answer = self.try_connect(bench, command, &connect_data(hostid, cntlid));
        assert!(answer.status().is_success(), "{}", answer.status());
        answer.result.get() as u16
    }

    /// Sends Connect and returns its completion.
    pub(crate) fn try_connect(&mut self, bench: &mut Bench, command: ConnectCmd, data: &ConnectData) -> Cqe {
        self.send(&capsule(0, command.encode(), data.as_bytes()));
        self.response(bench)
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        assert_eq!(self.peer.send(bytes), bytes.len(), "the socket accepts it");
    }

    /// Receives available data, at max_bytes `max_bytes`. Returns the number of bytes.
    pub(crate) fn receive(&mut self, max_bytes: usize) -> usize {
        let mut chunk = vec![0; max_bytes];
        let received = self.peer.receive(&mut chunk).expect("the connection is open");
        self.received.extend_from_slice(&chunk[..received]);
        received
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.peer.receive(&mut [0; 4096]).is_none()
    }

    /// The socket, after all data has been received.
    pub(crate) fn into_peer(self) -> Peer {
        assert!(self.received.is_empty(), "no unread data");
        self.peer
    }

    fn take_pdu(&mut self) -> Option<Vec<u8>> {
        let (header, _) = CommonHeader::read_from_prefix(&self.received).ok()?;
        let len = header.plen.get() as usize;
        (self.received.len() >= len).then(|| self.received.drain(..len).collect())
    }

    /// The next PDU that arrives within `ns`.
    pub(crate) fn pdu_within(&mut self, bench: &mut Bench, ns: u64) -> Option<Vec<u8>> {
        let until_ns = bench.now_ns() + ns;
        loop {
            while self.receive(65_536) > 0 {}
            if let Some(pdu) = self.take_pdu() {
                return Some(pdu);
            }
            if bench.now_ns() >= until_ns {
                return None;
            }
            bench.run(READ_INTERVAL_NS);
        }
    }

    pub(crate) fn pdu(&mut self, bench: &mut Bench) -> Vec<u8> {
        self.pdu_within(bench, TIMEOUT_NS).expect("a response arrives")
    }

    /// The next response capsule, which must be successful.
    pub(crate) fn completion(&mut self, bench: &mut Bench) -> Cqe {
        let cqe = self.response(bench);
        assert!(cqe.status().is_success(), "{}", cqe.status());
        cqe
    }

    /// The next response capsule.
    pub(crate) fn response(&mut self, bench: &mut Bench) -> Cqe {
        let pdu = self.pdu(bench);
        let (response, _) = CapsuleResp::read_from_prefix(&pdu).expect("a response");
        assert_eq!(response.ch.pdu_type, PduType::CapsuleResp as u8, "{response:?}");
        response.cqe
    }

    /// Sends all data for the next PDU, which must be an R2T.
    pub(crate) fn send_r2t_data(&mut self, bench: &mut Bench) {
        let pdu = self.pdu(bench);
        let (r2t, _) = R2T::read_from_prefix(&pdu).expect("an R2T");
        assert_eq!(r2t.ch.pdu_type, PduType::R2T as u8, "{r2t:?}");
        let (pdo, len) = (data_offset(PduType::H2CData, NONE, 0), r2t.r2tl.get());
        let flags = pilotlight_nvme::pdu::Flags::LAST_PDU;
        let header = H2CData::new(r2t.cccid.get(), r2t.ttag.get(), r2t.r2to.get(), len, pdo, flags, NONE);
        for piece in framed(header.as_bytes(), pdo, &vec![7; len as usize], NONE).chunks(32_768) {
            self.send(piece);
            bench.run(READ_INTERVAL_NS);
        }
    }
}
