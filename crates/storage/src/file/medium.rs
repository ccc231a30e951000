//! An open file or device: its blocking operations, and the state that requests share.

use std::fs::File;
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::super::aio;
use super::super::guard::{Hold, PageGuards};
use super::super::{Geometry, IoError, MemoryBudget, Op, check_geometry};
use super::sync::{Moment, Syncs};

/// Words of the guard table: enough that requests in flight rarely collide.
pub(super) const GUARD_WORDS: u64 = 1 << 20;
/// Time limit of a shrinking file for requests beyond its new end.
const SHRINK_TIMEOUT: Duration = Duration::from_secs(5);

/// How reads and writes access the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessMethod {
    /// Linux AIO.
    Aio,
    /// System calls by the thread pool.
    Threads,
}

/// The operation behind deallocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deallocation {
    /// `fallocate` with `PUNCH_HOLE`: zeroes.
    Punch,
    /// `BLKDISCARD`: later reads return undefined data.
    Discard,
    /// Nothing.
    Nothing,
}

/// Guarded units per slice of zeroing, and of a deallocation's parts beside larger slices.
const SLICE_UNITS: u64 = 2048;
/// Bytes of a larger slice of a deallocation, which takes about as long: file systems free extents. Those can be small, and writes to the file
/// wait in the kernel until a slice is freed.
const DEALLOCATED: u64 = 64 << 20;
/// Size of a huge page of tmpfs, of which a part is freed by clearing it.
const HUGE_PAGE: u64 = 2 << 20;

/// Properties found when the file was opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traits {
    pub(super) method: AccessMethod,
    /// AIO requests carry `RWF_NOWAIT`.
    pub(super) nowait: bool,
    pub(super) block_device: bool,
    pub(super) block_size: u32,
    /// Alignment of O_DIRECT transfers in bytes.
    pub(super) unit: usize,
    pub(super) volatile_write_cache: bool,
    /// The device executes writes with Force Unit Access itself: AIO requests it, and no sync follows.
    pub(super) force_unit_access: bool,
    /// Each write is a sync as well (`mount -o sync`, `chattr +S`).
    pub(super) synchronous: bool,
    pub(super) deallocation: Deallocation,
    /// A device that cannot be written.
    pub(super) is_read_only: bool,
}

/// An open file or device.
#[derive(Debug)]
pub(super) struct Medium {
    file: File,
    traits: Traits,
    blocks: AtomicU64,
    guards: PageGuards,
    /// Bytes per guard word.
    guarded: u64,
    /// Whether `ZERO_RANGE` and `PUNCH_HOLE` may be supported.
    zeroes_range: AtomicBool,
    punches: AtomicBool,
    syncs: Syncs,
    budget: Arc<MemoryBudget>,
    /// The system has refused the AIO context of a channel.
    limited: AtomicBool,
    #[cfg(test)]
    pub(super) faults: super::faults::Faults,
}

impl Medium {
    /// Memory of channels and their contexts is charged to `budget`.
    pub(super) fn new(file: File, traits: Traits, budget: Arc<MemoryBudget>) -> io::Result<Self> {
        let medium = Self {
            file,
            blocks: AtomicU64::new(0),
            guards: PageGuards::new(GUARD_WORDS)?,
            guarded: u64::from(traits.block_size),
            zeroes_range: AtomicBool::new(true),
            punches: AtomicBool::new(traits.deallocation == Deallocation::Punch),
            syncs: Syncs::new(),
            budget,
            limited: AtomicBool::new(false),
            #[cfg(test)]
            faults: super::faults::Faults::default(),
            traits,
        };
        medium.blocks.store(medium.measure()?, Ordering::Release);
        Ok(medium)
    }

    pub(super) fn geometry(&self) -> Geometry {
        Geometry {
            block_size: self.traits.block_size,
            blocks: self.blocks(),
            volatile_write_cache: self.traits.volatile_write_cache,
            deallocated_reads_zero: self.traits.deallocation == Deallocation::Punch,
            is_read_only: self.traits.is_read_only,
        }
    }

    pub(super) fn method(&self) -> AccessMethod {
        self.traits.method
    }

    /// Options of a channel's AIO context, if the medium has one. Only `io_submit` to block devices never waits.
    pub(super) fn aio(&self, depth: u32) -> Option<aio::Options> {
        let options = aio::Options { depth, nowait: self.traits.nowait, by_threads: !self.traits.block_device };
        (self.traits.method == AccessMethod::Aio).then_some(options)
    }

    pub(super) fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// Notes, and logs the first time, that the system has refused the AIO context of a channel.
    pub(super) fn note_limited(&self, error: &io::Error) {
        if !self.limited.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "no more asynchronous requests for files ({error}): threads serve some I/O threads; {}",
                aio_remedy(error)
            );
        }
    }

    /// Whether channels do without AIO because the system has refused their contexts.
    pub(super) fn is_limited(&self) -> bool {
        self.limited.load(Ordering::Relaxed)
    }

    /// Whether AIO passes Force Unit Access to the device.
    pub(super) fn forces_unit_access(&self) -> bool {
        self.traits.volatile_write_cache && self.traits.force_unit_access
    }

    /// Whether a write with Force Unit Access that AIO has completed needs a sync.
    pub(super) fn syncs_forced_writes(&self) -> bool {
        self.traits.volatile_write_cache && !self.traits.force_unit_access
    }

    pub(super) fn deallocation(&self) -> Deallocation {
        self.traits.deallocation
    }

    pub(super) fn block_size(&self) -> usize {
        self.traits.block_size as usize
    }

    pub(super) fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Acquire)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Current size in bytes.
    pub(super) fn bytes(&self) -> io::Result<u64> {
        // Works for devices, too. The position is not used.
        (&self.file).seek(SeekFrom::End(0))
    }

    /// Current size in whole blocks.
    fn measure(&self) -> io::Result<u64> {
        Ok(self.bytes()? / u64::from(self.traits.block_size))
    }

    pub(super) fn allocated_bytes(&self) -> io::Result<u64> {
        if self.traits.block_device {
            return self.bytes();
        }
        Ok(self.file.metadata()?.blocks() * 512)
    }

    // Exclusion.

    /// Tries to hold the blocks of a range. The end is checked under the hold, because shrinking sets the end before it takes
    /// the holds.
    pub(super) fn try_hold(&self, bytes: &Range<u64>, exclusive: bool) -> Option<Result<Hold, IoError>> {
        let units = bytes.start / self.guarded..bytes.end.div_ceil(self.guarded);
        let hold = if exclusive { self.guards.try_exclusive(units) } else { self.guards.try_shared(units) }?;
        if bytes.end > self.blocks() * u64::from(self.traits.block_size) {
            self.guards.release(hold);
            return Some(Err(IoError::OutOfRange));
        }
        Some(Ok(hold))
    }

    pub(super) fn release(&self, hold: Hold) {
        self.guards.release(hold);
    }

    /// The first slice of a range to zero or to deallocate, and what is held of it. Of a larger slice of a deallocation that is the last block,
    /// for which a shrinking file waits: whole pages of files and blocks of devices are freed as a whole, so each block of it reads as before
    /// or as zeroes.
    pub(super) fn slice(&self, bytes: &Range<u64>, deallocates: bool) -> (Range<u64>, Range<u64>) {
        let up_to = |multiple: u64| (bytes.start / multiple + 1) * multiple;
        let small = SLICE_UNITS * self.guarded;
        let slice = bytes.start..up_to(small).min(bytes.end);
        let whole = small.next_multiple_of(HUGE_PAGE);
        let end = (bytes.end / whole * whole).min(up_to(DEALLOCATED));
        let frees_blocks = !self.traits.block_device || self.traits.unit == self.traits.block_size as usize;
        if deallocates && frees_blocks && bytes.start.is_multiple_of(whole) && end > slice.end {
            return (bytes.start..end, end - self.block_size() as u64..end);
        }
        (slice.clone(), slice)
    }

    // Size.

    pub(super) fn follow_size(&self) -> io::Result<()> {
        let blocks = self.measure()?;
        check_geometry(self.traits.block_size, blocks)?;
        self.blocks.store(blocks, Ordering::Release);
        Ok(())
    }

    pub(super) fn set_blocks(&self, blocks: u64) -> io::Result<()> {
        check_geometry(self.traits.block_size, blocks)?;
        let before = self.blocks();
        if blocks == before {
            return Ok(());
        }
        if self.traits.block_device {
            let message = "a block device cannot be resized here: resize the device itself, then repeat the command without a size";
            return Err(io::Error::new(ErrorKind::Unsupported, message));
        }
        let block_size = u64::from(self.traits.block_size);
        if blocks > before {
            self.file.set_len(blocks * block_size)?;
            self.blocks.store(blocks, Ordering::Release);
            return Ok(());
        }
        self.blocks.store(blocks, Ordering::Release);
        let cut = self.wait_for_requests(blocks * block_size..before * block_size);
        cut.and_then(|()| self.file.set_len(blocks * block_size)).inspect_err(|_| {
            self.blocks.store(before, Ordering::Release);
        })
    }

    /// Waits for requests that took their hold before the end was set.
    fn wait_for_requests(&self, bytes: Range<u64>) -> io::Result<()> {
        let started = Instant::now();
        let first = bytes.start / self.guarded;
        // `GUARD_WORDS` consecutive units cover every word.
        let last = bytes.end.div_ceil(self.guarded).min(first + GUARD_WORDS);
        for unit in first..last {
            loop {
                if let Some(hold) = self.guards.try_exclusive(unit..unit + 1) {
                    self.guards.release(hold);
                    break;
                }
                if started.elapsed() > SHRINK_TIMEOUT {
                    let message = "requests beyond the new end did not complete: try again when there is less load";
                    return Err(io::Error::new(ErrorKind::TimedOut, message));
                }
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        Ok(())
    }

    // Blocking operations.

    /// Reads all of `data`, or fails.
    pub(super) fn read(&self, offset: u64, data: &mut [u8]) -> Result<(), IoError> {
        let mut done = 0;
        while done < data.len() {
            match self.file.read_at(&mut data[done..], offset + done as u64) {
                // The file ends here.
                Ok(count) => done += self.progress(done + count == data.len(), count).ok_or(IoError::OutOfRange)?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(classify(&error)),
            }
        }
        Ok(())
    }

    /// Writes all of `data`, or fails; `durable` adds a sync.
    pub(super) fn write(&self, offset: u64, data: &[u8], durable: bool) -> Result<(), IoError> {
        let mut done = 0;
        while done < data.len() {
            match self.write_some(offset + done as u64, &data[done..]) {
                Ok(0) => return Err(IoError::NoSpace),
                Ok(count) => {
                    let whole = self.progress(done + count == data.len(), count);
                    done += whole.ok_or(IoError::Medium(libc::EIO))?;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed_write(&error)),
            }
        }
        if durable { self.sync(self.syncs.now()) } else { Ok(()) }
    }

    fn write_some(&self, offset: u64, data: &[u8]) -> io::Result<usize> {
        #[cfg(test)]
        self.faults.of_write().map_err(io::Error::from_raw_os_error)?;
        self.file.write_at(data, offset)
    }

    /// The host's error for the error number of a read or write.
    pub(super) fn failed_transfer(&self, op: Op, number: i32) -> IoError {
        let error = io::Error::from_raw_os_error(number);
        if op == Op::Read { classify(&error) } else { self.failed_write(&error) }
    }

    /// The host's error for a failed write; remembered if the write may have been a failed sync.
    fn failed_write(&self, error: &io::Error) -> IoError {
        let result = classify(error);
        if let (true, IoError::Medium(number)) = (self.traits.synchronous, result)
            && number != libc::EINVAL
        {
            self.syncs.remember(number);
        }
        result
    }

    /// Usable bytes of a partial transfer: a multiple of the unit. `None` if there are none.
    fn progress(&self, complete: bool, count: usize) -> Option<usize> {
        let whole = if complete { count } else { count / self.traits.unit * self.traits.unit };
        (whole > 0).then_some(whole)
    }

    /// The moment to pass to [`Medium::sync`] or [`Medium::flush`] for all writes up to now.
    pub(super) fn now(&self) -> Moment {
        self.syncs.now()
    }

    /// Waits until all writes before `since` that were not lost earlier are on the medium.
    pub(super) fn sync(&self, since: Moment) -> Result<(), IoError> {
        if !self.traits.volatile_write_cache {
            return Ok(());
        }
        self.syncs.run(since, || self.sync_data()).map_err(IoError::Medium)
    }

    /// As [`Medium::sync`], but fails if any earlier sync failed.
    pub(super) fn flush(&self, since: Moment) -> Result<(), IoError> {
        self.sync(since)?;
        self.syncs.first_failure().map_err(IoError::Medium)
    }

    fn sync_data(&self) -> Result<(), i32> {
        #[cfg(test)]
        self.faults.of_sync()?;
        rustix::io::retry_on_intr(|| rustix::fs::fdatasync(&self.file)).map_err(Errno::raw_os_error)
    }

    /// Drops clean pages of a range from the page cache. Direct reads bypass it anyway.
    pub(super) fn drop_cache(&self, bytes: Range<u64>) {
        let len = std::num::NonZeroU64::new(bytes.end - bytes.start);
        let _ = rustix::fs::fadvise(&self.file, bytes.start, len, rustix::fs::Advice::DontNeed);
    }

    /// Makes a range zero.
    pub(super) fn zero(&self, bytes: &Range<u64>, deallocate: bool) -> Result<(), IoError> {
        if deallocate && self.fallocate(&self.punches, FallocateFlags::PUNCH_HOLE, bytes)? {
            return Ok(());
        }
        if self.fallocate(&self.zeroes_range, FallocateFlags::ZERO_RANGE, bytes)? {
            return Ok(());
        }
        self.write_zeroes(bytes)
    }

    fn write_zeroes(&self, bytes: &Range<u64>) -> Result<(), IoError> {
        let mut offset = bytes.start;
        while offset < bytes.end {
            let len = (bytes.end - offset).min(ZEROES.0.len() as u64);
            self.write(offset, &ZEROES.0[..len as usize], false)?;
            offset += len;
        }
        Ok(())
    }

    /// Frees the space of a range; with `keep` only if it cannot read as zeroes without that.
    pub(super) fn deallocate(&self, bytes: &Range<u64>, keep: bool) -> Result<(), IoError> {
        // a block device may write zeroes for ZERO_RANGE, and reports success
        if keep && !self.traits.block_device && self.fallocate(&self.zeroes_range, FallocateFlags::ZERO_RANGE, bytes)? {
            return Ok(());
        }
        match self.traits.deallocation {
            Deallocation::Punch => self.punch(bytes),
            Deallocation::Discard => match discard(&self.file, bytes) {
                Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
                Err(error) => Err(classify(&error.into())),
            },
            Deallocation::Nothing => Ok(()),
        }
    }

    /// Frees a range that then reads as zeroes. If the medium has ceased to support that, it fails: writing the zeroes would
    /// take long, and success would promise zeroes.
    fn punch(&self, bytes: &Range<u64>) -> Result<(), IoError> {
        let freed = self.fallocate(&self.punches, FallocateFlags::PUNCH_HOLE, bytes)?;
        if freed { Ok(()) } else { Err(IoError::Unsupported) }
    }

    /// Returns `false` if the file system does not support the mode, which is then not tried again.
    fn fallocate(&self, supported: &AtomicBool, mode: FallocateFlags, bytes: &Range<u64>) -> Result<bool, IoError> {
        if !supported.load(Ordering::Relaxed) {
            return Ok(false);
        }
        match rustix::io::retry_on_intr(|| self.fallocate_once(mode, bytes)) {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                supported.store(false, Ordering::Relaxed);
                Ok(false)
            }
            Err(error) => Err(classify(&error.into())),
        }
    }

    fn fallocate_once(&self, mode: FallocateFlags, bytes: &Range<u64>) -> rustix::io::Result<()> {
        #[cfg(test)]
        self.faults.of_fallocate().map_err(Errno::from_raw_os_error)?;
        let mode = mode | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&self.file, mode, bytes.start, bytes.end - bytes.start)
    }
}

/// Source of zeroes, aligned for O_DIRECT.
#[repr(align(4096))]
struct Zeroes([u8; 128 << 10]);
static ZEROES: Zeroes = Zeroes([0; 128 << 10]);

/// `BLKDISCARD`.
fn discard(file: &File, bytes: &Range<u64>) -> rustix::io::Result<()> {
    const BLKDISCARD: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 119);
    // SAFETY: the kernel reads two 64-bit numbers, offset and length.
    unsafe {
        let range = rustix::ioctl::Setter::<BLKDISCARD, [u64; 2]>::new([bytes.start, bytes.end - bytes.start]);
        rustix::ioctl::ioctl(file, range)
    }
}

/// What to do about a refused AIO context.
pub(super) fn aio_remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOSYS | libc::EPERM) => {
            "there is no AIO here: use a kernel with CONFIG_AIO, or allow io_setup, io_submit, io_getevents and io_destroy in the container"
        }
        _ => "raise fs.aio-max-nr (sysctl -w fs.aio-max-nr=1048576) or max_memory, and restart",
    }
}

/// The host's error for a system error.
pub(super) fn classify(error: &io::Error) -> IoError {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => IoError::NoSpace,
        Some(libc::EROFS | libc::EPERM) => IoError::ReadOnly,
        Some(libc::EOPNOTSUPP) => IoError::Unsupported,
        number => IoError::Medium(number.unwrap_or(libc::EIO)),
    }
}
