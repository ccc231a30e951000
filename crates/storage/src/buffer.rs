//! Data buffers: a bounded pool per I/O thread.
//!
//! # The problem
//! 128 queues of 1,024 commands of 128 KiB each would need 16 GiB, so memory for data cannot be reserved per command. Each
//! I/O thread owns one arena of fixed size; while it is exhausted a command waits, and its R2T with it.
//!
//! # Terms
//! The arena consists of *pages* of [`MIN_BUFFER`] bytes; 32 pages make a *chunk* of [`MAX_BUFFER`] bytes. A buffer is a
//! *block* of 2^order pages, order 0 to 5, that starts at a multiple of its size: buddies as in a binary buddy allocator.
//!
//! # The algorithm
//! One 32-bit word per chunk has a bit for each free page. A block is free if all its bits are set, so splitting and
//! merging are implicit: allocation clears the bits of a block, freeing sets them, and two free buddies are a larger free
//! block. Six lists, one per order, hold the chunks by their largest free block. An allocation takes the lowest fitting
//! block of the first chunk of the first list that can serve it: the best fit, and the most recently used chunk. So the
//! pages in use stay few, dense and cached, and large blocks stay free as long as possible. There are no loops over pages
//! or chunks.
//!
//! # The properties
//! - No two live buffers overlap; each lies within one chunk, aligned to its size (hence to 4 KiB, as O_DIRECT wants).
//! - An allocation fails only if no chunk has a free block of its order; with all buffers freed the arena is whole.
//! - After [`BufferPool::new`] the system's allocator is not used.
//! - A lost buffer (dropped, forgotten, or outliving its pool) leaks memory but is never reused: its pages stay allocated,
//!   and a pool dropped with outstanding buffers leaves its arena mapped.
//!
//! # Stale data
//! A buffer is not cleared when it is reused and may hold another host's data, because clearing would cost as much as the
//! copy. Instead a buffer is filled completely: a backend overwrites `blocks * block_size` bytes of a read or reports an
//! error (the conformance suite checks it), after which no byte of the buffer may be sent; and data from the host covers
//! all of a write before it is submitted.

use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::mapping::Mapping;

/// Smallest buffer in bytes; the alignment of all.
pub const MIN_BUFFER: usize = 4096;
/// Largest buffer in bytes: one command's data (MDTS).
pub const MAX_BUFFER: usize = 128 * 1024;
/// Maximum in-capsule data of a command (IOCCSZ), for all transports.
pub const IN_CAPSULE: usize = 8192;

/// Pages in a chunk: the bits of one word.
const CHUNK_PAGES: usize = MAX_BUFFER / MIN_BUFFER;
const _: () = assert!(CHUNK_PAGES == u32::BITS as usize);

/// Orders: blocks of 1, 2, 4, 8, 16 and 32 pages.
const ORDERS: usize = CHUNK_PAGES.ilog2() as usize + 1;

/// "No chunk" in a list.
const NONE: u32 = u32::MAX;

/// The order of a chunk that is in no list, having no page free.
const FULL: u8 = ORDERS as u8;

/// Memory for one command's data, until [`BufferPool::free`].
///
/// It dereferences to the requested number of bytes; they hold stale data until they are filled (see the module). Dropping
/// a buffer panics: its memory would be lost.
pub struct Buffer {
    base: NonNull<u8>,
    len: u32,
    order: u8,
}

// SAFETY: a buffer owns its bytes from `alloc` to `free`, and they are plain memory of the process.
unsafe impl Send for Buffer {}
// SAFETY: through a shared reference the bytes can only be read.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Bytes allocated from the pool: the length rounded up to a power of two of at least [`MIN_BUFFER`].
    pub fn capacity(&self) -> usize {
        MIN_BUFFER << self.order
    }

    /// The first byte, for a device that writes to the buffer while there is no reference into it. The address does not
    /// change when the buffer is moved, and stays mapped if the buffer is lost.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.base.as_ptr()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the block is mapped as long as the buffer exists, initialised (zeroes at first), at least `len` long, and
        // owned by the buffer.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len as usize) }
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and the buffer is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len as usize) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({:?}, {} of {} bytes)", self.base, self.len, self.capacity())
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        assert!(
            std::thread::panicking(),
            "a buffer of {} bytes was dropped, which loses its memory: return it with BufferPool::free",
            self.len
        );
    }
}

/// The free pages of a chunk, and its neighbours in its list.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    /// Bit n: page n is free.
    free: u32,
    previous: u32,
    next: u32,
    /// The list the chunk is in: the order of its largest free block, or [`FULL`] for none.
    list: u8,
}

/// One I/O thread's buffers.
#[derive(Debug)]
pub struct BufferPool {
    /// Taken when the pool is dropped.
    arena: ManuallyDrop<Mapping>,
    chunks: Box<[Chunk]>,
    heads: [u32; ORDERS],
    free_pages: usize,
    pages: usize,
    outstanding: usize,
}

impl BufferPool {
    /// Reserves `bytes` of address space, rounded down to pages of [`MIN_BUFFER`]. Memory is allocated on first use. If the
    /// size is not a multiple of [`MAX_BUFFER`], the last chunk has no block of the largest order.
    ///
    /// # Errors
    /// Less than one page, more than 16 TiB, or no address space.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let pages = bytes / MIN_BUFFER;
        if pages == 0 || pages >= NONE as usize {
            let message = format!("invalid buffer pool of {bytes} bytes: use {MIN_BUFFER} bytes to 16 TiB");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let arena = Mapping::anonymous(pages * MIN_BUFFER)?;
        arena.use_huge_pages_within(arena.len());
        let empty = Chunk { free: 0, previous: NONE, next: NONE, list: FULL };
        let mut pool = Self {
            arena: ManuallyDrop::new(arena),
            chunks: vec![empty; pages.div_ceil(CHUNK_PAGES)].into_boxed_slice(),
            heads: [NONE; ORDERS],
            free_pages: pages,
            pages,
            outstanding: 0,
        };
        for chunk in (0..pool.chunks.len()).rev() {
            let here = (pages - chunk * CHUNK_PAGES).min(CHUNK_PAGES);
            pool.chunks[chunk].free = u32::MAX >> (CHUNK_PAGES - here);
            pool.relist(chunk as u32);
        }
        Ok(pool)
    }

    /// A buffer of `len` bytes, 0 to [`MAX_BUFFER`]; `None` if the pool has no block of that size.
    /// It holds stale data: fill all of it before any of it leaves the process.
    #[inline]
    pub fn alloc(&mut self, len: usize) -> Option<Buffer> {
        if len > MAX_BUFFER {
            return None;
        }
        let order = order_for(len);
        let chunk = self.heads[order..].iter().copied().find(|&head| head != NONE)?;
        let page = free_blocks(self.chunks[chunk as usize].free, order).trailing_zeros();
        self.chunks[chunk as usize].free &= !block_mask(page, order);
        self.relist(chunk);
        self.free_pages -= 1 << order;
        self.outstanding += 1;
        let offset = (chunk as usize * CHUNK_PAGES + page as usize) * MIN_BUFFER;
        // SAFETY: the block is in the arena: only bits of existing pages are ever set.
        let base = unsafe { self.arena.base().add(offset) };
        Some(Buffer { base, len: len as u32, order: order as u8 })
    }

    /// Frees a buffer.
    ///
    /// # Panics
    /// If the buffer belongs to another pool.
    #[inline]
    pub fn free(&mut self, buffer: Buffer) {
        let buffer = ManuallyDrop::new(buffer);
        // The arenas of all pools with outstanding buffers are mapped, so an address identifies its pool.
        let offset = (buffer.base.as_ptr().addr()).wrapping_sub(self.arena.base().as_ptr().addr());
        assert!(offset < self.pages * MIN_BUFFER, "a buffer was freed to another pool");
        let page = offset / MIN_BUFFER;
        let (chunk, order) = ((page / CHUNK_PAGES) as u32, usize::from(buffer.order));
        let mask = block_mask((page % CHUNK_PAGES) as u32, order);
        debug_assert_eq!(self.chunks[chunk as usize].free & mask, 0, "freed twice");
        self.chunks[chunk as usize].free |= mask;
        self.relist(chunk);
        self.free_pages += 1 << order;
        self.outstanding -= 1;
    }

    /// Bytes that a buffer of `len` bytes allocates from its pool.
    #[inline]
    pub fn size_of(len: usize) -> usize {
        MIN_BUFFER << order_for(len)
    }

    /// Free bytes.
    #[inline]
    pub fn available_bytes(&self) -> usize {
        self.free_pages * MIN_BUFFER
    }

    /// Total bytes.
    pub fn capacity_bytes(&self) -> usize {
        self.pages * MIN_BUFFER
    }

    /// Outstanding buffers.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Moves a chunk to the list of its largest free block.
    fn relist(&mut self, chunk: u32) {
        let Chunk { free, previous, next, list } = self.chunks[chunk as usize];
        let wanted = largest_order(free);
        if wanted == list {
            return;
        }
        if list != FULL {
            self.unlink(previous, next, usize::from(list));
        }
        let head = if wanted == FULL { NONE } else { self.heads[usize::from(wanted)] };
        self.chunks[chunk as usize] = Chunk { free, previous: NONE, next: head, list: wanted };
        if head != NONE {
            self.chunks[head as usize].previous = chunk;
        }
        if wanted != FULL {
            self.heads[usize::from(wanted)] = chunk;
        }
    }

    /// Links two neighbours in a list.
    fn unlink(&mut self, previous: u32, next: u32, list: usize) {
        if previous == NONE {
            self.heads[list] = next;
        } else {
            self.chunks[previous as usize].next = next;
        }
        if next != NONE {
            self.chunks[next as usize].previous = previous;
        }
    }
}

impl Drop for BufferPool {
    fn drop(&mut self) {
        // SAFETY: the arena is taken once, here.
        let arena = unsafe { ManuallyDrop::take(&mut self.arena) };
        if self.outstanding > 0 {
            arena.leak();
        }
    }
}

/// The order of the smallest block that holds `len` bytes.
fn order_for(len: usize) -> usize {
    let pages = len.div_ceil(MIN_BUFFER).max(1);
    pages.next_power_of_two().ilog2() as usize
}

/// The bits of a block.
fn block_mask(page: u32, order: usize) -> u32 {
    (u32::MAX >> (CHUNK_PAGES - (1 << order))) << page
}

/// Bit n: the block of `order` that starts at page n is free.
fn free_blocks(free: u32, order: usize) -> u32 {
    // Pages that can start a block of the order.
    const STARTS: [u32; ORDERS] = [u32::MAX, 0x5555_5555, 0x1111_1111, 0x0101_0101, 0x0001_0001, 1];
    let mut blocks = free;
    for step in 0..order {
        blocks &= blocks >> (1 << step);
    }
    blocks & STARTS[order]
}

/// The order of the largest free block; [`FULL`] if there is none.
fn largest_order(free: u32) -> u8 {
    let (mut blocks, mut order) = (free, 0);
    if free == 0 {
        return FULL;
    }
    for (step, starts) in [0x5555_5555, 0x1111_1111, 0x0101_0101, 0x0001_0001, 1u32].into_iter().enumerate() {
        blocks &= (blocks >> (1 << step)) & starts;
        order += u8::from(blocks != 0);
    }
    order
}

#[cfg(test)]
mod tests;
