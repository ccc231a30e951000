//! A server that root starts gives its privileges up; a small helper process keeps them for what needs them.
//!
//! **Problem.** These operations of a server need root's rights:
//!
//! | when | operation | after the privileges are gone |
//! |---|---|---|
//! | start | limits of open files, ports below 1024, sockets and files in `/run`, opening the power sensor | done before; NVMe/TCP ports below 1024 are refused |
//! | start, SIGHUP, control socket | opening files and devices of namespaces, and of checksums | helper, where the configuration names them |
//! | SIGHUP | reading the configuration, secrets, schedule | helper |
//! | always | frequencies, power limits, CPU quotas, CPUs offline, power states; their journal and restore | helper |
//! | end | removing sockets and the page's token file | helper |
//! | control socket | `config save`, goals over a restart (`[admin]` `state`) | with the rights of the server's user |
//!
//! A server without privileges needs none for its threads' affinity, memory, sensors that are open, sockets, and files that are open.
//!
//! **Algorithm.** Before the server has threads of its own, it runs its own program again as the helper, with one end of a socket
//! as standard input. The helper reads the configuration itself, restores what a killed server has left, and then answers requests
//! ([`message`]): it opens only files that the configuration names ([`named`]), only where nobody but root can change which files these
//! are ([`walk`]), and sets only knobs of the machine. Then the server changes its user ([`surrender`]). When its end of the socket is
//! closed, the helper restores all settings, after SIGKILL all but limits that `keep_limits` keeps, and ends.
//!
//! **Properties.** No thread of the server keeps a capability. Whoever takes the server over can open what the configuration names, and
//! set knobs to values that policies can set; nothing else of root's rights. A malformed request ends the helper. Before the privileges are
//! gone, root reads files by the same rules ([`files`]).

mod account;
mod channel;
mod client;
pub(crate) mod files;
mod helper;
mod knobs;
mod message;
mod named;
mod surrender;
pub(crate) mod walk;

use std::env;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use rustix::fs::{Access, access};
use rustix::process::{getegid, geteuid};
use rustix::thread::{CapabilitySet, capabilities};
use tracing::{info, warn};

pub(crate) use account::Account;
pub(crate) use client::{Finish, finish, serving};
pub(crate) use helper::run as run_helper;
pub(crate) use knobs::machine;

use crate::config::{Loaded, ServeArgs};
use client::Client;
use named::NamedFiles;

/// The flag that makes a process the helper.
pub(crate) const HELPER_FLAG: &str = "--privileged-helper";

/// A server that is to give its privileges up.
#[must_use]
pub(crate) struct Privileged(Option<Account>);

/// Starts the helper if the configuration names a user and this is root; else warns that the server stays root.
///
/// # Errors
/// The configuration cannot be combined with another user, or the helper does not start.
pub(crate) fn start(args: &ServeArgs, loaded: &Loaded) -> anyhow::Result<Privileged> {
    let Some(account) = &loaded.operation.user else {
        if geteuid().is_root() && can_change_user() {
            warn!(
                "the server runs as root: set `user` in [security] (--user), such as nobody, to have it give its privileges up"
            );
        }
        return Ok(Privileged(None));
    };
    if (geteuid().as_raw(), getegid().as_raw()) == (account.uid, account.gid) {
        return Ok(Privileged(None));
    }
    if !geteuid().is_root() {
        bail!(
            "only a server that root starts can change its user to {}: omit `user` in [security] (--user)",
            account.name
        );
    }
    check_ports(loaded)?;
    NamedFiles::read(args)
        .context("with `user` in [security] the helper process opens what the configuration names")?;
    let client = spawn().context("cannot start the helper process")?;
    client.connect(knobs::find_knobs(loaded))?;
    Ok(Privileged(Some(account.clone())))
}

impl Privileged {
    /// Gives the privileges up, in all threads; the result is kept until the server's end. Warns if goals cannot be kept in `state_file` then.
    ///
    /// # Errors
    /// The system refuses, or a thread still has privileges: the server must not serve then.
    pub(crate) fn surrender(self, state_file: Option<&Path>) -> anyhow::Result<Finish> {
        let Some(account) = self.0 else { return Ok(Finish) };
        surrender::surrender(&account)?;
        if let Some(folder) = state_file.and_then(Path::parent).filter(|folder| !folder.as_os_str().is_empty())
            && access(folder, Access::WRITE_OK).is_err()
        {
            let (user, folder) = (&account.name, folder.display());
            warn!(
                "goals that are set manually will be lost at a restart: user {user} may not write to {folder}. Give it the folder \
                 (chown {user} {folder}), or set `state` in [admin] to a file in another one"
            );
        }
        info!("privileges given up: the server runs as user {} ({}:{})", account.name, account.uid, account.gid);
        Ok(Finish)
    }
}

/// Whether this process has the capability to change its user.
fn can_change_user() -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SETUID))
}

/// NVMe/TCP ports are opened after the privileges are gone.
fn check_ports(loaded: &Loaded) -> anyhow::Result<()> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap_or_default();
    let first: u16 = text.trim().parse().unwrap_or(1024);
    let mut ports = loaded.config.all_listeners().into_iter().map(|address| address.port());
    match ports.find(|port| *port != 0 && *port < first) {
        Some(port) => {
            bail!(
                "port {port} needs a privilege that the server gives up (`user` in [security]): listen on {first} or above"
            )
        }
        None => Ok(()),
    }
}

/// Of the helper in lists of processes; `/proc/self/exe` says nothing.
const HELPER_NAME: &str = "pilotlight-root"; // the kernel keeps 15 bytes

/// Runs this program again with the same arguments, as the helper.
fn spawn() -> io::Result<Client> {
    let (ours, theirs) = channel::pair()?;
    let mut command = Command::new("/proc/self/exe");
    command.arg0(HELPER_NAME);
    command.args(env::args_os().skip(1)).arg(HELPER_FLAG).env_remove("NOTIFY_SOCKET");
    command.stdin(Stdio::from(theirs)).stdout(Stdio::null());
    command.process_group(0); // a terminal's Ctrl-C is for the server
    command.spawn()?;
    Ok(Client::new(ours))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// What the helper says when its server has ended by itself.
    pub(crate) const RESTORES: &str = "the helper restores all settings";
    const CHILD: &str = "PILOTLIGHT_TEST_FINISHES";

    /// Gives this process a helper, once. It says on standard error how its server has ended.
    pub(crate) fn connect_to_helper() {
        let (ours, theirs) = channel::pair().unwrap();
        channel::send(&theirs, &message::Reply::Ready { knobs: 0 }.encode(), None).unwrap();
        std::thread::spawn(move || {
            while let Ok(Some(_)) = channel::receive::<8>(&theirs) {}
            eprintln!("{RESTORES}");
        });
        Client::new(ours).connect(Vec::new).unwrap();
    }

    #[test]
    fn a_server_that_ends_with_an_error_lets_the_helper_finish() {
        if std::env::var_os(CHILD).is_some() {
            connect_to_helper();
            let serve = || -> anyhow::Result<()> {
                let _finish = Privileged(None).surrender(None)?;
                bail!("an error")
            };
            assert!(serve().is_err());
            std::process::exit(0);
        }
        let name = "privileges::tests::a_server_that_ends_with_an_error_lets_the_helper_finish";
        let mut child = Command::new(env::current_exe().unwrap());
        let output = child.args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains(RESTORES), "{said}");
    }
}
