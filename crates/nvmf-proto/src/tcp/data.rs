//! H2CData PDUs: requested data, received directly into the command's buffer.

use pilotlight_nvme::digest;
use pilotlight_nvme::pdu::{FatalError, Flags, H2CData};
use zerocopy::FromBytes;

use super::Connection;
use super::inbound::Body;
use super::transfers::Progress;
use super::wire::{Fault, Head, field};
use crate::queue_pair::Cx;
use crate::services::Services;

impl<S: Services> Connection<S> {
    /// The destination of the current H2CData PDU's data, to receive from the socket in place; `None` without such a PDU, or if
    /// its command has ended.
    pub fn body_target(&mut self) -> Option<&mut [u8]> {
        let tcp = &mut self.pair.transport;
        let body = tcp.inbound.body.filter(|body| body.remaining > 0)?;
        let transfer = tcp.transfers.get(body.transfer);
        let (slot, at) = (transfer.slot()?, transfer.r2ts[body.r2t].next as usize);
        self.pair.data_buffer(slot).map(|buffer| &mut buffer[at..at + body.remaining as usize])
    }

    /// Handles `len` bytes received into [`Connection::body_target`].
    pub fn on_body(&mut self, len: usize, cx: &mut Cx<S>) {
        if let Some(body) = self.pair.transport.inbound.body {
            let crc = if self.framing.digests.data { self.digest_of(&body, len) } else { 0 };
            let tcp = &mut self.pair.transport;
            tcp.transfers.get(body.transfer).r2ts[body.r2t].next += len as u32;
            tcp.inbound.body = Some(Body { crc, remaining: body.remaining - len as u32, ..body });
        }
        self.finish_body(cx);
    }

    /// The digest of `body` including its next `len` bytes.
    fn digest_of(&mut self, body: &Body, len: usize) -> u32 {
        self.body_target().map_or(body.crc, |target| digest::append(body.crc, &target[..len]))
    }

    pub(super) fn h2c_data(&mut self, bytes: &[u8], head: &Head) -> Result<(), Fault> {
        let Ok((pdu, _)) = H2CData::read_from_prefix(bytes) else { return Err(Fault::field(field::PLEN)) };
        let tcp = &mut self.pair.transport;
        if !tcp.may_fetch() {
            return Err(Fault::new(FatalError::Sequence)); // without a queue no data was requested
        }
        if head.flags.contains(Flags::DDGST) != self.framing.digests.data {
            return Err(Fault::field(field::FLAGS));
        }
        let digest_len = if self.framing.digests.data { digest::DIGEST_LEN } else { 0 };
        let (offset, len) = (pdu.datao.get(), pdu.datal.get());
        if head.pdu_len != head.data_offset + len as usize + digest_len || len == 0 {
            return Err(Fault::field(field::PLEN));
        }
        let Some((transfer, r2t)) = tcp.transfers.by_tag(pdu.ttag.get()) else {
            return Err(Fault::field(field::TTAG));
        };
        if tcp.transfers.get(transfer).cid != pdu.cccid.get() {
            return Err(Fault::field(field::CCCID));
        }
        let requested = tcp.transfers.get(transfer).r2ts[r2t];
        if !offset.is_multiple_of(4) || !len.is_multiple_of(4) {
            return Err(Fault::field(if offset.is_multiple_of(4) { field::DATAL } else { field::DATAO }));
        }
        if !(requested.start..requested.end).contains(&offset) || len > requested.end - offset {
            return Err(Fault::new(FatalError::DataOutOfRange));
        }
        if offset != requested.next {
            return Err(Fault::new(FatalError::Sequence));
        }
        if head.flags.contains(Flags::LAST_PDU) != (offset + len == requested.end) {
            return Err(Fault::field(field::FLAGS));
        }
        tcp.transfers.begin_pdu(transfer);
        tcp.inbound.body =
            Some(Body { transfer, r2t, remaining: len, digest_left: digest_len, digest: [0; 4], crc: 0 });
        Ok(())
    }

    /// Consumes data, and then its digest, from the start of `bytes`.
    pub(super) fn body_bytes(&mut self, bytes: &[u8], cx: &mut Cx<S>) -> usize {
        let Some(body) = self.pair.transport.inbound.body else { return 0 };
        if body.remaining > 0 {
            let len = bytes.len().min(body.remaining as usize);
            if len == 0 {
                return 0;
            }
            if let Some(target) = self.body_target() {
                target[..len].copy_from_slice(&bytes[..len]);
            }
            self.on_body(len, cx);
            return len;
        }
        let len = self.pair.transport.inbound.take_digest(bytes);
        self.finish_body(cx);
        len
    }

    /// If the H2CData PDU is complete, checks its digest and continues its command.
    fn finish_body(&mut self, cx: &mut Cx<S>) {
        let tcp = &mut self.pair.transport;
        let Some(body) = tcp.inbound.body.filter(Body::is_complete) else { return };
        tcp.inbound.body = None;
        let intact = !self.framing.digests.data || body.digest == body.crc.to_le_bytes();
        match tcp.end_pdu(body.transfer, intact) {
            Progress::Open => {}
            Progress::Blocked(slot) => self.pair.on_fetch_blocked(slot),
            Progress::Done(slot, intact) => self.pair.on_data(slot, intact, cx),
        }
    }
}
