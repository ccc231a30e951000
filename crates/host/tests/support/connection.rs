//! A connection of the test target: PDUs and digests.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use pilotlight_nvme::Sqe;
use pilotlight_nvme::digest::digest;
use pilotlight_nvme::le::{U16, U32};
use pilotlight_nvme::pdu::{CommonHeader, Digests, Flags, IcReq, IcResp, PduType, data_offset};
use zerocopy::{FromBytes, IntoBytes};

use super::{Shared, fast};

pub(super) type Violation<T> = Result<T, String>;

/// A write whose data is requested.
pub(super) struct PendingWrite {
    pub(super) sqe: Sqe,
    pub(super) data: Vec<u8>,
    pub(super) requested: u32,
    pub(super) received: u32,
    /// Outstanding R2Ts: tag, next offset, end.
    pub(super) r2ts: Vec<(u16, u32, u32)>,
}

pub(super) struct Connection<'a> {
    pub(super) shared: &'a Shared,
    pub(super) stream: TcpStream,
    pub(super) digests: Digests,
    pub(super) hpda: u8,
    pub(super) max_r2t: u32,
    pub(super) is_admin: bool,
    pub(super) is_io_queue: bool,
    pub(super) is_flow_control_off: bool,
    pub(super) sqhd: u16,
    pub(super) pending: HashMap<u16, PendingWrite>,
    pub(super) next_ttag: u16,
    pub(super) input: Vec<u8>,
    pub(super) filled: usize,
    pub(super) out: Vec<u8>,
}

impl<'a> Connection<'a> {
    pub(super) fn new(shared: &'a Shared, stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("nodelay");
        Self {
            shared,
            stream,
            digests: Digests::default(),
            hpda: 0,
            max_r2t: 1,
            is_admin: false,
            is_io_queue: false,
            is_flow_control_off: false,
            sqhd: 0,
            pending: HashMap::new(),
            next_ttag: 100,
            input: vec![0; 1 << 20],
            filled: 0,
            out: Vec::new(),
        }
    }

    /// Reads more input; false at the end.
    fn more(&mut self) -> bool {
        match self.stream.read(&mut self.input[self.filled..]) {
            Ok(n) if n > 0 => {
                self.filled += n;
                true
            }
            _ => false,
        }
    }

    pub(super) fn serve(&mut self) -> Violation<()> {
        while self.filled < 128 {
            if !self.more() {
                return Ok(());
            }
        }
        self.handshake()?;
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
            if let Some(cpu) = self.shared.config.fast.filter(|_| self.is_io_queue) {
                pilotlight_host::clock::pin_to_cpu(cpu).expect("pinned");
                fast::serve(&self.stream);
                return Ok(());
            }
            if !self.more() {
                return Ok(());
            }
        }
    }

    fn handshake(&mut self) -> Violation<()> {
        let req = IcReq::read_from_bytes(&self.input[..128]).map_err(|e| e.to_string())?;
        if req.ch.pdu_type != 0 || req.ch.hlen != 128 || req.ch.plen.get() != 128 || req.pfv.get() != 0 {
            return Err("a bad ICReq".into());
        }
        let (config, requested) = (&self.shared.config, Digests::from_u8(req.dgst).ok_or("reserved bits in DGST")?);
        self.digests =
            Digests { header: requested.header && config.digests.header, data: requested.data && config.digests.data };
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

    /// Length of the PDU at `at`, if it is complete.
    fn whole_pdu(&self, at: usize) -> Violation<Option<usize>> {
        let rest = &self.input[at..self.filled];
        let Ok((ch, _)) = CommonHeader::read_from_prefix(rest) else { return Ok(None) };
        let plen = ch.plen.get() as usize;
        if plen < 8 || plen > self.input.len() {
            return Err(format!("PLEN {plen}"));
        }
        Ok((rest.len() >= plen).then_some(plen))
    }

    fn pdu(&mut self, pdu: &[u8]) -> Violation<()> {
        let (ch, _) = CommonHeader::read_from_prefix(pdu).map_err(|e| e.to_string())?;
        let kind = PduType::from_u8(ch.pdu_type).ok_or("unknown PDU type")?;
        let hlen = kind.header_len();
        if kind == PduType::H2CTermReq {
            return Err(format!("H2CTermReq: FES {} FEI {}", pdu[8], pdu[10]));
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

    fn pdu_data<'p>(&self, kind: PduType, ch: &CommonHeader, pdu: &'p [u8]) -> Violation<&'p [u8]> {
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
}
