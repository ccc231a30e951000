//! Access to this machine for sensors and actuators: paths of the kernel's files ([`Roots`], [`Cgroups`]), and NVMe admin commands through
//! the controller's character device (`/dev/nvme0`): Identify, Get Log Page, Get Features and Set Features.
//!
//! [`Drive`] is a trait, so that tests can simulate a drive; [`Controller`] implements it. Callers interpret the data.

mod cgroups;
mod roots;
mod sys;

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

pub use cgroups::{Cgroups, cpusets_v1};
pub use roots::Roots;
use sys::AdminCommand;

/// Bytes of the structure that Identify Controller returns.
pub const IDENTIFY_BYTES: usize = 4096;

/// Opcodes of the admin command set (NVMe Base 2.1, Figure 143).
const GET_LOG_PAGE: u8 = 0x02;
const IDENTIFY: u8 = 0x06;
const SET_FEATURES: u8 = 0x09;
const GET_FEATURES: u8 = 0x0a;
/// Identify: the structure of the controller.
const CNS_CONTROLLER: u32 = 1;
const ALL_NAMESPACES: u32 = u32::MAX;

/// Admin commands of a drive.
pub trait Drive: Send {
    /// Identify Controller.
    ///
    /// # Errors
    /// The kernel or the drive refuses.
    fn identify(&mut self) -> io::Result<Box<[u8; IDENTIFY_BYTES]>>;

    /// Get Log Page; `data` is a multiple of four bytes.
    ///
    /// # Errors
    /// The kernel or the drive refuses.
    fn log_page(&mut self, id: u8, data: &mut [u8]) -> io::Result<()>;

    /// Get Features, current value: returns Dword 0 of the completion; other data is written to `data`.
    ///
    /// # Errors
    /// The kernel or the drive refuses.
    fn feature(&mut self, id: u8, data: &mut [u8]) -> io::Result<u32>;

    /// Set Features with this Command Dword 11 and data; not saved across a controller reset.
    ///
    /// # Errors
    /// The kernel or the drive refuses.
    fn set_feature(&mut self, id: u8, value: u32, data: &[u8]) -> io::Result<()>;
}

/// A controller of this machine.
#[derive(Debug)]
pub struct Controller(File);

impl Controller {
    /// Opens the controller with this character device for reading commands.
    ///
    /// # Errors
    /// As of opening the file.
    pub fn open(path: &Path) -> io::Result<Self> {
        File::open(path).map(Self)
    }

    /// Opens it for reading and writing commands: newer kernels send data to a drive only through a file opened for writing.
    ///
    /// # Errors
    /// As of opening the file.
    pub fn open_to_set(path: &Path) -> io::Result<Self> {
        OpenOptions::new().read(true).write(true).open(path).map(Self)
    }
}

impl Drive for Controller {
    fn identify(&mut self) -> io::Result<Box<[u8; IDENTIFY_BYTES]>> {
        let mut data = Box::new([0; IDENTIFY_BYTES]);
        let command = AdminCommand { opcode: IDENTIFY, cdw10: CNS_CONTROLLER, ..AdminCommand::default() };
        sys::receive(&self.0, command, &mut data[..])?;
        Ok(data)
    }

    fn log_page(&mut self, id: u8, data: &mut [u8]) -> io::Result<()> {
        sys::receive(&self.0, get_log_page(id, data.len()), data).map(drop)
    }

    fn feature(&mut self, id: u8, data: &mut [u8]) -> io::Result<u32> {
        let command = AdminCommand { opcode: GET_FEATURES, cdw10: id.into(), ..AdminCommand::default() };
        sys::receive(&self.0, command, data)
    }

    fn set_feature(&mut self, id: u8, value: u32, data: &[u8]) -> io::Result<()> {
        let command = AdminCommand { opcode: SET_FEATURES, cdw10: id.into(), cdw11: value, ..AdminCommand::default() };
        sys::send(&self.0, command, data).map(drop)
    }
}

/// The length is a zeroes-based number of dwords (NVMe Base 2.1, 5.1.12).
fn get_log_page(id: u8, bytes: usize) -> AdminCommand {
    let dwords = (bytes / 4).saturating_sub(1) as u32;
    let cdw10 = u32::from(id) | dwords << 16;
    AdminCommand { opcode: GET_LOG_PAGE, nsid: ALL_NAMESPACES, cdw10, ..AdminCommand::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_log_page_is_in_dwords() {
        // As nvme-cli sends it for the SMART log: 512 bytes of log page 02h.
        let command = get_log_page(0x02, 512);
        assert_eq!((command.opcode, command.nsid, command.cdw10), (0x02, 0xffff_ffff, 0x007f_0002));
        assert_eq!(get_log_page(0x25, 64).cdw10, 0x000f_0025);
    }

    #[test]
    fn the_opcode_determines_the_direction_of_data() {
        let null = File::open("/dev/null").unwrap();
        let (to_host, to_drive) =
            (get_log_page(2, 8), AdminCommand { opcode: SET_FEATURES, ..AdminCommand::default() });
        let kind = |result: io::Result<u32>| result.unwrap_err().kind();
        assert_eq!(kind(sys::send(&null, to_host, &[0; 8])), io::ErrorKind::InvalidInput);
        assert_eq!(kind(sys::receive(&null, to_drive, &mut [0; 8])), io::ErrorKind::InvalidInput);
        assert_ne!(kind(sys::receive(&null, get_log_page(2, 8), &mut [0; 8])), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn other_files_are_errors() {
        assert!(Controller::open(Path::new("/dev/no-such-nvme")).is_err());
        let mut null = Controller::open(Path::new("/dev/null")).unwrap();
        assert!(null.identify().is_err() && null.feature(2, &mut []).is_err());
        assert!(null.log_page(2, &mut [0; 512]).is_err() && null.set_feature(2, 1, &[]).is_err());
    }
}
