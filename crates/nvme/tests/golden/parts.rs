//! Splits and joins the five parts of a PDU (TCP 2, Figure 3), as the reference for vectors and constructors.

use pilotlight_nvme::digest;
use pilotlight_nvme::pdu::Digests;

/// The parts of a PDU.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parts<'a> {
    /// The header: HLEN bytes.
    pub(crate) header: &'a [u8],
    /// HDGST, if FLAGS has it.
    pub(crate) header_digest: Option<&'a [u8]>,
    /// PAD.
    pub(crate) padding: &'a [u8],
    /// DATA.
    pub(crate) data: &'a [u8],
    /// DDGST, if FLAGS has it and there is data.
    pub(crate) data_digest: Option<&'a [u8]>,
}

/// Splits off the first PDU of `stream`; returns also the rest.
pub(crate) fn split(stream: &[u8]) -> Result<(Parts<'_>, &[u8]), String> {
    let head = stream.first_chunk::<8>().ok_or("no common header")?;
    let (pdu_type, flags, hlen, pdo) = (head[0], head[1], usize::from(head[2]), usize::from(head[3]));
    let plen = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
    let (pdu, rest) = stream.split_at_checked(plen).ok_or("PLEN exceeds the stream")?;
    let (header, mut tail) = pdu.split_at_checked(hlen).ok_or("HLEN exceeds PLEN")?;
    let mut header_digest = None;
    if flags & 1 != 0 {
        let (digest, behind) = tail.split_at_checked(4).ok_or("no room for HDGST")?;
        (header_digest, tail) = (Some(digest), behind);
    }
    let term_req = matches!(pdu_type, 2 | 3); // PDO is reserved there; the quoted header follows at once
    let start = if term_req || tail.is_empty() { plen - tail.len() } else { pdo };
    let padding_len = start.checked_sub(plen - tail.len()).ok_or("PDO is within the header")?;
    let (padding, mut data) = tail.split_at_checked(padding_len).ok_or("PDO exceeds PLEN")?;
    let mut data_digest = None;
    if flags & 2 != 0 && !data.is_empty() {
        let (before, digest) = data.split_at_checked(data.len().wrapping_sub(4)).ok_or("no room for DDGST")?;
        (data, data_digest) = (before, Some(digest));
    }
    Ok((Parts { header, header_digest, padding, data, data_digest }, rest))
}

/// Joins a PDU: `header`, its digest, zeroes up to `pdo` if there is data, `data`, its digest.
pub(crate) fn join(header: &[u8], pdo: usize, data: &[u8], digests: Digests) -> Vec<u8> {
    let mut pdu = header.to_vec();
    if digests.header {
        pdu.extend(digest::digest(header));
    }
    if !data.is_empty() {
        assert!(pdu.len() <= pdo, "PDO {pdo} is within the header of {} bytes", pdu.len());
        pdu.resize(pdo, 0);
        pdu.extend(data);
        if digests.data {
            pdu.extend(digest::digest(data));
        }
    }
    pdu
}
