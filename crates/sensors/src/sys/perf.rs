//! `perf_event_open(2)` for counters of a PMU that count for a whole CPU package.

use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, RawFd};

/// `struct perf_event_attr` in its first published size (`linux/perf_event.h`).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    config1: u64,
}

/// PERF_ATTR_SIZE_VER0.
const SIZE: u32 = 64;
const _: () = assert!(size_of::<Attributes>() == SIZE as usize);
/// PERF_FLAG_FD_CLOEXEC.
const CLOSE_ON_EXEC: libc::c_ulong = 8;

/// The counter `config` of the PMU with number `kind`, as CPU `cpu` sees it. Reading gives eight bytes: the count.
///
/// # Errors
/// As of the system call.
pub(crate) fn open(kind: u32, config: u64, cpu: u32) -> io::Result<File> {
    let attributes = Attributes { kind, size: SIZE, config, ..Attributes::default() };
    let (any_process, no_group): (libc::pid_t, libc::c_int) = (-1, -1);
    // SAFETY: the kernel reads `size` bytes at `attributes`, which are there; it returns a new descriptor or -1.
    let result = unsafe {
        let cpu = cpu as libc::c_int;
        libc::syscall(libc::SYS_perf_event_open, &raw const attributes, any_process, cpu, no_group, CLOSE_ON_EXEC)
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { File::from_raw_fd(result as RawFd) })
}
