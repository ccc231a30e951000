//! A host's end of a connection: bytes sent and received.

use std::collections::{HashMap, VecDeque};

use pilotlight_nvme::Sqe;
use pilotlight_nvme::digest::digest;
use pilotlight_nvme::pdu::{
    C2HData, CapsuleCmd, CapsuleResp, CommonHeader, Digests, Flags, H2CData, PduType, R2T, data_offset,
};
use pilotlight_nvmf_target::testing::Peer;
use zerocopy::IntoBytes;

use super::{decode, is_to_host};

/// Maximum bytes per receive.
const RECEIVED: usize = 16_384;

pub(super) struct Line {
    peer: Option<Peer>,
    digests: Digests,
    /// Bytes accepted by the socket.
    pub(super) sent: Vec<u8>,
    /// Bytes that it has not accepted yet.
    backlog: VecDeque<u8>,
    /// The beginning of a PDU from the target.
    partial: Vec<u8>,
    asks: Vec<R2T>,
    /// Number of answers by command identifier.
    answers: HashMap<u16, u32>,
    /// The result of the last successful answer.
    pub(super) last_result: Option<u64>,
    terminated: bool,
}

impl Line {
    pub(super) fn new(peer: Peer, digests: Digests) -> Self {
        Self {
            peer: Some(peer),
            digests,
            sent: Vec::new(),
            backlog: VecDeque::new(),
            partial: Vec::new(),
            asks: Vec::new(),
            answers: HashMap::new(),
            last_result: None,
            terminated: false,
        }
    }

    /// The line without its peer.
    pub(super) fn hung_up(mut self) -> Self {
        self.receive(usize::MAX);
        self.peer = None;
        self
    }

    pub(super) fn finish(&self) {
        if let Some(peer) = &self.peer {
            peer.finish();
        }
    }

    /// Sends as much as the socket accepts, in order; the rest waits.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.backlog.extend(bytes);
        let Some(peer) = &self.peer else { return };
        while !self.backlog.is_empty() {
            let (front, _) = self.backlog.as_slices();
            let taken = peer.send(front);
            if taken == 0 {
                return;
            }
            self.sent.extend(self.backlog.drain(..taken));
        }
    }

    /// Receives about `most` bytes and checks the PDUs in them.
    pub(super) fn receive(&mut self, most: usize) {
        let mut chunk = [0; RECEIVED];
        let mut left = most;
        while left > 0 {
            let len = left.min(RECEIVED);
            let Some(peer) = &self.peer else { return };
            let Some(received @ 1..) = peer.receive(&mut chunk[..len]) else { break };
            left -= received;
            self.partial.extend_from_slice(&chunk[..received]);
        }
        while self.pdu() {}
        self.send(&[]);
    }

    /// Takes a PDU from the received bytes.
    fn pdu(&mut self) -> bool {
        if self.partial.len() < CommonHeader::LEN {
            return false;
        }
        let ch: CommonHeader = decode(&self.partial);
        let plen = ch.plen.get() as usize;
        let pdu_type = PduType::from_u8(ch.pdu_type).filter(|&pdu_type| is_to_host(pdu_type));
        let pdu_type = pdu_type.unwrap_or_else(|| panic!("the target sent {ch:?}"));
        assert_eq!(usize::from(ch.hlen), pdu_type.header_len(), "{ch:?}");
        assert!(plen >= pdu_type.header_len() && plen <= 256 + 131_072 + 4, "{ch:?}");
        assert!(!self.terminated, "{ch:?} behind a C2HTermReq");
        if self.partial.len() < plen {
            return false;
        }
        let pdu: Vec<u8> = self.partial.drain(..plen).collect();
        match pdu_type {
            PduType::C2HTermReq => self.terminated = true,
            PduType::CapsuleResp => {
                let response: CapsuleResp = decode(&pdu);
                self.answer_came(response.cqe.cid.get());
                if response.cqe.status().is_success() {
                    self.last_result = Some(response.cqe.result.get());
                }
            }
            PduType::C2HData => {
                let data: C2HData = decode(&pdu);
                if data.ch.flags().contains(Flags::SUCCESS) {
                    self.answer_came(data.cccid.get());
                }
            }
            PduType::R2T => self.asks.push(decode(&pdu)),
            _ => {}
        }
        true
    }

    fn answer_came(&mut self, cid: u16) {
        *self.answers.entry(cid).or_default() += 1;
    }

    /// Number of answered commands.
    pub(super) fn answered(&self) -> u32 {
        self.answers.values().sum()
    }

    /// Checks that no command was answered more often than it was sent.
    pub(super) fn check_answers(&self) {
        let sent = super::oracle::commands(&self.sent);
        for (cid, &answers) in &self.answers {
            let times = sent.get(cid).copied().unwrap_or(0);
            assert!(answers <= times, "command {cid} was sent {times} times and answered {answers} times");
        }
    }

    /// A valid command capsule.
    pub(super) fn capsule(&self, sqe: Sqe, data: &[u8]) -> Vec<u8> {
        let pdo = data_offset(PduType::CapsuleCmd, self.digests, 0);
        let header = CapsuleCmd::new(sqe, data.len() as u32, pdo, self.digests);
        self.framed(header.as_bytes(), pdo, data)
    }

    /// Data for one of the R2Ts: all of it, or a piece that is not the `last`.
    pub(super) fn answer(&mut self, which: usize, whole: bool, pieces: u32) -> Option<Vec<u8>> {
        let which = which % self.asks.len().max(1);
        let ask = *self.asks.get(which)?;
        let (offset, left) = (ask.r2to.get(), ask.r2tl.get());
        let len = if whole || left < 64 { left } else { (left / (pieces + 2)).next_multiple_of(4) };
        let last = len == left;
        if last {
            self.asks.remove(which);
        } else {
            self.asks[which].r2to.set(offset + len);
            self.asks[which].r2tl.set(left - len);
        }
        let pdo = data_offset(PduType::H2CData, self.digests, 0);
        let mut flags = Flags::empty();
        flags.set(Flags::LAST_PDU, last);
        let header = H2CData::new(ask.cccid.get(), ask.ttag.get(), offset, len, pdo, flags, self.digests);
        Some(self.framed(header.as_bytes(), pdo, &vec![0x11; len as usize]))
    }

    fn framed(&self, header: &[u8], pdo: u8, data: &[u8]) -> Vec<u8> {
        let mut pdu = header.to_vec();
        if self.digests.header {
            pdu.extend_from_slice(&digest(header));
        }
        if data.is_empty() {
            return pdu;
        }
        pdu.resize(pdo.into(), 0);
        pdu.extend_from_slice(data);
        if self.digests.data {
            pdu.extend_from_slice(&digest(data));
        }
        pdu
    }
}
