//! A namespace in memory: sparse, and shared by all cores.
//!
//! # The problem
//! Any number of I/O threads access the same bytes. There must be no data race, a block must be atomic, a reactor must not
//! wait, and unwritten blocks must take no memory.
//!
//! # Terms
//! The namespace is one private mapping, larger than the namespace so that it can grow. A *page* (4 KiB) with *content*
//! has been written; one without reads as zeroes, is not charged to the budget, and its memory is not accessed.
//! A namespace is *sparse*, or *preallocated* in huge pages (see `reserve.rs`).
//!
//! # The algorithm
//! A request holds the guards of all its pages (see `guard.rs`), copies, and releases them; if another request holds one
//! of them it is [`Submitted::Busy`]. A zero-copy read holds them until its data is sent (`direct.rs`). A write charges
//! pages without content to the budget before it accesses them.
//! Deallocation returns whole pages to the kernel and clears parts of pages, and so does a write of zeroes with
//! `deallocate`. A plain write of zeroes clears pages with content and keeps them.
//! Requests without data may be as large as the namespace. Beyond one *slice* (64 pages) they are executed slice by slice
//! in `poll`, so that none blocks a reactor. (Returning pages causes a TLB shootdown: with slices one per run of pages.)
//!
//! # The properties
//! - A read or write is atomic as a whole, a request without data per slice.
//! - A preallocated namespace is charged and resident from the start: all its pages have content. Deallocation clears them
//!   and keeps the memory, so its huge pages are never split. Only a resize changes its memory.
//! - A page without content is zero, so a partial write of it leaves zeroes around.
//! - `allocated_bytes` is exact: pages with content times 4 KiB. The sum over namespaces never exceeds the budget.
//! - After a shrink no page beyond the new end has content: a request checks the end after it takes its hold, and the
//!   shrinking thread sets the end before it takes the holds.

mod compare;
mod direct;
mod reserve;

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use reserve::reserve;

use super::guard::{PAGE, PageGuards, PageState};
use super::{
    Backend, Channel, Completion, Geometry, IoError, Loan, MemoryBudget, Op, Request, Submitted, check_geometry,
    check_range,
};
use crate::mapping::Mapping;

/// Pages held at once: one bit of a word each.
const SLICE: u64 = u64::BITS as u64;
const SLICE_BYTES: u64 = SLICE * PAGE as u64;
/// Slices without content that one poll skips.
const SLICES_PER_POLL: usize = 8;
const CACHE_LINE: usize = 64;
/// Cache lines to prefetch: the processor's own prefetcher fetches the rest of the page.
const PREFETCHED_LINES: usize = 16;

/// A namespace in memory.
#[derive(Debug)]
pub struct MemoryBackend {
    store: Arc<Store>,
    resizing: Mutex<()>,
}

impl MemoryBackend {
    /// A namespace of `blocks` blocks of `block_size` bytes that all read as zeroes. Writes are charged to `budget`.
    ///
    /// # Errors
    /// A block size that is neither 512 nor 4096, no blocks at all, or not enough address space.
    pub fn new(block_size: u32, blocks: u64, budget: Arc<MemoryBudget>) -> io::Result<Self> {
        Self::with(block_size, blocks, budget, false)
    }

    /// As [`Self::new`], with all memory charged to `budget` and resident from the start, in huge pages where available: no
    /// page faults, and fewer TLB misses. Takes 0.1 to 3 s per GiB.
    ///
    /// # Errors
    /// As [`MemoryBackend::new`], or if `budget` or the system does not have the memory.
    pub fn preallocated(block_size: u32, blocks: u64, budget: Arc<MemoryBudget>) -> io::Result<Self> {
        let backend = Self::with(block_size, blocks, budget, true)?;
        backend.store.preallocate(0..backend.store.end())?;
        Ok(backend)
    }

    fn with(block_size: u32, blocks: u64, budget: Arc<MemoryBudget>, preallocated: bool) -> io::Result<Self> {
        check_geometry(block_size, blocks)?;
        let (data, guards) = reserve(blocks * u64::from(block_size))?;
        data.use_huge_pages_within(0);
        let store = Store {
            data,
            guards,
            preallocated,
            block_size: block_size as usize,
            blocks: AtomicU64::new(blocks),
            allocated_pages: AtomicU64::new(0),
            budget,
        };
        Ok(Self { store: Arc::new(store), resizing: Mutex::new(()) })
    }
}

impl Backend for MemoryBackend {
    fn geometry(&self) -> Geometry {
        Geometry {
            block_size: self.store.block_size as u32,
            blocks: self.store.blocks.load(Ordering::Acquire),
            volatile_write_cache: false,
            deallocated_reads_zero: true,
            is_read_only: false,
        }
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        Ok(self.store.allocated_pages.load(Ordering::Relaxed) * PAGE as u64)
    }

    fn open_channel(&self, depth: u32) -> io::Result<Box<dyn Channel>> {
        let long = VecDeque::with_capacity(depth as usize);
        Ok(Box::new(MemoryChannel { store: Arc::clone(&self.store), long, depth: depth as usize, lent: 0 }))
    }

    /// Grows within the address space reserved at creation, or shrinks and frees the memory beyond the new end.
    fn resize(&self, blocks: Option<u64>) -> io::Result<Geometry> {
        let Some(blocks) = blocks else { return Ok(self.geometry()) };
        let block_size = self.store.block_size as u64;
        check_geometry(block_size as u32, blocks)?;
        let most = self.store.data.len() as u64 / block_size;
        if blocks > most {
            let message = format!("{blocks} blocks: this namespace can grow to {most} blocks; recreate it for more");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let _one_at_a_time = self.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, end) = (self.store.end(), blocks * block_size);
        if self.store.preallocated && end > before {
            self.store.preallocate(before..end)?;
        }
        self.store.blocks.store(blocks, Ordering::Release);
        if end < before {
            if self.store.preallocated {
                self.store.data.use_huge_pages_within(end as usize);
            }
            self.store.clear(end..before);
        }
        Ok(self.geometry())
    }
}

/// Why a request was refused.
#[derive(Clone, Copy)]
enum Refusal {
    /// Another request holds one of its pages.
    Busy,
    /// It failed.
    Failed(IoError),
}

/// The namespace's memory and its accounting.
#[derive(Debug)]
struct Store {
    data: Mapping,
    guards: PageGuards,
    preallocated: bool,
    block_size: usize,
    blocks: AtomicU64,
    allocated_pages: AtomicU64,
    budget: Arc<MemoryBudget>,
}

impl Store {
    /// Address of a byte of the namespace. To be accessed only while its page is held.
    fn at(&self, byte: u64) -> *mut u8 {
        let offset = byte as usize;
        assert!(offset < self.data.len(), "beyond the reserve");
        // SAFETY: within the mapping.
        unsafe { self.data.base().add(offset).as_ptr() }
    }

    /// Prefetches the guard of the first page, the beginning of the data, and its address translation. Needs no hold because
    /// the data is not used; pages without content are not accessed.
    fn prefetch_read(&self, lba: u64) {
        let byte = lba * self.block_size as u64;
        let page = byte / PAGE as u64;
        if byte >= self.end() || !self.guards.has_content(page) {
            return;
        }
        let start = self.at(byte);
        for line in 0..PREFETCHED_LINES {
            prefetch(start.wrapping_add(line * CACHE_LINE));
        }
    }

    /// The byte range of blocks that [`check_range`] has accepted.
    fn bytes_of(&self, lba: u64, blocks: u32) -> Range<u64> {
        let block_size = self.block_size as u64;
        lba * block_size..(lba + u64::from(blocks)) * block_size
    }

    fn end(&self) -> u64 {
        self.blocks.load(Ordering::Acquire) * self.block_size as u64
    }

    fn read(&self, request: &mut Request) -> Result<(), Refusal> {
        let bytes = request.bytes(self.block_size);
        let mut rest = request.data(self.block_size);
        let hold = self.guards.try_shared(pages_of(&bytes)).ok_or(Refusal::Busy)?;
        if bytes.end > self.end() {
            self.guards.release(hold);
            return Err(Refusal::Failed(IoError::OutOfRange));
        }
        for page in hold.pages() {
            let piece = piece_of(page, &bytes);
            let (here, behind) = rest.split_at_mut((piece.end - piece.start) as usize);
            if self.guards.has_content(page) {
                // SAFETY: the piece is within its page, which is held, so that it does not change; the buffer is the request's.
                unsafe { std::ptr::copy_nonoverlapping(self.at(piece.start), here.as_mut_ptr(), here.len()) };
            } else {
                here.fill(0);
            }
            rest = behind;
        }
        self.guards.release(hold);
        Ok(())
    }

    /// Writes `data` to `bytes`, of the same length.
    fn write(&self, bytes: Range<u64>, data: &[u8]) -> Result<(), Refusal> {
        assert_eq!(bytes.end - bytes.start, data.len() as u64, "a write has whole blocks");
        let hold = self.guards.try_exclusive(pages_of(&bytes)).ok_or(Refusal::Busy)?;
        let charged = if bytes.end > self.end() { Err(IoError::OutOfRange) } else { self.charge(hold.pages()) };
        if let Err(error) = charged {
            self.guards.release(hold);
            return Err(Refusal::Failed(error));
        }
        // SAFETY: all pages of the range are held exclusively, and `data` is borrowed.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.at(bytes.start), data.len()) };
        self.guards.release_with(hold, |_| PageState::Content);
        Ok(())
    }

    /// Charges the held pages without content.
    fn charge(&self, pages: Range<u64>) -> Result<(), IoError> {
        let new = pages.filter(|&page| !self.guards.has_content(page)).count() as u64;
        if new == 0 {
            return Ok(());
        }
        if !self.budget.try_take(new * PAGE as u64) {
            return Err(IoError::NoSpace);
        }
        self.allocated_pages.fetch_add(new, Ordering::Relaxed);
        Ok(())
    }

    /// Zeroes at most [`SLICE`] pages; `deallocate` frees whole pages. Returns whether there was any content. `end` is the
    /// limit of the range.
    fn zero(&self, bytes: Range<u64>, deallocate: bool, end: impl Fn() -> u64) -> Result<bool, Refusal> {
        let hold = self.guards.try_exclusive(pages_of(&bytes)).ok_or(Refusal::Busy)?;
        if bytes.end > end() {
            self.guards.release(hold);
            return Err(Refusal::Failed(IoError::OutOfRange));
        }
        let (first, mut content, mut whole) = (hold.pages().start, 0_u64, 0_u64);
        for page in hold.pages().filter(|&page| self.guards.has_content(page)) {
            let (piece, bit) = (piece_of(page, &bytes), 1 << (page - first));
            content |= bit;
            if deallocate && piece.end - piece.start == PAGE as u64 {
                whole |= bit;
            } else {
                // SAFETY: the piece is within its page, which is held exclusively.
                unsafe { self.at(piece.start).write_bytes(0, (piece.end - piece.start) as usize) };
            }
        }
        let freed = self.discard(first, whole);
        self.allocated_pages.fetch_sub(u64::from(freed.count_ones()), Ordering::Relaxed);
        self.budget.release(u64::from(freed.count_ones()) * PAGE as u64);
        let left = content & !freed;
        self.guards.release_with(hold, |page| {
            if left >> (page - first) & 1 == 1 { PageState::Content } else { PageState::Empty }
        });
        Ok(content != 0)
    }

    /// Frees the pages `first + n` for each bit n, all held exclusively, run by run. Returns the freed ones; a run that the
    /// kernel refuses to free (memory locked by the process) is cleared instead.
    fn discard(&self, first: u64, pages: u64) -> u64 {
        let (mut rest, mut freed) = (pages, 0);
        while rest != 0 {
            let start = rest.trailing_zeros();
            let run = (rest >> start).trailing_ones();
            let bits = (u64::MAX >> (u64::BITS - run)) << start;
            let (offset, len) = ((first + u64::from(start)) as usize * PAGE, run as usize * PAGE);
            // SAFETY: the pages are held exclusively, so none of them is on loan, and there are no other references into them.
            if unsafe { self.data.discard(offset, len) }.is_ok() {
                freed |= bits;
            } else {
                // SAFETY: the pages are held exclusively; `discard` has checked that they are in the mapping.
                unsafe { self.at(offset as u64).write_bytes(0, len) };
            }
            rest &= !bits;
        }
        freed
    }

    /// Frees a range beyond the end, and the rest of its last page. Waits for holders of its pages. Not for reactors.
    fn clear(&self, mut bytes: Range<u64>) {
        bytes.end = bytes.end.next_multiple_of(PAGE as u64);
        while !bytes.is_empty() {
            let slice = first_slice(&bytes);
            match self.zero(slice.clone(), true, || u64::MAX) {
                Ok(_) => bytes.start = slice.end,
                Err(_) => std::thread::yield_now(),
            }
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.budget.release(*self.allocated_pages.get_mut() * PAGE as u64);
    }
}

/// Prefetches the cache line at `address`, which need not be valid.
fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint: it has no visible effect and never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// The pages of a range of bytes.
fn pages_of(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / PAGE as u64..bytes.end.div_ceil(PAGE as u64)
}

/// The part of a range within a page.
fn piece_of(page: u64, bytes: &Range<u64>) -> Range<u64> {
    let start = page * PAGE as u64;
    bytes.start.max(start)..bytes.end.min(start + PAGE as u64)
}

/// The part of a range up to the next multiple of a slice.
fn first_slice(bytes: &Range<u64>) -> Range<u64> {
    let next = (bytes.start / SLICE_BYTES + 1) * SLICE_BYTES;
    bytes.start..next.min(bytes.end)
}

/// A request without data that takes several polls.
#[derive(Debug)]
struct Long {
    request: Request,
    rest: Range<u64>,
}

struct MemoryChannel {
    store: Arc<Store>,
    long: VecDeque<Long>,
    depth: usize,
    /// Outstanding loans.
    lent: usize,
}

impl MemoryChannel {
    fn check_range(&self, lba: u64, blocks: u32) -> Result<(), IoError> {
        check_range(lba, blocks, self.store.blocks.load(Ordering::Acquire))
    }

    /// Zeroes or deallocates one slice at once; queues a longer range.
    fn submit_zero(&mut self, request: Request, deallocate: bool) -> Submitted {
        let rest = request.bytes(self.store.block_size);
        let deallocate = deallocate && !self.store.preallocated;
        if first_slice(&rest) == rest {
            let result = self.store.zero(rest, deallocate, || self.store.end());
            return submitted(request, result.map(drop));
        }
        if self.long.len() == self.depth {
            return Submitted::Busy(request);
        }
        self.long.push_back(Long { request, rest });
        Submitted::Pending
    }

    /// Executes the next slice of the first long request. Returns whether to continue, and a completion.
    fn advance(&mut self) -> (bool, Option<Completion>) {
        let Some(long) = self.long.front_mut() else { return (false, None) };
        let keep = self.store.preallocated || matches!(long.request.op, Op::WriteZeroes { deallocate: false, .. });
        let slice = first_slice(&long.rest);
        let result = match self.store.zero(slice.clone(), !keep, || self.store.end()) {
            Err(Refusal::Busy) => return (false, None),
            Err(Refusal::Failed(error)) => Err(error),
            Ok(had_content) if slice.end < long.rest.end => {
                long.rest.start = slice.end;
                return (!had_content, None);
            }
            Ok(_) => Ok(()),
        };
        (true, self.long.pop_front().map(|long| long.request.complete(result)))
    }
}

fn submitted(request: Request, result: Result<(), Refusal>) -> Submitted {
    match result {
        Ok(()) => Submitted::Done(request.complete(Ok(()))),
        Err(Refusal::Failed(error)) => Submitted::Done(request.complete(Err(error))),
        Err(Refusal::Busy) => Submitted::Busy(request),
    }
}

impl Channel for MemoryChannel {
    fn prefetch_read(&self, lba: u64, _blocks: u32) {
        self.store.prefetch_read(lba);
    }

    fn lend(&mut self, lba: u64, blocks: u32) -> Option<Loan> {
        self.check_range(lba, blocks).ok()?;
        let loan = self.store.lend(lba, blocks)?;
        self.lent += 1;
        Some(loan)
    }

    fn end_loan(&mut self, loan: Loan) {
        self.store.end_loan(loan);
        self.lent -= 1;
    }

    fn write_now(&mut self, lba: u64, blocks: u32, _fua: bool, data: &[u8]) -> Option<Result<(), IoError>> {
        if let Err(error) = self.check_range(lba, blocks) {
            return Some(Err(error));
        }
        match self.store.write(self.store.bytes_of(lba, blocks), data) {
            Ok(()) => Some(Ok(())),
            Err(Refusal::Failed(error)) => Some(Err(error)),
            Err(Refusal::Busy) => None,
        }
    }

    fn submit(&mut self, mut request: Request, _now_ns: u64) -> Submitted {
        if let Err(error) = request.check_end(self.store.blocks.load(Ordering::Acquire)) {
            return Submitted::Done(request.complete(Err(error)));
        }
        match request.op {
            Op::Read => {
                let result = self.store.read(&mut request);
                submitted(request, result)
            }
            Op::Write { .. } => {
                let bytes = request.bytes(self.store.block_size);
                let result = self.store.write(bytes, request.data(self.store.block_size));
                submitted(request, result)
            }
            Op::CompareAndWrite { .. } => {
                let result = self.store.compare_and_write(&request);
                submitted(request, result)
            }
            Op::Flush => submitted(request, Ok(())),
            Op::WriteZeroes { deallocate, .. } => self.submit_zero(request, deallocate),
            Op::Deallocate | Op::Clear => self.submit_zero(request, true),
        }
    }

    fn poll(&mut self, _now_ns: u64, done: &mut Vec<Completion>) {
        for _ in 0..SLICES_PER_POLL {
            if done.len() == done.capacity() {
                return;
            }
            let (more, completion) = self.advance();
            done.extend(completion);
            if !more {
                return;
            }
        }
    }

    fn in_flight(&self) -> usize {
        self.long.len()
    }
}

impl Drop for MemoryChannel {
    fn drop(&mut self) {
        let lost = self.long.len();
        assert!(lost == 0 || std::thread::panicking(), "{lost} requests in flight were lost: poll until none is");
        if self.lent > 0 {
            let _ = std::mem::ManuallyDrop::new(Arc::clone(&self.store)); // the borrowers may still read
            assert!(std::thread::panicking(), "{} loans were not ended", self.lent);
        }
    }
}

#[cfg(test)]
mod tests;
