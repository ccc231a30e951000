//! The ioctl for admin commands (`linux/nvme_ioctl.h`). All `unsafe` of this crate is here.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `_IOWR('N', 0x41, struct nvme_passthru_cmd)`.
const NVME_IOCTL_ADMIN_CMD: u32 = 0xc048_4e41;
/// The kernel's timeout of admin commands (its parameter nvme_core.admin_timeout, 60 s). After a shorter timeout the kernel would reset the
/// controller during the measurement.
const KERNELS_LIMIT_MS: u32 = 0;

/// `struct nvme_passthru_cmd`. The data pointer and the timeout are set on sending.
#[repr(C)]
#[derive(Default)]
pub(crate) struct AdminCommand {
    pub(crate) opcode: u8,
    pub(crate) flags: u8,
    pub(crate) reserved: u16,
    pub(crate) nsid: u32,
    pub(crate) cdw2: u32,
    pub(crate) cdw3: u32,
    pub(crate) metadata: u64,
    pub(crate) address: u64,
    pub(crate) metadata_len: u32,
    pub(crate) data_len: u32,
    pub(crate) cdw10: u32,
    pub(crate) cdw11: u32,
    pub(crate) cdw12_to_15: [u32; 4],
    pub(crate) timeout_ms: u32,
    pub(crate) result: u32,
}

const _: () = assert!(size_of::<AdminCommand>() == 72);

/// Sends a command that returns data in `data`; returns Dword 0 of the completion. The opcode's lowest two bits are the direction of data
/// (NVMe Base 2.1, 3.3.3.1): a command that sends data is refused.
pub(crate) fn receive(device: &File, mut command: AdminCommand, data: &mut [u8]) -> io::Result<u32> {
    if command.opcode & 3 != 2 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    command.address = data.as_mut_ptr() as u64;
    command.data_len = data.len() as u32;
    command.timeout_ms = KERNELS_LIMIT_MS;
    // SAFETY: data go to the host, at most `data_len` bytes of them to `data`, which is ours alone and outlives the call.
    answer(unsafe { libc::ioctl(device.as_raw_fd(), NVME_IOCTL_ADMIN_CMD as _, &raw mut command) }, &command)
}

/// Sends a command with `data`; returns Dword 0 of the completion. A command that returns data is refused.
pub(crate) fn send(device: &File, mut command: AdminCommand, data: &[u8]) -> io::Result<u32> {
    if command.opcode & 3 != 1 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    command.address = data.as_ptr() as u64;
    command.data_len = data.len() as u32;
    command.timeout_ms = KERNELS_LIMIT_MS;
    // SAFETY: data go to the drive: the kernel reads `data_len` bytes at `data`, which outlive the call, and writes none.
    answer(unsafe { libc::ioctl(device.as_raw_fd(), NVME_IOCTL_ADMIN_CMD as _, &raw mut command) }, &command)
}

fn answer(status: libc::c_int, command: &AdminCommand) -> io::Result<u32> {
    match status {
        0 => Ok(command.result),
        status if status < 0 => Err(io::Error::last_os_error()),
        status => Err(io::Error::other(format!("NVMe status {status:#x}"))),
    }
}
