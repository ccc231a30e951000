//! Commands and data transfers of the test target.

use std::sync::atomic::Ordering::SeqCst;

use pilotlight_nvme::command::{Sgl, opcode};
use pilotlight_nvme::digest::digest;
use pilotlight_nvme::fabrics::{ConnectCmd, PropertyCmd, cap, cc, csts, fctype, property};
use pilotlight_nvme::le::U16;
use pilotlight_nvme::pdu::{C2HData, CapsuleResp, Digests, Flags, H2CData, PduType, R2T, data_offset};
use pilotlight_nvme::{Cqe, Sqe, Status};
use zerocopy::{FromBytes, IntoBytes};

use super::connection::{Connection, PendingWrite, Violation};

impl Connection<'_> {
    pub(super) fn command(&mut self, sqe: Sqe, data: &[u8]) -> Violation<()> {
        self.sqhd = (self.sqhd + 1) % 1024;
        if sqe.psdt() != 1 || sqe.fuse() != 0 {
            return Err("PSDT or FUSE".into());
        }
        let in_capsule = sqe.sgl.identifier == Sgl::IN_CAPSULE;
        if in_capsule && sqe.sgl.length.get() as usize != data.len() || !in_capsule && !data.is_empty() {
            return Err("in-capsule data and SGL do not agree".into());
        }
        match (sqe.opcode, self.is_admin) {
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
            (opcode::io::WRITE | opcode::io::DATASET_MANAGEMENT, _) => self.request_data(sqe),
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

    fn fabrics(&mut self, sqe: Sqe, data: &[u8]) -> Violation<()> {
        match sqe.fctype() {
            fctype::CONNECT => {
                let cmd = ConnectCmd::decode(&sqe);
                if data.len() != 1024 || cmd.recfmt != 0 {
                    return Err("Connect".into());
                }
                self.is_admin = cmd.qid == 0;
                self.is_io_queue = cmd.qid > 0;
                self.is_flow_control_off =
                    cmd.cattr & ConnectCmd::DISABLE_SQ_FLOW != 0 && self.shared.config.grant_no_flow;
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

    fn admin_command(&mut self, sqe: &Sqe) -> Violation<()> {
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

    fn request_data(&mut self, sqe: Sqe) -> Violation<()> {
        let len = sqe.sgl.length.get();
        if sqe.sgl.identifier != Sgl::TRANSPORT || len <= self.shared.config.in_capsule {
            return Err(format!("SGL {:#x} for {len} bytes", sqe.sgl.identifier));
        }
        let write = PendingWrite { sqe, data: vec![0; len as usize], requested: 0, received: 0, r2ts: Vec::new() };
        if self.pending.insert(sqe.cid.get(), write).is_some() {
            return Err("a command identifier is used twice".into());
        }
        self.send_r2ts(sqe.cid.get());
        Ok(())
    }

    fn send_r2ts(&mut self, cid: u16) {
        let Some(p) = self.pending.get_mut(&cid) else { return };
        while p.r2ts.len() < self.max_r2t as usize && (p.requested as usize) < p.data.len() {
            let len = (p.data.len() as u32 - p.requested).min(self.shared.config.r2t_len);
            let r2t = R2T::new(cid, self.next_ttag, p.requested, len, self.digests);
            p.r2ts.push((self.next_ttag, p.requested, p.requested + len));
            (p.requested, self.next_ttag) = (p.requested + len, self.next_ttag.wrapping_add(1));
            push_plain(&mut self.out, r2t.as_bytes(), self.digests);
        }
        self.shared.max_outstanding_r2ts.fetch_max(p.r2ts.len() as u32, SeqCst);
    }

    pub(super) fn h2c_data(&mut self, pdu: &[u8], data: &[u8]) -> Violation<()> {
        self.shared.h2c_pdus.fetch_add(1, SeqCst);
        let (h, _) = H2CData::read_from_prefix(pdu).map_err(|e| e.to_string())?;
        let (cid, ttag, offset) = (h.cccid.get(), h.ttag.get(), h.datao.get());
        if h.datal.get() as usize != data.len() || data.len() > self.shared.config.max_h2c_data as usize {
            return Err(format!("H2CData with DATAL {}", h.datal));
        }
        let p = self.pending.get_mut(&cid).ok_or("H2CData without a command")?;
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
        p.received += data.len() as u32;
        if r.1 == r.2 {
            p.r2ts.remove(at);
        }
        if p.received as usize == p.data.len() {
            let p = self.pending.remove(&cid).ok_or("no pending write")?;
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
        self.send_data(sqe.cid.get(), &data, self.is_flow_control_off);
        if !self.is_flow_control_off {
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
            self.out.resize(start + usize::from(pdo), 0xee); // padding may have any content
            self.out.extend_from_slice(piece);
            if self.digests.data {
                self.out.extend_from_slice(&digest(piece));
            }
        }
    }

    fn respond(&mut self, sqe: &Sqe, status: Status, result: u64) {
        let mut cqe = Cqe::new(sqe.cid.get(), status, result);
        cqe.sqhd = U16::new(if self.is_flow_control_off { 0xffff } else { self.sqhd });
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
