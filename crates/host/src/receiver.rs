//! Parses the byte stream of a target into protocol events, without a socket and without copying data.
//!
//! A `recv` of some 256 KiB may end inside a header or a digest, and copying each PDU would be too slow at a million PDUs a
//! second. A PDU has up to three stages. *Header*: the bytes before the data (up to PDO), parsed in place, or gathered in a small
//! store if they are spread over several inputs. *Data*: slices of the input; the digest is updated with each. *Digest*: the four
//! bytes after the data.
//!
//! Properties (tested): the events do not depend on how the stream is divided into inputs; nothing is allocated; every header
//! field with a single valid value is checked.

use pilotlight_nvme::digest;
use pilotlight_nvme::pdu::{C2HData, CapsuleResp, CommonHeader, Digests, Flags, PduType, R2T, TermReq};
use pilotlight_nvme::{Cqe, pdu::FatalError};
use zerocopy::FromBytes;

use crate::error::Violation;

/// An event of the protocol.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A response capsule.
    Response(Cqe),
    /// A piece of a C2HData PDU.
    Data(DataPiece<'a>),
    /// The target requests data of a write.
    ReadyToTransfer(TransferRequest),
    /// The target terminates the connection.
    Terminate {
        /// Fatal error status.
        fes: u16,
        /// Fatal error information.
        fei: u32,
    },
}

/// A slice of a C2HData PDU's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataPiece<'a> {
    /// The command that the data belongs to.
    pub cid: u16,
    /// Offset of `bytes` from the start of the command's data.
    pub offset: u32,
    /// The data; may be empty in the piece that ends a PDU.
    pub bytes: &'a [u8],
    /// Set on the piece that ends its PDU.
    pub end: Option<DataEnd>,
}

/// The end of a C2HData PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataEnd {
    /// The last PDU of the command's data.
    pub last: bool,
    /// The command succeeded and no response capsule follows.
    pub success: bool,
    /// The data digest matched, or there is none.
    pub digest_ok: bool,
}

/// An R2T.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferRequest {
    /// The command.
    pub cid: u16,
    /// Transfer tag.
    pub ttag: u16,
    /// Offset in bytes from the start of the command's data.
    pub offset: u32,
    /// Requested bytes.
    pub len: u32,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    Header,
    Data,
    Digest,
}

/// The current C2HData PDU.
#[derive(Clone, Copy, Debug, Default)]
struct Transfer {
    cid: u16,
    flags: u8,
    offset: u32,
    remaining: u32,
    crc: u32,
}

/// The longest header: PDO is one byte, a termination request has at most 152 bytes.
const STORE: usize = 256;

/// The state between two inputs.
#[derive(Debug)]
pub struct Receiver {
    digests: Digests,
    /// Data must start at a multiple of this many bytes (HPDA).
    align: u8,
    stage: Stage,
    transfer: Transfer,
    store: [u8; STORE],
    stored: usize,
}

impl Receiver {
    /// A receiver for a connection with `digests` and alignment `hpda` (in dwords, less one).
    #[must_use]
    pub fn new(digests: Digests, hpda: u8) -> Self {
        Self {
            digests,
            align: (hpda + 1).saturating_mul(4),
            stage: Stage::Header,
            transfer: Transfer::default(),
            store: [0; STORE],
            stored: 0,
        }
    }

    /// Takes the next event from the front of `input`; `None` when the input is used up.
    ///
    /// # Errors
    /// The first violation; the rest of the stream cannot be parsed.
    #[inline]
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, Violation> {
        loop {
            match self.stage {
                Stage::Header => {
                    if input.is_empty() {
                        return Ok(None);
                    }
                    if let Some(event) = self.header(input)? {
                        return Ok(Some(event));
                    }
                    if matches!(self.stage, Stage::Header) {
                        return Ok(None); // the header is not complete yet
                    }
                }
                Stage::Data => return Ok(self.data(input)),
                Stage::Digest => return Ok(self.data_digest(input)),
            }
        }
    }

    /// Whether the stream is between two PDUs.
    #[must_use]
    pub fn at_boundary(&self) -> bool {
        matches!(self.stage, Stage::Header) && self.stored == 0
    }

    #[inline]
    fn header<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, Violation> {
        if self.stored == 0 && input.len() >= CommonHeader::LEN {
            let need = header_need(input, self.digests)?;
            if let Some((header, rest)) = input.split_at_checked(need) {
                *input = rest;
                return self.parse(header);
            }
        }
        self.gather(input)
    }

    /// The slow path: the header is spread over several inputs.
    #[cold]
    fn gather<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, Violation> {
        let need = loop {
            let need = if self.stored < CommonHeader::LEN {
                CommonHeader::LEN
            } else {
                header_need(&self.store, self.digests)?
            };
            let take = need.saturating_sub(self.stored).min(input.len());
            self.store[self.stored..self.stored + take].copy_from_slice(&input[..take]);
            self.stored += take;
            *input = &input[take..];
            if self.stored < need {
                return Ok(None);
            }
            if need > CommonHeader::LEN {
                break need;
            }
        };
        self.stored = 0;
        let header = self.store;
        self.parse(&header[..need])
    }

    /// Parses a complete header (with digest and padding).
    #[inline]
    fn parse<'a>(&mut self, header: &[u8]) -> Result<Option<Event<'a>>, Violation> {
        if self.digests.header && header[0] != PduType::C2HTermReq as u8 {
            check_header_digest(header)?;
        }
        // header_need() accepts these types only
        match PduType::from_u8(header[0]) {
            Some(PduType::C2HData) => self.start_data(header).map(|()| None),
            Some(PduType::CapsuleResp) => {
                let (resp, _) =
                    CapsuleResp::read_from_prefix(header).map_err(|_| Violation::sequence("short header"))?;
                Ok(Some(Event::Response(resp.cqe)))
            }
            Some(PduType::R2T) => {
                let (r2t, _) = R2T::read_from_prefix(header).map_err(|_| Violation::sequence("short header"))?;
                let (cid, ttag) = (r2t.cccid.get(), r2t.ttag.get());
                Ok(Some(Event::ReadyToTransfer(TransferRequest {
                    cid,
                    ttag,
                    offset: r2t.r2to.get(),
                    len: r2t.r2tl.get(),
                })))
            }
            _ => {
                let (term, _) = TermReq::read_from_prefix(header).map_err(|_| Violation::sequence("short header"))?;
                Ok(Some(Event::Terminate { fes: term.fes.get(), fei: term.fei.get() }))
            }
        }
    }

    #[inline]
    fn start_data(&mut self, header: &[u8]) -> Result<(), Violation> {
        let (data, _) = C2HData::read_from_prefix(header).map_err(|_| Violation::sequence("short header"))?;
        let remaining = data.datal.get();
        let trailer = if self.digests.data { digest::DIGEST_LEN as u32 } else { 0 };
        if u64::from(data.ch.plen.get()) != u64::from(data.ch.pdo) + u64::from(remaining) + u64::from(trailer) {
            return Err(Violation::field(4, "PLEN of a C2HData PDU is not the sum of its parts"));
        }
        if data.ch.pdo % self.align != 0 {
            return Err(Violation::field(3, "C2HData is not aligned to HPDA"));
        }
        if data.ch.flags().contains(Flags::DDGST) != self.digests.data {
            return Err(Violation::field(1, "DDGST flag differs from the negotiated digests"));
        }
        self.transfer =
            Transfer { cid: data.cccid.get(), flags: data.ch.flags, offset: data.datao.get(), remaining, crc: 0 };
        self.stage = Stage::Data;
        Ok(())
    }

    #[inline]
    fn data<'a>(&mut self, input: &mut &'a [u8]) -> Option<Event<'a>> {
        let t = &mut self.transfer;
        let take = (t.remaining as usize).min(input.len());
        if take == 0 && t.remaining > 0 {
            return None;
        }
        let (bytes, rest) = input.split_at(take);
        *input = rest;
        let offset = t.offset;
        t.offset = offset.wrapping_add(take as u32);
        t.remaining -= take as u32;
        if self.digests.data {
            t.crc = digest::append(t.crc, bytes);
        }
        let mut end = None;
        if t.remaining == 0 {
            if self.digests.data {
                self.stage = Stage::Digest;
            } else {
                self.stage = Stage::Header;
                end = Some(t.end(true));
            }
        }
        Some(Event::Data(DataPiece { cid: self.transfer.cid, offset, bytes, end }))
    }

    fn data_digest<'a>(&mut self, input: &mut &'a [u8]) -> Option<Event<'a>> {
        let take = (digest::DIGEST_LEN - self.stored).min(input.len());
        self.store[self.stored..self.stored + take].copy_from_slice(&input[..take]);
        self.stored += take;
        *input = &input[take..];
        if self.stored < digest::DIGEST_LEN {
            return None;
        }
        self.stored = 0;
        self.stage = Stage::Header;
        let ok = self.store[..digest::DIGEST_LEN] == self.transfer.crc.to_le_bytes();
        let t = self.transfer;
        Some(Event::Data(DataPiece { cid: t.cid, offset: t.offset, bytes: &[], end: Some(t.end(ok)) }))
    }
}

impl Transfer {
    #[inline]
    fn end(&self, digest_ok: bool) -> DataEnd {
        let flags = Flags::from_bits_retain(self.flags);
        DataEnd { last: flags.contains(Flags::LAST_PDU), success: flags.contains(Flags::SUCCESS), digest_ok }
    }
}

/// Bytes before the data (without data: of the whole PDU), from its first eight bytes, which are checked.
#[inline]
fn header_need(first: &[u8], digests: Digests) -> Result<usize, Violation> {
    let (ch, _) = CommonHeader::read_from_prefix(first).map_err(|_| Violation::sequence("short header"))?;
    let plen = ch.plen.get() as usize;
    let is_data = ch.pdu_type == PduType::C2HData as u8;
    let is_plain = ch.pdu_type == PduType::CapsuleResp as u8 || ch.pdu_type == PduType::R2T as u8;
    if !is_data && !is_plain {
        return term_need(&ch, plen);
    }
    if usize::from(ch.hlen) != PduType::C2HData.header_len() {
        return Err(Violation::field(2, "HLEN is not 24"));
    }
    if ch.flags().contains(Flags::HDGST) != digests.header {
        return Err(Violation::field(1, "HDGST flag differs from the negotiated digests"));
    }
    let head = usize::from(ch.hlen) + if digests.header { digest::DIGEST_LEN } else { 0 };
    if is_plain {
        return if plen == head { Ok(head) } else { Err(Violation::field(4, "PLEN is not the header's length")) };
    }
    if usize::from(ch.pdo) < head {
        return Err(Violation::field(3, "PDO is inside the header"));
    }
    Ok(usize::from(ch.pdo))
}

#[cold]
fn term_need(ch: &CommonHeader, plen: usize) -> Result<usize, Violation> {
    match PduType::from_u8(ch.pdu_type) {
        Some(PduType::C2HTermReq) if (TermReq::LEN..=TermReq::LEN + TermReq::MAX_DATA).contains(&plen) => Ok(plen),
        Some(PduType::C2HTermReq) => Err(Violation::field(4, "PLEN of a C2HTermReq is not 24 to 152")),
        Some(_) => Err(Violation::sequence("unexpected PDU type")),
        None => Err(Violation::field(0, "unknown PDU type")),
    }
}

fn check_header_digest(header: &[u8]) -> Result<(), Violation> {
    let hlen = usize::from(header[2]);
    let received = &header[hlen..hlen + digest::DIGEST_LEN];
    if received == digest::digest(&header[..hlen]) {
        return Ok(());
    }
    let fei = u32::from_le_bytes([received[0], received[1], received[2], received[3]]);
    Err(Violation { fes: FatalError::HeaderDigest, fei, what: "header digest mismatch" })
}

#[cfg(test)]
#[path = "receiver_tests.rs"]
mod tests;
