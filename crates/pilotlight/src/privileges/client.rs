//! The server's side of the socket to its helper process.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context as _, bail};
use pilotlight_plant::{Knob, KnobId, Refusal};
use rustix::net::{Shutdown, shutdown};
use tracing::warn;

use super::channel;
use super::message::{MAX_REPLY, Purpose, Reply, Request};

/// The helper of this process.
static HELPER: OnceLock<Helper> = OnceLock::new();

/// A socket to a helper that may not be ready.
pub(super) struct Client(OwnedFd);

/// A helper that is ready.
pub(super) struct Helper {
    /// One request at a time.
    socket: Mutex<OwnedFd>,
    /// The knobs that it sets.
    pub(super) knobs: Vec<Knob>,
    /// Whether the log says that it sets none any more.
    has_warned: AtomicBool,
}

/// The helper, where there is one.
pub(super) fn helper() -> Option<&'static Helper> {
    HELPER.get()
}

/// Tells the helper that the server serves, so that it removes the server's sockets at the end.
pub(crate) fn serving() {
    if let Some(Err(error)) = helper().map(|helper| helper.request(&Request::Serving)) {
        warn!("the helper process does not answer: {error}");
    }
}

/// A server that ends by itself, however, calls [`finish`].
#[must_use]
pub(crate) struct Finish;

impl Drop for Finish {
    fn drop(&mut self) {
        finish();
    }
}

/// Lets the helper restore all settings and end, and waits until it has.
pub(crate) fn finish() {
    let Some(helper) = helper() else { return };
    let socket = helper.socket.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = shutdown(&*socket, Shutdown::Write);
    while let Ok(Some(_)) = channel::receive::<MAX_REPLY>(&*socket) {}
}

impl Client {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Waits until the helper is ready; from then on it is this process's helper. `knobs` are those that it has to find.
    ///
    /// # Errors
    /// It has ended, or found other knobs.
    pub(super) fn connect(self, knobs: impl FnOnce() -> Vec<Knob>) -> anyhow::Result<()> {
        let ready = channel::receive::<MAX_REPLY>(&self.0).context("cannot talk to the helper process")?;
        let Some(Reply::Ready { knobs: found }) = ready.as_deref().and_then(Reply::decode) else {
            bail!("the helper process has ended at its start; its reason is above");
        };
        // after the helper has restored what a killed server has left; with none it has logged why
        let knobs = if found == 0 { Vec::new() } else { knobs() };
        if usize::from(found) != knobs.len() {
            bail!("the configuration or the machine has changed during the start: start the server again");
        }
        if HELPER.set(Helper { socket: Mutex::new(self.0), knobs, has_warned: AtomicBool::new(false) }).is_err() {
            bail!("this process has a helper process already");
        }
        Ok(())
    }
}

impl Helper {
    /// Sends a request and waits for the reply.
    fn request(&self, request: &Request) -> io::Result<(Reply, Option<File>)> {
        let bytes = request.encode().ok_or(io::ErrorKind::InvalidInput)?;
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = || io::Error::other("the helper process has ended: restart the server");
        channel::send(&*socket, &bytes, None).map_err(|_| ended())?;
        let (reply, file) = channel::receive_with::<MAX_REPLY>(&*socket)?.ok_or_else(ended)?;
        Ok((Reply::decode(&reply).ok_or(io::ErrorKind::InvalidData)?, file.map(File::from)))
    }

    /// Has a file of the configuration opened.
    pub(super) fn open(&self, path: &Path, purpose: Purpose) -> io::Result<File> {
        let denied = |why: &str| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        match self.request(&Request::Open { purpose, path: path.to_owned() })? {
            (Reply::Done, Some(file)) => Ok(file),
            (Reply::System(error), None) => Err(io::Error::from_raw_os_error(error)),
            (Reply::NotNamed, None) => denied(
                "the server's user may not open it, and root's helper opens only what the configuration file names: name it there and \
                 reload (SIGHUP)",
            ),
            (Reply::Untrusted, None) => denied(
                "neither may the server's user open it, nor does root's helper, as others than root can change a folder on the way",
            ),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Has a knob set, or restored.
    pub(super) fn set(&self, knob: KnobId, value: Option<u64>) -> Result<(), Refusal> {
        match self.request(&Request::Set { knob: knob.0, value }) {
            Ok((Reply::Done, _)) => Ok(()),
            Ok(_) => Err(Refusal::Failed), // the helper has logged why
            Err(error) => {
                // once: the next settings fail likewise
                if !self.has_warned.swap(true, Relaxed) {
                    warn!("settings of the machine are no longer made: {error}");
                }
                Err(Refusal::Failed)
            }
        }
    }

    /// Names the threads that a CPU quota limits.
    pub(super) fn set_workers(&self, workers: &[u32]) {
        if workers.is_empty() {
            return;
        }
        match self.request(&Request::Workers(workers.to_vec())) {
            Ok((Reply::Done, _)) => {}
            Ok(_) => warn!("the helper process has refused the threads of the reactors: they get no CPU quota"),
            Err(error) => warn!("the threads of the reactors get no CPU quota: {error}"),
        }
    }
}
