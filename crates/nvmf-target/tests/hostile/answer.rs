//! Responses of the target in the wording of the table. All bytes are checked.

use std::fmt;
use std::io::ErrorKind;

use pilotlight_nvme::Cqe;
use pilotlight_nvme::pdu::{CapsuleResp, Flags, PduType, TermReq};
use pilotlight_nvme::{Sqe, Status};
use pilotlight_peers::raw::{RawPeer, Reply};
use zerocopy::{FromBytes, IntoBytes};

/// A response of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A C2HTermReq with this status and information, and then the end of the connection.
    Terminated(u16, u32),
    /// A C2HTermReq for a wrong header digest: it names the digest that was received.
    HeaderDigest,
    /// A completion; the connection remains open.
    Completed(Status, u64),
    /// The connection was closed without a PDU.
    Closed,
    /// The violation is ignored and the peer is served.
    Served,
    /// No response is required, and none is sent.
    Nothing,
    /// The controller reports a fatal status (CSTS.CFS).
    FatalStatus,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Terminated(fes, fei) => write!(f, "TermReq {fes:02x}h/{fei}"),
            Self::HeaderDigest => write!(f, "TermReq 03h/digest"),
            Self::Completed(status, result) => {
                let field = status.to_field() >> 1;
                write!(f, "CQE {}h/{:02x}h", field >> 8 & 7, field & 0xff)?;
                if status.is_dnr() {
                    write!(f, " DNR")?;
                }
                if *result != 0 {
                    write!(f, " result {result:x}h")?;
                }
                Ok(())
            }
            Self::Closed => write!(f, "closed"),
            Self::Served => write!(f, "served"),
            Self::Nothing => write!(f, "nothing"),
            Self::FatalStatus => write!(f, "CSTS.CFS = 1"),
        }
    }
}

/// Sends `pdu`, which must end the connection, and checks the response.
pub(crate) fn terminated(peer: &mut RawPeer, pdu: &[u8]) -> Answer {
    peer.send(pdu).expect("the target takes the PDU");
    let answer = read_termination(peer, pdu);
    assert_eq!(peer.read_pdu().expect("an end"), Reply::Closed, "the connection is closed after C2HTermReq");
    answer
}

/// Reads a C2HTermReq: the fixed part, and the received part of the invalid header, at most HLEN bytes.
pub(crate) fn read_termination(peer: &mut RawPeer, invalid: &[u8]) -> Answer {
    let reply = peer.read_pdu().expect("an answer");
    let Reply::Pdu(pdu) = &reply else { panic!("expected C2HTermReq, got {reply:?}") };
    let (term, quoted) = TermReq::read_from_prefix(pdu).expect("a complete header");
    assert_eq!(term.ch.pdu_type, PduType::C2HTermReq as u8, "{reply:?}");
    assert_eq!((term.ch.hlen, term.ch.pdo, term.ch.flags()), (24, 0, Flags::empty()), "no digest, no data offset");
    assert_eq!(term.ch.plen.get() as usize, pdu.len());
    assert_eq!(term.reserved, [0; 10]);
    let len = usize::from(invalid[2]).min(invalid.len()).min(TermReq::MAX_DATA);
    assert_eq!(quoted, &invalid[..len], "the invalid header is included");
    Answer::Terminated(term.fes.get(), term.fei.get())
}

/// Sends `pdu` and waits until the target closes the connection without a PDU.
pub(crate) fn closed(peer: &mut RawPeer, pdu: &[u8]) -> Answer {
    peer.send(pdu).expect("the target takes the bytes");
    ends(peer)
}

/// Waits until the target closes the connection without a PDU.
pub(crate) fn ends(peer: &mut RawPeer) -> Answer {
    assert_eq!(peer.read_pdu().expect("an end"), Reply::Closed);
    Answer::Closed
}

/// Sends the first part of a PDU, closes the connection, and waits until the target closes it.
pub(crate) fn cut_off(peer: &mut RawPeer, pdu: &[u8]) -> Answer {
    peer.send(pdu).expect("the target takes the bytes");
    match peer.stream().shutdown(std::net::Shutdown::Write) {
        Err(error) if error.kind() != ErrorKind::NotConnected => panic!("{error}"),
        _ => ends(peer),
    }
}

/// Sends a command (data in the capsule) and reads its completion.
pub(crate) fn completed(peer: &mut RawPeer, sqe: Sqe, data: &[u8]) -> Answer {
    let capsule = peer.capsule(sqe, data);
    peer.send(&capsule).expect("the target takes the command");
    read_completion(peer, sqe.cid.get())
}

/// Reads the response capsule of command `cid` and checks all bytes. SQ flow control must be off.
pub(crate) fn read_completion(peer: &mut RawPeer, cid: u16) -> Answer {
    let reply = peer.read_pdu().expect("an answer");
    let Some(cqe) = reply.completion() else { panic!("expected a response capsule, got {reply:?}") };
    let expected = Cqe::new(cid, cqe.status(), cqe.result.get());
    let mut bytes = CapsuleResp::new(expected, peer.digests).as_bytes().to_vec();
    if peer.digests.header {
        bytes.extend_from_slice(&pilotlight_nvme::digest::digest(&bytes));
    }
    assert_eq!(reply, Reply::Pdu(bytes), "SQHD and SQID are 0, the phase tag too");
    Answer::Completed(cqe.status(), cqe.result.get())
}
