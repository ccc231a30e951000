//! What sensors and actuators both need of this machine: where the kernel's files are ([`Roots`]), and admin commands to an NVMe
//! drive, through the kernel's character device of its controller (`/dev/nvme0`): Identify, Get Log Page, Get Features and Set
//! Features.
//!
//! [`Drive`] is what a drive answers, so that tests can stand in for one; [`Controller`] is a real one. What the answers mean
//! is for those who ask: sensors read, actuators set, `doctor` lists.

mod roots;
mod sys;

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

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

/// A drive that answers admin commands.
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

    /// Get Features, the current value; what does not fit Dword 0 of the completion comes into `data`.
    ///
    /// # Errors
    /// The kernel or the drive refuses.
    fn feature(&mut self, id: u8, data: &mut [u8]) -> io::Result<u32>;

    /// Set Features with this Command Dword 11 and these data; not saved across a reset of the controller.
    ///
    /// # Errors
    /// The kernel or the drive refuses.
    fn set_feature(&mut self, id: u8, value: u32, data: &[u8]) -> io::Result<()>;
}

/// A controller of this machine.
#[derive(Debug)]
pub struct Controller(File);

impl Controller {
    /// The controller with this character device, to be asked.
    ///
    /// # Errors
    /// As of opening the file.
    pub fn open(path: &Path) -> io::Result<Self> {
        File::open(path).map(Self)
    }

    /// The same, to be asked and set: newer kernels take data for a drive only through a file that is open for writing.
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
        let dwords = (data.len() / 4).saturating_sub(1) as u32;
        let cdw10 = u32::from(id) | dwords << 16;
        let command = AdminCommand { opcode: GET_LOG_PAGE, nsid: ALL_NAMESPACES, cdw10, ..AdminCommand::default() };
        sys::receive(&self.0, command, data).map(drop)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_drive_is_an_error() {
        assert!(Controller::open(Path::new("/dev/no-such-nvme")).is_err());
        let mut null = Controller::open(Path::new("/dev/null")).unwrap();
        assert!(null.identify().is_err() && null.feature(2, &mut []).is_err());
        assert!(null.log_page(2, &mut [0; 512]).is_err() && null.set_feature(2, 1, &[]).is_err());
    }
}
