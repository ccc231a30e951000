//! One test for each PDU type and variant: decodes `*.hex`, compares every field, and encodes the same bytes with the
//! constructors.

use pilotlight_nvme::fabrics;
use pilotlight_nvme::pdu::{
    C2HData, CapsuleResp, Digests, FatalError, Flags, H2CData, IcReq, IcResp, PduType, R2T, TermReq, data_offset,
};
use pilotlight_nvme::{Cqe, Status};
use zerocopy::IntoBytes;

use crate::parts::{join, split};
use crate::vectors::vector;
use crate::{BOTH_DIGESTS, HEADER_DIGEST, NO_DIGESTS, assert_head, decode};

#[test]
fn icreq() {
    let bytes = vector("icreq");
    let pdu: IcReq = decode(&bytes);
    assert_head(pdu.ch, 0x00, 0x00, 128, 0, 128);
    assert_eq!((pdu.pfv.get(), pdu.hpda, pdu.dgst, pdu.maxr2t.get(), pdu.reserved), (0, 3, 1, 2, [0; 112]));
    assert_eq!(Digests::from_u8(pdu.dgst), Some(HEADER_DIGEST));
    assert_eq!(IcReq::new(3, HEADER_DIGEST, 2).as_bytes(), bytes);
}

#[test]
fn icresp() {
    let bytes = vector("icresp");
    let pdu: IcResp = decode(&bytes);
    assert_head(pdu.ch, 0x01, 0x00, 128, 0, 128);
    assert_eq!((pdu.pfv.get(), pdu.cpda, pdu.dgst, pdu.maxh2cdata.get(), pdu.reserved), (0, 15, 3, 131_072, [0; 112]));
    assert_eq!(Digests::from_u8(pdu.dgst), Some(BOTH_DIGESTS));
    assert_eq!(IcResp::new(15, BOTH_DIGESTS, 131_072).as_bytes(), bytes);
}

#[test]
fn h2ctermreq() {
    let bytes = vector("h2ctermreq");
    let pdu: TermReq = decode(&bytes);
    assert_head(pdu.ch, 0x02, 0x00, 24, 0, 48);
    assert_eq!((pdu.fes.get(), pdu.fei.get(), pdu.reserved), (3, 0xefbe_adde, [0; 10]));
    assert_eq!(FatalError::from_u16(pdu.fes.get()), Some(FatalError::HeaderDigest));
    let quoted: CapsuleResp = decode(&bytes[TermReq::LEN..]);
    assert_head(quoted.ch, 0x05, 0x01, 24, 0, 28);
    assert_eq!((quoted.cqe.sqhd.get(), quoted.cqe.cid.get()), (7, 0x42));
    let header = TermReq::new(PduType::H2CTermReq, FatalError::HeaderDigest, 0xefbe_adde, 24);
    assert_eq!([header.as_bytes(), quoted.as_bytes()].concat(), bytes);
}

#[test]
fn c2htermreq() {
    let bytes = vector("c2htermreq");
    let pdu: TermReq = decode(&bytes);
    assert_head(pdu.ch, 0x03, 0x00, 24, 0, 152);
    assert_eq!((pdu.fes.get(), pdu.fei.get(), pdu.reserved), (1, 10, [0; 10]));
    assert_eq!(FatalError::from_u16(pdu.fes.get()), Some(FatalError::InvalidHeaderField));
    assert_eq!(TermReq::LEN + TermReq::MAX_DATA, bytes.len());
    let quoted: IcReq = decode(&bytes[TermReq::LEN..]);
    assert_eq!(quoted.hpda, 32);
    let header = TermReq::new(PduType::C2HTermReq, FatalError::InvalidHeaderField, 10, 128);
    assert_eq!([header.as_bytes(), quoted.as_bytes()].concat(), bytes);
}

#[test]
fn r2t() {
    let bytes = vector("r2t");
    let pdu: R2T = decode(&bytes);
    assert_head(pdu.ch, 0x09, 0x00, 24, 0, 24);
    assert_eq!((pdu.cccid.get(), pdu.ttag.get(), pdu.r2to.get(), pdu.r2tl.get()), (0x1234, 0xabcd, 0, 3000));
    assert_eq!(pdu.reserved.get(), 0);
    assert_eq!(R2T::new(0x1234, 0xabcd, 0, 3000, NO_DIGESTS).as_bytes(), bytes);
}

#[test]
fn r2t_with_header_digest() {
    let bytes = vector("r2t-hdgst");
    let pdu: R2T = decode(&bytes);
    assert_head(pdu.ch, 0x09, 0x01, 24, 0, 28);
    assert_eq!((pdu.cccid.get(), pdu.ttag.get(), pdu.r2to.get(), pdu.r2tl.get()), (0x1234, 0xabcf, 11_192, 1096));
    // without data, data digests have no effect
    for digests in [HEADER_DIGEST, BOTH_DIGESTS] {
        let header = R2T::new(0x1234, 0xabcf, 11_192, 1096, digests);
        assert_eq!(join(header.as_bytes(), 0, &[], digests), bytes);
    }
}

/// TTAG, DATAO and DATAL of an H2CData PDU of command 1234h.
fn assert_h2c(pdu: &H2CData, ttag: u16, datao: u32, datal: u32) {
    assert_eq!((pdu.cccid.get(), pdu.ttag.get()), (0x1234, ttag));
    assert_eq!((pdu.datao.get(), pdu.datal.get(), pdu.reserved.get()), (datao, datal, 0));
}

#[test]
fn h2cdata() {
    let bytes = vector("h2cdata");
    let pdu: H2CData = decode(&bytes);
    assert_head(pdu.ch, 0x06, 0x04, 24, 24, 2024);
    assert_h2c(&pdu, 0xabcd, 1000, 2000);
    assert_eq!(pdu.ch.flags(), Flags::LAST_PDU);
    let pdo = data_offset(PduType::H2CData, NO_DIGESTS, 0);
    let header = H2CData::new(0x1234, 0xabcd, 1000, 2000, pdo, Flags::LAST_PDU, NO_DIGESTS);
    assert_eq!(join(header.as_bytes(), pdo.into(), &[0x5a; 2000], NO_DIGESTS), bytes);
}

#[test]
fn h2cdata_with_padding() {
    let bytes = vector("h2cdata-padded");
    let pdu: H2CData = decode(&bytes);
    assert_head(pdu.ch, 0x06, 0x00, 24, 64, 80);
    assert_h2c(&pdu, 0xabcd, 4096, 16);
    assert_eq!(split(&bytes).expect("framed").0.padding.len(), 40);
    let pdo = data_offset(PduType::H2CData, NO_DIGESTS, 0x0f);
    let header = H2CData::new(0x1234, 0xabcd, 4096, 16, pdo, Flags::empty(), NO_DIGESTS);
    assert_eq!(join(header.as_bytes(), pdo.into(), b"pilotlight wire!", NO_DIGESTS), bytes);
}

#[test]
fn h2cdata_with_digests() {
    let bytes = vector("h2cdata-digests");
    let pdu: H2CData = decode(&bytes);
    assert_head(pdu.ch, 0x06, 0x07, 24, 64, 84);
    assert_h2c(&pdu, 0xabcd, 4112, 16);
    assert_eq!(pdu.ch.flags(), Flags::HDGST | Flags::DDGST | Flags::LAST_PDU);
    let pdo = data_offset(PduType::H2CData, BOTH_DIGESTS, 0x0f);
    let header = H2CData::new(0x1234, 0xabcd, 4112, 16, pdo, Flags::LAST_PDU, BOTH_DIGESTS);
    assert_eq!(join(header.as_bytes(), pdo.into(), b"pilotlight wire!", BOTH_DIGESTS), bytes);
}

#[test]
fn c2hdata() {
    let bytes = vector("c2hdata");
    let pdu: C2HData = decode(&bytes);
    assert_head(pdu.ch, 0x07, 0x0c, 24, 32, 1128);
    assert_eq!((pdu.cccid.get(), pdu.reserved0.get()), (0x1234, 0));
    assert_eq!((pdu.datao.get(), pdu.datal.get(), pdu.reserved1.get()), (11_192, 1096, 0));
    assert_eq!(pdu.ch.flags(), Flags::LAST_PDU | Flags::SUCCESS);
    let pdo = data_offset(PduType::C2HData, NO_DIGESTS, 3);
    let header = C2HData::new(0x1234, 11_192, 1096, pdo, Flags::LAST_PDU | Flags::SUCCESS, NO_DIGESTS);
    assert_eq!(join(header.as_bytes(), pdo.into(), &[0xc3; 1096], NO_DIGESTS), bytes);
}

#[test]
fn c2hdata_with_digests() {
    let bytes = vector("c2hdata-digests");
    let pdu: C2HData = decode(&bytes);
    assert_head(pdu.ch, 0x07, 0x03, 24, 28, 64);
    assert_eq!((pdu.cccid.get(), pdu.datao.get(), pdu.datal.get()), (0x8001, 0, 32));
    let pdo = data_offset(PduType::C2HData, BOTH_DIGESTS, 0);
    let header = C2HData::new(0x8001, 0, 32, pdo, Flags::empty(), BOTH_DIGESTS);
    assert_eq!(join(header.as_bytes(), pdo.into(), &[0; 32], BOTH_DIGESTS), bytes);
}

/// Decodes and encodes a response capsule.
fn assert_resp(name: &str, digests: Digests, result: u64, sqhd: u16, cid: u16, status: Status) {
    let bytes = vector(name);
    let pdu: CapsuleResp = decode(&bytes);
    assert_head(pdu.ch, 0x05, u8::from(digests.header), 24, 0, bytes.len() as u32);
    assert_eq!((pdu.cqe.result.get(), pdu.cqe.sqhd.get(), pdu.cqe.sqid.get()), (result, sqhd, 0));
    assert_eq!((pdu.cqe.cid.get(), pdu.cqe.status()), (cid, status));
    let mut cqe = Cqe::new(cid, status, result);
    cqe.sqhd = sqhd.into();
    assert_eq!(join(CapsuleResp::new(cqe, digests).as_bytes(), 0, &[], digests), bytes);
}

#[test]
fn capsule_resp_of_success() {
    assert_resp("resp-success", NO_DIGESTS, 0x0007_0003, 13, 0x102a, Status::SUCCESS);
}

#[test]
fn capsule_resp_of_an_error() {
    assert_resp("resp-error", NO_DIGESTS, 0, 17, 0x0a1b, Status::LBA_OUT_OF_RANGE.dnr());
    assert_eq!(Status::from_field(0x8100), Status::new(0, 0x80).dnr());
}

#[test]
fn capsule_resp_with_header_digest() {
    assert_resp("resp-hdgst", HEADER_DIGEST, 0, 0x0102, 0xfffe, Status::COMPARE_FAILURE);
    assert_eq!(Status::from_field(0x050a), Status::new(2, 0x85));
}

#[test]
fn capsule_resp_to_connect() {
    assert_resp("resp-connect", NO_DIGESTS, 5, 0xffff, 0, Status::SUCCESS);
}

#[test]
fn capsule_resp_to_property_get() {
    assert_resp("resp-property-get", NO_DIGESTS, 0x0000_0020_1e01_007f, 1, 1, Status::SUCCESS);
    assert_eq!(fabrics::cap(128, 30), 0x0000_0020_1e01_007f);
}
