//! Anonymous memory straight from the kernel: the one place where it is mapped and unmapped.
//!
//! A [`Mapping`] is address space that reads as zeroes until it is written. It hands out raw addresses only; whoever
//! turns them into references answers for who may touch what (see `buffer.rs` and `backend/mem.rs`).
//!
//! Hosts' data lies here, so a mapping is left out of core dumps, and out of children, whose copy-on-write would
//! otherwise take pages away from under a transfer of the device.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Bytes that one system call makes resident: meanwhile no other thread can map or unmap memory, which reactors do when they
/// allocate.
const POPULATED_AT_ONCE: usize = 2 << 20;

/// The size of a transparent huge page on the machines that have them.
const HUGE_PAGE: usize = 2 << 20;

/// Bytes of a page of the system. By the C library: rustix reads the kernel's auxiliary vector, whose addresses valgrind has not mapped.
fn page_size() -> usize {
    // SAFETY: the call has no preconditions.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

/// Anonymous, private, zeroed memory; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; this type only names it.
unsafe impl Send for Mapping {}
// SAFETY: through a shared reference there is nothing but the address to be had.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves `len` bytes (rounded up to whole pages of the system), without touching them. From 2 MiB on the start is aligned so
    /// that the kernel can back it with huge pages; see [`Mapping::use_huge_pages_within`].
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        if len < HUGE_PAGE {
            return Self::map(len);
        }
        let len = len.checked_next_multiple_of(page_size()).ok_or(io::ErrorKind::InvalidInput)?;
        let wide = Self::map(len.checked_add(HUGE_PAGE).ok_or(io::ErrorKind::InvalidInput)?)?;
        Ok(wide.trim(HUGE_PAGE, len))
    }

    fn map(len: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses an address that nothing else uses.
        let address = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags)
        }?;
        let base = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Self { base, len };
        mapping.advise(0..len, Advice::LinuxDontFork);
        mapping.advise(0..len, Advice::LinuxDontDump);
        Ok(mapping)
    }

    /// Gives back all but `len` bytes that start at a multiple of `align`.
    fn trim(mut self, align: usize, len: usize) -> Self {
        let head = self.base.as_ptr().align_offset(align);
        let tail = self.len - head - len;
        // SAFETY: `head + len` lies within the mapping, as it is `align` longer than `len`.
        let (start, end) = unsafe { (self.base.add(head), self.base.add(head + len)) };
        // SAFETY: both pieces belong to this mapping, and nobody has been told of them.
        unsafe {
            unmap(self.base, head);
            unmap(end, tail);
        }
        (self.base, self.len) = (start, len);
        self
    }

    /// The first byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes mapped.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Asks for huge pages as far as they lie whole within the first `len` bytes, and refuses them behind. They reduce TLB
    /// misses, and memory becomes resident 2 MiB at a time; without the refusal it would as well where the system's setting
    /// for transparent huge pages is `always`.
    pub(crate) fn use_huge_pages_within(&self, len: usize) {
        let whole = len.min(self.len) / HUGE_PAGE * HUGE_PAGE;
        self.advise(0..whole, Advice::LinuxHugepage);
        self.advise(whole..self.len, Advice::LinuxNoHugepage);
    }

    /// Makes a range (of whole pages) resident, without changing what it holds. Before Linux 5.14 this does nothing, and
    /// pages become resident when they are first written.
    ///
    /// # Errors
    /// Where the system does not have that much memory. A part may be resident then.
    pub(crate) fn populate(&self, offset: usize, len: usize) -> io::Result<()> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "outside of the mapping");
        for at in (offset..offset + len).step_by(POPULATED_AT_ONCE) {
            let len = POPULATED_AT_ONCE.min(offset + len - at);
            // SAFETY: the range lies in this mapping, and what it holds does not change.
            match unsafe { rustix::mm::madvise(self.base.add(at).as_ptr().cast(), len, Advice::LinuxPopulateWrite) } {
                Err(Errno::INVAL) => return Ok(()),
                result => result?,
            }
        }
        Ok(())
    }

    /// Gives the pages of a range back to the kernel; they read as zeroes from then on.
    ///
    /// # Errors
    /// Where the range is not of whole pages of the system (16 or 64 KiB on some Arm systems): `madvise` would round its end up and
    /// discard what lies behind. Where the kernel refuses.
    ///
    /// # Safety
    /// Nobody else accesses the range while this runs, and no reference into it is alive.
    pub(crate) unsafe fn discard(&self, offset: usize, len: usize) -> io::Result<()> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "outside of the mapping");
        if !is_whole_pages(offset, len, page_size()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the range lies in this mapping, and the caller has it to himself.
        unsafe { rustix::mm::madvise(self.base.add(offset).as_ptr().cast(), len, Advice::LinuxDontNeed) }?;
        Ok(())
    }

    /// Leaves the memory mapped until the process ends: for when somebody may still use it.
    pub(crate) fn leak(self) {
        let _ = std::mem::ManuallyDrop::new(self);
    }

    /// How much of the first `len` bytes is in memory.
    #[cfg(test)]
    pub(crate) fn resident_bytes(&self, len: usize) -> usize {
        let mut pages = vec![0_u8; len.min(self.len).div_ceil(4096)];
        // SAFETY: the range is mapped, and the vector has a byte for each of its pages.
        let result = unsafe { libc::mincore(self.base.as_ptr().cast(), len.min(self.len), pages.as_mut_ptr()) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        pages.iter().filter(|&&page| page & 1 == 1).count() * 4096
    }

    /// Advises the kernel about a range. A kernel that does not know the advice ignores it.
    fn advise(&self, bytes: Range<usize>, advice: Advice) {
        if bytes.is_empty() {
            return;
        }
        debug_assert!(bytes.end <= self.len, "outside of the mapping");
        // SAFETY: the range lies in this mapping, and none of the advice used here changes what the memory holds.
        let _ = unsafe { rustix::mm::madvise(self.base.add(bytes.start).as_ptr().cast(), bytes.len(), advice) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own; what handed out addresses leaks it while they are in use.
        unsafe { unmap(self.base, self.len) };
    }
}

/// Whether a range of a mapping, which begins with a page, consists of whole pages.
fn is_whole_pages(offset: usize, len: usize, page: usize) -> bool {
    offset.is_multiple_of(page) && len.is_multiple_of(page)
}

/// # Safety
/// The range belongs to the caller, and nobody uses it afterwards.
unsafe fn unmap(base: NonNull<u8>, len: usize) {
    if len == 0 {
        return;
    }
    // SAFETY: as the caller promises.
    let _ = unsafe { rustix::mm::munmap(base.as_ptr().cast(), len) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_mappings_are_aligned_and_zeroed_and_can_be_discarded() {
        let mapping = Mapping::anonymous(3 * HUGE_PAGE).expect("memory");
        assert_eq!(mapping.base().as_ptr().align_offset(HUGE_PAGE), 0);
        assert_eq!(mapping.len(), 3 * HUGE_PAGE);
        let last = mapping.len() - 1;
        // SAFETY: inside of the mapping, which nobody else knows.
        unsafe {
            assert_eq!(mapping.base().add(last).read(), 0);
            mapping.base().add(last).write(7);
            mapping.discard(2 * HUGE_PAGE, HUGE_PAGE).expect("discard");
            assert_eq!(mapping.base().add(last).read(), 0);
        }
    }

    #[test]
    fn part_of_a_page_of_the_system_is_not_discarded() {
        assert!(is_whole_pages(8192, 4096, 4096) && is_whole_pages(65536, 131_072, 65536));
        assert!(!is_whole_pages(65536, 4096, 65536), "madvise would round this up to 64 KiB");
        assert!(!is_whole_pages(4096, 65536, 65536));
        let mapping = Mapping::anonymous(2 * page_size()).expect("memory");
        // SAFETY: nobody else knows of the mapping.
        let refused = unsafe { mapping.discard(0, page_size() - 512) };
        assert_eq!(refused.expect_err("half a page").kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    #[should_panic(expected = "outside of the mapping")]
    fn discarding_beyond_the_end_is_refused() {
        let mapping = Mapping::anonymous(8192).expect("memory");
        // SAFETY: nobody else knows the mapping.
        let _ = unsafe { mapping.discard(4096, 8192) };
    }
}
