//! The helper process: answers requests with root's rights until its server has ended, then restores the machine.
//!
//! It trusts nothing that the server sends: see [`super`] for the rules. Its own filter of system calls has no sockets, no new
//! threads and no programs (`seccomp`).

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, Metadata};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, anyhow, bail};
use pilotlight_plant::KnobId;
use pilotlight_reactor::Machine;
use rustix::process::{DumpableBehavior, getppid, set_dumpable_behavior};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use tracing::{error, info};

use super::channel;
use super::message::{MAX_REQUEST, Purpose, Reply, Request};
use super::named::NamedFiles;
use super::walk::{self, WalkError};
use crate::config::{self, Loaded, Operation, PageAddress, ServeArgs, TokenFile};
use crate::exit::Exit;
use crate::log;
use crate::seccomp;
use crate::serve::knobs::{self, KnobAccess, Settings};

/// What the helper works with.
struct Helper<'a> {
    args: &'a ServeArgs,
    named: NamedFiles,
    machine: Option<Box<dyn Machine>>,
    /// The server's folder of threads in `/proc`.
    threads: PathBuf,
    /// Sockets and files that the server makes in folders of root, and what they are while it serves.
    made: Vec<(PathBuf, Option<(u64, u64)>)>,
    has_noted: bool,
}

/// Serves a server at the other end of standard input, until that end is closed.
pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<Exit> {
    let socket: OwnedFd = io::stdin().as_fd().try_clone_to_owned().context("no standard input")?;
    if !channel::is_end(&socket) {
        bail!("{} is for a server that starts its own helper", super::HELPER_FLAG);
    }
    let _ = rustix::thread::set_name(&CString::new(super::HELPER_NAME)?);
    // a stop of a systemd unit signals all its processes, and this one has to outlive the server
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        flag::register(signal, Arc::new(AtomicBool::new(false))).context("cannot handle signals")?;
    }
    set_dumpable_behavior(DumpableBehavior::NotDumpable).context("cannot forbid core dumps")?;
    let loaded = config::load(args, &config::Machine::this()).map_err(|refused| {
        refused.print();
        anyhow!("the helper process cannot read the configuration")
    })?;
    log::set_format(loaded.operation.log_format);
    let mut helper = Helper::new(args, &loaded)?;
    let filter = loaded.operation.seccomp;
    drop(loaded); // and with it the secrets
    seccomp::start_in_helper(filter)?;
    let knobs = helper.machine.as_ref().map_or(0, |machine| machine.knobs().len());
    channel::send(&socket, &Reply::Ready { knobs: knobs as u16 }.encode(), None).context("the server has ended")?;
    helper.serve(&socket);
    helper.restore(&socket);
    helper.remove_made();
    Ok(Exit::Clean)
}

impl<'a> Helper<'a> {
    fn new(args: &'a ServeArgs, loaded: &Loaded) -> anyhow::Result<Self> {
        let Loaded { config, operation, .. } = loaded;
        let server = getppid().context("the server has ended")?;
        Ok(Self {
            args,
            named: NamedFiles::read(args)?,
            machine: knobs::machine(
                config,
                &operation.reactors.cores,
                &KnobAccess::from_operation(operation),
                &Settings::default(),
            ),
            threads: PathBuf::from(format!("/proc/{}/task", server.as_raw_pid())),
            made: made(operation).into_iter().map(|path| (path, None)).collect(),
            has_noted: false,
        })
    }

    /// Answers until the server has closed its end, or sends what is not a request.
    fn serve(&mut self, socket: &OwnedFd) {
        // one byte more, so that a longer packet is not taken for a valid one
        while let Ok(Some(packet)) = channel::receive::<{ MAX_REQUEST + 1 }>(socket) {
            let Some(request) = Request::decode(&packet) else {
                return error!("malformed request to the helper process, which ends: the server may be compromised");
            };
            let (reply, file) = self.answer(request);
            if channel::send(socket, &reply.encode(), file.as_ref().map(|file| file.as_fd())).is_err() {
                return;
            }
        }
    }

    /// A server that ends waits until this is done; one that was killed has no socket any more.
    fn restore(&mut self, socket: &OwnedFd) {
        let Some(mut machine) = self.machine.take() else { return };
        if channel::send(socket, &Reply::Done.encode(), None).is_err() {
            machine.note_killed();
        }
    }

    fn answer(&mut self, request: Request) -> (Reply, Option<fs::File>) {
        let reply = match request {
            Request::Open { purpose, path } => match self.open(&path, purpose) {
                Ok(file) => return (Reply::Done, Some(file)),
                Err(reply) => reply,
            },
            Request::Set { knob, value } => self.set(KnobId(knob), value),
            Request::Workers(threads) => self.set_workers(&threads),
            Request::Serving => self.note_made(),
        };
        (reply, None)
    }

    fn open(&mut self, path: &Path, purpose: Purpose) -> Result<fs::File, Reply> {
        self.named.refresh(self.args);
        if !self.named.has(path, purpose) {
            info!("not opened for the server, as the configuration does not name it: {}", path.display());
            return Err(Reply::NotNamed);
        }
        walk::open(path, purpose.flags()).map_err(|error| match error {
            WalkError::Untrusted => Reply::Untrusted,
            WalkError::System(errno) => Reply::System(errno.raw_os_error()),
        })
    }

    fn set(&mut self, knob: KnobId, value: Option<u64>) -> Reply {
        let Some(machine) = self.machine.as_mut().filter(|machine| knob.index() < machine.knobs().len()) else {
            return Reply::Refused;
        };
        machine.set(knob, value).map_or(Reply::Refused, |()| Reply::Done)
    }

    /// Threads of other processes get no quota.
    fn set_workers(&mut self, threads: &[u32]) -> Reply {
        let own: BTreeSet<u32> = threads_in(&self.threads);
        match &mut self.machine {
            Some(machine) if threads.iter().all(|thread| own.contains(thread)) => {
                machine.set_workers(threads);
                Reply::Done
            }
            _ => Reply::Refused,
        }
    }

    /// Once, before the server gives its privileges up: later it could have put links in the way.
    fn note_made(&mut self) -> Reply {
        if std::mem::replace(&mut self.has_noted, true) {
            return Reply::Refused;
        }
        for (path, identity) in &mut self.made {
            *identity = fs::symlink_metadata(&*path).ok().filter(is_made).map(|meta| (meta.dev(), meta.ino()));
        }
        Reply::Done
    }

    /// Removes what the server could not, unless another server has put its own there.
    fn remove_made(&self) {
        for (path, identity) in &self.made {
            let now = fs::symlink_metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
            if identity.is_some() && *identity == now {
                let _ = fs::remove_file(path);
            }
        }
    }
}

fn threads_in(folder: &Path) -> BTreeSet<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The sockets and files that a server makes before it gives its privileges up.
fn made(operation: &Operation) -> Vec<PathBuf> {
    let control = operation.admin_socket.as_ref().map(|socket| socket.path.clone());
    let page = operation.page.as_ref();
    let token = page.and_then(|page| match &page.token {
        TokenFile::Generated(path) => Some(path.clone()),
        TokenFile::Configured(_) => None,
    });
    let page = page.and_then(|page| match &page.listen {
        PageAddress::Unix(path) => Some(path.clone()),
        PageAddress::Tcp(_) => None,
    });
    control.into_iter().chain(page).chain(token).collect()
}

/// Whether a file can be one that the server has made as root.
fn is_made(meta: &Metadata) -> bool {
    meta.uid() == 0 && (meta.file_type().is_socket() || meta.is_file())
}
