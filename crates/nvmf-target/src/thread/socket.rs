//! A connection on its socket: reads, batched sends, and epoll interest.

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use pilotlight_nvmf_proto::ids::ConnAddr;
use pilotlight_nvmf_proto::memory::Memory;
use pilotlight_nvmf_proto::queue_pair::Cx;
use pilotlight_nvmf_proto::sample::Sample;
use pilotlight_nvmf_proto::services::NamespaceTable as _;
use pilotlight_nvmf_proto::tcp::wire::MAX_CAPSULE;
use pilotlight_nvmf_proto::tcp::{Connection, ReceiveError};
use pilotlight_tls::Session;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags};

use super::NO_WAIT;
use super::tasks::Tasks;
use crate::accounting::ThreadAccounting;
use crate::latency::{Sampler, receive_stamped, set_stamping};
use crate::namespaces::Namespaces;
use crate::shared::Shared;
use crate::thread::message::ThreadOutbox;

/// Bytes read from one connection in one poll.
pub(super) const SCRATCH: usize = 256 * 1024;

/// A connection and its socket.
pub(super) struct Socket {
    pub(super) fd: Option<OwnedFd>,
    /// The TLS session on it.
    pub(super) tls: Option<Box<Session>>,
    pub(super) conn: Connection<Shared>,
    pub(super) address: ConnAddr,
    /// Epoll interest.
    pub(super) interest: epoll::EventFlags,
    /// Whether it is in the list of connections with waiting commands.
    pub(super) listed: bool,
    /// Whether the sending side has been shut down.
    pub(super) shut: bool,
    /// I/O commands in progress at the last count.
    pub(super) counted: u32,
    /// Whether the kernel timestamps received packets.
    pub(super) is_stamping: bool,
}

/// The rest of an I/O thread, borrowed separately from its sockets.
pub(super) struct Resources {
    pub(super) out: ThreadOutbox,
    pub(super) memory: Memory,
    pub(super) namespaces: Namespaces,
    pub(super) accounting: ThreadAccounting,
    pub(super) sampler: Sampler,
    pub(super) shared: Arc<Shared>,
    pub(super) epoll: OwnedFd,
    pub(super) scratch: Box<[u8]>,
    pub(super) tasks: Tasks,
}

pub(super) fn readable() -> epoll::EventFlags {
    epoll::EventFlags::IN | epoll::EventFlags::RDHUP
}

impl Resources {
    /// Bytes that a read may take now; `None` without memory for in-capsule data: then level-triggered epoll signals again. A command
    /// takes more memory than its bytes: data of 512 bytes takes a page, for Compare two.
    #[inline]
    pub(super) fn room(&self) -> Option<usize> {
        let room = (self.memory.in_capsule_room() / 16).min(SCRATCH);
        (room > MAX_CAPSULE).then_some(room)
    }

    pub(super) fn cx(&mut self, now_ns: u64, me: ConnAddr) -> Cx<'_, Shared> {
        Cx {
            now_ns,
            sample: Sample::NONE,
            me,
            memory: &mut self.memory,
            namespaces: &mut self.namespaces,
            accounting: &mut self.accounting,
            out: &mut self.out,
            services: &self.shared,
        }
    }
}

/// The binary logarithm of the weight of the next receive, if it is sampled. The first sampled receive only enables
/// timestamps, the first unsampled one disables them.
#[cold]
fn sample_next(is_stamping: &mut bool, is_sampled: bool, socket: &OwnedFd, sampler: &mut Sampler) -> Option<u32> {
    if *is_stamping != is_sampled {
        *is_stamping = is_sampled;
        set_stamping(socket, is_sampled);
        return None;
    }
    sampler.next()
}

/// Receives, and returns the sample for the commands.
#[cold]
fn receive_sampled(
    socket: &OwnedFd,
    parts: &mut [IoSliceMut<'_>],
    weight: u32,
    now_ns: u64,
) -> (Result<usize, Errno>, Sample) {
    match receive_stamped(socket, parts) {
        Ok((bytes, stamp)) => {
            let waited_ns = stamp.map(|socket_ns| now_ns.saturating_sub(socket_ns));
            (Ok(bytes), Sample::new(weight, waited_ns))
        }
        Err(error) => (Err(error), Sample::NONE),
    }
}

/// What a failed receive means for the connection.
pub(super) fn receive_error(error: Errno) -> ReceiveError {
    match error {
        Errno::AGAIN | Errno::INTR => ReceiveError::Again,
        _ => ReceiveError::Lost,
    }
}

impl Socket {
    /// I/O commands in progress, now and at the previous call.
    pub(super) fn recount(&mut self) -> (u32, u32) {
        let before = std::mem::replace(&mut self.counted, self.conn.pair.requests_in_progress());
        (self.counted, before)
    }

    /// Reads once and handles the bytes.
    pub(super) fn read(&mut self, res: &mut Resources, now_ns: u64) {
        if self.tls.is_some() {
            self.read_encrypted(res, now_ns);
            return;
        }
        let Some(fd) = &self.fd else { return };
        let Some(room) = res.room() else { return };
        let mut scratch = std::mem::take(&mut res.scratch);
        let kept = self.conn.take_kept(&mut scratch);
        let mut in_place = 0;
        let flags = RecvFlags::DONTWAIT;
        let is_sampled = res.shared.latencies.are_sampled();
        let mut weight = None;
        if is_sampled || self.is_stamping {
            weight = sample_next(&mut self.is_stamping, is_sampled, fd, &mut res.sampler);
        }
        let (received, sample) = match (self.conn.body_target().filter(|_| kept == 0), weight) {
            (Some(target), weight) => {
                in_place = target.len();
                let mut parts = [IoSliceMut::new(target), IoSliceMut::new(&mut scratch[..room])];
                match weight {
                    Some(weight) => receive_sampled(fd, &mut parts, weight, now_ns),
                    None => {
                        let control = &mut RecvAncillaryBuffer::default();
                        let received = rustix::net::recvmsg(fd, &mut parts, control, flags);
                        (received.map(|r| r.bytes), Sample::NONE)
                    }
                }
            }
            (None, Some(weight)) => {
                receive_sampled(fd, &mut [IoSliceMut::new(&mut scratch[kept..room])], weight, now_ns)
            }
            (None, None) => {
                let received = rustix::net::recv(fd, &mut scratch[kept..room], flags);
                (received.map(|(_, bytes)| bytes), Sample::NONE)
            }
        };
        let mut cx = res.cx(now_ns, self.address);
        cx.sample = sample;
        self.conn.on_received(received.map_err(receive_error), in_place, (&scratch, kept), &mut cx);
        res.scratch = scratch;
    }

    /// Sends queued responses until all are sent or the socket blocks.
    pub(super) fn flush(&mut self, res: &mut Resources, now_ns: u64) {
        if self.tls.is_some() {
            return self.flush_encrypted(res, now_ns);
        }
        let Some(fd) = &self.fd else { return };
        while !self.conn.pair.transport.tx.is_empty() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let sent = self.conn.pair.transport.tx.gather(res.namespaces.loans(), |slices| {
                rustix::net::sendmsg(fd, slices, &mut SendAncillaryBuffer::default(), flags)
            });
            let mut cx = res.cx(now_ns, self.address);
            match sent {
                Ok(bytes) => self.conn.on_sent(bytes, &mut cx),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.conn.blocked = true;
                    return self.watch(res, readable() | epoll::EventFlags::OUT);
                }
                Err(_) => return self.conn.pair.lost(&mut cx),
            }
        }
        if self.conn.blocked {
            self.conn.blocked = false;
            self.watch(res, readable());
        }
        if self.conn.pair.is_closing() && !self.shut {
            self.shut = true;
            if let Some(fd) = &self.fd {
                let _ = rustix::net::shutdown(fd, rustix::net::Shutdown::Write);
            }
        }
    }

    /// Ends the loans of this connection's turn; unsent data is copied.
    pub(super) fn end_loans(&mut self, res: &mut Resources) {
        if !res.namespaces.loans().is_empty() {
            self.conn.pair.transport.tx.keep(res.namespaces.loans());
            res.namespaces.end_loans();
        }
    }

    pub(super) fn watch(&mut self, res: &Resources, interest: epoll::EventFlags) {
        let Some(fd) = self.fd.as_ref().filter(|_| self.interest != interest) else { return };
        let data = epoll::EventData::new_u64(u64::from(self.address.index));
        if epoll::modify(&res.epoll, fd, data, interest).is_ok() {
            self.interest = interest;
        }
    }

    /// Whether received bytes are in the TLS session, which epoll does not signal.
    #[inline]
    pub(super) fn has_buffered(&self) -> bool {
        self.tls.as_ref().is_some_and(|session| session.has_buffered())
    }

    /// Whether the peer has closed its side.
    pub(super) fn is_hung_up(&self) -> bool {
        let Some(fd) = &self.fd else { return true };
        let mut polled = [rustix::event::PollFd::new(fd, rustix::event::PollFlags::RDHUP)];
        matches!(rustix::event::poll(&mut polled, Some(&NO_WAIT)), Ok(1..))
    }
}
