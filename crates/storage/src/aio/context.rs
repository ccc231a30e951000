//! A kernel context of Linux AIO and its control blocks.

use std::cell::UnsafeCell;
use std::ffi::c_long;
use std::io;

/// `struct iocb`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct ControlBlock {
    pub(super) data: u64,
    #[cfg(target_endian = "little")]
    pub(super) key: u32,
    pub(super) flags: u32,
    #[cfg(target_endian = "big")]
    pub(super) key: u32,
    pub(super) opcode: u16,
    pub(super) priority: i16,
    pub(super) descriptor: u32,
    pub(super) address: u64,
    pub(super) len: u64,
    pub(super) offset: i64,
    pub(super) reserved: u64,
    pub(super) notify_flags: u32,
    pub(super) notify_descriptor: u32,
}

const _: () = assert!(size_of::<ControlBlock>() == 64);

/// Control blocks of one `io_submit`.
pub(super) const BATCH: usize = 32;

/// A kernel context, destroyed when dropped; that waits for its requests.
pub(crate) struct Context {
    id: usize,
    blocks: Box<[UnsafeCell<ControlBlock>]>,
}

// SAFETY: the kernel's context belongs to the process. A control block has one user at a time: the owner of the context while
// it is free, the thread that submits it, then the kernel, which has copied it when `io_submit` returns.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// A context for `depth` requests.
    pub(super) fn new(depth: u32) -> io::Result<Self> {
        let mut id = 0_usize;
        // SAFETY: the kernel writes one word to `id`.
        check(unsafe { libc::syscall(libc::SYS_io_setup, c_long::from(depth), &raw mut id) })?;
        let blocks = (0..depth).map(|_| UnsafeCell::default()).collect();
        Ok(Self { id, blocks })
    }

    pub(super) fn id(&self) -> usize {
        self.id
    }

    pub(super) fn depth(&self) -> usize {
        self.blocks.len()
    }

    /// # Safety
    /// The block is free and the caller its only user.
    pub(super) unsafe fn write(&self, at: u32, block: ControlBlock) {
        // SAFETY: by the caller.
        unsafe { self.blocks[at as usize].get().write(block) };
    }

    /// # Safety
    /// The request is complete or was never submitted, and the caller its only user.
    pub(super) unsafe fn read(&self, at: u32) -> ControlBlock {
        // SAFETY: by the caller.
        unsafe { self.blocks[at as usize].get().read() }
    }

    /// The block's number by its address, which the kernel returns with an event.
    pub(super) fn index(&self, address: u64) -> u32 {
        ((address as usize - self.blocks.as_ptr() as usize) / size_of::<ControlBlock>()) as u32
    }

    /// Submits the first of these blocks, as many as the kernel takes at once; returns their number, or the error number for
    /// the first.
    ///
    /// # Safety
    /// The blocks have been written and not been submitted since, and their memory is valid until they complete.
    pub(super) unsafe fn submit(&self, blocks: &[u32]) -> Result<usize, i32> {
        let mut pointers = [std::ptr::null_mut(); BATCH];
        let count = blocks.len().min(BATCH);
        for (pointer, &at) in pointers.iter_mut().zip(blocks) {
            *pointer = self.blocks[at as usize].get();
        }
        // SAFETY: the pointers are to control blocks of this context; the rest by the caller.
        let taken = unsafe { libc::syscall(libc::SYS_io_submit, self.id, count as c_long, pointers.as_ptr()) };
        match check(taken) {
            Ok(taken) => Ok(taken as usize),
            Err(error) => Err(error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context belongs to this value. The call returns when all requests are complete.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.id) };
    }
}

pub(super) fn check(result: c_long) -> io::Result<c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
