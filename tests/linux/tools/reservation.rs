//! Persistent reservations by the ioctls of `linux/pr.h`, as fence agents and databases make them.

use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;

/// `_IOW('p', number, size)`.
const fn iow(number: u64, size: u64) -> u64 {
    1 << 30 | size << 16 | (b'p' as u64) << 8 | number
}

const REGISTER: u64 = iow(200, 24);
const RESERVE: u64 = iow(201, 16);
const RELEASE: u64 = iow(202, 16);
const PREEMPT: u64 = iow(203, 24);
const PREEMPT_ABORT: u64 = iow(204, 24);
const CLEAR: u64 = iow(205, 16);

unsafe extern "C" {
    fn ioctl(fd: i32, request: u64, argument: *const u64) -> i32;
}

/// The command of these words: its name, and its keys and type, in the order of the structure. Types are numbered as in `enum pr_type`.
pub fn run(device: &str, words: &[&str]) -> Result<()> {
    let [name, numbers @ ..] = words else { return Err(Error::other("no command")) };
    let numbers = numbers.iter().map(|word| word.parse()).collect::<std::result::Result<Vec<u64>, _>>();
    let numbers = numbers.map_err(|error| Error::other(format!("{words:?}: {error}")))?;
    let (request, argument) = match (*name, numbers.as_slice()) {
        ("register", &[old, new]) => (REGISTER, [old, new, 0]),
        ("reserve", &[key, kind]) => (RESERVE, [key, kind, 0]),
        ("release", &[key, kind]) => (RELEASE, [key, kind, 0]),
        ("preempt", &[own, other, kind]) => (PREEMPT, [own, other, kind]),
        ("preempt-abort", &[own, other, kind]) => (PREEMPT_ABORT, [own, other, kind]),
        ("clear", &[key]) => (CLEAR, [key, 0, 0]),
        _ => return Err(Error::other(format!("{words:?}: register OLD NEW, reserve KEY TYPE, release KEY TYPE, preempt OWN OTHER TYPE, preempt-abort OWN OTHER TYPE, clear KEY"))),
    };
    let file = File::options().read(true).write(true).open(device)?;
    // SAFETY: the kernel reads at most 24 bytes; type and flags are two 32-bit fields, of which the flags are 0 on little-endian.
    match unsafe { ioctl(file.as_raw_fd(), request, argument.as_ptr()) } {
        0 => Ok(()),
        status if status < 0 => Err(Error::last_os_error()),
        status => Err(Error::other(format!("enum pr_status {status:#x}"))), // 0x18: reservation conflict
    }
}
