//! The client of the control socket, which `pilotlight status`, `set`, `namespace` and others use.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::place::default_path;
use super::refusal::Refusal;
use super::request::Request;
use super::response;
use crate::console;
use crate::exit::{self, Exit};
use crate::privileges::walk;

/// A server opens a device before it responds to `namespace-add`.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// The server to connect to.
#[derive(Args, Clone, Debug)]
pub(crate) struct SocketArgs {
    /// The server's control socket [default: $PILOTLIGHT_SOCKET, or else $XDG_RUNTIME_DIR/pilotlight.sock, for root
    /// /run/pilotlight/pilotlight.sock]
    #[arg(long, value_name = "PATH", global = true)]
    pub(crate) socket: Option<PathBuf>,
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<UnixStream>,
    path: PathBuf,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("no server has a control socket at {0}: start one with `pilotlight serve`, or name another with --socket")]
    NotFound(String),
    #[error("PILOTLIGHT_SOCKET is `none`: name a control socket with --socket")]
    Disabled,
    #[error("the server of {0} has ended")]
    Ended(String),
    #[error("{0} belongs to another user: run this as the user that runs the server, or as root")]
    PermissionDenied(String),
    #[error(
        "user {uid} answers at {path}, and may have put a socket of its own there: run this as the user that runs the server, or name \
         its socket with --socket"
    )]
    Untrusted { path: String, uid: u32 },
    #[error("cannot talk to the server at {path}: {source}")]
    Io { path: String, r#source: std::io::Error },
    #[error("invalid response from the server at {path}: {reason}")]
    InvalidResponse { path: String, reason: anyhow::Error },
    #[error("{}", refusal_text(.0))]
    Refused(Refusal),
}

fn refusal_text(refusal: &Refusal) -> String {
    let field = refusal.field.as_ref().map(|field| format!("{field}: ")).unwrap_or_default();
    let help: String = refusal.help.iter().map(|help| format!("\n  = {help}")).collect();
    format!("{field}{}{help}", refusal.message)
}

impl Client {
    /// Connects to the server.
    pub(crate) fn connect(args: &SocketArgs) -> Result<Self, ClientError> {
        let path = args.socket.clone().or_else(default_path);
        Self::connect_to(&path.ok_or(ClientError::Disabled)?)
    }

    fn connect_to(path: &Path) -> Result<Self, ClientError> {
        let name = path.display().to_string();
        let stream = UnixStream::connect(path).map_err(|source| match source.kind() {
            ErrorKind::NotFound => ClientError::NotFound(name.clone()),
            ErrorKind::ConnectionRefused => ClientError::Ended(name.clone()),
            ErrorKind::PermissionDenied => ClientError::PermissionDenied(name.clone()),
            _ => ClientError::Io { path: name.clone(), source },
        })?;
        let failed = |source| ClientError::Io { path: name.clone(), source };
        let uid = socket_peercred(&stream).map_err(|errno| failed(errno.into()))?.uid.as_raw();
        if !is_trusted(path, uid, geteuid().as_raw()) {
            return Err(ClientError::Untrusted { path: name, uid });
        }
        stream.set_read_timeout(Some(RESPONSE_TIMEOUT)).map_err(failed)?;
        Ok(Self { stream: BufReader::new(stream), path: path.to_owned() })
    }

    /// Sends a request and waits for the response.
    pub(crate) fn request<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, ClientError> {
        let path = || self.path.display().to_string();
        let mut line = String::new();
        let sent = self.stream.get_mut().write_all((request.to_line() + "\n").as_bytes());
        match sent.and_then(|()| self.stream.read_line(&mut line)) {
            Ok(0) => return Err(ClientError::Ended(path())),
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                return Err(ClientError::Ended(path()));
            }
            Err(source) => return Err(ClientError::Io { path: path(), source }),
            Ok(_) => {}
        }
        match response::parse(line.trim_end()) {
            Ok(result) => result.map_err(ClientError::Refused),
            Err(reason) => Err(ClientError::InvalidResponse { path: path(), reason }),
        }
    }
}

/// Whether `uid` may answer at a socket: root, the user itself, or the socket's owner where no other user can put one there. A service
/// has a user of its own, and an owner other than the process that answers has left its socket to somebody else.
fn is_trusted(path: &Path, uid: u32, own: u32) -> bool {
    uid == 0 || uid == own || walk::owner(path, own, uid).is_ok_and(|owner| owner == uid)
}

/// Sends a request and prints the response, as JSON or as `text`. A refusal is printed and becomes [`Exit::Refused`].
pub(crate) fn run<T: Serialize + DeserializeOwned>(
    socket: &SocketArgs,
    request: &Request,
    json: bool,
    text: impl FnOnce(&T) -> String,
) -> anyhow::Result<Exit> {
    match Client::connect(socket)?.request::<T>(request) {
        Ok(response) => {
            console::print(if json { serde_json::to_string(&response)? + "\n" } else { text(&response) })?;
            Ok(Exit::Clean)
        }
        Err(error) => failed(error),
    }
}

/// Prints a refusal; any other error is the caller's.
pub(crate) fn failed(error: ClientError) -> anyhow::Result<Exit> {
    match error {
        refused @ ClientError::Refused(_) => {
            exit::report_error(&refused.into());
            Ok(Exit::Refused)
        }
        error => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_missing_and_an_ended_server_are_distinguished() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        assert!(matches!(Client::connect_to(&path), Err(ClientError::NotFound(_))));
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(matches!(Client::connect_to(&path), Err(ClientError::Ended(_))));
    }

    /// Binds a socket as another user, whose process is then the peer (unix(7): the credentials at listen(2)).
    fn listen_as(uid: u32, path: &Path) -> std::os::unix::net::UnixListener {
        let path = path.to_owned();
        let listen = move || {
            let uid = rustix::process::Uid::from_raw(uid);
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            std::os::unix::net::UnixListener::bind(path).unwrap()
        };
        std::thread::spawn(listen).join().unwrap()
    }

    #[test]
    fn another_user_answers_only_at_a_socket_that_it_could_not_put_there() {
        const OTHER: u32 = 65_534;
        if !geteuid().is_root() {
            return eprintln!("skipped: only root can listen as another user");
        }
        let sticky = tempfile::tempdir().unwrap();
        let set = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        set(sticky.path(), 0o1777);
        let (foreign, early) = (sticky.path().join("a.sock"), sticky.path().join("early/a.sock"));
        let service = tempfile::tempdir().unwrap();
        set(service.path(), 0o755);
        let own = service.path().join("run/a.sock");
        for folder in [early.parent().unwrap(), own.parent().unwrap()] {
            std::fs::create_dir(folder).unwrap();
            std::os::unix::fs::chown(folder, Some(OTHER), None).unwrap();
        }
        let listeners = [&foreign, &early, &own].map(|path| listen_as(OTHER, path));
        for path in [&foreign, &early] {
            let refused = Client::connect_to(path).unwrap_err();
            assert!(matches!(refused, ClientError::Untrusted { uid: OTHER, .. }), "{}: {refused}", path.display());
        }
        Client::connect_to(&own).expect("the service's own folder, in root's");
        std::os::unix::fs::chown(&own, Some(65_533), None).unwrap();
        assert!(Client::connect_to(&own).is_err(), "the socket is a third user's");
        let mine = std::os::unix::net::UnixListener::bind(sticky.path().join("mine.sock")).unwrap();
        Client::connect_to(&sticky.path().join("mine.sock")).unwrap();
        drop((listeners, mine));
    }

    #[test]
    fn a_refusal_is_printed_with_its_field_and_help() {
        let refusal = Refusal::for_field("nsid", "0 is none").help("use 1 to 1024");
        assert_eq!(ClientError::Refused(refusal).to_string(), "nsid: 0 is none\n  = use 1 to 1024");
        assert_eq!(ClientError::Refused(Refusal::new("no")).to_string(), "no");
    }
}
