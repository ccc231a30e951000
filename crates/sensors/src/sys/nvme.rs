//! Admin commands through the character device of an NVMe controller (`linux/nvme_ioctl.h`). Only such as read.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// `_IOWR('N', 0x41, struct nvme_passthru_cmd)`.
const NVME_IOCTL_ADMIN_CMD: u32 = 0xc048_4e41;
/// Opcodes of the admin command set (NVMe Base 2.1, Figure 143).
const GET_LOG_PAGE: u8 = 0x02;
const IDENTIFY: u8 = 0x06;
const GET_FEATURES: u8 = 0x0a;
/// Identify: the structure of the controller.
const CNS_CONTROLLER: u32 = 1;
const ALL_NAMESPACES: u32 = u32::MAX;
const TIMEOUT_MS: u32 = 2_000;

/// `struct nvme_passthru_cmd`.
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

/// A controller that is asked.
#[derive(Debug)]
pub(crate) struct Controller(File);

impl Controller {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        File::open(path).map(Self)
    }

    /// Sends a command whose data, if any, come into `data`. Gives Dword 0 of the completion.
    fn send(&self, mut command: AdminCommand, data: &mut [u8]) -> io::Result<u32> {
        command.address = data.as_mut_ptr() as u64;
        command.data_len = data.len() as u32;
        command.timeout_ms = TIMEOUT_MS;
        // SAFETY: the three commands that are sent write at most `data_len` bytes to `data`, which outlives the call.
        let status = unsafe { libc::ioctl(self.0.as_raw_fd(), NVME_IOCTL_ADMIN_CMD as _, &raw mut command) };
        match status {
            0 => Ok(command.result),
            status if status < 0 => Err(io::Error::last_os_error()),
            status => Err(io::Error::other(format!("the drive answered with NVMe status {status:#x}"))),
        }
    }
}

impl crate::nvme::Admin for Controller {
    fn log_page(&mut self, id: u8, data: &mut [u8]) -> io::Result<()> {
        let dwords = (data.len() / 4 - 1) as u32;
        let cdw10 = u32::from(id) | (dwords << 16);
        let command = AdminCommand { opcode: GET_LOG_PAGE, nsid: ALL_NAMESPACES, cdw10, ..AdminCommand::default() };
        self.send(command, data).map(drop)
    }

    fn feature(&mut self, id: u8) -> io::Result<u32> {
        self.send(AdminCommand { opcode: GET_FEATURES, cdw10: id.into(), ..AdminCommand::default() }, &mut [])
    }

    fn identify(&mut self, data: &mut [u8; 4096]) -> io::Result<()> {
        self.send(AdminCommand { opcode: IDENTIFY, cdw10: CNS_CONTROLLER, ..AdminCommand::default() }, data).map(drop)
    }
}
