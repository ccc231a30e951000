//! Interrupts that the kernel handles on a core other than that of their I/O thread.
//!
//! **Problem.** A drive with fewer completion queues than there are cores interrupts one of the cores that share a queue, also while the I/O thread
//! works. That core spends the time, and notifies the core of the I/O thread.
//! **Terms.** The *taker* of a queue's interrupts is one of the cores that share it; queues of several drives are distributed over them ([`taker`]).
//!
//! **Algorithm.** An event for an I/O thread that waits for interrupts is an [`Interrupt`] of its taker. An idle taker exits its idle state, a busy
//! one is interrupted at once; either spends the interrupt's time. The event then reaches the I/O thread, on another core `ipi_ns` later. The handler
//! also processes all events of the same queue that arrived before it began. Packets are coalesced for `coalesce_ns` first. On its core the I/O
//! thread waits for its turn and spends the time of a context switch (`core/kernel.rs`).
//!
//! **Properties.** Windows are at most `ipi_ns` long if an interrupt can target another core, so that each core advances independently
//! (`tests/interrupts.rs`: both engines write the same trace). Polled cores are not affected.
//!
//! **Sources** (Linux 6.8). A drive gets one queue for each core if it has as many, else cores share them, and the vector of a shared queue has one
//! target, on the core of these that has the fewest (`drivers/nvme/host/pci.c` `nvme_setup_irqs`, `kernel/irq/matrix.c` `irq_matrix_alloc_managed`). A completion ends on the core that took it, if that shares a
//! cache with the one that submitted (`block/blk-mq.c` `blk_mq_complete_need_ipi`). nvmet over RDMA polls its completion queue
//! in a bound worker on the core of the queue's vector, until it is empty (`drivers/nvme/target/rdma.c` `IB_POLL_WORKQUEUE`,
//! `drivers/infiniband/core/cq.c`); over TCP it queues `io_work` on the core that received last (`drivers/nvme/target/tcp.c`
//! `queue_cpu`: `sk_incoming_cpu`). So a packet's interrupt and its worker share a core by default: `network_queues` = 0.
//! Here the I/O thread sends the response, as over TCP (`nvmet_tcp_queue_response`); over RDMA the taker posts it (`nvmet_rdma_queue_response`), and a worker
//! runs later, when it has been sent.

use pilotlight_plant::CompletionMode;

use super::due::{DueQueue, Fifo};
use crate::machine::KernelCosts;

/// An interrupt of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Interrupt {
    pub(crate) at_ns: u64,
    /// The drive, or [`NETWORK`].
    pub(crate) source: u16,
    /// The target I/O thread.
    pub(super) thread: u16,
    /// The completed command: number and slot.
    pub(super) name: u64,
    pub(super) place: u32,
}

/// Source number of packets.
pub(super) const NETWORK: u16 = u16::MAX;

/// Pending interrupts.
#[derive(Debug)]
pub(crate) struct Interrupts {
    /// Whether any I/O thread has waited for interrupts, on a machine with takers on other cores.
    is_active: bool,
    kernel: KernelCosts,
    cores: u32,
    /// By taker.
    pending: Vec<DueQueue<Interrupt>>,
    /// Packets that wait for an interrupt, by I/O thread: arrival time, request.
    packets: Vec<Fifo<(u64, u32)>>,
    /// Next interrupt of the network card, by I/O thread.
    gathers_until_ns: Vec<u64>,
}

/// The core that takes the interrupts of the queue of `device` that `core` uses.
pub(crate) fn taker(core: u16, device: u16, queues: u32, cores: u32) -> u16 {
    if queues == 0 || queues >= cores {
        return core;
    }
    let first = |queue: u32| (queue * cores).div_ceil(queues);
    let queue = u32::from(core) * queues / cores;
    let share = first(queue + 1) - first(queue);
    (first(queue) + u32::from(device) % share) as u16
}

impl Interrupts {
    pub(crate) fn new(kernel: KernelCosts, cores: usize, threads: usize) -> Self {
        let used = kernel.drive_queues > 0 || kernel.network_queues > 0;
        let (cores, threads) = if used { (cores, threads) } else { (0, 0) };
        Self {
            is_active: false,
            kernel,
            cores: cores as u32,
            pending: (0..cores).map(|_| DueQueue::new()).collect(),
            packets: (0..threads).map(|_| Fifo::new()).collect(),
            gathers_until_ns: vec![0; threads],
        }
    }

    /// Whether cores take interrupts for I/O threads on other cores.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.is_active
    }

    /// Sets the completion mode of an I/O thread; returns whether cores begin to take interrupts.
    pub(crate) fn begin(&mut self, mode: CompletionMode) -> bool {
        let begins = !self.is_active && mode == CompletionMode::Interrupt && !self.pending.is_empty();
        self.is_active |= begins;
        begins
    }

    /// Whether packets wait for an interrupt.
    pub(crate) fn takes_packets(&self) -> bool {
        self.is_active && self.kernel.network_queues > 0
    }

    /// Whether a drive's completion interrupts.
    pub(crate) fn takes_completions(&self) -> bool {
        self.is_active && self.kernel.drive_queues > 0
    }

    /// The longest window in which cores can advance independently.
    pub(crate) fn window_ns(&self) -> u64 {
        // Also with a queue per core: a moved I/O thread receives earlier commands' completions from its old core.
        if self.is_active { self.kernel.ipi_ns } else { u64::MAX }
    }

    /// The next known interrupt of a core.
    pub(crate) fn next_ns(&self, core: u16) -> u64 {
        let first = self.pending.get(usize::from(core)).and_then(DueQueue::first);
        first.map_or(u64::MAX, |interrupt| interrupt.at_ns)
    }

    /// The next known interrupt of any core.
    pub(crate) fn first_ns(&self) -> u64 {
        self.pending.iter().filter_map(DueQueue::first).map(|interrupt| interrupt.at_ns).min().unwrap_or(u64::MAX)
    }

    /// Removes the next interrupt of a core, if it is at `until_ns` or earlier.
    pub(crate) fn pop(&mut self, core: u16, until_ns: u64) -> Option<Interrupt> {
        self.pending[usize::from(core)].pop_if(|interrupt| interrupt.at_ns <= until_ns)
    }

    /// Removes an interrupt of the same source that arrived before the handler begins.
    pub(crate) fn pop_same(&mut self, core: u16, source: u16, begins_ns: u64) -> Option<Interrupt> {
        let same = |interrupt: &Interrupt| interrupt.source == source && interrupt.at_ns <= begins_ns;
        self.pending[usize::from(core)].pop_if(same)
    }

    /// Adds a packet of an I/O thread on the core `home`, and its interrupt unless one that gathers packets is pending.
    pub(crate) fn add_packet(&mut self, at_ns: u64, thread: u16, home: u16, name: u64, place: u32) {
        let Self { kernel, cores, pending, packets, gathers_until_ns, .. } = self;
        let io = usize::from(thread);
        packets[io].push((at_ns, place));
        if at_ns > gathers_until_ns[io] {
            let interrupt_ns = at_ns + kernel.coalesce_ns;
            gathers_until_ns[io] = interrupt_ns;
            let taker = taker(home, 0, kernel.network_queues, *cores);
            let interrupt = Interrupt { at_ns: interrupt_ns, source: NETWORK, thread, name, place };
            pending[usize::from(taker)].push(interrupt);
        }
    }

    /// Adds the interrupt for a completion of a command that `core` submitted.
    pub(crate) fn add_completion(&mut self, at_ns: u64, (drive, core): (u16, u16), thread: u16, name: u64, place: u32) {
        let taker = taker(core, drive, self.kernel.drive_queues, self.cores);
        self.pending[usize::from(taker)].push(Interrupt { at_ns, source: drive, thread, name, place });
    }

    /// Removes a packet of an I/O thread that arrived before the handler begins; returns its slot.
    pub(crate) fn pop_packet(&mut self, thread: u16, begins_ns: u64) -> Option<u32> {
        let packet = self.packets[usize::from(thread)].pop_if(|&(came_ns, _)| came_ns <= begins_ns);
        packet.map(|(_, place)| place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_that_share_queues_take_those_of_some_devices_each() {
        let takers = |device, queues, cores| {
            (0..cores as u16).map(|core| taker(core, device, queues, cores)).collect::<Vec<_>>()
        };
        assert_eq!(takers(0, 2, 6), [0, 0, 0, 3, 3, 3]);
        assert_eq!(takers(1, 2, 6), [1, 1, 1, 4, 4, 4]);
        assert_eq!(takers(5, 2, 6), [2, 2, 2, 5, 5, 5]);
        assert_eq!(takers(1, 3, 4), [1, 1, 2, 3]);
        assert_eq!(takers(7, 1, 3), [1, 1, 1]);
        for queues in [0, 4, 9] {
            assert_eq!(takers(3, queues, 4), [0, 1, 2, 3], "each has its own");
        }
        for (queues, cores) in [(32, 96), (7, 48), (13, 96)] {
            let mut each = takers(2, queues, cores);
            each.dedup();
            assert_eq!(each.len(), queues as usize, "one for each queue");
            assert!(each.iter().all(|&core| takers(2, queues, cores)[usize::from(core)] == core), "of its own queue");
        }
    }
}
