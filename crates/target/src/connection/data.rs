//! Data that R2Ts have asked for, on its way in: H2CData PDUs, whose data goes straight to where it belongs.

use pilotlight_nvme::Status;
use pilotlight_nvme::digest;
use pilotlight_nvme::pdu::{FatalError, Flags, H2CData};
use zerocopy::FromBytes;

use super::{Body, Connection, Cx};
use crate::slots::State;
use crate::wire::{Fault, Head, field};

impl Connection {
    /// Where the data of the current H2CData PDU belongs, so that it can be read from the socket right there.
    pub fn body_target(&mut self) -> Option<&mut [u8]> {
        let body = self.body.filter(|body| body.remaining > 0)?;
        let slot = self.queue.as_mut()?.slots.get(body.slot);
        let at = slot.asks[body.ask].next as usize;
        slot.buffer.as_mut().map(|buffer| &mut buffer[at..at + body.remaining as usize])
    }

    /// `len` bytes have been read to [`Connection::body_target`].
    pub fn on_body(&mut self, len: usize, cx: &mut Cx) {
        if let (Some(queue), Some(body)) = (&mut self.queue, &mut self.body) {
            let slot = queue.slots.get(body.slot);
            let at = slot.asks[body.ask].next as usize;
            if let Some(buffer) = slot.buffer.as_ref().filter(|_| self.framing.digests.data) {
                body.crc = digest::append(body.crc, &buffer[at..at + len]);
            }
            slot.asks[body.ask].next += len as u32;
            body.remaining -= len as u32;
        }
        self.finish_body(cx);
    }

    pub(super) fn h2c_data(&mut self, bytes: &[u8], head: &Head) -> Result<(), Fault> {
        let Ok((pdu, _)) = H2CData::read_from_prefix(bytes) else { return Err(Fault::field(field::PLEN)) };
        let Some(queue) = &mut self.queue else { return Err(Fault::new(FatalError::Sequence)) };
        if head.flags.contains(Flags::DDGST) != self.framing.digests.data {
            return Err(Fault::field(field::FLAGS));
        }
        let digest_len = if self.framing.digests.data { digest::DIGEST_LEN } else { 0 };
        let (offset, len) = (pdu.datao.get(), pdu.datal.get());
        if head.pdu_len != head.data_offset + len as usize + digest_len || len == 0 {
            return Err(Fault::field(field::PLEN));
        }
        let Some((index, ask)) = queue.slots.by_transfer_tag(pdu.ttag.get()) else {
            return Err(Fault::field(field::TTAG));
        };
        let slot = queue.slots.get(index);
        if slot.cid != pdu.cccid.get() {
            return Err(Fault::field(field::CCCID));
        }
        let asked = slot.asks[ask];
        if !offset.is_multiple_of(4) || !len.is_multiple_of(4) {
            return Err(Fault::field(if offset.is_multiple_of(4) { field::DATAL } else { field::DATAO }));
        }
        if !(asked.start..asked.end).contains(&offset) || len > asked.end - offset {
            return Err(Fault::new(FatalError::DataOutOfRange));
        }
        if offset != asked.next {
            return Err(Fault::new(FatalError::Sequence));
        }
        if head.flags.contains(Flags::LAST_PDU) != (offset + len == asked.end) {
            return Err(Fault::field(field::FLAGS));
        }
        self.body = Some(Body { slot: index, ask, remaining: len, digest_left: digest_len, digest: [0; 4], crc: 0 });
        Ok(())
    }

    /// Takes data, and then its digest, from the start of `bytes`.
    pub(super) fn body_bytes(&mut self, bytes: &[u8], cx: &mut Cx) -> usize {
        let Some(body) = &mut self.body else { return 0 };
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
        let len = bytes.len().min(body.digest_left);
        let from = digest::DIGEST_LEN - body.digest_left;
        body.digest[from..from + len].copy_from_slice(&bytes[..len]);
        body.digest_left -= len;
        self.finish_body(cx);
        len
    }

    /// When an H2CData PDU is complete: checks its digest and moves its command on.
    fn finish_body(&mut self, cx: &mut Cx) {
        let Some(body) = self.body.filter(|body| body.remaining == 0 && body.digest_left == 0) else { return };
        self.body = None;
        let Some(queue) = &mut self.queue else { return };
        let slot = queue.slots.get(body.slot);
        if self.framing.digests.data && body.digest != body.crc.to_le_bytes() {
            slot.fail(Status::TRANSIENT_TRANSPORT);
        }
        if slot.asks[body.ask].open() {
            return;
        }
        if slot.state == State::Discarding {
            if slot.open_asks() == 0 {
                queue.slots.release(body.slot);
            }
            return;
        }
        if slot.asked < slot.len || slot.open_asks() == 0 {
            self.drive(body.slot, cx);
        }
    }

    /// Takes the buffer away from under the data that is coming in.
    pub(super) fn detach_body(&mut self, cx: &mut Cx) {
        let (Some(queue), Some(body)) = (&mut self.queue, self.body) else { return };
        if let Some(buffer) = queue.slots.get(body.slot).buffer.take() {
            cx.memory.give_back(&mut queue.share, buffer);
        }
    }
}
