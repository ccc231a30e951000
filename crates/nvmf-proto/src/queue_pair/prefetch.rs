//! Prefetch hints to the backend for reads that are about to start.
//!
//! Hints for all reads that can start in this poll precede the first of them. Compared with a hint on arrival of each (4 KiB
//! reads, one connection, memory backend, two builds in 9 alternated rounds) the rate is 1.11 times as high at depth 32 and
//! 1.12 at depth 128, where commands start one to three polls after their arrival. Hints 4, 8 or 16 commands ahead gave less.

use super::io::TX_BUDGET;
use super::{Cx, QueuePair, Transport};
use crate::command::Work;
use crate::services::{NamespaceTable, Services};

impl<T: Transport, S: Services> QueuePair<T, S> {
    /// Gives one hint for each waiting read that can start in this poll.
    pub(super) fn prefetch_reads(&mut self, cx: &mut Cx<S>) {
        if self.transport.unsent_bytes() >= TX_BUDGET {
            return; // none can start
        }
        let Some(queue) = &mut self.queue else { return };
        for &index in queue.waiting.iter().take(self.budget as usize) {
            let slot = queue.slots.get(index);
            if let Work::Read(range) = slot.work
                && !std::mem::replace(&mut slot.prefetched, true)
                && let Some(channel) = cx.namespaces.channel(range.namespace)
            {
                channel.prefetch_read(range.lba, range.blocks);
            }
        }
    }
}
