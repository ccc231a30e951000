//! A toy NVMe/TCP target: a thread a connection, blocking calls, everything in one `Vec`.
//!
//! It shares no code with `pilotlight-nvmf-target` (only the wire structures), checks what the host sends against the
//! specification, and can be told to store or return the wrong thing ([`Tamper`]). A breach by the host is remembered
//! and makes [`Toy::finish`] panic.

mod fast;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use pilotlight_nvme::command::{Sgl, opcode};
use pilotlight_nvme::digest::digest;
use pilotlight_nvme::fabrics::{ConnectCmd, PropertyCmd, cap, cc, csts, fctype, property};
use pilotlight_nvme::le::{U16, U32};
use pilotlight_nvme::pdu::{
    C2HData, CapsuleResp, CommonHeader, Digests, Flags, H2CData, IcReq, IcResp, PduType, R2T, data_offset,
};
use pilotlight_nvme::{Cqe, Sqe, Status};
use zerocopy::{FromBytes, IntoBytes};

type OnRead = Box<dyn Fn(u64, &mut [u8]) + Send + Sync>;
type OnWrite = Box<dyn Fn(u64, &mut [u8], &[u8]) -> bool + Send + Sync>;

/// Changes data on its way; the arguments are the first block and the bytes. The return value of `on_write` says
/// whether the write is stored at all.
#[derive(Default)]
pub(crate) struct Tamper {
    pub(crate) on_read: Option<OnRead>,
    pub(crate) on_write: Option<OnWrite>,
}

/// How the toy behaves.
pub(crate) struct Config {
    pub(crate) blocks: u64,
    pub(crate) block_size: u32,
    pub(crate) digests: Digests,
    pub(crate) cpda: u8,
    pub(crate) max_h2c_data: u32,
    pub(crate) in_capsule: u32,
    /// Bytes per R2T.
    pub(crate) r2t_len: u32,
    /// Bytes per C2HData PDU.
    pub(crate) c2h_len: u32,
    /// The answer to Connect's wish to switch SQ flow control off.
    pub(crate) grant_no_flow: bool,
    /// Status of every read from this block on.
    pub(crate) fail_from: Option<u64>,
    pub(crate) tamper: Tamper,
    /// I/O queues answer 4 KiB reads at full speed, and nothing else. Their threads run on this CPU.
    pub(crate) fast: Option<usize>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            blocks: 4096,
            block_size: 4096,
            digests: Digests { header: true, data: true },
            cpda: 0,
            max_h2c_data: 128 * 1024,
            in_capsule: 4096,
            r2t_len: 128 * 1024,
            c2h_len: 128 * 1024,
            grant_no_flow: true,
            fail_from: None,
            tamper: Tamper::default(),
            fast: None,
        }
    }
}

struct Shared {
    config: Config,
    store: Mutex<Vec<u8>>,
    cc: AtomicU32,
    stop: AtomicBool,
    breaches: Mutex<Vec<String>>,
    /// Largest number of R2Ts outstanding for one command, and whether answers came out of order.
    most_r2ts: AtomicU32,
    reordered: AtomicBool,
    h2c_pdus: AtomicU32,
    keep_alives: AtomicU32,
}

/// A running toy.
pub(crate) struct Toy {
    pub(crate) addr: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Toy {
    pub(crate) fn start(config: Config) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("its address");
        let store = Mutex::new(vec![0; (config.blocks * u64::from(config.block_size)) as usize]);
        let shared = Arc::new(Shared {
            config,
            store,
            cc: AtomicU32::new(0),
            stop: AtomicBool::new(false),
            breaches: Mutex::default(),
            most_r2ts: AtomicU32::new(0),
            reordered: AtomicBool::new(false),
            h2c_pdus: AtomicU32::new(0),
            keep_alives: AtomicU32::new(0),
        });
        let theirs = shared.clone();
        let acceptor = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if theirs.stop.load(SeqCst) {
                    return;
                }
                let shared = theirs.clone();
                let stream = stream.expect("a connection");
                std::thread::spawn(move || {
                    let mut c = Conn::new(&shared, stream);
                    if let Err(breach) = c.serve() {
                        shared.breaches.lock().expect("lock").push(breach);
                    }
                });
            }
        });
        Self { addr, shared, acceptor: Some(acceptor) }
    }

    /// Panics if a host broke the protocol.
    pub(crate) fn finish(mut self) {
        self.shared.stop.store(true, SeqCst);
        drop(TcpStream::connect(self.addr)); // wakes the acceptor
        self.acceptor.take().expect("started").join().expect("the acceptor");
        let breaches = self.shared.breaches.lock().expect("lock");
        assert!(breaches.is_empty(), "the host broke the protocol: {breaches:?}");
    }

    pub(crate) fn most_r2ts(&self) -> u32 {
        self.shared.most_r2ts.load(SeqCst)
    }
    pub(crate) fn saw_reordering(&self) -> bool {
        self.shared.reordered.load(SeqCst)
    }
    pub(crate) fn h2c_pdus(&self) -> u32 {
        self.shared.h2c_pdus.load(SeqCst)
    }
    pub(crate) fn keep_alives(&self) -> u32 {
        self.shared.keep_alives.load(SeqCst)
    }
    pub(crate) fn store(&self) -> Vec<u8> {
        self.shared.store.lock().expect("lock").clone()
    }
}

type Breach<T> = Result<T, String>;

/// A write whose data is asked for.
struct Pending {
    sqe: Sqe,
    data: Vec<u8>,
    asked: u32,
    got: u32,
    /// Outstanding R2Ts: tag, next offset, end.
    r2ts: Vec<(u16, u32, u32)>,
}

struct Conn<'a> {
    shared: &'a Shared,
    stream: TcpStream,
    digests: Digests,
    hpda: u8,
    max_r2t: u32,
    admin: bool,
    io_queue: bool,
    flow_off: bool,
    sqhd: u16,
    pending: HashMap<u16, Pending>,
    next_ttag: u16,
    input: Vec<u8>,
    filled: usize,
    out: Vec<u8>,
}

impl<'a> Conn<'a> {
    fn new(shared: &'a Shared, stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("nodelay");
        Self {
            shared,
            stream,
            digests: Digests::default(),
            hpda: 0,
            max_r2t: 1,
            admin: false,
            io_queue: false,
            flow_off: false,
            sqhd: 0,
            pending: HashMap::new(),
            next_ttag: 100,
            input: vec![0; 1 << 20],
            filled: 0,
            out: Vec::new(),
        }
    }

    /// More input; false at the end.
    fn more(&mut self) -> bool {
        match self.stream.read(&mut self.input[self.filled..]) {
            Ok(n) if n > 0 => {
                self.filled += n;
                true
            }
            _ => false,
        }
    }

    fn serve(&mut self) -> Breach<()> {
        while self.filled < 128 {
            if !self.more() {
                return Ok(());
            }
        }
        self.shake_hands()?;
        loop {
            let mut at = 0;
            while let Some(len) = self.whole_pdu(at)? {
                let pdu = self.input[at..at + len].to_vec();
                at += len;
                self.pdu(&pdu)?;
            }
            self.input.copy_within(at..self.filled, 0);
            self.filled -= at;
            if self.stream.write_all(&self.out).is_err() {
                return Ok(());
            }
            self.out.clear();
            if let Some(cpu) = self.shared.config.fast.filter(|_| self.io_queue) {
                pilotlight_host::clock::pin_to_cpu(cpu).expect("pinned");
                fast::serve(&self.stream);
                return Ok(());
            }
            if !self.more() {
                return Ok(());
            }
        }
    }

    fn shake_hands(&mut self) -> Breach<()> {
        let req = IcReq::read_from_bytes(&self.input[..128]).map_err(|e| e.to_string())?;
        if req.ch.pdu_type != 0 || req.ch.hlen != 128 || req.ch.plen.get() != 128 || req.pfv.get() != 0 {
            return Err("a bad ICReq".into());
        }
        let (config, asked) = (&self.shared.config, Digests::from_u8(req.dgst).ok_or("reserved bits in DGST")?);
        self.digests =
            Digests { header: asked.header && config.digests.header, data: asked.data && config.digests.data };
        (self.hpda, self.max_r2t) = (req.hpda, req.maxr2t.get() + 1);
        let resp = IcResp {
            ch: CommonHeader::new(PduType::ICResp, Flags::empty(), 0, 128),
            pfv: U16::ZERO,
            cpda: config.cpda,
            dgst: self.digests.to_u8(),
            maxh2cdata: U32::new(config.max_h2c_data),
            reserved: [0; 112],
        };
        self.input.copy_within(128..self.filled, 0);
        self.filled -= 128;
        self.out.extend_from_slice(resp.as_bytes());
        Ok(())
    }

    /// Length of the PDU at `at`, if all of it is there.
    fn whole_pdu(&self, at: usize) -> Breach<Option<usize>> {
        let rest = &self.input[at..self.filled];
        let Ok((ch, _)) = CommonHeader::read_from_prefix(rest) else { return Ok(None) };
        let plen = ch.plen.get() as usize;
        if plen < 8 || plen > self.input.len() {
            return Err(format!("PLEN {plen}"));
        }
        Ok((rest.len() >= plen).then_some(plen))
    }

    fn pdu(&mut self, pdu: &[u8]) -> Breach<()> {
        let (ch, _) = CommonHeader::read_from_prefix(pdu).map_err(|e| e.to_string())?;
        let kind = PduType::from_u8(ch.pdu_type).ok_or("unknown PDU type")?;
        let hlen = kind.header_len();
        if kind == PduType::H2CTermReq {
            return Err(format!("the host complains: FES {} FEI {}", pdu[8], pdu[10]));
        }
        if usize::from(ch.hlen) != hlen || ch.flags().contains(Flags::HDGST) != self.digests.header {
            return Err(format!("{kind:?}: HLEN {} flags {:?}", ch.hlen, ch.flags()));
        }
        if self.digests.header && pdu[hlen..hlen + 4] != digest(&pdu[..hlen]) {
            return Err(format!("{kind:?}: header digest"));
        }
        let data = self.pdu_data(kind, &ch, pdu)?;
        match kind {
            PduType::CapsuleCmd => {
                let sqe = Sqe::read_from_bytes(&pdu[8..72]).map_err(|e| e.to_string())?;
                self.command(sqe, data)
            }
            PduType::H2CData => self.h2c_data(pdu, data),
            _ => Err(format!("{kind:?} from a host")),
        }
    }

    fn pdu_data<'p>(&self, kind: PduType, ch: &CommonHeader, pdu: &'p [u8]) -> Breach<&'p [u8]> {
        if ch.pdo == 0 {
            let expected = kind.header_len() + if self.digests.header { 4 } else { 0 };
            return if pdu.len() == expected { Ok(&[]) } else { Err(format!("{kind:?}: PLEN without data")) };
        }
        if ch.pdo != data_offset(kind, self.digests, self.shared.config.cpda) {
            return Err(format!("{kind:?}: PDO {}", ch.pdo));
        }
        let end = pdu.len() - if self.digests.data { 4 } else { 0 };
        let data = &pdu[usize::from(ch.pdo)..end];
        if self.digests.data && (!ch.flags().contains(Flags::DDGST) || pdu[end..] != digest(data)) {
            return Err(format!("{kind:?}: data digest"));
        }
        Ok(data)
    }

    fn command(&mut self, sqe: Sqe, data: &[u8]) -> Breach<()> {
        self.sqhd = (self.sqhd + 1) % 1024;
        if sqe.psdt() != 1 || sqe.fuse() != 0 {
            return Err("PSDT or FUSE".into());
        }
        let in_capsule = sqe.sgl.identifier == Sgl::IN_CAPSULE;
        if in_capsule && sqe.sgl.length.get() as usize != data.len() || !in_capsule && !data.is_empty() {
            return Err("in-capsule data and SGL do not agree".into());
        }
        match (sqe.opcode, self.admin) {
            (opcode::FABRICS, _) => self.fabrics(sqe, data),
            (_, true) => self.admin_command(&sqe),
            (opcode::io::WRITE, _) if in_capsule => {
                if data.len() > self.shared.config.in_capsule as usize {
                    return Err(format!("{} bytes in a capsule", data.len()));
                }
                let status = self.write(&sqe, data.to_vec());
                self.respond(&sqe, status, 0);
                Ok(())
            }
            (opcode::io::DATASET_MANAGEMENT, _) if in_capsule => {
                let status = self.deallocate(data);
                self.respond(&sqe, status, 0);
                Ok(())
            }
            (opcode::io::WRITE | opcode::io::DATASET_MANAGEMENT, _) => self.ask_for_data(sqe),
            (opcode::io::WRITE_ZEROES, _) => {
                let status = self.zero(sqe.slba(), (sqe.cdw12() & 0xffff) + 1);
                self.respond(&sqe, status, 0);
                Ok(())
            }
            (opcode::io::READ, _) => {
                self.read(&sqe);
                Ok(())
            }
            (opcode::io::FLUSH, _) => {
                self.respond(&sqe, Status::SUCCESS, 0);
                Ok(())
            }
            (other, _) => Err(format!("opcode {other:#x}")),
        }
    }

    fn fabrics(&mut self, sqe: Sqe, data: &[u8]) -> Breach<()> {
        match sqe.fctype() {
            fctype::CONNECT => {
                let cmd = ConnectCmd::decode(&sqe);
                if data.len() != 1024 || cmd.recfmt != 0 {
                    return Err("Connect".into());
                }
                self.admin = cmd.qid == 0;
                self.io_queue = cmd.qid > 0;
                self.flow_off = cmd.cattr & ConnectCmd::DISABLE_SQ_FLOW != 0 && self.shared.config.grant_no_flow;
                self.respond(&sqe, Status::SUCCESS, 1);
            }
            fctype::PROPERTY_GET => {
                let value = match PropertyCmd::decode(&sqe).offset {
                    property::CAP => cap(1024, 20),
                    property::CSTS => u64::from(self.csts()),
                    other => return Err(format!("property {other:#x}")),
                };
                self.respond(&sqe, Status::SUCCESS, value);
            }
            fctype::PROPERTY_SET => {
                self.shared.cc.store(PropertyCmd::decode(&sqe).value as u32, SeqCst);
                self.respond(&sqe, Status::SUCCESS, 0);
            }
            other => return Err(format!("FCTYPE {other:#x}")),
        }
        Ok(())
    }

    fn csts(&self) -> u32 {
        let cc = self.shared.cc.load(SeqCst);
        (cc & cc::EN) | if cc::shn(cc) != 0 { csts::SHST_COMPLETE } else { 0 }
    }

    fn admin_command(&mut self, sqe: &Sqe) -> Breach<()> {
        match sqe.opcode {
            opcode::admin::IDENTIFY => {
                let data = self.identify(sqe.cdw10() as u8);
                self.send_data(sqe.cid.get(), &data, false);
                self.respond(sqe, Status::SUCCESS, 0);
            }
            opcode::admin::SET_FEATURES => self.respond(sqe, Status::SUCCESS, u64::from(sqe.cdw11())),
            opcode::admin::KEEP_ALIVE => {
                self.shared.keep_alives.fetch_add(1, SeqCst);
                self.respond(sqe, Status::SUCCESS, 0);
            }
            other => return Err(format!("admin opcode {other:#x}")),
        }
        Ok(())
    }

    fn identify(&self, cns: u8) -> Vec<u8> {
        let (mut d, config) = (vec![0u8; 4096], &self.shared.config);
        match cns {
            0 => {
                d[0..8].copy_from_slice(&config.blocks.to_le_bytes());
                d[33] = 1;
                d[130] = config.block_size.trailing_zeros() as u8;
            }
            1 => {
                d[77] = 8;
                d[520] = 0b1100;
                d[1792..1796].copy_from_slice(&((config.in_capsule + 64) / 16).to_le_bytes());
            }
            _ => d[0] = 1,
        }
        d
    }

    fn ask_for_data(&mut self, sqe: Sqe) -> Breach<()> {
        let len = sqe.sgl.length.get();
        if sqe.sgl.identifier != Sgl::TRANSPORT || len <= self.shared.config.in_capsule {
            return Err(format!("SGL {:#x} for {len} bytes", sqe.sgl.identifier));
        }
        let write = Pending { sqe, data: vec![0; len as usize], asked: 0, got: 0, r2ts: Vec::new() };
        if self.pending.insert(sqe.cid.get(), write).is_some() {
            return Err("a command identifier is used twice".into());
        }
        self.send_r2ts(sqe.cid.get());
        Ok(())
    }

    fn send_r2ts(&mut self, cid: u16) {
        let Some(p) = self.pending.get_mut(&cid) else { return };
        while p.r2ts.len() < self.max_r2t as usize && (p.asked as usize) < p.data.len() {
            let len = (p.data.len() as u32 - p.asked).min(self.shared.config.r2t_len);
            let r2t = R2T::new(cid, self.next_ttag, p.asked, len, self.digests);
            p.r2ts.push((self.next_ttag, p.asked, p.asked + len));
            (p.asked, self.next_ttag) = (p.asked + len, self.next_ttag.wrapping_add(1));
            push_plain(&mut self.out, r2t.as_bytes(), self.digests);
        }
        self.shared.most_r2ts.fetch_max(p.r2ts.len() as u32, SeqCst);
    }

    fn h2c_data(&mut self, pdu: &[u8], data: &[u8]) -> Breach<()> {
        self.shared.h2c_pdus.fetch_add(1, SeqCst);
        let (h, _) = H2CData::read_from_prefix(pdu).map_err(|e| e.to_string())?;
        let (cid, ttag, offset) = (h.cccid.get(), h.ttag.get(), h.datao.get());
        if h.datal.get() as usize != data.len() || data.len() > self.shared.config.max_h2c_data as usize {
            return Err(format!("H2CData with DATAL {}", h.datal));
        }
        let p = self.pending.get_mut(&cid).ok_or("H2CData for nothing")?;
        let at = p.r2ts.iter().position(|r| r.0 == ttag).ok_or("H2CData with an unknown TTAG")?;
        if at > 0 {
            self.shared.reordered.store(true, SeqCst);
        }
        let r = &mut p.r2ts[at];
        let end = offset + data.len() as u32;
        if offset != r.1 || end > r.2 || h.ch.flags().contains(Flags::LAST_PDU) != (end == r.2) {
            return Err(format!("H2CData {offset}..{end} for {r:?}, flags {:?}", h.ch.flags()));
        }
        r.1 = end;
        p.data[offset as usize..end as usize].copy_from_slice(data);
        p.got += data.len() as u32;
        if r.1 == r.2 {
            p.r2ts.remove(at);
        }
        if p.got as usize == p.data.len() {
            let p = self.pending.remove(&cid).ok_or("gone")?;
            let status = match p.sqe.opcode {
                opcode::io::WRITE => self.write(&p.sqe, p.data),
                _ => self.deallocate(&p.data),
            };
            self.respond(&p.sqe, status, 0);
            return Ok(());
        }
        self.send_r2ts(cid);
        Ok(())
    }

    fn write(&mut self, sqe: &Sqe, mut data: Vec<u8>) -> Status {
        let at = (sqe.slba() * u64::from(self.shared.config.block_size)) as usize;
        let mut store = self.shared.store.lock().expect("lock");
        let Some(place) = store.get_mut(at..at + data.len()) else { return Status::LBA_OUT_OF_RANGE };
        let keep = match &self.shared.config.tamper.on_write {
            Some(tamper) => tamper(sqe.slba(), &mut data, place),
            None => true,
        };
        if keep {
            place.copy_from_slice(&data);
        }
        Status::SUCCESS
    }

    /// The first range of a Dataset Management command.
    fn deallocate(&mut self, ranges: &[u8]) -> Status {
        let (lba, blocks) = (u64_at(ranges, 8), u64_at(ranges, 0) >> 32);
        self.zero(lba, blocks as u32)
    }

    fn zero(&mut self, lba: u64, blocks: u32) -> Status {
        let bs = u64::from(self.shared.config.block_size);
        let mut store = self.shared.store.lock().expect("lock");
        match store.get_mut((lba * bs) as usize..((lba + u64::from(blocks)) * bs) as usize) {
            Some(place) => place.fill(0),
            None => return Status::LBA_OUT_OF_RANGE,
        }
        Status::SUCCESS
    }

    fn read(&mut self, sqe: &Sqe) {
        let config = &self.shared.config;
        let len = ((sqe.cdw12() & 0xffff) + 1) * config.block_size;
        let at = (sqe.slba() * u64::from(config.block_size)) as usize;
        if config.fail_from.is_some_and(|from| sqe.slba() >= from) {
            return self.respond(sqe, Status::UNRECOVERED_READ, 0);
        }
        let data = self.shared.store.lock().expect("lock").get(at..at + len as usize).map(<[u8]>::to_vec);
        let Some(mut data) = data else { return self.respond(sqe, Status::LBA_OUT_OF_RANGE, 0) };
        if let Some(tamper) = &config.tamper.on_read {
            tamper(sqe.slba(), &mut data);
        }
        self.send_data(sqe.cid.get(), &data, self.flow_off);
        if !self.flow_off {
            self.respond(sqe, Status::SUCCESS, 0);
        }
    }

    fn send_data(&mut self, cid: u16, data: &[u8], success: bool) {
        let pdo = data_offset(PduType::C2HData, self.digests, self.hpda);
        let piece_len = self.shared.config.c2h_len as usize;
        let pieces = data.len().div_ceil(piece_len);
        for (i, piece) in data.chunks(piece_len).enumerate() {
            let mut flags = Flags::empty();
            flags.set(Flags::LAST_PDU, i + 1 == pieces);
            flags.set(Flags::SUCCESS, i + 1 == pieces && success);
            let offset = (i * piece_len) as u32;
            let header = C2HData::new(cid, offset, piece.len() as u32, pdo, flags, self.digests);
            let start = self.out.len();
            push_plain(&mut self.out, header.as_bytes(), self.digests);
            self.out.resize(start + usize::from(pdo), 0xee); // what padding holds is nobody's business
            self.out.extend_from_slice(piece);
            if self.digests.data {
                self.out.extend_from_slice(&digest(piece));
            }
        }
    }

    fn respond(&mut self, sqe: &Sqe, status: Status, result: u64) {
        let mut cqe = Cqe::new(sqe.cid.get(), status, result);
        cqe.sqhd = U16::new(if self.flow_off { 0xffff } else { self.sqhd });
        push_plain(&mut self.out, CapsuleResp::new(cqe, self.digests).as_bytes(), self.digests);
    }
}

fn push_plain(out: &mut Vec<u8>, header: &[u8], digests: Digests) {
    out.extend_from_slice(header);
    if digests.header {
        out.extend_from_slice(&digest(header));
    }
}

fn u64_at(d: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(d[at..at + 8].try_into().expect("eight bytes"))
}
