//! Background work of an I/O thread, at the end of a poll.

use pilotlight_storage::Completion;
use pilotlight_storage::background::pace::Round;

use super::TargetThread;
use super::socket::Resources;

impl Resources {
    pub(super) fn end_background(&mut self, completion: Completion, now_ns: u64) {
        self.tasks.on_completion(completion, &self.shared.background, now_ns);
    }
}

impl TargetThread {
    /// Updates the tasks after a change of the namespaces.
    pub(super) fn update_tasks(&mut self, now_ns: u64) {
        let Resources { tasks, namespaces, shared, .. } = &mut self.resources;
        tasks.update(namespaces, self.id, &shared.background, now_ns);
    }

    /// Publishes whether this I/O thread has requests, and advances its background work; returns whether anything was done.
    #[cold]
    pub(super) fn poll_background(&mut self, now_ns: u64, requests: u32) -> bool {
        let Resources { tasks, namespaces, shared, .. } = &mut self.resources;
        let active = requests > 0 || self.in_progress > 0;
        shared.background.note_requests(self.id, requests > 0, active, now_ns);
        if now_ns < tasks.due_ns() || self.draining {
            return false;
        }
        let has_requests = active || shared.background.others_are_active(self.id);
        let has_hosts = has_requests || shared.background.has_hosts(now_ns);
        let round = Round { now_ns, took_requests: requests > 0, has_requests, has_hosts };
        tasks.poll(namespaces, &shared.background, round)
    }
}
