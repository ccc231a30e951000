//! Bandwidth caps under a script of bytes: hosts that read, write, abort and disconnect, while caps of the namespace and of each host
//! change, on the bench of a real I/O thread (`pilotlight_nvmf_target::testing`).
//!
//! The oracle is a simple meter for each cap ([`Meter`]): it decreases at the cap's rate and increases by admitted bytes.
//!
//! Properties for every script:
//! - a meter never exceeds 2 % of a second of its cap plus one largest request, so no second has more than that above the cap;
//! - every command is answered once its bytes and all those before it are earned: no command starves, and the bytes of aborted commands and
//!   lost connections are returned;
//! - Flush and admin commands are answered at once, whatever is throttled;
//! - at the end nothing is throttled, and the accounted bytes are those of the answered commands.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use pilotlight_nvme::command::Sgl;
use pilotlight_nvme::command::opcode::{admin, io};
use pilotlight_nvme::fabrics::{CNTLID_DYNAMIC, ConnectCmd, ConnectData, PropertyCmd, cc, property};
use pilotlight_nvme::pdu::data_offset;
use pilotlight_nvme::pdu::{
    C2HData, CapsuleCmd, CapsuleResp, CommonHeader, Digests, Flags, H2CData, IcReq, PduType, R2T,
};
use pilotlight_nvme::{Sqe, Status};
use pilotlight_nvmf_target::Limits;
use pilotlight_nvmf_target::testing::{Bench, NQN, Peer};
use pilotlight_storage::{Backend, MemoryBackend, MemoryBudget};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

const BLOCK: u32 = 4096;
const BLOCKS: u64 = 256;
const LARGEST: u64 = 128 << 10;
const HOSTS: usize = 3;
/// Maximum commands of a queue; Flush has one more identifier.
const DEPTH: u16 = 30;
const FLUSH: u16 = 31;
const STEP_NS: u64 = 50_000;
const S: u64 = 1_000_000_000;
/// Steps within which an uncapped command is answered: the data in flight before it takes a few.
const AT_ONCE: usize = 100;
const NONE: Digests = Digests { header: false, data: false };

/// Runs the script `bytes`.
pub fn check(bytes: &[u8]) {
    let mut script = bytes.iter().copied();
    let mut scene = Scene::new(script.next().unwrap_or(0));
    while let Some(act) = script.next() {
        scene.act(act, script.next().unwrap_or(0));
    }
    scene.end();
}

/// Bytes above the allowance of a cap.
#[derive(Default)]
struct Meter {
    cap: Option<u64>,
    level: f64,
    /// Maximum except for a largest request: 2 % of a second of the highest cap since it was 0.
    most: f64,
    lowest: u64,
}

impl Meter {
    fn set(&mut self, cap: Option<u64>) {
        self.cap = cap;
        self.most = self.most.max(0.02 * cap.unwrap_or(0) as f64);
        self.lowest = self.lowest.min(cap.unwrap_or(u64::MAX));
    }

    fn pass(&mut self, ns: u64) {
        let Some(cap) = self.cap else { return };
        self.level -= cap as f64 * ns as f64 / S as f64;
        if self.level <= 0.0 {
            (self.level, self.most) = (0.0, 0.02 * cap as f64);
        }
    }

    fn count(&mut self, bytes: u64) {
        if self.cap.is_some() {
            self.level += bytes as f64;
            assert!(self.level <= self.most + LARGEST as f64, "{} bytes above a cap of {:?}", self.level, self.cap);
        }
    }
}

#[derive(Clone, Copy)]
struct Command {
    bytes: u64,
    /// The target has shown that it was admitted.
    is_admitted: bool,
    /// The meters that counted it: the namespace's and its host's.
    counted: [bool; 2],
}

struct Line {
    peer: Peer,
    partial: Vec<u8>,
    backlog: VecDeque<u8>,
}

impl Line {
    fn send(&mut self, bytes: &[u8]) {
        self.backlog.extend(bytes);
        while !self.backlog.is_empty() {
            let taken = self.peer.send(self.backlog.as_slices().0);
            if taken == 0 {
                return;
            }
            self.backlog.drain(..taken);
        }
    }

    fn capsule(&mut self, cid: u16, mut sqe: Sqe, data: &[u8]) {
        sqe.cid = cid.into();
        let pdo = data_offset(PduType::CapsuleCmd, NONE, 0);
        let mut pdu = CapsuleCmd::new(sqe, data.len() as u32, pdo, NONE).as_bytes().to_vec();
        if !data.is_empty() {
            pdu.resize(pdo.into(), 0);
            pdu.extend_from_slice(data);
        }
        self.send(&pdu);
    }

    /// All complete PDUs received.
    fn receive(&mut self) -> Vec<Vec<u8>> {
        let mut chunk = [0; 16_384];
        while let Some(received @ 1..) = self.peer.receive(&mut chunk) {
            self.partial.extend_from_slice(&chunk[..received]);
        }
        self.send(&[]);
        let mut pdus = Vec::new();
        while self.partial.len() >= CommonHeader::LEN {
            let len = decode::<CommonHeader>(&self.partial).plen.get() as usize;
            if self.partial.len() < len {
                break;
            }
            pdus.push(self.partial.drain(..len).collect());
        }
        pdus
    }
}

struct Host {
    admin: Line,
    io: Line,
    commands: HashMap<u16, Command>,
    r2ts: Vec<R2T>,
    /// Answers to admin commands and Flush.
    passed: u32,
}

struct Scene {
    bench: Bench,
    hosts: Vec<Host>,
    /// The namespace's, then each host's.
    meters: [Meter; 1 + HOSTS],
    /// Bytes of admitted commands while the namespace was capped; and bytes of commands whose end was not observed.
    counted: u64,
    unseen: u64,
    /// Whether both counts must be equal: not if the namespace's cap was removed with commands in flight.
    is_exact: bool,
}

impl Scene {
    fn new(setup: u8) -> Self {
        let memory = MemoryBackend::new(BLOCK, BLOCKS, Arc::new(MemoryBudget::unlimited())).expect("memory");
        let memory: Arc<dyn Backend> = Arc::new(memory);
        let bench =
            Bench::new(&memory, Limits { max_queue_depth: 64, ..Limits::default() }, 32 << 20).expect("a bench");
        let meters = Default::default();
        let mut scene = Self { bench, hosts: Vec::new(), meters, counted: 0, unseen: 0, is_exact: true };
        scene.meters.iter_mut().for_each(|meter| meter.lowest = u64::MAX);
        for host in 0..HOSTS {
            let host = scene.connect(host);
            scene.hosts.push(host);
        }
        scene.set_cap(0, cap(setup));
        scene
    }

    fn line(&mut self) -> Line {
        let peer = self.bench.connect(false).expect("a descriptor");
        let mut line = Line { peer, partial: Vec::new(), backlog: VecDeque::new() };
        line.send(IcReq::new(0, NONE, 3).as_bytes());
        self.exchange(&mut line);
        line
    }

    /// Polls until nothing more arrives; returns the result of the last answer.
    fn exchange(&mut self, line: &mut Line) -> u64 {
        let mut result = 0;
        for _ in 0..4 {
            self.step();
            for pdu in line.receive().iter().filter(|pdu| pdu[0] == PduType::CapsuleResp as u8) {
                let cqe = decode::<CapsuleResp>(pdu).cqe;
                assert!(cqe.status().is_success(), "{}", cqe.status());
                result = cqe.result.get();
            }
        }
        result
    }

    fn connect(&mut self, host: usize) -> Host {
        let data = |cntlid| ConnectData::new([host as u8 + 1; 16], cntlid, NQN, &name(host));
        let connect = |qid, entries: u16| {
            ConnectCmd { recfmt: 0, qid, sqsize: entries, cattr: ConnectCmd::DISABLE_SQ_FLOW, kato_ms: 0 }.encode()
        };
        let mut admin = self.line();
        admin.capsule(0, connect(0, 31), data(CNTLID_DYNAMIC).as_bytes());
        let cntlid = self.exchange(&mut admin) as u16;
        admin.capsule(0, PropertyCmd::set(property::CC, cc::EN | cc::IOSQES_IOCQES), &[]);
        self.exchange(&mut admin);
        let mut io = self.line();
        io.capsule(0, connect(1, 63), data(cntlid).as_bytes());
        self.exchange(&mut io);
        Host { admin, io, commands: HashMap::new(), r2ts: Vec::new(), passed: 0 }
    }

    fn act(&mut self, act: u8, value: u8) {
        let at = usize::from(act >> 4) % HOSTS;
        match act & 15 {
            0..=3 => self.read(at, value),
            4..=6 => self.write(at, value),
            7 => self.answer(at),
            8..=10 => (0..=value).for_each(|_| self.step_all()),
            11 => self.set_cap(usize::from(act >> 4) % self.meters.len(), cap(value)),
            12 => self.abort(at, value),
            13 => self.flush_and_keep_alive(at),
            14 if value & 3 == 0 => self.reconnect(at),
            14 => (0..16).for_each(|more| self.read(at, value.wrapping_add(more))),
            _ => self.step_all(),
        }
    }

    fn free(&self, at: usize) -> Option<u16> {
        (1..=DEPTH).find(|cid| !self.hosts[at].commands.contains_key(cid))
    }

    fn start(&mut self, at: usize, cid: u16, blocks: u32) {
        let bytes = u64::from(blocks * BLOCK);
        self.hosts[at].commands.insert(cid, Command { bytes, is_admitted: false, counted: [false; 2] });
    }

    fn read(&mut self, at: usize, value: u8) {
        let Some(cid) = self.free(at) else { return };
        let blocks = 1 + u32::from(value) % 32;
        let mut sqe = Sqe::block_io(io::READ, 1, u64::from(value), blocks);
        sqe.sgl = Sgl::transport(blocks * BLOCK);
        sqe = if u64::from(value) + u64::from(blocks) > BLOCKS {
            Sqe { sgl: sqe.sgl, ..Sqe::block_io(io::READ, 1, 0, blocks) }
        } else {
            sqe
        };
        self.hosts[at].io.capsule(cid, sqe, &[]);
        self.start(at, cid, blocks);
    }

    /// With data in the capsule, or by R2T.
    fn write(&mut self, at: usize, value: u8) {
        let Some(cid) = self.free(at) else { return };
        let blocks = 1 + u32::from(value) % 32;
        let mut sqe = Sqe::block_io(io::WRITE, 1, 0, blocks);
        let len = blocks * BLOCK;
        let in_capsule = len <= 8192 && value & 64 != 0;
        sqe.sgl = if in_capsule { Sgl::in_capsule(len) } else { Sgl::transport(len) };
        let data = vec![value; if in_capsule { len as usize } else { 0 }];
        self.hosts[at].io.capsule(cid, sqe, &data);
        self.start(at, cid, blocks);
    }

    /// Sends the data of the oldest R2T.
    fn answer(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        if host.r2ts.is_empty() {
            return;
        }
        let r2t = host.r2ts.remove(0);
        let pdo = data_offset(PduType::H2CData, NONE, 0);
        let (offset, len) = (r2t.r2to.get(), r2t.r2tl.get());
        let header = H2CData::new(r2t.cccid.get(), r2t.ttag.get(), offset, len, pdo, Flags::LAST_PDU, NONE);
        let mut pdu = header.as_bytes().to_vec();
        pdu.resize(pdo.into(), 0);
        pdu.resize(usize::from(pdo) + len as usize, 0x11);
        host.io.send(&pdu);
    }

    fn abort(&mut self, at: usize, value: u8) {
        let cid = u32::from(1 + u16::from(value) % DEPTH);
        self.hosts[at].admin.capsule(9, Sqe::new(admin::ABORT, 0).with_cdw(10, cid << 16 | 1), &[]);
        self.passes(at);
    }

    fn flush_and_keep_alive(&mut self, at: usize) {
        self.hosts[at].io.capsule(FLUSH, Sqe::new(io::FLUSH, 1), &[]);
        self.passes(at);
        self.hosts[at].admin.capsule(9, Sqe::new(admin::KEEP_ALIVE, 0), &[]);
        self.passes(at);
    }

    /// The command just sent is answered at once.
    fn passes(&mut self, at: usize) {
        let before = self.hosts[at].passed;
        let steps = (0..AT_ONCE).find(|_| (self.step_all(), self.hosts[at].passed > before).1);
        assert!(steps.is_some(), "host {at} waits for what no cap is about: {:?}", self.bench.cap());
    }

    /// The host disconnects with commands in flight, and reconnects.
    fn reconnect(&mut self, at: usize) {
        let again = self.connect(at);
        let gone = std::mem::replace(&mut self.hosts[at], again);
        // Each may have been executed, or its bytes returned.
        for command in gone.commands.values() {
            self.unseen += command.bytes;
            self.give_back(at, *command);
        }
        drop(gone);
        self.step_all();
    }

    /// Caps the namespace (0) or a host. Commands in flight without a charge are admitted before the meter starts.
    fn set_cap(&mut self, of: usize, cap: Option<u64>) {
        if self.meters[of].cap.is_none() && cap.is_some() {
            (0..AT_ONCE).for_each(|_| self.step_all());
        }
        let is_lifted = of == 0 && cap.is_none() && self.meters[0].cap.is_some();
        self.is_exact &= !(is_lifted && self.hosts.iter().any(|host| !host.commands.is_empty()));
        match of {
            0 => self.bench.set_cap(cap),
            host => self.bench.set_host_cap(&name(host - 1), cap),
        }
        self.bench.ring(); // an I/O thread that waits would notice it later, which is not tested here
        self.meters[of].set(cap);
    }

    fn step(&mut self) {
        self.bench.step(STEP_NS);
        self.meters.iter_mut().for_each(|meter| meter.pass(STEP_NS));
    }

    fn step_all(&mut self) {
        self.step();
        for at in 0..self.hosts.len() {
            for pdu in self.hosts[at].io.receive() {
                self.came(at, &pdu);
            }
            let answers = self.hosts[at].admin.receive().len() as u32;
            self.hosts[at].passed += answers;
        }
    }

    fn came(&mut self, at: usize, pdu: &[u8]) {
        match pdu[0] {
            kind if kind == PduType::R2T as u8 => {
                let r2t: R2T = decode(pdu);
                self.admitted(at, r2t.cccid.get());
                self.hosts[at].r2ts.push(r2t);
            }
            kind if kind == PduType::C2HData as u8 => {
                let data: C2HData = decode(pdu);
                self.admitted(at, data.cccid.get());
                if data.ch.flags().contains(Flags::SUCCESS) {
                    self.hosts[at].commands.remove(&data.cccid.get());
                }
            }
            kind if kind == PduType::CapsuleResp as u8 => {
                let cqe = decode::<CapsuleResp>(pdu).cqe;
                self.answered(at, cqe.cid.get(), cqe.status());
            }
            kind => panic!("the target sent a PDU of type {kind}"),
        }
    }

    fn admitted(&mut self, at: usize, cid: u16) {
        let Some(command) = self.hosts[at].commands.get_mut(&cid) else { panic!("command {cid} was not sent") };
        if std::mem::replace(&mut command.is_admitted, true) {
            return;
        }
        command.counted = [0, 1 + at].map(|of| self.meters[of].cap.is_some());
        let Command { bytes, counted, .. } = *command;
        self.meters[0].count(bytes);
        self.meters[1 + at].count(bytes);
        self.counted += if counted[0] { bytes } else { 0 };
    }

    fn answered(&mut self, at: usize, cid: u16, status: Status) {
        if cid == FLUSH {
            assert!(status.is_success(), "{status}");
            return self.hosts[at].passed += 1;
        }
        if status == Status::ABORT_REQUESTED {
            let command = self.hosts[at].commands.remove(&cid).expect("it was sent");
            self.hosts[at].r2ts.retain(|r2t| r2t.cccid.get() != cid);
            return self.give_back(at, command);
        }
        assert!(status.is_success(), "{status}");
        self.admitted(at, cid);
        self.hosts[at].commands.remove(&cid);
    }

    /// Returns the bytes that a command was charged, as the target does.
    fn give_back(&mut self, at: usize, command: Command) {
        let Command { bytes, counted, .. } = command;
        self.counted -= if counted[0] { bytes } else { 0 };
        for of in
            [(0, counted[0]), (1 + at, counted[1])].into_iter().filter_map(|(of, is_counted)| is_counted.then_some(of))
        {
            self.meters[of].level = (self.meters[of].level - bytes as f64).max(0.0);
        }
    }

    fn end(mut self) {
        let waiting: u64 = self.hosts.iter().flat_map(|host| host.commands.values()).map(|command| command.bytes).sum();
        let lowest = self.meters.iter().map(|meter| meter.lowest).min().unwrap_or(u64::MAX);
        // at the lowest cap, and twice the time in case two caps alternate; overspent bytes are earned first
        let patience_ns = 2 * ((waiting + 2 * LARGEST) as f64 / lowest as f64 * S as f64) as u64 + S / 10;
        let until_ns = self.bench.now_ns() + patience_ns;
        while self.hosts.iter().any(|host| !host.commands.is_empty()) {
            (0..HOSTS).for_each(|at| self.answer(at));
            self.step_all();
            let left = || self.hosts.iter().map(|host| host.commands.len()).collect::<Vec<_>>();
            assert!(self.bench.now_ns() < until_ns, "{:?} commands wait for ever: {:?}", left(), self.bench.cap());
        }
        (0..HOSTS).for_each(|at| self.flush_and_keep_alive(at));
        let stats = self.bench.cap();
        assert_eq!(stats.throttled_now, 0, "{stats:?}");
        let most = self.counted + self.unseen;
        assert!(
            !self.is_exact || (self.counted..=most).contains(&stats.bytes),
            "{} to {most}: {stats:?}",
            self.counted
        );
    }
}

fn name(host: usize) -> String {
    format!("nqn.2026-01.test:host-{host}")
}

/// No cap, or 1 to 127 MB/s.
fn cap(value: u8) -> Option<u64> {
    (value & 0x80 == 0).then(|| u64::from(value & 0x7f).max(1) * 1_000_000)
}

/// A structure at the start of `bytes`.
fn decode<T: FromBytes + FromZeros>(bytes: &[u8]) -> T {
    T::read_from_prefix(bytes).map_or_else(|_| T::new_zeroed(), |(value, _)| value)
}
