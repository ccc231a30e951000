//! Anonymous memory mappings.
//!
//! A [`Mapping`] reads as zeroes until it is written. It returns raw addresses only; `buffer.rs` and `backend/mem.rs`
//! guarantee exclusive access.
//!
//! Mappings contain hosts' data, so they are excluded from core dumps, and from children, whose copy-on-write could replace
//! pages during a device transfer.

use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Bytes populated by one system call, which blocks mapping and unmapping (and so allocation) by other threads.
const POPULATED_AT_ONCE: usize = 2 << 20;

/// The size of a transparent huge page.
const HUGE_PAGE: usize = 2 << 20;

/// The system's page size. By the C library: rustix reads the auxiliary vector, which valgrind does not map.
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

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives only the address.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves `len` bytes (rounded up to whole pages) without accessing them. From 2 MiB on the start is aligned for huge
    /// pages; see [`Mapping::use_huge_pages_within`].
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
        // SAFETY: the kernel chooses an unused address.
        let address = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags)
        }?;
        let base = NonNull::new(address.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Self { base, len };
        mapping.advise(0..len, Advice::LinuxDontFork);
        mapping.advise(0..len, Advice::LinuxDontDump);
        Ok(mapping)
    }

    /// Unmaps all but `len` bytes that start at a multiple of `align`.
    fn trim(mut self, align: usize, len: usize) -> Self {
        let head = self.base.as_ptr().align_offset(align);
        let tail = self.len - head - len;
        // SAFETY: `head + len` is within the mapping, which is `align` longer than `len`.
        let (start, end) = unsafe { (self.base.add(head), self.base.add(head + len)) };
        // SAFETY: both pieces belong to this mapping and are unused.
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

    /// Enables huge pages that are completely within the first `len` bytes, and disables them beyond. They reduce TLB misses,
    /// and memory becomes resident 2 MiB at a time. They are disabled explicitly because the system's setting may be `always`.
    pub(crate) fn use_huge_pages_within(&self, len: usize) {
        let whole = len.min(self.len) / HUGE_PAGE * HUGE_PAGE;
        self.advise(0..whole, Advice::LinuxHugepage);
        self.advise(whole..self.len, Advice::LinuxNoHugepage);
    }

    /// Makes a range of whole pages resident without changing its content. Before Linux 5.14 this has no effect: pages become
    /// resident when they are first written.
    ///
    /// # Errors
    /// If there is not enough memory. A part may be resident then.
    pub(crate) fn populate(&self, offset: usize, len: usize) -> io::Result<()> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "outside of the mapping");
        for at in (offset..offset + len).step_by(POPULATED_AT_ONCE) {
            let len = POPULATED_AT_ONCE.min(offset + len - at);
            // SAFETY: the range is in this mapping, and its content does not change.
            match unsafe { rustix::mm::madvise(self.base.add(at).as_ptr().cast(), len, Advice::LinuxPopulateWrite) } {
                Err(Errno::INVAL) => return Ok(()),
                result => result?,
            }
        }
        Ok(())
    }

    /// Returns the pages of a range to the kernel; they read as zeroes afterwards.
    ///
    /// # Errors
    /// If the range is not of whole system pages (16 or 64 KiB on some Arm systems): `madvise` would round its end up. If the
    /// kernel refuses.
    ///
    /// # Safety
    /// There is no concurrent access to the range, and no reference into it.
    pub(crate) unsafe fn discard(&self, offset: usize, len: usize) -> io::Result<()> {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len), "outside of the mapping");
        if !is_whole_pages(offset, len, page_size()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the range is in this mapping, and the caller has exclusive access.
        unsafe { rustix::mm::madvise(self.base.add(offset).as_ptr().cast(), len, Advice::LinuxDontNeed) }?;
        Ok(())
    }

    /// Leaves the memory mapped until the process ends, because it may still be in use.
    pub(crate) fn leak(self) {
        let _ = std::mem::ManuallyDrop::new(self);
    }

    /// Resident part of the first `len` bytes.
    #[cfg(test)]
    pub(crate) fn resident_bytes(&self, len: usize) -> usize {
        let mut pages = vec![0_u8; len.min(self.len).div_ceil(4096)];
        // SAFETY: the range is mapped, and the vector has a byte for each of its pages.
        let result = unsafe { libc::mincore(self.base.as_ptr().cast(), len.min(self.len), pages.as_mut_ptr()) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        pages.iter().filter(|&&page| page & 1 == 1).count() * 4096
    }

    /// Advises the kernel about a range. Unknown advice is ignored.
    fn advise(&self, bytes: Range<usize>, advice: Advice) {
        if bytes.is_empty() {
            return;
        }
        debug_assert!(bytes.end <= self.len, "outside of the mapping");
        // SAFETY: the range is in this mapping, and the advice does not change its content.
        let _ = unsafe { rustix::mm::madvise(self.base.add(bytes.start).as_ptr().cast(), bytes.len(), advice) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping; users that have handed out addresses leak it while they are in use.
        unsafe { unmap(self.base, self.len) };
    }
}

/// Whether a range of a mapping consists of whole pages.
fn is_whole_pages(offset: usize, len: usize, page: usize) -> bool {
    offset.is_multiple_of(page) && len.is_multiple_of(page)
}

/// # Safety
/// The caller owns the range, and it is not used afterwards.
unsafe fn unmap(base: NonNull<u8>, len: usize) {
    if len == 0 {
        return;
    }
    // SAFETY: by the contract of this function.
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
        // SAFETY: inside of the mapping, without other users.
        unsafe {
            assert_eq!(mapping.base().add(last).read(), 0);
            mapping.base().add(last).write(7);
            mapping.discard(2 * HUGE_PAGE, HUGE_PAGE).expect("discard");
            assert_eq!(mapping.base().add(last).read(), 0);
        }
    }

    #[test]
    fn partial_system_pages_are_not_discarded() {
        assert!(is_whole_pages(8192, 4096, 4096) && is_whole_pages(65536, 131_072, 65536));
        assert!(!is_whole_pages(65536, 4096, 65536), "madvise would round this up to 64 KiB");
        assert!(!is_whole_pages(4096, 65536, 65536));
        let mapping = Mapping::anonymous(2 * page_size()).expect("memory");
        // SAFETY: the mapping has no other users.
        let refused = unsafe { mapping.discard(0, page_size() - 512) };
        assert_eq!(refused.expect_err("half a page").kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    #[should_panic(expected = "outside of the mapping")]
    fn discarding_beyond_the_end_is_refused() {
        let mapping = Mapping::anonymous(8192).expect("memory");
        // SAFETY: the mapping has no other users.
        let _ = unsafe { mapping.discard(4096, 8192) };
    }
}
