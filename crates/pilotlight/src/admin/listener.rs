//! The thread of the control socket: sleeps in the kernel until a line arrives, and responds to it.
//!
//! Each request line gets one response line. A connection that does not read its response gets no further one, and does not delay others.
//! The listener does not parse lines.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SocketFlags, accept_with};
use rustix::process::{Uid, geteuid};
use tracing::{debug, warn};

use super::group;
use super::socket::ControlSocket;

/// Longest line of a request, in bytes.
pub(crate) const MAX_LINE: usize = 64 * 1024;
/// Connections at once.
const MAX_CLIENTS: usize = 16;
/// Connections at once of users with read access; the rest is reserved for the owner and root. The one that sent nothing for longest makes
/// room for another one, as an idle connection costs its user nothing.
const MAX_READERS: usize = 8;
/// Pause of accepting when the system has no descriptor left.
const PAUSE: Duration = Duration::from_millis(100);

/// Handles lines.
pub(crate) trait RequestHandler {
    /// State of one connection.
    type Session;

    /// The state of a new connection of this user.
    fn session(&self, user: User) -> Self::Session;

    /// The answer to a line, without its end.
    fn answer(&self, line: &[u8], session: &mut Self::Session) -> String;

    /// The answer to what is not a line that can be answered.
    fn refusal(&self, what: &str) -> String;
}

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    /// The user's number.
    pub(crate) uid: u32,
    /// Whether it may change something.
    pub(crate) may_change: bool,
}

/// A control socket that can be stopped.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: ControlSocket,
    stop: OwnedFd,
}

/// One connection.
struct Client<S> {
    stream: UnixStream,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Nothing more is read; it is closed once it has its answer.
    ending: bool,
    /// Whether its user may change something.
    may_change: bool,
    /// When it last sent something or connected, in rounds of the listener.
    active: u64,
    session: S,
}

impl Listener {
    /// Nothing is answered before [`Listener::run`].
    pub(crate) fn new(socket: ControlSocket) -> io::Result<Self> {
        Ok(Self { socket, stop: eventfd(0, EventfdFlags::CLOEXEC)? })
    }

    /// Lets [`Listener::run`] return.
    pub(crate) fn stop(&self) {
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
    }

    /// Serves connections until [`Listener::stop`].
    ///
    /// # Errors
    /// If the system cannot wait.
    pub(crate) fn run<A: RequestHandler>(&self, answering: &A) -> io::Result<()> {
        let mut clients: Vec<Client<A::Session>> = Vec::new();
        for round in 0.. {
            let (stopping, connecting, ready) = self.wait(&clients)?;
            if stopping {
                return Ok(());
            }
            let mut at = 0;
            clients.retain_mut(|client| {
                at += 1;
                if ready[at - 1] {
                    client.active = round;
                }
                !ready[at - 1] || client.serve(answering).is_ok_and(|open| open)
            });
            if connecting {
                self.accept(answering, &mut clients, round);
            }
        }
        Ok(())
    }

    /// Whether to stop, whether a client connects, and which connections are ready.
    fn wait<S>(&self, clients: &[Client<S>]) -> io::Result<(bool, bool, Vec<bool>)> {
        let mut fds = vec![
            PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN),
        ];
        fds.extend(clients.iter().map(|client| PollFd::new(&client.stream, client.wants())));
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => {}
            other => drop(other?),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        Ok((ready[0], ready[1], ready[2..].to_vec()))
    }

    fn accept<A: RequestHandler>(&self, answering: &A, clients: &mut Vec<Client<A::Session>>, round: u64) {
        let stream = match accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(fd) => UnixStream::from(fd),
            Err(error) => {
                debug!("control socket: {error}");
                return std::thread::sleep(PAUSE);
            }
        };
        let user = self.user(&stream);
        let known = user.unwrap_or(User { uid: u32::MAX, may_change: false });
        let (may_change, session) = (known.may_change, answering.session(known));
        let mut client =
            Client { stream, input: Vec::new(), output: Vec::new(), ending: false, may_change, active: round, session };
        if user.is_none() {
            let uid = socket_peercred(&client.stream).map(|peer| peer.uid.as_raw()).ok();
            warn!(uid, reason = "the user may neither change nor read", "control connection refused");
            client.end_with(&answering.refusal(&self.access_rule()));
        } else if !make_room(clients, may_change) {
            client.end_with(&answering.refusal("too many control connections; end one of the others"));
        } else {
            return clients.push(client);
        }
        let _ = client.send(); // what does not go at once is not worth waiting for
    }
}

impl Listener {
    /// Who has connected; `None` where it may not.
    fn user(&self, stream: &UnixStream) -> Option<User> {
        let peer = socket_peercred(stream).ok()?;
        let may_change = is_owner(peer.uid);
        let may_read = |gid: u32| {
            peer.gid.as_raw() == gid || group::of_peer(stream.as_fd()).is_ok_and(|groups| groups.contains(&gid))
        };
        let is_known = may_change || self.socket.read_group().is_some_and(|group| may_read(group.gid));
        is_known.then_some(User { uid: peer.uid.as_raw(), may_change })
    }

    fn access_rule(&self) -> String {
        match self.socket.read_group() {
            None => "access is limited to the user that runs the server, and root".to_owned(),
            Some(group) => format!(
                "access is limited to the user that runs the server, root, and to read, members of the group {}",
                group.name
            ),
        }
    }
}

/// Whether there is room for one more connection, for which one of a reader may have to end.
fn make_room<S>(clients: &mut Vec<Client<S>>, may_change: bool) -> bool {
    let readers = clients.iter().enumerate().filter(|(_, client)| !client.may_change);
    let is_full = clients.len() >= MAX_CLIENTS || (!may_change && readers.clone().count() >= MAX_READERS);
    let idlest = readers.min_by_key(|(_, client)| client.active).map(|(at, _)| at);
    match idlest.filter(|_| is_full) {
        Some(at) => drop(clients.remove(at)),
        None if is_full => return false,
        None => {}
    }
    true
}

/// The user at the other end, if it is the user of this process or root.
pub(crate) fn owner_at(stream: BorrowedFd<'_>) -> Option<u32> {
    let uid = socket_peercred(stream).ok()?.uid;
    is_owner(uid).then(|| uid.as_raw())
}

/// Whether the peer is the user of this process or root (unix(7), `SO_PEERCRED`).
fn is_owner(uid: Uid) -> bool {
    uid == geteuid() || uid.is_root()
}

impl<S> Client<S> {
    fn wants(&self) -> PollFlags {
        if self.output.is_empty() { PollFlags::IN } else { PollFlags::OUT }
    }

    /// Goes on as far as it can without waiting; whether the connection stays.
    fn serve<A: RequestHandler<Session = S>>(&mut self, answering: &A) -> io::Result<bool> {
        if self.output.is_empty() {
            self.receive()?;
        }
        loop {
            self.send()?;
            if !self.output.is_empty() {
                return Ok(true);
            }
            let Some(line) = self.take_line() else { break };
            self.output = answering.answer(&line, &mut self.session).into_bytes();
            self.output.push(b'\n');
        }
        if self.input.len() >= MAX_LINE {
            self.end_with(&answering.refusal(&format!("a request has at most {MAX_LINE} bytes")));
            self.send()?;
        }
        Ok(!self.ending || !self.output.is_empty())
    }

    /// Reads what is there, but no more than a line may have.
    fn receive(&mut self) -> io::Result<()> {
        let mut part = [0; 4096];
        while self.input.len() < MAX_LINE && !self.ending {
            match self.stream.read(&mut part) {
                Ok(0) => self.ending = true,
                Ok(length) => self.input.extend_from_slice(&part[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take_line(&mut self) -> Option<Vec<u8>> {
        let end = self.input.iter().position(|&byte| byte == b'\n')?;
        let mut line: Vec<u8> = self.input.drain(..=end).collect();
        line.pop();
        Some(line)
    }

    fn send(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(length) => drop(self.output.drain(..length)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn end_with(&mut self, answer: &str) {
        self.output = format!("{answer}\n").into_bytes();
        self.input.clear();
        self.ending = true;
    }
}

#[cfg(test)]
mod tests;
