//! Preempted commands: those in no backend are aborted at once, the others are waited for.

use pilotlight_nvmf_proto::ids::ConnAddr;
use pilotlight_storage::lease::StorageId;

use super::TargetThread;
use crate::thread::acks::Ack;

/// Queues whose commands to a storage are preempted.
pub struct Preempted {
    pub(crate) queues: Vec<ConnAddr>,
    pub(crate) storage: StorageId,
    /// Dropped when none of them is in a backend.
    pub(crate) applied: Ack,
}

/// Preempted commands in the backends, by queue: slot and generation of each.
pub(super) struct Preempting {
    queues: Vec<(ConnAddr, Vec<(u16, u8)>)>,
    storage: StorageId,
    _applied: Ack,
}

impl TargetThread {
    /// Aborts commands. A queue that is not found has none in a backend.
    pub(super) fn on_preempted(&mut self, preempted: Preempted, now_ns: u64) {
        let Preempted { queues, storage, applied } = preempted;
        let mut waiting = Vec::new();
        for queue in queues {
            let commands = self.with(queue, now_ns, |socket, cx| socket.conn.pair.preempt(&storage, cx));
            waiting.extend(commands.filter(|commands| !commands.is_empty()).map(|commands| (queue, commands)));
        }
        if !waiting.is_empty() {
            self.preempting.push(Preempting { queues: waiting, storage, _applied: applied });
        }
    }

    /// Acknowledges what is in no backend any more.
    #[cold]
    pub(super) fn poll_preempting(&mut self) {
        let (sockets, namespaces) = (&mut self.sockets, &self.resources.namespaces);
        self.preempting.retain_mut(|Preempting { queues, storage, .. }| {
            queues.iter().any(|(queue, commands)| {
                let socket = sockets.get_mut(queue.index as usize).and_then(Option::as_mut);
                let socket = socket.filter(|socket| socket.address == *queue);
                socket.is_some_and(|socket| socket.conn.pair.is_preempting(commands, storage, namespaces))
            })
        });
    }
}
