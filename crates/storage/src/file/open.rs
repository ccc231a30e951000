//! Opens a file or device exclusively and detects its capabilities.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, ErrorKind, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Advice, AtFlags, FallocateFlags, IFlags, OFlags, StatVfsMountFlags, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};

use super::FileOptions;
use super::medium::{AccessMethod, Deallocation, Medium, Traits};
use super::queue::{executes_force_unit_access, is_read_only, queue_attribute};
use crate::MemoryBudget;
use crate::buffer::{BufferPool, MIN_BUFFER};
use crate::opener::{FileOpener, Opened};

/// Why a file or device cannot be opened, with a remedy.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It does not exist.
    #[error("{}: no such {}", path.display(), what_is_missing(path))]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// Another program holds the lock.
    #[error("{path}: locked by another program, probably another pilotlight: stop that one first", path = path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The device is in use.
    #[error("{path}: the device is in use (mounted, part of a RAID or volume group, or served by another program): release it first", path = path.display())]
    InUse {
        /// The device.
        path: PathBuf,
    },
    /// A directory, a terminal, ...
    #[error("{path}: neither a regular file nor a block device", path = path.display())]
    NotStorage {
        /// The path.
        path: PathBuf,
    },
    /// Less than one block.
    #[error("{}: less than one block of {block_size} bytes; {}", path.display(), size_remedy(path, "10G"))]
    Empty {
        /// The file or device.
        path: PathBuf,
        /// Logical block size in bytes.
        block_size: u32,
    },
    /// It does not have the requested size.
    #[error("{}: the size is {found} bytes, but size= is {wanted}; omit size=, or {}", path.display(), size_remedy(path, wanted))]
    OtherSize {
        /// The file or device.
        path: PathBuf,
        /// Its size in bytes.
        found: u64,
        /// The requested value.
        wanted: u64,
    },
    /// The blocks are smaller than the medium's.
    #[error("{path}: the medium's block size is {unit} bytes: set the namespace's block size to 4096", path = path.display())]
    Unit {
        /// The file or device.
        path: PathBuf,
        /// The medium's unit in bytes.
        unit: u32,
    },
    /// The block size is not one that a namespace can have.
    #[error("unsupported block size of {block_size} bytes: use 512 or 4096")]
    BlockSize {
        /// The requested value.
        block_size: u32,
    },
    /// Data written earlier may be lost.
    #[error("{path}: data in the page cache could not be written to the medium, and may be lost ({source}): check the medium and its data, then restart", path = path.display())]
    Unsynced {
        /// The file or device.
        path: PathBuf,
        /// The system's error.
        r#source: io::Error,
    },
    /// Anything else.
    #[error("{path}: {source}", path = path.display())]
    System {
        /// The file or device.
        path: PathBuf,
        /// The system's error.
        r#source: io::Error,
    },
}

/// Whether a path names a device, so that no file is created there: it is in `/dev`, except for its file systems in memory.
#[must_use]
pub fn names_device(path: &Path) -> bool {
    path.starts_with("/dev") && !["/dev/shm", "/dev/hugepages"].iter().any(|files| path.starts_with(files))
}

/// What to do about a device that is missing.
pub const MISSING_DEVICE: &str = "`lsblk` lists devices; names in /dev/disk/by-id stay the same after a restart";

fn what_is_missing(path: &Path) -> String {
    if names_device(path) {
        return format!("device; {MISSING_DEVICE}");
    }
    let path = path.display();
    format!("file; create it with: truncate -s 10G {path}, or give a size: file:{path}?size=10GiB")
}

/// What to do about a file or device that does not have this size.
#[must_use]
pub fn size_remedy(path: &Path, size: impl Display) -> String {
    if names_device(path) {
        "check the device: `lsblk` shows its size".to_owned()
    } else {
        format!("set its size with: truncate -s {size} {}", path.display())
    }
}

/// Capabilities that may be used: all, except in tests of their absence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// O_DIRECT.
    pub(super) direct: bool,
    /// AIO.
    pub(super) aio: bool,
    /// `PUNCH_HOLE` and `BLKDISCARD`.
    pub(super) deallocate: bool,
    /// Treat the medium as a device that executes Force Unit Access itself.
    #[cfg(test)]
    pub(super) force_unit_access: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            direct: true,
            aio: true,
            deallocate: true,
            #[cfg(test)]
            force_unit_access: false,
        }
    }
}

pub(super) fn open(
    options: &FileOptions,
    limits: Limits,
    opener: &dyn FileOpener,
    budget: Arc<MemoryBudget>,
) -> Result<Medium, FileError> {
    if options.block_size != 512 && options.block_size != 4096 {
        return Err(FileError::BlockSize { block_size: options.block_size });
    }
    let path = &options.path;
    let system = |source| FileError::System { path: path.clone(), source };
    let (file, block_device) = open_alone(options, opener)?;
    let traits = Traits {
        block_device,
        block_size: options.block_size,
        method: AccessMethod::Threads,
        nowait: false,
        unit: 1,
        volatile_write_cache: true,
        force_unit_access: false,
        synchronous: !block_device && is_synchronous(&file),
        deallocation: Deallocation::Nothing,
        is_read_only: options.is_read_only
            || block_device && (!is_writable(&file).map_err(system)? || is_read_only(&file)),
    };
    if traits.is_read_only && !options.is_read_only {
        let path = path.display();
        tracing::warn!(
            "{path}: the device is read-only, and so is its namespace: `blockdev --setrw {path}` and a restart change that"
        );
    }
    let traits = find_way(&file, path, traits, limits)?;
    let traits = match traits.is_read_only {
        true => Traits { volatile_write_cache: false, ..traits },
        false => find_deallocation(&file, traits, limits).map_err(system)?,
    };
    let medium = Medium::new(file, traits, budget).map_err(system)?;
    check_size(options, &medium)?;
    Ok(medium)
}

/// Opens the file exclusively, and creates it if requested.
fn open_alone(options: &FileOptions, opener: &dyn FileOpener) -> Result<(File, bool), FileError> {
    let path = &options.path;
    let system = |source| FileError::System { path: path.clone(), source };
    let kind = match opener.file_type(path) {
        Ok(kind) => Some(kind),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(system(error)),
    };
    let block_device = kind.is_some_and(|kind| kind.is_block_device());
    if kind.is_some_and(|kind| !kind.is_file() && !kind.is_block_device()) {
        return Err(FileError::NotStorage { path: path.clone() });
    }
    if kind.is_none() && (options.size.is_none() || names_device(path)) {
        return Err(FileError::Missing { path: path.clone() });
    }
    let opened = match kind {
        None => Opened::NewFile,
        Some(_) => match (block_device, options.is_read_only) {
            (true, true) => Opened::ReadOnlyDevice,
            (true, false) => Opened::Device,
            (false, true) => Opened::ReadOnlyFile,
            (false, false) => Opened::File,
        },
    };
    let file = opener.open(path, opened).map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => FileError::InUse { path: path.clone() },
        _ => system(error),
    })?;
    if !lock(&file).map_err(system)? {
        return Err(FileError::Locked { path: path.clone() });
    }
    if let (None, Some(size)) = (kind, options.size) {
        file.set_len(size).and_then(|()| file.sync_all()).map_err(|error| {
            let _ = std::fs::remove_file(path);
            system(error)
        })?;
    }
    Ok((file, block_device))
}

/// Whether the file was opened for writing.
fn is_writable(file: &File) -> io::Result<bool> {
    Ok(rustix::fs::fcntl_getfl(file)? & OFlags::ACCMODE == OFlags::RDWR)
}

/// Takes a write lock on the whole file for this open file description, or a read lock if it cannot be written. `false` if it is locked
/// already.
fn lock(file: &File) -> io::Result<bool> {
    // SAFETY: zeroes are a valid `flock`: from the start to the end, however long the file gets.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = if is_writable(file)? { libc::F_WRLCK } else { libc::F_RDLCK } as _;
    lock.l_whence = libc::SEEK_SET as _;
    // SAFETY: the kernel reads one `flock`.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}

fn check_size(options: &FileOptions, medium: &Medium) -> Result<(), FileError> {
    let path = options.path.clone();
    let geometry = medium.geometry();
    if geometry.blocks == 0 {
        return Err(FileError::Empty { path, block_size: options.block_size });
    }
    let found = medium.bytes().map_err(|source| FileError::System { path: path.clone(), source })?;
    match options.size {
        Some(wanted) if wanted != found => Err(FileError::OtherSize { path, found, wanted }),
        _ => Ok(()),
    }
}

/// Chooses the access method: see `file.rs`.
fn find_way(file: &File, path: &Path, traits: Traits, limits: Limits) -> Result<Traits, FileError> {
    let system = |source| FileError::System { path: path.to_owned(), source };
    let in_memory = is_tmpfs(file).map_err(system)?;
    if in_memory {
        // No transfer waits for a medium, so that one after the other is soon submitted.
        let method = if limits.aio { AccessMethod::Aio } else { AccessMethod::Threads };
        return Ok(Traits { method, volatile_write_cache: false, ..traits });
    }
    let Some(unit) = direct_unit(file, &traits).filter(|_| limits.direct) else { return Ok(traits) };
    if unit > traits.block_size {
        return Err(FileError::Unit { path: path.to_owned(), unit });
    }
    if set_direct(file, true).is_err() {
        return Ok(traits);
    }
    // Cached pages would make the first direct writes wait.
    let unsynced = |source: Errno| FileError::Unsynced { path: path.to_owned(), source: source.into() };
    rustix::fs::fdatasync(file).map_err(unsynced)?;
    let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
    // Without the page cache, only the device's own cache is volatile.
    let volatile_write_cache = !traits.block_device || queue_attribute(file, "write_cache") != "write through";
    let cached = traits;
    let force_unit_access = traits.block_device && executes_force_unit_access(file);
    #[cfg(test)]
    let force_unit_access = force_unit_access || limits.force_unit_access;
    let traits = Traits { unit: unit as usize, volatile_write_cache, force_unit_access, ..traits };
    match probe_nowait(file, traits.block_size) {
        Ok(true) if limits.aio => Ok(Traits { method: AccessMethod::Aio, nowait: true, ..traits }),
        Ok(_) => Ok(traits),
        Err(Errno::INVAL) if traits.block_size < 4096 => Err(FileError::Unit { path: path.to_owned(), unit: 4096 }),
        Err(Errno::INVAL) => {
            set_direct(file, false).map_err(|error| system(error.into()))?;
            Ok(cached)
        }
        Err(error) => Err(system(error.into())),
    }
}

/// Whether each write to a file is also a sync.
fn is_synchronous(file: &File) -> bool {
    let by_mount = rustix::fs::fstatvfs(file).is_ok_and(|fs| fs.f_flag.contains(StatVfsMountFlags::SYNCHRONOUS));
    by_mount || rustix::fs::ioctl_getflags(file).is_ok_and(|flags| flags.contains(IFlags::SYNC))
}

fn is_tmpfs(file: &File) -> io::Result<bool> {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    let kind = file.metadata()?.file_type();
    // A device node may be on a tmpfs; the device counts.
    Ok(kind.is_file() && [TMPFS, RAMFS].contains(&(rustix::fs::fstatfs(file)?.f_type as u64 & 0xffff_ffff)))
}

/// The unit of direct transfers; `None` if they are unsupported or need buffers of a larger alignment.
fn direct_unit(file: &File, traits: &Traits) -> Option<u32> {
    let statx = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok();
    if let Some(statx) = statx.filter(|statx| statx.stx_mask & StatxFlags::DIOALIGN.bits() != 0) {
        let fits = statx.stx_dio_offset_align > 0 && statx.stx_dio_mem_align as usize <= MIN_BUFFER;
        return fits.then_some(statx.stx_dio_offset_align);
    }
    // Before Linux 6.1: a device has an attribute; a file is probed.
    let logical = if traits.block_device { queue_attribute(file, "logical_block_size").parse().ok() } else { None };
    Some(logical.unwrap_or(512))
}

fn set_direct(file: &File, direct: bool) -> rustix::io::Result<()> {
    let mut flags = rustix::fs::fcntl_getfl(file)?;
    flags.set(OFlags::DIRECT, direct);
    rustix::fs::fcntl_setfl(file, flags)
}

/// Reads the first block directly: whether `RWF_NOWAIT` is supported; `INVAL` if the block is too small.
fn probe_nowait(file: &File, block_size: u32) -> rustix::io::Result<bool> {
    let mut pool = BufferPool::new(MIN_BUFFER).map_err(|_| Errno::NOMEM)?;
    let mut buffer = pool.alloc(block_size as usize).ok_or(Errno::NOMEM)?;
    let mut read = |flags| rustix::io::preadv2(file, &mut [IoSliceMut::new(&mut buffer)], 0, flags).map(drop);
    let nowait = match read(ReadWriteFlags::NOWAIT) {
        Ok(()) | Err(Errno::AGAIN) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        Err(error) => Err(error),
    };
    let result = nowait.and_then(|nowait| read(ReadWriteFlags::empty()).map(|()| nowait));
    pool.free(buffer);
    result
}

fn find_deallocation(file: &File, traits: Traits, limits: Limits) -> io::Result<Traits> {
    if !limits.deallocate {
        return Ok(traits);
    }
    let deallocation = match traits.block_device {
        true => {
            let bytes = |name| queue_attribute(file, name).parse().unwrap_or(0);
            deallocation_of_device(bytes("write_zeroes_max_bytes"), bytes("discard_max_bytes"))
        }
        false if punches(file)? => Deallocation::Punch,
        false => Deallocation::Nothing,
    };
    Ok(Traits { deallocation, ..traits })
}

/// The operation for a block device with these limits. Without discard, a device that zeroes ranges writes the zeroes.
fn deallocation_of_device(write_zeroes_max_bytes: u64, discard_max_bytes: u64) -> Deallocation {
    match (write_zeroes_max_bytes > 0, discard_max_bytes > 0) {
        (true, true) => Deallocation::Punch,
        (false, true) => Deallocation::Discard,
        (_, false) => Deallocation::Nothing,
    }
}

/// Tries to punch a hole beyond the end.
fn punches(file: &File) -> io::Result<bool> {
    let beyond = file.metadata()?.len().next_multiple_of(MIN_BUFFER as u64) + MIN_BUFFER as u64;
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(rustix::fs::fallocate(file, mode, beyond, MIN_BUFFER as u64).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_discard_deallocates_nothing() {
        assert_eq!(deallocation_of_device(1 << 20, 1 << 20), Deallocation::Punch);
        assert_eq!(deallocation_of_device(0, 1 << 20), Deallocation::Discard);
        assert_eq!(deallocation_of_device(1 << 20, 0), Deallocation::Nothing);
        assert_eq!(deallocation_of_device(0, 0), Deallocation::Nothing);
    }
}
