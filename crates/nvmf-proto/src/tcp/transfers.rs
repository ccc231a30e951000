//! Data requested by R2Ts.
//!
//! A *transfer* is the data of one command. The transfer of an aborted command stays in quarantine until its requested data
//! has arrived, so that late data is not mixed up with another command's. A transfer is not reused before the end of the
//! H2CData PDU being received. All memory is allocated when the queue connects.
//!
//! Properties: a transfer tag identifies one R2T of one command; a stale tag is invalid (its generation differs); every
//! command of the queue gets a transfer, in spite of aborted ones.

/// Maximum outstanding R2Ts per command.
pub(super) const MAX_R2T: usize = 4;
/// Transfers beyond the queue size, for aborted commands.
const QUARANTINE: usize = 16;
/// Number of transfers in tags: 12 bits, next to 2 for the R2T and 2 for the generation.
const MAX_TRANSFERS: usize = 1 << 12;
/// "No transfer" of a slot.
const NONE: u16 = u16::MAX;
/// Minimum bytes per R2T of a command with several.
const PIECE: u32 = 4096;

/// An R2T with outstanding data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OutstandingR2t {
    /// Start of the requested range.
    pub(super) start: u32,
    /// Offset of the next byte.
    pub(super) next: u32,
    /// End of the requested range; equal to `next` if nothing is outstanding.
    pub(super) end: u32,
}

impl OutstandingR2t {
    /// Whether data is outstanding.
    #[inline]
    pub(super) const fn is_open(&self) -> bool {
        self.next < self.end
    }
}

/// The owner of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// Free.
    None,
    /// The command in this slot.
    Slot(u16),
    /// An ended command.
    Ended,
}

/// The data transfer of one command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    owner: Owner,
    /// The command.
    pub(super) cid: u16,
    len: u32,
    requested: u32,
    intact: bool,
    /// An H2CData PDU of it is being received.
    in_pdu: bool,
    /// Counts its commands; identifies stale tags.
    generation: u8,
    /// Its R2Ts.
    pub(super) r2ts: [OutstandingR2t; MAX_R2T],
}

impl Transfer {
    const FREE: Self = Self {
        owner: Owner::None,
        cid: 0,
        len: 0,
        requested: 0,
        intact: true,
        in_pdu: false,
        generation: 0,
        r2ts: [OutstandingR2t { start: 0, next: 0, end: 0 }; MAX_R2T],
    };

    fn outstanding(&self) -> usize {
        self.r2ts.iter().filter(|r2t| r2t.is_open()).count()
    }

    /// The slot of its command, if that has not ended.
    #[inline]
    pub(super) fn slot(&self) -> Option<u16> {
        match self.owner {
            Owner::Slot(slot) => Some(slot),
            Owner::None | Owner::Ended => None,
        }
    }
}

/// An R2T to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// The command.
    pub(super) cid: u16,
    /// The transfer tag.
    pub(super) tag: u16,
    /// Start of the range.
    pub(super) offset: u32,
    /// Its length in bytes.
    pub(super) len: u32,
}

/// State of a transfer at the end of an H2CData PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// More data is outstanding, or its command has ended.
    Open,
    /// No R2T is outstanding, and more must be requested for the command in this slot.
    Blocked(u16),
    /// All data of the command in this slot has arrived, intact or not.
    Done(u16, bool),
}

/// The transfers of one queue.
#[derive(Debug)]
pub(super) struct Transfers {
    list: Box<[Transfer]>,
    free: Vec<u16>,
    /// The transfer of each slot's command.
    by_slot: Box<[u16]>,
    /// Maximum outstanding R2Ts per command.
    max_r2t: usize,
}

impl Default for Transfers {
    fn default() -> Self {
        Self { list: Box::default(), free: Vec::new(), by_slot: Box::default(), max_r2t: 1 }
    }
}

impl Transfers {
    const fn count(size: u16) -> usize {
        size as usize + QUARANTINE
    }

    /// Bytes that [`Transfers::reserve`] allocates.
    pub(super) const fn bytes(size: u16, slots: usize) -> usize {
        Self::count(size) * (size_of::<Transfer>() + size_of::<u16>()) + slots * size_of::<u16>()
    }

    /// Allocates memory for a queue of `size` entries with `slots` slots.
    pub(super) fn reserve(&mut self, size: u16, slots: usize) {
        let count = Self::count(size);
        assert!(count <= MAX_TRANSFERS, "queue size {size} is over the limit of transfer tags");
        self.list = vec![Transfer::FREE; count].into_boxed_slice();
        self.free = (0..count as u16).rev().collect();
        self.by_slot = vec![NONE; slots].into_boxed_slice();
    }

    /// Sets the host's limit of outstanding R2Ts per command.
    pub(super) fn set_max_r2t(&mut self, max_r2t: usize) {
        self.max_r2t = max_r2t.clamp(1, MAX_R2T);
    }

    /// The transfer of the command `cid` in `slot`, created for `len` bytes if missing.
    #[inline]
    pub(super) fn begin_or_get(&mut self, slot: u16, cid: u16, len: u32) -> Option<u16> {
        let at = self.by_slot[usize::from(slot)];
        if at != NONE {
            return Some(at);
        }
        let at = self.free.pop().or_else(|| self.evict())?;
        let transfer = &mut self.list[usize::from(at)];
        *transfer = Transfer { owner: Owner::Slot(slot), cid, len, generation: transfer.generation, ..Transfer::FREE };
        self.by_slot[usize::from(slot)] = at;
        Some(at)
    }

    /// Takes the first transfer out of a full quarantine; its tags become stale.
    fn evict(&mut self) -> Option<u16> {
        let at = self.list.iter().position(|transfer| transfer.owner == Owner::Ended && !transfer.in_pdu)?;
        let transfer = &mut self.list[at];
        transfer.generation = transfer.generation.wrapping_add(1);
        Some(at as u16)
    }

    /// The next R2T of a transfer, if it can be sent now.
    #[inline]
    pub(super) fn next_request(&mut self, at: u16) -> Option<Request> {
        let max_r2t = self.max_r2t;
        let transfer = &mut self.list[usize::from(at)];
        if transfer.requested == transfer.len || !transfer.intact {
            return None;
        }
        let r2t = transfer.r2ts[..max_r2t].iter().position(|r2t| !r2t.is_open())?;
        let rest = transfer.len - transfer.requested;
        let piece = (transfer.len / max_r2t as u32).next_multiple_of(PIECE).max(PIECE);
        let (offset, len) = (transfer.requested, if max_r2t == 1 { rest } else { piece.min(rest) });
        transfer.r2ts[r2t] = OutstandingR2t { start: offset, next: offset, end: offset + len };
        transfer.requested += len;
        let tag = at << 4 | u16::from(transfer.generation & 3) << 2 | r2t as u16;
        Some(Request { cid: transfer.cid, tag, offset, len })
    }

    /// Whether data of a transfer is outstanding.
    #[inline]
    pub(super) fn is_open(&self, at: u16) -> bool {
        self.list[usize::from(at)].outstanding() > 0
    }

    /// The transfer and the R2T of `tag`; `None` if it is unknown, stale, or complete.
    #[inline]
    pub(super) fn by_tag(&self, tag: u16) -> Option<(u16, usize)> {
        let (at, generation, r2t) = (tag >> 4, tag >> 2 & 3, usize::from(tag & 3));
        let transfer = self.list.get(usize::from(at))?;
        let live = transfer.owner != Owner::None
            && u16::from(transfer.generation & 3) == generation
            && transfer.r2ts[r2t].is_open();
        live.then_some((at, r2t))
    }

    /// The transfer `at`.
    #[inline]
    pub(super) fn get(&mut self, at: u16) -> &mut Transfer {
        &mut self.list[usize::from(at)]
    }

    /// Records the start of an H2CData PDU of transfer `at`.
    #[inline]
    pub(super) fn begin_pdu(&mut self, at: u16) {
        self.list[usize::from(at)].in_pdu = true;
    }

    /// Records the end of an H2CData PDU of transfer `at`, `intact` or not. After damage nothing more is requested, and the
    /// command fails when its outstanding R2Ts are complete.
    #[inline]
    pub(super) fn end_pdu(&mut self, at: u16, intact: bool) {
        let transfer = &mut self.list[usize::from(at)];
        transfer.in_pdu = false;
        transfer.intact &= intact;
    }

    /// The state of transfer `at` at the end of a PDU. A finished transfer is freed.
    #[inline]
    pub(super) fn progress(&mut self, at: u16) -> Progress {
        let transfer = &self.list[usize::from(at)];
        if transfer.outstanding() > 0 {
            return Progress::Open;
        }
        let (owner, intact, all) = (transfer.owner, transfer.intact, transfer.requested == transfer.len);
        match owner {
            Owner::Slot(slot) if intact && !all => Progress::Blocked(slot),
            Owner::Slot(slot) => {
                self.release(at);
                Progress::Done(slot, intact)
            }
            Owner::Ended => {
                self.release(at);
                Progress::Open
            }
            Owner::None => unreachable!("a transfer is not freed while a PDU of it is being received"),
        }
    }

    /// Handles the end of the command in `slot`.
    pub(super) fn cancel(&mut self, slot: u16) {
        let at = self.by_slot.get(usize::from(slot)).copied().unwrap_or(NONE);
        if at == NONE {
            return;
        }
        self.by_slot[usize::from(slot)] = NONE;
        let transfer = &mut self.list[usize::from(at)];
        transfer.owner = Owner::Ended;
        if transfer.outstanding() == 0 && !transfer.in_pdu {
            self.release(at);
        }
    }

    #[inline]
    fn release(&mut self, at: u16) {
        let transfer = &mut self.list[usize::from(at)];
        if let Owner::Slot(slot) = transfer.owner {
            self.by_slot[usize::from(slot)] = NONE;
        }
        transfer.owner = Owner::None;
        transfer.generation = transfer.generation.wrapping_add(1);
        self.free.push(at);
    }

    /// Outstanding R2Ts of commands in progress.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn outstanding(&self) -> usize {
        self.list.iter().filter(|transfer| transfer.slot().is_some()).map(Transfer::outstanding).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn transfers(size: u16, max_r2t: usize) -> Transfers {
        let mut transfers = Transfers::default();
        transfers.reserve(size, usize::from(size));
        transfers.set_max_r2t(max_r2t);
        transfers
    }

    /// Completes the R2T of `tag`.
    fn complete_r2t(transfers: &mut Transfers, tag: u16) -> Progress {
        let (at, r2t) = transfers.by_tag(tag).expect("it is open");
        let r2t = &mut transfers.get(at).r2ts[r2t];
        r2t.next = r2t.end;
        transfers.progress(at)
    }

    #[test]
    fn a_stale_tag_is_invalid() {
        let mut transfers = transfers(4, 1);
        let at = transfers.begin_or_get(3, 7, 4096).expect("free");
        let request = transfers.next_request(at).expect("nothing requested yet");
        assert_eq!((request.cid, request.offset, request.len), (7, 0, 4096));
        assert_eq!(transfers.by_tag(request.tag), Some((at, 0)));
        transfers.cancel(3);
        assert_eq!(transfers.by_tag(request.tag), Some((at, 0)), "late data is recognised");
        assert_eq!(complete_r2t(&mut transfers, request.tag), Progress::Open);
        assert_eq!(transfers.by_tag(request.tag), None);
        assert_eq!(transfers.free.len(), Transfers::count(4));
    }

    #[test]
    fn a_tag_of_an_earlier_command_is_invalid() {
        let mut transfers = transfers(1, 1);
        let mut stale = Vec::new();
        for cid in 0..3 {
            let at = transfers.begin_or_get(0, cid, 4096).expect("free");
            let tag = transfers.next_request(at).expect("one R2T").tag;
            assert_eq!(transfers.by_tag(tag), Some((at, 0)));
            assert!(stale.iter().all(|&tag| transfers.by_tag(tag).is_none()), "command {cid}: {stale:?}");
            assert_eq!(complete_r2t(&mut transfers, tag), Progress::Done(0, true));
            stale.push(tag);
        }
    }

    #[test]
    fn quarantine_does_not_reduce_the_queue_size() {
        let mut transfers = transfers(2, 1);
        for cid in 0..100 {
            let at = transfers.begin_or_get(0, cid, 1).expect("a transfer for each command");
            let tag = transfers.next_request(at).expect("one R2T").tag;
            assert_eq!(transfers.by_tag(tag), Some((at, 0)));
            transfers.cancel(0);
        }
        assert_eq!(transfers.outstanding(), 0);
    }

    #[test]
    fn a_transfer_is_not_reused_during_a_pdu() {
        let mut transfers = transfers(1, 1);
        let at = transfers.begin_or_get(0, 0, 4096).expect("free");
        let tag = transfers.next_request(at).expect("one R2T").tag;
        transfers.begin_pdu(at);
        let (_, r2t) = transfers.by_tag(tag).expect("it is open");
        transfers.get(at).r2ts[r2t].next = 4096; // all data, but not its digest
        transfers.cancel(0);
        for cid in 1..100 {
            let other = transfers.begin_or_get(0, cid, 4096).expect("a transfer for each command");
            assert_ne!(other, at, "command {cid}");
            transfers.next_request(other).expect("one R2T");
            transfers.cancel(0);
        }
        transfers.end_pdu(at, true);
        assert_eq!(transfers.progress(at), Progress::Open);
        assert_eq!(transfers.free, [at]);
    }

    #[test]
    fn no_more_data_is_requested_after_damage() {
        let mut transfers = transfers(1, 1);
        transfers.set_max_r2t(2);
        let at = transfers.begin_or_get(0, 1, 16384).expect("free");
        let requests: Vec<Request> = std::iter::from_fn(|| transfers.next_request(at)).collect();
        assert_eq!(requests.len(), 2);
        transfers.get(at).r2ts[0].next = requests[0].len;
        transfers.end_pdu(at, false);
        assert_eq!(transfers.progress(at), Progress::Open);
        assert_eq!(transfers.next_request(at), None);
        assert_eq!(complete_r2t(&mut transfers, requests[1].tag), Progress::Done(0, false));
    }

    proptest! {
        /// Each byte is requested once, for any limit of R2Ts and any order of their completion.
        #[test]
        fn each_byte_is_requested_once(len in 1u32..200_000, max_r2t in 1usize..9, order in prop::collection::vec(0usize..4, 0..400)) {
            let mut transfers = transfers(1, max_r2t);
            let at = transfers.begin_or_get(0, 1, len).expect("free");
            let (mut open, mut next, mut ended) = (Vec::new(), 0, false);
            for pick in order.into_iter().chain(std::iter::repeat(0)) {
                while let Some(request) = transfers.next_request(at) {
                    prop_assert_eq!(request.offset, next);
                    next += request.len;
                    open.push(request.tag);
                }
                prop_assert!(open.len() <= max_r2t.min(MAX_R2T) && !open.is_empty());
                let tag = open.swap_remove(pick % open.len());
                if complete_r2t(&mut transfers, tag) == Progress::Done(0, true) {
                    ended = true;
                    break;
                }
            }
            prop_assert!(ended && open.is_empty());
            prop_assert_eq!(next, len);
            prop_assert_eq!(transfers.free.len(), Transfers::count(1));
        }
    }
}
