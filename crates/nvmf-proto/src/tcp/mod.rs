//! The NVMe/TCP protocol of one connection, without a socket.
//!
//! The I/O thread reads from the socket and passes the bytes to [`Connection::on_bytes`]; unsent PDUs are in [`Tcp::tx`]. So
//! tests and a fuzzer can drive the protocol without a network. The [`QueuePair`] above executes commands; this module does
//! not interpret opcodes. The files:
//!
//! | file | content |
//! |---|---|
//! | `mod.rs` | ICReq; PDUs from a stream of bytes; termination requests |
//! | `wire.rs` | validation of PDU headers |
//! | `inbound.rs` | partially received PDUs |
//! | `data.rs` | H2CData |
//! | `transfers.rs` | data requested by R2Ts |
//! | `transport.rs` | the transport trait for the queue pair |
//! | `tx.rs` | unsent PDUs |
//!
//! Properties:
//! - data is delivered to the queue pair only after its digests have been checked;
//! - memory is bounded by the queue size and one capsule.

mod data;
mod inbound;
#[cfg(feature = "testing")]
mod testing;
mod transfers;
pub mod transport;
pub mod tx;
pub mod wire;

#[cfg(feature = "testing")]
pub use testing::InProgress;

use std::net::{IpAddr, SocketAddr};

use pilotlight_nvme::Sqe;
use pilotlight_nvme::pdu::{CommonHeader, Digests, FatalError, Flags, IcReq, IcResp, MAX_PDA, PduType, TermReq};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, IntoBytes};

use crate::queue_pair::{Cx, Intake, QueuePair};
use crate::services::{Accounting, Services};

pub use transport::Tcp;
use tx::Framing;
use wire::{Fault, Head, MAX_CAPSULE, MAX_H2C_DATA, Stage, field};

/// First byte of a TLS handshake.
pub const TLS_HANDSHAKE: u8 = 22;

/// A receive without bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveError {
    /// There are none now.
    Again,
    /// The connection is lost.
    Lost,
}

/// One NVMe/TCP connection.
pub struct Connection<S: Services> {
    /// The queue pair above.
    pub pair: QueuePair<Tcp, S>,
    stage: Stage,
    framing: Framing,
    /// The socket accepts no data at the moment.
    pub blocked: bool,
}

impl<S: Services> Connection<S> {
    /// A connection from `peer`, accepted at `now_ns` on the local address `local`, with `icreq_timeout_ns` for ICReq.
    #[must_use]
    pub fn new(now_ns: u64, icreq_timeout_ns: u64, peer: SocketAddr, local: Option<IpAddr>) -> Self {
        let pair = QueuePair::new(Tcp::default(), now_ns, now_ns + icreq_timeout_ns, peer, local);
        Self { pair, stage: Stage::Initialize, framing: Framing::default(), blocked: false }
    }

    /// Takes the beginning of a PDU kept from the last read, which precedes the next bytes.
    pub fn take_kept(&mut self, into: &mut [u8]) -> usize {
        self.pair.transport.inbound.take(into)
    }

    /// Keeps the beginning of a PDU.
    fn keep(&mut self, rest: &[u8], cx: &mut Cx<S>) {
        if rest.len() > MAX_CAPSULE {
            // The host sends commands before its Connect is completed.
            self.fault(Fault::new(FatalError::Sequence), rest, cx);
            return;
        }
        self.pair.transport.inbound.keep(rest);
    }

    /// Handles the result of a receive: `in_place` bytes at most went to [`Connection::body_target`], the others to `scratch` after
    /// `kept` bytes.
    #[inline(always)]
    pub fn on_received(
        &mut self,
        received: Result<usize, ReceiveError>,
        in_place: usize,
        (scratch, kept): (&[u8], usize),
        cx: &mut Cx<S>,
    ) {
        match received {
            Ok(0) => self.pair.lost(cx),
            Ok(bytes) => {
                let in_place = in_place.min(bytes);
                if in_place > 0 {
                    self.on_body(in_place, cx);
                }
                self.on_bytes(&scratch[..kept + bytes - in_place], cx);
            }
            Err(ReceiveError::Again) => self.on_bytes(&scratch[..kept], cx),
            Err(ReceiveError::Lost) => self.pair.lost(cx),
        }
    }

    /// As [`Connection::on_received`], apart from it so that the path without TLS stays inlined.
    #[cold]
    #[inline(never)]
    pub fn on_received_encrypted(
        &mut self,
        received: Result<usize, ReceiveError>,
        in_place: usize,
        kept: (&[u8], usize),
        cx: &mut Cx<S>,
    ) {
        self.on_received(received, in_place, kept, cx);
    }

    /// Handles the PDUs in `bytes`, and keeps the beginning of an incomplete one.
    pub fn on_bytes(&mut self, bytes: &[u8], cx: &mut Cx<S>) {
        self.take_pdus(bytes, cx);
        self.pair.run_waiting(cx);
    }

    fn take_pdus(&mut self, bytes: &[u8], cx: &mut Cx<S>) {
        let mut rest = bytes;
        loop {
            match self.pair.intake() {
                Intake::Discard => return,
                Intake::Keep => return self.keep(rest, cx),
                Intake::Deliver => {}
            }
            let in_data = self.pair.transport.inbound.body.is_some();
            let step = if in_data { Ok(self.body_bytes(rest, cx)) } else { self.pdu(rest, cx) };
            match step {
                Ok(0) => return self.keep(rest, cx),
                Ok(used) => rest = &rest[used..],
                Err(fault) => self.fault(fault, rest, cx),
            }
        }
    }

    /// Handles the PDU at the start of `bytes`; `Ok(0)` if it is incomplete.
    fn pdu(&mut self, bytes: &[u8], cx: &mut Cx<S>) -> Result<usize, Fault> {
        let Some(first) = bytes.first_chunk::<{ CommonHeader::LEN }>() else { return Ok(0) };
        let head = wire::check_head(first, self.stage, self.framing.digests, 0)?;
        if bytes.len() < head.needed {
            return Ok(0);
        }
        wire::check_header_digest(bytes, &head)?;
        match head.pdu_type {
            PduType::CapsuleCmd => self.capsule(bytes, &head, cx)?,
            PduType::H2CData => self.h2c_data(bytes, &head)?,
            PduType::ICReq => self.initialize(bytes, cx)?,
            _ => self.pair.lost(cx), // H2CTermReq has no response
        }
        Ok(head.needed)
    }

    fn capsule(&mut self, bytes: &[u8], head: &Head, cx: &mut Cx<S>) -> Result<(), Fault> {
        let data = wire::capsule_data(bytes, head, self.framing.digests)?;
        let sqe = Sqe::read_from_bytes(&bytes[CommonHeader::LEN..CommonHeader::LEN + size_of::<Sqe>()])
            .map_err(|_| Fault::field(field::PLEN))?;
        self.pair.on_command(&sqe, data, cx).map_err(|_| Fault::new(FatalError::Sequence))
    }

    /// Handles ICReq.
    fn initialize(&mut self, bytes: &[u8], cx: &mut Cx<S>) -> Result<(), Fault> {
        let Ok((request, _)) = IcReq::read_from_prefix(bytes) else { return Err(Fault::field(field::PLEN)) };
        if request.pfv.get() != 0 {
            return Err(Fault { error: FatalError::UnsupportedParameter, information: field::PFV });
        }
        if request.hpda > MAX_PDA {
            return Err(Fault::field(field::HPDA));
        }
        let digests = Digests { header: request.dgst & 1 != 0, data: request.dgst & 2 != 0 };
        let max_r2t = (request.maxr2t.get() as usize).saturating_add(1);
        self.pair.transport.transfers.set_max_r2t(max_r2t);
        let response = IcResp {
            ch: CommonHeader::new(PduType::ICResp, Flags::empty(), 0, size_of::<IcResp>() as u32),
            pfv: U16::ZERO,
            cpda: 0,
            dgst: digests.to_u8(),
            maxh2cdata: U32::new(MAX_H2C_DATA as u32),
            reserved: [0; 112],
        };
        let Some(mut buffer) = cx.memory.pool.alloc(size_of::<IcResp>()) else {
            self.pair.lost(cx); // no memory now: the host may retry
            return Ok(());
        };
        buffer.copy_from_slice(response.as_bytes());
        self.pair.transport.tx.raw(buffer);
        self.framing = Framing { digests, hpda: request.hpda };
        self.pair.transport.tx.set_framing(self.framing);
        self.stage = Stage::Transfer;
        self.pair.await_connect(cx);
        Ok(())
    }

    /// Ends the connection with a termination request that carries the header of the offending PDU.
    fn fault(&mut self, fault: Fault, offending: &[u8], cx: &mut Cx<S>) {
        cx.accounting.add_fault();
        let host = self.pair.host().map(|host| host.hostnqn.as_str());
        let (peer, information) = (self.pair.peer(), fault.information);
        let is_tls = matches!(self.stage, Stage::Initialize) && offending.first() == Some(&TLS_HANDSHAKE);
        let hint = is_tls.then_some("the host begins a TLS handshake: it must connect to an address of tls_listen");
        tracing::warn!(host, %peer, reason = %fault.error, information, hint, "protocol error: connection ended");
        let copied = offending.len().min(usize::from(offending.get(2).copied().unwrap_or(0))).min(TermReq::MAX_DATA);
        let len = TermReq::LEN + copied;
        let request = TermReq {
            ch: CommonHeader::new(PduType::C2HTermReq, Flags::empty(), 0, len as u32),
            fes: U16::new(fault.error as u16),
            fei: U32::new(fault.information),
            reserved: [0; 10],
        };
        self.pair.transport.tx.clear_unsent(&mut cx.memory.pool);
        self.pair.close_after_response(cx);
        let Some(mut buffer) = cx.memory.pool.alloc(len) else {
            self.pair.lost(cx); // no memory for the request
            return;
        };
        buffer[..TermReq::LEN].copy_from_slice(request.as_bytes());
        buffer[TermReq::LEN..].copy_from_slice(&offending[..copied]);
        self.pair.transport.tx.raw(buffer);
    }

    /// Handles bytes accepted by the socket.
    #[inline]
    pub fn on_sent(&mut self, bytes: usize, cx: &mut Cx<S>) {
        let on_response = |arrival, count| cx.accounting.add_responses(arrival, count, cx.now_ns, cx.namespaces);
        let freed = self.pair.transport.tx.advance(bytes, &mut cx.memory.pool, on_response);
        self.pair.on_sent(freed, cx);
    }
}
