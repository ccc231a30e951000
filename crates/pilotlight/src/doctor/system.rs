//! System calls without a library wrapper: features of io_uring, interrupt coalescing of a network interface, and the
//! power states of an NVMe drive. All are read-only.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;

use pilotlight_drive::{Controller, Drive as _, IDENTIFY_BYTES};
use rustix::io_uring::{IoringSetupFlags, io_uring_params, io_uring_setup};

use super::facts::{Coalescing, Ring};

/// Features of io_uring that the kernel accepts.
///
/// # Errors
/// If it accepts none; the reason.
pub(super) fn ring() -> anyhow::Result<Ring> {
    set_up(IoringSetupFlags::empty())?;
    let accepts = |flags| set_up(flags).is_ok();
    Ok(Ring {
        coop_taskrun: accepts(IoringSetupFlags::COOP_TASKRUN),
        single_issuer: accepts(IoringSetupFlags::SINGLE_ISSUER),
        defer_taskrun: accepts(IoringSetupFlags::SINGLE_ISSUER | IoringSetupFlags::DEFER_TASKRUN),
    })
}

fn set_up(flags: IoringSetupFlags) -> io::Result<OwnedFd> {
    let mut params = io_uring_params::default();
    params.flags = flags;
    // SAFETY: ATTACH_WQ is not among the flags, so `wq_fd` is ignored.
    Ok(unsafe { io_uring_setup(2, &mut params) }?)
}

/// ETHTOOL_GCOALESCE (`linux/ethtool.h`).
const GET_COALESCING: u32 = 0x0000_000e;

/// `struct ethtool_coalesce` (`linux/ethtool.h`): the command, then 22 numbers.
#[repr(C)]
#[derive(Default)]
struct EthtoolCoalesce {
    command: u32,
    rx_us: u32,
    rx_frames: u32,
    /// With interrupts disabled, of transmission, of statistics.
    between: [u32; 7],
    adaptive_rx: u32,
    rest: [u32; 12],
}

const _: () = assert!(size_of::<EthtoolCoalesce>() == 23 * 4);

/// Interrupt coalescing of an interface; `None` if the driver does not report it.
pub(super) fn coalescing(interface: &str) -> Option<Coalescing> {
    let name = interface.as_bytes();
    // SAFETY: `ifreq` is plain data, and all zeroes are a valid one.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return None;
    }
    request.ifr_name.iter_mut().zip(name).for_each(|(to, &from)| *to = from as libc::c_char);
    let mut found = EthtoolCoalesce { command: GET_COALESCING, ..EthtoolCoalesce::default() };
    request.ifr_ifru.ifru_data = (&raw mut found).cast();
    let socket = rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None).ok()?;
    // SAFETY: SIOCETHTOOL takes an `ifreq` whose data point to a structure of the command's kind; both outlive the call,
    // and for this command the kernel writes no more than that structure.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    (result == 0).then_some(Coalescing {
        rx_us: found.rx_us,
        rx_frames: found.rx_frames,
        adaptive: found.adaptive_rx != 0,
    })
}

/// Identify data of the drive at the character device `path`; `None` without permission.
pub(super) fn identify(path: &str) -> Option<Box<[u8; IDENTIFY_BYTES]>> {
    Controller::open(Path::new(path)).ok()?.identify().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_uring_answers_or_says_why_not() {
        match ring() {
            Ok(ring) => assert!(ring.single_issuer || !ring.defer_taskrun, "the one takes the other: {ring:?}"),
            Err(why) => assert!(!why.to_string().is_empty()),
        }
    }

    #[test]
    fn other_files_yield_no_interface_and_no_drive() {
        assert_eq!(coalescing("no-such-if"), None);
        assert_eq!(coalescing("a-name-that-is-longer-than-the-kernel-takes"), None);
        assert!(identify("/dev/null").is_none() && identify("/dev/no-such-nvme").is_none());
    }
}
