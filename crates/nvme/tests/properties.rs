//! Properties of all values, compared with simple reference implementations.

use pilotlight_nvme::command::{DsmRange, Sgl, opcode};
use pilotlight_nvme::fabrics::{self, ConnectCmd, ConnectData, PropertyCmd};
use pilotlight_nvme::pdu::{
    C2HData, CapsuleCmd, CapsuleResp, CommonHeader, Digests, FatalError, Flags, H2CData, IcReq, IcResp, MAX_PDA,
    PduType, R2T, TermReq, data_offset,
};
use pilotlight_nvme::{Cqe, Sqe, Status, digest};
use proptest::prelude::*;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Any bytes decode to a `T`, which encodes to the same bytes.
fn assert_round_trip<T: FromBytes + IntoBytes + KnownLayout + Immutable>(bytes: &[u8]) {
    let (value, rest) = T::read_from_prefix(bytes).expect("long enough");
    assert_eq!(value.as_bytes(), &bytes[..size_of::<T>()]);
    assert_eq!(rest.len(), bytes.len() - size_of::<T>());
    assert!(T::read_from_bytes(&bytes[..size_of::<T>() - 1]).is_err(), "a byte too few");
}

fn digests() -> impl Strategy<Value = Digests> {
    any::<(bool, bool)>().prop_map(|(header, data)| Digests { header, data })
}

/// The types that may carry data, other than termination requests.
fn with_data() -> impl Strategy<Value = PduType> {
    prop_oneof![Just(PduType::CapsuleCmd), Just(PduType::H2CData), Just(PduType::C2HData)]
}

/// CRC32C a bit at a time.
fn naive_crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    })
}

proptest! {
    #[test]
    fn structures_round_trip(bytes in proptest::collection::vec(any::<u8>(), 1024..1100)) {
        assert_round_trip::<CommonHeader>(&bytes);
        assert_round_trip::<IcReq>(&bytes);
        assert_round_trip::<IcResp>(&bytes);
        assert_round_trip::<TermReq>(&bytes);
        assert_round_trip::<CapsuleCmd>(&bytes);
        assert_round_trip::<CapsuleResp>(&bytes);
        assert_round_trip::<H2CData>(&bytes);
        assert_round_trip::<C2HData>(&bytes);
        assert_round_trip::<R2T>(&bytes);
        assert_round_trip::<Sqe>(&bytes);
        assert_round_trip::<Cqe>(&bytes);
        assert_round_trip::<Sgl>(&bytes);
        assert_round_trip::<DsmRange>(&bytes);
        assert_round_trip::<ConnectData>(&bytes);
    }

    #[test]
    fn status_keeps_all_bits_but_the_phase(field: u16) {
        let status = Status::from_field(field);
        prop_assert_eq!(status.to_field(), field & !1);
        prop_assert_eq!(status.is_dnr(), field & 0x8000 != 0);
        prop_assert_eq!(status.dnr().to_field(), (field & !1) | 0x8000);
        prop_assert_eq!(status.is_success(), field & 0x0ffe == 0);
        let (sct, sc) = ((field >> 9 & 7) as u8, (field >> 1) as u8);
        prop_assert_eq!(status.code(), Status::new(sct, sc));
        let text = format!("{status}");
        let numbers = format!("SCT {sct:x}h SC {sc:02x}h");
        prop_assert!(text.contains(&numbers), "{text}");
    }

    #[test]
    fn completion_fields_are_kept(cid: u16, result: u64, sct in 0u8..8, sc: u8) {
        let cqe = Cqe::new(cid, Status::new(sct, sc), result);
        prop_assert_eq!((cqe.cid.get(), cqe.result.get(), cqe.status()), (cid, result, Status::new(sct, sc)));
        prop_assert_eq!((cqe.sqhd.get(), cqe.sqid.get(), cqe.status.get() & 1), (0, 0, 0));
    }

    /// Data starts at the first multiple of the alignment after header and digest (TCP 3.3).
    #[test]
    fn data_is_aligned(pdu_type in with_data(), digests in digests(), pda in 0..=MAX_PDA) {
        let align = (usize::from(pda) + 1) * 4;
        let behind = pdu_type.header_len() + if digests.header { 4 } else { 0 };
        let first = (behind..).find(|offset| offset % align == 0);
        prop_assert_eq!(Some(usize::from(data_offset(pdu_type, digests, pda))), first);
    }

    /// PLEN is the sum of header, header digest, padding, data and data digest (TCP 3.6.2.1).
    #[test]
    fn lengths_add_up(digests in digests(), pda in 0..=MAX_PDA, len in 1u32..1 << 24, cid: u16, ttag: u16, offset: u32) {
        let headers = [
            CapsuleCmd::new(Sqe::default(), len, data_offset(PduType::CapsuleCmd, digests, pda), digests).ch,
            H2CData::new(cid, ttag, offset, len, data_offset(PduType::H2CData, digests, pda), Flags::LAST_PDU, digests).ch,
            C2HData::new(cid, offset, len, data_offset(PduType::C2HData, digests, pda), Flags::SUCCESS, digests).ch,
        ];
        for ch in headers {
            let pdu_type = PduType::from_u8(ch.pdu_type).expect("known");
            let header_digest = if digests.header { 4 } else { 0 };
            let padding = u32::from(ch.pdo) - u32::from(ch.hlen) - header_digest;
            let data_digest = if digests.data { 4 } else { 0 };
            prop_assert_eq!(usize::from(ch.hlen), pdu_type.header_len());
            prop_assert!(padding < (u32::from(pda) + 1) * 4);
            prop_assert_eq!(ch.plen.get(), u32::from(ch.hlen) + header_digest + padding + len + data_digest);
            prop_assert_eq!(ch.flags().contains(Flags::HDGST), digests.header);
            prop_assert_eq!(ch.flags().contains(Flags::DDGST), digests.data);
        }
    }

    /// PDUs without data: no PDO, no data digest.
    #[test]
    fn lengths_without_data_add_up(digests in digests(), cid: u16, ttag: u16, r2to: u32, r2tl: u32, pdo: u8) {
        let headers = [
            CapsuleCmd::new(Sqe::default(), 0, pdo, digests).ch,
            CapsuleResp::new(Cqe::default(), digests).ch,
            R2T::new(cid, ttag, r2to, r2tl, digests).ch,
        ];
        for ch in headers {
            let header_digest = if digests.header { 4 } else { 0 };
            prop_assert_eq!((ch.pdo, ch.plen.get()), (0, u32::from(ch.hlen) + header_digest));
            prop_assert_eq!(ch.flags, u8::from(digests.header));
        }
    }

    #[test]
    fn constructor_arguments_are_the_fields_of_the_pdu(cid: u16, ttag: u16, offset: u32, len: u32, quoted in 0..=TermReq::MAX_DATA, pda: u8) {
        let none = Digests::default();
        let len = len >> 1; // PLEN counts the header too
        let r2t = R2T::new(cid, ttag, offset, len, none);
        prop_assert_eq!((r2t.cccid.get(), r2t.ttag.get(), r2t.r2to.get(), r2t.r2tl.get()), (cid, ttag, offset, len));
        let h2c = H2CData::new(cid, ttag, offset, len, 24, Flags::empty(), none);
        prop_assert_eq!((h2c.cccid.get(), h2c.ttag.get(), h2c.datao.get(), h2c.datal.get()), (cid, ttag, offset, len));
        let c2h = C2HData::new(cid, offset, len, 24, Flags::empty(), none);
        prop_assert_eq!((c2h.cccid.get(), c2h.datao.get(), c2h.datal.get()), (cid, offset, len));
        let term = TermReq::new(PduType::C2HTermReq, FatalError::Sequence, offset, quoted);
        prop_assert_eq!((term.fes.get(), term.fei.get(), term.ch.plen.get()), (2, offset, 24 + quoted as u32));
        let request = IcReq::new(pda, none, offset);
        prop_assert_eq!((request.pfv.get(), request.hpda, request.dgst, request.maxr2t.get()), (0, pda, 0, offset));
        let response = IcResp::new(pda, none, offset);
        prop_assert_eq!((response.pfv.get(), response.cpda, response.maxh2cdata.get()), (0, pda, offset));
    }

    #[test]
    fn block_io_encodes_address_and_length(nsid: u32, slba: u64, blocks in 1u32..=65_536) {
        let sqe = Sqe::block_io(opcode::io::READ, nsid, slba, blocks);
        prop_assert_eq!((sqe.nsid.get(), sqe.slba(), sqe.cdw12() + 1), (nsid, slba, blocks));
        prop_assert_eq!((sqe.fuse(), sqe.psdt(), sqe.cdw13(), sqe.cdw14(), sqe.cdw15()), (0, 1, 0, 0, 0));
    }

    #[test]
    fn command_dwords_are_independent(values: [u32; 6]) {
        let sqe = (0..6).fold(Sqe::default(), |sqe, n| sqe.with_cdw(10 + n, values[n]));
        prop_assert_eq!([sqe.cdw10(), sqe.cdw11(), sqe.cdw12(), sqe.cdw13(), sqe.cdw14(), sqe.cdw15()], values);
        for (n, value) in values.iter().enumerate() {
            prop_assert_eq!(&sqe.as_bytes()[40 + 4 * n..][..4], &value.to_le_bytes());
        }
    }

    #[test]
    fn connect_round_trip(recfmt: u16, qid: u16, sqsize: u16, cattr: u8, kato_ms: u32) {
        let command = ConnectCmd { recfmt, qid, sqsize, cattr, kato_ms };
        let sqe = command.encode();
        prop_assert_eq!(ConnectCmd::decode(&sqe), command);
        prop_assert_eq!((sqe.opcode, sqe.fctype(), sqe.sgl), (0x7f, 0x01, Sgl::in_capsule(1024)));
        let bytes = sqe.as_bytes(); // byte offsets as Base 6.3 has them
        prop_assert_eq!((&bytes[40..42], &bytes[42..44]), (&recfmt.to_le_bytes()[..], &qid.to_le_bytes()[..]));
        prop_assert_eq!((&bytes[44..46], bytes[46], bytes[47]), (&sqsize.to_le_bytes()[..], cattr, 0));
        prop_assert_eq!(&bytes[48..52], &kato_ms.to_le_bytes());
    }

    #[test]
    fn property_round_trip(offset: u32, value: u32, wide: bool) {
        let get = PropertyCmd { wide: Some(wide), offset, value: 0 };
        prop_assert_eq!(PropertyCmd::decode(&PropertyCmd::get(offset, wide)), get);
        let set = PropertyCmd { wide: Some(false), offset, value: value.into() };
        prop_assert_eq!(PropertyCmd::decode(&PropertyCmd::set(offset, value)), set);
    }

    /// Reserved sizes are recognized, and values have 64 bits.
    #[test]
    fn property_of_any_command(attrib: u32, low: u32, high: u32) {
        let sqe = Sqe::new(opcode::FABRICS, 0).with_cdw(10, attrib).with_cdw(12, low).with_cdw(13, high);
        let decoded = PropertyCmd::decode(&sqe);
        prop_assert_eq!(decoded.wide, [Some(false), Some(true)].get((attrib & 7) as usize).copied().flatten());
        prop_assert_eq!(decoded.value, u64::from(high) << 32 | u64::from(low));
    }

    /// An invalid field is rejected without a panic.
    #[test]
    fn nqn_fields_never_panic(bytes: [[u8; 32]; 8], letters: bool, null in 0usize..300) {
        let mut field: [u8; 256] = bytes.concat().try_into().expect("256");
        if letters {
            field.iter_mut().for_each(|byte| *byte = b'a' + *byte % 26);
        }
        if let Some(byte) = field.get_mut(null) {
            *byte = 0;
        }
        let text = field.split(|&byte| byte == 0).next().expect("there is a first piece");
        let is_nqn = (1..=fabrics::MAX_NQN).contains(&text.len()) && std::str::from_utf8(text).is_ok();
        prop_assert_eq!(fabrics::nqn_from_field(&field).map(str::as_bytes), is_nqn.then_some(text));
    }

    #[test]
    fn nqn_round_trip(nqn in "[a-z0-9.:-]{1,223}") {
        let field = fabrics::nqn_field(&nqn);
        prop_assert_eq!(fabrics::nqn_from_field(&field), Some(nqn.as_str()));
    }

    #[test]
    fn long_nqns_are_truncated(nqn in "[a-z]{224,400}") {
        let field = fabrics::nqn_field(&nqn);
        prop_assert_eq!(fabrics::nqn_from_field(&field), Some(&nqn[..fabrics::MAX_NQN]));
    }

    /// In one piece and in several.
    #[test]
    fn digests_are_crc32c(bytes in proptest::collection::vec(any::<u8>(), 0..600), cut in any::<prop::sample::Index>()) {
        let expected = naive_crc32c(&bytes);
        prop_assert_eq!(digest::digest(&bytes), expected.to_le_bytes());
        let (left, right) = bytes.split_at(cut.index(bytes.len() + 1));
        prop_assert_eq!(digest::append(digest::append(0, left), right), expected);
    }
}

#[test]
fn nqns_have_at_most_223_bytes() {
    for len in 0..=256 {
        let mut field = [b'n'; 256];
        field[len..].fill(0);
        let expected = (1..=223).contains(&len).then_some(len);
        assert_eq!(fabrics::nqn_from_field(&field).map(str::len), expected);
    }
}

#[test]
fn every_pdu_type_byte_is_decoded_or_rejected() {
    let known = [0, 1, 2, 3, 4, 5, 6, 7, 9];
    for byte in 0..=u8::MAX {
        let decoded = PduType::from_u8(byte).map(|pdu_type| pdu_type as u8);
        assert_eq!(decoded, known.contains(&byte).then_some(byte));
    }
    let lengths = known.map(|byte| PduType::from_u8(byte).expect("known").header_len());
    assert_eq!(lengths, [128, 128, 24, 24, 72, 24, 24, 24, 24]);
}

#[test]
fn every_fatal_error_status_is_decoded_or_rejected() {
    for value in 0..=u16::MAX {
        let decoded = FatalError::from_u16(value).map(|error| error as u16);
        assert_eq!(decoded, (1..=6).contains(&value).then_some(value));
    }
}

#[test]
fn every_digest_byte_is_decoded_or_rejected() {
    for byte in 0..=u8::MAX {
        assert_eq!(Digests::from_u8(byte).map(Digests::to_u8), (byte < 4).then_some(byte));
    }
}

/// Base 2.0, Figures 94, 95, 97 and 98.
#[test]
fn status_codes_match_the_specification() {
    let table = [
        (0, 0x00, Status::SUCCESS, "Successful Completion"),
        (0, 0x01, Status::INVALID_OPCODE, "Invalid Command Opcode"),
        (0, 0x02, Status::INVALID_FIELD, "Invalid Field in Command"),
        (0, 0x03, Status::CID_CONFLICT, "Command ID Conflict"),
        (0, 0x04, Status::DATA_TRANSFER_ERROR, "Data Transfer Error"),
        (0, 0x06, Status::INTERNAL, "Internal Error"),
        (0, 0x07, Status::ABORT_REQUESTED, "Command Abort Requested"),
        (0, 0x08, Status::ABORTED_SQ_DELETION, "Command Aborted due to SQ Deletion"),
        (0, 0x0a, Status::MISSING_FUSED, "Command Aborted due to Missing Fused Command"),
        (0, 0x0b, Status::INVALID_NAMESPACE, "Invalid Namespace or Format"),
        (0, 0x0c, Status::COMMAND_SEQUENCE, "Command Sequence Error"),
        (0, 0x0d, Status::INVALID_SGL_SEGMENT, "Invalid SGL Segment Descriptor"),
        (0, 0x0e, Status::INVALID_SGL_COUNT, "Invalid Number of SGL Descriptors"),
        (0, 0x0f, Status::SGL_LENGTH_INVALID, "Data SGL Length Invalid"),
        (0, 0x11, Status::SGL_TYPE_INVALID, "SGL Descriptor Type Invalid"),
        (0, 0x15, Status::OPERATION_DENIED, "Operation Denied"),
        (0, 0x16, Status::SGL_OFFSET_INVALID, "SGL Offset Invalid"),
        (0, 0x19, Status::KEEP_ALIVE_EXPIRED, "Keep Alive Timer Expired"),
        (0, 0x1a, Status::KEEP_ALIVE_INVALID, "Keep Alive Timeout Invalid"),
        (0, 0x20, Status::WRITE_PROTECTED, "Namespace is Write Protected"),
        (0, 0x21, Status::COMMAND_INTERRUPTED, "Command Interrupted"),
        (0, 0x22, Status::TRANSIENT_TRANSPORT, "Transient Transport Error"),
        (0, 0x80, Status::LBA_OUT_OF_RANGE, "LBA Out of Range"),
        (0, 0x81, Status::CAPACITY_EXCEEDED, "Capacity Exceeded"),
        (0, 0x82, Status::NAMESPACE_NOT_READY, "Namespace Not Ready"),
        (1, 0x03, Status::ABORT_LIMIT, "Abort Command Limit Exceeded"),
        (1, 0x05, Status::AER_LIMIT, "Asynchronous Event Request Limit Exceeded"),
        (1, 0x09, Status::INVALID_LOG_PAGE, "Invalid Log Page"),
        (1, 0x0d, Status::FEATURE_NOT_SAVEABLE, "Feature Identifier Not Saveable"),
        (1, 0x0e, Status::FEATURE_NOT_CHANGEABLE, "Feature Not Changeable"),
        (1, 0x0f, Status::FEATURE_NOT_NAMESPACE, "Feature Not Namespace Specific"),
        (1, 0x2c, Status::INVALID_IO_COMMAND_SET, "Invalid I/O Command Set"),
        (1, 0x80, Status::CONNECT_FORMAT, "Connect Incompatible Format"),
        (1, 0x81, Status::CONNECT_BUSY, "Connect Controller Busy"),
        (1, 0x82, Status::CONNECT_INVALID_PARAMETERS, "Connect Invalid Parameters"),
        (1, 0x83, Status::CONNECT_RESTART_DISCOVERY, "Connect Restart Discovery"),
        (1, 0x84, Status::CONNECT_INVALID_HOST, "Connect Invalid Host"),
        (1, 0x85, Status::DISCONNECT_QUEUE_TYPE, "Invalid Queue Type"),
        (1, 0x90, Status::DISCOVER_RESTART, "Discover Restart"),
        (2, 0x80, Status::WRITE_FAULT, "Write Fault"),
        (2, 0x81, Status::UNRECOVERED_READ, "Unrecovered Read Error"),
        (2, 0x85, Status::COMPARE_FAILURE, "Compare Failure"),
        (2, 0x86, Status::ACCESS_DENIED, "Access Denied"),
    ];
    for (sct, sc, status, name) in table {
        assert_eq!(status, Status::new(sct, sc), "{name}");
        assert_eq!(status.name(), Some(name));
    }
    assert_eq!(Status::COMMAND_SIZE_LIMIT, Status::new(1, 0x83));
    assert_eq!(Status::new(7, 0xc0).name(), None);
}
