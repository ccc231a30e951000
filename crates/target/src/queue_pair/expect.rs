//! Which reads the backend is told of before they start, so that their memory is on its way to the cache by then.
//!
//! Those that can start in this poll, all together before the first starts. Measured beside announcing each when it comes
//! (4 KiB reads, one connection, memory backend, alternated): 1.06 times the rate at depth 32, 1.09 at depth 128, where
//! what comes in a poll starts one to three polls later and much of it has left the cache by then. Announcing 4, 8 or 16
//! ahead of the one that starts gave less (1.01 to 1.07 and 1.01 to 1.03).

use super::{Cx, QueuePair, Transport};
use crate::command::Work;

impl<T: Transport> QueuePair<T> {
    /// Announces the waiting reads that can start in this poll, each once.
    pub(super) fn expect_reads(&mut self, cx: &mut Cx) {
        let Some(queue) = &mut self.queue else { return };
        for &index in queue.waiting.iter().take(self.budget as usize) {
            let slot = queue.slots.get(index);
            if let Work::Read(range) = slot.work
                && !std::mem::replace(&mut slot.expected, true)
                && let Some(channel) = cx.namespaces.channel(range.namespace)
            {
                channel.expect_read(range.lba, range.blocks);
            }
        }
    }
}
