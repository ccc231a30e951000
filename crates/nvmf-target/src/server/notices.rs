//! Tells the runtime of new hosts, which are new knobs and sources, and of the classes that I/O threads carry: from an ordinary OS thread, as I/O
//! threads, which meet hosts at Connect, are not to wait for the main core.
//!
//! Whoever changes something rings; the thread looks what there is now, and tells what differs.

use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use pilotlight_reactor::PlantNotice;

use super::Shared;

/// Time between two looks, and between two tries to tell a main core whose ring is full: in a storm of connections a look is for many.
const PAUSE: Duration = Duration::from_millis(1);
/// After so many tries the main core runs no more.
const TRIES: u32 = 1_000;

/// Rings for the thread.
#[derive(Clone, Debug)]
pub(crate) struct Bell(SyncSender<()>);

impl Bell {
    /// Something may have changed.
    pub(crate) fn ring(&self) {
        let _ = self.0.try_send(()); // where one is on its way already, that one will do
    }
}

/// The running thread; dropped, it ends.
pub(super) struct Notices {
    shared: Arc<Shared>,
    bell: Option<Bell>,
    classes: Arc<Mutex<Vec<Option<u8>>>>,
    join: Option<JoinHandle<()>>,
}

impl Notices {
    /// Starts the thread.
    pub(super) fn start(shared: &Arc<Shared>, notice: PlantNotice) -> io::Result<Self> {
        let (rings, rung) = sync_channel(1);
        let classes = Arc::default();
        let mut told = Told { classes: Arc::clone(&classes), limits: shared.caps.len() };
        let looked_at = Arc::clone(shared);
        let body = move || {
            for () in rung {
                told.look(&looked_at, &notice);
                std::thread::sleep(PAUSE);
            }
        };
        let join = std::thread::Builder::new().name("notices".into()).spawn(body)?;
        let bell = Bell(rings);
        shared.caps.ring_at_hosts(Some(bell.clone()));
        shared.register.ring_at_queues(Some(bell.clone()));
        Ok(Self { shared: Arc::clone(shared), bell: Some(bell), classes, join: Some(join) })
    }

    /// Something may have changed.
    pub(super) fn ring(&self) {
        self.bell.iter().for_each(Bell::ring);
    }

    /// The class that each I/O thread carries, as it was told last.
    pub(super) fn classes(&self) -> Vec<Option<u8>> {
        self.classes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What the runtime knows.
struct Told {
    classes: Arc<Mutex<Vec<Option<u8>>>>,
    limits: usize,
}

impl Told {
    fn look(&mut self, shared: &Shared, notice: &PlantNotice) {
        let limits = shared.caps.len();
        if limits != self.limits && tell(|| notice.send()) {
            self.limits = limits;
        }
        let classes = shared.classes();
        let of = |host: &crate::association::HostKey| classes.of(&host.hostnqn, host.subsystem);
        let classes = shared.register.classes(shared.counters.len(), of);
        let mut told = self.classes.lock().unwrap_or_else(PoisonError::into_inner);
        if classes != *told && tell(|| notice.send_classes(classes.clone())) {
            *told = classes;
        }
    }
}

fn tell(send: impl Fn() -> bool) -> bool {
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
        self.shared.caps.ring_at_hosts(None);
        self.shared.register.ring_at_queues(None);
        self.bell = None;
        if let Some(join) = self.join.take() {
            let _ = join.join();
        }
    }
}
