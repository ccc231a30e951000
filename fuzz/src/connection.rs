//! Hosts with arbitrary behaviour, driven by a script of bytes, against a real I/O thread on the bench (`pilotlight_nvmf_target::testing`).
//!
//! The first bytes select the scene: digests, R2Ts, memory, a slow backend. The others are actions: well-formed commands with some wrong
//! bytes, answers to R2Ts, random bytes, silence, disconnects, on several connections, split into pieces of any size.
//!
//! Properties for every script:
//! - nothing panics, and the resources of a connection stay bounded (`Bench::usage`);
//! - PDUs from the target are well formed, and no command is answered more often than it was sent;
//! - another host is served meanwhile;
//! - no block changes for which no complete and undamaged command was sent ([`oracle`]);
//! - when all peers are gone, all connections, buffers, requests and associations are released.

#[path = "connection/line.rs"]
mod line;
#[path = "connection/oracle.rs"]
mod oracle;

use std::sync::Arc;

use line::Line;
use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::opcode::{self, admin, io};
use pilotlight_nvme::command::{Sgl, fuse};
use pilotlight_nvme::fabrics::{CNTLID_DYNAMIC, ConnectCmd, ConnectData, PropertyCmd, cc, property};
use pilotlight_nvme::pdu::{Digests, PduType};
use pilotlight_nvmf_target::Limits;
use pilotlight_nvmf_target::testing::{Bench, NQN};
use pilotlight_storage::buffer::BufferPool;
use pilotlight_storage::{Backend, DelayBackend, Delays, MemoryBackend, MemoryBudget, Op, Request, Submitted};
use zerocopy::{FromZeros, IntoBytes};

/// Blocks of the namespace, and their size in bytes.
const BLOCKS: u64 = 512;
const BLOCK: usize = 512;
/// Duration of a step, in nanoseconds.
const STEP_NS: u64 = 50_000;
/// Timeout of an expected event, in steps.
const STEPS: usize = 2_000;
/// Maximum of concurrent connections of a script.
const LINES: usize = 16;

/// Runs the script `bytes`.
pub fn check(bytes: &[u8]) {
    let mut script = Script(bytes);
    let mut scene = Scene::new(&mut script);
    while !script.0.is_empty() {
        scene.act(&mut script);
    }
    scene.end();
}

/// Bytes of decisions; zeroes at the end.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

struct Scene {
    bench: Bench,
    backend: Arc<dyn Backend>,
    lines: Vec<Line>,
    /// Ended lines; their sent bytes still count.
    past: Vec<Line>,
    narrow: bool,
    digests: Digests,
    max_r2t: u32,
    flow_control: bool,
    hosts: u8,
    /// Size of the pieces of sends, in bytes.
    piece: usize,
}

fn prefilled(lba: u64) -> [u8; BLOCK] {
    let mut block = [0x80 | lba as u8; BLOCK];
    block[..8].copy_from_slice(&lba.to_le_bytes());
    block
}

fn memory() -> Arc<dyn Backend> {
    let budget = Arc::new(MemoryBudget::unlimited());
    Arc::new(MemoryBackend::new(BLOCK as u32, BLOCKS, budget).expect("memory"))
}

/// Calls `each` for every block of `backend`, to read it or, with `op`, to write it.
fn blocks(backend: &dyn Backend, op: Op, mut each: impl FnMut(u64, &mut [u8])) {
    let mut pool = BufferPool::new(4096).expect("memory");
    let mut channel = backend.open_channel(1).expect("a channel");
    for lba in 0..BLOCKS {
        let mut buffer = pool.alloc(BLOCK).expect("memory");
        if op != Op::Read {
            each(lba, &mut buffer);
        }
        let request = Request { tag: 0, op, lba, blocks: 1, buffer: Some(buffer) };
        let Submitted::Done(completion) = channel.submit(request, 0) else { unreachable!("memory answers at once") };
        let mut buffer = completion.buffer.expect("given back");
        if op == Op::Read {
            each(lba, &mut buffer);
        }
        pool.free(buffer);
    }
}

impl Scene {
    fn new(script: &mut Script) -> Self {
        let (setup, memory_choice) = (script.byte(), script.byte());
        let backend = memory();
        blocks(&*backend, Op::Write { fua: false }, |lba, block| block.copy_from_slice(&prefilled(lba)));
        let delays = Delays { shortest_ns: 0, longest_ns: 2_000_000, seed: u64::from(memory_choice) };
        let late: Arc<dyn Backend> = Arc::new(DelayBackend::new(Arc::clone(&backend), delays));
        let used = if setup & 0x40 == 0 { Arc::clone(&backend) } else { late };
        let pool_bytes = [1 << 20, 2 << 20, 4 << 20, 16 << 20][usize::from(memory_choice & 3)];
        let mut scene = Self {
            bench: Bench::new(&used, Limits { max_queue_depth: 64, ..Limits::default() }, pool_bytes).expect("a bench"),
            backend,
            lines: Vec::new(),
            past: Vec::new(),
            narrow: setup & 0x80 != 0,
            digests: Digests { header: setup & 1 != 0, data: setup & 2 != 0 },
            max_r2t: [1, 2, 4, 16][usize::from(setup >> 2 & 3)],
            flow_control: setup & 0x10 != 0,
            hosts: 0,
            piece: usize::MAX,
        };
        if setup & 0x20 == 0 {
            scene.association(1 + script.byte() % 63);
        } else {
            scene.connect();
        }
        scene
    }

    /// A new connection, without sent bytes.
    fn connect(&mut self) -> usize {
        if self.lines.len() == LINES {
            let line = self.lines.remove(0);
            self.hang_up(line);
        }
        let peer = self.bench.connect(self.narrow).expect("a descriptor");
        self.lines.push(Line::new(peer, self.digests));
        self.lines.len() - 1
    }

    fn hang_up(&mut self, line: Line) {
        self.past.push(line.hung_up());
    }

    /// A connection after ICReq.
    fn shaken(&mut self) -> usize {
        let at = self.connect();
        let request = pilotlight_nvme::pdu::IcReq::new(0, self.digests, self.max_r2t - 1);
        self.exchange(at, request.as_bytes());
        at
    }

    fn connect_cmd(&self, qid: u16, entries: u8) -> ConnectCmd {
        let cattr = if self.flow_control { 0 } else { ConnectCmd::DISABLE_SQ_FLOW };
        ConnectCmd { recfmt: 0, qid, sqsize: entries.into(), cattr, kato_ms: 0 }
    }

    fn connect_data(&self, host: u8, cntlid: u16) -> ConnectData {
        ConnectData::new([host; 16], cntlid, NQN, &format!("nqn.2026-01.test:{host}"))
    }

    /// A valid admin queue, enabled, and an I/O queue of `entries` entries. Returns the I/O queue's line.
    fn association(&mut self, entries: u8) -> usize {
        self.hosts = (self.hosts + 1) % 3; // sometimes an earlier host
        self.association_of(self.hosts, entries)
    }

    fn association_of(&mut self, host: u8, entries: u8) -> usize {
        let admin = self.shaken();
        let data = self.connect_data(host, CNTLID_DYNAMIC);
        let pdu = self.lines[admin].capsule(self.connect_cmd(0, 31).encode(), data.as_bytes());
        self.exchange(admin, &pdu);
        let Some(cntlid) = self.lines[admin].last_result else { return admin };
        let enable = PropertyCmd::set(property::CC, cc::EN | cc::IOSQES_IOCQES);
        let pdu = self.lines[admin].capsule(enable, &[]);
        self.exchange(admin, &pdu);
        let io = self.shaken();
        let data = self.connect_data(host, cntlid as u16);
        let pdu = self.lines[io].capsule(self.connect_cmd(1, entries).encode(), data.as_bytes());
        self.exchange(io, &pdu);
        io
    }

    /// Sends, and polls until nothing more arrives.
    fn exchange(&mut self, at: usize, pdu: &[u8]) {
        self.lines[at].send(pdu);
        for _ in 0..4 {
            self.step(STEP_NS);
            self.lines[at].receive(usize::MAX);
        }
    }

    fn step(&mut self, ns: u64) {
        self.bench.step(ns);
        let _ = self.bench.usage();
    }

    /// Sends in pieces.
    fn send(&mut self, at: usize, bytes: &[u8]) {
        let pieces = bytes.chunks(self.piece.max(bytes.len().div_ceil(64)).max(1));
        for piece in pieces {
            self.lines[at].send(piece);
            if self.piece < usize::MAX {
                self.step(STEP_NS);
            }
        }
    }

    fn act(&mut self, script: &mut Script) {
        let choice = script.byte();
        let at = usize::from(choice >> 4) % self.lines.len().max(1);
        if self.lines.is_empty() {
            self.connect();
        }
        match choice & 15 {
            0 => {
                let len = usize::from(script.byte());
                self.send(at, script.take(len));
            }
            1..=4 => {
                let pdu = self.command(at, script);
                let pdu = damaged(pdu, script);
                self.send(at, &pdu);
            }
            5..=7 => self.answer(at, script),
            8 => (0..=script.byte() & 31).for_each(|_| self.step(STEP_NS)),
            9 => self.lines[at].receive(usize::from(script.byte()) * 64),
            10 => self.lines[at].receive(usize::MAX),
            11 => {
                let line = self.lines.remove(at);
                self.hang_up(line);
            }
            12 => {
                let entries = script.byte() % 64;
                self.association(entries.max(1));
            }
            13 => {
                let at = self.shaken();
                let pdu = self.fabrics(at, script);
                self.send(at, &pdu);
            }
            14 => self.piece = [usize::MAX, 1, 7, 100, 4000, 24, 72, 8][usize::from(script.byte() & 7)],
            _ => match script.byte() & 7 {
                0 => self.step(1_000_000_000),
                1 => self.lines[at].finish(),
                2 => {
                    let pdu = [2, 0, 24, 0, 24, 0, 0, 0];
                    self.send(at, &pdu);
                }
                _ => self.step(STEP_NS),
            },
        }
    }

    /// A command that may be valid.
    fn command(&mut self, at: usize, script: &mut Script) -> Vec<u8> {
        const OPCODES: [u8; 16] = [
            io::WRITE,
            io::WRITE,
            io::WRITE,
            io::READ,
            io::READ,
            io::COMPARE,
            io::FLUSH,
            io::WRITE_ZEROES,
            io::DATASET_MANAGEMENT,
            io::VERIFY,
            admin::IDENTIFY,
            admin::GET_LOG_PAGE,
            admin::SET_FEATURES,
            admin::GET_FEATURES,
            admin::ASYNC_EVENT_REQUEST,
            admin::ABORT,
        ];
        let (kind, cid, first, count) = (script.byte(), script.byte(), script.byte(), script.byte());
        if kind & 144 == 144 {
            return self.fused(at, [kind, cid, first, count], script);
        }
        if kind & 128 != 0 {
            return self.reservation(at, [kind, cid, first, count], script);
        }
        let opcode = OPCODES[usize::from(kind & 15)];
        let blocks = u32::from(count) % 260 + 1;
        let mut sqe = Sqe::block_io(opcode, 1, u64::from(first) * 2, blocks);
        sqe.cid = u16::from(cid & 31).into();
        let mut len = blocks * BLOCK as u32;
        match opcode {
            io::DATASET_MANAGEMENT => {
                // Set Features on the admin queue has the same number
                sqe = sqe.with_cdw(10, u32::from(count & 15)).with_cdw(11, u32::from(first));
                len = (u32::from(count & 15) + 1) * 16;
            }
            admin::IDENTIFY => {
                sqe = sqe.with_cdw(10, u32::from(first)).with_cdw(11, 0);
                len = 4096;
            }
            admin::ABORT if kind & 16 != 0 => {
                sqe = sqe.with_cdw(10, u32::from(count & 1) | u32::from(first & 31) << 16)
            }
            admin::GET_LOG_PAGE if kind & 16 != 0 => {
                sqe = sqe.with_cdw(10, u32::from(first) | u32::from(count) << 18).with_cdw(11, 0).with_cdw(12, 0);
                len = (u32::from(count) << 2) * 4 + 4;
            }
            _ => {}
        }
        let in_capsule =
            kind & 32 == 0 && len <= 8192 && matches!(opcode, io::WRITE | io::COMPARE | io::DATASET_MANAGEMENT);
        sqe.sgl = if in_capsule { Sgl::in_capsule(len) } else { Sgl::transport(len) };
        if kind & 64 != 0 {
            let field = usize::from(script.byte()) % 64;
            sqe.as_mut_bytes()[field] ^= script.byte();
        }
        let fill = vec![cid; if in_capsule { len as usize } else { 0 }];
        self.lines[at].capsule(sqe, &fill)
    }

    /// A reservation command that may be valid. Keys are few, so that hosts preempt each other.
    fn reservation(&mut self, at: usize, [kind, cid, first, count]: [u8; 4], script: &mut Script) -> Vec<u8> {
        let (action, own, other) = (u32::from(first & 3), first >> 4 & 3, first >> 6 & 3);
        let keys = [own, 0, 0, 0, 0, 0, 0, 0, other, 0, 0, 0, 0, 0, 0, 0];
        let (opcode, cdw10, len) = match kind & 3 {
            0 => (io::RESERVATION_REGISTER, action | u32::from(count & 1) << 3 | u32::from(count >> 6) << 30, 16),
            1 => (io::RESERVATION_ACQUIRE, action | u32::from(count & 7) << 8, 16),
            2 => (io::RESERVATION_RELEASE, (action & 1) | u32::from(count & 7) << 8, 8),
            _ => (io::RESERVATION_REPORT, u32::from(count) << 2, 0),
        };
        let mut sqe = Sqe::new(opcode, 1).with_cdw(10, cdw10).with_cdw(11, u32::from(first != 0));
        sqe.cid = u16::from(cid & 31).into();
        let in_capsule = kind & 32 == 0 && len > 0;
        sqe.sgl = if in_capsule {
            Sgl::in_capsule(len)
        } else {
            Sgl::transport(if len > 0 { len } else { (cdw10 % 512 + 1) * 4 })
        };
        if kind & 64 != 0 {
            let field = usize::from(script.byte()) % 64;
            sqe.as_mut_bytes()[field] ^= script.byte();
        }
        self.lines[at].capsule(sqe, if in_capsule { &keys[..len as usize] } else { &[] })
    }

    /// A fused Compare and Write that may be valid, or one command of it. Blocks are few, so that hosts change the same ones.
    fn fused(&mut self, at: usize, [kind, cid, first, count]: [u8; 4], script: &mut Script) -> Vec<u8> {
        let half = |opcode, fused, cid: u8| {
            let sqe = Sqe::block_io(opcode, 1, u64::from(first & 3), 1);
            Sqe { flags: sqe.flags | fused, cid: u16::from(cid & 31).into(), ..sqe }
        };
        let pair = [half(io::COMPARE, fuse::FIRST, cid), half(io::WRITE, fuse::SECOND, cid.wrapping_add(1))];
        // what other commands write are command identifiers
        let fill = [[count >> 3; BLOCK], [cid; BLOCK]];
        let sent: &[usize] =
            [&[0, 1][..], &[0, 1], &[0, 1], &[0, 1], &[0, 1], &[0], &[1], &[1, 0]][usize::from(count & 7)];
        let mut pdus = Vec::new();
        for &which in sent {
            let mut sqe = pair[which];
            let in_capsule = kind & (1 << which) == 0;
            sqe.sgl = if in_capsule { Sgl::in_capsule(BLOCK as u32) } else { Sgl::transport(BLOCK as u32) };
            if kind & 64 != 0 {
                let field = usize::from(script.byte()) % 64;
                sqe.as_mut_bytes()[field] ^= script.byte();
            }
            pdus.extend(self.lines[at].capsule(sqe, if in_capsule { &fill[which] } else { &[] }));
        }
        pdus
    }

    /// A Fabrics command that may be valid.
    fn fabrics(&mut self, at: usize, script: &mut Script) -> Vec<u8> {
        let (kind, host, cntlid, qid) = (script.byte(), script.byte() % 3, script.byte() % 8, script.byte() % 4);
        let cntlid = if qid == 0 { CNTLID_DYNAMIC } else { u16::from(cntlid) };
        let data = self.connect_data(host, cntlid);
        let mut sqe = match kind & 7 {
            0 => PropertyCmd::set(property::CC, script.word()),
            1 => PropertyCmd::get(script.byte().into(), kind & 8 != 0),
            2 => Sqe::new(opcode::FABRICS, script.byte().into()),
            _ => self.connect_cmd(qid.into(), script.byte()).encode(),
        };
        if kind & 16 != 0 {
            let field = usize::from(script.byte()) % 64;
            sqe.as_mut_bytes()[field] ^= script.byte();
        }
        let is_connect = kind & 7 > 2;
        self.lines[at].capsule(sqe, if is_connect { data.as_bytes() } else { &[] })
    }

    /// Data for an R2T, valid or not.
    fn answer(&mut self, at: usize, script: &mut Script) {
        let how = script.byte();
        let Some(pdu) = self.lines[at].answer(usize::from(how >> 5), how & 1 != 0, u32::from(how >> 1 & 15)) else {
            return;
        };
        let pdu = if how & 0x1e == 0x1e { damaged(pdu, script) } else { pdu };
        self.send(at, &pdu);
    }

    fn end(mut self) {
        for line in &mut self.lines {
            line.receive(usize::MAX);
        }
        self.another_host_is_served();
        for line in std::mem::take(&mut self.lines) {
            self.hang_up(line);
        }
        let gone = |bench: &Bench| bench.usage().connections == 0;
        let steps = (0..STEPS).find(|_| gone(&self.bench) || (self.bench.step(10 * STEP_NS), false).1);
        let usage = self.bench.usage();
        assert!(steps.is_some(), "every peer is gone, these are not: {usage:?}");
        assert_eq!((usage.buffers, usage.charged, usage.in_backends), (0, 0, 0), "{usage:?}");
        assert_eq!(self.bench.associations(), 0, "associations are left");
        let mut touched = [false; BLOCKS as usize];
        for line in &self.past {
            line.check_answers();
            oracle::mark(&line.sent, BLOCK as u64, &mut touched);
        }
        blocks(&*self.backend, Op::Read, |lba, block| {
            let same = block == prefilled(lba);
            assert!(same || touched[lba as usize], "block {lba} has changed, and nobody has sent a write for it");
        });
    }

    /// A host outside the script writes a block and reads it back.
    fn another_host_is_served(&mut self) {
        const LBA: u64 = BLOCKS - 1;
        self.piece = usize::MAX;
        self.narrow = false;
        // all the others stay unchanged
        let others = std::mem::take(&mut self.lines);
        let io = self.association_of(0xaa, 7);
        let data = [0xa5; BLOCK];
        let write = Sqe { sgl: Sgl::in_capsule(BLOCK as u32), ..Sqe::block_io(io::WRITE, 1, LBA, 1) };
        let read = Sqe { sgl: Sgl::transport(BLOCK as u32), ..Sqe::block_io(io::READ, 1, LBA, 1) };
        for (name, sqe, data) in [("write", write, &data[..]), ("read", read, &[])] {
            let line = &mut self.lines[io];
            let before = line.answered();
            let pdu = line.capsule(sqe, data);
            line.send(&pdu);
            let steps = (0..STEPS).find(|&step| {
                // first at full speed, then until stalled hosts are dropped
                self.bench.step(if step < 200 { STEP_NS } else { 100 * STEP_NS });
                self.lines[io].receive(usize::MAX);
                self.lines[io].answered() > before
            });
            assert!(steps.is_some(), "another host's {name} is not answered: {:?}", self.bench.usage());
        }
        for line in std::mem::replace(&mut self.lines, others) {
            self.hang_up(line);
        }
    }
}

/// `pdu`, sometimes with a byte changed or truncated.
fn damaged(mut pdu: Vec<u8>, script: &mut Script) -> Vec<u8> {
    match script.byte() {
        0xf0..=0xf7 => {
            let at = usize::from(script.byte()) % pdu.len();
            pdu[at] ^= script.byte();
        }
        0xf8..=0xfb => {
            let len = pdu.len();
            let at = script.word() as usize % len;
            pdu[at] ^= script.byte();
        }
        0xfc..=0xfd => {
            let len = script.word() as usize % pdu.len();
            pdu.truncate(len);
        }
        _ => {}
    }
    pdu
}

/// The types that a controller sends.
fn is_to_host(pdu_type: PduType) -> bool {
    matches!(pdu_type, PduType::ICResp | PduType::C2HTermReq | PduType::CapsuleResp | PduType::C2HData | PduType::R2T)
}

/// A structure at the start of `bytes`.
fn decode<T: zerocopy::FromBytes + FromZeros>(bytes: &[u8]) -> T {
    T::read_from_prefix(bytes).map_or_else(|_| T::new_zeroed(), |(value, _)| value)
}
