//! The commands that a queue pair has in progress.
//!
//! One slot per entry of the submission queue, plus a few in quarantine: when a command is aborted while an R2T is
//! unanswered, its data may still come, and must not be taken for another command's. Everything is set aside when the
//! queue connects.
//!
//! Properties: a command identifier is in at most one slot; a transfer tag names one R2T of one command, and a stale
//! one names none (its generation differs); slots and identifiers are all free when every command has ended.

use pilotlight_nvme::Status;

use crate::buffer::Buffer;
use crate::command::Work;

/// Outstanding R2Ts per command at most, whatever the host allows.
pub const MAX_R2T: usize = 4;
/// Slots beyond the queue size, for aborted commands whose data may still come.
const QUARANTINE: usize = 16;
/// Slots that transfer tags can name: 12 bits, beside 2 for the R2T and 2 for the generation.
const MAX_SLOTS: usize = 1 << 12;

/// Where a command stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No command.
    Free,
    /// Waits for a buffer, for room to send, or for the backend.
    Waiting,
    /// Waits for data that R2Ts have asked for.
    Receiving,
    /// The backend works on it.
    Device,
    /// Parked until something else happens (Async Event Request, Abort of another queue's command).
    Parked,
    /// Ended; data that its R2Ts asked for is thrown away when it comes.
    Discarding,
}

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
    pub const fn open(&self) -> bool {
        self.next < self.end
    }
}

/// One command.
#[derive(Debug)]
pub struct Slot {
    /// Where it stands.
    pub state: State,
    /// Its command identifier.
    pub cid: u16,
    /// The target's own work: no host knows of it, and no answer is sent.
    pub internal: bool,
    /// Counts the commands that this slot has held; tells late device completions and R2T answers apart.
    pub generation: u8,
    /// The first thing that went wrong.
    pub status: Status,
    /// What to do.
    pub work: Work,
    /// Bytes of data between host and controller.
    pub len: u32,
    /// That data.
    pub buffer: Option<Buffer>,
    /// A second buffer (what Compare reads, the ranges of Dataset Management).
    pub aux: Option<Buffer>,
    /// Bytes that R2Ts have asked for.
    pub asked: u32,
    /// When it came, in nanoseconds.
    pub arrived_ns: u64,
    /// When it took the buffer that R2Ts ask data for, in nanoseconds.
    pub asked_ns: u64,
    /// Unanswered R2Ts.
    pub asks: [Ask; MAX_R2T],
}

impl Slot {
    const fn new() -> Self {
        Self {
            state: State::Free,
            cid: 0,
            internal: false,
            generation: 0,
            status: Status::SUCCESS,
            work: Work::None,
            len: 0,
            buffer: None,
            aux: None,
            asked: 0,
            arrived_ns: 0,
            asked_ns: 0,
            asks: [Ask { start: 0, next: 0, end: 0 }; MAX_R2T],
        }
    }

    /// R2Ts not answered in full.
    #[must_use]
    pub fn open_asks(&self) -> usize {
        self.asks.iter().filter(|ask| ask.open()).count()
    }

    /// Remembers `status` if it is the first failure.
    pub fn fail(&mut self, status: Status) {
        if self.status.is_success() {
            self.status = status;
        }
    }
}

/// The slots of a queue pair.
#[derive(Debug)]
pub struct Slots {
    slots: Box<[Slot]>,
    free: Vec<u16>,
    /// A bit for each command identifier in use.
    cids: Box<[u64; 1024]>,
    in_use: usize,
    queue_size: usize,
}

/// Why a command gets no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSlot {
    /// The identifier belongs to a command in progress.
    Conflict,
    /// More commands than the queue has entries.
    Full,
}

impl Slots {
    /// Bytes that [`Slots::new`] sets aside.
    #[must_use]
    pub const fn bytes(queue_size: u16) -> usize {
        let count = queue_size as usize + QUARANTINE;
        count * (size_of::<Slot>() + size_of::<u16>()) + size_of::<[u64; 1024]>()
    }

    /// Slots for a queue of `queue_size` entries.
    #[must_use]
    pub fn new(queue_size: u16) -> Self {
        let queue_size = usize::from(queue_size);
        let count = queue_size + QUARANTINE;
        assert!(count <= MAX_SLOTS, "queue size {queue_size} is over the limit of transfer tags");
        Self {
            slots: (0..count).map(|_| Slot::new()).collect(),
            free: (0..count as u16).rev().collect(),
            cids: Box::new([0; 1024]),
            in_use: 0,
            queue_size,
        }
    }

    /// Takes a slot for command `cid`.
    ///
    /// # Errors
    /// If the identifier is in use, or the queue is full.
    pub fn take(&mut self, cid: u16) -> Result<u16, NoSlot> {
        let (word, bit) = cid_bit(cid);
        if self.cids[word] & bit != 0 {
            return Err(NoSlot::Conflict);
        }
        if self.in_use == self.queue_size {
            return Err(NoSlot::Full);
        }
        let Some(index) = self.free.pop().or_else(|| self.evict()) else { return Err(NoSlot::Full) };
        self.cids[word] |= bit;
        self.in_use += 1;
        let slot = &mut self.slots[usize::from(index)];
        slot.cid = cid;
        slot.internal = false;
        slot.status = Status::SUCCESS;
        slot.state = State::Waiting;
        slot.asked = 0;
        Ok(index)
    }

    /// Takes a slot for work of the target's own.
    pub fn take_internal(&mut self) -> Option<u16> {
        let index = self.free.pop()?;
        let slot = &mut self.slots[usize::from(index)];
        slot.internal = true;
        slot.status = Status::SUCCESS;
        slot.state = State::Waiting;
        slot.asked = 0;
        Some(index)
    }

    /// Ends the command in `index`: its identifier may be used again. Its buffers must have been taken out. The slot
    /// stays in quarantine while R2Ts are unanswered.
    pub fn end(&mut self, index: u16) {
        let slot = &mut self.slots[usize::from(index)];
        debug_assert!(slot.buffer.is_none() && slot.aux.is_none(), "a command ended with a buffer");
        if slot.internal {
            return self.release(index);
        }
        let (word, bit) = cid_bit(slot.cid);
        self.cids[word] &= !bit;
        self.in_use -= 1;
        if slot.open_asks() > 0 {
            slot.state = State::Discarding;
        } else {
            self.release(index);
        }
    }

    /// Frees a slot in quarantine whose data has come.
    pub fn release(&mut self, index: u16) {
        let slot = &mut self.slots[usize::from(index)];
        slot.state = State::Free;
        slot.generation = slot.generation.wrapping_add(1);
        slot.work = Work::None;
        self.free.push(index);
    }

    /// When quarantine is full, the first slot in it is given up; its tags turn stale.
    fn evict(&mut self) -> Option<u16> {
        let index = self.slots.iter().position(|slot| slot.state == State::Discarding)?;
        let slot = &mut self.slots[index];
        slot.asks = [Ask::default(); MAX_R2T];
        slot.generation = slot.generation.wrapping_add(1);
        Some(index as u16)
    }

    /// The slot at `index`.
    #[must_use]
    pub fn get(&mut self, index: u16) -> &mut Slot {
        &mut self.slots[usize::from(index)]
    }

    /// The slot at `index` if it still holds the command that it held when `generation` was read.
    #[must_use]
    pub fn get_if(&mut self, index: u16, generation: u8) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(index)).filter(|slot| slot.generation == generation && slot.state != State::Free)
    }

    /// The slot that holds command `cid`.
    #[must_use]
    pub fn find(&self, cid: u16) -> Option<u16> {
        let (word, bit) = cid_bit(cid);
        if self.cids[word] & bit == 0 {
            return None;
        }
        let held =
            |slot: &Slot| slot.cid == cid && !slot.internal && !matches!(slot.state, State::Free | State::Discarding);
        self.slots.iter().position(held).map(|index| index as u16)
    }

    /// When the command that has waited longest for data from the host began to; `u64::MAX` if none waits.
    #[must_use]
    pub fn oldest_ask_ns(&self) -> u64 {
        let receiving = self.slots.iter().filter(|slot| slot.state == State::Receiving);
        receiving.map(|slot| slot.asked_ns).min().unwrap_or(u64::MAX)
    }

    /// R2Ts not answered in full, of all commands.
    #[must_use]
    pub fn open_asks(&self) -> usize {
        self.slots.iter().filter(|slot| slot.state == State::Receiving).map(Slot::open_asks).sum()
    }

    /// Every slot with its index.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u16, &mut Slot)> {
        self.slots.iter_mut().enumerate().map(|(index, slot)| (index as u16, slot))
    }

    /// Commands in progress.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.in_use
    }

    /// The transfer tag of R2T `ask` of the command in `index`.
    #[must_use]
    pub fn transfer_tag(&self, index: u16, ask: usize) -> u16 {
        let generation = u16::from(self.slots[usize::from(index)].generation & 3);
        index << 4 | generation << 2 | ask as u16
    }

    /// The slot and R2T that `ttag` names; `None` if it is unknown, stale, or answered in full.
    #[must_use]
    pub fn by_transfer_tag(&mut self, ttag: u16) -> Option<(u16, usize)> {
        let (index, generation, ask) = (ttag >> 4, ttag >> 2 & 3, usize::from(ttag & 3));
        let slot = self.slots.get(usize::from(index))?;
        let live = matches!(slot.state, State::Receiving | State::Discarding)
            && u16::from(slot.generation & 3) == generation
            && slot.asks[ask].open();
        live.then_some((index, ask))
    }
}

const fn cid_bit(cid: u16) -> (usize, u64) {
    (cid as usize / 64, 1 << (cid % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn a_stale_transfer_tag_names_nothing() {
        let mut slots = Slots::new(4);
        let index = slots.take(1).expect("free");
        slots.get(index).state = State::Receiving;
        slots.get(index).asks[2] = Ask { start: 0, next: 0, end: 4096 };
        let tag = slots.transfer_tag(index, 2);
        assert_eq!(slots.by_transfer_tag(tag), Some((index, 2)));
        slots.end(index);
        assert_eq!(slots.by_transfer_tag(tag), Some((index, 2)), "late data is recognised and thrown away");
        slots.get(index).asks[2].next = 4096;
        slots.release(index);
        assert_eq!(slots.by_transfer_tag(tag), None);
    }

    #[test]
    fn quarantine_never_costs_a_queue_entry() {
        let mut slots = Slots::new(2);
        for cid in 0..100 {
            let index = slots.take(cid).expect("an entry of the queue is free");
            slots.get(index).state = State::Receiving;
            slots.get(index).asks[0] = Ask { start: 0, next: 0, end: 1 };
            slots.end(index);
        }
        assert_eq!(slots.in_use(), 0);
    }

    proptest! {
        /// Against a plain map: conflicts, fullness and look-ups agree.
        #[test]
        fn agrees_with_a_map(ops in prop::collection::vec((0u16..12, any::<bool>()), 0..200)) {
            let mut slots = Slots::new(8);
            let mut model: HashMap<u16, u16> = HashMap::new();
            for (cid, take) in ops {
                if take {
                    let got = slots.take(cid);
                    if model.contains_key(&cid) {
                        prop_assert_eq!(got, Err(NoSlot::Conflict));
                    } else if model.len() == 8 {
                        prop_assert_eq!(got, Err(NoSlot::Full));
                    } else {
                        model.insert(cid, got.expect("a free slot"));
                    }
                } else if let Some(index) = model.remove(&cid) {
                    slots.end(index);
                }
                prop_assert_eq!(slots.in_use(), model.len());
                prop_assert_eq!(slots.find(cid), model.get(&cid).copied());
            }
        }
    }
}
