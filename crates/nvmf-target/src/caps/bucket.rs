//! An I/O thread's part of a limit's budget: a bucket for each namespace, and one for each queue pair of a host.
//!
//! A bucket is filled only while nothing is throttled. Its content returns to the budget when the limit is contended, after
//! [`KEEP_NS`] without use, and when the bucket is dropped.

use std::sync::Arc;

use super::limit::{Limit, Throttled};
use super::metered::{Direction, FLUSH_NS};
use super::turns::Claim;

/// Maximum age of a slice, in nanoseconds.
const KEEP_NS: u64 = 2_000_000;

/// A bucket; see the module.
#[derive(Debug)]
pub struct Bucket {
    limit: Arc<Limit>,
    bytes: u64,
    /// The cap at which they were taken, and the time.
    rate: u64,
    taken_ns: u64,
    /// Metered bytes not yet added to the limit's counters, by [`Direction`], and the time of the last addition.
    metered: [u64; 2],
    metered_ns: u64,
}

impl Bucket {
    /// An empty bucket.
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

    /// Admits a command of `bytes` bytes. Returns whether they were charged: `false` without a cap.
    ///
    /// # Errors
    /// The time to retry, in nanoseconds.
    pub fn admit(&mut self, bytes: u64, claim: Claim, now_ns: u64) -> Result<bool, u64> {
        let Some(rate) = self.limit.bytes_per_s() else {
            self.bytes = 0; // from a removed cap
            return Ok(false);
        };
        let taken = if self.limit.is_contended(now_ns) {
            self.empty();
            self.limit.take_in_turn(bytes, rate, claim, now_ns)
        } else {
            self.take(bytes, rate, claim, now_ns)
        };
        taken.map_err(|Throttled { until_ns }| until_ns)?;
        self.limit.count(bytes);
        Ok(true)
    }

    fn take(&mut self, bytes: u64, rate: u64, claim: Claim, now_ns: u64) -> Result<(), Throttled> {
        if self.rate != rate {
            self.bytes = 0; // taken at another cap: they may be far too many
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

    /// Returns the bucket's bytes to the budget.
    pub(super) fn empty(&mut self) {
        if self.bytes > 0 {
            self.limit.release(self.bytes, self.rate);
            self.bytes = 0;
        }
    }

    /// Returns the bucket's bytes if it is idle, and adds metered bytes to the counters.
    pub(super) fn empty_if_idle(&mut self, now_ns: u64) {
        self.flush_metered();
        if now_ns.saturating_sub(self.taken_ns) > KEEP_NS {
            self.empty();
        }
    }

    /// Returns the bytes of an admitted command that did not use them.
    pub fn release(&self, bytes: u64) {
        self.limit.uncount(bytes);
        if let Some(rate) = self.limit.bytes_per_s() {
            self.limit.release(bytes, rate);
        }
    }

    /// Withdraws the claim of a command that another limit throttles.
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
