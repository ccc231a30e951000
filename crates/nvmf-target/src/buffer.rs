//! Data buffers: a bounded pool for each I/O thread.
//!
//! # The problem
//! 128 queues of 1,024 commands of 128 KiB each would be 16 GiB, so memory for data cannot be set aside per command. Each
//! I/O thread owns one arena of fixed size; a command that finds it exhausted waits, and its R2T with it.
//!
//! # The words
//! The arena consists of *pages* of [`MIN_BUFFER`] bytes; 32 pages make a *chunk* of [`MAX_BUFFER`] bytes. A buffer is a
//! *block* of 2^order pages, order 0 to 5, that starts at a multiple of its size: buddies as in a binary buddy allocator.
//!
//! # The algorithm
//! One 32-bit word per chunk says which of its pages are free. A block of an order is free where all its bits are set, so
//! splitting and merging need no work at all: taking a block clears its bits, giving it back sets them, and buddies that
//! are both free *are* a larger free block. Six lists, one per order, hold the chunks by the largest block that they
//! have free. A request takes the lowest fitting block of the first chunk in the first list that can serve it: the tightest
//! fit, and within it the chunk used last. So the pages in use stay few and dense, and therefore in the cache, and large
//! blocks stay whole as long as possible. Every step is a few instructions; there are no loops over pages or chunks.
//!
//! # The properties
//! - No two live buffers overlap; each lies within one chunk, aligned to its size (hence to 4 KiB, as O_DIRECT wants).
//! - A request is refused only if no chunk has a free block of its order; when all buffers are back the arena is whole.
//! - After [`BufferPool::new`] nothing is asked of the system's allocator.
//! - A buffer that is lost (dropped, forgotten, or outliving its pool) is memory lost, never memory used twice: its pages
//!   stay taken, and a pool that goes while buffers are out leaves its arena mapped.
//!
//! # Stale data
//! A buffer is handed out as it came back: it holds what another host may have read or written. Nothing clears it, because
//! a whole clearing per command would cost as much as the copy. Instead whoever fills a buffer fills all of it: a backend
//! overwrites `blocks * block_size` bytes of a read or reports an error (the conformance suite checks it), after which no
//! byte of the buffer may be sent; and data from a host covers the whole of a write before it is submitted.

use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::mapping::Mapping;

/// Smallest buffer in bytes; the alignment of all.
pub const MIN_BUFFER: usize = 4096;
/// Largest buffer in bytes: one command's data (MDTS).
pub const MAX_BUFFER: usize = 128 * 1024;

/// Pages in a chunk: the bits of one word.
const CHUNK_PAGES: usize = MAX_BUFFER / MIN_BUFFER;
const _: () = assert!(CHUNK_PAGES == u32::BITS as usize);

/// Orders: blocks of 1, 2, 4, 8, 16 and 32 pages.
const ORDERS: usize = CHUNK_PAGES.ilog2() as usize + 1;

/// "No chunk" in a list.
const NONE: u32 = u32::MAX;

/// The order of a chunk that is in no list, having no page free.
const FULL: u8 = ORDERS as u8;

/// Buffers lost in this process; see [`lost_buffers`].
static LOST: AtomicU64 = AtomicU64::new(0);

/// How many buffers of this process were dropped instead of given back: always 0 unless a thread panicked.
pub fn lost_buffers() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Memory for one command's data, owned; given back with [`BufferPool::free`].
///
/// It dereferences to as many bytes as were asked for; they hold stale data until they are filled (see the module's
/// header). Dropping a buffer is a mistake and panics: its memory would be lost to its pool.
pub struct Buffer {
    base: NonNull<u8>,
    len: u32,
    order: u8,
}

// SAFETY: a buffer has its bytes to itself, from `alloc` to `free`, and they are plain memory of the process.
unsafe impl Send for Buffer {}
// SAFETY: through a shared reference the bytes can only be read.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Bytes that the buffer takes from its pool: its length rounded up to a power of two from [`MIN_BUFFER`] on.
    pub fn capacity(&self) -> usize {
        MIN_BUFFER << self.order
    }

    /// The first byte, for a device that writes to the buffer while nobody holds a reference into it. The address stays
    /// the same when the buffer is moved, and stays mapped for good if the buffer is lost.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.base.as_ptr()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the block is mapped as long as the buffer lives, initialised (zeroes at first), at least `len` long, and
        // nobody else's.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len as usize) }
    }
}

impl DerefMut for Buffer {
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
    fn drop(&mut self) {
        LOST.fetch_add(1, Ordering::Relaxed);
        assert!(
            std::thread::panicking(),
            "a buffer of {} bytes was dropped: give it back with BufferPool::free, its memory is lost otherwise",
            self.len
        );
    }
}

/// Which pages of 32 are free, and the chunk's neighbours in its list.
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
    /// Taken only when the pool is dropped.
    arena: ManuallyDrop<Mapping>,
    chunks: Box<[Chunk]>,
    heads: [u32; ORDERS],
    free_pages: usize,
    pages: usize,
    outstanding: usize,
}

impl BufferPool {
    /// Sets `bytes` of address space aside, rounded down to whole pages of [`MIN_BUFFER`]. Memory is taken when buffers
    /// are first used. A size that is no multiple of [`MAX_BUFFER`] leaves a last chunk that cannot serve the largest.
    ///
    /// # Errors
    /// Less than one page, more than 16 TiB, or no address space.
    pub fn new(bytes: usize) -> io::Result<Self> {
        let pages = bytes / MIN_BUFFER;
        if pages == 0 || pages >= NONE as usize {
            let message = format!("a buffer pool of {bytes} bytes: it must have from {MIN_BUFFER} bytes to 16 TiB");
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

    /// A buffer of `len` bytes, 0 to [`MAX_BUFFER`]; `None` if the pool has none that large left, or ever.
    /// It holds stale data: fill all of it before any of it leaves the process.
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
        // SAFETY: the block lies in the arena: only bits of pages that exist are ever set.
        let base = unsafe { self.arena.base().add(offset) };
        Some(Buffer { base, len: len as u32, order: order as u8 })
    }

    /// Takes a buffer back.
    ///
    /// # Panics
    /// If the buffer is of another pool.
    pub fn free(&mut self, buffer: Buffer) {
        let buffer = ManuallyDrop::new(buffer);
        // The arenas of all pools that have buffers out are mapped, so an address tells its pool.
        let offset = (buffer.base.as_ptr().addr()).wrapping_sub(self.arena.base().as_ptr().addr());
        assert!(offset < self.pages * MIN_BUFFER, "a buffer was given back to a pool that is not its own");
        let page = offset / MIN_BUFFER;
        let (chunk, order) = ((page / CHUNK_PAGES) as u32, usize::from(buffer.order));
        let mask = block_mask((page % CHUNK_PAGES) as u32, order);
        debug_assert_eq!(self.chunks[chunk as usize].free & mask, 0, "freed twice");
        self.chunks[chunk as usize].free |= mask;
        self.relist(chunk);
        self.free_pages += 1 << order;
        self.outstanding -= 1;
    }

    /// Bytes that a buffer of `len` bytes takes from its pool.
    pub fn size_of(len: usize) -> usize {
        MIN_BUFFER << order_for(len)
    }

    /// Bytes free, in whatever pieces.
    pub fn available_bytes(&self) -> usize {
        self.free_pages * MIN_BUFFER
    }

    /// Bytes in all.
    pub fn capacity_bytes(&self) -> usize {
        self.pages * MIN_BUFFER
    }

    /// Buffers handed out and not yet given back.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Puts a chunk into the list that its free pages now call for.
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

    /// Closes the gap between two neighbours in a list.
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
