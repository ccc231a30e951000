//! Receives with the kernel's timestamp of the last packet.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use pilotlight_reactor::clock;
use rustix::io::Errno;

/// Space for the control message.
const CONTROL_BYTES: usize = 64;
const NS_PER_S: i128 = 1_000_000_000;
/// A longer wait, in nanoseconds, means that the wall clock was set after the packet's timestamp.
const LONGEST_WAIT_NS: i128 = 10 * NS_PER_S;
/// A larger change of the wall clock relative to [`clock`], in nanoseconds, means that it was set; less is drift.
const CLOCK_STEP_NS: u64 = 1_000_000;

/// Offset of the wall clock from [`clock`] since it was last set, and the time when that was noticed, in nanoseconds.
static WALL_CLOCK: WallClock = WallClock { ahead_ns: AtomicI64::new(i64::MIN), since_ns: AtomicU64::new(0) };

/// Enables or disables timestamps of a socket. A kernel without support is not an error.
pub(crate) fn set_stamping(socket: &OwnedFd, on: bool) {
    let value = libc::c_int::from(on);
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel reads one `int`.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, (&raw const value).cast(), length)
    };
    if result != 0 {
        tracing::debug!("this kernel does not timestamp received packets");
    }
}

/// Receives without blocking. Also returns the arrival of the last packet in nanoseconds of [`clock`], if known.
///
/// # Errors
/// As recvmsg(2).
pub(crate) fn receive_stamped(socket: &OwnedFd, parts: &mut [IoSliceMut<'_>]) -> Result<(usize, Option<u64>), Errno> {
    let mut control = Control { bytes: [MaybeUninit::uninit(); CONTROL_BYTES] };
    // SAFETY: a message header of zeroes is valid and empty.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr().cast(); // IoSliceMut is an `iovec` (its documentation)
    message.msg_iovlen = parts.len();
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = CONTROL_BYTES;
    // SAFETY: all memory referenced by the header is valid during the call and writable.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    if received < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    }
    let stamp = stamp_of(&message).and_then(|stamp| monotonic_ns(&stamp));
    Ok((received as usize, stamp))
}

#[repr(C, align(8))]
struct Control {
    bytes: [MaybeUninit<u8>; CONTROL_BYTES],
}

/// The timestamp in the control messages of a receive.
fn stamp_of(message: &libc::msghdr) -> Option<libc::timespec> {
    // SAFETY: the kernel has filled in the header, and its control buffer is valid.
    let header = unsafe { libc::CMSG_FIRSTHDR(message).as_ref() }?;
    if (header.cmsg_level, header.cmsg_type) != (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
        return None;
    }
    // SAFETY: a control message of this type contains a `timespec`, possibly unaligned.
    Some(unsafe { libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned() })
}

/// Converts a time of the wall clock to [`clock`] by their current difference.
fn monotonic_ns(stamp: &libc::timespec) -> Option<u64> {
    let (real_ns, now_ns) = (clock::real_ns(), clock::now_ns());
    let stamp_ns = i128::from(stamp.tv_sec) * NS_PER_S + i128::from(stamp.tv_nsec);
    WALL_CLOCK.arrival_ns(stamp_ns, i128::from(real_ns), now_ns)
}

/// Detects changes of the wall clock. Timestamps from before a change are not usable.
struct WallClock {
    ahead_ns: AtomicI64,
    since_ns: AtomicU64,
}

impl WallClock {
    /// Arrival of a packet in nanoseconds of [`clock`]; `None` if the wall clock was set since.
    fn arrival_ns(&self, stamp_ns: i128, real_ns: i128, now_ns: u64) -> Option<u64> {
        let ahead_ns = (real_ns - i128::from(now_ns)) as i64;
        if ahead_ns.abs_diff(self.ahead_ns.load(Acquire)) > CLOCK_STEP_NS {
            self.since_ns.store(now_ns, Relaxed); // visible before the new offset
            self.ahead_ns.store(ahead_ns, Release);
        }
        let waited_ns = real_ns - stamp_ns;
        let arrived_ns = (0..LONGEST_WAIT_NS).contains(&waited_ns).then(|| now_ns.saturating_sub(waited_ns as u64));
        arrived_ns.filter(|&arrived_ns| arrived_ns >= self.since_ns.load(Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_timestamp_precedes_the_receive() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let receiver = OwnedFd::from(listener.accept().unwrap().0);
        set_stamping(&receiver, true);
        let mut buffer = [0; 16];
        // The kernel enables timestamps with a delay.
        for _ in 0..1_000 {
            let before_ns = clock::now_ns();
            sender.write_all(b"command").unwrap();
            std::thread::sleep(Duration::from_millis(10));
            let read_ns = clock::now_ns();
            let (received, stamp) = receive_stamped(&receiver, &mut [IoSliceMut::new(&mut buffer)]).unwrap();
            assert_eq!(&buffer[..received], b"command");
            let Some(stamp_ns) = stamp else { continue };
            assert!((before_ns - 1_000_000..read_ns).contains(&stamp_ns), "{before_ns}, {stamp_ns}, {read_ns}");
            assert_eq!(receive_stamped(&receiver, &mut [IoSliceMut::new(&mut buffer)]), Err(Errno::AGAIN));
            set_stamping(&receiver, false);
            sender.write_all(b"again").unwrap();
            std::thread::sleep(Duration::from_millis(10));
            assert_eq!(receive_stamped(&receiver, &mut [IoSliceMut::new(&mut buffer)]), Ok((5, None)));
            return;
        }
        panic!("this kernel does not timestamp packets");
    }

    #[test]
    fn timestamps_from_before_a_clock_change_are_ignored() {
        const S: u64 = 1_000_000_000;
        let clock = WallClock { ahead_ns: AtomicI64::new(0), since_ns: AtomicU64::new(0) };
        let arrival = |stamp_ns: u64, real_ns: u64, now_ns| clock.arrival_ns(stamp_ns.into(), real_ns.into(), now_ns);
        assert_eq!(arrival(S, S + 500, S + 500), Some(S));
        assert_eq!(arrival(S + 600, S + 500, S + 500), None, "set back");
        assert_eq!(arrival(S, 2 * S, 2 * S), Some(S), "a packet that waited a second");
        // Set forward by 3 s at 2 s: packets from before have no known arrival time, later ones do.
        assert_eq!(arrival(2 * S - 7, 5 * S, 2 * S), None);
        assert_eq!(arrival(2 * S - 7, 5 * S + 10, 2 * S + 10), None, "of another socket");
        assert_eq!(arrival(5 * S + 20, 5 * S + 30, 2 * S + 30), Some(2 * S + 20));
        assert_eq!(arrival(0, 30 * S, 27 * S), None, "longer than the limit");
    }
}
