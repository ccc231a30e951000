//! What an I/O thread holds of a limit's budget: a bucket for each namespace, and one for each queue pair of a host.
//!
//! A bucket is filled only while nothing is throttled; what is in it goes back to the budget when the limit is contended, when it has
//! not been used for [`KEEP_NS`], and with the bucket's end.

use std::sync::Arc;

use super::limit::{HeldBack, Limit};
use super::meter::{Direction, FLUSH_NS};
use super::turns::Claim;

/// How long a slice may be kept, in nanoseconds.
const KEEP_NS: u64 = 2_000_000;

/// See the head of the file.
#[derive(Debug)]
pub struct Bucket {
    limit: Arc<Limit>,
    bytes: u64,
    /// The cap at which they were taken, and when.
    rate: u64,
    taken_ns: u64,
    /// Bytes that were metered and are not in the limit's counters yet, by [`Direction`]; and since when others have been.
    metered: [u64; 2],
    metered_ns: u64,
}

impl Bucket {
    /// An empty one.
    #[must_use]
    pub fn new(limit: Arc<Limit>) -> Self {
        limit.add_buckets(1);
        Self { limit, bytes: 0, rate: 0, taken_ns: 0, metered: [0; 2], metered_ns: 0 }
    }

    /// The limit.
    #[must_use]
    pub fn limit(&self) -> &Arc<Limit> {
        &self.limit
    }

    /// Admits a command of `bytes` bytes. Returns whether they were charged: they are not where there is no cap.
    ///
    /// # Errors
    /// When it is to be tried again, in nanoseconds.
    pub fn admit(&mut self, bytes: u64, claim: Claim, now_ns: u64) -> Result<bool, u64> {
        let Some(rate) = self.limit.bytes_per_s() else {
            self.bytes = 0; // of a cap that holds no more
            return Ok(false);
        };
        let taken = if self.limit.is_contended(now_ns) {
            self.empty();
            self.limit.take_in_turn(bytes, rate, claim, now_ns)
        } else {
            self.take(bytes, rate, claim, now_ns)
        };
        taken.map_err(|HeldBack { until_ns }| until_ns)?;
        self.limit.count(bytes);
        Ok(true)
    }

    fn take(&mut self, bytes: u64, rate: u64, claim: Claim, now_ns: u64) -> Result<(), HeldBack> {
        if self.rate != rate {
            self.bytes = 0; // taken at another cap, they may be far too many
        } else if now_ns.saturating_sub(self.taken_ns) > KEEP_NS {
            self.empty();
        }
        if self.bytes < bytes {
            self.bytes += self.limit.take_slice(bytes - self.bytes, rate, claim, now_ns)?;
            (self.rate, self.taken_ns) = (rate, now_ns);
        }
        self.bytes -= bytes;
        Ok(())
    }

    /// Meters the bytes of an admitted command.
    pub fn meter(&mut self, direction: Direction, bytes: u64, now_ns: u64) {
        self.metered[direction as usize] += bytes;
        if now_ns.saturating_sub(self.metered_ns) >= FLUSH_NS {
            self.metered_ns = now_ns;
            self.flush_metered();
        }
    }

    fn flush_metered(&mut self) {
        self.limit.metered().add(std::mem::take(&mut self.metered));
    }

    /// Gives back what is in the bucket.
    pub(super) fn empty(&mut self) {
        if self.bytes > 0 {
            self.limit.give_back(self.bytes, self.rate);
            self.bytes = 0;
        }
    }

    /// Gives back what is in the bucket if nothing has been taken for a while, and hands over what was metered.
    pub(super) fn empty_if_idle(&mut self, now_ns: u64) {
        self.flush_metered();
        if now_ns.saturating_sub(self.taken_ns) > KEEP_NS {
            self.empty();
        }
    }

    /// Gives back the bytes of an admitted command that did not use them.
    pub fn give_back(&self, bytes: u64) {
        self.limit.uncount(bytes);
        if let Some(rate) = self.limit.bytes_per_s() {
            self.limit.give_back(bytes, rate);
        }
    }

    /// A command that another limit holds back does not hold up others here.
    pub fn leave(&self, claim: Claim) {
        self.limit.leave(claim);
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        self.empty();
        self.flush_metered();
        self.limit.remove_bucket();
    }
}
