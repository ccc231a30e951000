//! One request and its response through the kernel's IPMI device (`linux/ipmi.h`, drivers `ipmi_devintf` and `ipmi_si`).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// `_IOR('i', 13, struct ipmi_req)`.
const SEND_COMMAND: u32 = 0x8028_690d;
/// `_IOWR('i', 11, struct ipmi_recv)`.
const RECEIVE_TRUNCATED: u32 = 0xc030_690b;
/// IPMI_SYSTEM_INTERFACE_ADDR_TYPE and IPMI_BMC_CHANNEL.
const SYSTEM_INTERFACE: i32 = 0x0c;
const BMC_CHANNEL: i16 = 0x0f;

/// `struct ipmi_system_interface_addr`.
#[repr(C)]
struct Address {
    kind: i32,
    channel: i16,
    lun: u8,
}

/// `struct ipmi_msg`.
#[repr(C)]
struct Message {
    netfn: u8,
    command: u8,
    length: u16,
    data: *mut u8,
}

/// `struct ipmi_req`.
#[repr(C)]
struct Request {
    address: *mut Address,
    address_length: u32,
    id: libc::c_long,
    message: Message,
}

/// `struct ipmi_recv`.
#[repr(C)]
struct Received {
    kind: i32,
    address: *mut Address,
    address_length: u32,
    id: libc::c_long,
    message: Message,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Request>() == 0x28 && size_of::<Received>() == 0x30);

/// The device of a BMC.
#[derive(Debug)]
pub(crate) struct Bmc {
    device: File,
    next: libc::c_long,
}

impl Bmc {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let device = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Self { device, next: 1 })
    }

    /// Sends a command and waits for its response, whose first byte is the completion code.
    pub(crate) fn request(&mut self, netfn: u8, command: u8, data: &[u8], timeout: Duration) -> io::Result<Vec<u8>> {
        let id = self.next;
        self.next += 1;
        self.send(id, netfn, command, data)?;
        let until = Instant::now() + timeout;
        loop {
            // Responses to requests that timed out are skipped.
            if !super::wait(&self.device, until)? {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the BMC timed out"));
            }
            let (response_id, response) = self.receive()?;
            if response_id == id {
                return Ok(response);
            }
        }
    }

    fn send(&self, id: libc::c_long, netfn: u8, command: u8, data: &[u8]) -> io::Result<()> {
        let mut address = Address { kind: SYSTEM_INTERFACE, channel: BMC_CHANNEL, lun: 0 };
        let mut data = data.to_vec();
        let message = Message { netfn, command, length: data.len() as u16, data: data.as_mut_ptr() };
        let mut request =
            Request { address: &raw mut address, address_length: size_of::<Address>() as u32, id, message };
        // SAFETY: the request, its address and its data outlive the call, which only reads them.
        let status = unsafe { libc::ioctl(self.device.as_raw_fd(), SEND_COMMAND as _, &raw mut request) };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn receive(&self) -> io::Result<(libc::c_long, Vec<u8>)> {
        let mut address = Address { kind: 0, channel: 0, lun: 0 };
        let mut data = vec![0_u8; 64];
        let message = Message { netfn: 0, command: 0, length: data.len() as u16, data: data.as_mut_ptr() };
        let mut received = Received {
            kind: 0,
            address: &raw mut address,
            address_length: size_of::<Address>() as u32,
            id: 0,
            message,
        };
        // SAFETY: the kernel writes at most `address_length` and `length` bytes to what outlives the call.
        let status = unsafe { libc::ioctl(self.device.as_raw_fd(), RECEIVE_TRUNCATED as _, &raw mut received) };
        if status != 0 {
            return Err(io::Error::last_os_error());
        }
        data.truncate(received.message.length.into());
        Ok((received.id, data))
    }
}
