//! Tells the policy of new hosts, which are new knobs: from an ordinary OS thread, as I/O threads, which meet them at Connect, are not to
//! wait for the main core.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

use pilotlight_reactor::PlantNotice;

use super::Shared;

/// Time between two tries to tell a main core whose ring is full.
const AGAIN: Duration = Duration::from_millis(1);
/// After so many tries the main core runs no more.
const TRIES: u32 = 1_000;

/// The running thread; dropped, it ends.
pub(super) struct NewHosts {
    shared: Arc<Shared>,
    join: Option<JoinHandle<()>>,
}

impl NewHosts {
    /// Starts the thread.
    pub(super) fn start(shared: &Arc<Shared>, notice: PlantNotice) -> io::Result<Self> {
        let (on_host, hosts) = sync_channel(1);
        let body = move || hosts.iter().for_each(|()| tell(&notice));
        let join = std::thread::Builder::new().name("hosts".into()).spawn(body)?;
        shared.caps.tell_of_hosts(Some(on_host));
        Ok(Self { shared: Arc::clone(shared), join: Some(join) })
    }
}

fn tell(notice: &PlantNotice) {
    for _ in 0..TRIES {
        if notice.send() {
            return;
        }
        std::thread::sleep(AGAIN);
    }
}

impl Drop for NewHosts {
    fn drop(&mut self) {
        self.shared.caps.tell_of_hosts(None);
        if let Some(join) = self.join.take() {
            let _ = join.join();
        }
    }
}
