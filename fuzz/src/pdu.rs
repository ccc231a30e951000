//! Random bytes parsed as a stream of PDUs: nothing panics, and decoded PDUs encode to the same bytes.

use pilotlight_nvme::command::{DsmRange, dsm, opcode};
use pilotlight_nvme::fabrics::{self, ConnectCmd, ConnectData, PropertyCmd, cc, fctype};
use pilotlight_nvme::pdu::{
    C2HData, CapsuleCmd, CapsuleResp, CommonHeader, Digests, FatalError, Flags, H2CData, IcReq, IcResp, MAX_PDA,
    PduType, R2T, TermReq, data_offset,
};
use pilotlight_nvme::{Cqe, Sqe, Status, digest};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Parses `stream` PDU by PDU, as far as their lengths allow.
pub fn check(mut stream: &[u8]) {
    while let Some(len) = check_pdu(stream) {
        stream = &stream[len..];
    }
}

/// Checks the first PDU of `stream`; returns its length, at least its header and at most the available bytes.
fn check_pdu(stream: &[u8]) -> Option<usize> {
    let ch: CommonHeader = decode(stream)?;
    let pdu_type = PduType::from_u8(ch.pdu_type)?;
    assert_eq!(pdu_type as u8, ch.pdu_type);
    let header = stream.get(..pdu_type.header_len())?;
    let len = (ch.plen.get() as usize).clamp(header.len(), stream.len());
    let digests = Digests { header: ch.flags().contains(Flags::HDGST), data: ch.flags().contains(Flags::DDGST) };
    let data = stream.get(usize::from(ch.pdo)..len).unwrap_or_default();
    check_digest(header, data);
    match pdu_type {
        PduType::ICReq => check_icreq(&decode(header)?),
        PduType::ICResp => check_icresp(&decode(header)?),
        PduType::H2CTermReq | PduType::C2HTermReq => check_term(pdu_type, &decode(header)?, &stream[header.len()..len]),
        PduType::CapsuleCmd => check_command(&decode::<CapsuleCmd>(header)?.sqe, data, digests),
        PduType::CapsuleResp => check_response(&decode::<CapsuleResp>(header)?.cqe, digests),
        PduType::H2CData => check_h2c(&decode(header)?, digests),
        PduType::C2HData => check_c2h(&decode(header)?, digests),
        PduType::R2T => check_r2t(&decode(header)?, digests),
    }
    Some(len)
}

/// A structure at the start of `bytes`, which encodes to the same bytes.
fn decode<T: FromBytes + IntoBytes + KnownLayout + Immutable>(bytes: &[u8]) -> Option<T> {
    let (value, _) = T::read_from_prefix(bytes).ok()?;
    assert_eq!(value.as_bytes(), &bytes[..size_of::<T>()]);
    Some(value)
}

/// A digest is the same in one piece and in two.
fn check_digest(left: &[u8], right: &[u8]) {
    let whole = digest::digest(&[left, right].concat());
    assert_eq!(digest::append(digest::append(0, left), right).to_le_bytes(), whole);
}

fn check_icreq(pdu: &IcReq) {
    let Some(digests) = Digests::from_u8(pdu.dgst) else { return };
    let again = IcReq::new(pdu.hpda, digests, pdu.maxr2t.get());
    assert_eq!(again.as_bytes()[10..16], pdu.as_bytes()[10..16]);
    check_alignment(pdu.hpda, digests);
}

fn check_icresp(pdu: &IcResp) {
    let Some(digests) = Digests::from_u8(pdu.dgst) else { return };
    let again = IcResp::new(pdu.cpda, digests, pdu.maxh2cdata.get());
    assert_eq!(again.as_bytes()[10..16], pdu.as_bytes()[10..16]);
    check_alignment(pdu.cpda, digests);
}

fn check_alignment(pda: u8, digests: Digests) {
    if pda > MAX_PDA {
        return;
    }
    for pdu_type in [PduType::CapsuleCmd, PduType::H2CData, PduType::C2HData] {
        let offset = usize::from(data_offset(pdu_type, digests, pda));
        assert_eq!(offset % ((usize::from(pda) + 1) * 4), 0);
        assert!(offset >= pdu_type.header_len() + if digests.header { 4 } else { 0 });
    }
}

fn check_term(pdu_type: PduType, pdu: &TermReq, quoted: &[u8]) {
    let Some(error) = FatalError::from_u16(pdu.fes.get()) else { return };
    assert!(!error.to_string().is_empty());
    let again = TermReq::new(pdu_type, error, pdu.fei.get(), quoted.len().min(TermReq::MAX_DATA));
    assert_eq!(again.as_bytes()[8..14], pdu.as_bytes()[8..14]);
    assert!(again.ch.plen.get() <= 152);
    check_pdu(quoted); // the quoted bytes are a header, which may contain a shorter one
}

fn check_command(sqe: &Sqe, data: &[u8], digests: Digests) {
    assert_eq!(sqe.flags & 0b1100_0011, sqe.fuse() | sqe.psdt() << 6);
    assert_eq!(sqe.slba().to_le_bytes(), sqe.as_bytes()[40..48]);
    let connect = ConnectCmd::decode(sqe);
    assert_eq!(ConnectCmd::decode(&connect.encode()), connect);
    let property = PropertyCmd::decode(sqe);
    if let Some(wide) = property.wide {
        assert_eq!(PropertyCmd::decode(&PropertyCmd::get(property.offset, wide)).offset, property.offset);
    }
    assert!(cc::shn(property.value as u32) < 4);
    match sqe.opcode {
        opcode::FABRICS if sqe.fctype() == fctype::CONNECT => check_connect(data),
        opcode::io::DATASET_MANAGEMENT => check_ranges(dsm::ranges(sqe.cdw10()), data),
        _ => {}
    }
    let pdo = data_offset(PduType::CapsuleCmd, digests, 0);
    let again = CapsuleCmd::new(*sqe, data.len() as u32, pdo, digests);
    assert_eq!(again.sqe.as_bytes(), sqe.as_bytes());
    assert!(again.ch.plen.get() as usize >= 72 + data.len());
}

fn check_connect(data: &[u8]) {
    let Some(connect) = decode::<ConnectData>(data) else { return };
    let nqns = (fabrics::nqn_from_field(&connect.subnqn), fabrics::nqn_from_field(&connect.hostnqn));
    let (Some(subnqn), Some(hostnqn)) = nqns else { return };
    let again = ConnectData::new(connect.hostid, connect.cntlid.get(), subnqn, hostnqn);
    assert_eq!(fabrics::nqn_from_field(&again.subnqn), Some(subnqn));
    assert_eq!(fabrics::nqn_from_field(&again.hostnqn), Some(hostnqn));
    assert_eq!((again.hostid, again.cntlid), (connect.hostid, connect.cntlid));
}

fn check_ranges(ranges: usize, data: &[u8]) {
    assert!((1..=256).contains(&ranges));
    for bytes in data.chunks_exact(size_of::<DsmRange>()).take(ranges) {
        assert!(decode::<DsmRange>(bytes).is_some());
    }
}

fn check_response(cqe: &Cqe, digests: Digests) {
    let status = cqe.status();
    assert_eq!(status.to_field(), cqe.status.get() & !1);
    assert_eq!(status.is_success(), status.code() == Status::SUCCESS);
    assert!(!status.to_string().is_empty());
    let again = Cqe::new(cqe.cid.get(), status, cqe.result.get());
    assert_eq!((again.status(), again.result, again.cid), (status, cqe.result, cqe.cid));
    assert_eq!(CapsuleResp::new(*cqe, digests).cqe.as_bytes(), cqe.as_bytes());
}

fn check_r2t(pdu: &R2T, digests: Digests) {
    let again = R2T::new(pdu.cccid.get(), pdu.ttag.get(), pdu.r2to.get(), pdu.r2tl.get(), digests);
    assert_eq!(again.as_bytes()[8..20], pdu.as_bytes()[8..20]);
}

/// PLEN includes header and digest, so a PDU carries less than the maximum of DATAL.
const MOST: u32 = u32::MAX - 256 - 4;

fn check_h2c(pdu: &H2CData, digests: Digests) {
    let (flags, datal) = (pdu.ch.flags(), pdu.datal.get().min(MOST));
    let again = H2CData::new(pdu.cccid.get(), pdu.ttag.get(), pdu.datao.get(), datal, pdu.ch.pdo, flags, digests);
    assert_eq!(again.as_bytes()[8..16], pdu.as_bytes()[8..16]);
    assert_eq!((again.datal.get(), again.ch.flags(), again.ch.pdo), (datal, flags, pdu.ch.pdo));
}

fn check_c2h(pdu: &C2HData, digests: Digests) {
    let (flags, datal) = (pdu.ch.flags(), pdu.datal.get().min(MOST));
    let again = C2HData::new(pdu.cccid.get(), pdu.datao.get(), datal, pdu.ch.pdo, flags, digests);
    assert_eq!((again.cccid, again.datao, again.datal.get()), (pdu.cccid, pdu.datao, datal));
    assert_eq!((again.ch.flags(), again.ch.pdo), (flags, pdu.ch.pdo));
}
