//! Validation of PDU headers: whether a PDU is valid now, and how many of its bytes are needed at once.
//!
//! Pure functions over bytes. Every protocol error is a [`Fault`] from here or from [`super`]: the fatal error status and
//! the field for the termination request (TCP 3.6.2.4; `docs/faults.md` lists all).

use pilotlight_nvme::digest;
use pilotlight_nvme::pdu::{CommonHeader, Digests, FatalError, Flags, PduType};
use pilotlight_storage::buffer::IN_CAPSULE;
use zerocopy::FromBytes;

use crate::queue_pair::transport::InCapsule;

/// Maximum data of one H2CData PDU (MAXH2CDATA): a whole command's data.
pub const MAX_H2C_DATA: usize = pilotlight_storage::buffer::MAX_BUFFER;
/// Largest PDU that must be in memory as a whole: a capsule with padding up to PDO 255, data, and digest.
pub const MAX_CAPSULE: usize = 256 + IN_CAPSULE + digest::DIGEST_LEN;

/// A protocol error that ends the connection, for the C2HTermReq.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Fatal error status.
    pub error: FatalError,
    /// Fatal error information: the byte offset of the field, or the digest received.
    pub information: u32,
}

/// Byte offsets of header fields in a [`Fault`].
pub mod field {
    /// PDU-Type.
    pub const TYPE: u32 = 0;
    /// FLAGS.
    pub const FLAGS: u32 = 1;
    /// HLEN.
    pub const HLEN: u32 = 2;
    /// PDO.
    pub const PDO: u32 = 3;
    /// PLEN.
    pub const PLEN: u32 = 4;
    /// PFV of ICReq.
    pub const PFV: u32 = 8;
    /// HPDA of ICReq.
    pub const HPDA: u32 = 10;
    /// CCCID of data PDUs.
    pub const CCCID: u32 = 8;
    /// TTAG of data PDUs.
    pub const TTAG: u32 = 10;
    /// DATAO of data PDUs.
    pub const DATAO: u32 = 12;
    /// DATAL of data PDUs.
    pub const DATAL: u32 = 16;
}

impl Fault {
    /// An invalid header field at byte `offset`.
    #[must_use]
    pub const fn field(offset: u32) -> Self {
        Self { error: FatalError::InvalidHeaderField, information: offset }
    }

    /// `error` with reserved information.
    #[must_use]
    pub const fn new(error: FatalError) -> Self {
        Self { error, information: 0 }
    }
}

/// Stage of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Only ICReq is valid.
    Initialize,
    /// Capsules and data.
    Transfer,
}

/// A checked common header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The type.
    pub pdu_type: PduType,
    /// FLAGS.
    pub flags: Flags,
    /// Header and header digest in bytes.
    pub header_len: usize,
    /// PDO.
    pub data_offset: usize,
    /// PLEN.
    pub pdu_len: usize,
    /// Bytes needed to handle the PDU: all of it, or for H2CData the part before the data.
    pub needed: usize,
}

/// Checks the first eight bytes of a PDU that arrives at `stage` with `digests` in use and data aligned to
/// `(cpda + 1) * 4` bytes.
///
/// # Errors
/// The fault that ends the connection.
#[inline]
pub fn check_head(bytes: &[u8; CommonHeader::LEN], stage: Stage, digests: Digests, cpda: u8) -> Result<Head, Fault> {
    let Ok(ch) = CommonHeader::read_from_bytes(bytes) else { return Err(Fault::field(field::TYPE)) };
    let pdu_type = PduType::from_u8(ch.pdu_type).ok_or(Fault::field(field::TYPE))?;
    check_order(pdu_type, stage)?;
    let pdu_len = ch.plen.get() as usize;
    if pdu_type == PduType::H2CTermReq {
        // The connection ends without a response, regardless of the other fields.
        let (flags, data_offset) = (ch.flags(), usize::from(ch.pdo));
        return Ok(Head {
            pdu_type,
            flags,
            header_len: pdu_type.header_len(), // it never has a digest
            data_offset,
            pdu_len,
            needed: CommonHeader::LEN,
        });
    }
    if usize::from(ch.hlen) != pdu_type.header_len() {
        return Err(Fault::field(field::HLEN));
    }
    let framed = matches!(pdu_type, PduType::CapsuleCmd | PduType::H2CData);
    let header_digest = framed && digests.header;
    if framed && ch.flags().contains(Flags::HDGST) != digests.header {
        return Err(Fault::field(field::FLAGS));
    }
    let header_len = pdu_type.header_len() + if header_digest { digest::DIGEST_LEN } else { 0 };
    let mut head =
        Head { pdu_type, flags: ch.flags(), header_len, data_offset: usize::from(ch.pdo), pdu_len, needed: pdu_len };
    check_lengths(&head, cpda)?;
    if pdu_type == PduType::H2CData {
        head.needed = head.data_offset;
    }
    Ok(head)
}

#[inline]
fn check_order(pdu_type: PduType, stage: Stage) -> Result<(), Fault> {
    use PduType::{CapsuleCmd, H2CData, H2CTermReq, ICReq};
    let in_order = match stage {
        Stage::Initialize => matches!(pdu_type, ICReq | H2CTermReq),
        Stage::Transfer => matches!(pdu_type, CapsuleCmd | H2CData | H2CTermReq),
    };
    if in_order { Ok(()) } else { Err(Fault::new(FatalError::Sequence)) }
}

#[inline]
fn check_lengths(head: &Head, cpda: u8) -> Result<(), Fault> {
    let Head { pdu_type, header_len, data_offset, pdu_len, .. } = *head;
    match pdu_type {
        PduType::ICReq if pdu_len != header_len => Err(Fault::field(field::PLEN)),
        PduType::CapsuleCmd if pdu_len == header_len => Ok(()),
        PduType::CapsuleCmd | PduType::H2CData => {
            if pdu_len < header_len {
                return Err(Fault::field(field::PLEN));
            }
            if data_offset < header_len || !data_offset.is_multiple_of((usize::from(cpda) + 1) * 4) {
                return Err(Fault::field(field::PDO));
            }
            if pdu_len <= data_offset {
                return Err(Fault::field(field::PLEN));
            }
            let limit = if pdu_type == PduType::CapsuleCmd { IN_CAPSULE } else { MAX_H2C_DATA };
            if pdu_len > data_offset + limit + digest::DIGEST_LEN {
                return Err(Fault::new(FatalError::LimitExceeded));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Checks the header digest of a PDU whose first `head.header_len` bytes are in `bytes`.
///
/// # Errors
/// The fault that ends the connection, with the digest received.
#[inline]
pub fn check_header_digest(bytes: &[u8], head: &Head) -> Result<(), Fault> {
    let hlen = head.pdu_type.header_len();
    if head.header_len <= hlen {
        return Ok(()); // no digest (of H2CTermReq only the common header is used)
    }
    let received = &bytes[hlen..head.header_len];
    if received == digest::digest(&bytes[..hlen]) {
        return Ok(());
    }
    let information = u32::from_le_bytes([received[0], received[1], received[2], received[3]]);
    Err(Fault { error: FatalError::HeaderDigest, information })
}

/// The data of a complete capsule in `bytes`, checked against its data digest, if enabled.
///
/// # Errors
/// The fault that ends the connection: FLAGS or length do not match the negotiated digests.
#[inline]
pub fn capsule_data<'a>(bytes: &'a [u8], head: &Head, digests: Digests) -> Result<InCapsule<'a>, Fault> {
    if head.pdu_len == head.header_len {
        return Ok(InCapsule { bytes: &[], intact: true });
    }
    if head.flags.contains(Flags::DDGST) != digests.data {
        return Err(Fault::field(field::FLAGS));
    }
    let body = &bytes[head.data_offset..head.pdu_len];
    if !digests.data {
        return Ok(InCapsule { bytes: body, intact: true });
    }
    let Some((data, received)) = body.split_last_chunk::<{ digest::DIGEST_LEN }>() else {
        return Err(Fault::field(field::PLEN));
    };
    Ok(InCapsule { bytes: data, intact: *received == digest::digest(data) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NONE: Digests = Digests { header: false, data: false };
    const BOTH: Digests = Digests { header: true, data: true };

    fn head(bytes: [u8; 8], stage: Stage, digests: Digests) -> Result<Head, Fault> {
        check_head(&bytes, stage, digests, 0)
    }

    #[test]
    fn only_one_icreq_is_valid() {
        let icreq = [0x00, 0x00, 0x80, 0x00, 0x80, 0x00, 0x00, 0x00];
        let checked = head(icreq, Stage::Initialize, NONE).expect("valid");
        assert_eq!((checked.pdu_type, checked.needed), (PduType::ICReq, 128));
        assert_eq!(head(icreq, Stage::Transfer, NONE), Err(Fault::new(FatalError::Sequence)));
    }

    #[test]
    fn lengths_of_a_termination_request_are_ignored() {
        for digests in [NONE, BOTH] {
            for plen in [0u8, 8, 24, 255] {
                let bytes = [0x02, 0, 24, 0, plen, 0, 0, 0];
                let checked = head(bytes, Stage::Transfer, digests).expect("valid");
                assert_eq!(checked.needed, 8);
                assert_eq!(check_header_digest(&bytes, &checked), Ok(()));
            }
        }
    }

    #[test]
    fn a_capsule_before_icreq_is_out_of_sequence() {
        let capsule = [0x04, 0x00, 0x48, 0x00, 0x48, 0x00, 0x00, 0x00];
        assert_eq!(head(capsule, Stage::Initialize, NONE), Err(Fault::new(FatalError::Sequence)));
        assert_eq!(head(capsule, Stage::Transfer, NONE).expect("valid").needed, 72);
    }

    #[test]
    fn each_invalid_field_is_reported() {
        let cases: [([u8; 8], Fault); 8] = [
            ([0x08, 0, 0x48, 0, 0x48, 0, 0, 0], Fault::field(field::TYPE)),
            ([0x04, 0, 0x47, 0, 0x48, 0, 0, 0], Fault::field(field::HLEN)),
            ([0x04, 1, 0x48, 0, 0x48, 0, 0, 0], Fault::field(field::FLAGS)),
            ([0x04, 0, 0x48, 0, 0x47, 0, 0, 0], Fault::field(field::PLEN)),
            ([0x04, 0, 0x48, 0x44, 0x48, 0x10, 0, 0], Fault::field(field::PDO)),
            ([0x04, 0, 0x48, 0x49, 0x48, 0x10, 0, 0], Fault::field(field::PDO)),
            ([0x06, 0, 0x18, 0x18, 0x18, 0, 0, 0], Fault::field(field::PLEN)),
            ([0x06, 0, 0x18, 0x18, 0x20, 0, 2, 0], Fault::new(FatalError::LimitExceeded)),
        ];
        for (bytes, fault) in cases {
            assert_eq!(head(bytes, Stage::Transfer, NONE), Err(fault), "{bytes:02x?}");
        }
    }

    #[test]
    fn data_digests_and_their_flag_are_checked() {
        let mut pdu = vec![0u8; 76 + 8];
        pdu[..8].copy_from_slice(&[0x04, 0x03, 0x48, 76, 76 + 8 + 4, 0, 0, 0]);
        pdu[76..].copy_from_slice(b"pilotlig");
        let sum = digest::digest(&pdu[76..]);
        pdu.extend_from_slice(&sum);
        let bytes: [u8; 8] = pdu[..8].try_into().expect("eight");
        let checked = head(bytes, Stage::Transfer, BOTH).expect("valid");
        assert!(capsule_data(&pdu, &checked, BOTH).expect("valid").intact);
        pdu[80] ^= 1;
        assert!(!capsule_data(&pdu, &checked, BOTH).expect("framed").intact);
        let unflagged = Head { flags: Flags::HDGST, ..checked };
        assert_eq!(capsule_data(&pdu, &unflagged, BOTH), Err(Fault::field(field::FLAGS)));
    }

    #[test]
    fn a_header_digest_error_reports_the_received_digest() {
        let mut pdu = vec![0u8; 76];
        pdu[..8].copy_from_slice(&[0x04, 0x01, 0x48, 0, 76, 0, 0, 0]);
        pdu[72..].copy_from_slice(&[1, 2, 3, 4]);
        let bytes: [u8; 8] = pdu[..8].try_into().expect("eight");
        let checked = head(bytes, Stage::Transfer, BOTH).expect("valid");
        let fault = Fault { error: FatalError::HeaderDigest, information: 0x0403_0201 };
        assert_eq!(check_header_digest(&pdu, &checked), Err(fault));
    }

    #[test]
    fn fields_of_a_termination_request_are_ignored() {
        for bytes in [[0x02, 0, 24, 0, 24, 0, 0, 0], [0x02, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]] {
            for (stage, digests) in [(Stage::Initialize, NONE), (Stage::Transfer, NONE), (Stage::Transfer, BOTH)] {
                let checked = head(bytes, stage, digests).expect("valid");
                assert_eq!((checked.pdu_type, checked.needed), (PduType::H2CTermReq, CommonHeader::LEN));
                assert_eq!(check_header_digest(&bytes, &checked), Ok(()));
            }
        }
    }

    proptest! {
        /// The needed bytes of an accepted PDU fit into the stash.
        #[test]
        fn accepted_pdus_are_bounded(bytes: [u8; 8], transfer: bool, header: bool, data: bool, cpda in 0u8..32) {
            let stage = if transfer { Stage::Transfer } else { Stage::Initialize };
            if let Ok(head) = check_head(&bytes, stage, Digests { header, data }, cpda) {
                if head.pdu_type == PduType::H2CTermReq {
                    return Ok(()); // ends the connection
                }
                prop_assert!(head.needed <= MAX_CAPSULE);
                prop_assert!(head.needed >= head.header_len);
                prop_assert!(head.needed <= head.pdu_len);
            }
        }
    }
}
