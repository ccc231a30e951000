//! The commands that a queue pair has in progress.
//!
//! One slot per entry of the submission queue, and one for work of the target's own. Everything is set aside when the queue
//! connects.
//!
//! Properties: a command identifier is in at most one slot; slots and identifiers are all free when every command has ended.

use pilotlight_nvme::Status;

use crate::buffer::Buffer;
use crate::command::Work;
use crate::latency::Sample;
use crate::payload::LoanId;

/// Slots beyond the queue size, for work of the target's own: the flush at a shutdown.
const OWN: usize = 1;

/// Where a command stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No command.
    Free,
    /// Waits for a buffer, for room to send, or for the backend.
    Waiting,
    /// Waits for a bandwidth cap.
    Throttled,
    /// Waits for data that the transport fetches.
    Receiving,
    /// The backend works on it.
    Device,
    /// Parked until something else happens (Async Event Request, Abort of another queue's command).
    Parked,
}

/// The limits whose budgets a command has taken its bytes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charged {
    /// Its host's.
    pub host: bool,
    /// Its namespace's.
    pub namespace: bool,
}

impl Charged {
    /// None.
    pub const NOTHING: Self = Self { host: false, namespace: false };
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
    /// Counts the commands that this slot has held; tells late completions apart.
    pub generation: u8,
    /// The first thing that went wrong.
    pub status: Status,
    /// What to do.
    pub work: Work,
    /// Bytes of data between host and controller.
    pub len: u32,
    /// Number of its namespace, where it has one.
    pub nsid: u32,
    /// That data.
    pub buffer: Option<Buffer>,
    /// A second buffer (what Compare reads, the ranges of Dataset Management).
    pub aux: Option<Buffer>,
    /// The data is on loan, and the buffer has room for it.
    pub loan: Option<LoanId>,
    /// Data from the host is still to come.
    pub missing: bool,
    /// The backend has been told that this read starts soon.
    pub expected: bool,
    /// What it has been charged to.
    pub charged: Charged,
    /// While it is throttled: whether by its host's cap, not by its namespace's.
    pub held_by_host: bool,
    /// When it came, in nanoseconds; of a throttled command, when it was admitted.
    pub arrived_ns: u64,
    /// For how long its bytes were at the socket, where it is sampled.
    pub sample: Sample,
    /// When it took the buffer that its data is fetched into, in nanoseconds.
    pub fetching_ns: u64,
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
            nsid: 0,
            buffer: None,
            aux: None,
            loan: None,
            missing: false,
            expected: false,
            charged: Charged::NOTHING,
            held_by_host: false,
            arrived_ns: 0,
            sample: Sample::NONE,
            fetching_ns: 0,
        }
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
        let count = Self::count(queue_size);
        count * (size_of::<Slot>() + size_of::<u16>()) + size_of::<[u64; 1024]>()
    }

    /// Slots that a queue of `queue_size` entries has.
    #[must_use]
    pub const fn count(queue_size: u16) -> usize {
        queue_size as usize + OWN
    }

    /// Slots for a queue of `queue_size` entries.
    #[must_use]
    pub fn new(queue_size: u16) -> Self {
        let count = Self::count(queue_size);
        Self {
            slots: (0..count).map(|_| Slot::new()).collect(),
            free: (0..count as u16).rev().collect(),
            cids: Box::new([0; 1024]),
            in_use: 0,
            queue_size: usize::from(queue_size),
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
        let Some(index) = self.free.pop() else { return Err(NoSlot::Full) };
        self.cids[word] |= bit;
        self.in_use += 1;
        let slot = &mut self.slots[usize::from(index)];
        slot.cid = cid;
        slot.internal = false;
        slot.status = Status::SUCCESS;
        slot.state = State::Waiting;
        Ok(index)
    }

    /// Takes a slot for work of the target's own.
    pub fn take_internal(&mut self) -> Option<u16> {
        let index = self.free.pop()?;
        let slot = &mut self.slots[usize::from(index)];
        slot.internal = true;
        slot.status = Status::SUCCESS;
        slot.state = State::Waiting;
        Some(index)
    }

    /// Ends the command in `index`: its slot and its identifier may be used again. Its buffers must have been taken out.
    pub fn end(&mut self, index: u16) {
        let slot = &mut self.slots[usize::from(index)];
        debug_assert!(slot.buffer.is_none() && slot.aux.is_none(), "a command ended with a buffer");
        debug_assert!(slot.loan.is_none(), "a command ended with a loan");
        slot.state = State::Free;
        slot.generation = slot.generation.wrapping_add(1);
        slot.work = Work::None;
        slot.missing = false;
        if !slot.internal {
            let (word, bit) = cid_bit(slot.cid);
            self.cids[word] &= !bit;
            self.in_use -= 1;
        }
        self.free.push(index);
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
        let held = |slot: &Slot| slot.cid == cid && !slot.internal && slot.state != State::Free;
        self.slots.iter().position(held).map(|index| index as u16)
    }

    /// When the command that has waited longest for data from the host began to; `u64::MAX` if none waits.
    #[must_use]
    pub fn oldest_fetch_ns(&self) -> u64 {
        let receiving = self.slots.iter().filter(|slot| slot.state == State::Receiving);
        receiving.map(|slot| slot.fetching_ns).min().unwrap_or(u64::MAX)
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
}

const fn cid_bit(cid: u16) -> (usize, u64) {
    (cid as usize / 64, 1 << (cid % 64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

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
