//! The data that R2Ts have asked for: what is still to come, and where it belongs.
//!
//! A *transfer* is the data of one command; an *ask* is one of its R2Ts. A transfer whose command has ended (it was aborted)
//! stays until what was asked for has come, so that late data is not taken for another command's. Everything is set aside
//! when the queue connects.
//!
//! Properties: a transfer tag names one R2T of one command, and a stale one names none (its generation differs); a command of
//! the queue always finds a transfer, however many have been aborted.

/// Outstanding R2Ts per command at most, whatever the host allows.
pub const MAX_R2T: usize = 4;
/// Transfers beyond the queue size, for aborted commands whose data may still come.
const QUARANTINE: usize = 16;
/// Transfers that tags can name: 12 bits, beside 2 for the R2T and 2 for the generation.
const MAX_TRANSFERS: usize = 1 << 12;
/// "No transfer" of a slot.
const NONE: u16 = u16::MAX;
/// Least bytes that an R2T asks for where a command has several.
const PIECE: u32 = 4096;

/// One R2T that the host has not answered in full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// Where the asked-for range begins.
    pub start: u32,
    /// Where the next byte belongs.
    pub next: u32,
    /// Where the asked-for range ends; equal to `next` when nothing is asked for.
    pub end: u32,
}

impl Ask {
    /// Whether bytes are still to come.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.next < self.end
    }
}

/// Whose data a transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// Nobody's: it is free.
    Nobody,
    /// The command's in this slot.
    Slot(u16),
    /// A command's that has ended.
    Ended,
}

/// The data of one command on its way.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    owner: Owner,
    /// The command.
    pub cid: u16,
    len: u32,
    asked: u32,
    intact: bool,
    /// Counts the commands whose data this has been; tells stale tags.
    generation: u8,
    /// Its R2Ts.
    pub asks: [Ask; MAX_R2T],
}

impl Transfer {
    const FREE: Self = Self {
        owner: Owner::Nobody,
        cid: 0,
        len: 0,
        asked: 0,
        intact: true,
        generation: 0,
        asks: [Ask { start: 0, next: 0, end: 0 }; MAX_R2T],
    };

    fn open_asks(&self) -> usize {
        self.asks.iter().filter(|ask| ask.is_open()).count()
    }

    /// The slot of its command, if that has not ended.
    #[must_use]
    pub fn slot(&self) -> Option<u16> {
        match self.owner {
            Owner::Slot(slot) => Some(slot),
            Owner::Nobody | Owner::Ended => None,
        }
    }
}

/// An R2T that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The command.
    pub cid: u16,
    /// Names the ask.
    pub tag: u16,
    /// Where the range begins.
    pub offset: u32,
    /// Its length in bytes.
    pub len: u32,
}

/// How a transfer stands after the data of an ask has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// More has been asked for, or nobody wants the data.
    Open,
    /// Nothing has been asked for, and there is more to ask for.
    Stuck(u16),
    /// All of it has come, to the command in this slot; undamaged or not.
    Done(u16, bool),
}

/// The transfers of one queue.
#[derive(Debug)]
pub struct Transfers {
    list: Box<[Transfer]>,
    free: Vec<u16>,
    /// By slot, the transfer of its command.
    by_slot: Box<[u16]>,
    /// R2Ts of one command at once.
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

    /// Bytes that [`Transfers::reserve`] sets aside for a queue of `size` entries whose commands are in one of `slots` slots.
    #[must_use]
    pub const fn bytes(size: u16, slots: usize) -> usize {
        Self::count(size) * (size_of::<Transfer>() + size_of::<u16>()) + slots * size_of::<u16>()
    }

    /// Makes room for a queue of `size` entries whose commands are in one of `slots` slots.
    pub fn reserve(&mut self, size: u16, slots: usize) {
        let count = Self::count(size);
        assert!(count <= MAX_TRANSFERS, "queue size {size} is over the limit of transfer tags");
        self.list = vec![Transfer::FREE; count].into_boxed_slice();
        self.free = (0..count as u16).rev().collect();
        self.by_slot = vec![NONE; slots].into_boxed_slice();
    }

    /// The host allows `max_r2t` R2Ts of one command at once.
    pub fn set_max_r2t(&mut self, max_r2t: usize) {
        self.max_r2t = max_r2t.clamp(1, MAX_R2T);
    }

    /// The transfer of the command `cid` in `slot`, which is begun for `len` bytes if there is none.
    pub fn of(&mut self, slot: u16, cid: u16, len: u32) -> Option<u16> {
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

    /// When quarantine is full, the first transfer in it is given up; its tags turn stale.
    fn evict(&mut self) -> Option<u16> {
        let at = self.list.iter().position(|transfer| transfer.owner == Owner::Ended)?;
        let transfer = &mut self.list[at];
        transfer.generation = transfer.generation.wrapping_add(1);
        Some(at as u16)
    }

    /// The next R2T of a transfer, if one may be sent now.
    pub fn next_request(&mut self, at: u16) -> Option<Request> {
        let max_r2t = self.max_r2t;
        let transfer = &mut self.list[usize::from(at)];
        if transfer.asked == transfer.len || !transfer.intact {
            return None;
        }
        let ask = transfer.asks[..max_r2t].iter().position(|ask| !ask.is_open())?;
        let rest = transfer.len - transfer.asked;
        let piece = (transfer.len / max_r2t as u32).next_multiple_of(PIECE).max(PIECE);
        let (offset, len) = (transfer.asked, if max_r2t == 1 { rest } else { piece.min(rest) });
        transfer.asks[ask] = Ask { start: offset, next: offset, end: offset + len };
        transfer.asked += len;
        let tag = at << 4 | u16::from(transfer.generation & 3) << 2 | ask as u16;
        Some(Request { cid: transfer.cid, tag, offset, len })
    }

    /// Whether data of a transfer is on its way.
    #[must_use]
    pub fn is_open(&self, at: u16) -> bool {
        self.list[usize::from(at)].open_asks() > 0
    }

    /// The transfer and the ask that `tag` names; `None` if it is unknown, stale, or answered in full.
    #[must_use]
    pub fn by_tag(&self, tag: u16) -> Option<(u16, usize)> {
        let (at, generation, ask) = (tag >> 4, tag >> 2 & 3, usize::from(tag & 3));
        let transfer = self.list.get(usize::from(at))?;
        let live = transfer.owner != Owner::Nobody
            && u16::from(transfer.generation & 3) == generation
            && transfer.asks[ask].is_open();
        live.then_some((at, ask))
    }

    /// The transfer `at`.
    #[must_use]
    pub fn get(&mut self, at: u16) -> &mut Transfer {
        &mut self.list[usize::from(at)]
    }

    /// Data of transfer `at` has been damaged on its way: nothing more is asked for.
    pub fn note_damage(&mut self, at: u16) {
        self.list[usize::from(at)].intact = false;
    }

    /// The data of an ask of transfer `at` has come in full.
    pub fn came(&mut self, at: u16) -> Progress {
        let transfer = &mut self.list[usize::from(at)];
        if transfer.open_asks() > 0 {
            return Progress::Open;
        }
        let (intact, all) = (transfer.intact, transfer.asked == transfer.len);
        match transfer.owner {
            Owner::Slot(slot) if intact && !all => Progress::Stuck(slot),
            Owner::Slot(slot) => {
                self.release(at);
                Progress::Done(slot, intact)
            }
            Owner::Nobody | Owner::Ended => {
                self.release(at);
                Progress::Open
            }
        }
    }

    /// The command in `slot` has ended.
    pub fn cancel(&mut self, slot: u16) {
        let at = self.by_slot.get(usize::from(slot)).copied().unwrap_or(NONE);
        if at == NONE {
            return;
        }
        self.by_slot[usize::from(slot)] = NONE;
        self.list[usize::from(at)].owner = Owner::Ended;
        if !self.is_open(at) {
            self.release(at);
        }
    }

    fn release(&mut self, at: u16) {
        let transfer = &mut self.list[usize::from(at)];
        if let Owner::Slot(slot) = transfer.owner {
            self.by_slot[usize::from(slot)] = NONE;
        }
        transfer.owner = Owner::Nobody;
        transfer.generation = transfer.generation.wrapping_add(1);
        self.free.push(at);
    }

    /// Asks of commands that have not ended which are not answered in full.
    #[must_use]
    pub fn open(&self) -> usize {
        self.list.iter().filter(|transfer| transfer.slot().is_some()).map(Transfer::open_asks).sum()
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

    /// Answers the ask that `tag` names in full.
    fn answer(transfers: &mut Transfers, tag: u16) -> Progress {
        let (at, ask) = transfers.by_tag(tag).expect("it is open");
        let ask = &mut transfers.get(at).asks[ask];
        ask.next = ask.end;
        transfers.came(at)
    }

    #[test]
    fn a_stale_tag_names_nothing() {
        let mut transfers = transfers(4, 1);
        let at = transfers.of(3, 7, 4096).expect("free");
        let request = transfers.next_request(at).expect("nothing asked yet");
        assert_eq!((request.cid, request.offset, request.len), (7, 0, 4096));
        assert_eq!(transfers.by_tag(request.tag), Some((at, 0)));
        transfers.cancel(3);
        assert_eq!(transfers.by_tag(request.tag), Some((at, 0)), "late data is recognised and thrown away");
        assert_eq!(answer(&mut transfers, request.tag), Progress::Open);
        assert_eq!(transfers.by_tag(request.tag), None);
        assert_eq!(transfers.free.len(), Transfers::count(4));
    }

    #[test]
    fn a_tag_of_an_earlier_command_names_nothing() {
        let mut transfers = transfers(1, 1);
        let mut stale = Vec::new();
        for cid in 0..3 {
            let at = transfers.of(0, cid, 4096).expect("free");
            let tag = transfers.next_request(at).expect("one R2T").tag;
            assert_eq!(transfers.by_tag(tag), Some((at, 0)));
            assert!(stale.iter().all(|&tag| transfers.by_tag(tag).is_none()), "command {cid}: {stale:?}");
            assert_eq!(answer(&mut transfers, tag), Progress::Done(0, true));
            stale.push(tag);
        }
    }

    #[test]
    fn quarantine_never_costs_a_queue_entry() {
        let mut transfers = transfers(2, 1);
        for cid in 0..100 {
            let at = transfers.of(0, cid, 1).expect("a transfer for each command");
            let tag = transfers.next_request(at).expect("one R2T").tag;
            assert_eq!(transfers.by_tag(tag), Some((at, 0)));
            transfers.cancel(0);
        }
        assert_eq!(transfers.open(), 0);
    }

    #[test]
    fn data_that_was_damaged_is_asked_for_no_further() {
        let mut transfers = transfers(1, 1);
        transfers.set_max_r2t(2);
        let at = transfers.of(0, 1, 16384).expect("free");
        let requests: Vec<Request> = std::iter::from_fn(|| transfers.next_request(at)).collect();
        assert_eq!(requests.len(), 2);
        transfers.get(at).asks[0].next = requests[0].len;
        transfers.note_damage(at);
        assert_eq!(transfers.came(at), Progress::Open);
        assert_eq!(transfers.next_request(at), None);
        assert_eq!(answer(&mut transfers, requests[1].tag), Progress::Done(0, false));
    }

    proptest! {
        /// However many R2Ts the host allows, and in whatever order it answers them, each byte is asked for once.
        #[test]
        fn each_byte_is_asked_for_once(len in 1u32..200_000, max_r2t in 1usize..9, order in prop::collection::vec(0usize..4, 0..400)) {
            let mut transfers = transfers(1, max_r2t);
            let at = transfers.of(0, 1, len).expect("free");
            let (mut open, mut next, mut ended) = (Vec::new(), 0, false);
            for pick in order.into_iter().chain(std::iter::repeat(0)) {
                while let Some(request) = transfers.next_request(at) {
                    prop_assert_eq!(request.offset, next);
                    next += request.len;
                    open.push(request.tag);
                }
                prop_assert!(open.len() <= max_r2t.min(MAX_R2T) && !open.is_empty());
                let tag = open.swap_remove(pick % open.len());
                if answer(&mut transfers, tag) == Progress::Done(0, true) {
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
