//! An s2n-tls connection whose bytes are read from and written to the socket of the current call.

use std::cell::Cell;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;

use libc::{c_int, c_void};
use s2n_tls::connection::Connection;
use s2n_tls::enums::Mode;
use s2n_tls::error::Error;

/// What a call that could not finish waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Until the socket is readable.
    #[default]
    Read,
    /// Until the socket is writable.
    Write,
}

/// State of the callbacks. Cells, because s2n-tls holds a pointer to it beside ours.
#[derive(Debug)]
struct Io {
    /// Socket of the current call, -1 between calls.
    socket: Cell<RawFd>,
    /// Bytes that the current call may still receive.
    budget: Cell<usize>,
    /// The last direction that would have blocked.
    blocked: Cell<Direction>,
    /// The first byte that was ever received.
    first: Cell<Option<u8>>,
}

/// A connection without a socket, which is an argument of each call.
#[derive(Debug)]
pub(crate) struct Wire {
    conn: Connection,
    io: NonNull<Io>,
}

// SAFETY: `io` is owned by this value alone and reached by the callbacks only during a call of `with`, on the caller's thread.
// `Connection` is `Send`.
unsafe impl Send for Wire {}

impl Wire {
    /// A new connection.
    pub(crate) fn new(mode: Mode) -> Result<Self, Error> {
        let mut conn = Connection::new(mode);
        let io = Io {
            socket: Cell::new(-1),
            budget: Cell::new(0),
            blocked: Cell::new(Direction::Read),
            first: Cell::new(None),
        };
        conn.set_receive_callback(Some(receive))?.set_send_callback(Some(send))?;
        let mut wire = Self { conn, io: NonNull::from(Box::leak(Box::new(io))) };
        let context = wire.io.as_ptr().cast::<c_void>();
        // SAFETY: `drop` releases `io`, and only there; the connection does no I/O after that.
        unsafe { wire.conn.set_receive_context(context)?.set_send_context(context)? };
        Ok(wire)
    }

    fn io(&self) -> &Io {
        // SAFETY: allocated in `new`, released in `drop`; only shared references to it exist.
        unsafe { self.io.as_ref() }
    }

    /// Calls `work` with the connection on `socket`. At most `budget` bytes are received, whatever the peer sends, so that a call is
    /// short.
    pub(crate) fn with<T>(
        &mut self,
        socket: BorrowedFd<'_>,
        budget: usize,
        work: impl FnOnce(&mut Connection) -> T,
    ) -> T {
        self.io().socket.set(socket.as_raw_fd());
        self.io().budget.set(budget);
        let result = work(&mut self.conn);
        self.io().socket.set(-1);
        result
    }

    /// Sends bytes that are no part of the connection's stream, if the socket takes them.
    pub(crate) fn send_plain(&self, socket: BorrowedFd<'_>, bytes: &[u8]) {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: `bytes` is readable for its length.
        unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
    }

    /// The connection, for calls that do no I/O.
    pub(crate) fn conn(&mut self) -> &mut Connection {
        &mut self.conn
    }

    /// The connection, for queries.
    pub(crate) fn conn_ref(&self) -> &Connection {
        &self.conn
    }

    /// What the last call that returned `Pending` waits for.
    pub(crate) fn blocked(&self) -> Direction {
        self.io().blocked.get()
    }

    /// The first byte that the peer sent.
    pub(crate) fn first(&self) -> Option<u8> {
        self.io().first.get()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // The connection is dropped after this; freeing it calls no callback.
        // SAFETY: allocated by `Box` in `new`, released once. No reference outlives a method.
        drop(unsafe { Box::from_raw(self.io.as_ptr()) });
    }
}

/// Receives for s2n-tls: bytes received, 0 at the end, -1 with `errno`.
unsafe extern "C" fn receive(context: *mut c_void, buffer: *mut u8, len: u32) -> c_int {
    // SAFETY: the context is the `Io` of `Wire::new`, alive while the connection is in a call.
    let io = unsafe { &*context.cast::<Io>() };
    let room = io.budget.get().min(len as usize);
    if room == 0 && len > 0 {
        io.blocked.set(Direction::Read);
        set_errno(libc::EAGAIN);
        return -1;
    }
    // SAFETY: s2n-tls passes `len` writable bytes, and `room` is at most `len`.
    let received = retried(|| unsafe { libc::recv(io.socket.get(), buffer.cast(), room, libc::MSG_DONTWAIT) });
    if received > 0 {
        io.budget.set(io.budget.get() - received as usize);
        if io.first.get().is_none() {
            // SAFETY: the kernel has just written at least one byte.
            io.first.set(Some(unsafe { *buffer }));
        }
    } else if received < 0 {
        io.blocked.set(Direction::Read);
    }
    received as c_int
}

/// Sends for s2n-tls: bytes sent, -1 with `errno`.
unsafe extern "C" fn send(context: *mut c_void, buffer: *const u8, len: u32) -> c_int {
    // SAFETY: as in `receive`.
    let io = unsafe { &*context.cast::<Io>() };
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: s2n-tls passes `len` readable bytes.
    let sent = retried(|| unsafe { libc::send(io.socket.get(), buffer.cast(), len as usize, flags) });
    if sent < 0 {
        io.blocked.set(Direction::Write);
    }
    sent as c_int
}

/// Repeats a system call that a signal interrupted.
fn retried(mut call: impl FnMut() -> isize) -> isize {
    loop {
        let result = call();
        if result >= 0 || std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
            return result;
        }
    }
}

fn set_errno(value: c_int) {
    // SAFETY: the C library returns a pointer to this thread's `errno`.
    unsafe { *libc::__errno_location() = value };
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_call_receives_at_most_its_budget_and_says_what_it_waits_for() {
        let (mut peer, mut socket) = UnixStream::pair().expect("socket pair");
        peer.write_all(&[22, 3, 1, 0, 200, 1, 2, 3, 4, 5]).expect("the socket has room");
        let mut wire = Wire::new(Mode::Server).expect("there is memory");
        assert!(wire.with(socket.as_fd(), 3, |conn| conn.poll_negotiate().is_pending()));
        assert_eq!((wire.blocked(), wire.first()), (Direction::Read, Some(22)));
        let mut rest = [0; 20];
        assert_eq!(socket.read(&mut rest).expect("bytes"), 7);
    }

    #[test]
    fn a_full_socket_is_what_a_sender_waits_for() {
        let (peer, socket) = UnixStream::pair().expect("socket pair");
        socket.set_nonblocking(true).expect("nonblocking");
        while (&socket).write(&[0; 4096]).is_ok() {}
        let mut wire = Wire::new(Mode::Client).expect("there is memory");
        assert!(wire.with(socket.as_fd(), 1000, |conn| conn.poll_negotiate().is_pending()));
        assert_eq!((wire.blocked(), wire.first()), (Direction::Write, None));
        drop(peer);
        assert!(wire.with(socket.as_fd(), 1000, |conn| conn.poll_negotiate().is_ready()), "without SIGPIPE");
    }
}
