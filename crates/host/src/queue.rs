//! The host side of a queue pair, without socket and clock.
//!
//! A *slot* is a command identifier with its state. The *arena* is the memory of data: `max_io` bytes a slot
//! ([`Buffers::PerCommand`]) or the same bytes for all ([`Buffers::Shared`], for load without verification: read data is
//! dropped, all writes send the same bytes).
//!
//! Properties: a slot completes exactly once. A completion of a slot that is not in flight, data out of order, an R2T outside of
//! the command or beyond MAXR2T, SUCCESS with SQ flow control, and a short read are [`Violation`]s. Nothing is allocated after
//! [`Queue::new`].

use pilotlight_nvme::command::Sgl;
use pilotlight_nvme::digest::digest;
use pilotlight_nvme::pdu::{CapsuleCmd, Digests, PduType, data_offset};
use pilotlight_nvme::{Cqe, Sqe, Status};
use zerocopy::IntoBytes;

use crate::error::{HostError, Violation};
use crate::h2c_frame::H2CFrame;
#[cfg(feature = "testing")]
use crate::outstanding::{OutstandingR2ts, R2tOrder};
use crate::receiver::{DataPiece, Event, Receiver, TransferRequest};
use crate::transmit::Transmit;

/// Negotiated parameters of a queue.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Digests in use.
    pub digests: Digests,
    /// Alignment of data that the target sends, in dwords less one.
    pub hpda: u8,
    /// Alignment of data that the host sends, in dwords less one.
    pub cpda: u8,
    /// Most R2Ts outstanding per command.
    pub max_r2t: u32,
    /// Most bytes in one H2CData PDU.
    pub max_h2c_data: u32,
    /// Most bytes of data in a command capsule.
    pub in_capsule: u32,
    /// SQ flow control is disabled: SUCCESS flags are allowed.
    pub success_flag: bool,
}

/// Buffers of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffers {
    /// Each command has its own buffer.
    PerCommand,
    /// All writes send the same bytes; read data is dropped.
    Shared,
}

/// Direction and length of a command's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// No data.
    None,
    /// Bytes from the target.
    In(u32),
    /// Bytes to the target, from [`Queue::buffer_mut`].
    Out(u32),
}

/// A completed command.
#[derive(Clone, Copy, Debug)]
pub struct Completed {
    /// The command.
    pub cid: u16,
    /// Status; success if the SUCCESS flag replaced the response.
    pub status: Status,
    /// Dwords 0 and 1 of the completion queue entry; 0 if the SUCCESS flag replaced it.
    pub result: u64,
    /// Submission queue head; `None` if the SUCCESS flag replaced the response.
    pub sqhd: Option<u16>,
    /// Data digest mismatch: the data is invalid.
    pub digest_error: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Reserved,
    InFlight,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    state: State,
    transfer: Transfer,
    /// In: bytes received. Out: bytes requested by R2Ts.
    moved: u32,
    digest_error: bool,
}

const FREE: Slot = Slot { state: State::Free, transfer: Transfer::None, moved: 0, digest_error: false };

/// A host's side of a queue pair.
#[derive(Debug)]
pub struct Queue {
    terms: Terms,
    receiver: Receiver,
    /// Pending PDUs.
    pub(crate) transmit: Transmit,
    #[cfg(feature = "testing")]
    outstanding: OutstandingR2ts,
    slots: Vec<Slot>,
    free: Vec<u16>,
    pub(crate) arena: Vec<u8>,
    max_io: usize,
    /// Distance between two slots' buffers: `max_io`, or 0 if shared.
    stride: usize,
    in_flight: u32,
}

impl Queue {
    /// A queue for up to `depth` commands of up to `max_io` bytes each.
    #[must_use]
    pub fn new(terms: Terms, depth: u16, max_io: u32, buffers: Buffers) -> Self {
        let depth_n = usize::from(depth);
        let mut queue = Self {
            terms,
            receiver: Receiver::new(terms.digests, terms.hpda),
            transmit: Transmit::with_capacity(depth_n * 256, depth_n * 8),
            #[cfg(feature = "testing")]
            outstanding: OutstandingR2ts::new(depth_n * terms.max_r2t.min(16) as usize),
            slots: vec![FREE; depth_n],
            free: (0..depth).rev().collect(),
            arena: Vec::new(),
            max_io: 0,
            stride: 0,
            in_flight: 0,
        };
        queue.set_buffers(max_io, buffers);
        queue
    }

    /// Replaces the buffers. No command may be in flight.
    pub(crate) fn set_buffers(&mut self, max_io: u32, buffers: Buffers) {
        assert_eq!(self.in_flight, 0, "commands use their buffers");
        self.max_io = max_io as usize;
        let (stride, len) = match buffers {
            Buffers::PerCommand => (self.max_io, self.max_io * self.slots.len()),
            Buffers::Shared => (0, self.max_io),
        };
        (self.stride, self.arena) = (stride, vec![0; len]);
    }

    /// Commands that were issued and have not completed.
    #[inline]
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Most commands at once.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.slots.len()
    }

    /// The negotiated parameters.
    #[must_use]
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Most bytes of data per command.
    #[must_use]
    pub fn max_io(&self) -> u32 {
        self.max_io as u32
    }

    /// Changes terms that are known after the handshake: in-capsule capacity (IOCCSZ of Identify Controller), SQ flow control
    /// (Connect).
    pub(crate) fn amend(&mut self, change: impl FnOnce(&mut Terms)) {
        change(&mut self.terms);
    }

    /// Sets the order of H2CData PDUs.
    #[cfg(feature = "testing")]
    pub fn set_r2t_order(&mut self, order: R2tOrder) {
        self.outstanding.set_order(order);
    }

    /// The most R2Ts that one command has had outstanding with [`R2tOrder::Shuffled`].
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn max_outstanding_r2ts(&self) -> u32 {
        self.outstanding.max_outstanding()
    }

    /// Takes a free command identifier for [`Queue::issue`]; `None` if all are in use.
    #[inline]
    pub fn reserve(&mut self) -> Option<u16> {
        let cid = self.free.pop()?;
        self.slots[usize::from(cid)].state = State::Reserved;
        Some(cid)
    }

    /// Releases a reserved identifier.
    ///
    /// # Panics
    /// If `cid` is not reserved.
    pub fn release(&mut self, cid: u16) {
        let slot = &mut self.slots[usize::from(cid)];
        assert!(slot.state == State::Reserved, "command {cid} is not reserved");
        *slot = FREE;
        self.free.push(cid);
    }

    /// The buffer of a command, `max_io` bytes.
    #[inline]
    pub fn buffer_mut(&mut self, cid: u16) -> &mut [u8] {
        let start = usize::from(cid) * self.stride;
        &mut self.arena[start..start + self.max_io]
    }

    /// Sets the content of all buffers, eight bytes at a time.
    pub fn fill_arena(&mut self, set: impl FnMut(&mut [u8; 8])) {
        self.arena.as_chunks_mut::<8>().0.iter_mut().for_each(set);
    }

    /// Queues command `cid` for sending. Fills in command identifier and data pointer: data goes into the capsule if it fits,
    /// otherwise the target requests it.
    ///
    /// # Panics
    /// If `cid` is not reserved, or the transfer is longer than `max_io`.
    #[inline]
    pub fn issue(&mut self, cid: u16, mut sqe: Sqe, transfer: Transfer) {
        let in_capsule = match transfer {
            Transfer::Out(len) if len <= self.terms.in_capsule => len,
            _ => 0,
        };
        sqe.sgl = match transfer {
            Transfer::None => Sgl::default(),
            Transfer::Out(len) if in_capsule > 0 => Sgl::in_capsule(len),
            Transfer::In(len) | Transfer::Out(len) => Sgl::transport(len),
        };
        self.issue_as_is(cid, sqe, transfer, in_capsule);
    }

    /// Like [`Queue::issue`], with the data pointer of `sqe` and the first `in_capsule` bytes of the buffer in the capsule,
    /// valid or not.
    ///
    /// # Panics
    /// As [`Queue::issue`].
    #[inline]
    pub fn issue_as_is(&mut self, cid: u16, mut sqe: Sqe, transfer: Transfer, in_capsule: u32) {
        let slot = &mut self.slots[usize::from(cid)];
        assert!(slot.state == State::Reserved, "command {cid} is not reserved");
        if let Transfer::In(len) | Transfer::Out(len) = transfer {
            assert!(
                len as usize <= self.max_io,
                "a transfer of {len} bytes on a queue with a maximum of {}",
                self.max_io
            );
        }
        *slot = Slot { state: State::InFlight, transfer, moved: 0, digest_error: false };
        self.in_flight += 1;
        sqe.cid.set(cid);
        self.push_capsule(cid, sqe, in_capsule);
    }

    #[inline]
    fn push_capsule(&mut self, cid: u16, sqe: Sqe, in_capsule: u32) {
        let digests = self.terms.digests;
        if in_capsule == 0 {
            let capsule = CapsuleCmd::new(sqe, 0, 0, digests);
            self.transmit.push_header(capsule.as_bytes());
            if digests.header {
                self.transmit.push_header(&digest(capsule.as_bytes()));
            }
            return;
        }
        let pdo = data_offset(PduType::CapsuleCmd, digests, self.terms.cpda);
        let capsule = CapsuleCmd::new(sqe, in_capsule, pdo, digests);
        let start = usize::from(cid) * self.stride;
        let data = start..start + in_capsule as usize;
        push_with_data(&mut self.transmit, &self.arena, capsule.as_bytes(), pdo, data, digests);
    }

    /// Processes received bytes. `done` is called for each completed command, with the data it read (empty unless
    /// [`Buffers::PerCommand`]).
    ///
    /// # Errors
    /// [`HostError::Violation`] or [`HostError::Terminated`]; the connection is then unusable.
    #[inline]
    pub fn receive(&mut self, mut input: &[u8], mut done: impl FnMut(Completed, &[u8])) -> Result<(), HostError> {
        while let Some(event) = self.receiver.next(&mut input)? {
            let completed = match event {
                Event::Data(piece) => self.data(piece)?,
                Event::Response(cqe) => Some(self.response(cqe)?),
                Event::ReadyToTransfer(request) => {
                    self.ready_to_transfer(request)?;
                    None
                }
                Event::Terminate { fes, fei } => return Err(HostError::Terminated { fes, fei }),
            };
            if let Some(completed) = completed {
                let data = self.finish(completed.cid);
                done(completed, data);
            }
        }
        Ok(())
    }

    /// Queues data for R2Ts held by [`R2tOrder::Shuffled`]; called once per poll, `idle` if nothing arrived.
    #[cfg(feature = "testing")]
    #[inline]
    pub fn pump(&mut self, idle: bool) {
        if self.outstanding.is_empty() {
            return;
        }
        while let Some(frame) = self.outstanding.next_shuffled(idle, self.terms.max_h2c_data) {
            self.push_h2c(&frame);
        }
    }

    /// Whether R2Ts are held, so that polling must continue although nothing arrives.
    pub(crate) fn has_held_r2ts(&self) -> bool {
        #[cfg(feature = "testing")]
        return !self.outstanding.is_empty();
        #[cfg(not(feature = "testing"))]
        false
    }

    #[inline]
    fn in_flight_slot(&mut self, cid: u16) -> Result<&mut Slot, Violation> {
        match self.slots.get_mut(usize::from(cid)) {
            Some(slot) if slot.state == State::InFlight => Ok(slot),
            _ => Err(Violation::field(8, "a response to a command that is not in flight")),
        }
    }

    #[inline]
    fn data(&mut self, piece: DataPiece<'_>) -> Result<Option<Completed>, Violation> {
        let (stride, success_allowed) = (self.stride, self.terms.success_flag);
        let slot = self.in_flight_slot(piece.cid)?;
        let Transfer::In(len) = slot.transfer else {
            return Err(Violation::sequence("C2HData for a command that reads nothing"));
        };
        if piece.offset != slot.moved {
            return Err(Violation::field(12, "C2HData out of order (Linux hosts rely on the order)"));
        }
        let moved = u64::from(slot.moved) + piece.bytes.len() as u64;
        if moved > u64::from(len) {
            return Err(Violation::range("more C2HData than the command reads"));
        }
        slot.moved = moved as u32;
        if stride > 0 {
            let start = usize::from(piece.cid) * stride + piece.offset as usize;
            self.arena[start..start + piece.bytes.len()].copy_from_slice(piece.bytes);
        }
        let Some(end) = piece.end else { return Ok(None) };
        let slot = &mut self.slots[usize::from(piece.cid)];
        slot.digest_error |= !end.digest_ok;
        if end.last && slot.moved != len {
            return Err(Violation::field(1, "LAST_PDU before the command's data was complete"));
        }
        if !end.success {
            return Ok(None);
        }
        if !end.last || !success_allowed {
            return Err(Violation::field(1, "SUCCESS without LAST_PDU, or with SQ flow control on"));
        }
        let digest_error = slot.digest_error;
        Ok(Some(Completed { cid: piece.cid, status: Status::SUCCESS, result: 0, sqhd: None, digest_error }))
    }

    #[inline]
    fn response(&mut self, cqe: Cqe) -> Result<Completed, Violation> {
        let (cid, status) = (cqe.cid.get(), cqe.status());
        let slot = self.in_flight_slot(cid)?;
        if let Transfer::In(len) = slot.transfer
            && status.is_success()
            && slot.moved != len
        {
            return Err(Violation::sequence("a read succeeded before all of its data arrived"));
        }
        let digest_error = slot.digest_error;
        Ok(Completed { cid, status, result: cqe.result.get(), sqhd: Some(cqe.sqhd.get()), digest_error })
    }

    fn ready_to_transfer(&mut self, request: TransferRequest) -> Result<(), Violation> {
        let slot = self.in_flight_slot(request.cid)?;
        let Transfer::Out(len) = slot.transfer else {
            return Err(Violation::sequence("R2T for a command that writes nothing"));
        };
        if request.len == 0 || u64::from(request.offset) + u64::from(request.len) > u64::from(len) {
            return Err(Violation::range("R2T beyond the command's data"));
        }
        if u64::from(slot.moved) + u64::from(request.len) > u64::from(len) {
            return Err(Violation::range("R2Ts for more than the command's data"));
        }
        slot.moved += request.len;
        #[cfg(feature = "testing")]
        let all_requested = slot.moved == len;
        #[cfg(feature = "testing")]
        if self.hold(request, all_requested)? {
            return Ok(());
        }
        let mut rest = request;
        while let Some(frame) = H2CFrame::take(&mut rest, self.terms.max_h2c_data) {
            self.push_h2c(&frame);
        }
        Ok(())
    }

    /// Holds an R2T for [`R2tOrder::Shuffled`]; false if its data must be sent at once, which leaves none outstanding.
    #[cfg(feature = "testing")]
    fn hold(&mut self, request: TransferRequest, all_requested: bool) -> Result<bool, Violation> {
        let max_r2t = self.terms.max_r2t;
        if self.outstanding.outstanding(request.cid) >= max_r2t {
            let fes = pilotlight_nvme::pdu::FatalError::LimitExceeded;
            return Err(Violation { fes, fei: 0, what: "more R2Ts than MAXR2T allows" });
        }
        Ok(self.outstanding.hold(request, all_requested, max_r2t))
    }

    fn push_h2c(&mut self, frame: &H2CFrame) {
        let digests = self.terms.digests;
        let pdo = data_offset(PduType::H2CData, digests, self.terms.cpda);
        let header = frame.header(pdo, digests);
        let start = usize::from(frame.cid) * self.stride + frame.offset as usize;
        let data = start..start + frame.len as usize;
        push_with_data(&mut self.transmit, &self.arena, header.as_bytes(), pdo, data, digests);
    }

    /// Frees the slot and returns the data it read.
    #[inline]
    fn finish(&mut self, cid: u16) -> &[u8] {
        let slot = &mut self.slots[usize::from(cid)];
        let read = match slot.transfer {
            Transfer::In(_) if self.stride > 0 => slot.moved as usize,
            _ => 0,
        };
        *slot = FREE;
        self.free.push(cid);
        self.in_flight -= 1;
        #[cfg(feature = "testing")]
        self.outstanding.remove(cid);
        let start = usize::from(cid) * self.stride;
        &self.arena[start..start + read]
    }
}

/// Header, header digest, padding, data, data digest.
fn push_with_data(
    transmit: &mut Transmit,
    arena: &[u8],
    header: &[u8],
    pdo: u8,
    data: std::ops::Range<usize>,
    digests: Digests,
) {
    let mut head = [0u8; 256];
    head[..header.len()].copy_from_slice(header);
    if digests.header {
        head[header.len()..header.len() + 4].copy_from_slice(&digest(header));
    }
    transmit.push_header(&head[..usize::from(pdo)]);
    transmit.push_data(data.clone());
    if digests.data {
        transmit.push_header(&digest(&arena[data]));
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
