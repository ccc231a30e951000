//! Outstanding R2Ts, and the order of H2CData PDUs.
//!
//! A host normally sends the data of each R2T at once and in order. To test everything else that the specification allows (TCP
//! 3.3.2.1: PDUs of one R2T in order, R2Ts in any order among each other), [`R2tOrder::Shuffled`] holds R2Ts until several are
//! outstanding, and sends their data in small PDUs in random order.

use crate::h2c_frame::H2CFrame;
use crate::receiver::TransferRequest;
use crate::rng::Rng;

/// Order of H2CData PDUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum R2tOrder {
    /// Each R2T at once, in PDUs of up to MAXH2CDATA.
    Immediate,
    /// R2Ts are held until a command has MAXR2T outstanding, or all of its data is requested, or no more arrive; then
    /// PDUs of at most `piece` bytes are sent for random outstanding R2Ts.
    Shuffled {
        /// Seed of the order.
        seed: u64,
        /// Most bytes per PDU.
        piece: u32,
    },
}

/// Empty polls after which held R2Ts are served although more could arrive.
const MAX_IDLE_POLLS: u32 = 1000;

/// R2Ts whose data is not sent yet.
#[derive(Debug)]
pub(crate) struct OutstandingR2ts {
    held: Vec<TransferRequest>,
    /// Waiting for more R2Ts.
    gathering: bool,
    idle_polls: u32,
    shuffle: Option<(Rng, u32)>,
    max_outstanding: u32,
}

impl OutstandingR2ts {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { held: Vec::with_capacity(capacity), gathering: true, idle_polls: 0, shuffle: None, max_outstanding: 0 }
    }

    pub(crate) fn set_order(&mut self, order: R2tOrder) {
        self.shuffle = match order {
            R2tOrder::Immediate => None,
            R2tOrder::Shuffled { seed, piece } => Some((Rng::new(seed), piece.max(1))),
        };
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Outstanding R2Ts of `cid`.
    pub(crate) fn outstanding(&self, cid: u16) -> u32 {
        self.held.iter().filter(|g| g.cid == cid).count() as u32
    }

    /// The most R2Ts that a command has had outstanding here.
    pub(crate) fn max_outstanding(&self) -> u32 {
        self.max_outstanding
    }

    /// Holds an R2T; false if its data must be sent at once.
    pub(crate) fn hold(&mut self, request: TransferRequest, all_requested: bool, max_r2t: u32) -> bool {
        if self.shuffle.is_none() {
            return false;
        }
        self.held.push(request);
        let outstanding = self.outstanding(request.cid);
        self.max_outstanding = self.max_outstanding.max(outstanding);
        self.gathering &= !all_requested && outstanding < max_r2t;
        true
    }

    /// The next PDU, of at most `max_h2c_data` bytes, unless R2Ts are held.
    pub(crate) fn next_shuffled(&mut self, idle: bool, max_h2c_data: u32) -> Option<H2CFrame> {
        if self.held.is_empty() {
            self.gathering = true;
            self.idle_polls = 0;
            return None;
        }
        if self.gathering {
            self.idle_polls = if idle { self.idle_polls + 1 } else { 0 };
            if self.idle_polls < MAX_IDLE_POLLS {
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

    /// Drops the R2Ts of a completed command.
    #[inline]
    pub(crate) fn remove(&mut self, cid: u16) {
        if !self.held.is_empty() {
            self.held.retain(|g| g.cid != cid);
        }
    }
}
