//! Decoding and encoding compared with bytes from other sources: `golden/README.md`.

#[path = "golden/commands.rs"]
mod commands;
#[path = "golden/parts.rs"]
mod parts;
#[path = "golden/pdus.rs"]
mod pdus;
#[path = "golden/vectors.rs"]
mod vectors;

use pilotlight_nvme::digest;
use pilotlight_nvme::pdu::{
    C2HData, CapsuleCmd, CapsuleResp, CommonHeader, Digests, H2CData, IcReq, IcResp, PduType, R2T, TermReq,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const NO_DIGESTS: Digests = Digests { header: false, data: false };
const HEADER_DIGEST: Digests = Digests { header: true, data: false };
const DATA_DIGEST: Digests = Digests { header: false, data: true };
const BOTH_DIGESTS: Digests = Digests { header: true, data: true };

/// The header of `pdu`, whose length must be that of `T`.
fn decode<T: FromBytes + KnownLayout + Immutable>(pdu: &[u8]) -> T {
    T::read_from_prefix(pdu).expect("long enough").0
}

fn assert_head(ch: CommonHeader, pdu_type: u8, flags: u8, hlen: u8, pdo: u8, plen: u32) {
    assert_eq!((ch.pdu_type, ch.flags, ch.hlen, ch.pdo, ch.plen.get()), (pdu_type, flags, hlen, pdo, plen));
}

/// RFC 3720 B.4, and the check value of CRC32C.
#[test]
fn digests_match_rfc_3720() {
    let ascending: Vec<u8> = (0..32).collect();
    let descending: Vec<u8> = (0..32).rev().collect();
    let mut read_10 = [0u8; 48];
    for (offset, byte) in [(0, 0x01), (1, 0xc0), (16, 0x14), (22, 0x04), (27, 0x14), (31, 0x18), (32, 0x28), (40, 0x02)]
    {
        read_10[offset] = byte;
    }
    assert_eq!(digest::digest(b"123456789"), 0xe306_9283_u32.to_le_bytes());
    assert_eq!(digest::digest(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
    assert_eq!(digest::digest(&[0xff; 32]), [0x43, 0xab, 0xa8, 0x62]);
    assert_eq!(digest::digest(&ascending), [0x4e, 0x79, 0xdd, 0x46]);
    assert_eq!(digest::digest(&descending), [0x5c, 0xdb, 0x3f, 0x11]);
    assert_eq!(digest::digest(&read_10), [0x56, 0x3a, 0x96, 0xd9]);
}

/// The header, decoded and encoded again.
fn reencode(pdu_type: PduType, header: &[u8]) -> Option<Vec<u8>> {
    fn again<T: FromBytes + IntoBytes + KnownLayout + Immutable>(header: &[u8]) -> Option<Vec<u8>> {
        Some(T::read_from_bytes(header).ok()?.as_bytes().to_vec())
    }
    match pdu_type {
        PduType::ICReq => again::<IcReq>(header),
        PduType::ICResp => again::<IcResp>(header),
        PduType::H2CTermReq | PduType::C2HTermReq => again::<TermReq>(header),
        PduType::CapsuleCmd => again::<CapsuleCmd>(header),
        PduType::CapsuleResp => again::<CapsuleResp>(header),
        PduType::H2CData => again::<H2CData>(header),
        PduType::C2HData => again::<C2HData>(header),
        PduType::R2T => again::<R2T>(header),
    }
}

/// Checks a stream of PDUs of one direction; returns their number.
fn walk(mut stream: &[u8]) -> Result<usize, String> {
    let mut count = 0;
    while !stream.is_empty() {
        let (pdu, rest) = parts::split(stream).map_err(|why| format!("PDU {count}: {why}"))?;
        check(&pdu).map_err(|why| format!("PDU {count}: {why}: {pdu:02x?}"))?;
        (stream, count) = (rest, count + 1);
    }
    Ok(count)
}

fn check(pdu: &parts::Parts<'_>) -> Result<(), String> {
    let pdu_type = PduType::from_u8(pdu.header[0]).ok_or("unknown type")?;
    if pdu.header.len() != pdu_type.header_len() {
        return Err(format!("HLEN of {pdu_type:?}"));
    }
    if pdu.header_digest.is_some_and(|received| received != digest::digest(pdu.header)) {
        return Err("HDGST".into());
    }
    if pdu.data_digest.is_some_and(|received| received != digest::digest(pdu.data)) {
        return Err("DDGST".into());
    }
    if reencode(pdu_type, pdu.header).as_deref() != Some(pdu.header) {
        return Err("encodes to other bytes".into());
    }
    let datal = match pdu_type {
        PduType::H2CData => H2CData::read_from_bytes(pdu.header).map(|pdu| pdu.datal.get()).ok(),
        PduType::C2HData => C2HData::read_from_bytes(pdu.header).map(|pdu| pdu.datal.get()).ok(),
        _ => None,
    };
    if datal.is_some_and(|datal| datal as usize != pdu.data.len()) {
        return Err("DATAL".into());
    }
    Ok(())
}

#[test]
fn every_stream_is_valid() {
    let files = vectors::files(&vectors::directory());
    assert!(files.len() >= 37, "only {} vectors found", files.len());
    for file in files {
        let count = walk(&vectors::read(&file)).unwrap_or_else(|why| panic!("{}: {why}", file.display()));
        assert!(count > 0, "{} is empty", file.display());
    }
}

/// Streams are read one PDU after the other, and a wrong byte outside of padding is detected.
#[test]
fn the_walk_detects_wrong_bytes_in_any_pdu() {
    let mut stream = vectors::vector("icreq");
    for name in ["connect-io-digests", "h2cdata-digests"] {
        stream.extend(vectors::vector(name));
    }
    assert_eq!(walk(&stream), Ok(3));
    for offset in [0x80, 0x80 + 0x30, 0x80 + 0x48, 0x80 + 0x200, stream.len() - 1] {
        let mut wrong = stream.clone();
        wrong[offset] ^= 0x10;
        assert!(walk(&wrong).is_err(), "byte {offset:x}");
    }
    assert!(walk(&stream[..stream.len() - 1]).is_err());
}

#[test]
fn an_invalid_line_is_rejected() {
    let read = |line: &str| {
        let mut bytes = vec![7];
        vectors::read_line(line, &mut bytes).map(|()| bytes)
    };
    assert_eq!(read("01: 0a 0b*2 \"ab\" \"c\"*2 \"d\":2 ff # 00"), Ok(b"\x07\x0a\x0b\x0babccd\x00\xff".to_vec()));
    assert_eq!(read("# only a comment"), Ok(vec![7]));
    for line in ["00: 0a", "02: 0a", "01 0a", "01: a", "01: 0ab", "01: 0g", "01: \"a", "01: \"abc\":2", "01: 00*x"] {
        assert!(read(line).is_err(), "{line}");
    }
}
