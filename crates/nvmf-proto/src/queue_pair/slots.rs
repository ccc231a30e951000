//! The commands in progress of a queue pair.
//!
//! One slot per entry of the submission queue, and one for internal work. All memory is allocated when the queue connects.
//!
//! Properties: a command identifier is in at most one slot; all slots and identifiers are free when every command has ended.

use pilotlight_nvme::Status;
use pilotlight_storage::buffer::Buffer;

use crate::command::Work;
use crate::payload::LoanId;
use crate::sample::Sample;
use crate::services::Charged;

/// Slots for internal work: the flush of a shutdown.
const INTERNAL: usize = 1;

/// State of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No command.
    Free,
    /// Waits for a buffer, for space to send, or for the backend.
    Waiting,
    /// Waits for a bandwidth cap.
    Throttled,
    /// Waits for requests of its host's lost queues.
    Held,
    /// Waits for data fetched by the transport.
    Receiving,
    /// In the backend.
    Device,
    /// Parked until an event (Async Event Request, Abort of another queue's command, the other command of a fused operation).
    Parked,
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A command of its own.
    Command,
    /// One command of a fused operation.
    Fused,
    /// Internal work, without a completion.
    Internal,
}

/// One command.
#[derive(Debug)]
pub struct Slot {
    /// Its state.
    pub state: State,
    /// Its command identifier.
    pub cid: u16,
    /// What the slot holds.
    pub kind: Kind,
    /// Counts the commands of this slot; identifies late completions.
    pub generation: u8,
    /// The first error.
    pub status: Status,
    /// Its work.
    pub work: Work,
    /// Bytes of data between host and controller.
    pub len: u32,
    /// NSID, if any.
    pub nsid: u32,
    /// That data.
    pub buffer: Option<Buffer>,
    /// A second buffer (data read by Compare, ranges of Dataset Management).
    pub aux: Option<Buffer>,
    /// The loan of the data, with space in the buffer.
    pub loan: Option<LoanId>,
    /// Data from the host is outstanding.
    pub missing: bool,
    /// The backend has got a prefetch hint for this read.
    pub prefetched: bool,
    /// The charged limits.
    pub charged: Charged,
    /// While throttled: whether by its host's cap instead of its namespace's.
    pub held_by_host: bool,
    /// Arrival in nanoseconds; for a throttled command, its admission.
    pub arrived_ns: u64,
    /// Time of its bytes at the socket, if sampled.
    pub sample: Sample,
    /// Start of fetching its data, in nanoseconds.
    pub fetching_ns: u64,
}

impl Slot {
    const fn new() -> Self {
        Self {
            state: State::Free,
            cid: 0,
            kind: Kind::Command,
            generation: 0,
            status: Status::SUCCESS,
            work: Work::None,
            len: 0,
            nsid: 0,
            buffer: None,
            aux: None,
            loan: None,
            missing: false,
            prefetched: false,
            charged: Charged::NOTHING,
            held_by_host: false,
            arrived_ns: 0,
            sample: Sample::NONE,
            fetching_ns: 0,
        }
    }

    /// Begins a command that has arrived at this time, in nanoseconds, with this sample.
    #[inline]
    pub(super) fn begin(&mut self, nsid: u32, (arrived_ns, sample): (u64, Sample)) {
        self.len = 0;
        self.nsid = nsid;
        self.missing = false;
        self.prefetched = false;
        self.work = Work::None;
        self.charged = Charged::NOTHING;
        self.arrived_ns = arrived_ns;
        self.sample = sample;
    }

    /// Sets `status` if it is the first failure.
    #[inline]
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

/// Why a command has no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSlot {
    /// The identifier is in use.
    Conflict,
    /// The queue size is exceeded.
    Full,
}

impl NoSlot {
    /// The status of the refused command.
    pub(super) const fn status(self) -> Status {
        match self {
            Self::Conflict => Status::CID_CONFLICT.dnr(),
            Self::Full => Status::INTERNAL,
        }
    }
}

impl Slots {
    /// Bytes that [`Slots::new`] allocates.
    #[must_use]
    pub const fn bytes(queue_size: u16) -> usize {
        let count = Self::count(queue_size);
        count * (size_of::<Slot>() + size_of::<u16>()) + size_of::<[u64; 1024]>()
    }

    /// Number of slots of a queue of `queue_size` entries.
    #[must_use]
    pub const fn count(queue_size: u16) -> usize {
        queue_size as usize + INTERNAL
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
    #[inline]
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
        slot.kind = Kind::Command;
        slot.status = Status::SUCCESS;
        slot.state = State::Waiting;
        Ok(index)
    }

    /// Takes a slot for internal work.
    pub fn take_internal(&mut self) -> Option<u16> {
        let index = self.free.pop()?;
        let slot = &mut self.slots[usize::from(index)];
        slot.kind = Kind::Internal;
        slot.status = Status::SUCCESS;
        slot.state = State::Waiting;
        Some(index)
    }

    /// Frees the slot and the identifier of the command in `index`. Its buffers must have been taken.
    #[inline]
    pub fn end(&mut self, index: u16) {
        let slot = &mut self.slots[usize::from(index)];
        debug_assert!(slot.buffer.is_none() && slot.aux.is_none(), "a command ended with a buffer");
        debug_assert!(slot.loan.is_none(), "a command ended with a loan");
        slot.state = State::Free;
        slot.generation = slot.generation.wrapping_add(1);
        slot.work = Work::None;
        slot.missing = false;
        if slot.kind != Kind::Internal {
            let (word, bit) = cid_bit(slot.cid);
            self.cids[word] &= !bit;
            self.in_use -= 1;
        }
        self.free.push(index);
    }

    /// The slot at `index`.
    #[inline]
    #[must_use]
    pub fn get(&mut self, index: u16) -> &mut Slot {
        &mut self.slots[usize::from(index)]
    }

    /// The slot at `index` if it still has the command of `generation`.
    #[inline]
    #[must_use]
    pub fn get_if(&mut self, index: u16, generation: u8) -> Option<&mut Slot> {
        self.slots.get_mut(usize::from(index)).filter(|slot| slot.generation == generation && slot.state != State::Free)
    }

    /// The slot of command `cid`.
    #[must_use]
    pub fn find(&self, cid: u16) -> Option<u16> {
        let (word, bit) = cid_bit(cid);
        if self.cids[word] & bit == 0 {
            return None;
        }
        let held = |slot: &Slot| slot.cid == cid && slot.kind != Kind::Internal && slot.state != State::Free;
        self.slots.iter().position(held).map(|index| index as u16)
    }

    /// Start of the longest wait for data from the host; `u64::MAX` for none.
    #[inline]
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
    #[inline]
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
        /// Conflicts, full queues and look-ups agree with a map.
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
