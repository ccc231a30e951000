//! Notifies the runtime of new hosts (new knobs and sources) and of the classes of I/O threads. An OS thread does that,
//! because I/O threads, which handle Connect, must not wait for the main core.
//!
//! A change wakes the thread, which compares the current state with the published one.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use pilotlight_reactor::PlantNotice;

use super::Shared;
use crate::notifier::Notifier;

/// Minimum interval of checks, and of retries while the main core's ring is full: one check serves many connections.
const PAUSE: Duration = Duration::from_millis(1);
/// Retries after which the main core counts as stopped.
const TRIES: u32 = 1_000;

/// The running thread. Ends when dropped.
pub(super) struct Notices {
    shared: Arc<Shared>,
    notifier: Option<Notifier>,
    classes: Arc<Mutex<Vec<Option<u8>>>>,
    join: Option<JoinHandle<()>>,
}

impl Notices {
    /// Starts the thread.
    pub(super) fn start(shared: &Arc<Shared>, notice: PlantNotice) -> io::Result<Self> {
        let (notifier, receiver) = Notifier::new();
        let classes = Arc::default();
        let mut published = Published { classes: Arc::clone(&classes), added: shared.caps.added() };
        let theirs = Arc::clone(shared);
        let body = move || {
            for () in receiver {
                published.update(&theirs, &notice);
                std::thread::sleep(PAUSE);
            }
        };
        let join = std::thread::Builder::new().name("notices".into()).spawn(body)?;
        shared.caps.notify_on_hosts(Some(notifier.clone()));
        shared.hosts.associations.notify_on_queues(Some(notifier.clone()));
        Ok(Self { shared: Arc::clone(shared), notifier: Some(notifier), classes, join: Some(join) })
    }

    /// Reports a possible change.
    pub(super) fn notify(&self) {
        self.notifier.iter().for_each(Notifier::notify);
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
    fn update(&mut self, shared: &Shared, notice: &PlantNotice) {
        let added = shared.caps.added();
        if added != self.added && retry(|| notice.send()) {
            self.added = added;
        }
        let classes = shared.placement.classes();
        let of = |host: &pilotlight_nvmf_proto::ids::HostKey| classes.of(&host.hostnqn, host.subsystem);
        let classes = shared.hosts.associations.classes(shared.counters.len(), of);
        let mut published = self.classes.lock().unwrap_or_else(PoisonError::into_inner);
        if classes != *published && retry(|| notice.send_classes(classes.clone())) {
            *published = classes;
        }
    }
}

fn retry(send: impl Fn() -> bool) -> bool {
    (0..TRIES).any(|_| {
        let is_sent = send();
        if !is_sent {
            std::thread::sleep(PAUSE);
        }
        is_sent
    })
}

impl Drop for Notices {
    fn drop(&mut self) {
        self.shared.caps.notify_on_hosts(None);
        self.shared.hosts.associations.notify_on_queues(None);
        self.notifier = None;
        if let Some(join) = self.join.take() {
            let _ = join.join();
        }
    }
}
