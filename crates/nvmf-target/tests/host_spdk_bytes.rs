//! The bytes that SPDK's host sends to a discovery controller and to an I/O controller, in their order: each answer is one with
//! which SPDK goes on.
//!
//! The comment of a step names SPDK's function. Read on 2026-12-01; `results/hosts.md` has the facts. The repository
//! makesoftwaresafe/spdk is a copy of SPDK's main branch of 2025.
//!
//! | file of makesoftwaresafe/spdk | commit |
//! |---|---|
//! | lib/nvme/nvme_ctrlr.c | 1dee6e9f2815a88f9ab657e77e73c8ebbabe4511 |
//! | lib/nvme/nvme_fabric.c | 25f39e11829efd76240b36b46e43e859949c04bc |
//! | lib/nvme/nvme_tcp.c | 178a924889dfdef09d9292bb639a0eac787d55b9 |
//!
//! Options are SPDK's defaults: an admin queue of 32 entries, I/O queues of 256, a keep-alive timeout of 10 s, no digests and no
//! authentication. Those of `spdk_nvme_perf` differ ([`PERF`]; spdk/spdk, app/spdk_nvme_perf/perf.c, commit
//! 0670c7ec263d1c8d33d7da6abe2efe8b3cb66190). Values that SPDK chooses at random, such as the host identifier, are ours.
//!
//! Verified to fail: all tests, with half the timeout as the value of Get Features 0Fh, and with a MAXH2CDATA of 2,048.

mod host_support;

use std::time::Duration;

use host_support::{NQN, Target, memory_target, target};
use pilotlight_peers::raw::{RawPeer, Reply};

const TIMEOUT: Duration = Duration::from_secs(20);
const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// `DEFAULT_ADMIN_QUEUE_SIZE`
const ADMIN_ENTRIES: u16 = 32;
/// `nvme_get_default_hostnqn`, `DEFAULT_IO_QUEUE_SIZE`
const LIBRARY: Options =
    Options { hostnqn: "nqn.2014-08.org.nvmexpress:uuid:5f6b2d0e-0c1e-4f59-9a53-0b6c7a1d2e3f", io_entries: 256 };
/// `probe_cb` of perf.c: no host NQN, and the largest queues of the controller.
const PERF: Options = Options { hostnqn: "", io_entries: u16::MAX };
/// `opts.keep_alive_timeout_ms`
const KATO_MS: u32 = 10_000;
/// `NVME_MAX_ASYNC_EVENTS`
const MOST_EVENTS: u8 = 8;
/// `DEFAULT_MAX_IO_QUEUES`
const QUEUES: u32 = 1024;
/// `SPDK_NVME_TCP_IN_CAPSULE_DATA_MAX_SIZE`
const ADMIN_CAPSULE_DATA: usize = 8192;
const INVALID_FIELD: u16 = 0x02;

mod opcode {
    pub(super) const FABRICS: u8 = 0x7f;
    pub(super) const GET_LOG: u8 = 0x02;
    pub(super) const IDENTIFY: u8 = 0x06;
    pub(super) const SET_FEATURES: u8 = 0x09;
    pub(super) const GET_FEATURES: u8 = 0x0a;
    pub(super) const EVENT_REQUEST: u8 = 0x0c;
    pub(super) const KEEP_ALIVE: u8 = 0x18;
    pub(super) const WRITE: u8 = 0x01;
    pub(super) const READ: u8 = 0x02;
}

/// Options in which SPDK's programs differ.
#[derive(Clone, Copy)]
struct Options {
    hostnqn: &'static str,
    io_entries: u16,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// A command without its data: opcode, NSID (fabrics commands: FCTYPE) and dwords from 10 on.
fn command(opcode: u8, nsid: u32, dwords: &[u32]) -> [u8; 64] {
    let mut sqe = [0; 64];
    sqe[0] = opcode;
    sqe[4..8].copy_from_slice(&nsid.to_le_bytes());
    for (field, dword) in sqe[40..].chunks_exact_mut(4).zip(dwords) {
        field.copy_from_slice(&dword.to_le_bytes());
    }
    sqe
}

/// Whether data go to the target: bit 0 of the opcode without bit 1 (`spdk_nvme_opc_get_data_transfer`).
fn to_target(sqe: &[u8; 64]) -> bool {
    let code = if sqe[0] == opcode::FABRICS { sqe[4] } else { sqe[0] };
    code & 3 == 1
}

/// A response: dwords 0 and 1, and status code and type.
struct Answer {
    result: u64,
    status: u16,
}

/// One queue of SPDK's host.
struct Queue {
    peer: RawPeer,
    free: Vec<u16>,
    /// Most bytes of data in a capsule.
    capsule_data: usize,
    max_h2c: usize,
}

impl Queue {
    /// `nvme_tcp_qpair_icreq_send`, `nvme_tcp_icresp_handle`
    fn shaken(target: &Target, entries: u16, capsule_data: usize) -> Self {
        let mut peer = RawPeer::connect(target.addr, TIMEOUT).expect("the target accepts");
        let mut request = [0; 128];
        request[2] = 128; // HLEN; PFV, HPDA, DGST and MAXR2T are 0
        request[4] = 128; // PLEN
        peer.send(&request).expect("sent");
        let Ok(Reply::Pdu(response)) = peer.read_pdu() else { panic!("no ICResp") };
        assert_eq!((response[0], response[2], response.len()), (1, 128, 128), "type, HLEN, PLEN");
        assert_eq!(u16_at(&response, 8), 0, "PFV");
        assert!(
            response[10] == 0 && response[11] == 0,
            "SPDK pads for a CPDA and adds digests, which this queue does not"
        );
        let max_h2c = u32_at(&response, 12) as usize;
        assert!(max_h2c >= 4096, "MAXH2CDATA");
        Self { peer, free: (0..entries - 1).rev().collect(), capsule_data, max_h2c }
    }

    /// `nvme_tcp_req_init`, `nvme_tcp_qpair_capsule_cmd_send`: sends a command with `len` bytes of data in either direction;
    /// `data` are those to the target. Returns its identifier.
    fn send(&mut self, mut sqe: [u8; 64], data: &[u8], len: usize) -> u16 {
        let cid = self.free.pop().expect("a free request");
        sqe[1] = 1 << 6; // PSDT: SGL
        sqe[2..4].copy_from_slice(&cid.to_le_bytes());
        sqe[32..36].copy_from_slice(&(len as u32).to_le_bytes());
        let in_capsule = to_target(&sqe) && len <= self.capsule_data;
        sqe[39] = if in_capsule { 0x01 } else { 0x5a }; // data block at an offset of 0, or of the transport
        let data = if in_capsule { data } else { &[] };
        let mut pdu = vec![4, 0, 72, if data.is_empty() { 0 } else { 72 }];
        pdu.extend_from_slice(&(72 + data.len() as u32).to_le_bytes());
        pdu.extend_from_slice(&sqe);
        pdu.extend_from_slice(data);
        self.peer.send(&pdu).expect("sent");
        cid
    }

    /// `nvme_tcp_pdu_ch_handle`: the next PDU, whose HLEN is that of its type.
    fn pdu(&mut self) -> Vec<u8> {
        let reply = self.peer.read_pdu().expect("a PDU");
        let Reply::Pdu(pdu) = reply else { panic!("{reply:?}") };
        assert!(pdu[2] == 24 && pdu[1] & 3 == 0, "HLEN, no digests: {:?}", &pdu[..8]);
        assert!(pdu[0] == 7 || [5, 9].contains(&pdu[0]) && pdu.len() == 24, "PLEN of {:?}", &pdu[..8]);
        pdu
    }

    /// `nvme_tcp_capsule_resp_hdr_handle`
    fn answer_of(&mut self, cid: u16, pdu: &[u8]) -> Answer {
        assert_eq!((pdu[0], u16_at(pdu, 8 + 12)), (5, cid), "the response to command {cid}");
        self.free.push(cid);
        Answer { result: u64_at(pdu, 8), status: u16_at(pdu, 8 + 14) >> 1 & 0x7ff }
    }

    /// A command whose data, if any, are in the capsule.
    fn answer(&mut self, sqe: [u8; 64], data: &[u8]) -> Answer {
        let cid = self.send(sqe, data, data.len());
        let pdu = self.pdu();
        self.answer_of(cid, &pdu)
    }

    fn succeed(&mut self, sqe: [u8; 64], data: &[u8]) -> u64 {
        let answer = self.answer(sqe, data);
        assert_eq!(answer.status, 0, "{sqe:02x?}");
        answer.result
    }

    /// `nvme_tcp_c2h_data_hdr_handle`, `nvme_tcp_c2h_data_payload_handle`: a command with `len` bytes to the host, or its status.
    fn receive(&mut self, sqe: [u8; 64], len: usize) -> Result<Vec<u8>, u16> {
        let cid = self.send(sqe, &[], len);
        let mut data = Vec::new();
        loop {
            let pdu = self.pdu();
            if pdu[0] == 5 {
                let status = self.answer_of(cid, &pdu).status;
                assert!(status != 0 || data.len() == len, "{} of {len} bytes", data.len());
                return if status == 0 { Ok(data) } else { Err(status) };
            }
            assert_eq!((pdu[0], u16_at(&pdu, 8)), (7, cid), "C2HData of command {cid}");
            assert_eq!(u32_at(&pdu, 12) as usize, data.len(), "DATAO");
            let of_pdu = u32_at(&pdu, 16) as usize;
            assert_eq!(pdu.len(), usize::from(pdu[3]) + of_pdu, "PLEN");
            assert_eq!(pdu[1] & 8, 0, "SUCCESS only where the host disables SQ flow control");
            data.extend_from_slice(&pdu[usize::from(pdu[3])..]);
            assert!(data.len() <= len && (pdu[1] & 4 != 0) == (data.len() == len), "LAST_PDU");
        }
    }

    fn read(&mut self, sqe: [u8; 64], len: usize) -> Vec<u8> {
        self.receive(sqe, len).unwrap_or_else(|status| panic!("{status:#x}: {sqe:02x?}"))
    }

    /// `nvme_tcp_r2t_hdr_handle`, `nvme_tcp_send_h2c_data`: a write whose data are requested.
    fn write_when_asked(&mut self, sqe: [u8; 64], data: &[u8]) {
        assert!(data.len() > self.capsule_data);
        let cid = self.send(sqe, data, data.len());
        let mut sent = 0;
        while sent < data.len() {
            let r2t = self.pdu();
            assert_eq!((r2t[0], u16_at(&r2t, 8)), (9, cid), "an R2T of command {cid}");
            assert_eq!(u32_at(&r2t, 12) as usize, sent, "R2TO");
            let end = sent + u32_at(&r2t, 16) as usize;
            assert!(end <= data.len(), "R2TL");
            while sent < end {
                let part = &data[sent..end.min(sent + self.max_h2c)];
                let last = if sent + part.len() == end { 4 } else { 0 };
                let mut pdu = vec![6, last, 24, 24];
                pdu.extend_from_slice(&(24 + part.len() as u32).to_le_bytes());
                pdu.extend_from_slice(&cid.to_le_bytes());
                pdu.extend_from_slice(&r2t[10..12]); // TTAG
                pdu.extend_from_slice(&(sent as u32).to_le_bytes());
                pdu.extend_from_slice(&(part.len() as u32).to_le_bytes());
                pdu.extend_from_slice(&[0; 4]);
                pdu.extend_from_slice(part);
                self.peer.send(&pdu).expect("sent");
                sent += part.len();
            }
        }
        let pdu = self.pdu();
        assert_eq!(self.answer_of(cid, &pdu).status, 0);
    }

    /// `nvme_fabric_qpair_connect_async`, `nvme_fabric_qpair_connect_poll`: Connect; returns the controller's identifier.
    fn connect(&mut self, (qid, entries): (u16, u16), cntlid: u16, hostnqn: &str, subnqn: &str) -> u16 {
        let mut data = [0; 1024];
        data[..16].copy_from_slice(&[0x5f; 16]); // the host identifier
        data[16..18].copy_from_slice(&cntlid.to_le_bytes());
        data[256..256 + subnqn.len()].copy_from_slice(subnqn.as_bytes());
        data[512..512 + hostnqn.len()].copy_from_slice(hostnqn.as_bytes());
        // RECFMT 0; CATTR 0: with SQ flow control; KATO on I/O queues also
        let connect = command(opcode::FABRICS, 0x01, &[u32::from(qid) << 16, u32::from(entries - 1), KATO_MS]);
        let result = self.succeed(connect, &data);
        assert_eq!(result >> 16 & 0xffff, 0, "AUTHREQ: no authentication");
        result as u16
    }

    /// `nvme_fabric_prop_get_cmd`
    fn property(&mut self, offset: u32, wide: bool) -> u64 {
        self.succeed(command(opcode::FABRICS, 0x04, &[u32::from(wide), offset]), &[])
    }

    /// `nvme_fabric_prop_set_cmd`
    fn set_property(&mut self, offset: u32, value: u32) {
        self.succeed(command(opcode::FABRICS, 0x00, &[0, offset, value, 0]), &[]);
    }

    /// `nvme_ctrlr_cmd_identify`
    fn identify(&mut self, cns: u32, csi: u32, nsid: u32) -> Result<Vec<u8>, u16> {
        self.receive(command(opcode::IDENTIFY, nsid, &[cns, csi << 24]), 4096)
    }
}

/// An enabled controller.
struct Initialized {
    admin: Queue,
    cntlid: u16,
    cap: u64,
    version: u64,
    css: u32,
    identify: Vec<u8>,
    event_requests: u8,
}

/// `nvme_ctrlr_process_init`, up to the state after the keep-alive timeout: the same for both types of controller.
fn initialize(target: &Target, hostnqn: &str, subnqn: &str) -> Initialized {
    let mut admin = Queue::shaken(target, ADMIN_ENTRIES, ADMIN_CAPSULE_DATA);
    let cntlid = admin.connect((0, ADMIN_ENTRIES), 0xffff, hostnqn, subnqn);

    // NVME_CTRLR_STATE_READ_VS, _READ_CAP, _CHECK_EN, _DISABLE_WAIT_FOR_READY_0
    let version = admin.property(0x08, false);
    let cap = admin.property(0x00, true);
    let controller_configuration = admin.property(0x14, false) as u32;
    assert_eq!(controller_configuration & 1, 0, "EN: else SPDK resets the controller first");
    assert_eq!(admin.property(0x1c, false) & 1, 0, "RDY");

    // nvme_ctrlr_enable
    assert_eq!(cap >> 48 & 0xf, 0, "MPSMIN: pages of 4 KiB");
    assert_ne!(cap >> 37 & 0xff, 0, "CSS");
    let css = if cap >> 43 & 1 != 0 { 6 } else { 0 };
    admin.set_property(0x14, controller_configuration | 1 | css << 4 | 6 << 16 | 4 << 20);
    // NVME_CTRLR_STATE_ENABLE_WAIT_FOR_READY_1
    while admin.property(0x1c, false) & 1 == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }

    // nvme_ctrlr_identify, nvme_ctrlr_identify_done
    let identify = admin.identify(0x01, 0, 0).expect("Identify Controller");
    assert_eq!(u16_at(&identify, 78), cntlid, "CNTLID: SPDK keeps that of Connect");

    // nvme_ctrlr_configure_aer
    let offered = u32_at(&identify, 92); // OAES
    let events = if subnqn == DISCOVERY {
        1 << 31
    } else {
        let telemetry = u32::from(identify[261] & 1 << 3 != 0) << 10; // LPA
        0x1f | offered & (1 << 8 | 1 << 9) | telemetry | offered & 1 << 11
    };
    admin.succeed(command(opcode::SET_FEATURES, 0, &[0x0b, events]), &[]);
    // nvme_ctrlr_configure_aer_done
    let event_requests = MOST_EVENTS.min(identify[259].saturating_add(1)); // AERL
    for _ in 0..event_requests {
        admin.send(command(opcode::EVENT_REQUEST, 0, &[]), &[], 0);
    }

    // nvme_ctrlr_set_keep_alive_timeout
    if u16_at(&identify, 320) != 0 {
        let timeout = admin.succeed(command(opcode::GET_FEATURES, 0, &[0x0f]), &[]);
        assert_eq!(timeout, u64::from(KATO_MS), "SPDK sends Keep Alive at half of this");
        admin.succeed(command(opcode::KEEP_ALIVE, 0, &[]), &[]); // nvme_ctrlr_keep_alive
    }
    Initialized { admin, cntlid, cap, version, css, identify, event_requests }
}

/// `nvme_ctrlr_shutdown_async`, `nvme_ctrlr_shutdown_poll_async`
fn shut_down(mut admin: Queue) {
    let controller_configuration = admin.property(0x14, false) as u32;
    admin.set_property(0x14, controller_configuration | 1 << 14);
    while admin.property(0x1c, false) >> 2 & 3 != 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The rest of the initialization, writes and reads of both forms, and a shutdown, with blocks of `block_size` bytes.
fn initialize_and_use(target: &Target, options: Options, block_size: usize) {
    let Initialized { mut admin, cntlid, cap, version, css, identify, event_requests } =
        initialize(target, options.hostnqn, NQN);
    assert_eq!(event_requests, 4);
    assert!(version >= 0x1_0300, "SPDK reads namespace descriptors from version 1.3 on");

    // nvme_ctrlr_identify_iocs_specific
    if css == 6 {
        let zoned = admin.identify(0x06, 2, 0);
        assert!(zoned.is_ok() || zoned == Err(INVALID_FIELD), "{zoned:?}");
    }
    // nvme_ctrlr_set_num_queues, nvme_ctrlr_set_num_queues_done
    let all = QUEUES - 1;
    let granted = admin.succeed(command(opcode::SET_FEATURES, 0, &[0x07, all << 16 | all]), &[]);
    assert!(granted & 0xffff < u64::from(QUEUES) && granted >> 16 & 0xffff < u64::from(QUEUES), "{granted:#x}");
    // nvme_ctrlr_update_nvmf_ioccsz
    let capsule = u32_at(&identify, 1792) as usize * 16;
    assert!(capsule >= 64 && u16_at(&identify, 1800) == 0, "IOCCSZ, ICDOFF");
    // nvme_ctrlr_identify_active_ns
    let active = admin.identify(0x02, 0, 0).expect("the active namespaces");
    let active: Vec<u32> = active.chunks_exact(4).map(|entry| u32_at(entry, 0)).take_while(|&nsid| nsid > 0).collect();
    assert_eq!(active, [1]);
    // nvme_ctrlr_identify_ns_async
    let namespace = admin.identify(0x00, 0, 1).expect("Identify Namespace");
    let format = 128 + 4 * usize::from(namespace[26] & 0xf);
    assert_eq!(1 << namespace[format + 2], block_size);
    // nvme_ctrlr_identify_id_desc_async; nvme_ns_find_id_desc takes the NGUID or UUID
    let descriptors = admin.identify(0x03, 0, 1).expect("descriptors");
    assert_ne!(descriptors[1], 0, "NIDL of the first");
    // nvme_ctrlr_init_ana_log_page, if CMIC has ANA: the header, NANAGRPID groups and all active namespaces
    if identify[76] & 1 << 3 != 0 {
        let len = 16 + 32 * u32_at(&identify, 348) as usize + 4 * active.len();
        let dwords = (len / 4 - 1) as u32;
        let log = admin.read(command(opcode::GET_LOG, 0xffff_ffff, &[dwords << 16 | 0x0c, dwords >> 16, 0, 0]), len);
        assert_ne!(u16_at(&log, 8), 0, "groups");
    }

    // nvme_ctrlr_create_io_qpair: SPDK limits the size to that of CAP
    let entries = options.io_entries.min((cap as u16).saturating_add(1));
    let mut io = Queue::shaken(target, entries, capsule - 64);
    assert_eq!(io.connect((1, entries), cntlid, options.hostnqn, NQN), cntlid);

    // nvme_ns_cmd_rw: SPDK splits at MDTS
    let most = 4096 << identify[77];
    let blocks = |len: usize| (len / block_size - 1) as u32;
    let pattern: Vec<u8> = (0..most).map(|at| (at / block_size + at) as u8).collect();
    for len in [block_size, capsule - 64, most] {
        let write = command(opcode::WRITE, 1, &[8, 0, blocks(len)]);
        if len <= capsule - 64 {
            io.succeed(write, &pattern[..len]);
        } else {
            io.write_when_asked(write, &pattern[..len]);
        }
        let read = io.read(command(opcode::READ, 1, &[8, 0, blocks(len)]), len);
        assert!(read == pattern[..len], "{len} bytes");
    }

    // nvme_tcp_ctrlr_disconnect_qpair closes the connection without a Disconnect command
    drop(io);
    shut_down(admin);
}

#[test]
fn spdk_initializes_writes_reads_and_shuts_down() {
    let target = memory_target();
    initialize_and_use(&target, LIBRARY, 4096);
    target.stop();
}

#[test]
fn spdk_nvme_perf_has_no_name_and_the_largest_queues() {
    let target = memory_target();
    initialize_and_use(&target, PERF, 4096);
    target.stop();
}

#[test]
fn spdk_uses_blocks_of_512_bytes() {
    let target = target(1, 4096, 512, |memory| memory);
    initialize_and_use(&target, LIBRARY, 512);
    target.stop();
}

#[test]
fn spdk_discovers_the_subsystem() {
    let target = memory_target();
    let mut admin = initialize(&target, LIBRARY.hostnqn, DISCOVERY).admin;
    // nvme_fabric_ctrlr_scan
    admin.identify(0x01, 0, 0).expect("Identify Controller again");
    // nvme_fabric_ctrlr_discover: 4,096 bytes also where the log is shorter
    let (len, mut offset, mut left) = (4096, 0_usize, None);
    let mut found = Vec::new();
    while left != Some(0) {
        let dwords = (len / 4 - 1) as u32;
        let get = command(opcode::GET_LOG, 0, &[dwords << 16 | 0x70, 0, offset as u32, 0]);
        let log = admin.read(get, len);
        let records = if left.is_none() {
            assert_eq!(u16_at(&log, 16), 0, "RECFMT");
            left = Some(u64_at(&log, 8) as usize); // NUMREC
            offset = 1024;
            &log[1024..]
        } else {
            &log[..]
        };
        let remaining = left.as_mut().expect("the header was read");
        for record in records.chunks_exact(1024).take(*remaining) {
            // nvme_fabric_discover_probe: TRTYPE TCP, SUBTYPE NVMe, a terminated SUBNQN
            let end = record[256..512].iter().position(|&byte| byte == 0).expect("a terminated SUBNQN");
            found.push((record[0], record[2], String::from_utf8_lossy(&record[256..256 + end]).into_owned()));
            *remaining -= 1;
            offset += 1024;
        }
    }
    assert!(found.contains(&(3, 2, NQN.into())), "{found:?}");
    shut_down(admin);
    target.stop();
}
