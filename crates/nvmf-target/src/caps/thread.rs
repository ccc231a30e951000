//! An I/O thread's state of caps: its buckets of namespaces, and its connections with throttled commands.

use std::sync::Arc;

use super::{Bucket, Caps, Limit, RETRY_NS};

/// An I/O thread's state of caps.
#[derive(Debug, Default)]
pub struct ThreadCaps {
    /// By index of the namespace; created by the first capped command.
    buckets: Vec<Option<Bucket>>,
    /// Connections with throttled commands.
    throttled: Vec<u32>,
    /// The memory of the previous list, reused for the next.
    spare: Vec<u32>,
    /// Time of the next retry, in nanoseconds.
    due_ns: u64,
    /// [`Caps::changes`] at the last retry.
    changes: u64,
}

impl ThreadCaps {
    /// The bucket of the namespace at `index` with this limit.
    pub fn bucket(&mut self, index: u32, limit: &Arc<Limit>) -> &mut Bucket {
        let index = index as usize;
        if self.buckets.len() <= index {
            self.buckets.resize_with(index + 1, || None);
        }
        self.buckets[index].get_or_insert_with(|| Bucket::new(Arc::clone(limit)))
    }

    /// The bucket of the namespace at `index`, if it has one.
    pub fn known_bucket(&mut self, index: u32) -> Option<&mut Bucket> {
        self.buckets.get_mut(index as usize)?.as_mut()
    }

    /// Removes the namespace at `index`.
    pub fn remove(&mut self, index: u32) {
        if let Some(bucket) = self.buckets.get_mut(index as usize) {
            *bucket = None;
        }
    }

    /// Adds a connection with throttled commands.
    pub fn add_throttled(&mut self, connection: u32) {
        self.throttled.push(connection);
    }

    /// Schedules the retry of a command throttled at `now_ns`.
    pub fn note_due(&mut self, until_ns: u64, now_ns: u64) {
        let until_ns = until_ns.min(now_ns + RETRY_NS);
        let is_stale = self.throttled.is_empty() && self.due_ns <= now_ns;
        self.due_ns = if is_stale { until_ns } else { self.due_ns.min(until_ns) };
    }

    /// Whether connections have throttled commands.
    #[must_use]
    pub fn has_throttled(&self) -> bool {
        !self.throttled.is_empty()
    }

    /// Time of the next retry, in nanoseconds; `u64::MAX` without throttled commands.
    #[must_use]
    pub fn due_ns(&self) -> u64 {
        if self.throttled.is_empty() { u64::MAX } else { self.due_ns }
    }

    /// Takes the connections to retry now; those that stay throttled add themselves again.
    pub fn take_due(&mut self, caps: &Caps, now_ns: u64) -> Option<Vec<u32>> {
        let changes = caps.changes();
        if now_ns < self.due_ns && changes == self.changes {
            return None;
        }
        (self.due_ns, self.changes) = (now_ns + RETRY_NS, changes);
        let spare = std::mem::take(&mut self.spare);
        Some(std::mem::replace(&mut self.throttled, spare))
    }

    /// Returns the memory of a list from [`ThreadCaps::take_due`].
    pub fn return_list(&mut self, mut list: Vec<u32>) {
        list.clear();
        self.spare = list;
    }

    /// Returns the bytes of idle buckets to their budgets.
    pub fn empty_idle(&mut self, now_ns: u64) {
        self.buckets.iter_mut().flatten().for_each(|bucket| bucket.empty_if_idle(now_ns));
    }
}
