//! The region to read: a block device or a file, opened read-only with direct I/O.

use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};

use rustix::fs::{AtFlags, StatxFlags, ioctl_blksszget, statx};

use crate::reader::{Error, MAX_BYTES, Spec};

/// The region of a device or file.
#[derive(Debug)]
pub(crate) struct Place {
    /// The open device or file.
    pub(crate) file: File,
    /// Offset of the first read.
    pub(crate) offset: u64,
    /// Number of adjacent reads.
    pub(crate) slots: u64,
    /// Size of the region in bytes.
    pub(crate) size: u64,
    /// Warnings about the results.
    pub(crate) warnings: Vec<String>,
}

impl Place {
    /// Opens it.
    ///
    /// # Errors
    /// It is neither a block device nor a file, or does not support direct reads of that size.
    pub(crate) fn open(spec: &Spec) -> Result<Self, Error> {
        let failed = |error: &std::io::Error| Error::open(&spec.path, error);
        // Checked before opening, which can block or have effects for other types.
        let data = std::fs::metadata(&spec.path).map_err(|error| failed(&error))?;
        let kind = data.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            let why = "neither a block device nor a file".to_owned();
            return Err(Error::Open { path: spec.path.clone(), why });
        }
        let mut file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECT)
            .open(&spec.path)
            .map_err(|error| failed(&error))?;
        let bytes = file.seek(SeekFrom::End(0)).map_err(|error| failed(&error))?;
        let unit = if kind.is_block_device() { ioctl_blksszget(&file).ok().map(u64::from) } else { unit_of(&file) };
        check(spec, unit)?;
        let size = range(spec, bytes)?;
        let has_holes = kind.is_file() && data.blocks() * 512 < bytes;
        let hole = "the file has holes, and reads of holes do not reach the drive; write the file completely first";
        let warnings = if has_holes { vec![hole.to_owned()] } else { Vec::new() };
        Ok(Self { file, offset: spec.offset, slots: size / spec.bytes, size, warnings })
    }
}

/// Alignment of direct reads of a file, if the kernel reports it (Linux 6.1).
fn unit_of(file: &File) -> Option<u64> {
    let stat = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let has = stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    has.then_some(u64::from(stat.stx_dio_offset_align)).filter(|unit| *unit > 0)
}

fn check(spec: &Spec, unit: Option<u64>) -> Result<(), Error> {
    let settings = |why: String| Err(Error::Invalid(why));
    if spec.bytes == 0 || spec.bytes > MAX_BYTES {
        return settings(format!("invalid size of a read {}; use 1 to {MAX_BYTES}", spec.bytes));
    }
    let unit = unit.unwrap_or(512);
    for (what, bytes) in [("size of a read", spec.bytes), ("offset", spec.offset)] {
        if !bytes.is_multiple_of(unit) {
            let path = spec.path.display();
            return settings(format!(
                "the {what}, {bytes} bytes, is not a multiple of the logical block size of {path}: {unit}"
            ));
        }
    }
    Ok(())
}

/// Size of the region from the offset on.
fn range(spec: &Spec, bytes: u64) -> Result<u64, Error> {
    let available = bytes.saturating_sub(spec.offset);
    let size = spec.size.unwrap_or(available);
    if size > available {
        let path = spec.path.display();
        return Err(Error::Invalid(format!("{path} has {available} bytes from {} on, fewer than {size}", spec.offset)));
    }
    if size < spec.bytes {
        return Err(Error::Invalid(format!(
            "{size} bytes of {} are less than one read of {}",
            spec.path.display(),
            spec.bytes
        )));
    }
    Ok(size)
}
