//! The other end of the control socket: what `pilotlight status`, `set` and `namespace` ask through.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::de::DeserializeOwned;

use super::answer::{self, Refusal};
use super::place::default_path;
use super::request::Request;
use crate::console;
use crate::exit::{self, Exit};

/// How long an answer may take: opening a namespace waits for its device.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which server is meant.
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

/// Why there is no answer, or not the wanted one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// Nothing is there.
    #[error("no server has a control socket at {0}: start one with `pilotlight serve`, or name another with --socket")]
    Nothing(String),
    /// The environment says so.
    #[error("PILOTLIGHT_SOCKET says that there is no control socket: name one with --socket")]
    NoneWanted,
    /// A server was there.
    #[error("the server of {0} has ended; nobody answers there")]
    Dead(String),
    /// Somebody else's.
    #[error("{0} belongs to another user: run this as the user that runs the server, or as root")]
    NotOurs(String),
    /// The connection failed.
    #[error("asking the server at {path}: {source}")]
    Failed {
        /// The socket.
        path: String,
        /// What happened.
        r#source: std::io::Error,
    },
    /// What came is not to be understood.
    #[error("the server at {path} gave an answer that this program does not understand: {why}")]
    Strange {
        /// The socket.
        path: String,
        /// Why.
        why: String,
    },
    /// The server said no.
    #[error("{}", told(.0))]
    Refused(Refusal),
}

fn told(refusal: &Refusal) -> String {
    let field = refusal.field.as_ref().map(|field| format!("{field}: ")).unwrap_or_default();
    let help: String = refusal.help.iter().map(|help| format!("\n  = {help}")).collect();
    format!("{field}{}{help}", refusal.message)
}

impl Client {
    /// Connects to the server that is meant.
    pub(crate) fn connect(args: &SocketArgs) -> Result<Self, ClientError> {
        let path = args.socket.clone().or_else(default_path);
        Self::connect_to(&path.ok_or(ClientError::NoneWanted)?)
    }

    fn connect_to(path: &Path) -> Result<Self, ClientError> {
        let shown = path.display().to_string();
        let stream = UnixStream::connect(path).map_err(|source| match source.kind() {
            ErrorKind::NotFound => ClientError::Nothing(shown.clone()),
            ErrorKind::ConnectionRefused => ClientError::Dead(shown.clone()),
            ErrorKind::PermissionDenied => ClientError::NotOurs(shown.clone()),
            _ => ClientError::Failed { path: shown.clone(), source },
        })?;
        let patient = stream.set_read_timeout(Some(PATIENCE));
        patient.map_err(|source| ClientError::Failed { path: shown, source })?;
        Ok(Self { stream: BufReader::new(stream), path: path.to_owned() })
    }

    /// Asks and waits for the answer.
    pub(crate) fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, ClientError> {
        let path = || self.path.display().to_string();
        let mut answer = String::new();
        let line = request.to_line() + "\n";
        let sent = self.stream.get_mut().write_all(line.as_bytes());
        match sent.and_then(|()| self.stream.read_line(&mut answer)) {
            Ok(0) => return Err(ClientError::Dead(path())),
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                return Err(ClientError::Dead(path()));
            }
            Err(source) => return Err(ClientError::Failed { path: path(), source }),
            Ok(_) => {}
        }
        match answer::parse(answer.trim_end()) {
            Ok(outcome) => outcome.map_err(ClientError::Refused),
            Err(why) => Err(ClientError::Strange { path: path(), why }),
        }
    }
}

/// Prints what came of a request; how the program ends. A refusal is no failure of this program.
pub(crate) fn tell<T>(
    answer: Result<T, ClientError>,
    text: impl FnOnce(&T) -> anyhow::Result<String>,
) -> anyhow::Result<Exit> {
    match answer {
        Ok(answer) => {
            console::print(text(&answer)?)?;
            Ok(Exit::Clean)
        }
        Err(refused @ ClientError::Refused(_)) => {
            exit::failed(&refused.into());
            Ok(Exit::Refused)
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_no_server_is_that_is_said_with_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.sock");
        assert!(matches!(Client::connect_to(&path), Err(ClientError::Nothing(_))));
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(matches!(Client::connect_to(&path), Err(ClientError::Dead(_))));
    }

    #[test]
    fn a_refusal_is_told_with_its_field_and_what_would_be_right() {
        let refusal = Refusal::of("nsid", "0 is none").help("use 1 to 1024");
        assert_eq!(ClientError::Refused(refusal).to_string(), "nsid: 0 is none\n  = use 1 to 1024");
        assert_eq!(ClientError::Refused(Refusal::new("no")).to_string(), "no");
    }
}
