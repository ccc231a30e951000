//! The system calls that no library wraps: what io_uring accepts, interrupt coalescing of a network interface, and the
//! power states of an NVMe drive. Nothing is changed by any of them.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::io_uring::{IoringSetupFlags, io_uring_params, io_uring_setup};

use super::facts::{Coalescing, Ring};

/// Which ways of io_uring the kernel accepts.
///
/// # Errors
/// Why it accepts none.
pub(super) fn ring() -> Result<Ring, String> {
    set_up(IoringSetupFlags::empty()).map_err(|error| error.to_string())?;
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
    // SAFETY: ATTACH_WQ is not among the flags, so `wq_fd` is not looked at.
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
    /// While interrupts are off, transmission, statistics.
    between: [u32; 7],
    adaptive_rx: u32,
    rest: [u32; 12],
}

const _: () = assert!(size_of::<EthtoolCoalesce>() == 23 * 4);

/// When an interface interrupts for packets that have come; `None` where the driver does not say.
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

/// Identify (Base 5.1.13), and which structure: of the controller.
const IDENTIFY: u8 = 0x06;
const CNS_CONTROLLER: u32 = 1;
/// Bytes of the structure that Identify returns.
pub(super) const IDENTIFY_BYTES: usize = 4096;
/// `_IOWR('N', 0x41, struct nvme_passthru_cmd)` (`linux/nvme_ioctl.h`).
const NVME_IOCTL_ADMIN_CMD: u32 = 0xc048_4e41;

/// `struct nvme_passthru_cmd` (`linux/nvme_ioctl.h`).
#[repr(C)]
#[derive(Default)]
struct AdminCommand {
    opcode: u8,
    flags: u8,
    reserved: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    address: u64,
    metadata_len: u32,
    data_len: u32,
    cdw10: u32,
    cdw11_to_15: [u32; 5],
    timeout_ms: u32,
    result: u32,
}

const _: () = assert!(size_of::<AdminCommand>() == 72);

/// What the drive with the character device `path` says of itself; `None` where that is not allowed.
pub(super) fn identify(path: &str) -> Option<Box<[u8; IDENTIFY_BYTES]>> {
    let device = OpenOptions::new().read(true).open(path).ok()?;
    let mut data = Box::new([0_u8; IDENTIFY_BYTES]);
    let mut command = AdminCommand {
        opcode: IDENTIFY,
        address: data.as_mut_ptr() as u64,
        data_len: IDENTIFY_BYTES as u32,
        cdw10: CNS_CONTROLLER,
        ..AdminCommand::default()
    };
    // SAFETY: the command reads at most `data_len` bytes into `data`, which is as long and outlives the call.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), NVME_IOCTL_ADMIN_CMD as _, &raw mut command) };
    (result == 0).then_some(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_uring_answers_or_says_why_not() {
        match ring() {
            Ok(ring) => assert!(ring.single_issuer || !ring.defer_taskrun, "the one takes the other: {ring:?}"),
            Err(why) => assert!(!why.is_empty()),
        }
    }

    #[test]
    fn what_is_no_interface_or_no_drive_says_nothing() {
        assert_eq!(coalescing("no-such-if"), None);
        assert_eq!(coalescing("a-name-that-is-longer-than-the-kernel-takes"), None);
        assert!(identify("/dev/null").is_none() && identify("/dev/no-such-nvme").is_none());
    }
}
