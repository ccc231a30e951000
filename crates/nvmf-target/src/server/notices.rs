//! Notifies the runtime of new hosts (new knobs and sources) and of the classes of I/O threads. Housekeeping does that,
//! because I/O threads, which handle Connect, must not wait for the main core.
//!
//! A change wakes the task, which compares the current state with the published one.

use std::sync::{Arc, Mutex, PoisonError};

use pilotlight_reactor::housekeeping::{Next, Task, Waker};
use pilotlight_reactor::{Housekeeping, PlantNotice};

use super::Shared;

/// Minimum interval of checks, and of retries while the main core's ring is full, in nanoseconds: one check serves many
/// connections.
const PAUSE_NS: u64 = 1_000_000;
/// Retries after which the main core counts as stopped.
const TRIES: u32 = 1_000;

/// The task. Ends when dropped.
pub(super) struct Notices {
    waker: Waker,
    classes: Arc<Mutex<Vec<Option<u8>>>>,
    _task: Task,
}

impl Notices {
    /// Adds the task.
    pub(super) fn start(shared: &Arc<Shared>, notice: PlantNotice, housekeeping: &Housekeeping) -> Self {
        let (waker, classes) = (Waker::default(), Arc::default());
        let mut published = Published { classes: Arc::clone(&classes), added: shared.caps.added() };
        let (theirs, again) = (Arc::clone(shared), waker.clone());
        let mut failed = 0;
        let call = move |now_ns| {
            failed = if published.update(&theirs, &notice) { 0 } else { (failed + 1) % TRIES };
            if failed > 0 {
                again.wake();
            }
            Next::NotBefore(now_ns + PAUSE_NS)
        };
        let task = housekeeping.add("notices", &waker, call);
        shared.caps.notify_on_hosts(waker.clone());
        shared.hosts.associations.notify_on_queues(waker.clone());
        Self { waker, classes, _task: task }
    }

    /// Reports a possible change.
    pub(super) fn notify(&self) {
        self.waker.wake();
    }

    /// The last published class of each I/O thread.
    pub(super) fn classes(&self) -> Vec<Option<u8>> {
        self.classes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The published state.
struct Published {
    classes: Arc<Mutex<Vec<Option<u8>>>>,
    /// Limits ever added.
    added: u64,
}

impl Published {
    /// Publishes what has changed; `false` if the main core's ring is full.
    fn update(&mut self, shared: &Shared, notice: &PlantNotice) -> bool {
        let added = shared.caps.added();
        if added != self.added {
            if !notice.send() {
                return false;
            }
            self.added = added;
        }
        let classes = shared.placement.classes();
        let of = |host: &pilotlight_nvmf_proto::ids::HostKey| classes.class_of(&host.hostnqn, host.subsystem);
        let classes = shared.hosts.associations.classes(shared.counters.len(), of);
        let mut published = self.classes.lock().unwrap_or_else(PoisonError::into_inner);
        if classes != *published {
            if !notice.send_classes(classes.clone()) {
                return false;
            }
            *published = classes;
        }
        true
    }
}
