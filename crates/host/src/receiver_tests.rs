//! The receiver against bytes written by hand, however the stream is cut.

use super::*;
use pilotlight_nvme::Status;
use proptest::prelude::*;

const NONE: Digests = Digests { header: false, data: false };
const BOTH: Digests = Digests { header: true, data: true };

/// What came out, owned, data pieces of one PDU joined.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Response { cid: u16, status: Status, sqhd: u16, result: u64 },
    Data { cid: u16, offset: u32, bytes: Vec<u8>, end: DataEnd },
    TransferRequest(TransferRequest),
    Terminate(u16, u32),
}

/// Feeds `stream` in inputs that end at `cuts`.
fn feed(digests: Digests, hpda: u8, stream: &[u8], cuts: &[usize]) -> Result<Vec<Seen>, Violation> {
    let mut receiver = Receiver::new(digests, hpda);
    let (mut seen, mut joined, mut first_offset) = (Vec::new(), Vec::new(), 0);
    let mut bounds: Vec<usize> = cuts.iter().map(|c| c % (stream.len() + 1)).chain([0, stream.len()]).collect();
    bounds.sort_unstable();
    for pair in bounds.windows(2) {
        let mut input = &stream[pair[0]..pair[1]];
        while let Some(event) = receiver.next(&mut input)? {
            match event {
                Event::Response(c) => seen.push(Seen::Response {
                    cid: c.cid.get(),
                    status: c.status(),
                    sqhd: c.sqhd.get(),
                    result: c.result.get(),
                }),
                Event::ReadyToTransfer(g) => seen.push(Seen::TransferRequest(g)),
                Event::Terminate { fes, fei } => seen.push(Seen::Terminate(fes, fei)),
                Event::Data(piece) => {
                    if joined.is_empty() {
                        first_offset = piece.offset;
                    }
                    assert_eq!(piece.offset as usize, first_offset as usize + joined.len());
                    joined.extend_from_slice(piece.bytes);
                    if let Some(end) = piece.end {
                        let bytes = std::mem::take(&mut joined);
                        seen.push(Seen::Data { cid: piece.cid, offset: first_offset, bytes, end });
                    }
                }
            }
        }
        assert!(input.is_empty());
    }
    assert!(receiver.at_boundary());
    Ok(seen)
}

/// A response capsule for command 0x0102: LBA Out of Range, do not retry; SQ head 3, result 0x55.
#[rustfmt::skip]
const RESPONSE: [u8; 24] = [
    0x05, 0x00, 24, 0, 24, 0, 0, 0,
    0x55, 0, 0, 0, 0, 0, 0, 0,
    3, 0, 0, 0, 0x02, 0x01, 0x00, 0x81, // status 4080h << 1
];

/// An R2T for command 7, tag 9: 0x2000 bytes from 0x1000.
#[rustfmt::skip]
const R2T_PDU: [u8; 24] = [
    0x09, 0x00, 24, 0, 24, 0, 0, 0,
    7, 0, 9, 0, 0x00, 0x10, 0, 0, 0x00, 0x20, 0, 0, 0, 0, 0, 0,
];

/// Five bytes of data for command 2, last and successful.
#[rustfmt::skip]
const DATA: [u8; 29] = [
    0x07, 0x0c, 24, 24, 29, 0, 0, 0,
    2, 0, 0, 0, 0x10, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0,
    1, 2, 3, 4, 5,
];

/// Nine bytes, "123456789", with both digests, data at 32: the check value of CRC32C for them is E3069283h.
fn digest_data() -> Vec<u8> {
    #[rustfmt::skip]
    let mut pdu = vec![
        0x07, 0x07, 24, 32, 45, 0, 0, 0,
        2, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0,
    ];
    pdu.extend_from_slice(&digest::digest(&pdu));
    pdu.extend_from_slice(&[0xaa; 4]);
    pdu.extend_from_slice(b"123456789");
    pdu.extend_from_slice(&[0x83, 0x92, 0x06, 0xe3]);
    pdu
}

fn terminate() -> Vec<u8> {
    let mut pdu = vec![0x03, 0, 24, 0, 34, 0, 0, 0, 0x05, 0, 0x0b, 0, 0, 0];
    pdu.resize(34, 0);
    pdu
}

fn response_seen() -> Seen {
    Seen::Response { cid: 0x0102, status: Status::LBA_OUT_OF_RANGE.dnr(), sqhd: 3, result: 0x55 }
}

fn data_seen() -> Seen {
    let end = DataEnd { last: true, success: true, digest_ok: true };
    Seen::Data { cid: 2, offset: 16, bytes: vec![1, 2, 3, 4, 5], end }
}

proptest! {
    #[test]
    fn however_the_stream_is_cut(order in proptest::collection::vec(0usize..3, 0..30), cuts: Vec<usize>) {
        let grant = Seen::TransferRequest(TransferRequest { cid: 7, ttag: 9, offset: 0x1000, len: 0x2000 });
        let pdus: [(&[u8], Seen); 3] = [(&RESPONSE, response_seen()), (&R2T_PDU, grant), (&DATA, data_seen())];
        let mut stream: Vec<u8> = order.iter().flat_map(|&i| pdus[i].0.iter().copied()).collect();
        stream.extend_from_slice(&terminate());
        let mut expected: Vec<Seen> = order.iter().map(|&i| pdus[i].1.clone()).collect();
        expected.push(Seen::Terminate(5, 11));
        prop_assert_eq!(feed(NONE, 0, &stream, &cuts).unwrap(), expected);
    }

    #[test]
    fn digests_and_padding_however_cut(n in 1usize..8, cuts: Vec<usize>) {
        let stream = digest_data().repeat(n);
        let seen = feed(BOTH, 3, &stream, &cuts).unwrap();
        let end = DataEnd { last: true, success: false, digest_ok: true };
        prop_assert_eq!(seen, vec![Seen::Data { cid: 2, offset: 0, bytes: b"123456789".to_vec(), end }; n]);
    }

    /// No input makes it panic, and one with a fault never reads past it.
    #[test]
    fn any_bytes_are_survived(mut stream: Vec<u8>, at in 0usize..200, byte: u8, header: bool, data: bool) {
        let mut base = [&RESPONSE[..], &DATA, &R2T_PDU, &digest_data()].concat();
        let len = base.len();
        base[at % len] = byte;
        stream.splice(0..0, base);
        let mut receiver = Receiver::new(Digests { header, data }, 0);
        let mut input = &stream[..];
        while let Ok(Some(_)) = receiver.next(&mut input) {}
    }
}

#[test]
fn a_flipped_bit_is_a_digest_error_of_the_right_kind() {
    let good = digest_data();
    for at in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[at / 8] ^= 1 << (at % 8);
        let mut receiver = Receiver::new(BOTH, 3);
        let (mut input, mut outcome) = (&bad[..], None);
        let error = loop {
            match receiver.next(&mut input) {
                Ok(Some(Event::Data(piece))) => outcome = piece.end,
                // one bit makes it a C2HTermReq, which carries no digest and ends the connection all the same
                Ok(Some(Event::Terminate { .. })) if at / 8 == 0 => break None,
                Ok(Some(other)) => panic!("{other:?}"),
                Ok(None) => break None,
                Err(violation) => break Some(violation),
            }
        };
        match at / 8 {
            // type, flags, HLEN, PDO, PLEN are checked before the digest; a longer PLEN or PDO waits for more
            0..8 => assert!(error.is_some() || outcome.is_none(), "bit {at}"),
            8..28 => assert_eq!(error.map(|v| v.fes), Some(FatalError::HeaderDigest), "bit {at}"),
            28..32 => assert!(outcome.is_some_and(|o| o.digest_ok), "padding holds anything, bit {at}"),
            _ => assert!(outcome.is_some_and(|o| !o.digest_ok), "bit {at}"),
        }
    }
}

#[test]
fn each_bad_header_field_is_named() {
    let change = |pdu: &[u8], at: usize, to: u8| {
        let mut p = pdu.to_vec();
        p[at] = to;
        feed(NONE, 0, &p, &[]).expect_err("a violation")
    };
    assert_eq!(change(&RESPONSE, 0, 0x08).fei, 0);
    assert_eq!(change(&RESPONSE, 1, 0x01).fei, 1);
    assert_eq!(change(&RESPONSE, 2, 16).fei, 2);
    assert_eq!(change(&RESPONSE, 4, 25).fei, 4);
    assert_eq!(change(&DATA, 3, 20).fei, 3);
    assert_eq!(change(&DATA, 4, 30).fei, 4);
    assert_eq!(change(&DATA, 1, 0x0e).fei, 1);
    assert_eq!(change(&RESPONSE, 0, 0x04).fes, FatalError::Sequence);
    assert_eq!(change(&terminate(), 4, 8).fei, 4);
    assert_eq!(feed(NONE, 1, &[&DATA[..3], &[28], &DATA[4..]].concat(), &[]).map_err(|v| v.fei), Err(4));
    let misaligned = [&DATA[..3], &[28, 33], &DATA[5..24], &[0; 4], &DATA[24..]].concat();
    assert_eq!(feed(NONE, 1, &misaligned, &[]).map_err(|v| v.fei), Err(3));
}
