//! How R2Ts are answered: which H2CData PDUs, in which order.
//!
//! A host normally answers each R2T at once and in order. To prove that a target copes with everything else that the
//! specification allows (TCP 3.3.2.1: PDUs of one R2T in order, R2Ts in any order between each other), a test can have
//! answers held back until several R2Ts of a command are outstanding, then split into small PDUs and interleaved at
//! random ([`AnswerOrder::Shuffled`]).

use pilotlight_nvme::pdu::{Digests, Flags, H2CData};

use crate::receiver::Grant;
use crate::rng::Rng;

/// The order of H2CData PDUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerOrder {
    /// Each R2T at once, in PDUs as large as the target takes.
    AsAsked,
    /// Answers are held until as many R2Ts of a command are outstanding as agreed, or all of its data is asked for, or
    /// nothing more comes; then PDUs of at most `piece` bytes are drawn from the outstanding R2Ts at random.
    Shuffled {
        /// Of the random order.
        seed: u64,
        /// Most bytes per PDU.
        piece: u32,
    },
}

/// One H2CData PDU to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct H2CFrame {
    pub(crate) cid: u16,
    ttag: u16,
    pub(crate) offset: u32,
    pub(crate) len: u32,
    last: bool,
}

impl H2CFrame {
    /// Cuts at most `most` bytes off the front of what `rest` asks for; `None` when nothing is left.
    pub(crate) fn take(rest: &mut Grant, most: u32) -> Option<Self> {
        if rest.len == 0 {
            return None;
        }
        let len = rest.len.min(most);
        let frame = Self { cid: rest.cid, ttag: rest.ttag, offset: rest.offset, len, last: len == rest.len };
        rest.offset += len;
        rest.len -= len;
        Some(frame)
    }

    pub(crate) fn header(&self, pdo: u8, digests: Digests) -> H2CData {
        let flags = if self.last { Flags::LAST_PDU } else { Flags::empty() };
        H2CData::new(self.cid, self.ttag, self.offset, self.len, pdo, flags, digests)
    }
}

/// Polls without news after which held answers are sent although more R2Ts could have come.
const PATIENCE_POLLS: u32 = 1000;

/// R2Ts that are not answered yet.
#[derive(Debug)]
pub(crate) struct Answers {
    held: Vec<Grant>,
    /// While true, held answers wait for more R2Ts.
    gathering: bool,
    idle_polls: u32,
    shuffle: Option<(Rng, u32)>,
}

impl Answers {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { held: Vec::with_capacity(capacity), gathering: true, idle_polls: 0, shuffle: None }
    }

    pub(crate) fn set_order(&mut self, order: AnswerOrder) {
        self.shuffle = match order {
            AnswerOrder::AsAsked => None,
            AnswerOrder::Shuffled { seed, piece } => Some((Rng::new(seed), piece.max(1))),
        };
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// R2Ts of `cid` that are not answered in full.
    pub(crate) fn outstanding(&self, cid: u16) -> u32 {
        self.held.iter().filter(|g| g.cid == cid).count() as u32
    }

    /// Takes an R2T to be answered later; false if it is to be answered at once.
    pub(crate) fn hold(&mut self, grant: Grant, all_asked: bool, max_r2t: u32) -> bool {
        if self.shuffle.is_none() {
            return false;
        }
        self.held.push(grant);
        self.gathering &= !all_asked && self.outstanding(grant.cid) < max_r2t;
        true
    }

    /// The next PDU, if it is time; `max_h2c_data` bounds it.
    pub(crate) fn next_shuffled(&mut self, idle: bool, max_h2c_data: u32) -> Option<H2CFrame> {
        if self.held.is_empty() {
            self.gathering = true;
            self.idle_polls = 0;
            return None;
        }
        if self.gathering {
            self.idle_polls = if idle { self.idle_polls + 1 } else { 0 };
            if self.idle_polls < PATIENCE_POLLS {
                return None;
            }
            self.gathering = false;
        }
        let (rng, piece) = self.shuffle.as_mut()?;
        let pick = rng.below(self.held.len() as u64) as usize;
        let frame = H2CFrame::take(&mut self.held[pick], (*piece).min(max_h2c_data));
        if self.held[pick].len == 0 {
            self.held.swap_remove(pick);
        }
        frame
    }

    /// The command is over: nothing is owed to it any more.
    #[inline]
    pub(crate) fn forget(&mut self, cid: u16) {
        if !self.held.is_empty() {
            self.held.retain(|g| g.cid != cid);
        }
    }
}
