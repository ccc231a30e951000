//! A receive with the time at which the kernel got its last packet.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use pilotlight_reactor::clock;
use rustix::io::Errno;

/// Room for the one control message that is asked for.
const CONTROL_BYTES: usize = 64;
const NS_PER_S: i128 = 1_000_000_000;
/// A packet that waited longer than this, in nanoseconds, was stamped before the wall clock was set.
const LONGEST_WAIT_NS: i128 = 10 * NS_PER_S;
/// The wall clock was set where it has moved by more than this against [`clock`], in nanoseconds; less is drift.
const SET_BY_NS: u64 = 1_000_000;

/// The wall clock less [`clock`] when it was last set, and when that was noticed, both in nanoseconds.
static WALL_CLOCK: WallClock = WallClock { ahead_ns: AtomicI64::new(i64::MIN), since_ns: AtomicU64::new(0) };

/// Has the kernel stamp the packets of a socket from now on, or no longer; a kernel that cannot is not asked again.
pub(crate) fn set_stamping(socket: &OwnedFd, on: bool) {
    let value = libc::c_int::from(on);
    let length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel reads one `int`; what it does not know is an error.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, (&raw const value).cast(), length)
    };
    if result != 0 {
        tracing::debug!("this kernel does not stamp received packets");
    }
}

/// Receives without waiting; and when the last packet came, in nanoseconds of [`clock`], if the kernel says so.
///
/// # Errors
/// As recvmsg(2).
pub(crate) fn receive_stamped(socket: &OwnedFd, parts: &mut [IoSliceMut<'_>]) -> Result<(usize, Option<u64>), Errno> {
    let mut control = Control { bytes: [MaybeUninit::uninit(); CONTROL_BYTES] };
    // SAFETY: a message header of zeroes is one without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr().cast(); // IoSliceMut is an `iovec` (its documentation)
    message.msg_iovlen = parts.len();
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = CONTROL_BYTES;
    // SAFETY: all that the header points at lives until the call has returned, and may be written.
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

/// The stamp among the control messages of a receive.
fn stamp_of(message: &libc::msghdr) -> Option<libc::timespec> {
    // SAFETY: the kernel has filled in the header, whose control messages lie in memory that lives.
    let header = unsafe { libc::CMSG_FIRSTHDR(message).as_ref() }?;
    if (header.cmsg_level, header.cmsg_type) != (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
        return None;
    }
    // SAFETY: a control message of this kind carries a `timespec`, aligned or not.
    Some(unsafe { libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned() })
}

/// A time of the wall clock as one of [`clock`], by the difference of both now.
fn monotonic_ns(stamp: &libc::timespec) -> Option<u64> {
    let (real_ns, now_ns) = (clock::real_ns(), clock::now_ns());
    let stamp_ns = i128::from(stamp.tv_sec) * NS_PER_S + i128::from(stamp.tv_nsec);
    WALL_CLOCK.arrival_ns(stamp_ns, i128::from(real_ns), now_ns)
}

/// What is known of the wall clock. A stamp from before it was set says nothing of how long a packet waited.
struct WallClock {
    ahead_ns: AtomicI64,
    since_ns: AtomicU64,
}

impl WallClock {
    /// When a packet came, in nanoseconds of [`clock`]; `None` where the wall clock was set since.
    fn arrival_ns(&self, stamp_ns: i128, real_ns: i128, now_ns: u64) -> Option<u64> {
        let ahead_ns = (real_ns - i128::from(now_ns)) as i64;
        if ahead_ns.abs_diff(self.ahead_ns.load(Acquire)) > SET_BY_NS {
            self.since_ns.store(now_ns, Relaxed); // whoever sees the new clock sees this too
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
    fn a_packet_that_waits_was_there_before() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let receiver = OwnedFd::from(listener.accept().unwrap().0);
        set_stamping(&receiver, true);
        let mut buffer = [0; 16];
        // The kernel begins to stamp some time after it was asked first.
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
        panic!("this kernel stamps no packets");
    }

    #[test]
    fn a_wall_clock_that_was_set_gives_no_time() {
        const S: u64 = 1_000_000_000;
        let clock = WallClock { ahead_ns: AtomicI64::new(0), since_ns: AtomicU64::new(0) };
        let arrival = |stamp_ns: u64, real_ns: u64, now_ns| clock.arrival_ns(stamp_ns.into(), real_ns.into(), now_ns);
        assert_eq!(arrival(S, S + 500, S + 500), Some(S));
        assert_eq!(arrival(S + 600, S + 500, S + 500), None, "set back");
        assert_eq!(arrival(S, 2 * S, 2 * S), Some(S), "a packet that waited a second");
        // Set forward by 3 s at 2 s: packets that came before have no known arrival time, those that come later have.
        assert_eq!(arrival(2 * S - 7, 5 * S, 2 * S), None);
        assert_eq!(arrival(2 * S - 7, 5 * S + 10, 2 * S + 10), None, "of another socket");
        assert_eq!(arrival(5 * S + 20, 5 * S + 30, 2 * S + 30), Some(2 * S + 20));
        assert_eq!(arrival(0, 30 * S, 27 * S), None, "longer than any packet waits");
    }
}
