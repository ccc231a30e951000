//! The blocks that a stream of bytes from a host may change: a naive parser, PDU by PDU.
//!
//! It ignores queues, tags and order, and so allows more than a target may do. A block must not change if no complete
//! command with complete and undamaged data was sent for it.

use std::collections::HashMap;
use std::ops::Range;

use pilotlight_nvme::Sqe;
use pilotlight_nvme::command::Sgl;
use pilotlight_nvme::command::opcode::io;
use pilotlight_nvme::digest::digest;
use pilotlight_nvme::pdu::{CapsuleCmd, CommonHeader, Digests, H2CData, IcReq};

use super::decode;

/// A write whose data comes in PDUs.
struct Pending {
    cid: u16,
    blocks: Range<u64>,
    missing: u64,
}

/// One PDU, whole.
struct Pdu<'a> {
    ch: CommonHeader,
    bytes: &'a [u8],
    digests: Digests,
}

impl Pdu<'_> {
    /// The data, if its digest is right.
    fn data(&self) -> Option<&[u8]> {
        let body = self.bytes.get(usize::from(self.ch.pdo)..)?;
        if !self.digests.data {
            return Some(body);
        }
        let (data, sum) = body.split_last_chunk::<4>()?;
        (*sum == digest(data)).then_some(data)
    }
}

/// Calls `each` for the PDUs of a stream, until one is incomplete, has a wrong header digest, or is invalid.
fn walk(stream: &[u8], mut each: impl FnMut(&Pdu)) {
    let mut rest = stream;
    let mut digests = Digests::default();
    while rest.len() >= CommonHeader::LEN {
        let ch: CommonHeader = decode(rest);
        let (hlen, plen) = (usize::from(ch.hlen), ch.plen.get() as usize);
        if plen < CommonHeader::LEN || hlen > plen || plen > rest.len() {
            return;
        }
        let (bytes, behind) = rest.split_at(plen);
        if ch.pdu_type == 0 {
            let request: IcReq = decode(bytes);
            digests = Digests { header: request.dgst & 1 != 0, data: request.dgst & 2 != 0 };
        } else if digests.header && bytes.get(hlen..hlen + 4) != Some(&digest(&bytes[..hlen])) {
            return;
        }
        each(&Pdu { ch, bytes, digests });
        rest = behind;
    }
}

/// How often each command was sent.
pub(super) fn commands(stream: &[u8]) -> HashMap<u16, u32> {
    let mut sent = HashMap::new();
    walk(stream, |pdu| {
        if pdu.ch.pdu_type == 4 {
            let capsule: CapsuleCmd = decode(pdu.bytes);
            *sent.entry(capsule.sqe.cid.get()).or_default() += 1;
        }
    });
    sent
}

/// Marks the blocks that `stream` may change.
pub(super) fn mark(stream: &[u8], block_size: u64, touched: &mut [bool]) {
    let mut pending: Vec<Pending> = Vec::new();
    walk(stream, |pdu| match pdu.ch.pdu_type {
        4 => {
            let capsule: CapsuleCmd = decode(pdu.bytes);
            command(&capsule.sqe, pdu, block_size, touched, &mut pending);
        }
        6 => {
            let header: H2CData = decode(pdu.bytes);
            let got = pdu.data().map_or(0, |data| data.len() as u64);
            for write in pending.iter_mut().filter(|write| write.cid == header.cccid.get()) {
                write.missing = write.missing.saturating_sub(got);
                if write.missing == 0 {
                    touch(write.blocks.clone(), touched);
                }
            }
        }
        _ => {}
    });
}

fn command(sqe: &Sqe, pdu: &Pdu, block_size: u64, touched: &mut [bool], pending: &mut Vec<Pending>) {
    let count = u64::from(sqe.cdw12() & 0xffff) + 1;
    let blocks = sqe.slba()..sqe.slba().saturating_add(count);
    match sqe.opcode {
        io::WRITE if sqe.sgl.identifier == Sgl::IN_CAPSULE => {
            let whole = pdu.data().is_some_and(|data| data.len() as u64 == count * block_size);
            touch(if whole { blocks } else { 0..0 }, touched);
        }
        io::WRITE => pending.push(Pending { cid: sqe.cid.get(), blocks, missing: count * block_size }),
        io::WRITE_ZEROES => touch(blocks, touched),
        io::DATASET_MANAGEMENT => touched.fill(true), // any ranges
        _ => {}
    }
}

fn touch(blocks: Range<u64>, touched: &mut [bool]) {
    let end = blocks.end.min(touched.len() as u64);
    for lba in blocks.start.min(end)..end {
        touched[lba as usize] = true;
    }
}
