//! What is read: a block device or a file, opened for reading only and past the page cache.

use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};

use rustix::fs::{AtFlags, StatxFlags, ioctl_blksszget, statx};

use crate::{Error, MAX_BYTES, Spec};

/// Where reads of one size can be.
#[derive(Debug)]
pub(crate) struct Place {
    /// Read from.
    pub(crate) file: File,
    /// Where the first of them begins.
    pub(crate) offset: u64,
    /// How many of them there are, one after the other.
    pub(crate) slots: u64,
    /// Bytes from the first one's begin on.
    pub(crate) size: u64,
    /// What a reader of the figures has to know.
    pub(crate) warnings: Vec<String>,
}

impl Place {
    /// Opens it.
    ///
    /// # Errors
    /// It is neither, cannot be read directly, or not in reads of that size.
    pub(crate) fn open(spec: &Spec) -> Result<Self, Error> {
        let failed = |error: &std::io::Error| Error::open(&spec.path, error);
        // Looked at first: to open other things than disks and files may wait, or do something.
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
        let hole = "the file has holes: what is read of them never was on the drive; write it whole first";
        let warnings = if has_holes { vec![hole.to_owned()] } else { Vec::new() };
        Ok(Self { file, offset: spec.offset, slots: size / spec.bytes, size, warnings })
    }
}

/// What reads of a file must be a multiple of, where the kernel says so (Linux 6.1).
fn unit_of(file: &File) -> Option<u64> {
    let told = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let has = told.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    has.then_some(u64::from(told.stx_dio_offset_align)).filter(|unit| *unit > 0)
}

fn check(spec: &Spec, unit: Option<u64>) -> Result<(), Error> {
    let asked = |why: String| Err(Error::Asked(why));
    if spec.bytes == 0 || spec.bytes > MAX_BYTES {
        return asked(format!("a read of {} bytes: it takes 1 to {MAX_BYTES}", spec.bytes));
    }
    let unit = unit.unwrap_or(512);
    for (what, bytes) in [("size of a read", spec.bytes), ("offset", spec.offset)] {
        if !bytes.is_multiple_of(unit) {
            let path = spec.path.display();
            return asked(format!(
                "the {what}, {bytes} bytes, is no multiple of the logical block size of {path}: {unit}"
            ));
        }
    }
    Ok(())
}

/// How many bytes from the offset on are read.
fn range(spec: &Spec, bytes: u64) -> Result<u64, Error> {
    let there = bytes.saturating_sub(spec.offset);
    let size = spec.size.unwrap_or(there);
    if size > there {
        let path = spec.path.display();
        return Err(Error::Asked(format!("{path} has {there} bytes from {} on, fewer than {size}", spec.offset)));
    }
    if size < spec.bytes {
        return Err(Error::Asked(format!("{size} bytes of {} are no read of {}", spec.path.display(), spec.bytes)));
    }
    Ok(size)
}
